//! The model, the built-in sets, periods, the clock: numbers by hand.

use std::vec::Vec;

use super::super::latency::{Latency, Verdict};
use super::super::model::{Model, Rates, SECOND};
use super::super::settings::{PARAMETERS, Settings};
use super::super::vrate::{Clock, Now, WHOLE_RATE};
use super::world::{MS, facts, near};
use iofair_core::id::ClientId;
use iofair_core::params::Values;
use iofair_core::policy::DriveFacts;
use iofair_core::request::{Operation, Request};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

fn request(operation: Operation, start: u64, sectors: u64) -> Request {
    Request::of(ClientId::from_bits(0), operation, start, sectors)
}

fn settings(set: &[(&str, &str)], facts: &DriveFacts) -> Settings {
    let mut values = Values::new(PARAMETERS, &[]);
    for (name, text) in set {
        values.set(name, text).expect("in the table");
    }
    Settings::new(&values, facts)
}

/// Goal: a second buys what the parameters say. Method: the built-in set of flash, each number turned
/// round: this many random, this many sequential reads, this many bytes.
#[test]
fn a_second_buys_what_the_parameters_say() {
    let read = Rates { bytes: 488_636_629, sequential: 8_932, random: 8_518 };
    let write = Rates { bytes: 427_891_549, sequential: 28_755, random: 21_940 };
    let model = Model::new([read, write]);
    let cost = |operation, start, sectors| {
        model.cost(&request(operation, start, sectors), Some(Sectors(0)))
    };
    let far = 1 << 20;
    for (operation, rates) in [(Operation::Read, read), (Operation::Write, write)] {
        assert!(near(cost(operation, far, 8) * rates.random, SECOND, 1));
        assert!(near(cost(operation, 0, 8) * rates.sequential, SECOND, 1));
        let more = cost(operation, 0, 8 * 257) - cost(operation, 0, 8);
        assert!(near(more * rates.bytes / (256 * 4096), SECOND, 1));
    }
}

/// Goal: what counts as random, and what is free. Method: around 16 MiB (4096 pages) from the cursor, both
/// ways; no cursor; less than a page; a discard.
#[test]
fn far_requests_are_random() {
    let rates = Rates { bytes: 4_096_000, sequential: 500, random: 100 };
    let model = Model::new([rates; 2]);
    let [page, sequential, random] =
        [SECOND.div_ceil(1000), SECOND.div_ceil(500), SECOND / 100 + 1];
    let cost =
        |start, cursor: u64| model.cost(&request(Operation::Read, start, 8), Some(Sectors(cursor)));
    assert_eq!(cost(4096 * 8 + 7, 0), sequential);
    assert_eq!(cost(4097 * 8, 0), random);
    assert_eq!(cost(0, 4096 * 8), sequential);
    assert_eq!(cost(0, 4097 * 8), random);
    assert_eq!(model.cost(&request(Operation::Read, 1 << 30, 8), None), sequential);
    assert_eq!(model.cost(&request(Operation::Read, 0, 1), None), sequential);
    assert_eq!(model.cost(&request(Operation::Read, 0, 16), None), sequential + page);
    assert_eq!(model.cost(&request(Operation::Discard, 0, 16), None), 0);
    // A random rate above the page rate leaves no base cost.
    let model = Model::new([Rates { random: 2000, ..rates }; 2]);
    assert_eq!(model.cost(&request(Operation::Read, 1 << 30, 8), Some(Sectors(0))), page);
}

/// Goal: the right built-in set, and periods from the longer latency. Method: by hand.
#[test]
fn sets_and_periods() {
    let period = |set: &[(&str, &str)], facts: &DriveFacts| settings(set, facts).period;
    let disk = DriveFacts { rotational: true, ..facts() };
    let single = DriveFacts { depth: 1, ..facts() };
    assert_eq!(settings(&[], &disk).set(), 0);
    assert_eq!(settings(&[], &single).set(), 1);
    assert_eq!(settings(&[], &facts()).set(), 2);
    assert_eq!(period(&[], &disk), MS * 500);
    assert_eq!(period(&[], &facts()), MS * 50);
    // The other direction's 25 ms count if they are longer.
    assert_eq!(period(&[("rpct", "95"), ("rlat", "10ms")], &facts()), MS * 50);
    assert_eq!(period(&[("rpct", "95"), ("rlat", "10ms"), ("wlat", "1ms")], &facts()), MS * 20);
    // Half may be late: ten times the latency, to hold misses enough.
    assert_eq!(period(&[("rpct", "50"), ("rlat", "30ms")], &facts()), MS * 300);
    assert_eq!(period(&[("rlat", "7s")], &facts()), MS * 1000);
    assert_eq!(period(&[("rlat", "1us"), ("wlat", "1us")], &facts()), MS);
    assert_eq!(settings(&[("rpct", "99.9")], &facts()).misses_max, [1_000, 1_000_000]);
}

