//! A minimal host that puts the measured load on a hard disk: closed-loop clients, each with its own file; ext3's
//! cold indirect blocks; flushes that share commands; and exclusive time slices that model an idealised fair
//! scheduler.

use std::collections::{BTreeMap, VecDeque};

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use iofair_drive::random::Random;
use iofair_drive::{Command, Done, Drive};

/// The behaviour of a client.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Act {
    /// One block anywhere in the file.
    RandomRead,
    /// Block after block.
    SequentialRead,
    /// The same, writing.
    SequentialWrite,
    /// A 4 KiB write, then a flush.
    WriteAndFlush,
}

/// One closed-loop client on its own file.
pub(super) struct Client {
    act: Act,
    /// First sector and sectors of the file.
    base: u64,
    size: u64,
    pub(super) block: u64,
    pub(super) turnaround: Nanos,
    /// Commands in flight at once.
    pub(super) depth: u32,
    /// ext3: indirect blocks (one per 4 MiB) that must still be read first.
    pub(super) cold: Option<Vec<bool>>,
    /// The data block whose indirect block was just read.
    follow: Option<u64>,
    next: u64,
    bytes: u64,
    calls: u64,
    latency: u64,
    started: BTreeMap<u32, Instant>,
}

pub(super) fn client(act: Act, base_gib_hundredths: u64, size_mib: u64) -> Client {
    Client {
        act,
        base: base_gib_hundredths * (1 << 21) / 100 / 8 * 8,
        size: size_mib * 2048,
        block: 8,
        turnaround: Nanos::from_micros(33),
        depth: 1,
        cold: None,
        follow: None,
        next: 0,
        bytes: 0,
        calls: 0,
        latency: 0,
        started: BTreeMap::new(),
    }
}

pub(super) struct Host {
    disk: Box<dyn Drive + Send>,
    clients: Vec<Client>,
    /// The times at which clients send their next commands.
    sends: BTreeMap<(Instant, usize, u64), ()>,
    sequence: u64,
    owner: BTreeMap<u32, (usize, u64)>,
    waiting: VecDeque<Command>,
    inside: u32,
    random: Random,
    next_id: u32,
    flush: Vec<usize>,
    flush_next: Vec<usize>,
    /// Exclusive service (an idealised fair scheduler): the client in service, and until when.
    slice: Option<Nanos>,
    turn: usize,
    turn_ends: Instant,
}

