//! Long operations: one of them is one request to everybody else, whatever its length.

use crate::rig::wire::Wire;
use crate::rig::{Directory, parse};
use iofair_core::contract::{Burst, Contract, Limits, Total};
use iofair_core::request::Operation;
use iofair_core::time::Instant;
use iofair_policies::TABLE;
use iofair_serve::Server;
use iofair_serve::back::memory::Memory;
use iofair_serve::back::volume::{Map, PlannedVolume, Run, VolumeId};
use iofair_serve::engine::{Engine, Plan};
use iofair_serve::request::buffer::Lent;
use iofair_serve::request::data::Data;
use iofair_serve::request::op::{Hints, NewOp};
use std::io::Write;
use std::sync::Arc;

/// NBD's command.
const WRITE_ZEROES: u16 = 6;
/// The longest that a client can say, on a border of pages.
const LONGEST: u32 = 0xffff_f000;

/// Two groups with a volume each: `bad`, whose writes are throttled so much that none of its requests ends while the
/// test runs, and `good`.
fn contracts(directory: &Directory, back: &str) -> String {
    let back = match back {
        "directory" => format!("directory:{}", directory.path("pool")),
        back => back.to_string(),
    };
    format!(
        "[drive]\nback = '{back}'\nstack = 'max+prop-bfq'\ndrain = '100ms'\n\
         [listen]\nunix = '{}'\n\
         [[group]]\nname = 'bad'\nmax = {{ write = '10kB/s' }}\n\
         [[group]]\nname = 'good'\n\
         [[volume]]\nname = 'b'\ngroup = 'bad'\nsize = '8GiB'\n\
         [[volume]]\nname = 'g'\ngroup = 'good'\nsize = '1GiB'\n",
        directory.path("socket")
    )
}

/// Goal: a client that asks for more zeroes than it may have for days does not keep others from the drive. Method: 250
/// commands of 4 GiB each in a throttled group, then reads and writes of another.
#[test]
fn giant_zeroes_do_not_block_others() {
    for back in ["memory:10GiB", "directory"] {
        let directory = Directory::new();
        let server = Server::start(parse(&contracts(&directory, back))).unwrap();
        let socket = directory.path("socket");
        let mut bad = Wire::connect_to(&socket, "b").unwrap();
        let mut good = Wire::connect_to(&socket, "g").unwrap();
        let requests = (0..250).map(|_| bad.request(WRITE_ZEROES, 0, 0, LONGEST));
        let requests = requests.collect::<Vec<_>>().concat();
        bad.stream.write_all(&requests).unwrap();
        // All of them are inside before anybody else asks.
        while server.stats(false).unwrap().pending < 125 {
            std::thread::yield_now();
        }
        for number in 0..100 {
            assert_eq!(good.write(0, number << 12, &[1; 4096]), 0, "{back}");
            assert_eq!(good.read(number << 12, 4096).data, [1; 4096], "{back}");
        }
        assert!(server.stats(false).unwrap().pending >= 125, "{back}: they still wait");
        drop((bad, good));
    }
}

/// An engine over memory with one volume that lies on it in pieces.
fn scattered(runs: &[Run]) -> Engine {
    limited(runs, "none-none", Limits::NONE)
}
/// The same with ceilings.
fn limited(runs: &[Run], stack: &str, max: Limits) -> Engine {
    let stack = TABLE.stack(stack).unwrap();
    let end = runs.iter().map(|run| run.drive + run.length).max().unwrap();
    let mut engine = Engine::new(Box::new(Memory::new(end).unwrap()), stack.clone());
    let map = Map::new(runs.to_vec()).unwrap();
    let volume = PlannedVolume {
        id: VolumeId(7),
        name: "v".into(),
        group: "g".into(),
        size: map.size(),
        map: map.into(),
        read_only: false,
        storage: None,
        entry: Default::default(),
        stamp: Default::default(),
    };
    let contract = Contract { max, ..Contract::default() };
    let (groups, volumes) = (vec![("g".into(), contract)], vec![volume]);
    let (closed, timeouts, faults) = (Vec::new(), Default::default(), Default::default());
    engine.apply(Instant::ZERO, &Plan { stack, groups, volumes, closed, timeouts, faults });
    engine
}

