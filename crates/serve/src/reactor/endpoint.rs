//! The interface of endpoints: an NBD connection, a guest's disk, a block device, a mounted file.
//!
//! An endpoint turns its client's requests into requests of the engine and completes them when they are finished. It
//! owns the memory to which its ring entries point until they complete.

use std::io;

use iofair_core::time::{Instant, Nanos};

use super::bells::Bells;
use super::budget::{Budget, Share};
use super::fair::Account;
use super::refusals::Refusals;
use super::ring::{Event, Ring, Target};
use super::workers::{Handshake, Workers};
use crate::engine::Engine;
use crate::engine::cancel::Cancel;
use crate::front::tls::Channel;
use crate::request::entry::Entry;
use crate::request::export::{Export, Exports, Offer};
use crate::request::op::{Op, Ops};
use crate::security::Security;

/// The parts of the reactor that an endpoint uses during a call.
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
    pub(super) refusals: &'a mut Refusals,
    /// Processor time that other threads spent for this endpoint's client and that is not charged yet.
    pub(super) spent: Nanos,
}

impl ReactorContext<'_> {
    /// The client chose an export.
    pub(super) fn attach(&mut self, id: u32) {
        self.engine.attach(id as usize);
        self.engine.join(id as usize, self.key as u64);
    }
    /// The client has left the export, and has no request in flight.
    pub(super) fn detach(&mut self, id: u32) {
        self.engine.leave(id as usize, self.key as u64);
        self.engine.detach(id as usize);
    }
    /// The endpoint's client does not wait for its requests any more. They are delivered as soon as possible.
    pub(super) fn cancel_requests(&mut self, which: Cancel) {
        self.engine.cancel(self.now, self.key as u64, which);
    }
    /// The exports that NBD clients can list.
    pub(super) fn offer(&self) -> Offer<'_> {
        Offer { exports: self.exports, groups: self.engine.controller().groups() }
    }
    /// [`Self::attach`] of an NBD client, which counts as a connection.
    pub(super) fn enter(&mut self, id: u32) {
        self.attach(id);
        self.exports.enter(id, self.engine.controller().groups());
    }
    /// The account that processor time and memory for the clients of a volume are charged to.
    pub(super) fn account(&self, volume: Option<usize>) -> Account {
        volume.map_or(Account::HANDSHAKE, |volume| Account::in_group(self.engine.group(volume)))
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
    /// Tells the budget how many bytes this endpoint holds now.
    pub(super) fn charge(&mut self, volume: Option<usize>, share: &mut Share, holds: usize) {
        let account = self.account(volume);
        self.budget.charge(self.engine.controller().groups(), account, share, holds);
    }
    /// Gives the next step of a handshake to another thread, which passes the result to [`Endpoint::on_handshake`]. `false`
    /// if there is no such thread.
    pub(super) fn begin_handshake(&mut self, volume: Option<usize>, channel: Box<Channel>) -> bool {
        self.workers.shake_hands(self.key, self.account(volume), channel)
    }
    /// Queues a ring entry. Its completion is passed to [`Endpoint::on_ring`] with the same slot.
    pub(super) fn push(&mut self, entry: Entry, slot: u8) -> io::Result<()> {
        self.push_part(entry, slot, 0)
    }
    /// [`Self::push`] of one of several entries in this slot; the target of the event contains the part.
    pub(super) fn push_part(&mut self, entry: Entry, slot: u8, part: u16) -> io::Result<()> {
        self.ring.push(entry, Target::Endpoint { key: self.key as u32, slot, part })
    }
    /// Queues an entry that cancels the one in `slot`; its own completion has the slot `completion`.
    pub(super) fn cancel(&mut self, slot: u8, completion: u8) -> io::Result<()> {
        let target = |slot| Target::Endpoint { key: self.key as u32, slot, part: 0 };
        self.ring.cancel(target(slot), target(completion))
    }
}

/// The input that one visit of an endpoint may read, so that no endpoint delays the others for long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantum {
    commands: u32,
    bytes: usize,
}

impl Quantum {
    /// A few dozen requests, some 50 us of work: several of the busiest endpoints fit into one turn.
    pub(super) const VISIT: Self = Self { commands: 32, bytes: 256 << 10 };
    /// Nothing more.
    pub(super) const NONE: Self = Self { commands: 0, bytes: 0 };
    /// Uses up the cost of this many bytes.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
    /// Uses up one command with this many bytes. `false` if the quantum was used up before.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.commands > 0 && self.bytes > 0;
        self.commands = self.commands.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        left
    }
}

/// The result of reading an endpoint's input: when the reactor visits it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// No input is left: after the next completion of one of its ring entries.
    Done,
    /// The quantum is used up: in fair order.
    More,
    /// The engine or the budget has no room: when there may be room.
    NoRoom,
    /// It holds as much as one endpoint may: when one of its requests was completed or sent.
    OwnLimit,
}

/// The state of an endpoint at the end of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// It is open.
    Open,
    /// It is closed and has no requests in flight, unsent data or ring entries: the reactor drops it.
    Closed,
}

/// A connection, a guest's disk, a block device or a mounted file, as the reactor drives it.
pub(super) trait Endpoint: Send {
    /// A ring entry completed. This must be cheap: the input is read by [`Self::take_in`], which is called in fair order and
    /// before another entry is requested.
    fn on_ring(&mut self, slot: u8, event: Event, cx: &mut ReactorContext<'_>) -> io::Result<()>;
    /// Turns received input into requests, as far as the quantum and the room allow.
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress;
    /// Receives a finished request.
    fn deliver(&mut self, op: Op, ops: &mut Ops);
    /// Sends completions, as far as possible without blocking. `true` if it holds less memory than before.
    fn reply(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool>;
    /// Whether [`Self::reply`] has more to send in its next call.
    fn has_replies(&self) -> bool {
        false
    }
    /// Ends a turn in which the endpoint had an event: requests further ring entries, or reports that it is closed.
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life>;
    /// Stops reading input. Requests in flight are still completed.
    fn close(&mut self);
    /// A step of its handshake is done; [`Self::take_in`] follows. Until then the endpoint must not be [`Life::Closed`].
    fn on_handshake(&mut self, handshake: Handshake) {
        let _ = handshake;
        unreachable!("an endpoint without handshakes");
    }
    /// Steps of its handshake that are done.
    fn handshake_steps(&self) -> u32 {
        0
    }
    /// Whether another thread does a step of its handshake now.
    fn is_shaking(&self) -> bool {
        false
    }
    /// Ends at once, without completing requests in flight.
    fn cut(&mut self, cx: &mut ReactorContext<'_>) {
        let _ = cx;
    }
    /// Called about once a second after an event; `short` if an endpoint of its group waits for memory. Returns whether to call
    /// it again even without an event. One that takes long uses up the quantum: the next endpoint is checked in the next turn.
    fn periodic_check(&mut self, short: bool, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        let _ = (short, cx);
        Ok(false)
    }
    /// Whether the contracts in force allow its client to stay connected and to use the export that it chose.
    fn is_allowed(&self, export: Option<&Export>, security: &Security) -> bool {
        let _ = (export, security);
        true
    }
    /// The volume that its client uses, once chosen.
    fn volume(&self) -> Option<usize>;
    /// Its volume has a new size in bytes. A volume shrinks only while no endpoint uses it, so requests in flight stay within
    /// it. Clients of an endpoint that cannot notify them see the new size when they reconnect.
    fn resized(&mut self, size: u64) {
        let _ = size;
    }
}
