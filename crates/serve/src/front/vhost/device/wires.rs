//! The ring entries of a device.

use std::io;

use crate::reactor::endpoint::ReactorContext;
use crate::request::entry::Entry;

/// Slots of a device's ring entries: one for each queue, then one for each other purpose.
pub(super) const KICK: u8 = 0;
pub(super) const COMMANDS: u8 = 250;
pub(super) const AGAIN: u8 = 251;
pub(super) const CANCEL: u8 = 252;
pub(super) const MUTED: u8 = 253;

/// The ring, with a count of the entries of the device.
pub(super) struct Wires<'a, 'b> {
    pub(super) flying: &'a mut u32,
    pub(super) cx: &'a mut ReactorContext<'b>,
}

impl Wires<'_, '_> {
    pub(super) fn push(&mut self, entry: Entry, slot: u8) -> io::Result<()> {
        *self.flying += 1;
        self.cx.push(entry, slot)
    }
    /// Cancels an entry that may never complete by itself.
    pub(super) fn cancel(&mut self, slot: u8) -> io::Result<()> {
        *self.flying += 1;
        self.cx.cancel(slot, CANCEL)
    }
}
