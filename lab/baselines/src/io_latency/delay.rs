//! Delays: what a group owes for requests that could not be made to wait, and the clients that sleep for
//! it.

use alloc::vec::Vec;

use iofair_core::id::{ClientId, RequestId};
use iofair_core::parts::fifo::Fifo;
use iofair_core::request::Requests;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::parts::tree::{Arena, NodeId, Tree};

/// Longest sleep at a time.
pub(super) const SLEEP_MAX: Nanos = Nanos::from_millis(250);
/// Time between two checks of the time slept.
const PERIOD: Nanos = Nanos::from_secs(1);

/// What a group owes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Delay {
    sum: Nanos,
    /// Start of the present period, and the debt and the group's `use_delay` at that time.
    since: Instant,
    owed_then: Nanos,
    use_then: u64,
}

impl Delay {
    pub(super) fn add(&mut self, now: Instant, use_delay: u64, more: Nanos) {
        self.settle(now, use_delay);
        self.sum += more;
    }
    pub(super) fn owed(&mut self, now: Instant, use_delay: u64) -> Nanos {
        self.settle(now, use_delay);
        self.sum
    }
    /// At the end of each period, subtracts the time slept, or half of the debt if `use_delay` fell.
    fn settle(&mut self, now: Instant, use_delay: u64) {
        let passed = now.since(self.since);
        if passed <= PERIOD {
            return;
        }
        self.since = now;
        let mut paid = self.owed_then.min(passed);
        if use_delay < self.use_then {
            paid = paid.max(self.owed_then / 2);
        }
        self.sum = self.sum.saturating_sub(paid);
        (self.owed_then, self.use_then) = (self.sum, use_delay);
    }
}

#[derive(Clone, Copy, Debug)]
struct Sleeper {
    /// Whether it sleeps after its next completion.
    is_marked: bool,
    node: Option<NodeId>,
    /// Its requests that arrived meanwhile.
    requests: Fifo,
}

/// The clients that sleep.
#[derive(Default)]
pub(super) struct Sleepers {
    clients: Vec<Sleeper>,
    nodes: Arena<Instant, u32>,
    sleeping: Tree,
}

impl Sleepers {
    pub(super) fn add(&mut self, client: ClientId) {
        let awake = Sleeper { is_marked: false, node: None, requests: Fifo::new() };
        while self.clients.len() <= client.index() {
            self.clients.push(awake);
        }
        let sleeper = &mut self.clients[client.index()];
        assert!(sleeper.requests.is_empty(), "{client:?} is new and holds requests");
        let old = core::mem::replace(sleeper, awake);
        if let Some(node) = old.node {
            self.nodes.remove(&mut self.sleeping, node);
        }
    }
    pub(super) fn len(&self) -> usize {
        self.sleeping.len()
    }
    pub(super) fn mark(&mut self, client: ClientId) {
        self.clients[client.index()].is_marked = true;
    }
    pub(super) fn is_marked(&self, client: ClientId) -> bool {
        self.clients[client.index()].is_marked
    }
    pub(super) fn sleep(&mut self, client: ClientId, now: Instant, delay: Nanos) {
        let sleeper = &mut self.clients[client.index()];
        sleeper.is_marked = false;
        if delay > Nanos::ZERO && sleeper.node.is_none() {
            let node = self.nodes.insert(&mut self.sleeping, now + delay, client.index() as u32);
            sleeper.node = Some(node);
        }
    }
    /// Keeps what a sleeping client sends; `false` when it is awake.
    pub(super) fn hold(&mut self, requests: &mut Requests, id: RequestId) -> bool {
        let sleeper = &mut self.clients[requests[id].client.index()];
        let sleeps = sleeper.node.is_some();
        if sleeps {
            sleeper.requests.push_back(requests, id);
        }
        sleeps
    }
    /// The next request of a client that has slept long enough.
    pub(super) fn wake(&mut self, now: Instant, requests: &mut Requests) -> Option<RequestId> {
        while let Some(node) = self.nodes.first(&self.sleeping) {
            if self.nodes.key(node) > now {
                break;
            }
            let sleeper = &mut self.clients[self.nodes.value(node) as usize];
            if let Some(id) = sleeper.requests.pop_front(requests) {
                return Some(id);
            }
            sleeper.node = None;
            self.nodes.remove(&mut self.sleeping, node);
        }
        None
    }
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.nodes.first(&self.sleeping).map(|node| self.nodes.key(node))
    }
}
