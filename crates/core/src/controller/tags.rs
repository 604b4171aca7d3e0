//! Tags: how many requests the scheduler may hold and the drive may have, all together; and who sleeps
//! until there is one.
//!
//! The kernel's rule: a request needs a tag to enter the scheduler; the process that finds none sleeps,
//! and sleepers are woken in the order of falling asleep. So a client waits over one request at a time,
//! and what else it sent lines up behind that one: a pile in one client's name is overtaken by everybody
//! else. What a throttle had put aside is sent by one worker of the throttle's, which sleeps as one client
//! does. The scheduler may keep part of the tags from some classes ([`Policy::tag_limit`]): a class may take
//! one while the tags in use are fewer than its limit.

use alloc::vec::Vec;

use crate::id::{ClientId, RequestId};
use crate::parts::fifo::Fifo;
use crate::policy::{Policy, TagClass};
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

/// Somebody who can sleep over a request.
#[derive(Clone, Copy, Default, Debug)]
struct Sleeper {
    is_asleep: bool,
    /// Counts those who fell asleep: the order of waking.
    ticket: u64,
    /// What it sends when it wakes up.
    behind: Fifo,
}

/// Tags and those who wait for one.
#[derive(Debug)]
pub(super) struct Tags {
    total: u32,
    used: u32,
    /// Requests that somebody sleeps over. Their place in the pool is their sender's index.
    waiting: [Fifo; 3],
    waiters: u32,
    sleepers: Vec<Sleeper>,
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
        let sleepers = alloc::vec![Sleeper::default()];
        Self { total, used: 0, waiting: [Fifo::new(); 3], waiters: 0, sleepers, ticket: 0 }
    }
    /// Another number of them. Who has one keeps it, even where these are more.
    pub(super) fn set_total(&mut self, total: u32) {
        self.total = total;
    }
    /// Nobody waits any more, and `used` of them are in use.
    pub(super) fn start_again(&mut self, used: u32) {
        self.used = used;
        (self.waiting, self.waiters) = ([Fifo::new(); 3], 0);
        self.sleepers.fill(Sleeper::default());
    }
    pub(super) fn add_client(&mut self, client: ClientId) {
        let bound = self.sleepers.len().max(Sender::Client(client).index() + 1);
        self.sleepers.resize(bound, Sleeper::default());
    }
    /// Does this client sleep until there is a tag?
    #[cfg(feature = "simulation")]
    pub(super) fn is_asleep(&self, client: ClientId) -> bool {
        self.sleepers[Sender::Client(client).index()].is_asleep
    }
    /// Takes a tag for the request or makes it wait; `true` when it got one.
    pub(super) fn take_or_wait(
        &mut self,
        now: Instant,
        requests: &mut Requests,
        scheduler: &dyn Policy,
        (sender, id): (Sender, RequestId),
    ) -> bool {
        let sender = sender.index();
        if self.sleepers[sender].is_asleep {
            self.sleepers[sender].behind.push_back(requests, id);
            return false;
        }
        requests[id].asked_tag = now;
        let class = class(&requests[id]);
        let mine = &self.waiting[class as usize];
        let free = mine.is_empty() && self.has_room(scheduler, class) && !self.owed(scheduler);
        if free {
            self.used += 1;
            requests.set_tagged(id);
        } else {
            self.fall_asleep(requests, sender, id);
        }
        free
    }
    fn fall_asleep(&mut self, requests: &mut Requests, sender: usize, id: RequestId) {
        let class = class(&requests[id]);
        self.waiting[class as usize].push_back(requests, id);
        requests.set_place(id, sender as u32);
        self.waiters += 1;
        self.ticket += 1;
        let sleeper = &mut self.sleepers[sender];
        (sleeper.is_asleep, sleeper.ticket) = (true, self.ticket);
    }
    pub(super) fn release(&mut self) {
        assert!(self.used > 0, "a tag was given back twice");
        self.used -= 1;
    }
    /// The request of the oldest sleeper that may have a tag now; it has one then.
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
            self.has_room(scheduler, class)
                .then(|| (self.sleepers[sender].ticket, class, sender, id))
        });
        let (_, class, sender, id) = heads.min_by_key(|(ticket, ..)| *ticket)?;
        self.waiting[class as usize].remove(requests, id);
        requests.set_place(id, u32::MAX);
        self.waiters -= 1;
        self.used += 1;
        requests.set_tagged(id);
        let sleeper = &mut self.sleepers[sender];
        match sleeper.behind.pop_front(requests) {
            None => sleeper.is_asleep = false,
            // It wakes, and finds others before it.
            Some(next) => {
                requests[next].asked_tag = now;
                self.fall_asleep(requests, sender, next);
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
