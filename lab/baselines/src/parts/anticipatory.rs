//! The queue of the anticipatory scheduler, one set of requests: batches of synchronous and asynchronous requests
//! alternate, and after a read the scheduler idles briefly for the next one of the same process.
//!
//! Synchronous and asynchronous requests are queued separately, by sector and by arrival. An [`AnticipatoryQueue`] is
//! the state of one set. The state of processes, and the tree nodes, are [`Shared`] by all sets of a drive. A set
//! does not know groups: `anticipatory` has a single set; the 2009 layer has one per group and switches between them
//! with [`AnticipatoryQueue::leave`] and [`AnticipatoryQueue::enter`]. Source: Linux 2.6.32, `block/as-iosched.c`;
//! leaving and entering are our own.

mod batch;
mod processes;
#[cfg(test)]
mod tests;

pub use batch::Kind;
pub use processes::{Processes, Watched};

use batch::Batch;
use iofair_core::id::RequestId;
use iofair_core::params::Parameter;
use iofair_core::policy::Build;
use iofair_core::request::Requests;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::{
    Entry, MergeRules, SeekRules, Sorted, SortedFifo, choose,
};

/// The tunables; arrays are indexed by [`Kind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnticipatoryRules {
    /// A request older than this may go next; looked for once in as long.
    pub fifo_expire: [Nanos; 2],
    /// How long a batch lasts while the other kind waits.
    pub batch_expire: [Nanos; 2],
    /// Longest wait for a process's next request; zero: never wait.
    pub antic_expire: Nanos,
    /// What may be merged.
    pub merges: MergeRules,
}

/// The kernel's parameters, with their names and defaults.
pub const PARAMETERS: [Parameter; 5] = [
    Parameter::time(
        "read_expire",
        Nanos::from_millis(125),
        "a read or synchronous write older than this may go first",
    ),
    Parameter::time(
        "write_expire",
        Nanos::from_millis(250),
        "any other write older than this may go first",
    ),
    Parameter::time(
        "read_batch_expire",
        Nanos::from_millis(500),
        "length of a batch of synchronous requests while others wait",
    ),
    Parameter::time(
        "write_batch_expire",
        Nanos::from_millis(125),
        "length of a batch of asynchronous requests while others wait",
    ),
    Parameter::time("antic_expire", Nanos::from_millis(6), "longest idling; 0: never"),
];

impl AnticipatoryRules {
    /// From these parameters.
    pub fn new(build: &Build<'_>) -> Self {
        let time = |name| build.values.time(name);
        Self {
            fifo_expire: [time("read_expire"), time("write_expire")],
            batch_expire: [time("read_batch_expire"), time("write_batch_expire")],
            antic_expire: time("antic_expire"),
            merges: MergeRules { front: true, max: build.facts.max_request },
        }
    }
}

/// What all queues of a drive share.
#[derive(Default, Debug)]
pub struct Shared {
    /// The tree nodes.
    pub sorted: Sorted,
    /// The processes; tell it of every change of the clients.
    pub processes: Processes,
}

/// Whether the scheduler idles for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// No.
    Off,
    /// It will be once its request at the drive is completed.
    ForCompletion,
    /// For its next request, but no longer than this.
    ForNext(Instant),
    /// Not again before the next request of its kind went out.
    Over,
}

/// Requests that wait, and the process whose next request may be waited for.
#[derive(Clone, Copy, Debug)]
pub struct AnticipatoryQueue {
    rules: AnticipatoryRules,
    queues: [SortedFifo; 2],
    /// The best request by the way of the head.
    next: [Option<RequestId>; 2],
    /// The sector after the last one given.
    position: [Sectors; 2],
    /// When the oldest request was last looked at.
    checked: [Instant; 2],
    batch: Batch,
    wait: Wait,
    /// The process whose request went out last, if somebody waits for that request.
    watched: Option<Watched>,
    /// Its last completion since then.
    completed: Option<Instant>,
    /// Requests of this set at the drive.
    in_flight: u32,
    /// What is left of the batch while the set is left.
    left: Option<Nanos>,
}

