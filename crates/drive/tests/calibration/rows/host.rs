//! Minimal hosts that put the measured load on a drive: almost no page cache, no engine, and one process per client.
//!
//! - *direct*: a thread (or `depth` requests) with the pause `think` before each request. The latency includes the
//!   pause.
//! - *buffered*: a sequential reader with read-ahead in windows of 256 KiB. Touching the first page of a window
//!   requests the next window; the reader then waits for the current window and spends `consume` on it. So two
//!   windows are in flight while it waits, and one while it consumes.
//! - *fsync*: think, write 4 KiB, flush. Only one flush runs at a time; clients that call fsync meanwhile share the
//!   next one.
//!
//! A *gate* models an idealised BFQ: it serves one client at a time, exclusively, and idles when that client has no
//! request. A *limit* splits windows into pieces and bounds the bytes of them in the drive; pieces of the readers
//! alternate.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use iofair_drive::profile::Profile;
use iofair_drive::random::Random;
use iofair_drive::{Command, Done, Drive};

/// Bytes of a read-ahead window.
pub(crate) const WINDOW: u64 = 256 << 10;
/// Bytes of every client's file.
const FILE: u64 = 500 << 20;
/// Distance between files, so that they do not all start on the same flash unit.
const STAGGER: u64 = 7 * (16 << 10);
/// Spread of think times and consume times, in percent.
const THINK_SPREAD: u32 = 30;
const CONSUME_SPREAD: u32 = 10;

/// The behaviour of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    /// Requests of `block` bytes, `depth` at once, at random places or sequential.
    Direct {
        /// Read or write.
        operation: Operation,
        /// Bytes of a request.
        block: u64,
        /// Requests at once.
        depth: u32,
        /// Whether places are random.
        random: bool,
        /// Pause before each request.
        think: Nanos,
    },
    /// A buffered sequential reader.
    Buffered {
        /// Time spent on a window.
        consume: Nanos,
    },
    /// A writer of 4 KiB that makes each durable.
    Fsync {
        /// Pause before each write.
        think: Nanos,
    },
    /// A 4 KiB random writer without pauses. When all such clients together have used the bytes of a slice, they wait
    /// for the next slice, as under blk-throttle.
    Sliced {
        /// Pause before each write.
        think: Nanos,
    },
}

impl Job {
    /// One thread of 4 KiB random reads.
    pub(crate) const fn random_reader(think: Nanos) -> Self {
        Self::Direct { operation: Operation::Read, block: 4096, depth: 1, random: true, think }
    }
}

/// A run: everything except the clients.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Warm-up.
    pub(crate) ramp: Nanos,
    /// Measured time.
    pub(crate) time: Nanos,
    /// The gate: length of a slice, and a weight for each client.
    pub(crate) gate: Option<(Nanos, Vec<u64>)>,
    /// Bytes of a piece of a window, and the limit on bytes of pieces in the drive (one piece is always allowed).
    pub(crate) limit: Option<(u64, u64)>,
    /// For [`Job::Sliced`]: length of a slice and bytes in each.
    pub(crate) slice: (Nanos, u64),
    /// Seed of all random numbers.
    pub(crate) seed: u64,
}

/// A client's counters over the measured time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counted {
    /// Completed requests.
    pub(crate) requests: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The sum of their latencies.
    pub(crate) latency: u64,
}

impl Counted {
    /// Mean latency in microseconds.
    pub(crate) fn latency_micros(&self) -> f64 {
        self.latency as f64 / self.requests.max(1) as f64 / 1e3
    }
}

#[derive(Debug)]
struct Client {
    job: Job,
    random: Random,
    counted: Counted,
    /// First byte of its file, and the position of the next sequential request.
    base: u64,
    next: u64,
    /// Buffered: the current window, whether it and the next one are in memory, and whether the client waits.
    window: u64,
    there: [bool; 2],
    waits: bool,
    /// Limit: bytes of the two windows that are still missing.
    missing: [u64; 2],
    /// Gate and limit: requests held back. Gate: service received, divided by the weight.
    held: VecDeque<Sent>,
    vtime: u128,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    client: usize,
    operation: Operation,
    start: u64,
    bytes: u64,
    /// Buffered: the index of its window.
    window: u64,
    /// The instant from which its latency is counted.
    since: u64,
}