/// One request from its submission to its end: its status, and the bytes that a read brought.
fn ask(engine: &mut Engine, operation: Operation, offset: u64, data: &mut [u8]) -> i32 {
    let length = data.len() as u32;
    let payload = match operation {
        Operation::Write => Data::Lent(Lent::new(&Arc::new(data.to_vec()), 0..data.len())),
        _ => Data::None,
    };
    let (owner, cookie, volume, hints) = (0, 0, 0, Hints::default());
    let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data: payload };
    assert!(engine.submit(Instant::ZERO, new).is_ok());
    loop {
        engine.turn(Instant::ZERO);
        engine.keep_lent();
        let Some(op) = engine.next_finished() else { continue };
        assert_eq!((op.offset, op.length), (offset, length));
        if operation == Operation::Read {
            op.data.place(data.len()).unwrap().read(data);
        }
        engine.ops().release(op.data);
        return op.status;
    }
}

/// Goal: a volume that lies in several pieces on the drive is one volume to its clients. Method: random reads, writes
/// and zeroes, also of odd lengths and across several pieces, against a model; then block status.
#[test]
fn a_volume_may_lie_in_pieces() {
    const MIB: u64 = 1 << 20;
    let piece = |volume, drive, length| Run { volume, drive, length };
    let runs = [
        piece(0, 5 * MIB, 64 << 10),
        piece(64 << 10, 0, 4096),
        piece(68 << 10, 8 * MIB, 3 * MIB),
        piece(3 * MIB + (68 << 10), MIB, 512),
        piece(3 * MIB + (68 << 10) + 512, 2 * MIB, MIB),
    ];
    let mut engine = scattered(&runs);
    let size = engine.size(0) as usize;
    let mut model = vec![0u8; size];
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for round in 0..1_000 {
        let longest = [100, 5_000, 200_000, size][random(4)];
        let length = 1 + random(longest);
        let at = random(size - length + 1);
        let model = &mut model[at..at + length];
        match random(3) {
            0 => {
                model.fill(round as u8);
                model[0] = 255;
                let mut data = model.to_vec();
                assert_eq!(ask(&mut engine, Operation::Write, at as u64, &mut data), 0);
            }
            1 => {
                model.fill(0);
                let mut none = model.to_vec();
                assert_eq!(ask(&mut engine, Operation::WriteZeroes, at as u64, &mut none), 0);
            }
            _ => {
                let mut data = vec![1; length];
                assert_eq!(ask(&mut engine, Operation::Read, at as u64, &mut data), 0);
                assert!(data == model, "round {round}: {length} bytes at {at}");
            }
        }
    }
    assert_eq!(engine.pending(), 0);
    let mut all = vec![0; size];
    assert_eq!(ask(&mut engine, Operation::WriteZeroes, 0, &mut all), 0);
    let mut one = [1; 4096];
    assert_eq!(ask(&mut engine, Operation::Write, 64 << 10, &mut one), 0);
    // An answer ends with the piece in which the range begins.
    assert_eq!(status(&mut engine, 4096, 200 << 10, 10), [(60, true)]);
    assert_eq!(status(&mut engine, 64 << 10, 140 << 10, 10), [(4, false)]);
    assert_eq!(status(&mut engine, 68 << 10, 136 << 10, 10), [(136, true)]);
    assert_eq!(status(&mut engine, 4095, 1, 1), [(0, true)]);
}

