//! Session, engine and memory without a kernel between them, under a scheduler that delays, splits and
//! interleaves whatever sockets may: every byte of both ways takes its own time, the engine turns when it
//! likes, and every answer is compared with what must be stored.
// Answers of the memory back end are read where they lie.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use iofair_baselines::TABLE;
use iofair_config::contracts::faults::Faults;
use iofair_core::contract::{Contract, Limits};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_serve::back::memory::Memory;
use iofair_serve::back::volume::{Map, PlannedVolume, VolumeId};
use iofair_serve::engine::{Engine, Plan, Timeouts};
use iofair_serve::front::nbd::session::{Action, Command, CommandType, Session, Tls};
use iofair_serve::front::nbd::wire;
use iofair_serve::request::data::Data;
use iofair_serve::request::export::{Exports, Offer, Peer};
use iofair_serve::request::op::{Hints, NewOp};

const SEEDS: u64 = 150;
const CLIENTS: usize = 3;
/// Requests of each client.
const REQUESTS: u32 = 120;
/// Blocks that each client has to itself.
const BLOCKS: u64 = 16;
const BLOCK: u64 = 1024;
const HEAD: usize = 16;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// What a client waits for.
#[derive(Debug)]
enum Expected {
    /// These bytes.
    Read(Vec<u8>),
    /// That it went well.
    Done,
}

/// One connection: the client's side, both directions' bytes in flight, and the server's side.
struct Line {
    number: usize,
    /// What the client's blocks hold once everything sent is done.
    model: Vec<u8>,
    /// Blocks with a request in flight: one at a time each, so that it is known what a read finds.
    busy: BTreeMap<u64, (u64, u64)>,
    expected: BTreeMap<u64, Expected>,
    sent: u32,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    heard: Vec<u8>,
    session: Session,
    unread: Vec<u8>,
    /// A write whose payload is not complete, or which met a full engine.
    waiting: Option<Command>,
}

impl Line {
    fn new(number: usize) -> Self {
        let mut greeting = Vec::new();
        let session = Session::new(Peer::Tcp, Tls::Absent, &mut greeting);
        assert_eq!(greeting.len(), 18);
        let mut to_server = 3u32.to_be_bytes().to_vec();
        to_server.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\x01v");
        Self {
            number,
            model: vec![0; (BLOCKS * BLOCK) as usize],
            busy: BTreeMap::new(),
            expected: BTreeMap::new(),
            sent: 0,
            to_server,
            to_client: greeting,
            heard: Vec::new(),
            session,
            unread: Vec::new(),
            waiting: None,
        }
    }
    fn base(&self) -> u64 {
        self.number as u64 * BLOCKS * BLOCK
    }
    fn is_done(&self) -> bool {
        self.sent == REQUESTS && self.expected.is_empty()
    }

