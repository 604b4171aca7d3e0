//! An eventfd with which another thread wakes a reactor that sleeps in its ring.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A new one.
pub(crate) fn new() -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor and touches no memory.
    let file = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Wakes who watches it.
pub(crate) fn signal(file: &OwnedFd) {
    let one = 1u64;
    // SAFETY: writes eight bytes of a local. It can only fail when the count is at its limit, and
    // then the watcher is awake already.
    unsafe { libc::write(file.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// The wake-up was noticed.
pub(crate) fn take(file: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: reads eight bytes into a local; "nothing there" is fine.
    unsafe { libc::read(file.as_raw_fd(), (&raw mut count).cast(), 8) };
}
