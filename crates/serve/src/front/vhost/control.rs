//! The protocol with virtual machine monitors: it sets up the guests' memory and queues. Each socket serves one
//! client at a time; the next one waits until it has disconnected.
//!
//! The `vhost` crate reads and checks the messages. Changes of the device go to the reactor as a [`Command`], and
//! this side waits for its completion; no command can make the reactor wait.
//!
//! All sockets share one thread, [`Hub`], which waits until a message arrives. Messages are handled on another
//! thread, because a command may have to wait for the drive; such a thread exists only while there are messages. So
//! an idle device costs no thread, with or without a client. A client that sends half a message occupies one until
//! [`MESSAGE_MAX`] has passed, and is then disconnected.

mod handler;
mod peek;

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;
use vhost::vhost_user::{BackendReqHandler, Error};

use super::command::{Command, DeviceHandle, Reply};
use crate::clock::spent;
use crate::descriptors;
use crate::log;
use handler::Handler;
pub(crate) use peek::tell_of_change;

/// Pause after an error of `accept` that is not the end (no descriptors left).
const PAUSE: Duration = Duration::from_millis(100);
/// Time in which a client must send the rest of a message that it has begun.
const MESSAGE_MAX: Duration = Duration::from_secs(10);
/// Threads that handle messages at once; further conversations wait for one of them.
const THREADS_MAX: usize = 64;
/// The niceness of the threads: clients that connect and disconnect all the time must not take the processor from the
/// reactor.
const NICE: libc::c_int = 10;
/// An idle thread that handled messages ends after this time.
const THREAD_IDLE: Duration = Duration::from_secs(5);

/// A message for the operator.
pub(crate) fn tell(volume: &str, message: &str) {
    log::tell(&format!("volume \"{volume}\""), &format!("vhost-user: {message}"));
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
    end: Notify,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that waits for all sockets. It ends by itself once the hub is dropped and all conversations are over.
#[derive(Debug)]
pub(crate) struct Hub {
    sockets: UnboundedSender<Socket>,
}

/// A socket in service.
#[derive(Debug)]
struct Socket {
    listener: Arc<UnixListener>,
    shared: Arc<Shared>,
    line: Arc<DeviceHandle>,
}

impl Hub {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(THREADS_MAX);
        let runtime = runtime.on_thread_start(be_nice);
        let runtime = runtime.thread_keep_alive(THREAD_IDLE).thread_name("vhost-user").build()?;
        let (sockets, inbox) = unbounded_channel();
        let thread = std::thread::Builder::new().name("vhost-user".into());
        thread.spawn(move || {
            be_nice();
            runtime.block_on(serve_all(inbox));
        })?;
        Ok(Self { sockets })
    }
    /// Lets clients come to a socket.
    pub(crate) fn open(&self, listener: UnixListener, line: DeviceHandle) -> io::Result<Control> {
        listener.set_nonblocking(true)?;
        let (listener, shared) = (Arc::new(listener), Arc::new(Shared::default()));
        let socket =
            Socket { listener: listener.clone(), shared: shared.clone(), line: Arc::new(line) };
        let gone = |_| io::Error::other("the thread of vhost-user sockets has ended");
        self.sockets.send(socket).map_err(gone)?;
        Ok(Control { listener, shared, admits_nobody: false, closed: false })
    }
}

/// A socket. Dropping it sends the client away.
#[derive(Debug)]
pub(crate) struct Control {
    listener: Arc<UnixListener>,
    shared: Arc<Shared>,
    admits_nobody: bool,
    /// And it was said what becomes of the present client.
    closed: bool,
}

