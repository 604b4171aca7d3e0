//! The two kinds of eventfds that a client gives a queue: one that it rings, and one that we ring.
//!
//! Both go through the ring, never through a system call of ours: an eventfd can be made to block who
//! writes to it, and its owner can change that at any moment. A descriptor stays open until the entry
//! that names it is answered.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::{opcode, types};

use super::Wires;
use crate::request::entry::Entry;

/// What is written to an eventfd to ring it.
static ONE: u64 = 1;

/// An eventfd that the client rings. It is never read: the ring tells of every write.
#[derive(Debug, Default)]
pub(super) struct Kick {
    wanted: Option<Arc<OwnedFd>>,
    watched: Option<Arc<OwnedFd>>,
    cancelled: bool,
}

impl Kick {
    /// Watches this one from the end of the turn on, or none.
    pub(super) fn set(&mut self, file: Option<OwnedFd>) {
        self.wanted = file.map(Arc::new);
    }
    /// Does what is left to do for that.
    pub(super) fn settle(&mut self, slot: u8, wires: &mut Wires<'_, '_>) -> io::Result<()> {
        match (&self.watched, &self.wanted) {
            (None, Some(wanted)) => {
                let entry = Entry::watch(wanted.as_raw_fd());
                self.watched = Some(wanted.clone());
                wires.push(entry, slot)
            }
            (Some(watched), wanted)
                if !self.cancelled && wanted.as_ref().is_none_or(|w| !Arc::ptr_eq(w, watched)) =>
            {
                self.cancelled = true;
                wires.cancel(slot)
            }
            _ => Ok(()),
        }
    }
    /// The ring answered for the last time.
    pub(super) fn on_end(&mut self) {
        (self.watched, self.cancelled) = (None, false);
    }
}

/// An eventfd that we ring.
#[derive(Debug, Default)]
pub(super) struct Call {
    file: Option<Arc<OwnedFd>>,
    /// The one that is being rung.
    ringing: Option<Arc<OwnedFd>>,
    /// Ring again as soon as that is done.
    again: bool,
    cancelled: bool,
}

impl Call {
    /// Rings this one from now on, or none.
    pub(super) fn set(&mut self, file: Option<OwnedFd>) {
        self.file = file.map(Arc::new);
    }
    /// Rings it.
    pub(super) fn ring(&mut self, slot: u8, wires: &mut Wires<'_, '_>) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.ringing.is_some() {
            self.again = true;
            return Ok(());
        }
        self.ringing = Some(file.clone());
        let (from, bytes) = ((&raw const ONE).cast(), size_of_val(&ONE) as u32);
        let write = opcode::Write::new(types::Fd(file.as_raw_fd()), from, bytes).build();
        // SAFETY: it reads a static.
        wires.push(unsafe { Entry::new(write) }, slot)
    }
    /// The ring has rung it, or could not.
    pub(super) fn on_rung(&mut self, slot: u8, wires: &mut Wires<'_, '_>) -> io::Result<()> {
        (self.ringing, self.cancelled) = (None, false);
        if std::mem::take(&mut self.again) { self.ring(slot, wires) } else { Ok(()) }
    }
    /// Its owner has gone: a write that hangs ends.
    pub(super) fn give_up(&mut self, slot: u8, wires: &mut Wires<'_, '_>) -> io::Result<()> {
        (self.file, self.again) = (None, false);
        if self.ringing.is_none() || std::mem::replace(&mut self.cancelled, true) {
            return Ok(());
        }
        wires.cancel(slot)
    }
}
