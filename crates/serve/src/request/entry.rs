//! Entries for a reactor's ring. The kernel uses the memory that an entry names until it completes, which no lifetime
//! can express. Entries that name memory are therefore made by an `unsafe` function, and submitting is safe.

use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

/// A ring entry: it names no memory, or its creator guarantees that memory. It is submitted once.
#[derive(Debug)]
pub struct Entry(squeue::Entry);

impl Entry {
    /// An entry that names memory.
    ///
    /// # Safety
    /// From its submission until its (last) completion, all memory that the entry names stays allocated at its
    /// address. Memory that the kernel reads is not written meanwhile, and no reference to memory that the kernel
    /// writes is used; memory without Rust references (a guest's, a mapped file) may be used by anyone.
    pub unsafe fn new(entry: squeue::Entry) -> Self {
        Self(entry)
    }
    /// Completes at once.
    pub fn nop() -> Self {
        Self(opcode::Nop::new().build())
    }
    /// Completes after a fixed time.
    pub fn timeout(time: &'static types::Timespec) -> Self {
        // What the kernel reads is never written.
        Self(opcode::Timeout::new(time).build())
    }
    /// Completes once when a descriptor becomes readable.
    pub fn poll(file: RawFd) -> Self {
        Self(opcode::PollAdd::new(types::Fd(file), libc::POLLIN as u32).build())
    }
    /// Completes once when the other end of a socket is closed, or the socket fails.
    pub(crate) fn hangup(socket: RawFd) -> Self {
        // The kernel always adds POLLHUP, POLLERR and POLLRDHUP.
        Self(opcode::PollAdd::new(types::Fd(socket), 0).build())
    }
    /// Completes whenever a descriptor becomes readable.
    pub fn watch(file: RawFd) -> Self {
        Self(opcode::PollAdd::new(types::Fd(file), libc::POLLIN as u32).multi(true).build())
    }
    /// Accepts connections repeatedly.
    pub fn accept(listener: RawFd) -> Self {
        Self(opcode::AcceptMulti::new(types::Fd(listener)).flags(libc::SOCK_CLOEXEC).build())
    }
    /// Cancels the entry with this user data.
    pub fn cancel(user_data: u64) -> Self {
        Self(opcode::AsyncCancel::new(user_data).build())
    }
    /// `fdatasync`.
    pub fn sync_data(file: RawFd) -> Self {
        let sync = opcode::Fsync::new(types::Fd(file));
        Self(sync.flags(types::FsyncFlags::DATASYNC).build())
    }
    /// `fallocate` with the given mode.
    pub fn allocate(file: RawFd, offset: u64, length: u64, mode: i32) -> Self {
        Self(opcode::Fallocate::new(types::Fd(file), length).offset(offset).mode(mode).build())
    }
    /// Sets its user data.
    pub fn user_data(self, data: u64) -> Self {
        Self(self.0.user_data(data))
    }
    /// Its user data.
    pub fn get_user_data(&self) -> u64 {
        self.0.get_user_data()
    }
    /// The raw entry, which the ring submits.
    pub fn as_raw(&self) -> &squeue::Entry {
        &self.0
    }
}
