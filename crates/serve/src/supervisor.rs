//! The interface to a service manager, systemd: listening sockets that exist before the server, notifications (READY
//! and others), and a watchdog.
//!
//! Sockets have names: `nbd`, `control` and `metrics`. One without a name is for NBD: libnbd's socket activation, for example,
//! passes one so. A socket that is bound to an address in the contracts replaces
//! a new one; other sockets are served in addition. They belong to the manager: a server that ends leaves them open,
//! and clients that connect meanwhile are served by the next server.
//!
//! The reactor itself feeds the watchdog, once per turn when it is due. So the watchdog detects a reactor that hangs,
//! and not only a process that has died.

pub(crate) mod unit;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::path::Path;
use std::time::Duration;

use iofair_core::time::Nanos;
use sd_notify::NotifyState;

use crate::error::ServeError;
use crate::socket::{Family, listening};
use unit::Place;

/// Names that a socket may have.
const NAMES: &str = "nbd, control, metrics (FileDescriptorName= in the socket's unit)";

/// How long a manager that does not read may hold up a notification.
const NOTIFY_MAX: Duration = Duration::from_secs(1);
/// The name that `sd_listen_fds_with_names` gives to a socket without one.
const UNNAMED: &str = "unknown";

/// A listening socket that was there before the server.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) file: OwnedFd,
    place: Place,
}

impl Socket {
    fn new(file: OwnedFd) -> io::Result<Self> {
        let place = match listening(&file)? {
            Family::Unix => {
                let listener = UnixListener::from(file.try_clone()?);
                Place::Unix(listener.local_addr()?.as_pathname().map(Path::to_path_buf))
            }
            Family::Internet => Place::Tcp(TcpListener::from(file.try_clone()?).local_addr()?),
        };
        Ok(Self { file, place })
    }
    /// Its TCP address, if it has one.
    pub(crate) fn tcp(&self) -> Option<SocketAddr> {
        match self.place {
            Place::Tcp(address) => Some(address),
            Place::Unix(_) => None,
        }
    }
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.place, Place::Unix(_))
    }
}

/// Takes the socket that is bound to this path out of those that were passed.
pub(crate) fn take_unix(sockets: &mut Vec<Socket>, path: &Path) -> Option<Socket> {
    let bound = |socket: &Socket| socket.place.is_path(path);
    sockets.iter().position(bound).map(|index| sockets.remove(index))
}

/// Takes the socket that is bound to this address out of those that were passed.
pub(crate) fn take_tcp(sockets: &mut Vec<Socket>, address: SocketAddr) -> Option<Socket> {
    let bound = |socket: &Socket| socket.tcp() == Some(address);
    sockets.iter().position(bound).map(|index| sockets.remove(index))
}

/// What a service manager passed.
#[derive(Debug, Default)]
pub struct Passed {
    pub(crate) nbd: Vec<Socket>,
    pub(crate) control: Vec<Socket>,
    pub(crate) metrics: Vec<Socket>,
    pub(crate) watchdog: Option<Watchdog>,
}

impl Passed {
    /// Reads the environment: `LISTEN_FDS`, `LISTEN_FDNAMES`, `WATCHDOG_USEC`, `NOTIFY_SOCKET`.
    pub fn from_environment() -> Result<Self, ServeError> {
        let mut this = Self { watchdog: Watchdog::from_environment()?, ..Self::default() };
        let passed = sd_notify::listen_fds_with_names();
        for (file, name) in passed.map_err(|error| error_of_passing(&error))? {
            let what = ServeError::system(format!("descriptor {file} of LISTEN_FDS"));
            // SAFETY: it is open, since it was just marked to be closed by exec, and the environment
            // keeps it so: nobody in this process closes it.
            let file = unsafe { BorrowedFd::borrow_raw(file) };
            let socket = file.try_clone_to_owned().and_then(Socket::new).map_err(what)?;
            match name.as_str() {
                "nbd" | UNNAMED | "" => this.nbd.push(socket),
                "control" => this.control.push(socket),
                "metrics" => this.metrics.push(socket),
                _ => {
                    let what = format!("one is named \"{name}\"");
                    return Err(bad_variable("LISTEN_FDNAMES", &what, NAMES));
                }
            }
        }
        Ok(this)
    }
    /// Whether one of them is for clients.
    pub fn has_nbd(&self) -> bool {
        !self.nbd.is_empty()
    }
}

/// What the library says of the environment, with the variable that it is about.
fn error_of_passing(error: &io::Error) -> ServeError {
    let text = error.to_string();
    let (name, allowed) = match text.as_str() {
        "invalid LISTEN_PID" => ("LISTEN_PID", "the number of the process that gets the sockets"),
        "invalid LISTEN_FDNAMES" => {
            ("LISTEN_FDNAMES", "as many names, with colons between them, as LISTEN_FDS says")
        }
        _ => ("LISTEN_FDS", "the number of sockets, which are the descriptors from 3 on"),
    };
    bad_variable(name, &text, allowed)
}

fn bad_variable(name: &str, message: &str, allowed: &str) -> ServeError {
    let value = std::env::var_os(name).unwrap_or_default();
    let error = io::Error::other(format!("{message}; allowed: {allowed}"));
    ServeError::system(format!("{name}={value:?}"))(error)
}

