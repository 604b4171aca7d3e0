//! The end of a request: every submission that it stands for is completed.

use alloc::vec::Vec;

use super::{Completion, Controller};
use crate::id::RequestId;
use crate::request::Request;
use crate::time::Instant;
use crate::trace::EventKind;

impl Controller {
    /// Nothing of a request is left in the scheduler or the drive. `status` is that of a request that was not cut.
    pub(super) fn complete_whole(
        &mut self,
        now: Instant,
        id: RequestId,
        status: i32,
        done: &mut Vec<Completion>,
    ) {
        self.note(now, id, EventKind::Completed);
        let Request { operation, dispatched, .. } = self.requests[id];
        self.leave_stack(now, id);
        let first = done.len();
        let is_cut = self.requests.is_cut(id);
        let (flushes, counters) = (&mut self.flushes, &mut self.per_client);
        self.requests.remove_parts(id, |request, part| {
            self.slots.give(request);
            let latency = now.since(part.submitted);
            let counters = &mut counters[request.client.index()];
            counters.count(operation.direction(), part.length.bytes(), latency);
            if operation.modifies() {
                flushes.write_done(request.client, request.epoch);
            }
            let released = request.asked_tag;
            done.push(Completion { part, operation, released, dispatched, completed: now, status });
        });
        if is_cut {
            for completion in &mut done[first..] {
                completion.status = self.requests.status_of(id, &completion.part);
            }
            self.requests.forget_failed(id);
        }
        if operation.modifies() {
            for completion in &done[first..] {
                self.flushes.release(&mut self.requests, completion.part.client);
            }
            self.start_flushes(now);
        }
    }
}