fn kind(requests: &Requests, id: RequestId) -> Kind {
    if requests[id].is_sync() { Kind::Sync } else { Kind::Async }
}

/// Requests closer than this to the head, and half as far behind it, are close at first.
const CLOSE: Sectors = Sectors(8192);
/// Milliseconds in each of which that doubles; later everything is close.
const CLOSE_MS: u64 = 20;

impl AnticipatoryQueue {
    /// An empty set.
    pub fn new(rules: AnticipatoryRules) -> Self {
        Self {
            rules,
            queues: [SortedFifo::new(); 2],
            next: [None; 2],
            position: [Sectors::ZERO; 2],
            checked: [Instant::ZERO; 2],
            batch: Batch::new(rules.batch_expire),
            wait: Wait::Off,
            watched: None,
            completed: None,
            in_flight: 0,
            left: None,
        }
    }
    /// Requests that wait.
    pub const fn len(&self) -> usize {
        self.queues[0].len() + self.queues[1].len()
    }
    /// Whether it has no request.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Requests of a kind that wait.
    pub const fn queued(&self, kind: Kind) -> usize {
        self.queues[kind as usize].len()
    }
    /// Whether it holds everything for a process's next request.
    pub const fn is_anticipating(&self) -> bool {
        matches!(self.wait, Wait::ForCompletion | Wait::ForNext(_))
    }
    /// Whether it holds everything until the requests of the last batch have completed.
    pub const fn is_draining(&self) -> bool {
        self.batch.changing
    }
    /// The process whose next request is, or may come to be, waited for.
    pub const fn watched(&self) -> Option<Watched> {
        self.watched
    }
    /// Writes that the next batch of writes may have.
    pub const fn write_count(&self) -> u32 {
        self.batch.write_count()
    }
    /// When to ask again though nothing happens.
    pub const fn next_wakeup(&self) -> Option<Instant> {
        match self.wait {
            Wait::ForNext(until) => Some(until),
            _ => None,
        }
    }

    /// Takes a request in.
    pub fn insert(&mut self, shared: &mut Shared, requests: &mut Requests, entry: Entry) {
        let (id, now) = (entry.id, entry.arrived);
        self.expire(&mut shared.processes, now);
        let client = requests[id].client;
        shared.processes.note_request(client, &requests[id], now);
        shared.processes.note_queued(client);
        let kind = kind(requests, id) as usize;
        self.queues[kind].insert(&mut shared.sorted, requests, entry);
        self.next[kind] = match self.next[kind] {
            Some(next) => Some(self.better(requests, kind, id, next)),
            None => Some(id),
        };
        if self.is_anticipating() && self.can_break(shared, requests, Some(id), now) {
            self.wait = Wait::Over;
        }
    }
    /// Merges an incoming request into a waiting one, if it may.
    pub fn try_merge(
        &mut self,
        shared: &mut Shared,
        requests: &mut Requests,
        id: RequestId,
    ) -> bool {
        let kind = kind(requests, id) as usize;
        let next_start = self.next[kind].map(|next| requests[next].start);
        let (queue, sorted) = (&mut self.queues[kind], &mut shared.sorted);
        let Some(merged) = queue.try_merge(sorted, requests, id, self.rules.merges) else {
            return false;
        };
        let Some(absorbed) = merged.absorbed else { return true };
        shared.processes.note_unqueued(requests[absorbed].client);
        let into = merged.into;
        let concerned = self.next[kind] == Some(absorbed) || self.next[kind] == Some(into);
        if concerned && next_start != Some(requests[into].start) {
            // The one behind was next: now it is the whole, or the next one further up.
            let sorted = &shared.sorted;
            let up = queue.next(sorted, requests, into).or_else(|| queue.first(sorted));
            let up = up.filter(|up| *up != into);
            let better = up.map(|up| self.better(requests, kind, into, up));
            self.next[kind] = Some(better.unwrap_or(into));
        } else if concerned {
            self.next[kind] = Some(into);
        }
        true
    }

