//! The reactor: one thread per drive that runs sockets, engine and back end on one ring.
//!
//! A turn: submit queued entries to the kernel and wait; read the clock; process input, in an order that is fair to
//! the groups and for a bounded time (`turn.rs`); let the engine dispatch; complete finished requests; send; receive
//! again. The only timer is the engine's next wake-up, which limits the wait.

mod accept;
mod bells;
mod busy_poll;
pub(crate) mod deferred;
mod ejections;
pub(crate) mod endpoint;
mod fair;
pub(crate) mod handle;
mod handshakes;
mod messages;
mod meter;
pub(crate) mod refusals;
mod ring;
mod stopped;
mod turn;
mod workers;
pub(crate) mod zeroing;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender};

use iofair_core::id::GroupId;
use iofair_core::time::{Instant, Nanos};
use slab::Slab;

use crate::clock::{self, Clock};
use crate::error::ServeError;
use crate::port::budget::Budget;
use crate::port::{Account, Change, Client, Engine, Port, Snapshot};
use crate::request::entry::Entry;
use crate::request::export::Export;
use crate::security::Security;
use crate::supervisor::Watchdog;
use crate::wake;
use bells::Bells;
use ejections::Ejections;
use endpoint::{Accept, Endpoint, Quantum, ReactorContext, RingEvent};
use fair::FairQueue;
use handshakes::Handshakes;
use meter::{Meter, Payer};
use refusals::Refusal;
use ring::{Event, Ring, Target, Wait};
use workers::Workers;
use zeroing::ZeroJob;

/// Maximum number of endpoints, whatever the contracts allow: their keys are small numbers.
const ENDPOINTS_MAX: usize = 1 << 17;
/// Time between two rounds of checks, while an endpoint requests them.
const CHECK_INTERVAL: Nanos = Nanos::from_secs(1);
/// Rounds of checks after which freed memory is returned to the system even if connections are busy.
const CHECKS_MAX: u32 = 60;
/// Checks after which a client of a removed volume that has not taken its replies is disconnected without them.
const EJECTED_CHECKS: u32 = 1;
/// Endpoints that are checked in one turn, about 20 us of work.
const CHECKS_PER_TURN: usize = 256;
/// Keys of the fair queue: new clients, and endpoints.
const DEFERRED: usize = 0;
const fn waiter(key: usize) -> usize {
    key + 1
}
/// A wait for the back end's own next event ends this much early, and the reactor spins for the rest: on a virtual
/// machine, a thread wakes some 50 us late, which is the time of an SSD read.
const SPIN: Nanos = Nanos::from_micros(60);

/// A function for the engine.
pub(crate) type EngineWork = Box<dyn FnOnce(Instant, &mut Engine) + Send>;

/// Makes an endpoint on the reactor's thread; without an export if there is no such volume or no room.
pub(crate) type MakeEndpoint = Box<dyn FnOnce(Option<&Export>) -> Option<Opened> + Send>;
/// An endpoint, and the volume that it is attached to from the start, if there is one.
pub(crate) type Opened = (Box<dyn Endpoint>, Option<u32>);

/// A message of another thread to a reactor.
pub(crate) enum Message {
    /// Apply new contracts, or refuse them and change nothing.
    Apply(Box<Change>, Security, Sender<Result<(), ServeError>>),
    /// Return statistics, and optionally reset them.
    Stats { reset: bool, reply: Sender<Snapshot> },
    /// Call a function with the state of the reactor. It must return quickly, because it blocks the reactor.
    Look(Box<dyn FnOnce(&Seen<'_>) + Send>),
    /// Call a function with the engine. It must return quickly too.
    Engine(EngineWork),
    /// Accept clients on this socket.
    Listen(Listener),
    /// Open an endpoint for the volume of this name.
    Open(String, MakeEndpoint),
    /// Count a client that was refused.
    Refused(Refusal),
    /// Stop reading requests. The reply is sent when no request is in flight.
    Pause(Sender<()>),
    /// Resume after a drain.
    Resume,
    /// Zero extents that belong to no volume.
    Zero(ZeroJob),
    /// Reply when the clients of volumes that the last change has removed are gone.
    Ejected(Sender<()>),
    /// Complete all requests, then end.
    Stop,
}

/// The state of a reactor for control and metrics.
pub(crate) struct Seen<'a> {
    pub(crate) now: Instant,
    pub(crate) engine: &'a Engine,
    /// Number of open endpoints.
    pub(crate) connections: usize,
    /// Processor time of clients that have not chosen a volume.
    pub(crate) handshake_cpu: Nanos,
    /// Refused clients, by [`Refusal`].
    pub(crate) refused: [u64; Refusal::COUNT],
    budget: &'a Budget,
}

impl Seen<'_> {
    /// Bytes that clients of volumes directly in a group hold beyond the guaranteed amount of each client.
    pub(crate) fn memory(&self, group: GroupId) -> u64 {
        self.budget.held(group)
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) file: OwnedFd,
    /// Whether a service manager passed it, so that it stays when the server ends.
    pub(crate) stays: bool,
    pub(crate) accept: Accept,
}