#[derive(Debug)]
struct Gate {
    slice: u64,
    weights: Vec<u64>,
    serving: Option<usize>,
    since: u64,
    in_flight: u32,
}

#[derive(Debug)]
struct Limit {
    piece: u64,
    bytes_max: u64,
    bytes: u64,
    /// The client whose turn is next.
    next: usize,
}

/// Flushes that share commands.
#[derive(Debug, Default)]
struct Flushes {
    running: Vec<usize>,
    waiting: Vec<usize>,
}

struct Host {
    drive: Box<dyn Drive + Send>,
    now: u64,
    from: u64,
    clients: Vec<Client>,
    wakes: BinaryHeap<Reverse<(u64, u64, usize)>>,
    sequence: u64,
    /// Requests in the drive by id, free ids, and requests for which the drive has no slot.
    sent: Vec<Sent>,
    free: Vec<u32>,
    queued: VecDeque<Sent>,
    gate: Option<Gate>,
    limit: Option<Limit>,
    flushes: Flushes,
    slice: (u64, u64),
    slice_used: (u64, u64),
}

/// The pseudo-client whose wake-up ends a slice of the gate.
const GATE: usize = usize::MAX;

/// Runs `jobs` on a drive and returns the counters.
pub(crate) fn run(profile: &Profile, jobs: &[Job], run: &Run) -> Vec<Counted> {
    let drive = profile.build(run.seed);
    let depth = drive.facts().depth;
    let client = |(index, job): (usize, &Job)| Client {
        job: *job,
        random: Random::new(run.seed, index as u64 + 1),
        counted: Counted::default(),
        base: index as u64 * (FILE + STAGGER),
        next: 0,
        window: 0,
        there: [false; 2],
        waits: true,
        missing: [0; 2],
        held: VecDeque::new(),
        vtime: 0,
    };
    let gate = run.gate.clone().map(|(slice, weights)| Gate {
        slice: slice.0,
        weights,
        serving: None,
        since: 0,
        in_flight: 0,
    });
    let nothing =
        Sent { client: 0, operation: Operation::Read, start: 0, bytes: 0, window: 0, since: 0 };
    let mut host = Host {
        drive,
        now: 0,
        from: run.ramp.0,
        clients: jobs.iter().enumerate().map(client).collect(),
        wakes: BinaryHeap::new(),
        sequence: 0,
        sent: vec![nothing; depth as usize],
        free: (0..depth).rev().collect(),
        queued: VecDeque::new(),
        gate,
        limit: run.limit.map(|(piece, bytes_max)| Limit { piece, bytes_max, bytes: 0, next: 0 }),
        flushes: Flushes::default(),
        slice: (run.slice.0.0, run.slice.1),
        slice_used: (0, 0),
    };
    host.start();
    host.turn(run.ramp.0 + run.time.0);
    host.clients.iter().map(|client| client.counted).collect()
}

impl Host {
    fn start(&mut self) {
        for index in 0..self.clients.len() {
            match self.clients[index].job {
                Job::Direct { depth, .. } => (0..depth).for_each(|_| self.think(index)),
                Job::Buffered { .. } => {
                    self.send_window(index, 0);
                    self.send_window(index, 1);
                }
                Job::Fsync { .. } | Job::Sliced { .. } => self.think(index),
            }
        }
    }

    fn turn(&mut self, end: u64) {
        let mut done: Vec<Done> = Vec::new();
        loop {
            let wake = self.wakes.peek().map_or(u64::MAX, |Reverse(wake)| wake.0);
            let event = self.drive.next_event().map_or(u64::MAX, |at| at.0);
            let next = wake.min(event);
            if next > end {
                return;
            }
            self.now = next;
            if event == next {
                self.drive.advance(Instant(next), &mut done);
                for completion in done.drain(..) {
                    self.completed(completion);
                }
            } else if let Some(Reverse((_, _, index))) = self.wakes.pop() {
                self.woken(index);
            }
        }
    }

