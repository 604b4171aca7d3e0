//! The handle through which other threads reach a reactor: messages and a wake-up.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use iofair_core::time::Instant;

use super::{Message, Opened, Seen};
use crate::error::ServeError;
use crate::port::Engine;
use crate::request::export::Export;
use crate::wake;

/// A way to a reactor; as many threads as want have one.
#[derive(Clone, Debug)]
pub(crate) struct ReactorHandle {
    messages: Sender<Message>,
    wake: Arc<OwnedFd>,
}

/// The end of the clients of removed volumes.
#[derive(Debug)]
pub(crate) struct Removal {
    /// In a lock, so that a server can be shared between threads.
    gone: Mutex<Receiver<()>>,
    limit: Duration,
}

impl Removal {
    /// Waits for it.
    pub(crate) fn wait(self) -> Result<(), ServeError> {
        let gone = self.gone.into_inner().unwrap_or_else(PoisonError::into_inner);
        match gone.recv_timeout(self.limit) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(ServeError::Gone),
        }
    }
}

impl ReactorHandle {
    pub(crate) fn new(messages: Sender<Message>, watched: &OwnedFd) -> io::Result<Self> {
        Ok(Self { messages, wake: Arc::new(watched.try_clone()?) })
    }
    pub(crate) fn send(&self, message: Message) -> Result<(), ServeError> {
        self.messages.send(message).map_err(|_| ServeError::Gone)?;
        wake::signal(&self.wake);
        Ok(())
    }
    /// Opens an endpoint for the volume of this name. `make` is called on the reactor's thread; without an export if there
    /// is no such volume, or no room, or the server ends.
    pub(crate) fn open(
        &self,
        volume: &str,
        make: impl FnOnce(Option<&Export>) -> Option<Opened> + Send + 'static,
    ) -> Result<(), ServeError> {
        self.send(Message::Open(volume.to_string(), Box::new(make)))
    }
    /// Looks at the reactor, on its own thread, between two turns.
    pub(crate) fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Seen<'_>) -> T + Send + 'static,
    ) -> Result<T, ServeError> {
        let (reply, replied) = mpsc::channel();
        // The asker waits for it, so it is there.
        self.send(Message::Look(Box::new(move |seen| drop(reply.send(look(seen))))))?;
        replied.recv().map_err(|_| ServeError::Gone)
    }
    /// Calls a function with the engine, on the reactor's thread, between two turns.
    pub(crate) fn with_engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(Instant, &mut Engine) -> T + Send + 'static,
    ) -> Result<T, ServeError> {
        let (reply, replied) = mpsc::channel();
        let work = move |now, engine: &mut Engine| drop(reply.send(work(now, engine)));
        self.send(Message::Engine(Box::new(work)))?;
        replied.recv().map_err(|_| ServeError::Gone)
    }
    /// The end of the clients of volumes that the last change has removed, which is not waited for longer than `limit`.
    pub(crate) fn removal(&self, limit: Duration) -> Removal {
        let (reply, gone) = mpsc::channel();
        // A reactor that has ended drops the reply.
        let _ = self.send(Message::Ejected(reply));
        Removal { gone: Mutex::new(gone), limit }
    }
    /// Lets no request in any more. The receiver hears when nothing is inside.
    pub(crate) fn pause(&self) -> Result<Receiver<()>, ServeError> {
        let (reply, replied) = mpsc::channel();
        self.send(Message::Pause(reply))?;
        Ok(replied)
    }
    /// Lets requests in again.
    pub(crate) fn resume(&self) -> Result<(), ServeError> {
        self.send(Message::Resume)
    }
    /// Waits for the end of [`Self::pause`]: `false` when it takes longer than `limit`.
    pub(crate) fn paused(replied: &Receiver<()>, limit: Duration) -> Result<bool, ServeError> {
        match replied.recv_timeout(limit) {
            Ok(()) => Ok(true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(ServeError::Gone),
        }
    }
}
