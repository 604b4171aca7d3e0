//! Sockets: creation with restrictive modes, options, and the identity of peers.

mod file;

use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process;
use std::ptr;

use iofair_config::contracts::{Access, Contracts};

use crate::error::ServeError;
use crate::reactor::deferred::Origin;
use crate::request::export::Peer;
use crate::supervisor::unit::Place;
use crate::trial::Mode;
pub(crate) use file::{LINK, PathLock, SocketFile, SocketPlace};

/// Backlog: connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Most bytes that are looked at before they are received; more than socket buffers have.
const PEEK_MAX: usize = 16 << 20;
/// Size of socket buffers, so that large batches fit.
const BUFFER_BYTES: i32 = 1 << 20;
/// Maximum size of a group's entry with its list of members.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// TCP keepalive: seconds of silence before the first probe, seconds between probes, and probes before the client counts as
/// gone: two minutes in all.
const KEEP_ALIVE: [i32; 3] = [60, 15, 4];

/// Users and groups that may connect to a Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    mode: u32,
    /// The group of the file, unless it is that of the server.
    group: Option<u32>,
}

impl Allowed {
    /// Its owner.
    pub(crate) const OWNER: Self = Self { mode: 0o600, group: None };
    /// From the contracts; group names are looked up on this host.
    pub(crate) fn new(contracts: &Contracts, access: &Access) -> Result<Self, ServeError> {
        let mode = access.mode;
        let Some(name) = &access.group else { return Ok(Self { mode, group: None }) };
        let found = match name.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => group(name),
        };
        let found =
            found.map_err(ServeError::system(format!("looking for the group \"{name}\"")))?;
        let missing =
            || contracts.group_error(access, format!("this host has no group \"{name}\""));
        Ok(Self { mode, group: Some(found.ok_or_else(missing)?) })
    }
}

/// The id of a group of this host.
pub(crate) fn group(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    // SAFETY: all zeroes is a valid entry: it has no pointers to anything.
    let mut entry: libc::group = unsafe { mem::zeroed() };
    let mut room: Vec<libc::c_char> = vec![0; 1024];
    loop {
        let mut found = ptr::null_mut();
        // SAFETY: the name ends with a zero, the entry and the room are ours, the room is as long as said.
        let error = unsafe {
            let (text, length) = (room.as_mut_ptr(), room.len());
            libc::getgrnam_r(name.as_ptr(), &raw mut entry, text, length, &raw mut found)
        };
        match error {
            libc::ERANGE if room.len() < GROUP_BYTES_MAX => room.resize(room.len() * 2, 0),
            libc::EINTR => {}
            // Different name services report a missing group differently.
            0 | libc::ENOENT | libc::ESRCH => return Ok((!found.is_null()).then_some(entry.gr_gid)),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Sets the group and then the mode of a new socket's file. `file` is an open descriptor of it, so that a user who may write
/// to the directory cannot replace the file in between.
fn hand_over(path: &Path, allowed: Allowed) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    // SAFETY: asks for a number.
    let ours = unsafe { libc::geteuid() };
    let metadata = file.metadata()?;
    if !metadata.file_type().is_socket() || metadata.uid() != ours {
        return Err(io::Error::other("another file is in its place"));
    }
    give_to_group(&file, allowed)?;
    if metadata.permissions().mode() & 0o777 == allowed.mode {
        return Ok(());
    }
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(same, fs::Permissions::from_mode(allowed.mode))
}

/// Sets the group of a file.
fn give_to_group(file: &fs::File, allowed: Allowed) -> io::Result<()> {
    let has = file.metadata()?.gid();
    if let Some(group) = allowed.group.filter(|group| *group != has) {
        // SAFETY: a plain system call on a descriptor of ours; the empty path means that one.
        let done = unsafe {
            let kept = libc::uid_t::MAX;
            libc::fchownat(file.as_raw_fd(), c"".as_ptr(), kept, group, libc::AT_EMPTY_PATH)
        };
        if done != 0 {
            let error = io::Error::last_os_error();
            let message =
                format!("giving it to the group {group} ({error}): is the server's user in it?");
            return Err(io::Error::new(error.kind(), message));
        }
    }
    Ok(())
}

/// A listening Unix socket, and its file. It replaces the file of a socket on which no process listens: a start asks `is_dead`
/// unless another server has the lock. A check only tests whether the socket could be created, and gets one without a path.
pub(crate) fn bind_unix(
    path: &Path,
    allowed: Allowed,
    mode: &Mode,
    is_dead: impl FnOnce(&Path) -> bool,
) -> io::Result<(OwnedFd, Option<SocketFile>)> {
    let is_socket = fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket && fs::symlink_metadata(path).is_ok() {
        let message = "Address already in use, by a file that is not a socket";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
    }
    let Some(trial) = mode.trial() else {
        address(path)?;
        let lock = PathLock::take(path)?;
        // A socket of this process, under another path, does not greet yet.
        let own = || !is_unused(path) && listens(process::id(), path) == Some(true);
        if is_socket && !own() && is_dead(path) {
            fs::remove_file(path)?;
        }
        let (socket, file) = listen_locked(path, allowed, lock)?;
        return Ok((socket, Some(file)));
    };
    address(path)?;
    let taken = fs::symlink_metadata(path).is_ok() && !(is_socket && is_unused(path));
    let own = || mode.server().is_some_and(|process| listens(process, path) != Some(false));
    let held = || mode.is_held(&Place::Unix(Some(path.to_path_buf())));
    if taken && !(is_socket && (own() || held())) || !trial.take_socket(path) {
        return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
    }
    give_to_group(&trial.stand_in(path)?, allowed)?;
    Ok((UnixDatagram::unbound()?.into(), None))
}

/// A listening Unix socket at a path to which this process has the right.
pub(crate) fn listen_locked(
    path: &Path,
    allowed: Allowed,
    lock: PathLock,
) -> io::Result<(OwnedFd, SocketFile)> {
    let socket = listen_unix(path, allowed)?;
    let file = SocketFile::new(path, lock)?;
    Ok((socket, file))
}

/// A listening Unix socket.
fn listen_unix(path: &Path, allowed: Allowed) -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor and touches no memory.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let address = address(path)?;
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // The file is created with the mode of the socket, so it is never accessible to more users, and connections are accepted
    // only after its final mode is set.
    // SAFETY: plain system calls on a descriptor and an address of ours.
    let bound = unsafe {
        libc::fchmod(socket.as_raw_fd(), Allowed::OWNER.mode) == 0
            && libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) == 0
    };
    if !bound {
        return Err(io::Error::last_os_error());
    }
    let handed_over = hand_over(path, allowed).and_then(|()| {
        // SAFETY: as above.
        let listens = unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } == 0;
        if listens { Ok(()) } else { Err(io::Error::last_os_error()) }
    });
    if let Err(error) = handed_over {
        // Removing the file may fail: it may be gone already.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(socket)
}

