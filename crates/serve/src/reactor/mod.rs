//! The reactor: one thread a drive that turns sockets, engine and back end on one ring.
//!
//! A turn: hand queued entries to the kernel and wait; read the clock; take what came in; let the
//! engine decide; answer what is finished; send; receive again. The only timer is the engine's next
//! wake-up, as the limit of the wait.

mod block;
mod budget;
mod busy_poll;
mod connection;
mod device;
mod endpoint;
mod file;
pub(crate) mod handle;
mod input;
mod outbox;
mod ring;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender};

use iofair_core::time::{Instant, Nanos};
use slab::Slab;

use crate::clock::{self, Clock};
use crate::engine::stats::Snapshot;
use crate::engine::{Engine, Plan};
use crate::error::ServeError;
use crate::front::fuse::Opening;
use crate::front::ublk::channel::Channel;
use crate::front::vhost::command::Envelope;
use crate::request::entry::Entry;
use crate::request::export::Export;
use crate::security::Security;
use crate::socket;
use crate::supervisor::Watchdog;
use crate::wake;
use block::Block;
use budget::Budget;
use connection::Connection;
use device::Device;
use endpoint::{Endpoint, Life, ReactorContext};
use file::File;
use ring::{Event, Ring, Target, Wait};

/// Endpoints at once, whatever the contracts allow: keys of endpoints are small numbers.
const ENDPOINTS_MAX: usize = 1 << 17;
/// Time between idle_checks at all endpoints, while one of them wants to be looked at.
const CHECK_INTERVAL: Nanos = Nanos::from_secs(1);
/// Looks after which freed memory goes back to the system though some connections are still busy.
const CHECKS_MAX: u32 = 60;
/// A wait for the back end's own next event ends so early and spins through the rest: a sleeping
/// thread comes back some 50 us late on a virtual machine, which is a whole read of an SSD.
const SPIN: Nanos = Nanos::from_micros(60);

/// What other threads ask of a reactor.
pub(crate) enum Message {
    /// Take over new contracts, or refuse them and change nothing.
    Apply(Box<Plan>, Security, Sender<Result<(), ServeError>>),
    /// What passed; and forget it, if so asked.
    Stats { reset: bool, answer: Sender<Snapshot> },
    /// Show what there is; it is over quickly, since everybody waits meanwhile.
    Look(Box<dyn FnOnce(&Seen<'_>) + Send>),
    /// Open a file of the mounted directory.
    File(Opening),
    /// Take no request in any more; answered once nothing is inside.
    Pause(Sender<()>),
    /// Go on.
    Resume,
    /// The volume of this name is a virtual machine's disk; commands for it come here, and the eventfd
    /// is written after each.
    Device { volume: String, commands: Receiver<Envelope>, wake: OwnedFd },
    /// The volume of this name is a block device; its requests come through the channel. Answered when the
    /// ring waits for them.
    Block { volume: String, channel: Channel, answer: Sender<Result<(), ServeError>> },
    /// Answer everything and end.
    Stop,
}

/// What a look at a reactor sees.
pub(crate) struct Seen<'a> {
    pub(crate) now: Instant,
    pub(crate) engine: &'a Engine,
    /// Endpoints that are open.
    pub(crate) connections: usize,
}

/// A listening socket.
pub(crate) struct Listener {
    pub(crate) file: OwnedFd,
    /// It was there before us and stays when we go.
    pub(crate) stays: bool,
}

/// What a reactor is made of.
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) messages: Receiver<Message>,
    /// An eventfd: written after every message.
    pub(crate) wake: OwnedFd,
    /// A drain that takes longer is cut: somebody does not read its answers.
    pub(crate) drain: Nanos,
    /// What NBD clients are offered.
    pub(crate) security: Security,
    /// Whom it shows that it turns.
    pub(crate) watchdog: Option<Watchdog>,
}

