//! The path of flushes through the stack.
//!
//! With [`FlushRule::Bypass`] a flush whose writes are completed goes to the drive at once: no throttle, no
//! scheduler, no tag. So it is in the experiments of the sources, and in the kernel below its throttles.
//!
//! With [`FlushRule::Scheduled`] it is a request like any other once its client's writes are completed: it passes the
//! throttles as one write without bytes, takes a tag, and enters the scheduler as a write that somebody waits for, of
//! the length that a flush costs ([`super::flush_cost`]) where its client last was, and never merged. When the
//! scheduler gives it, it shares a command with the flushes that it gives next, and with those that wait for the one in
//! flight. It does not wait for flushes that are still in the scheduler.

use alloc::vec::Vec;

use super::{Completion, Context, Controller, FlushRule, context};
use crate::id::RequestId;
use crate::request::{Flags, Operation, SHARES};
use crate::time::Instant;
use crate::trace::EventKind;
use crate::unit::Sectors;

impl Controller {
    /// Sends on the flushes that wait for no write any more.
    pub(super) fn start_flushes(&mut self, now: Instant) {
        while let Some(id) = self.flushes.pop_freed(&mut self.requests) {
            self.start(now, id);
        }
        self.send_plugged(now);
    }
    /// A flush has passed all throttles: what it is to the scheduler.
    pub(super) fn weigh_flush(&mut self, id: RequestId) {
        let (length, capacity) = (self.flush_cost.cost(), self.setup.facts.capacity);
        let request = &mut self.requests[id];
        let position = self.positions[request.client.index()];
        request.length = length.min(capacity);
        request.start = position.min(capacity - request.length);
    }
    /// The next command: flushes that wait for one, else what the scheduler gives. Flushes that it gives one after the other
    /// go together; what it gives after them goes before them, once.
    pub(super) fn next_command(&mut self, now: Instant) -> Option<RequestId> {
        while let Some(rest) = self.next_cut() {
            if !self.requests[rest].is_cancelled() {
                return Some(rest);
            }
            self.end_dispatched(now, rest);
        }
        loop {
            let joins = self.setup.flushes == FlushRule::Scheduled
                && self.flushes.is_ready()
                && !self.flush_passed;
            if !joins && let flush @ Some(_) = self.flushes.dispatch(&mut self.requests, now) {
                self.flush_passed = false;
                return flush;
            }
            let Some(id) = self.scheduler.dispatch(&mut context!(self, now)) else {
                return self.flushes.dispatch(&mut self.requests, now);
            };
            if self.requests[id].is_cancelled() {
                self.end_dispatched(now, id);
                continue;
            }
            // A flush in this stage was given twice, an error of the scheduler that the conformance test reports.
            let again = self.requests[id].stage == SHARES;
            if self.requests[id].operation != Operation::Flush || again {
                self.flush_passed = joins;
                return Some(id);
            }
            self.requests[id].stage = SHARES;
            self.flushes.share(&mut self.requests, id);
        }
    }
    /// For the cost of flushes: a command goes to the drive.
    pub(super) fn watch_dispatch(&mut self, now: Instant, operation: Operation) {
        match operation {
            _ if self.setup.flushes == FlushRule::Bypass => {}
            Operation::Read | Operation::Write => self.flush_cost.on_data(now),
            Operation::Flush => self.flush_cost.on_flush(now),
            Operation::Discard | Operation::WriteZeroes => {}
        }
    }
    /// For the cost of flushes: a command of this operation was completed.
    pub(super) fn watch_complete(&mut self, now: Instant, operation: Operation, length: Sectors) {
        let carries = matches!(operation, Operation::Read | Operation::Write);
        if carries && self.setup.flushes == FlushRule::Scheduled {
            self.flush_cost.on_data_done(now, length.bytes());
        }
    }

    /// A command that flushes was completed: so are all flushes that it stands for.
    pub(super) fn complete_flushes(
        &mut self,
        now: Instant,
        id: RequestId,
        status: i32,
        done: &mut Vec<Completion>,
    ) {
        let client = self.requests[id].client;
        let scheduled = self.setup.flushes == FlushRule::Scheduled;
        let dispatched = self.requests[id].dispatched;
        let mut shared = 0;
        while let Some(flush) = self.flushes.pop_done(&mut self.requests, client) {
            shared += 1;
            if flush != id {
                // The command stood for this one too.
                self.note(now, flush, EventKind::Completed);
            }
            if scheduled {
                if !self.requests.is_orphan(flush) {
                    self.scheduler.complete(&mut context!(self, now), flush);
                }
                self.leave_stack(now, flush);
            }
            self.requests.remove_parts(flush, |request, part| {
                self.slots.give(request);
                self.per_client[request.client.index()].flushes += 1;
                let released = if scheduled { request.asked_tag } else { part.submitted };
                let operation = Operation::Flush;
                done.push(Completion {
                    part,
                    operation,
                    released,
                    dispatched,
                    completed: now,
                    status,
                });
            });
        }
        if scheduled {
            self.flush_cost.on_flush_done(now, shared);
        }
    }
    /// Throttles are told that a request was completed, and its tag is free.
    pub(super) fn leave_stack(&mut self, now: Instant, id: RequestId) {
        if self.requests[id].operation == Operation::Flush {
            // As the throttles saw it.
            self.requests[id].length = Sectors::ZERO;
        }
        if !self.requests.is_orphan(id) {
            for stage in (0..self.throttles.len()).rev() {
                self.throttles[stage].complete(&mut context!(self, now), id);
            }
        }
        self.tags.release();
    }
    /// Flags with which a scheduled flush passes the stack.
    pub(super) const FLUSH_FLAGS: Flags = Flags::SYNC.with(Flags::NO_MERGE);
}