/// Goal: a latency counts from asking for a tag, less what the size takes, and tags are waited for 5 % of a
/// period at most. Method: 256 KiB, of which the model takes 64 ms for the size, done after 70 ms.
#[test]
fn latencies_leave_out_the_size() {
    let set = [("rpct", "95"), ("rlat", "10ms"), ("rbps", "4096000B/s")];
    let verdict = |set: &[(&str, &str)], asked: Nanos, got: Nanos| {
        let settings = settings(set, &facts());
        let mut latency = Latency::default();
        let mut request = request(Operation::Read, 0, 512);
        request.asked_tag = Instant::ZERO + asked;
        request.got_tag = Instant::ZERO + got;
        latency.count(&settings, &request, Instant::ZERO + MS * 70);
        (latency.take(&settings, MS * 100), latency.take(&settings, MS * 100))
    };
    let zero = Nanos::ZERO;
    assert_eq!(verdict(&set, zero, zero), (Verdict::Unbusy, Verdict::Nothing));
    assert_eq!(verdict(&set, zero, MS * 3).0, Verdict::Unbusy);
    assert_eq!(verdict(&set, zero, MS * 5).0, Verdict::Fine);
    assert_eq!(verdict(&set, zero, MS * 6).0, Verdict::Busy);
    let whole = [set[0], set[1], set[2], ("size_latency", "false")];
    assert_eq!(verdict(&whole, zero, zero).0, Verdict::Busy);
    assert_eq!(verdict(&whole, MS * 60, MS * 60).0, Verdict::Unbusy);
}

/// Goal: the clock's steps. Method: each band of levels, both ways, from 100 %; bounds, and the way back
/// into them.
#[test]
fn the_clock_changes_by_the_published_steps() {
    let free = settings(&[], &facts());
    let after = |level, lagging| {
        let mut clock = Clock::new(MS * 50);
        clock.adjust(level, lagging, &free);
        clock.base_rate() * 1000 / WHOLE_RATE
    };
    let levels = [0, 3, 4, 19, 20, 35, 36, 43, 44, 51, 52, 1000];
    let slower: Vec<u64> = levels.iter().map(|level| after(*level, false).div_ceil(10)).collect();
    assert_eq!(slower, [100, 100, 99, 99, 98, 98, 96, 96, 92, 92, 84, 84]);
    let faster: Vec<u64> = levels.iter().map(|level| after(-*level, false) / 10).collect();
    assert_eq!(faster, [100, 100, 101, 101, 102, 102, 104, 104, 108, 108, 116, 116]);
    assert_eq!(after(-100, true), 1000, "old requests under way: not faster");
    assert!(after(100, true) < 1000);
    let narrow = settings(&[("min", "120"), ("max", "130")], &facts());
    let mut clock = Clock::new(MS * 50);
    let mut rates = Vec::new();
    for level in [1, 1, 1, 1, 1, 1, -1000, -1000] {
        clock.adjust(level, false, &narrow);
        rates.push(clock.base_rate() * 100 / WHOLE_RATE);
    }
    assert_eq!(rates, [103, 108, 112, 116, 119, 119, 129, 129], "4 % a period, then the bound");
}

/// Goal: budget that was thrown away comes back as a faster clock, budget given twice as a slower one.
/// Method: by hand, on periods of 50 ms.
#[test]
fn errors_of_the_clock_are_made_up_for() {
    let period = MS * 50;
    let rate_of = |error: i64| {
        let mut clock = Clock::new(period);
        let start = Now { at: Instant(0), v: clock.read(Instant(0)).v };
        clock.start_period(start);
        clock.note_error(error);
        clock.compensate(Instant(0));
        let end = clock.read(Instant(0) + period).v.since(start.v);
        end as u64 * 100 / (clock.period_virtual() as u64)
    };
    let whole = Clock::new(period).period_virtual();
    assert_eq!(rate_of(0), 100);
    assert_eq!(rate_of(-whole / 2), 150);
    assert_eq!(rate_of(-3 * whole), 200, "at most twice");
    assert_eq!(rate_of(whole / 4), 75);
    assert_eq!(rate_of(3 * whole), 50, "at least half");
    // What is left over, at most a period's worth, goes on into the next one.
    let mut clock = Clock::new(period);
    clock.note_error(-3 * whole);
    clock.compensate(Instant(0));
    let next = Now { at: Instant(0) + period, v: clock.read(Instant(0) + period).v };
    clock.start_period(next);
    clock.compensate(next.at);
    let gained = clock.read(next.at + Nanos(period.0)).v.since(next.v);
    assert!(near(gained as u64, 2 * whole as u64, 1));
}