    /// Gives a request out, unless none waits, those at the drive must be completed first, or the
    /// process that was served last is worth waiting for.
    pub fn dispatch(
        &mut self,
        shared: &mut Shared,
        requests: &mut Requests,
        now: Instant,
    ) -> Option<RequestId> {
        self.expire(&mut shared.processes, now);
        let waiting = self.queues.map(|queue| !queue.is_empty());
        self.batch.note_waiting(waiting);
        if waiting == [false; 2] || self.is_anticipating() || self.batch.changing {
            return None;
        }
        let id = self.pick(shared, requests, now, waiting)?;
        if self.batch.changing {
            if self.in_flight > 0 {
                return None;
            }
            self.batch.start(now);
        }
        self.give(shared, requests, id);
        Some(id)
    }
    fn pick(
        &mut self,
        shared: &mut Shared,
        requests: &Requests,
        now: Instant,
        waiting: [bool; 2],
    ) -> Option<RequestId> {
        let [sync, writes] = waiting;
        if !(sync && writes && self.batch.is_over(now)) {
            let kind = self.batch.kind;
            let next = self.next[kind as usize];
            if kind == Kind::Sync && self.rules.antic_expire > Nanos::ZERO {
                if let Some(expired) = self.expired(&shared.sorted, requests, kind, now) {
                    return Some(expired);
                }
                if self.can_anticipate(shared, requests, next, now) {
                    self.start_waiting();
                    return None;
                }
            }
            if let Some(next) = next {
                if sync && !writes {
                    self.batch.prolong(now);
                }
                return self.expired(&shared.sorted, requests, kind, now).or(Some(next));
            }
        }
        let turn = match sync && !(writes && self.batch.kind == Kind::Sync) {
            true => Kind::Sync,
            false => Kind::Async,
        };
        self.batch.switch_to(turn);
        self.checked[turn as usize] = now;
        self.queues[turn as usize].oldest()
    }
    /// The oldest request, if it has waited too long, and if nobody has looked for this long.
    fn expired(
        &mut self,
        sorted: &Sorted,
        requests: &Requests,
        kind: Kind,
        now: Instant,
    ) -> Option<RequestId> {
        let kind = kind as usize;
        let expire = self.rules.fifo_expire[kind];
        if now.since(self.checked[kind]) < expire {
            return None;
        }
        self.checked[kind] = now;
        let oldest = self.queues[kind].oldest()?;
        let deadline = self.queues[kind].arrived(sorted, requests, oldest) + expire;
        (now > deadline).then_some(oldest)
    }
    fn give(&mut self, shared: &mut Shared, requests: &mut Requests, id: RequestId) {
        let which = kind(requests, id);
        let (kind, client) = (which as usize, requests[id].client);
        self.wait = Wait::Off;
        self.position[kind] = requests[id].end();
        self.watched = (which == Kind::Sync).then(|| shared.processes.watch(client));
        self.completed = None;
        self.batch.on_dispatch(which);
        self.next[kind] = self.follower(&shared.sorted, requests, id);
        self.queues[kind].remove(&mut shared.sorted, requests, id);
        shared.processes.note_unqueued(client);
        self.in_flight += 1;
    }
    /// Who is next once `id` has gone.
    fn follower(&self, sorted: &Sorted, requests: &Requests, id: RequestId) -> Option<RequestId> {
        let kind = kind(requests, id) as usize;
        let queue = &self.queues[kind];
        let down = queue.previous(sorted, requests, id);
        let wrapped = || queue.first(sorted).filter(|first| *first != id);
        let up = queue.next(sorted, requests, id).or_else(wrapped);
        match (up, down) {
            (Some(up), Some(down)) => Some(self.better(requests, kind, up, down)),
            (one, other) => one.or(other),
        }
    }
    fn better(&self, requests: &Requests, kind: usize, a: RequestId, b: RequestId) -> RequestId {
        choose(requests, a, b, self.position[kind], &SeekRules::ANTICIPATORY)
    }

