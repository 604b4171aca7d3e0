//! File descriptors that are kept for control: connections, contracts, files of new volumes.
//!
//! The kernel gives the lowest free descriptor. So if that of a new client is high, all below are in use.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use iofair_core::unit::Count;

/// Descriptors that clients leave free: those of all control connections, and some files for changes.
pub(crate) const RESERVED: u64 = 320;
/// Those of them that changes leave free: those of all control connections, and of the files that every change writes.
const CONTROL: u64 = 192;

/// Raises the soft limit on open files to the hard limit: the usual soft limit would allow about a thousand connections.
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

/// The limit on open files of this process.
pub(crate) fn limit() -> Option<u64> {
    // SAFETY: fills the local.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        (libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0).then_some(limit.rlim_cur)
    }
}

/// Whether a client's new descriptor leaves enough for control; half of them, if there are few.
pub(crate) fn has_room(new: &impl AsRawFd) -> bool {
    let reserved = |limit: u64| limit - RESERVED.min(limit / 2);
    limit().is_none_or(|limit| (new.as_raw_fd() as u64) < reserved(limit))
}

/// A client's new descriptor, unless those that are left are for control.
pub(crate) fn admit<D: AsRawFd>(new: D) -> io::Result<D> {
    match has_room(&new) {
        true => Ok(new),
        false => Err(io::Error::from_raw_os_error(libc::EMFILE)),
    }
}

/// The lowest free descriptor; none is free beyond all numbers.
pub(crate) fn lowest_free() -> u64 {
    UnixDatagram::unbound().map_or(u64::MAX, |free| free.as_raw_fd() as u64)
}

/// Refuses a change that has left too few for control. What takes none is not refused: it may make room.
pub(crate) fn check_change(lowest_before: u64) -> Result<(), String> {
    let Some(limit) = limit() else { return Ok(()) };
    let (lowest, kept) = (lowest_free(), CONTROL.min(limit / 10 * 3));
    if lowest <= lowest_before || lowest < limit - kept {
        return Ok(());
    }
    Err(format!(
        "this process may open {} (RLIMIT_NOFILE), and clients and volumes have all but the {kept} that are kept for control: \
         disconnect clients, remove volumes, or raise the limit (`ulimit -n`, or LimitNOFILE= of systemd)",
        Count(limit, "file")
    ))
}
