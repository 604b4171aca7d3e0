//! What the engine costs: nanoseconds for submit + dispatch + complete of one request, allocations a
//! request, bytes a group and a queued request, for every scheduler and every throttle, with 1 to
//! 100,000 active groups.
//!
//! `cargo bench -p iofair-baselines` prints a table, `-- --json` JSON, `-- NAME...` only these stacks. Times are
//! the median of many short rounds, in processor time, because machines are shared. The ratios of the aims come from
//! rounds in which both stacks are timed in turn. Those of the rows compare the fastest rounds with a bare queue of the
//! same run: a `VecDeque`, or a fair queue on a `BinaryHeap` (start-time fair queueing: no limits, no time, no merging,
//! no accounting). Under `cargo test` it runs small. The hashes of the order of service say that the same work was done.
//!
//! A second table has 10 to 10,000 groups: what it takes to add a group with its client, to change one contract
//! while all groups have requests in flight, and to serve a request.

#[path = "../tests/support/load.rs"]
mod load;

use std::alloc::System;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use iofair_baselines::TABLE;
use iofair_policies::DEFAULT_STACK;
use iofair_testkit::page;
use iofair_testkit::stacks;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::load::Load;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A ceiling that no group reaches: throttles count and never hold.
const FAR: u64 = 1_000_000;
/// A ceiling that always holds.
const NEAR: u64 = 50;
/// Rounds of one measurement end after this time, so that slow policies do not hold up the run.
const TIME_MAX: Duration = Duration::from_millis(300);
/// But not before this many.
const ROUNDS_MIN: usize = 5;

/// Aims in nanoseconds with 1,000 groups: a stack and its bound.
const NANOS_AIMS: [(&str, f64); 4] =
    [("none-none", 40.0), ("none-bfq", 250.0), ("prop-bfq", 250.0), (SERVED, 250.0)];
/// A scheduler's time beside that of `none-none`, with this many groups.
const RATIO_AIMS: [(&str, u32, f64); 4] = [
    ("prop-promise", 1_000, 2.5),
    ("prop-promise", 100_000, 3.0),
    (PROMISED, 1_000, 2.5),
    (PROMISED, 100_000, 3.0),
];
/// Every group has a minimum, together half of what the drive does.
const PROMISED: &str = "prop-promise minimums";
/// BFQ as a server has it, which injects by weight.
const SERVED: &str = "prop-bfq served";
/// Aims for memory: bytes a group of `prop-bfq`, bytes a queued request, and all of 100,000 groups.
const GROUP_AIM: usize = 4 << 10;
const REQUEST_AIM: usize = 256;
const ALL_AIM: usize = 1 << 30;

/// How much to do.
struct Size {
    groups: &'static [u32],
    rounds: usize,
    requests: u64,
}

const FULL: Size = Size { groups: &[1, 16, 1_000, 100_000], rounds: 41, requests: 50_000 };
const SMALL: Size = Size { groups: &[1, 16], rounds: 1, requests: 1_000 };

/// Groups of the second table, and its stacks: the one that servers have, and one of each kind of scheduler and throttle.
const SCALE: [u32; 4] = [10, 100, 1_000, 10_000];
const SCALE_STACKS: [&str; 7] = [
    DEFAULT_STACK,
    "max+prop-bfq",
    "none-none",
    "none-mq-deadline",
    "none-kyber",
    "cost+max-none",
    "lat+max-none",
];
/// Aims with 10,000 groups: milliseconds to add all, microseconds to change one contract.
const ADD_AIM_MS: f64 = 300.0;
const CHANGE_AIM_US: f64 = 10.0;

/// One line of the table.
struct Measured {
    stack: String,
    groups: u32,
    nanos: Rounds,
    allocations: u64,
    group_bytes: usize,
    request_bytes: usize,
    hash: u64,
}

/// Nanoseconds a request.
#[derive(Clone, Copy)]
struct Rounds {
    median: f64,
    fastest: f64,
}

/// Times `rounds` rounds.
fn timed(size: &Size, mut round: impl FnMut(u64)) -> Rounds {
    let one = |_| {
        let start = ThreadTime::now();
        round(size.requests);
        start.elapsed().as_nanos() as f64 / size.requests as f64
    };
    let began = Instant::now();
    let more = |done: usize| done < ROUNDS_MIN || began.elapsed() < TIME_MAX;
    let mut rounds: Vec<f64> = (0..size.rounds).take_while(|done| more(*done)).map(one).collect();
    rounds.sort_by(f64::total_cmp);
    Rounds { median: rounds[rounds.len() / 2], fastest: rounds[0] }
}

