//! Tags: how many requests the scheduler may hold and the drive may have, all together; and the order in which requests
//! get one.
//!
//! A request needs a tag to enter the scheduler. A client that finds none waits over one request at a time, in the order
//! of beginning to wait, and what else it sent lines up behind that one: so everybody else overtakes the pile of one
//! client. What a throttle had put aside is one line, whoever sent it ([`Policy::has_worker`]). The kernel has the same
//! order, since its processes sleep until they have a tag. The scheduler may keep part of the tags from some classes
//! ([`Policy::tag_limit`]): a class may take one while the tags in use are fewer than its limit.

use alloc::vec::Vec;

use crate::id::{ClientId, RequestId};
use crate::parts::fifo::Fifo;
use crate::policy::{Context, Policy, TagClass};
use crate::request::{Operation, Request, Requests};
use crate::time::Instant;

/// Who sends a request to the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sender {
    /// Its own client.
    Client(ClientId),
    /// The worker of the throttle that had put it aside.
    Worker,
}

impl Sender {
    fn index(self) -> usize {
        match self {
            Self::Worker => 0,
            Self::Client(client) => client.index() + 1,
        }
    }
}

/// The requests of one sender that wait for a tag.
#[derive(Clone, Copy, Default, Debug)]
struct Line {
    /// Whether its first request waits.
    is_waiting: bool,
    /// Counts first requests: the order of getting tags.
    ticket: u64,
    /// Its other requests.
    behind: Fifo,
}

/// Tags and what waits for one.
#[derive(Debug)]
pub(super) struct Tags {
    total: u32,
    used: u32,
    /// The first requests of lines, by class. Their place in the pool is their line.
    waiting: [Fifo; 3],
    waiters: u32,
    lines: Vec<Line>,
    ticket: u64,
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
        let lines = alloc::vec![Line::default()];
        Self { total, used: 0, waiting: [Fifo::new(); 3], waiters: 0, lines, ticket: 0 }
    }
    /// Another number of them. Who has one keeps it, even where these are more.
    pub(super) fn set_total(&mut self, total: u32) {
        self.total = total;
    }
    /// Nobody waits any more, and `used` of them are in use.
    pub(super) fn start_again(&mut self, used: u32) {
        self.used = used;
        (self.waiting, self.waiters) = ([Fifo::new(); 3], 0);
        self.lines.fill(Line::default());
    }
    pub(super) fn add_client(&mut self, client: ClientId) {
        let bound = self.lines.len().max(Sender::Client(client).index() + 1);
        self.lines.resize(bound, Line::default());
    }
    /// Does this client wait for a tag?
    pub(super) fn is_waiting(&self, client: ClientId) -> bool {
        self.lines[Sender::Client(client).index()].is_waiting
    }
    /// Takes a tag for the request or makes it wait; `true` when it got one.
    pub(super) fn take_or_wait(
        &mut self,
        cx: &mut Context<'_>,
        scheduler: &dyn Policy,
        sender: Sender,
        id: RequestId,
    ) -> bool {
        let (sender, requests) = (sender.index(), &mut *cx.requests);
        if self.lines[sender].is_waiting {
            self.lines[sender].behind.push_back(requests, id);
            return false;
        }
        requests[id].asked_tag = cx.now;
        let class = class(&requests[id]);
        let mine = &self.waiting[class as usize];
        let free = mine.is_empty() && self.has_room(scheduler, class) && !self.owed(scheduler);
        if free {
            self.used += 1;
            requests.set_tagged(id);
        } else {
            self.wait(requests, sender, id);
        }
        free
    }
    fn wait(&mut self, requests: &mut Requests, sender: usize, id: RequestId) {
        let class = class(&requests[id]);
        self.waiting[class as usize].push_back(requests, id);
        requests.set_place(id, sender as u32);
        self.waiters += 1;
        self.ticket += 1;
        let line = &mut self.lines[sender];
        (line.is_waiting, line.ticket) = (true, self.ticket);
    }
    pub(super) fn release(&mut self) {
        assert!(self.used > 0, "a tag was given back twice");
        self.used -= 1;
    }
    /// The request that has waited longest of those that may have a tag now; it has one then.
    pub(super) fn next_waiter(
        &mut self,
        now: Instant,
        requests: &mut Requests,
        scheduler: &dyn Policy,
    ) -> Option<RequestId> {
        if self.used >= self.total {
            return None;
        }
        let heads = TagClass::ALL.into_iter().filter_map(|class| {
            let id = self.waiting[class as usize].front()?;
            let sender = requests.place(id) as usize;
            self.has_room(scheduler, class).then(|| (self.lines[sender].ticket, class, sender, id))
        });
        let (_, class, sender, id) = heads.min_by_key(|(ticket, ..)| *ticket)?;
        self.waiting[class as usize].remove(requests, id);
        requests.set_place(id, u32::MAX);
        self.waiters -= 1;
        self.used += 1;
        requests.set_tagged(id);
        let line = &mut self.lines[sender];
        match line.behind.pop_front(requests) {
            None => line.is_waiting = false,
            // It asks only now, after others.
            Some(next) => {
                requests[next].asked_tag = now;
                self.wait(requests, sender, next);
            }
        }
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
    /// it before its waiter gets it, or a busy class starves the others.
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