/// Listens on a TCP address. A check gets another port if the running server with the same contracts, or
/// systemd for it, listens there.
pub(crate) fn bind_tcp(address: SocketAddr, mode: &Mode) -> io::Result<TcpListener> {
    TcpListener::bind(address).or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse if mode.is_own(None) || mode.is_held(&Place::Tcp(address)) => {
            TcpListener::bind((address.ip(), 0))
        }
        _ => Err(error),
    })
}

/// The socket address of a path.
fn address(path: &Path) -> io::Result<libc::sockaddr_un> {
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
    Ok(address)
}

/// Kinds of sockets that clients connect to.
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
            let message = "one is not a listening stream socket (Accept= must be no)";
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}

/// How the client of a socket is connected.
pub(crate) fn peer(socket: &OwnedFd) -> Peer {
    let domain: Option<libc::c_int> = option(socket, libc::SO_DOMAIN);
    if domain != Some(libc::AF_UNIX) {
        return Peer::Tcp;
    }
    let peer: Option<libc::ucred> = option(socket, libc::SO_PEERCRED);
    // The kernel reports this id for an unknown user.
    const NOBODY: u32 = 65_534;
    Peer::Unix(peer.map_or(NOBODY, |peer| peer.uid))
}

/// Whether no process has the socket at a path. A datagram socket cannot connect to a stream socket, and the error says whether
/// there is one: so the process that listens there, if any, notices nothing.
pub(crate) fn is_unused(path: &Path) -> bool {
    let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether a process listens on the socket at a path; `None` if its descriptors cannot be read, which only its user and root may.
fn listens(process: u32, path: &Path) -> Option<bool> {
    let read = |name: &str| fs::read_link(format!("/proc/{process}/{name}"));
    let table = fs::read_to_string(format!("/proc/{process}/net/unix")).ok()?;
    let directory = read("cwd").ok()?;
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let bound = listening_in(&table).filter(|(_, at)| file(&directory.join(at)) == file(path));
    let inodes: Vec<String> = bound.map(|(inode, _)| format!("socket:[{inode}]")).collect();
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
    let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    Some(links.any(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str())))
}

/// Inode and path of each listening socket in a text such as /proc/net/unix.
fn listening_in(table: &str) -> impl Iterator<Item = (&str, &str)> {
    // The kernel's __SO_ACCEPTCON.
    let listens = |flags| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 << 16 != 0);
    table.lines().filter_map(move |line| {
        let (mut fields, mut rest) = ([""; 7], line);
        for field in &mut fields {
            // The kernel pads numbers with blanks; a path may contain blanks.
            (*field, rest) = rest.trim_start().split_once(' ')?;
        }
        let [_, _, _, flags, _, _, inode] = fields;
        listens(flags).then_some((inode, rest))
    })
}

