//! What every way in has in common: an NBD connection, a guest's disk, a mounted file.
//!
//! An endpoint turns what its client asks into requests of the engine and answers them when they are
//! finished. It owns the memory that its entries on the ring point to, until they are answered.

use std::io;

use iofair_core::time::Instant;

use super::budget::Budget;
use super::ring::{Event, Ring, Target};
use crate::engine::Engine;
use crate::request::entry::Entry;
use crate::request::export::Export;
use crate::request::op::{Op, Ops};
use crate::security::Security;

/// What an endpoint needs of the reactor to go on.
pub(super) struct ReactorContext<'a> {
    pub(super) now: Instant,
    pub(super) key: usize,
    pub(super) engine: &'a mut Engine,
    pub(super) exports: &'a mut [Export],
    pub(super) ring: &'a mut Ring,
    pub(super) budget: &'a mut Budget,
}

impl ReactorContext<'_> {
    /// The client chose an export.
    pub(super) fn attach(&mut self, id: u32) {
        self.engine.attach(id as usize);
        self.count(id);
    }
    /// The client has left the export, and nothing of it is inside.
    pub(super) fn detach(&mut self, id: u32) {
        self.engine.detach(id as usize);
        self.count(id);
    }
    fn count(&mut self, id: u32) {
        // A volume that was retired is no export any more.
        if let Some(export) = self.exports.iter_mut().find(|export| export.id == id) {
            export.connections = self.engine.connections(id as usize);
        }
    }
    /// Queues an entry of this endpoint; its answer comes to [`Endpoint::on_ring`] with the same slot.
    pub(super) fn push(&mut self, entry: Entry, slot: u8) -> io::Result<()> {
        self.push_part(entry, slot, 0)
    }
    /// [`Self::push`] of one of many entries in this slot; the event's target has the part.
    pub(super) fn push_part(&mut self, entry: Entry, slot: u8, part: u16) -> io::Result<()> {
        self.ring.push(entry, Target::Endpoint { key: self.key as u32, slot, part })
    }
    /// Queues an entry that ends the one in `slot`; its own answer comes to the slot `answer`.
    pub(super) fn cancel(&mut self, slot: u8, answer: u8) -> io::Result<()> {
        let target = |slot| Target::Endpoint { key: self.key as u32, slot, part: 0 };
        self.ring.cancel(target(slot), target(answer))
    }
}

/// How an endpoint stands at the end of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// It goes on.
    On,
    /// It is closed, nothing of it is inside, unsent or on the ring: it may be forgotten.
    Over,
}

/// A way in.
pub(super) trait Endpoint: Send {
    /// The ring answered an entry. [`Self::take_in`] comes next.
    fn on_ring(&mut self, slot: u8, event: Event, cx: &mut ReactorContext<'_>) -> io::Result<()>;
    /// Turns what came in into requests, as far as it goes. `false`: there is more, but no room for
    /// it; it is called again when something was answered.
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> bool;
    /// Takes a finished request.
    fn deliver(&mut self, op: Op, ops: &mut Ops);
    /// Sends what is answered, as far as it goes without waiting.
    fn answer(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<()>;
    /// The end of a turn in which something happened: asks the ring for more, or says that it is over.
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life>;
    /// Takes nothing in from now on; what is inside is still answered.
    fn close(&mut self);
    /// A look at it about once a second, `short` when somebody waits for memory. `true`: it wants to be
    /// looked at again though nothing happens.
    fn periodic_check(&mut self, short: bool, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        let _ = (short, cx);
        Ok(false)
    }
    /// May its client go on under the contracts that are in force now, and use the export that it chose?
    fn is_allowed(&self, export: Option<&Export>, security: &Security) -> bool {
        let _ = (export, security);
        true
    }
    /// The volume that its client uses, once chosen.
    fn volume(&self) -> Option<usize>;
    /// Its volume has a new size in bytes, from this turn on. A volume only becomes shorter while no endpoint
    /// has it, so what is inside stays within it. Clients of an endpoint that cannot tell them see it when
    /// they come again.
    fn resized(&mut self, size: u64) {
        let _ = size;
    }
}
