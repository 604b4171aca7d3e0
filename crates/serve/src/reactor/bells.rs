//! Signals eventfds that others own, without ever blocking.
//!
//! A write to an eventfd blocks while its counter is full, unless it is non-blocking, and its owner can change that
//! at any moment. io_uring therefore polls an eventfd that may block before it writes, which takes 25 us here (0.4 us
//! for others). The kernel signals an eventfd by itself when an asynchronous read completes (`IOCB_FLAG_RESFD`,
//! io_submit(2)); this never blocks, and takes 0.4 us whatever the owner did. So this file submits an empty read of
//! /dev/null, which completes before the call returns.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Completions that the kernel keeps for us. They say nothing; they are taken away when half of the room is used up.
const EVENTS: u32 = 256;

/// A request, as io_submit(2) has it.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    flags_rw: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

const PREAD: u16 = 0;
const SIGNALS_EVENTFD: u32 = 1;

/// A completion, as io_getevents(2) has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result_2: i64,
}

/// What is needed to ring; made when it is needed first.
#[derive(Default, Debug)]
pub(crate) struct Bells(Option<Context>);

impl Bells {
    /// Makes what is needed. Fails where the kernel knows no asynchronous I/O, or `fs.aio-max-nr` is used up.
    pub(crate) fn prepare(&mut self) -> io::Result<()> {
        if self.0.is_none() {
            self.0 = Some(Context::new()?);
        }
        Ok(())
    }
    /// Adds one to the counter of an eventfd; one that is full stays so.
    pub(crate) fn ring(&mut self, eventfd: &OwnedFd) -> io::Result<()> {
        self.prepare()?;
        self.0.as_mut().map_or(Ok(()), |context| context.ring(eventfd))
    }
}

#[derive(Debug)]
struct Context {
    id: libc::c_ulong,
    null: File,
    /// Completions that were not taken away yet.
    left: u32,
}

impl Context {
    fn new() -> io::Result<Self> {
        let null = File::open("/dev/null")?;
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word, a local, which was 0 as it asks.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, EVENTS, &raw mut id) };
        match made {
            0 => Ok(Self { id, null, left: 0 }),
            _ => Err(io::Error::last_os_error()),
        }
    }
    fn ring(&mut self, eventfd: &OwnedFd) -> io::Result<()> {
        let mut request = Iocb {
            opcode: PREAD,
            file: self.null.as_raw_fd() as u32,
            flags: SIGNALS_EVENTFD,
            eventfd: eventfd.as_raw_fd() as u32,
            ..Iocb::default()
        };
        let mut list = [&raw mut request];
        // SAFETY: the kernel copies the list and the request before it returns; the read has no bytes, so no buffer.
        let sent =
            unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1usize, list.as_mut_ptr()) };
        if sent != 1 {
            return Err(io::Error::last_os_error());
        }
        self.left += 1;
        if self.left >= EVENTS / 2 {
            self.take_away();
        }
        Ok(())
    }
    /// Makes room for more completions.
    fn take_away(&mut self) {
        let mut events = [Event::default(); EVENTS as usize];
        let (least, most, forever) = (0usize, events.len(), 0usize);
        // SAFETY: the kernel writes at most this many events, into a local; it waits for none.
        let taken = unsafe {
            let (call, into) = (libc::SYS_io_getevents, events.as_mut_ptr());
            libc::syscall(call, self.id, least, most, into, forever)
        };
        if let Ok(taken) = u32::try_from(taken) {
            self.left = self.left.saturating_sub(taken);
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing is in flight that names memory.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    fn eventfd(count: u32, flags: i32) -> OwnedFd {
        // SAFETY: makes a descriptor that nobody else has.
        unsafe { OwnedFd::from_raw_fd(libc::eventfd(count, flags)) }
    }
    fn count(file: &OwnedFd) -> u64 {
        let mut count = 0u64;
        // SAFETY: reads eight bytes into a local.
        assert_eq!(unsafe { libc::read(file.as_raw_fd(), (&raw mut count).cast(), 8) }, 8);
        count
    }

    /// Goal: every ring counts, also more than the kernel keeps completions of, and one that is full and blocks does not
    /// hold us up. Method: a thousand rings of two kinds of eventfds; then a counter at its limit.
    #[test]
    fn rings_count_and_never_wait() {
        let mut bells = Bells::default();
        for flags in [0, libc::EFD_NONBLOCK] {
            let file = eventfd(0, flags);
            (0..1000).for_each(|_| bells.ring(&file).unwrap());
            assert_eq!(count(&file), 1000);
            let full = u64::MAX - 1;
            // SAFETY: writes eight bytes of a local.
            assert_eq!(unsafe { libc::write(file.as_raw_fd(), (&raw const full).cast(), 8) }, 8);
            (0..3).for_each(|_| bells.ring(&file).unwrap());
            assert!(count(&file) >= full);
        }
    }

    /// Goal: what is no eventfd is an error. Method: a file.
    #[test]
    fn only_eventfds_ring() {
        let mut bells = Bells::default();
        assert!(bells.ring(&File::open("/dev/null").unwrap().into()).is_err());
    }
}
