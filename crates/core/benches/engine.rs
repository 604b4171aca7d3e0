//! What the engine costs: nanoseconds for submit + dispatch + complete of one request, allocations a
//! request, bytes a group and a queued request, for every scheduler and every throttle, with 1 to
//! 100,000 active groups.
//!
//! `cargo bench -p iofair-core` prints a table, `-- --json` JSON, `-- NAME...` only these stacks. Times are
//! the median and the fastest of many short rounds; the fastest, which a busy machine disturbs least, is also
//! given as a ratio to two bare queues measured in the same run: a `VecDeque`, and a fair queue on a `BinaryHeap` (start-time fair queueing: no limits, no time, no
//! merging, no accounting). Under `cargo test` it runs small and prints the hashes of the order of
//! service, which say that the same work was done.

#[path = "../tests/support/load.rs"]
mod load;
#[path = "../tests/support/stacks.rs"]
mod stacks;

use std::alloc::System;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::Instant;

use iofair_core::controller::Stack;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::load::Load;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A ceiling that no group reaches: throttles count and never hold.
const FAR: u64 = 1_000_000;
/// A ceiling that always holds.
const NEAR: u64 = 50;

/// How much to do.
struct Size {
    groups: &'static [u32],
    rounds: usize,
    requests: u64,
}

const FULL: Size = Size { groups: &[1, 16, 1_000, 100_000], rounds: 41, requests: 50_000 };
const SMALL: Size = Size { groups: &[1, 16], rounds: 1, requests: 1_000 };

/// One line of the table.
struct Measured {
    stack: String,
    groups: u32,
    nanos: Rounds,
    queue: Rounds,
    heap: Rounds,
    allocations: f64,
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
        let start = Instant::now();
        round(size.requests);
        start.elapsed().as_nanos() as f64 / size.requests as f64
    };
    let mut rounds: Vec<f64> = (0..size.rounds).map(one).collect();
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

fn measure(name: &str, groups: u32, size: &Size) -> Measured {
    let held = name.strip_suffix(" held");
    let iops = if held.is_some() { NEAR } else { FAR };
    let stack = Stack::parse(held.unwrap_or(name)).expect("made from the table");
    let region = Region::new(ALLOCATOR);
    let mut load = Load::new(stack, groups, iops);
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
    let region = Region::new(ALLOCATOR);
    let nanos = timed(size, |requests| load.run(requests));
    let change = region.change();
    // The list of rounds is the one allocation that is ours.
    let allocations = (change.allocations + change.reallocations).saturating_sub(1);
    Measured {
        stack: name.to_string(),
        groups,
        nanos,
        queue: bare_queue(groups, size),
        heap: fair_heap(groups, size),
        allocations: allocations as f64 / (size.rounds as u64 * size.requests) as f64,
        group_bytes,
        request_bytes,
        hash: load.hash,
    }
}

fn names() -> Vec<String> {
    let mut names = stacks::schedulers();
    for throttle in stacks::throttles() {
        names.push(format!("{throttle}-none"));
        names.push(format!("{throttle}-none held"));
    }
    names
}

fn print_table(rows: &[Measured]) {
    println!(
        "{:<24} {:>7} {:>7} {:>7} {:>8} {:>7} {:>9} {:>8} {:>9}  {:<16}",
        "stack",
        "groups",
        "ns",
        "fastest",
        "x queue",
        "x heap",
        "allocs",
        "B/group",
        "B/request",
        "hash"
    );
    for row in rows {
        println!(
            "{:<24} {:>7} {:>7.1} {:>7.1} {:>8.1} {:>7.2} {:>9.6} {:>8} {:>9}  {:016x}",
            row.stack,
            row.groups,
            row.nanos.median,
            row.nanos.fastest,
            row.nanos.fastest / row.queue.fastest,
            row.nanos.fastest / row.heap.fastest,
            row.allocations,
            row.group_bytes,
            row.request_bytes,
            row.hash
        );
    }
}

fn print_json(rows: &[Measured]) {
    let line = |row: &Measured| {
        format!(
            "{{\"stack\":\"{}\",\"groups\":{},\"nanos\":{:.1},\"nanos_min\":{:.1},\
             \"queue_nanos_min\":{:.1},\"heap_nanos_min\":{:.1},\"allocations\":{},\"group_bytes\":{},\"request_bytes\":{},\
             \"hash\":\"{:016x}\"}}",
            row.stack,
            row.groups,
            row.nanos.median,
            row.nanos.fastest,
            row.queue.fastest,
            row.heap.fastest,
            row.allocations,
            row.group_bytes,
            row.request_bytes,
            row.hash
        )
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    println!("{{\"engine\":[\n{}\n]}}", lines.join(",\n"));
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let size = if arguments.iter().any(|a| a == "--bench") { FULL } else { SMALL };
    let wanted: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let mut rows = Vec::new();
    for name in names() {
        if wanted.is_empty() || wanted.iter().any(|wanted| **wanted == name) {
            rows.extend(size.groups.iter().map(|groups| measure(&name, *groups, &size)));
        }
    }
    match arguments.iter().any(|a| a == "--json") {
        true => print_json(&rows),
        false => print_table(&rows),
    }
}
