//! The start of a reactor on its own thread, and the watch for its end.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use iofair_core::time::Nanos;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::ServeError;
use crate::port::Port;
use crate::reactor::handle::ReactorHandle;
use crate::reactor::{Parts, Reactor};
use crate::security::Security;
use crate::supervisor::Watchdog;
use crate::wake;

/// A reactor on its own thread: its handle, the thread, and its end.
pub(crate) type Running = (ReactorHandle, JoinHandle<io::Result<()>>, Arc<Latch>);

/// The parts of a new reactor.
pub(crate) struct Launch {
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) drain: Nanos,
    pub(crate) security: Security,
    pub(crate) watchdog: Option<Watchdog>,
}

impl Launch {
    /// Starts a reactor on its own thread, and returns its handle.
    pub(crate) fn reactor(self) -> Result<Running, ServeError> {
        self.spawn(Reactor::run)
    }
    fn spawn(
        self,
        then: impl FnOnce(Reactor) -> io::Result<()> + Send + 'static,
    ) -> Result<Running, ServeError> {
        let Self { engine, clock, drain, security, watchdog } = self;
        let wake = wake::new().map_err(ServeError::system("an eventfd"))?;
        let (messages, inbox) = mpsc::channel();
        let line = ReactorHandle::new(messages, &wake).map_err(ServeError::system("an eventfd"))?;
        let port = Port::new(engine, clock.now(), &security.limits);
        let parts = Parts { port, clock, messages: inbox, wake, drain, security, watchdog };
        let ended = Arc::new(Latch::default());
        let at_end = SetAtEnd(ended.clone());
        let then = move |reactor| {
            let _at_end = at_end;
            then(reactor)
        };
        Ok((line, spawn(parts, then)?, ended))
    }
    /// Checks whether the reactor could run.
    pub(super) fn check(self) -> Result<(), ServeError> {
        let (_line, reactor, _) = self.spawn(|_reactor| Ok(()))?;
        let ended = reactor.join();
        ended.expect("a reactor that panics is a bug").map_err(ServeError::system("the reactor"))
    }
}

fn spawn(
    parts: Parts,
    then: impl FnOnce(Reactor) -> io::Result<()> + Send + 'static,
) -> Result<JoinHandle<io::Result<()>>, ServeError> {
    let (ready, started) = mpsc::channel();
    let run = move || match Reactor::new(parts) {
        Ok(reactor) => {
            // The starter waits for this, so it is there.
            let _ = ready.send(Ok(()));
            then(reactor)
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            Ok(())
        }
    };
    let thread = std::thread::Builder::new().name("reactor".into()).spawn(run);
    let thread = thread.map_err(ServeError::system("a thread"))?;
    let result = started.recv().map_err(|_| ServeError::Gone)?;
    result.map_err(ServeError::system("io_uring (is it allowed here?)"))?;
    Ok(thread)
}

/// Something that happens once.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    happened: Mutex<bool>,
    changed: Condvar,
}

/// Sets a latch when dropped, also by a panic.
struct SetAtEnd(Arc<Latch>);

impl Drop for SetAtEnd {
    fn drop(&mut self) {
        *self.0.happened.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

impl Latch {
    /// Whether it has happened.
    pub(crate) fn is_set(&self) -> bool {
        *self.happened.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Waits until it happens, at most this long; whether it has happened.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(happened, limit, |happened| !*happened);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