    fn wake_at(&mut self, at: u64, index: usize) {
        self.sequence += 1;
        self.wakes.push(Reverse((at, self.sequence, index)));
    }
    /// Schedules a client's next request after its pause.
    fn think(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let (Job::Direct { think, .. } | Job::Fsync { think } | Job::Sliced { think }) = client.job
        else {
            return;
        };
        let time = client.random.around(think.0, THINK_SPREAD);
        // A direct request's latency counts from here; with one at a time one number is enough.
        self.wake_at(self.now + time, index);
    }

    fn woken(&mut self, index: usize) {
        if index == GATE {
            return self.gate_turn();
        }
        match self.clients[index].job {
            Job::Direct { operation, block, random, think, .. } => {
                let client = &mut self.clients[index];
                let start = if random {
                    client.random.below(FILE / block) * block
                } else {
                    client.next = (client.next + block) % FILE;
                    client.next
                };
                // The mean: the think time itself was drawn with a symmetric spread.
                let since = self.now.saturating_sub(think.0);
                let start = client.base + start;
                self.send(Sent { client: index, operation, start, bytes: block, window: 0, since });
            }
            Job::Buffered { .. } => {
                let client = &mut self.clients[index];
                client.there[(client.window % 2) as usize] = false;
                client.window += 1;
                let (window, ready) = (client.window, client.there[(client.window % 2) as usize]);
                client.waits = !ready;
                self.send_window(index, window + 1);
                if ready {
                    self.consume(index);
                }
            }
            Job::Fsync { .. } => self.send_write(index),
            Job::Sliced { .. } => {
                let slice = self.now / self.slice.0;
                if self.slice_used.0 != slice {
                    self.slice_used = (slice, 0);
                }
                if self.slice_used.1 + 4096 > self.slice.1 {
                    return self.wake_at((slice + 1) * self.slice.0, index);
                }
                self.slice_used.1 += 4096;
                self.send_write(index);
            }
        }
    }

    fn send_write(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let start = client.base + client.random.below(FILE / 4096) * 4096;
        let (operation, since) = (Operation::Write, self.now);
        self.send(Sent { client: index, operation, start, bytes: 4096, window: 0, since });
    }
    fn send_window(&mut self, index: usize, window: u64) {
        let start = self.clients[index].base + window * WINDOW % FILE;
        let piece = self.limit.as_ref().map_or(WINDOW, |limit| limit.piece);
        self.clients[index].missing[(window % 2) as usize] = WINDOW;
        for start in (start..start + WINDOW).step_by(piece as usize) {
            let (operation, since) = (Operation::Read, self.now);
            self.send(Sent { client: index, operation, start, bytes: piece, window, since });
        }
    }
    fn consume(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Job::Buffered { consume } = client.job {
            let time = client.random.around(consume.0, CONSUME_SPREAD);
            self.wake_at(self.now + time, index);
        }
    }

    fn completed(&mut self, completion: Done) {
        assert_eq!(completion.status, 0, "the drive refused a command of the calibration");
        let sent = self.sent[completion.id as usize];
        self.free.push(completion.id);
        if let Some(next) = self.queued.pop_front() {
            self.submit(next);
        }
        if sent.operation == Operation::Flush {
            return self.flushed();
        }
        let client = &mut self.clients[sent.client];
        if self.now >= self.from {
            client.counted.requests += 1;
            client.counted.bytes += sent.bytes;
            client.counted.latency += self.now - sent.since;
        }
        match client.job {
            Job::Direct { .. } | Job::Sliced { .. } => self.think(sent.client),
            Job::Fsync { .. } => self.ask_flush(sent.client),
            Job::Buffered { .. } => self.arrived(sent),
        }
        if let Some(gate) = &mut self.gate {
            gate.in_flight -= 1;
            self.gate_turn();
        }
    }