impl Host {
    pub(super) fn new(
        disk: Box<dyn Drive + Send>,
        clients: Vec<Client>,
        slice: Option<Nanos>,
        seed: u64,
    ) -> Self {
        let mut sends = BTreeMap::new();
        for (index, client) in clients.iter().enumerate() {
            for copy in 0..client.depth {
                sends.insert((Instant(index as u64 * 1_000), index, u64::from(copy)), ());
            }
        }
        Self {
            disk,
            clients,
            sends,
            sequence: 1_000,
            owner: BTreeMap::new(),
            waiting: VecDeque::new(),
            inside: 0,
            random: Random::new(seed, 1),
            next_id: 0,
            flush: Vec::new(),
            flush_next: Vec::new(),
            slice,
            turn: 0,
            turn_ends: Instant::ZERO,
        }
    }
    fn command(&mut self, now: Instant, index: usize) {
        let random = &mut self.random;
        let client = &mut self.clients[index];
        let (operation, start, length, extra) = match client.act {
            Act::RandomRead => {
                let fresh = || random.below(client.size / client.block);
                let block = client.follow.take().unwrap_or_else(fresh);
                let piece = (block * client.block / 8192) as usize;
                let cold =
                    client.cold.as_mut().is_some_and(|cold| std::mem::take(&mut cold[piece]));
                (Operation::Read, client.base + block * client.block, client.block, cold)
            }
            Act::SequentialRead | Act::SequentialWrite | Act::WriteAndFlush => {
                let start = client.base + client.next;
                client.next = (client.next + client.block) % client.size;
                let read = client.act == Act::SequentialRead;
                let operation = if read { Operation::Read } else { Operation::Write };
                (operation, start, client.block, false)
            }
        };
        self.next_id += 1;
        let id = self.next_id;
        client.started.insert(id, now);
        // A cold indirect block is read first; it is located just before the data it describes.
        if extra {
            client.follow = Some((start - client.base) / client.block);
        }
        let (start, bytes) = if extra { (start / 8192 * 8192, 0) } else { (start, length * 512) };
        self.owner.insert(id, (index, bytes));
        let (start, length) = (Sectors(start), Sectors(if extra { 8 } else { length }));
        self.waiting.push_back(Command { id, operation, flags: Flags::NONE, start, length });
    }
    fn push(&mut self, now: Instant) {
        while self.inside < self.disk.facts().depth {
            let Some(command) = self.waiting.pop_front() else { return };
            self.inside += 1;
            self.disk.submit(now, command);
        }
    }
    fn completed(&mut self, done: Done, from: Instant) {
        self.inside -= 1;
        let (index, bytes) = self.owner.remove(&done.id).expect("asked once");
        if index == usize::MAX {
            let sharing = std::mem::take(&mut self.flush);
            for index in sharing {
                self.call_over(done.at, index, 4096, from);
            }
            self.flush = std::mem::take(&mut self.flush_next);
            if !self.flush.is_empty() {
                self.send_flush();
            }
            return;
        }
        let client = &mut self.clients[index];
        let began = client.started.remove(&done.id).expect("started once");
        if client.act == Act::WriteAndFlush {
            client.started.insert(0, began);
            if self.flush.is_empty() {
                self.flush.push(index);
                self.send_flush();
            } else {
                self.flush_next.push(index);
            }
            return;
        }
        client.started.insert(0, began);
        self.call_over(done.at, index, bytes, from);
    }
    fn send_flush(&mut self) {
        self.next_id += 1;
        self.owner.insert(self.next_id, (usize::MAX, 0));
        self.waiting.push_back(Command {
            id: self.next_id,
            operation: Operation::Flush,
            flags: Flags::NONE,
            start: Sectors(0),
            length: Sectors(0),
        });
    }
    fn call_over(&mut self, at: Instant, index: usize, bytes: u64, from: Instant) {
        let client = &mut self.clients[index];
        let began = client.started.remove(&0).expect("started once");
        if at >= from && bytes > 0 {
            client.bytes += bytes;
            client.calls += 1;
            client.latency += at.since(began).0;
        }
        self.sequence += 1;
        self.sends.insert((at + client.turnaround, index, self.sequence), ());
    }
    /// Runs until `until` and counts from `from`.
    pub(super) fn run(&mut self, from: Instant, until: Instant) {
        let mut done = Vec::new();
        let mut now = Instant::ZERO;
        loop {
            let send = self.sends.first_key_value().map(|((at, ..), ())| *at);
            let send = send.filter(|_| self.slice.is_none()).or_else(|| self.exclusive(now));
            let next = send.into_iter().chain(self.disk.next_event()).min();
            let Some(next) = next else { return };
            now = next.max(now);
            if now > until {
                return;
            }
            self.disk.advance(now, &mut done);
            for completion in std::mem::take(&mut done) {
                self.completed(completion, from);
            }
            while let Some(((at, index, copy), ())) = self.due(now) {
                self.sends.remove(&(at, index, copy));
                self.command(now, index);
            }
            self.push(now);
        }
    }
    /// With slices: when the client in service sends next. A turn ends when its time is used up and the disk is
    /// empty.
    fn exclusive(&self, now: Instant) -> Option<Instant> {
        self.slice?;
        if now >= self.turn_ends {
            return (self.inside == 0).then_some(now);
        }
        let mine = self.sends.keys().filter(|(_, index, _)| *index == self.turn);
        mine.map(|(at, ..)| *at).chain([self.turn_ends]).min().map(|at| at.max(now))
    }
    fn due(&mut self, now: Instant) -> Option<((Instant, usize, u64), ())> {
        let Some(slice) = self.slice else {
            let (key, ()) = self.sends.first_key_value()?;
            return (key.0 <= now).then_some((*key, ()));
        };
        if now >= self.turn_ends {
            if self.inside > 0 {
                return None;
            }
            self.turn = (self.turn + 1) % self.clients.len();
            self.turn_ends = now + slice;
        }
        let key = self.sends.keys().find(|(at, index, _)| *index == self.turn && *at <= now)?;
        Some((*key, ()))
    }
    pub(super) fn rate(&self, clients: std::ops::Range<usize>, seconds: u64) -> f64 {
        let bytes: u64 = self.clients[clients].iter().map(|client| client.bytes).sum();
        bytes as f64 / seconds as f64
    }
    pub(super) fn mean_ms(&self, index: usize) -> f64 {
        let client = &self.clients[index];
        client.latency as f64 / 1e6 / client.calls.max(1) as f64
    }
}
