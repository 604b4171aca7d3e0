//! The conversation with a client, on a thread of its own, one a socket: who it is, where the guest's memory and
//! its queues are. One client at a time; the next waits until the one before has gone.
//!
//! The `vhost` crate reads and checks the messages. What changes the device goes to the reactor as a
//! [`Command`] and waits for its answer; no command can make the reactor wait.

mod handler;
mod peek;

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vhost::vhost_user::{BackendReqHandler, Error};

use super::command::{Command, Envelope, Reply};
use crate::wake;
use handler::Handler;
pub(crate) use peek::tell_of_change;

/// After an error of `accept` that is not the end (no descriptors left), so long a pause.
const PAUSE: Duration = Duration::from_millis(100);

/// The way to the device in the reactor.
#[derive(Debug)]
pub(crate) struct Line {
    /// The volume, for people.
    pub(crate) volume: String,
    pub(crate) commands: Sender<Envelope>,
    /// The eventfd that the device watches.
    pub(crate) wake: OwnedFd,
}

impl Line {
    /// Asks, and waits for the answer. `None`: there is no device any more.
    fn ask(&self, command: Command) -> Option<Reply> {
        let (reply, answered) = mpsc::channel();
        self.commands.send(Envelope { command, reply }).ok()?;
        wake::signal(&self.wake);
        answered.recv().ok()
    }
}

/// A message for the operator.
pub(crate) fn tell(volume: &str, message: &str) {
    eprintln!("volume \"{volume}\": vhost-user: {message}");
}

#[derive(Debug, Default)]
struct State {
    /// The present client.
    client: Option<UnixStream>,
    /// No client may come any more.
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// `closed` was set.
    end: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket and its thread. Dropping it sends the client away, and then the thread ends by itself.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    listener: Arc<UnixListener>,
    shared: Arc<Shared>,
    /// Nobody can come any more.
    deaf: bool,
    /// And it was said what becomes of the present client.
    closed: bool,
}

impl Control {
    /// Lets clients come.
    pub(crate) fn open(path: PathBuf, listener: UnixListener, line: Line) -> io::Result<Self> {
        let (listener, shared) = (Arc::new(listener), Arc::new(Shared::default()));
        std::thread::Builder::new().name("vhost-user".into()).spawn({
            let (listener, shared) = (listener.clone(), shared.clone());
            move || serve(&listener, &shared, &line)
        })?;
        Ok(Self { path, listener, shared, deaf: false, closed: false })
    }
    /// Lets no further client come. Who knocks is refused at once, and not let in and dropped: QEMU before 9.1
    /// never comes again when its server goes in the middle of the greeting.
    pub(crate) fn admit_nobody(&mut self) {
        if std::mem::replace(&mut self.deaf, true) {
            return;
        }
        // Gone already is as good.
        let _ = std::fs::remove_file(&self.path);
        self.shared.state().closed = true;
        self.shared.end.notify_all();
        // SAFETY: a plain system call on a descriptor of ours.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
    }
    /// [`Self::admit_nobody`]; the present client stays as long as it likes, or is sent away.
    pub(crate) fn close(&mut self, client_too: bool) {
        self.admit_nobody();
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        if let Some(client) = self.shared.state().client.take_if(|_| client_too) {
            // A client that has gone already needs no shutdown.
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.close(true);
    }
}

fn serve(listener: &UnixListener, shared: &Shared, line: &Line) {
    loop {
        let accepted = listener.accept();
        let mut state = shared.state();
        if state.closed {
            break;
        }
        let Ok((socket, _)) = accepted else {
            // Poisoned or not, time passes.
            let _ = shared.end.wait_timeout_while(state, PAUSE, |state| !state.closed);
            continue;
        };
        // Without descriptors of theirs neither the owner of the socket nor the device could send it away.
        let (Ok(second), Ok(third)) = (socket.try_clone(), socket.try_clone()) else { continue };
        state.client = Some(second);
        drop(state);
        let goes_on = converse(socket, third, line);
        shared.state().client = None;
        if !goes_on {
            break;
        }
    }
    // Without a device there is nothing to end.
    let _ = line.ask(Command::End);
}

/// Speaks with one client until it goes. `false`: the device has gone.
fn converse(socket: UnixStream, hook: UnixStream, line: &Line) -> bool {
    match line.ask(Command::Hello(hook)) {
        Some(Reply::Refused(reason)) => {
            tell(&line.volume, &reason);
            return true;
        }
        Some(_) => {}
        None => return false,
    }
    let peeker = socket.try_clone();
    let handler = Arc::new(Mutex::new(Handler::new(line)));
    let mut messages = BackendReqHandler::from_stream(socket, handler);
    let error = loop {
        if let Ok(peeker) = &peeker
            && let Some(channel) = peek::channel(peeker)
        {
            line.ask(Command::Channel(channel));
        }
        if let Err(error) = messages.handle_request() {
            break error;
        }
    };
    if !matches!(error, Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_)) {
        tell(&line.volume, &format!("the client was sent away: {error}"));
    }
    line.ask(Command::Gone).is_some()
}