    /// The client sends one more request.
    fn command_type(&mut self, random: &mut Random) {
        if self.sent == REQUESTS || self.expected.len() >= 12 {
            return;
        }
        let first = random.below((BLOCKS * BLOCK) as usize) as u64;
        let length = 1 + random.below((3 * BLOCK) as usize) as u64;
        let end = (first + length).min(BLOCKS * BLOCK);
        let blocks = (first / BLOCK, (end - 1) / BLOCK);
        if self.busy.values().any(|(from, to)| *from <= blocks.1 && blocks.0 <= *to) {
            return;
        }
        let cookie = u64::from(self.sent);
        self.sent += 1;
        let range = first as usize..end as usize;
        let (kind, flags, payload) = match random.below(8) {
            0..=2 => (0, 0, Vec::new()),
            3..=5 => {
                let seed = random.below(251);
                let data: Vec<u8> = range.clone().map(|at| (at * 7 + seed) as u8).collect();
                self.model[range.clone()].copy_from_slice(&data);
                (1, random.below(2) as u16, data)
            }
            6 => {
                self.model[range.clone()].fill(0);
                (6, 0, Vec::new())
            }
            _ => (3, 0, Vec::new()),
        };
        let expected = match kind {
            0 => Expected::Read(self.model[range].to_vec()),
            _ => Expected::Done,
        };
        let (offset, length) = if kind == 3 { (0, 0) } else { (self.base() + first, end - first) };
        if kind != 3 {
            self.busy.insert(cookie, blocks);
        }
        self.expected.insert(cookie, expected);
        self.to_server.extend(0x2560_9513u32.to_be_bytes());
        self.to_server.extend(flags.to_be_bytes());
        self.to_server.extend((kind as u16).to_be_bytes());
        self.to_server.extend(cookie.to_be_bytes());
        self.to_server.extend(offset.to_be_bytes());
        self.to_server.extend((length as u32).to_be_bytes());
        self.to_server.extend(payload);
    }
    /// The client takes the answers that are complete.
    fn hear(&mut self) {
        if self.sent == 0 || self.heard.len() < 28 && self.heard.starts_with(b"NBDMAGIC") {
            return;
        }
        if self.heard.starts_with(b"NBDMAGIC") {
            // The greeting, then the answer to EXPORT_NAME.
            self.heard.drain(..28);
        }
        while self.heard.len() >= HEAD {
            let cookie = wire::u64_at(&self.heard, 8);
            let head = (wire::u32_at(&self.heard, 0), wire::u32_at(&self.heard, 4));
            assert_eq!(head, (wire::SIMPLE_REPLY_MAGIC, 0), "line {}", self.number);
            let length = match &self.expected[&cookie] {
                Expected::Read(data) => data.len(),
                Expected::Done => 0,
            };
            if self.heard.len() < HEAD + length {
                return;
            }
            if let Some(Expected::Read(data)) = self.expected.remove(&cookie) {
                assert!(self.heard[HEAD..HEAD + length] == data, "line {}", self.number);
            }
            self.busy.remove(&cookie);
            self.heard.drain(..HEAD + length);
        }
    }
}

struct World {
    now: Instant,
    engine: Engine,
    lines: Vec<Line>,
}

fn world(stack: &str, max: Option<u64>) -> World {
    let bytes = CLIENTS as u64 * BLOCKS * BLOCK;
    let stack = TABLE.stack(stack).unwrap();
    let mut engine = Engine::new(Box::new(Memory::new(bytes).unwrap()), stack.clone());
    let contract =
        Contract { max: max.map(Limits::both).unwrap_or_default(), ..Contract::default() };
    let volume = PlannedVolume {
        id: VolumeId(0),
        name: "v".into(),
        group: "g".into(),
        map: Map::linear(0, bytes).into(),
        size: bytes,
        read_only: false,
        storage: None,
        entry: Default::default(),
        stamp: Default::default(),
    };
    let (groups, volumes) = (vec![("g".to_string(), contract)], vec![volume]);
    let (closed, timeouts, faults) = (Vec::new(), Timeouts::default(), Faults::default());
    let plan = Plan { stack, groups, volumes, closed, timeouts, faults };
    engine.apply(Instant::ZERO, &plan);
    World { now: Instant::ZERO, engine, lines: (0..CLIENTS).map(Line::new).collect() }
}

