//! Sockets that clients of front ends connect to.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::error::ServeError;
use crate::socket::{self, Allowed, SocketFile};
use crate::trial::Mode;

/// How long a server that lives may take to greet.
const GREETING_MAX: Duration = Duration::from_secs(2);

/// A TCP socket; one that a dead server left there is replaced.
pub(super) fn bind_tcp(address: SocketAddr, mode: &Mode) -> Result<TcpListener, ServeError> {
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
pub(super) fn bind_unix(
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
