//! The interface of endpoints: an NBD connection, a guest's disk, a block device, a mounted file.
//!
//! An endpoint turns its client's requests into requests of the engine and completes them when they are finished. It
//! owns the memory to which its ring entries point until they complete.

use std::io;

use iofair_core::time::{Instant, Nanos};

use super::bells::Bells;
use super::budget::{Budget, Share};
use super::fair::Account;
use super::ring::{Event, Ring, Target};
use super::workers::{Handshake, Workers};
use crate::engine::Engine;
use crate::front::tls::Channel;
use crate::request::entry::Entry;
use crate::request::export::{Export, Exports, Offer};
use crate::request::op::{Op, Ops};
use crate::security::Security;

/// What an endpoint needs of the reactor to go on.
pub(super) struct ReactorContext<'a> {
    pub(super) now: Instant,
    pub(super) key: usize,
    pub(super) engine: &'a mut Engine,
    pub(super) exports: &'a mut Exports,
    pub(super) ring: &'a mut Ring,
    pub(super) budget: &'a mut Budget,
    pub(super) quantum: Quantum,
    pub(super) workers: &'a mut Workers,
    pub(super) bells: &'a mut Bells,
    /// Processor time that other threads have spent for this endpoint's client, not charged yet.
    pub(super) spent: Nanos,
}

impl ReactorContext<'_> {
    /// The client chose an export.
    pub(super) fn attach(&mut self, id: u32) {
        self.engine.attach(id as usize);
    }
    /// The client has left the export, and nothing of it is inside.
    pub(super) fn detach(&mut self, id: u32) {
        self.engine.detach(id as usize);
    }
    /// What NBD clients are offered.
    pub(super) fn offer(&self) -> Offer<'_> {
        Offer { exports: self.exports, groups: self.engine.controller().groups() }
    }
    /// [`Self::attach`] of an NBD client, which counts as a connection.
    pub(super) fn enter(&mut self, id: u32) {
        self.attach(id);
        self.exports.enter(id, self.engine.controller().groups());
    }
    /// Who pays for what the clients of a volume make the reactor do and hold.
    pub(super) fn account(&self, volume: Option<usize>) -> Account {
        volume.map_or(Account::HANDSHAKE, |volume| Account::of(self.engine.group(volume)))
    }
    /// Whether this endpoint, which holds `holds` bytes for clients of a volume, may hold `more`.
    pub(super) fn has_memory(
        &mut self,
        volume: Option<usize>,
        share: &mut Share,
        holds: usize,
        more: usize,
    ) -> bool {
        self.charge(volume, share, holds);
        let account = self.account(volume);
        self.budget.allows(self.engine.controller().groups(), account, holds, more)
    }
    /// Tells the budget what this endpoint holds now.
    pub(super) fn charge(&mut self, volume: Option<usize>, share: &mut Share, holds: usize) {
        let account = self.account(volume);
        self.budget.charge(self.engine.controller().groups(), account, share, holds);
    }
    /// Gives the next step of a handshake to another thread; what came of it comes to [`Endpoint::on_handshake`]. `false`:
    /// there is no such thread.
    pub(super) fn begin_handshake(&mut self, volume: Option<usize>, channel: Box<Channel>) -> bool {
        self.workers.shake_hands(self.key, self.account(volume), channel)
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

/// What one visit of an endpoint may take in, so that none keeps the others waiting for long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantum {
    commands: u32,
    bytes: usize,
}

impl Quantum {
    /// A few dozen requests, some 50 us of work: several of the busiest endpoints fit into one turn.
    pub(super) const VISIT: Self = Self { commands: 32, bytes: 256 << 10 };
    /// Uses up what costs as much as this many bytes.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
    /// Uses up one command that brings this many bytes; `false` when the quantum was used up before.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.commands > 0 && self.bytes > 0;
        self.commands = self.commands.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        left
    }
}

/// How far an endpoint came with its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Nothing is left: it is visited again when the ring answers it.
    Done,
    /// The quantum is used up: it is visited again in fair order.
    More,
    /// There is no room in the engine or in the budget: it is visited again when there may be some.
    NoRoom,
    /// It holds as much as one endpoint may: it is visited again when something of it was answered or sent.
    OwnLimit,
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
    /// The ring answered an entry. Cheap: what came in is looked at by [`Self::take_in`], which comes in fair
    /// order, and before another entry is asked for.
    fn on_ring(&mut self, slot: u8, event: Event, cx: &mut ReactorContext<'_>) -> io::Result<()>;
    /// Turns what came in into requests, as far as the quantum and the room for it go.
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress;
    /// Takes a finished request.
    fn deliver(&mut self, op: Op, ops: &mut Ops);
    /// Sends what is answered, as far as it goes without waiting. `true`: it holds less now than before.
    fn answer(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool>;
    /// Whether there is more to send, which [`Self::answer`] left for its next call.
    fn has_answers(&self) -> bool {
        false
    }
    /// The end of a turn in which something happened: asks the ring for more, or says that it is over.
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life>;
    /// Takes nothing in from now on; what is inside is still answered.
    fn close(&mut self);
    /// A step of its handshake is done; [`Self::take_in`] comes next. Until then the endpoint must not be over.
    fn on_handshake(&mut self, handshake: Handshake) {
        let _ = handshake;
        unreachable!("an endpoint without handshakes");
    }
    /// Ends at once, without completing requests in flight.
    fn cut(&mut self, cx: &mut ReactorContext<'_>) {
        let _ = cx;
    }
    /// A look at it about once a second, `short` when somebody of its group waits for memory. `true`: it wants to be
    /// looked at again though nothing happens.
    fn periodic_check(&mut self, short: bool, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        let _ = (short, cx);
        Ok(false)
    }
    /// Whether its client may go on under the contracts that are in force now, and use the export that it chose.
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
