//! Tags: how many requests the scheduler may hold and the drive may have, all together.
//!
//! The kernel's rule: a request needs a tag to enter the scheduler; who finds none sleeps, and sleepers
//! are woken in order. The scheduler may keep part of the tags from some classes
//! ([`Policy::tag_limit`]): a class may take one while the tags in use are fewer than its limit.

use crate::parts::fifo::Fifo;
use crate::policy::{Policy, TagClass};
use crate::request::{Operation, Request, RequestId, Requests};

/// Tags and those who wait for one.
#[derive(Debug)]
pub(super) struct Tags {
    total: u32,
    used: u32,
    waiting: [Fifo; 3],
    waiters: u32,
}

fn class(request: &Request) -> TagClass {
    match request.operation {
        Operation::Read => TagClass::SyncRead,
        _ if request.is_sync() => TagClass::SyncWrite,
        _ => TagClass::Async,
    }
}

impl Tags {
    pub(super) fn new(total: u32) -> Self {
        assert!(total > 0, "a stack needs at least one tag");
        Self { total, used: 0, waiting: [Fifo::new(); 3], waiters: 0 }
    }
    /// Takes a tag for the request or makes it wait; `true` when it got one.
    pub(super) fn take_or_wait(
        &mut self,
        requests: &mut Requests,
        scheduler: &dyn Policy,
        id: RequestId,
    ) -> bool {
        let class = class(&requests[id]);
        let mine = &self.waiting[class as usize];
        let free = mine.is_empty() && self.has_room(scheduler, class) && !self.owed(scheduler);
        if free {
            self.used += 1;
            requests.set_tagged(id);
        } else {
            self.waiting[class as usize].push_back(requests, id);
            self.waiters += 1;
        }
        free
    }
    pub(super) fn release(&mut self) {
        assert!(self.used > 0, "a tag was given back twice");
        self.used -= 1;
    }
    /// The oldest waiter that may have a tag now; it has one then.
    pub(super) fn next_waiter(
        &mut self,
        requests: &mut Requests,
        scheduler: &dyn Policy,
    ) -> Option<RequestId> {
        if self.used >= self.total {
            return None;
        }
        let heads = TagClass::ALL.into_iter().filter_map(|class| {
            let id = self.waiting[class as usize].front()?;
            self.has_room(scheduler, class).then(|| (requests[id].sequence, class, id))
        });
        let (_, class, id) = heads.min_by_key(|(sequence, ..)| *sequence)?;
        self.waiting[class as usize].remove(requests, id);
        self.waiters -= 1;
        self.used += 1;
        requests.set_tagged(id);
        Some(id)
    }
    /// Tags in use, and how many in use are too many for this request's class.
    pub(super) fn room(&self, scheduler: &dyn Policy, request: &Request) -> (u32, u32) {
        (self.used, self.limit(scheduler, class(request)))
    }
    pub(super) fn has_waiters(&self) -> bool {
        self.waiters > 0
    }
    /// Is there a tag that somebody waits for and may have? A newcomer of another class must not take
    /// it before its waiter is woken, or a busy class starves the others.
    fn owed(&self, scheduler: &dyn Policy) -> bool {
        let may = |class: TagClass| {
            !self.waiting[class as usize].is_empty() && self.has_room(scheduler, class)
        };
        self.has_waiters() && TagClass::ALL.into_iter().any(may)
    }
    fn has_room(&self, scheduler: &dyn Policy, class: TagClass) -> bool {
        self.used < self.limit(scheduler, class)
    }
    fn limit(&self, scheduler: &dyn Policy, class: TagClass) -> u32 {
        scheduler.tag_limit(class, self.total).clamp(1, self.total)
    }
}
