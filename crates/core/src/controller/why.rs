//! Why each request waits right now.
//!
//! Read-only: combines the pool of requests, what the policies report about requests that they hold
//! ([`Policy::hold_info`](crate::policy::Policy::hold_info)), and the last decision about each request, if the trace keeps
//! it ([`Trace::remember`](crate::trace::Trace::remember)).

use super::Controller;
use super::exchange::{Held, Place};
use crate::id::{ClientId, RequestId};
use crate::policy::{Gauges, HoldInfo};
use crate::request::{NO_STAGE, Request, SHARES};
use crate::time::Instant;
use crate::trace::{Decision, Subject};
use crate::unit::Sectors;

impl Controller {
    /// Starts to remember the last decision about each request, for [`Self::held`].
    pub fn remember_decisions(&mut self) {
        self.trace.remember();
    }
    /// The last decision about a client, a group or the drive, if decisions are remembered.
    #[must_use]
    pub fn last_decision(&self, subject: Subject) -> Option<Decision> {
        self.trace.last(subject)
    }
    /// Pending requests for which `wanted` is true. Merged requests follow the request into which they were merged.
    pub fn held(&self, wanted: impl Fn(&Request) -> bool) -> impl Iterator<Item = Held<'_>> {
        let heads = self.requests.heads();
        let heads = heads.filter(move |(_, request)| !request.is_cancelled() && wanted(request));
        heads.map(|(id, request)| self.holds(id, request))
    }
    /// [`Self::held`] in parts: calls `each` for pending requests for which `wanted` is true, beginning at a slot of the
    /// pool, and ends after a number of slots and merged requests. Returns the slot at which the next part begins, if any.
    #[must_use = "where the next part begins"]
    pub fn look_at(
        &self,
        first: usize,
        most: usize,
        wanted: impl Fn(&Request) -> bool,
        mut each: impl FnMut(Held<'_>),
    ) -> Option<usize> {
        let (mut at, mut left) = (first, most.max(1));
        while left > 0 && at < self.requests.bound() {
            let id = RequestId(at as u32);
            at += 1;
            left -= 1;
            let head = self.requests.head(id).filter(|request| !request.is_cancelled());
            let Some(request) = head.filter(|request| wanted(request)) else { continue };
            let held = self.holds(id, request);
            left = left.saturating_sub(held.parts - 1);
            each(held);
        }
        (at < self.requests.bound()).then_some(at)
    }
    /// Reports the gauges of every stage.
    pub fn observe(&self, gauges: &mut dyn Gauges) {
        for throttle in &self.throttles {
            throttle.observe(gauges);
        }
        self.scheduler.observe(gauges);
    }
    /// Whether the next request of a client would wait behind one that waits already: for a tag, or in a throttle that
    /// makes the client wait. False for an unknown client.
    #[must_use]
    pub fn is_held_up(&self, client: ClientId) -> bool {
        if self.groups.try_client(client).is_none() {
            return false;
        }
        let in_throttle = || {
            let has_worker = |stage: usize| self.throttles[stage].has_worker(client);
            let mut stages = 0..self.throttles.len();
            if self.throttled[client.index()] == 0 || stages.clone().all(has_worker) {
                return false;
            }
            let mut own = self.requests.heads().filter(|(_, request)| request.client == client);
            // Looking at all requests takes long; it is needed only where throttles differ.
            !stages.any(has_worker)
                || own.any(|(_, request)| match place(request).0 {
                    Place::Throttle(stage) => !has_worker(stage),
                    _ => false,
                })
        };
        self.tags.is_waiting(client) || in_throttle()
    }
    fn holds<'a>(&'a self, id: RequestId, request: &'a Request) -> Held<'a> {
        let (place, since) = match place(request) {
            // Another piece of it waits for its turn.
            (Place::Drive, _) if self.requests.is_cut(id) && request.length > Sectors::ZERO => {
                (Place::Scheduler, request.got_tag)
            }
            found => found,
        };
        let info = match place {
            Place::Throttle(stage) => {
                self.throttles[stage].hold_info(&self.groups, &self.requests, id)
            }
            Place::Scheduler => self.scheduler.hold_info(&self.groups, &self.requests, id),
            _ => HoldInfo::default(),
        };
        let subject = Subject::Request { id, sequence: request.sequence };
        let decision = self.trace.last(subject);
        let parts = self.requests.parts(id).count();
        Held { request, parts, place, since, info, decision }
    }
}

fn place(request: &Request) -> (Place, Instant) {
    let reached = |at: Instant| at != Instant::MAX;
    if reached(request.dispatched) {
        (Place::Drive, request.dispatched)
    } else if request.stage == SHARES || request.stage == NO_STAGE {
        (Place::Flush, request.submitted)
    } else if reached(request.got_tag) {
        (Place::Scheduler, request.got_tag)
    } else if reached(request.asked_tag) {
        (Place::Tag, request.asked_tag)
    } else {
        (Place::Throttle(usize::from(request.stage)), request.submitted)
    }
}
