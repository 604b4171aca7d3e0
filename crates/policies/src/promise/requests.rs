//! What the requests of a client or a group are to clocks.

use iofair_core::minimum::Amount;

/// What a request is to a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A read, or a write that somebody waits for.
    Urgent,
    /// A write that nobody waits for.
    Buffered,
    /// A flush. Somebody waits for it.
    Flush,
}

impl Kind {
    pub(super) fn is_urgent(self) -> bool {
        self != Self::Buffered
    }
}

/// What the requests of a group are; one tree for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// Data queued, and somebody waits for some request.
    Urgent,
    /// Nothing but buffered writes queued.
    Buffered,
    /// Nothing but flushes queued, and data in flight, or the group is between two requests for data.
    FlushBesideData,
    /// Nothing but flushes queued or in flight.
    Flush,
    /// Nothing queued, but data in flight, or the group is between two requests.
    Busy,
    /// Nothing queued, and nothing but flushes in flight.
    Flushing,
}
/// Number of lines.
pub(super) const LINES: usize = 6;
/// Groups that wait for data, or are about to send some.
pub(super) const DATA: [Line; 4] =
    [Line::Urgent, Line::Buffered, Line::FlushBesideData, Line::Busy];

/// Requests of a client, or of all in a group, as far as clocks know them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Requests {
    pub(super) queued: u32,
    /// Queued, and somebody waits for them.
    pub(super) urgent: u32,
    /// Queued flushes.
    pub(super) flushes: u32,
    /// Commands in flight, flushes among them, and how much of them counts.
    pub(super) in_flight: u32,
    pub(super) flushing: u32,
    pub(super) amount: Amount,
}

impl Requests {
    pub(super) fn are_none(&self) -> bool {
        self.queued == 0 && self.in_flight == 0
    }
    /// Is data queued or in flight?
    pub(super) fn have_data(&self) -> bool {
        self.queued > self.flushes || self.in_flight > self.flushing
    }
    /// `between`: data is about to be sent.
    pub(super) fn line(&self, between: bool) -> Line {
        let has_data = between || self.in_flight > self.flushing;
        match self.queued {
            0 if self.in_flight > 0 && !has_data => Line::Flushing,
            0 => Line::Busy,
            queued if queued > self.flushes && self.urgent > 0 => Line::Urgent,
            queued if queued > self.flushes => Line::Buffered,
            _ if has_data => Line::FlushBesideData,
            _ => Line::Flush,
        }
    }
    /// One is queued.
    pub(super) fn arrive(&mut self, kind: Kind) {
        self.queued += 1;
        self.urgent += u32::from(kind.is_urgent());
        self.flushes += u32::from(kind == Kind::Flush);
    }
    /// So much of one goes to the drive; `all`: with it the request.
    pub(super) fn dispatch(&mut self, amount: Amount, (all, kind): (bool, Kind)) {
        self.queued -= u32::from(all);
        self.urgent -= u32::from(all && kind.is_urgent());
        self.flushes -= u32::from(all && kind == Kind::Flush);
        self.in_flight += 1;
        self.flushing += u32::from(kind == Kind::Flush);
        self.amount += amount;
    }
    /// A command was completed.
    pub(super) fn complete(&mut self, amount: Amount, kind: Kind) {
        self.in_flight -= 1;
        self.flushing -= u32::from(kind == Kind::Flush);
        self.amount -= amount;
    }
}
