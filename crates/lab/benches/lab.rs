//! How fast the lab is: simulated I/Os a second on one core, for the workloads of the 2018 article's
//! Figure 1 on the PLEXTOR, for each stack.
//!
//! `cargo bench -p iofair-lab` prints a table, `-- --json` JSON, `-- NAME...` only these stacks. An I/O is a
//! call as its process made it; drive requests a second stand beside it, because a sequential call of
//! 4 KiB is a 64th of a request. Times are the fastest of five runs. Allocations are counted over the whole run, building it included.
//! Under `cargo test` it runs small; the hashes say that the same work was done.

use std::alloc::System;
use std::time::Instant;

use iofair_core::contract::{Contract, Limits};
use iofair_core::controller::Stack;
use iofair_core::group::Priority;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_lab::outcome::Outcome;
use iofair_lab::scenario::{ClientSpec, GroupSpec, Job, Pattern, Scenario};
use iofair_lab::{host, simulate};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const STACKS: &[&str] = &["none-none", "max-none", "prop-bfq-4.18", "prop-bfq"];
/// Target and interferers.
const WORKLOADS: &[(&str, Pattern, Pattern)] = &[
    ("random beside readers", Pattern::RandomRead, Pattern::SequentialRead),
    ("random beside writers", Pattern::RandomRead, Pattern::SequentialWrite),
    ("sequential beside readers", Pattern::SequentialRead, Pattern::SequentialRead),
    ("sequential beside writers", Pattern::SequentialRead, Pattern::SequentialWrite),
];
const INTERFERERS: usize = 4;

fn client(name: &str, pattern: Pattern) -> ClientSpec {
    let job = Job {
        pattern,
        block: Sectors::from_kib(4),
        buffered: true,
        depth: 1,
        rate: None,
        fdatasync_every: 0,
        on_off: None,
        think: Nanos::ZERO,
        sync_writes: true,
    };
    ClientSpec {
        name: name.to_owned(),
        processes: 1,
        group: name.to_owned(),
        priority: Priority::default(),
        job,
        file_size: Sectors::from_kib(500 << 10),
        start: Nanos::ZERO,
        stop: None,
    }
}

fn group(name: &str, weight: u32, limit: u64) -> GroupSpec {
    let contract = Contract { weight, max: Limits::both(limit), ..Contract::default() };
    GroupSpec { name: name.to_owned(), contract }
}

/// Figure 1 with Table 2's weights and limits.
fn figure_1(stack: Stack, target: Pattern, interferer: Pattern, seconds: u64) -> Scenario {
    let names: Vec<String> = (0..INTERFERERS).map(|i| format!("interferer-{i}")).collect();
    let mut groups: Vec<_> = names.iter().map(|name| group(name, 100, 15_000_000)).collect();
    groups.push(group("target", 300, 10_000_000));
    let mut clients: Vec<_> = names.iter().map(|name| client(name, interferer)).collect();
    clients.push(client("target", target));
    Scenario {
        drive: "plextor-px256m5s".to_owned(),
        stack,
        tags: None,
        host: host::host_2018(),
        groups,
        clients,
        ramp: Nanos::from_millis(500 * seconds),
        time: Nanos::from_secs(seconds),
        seed: 1,
    }
}

/// One line of the table.
struct Measured {
    stack: &'static str,
    workload: &'static str,
    /// Of the whole run: calls are counted after the ramp, requests before too.
    calls_per_s: f64,
    requests_per_s: f64,
    virtual_per_real: f64,
    allocations_per_request: f64,
    peak_kib: usize,
    target_kb_per_s: u64,
    total_mib_per_s: u64,
    hash: u64,
}

/// A run and its seconds.
fn timed(scenario: &Scenario) -> (Outcome, f64) {
    let start = Instant::now();
    let outcome = simulate(scenario).expect("a good scenario");
    (outcome, start.elapsed().as_secs_f64())
}

fn measure(stack: &'static str, row: (&'static str, Pattern, Pattern), full: bool) -> Measured {
    let (seconds, rounds) = if full { (20, 5) } else { (1, 1) };
    let (workload, target, interferer) = row;
    let parsed = Stack::parse(stack).expect("checked before");
    let scenario = figure_1(parsed, target, interferer, seconds);
    let region = Region::new(ALLOCATOR);
    let (outcome, first) = timed(&scenario);
    let change = region.change();
    let real = (1..rounds).map(|_| timed(&scenario).1).fold(first, f64::min);
    let calls: u64 = outcome.clients.iter().map(|client| client.calls).sum();
    let simulated = (scenario.ramp + scenario.time).0 as f64 / 1e9;
    let measured = outcome.time.0 as f64 / 1e9;
    let requests = outcome.simulated_requests as f64;
    let drive = outcome.drive;
    Measured {
        stack,
        workload,
        calls_per_s: calls as f64 / measured * simulated / real,
        requests_per_s: requests / real,
        virtual_per_real: simulated / real,
        allocations_per_request: (change.allocations + change.reallocations) as f64 / requests,
        peak_kib: change.bytes_allocated / 1024,
        target_kb_per_s: outcome.clients[INTERFERERS].bytes / 1024 / seconds,
        total_mib_per_s: ((drive.read_bytes + drive.written_bytes) >> 20) / seconds,
        hash: outcome.trace_hash,
    }
}

fn print_table(rows: &[Measured]) {
    println!(
        "{:<14} {:<26} {:>11} {:>11} {:>7} {:>9} {:>7} {:>8} {:>6}  hash",
        "stack", "workload", "I/Os /s", "requests /s", "x real", "allocs", "KiB", "target", "total"
    );
    for row in rows {
        println!(
            "{:<14} {:<26} {:>11.0} {:>11.0} {:>7.0} {:>9.5} {:>7} {:>8} {:>6}  {:016x}",
            row.stack,
            row.workload,
            row.calls_per_s,
            row.requests_per_s,
            row.virtual_per_real,
            row.allocations_per_request,
            row.peak_kib,
            row.target_kb_per_s,
            row.total_mib_per_s,
            row.hash
        );
    }
}

fn print_json(rows: &[Measured]) {
    let line = |row: &Measured| {
        format!(
            "{{\"stack\":\"{}\",\"workload\":\"{}\",\"ios_per_s\":{:.0},\"requests_per_s\":{:.0},\
             \"virtual_per_real\":{:.1},\"allocations_per_request\":{:.6},\
             \"allocated_kib\":{},\"hash\":\"{:016x}\"}}",
            row.stack,
            row.workload,
            row.calls_per_s,
            row.requests_per_s,
            row.virtual_per_real,
            row.allocations_per_request,
            row.peak_kib,
            row.hash
        )
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    println!("{{\"lab\":[\n{}\n]}}", lines.join(",\n"));
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let full = arguments.iter().any(|a| a == "--bench");
    let wanted: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let mut rows = Vec::new();
    for stack in STACKS.iter().filter(|name| Stack::parse(name).is_ok()) {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == stack) {
            rows.extend(WORKLOADS.iter().map(|row| measure(stack, *row, full)));
        }
    }
    match arguments.iter().any(|a| a == "--json") {
        true => print_json(&rows),
        false => print_table(&rows),
    }
}