    /// The drive completed one of this set's requests.
    pub fn complete(
        &mut self,
        shared: &mut Shared,
        requests: &Requests,
        id: RequestId,
        now: Instant,
    ) {
        self.expire(&mut shared.processes, now);
        self.batch.on_complete(now, kind(requests, id), self.in_flight == 1);
        self.in_flight -= 1;
        if self.watched == Some(shared.processes.watch(requests[id].client)) {
            self.completed = Some(now);
            if self.wait == Wait::ForCompletion {
                self.wait = Wait::ForNext(now + self.rules.antic_expire);
            }
        }
        shared.processes.note_completion(&requests[id], now);
    }
}

/// Anticipation.
impl AnticipatoryQueue {
    /// The wait ends when its time is up, whoever is first to notice.
    fn expire(&mut self, processes: &mut Processes, now: Instant) {
        if let (Wait::ForNext(until), Some(watched)) = (self.wait, self.watched)
            && now >= until
        {
            self.wait = Wait::Over;
            processes.note_in_vain(watched);
        }
    }
    fn start_waiting(&mut self) {
        self.wait = match self.completed {
            None => Wait::ForCompletion,
            Some(completed) => Wait::ForNext(completed + self.rules.antic_expire),
        };
    }
    fn can_anticipate(
        &self,
        shared: &mut Shared,
        requests: &Requests,
        next: Option<RequestId>,
        now: Instant,
    ) -> bool {
        let once = self.watched.is_some() && self.wait != Wait::Over;
        once && !self.can_break(shared, requests, next, now)
    }
    /// Whether there is no reason to wait, or to wait on, when this request could go instead.
    fn can_break(
        &self,
        shared: &mut Shared,
        requests: &Requests,
        instead: Option<RequestId>,
        now: Instant,
    ) -> bool {
        let Some(watched) = self.watched else { return true };
        let longest = self.rules.antic_expire;
        let of_watched = |id: RequestId| shared.processes.watch(requests[id].client) == watched;
        if instead.is_some_and(of_watched) {
            return true;
        }
        if self.completed.is_some_and(|completed| now.since(completed) >= longest) {
            return true;
        }
        let processes = &mut shared.processes;
        if processes.has_queued(watched) {
            return true;
        }
        if let Some(id) = instead
            && requests[id].is_sync()
            && self.is_close(processes, watched, requests[id].start, now)
        {
            processes.note_cooperation(watched, &requests[id], now);
            return true;
        }
        processes.is_hopeless(watched, longest)
    }
    /// Whether a request is so near to the head that the watched process's own would hardly be nearer. The
    /// longer the wait, the farther may it be.
    fn is_close(
        &self,
        processes: &Processes,
        watched: Watched,
        start: Sectors,
        now: Instant,
    ) -> bool {
        let waited = match (self.wait, self.completed) {
            (Wait::Off, _) | (_, None) => Nanos::ZERO,
            (_, Some(completed)) => now.since(completed),
        };
        if waited.as_millis() > CLOSE_MS || waited > self.rules.antic_expire {
            return true;
        }
        let reach = Sectors(CLOSE.0 << waited.as_millis());
        let head = self.position[self.batch.kind as usize];
        let near = head <= start + Sectors(reach.0 / 2) && start <= head + reach;
        near || processes.is_nearer_than_usual(watched, head.distance(start))
    }
}

/// Turns between sets.
impl AnticipatoryQueue {
    /// The drive serves another set from now on: the batch's time stands still, nobody is waited for, a
    /// change of batches does not wait for the drive to drain, and how long the writes took is not known.
    pub fn leave(&mut self, now: Instant) {
        self.left = Some(self.batch.left(now));
        self.batch.interrupt();
        (self.wait, self.watched, self.completed) = (Wait::Off, None, None);
    }
    /// The drive serves this set again.
    pub fn enter(&mut self, now: Instant) {
        if let Some(left) = self.left.take() {
            self.batch.ends = now + left;
        }
    }
}