/// The address of the client of a socket.
pub(crate) fn origin(socket: &OwnedFd) -> Origin {
    if let Peer::Unix(uid) = peer(socket) {
        return Origin::User(uid);
    }
    // SAFETY: the descriptor is open, and is not closed here.
    let stream = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(socket.as_raw_fd()) });
    // A client that has disconnected has no address.
    let address = stream.peer_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip());
    Origin::host(address)
}

/// Types of socket options.
///
/// # Safety
/// Any bytes must be a valid value of the type.
unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for libc::c_int {}
// SAFETY: three integers without a gap between.
unsafe impl Plain for libc::ucred {}

fn option<T: Plain>(socket: &OwnedFd, name: libc::c_int) -> Option<T> {
    let mut value = mem::MaybeUninit::<T>::uninit();
    let mut length = size_of::<T>() as libc::socklen_t;
    let (to, size) = (value.as_mut_ptr().cast(), &raw mut length);
    // SAFETY: writes at most the size of `value`.
    let failed =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, size) } != 0;
    // SAFETY: the kernel has just filled all of it, and any bytes are a value (`Plain`).
    (!failed && length as usize == size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// Sends a few bytes to a socket that is open, if it takes them at once.
pub(crate) fn try_send(socket: RawFd, bytes: &[u8]) {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: reads the bytes that it is given; a failure is ignored, as the connection is closed in any case.
    unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) };
}

/// The last bytes that a peer has sent and nobody has received, at most this many; `None`: that cannot be said.
pub(crate) fn peek_last(socket: RawFd, most: usize) -> Option<Vec<u8>> {
    let mut waiting: libc::c_int = 0;
    // SAFETY: writes the number that it is given.
    let known = unsafe { libc::ioctl(socket, libc::FIONREAD, &raw mut waiting) } == 0;
    let waiting = usize::try_from(waiting).ok().filter(|waiting| known && *waiting <= PEEK_MAX)?;
    let mut bytes = vec![0; waiting];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: fills the bytes that it is given.
    let seen = unsafe { libc::recv(socket, bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    let is_all = waiting == 0 || usize::try_from(seen) == Ok(waiting);
    is_all.then(|| bytes.split_off(waiting.saturating_sub(most)))
}

/// Whether both directions of a socket are closed, or it failed.
pub(crate) fn is_dead(socket: RawFd) -> bool {
    let mut state = libc::pollfd { fd: socket, events: 0, revents: 0 };
    // SAFETY: fills the one entry that it is given, without waiting.
    unsafe { libc::poll(&raw mut state, 1, 0) == 1 }
}

/// Sets socket options: large buffers, no delay for small replies, and keepalive.
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
    // The other options do not apply to Unix sockets, and fail there.
    set(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let [idle, interval, probes] = KEEP_ALIVE;
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, probes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the process that listens on a path is recognised, and no connection is made to find out. Method: sockets of this
    /// process that nobody accepts on, a path with blanks, one that is left without its socket; another process.
    #[test]
    fn a_listener_is_recognised_without_a_connection() {
        let directory = std::env::temp_dir().join(format!("iofair-listens-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (path, left) = (directory.join("a  socket"), directory.join("left"));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        let own = process::id();
        assert!(!is_unused(&path) && is_unused(&left));
        assert!(!is_unused(&directory.join("none")), "only a socket is unused");
        assert_eq!([&path, &left].map(|path| listens(own, path)), [Some(true), Some(false)]);
        let mut other =
            process::Command::new("cat").stdin(process::Stdio::piped()).spawn().unwrap();
        assert_eq!(listens(other.id(), &path), Some(false));
        drop(other.stdin.take());
        other.wait().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        fs::remove_dir_all(directory).unwrap();
    }

    /// Goal: a group is found by its name and by its number, and one that is not there is told with its place.
    /// Method: the group that every host has, a number, a name that no host has.
    #[test]
    fn groups_are_found() {
        let found = |group: &str| {
            let drive = "[drive]\nback = 'memory:1GiB'\nstack = 'none-none'\n";
            let text = format!("{drive}[vhost]\ngroup = '{group}'\n");
            let contracts = Contracts::parse("groups.toml", &text).unwrap();
            Allowed::new(&contracts, &contracts.vhost)
        };
        assert_eq!(found("root").unwrap(), Allowed { mode: 0o660, group: Some(0) });
        assert_eq!(found("4711").unwrap(), Allowed { mode: 0o660, group: Some(4711) });
        let error = found("nobody-has-this-group").unwrap_err().to_string();
        assert!(
            error.contains("groups.toml:5:9: this host has no group \"nobody-has-this"),
            "{error}"
        );
    }
}