/// The parts of a new reactor.
pub(crate) struct Parts {
    pub(crate) port: Port,
    pub(crate) clock: Clock,
    pub(crate) messages: Receiver<Message>,
    /// An eventfd that is written after every message.
    pub(crate) wake: OwnedFd,
    /// Time limit of a drain. A client that does not read its completions cannot delay it for longer.
    pub(crate) drain: Nanos,
    /// The exports of NBD clients.
    pub(crate) security: Security,
    /// The watchdog that it feeds.
    pub(crate) watchdog: Option<Watchdog>,
}

/// An endpoint and the reactor's state for it.
struct Slot {
    endpoint: Box<dyn Endpoint>,
    client: Client,
    /// Whether it is in `touched`, and in `to_check`.
    is_touched: bool,
    is_to_check: bool,
    /// Whether it continues when one of its requests was completed or sent.
    is_at_own_limit: bool,
    /// Whether it found no room in its last visit.
    has_stalled: bool,
    /// Its number among the clients that have not chosen a volume, and the steps that it had done when it got that.
    handshake: Option<u64>,
    handshake_steps: u32,
    /// Whether it counts as a connection.
    is_client: bool,
    /// Whether it belongs to the server itself.
    is_own: bool,
    /// If its volume was removed: the number of that change, and checks since then.
    ejected: Option<(u64, u32)>,
    /// The account that it was last charged to.
    account: Account,
}

impl Slot {
    fn new(endpoint: Box<dyn Endpoint>, client: Client) -> Self {
        Self {
            endpoint,
            client,
            is_touched: false,
            is_to_check: false,
            is_at_own_limit: false,
            has_stalled: false,
            handshake: None,
            handshake_steps: 0,
            is_client: false,
            is_own: false,
            ejected: None,
            account: Account::HANDSHAKE,
        }
    }
}

/// The reactor of one drive.
pub(crate) struct Reactor {
    parts: Parts,
    ring: Ring,
    listeners: Vec<Listener>,
    endpoints: Slab<Slot>,
    events: Vec<Event>,
    /// Endpoints with input, and those whose input has no room.
    fair: FairQueue,
    meter: Meter,
    /// Reused list of endpoints whose requests were completed.
    finished: Vec<Account>,
    /// Endpoints that may have completions to send, in fair order like those with input, and endpoints to settle before the
    /// turn ends.
    to_reply: FairQueue,
    touched: Vec<usize>,
    workers: Workers,
    bells: Bells,
    /// Endpoints that requested a check in the next round, those left in this round, and the time of the next round.
    to_check: Vec<usize>,
    checking: Vec<usize>,
    next_check: Option<Instant>,
    /// Rounds since freed memory was returned to the system.
    checks: u32,
    /// When to feed the watchdog, if there is one.
    feed: Option<Instant>,
    handshakes: Handshakes,
    /// Number of NBD connections that have chosen a volume.
    clients: usize,
    /// Number of the server's own jobs, which are endpoints too.
    zeroings: usize,
    /// Endpoints whose volume was removed.
    ejections: Ejections,
    /// When the drain must end, once it has begun.
    draining: Option<Instant>,
    /// When the last turn began.
    turned: Instant,
    /// Replies to send when no request is in flight.
    pausing: Vec<Sender<()>>,
}

