//! Users of this host: ids, names, and the user at the other end of a Unix socket.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::ptr;

/// Longest entry of a user that is looked at.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Groups of a caller that are looked at: as many as the kernel gives one user.
const GROUPS_MAX: usize = 65_536;
/// The kernel's own word for a user that it cannot name, as of another user namespace.
pub(crate) const NOBODY: u32 = 65_534;

/// Who is at the other end of a Unix socket, in the kernel's word from when it connected.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    pub(crate) pid: i32,
    /// The group and all others that it is in.
    pub(crate) groups: Vec<u32>,
}

/// This process' user.
pub(crate) fn own() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() }
}

/// Asks the kernel who connected.
pub(crate) fn credentials(socket: RawFd) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: NOBODY, gid: NOBODY };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes at most `length` bytes to a local of that size, which is plain integers.
    let failed = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut length)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut groups = vec![peer.gid];
    groups.extend(other_groups(socket)?);
    Ok(Credentials { uid: peer.uid, pid: peer.pid, groups })
}

fn other_groups(socket: RawFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 32];
    loop {
        let mut length = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: writes at most `length` bytes to the vector, which has as many.
        let failed = unsafe {
            let to = groups.as_mut_ptr().cast();
            libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERGROUPS, to, &raw mut length)
        };
        let count = length as usize / size_of::<u32>();
        if failed == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > GROUPS_MAX
        {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// Looks an entry up with room that grows: `ask` gets the entry, the room and where the result goes.
fn look_up<T>(
    mut ask: impl FnMut(&mut libc::passwd, &mut [libc::c_char], &mut *mut libc::passwd) -> libc::c_int,
    take: impl Fn(&libc::passwd) -> T,
) -> io::Result<Option<T>> {
    // SAFETY: all zeroes is a valid entry: its pointers are not looked at before they are set.
    let mut entry: libc::passwd = unsafe { mem::zeroed() };
    let mut room: Vec<libc::c_char> = vec![0; 1024];
    loop {
        let mut found = ptr::null_mut();
        match ask(&mut entry, &mut room, &mut found) {
            libc::ERANGE if room.len() < ENTRY_BYTES_MAX => room.resize(room.len() * 2, 0),
            libc::EINTR => {}
            // Not there, in the words of different sources of names.
            0 | libc::ENOENT | libc::ESRCH => return Ok((!found.is_null()).then(|| take(&entry))),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The number of a user of this host.
pub(crate) fn user(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    let ask =
        |entry: &mut libc::passwd, room: &mut [libc::c_char], found: &mut *mut libc::passwd| {
            // SAFETY: the name ends with a zero; entry, room and result are the caller's, the room is as long as said.
            unsafe { libc::getpwnam_r(name.as_ptr(), entry, room.as_mut_ptr(), room.len(), found) }
        };
    look_up(ask, |entry| entry.pw_uid)
}

/// The name of a user of this host, for people.
pub(crate) fn user_name(id: u32) -> Option<String> {
    let ask =
        |entry: &mut libc::passwd, room: &mut [libc::c_char], found: &mut *mut libc::passwd| {
            // SAFETY: entry, room and result are the caller's, the room is as long as said.
            unsafe { libc::getpwuid_r(id, entry, room.as_mut_ptr(), room.len(), found) }
        };
    let name = |entry: &libc::passwd| {
        // SAFETY: a found entry's name is a text in the room, which is still there.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        name.to_string_lossy().into_owned()
    };
    look_up(ask, name).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Goal: users are found by name and number, and the peer of a socket is identified. Method: root, nobody's name,
    /// and a pair of sockets of this process.
    #[test]
    fn users_are_found() {
        assert_eq!(user("root").unwrap(), Some(0));
        assert_eq!(user("nobody-has-this-name").unwrap(), None);
        assert_eq!(user_name(0).as_deref(), Some("root"));
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let told = credentials(ours.as_raw_fd()).unwrap();
        assert_eq!((told.uid, told.pid), (own(), std::process::id() as i32));
        assert!(!told.groups.is_empty());
    }
}
