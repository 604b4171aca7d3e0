//! The interface of endpoints: an NBD connection, a guest's disk, a block device, a mounted file.
//!
//! An endpoint turns its client's requests into requests of the engine and completes them when they are finished. It
//! owns the memory to which its ring entries point until they complete.

use std::io;
use std::os::fd::OwnedFd;

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

use super::bells::Bells;
use super::refusals::Refusals;
use super::ring::{Ring, Target};
use super::workers::{Work, Workers};
use crate::port::{Cancel, Client, Port};
use crate::request::buffer::Pool;
use crate::request::data::Data;
use crate::request::entry::Entry;
use crate::request::export::Export;
use crate::request::op::{Hints, NewOp, Op};
use crate::security::Security;

/// Makes the endpoint of a client that was accepted.
pub(crate) type Accept = fn(Instant, OwnedFd, &Security) -> Box<dyn Endpoint>;

/// Bytes of payload that one endpoint may hold, because a back end may have to copy them (or a single longer request).
pub(crate) const HELD_MAX: usize = 64 << 20;

/// The parts of the reactor that an endpoint uses during a call.
pub(crate) struct ReactorContext<'a> {
    pub(crate) now: Instant,
    /// The endpoint's client.
    pub(crate) client: &'a mut Client,
    pub(crate) port: &'a mut Port,
    pub(crate) ring: &'a mut Ring,
    pub(crate) quantum: Quantum,
    pub(crate) workers: &'a mut Workers,
    pub(crate) bells: &'a mut Bells,
    pub(crate) refusals: &'a mut Refusals,
    /// Processor time that other threads spent for this endpoint's client and that is not charged yet.
    pub(crate) spent: Nanos,
}

impl ReactorContext<'_> {
    /// A request of the client, still without a range and data.
    pub(crate) fn request(&self, cookie: u64, operation: Operation) -> NewOp {
        let volume = self.client.volume.expect("requests come after a volume was chosen");
        let (owner, hints, data) = (self.client.key as u64, Hints::default(), Data::None);
        NewOp { owner, cookie, volume, operation, hints, offset: 0, length: 0, data }
    }
    /// What an endpoint that may have `most` requests in flight, and holds `holds` bytes beyond those in flight, must wait
    /// for before a request with this much payload: nothing if it is `Done`.
    pub(crate) fn room(&mut self, most: u32, holds: usize, payload: usize) -> Progress {
        let held = self.client.held + holds;
        let is_full = payload > 0 && held > 0 && held + payload > HELD_MAX;
        if is_full || self.client.in_flight >= most {
            return Progress::OwnLimit;
        }
        match payload == 0 || self.port.has_memory(self.client, holds, payload) {
            true => Progress::Done,
            false => Progress::NoRoom,
        }
    }
    /// Submits a request, or returns it if there is no room.
    #[allow(clippy::result_large_err)]
    pub(crate) fn submit(&mut self, new: NewOp) -> Result<(), NewOp> {
        self.port.submit(self.now, self.client, new)
    }
    /// The client does not wait for its requests any more. They are delivered as soon as possible.
    pub(crate) fn cancel_requests(&mut self, which: Cancel) {
        self.port.cancel(self.now, self.client, which);
    }
    /// Gives work that takes long, as a step of a handshake does, to another thread, and calls [`Endpoint::on_work_done`]
    /// then. `false` if there is no such thread.
    pub(crate) fn begin_work(&mut self, work: Work) -> bool {
        self.workers.begin(self.client.key, self.port.account(self.client), work)
    }
    /// Queues a ring entry. Its completion is passed to [`Endpoint::on_ring`] with the same slot.
    pub(crate) fn push(&mut self, entry: Entry, slot: u8) -> io::Result<()> {
        self.push_part(entry, slot, 0)
    }
    /// [`Self::push`] of one of several entries in this slot.
    pub(crate) fn push_part(&mut self, entry: Entry, slot: u8, part: u16) -> io::Result<()> {
        self.client.entries += 1;
        self.ring.push(entry, Target::Endpoint { key: self.client.key as u32, slot, part })
    }
    /// Queues an entry that cancels the one in `slot`; its own completion has the slot `completion`.
    pub(crate) fn cancel(&mut self, slot: u8, completion: u8) -> io::Result<()> {
        let target = |slot| Target::Endpoint { key: self.client.key as u32, slot, part: 0 };
        self.client.entries += 1;
        self.ring.cancel(target(slot), target(completion))
    }
}