    /// Handles a window, or a piece of one, that is in memory now.
    fn arrived(&mut self, sent: Sent) {
        let (client, half) = (&mut self.clients[sent.client], (sent.window % 2) as usize);
        client.missing[half] -= sent.bytes;
        client.there[half] = client.missing[half] == 0;
        if client.there[half] && client.waits && sent.window == client.window {
            client.waits = false;
            self.consume(sent.client);
        }
        if let Some(limit) = &mut self.limit {
            limit.bytes -= sent.bytes;
            self.limit_turn();
        }
    }

    fn ask_flush(&mut self, index: usize) {
        self.flushes.waiting.push(index);
        if self.flushes.running.is_empty() {
            self.start_flush();
        }
    }
    fn start_flush(&mut self) {
        std::mem::swap(&mut self.flushes.running, &mut self.flushes.waiting);
        let (operation, since) = (Operation::Flush, self.now);
        self.pass_on(Sent { client: 0, operation, start: 0, bytes: 0, window: 0, since });
    }
    fn flushed(&mut self) {
        for index in std::mem::take(&mut self.flushes.running) {
            self.think(index);
        }
        if !self.flushes.waiting.is_empty() {
            self.start_flush();
        }
    }

    /// Sends a request, through the gate or the limit if there is one.
    fn send(&mut self, sent: Sent) {
        let is_window = matches!(self.clients[sent.client].job, Job::Buffered { .. });
        if self.gate.is_some() {
            self.clients[sent.client].held.push_back(sent);
            self.gate_turn();
        } else if self.limit.is_some() && is_window {
            self.clients[sent.client].held.push_back(sent);
            self.limit_turn();
        } else {
            self.pass_on(sent);
        }
    }
    /// Sends pieces to the drive, one of each reader in turn.
    fn limit_turn(&mut self) {
        let Some(mut limit) = self.limit.take() else { return };
        let count = self.clients.len();
        while limit.bytes == 0 || limit.bytes + limit.piece <= limit.bytes_max {
            let mut turn = (0..count).map(|step| (limit.next + step) % count);
            let Some(index) = turn.find(|&index| !self.clients[index].held.is_empty()) else {
                break;
            };
            limit.next = index + 1;
            let sent = self.clients[index].held.pop_front().expect("it is not empty");
            limit.bytes += sent.bytes;
            self.pass_on(sent);
        }
        self.limit = Some(limit);
    }
    /// Lets the client in service send, ends its slice, and selects the next client.
    fn gate_turn(&mut self) {
        let Some(mut gate) = self.gate.take() else { return };
        if let Some(index) = gate.serving
            && self.now >= gate.since + gate.slice
            && gate.in_flight == 0
        {
            let elapsed = u128::from(self.now - gate.since) << 32;
            self.clients[index].vtime += elapsed / u128::from(gate.weights[index]);
            gate.serving = None;
        }
        if gate.serving.is_none() {
            let backlogged = self.clients.iter().enumerate().filter(|(_, c)| !c.held.is_empty());
            gate.serving = backlogged.min_by_key(|(_, c)| c.vtime).map(|(index, _)| index);
            gate.since = self.now;
            self.wake_at(self.now + gate.slice, GATE);
        }
        if let Some(index) = gate.serving
            && self.now < gate.since + gate.slice
        {
            while let Some(sent) = self.clients[index].held.pop_front() {
                gate.in_flight += 1;
                self.pass_on(sent);
            }
        }
        self.gate = Some(gate);
    }

    fn pass_on(&mut self, sent: Sent) {
        if self.free.is_empty() {
            self.queued.push_back(sent);
        } else {
            self.submit(sent);
        }
    }
    fn submit(&mut self, sent: Sent) {
        let id = self.free.pop().expect("the caller saw a free one");
        self.sent[id as usize] = sent;
        let command = Command {
            id,
            operation: sent.operation,
            flags: Flags::NONE,
            start: Sectors(sent.start / 512),
            length: Sectors(sent.bytes / 512),
        };
        self.drive.submit(Instant(self.now), command);
    }
}
