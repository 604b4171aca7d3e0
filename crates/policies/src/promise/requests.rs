//! Counters of the requests of a client or a group, as clocks need them.

use iofair_core::minimum::Amount;

/// How a clock counts a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A read or a synchronous write: a program waits for it.
    Urgent,
    /// A synchronous write that waits for others of its group, since a read of a minimum was late ([`super::clock`]).
    Gathered,
    /// A write from a page cache: no program waits for it.
    Buffered,
    /// A flush: a program waits for it.
    Flush,
}

/// A request, or a piece of it, that goes to the drive: its amount counts for minimums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) amount: Amount,
    pub(super) kind: Kind,
}

impl Kind {
    pub(super) fn is_urgent(self) -> bool {
        matches!(self, Self::Urgent | Self::Flush)
    }
}

/// State of a group's queue. The clocks keep one tree for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueState {
    /// Data is queued, and at least one queued request is urgent.
    Urgent,
    /// Only buffered writes are queued.
    Buffered,
    /// Only flushes are queued; data is in flight, or the group is between two data requests.
    FlushBesideData,
    /// Only flushes are queued or in flight.
    Flush,
    /// Nothing is queued; data is in flight, or the group is between two requests.
    Busy,
    /// Nothing is queued, and only flushes are in flight.
    Flushing,
}
/// Number of states.
pub(super) const STATES: usize = 6;
/// States of groups that wait for data, or are about to ask for some.
pub(super) const DATA: [QueueState; 4] =
    [QueueState::Urgent, QueueState::Buffered, QueueState::FlushBesideData, QueueState::Busy];

/// Requests of a client, or of everything inside a group.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Requests {
    pub(super) queued: u32,
    /// Queued requests that are urgent.
    pub(super) urgent: u32,
    /// Queued writes that are gathered.
    pub(super) gathered: u32,
    /// Queued flushes.
    pub(super) flushes: u32,
    /// Commands in flight, flushes in flight, and the amount in flight that counts for minimums.
    pub(super) in_flight: u32,
    pub(super) flushing: u32,
    pub(super) amount: Amount,
}

impl Requests {
    pub(super) fn are_none(&self) -> bool {
        self.queued == 0 && self.in_flight == 0
    }
    /// Whether data is queued or in flight.
    pub(super) fn have_data(&self) -> bool {
        self.queued > self.flushes || self.in_flight > self.flushing
    }
    /// The state; `between`: the group is between two data requests.
    pub(super) fn state(&self, between: bool) -> QueueState {
        let has_data = between || self.in_flight > self.flushing;
        match self.queued {
            0 if self.in_flight > 0 && !has_data => QueueState::Flushing,
            0 => QueueState::Busy,
            queued if queued > self.flushes && self.urgent > 0 => QueueState::Urgent,
            queued if queued > self.flushes => QueueState::Buffered,
            _ if has_data => QueueState::FlushBesideData,
            _ => QueueState::Flush,
        }
    }
    /// A request is queued.
    pub(super) fn arrive(&mut self, kind: Kind) {
        self.queued += 1;
        self.urgent += u32::from(kind.is_urgent());
        self.gathered += u32::from(kind == Kind::Gathered);
        self.flushes += u32::from(kind == Kind::Flush);
    }
    /// A command is dispatched; `is_last`: of its request.
    pub(super) fn dispatch(&mut self, Command { amount, kind }: Command, is_last: bool) {
        self.queued -= u32::from(is_last);
        self.urgent -= u32::from(is_last && kind.is_urgent());
        self.gathered -= u32::from(is_last && kind == Kind::Gathered);
        self.flushes -= u32::from(is_last && kind == Kind::Flush);
        self.in_flight += 1;
        self.flushing += u32::from(kind == Kind::Flush);
        self.amount += amount;
    }
    /// A command was completed.
    pub(super) fn complete(&mut self, Command { amount, kind }: Command) {
        self.in_flight -= 1;
        self.flushing -= u32::from(kind == Kind::Flush);
        self.amount -= amount;
    }
}