/// The input that one visit of an endpoint may read, so that no endpoint delays the others for long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantum {
    commands: u32,
    bytes: usize,
}

impl Quantum {
    /// A few dozen requests, some 50 us of work: several of the busiest endpoints fit into one turn.
    pub(crate) const VISIT: Self = Self { commands: 32, bytes: 256 << 10 };
    /// Nothing more.
    pub(crate) const NONE: Self = Self { commands: 0, bytes: 0 };
    /// Uses up the cost of this many bytes.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
    /// Uses up one command with this many bytes. `false` if the quantum was used up before.
    pub(crate) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.commands > 0 && self.bytes > 0;
        self.commands = self.commands.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        left
    }
}

/// The result of reading an endpoint's input: when the reactor visits it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// No input is left: after the next completion of one of its ring entries.
    Done,
    /// The quantum is used up: in fair order.
    More,
    /// The engine or the budget has no room: when there may be room.
    NoRoom,
    /// It holds as much as one endpoint may: when one of its requests was completed or sent.
    OwnLimit,
}

/// A completed ring entry of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingEvent {
    /// The slot and the part that the entry was pushed with.
    pub(crate) slot: u8,
    pub(crate) part: u16,
    pub(crate) result: i32,
    /// Whether the same entry will complete again.
    pub(crate) more: bool,
}

/// The state of an endpoint at the end of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// It is open, or has something to send.
    Open,
    /// It is closed: the reactor drops it once its client has no requests in flight and no ring entries.
    Closed,
}

/// A connection, a guest's disk, a block device or a mounted file, as the reactor drives it.
pub(crate) trait Endpoint: Send {
    /// A ring entry completed. This must be cheap: the input is read by [`Self::take_in`], which is called in fair order and
    /// before another entry is requested.
    fn on_ring(&mut self, event: RingEvent, cx: &mut ReactorContext<'_>) -> io::Result<()>;
    /// Turns received input into requests, as far as the quantum and the room allow.
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress;
    /// Receives a finished request.
    fn deliver(&mut self, op: Op, buffers: &mut Pool);
    /// Sends completions, as far as possible without blocking. `true` if it holds less memory than before.
    fn reply(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool>;
    /// Whether [`Self::reply`] has more to send in its next call.
    fn has_replies(&self) -> bool {
        false
    }
    /// Whether replies to finished requests were not handed to its client, or never will be.
    fn has_unsent(&self) -> bool {
        false
    }
    /// Ends a turn in which the endpoint had an event: requests further ring entries, or reports that it is closed.
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life>;
    /// Stops reading input. Requests in flight are still completed.
    fn close(&mut self);
    /// Another thread has done its work; [`Self::take_in`] follows. Until then the endpoint must not be [`Life::Closed`].
    fn on_work_done(&mut self) {}
    /// Steps of its handshake that are done.
    fn handshake_steps(&self) -> u32 {
        0
    }
    /// The server did not run for this long: its client has so much more time for its handshake.
    fn forgive(&mut self, stopped: Nanos) {
        let _ = stopped;
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
    /// Bytes of payload that it holds beyond those of requests in flight: received in part, or not sent yet.
    fn holds(&self) -> usize {
        0
    }
    /// Its volume has a new size in bytes. A volume shrinks only while no endpoint uses it, so requests in flight stay within
    /// it. Clients of an endpoint that cannot notify them see the new size when they reconnect.
    fn resized(&mut self, size: u64) {
        let _ = size;
    }
}