impl World {
    /// The server looks at what has arrived on a line.
    fn parse(&mut self, number: usize) {
        let mut exports = Exports::default();
        exports.set(u32::MAX, self.engine.exports(), self.engine.controller().groups());
        loop {
            if let Some(command) = self.lines[number].waiting.take() {
                if !self.submit(number, command) {
                    self.lines[number].waiting = Some(command);
                    return;
                }
                continue;
            }
            let Line { session, unread, to_client, waiting, .. } = &mut self.lines[number];
            let groups = self.engine.controller().groups();
            let step = session.step(unread, Offer { exports: &exports, groups }, to_client);
            unread.drain(..step.consumed);
            match step.action {
                Action::Continue | Action::Refused => {}
                Action::More(needed) => {
                    assert!(needed > unread.len());
                    return;
                }
                Action::Attach(id) => self.engine.attach(id as usize),
                Action::Command(command) => *waiting = Some(command),
                Action::StartTls | Action::Close => panic!("nobody asked for it"),
            }
        }
    }
    fn submit(&mut self, number: usize, command: Command) -> bool {
        let Command { cookie, command_type, offset, length, fua } = command;
        let (owner, volume) = (number as u64, 0);
        let mut hints = Hints { fua, ..Hints::default() };
        let operation = match command_type {
            CommandType::Read => Operation::Read,
            CommandType::Write => Operation::Write,
            CommandType::Flush => Operation::Flush,
            CommandType::WriteZeroes { hole, fast } => {
                (hints.hole, hints.fast) = (hole, fast);
                Operation::WriteZeroes
            }
            other => panic!("{other:?}"),
        };
        let mut data = Data::None;
        if command_type == CommandType::Write {
            let Some(payload) = self.lines[number].unread.get(..length as usize) else {
                return false;
            };
            // It moves when the next bytes come, so it gets a buffer of its own.
            let mut buffer = self.engine.ops().pool.take(length as usize);
            buffer.fill(0, payload);
            data = Data::Owned(buffer);
        }
        let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
        assert!(self.engine.submit(self.now, new).is_ok(), "the queue is long enough");
        if command_type == CommandType::Write {
            self.lines[number].unread.drain(..length as usize);
        }
        true
    }
    /// The engine turns, and answers go in flight.
    fn turn(&mut self) {
        self.engine.turn(self.now);
        self.engine.keep_lent();
        while let Some(op) = self.engine.next_finished() {
            assert_eq!(op.status, 0);
            let out = &mut self.lines[op.owner as usize].to_client;
            if op.operation == Operation::Read {
                wire::read_header(out, false, op.cookie, op.offset, op.length);
                let (at, length) = (out.len(), op.length as usize);
                out.resize(at + length, 0);
                op.data.place(length).unwrap().read(&mut out[at..]);
            } else {
                wire::simple_reply(out, op.cookie, 0);
            }
            self.engine.ops().release(op.data);
        }
    }
    fn step(&mut self, random: &mut Random) {
        let number = random.below(CLIENTS);
        let line = &mut self.lines[number];
        match random.below(9) {
            0..=1 => line.command_type(random),
            2..=3 => {
                // Some bytes arrive: one, a few, or all.
                let most = [1, 7, 100, usize::MAX][random.below(4)].min(line.to_server.len());
                let count = random.below(most.saturating_add(1));
                line.unread.extend(line.to_server.drain(..count));
                self.parse(number);
            }
            4..=5 => {
                let most = [1, 7, 100, usize::MAX][random.below(4)].min(line.to_client.len());
                let count = random.below(most.saturating_add(1));
                line.heard.extend(line.to_client.drain(..count));
                line.hear();
            }
            6..=7 => self.turn(),
            _ => self.now += Nanos::from_micros(random.below(2_000) as u64),
        }
    }
}

/// Goal: whatever sockets do to the bytes, every request is answered once, reads find what was written
/// before them, and nothing is left inside. Method: three clients over many seeds and several stacks; each
/// has one request a block at a time, so that a model says what every read must bring.
#[test]
fn sockets_may_split_bytes_anywhere() {
    for (stack, max) in
        [("none-none", None), ("prop-bfq", None), ("promise", None), ("max-noop", Some(20 << 20))]
    {
        for seed in 0..SEEDS {
            let (mut world, mut random) = (world(stack, max), Random(seed));
            let mut steps = 0;
            while !world.lines.iter().all(Line::is_done) {
                world.step(&mut random);
                steps += 1;
                assert!(
                    steps < 1_000_000,
                    "seed {seed} under {stack}: something is never answered"
                );
            }
            assert_eq!(world.engine.pending(), 0, "seed {seed} under {stack}");
        }
    }
}
