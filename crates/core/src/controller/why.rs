//! Why each request waits right now.
//!
//! Read-only: combines the pool of requests, what the policies report about requests that they hold
//! ([`Policy::hold_info`](crate::policy::Policy::hold_info)), and the last decision about each request, if the trace keeps
//! it ([`Trace::remember`](crate::trace::Trace::remember)).

use super::Controller;
use crate::policy::HoldInfo;
use crate::request::{NO_STAGE, Request, RequestId, SHARES};
use crate::time::Instant;
use crate::trace::{Decision, Subject};

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Place {
    /// A throttle has it; they count from 0.
    Throttle(usize),
    /// It waits for a tag.
    Tag,
    /// The scheduler has it.
    Scheduler,
    /// A flush that waits for its client's writes, or for the flush before it.
    Flush,
    /// The drive has it.
    Drive,
}

/// A request inside, and what is known of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Held<'a> {
    /// The request.
    pub request: &'a Request,
    /// Submissions that it stands for.
    pub parts: usize,
    /// Where it is.
    pub place: Place,
    /// Since when; for a throttle behind another one since its submission.
    pub since: Instant,
    /// What the policy that holds it reports.
    pub info: HoldInfo,
    /// The last decision about this very request.
    pub decision: Option<Decision>,
}

impl Controller {
    /// From now on the last decisions are remembered, for [`Self::held`].
    pub fn remember_decisions(&mut self) {
        self.trace.remember();
    }
    /// The last decision about a client, a group or the drive, if decisions are remembered.
    #[must_use]
    pub fn last_decision(&self, subject: Subject) -> Option<Decision> {
        self.trace.last(subject)
    }
    /// Requests inside, those that `wanted` says; merged ones with the request that took them in.
    pub fn held(&self, wanted: impl Fn(&Request) -> bool) -> impl Iterator<Item = Held<'_>> {
        let heads = self.requests.heads().filter(move |(_, request)| wanted(request));
        heads.map(|(id, request)| self.holds(id, request))
    }
    /// [`Self::held`] in parts: shows those that `wanted` says to `each`, beginning with a place of the pool, and ends
    /// after so many places and merged requests. Returns where the next part begins, if there is one.
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
            let Some(request) = self.requests.head(id).filter(|request| wanted(request)) else {
                continue;
            };
            let held = self.holds(id, request);
            left = left.saturating_sub(held.parts - 1);
            each(held);
        }
        (at < self.requests.bound()).then_some(at)
    }
    fn holds<'a>(&'a self, id: RequestId, request: &'a Request) -> Held<'a> {
        let (place, since) = place(request);
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