/// A bare queue of as many numbers.
fn bare_queue(groups: u32, size: &Size) -> Rounds {
    let mut queue: VecDeque<u64> = (0..u64::from(Load::outstanding(groups))).collect();
    timed(size, |requests| {
        for _ in 0..requests {
            let first = queue.pop_front().expect("never empty");
            queue.push_back(black_box(first));
        }
    })
}

/// A bare fair queue: the group of the smallest virtual time goes next and is charged one request.
fn fair_heap(groups: u32, size: &Size) -> Rounds {
    let mut heap: BinaryHeap<Reverse<(u64, u32)>> =
        (0..groups).map(|group| Reverse((u64::from(group % 7), group))).collect();
    timed(size, |requests| {
        for _ in 0..requests {
            let Reverse((time, group)) = heap.pop().expect("never empty");
            let charge = 1 + u64::from(black_box(group) % 10);
            heap.push(Reverse((time + charge, group)));
        }
    })
}

fn live_bytes(region: &Region<'_, System>) -> usize {
    let change = region.change();
    let grown = change.bytes_allocated as isize - change.bytes_deallocated as isize;
    usize::try_from(grown).unwrap_or(0)
}

/// An engine with these groups, for a row of the table.
fn load_of(name: &str, groups: u32) -> Load {
    let held = name.strip_suffix(" held");
    let iops = if held.is_some() { NEAR } else { FAR };
    let suffix = [" served", " minimums"].iter().find_map(|end| name.strip_suffix(end));
    let plain = held.or(suffix).unwrap_or(name);
    let mut stack = TABLE.stack(plain).expect("made from the table");
    if name == SERVED {
        stack.set("bfq", "inject_by_weight", "true").expect("a parameter of BFQ's");
    }
    let mut load = Load::new(stack, groups, iops);
    if name == PROMISED {
        load.promise_half();
    }
    load
}