/// Block status: KiB, and whether they are a hole.
fn status(engine: &mut Engine, offset: u64, length: u32, limit: u16) -> Vec<(u64, bool)> {
    let hints = Hints { extents: limit, ..Hints::default() };
    let (owner, cookie, volume, operation, data) = (0, 0, 0, Operation::Read, Data::None);
    let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
    assert!(engine.submit(Instant::ZERO, new).is_ok());
    engine.turn(Instant::ZERO);
    let op = engine.next_finished().unwrap();
    let Data::Extents(told) = op.data else { panic!("no extents: {op:?}") };
    told.iter().map(|extent| (extent.length >> 10, extent.hole)).collect()
}

/// Submits requests one after the other on the volume, from its start on and again.
fn submit_all(engine: &mut Engine, operation: Operation, length: u32, count: u64, parts: bool) {
    let size = engine.size(0) / u64::from(length) * u64::from(length);
    for cookie in 0..count {
        let data = match operation {
            Operation::Write => {
                Data::Lent(Lent::new(&Arc::new(vec![7; length as usize]), 0..length as usize))
            }
            _ => Data::None,
        };
        let hints = Hints { continues: parts && cookie > 0, ..Hints::default() };
        let (owner, volume, offset) = (0, 0, cookie * u64::from(length) % size);
        let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
        assert!(engine.submit(Instant::ZERO, new).is_ok());
    }
}
/// Number of requests that finish at a time.
fn finish(engine: &mut Engine, now: Instant) -> u64 {
    let mut finished = 0;
    loop {
        let before = finished;
        engine.turn(now);
        engine.keep_lent();
        while let Some(op) = engine.next_finished() {
            assert_eq!(op.status, 0);
            engine.ops().release(op.data);
            finished += 1;
        }
        if finished == before {
            return finished;
        }
    }
}

/// Goal: ceilings count what clients ask for: each request once, be it merged with others or cut into pieces; the bytes of
/// writes, of zeroes whatever the back end makes of them, and a sector for a trim of any length. Method: more than the burst
/// lets through, of each operation, short and adjacent or long and on two places of the drive; then a second later.
#[test]
fn ceilings_count_what_is_asked_for() {
    const MIB: u64 = 1 << 20;
    let piece = |volume, drive, length| Run { volume, drive, length };
    let runs = [piece(0, 9 * MIB, 4 * MIB), piece(4 * MIB, 0, 4 * MIB)];
    let second = Instant(1_000_000_000);
    let ios = Total { bytes_per_s: None, iops: Some(1) };
    let four = Burst { bytes: None, requests: Some(4) };
    use Operation::{Discard, Read, Write, WriteZeroes};
    for operation in [Read, Write, Discard, WriteZeroes] {
        for length in [4096, 3 << 20] {
            let max = Limits { total: ios, burst: four, ..Limits::NONE };
            let mut engine = limited(&runs, "max-none", max);
            submit_all(&mut engine, operation, length, 8, false);
            let finished = [Instant::ZERO, second].map(|now| finish(&mut engine, now));
            assert_eq!(finished, [4, 1], "{operation:?} of {length}");
        }
    }
    for (operation, length, cost) in [
        (Write, 8192, 8192),
        (WriteZeroes, 8192, 8192),
        (WriteZeroes, 4 << 20, 4 << 20),
        (Discard, 8192, 512),
        (Discard, 4 << 20, 512),
    ] {
        let total = Total { bytes_per_s: Some(cost), iops: None };
        let burst = Burst { bytes: Some(4 * cost), requests: None };
        let mut engine = limited(&runs, "max-none", Limits { total, burst, ..Limits::NONE });
        submit_all(&mut engine, operation, length, 8, false);
        let finished = [Instant::ZERO, second].map(|now| finish(&mut engine, now));
        assert_eq!(finished, [4, 1], "{operation:?} of {length}");
    }
    // What a front end had to cut.
    let mut engine = limited(&runs, "max-none", Limits { total: ios, burst: four, ..Limits::NONE });
    submit_all(&mut engine, WriteZeroes, 1 << 20, 16, true);
    assert_eq!(finish(&mut engine, Instant::ZERO), 16);
}