impl Control {
    /// Lets no further client come; the socket's file is gone already. Who knocks is refused at once, and not let in and
    /// dropped: QEMU before 9.1 never comes again when its server goes in the middle of the greeting.
    pub(crate) fn admit_nobody(&mut self) {
        if std::mem::replace(&mut self.admits_nobody, true) {
            return;
        }
        self.shared.state().closed = true;
        self.shared.end.notify_one();
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

/// A socket of the standard library whose input can be waited for.
trait StdSocket: AsRawFd {}
impl StdSocket for UnixStream {}
impl StdSocket for Arc<UnixListener> {}

fn watch<S: StdSocket>(socket: S) -> io::Result<AsyncFd<S>> {
    // SAFETY: the only two types behind the trait have one descriptor from their making to their drop, it stays open
    // all that time, and `AsyncFd` forgets it before it drops the socket.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }.map_err(Into::into)
}

fn be_nice() {
    // SAFETY: sets one number of the calling thread; a refusal leaves it as it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

async fn serve_all(mut sockets: UnboundedReceiver<Socket>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(socket) = sockets.recv().await {
        tasks.spawn(serve(socket));
        // Tasks that have ended leave the set.
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

async fn serve(socket: Socket) {
    let Socket { listener, shared, line } = socket;
    if let Ok(listener) = watch(listener) {
        while let Some(client) = accept(&listener, &shared, &line).await {
            // Without descriptors of theirs neither the owner of the socket nor the device could send it away.
            let (Ok(second), Ok(hook)) = (client.try_clone(), client.try_clone()) else { continue };
            {
                let mut state = shared.state();
                if state.closed {
                    break;
                }
                state.client = Some(second);
            }
            let goes_on = converse(client, hook, &shared, &line).await;
            shared.state().client = None;
            if !goes_on {
                break;
            }
        }
    } else {
        tell(&line.volume, "its socket cannot be waited for");
    }
    // Without a device there is nothing to end.
    let _ = blocking(move || line.ask(Command::End)).await;
}

/// Waits for a client; `None` when none may come any more.
async fn accept(
    listener: &AsyncFd<Arc<UnixListener>>,
    shared: &Shared,
    line: &Arc<DeviceHandle>,
) -> Option<UnixStream> {
    let mut is_told = false;
    loop {
        let ready = listener.readable().await;
        if shared.state().closed {
            return None;
        }
        let accepted = ready.map(|mut ready| ready.try_io(|listener| listener.get_ref().accept()));
        match accepted {
            Ok(Ok(Ok((client, _)))) if descriptors::has_room(&client) => return Some(client),
            // There was no connection after all.
            Ok(Err(_)) => {}
            Ok(Ok(refused)) => {
                let waits = refused.as_ref().is_err_and(|error| {
                    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
                });
                if refused.is_ok() {
                    let reason = "a client was refused: no file descriptors left (RLIMIT_NOFILE)";
                    refuse(line, reason).await;
                } else if waits && !is_told {
                    tell(&line.volume, "a client waits: no file descriptors left (RLIMIT_NOFILE)");
                }
                is_told = waits;
                drop(refused);
                let _ = tokio::time::timeout(PAUSE, shared.end.notified()).await;
            }
            Err(_) => {
                let _ = tokio::time::timeout(PAUSE, shared.end.notified()).await;
            }
        }
    }
}

/// Tells that a client was refused, and counts it.
async fn refuse(line: &Arc<DeviceHandle>, reason: &str) {
    tell(&line.volume, reason);
    let line = line.clone();
    // A device that has gone counts nothing.
    let _ = blocking(move || line.ask(Command::Refused)).await;
}

/// Runs what may wait on a thread for such things. `None`: it panicked.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let work = || {
        // What the thread did before was for somebody else.
        let _ = spent();
        work()
    };
    spawn_blocking(work).await.ok()
}

/// Speaks with one client until it goes. `false`: the device has gone. A client that came through an earlier socket of the
/// volume has it first.
async fn converse(
    client: UnixStream,
    mut hook: UnixStream,
    shared: &Shared,
    line: &Arc<DeviceHandle>,
) -> bool {
    let mut is_told = false;
    loop {
        let hello = line.clone();
        match blocking(move || hello.ask(Command::Hello(hook))).await.flatten() {
            Some(Reply::Waits(same)) if !shared.state().closed => hook = same,
            Some(Reply::Waits(_)) => return true,
            Some(Reply::Refused(reason)) => {
                refuse(line, &reason).await;
                return true;
            }
            Some(_) => break,
            None => return false,
        }
        if !std::mem::replace(&mut is_told, true) {
            tell(&line.volume, "a client waits until the one of an earlier socket has gone");
        }
        let _ = tokio::time::timeout(PAUSE, shared.end.notified()).await;
    }
    let handler = Arc::new(Mutex::new(Handler::new(line.clone())));
    if let Err(error) = messages(client, line, handler.clone()).await
        && !matches!(error, Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_))
    {
        refuse(line, &format!("the client was disconnected: {error}")).await;
    }
    let gone = line.clone();
    // The handler's hold on the guest's memory outlives that of the device, so that it is unmapped here.
    let leave = move || (gone.ask(Command::Gone), drop(handler)).0;
    blocking(leave).await.flatten().is_some()
}

/// Handles a client's messages until an error ends the conversation.
async fn messages(
    client: UnixStream,
    line: &Arc<DeviceHandle>,
    handler: Arc<Mutex<Handler>>,
) -> Result<(), Error> {
    // The client may have been given to us by a listener that does not wait; the crate wants one that does.
    let prepared = client.set_nonblocking(false).and_then(|()| {
        client.set_read_timeout(Some(MESSAGE_MAX))?;
        watch(client.try_clone()?)
    });
    let watched = prepared.map_err(Error::SocketError)?;
    let socket = client.try_clone().map_err(Error::SocketError)?;
    let messages = BackendReqHandler::from_stream(client, handler);
    let mut talk = Conversation { socket, messages, line: line.clone() };
    loop {
        let mut ready = watched.readable().await.map_err(Error::SocketError)?;
        let is_there = |socket: &AsyncFd<UnixStream>| match peek::is_ready(socket.get_ref()) {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        if ready.try_io(is_there).is_err() {
            continue;
        }
        let handled = blocking(move || talk.handle_all()).await;
        let Some((handled, same)) = handled else { return Err(Error::BackendInternalError) };
        talk = same;
        handled?;
    }
}

/// What a thread needs to handle messages of a client.
struct Conversation {
    socket: UnixStream,
    messages: BackendReqHandler<Mutex<Handler>>,
    line: Arc<DeviceHandle>,
}

impl Conversation {
    /// Handles all messages that are there.
    fn handle_all(mut self) -> (Result<(), Error>, Self) {
        while peek::is_ready(&self.socket) {
            if let Some(channel) = peek::channel(&self.socket) {
                self.line.ask(Command::Channel(channel));
            }
            if let Err(error) = self.messages.handle_request() {
                return (Err(error), self);
            }
            self.line.ask(Command::Spent);
        }
        (Ok(()), self)
    }
}