/// One reactor.
pub(crate) struct Reactor {
    parts: Parts,
    ring: Ring,
    exports: Vec<Export>,
    endpoints: Slab<Box<dyn Endpoint>>,
    events: Vec<Event>,
    /// Endpoints to look at before the turn ends; each at most once.
    touched: Vec<usize>,
    stalled: Vec<usize>,
    budget: Budget,
    /// When all endpoints are looked at next; `None`: when something happened.
    periodic_check: Option<Instant>,
    /// Looks in a row.
    idle_checks: u32,
    /// When the watchdog is fed next, if there is one.
    feed: Option<Instant>,
    /// Listeners that wait until a connection goes.
    paused_listeners: Vec<usize>,
    /// Something was sent or answered: who is stalled may try again.
    moved: bool,
    /// When the drain must end, once it has begun.
    draining: Option<Instant>,
    /// Connections that came while nobody is let in.
    deferred_accepts: Vec<OwnedFd>,
    /// Who waits until nothing is inside.
    pausing: Vec<Sender<()>>,
    stats_since: Instant,
    busy_before: Nanos,
}

impl Reactor {
    /// Sets the ring up; to be called on the thread that will run it.
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        clock::sharpen_timers();
        let exports = parts.engine.exports();
        let now = parts.clock.now();
        let memory = parts.security.limits.memory_bytes;
        let feed = parts.watchdog.is_some().then_some(now);
        let mut this = Self {
            parts,
            ring: Ring::new()?,
            exports,
            endpoints: Slab::new(),
            events: Vec::new(),
            touched: Vec::new(),
            stalled: Vec::new(),
            budget: Budget::new(memory),
            periodic_check: None,
            idle_checks: 0,
            feed,
            paused_listeners: Vec::new(),
            moved: false,
            draining: None,
            deferred_accepts: Vec::new(),
            pausing: Vec::new(),
            stats_since: now,
            busy_before: Nanos::ZERO,
        };
        for index in 0..this.parts.listeners.len() {
            this.accept_on(index)?;
        }
        this.watch_wake()?;
        Ok(this)
    }
    fn accept_on(&mut self, index: usize) -> io::Result<()> {
        let entry = Entry::accept(self.parts.listeners[index].file.as_raw_fd());
        self.ring.push(entry, Target::Accept(index as u32))
    }
    fn watch_wake(&mut self) -> io::Result<()> {
        self.ring.push(Entry::watch(self.parts.wake.as_raw_fd()), Target::Wake)
    }

    /// Turns until told to stop and drained; then makes everything durable.
    ///
    /// Entries on the ring name memory of endpoints, back end and engine, and the kernel goes on with them when a ring is
    /// closed. So all of it is only given back after a drain that left nothing there; after an error, or a panic, never.
    pub(crate) fn run(self) -> io::Result<()> {
        let mut this = ManuallyDrop::new(self);
        this.turn_until_drained()?;
        let result = this.end();
        let idle = this.endpoints.is_empty() && !this.parts.engine.is_stuck();
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
            for event in events.drain(..) {
                self.on_event(now, event)?;
            }
            self.events = events;
            self.feed(now);
            self.periodic_check(now)?;
            self.work(now)?;
            if !self.pausing.is_empty() && self.parts.engine.pending() == 0 {
                for asked in self.pausing.drain(..) {
                    // Whoever asked may have gone.
                    let _ = asked.send(());
                }
            }
            let Some(until) = self.draining else { continue };
            let engine = &self.parts.engine;
            let drained = self.endpoints.is_empty() && engine.pending() == 0 && !engine.is_stuck();
            if drained || now >= until {
                return Ok(());
            }
        }
    }
    /// Makes everything durable.
    fn end(&mut self) -> io::Result<()> {
        let engine = &mut self.parts.engine;
        if engine.is_stuck() {
            // To ask such a drive for more could take for ever.
            let message =
                "the drive never answered some commands; what was not flushed may be lost";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        engine.back().close()
    }
    /// How long to sleep. The clock is read once more here, because a wait is relative.
    fn wait(&self) -> Wait {
        let event = self.parts.engine.next_event();
        let others = self.draining.into_iter().chain(self.periodic_check).chain(self.feed);
        let next = self.parts.engine.next_wakeup().into_iter().chain(others).min();
        let Some(next) = next else { return Wait::Forever };
        let now = self.parts.clock.now();
        let early = if event == Some(next) { SPIN } else { Nanos::ZERO };
        let rest = next.since(now).saturating_sub(early);
        if rest == Nanos::ZERO { Wait::Poll } else { Wait::For(rest) }
    }

    fn on_event(&mut self, now: Instant, event: Event) -> io::Result<()> {
        match event.target {
            Target::Accept(index) => {
                if event.result >= 0 {
                    // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
                    self.open(now, unsafe { OwnedFd::from_raw_fd(event.result) });
                }
                if event.result < 0 && !self.endpoints.is_empty() {
                    // Out of descriptors: a connection that goes makes room.
                    self.paused_listeners.push(index as usize);
                } else if !event.more && self.draining.is_none() {
                    self.accept_on(index as usize)?;
                }
            }
            Target::Endpoint { key, slot, .. } => {
                let key = key as usize;
                let (endpoint, mut cx) = self.look(now, key);
                endpoint.on_ring(slot, event, &mut cx)?;
                self.moved = true;
                self.take_in(now, key);
            }
            Target::Back(data) => self.parts.engine.on_ring(data, event.result),
            Target::Nobody => {}
            Target::Wake => {
                wake::take(&self.parts.wake);
                if !event.more {
                    self.watch_wake()?;
                }
                while let Ok(message) = self.parts.messages.try_recv() {
                    self.on_message(now, message)?;
                }
            }
        }
        Ok(())
    }
    fn open(&mut self, now: Instant, socket: OwnedFd) {
        let most = (self.parts.security.limits.connections as usize).min(ENDPOINTS_MAX);
        if self.draining.is_some() || self.endpoints.len() + self.deferred_accepts.len() >= most {
            return;
        }
        if self.parts.engine.is_paused() {
            self.deferred_accepts.push(socket);
            return;
        }
        socket::prepare(socket.as_raw_fd());
        let entry = self.endpoints.vacant_entry();
        let key = entry.key();
        entry.insert(Box::new(Connection::new(now, socket, key, &self.parts.security)));
        self.touched.push(key);
    }
    /// Shows the watchdog that the reactor turns, when it is time.
    fn feed(&mut self, now: Instant) {
        if let (Some(watchdog), true) =
            (&self.parts.watchdog, self.feed.is_some_and(|due| now >= due))
        {
            watchdog.feed();
            self.feed = Some(now + watchdog.every);
        }
    }
    /// Looks at all endpoints, when it is time.
    fn periodic_check(&mut self, now: Instant) -> io::Result<()> {
        if self.periodic_check.is_none() && !self.touched.is_empty() {
            self.periodic_check = Some(now + CHECK_INTERVAL);
        }
        if self.periodic_check.is_none_or(|periodic_check| now < periodic_check) {
            return Ok(());
        }
        let short = self.budget.take_short();
        let keys: Vec<usize> = self.endpoints.iter().map(|(key, _)| key).collect();
        let mut again = false;
        for key in keys {
            let (endpoint, mut cx) = self.look(now, key);
            again |= endpoint.periodic_check(short, &mut cx)?;
            self.touched.push(key);
        }
        // Who waits for memory asks again, so that the next look knows that it is short.
        self.moved = true;
        self.periodic_check = again.then_some(now + CHECK_INTERVAL);
        self.idle_checks += 1;
        if (!again && self.idle_checks > 2) || self.idle_checks >= CHECKS_MAX {
            self.idle_checks = 0;
            crate::request::buffer::give_back();
        }
        Ok(())
    }
    /// An endpoint, and what it needs of the rest.
    fn look(&mut self, now: Instant, key: usize) -> (&mut dyn Endpoint, ReactorContext<'_>) {
        let Self { endpoints, parts, exports, ring, budget, .. } = self;
        let cx = ReactorContext { now, key, engine: &mut parts.engine, exports, ring, budget };
        (&mut *endpoints[key], cx)
    }
    fn take_in(&mut self, now: Instant, key: usize) {
        let (endpoint, mut cx) = self.look(now, key);
        if !endpoint.take_in(&mut cx) {
            self.stalled.push(key);
        }
        self.touched.push(key);
    }
    fn on_message(&mut self, now: Instant, message: Message) -> io::Result<()> {
        // Whoever asked may have gone; then nobody needs the answer.
        match message {
            Message::Apply(plan, security, answer) => {
                let _ = answer.send(self.apply(now, &plan, security));
            }
            Message::Stats { reset, answer } => {
                let engine = &mut self.parts.engine;
                let mut snapshot = engine.snapshot(now, self.stats_since, self.busy_before);
                snapshot.connections = self.endpoints.len();
                let _ = answer.send(snapshot);
                if reset {
                    engine.reset_stats();
                    self.stats_since = now;
                    self.busy_before = engine.busy_time(now);
                }
            }
            Message::Look(look) => {
                let connections = self.endpoints.len();
                let engine = &mut self.parts.engine;
                engine.turn_second(now);
                look(&Seen { now, engine, connections });
            }
            Message::File(opening) => self.open_file(now, opening),
            Message::Pause(answer) => {
                self.parts.engine.pause(true);
                self.pausing.push(answer);
            }
            Message::Resume => self.resume(now),
            Message::Device { volume, commands, wake } if self.draining.is_none() => {
                let key = self.endpoints.insert(Box::new(Device::new(volume, commands, wake)));
                self.touched.push(key);
            }
            Message::Device { .. } => {}
            Message::Block { volume, channel, answer } => {
                let _ = answer.send(self.open_block(now, &volume, channel));
            }
            Message::Stop => {
                self.resume(now);
                self.drain(now)?;
            }
        }
        Ok(())
    }
    fn open_file(&mut self, now: Instant, opening: Opening) {
        let export = self.exports.iter().find(|export| export.name == opening.volume);
        let full = self.draining.is_some() || self.endpoints.len() >= ENDPOINTS_MAX;
        let Some(export) = export.filter(|_| !full) else {
            opening.answer(Err(libc::ESTALE));
            return;
        };
        let (calls, wake) = opening.answer(Ok(()));
        let id = export.id;
        let entry = self.endpoints.vacant_entry();
        let key = entry.key();
        entry.insert(Box::new(File::new(key, export, calls, wake)));
        self.look(now, key).1.attach(id);
        self.touched.push(key);
    }
    fn open_block(
        &mut self,
        now: Instant,
        volume: &str,
        channel: Channel,
    ) -> Result<(), ServeError> {
        let export = self.exports.iter().find(|export| export.name == volume);
        let full = self.draining.is_some() || self.endpoints.len() >= ENDPOINTS_MAX;
        let Some(export) = export.filter(|_| !full) else { return Err(ServeError::Gone) };
        let block = Block::new(export, channel);
        let id = export.id;
        let key = self.endpoints.insert(Box::new(block));
        self.look(now, key).1.attach(id);
        self.touched.push(key);
        Ok(())
    }
    /// Who came meanwhile is let in, and who stalled may try again.
    fn resume(&mut self, now: Instant) {
        self.parts.engine.pause(false);
        self.pausing.clear();
        self.moved = true;
        for socket in std::mem::take(&mut self.deferred_accepts) {
            self.open(now, socket);
        }
    }
    /// Takes over new contracts. Endpoints of volumes with a new size are told; those of volumes that are closed, and
    /// those whose clients may not use their volume any more, take nothing in from now on.
    fn apply(&mut self, now: Instant, plan: &Plan, security: Security) -> Result<(), ServeError> {
        let engine = &mut self.parts.engine;
        if let Some(name) = engine.cuts(plan) {
            let message = "clients have it open, and only a volume that nobody has open can shrink";
            return Err(ServeError::volume(name, message));
        }
        let resized = engine.apply(now, plan);
        self.parts.drain = plan.patience.drain;
        self.exports = engine.exports();
        self.budget.resize(security.limits.memory_bytes);
        self.parts.security = security;
        for (key, endpoint) in &mut self.endpoints {
            let volume = endpoint.volume();
            // A volume that is no export any more keeps the clients that it has.
            let export = volume.and_then(|volume| {
                let found = self.exports.binary_search_by_key(&(volume as u32), |export| export.id);
                found.ok().map(|index| &self.exports[index])
            });
            if !endpoint.is_allowed(export, &self.parts.security) {
                endpoint.close();
                self.touched.push(key);
            }
            let Some(volume) = volume else { continue };
            if resized.contains(&volume) {
                endpoint.resized(engine.size(volume));
            }
            if engine.is_closed(volume) {
                endpoint.close();
            }
            self.touched.push(key);
        }
        Ok(())
    }
    /// From now on nothing is received; what is inside is answered.
    fn drain(&mut self, now: Instant) -> io::Result<()> {
        self.draining.get_or_insert(now + self.parts.drain);
        for (index, listener) in self.parts.listeners.iter().enumerate() {
            if listener.stays {
                // Who connects from now on is the next server's.
                self.ring.cancel(Target::Accept(index as u32), Target::Nobody)?;
                continue;
            }
            // The entry on the ring would keep the socket listening for a while after we are gone.
            // SAFETY: a plain system call on a descriptor of ours.
            unsafe { libc::shutdown(listener.file.as_raw_fd(), libc::SHUT_RDWR) };
        }
        for (key, endpoint) in &mut self.endpoints {
            endpoint.close();
            self.touched.push(key);
        }
        Ok(())
    }

    /// Lets the engine decide and answers what is finished, until nothing moves any more.
    fn work(&mut self, now: Instant) -> io::Result<()> {
        loop {
            self.parts.engine.turn(now);
            self.parts.engine.keep_lent();
            while let Some(op) = self.parts.engine.next_finished() {
                self.moved = true;
                let key = op.owner as usize;
                self.endpoints[key].deliver(op, self.parts.engine.ops());
                self.touched.push(key);
            }
            self.answer_all(now)?;
            if !std::mem::take(&mut self.moved) || self.stalled.is_empty() {
                break;
            }
            let mut stalled = std::mem::take(&mut self.stalled);
            stalled.sort_unstable();
            stalled.dedup();
            stalled.drain(..).for_each(|key| self.take_in(now, key));
        }
        self.finish_turn(now)
    }
    fn answer_all(&mut self, now: Instant) -> io::Result<()> {
        self.touched.sort_unstable();
        self.touched.dedup();
        for index in 0..self.touched.len() {
            let (endpoint, mut cx) = self.look(now, self.touched[index]);
            endpoint.answer(&mut cx)?;
        }
        Ok(())
    }
    /// Forgets endpoints that are over, lets the others ask for more, and queues the back end's entries.
    fn finish_turn(&mut self, now: Instant) -> io::Result<()> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for key in touched.drain(..) {
            let (endpoint, mut cx) = self.look(now, key);
            if endpoint.settle(&mut cx)? == Life::On {
                continue;
            }
            if let Some(volume) = endpoint.volume() {
                cx.detach(volume as u32);
            }
            self.endpoints.remove(key);
            self.stalled.retain(|stalled| *stalled != key);
            while let Some(listener) =
                self.paused_listeners.pop().filter(|_| self.draining.is_none())
            {
                self.accept_on(listener)?;
            }
        }
        self.touched = touched;
        if let Some(entries) = self.parts.engine.take_entries() {
            for entry in entries.drain(..) {
                let data = entry.get_user_data() as u32;
                self.ring.push(entry, Target::Back(data))?;
            }
        }
        Ok(())
    }
}
