//! File descriptors that are kept for control: connections, contracts, files of new volumes.
//!
//! The kernel gives the lowest free descriptor. So if that of a new client is high, all below are in use.

use std::io;
use std::os::fd::AsRawFd;

use crate::socket;

/// Descriptors that clients leave free: those of all control connections, and some files for changes.
pub(crate) const RESERVED: u64 = 320;

/// Whether a client's new descriptor leaves enough for control; half of them, if there are few.
pub(crate) fn has_room(new: &impl AsRawFd) -> bool {
    let reserved = |limit: u64| limit - RESERVED.min(limit / 2);
    socket::limit().is_none_or(|limit| (new.as_raw_fd() as u64) < reserved(limit))
}

/// A client's new descriptor, unless those that are left are for control.
pub(crate) fn admit<D: AsRawFd>(new: D) -> io::Result<D> {
    match has_room(&new) {
        true => Ok(new),
        false => Err(io::Error::from_raw_os_error(libc::EMFILE)),
    }
}
