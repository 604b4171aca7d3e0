//! The requests inside the engine, reconstructed from submissions and events: who is behind each slot.

use std::collections::VecDeque;

use iofair_core::controller::Submission;
use iofair_core::id::RequestId;

/// One request inside.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) sequence: u64,
    pub(super) submission: Submission,
    /// Requests that were merged into it, those merged into them included.
    pub(super) with: Vec<RequestId>,
    /// Whether the drive has a command of it.
    sent: bool,
}

/// All of them.
#[derive(Default, Debug)]
pub(super) struct Pool {
    /// Submissions without an event yet.
    coming: VecDeque<(u64, Submission)>,
    submitted: u64,
    slots: Vec<Option<Known>>,
    pub(super) drive: Occupancy,
}

impl Pool {
    /// How many requests were submitted: their sequences are 1 to this.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted
    }
    /// A request is about to be submitted.
    pub(super) fn announce(&mut self, submission: &Submission) {
        self.submitted += 1;
        self.coming.push_back((self.submitted, *submission));
    }
    /// The request is inside the engine.
    pub(super) fn enter(&mut self, id: RequestId, sequence: u64) -> Option<&Known> {
        while self.coming.front().is_some_and(|(first, _)| *first < sequence) {
            self.coming.pop_front();
        }
        let (_, submission) = self.coming.pop_front()?;
        let index = id.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Known { sequence, submission, with: Vec::new(), sent: false });
        self.slots[index].as_ref()
    }
    pub(super) fn known(&self, id: RequestId) -> Option<&Known> {
        self.slots.get(id.0 as usize)?.as_ref()
    }
    /// It was merged into another.
    pub(super) fn merge(&mut self, id: RequestId, into: RequestId) {
        let slot = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut);
        let Some(own) = slot.map(|known| std::mem::take(&mut known.with)) else { return };
        if let Some(head) = self.slots.get_mut(into.0 as usize).and_then(Option::as_mut) {
            head.with.push(id);
            head.with.extend(own);
        }
    }
    /// Bytes of it and of what was merged into it.
    pub(super) fn bytes(&self, id: RequestId) -> u64 {
        let own = |id: RequestId| self.known(id).map_or(0, |k| k.submission.length.bytes());
        let with = self.known(id).map_or(&[][..], |known| &known.with);
        own(id) + with.iter().map(|id| own(*id)).sum::<u64>()
    }
    /// It went to the drive.
    pub(super) fn send(&mut self, id: RequestId, now: u64) {
        self.drive.change(now, 1);
        if let Some(known) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) {
            known.sent = true;
        }
    }
    /// It left the engine, with all that was merged into it. A flush may leave with another's command.
    pub(super) fn leave(&mut self, id: RequestId, now: u64) {
        let Some(known) = self.slots.get_mut(id.0 as usize).and_then(Option::take) else { return };
        if known.sent {
            self.drive.change(now, -1);
        }
        for part in known.with {
            self.slots[part.0 as usize] = None;
        }
    }
}

/// How full the drive was, added up over time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Occupancy {
    pub(super) depth: u32,
    pub(super) in_flight: u32,
    since: u64,
    /// Time with as many commands as the drive takes, and with none.
    full: u64,
    empty: u64,
}

impl Occupancy {
    /// Time with the drive full and with it empty, up to now.
    pub(super) fn full_and_empty(&mut self, now: u64) -> (u64, u64) {
        let passed = now.saturating_sub(self.since);
        self.since = now;
        if self.in_flight == 0 {
            self.empty += passed;
        } else if self.in_flight >= self.depth {
            self.full += passed;
        }
        (self.full, self.empty)
    }
    /// The same, up to the last change or question.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.full, self.empty)
    }
    fn change(&mut self, now: u64, by: i32) {
        self.full_and_empty(now);
        self.in_flight = self.in_flight.saturating_add_signed(by);
    }
}
