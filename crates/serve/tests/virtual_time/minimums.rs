//! Broken promises are counted as what they are: the engine half of a server over an emulated drive, in virtual time, with
//! clients that have a pace of their own.

use iofair_config::contracts::faults::Faults;
use iofair_core::contract::{Burst, Contract, Limits, Total};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_drive::profile;
use iofair_policies::TABLE;
use iofair_serve::back::volume::{Map, PlannedVolume, VolumeId};
use iofair_serve::back::{emulated::Emulated, store::Store};
use iofair_serve::engine::{Engine, Plan, Timeouts};
use iofair_serve::request::data::Data;
use iofair_serve::request::op::{Hints, NewOp};

const DRIVE: &str = "plextor-px256m5s";
const SEED: u64 = 11;
const SECONDS: u64 = 4;

/// A reader with one request at a time, in a group of its own.
#[derive(Clone, Copy)]
struct Reader {
    min: Option<u64>,
    /// A ceiling, and the group that has it.
    ceiling: Option<(Limits, Where)>,
    length: u32,
    /// At random, or in order.
    random: bool,
    /// From a completion to the next request.
    gap: Nanos,
}

/// Where a ceiling is: in the group with the minimum, in one inside it, or in the one around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    Own,
    Inside,
    Around,
}

const NEIGHBOUR: Reader = Reader {
    min: None,
    ceiling: None,
    length: 128 << 10,
    random: false,
    gap: Nanos::from_micros(20),
};

impl Reader {
    /// Its groups, parents first: the path below the first one, and the contract. The last one has the volume.
    fn groups(&self) -> Vec<(&'static str, Contract)> {
        let promised = Contract { min: self.min, ..Contract::default() };
        let Some((max, place)) = self.ceiling else { return vec![("", promised)] };
        let limited = Contract { max, ..Contract::default() };
        match place {
            Where::Own => vec![("", Contract { max, ..promised })],
            Where::Inside => vec![("", promised), ("/b", limited)],
            Where::Around => vec![("", limited), ("/b", promised)],
        }
    }
    /// The path of the group with the minimum, below the first one.
    fn promised(&self) -> &'static str {
        match self.ceiling {
            Some((_, Where::Around)) => "/b",
            _ => "",
        }
    }
}

/// What a reader got: bytes a second, and broken seconds of its group.
type Got = (u64, u64);

struct Bench {
    engine: Engine,
    /// Each with the time of its next request, `None` while one is inside, and the bytes that it got.
    readers: Vec<(Reader, Option<Instant>, u64)>,
    capacity: u64,
    random: u64,
}

impl Bench {
    fn new(stack: &str, readers: &[Reader]) -> Self {
        let drive = profile::load(DRIVE, SEED).unwrap();
        let capacity = drive.facts().capacity.bytes();
        let back = Emulated::new(DRIVE, drive, Store::anonymous(capacity).unwrap());
        let stack = TABLE.stack(stack).unwrap();
        let mut engine = Engine::new(Box::new(back), stack.clone());
        let volume = |number: usize| PlannedVolume {
            id: VolumeId(number as u128),
            name: format!("v{number}"),
            group: format!("g{number}{}", readers[number].groups().last().unwrap().0),
            map: Map::linear(0, capacity).into(),
            size: capacity,
            read_only: false,
            storage: None,
            entry: Default::default(),
            stamp: Default::default(),
        };
        let groups = |(number, reader): (usize, &Reader)| {
            let groups = reader.groups().into_iter();
            groups.map(move |(path, contract)| (format!("g{number}{path}"), contract))
        };
        let plan = Plan {
            stack,
            groups: readers.iter().enumerate().flat_map(groups).collect(),
            volumes: (0..readers.len()).map(volume).collect(),
            closed: Vec::new(),
            timeouts: Timeouts::default(),
            faults: Faults::default(),
        };
        engine.apply(Instant::ZERO, &plan);
        let start = |reader: &Reader| (*reader, Some(Instant::ZERO + reader.gap), 0);
        let readers = readers.iter().map(start).collect();
        Self { engine, readers, capacity, random: SEED }
    }
    fn submit(&mut self, now: Instant, volume: usize) {
        let (reader, at, got) = &mut self.readers[volume];
        *at = None;
        let (length, number) = (reader.length, self.capacity / u64::from(reader.length));
        let block = if reader.random {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (self.random >> 16) % number
        } else {
            // Each in a part of the drive of its own.
            (*got / u64::from(length) + volume as u64 * (number / 8)) % number
        };
        let (operation, offset) = (Operation::Read, block * u64::from(length));
        let (hints, data, owner, cookie) = (Hints::default(), Data::None, 0, volume as u64);
        let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
        assert!(self.engine.submit(now, new).is_ok(), "there is room");
    }
    fn run(mut self) -> Vec<Got> {
        let mut now = Instant::ZERO;
        while now <= Instant::ZERO + Nanos::from_secs(SECONDS) {
            for volume in 0..self.readers.len() {
                if self.readers[volume].1.is_some_and(|at| at <= now) {
                    self.submit(now, volume);
                }
            }
            self.engine.turn(now);
            self.engine.keep_lent();
            while let Some(op) = self.engine.next_finished() {
                let (reader, at, got) = &mut self.readers[usize::try_from(op.cookie).unwrap()];
                *at = Some(now + reader.gap);
                *got += u64::from(op.length);
                self.engine.ops().release(op.data);
            }
            let arrivals = self.readers.iter().filter_map(|(_, at, _)| *at);
            now = arrivals.chain(self.engine.next_wakeup()).min().unwrap();
        }
        let group = |name: String| self.engine.group_named(&name).unwrap();
        let got = |(number, (reader, _, got)): (usize, &(Reader, _, u64))| {
            let group = group(format!("g{number}{}", reader.promised()));
            (got / SECONDS, self.engine.tally(group).broken_seconds)
        };
        self.readers.iter().enumerate().map(got).collect()
    }
}