/// A watchdog, which restarts a server that does not notify it.
#[derive(Debug)]
pub struct Watchdog {
    socket: UnixDatagram,
    /// It is fed this often: twice in the time that it waits.
    pub(crate) every: Nanos,
}

impl Watchdog {
    fn from_environment() -> Result<Option<Self>, ServeError> {
        let what = || ServeError::system("the watchdog's socket");
        // Zero is no time that anybody could keep.
        let timeout = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero());
        let Some(timeout) = timeout else { return Ok(None) };
        let Some(socket) = manager().map_err(what())? else { return Ok(None) };
        Self::new(socket, timeout).map(Some).map_err(what())
    }
    /// Feeds who reads the other end of `socket` and waits no longer than `timeout`.
    fn new(socket: UnixDatagram, timeout: Duration) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let every = u64::try_from(timeout.as_nanos() / 2).unwrap_or(u64::MAX);
        Ok(Self { socket, every: Nanos(every.max(1)) })
    }
    pub(crate) fn feed(&self) {
        // A manager that is too busy to read must not hold up the reactor; it is fed again soon.
        let _ = self.socket.send(b"WATCHDOG=1\n");
    }
}

/// A notification for the manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Clients can connect.
    Ready,
    /// The contracts are being reloaded; [`Stage::Ready`] follows.
    Reloading,
    /// The requests in flight are being completed.
    Stopping,
}

/// Notifies the manager, if there is one. Failures are ignored.
pub fn tell(stage: Stage, status: &str) {
    // The manager shows one line.
    let status = status.lines().next().unwrap_or_default();
    let state = match stage {
        Stage::Ready => NotifyState::Ready,
        Stage::Reloading => NotifyState::Reloading,
        Stage::Stopping => NotifyState::Stopping,
    };
    let mut states = vec![state, NotifyState::Status(status)];
    if stage == Stage::Reloading {
        states.extend(NotifyState::monotonic_usec_now());
    }
    notify(&states);
}

/// A socket that is connected to the manager, if there is one.
fn manager() -> io::Result<Option<UnixDatagram>> {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
    let address = match place.as_bytes() {
        [b'@', name @ ..] => UnixAddress::from_abstract_name(name)?,
        _ => UnixAddress::from_pathname(&place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(Some(socket))
}

fn notify(states: &[NotifyState<'_>]) {
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    let send = |socket: UnixDatagram| {
        socket.set_write_timeout(Some(NOTIFY_MAX))?;
        socket.send(text.as_bytes())
    };
    // Without a manager nobody is impatient.
    let _ = manager().map(|socket| socket.map(send));
}

/// What is done takes long and goes on: the manager waits so much longer.
pub(crate) fn extend(by: Duration, status: &str) {
    let micros = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
    let states = [NotifyState::ExtendTimeoutUsec(micros), NotifyState::Status(status)];
    notify(&states);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use iofair_config::contracts::Contracts;

    use super::*;
    use crate::consent::Consent;
    use crate::reactor::Message;
    use crate::server::Server;

    /// Goal: the reactor feeds the watchdog while it turns, idle or not, and not while it is stuck. Method: a
    /// watchdog of 10 ms; three meals; then a look that does not return until told, in which none comes.
    #[test]
    fn a_stuck_reactor_does_not_feed() {
        let directory = std::env::temp_dir().join(format!("iofair-fed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let text = format!(
            "[drive]\nback = 'memory:1MiB'\nstack = 'none-none'\n[listen]\nunix = '{}'\n\
             [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n",
            directory.join("socket").display()
        );
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let timeout = Duration::from_millis(10);
        let watchdog = Some(Watchdog::new(theirs, timeout).unwrap());
        let passed = Passed { watchdog, ..Passed::default() };
        let server = Server::start_with(
            Contracts::parse("a.toml", &text).unwrap(),
            passed,
            &Consent::default(),
        );
        let server = server.unwrap();
        let mut meal = [0; 32];
        let mut fed = || ours.recv(&mut meal).map(|bytes| meal[..bytes].to_vec());
        for _ in 0..3 {
            assert_eq!(fed().unwrap(), b"WATCHDOG=1\n");
        }
        let (release, released) = mpsc::channel::<()>();
        let (stuck, is_stuck) = mpsc::channel();
        let block = move || {
            stuck.send(()).unwrap();
            // Until the other end goes.
            let _ = released.recv();
        };
        server.line().send(Message::Look(Box::new(move |_| block()))).unwrap();
        is_stuck.recv().unwrap();
        ours.set_nonblocking(true).unwrap();
        while fed().is_ok() {}
        ours.set_nonblocking(false).unwrap();
        ours.set_read_timeout(Some(5 * timeout)).unwrap();
        assert!(fed().is_err(), "a stuck reactor fed the watchdog");
        drop(release);
        ours.set_read_timeout(None).unwrap();
        assert_eq!(fed().unwrap(), b"WATCHDOG=1\n");
        server.stop().unwrap();
        std::fs::remove_dir_all(directory).unwrap();
    }
}
