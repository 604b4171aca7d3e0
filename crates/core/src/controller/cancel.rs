//! Cancelling requests for which nobody waits any more, such as reads of a client that has disconnected.
//!
//! A cancelled request never reaches the drive and is never completed. A policy that can take it out does so at once
//! ([`Policy::cancel`](crate::policy::Policy::cancel)); any other one returns it in its turn, and it ends then: after a
//! throttle without entering the next stage, after the scheduler without a command. Until then it holds its request slot,
//! so that cancelled requests are bounded, too. What the drive has cannot be cancelled.

use alloc::vec::Vec;

use super::{Context, Controller, context};
use crate::id::RequestId;
use crate::request::Request;
use crate::time::Instant;

impl Controller {
    /// Cancels a request, unless the drive has a part of it, it is a flush, or somebody still waits for a request that was
    /// merged with it: `is_gone` says of each submission's tag whether nobody does. Appends the tags of all that was
    /// cancelled to `gone`; it is never completed. Call [`Self::dispatch`] afterwards. An unknown id is ignored.
    ///
    /// [`Plug::admitted`](super::Plug::admitted) gives the ids of requests from a plug.
    pub fn cancel(
        &mut self,
        now: Instant,
        id: RequestId,
        is_gone: impl Fn(u64) -> bool,
        gone: &mut Vec<u64>,
    ) {
        let now = self.present(now);
        let all_gone = || self.requests.parts(id).all(|(_, part)| is_gone(part.tag));
        if !self.requests.can_cancel(id) || !all_gone() {
            return;
        }
        let before = gone.len();
        gone.extend(self.requests.parts(id).map(|(_, part)| part.tag));
        self.cancelled += gone.len() - before;
        self.requests.set_cancelled(id);
        let Request { stage, client, got_tag, .. } = self.requests[id];
        let stage = usize::from(stage);
        let let_go = match self.throttles.get_mut(stage) {
            Some(throttle) => throttle.cancel(&mut context!(self, now), id),
            // It waits for a tag, and goes on when it gets one.
            None if got_tag == Instant::MAX => false,
            None => self.scheduler.cancel(&mut context!(self, now), id),
        };
        if let_go {
            if stage < self.throttles.len() {
                self.throttled[client.index()] -= 1;
            }
            self.end_cancelled(now, stage, id);
        }
    }
    /// Number of requests that are neither completed nor cancelled, in any stage.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.requests.len() - self.cancelled
    }
    /// No policy holds a cancelled request any more; `passed` throttles had let it pass.
    pub(super) fn end_cancelled(&mut self, now: Instant, passed: usize, id: RequestId) {
        self.ended = true;
        let request = &mut self.requests[id];
        let (client, modifies) = (request.client, request.operation.modifies());
        for time in [&mut request.asked_tag, &mut request.got_tag, &mut request.dispatched] {
            *time = (*time).min(now);
        }
        let passed = if self.requests.is_orphan(id) { 0 } else { passed.min(self.throttles.len()) };
        for stage in (0..passed).rev() {
            self.throttles[stage].complete(&mut context!(self, now), id);
        }
        if self.requests.is_tagged(id) {
            self.tags.release();
        }
        let (slots, flushes, cancelled) = (&mut self.slots, &mut self.flushes, &mut self.cancelled);
        let mut clients = Vec::new();
        self.requests.remove_parts(id, |request, part| {
            *cancelled -= 1;
            slots.give(request);
            if modifies {
                flushes.write_done(request.client, request.epoch);
                if part.client != client {
                    clients.push(part.client);
                }
            }
        });
        if modifies {
            // `pump` starts the flushes that this frees.
            for client in clients.into_iter().chain([client]) {
                self.flushes.release(&mut self.requests, client);
            }
        }
    }
    /// The scheduler dispatched a cancelled request, or a piece of one: it ends without a command.
    pub(super) fn end_dispatched(&mut self, now: Instant, id: RequestId) {
        let whole = self.requests.whole(id);
        for id in [id, whole] {
            let dispatched = &mut self.requests[id].dispatched;
            *dispatched = (*dispatched).min(now);
        }
        if !self.requests.is_orphan(id) {
            self.scheduler.complete(&mut context!(self, now), id);
        }
        let ended = match self.requests.is_piece(id) {
            true => self.requests.end_piece(id, 0),
            false => Some(id),
        };
        self.ended = true;
        if let Some(id) = ended {
            self.end_cancelled(now, self.throttles.len(), id);
        }
    }
    /// Whether a cancelled request has ended since the last call.
    pub(super) fn take_ended(&mut self) -> bool {
        core::mem::take(&mut self.ended)
    }
}