/// What a random reader with this minimum and gap gets, alone or beside sequential ones.
fn target(stack: &str, min: u64, gap: Nanos, neighbours: usize) -> Got {
    let target = Reader { min: Some(min), ceiling: None, length: 4096, random: true, gap };
    let mut readers = vec![target];
    readers.extend(std::iter::repeat_n(NEIGHBOUR, neighbours));
    Bench::new(stack, &readers).run()[0]
}

/// Goal: a promise that is broken beside others is counted in each second though the client has requests inside for less than
/// nine tenths of the time, and none is counted where the promise is kept. Method: a reader with a gap of its own and
/// 18 MB/s promised, alone and beside two sequential readers, without control and under `promise`.
#[test]
fn a_client_with_gaps_sees_its_broken_promise_counted() {
    const MIN: u64 = 18_000_000;
    for gap in [10, 40].map(Nanos::from_micros) {
        let (rate, broken) = target("none-none", MIN, gap, 0);
        assert!(rate > MIN && broken == 0, "alone, {gap:?}: {rate}, {broken} s");
        let (rate, broken) = target("none-none", MIN, gap, 2);
        assert!(rate < MIN / 100 * 95 && broken == SECONDS, "{gap:?}: {rate}, {broken} s");
        let (rate, broken) = target("promise", MIN, gap, 2);
        assert!(rate >= MIN / 100 * 99 && broken == 0, "promise, {gap:?}: {rate}, {broken} s");
    }
}

/// Goal: time for which a ceiling of the group with the minimum, or of one inside it, holds the requests is not a broken promise;
/// time at a ceiling around it is, and so is what the drive's other clients take. Method: a reader below a ceiling of each kind,
/// far below its minimum, on an otherwise idle drive; and one with a ceiling above its minimum beside others, without control.
#[test]
fn a_ceiling_breaks_no_promise() {
    const MIN: u64 = 18_000_000;
    let iops = Limits { iops: [Some(500), None], ..Limits::NONE };
    let bytes = Limits { bytes_per_s: [Some(5_000_000), None], ..Limits::NONE };
    let burst = Limits { burst: Burst { requests: Some(20), bytes: None }, ..iops };
    let total =
        Limits { total: Total { iops: None, bytes_per_s: Some(5_000_000) }, ..Limits::NONE };
    let run = |ceiling, length, others| {
        let (min, gap) = (Some(MIN), Nanos::from_micros(10));
        let target = Reader { min, ceiling: Some(ceiling), length, random: true, gap };
        let mut readers = vec![target];
        readers.extend(std::iter::repeat_n(NEIGHBOUR, others));
        Bench::new("max-none", &readers).run()[0]
    };
    for (max, length) in [(iops, 4096), (burst, 4096), (bytes, 4 << 20), (total, 4 << 20)] {
        for place in [Where::Own, Where::Inside] {
            let (rate, broken) = run((max, place), length, 0);
            assert!(rate < MIN / 2 && broken == 0, "{max:?} {place:?}: {rate}, {broken} s");
        }
        let (rate, broken) = run((max, Where::Around), length, 0);
        assert!(rate < MIN / 2 && broken == SECONDS, "{max:?} around: {rate}, {broken} s");
    }
    for place in [Where::Own, Where::Inside] {
        let (rate, broken) = run((Limits::both(20_000_000), place), 4096, 2);
        assert!(rate < MIN / 100 * 95 && broken == SECONDS, "{place:?}: {rate}, {broken} s");
    }
}