impl Reactor {
    /// Sets the ring up. Call it on the thread that runs the reactor.
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        clock::sharpen_timers();
        let now = parts.clock.now();
        let feed = parts.watchdog.is_some().then_some(now);
        let workers = Workers::new(&parts.wake)?;
        let mut this = Self {
            parts,
            ring: Ring::new()?,
            listeners: Vec::new(),
            endpoints: Slab::new(),
            events: Vec::new(),
            fair: FairQueue::new(),
            meter: Meter::new(now),
            finished: Vec::new(),
            to_reply: FairQueue::new(),
            touched: Vec::new(),
            workers,
            bells: Bells::default(),
            to_check: Vec::new(),
            checking: Vec::new(),
            next_check: None,
            checks: 0,
            feed,
            handshakes: Handshakes::default(),
            clients: 0,
            zeroings: 0,
            ejections: Ejections::default(),
            draining: None,
            turned: now,
            pausing: Vec::new(),
        };
        this.set_groups();
        this.watch_wake()?;
        Ok(this)
    }
    fn set_groups(&mut self) {
        let groups = self.parts.port.groups();
        let all: Vec<GroupId> = groups.iter().map(|(id, _)| id).collect();
        self.fair.set_groups(groups, &all);
        self.to_reply.set_groups(groups, &all);
    }
    fn listen(&mut self, listener: Listener) -> io::Result<()> {
        self.listeners.push(listener);
        self.accept_on(self.listeners.len() - 1)
    }
    fn accept_on(&mut self, index: usize) -> io::Result<()> {
        let entry = Entry::accept(self.listeners[index].file.as_raw_fd());
        self.ring.push(entry, Target::Accept(index as u32))
    }
    fn watch_wake(&mut self) -> io::Result<()> {
        self.ring.push(Entry::watch(self.parts.wake.as_raw_fd()), Target::Wake)
    }

    /// Runs until it is told to stop and has drained; then makes everything durable.
    ///
    /// Ring entries refer to memory of endpoints, back end and engine, and the kernel continues them after the ring is closed.
    /// Therefore this memory is freed only after a drain that left no entry; after an error or a panic it is never freed.
    pub(crate) fn run(self) -> io::Result<()> {
        let mut this = ManuallyDrop::new(self);
        let turned = this.turn_until_drained();
        this.handshakes.refusals.tell_rest("clients");
        turned?;
        this.tell_unfinished();
        let result = this.parts.port.close();
        let idle = this.endpoints.is_empty() && this.parts.port.is_idle();
        if idle {
            drop(ManuallyDrop::into_inner(this));
        }
        result
    }
    fn turn_until_drained(&mut self) -> io::Result<()> {
        loop {
            let wait = self.wait();
            let mut events = std::mem::take(&mut self.events);
            self.ring.turn(wait, &mut events)?;
            let now = self.parts.clock.now();
            self.forgive_stop(now, wait);
            self.meter.begin(now);
            for event in events.drain(..) {
                self.on_event(now, event)?;
            }
            self.events = events;
            self.work_for(Payer::Nobody);
            self.feed(now);
            if self.handshakes.throttle.ends(now) {
                self.fair.unpark(Account::HANDSHAKE);
            }
            if self.handshakes.next().is_some_and(|due| now >= due) {
                self.wake_deferred();
            }
            self.periodic_check(now)?;
            self.work(now)?;
            if !self.pausing.is_empty() && !self.parts.port.is_busy() {
                for asked in self.pausing.drain(..) {
                    // The receiver may be gone.
                    let _ = asked.send(());
                }
            }
            self.end_ejection(now);
            let Some(until) = self.draining else { continue };
            let port = &self.parts.port;
            let drained = self.endpoints.is_empty() && !port.is_busy() && port.is_idle();
            if drained || now >= until {
                return Ok(());
            }
        }
    }
    /// How long to sleep. The clock is read once more here, because a wait is relative.
    fn wait(&self) -> Wait {
        if !self.fair.is_empty() || !self.to_reply.is_empty() || !self.checking.is_empty() {
            return Wait::Poll;
        }
        let (next, polls) = self.parts.port.next_wakeup();
        let others = self.draining.into_iter().chain(self.next_check).chain(self.feed);
        let others = others.chain(self.handshakes.next()).chain(self.handshakes.throttle.until());
        let first = next.into_iter().chain(others).min();
        let Some(first) = first else { return Wait::Forever };
        let now = self.parts.clock.now();
        let early = if polls && next == Some(first) { SPIN } else { Nanos::ZERO };
        let rest = first.since(now).saturating_sub(early);
        if rest == Nanos::ZERO { Wait::Poll } else { Wait::For(rest) }
    }

    fn on_event(&mut self, now: Instant, event: Event) -> io::Result<()> {
        match event.target {
            Target::Accept(index) => {
                self.work_for(Payer::Account(Account::HANDSHAKE));
                if event.result >= 0 {
                    // SAFETY: the kernel just created this descriptor, and nothing else owns it.
                    let socket = unsafe { OwnedFd::from_raw_fd(event.result) };
                    self.accepted(index as usize, socket);
                }
                self.on_accept(index as usize, event)?;
            }
            Target::Endpoint { key, slot, part } => {
                let key = key as usize;
                self.work_for(Payer::Account(self.account(key)));
                let (endpoint, mut cx) = self.look(now, key);
                let Event { result, more, .. } = event;
                cx.client.entries -= u32::from(!more);
                endpoint.on_ring(RingEvent { slot, part, result, more }, &mut cx)?;
                self.has_input(key);
            }
            Target::Back(data) => {
                self.work_for(Payer::Engine);
                self.parts.port.on_ring(data, event.result);
            }
            Target::Nobody => {}
            Target::Wake => {
                self.work_for(Payer::Nobody);
                wake::take(&self.parts.wake);
                if !event.more {
                    self.watch_wake()?;
                }
                while let Ok(message) = self.parts.messages.try_recv() {
                    self.on_message(now, message)?;
                }
                self.take_outcomes();
            }
        }
        Ok(())
    }
    /// Adds an endpoint and attaches its client to the volume, if there is one; it is settled before the turn ends.
    fn insert(&mut self, (endpoint, volume): Opened) -> usize {
        let entry = self.endpoints.vacant_entry();
        let key = entry.key();
        let mut client = Client::new(key);
        if let Some(volume) = volume {
            self.parts.port.attach(&mut client, volume as usize);
        }
        entry.insert(Slot::new(endpoint, client));
        self.touch(key);
        key
    }
    /// Feeds the watchdog when it is time.
    fn feed(&mut self, now: Instant) {
        if let (Some(watchdog), true) =
            (&self.parts.watchdog, self.feed.is_some_and(|due| now >= due))
        {
            watchdog.feed();
            self.feed = Some(now + watchdog.every);
        }
    }
    /// Checks endpoints that requested it, when it is time, some in each turn.
    fn periodic_check(&mut self, now: Instant) -> io::Result<()> {
        self.handshakes.refusals.tell(now, "clients");
        if self.checking.is_empty() {
            if self.next_check.is_none_or(|due| now < due) {
                return Ok(());
            }
            self.next_check = None;
            self.parts.port.budget.next_round();
            std::mem::swap(&mut self.checking, &mut self.to_check);
        }
        for _ in 0..CHECKS_PER_TURN {
            let Some(key) = self.checking.pop() else { break };
            // The endpoint may be gone.
            let Some(slot) = self.endpoints.get_mut(key) else { continue };
            slot.is_to_check = false;
            let ejected = slot.ejected.as_mut().map(|(_, checks)| {
                *checks += 1;
                *checks > EJECTED_CHECKS
            });
            let short = self.parts.port.is_memory_short(self.account(key));
            let (endpoint, mut cx) = self.look(now, key);
            let again = if ejected == Some(true) {
                endpoint.cut(&mut cx);
                false
            } else {
                endpoint.periodic_check(short, &mut cx)? || ejected.is_some()
            };
            let goes_on = cx.quantum.spend(0);
            if again {
                self.check_again(key);
            }
            self.settle_later(key);
            if !goes_on {
                break;
            }
        }
        if self.checking.is_empty() {
            self.end_checks(now);
            self.accept_again()?;
        }
        Ok(())
    }
    fn check_again(&mut self, key: usize) {
        if !std::mem::replace(&mut self.endpoints[key].is_to_check, true) {
            self.to_check.push(key);
        }
    }
    fn end_checks(&mut self, now: Instant) {
        // Endpoints that wait for memory try again, so that the next round knows that memory is short.
        self.fair.wake_all();
        let again = !self.to_check.is_empty();
        self.next_check = again.then_some(now + CHECK_INTERVAL);
        self.checks += 1;
        if (!again && self.checks > 2) || self.checks >= CHECKS_MAX {
            self.checks = 0;
            crate::request::buffer::give_back();
        }
    }
    /// An endpoint, and the context for a call of it.
    fn look(&mut self, now: Instant, key: usize) -> (&mut dyn Endpoint, ReactorContext<'_>) {
        let Self { endpoints, parts, ring, workers, bells, handshakes, .. } = self;
        let Slot { endpoint, client, .. } = &mut endpoints[key];
        let (port, quantum) = (&mut parts.port, Quantum::VISIT);
        let spent = Nanos::ZERO;
        let cx = ReactorContext {
            now,
            client,
            port,
            ring,
            quantum,
            workers,
            bells,
            refusals: &mut handshakes.refusals,
            spent,
        };
        (&mut **endpoint, cx)
    }
}