/// How many times as long as with the other stack a request takes: the median over rounds, in each of which both are
/// timed, since a machine may change its speed at any time.
fn ratio(name: &str, other: &str, groups: u32, size: &Size) -> f64 {
    let mut loads = [name, other].map(|stack| {
        let mut load = load_of(stack, groups);
        load.fill_half();
        load.fill_half();
        load.run(2 * u64::from(Load::outstanding(groups)) + size.requests);
        load
    });
    let one = |load: &mut Load| {
        let start = ThreadTime::now();
        load.run(size.requests);
        start.elapsed().as_nanos() as f64
    };
    let round = |_| {
        let [own, other] = &mut loads;
        one(own) / one(other)
    };
    let mut ratios: Vec<f64> = (0..size.rounds).map(round).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn measure(name: &str, groups: u32, size: &Size) -> Measured {
    let region = Region::new(ALLOCATOR);
    let mut load = load_of(name, groups);
    load.fill_half();
    let first_half = live_bytes(&region);
    let region = Region::new(ALLOCATOR);
    load.fill_half();
    let second_half = live_bytes(&region);
    // A policy may make a group's queue with its first request, so the second half is what requests
    // take, and the first what groups take besides.
    let request_bytes = second_half / (Load::outstanding(groups) as usize / 2);
    let group_bytes = first_half.saturating_sub(second_half) / groups as usize;
    load.run(2 * u64::from(Load::outstanding(groups)) + size.requests);
    let hash = load.hash;
    let nanos = timed(size, |requests| load.run(requests));
    let region = Region::new(ALLOCATOR);
    load.run(size.requests);
    let change = region.change();
    Measured {
        stack: name.to_string(),
        groups,
        nanos,
        allocations: (change.allocations + change.reallocations) as u64,
        group_bytes,
        request_bytes,
        hash,
    }
}

/// One stack with this many groups.
struct Scaled {
    /// Nanoseconds to add one of the groups and its client.
    add: f64,
    /// To change a contract.
    change: Rounds,
    /// To serve a request.
    request: Rounds,
    /// Allocations of 1,000 changes.
    allocations: usize,
}

fn scaled(name: &str, groups: u32, size: &Size) -> Scaled {
    let start = ThreadTime::now();
    let mut load = Load::new(TABLE.stack(name).expect("made from the table"), groups, FAR);
    let add = start.elapsed().as_nanos() as f64 / f64::from(groups);
    load.fill_half();
    load.fill_half();
    load.run(2 * u64::from(Load::outstanding(groups)) + size.requests);
    let request = timed(size, |requests| load.run(requests));
    let change = timed(size, |changes| load.update_contracts(changes));
    let region = Region::new(ALLOCATOR);
    load.update_contracts(1_000);
    let allocations = region.change().allocations;
    Scaled { add, change, request, allocations }
}

fn scale_report(size: &Size) -> String {
    let groups = |what: &'static str| SCALE.iter().map(move |groups| format!("{what}, {groups}"));
    let mut head = vec!["stack, ns".to_owned()];
    head.extend(groups("add").chain(groups("change")).chain(groups("request")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let (mut lines, mut aims) = (Vec::new(), Vec::new());
    let mut allocations = 0;
    for name in SCALE_STACKS {
        eprintln!("engine: {name} with {SCALE:?} groups");
        let row = SCALE.map(|groups| scaled(name, groups, size));
        let mut cells = vec![name.to_owned()];
        cells.extend(row.iter().map(|one| format!("{:.0}", one.add)));
        cells.extend(row.iter().map(|one| format!("{:.0}", one.change.median)));
        cells.extend(row.iter().map(|one| format!("{:.0}", one.request.median)));
        lines.push(cells);
        allocations += row.iter().map(|one| one.allocations).sum::<usize>();
        let (most, last) = (SCALE[SCALE.len() - 1], &row[SCALE.len() - 1]);
        let add = last.add * f64::from(most) / 1e6;
        let what = format!("`{name}`: {most} groups are added in {ADD_AIM_MS} ms");
        aims.push(page::aim(what, format!("{add:.1} ms"), add < ADD_AIM_MS));
        let change = last.change.median / 1e3;
        let what = format!("`{name}`: one contract of {most} changes in {CHANGE_AIM_US} us");
        aims.push(page::aim(what, format!("{change:.2} us"), change < CHANGE_AIM_US));
    }
    let found = format!("{allocations} in 1,000 changes a cell");
    aims.push(page::aim("no allocation a change of a contract", found, allocations == 0));
    format!("{}\n{}", page::table(&head, &lines), page::table(page::AIMS, &aims))
}

fn names() -> Vec<String> {
    let mut names = stacks::schedulers(&TABLE);
    names.extend([SERVED, PROMISED].map(String::from));
    for throttle in stacks::throttles(&TABLE) {
        names.push(format!("{throttle}-none"));
        names.push(format!("{throttle}-none held"));
    }
    names
}

/// What bare queues take, by number of groups: a queue and a fair heap.
type Bare = Vec<[Rounds; 2]>;

/// The section of the page: a row a stack, then the aims.
fn report(rows: &[Vec<Measured>], bare: &Bare, size: &Size) -> String {
    let most = size.groups[size.groups.len() - 1];
    let grouped = size.groups.iter().map(|groups| format!("ns, {groups}"));
    let ratio = format!("x heap, {most}");
    let mut head = vec!["stack".to_owned()];
    head.extend(grouped);
    head.extend([&*ratio, "allocations", "B a group", "B a request"].map(String::from));
    let line = |row: &Vec<Measured>| {
        let last = &row[row.len() - 1];
        let heap = bare[bare.len() - 1][1];
        let mut cells = vec![last.stack.clone()];
        cells.extend(row.iter().map(|one| format!("{:.0}", one.nanos.median)));
        cells.push(format!("{:.2}", last.nanos.fastest / heap.fastest));
        cells.push(row.iter().map(|one| one.allocations).sum::<u64>().to_string());
        cells.extend([last.group_bytes.to_string(), last.request_bytes.to_string()]);
        cells
    };
    let mut lines: Vec<_> = rows.iter().map(line).collect();
    for (kind, name) in ["(a bare `VecDeque`)", "(a bare fair heap)"].iter().enumerate() {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(bare.iter().map(|both| format!("{:.1}", both[kind].median)));
        cells.resize(head.len(), String::new());
        lines.push(cells);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let hash = rows.iter().flatten().fold(0, |hash: u64, row| hash.rotate_left(1) ^ row.hash);
    let (table, aims) = (page::table(&head, &lines), page::table(page::AIMS, &aims(rows, size)));
    format!("{table}\nHash of all orders of service: {hash:016x}.\n\n{aims}")
}

fn aims(rows: &[Vec<Measured>], size: &Size) -> Vec<Vec<String>> {
    let mut aims = Vec::new();
    let all = || rows.iter().flatten();
    for (stack, bound) in NANOS_AIMS {
        for row in all().filter(|row| row.stack == stack && row.groups == 1_000) {
            let nanos = row.nanos.median;
            let what = format!("`{stack}` with 1,000 groups: under {bound} ns");
            aims.push(page::aim(what, format!("{nanos:.0} ns"), nanos < bound));
        }
    }
    for (stack, groups, bound) in RATIO_AIMS {
        if all().any(|row| row.stack == stack && row.groups == groups) {
            let what = format!("`{stack}` with {groups} groups: under {bound} times `none-none`");
            let ratio = ratio(stack, "none-none", groups, size);
            aims.push(page::aim(what, format!("{ratio:.2}"), ratio < bound));
        }
    }
    let allocations: u64 = all().map(|row| row.allocations).sum();
    let found = format!("{allocations} in {} requests a row", size.requests);
    aims.push(page::aim("no allocation a request once warm", found, allocations == 0));
    let most = size.groups[size.groups.len() - 1];
    for row in all().filter(|row| row.stack == "prop-bfq" && row.groups == most) {
        let bytes = row.group_bytes;
        let what = format!("`prop-bfq`: under {GROUP_AIM} B a group, of {most}");
        aims.push(page::aim(what, format!("{bytes} B"), bytes < GROUP_AIM));
        let outstanding = Load::outstanding(most);
        let all = bytes * most as usize + row.request_bytes * outstanding as usize;
        let what = format!("`prop-bfq`: {most} groups with {outstanding} requests under 1 GiB");
        aims.push(page::aim(what, format!("{} MiB", all >> 20), all < ALL_AIM));
    }
    let large = all().filter(|row| row.groups == most);
    if let Some(row) = large.max_by_key(|row| row.request_bytes) {
        let (stack, bytes) = (&row.stack, row.request_bytes);
        let what = format!("under {REQUEST_AIM} B a queued request, with {most} groups");
        aims.push(page::aim(what, format!("{bytes} B (`{stack}`)"), bytes <= REQUEST_AIM));
    }
    aims
}

fn print_json(rows: &[Vec<Measured>], bare: &Bare) {
    let line = |(row, bare): (&Measured, &[Rounds; 2])| {
        format!(
            "{{\"stack\":\"{}\",\"groups\":{},\"nanos\":{:.1},\"nanos_min\":{:.1},\
             \"queue_nanos_min\":{:.1},\"heap_nanos_min\":{:.1},\"allocations\":{},\
             \"group_bytes\":{},\"request_bytes\":{},\"hash\":\"{:016x}\"}}",
            row.stack,
            row.groups,
            row.nanos.median,
            row.nanos.fastest,
            bare[0].fastest,
            bare[1].fastest,
            row.allocations,
            row.group_bytes,
            row.request_bytes,
            row.hash
        )
    };
    let lines: Vec<_> = rows.iter().flat_map(|row| row.iter().zip(bare).map(line)).collect();
    println!("{{\"engine\":[\n{}\n]}}", lines.join(",\n"));
}

fn main() {
    let (full, wanted) = page::arguments();
    let size = if full { FULL } else { SMALL };
    let both = |groups: &u32| [bare_queue(*groups, &size), fair_heap(*groups, &size)];
    let bare: Bare = size.groups.iter().map(both).collect();
    let mut rows = Vec::new();
    for name in names() {
        if wanted.is_empty() || wanted.contains(&name) {
            eprintln!("engine: {name}");
            let by_groups = size.groups.iter().map(|groups| measure(&name, *groups, &size));
            rows.push(by_groups.collect::<Vec<_>>());
        }
    }
    if std::env::args().any(|argument| argument == "--json") {
        print_json(&rows, &bare);
    } else if wanted.is_empty() {
        page::publish("engine", &report(&rows, &bare, &size));
        page::publish("groups", &scale_report(&size));
    } else if wanted.iter().any(|name| name == "groups") {
        page::publish("groups", &scale_report(&size));
    } else {
        println!("{}", report(&rows, &bare, &size));
    }
}
