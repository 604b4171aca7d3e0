//! What the live engine costs a request: nanoseconds of processor time from `submit` to the finished
//! request, over memory that answers at once, and allocations. With counting, since that is always on; also while the
//! requests are recorded.
//!
//! `cargo bench -p iofair-serve --bench engine` prints the median and the fastest of many rounds (and writes them into
//! docs/performance.md in `make bench`); under
//! `cargo test` it runs small and checks that nothing is allocated once warm.

use std::alloc::System;

use cpu_time::ThreadTime;
use iofair_config::contracts::faults::Faults;
use iofair_core::contract::Contract;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::{DEFAULT_STACK, TABLE};
use iofair_serve::back::memory::Memory;
use iofair_serve::back::volume::{Map, PlannedVolume, VolumeId};
use iofair_serve::engine::{Engine, Plan, Timeouts};
use iofair_serve::request::data::Data;
use iofair_serve::request::op::{Hints, NewOp};
use iofair_testkit::page;
use iofair_trace::Metadata;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const GROUPS: usize = 16;
const DEPTH: u64 = 32;
const SIZE: u64 = 1 << 20;

/// An engine with a volume a group, two levels deep.
fn engine(stack: &str) -> Engine {
    let memory = Memory::new(SIZE * GROUPS as u64).expect("16 MiB");
    let mut stack = TABLE.stack(stack).expect("made of rows");
    // Nobody thinks here, so nobody is waited for: that would be the model's time and not ours.
    let _ = stack.set("bfq", "slice_idle", "0ms");
    let mut engine = Engine::new(Box::new(memory), stack.clone());
    let path = |number: usize| format!("tenants/{number}");
    let mut groups = vec![("tenants".to_string(), Contract::default())];
    groups.extend((0..GROUPS).map(|number| (path(number), Contract::default())));
    let volume = |number: usize| PlannedVolume {
        id: VolumeId(number as u128),
        name: number.to_string(),
        group: path(number),
        map: Map::linear(number as u64 * SIZE, SIZE).into(),
        size: SIZE,
        read_only: false,
        storage: None,
        entry: Default::default(),
        stamp: Default::default(),
    };
    let volumes = (0..GROUPS).map(volume).collect();
    let (closed, timeouts, faults) = (Vec::new(), Timeouts::default(), Faults::default());
    engine.apply(Instant::ZERO, &Plan { stack, groups, volumes, closed, timeouts, faults });
    engine
}

/// Requests of every group in turn, at most `DEPTH` inside.
fn run(engine: &mut Engine, now: &mut Instant, requests: u64) {
    let hints = Hints { prefetch: true, ..Hints::default() };
    let mut number = 0;
    while number < requests {
        while engine.pending() < DEPTH as usize {
            let volume = number as usize % GROUPS;
            let offset = number.wrapping_mul(0x9e37_79b9) % (SIZE / 4096) * 4096;
            let (operation, data) = (Operation::Read, Data::None);
            let (owner, cookie, length) = (0, number, 4096);
            let op = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
            engine.submit(*now, op).expect("the queue has room");
            number += 1;
        }
        *now += Nanos::from_micros(10);
        engine.turn(*now);
        engine.keep_lent();
        while let Some(op) = engine.next_finished() {
            assert_eq!(op.status, 0);
            engine.ops().release(op.data);
        }
    }
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let (rounds, requests) = if full { (61, 64_000) } else { (2, 640) };
    let mut rows = Vec::new();
    for stack in ["none-none", "max-none", "prop-bfq", DEFAULT_STACK] {
        let (mut engine, mut now) = (engine(stack), Instant::ZERO);
        run(&mut engine, &mut now, requests);
        let region = Region::new(ALLOCATOR);
        run(&mut engine, &mut now, requests);
        let change = region.change();
        let allocations = change.allocations + change.reallocations;
        assert_eq!(allocations, 0, "{stack} allocates for each request");
        let times = times(stack, rounds, requests);
        let [off, on] = times.map(|times| (times[times.len() / 2], times[0]));
        rows.push(vec![
            format!("`{stack}`"),
            format!("{:.0}, {:.0}", off.0, off.1),
            format!("{:.0}, {:.0}", on.0, on.1),
            format!("{:+.0}", on.0 - off.0),
        ]);
    }
    if full {
        let head = ["stack", "not recorded: median, fastest", "recorded", "difference"];
        page::publish("recording", &page::table(&head, &rows));
    }
}

/// The time of a request in each of so many rounds, ascending: of an engine that records nothing, and of one that records,
/// in turns. What was recorded is taken between the rounds.
fn times(stack: &str, rounds: usize, requests: u64) -> [Vec<f64>; 2] {
    let mut engines = [engine(stack), engine(stack)];
    let (mut clocks, mut from) = ([Instant::ZERO; 2], 0);
    engines[1].start_recording(clocks[1], Metadata::default()).expect("there is none");
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for ((engine, now), times) in engines.iter_mut().zip(&mut clocks).zip(&mut times) {
            let start = ThreadTime::now();
            run(engine, now, requests);
            times.push(start.elapsed().as_nanos() as f64 / requests as f64);
        }
        while let Some(taken) = engines[1].take_recording(clocks[1], from)
            && !taken.bytes.is_empty()
        {
            assert_eq!(taken.dropped, 0, "a round fits");
            from += taken.bytes.len() as u64;
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times
    })
}
