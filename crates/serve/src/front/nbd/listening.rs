//! The sockets on which a server listens for NBD clients.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use iofair_config::contracts::{Contracts, Listen};

use crate::error::ServeError;
use crate::front::nbd::connection::Connection;
use crate::log;
use crate::reactor::Listener;
use crate::socket::{self, Allowed, SocketFile};
use crate::supervisor;
use crate::trial::Mode;

/// How long a server that lives may take to greet.
const GREETING_MAX: Duration = Duration::from_secs(2);

/// Where a server listens.
pub(crate) struct Listening {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) tcp: Option<SocketAddr>,
    /// The file of a socket that is our own.
    pub(crate) bound: Option<SocketFile>,
}

/// A socket on which NBD clients are accepted.
pub(crate) fn listener(file: OwnedFd, stays: bool) -> Listener {
    Listener { file, stays, accept: Connection::accept }
}

/// Users and groups that may connect to the NBD socket, and to disks of virtual machines.
pub(crate) fn allowed(contracts: &Contracts) -> Result<(Allowed, Allowed), ServeError> {
    let of = |access| Allowed::new(contracts, access);
    Ok((of(&contracts.listen.access)?, of(&contracts.vhost)?))
}

/// Listens where the contracts say, on a socket that was passed if it is bound there, and on all others
/// that were passed.
pub(crate) fn listen(
    listen: &Listen,
    allowed: Allowed,
    mut passed: Vec<supervisor::Socket>,
    mode: &Mode,
) -> Result<Listening, ServeError> {
    let (mut listeners, mut tcp, mut bound) = (Vec::new(), None, None);
    let mut add = |file, stays| listeners.push(listener(file, stays));
    if let Some(path) = &listen.unix {
        match supervisor::take_unix(&mut passed, path) {
            Some(socket) => add(socket.file, true),
            None => {
                let (socket, file) = bind_unix(path, allowed, mode)?;
                add(socket, false);
                bound = file;
            }
        }
    }
    if let Some(address) = listen.tcp {
        match supervisor::take_tcp(&mut passed, address) {
            Some(socket) => {
                tcp = socket.tcp();
                add(socket.file, true);
            }
            None => {
                let listener = bind_tcp(address, mode)?;
                tcp = listener.local_addr().ok();
                add(listener.into(), false);
            }
        }
    }
    for socket in passed {
        if let (Some(address), Some(message)) = (socket.tcp(), listen.refuses_tcp()) {
            let what = format!("the socket at {address} that was passed");
            return Err(ServeError::system(what)(io::Error::other(message)));
        }
        tcp = tcp.or(socket.tcp());
        add(socket.file, true);
    }
    if let Some(address) = tcp.filter(|_| listen.plain_tcp()) {
        log::line(&format!(
            "warning: NBD over TCP without TLS at {address} (insecure = true): anyone who reaches the port \
             can read and write every volume that is open to \"*\""
        ));
    }
    Ok(Listening { listeners, tcp, bound })
}

fn bind_tcp(address: SocketAddr, mode: &Mode) -> Result<TcpListener, ServeError> {
    let bound = socket::bind_tcp(address, mode).or_else(|error| {
        let taken = error.kind() == io::ErrorKind::AddrInUse && !mode.is_check();
        match taken && is_dead(TcpStream::connect(address), TcpStream::set_read_timeout) {
            true => socket::bind_tcp(address, mode),
            false => Err(error),
        }
    });
    bound.map_err(ServeError::system(address.to_string()))
}

/// A Unix socket and its file; one that a dead server left there is replaced.
pub(crate) fn bind_unix(
    path: &Path,
    allowed: Allowed,
    mode: &Mode,
) -> Result<(OwnedFd, Option<SocketFile>), ServeError> {
    let left = |path: &Path| is_dead(UnixStream::connect(path), UnixStream::set_read_timeout);
    let bound = socket::bind_unix(path, allowed, mode, left);
    bound.map_err(ServeError::system(path.display().to_string()))
}

/// Whether an address was left by a server that was killed. Then it refuses, or the kernel, which may still be
/// cleaning up after the server's ring, cuts the connection off. A living server greets.
fn is_dead<S: Read>(
    connected: io::Result<S>,
    limit: impl FnOnce(&S, Option<Duration>) -> io::Result<()>,
) -> bool {
    match connected {
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        Ok(mut stream) => {
            let limited = limit(&stream, Some(GREETING_MAX)).is_ok();
            let cut_off = |error: io::Error| error.kind() == io::ErrorKind::ConnectionReset;
            limited && stream.read(&mut [0]).map_or_else(cut_off, |bytes| bytes == 0)
        }
    }
}
