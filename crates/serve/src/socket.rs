//! Sockets: made with tight modes, tuned, and asked who is at the other end.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::front::nbd::session::Way;

/// Connections that may wait until they are accepted.
const BACKLOG: i32 = 1024;
/// Big batches fit into a socket.
const BUFFER_BYTES: i32 = 1 << 20;
/// A TCP client that says nothing is asked after so many seconds, then this often, and so many times
/// before it counts as gone: two minutes in all.
const KEEP_ALIVE: [i32; 3] = [60, 15, 4];

/// A listening Unix socket that nobody but `mode` says can ever connect to.
pub(crate) fn listen_unix(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor and touches no memory.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all zeroes is a valid address without a name.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = path.as_os_str().as_bytes();
    if name.len() >= address.sun_path.len() || name.contains(&0) {
        let message = format!("at most {} bytes, none of them zero", address.sun_path.len() - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // The file gets the mode of the socket as it is made, so it is never open to more.
    // SAFETY: plain system calls on a descriptor and an address of ours.
    let done = unsafe {
        libc::fchmod(socket.as_raw_fd(), 0o600) == 0
            && libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) == 0
            && libc::listen(socket.as_raw_fd(), BACKLOG) == 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, permissions)?;
    Ok(socket)
}

/// Lets this process have as many descriptors as it ever may: the usual limit would end connections at
/// a thousand.
pub(crate) fn raise_limit() {
    // SAFETY: reads and writes two numbers; a refusal leaves the limit as it is, which accepting bears.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Kinds of sockets that clients reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    Unix,
    Internet,
}

/// The kind of a listening stream socket; an error for anything else.
pub(crate) fn listening(socket: &OwnedFd) -> io::Result<Family> {
    let is = |name: libc::c_int, wanted: libc::c_int| option(socket, name) == Some(wanted);
    let listens = is(libc::SO_TYPE, libc::SOCK_STREAM) && is(libc::SO_ACCEPTCONN, 1);
    match option::<libc::c_int>(socket, libc::SO_DOMAIN) {
        Some(libc::AF_UNIX) if listens => Ok(Family::Unix),
        Some(libc::AF_INET | libc::AF_INET6) if listens => Ok(Family::Internet),
        _ => {
            let message = "one is no listening stream socket (Accept= must be no)";
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}

/// How a client came.
pub(crate) fn way(socket: &OwnedFd) -> Way {
    let domain: Option<libc::c_int> = option(socket, libc::SO_DOMAIN);
    if domain != Some(libc::AF_UNIX) {
        return Way::Tcp;
    }
    let peer: Option<libc::ucred> = option(socket, libc::SO_PEERCRED);
    // The kernel's own word for a user that it cannot tell.
    const NOBODY: u32 = 65_534;
    Way::Unix(peer.map_or(NOBODY, |peer| peer.uid))
}

fn option<T>(socket: &OwnedFd, name: libc::c_int) -> Option<T> {
    let mut value = mem::MaybeUninit::<T>::uninit();
    let mut length = size_of::<T>() as libc::socklen_t;
    let (to, size) = (value.as_mut_ptr().cast(), &raw mut length);
    // SAFETY: writes at most the size of `value`.
    let failed =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, size) } != 0;
    // SAFETY: the kernel has just filled it, and these options are plain integers.
    (!failed && length as usize == size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// Socket options: big batches fit, small answers leave at once, and who is gone is noticed.
pub(crate) fn prepare(socket: RawFd) {
    let set = |level: i32, name: i32, value: i32| {
        // SAFETY: an integer option on a descriptor of ours; a refusal changes nothing that matters.
        unsafe {
            let value = &raw const value;
            libc::setsockopt(socket, level, name, value.cast(), size_of::<i32>() as u32)
        }
    };
    set(libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER_BYTES);
    set(libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES);
    // The rest fails on Unix sockets, which have no delay to turn off and whose peers cannot vanish.
    set(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let [idle, interval, probes] = KEEP_ALIVE;
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, probes);
}
