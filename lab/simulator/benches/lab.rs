//! How fast the lab is: simulated I/Os a second on one core, for the workloads of the 2018 article's
//! Figure 1 on the PLEXTOR, for every stack that the table of policies gives.
//!
//! `cargo bench -p iofair-simulator` prints a table, `-- --json` JSON, `-- NAME...` only these stacks. An I/O is a
//! call as its process made it; drive requests a second stand beside it, because a sequential call of
//! 4 KiB is a 64th of a request. Times are processor time, the fastest of a few runs. Allocations are counted over the
//! whole run, building it included. Under `cargo test` it runs small; the hashes say that the same work
//! was done.

use std::alloc::System;

use cpu_time::ThreadTime;
use iofair_baselines::TABLE;
use iofair_core::contract::{Contract, Limits};
use iofair_core::controller::{FlushRule, Stack};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_simulator::outcome::Outcome;
use iofair_simulator::scenario::{ClientSpec, GroupSpec, Job, Pattern, Scenario};
use iofair_simulator::{host, simulate};
use iofair_testkit::page;
use iofair_testkit::stacks;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Aims: simulated I/Os a second, and the resident size of the process in MiB.
const IOS_AIM: f64 = 2e6;
const RESIDENT_AIM: u64 = 100;

/// Target and interferers.
const WORKLOADS: &[(&str, Pattern, Pattern)] = &[
    ("random beside readers", Pattern::RandomRead, Pattern::SequentialRead),
    ("random beside writers", Pattern::RandomRead, Pattern::SequentialWrite),
    ("sequential beside readers", Pattern::SequentialRead, Pattern::SequentialRead),
    ("sequential beside writers", Pattern::SequentialRead, Pattern::SequentialWrite),
];
const INTERFERERS: usize = 4;

fn client(name: &str, pattern: Pattern) -> ClientSpec {
    let job = Job::new(pattern, Sectors::from_kib(4), true);
    ClientSpec { group: name.to_owned(), ..ClientSpec::new(name, job) }
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
        flushes: FlushRule::Bypass,
        stripe: None,
        host: host::host_2018(),
        groups,
        clients,
        changes: Vec::new(),
        ramp: Nanos::from_millis(500 * seconds),
        time: Nanos::from_secs(seconds),
        seed: 1,
        interval: None,
    }
}

/// One line of the table.
struct Measured {
    stack: String,
    workload: &'static str,
    /// Of the whole run: calls are counted after the ramp, requests before too.
    calls_per_s: f64,
    requests_per_s: f64,
    virtual_per_real: f64,
    allocations_per_request: f64,
    peak_kib: usize,
    hash: u64,
}

/// A run and its seconds.
fn timed(scenario: &Scenario) -> (Outcome, f64) {
    let start = ThreadTime::now();
    let outcome = simulate(scenario).expect("a good scenario");
    (outcome, start.elapsed().as_secs_f64())
}

fn measure(stack: &str, row: (&'static str, Pattern, Pattern), full: bool) -> Measured {
    let (seconds, rounds) = if full { (20, 3) } else { (1, 1) };
    let (workload, target, interferer) = row;
    let parsed = TABLE.stack(stack).expect("checked before");
    let scenario = figure_1(parsed, target, interferer, seconds);
    let region = Region::new(ALLOCATOR);
    let (outcome, first) = timed(&scenario);
    let change = region.change();
    let real = (1..rounds).map(|_| timed(&scenario).1).fold(first, f64::min);
    let calls: u64 = outcome.clients.iter().map(|client| client.calls).sum();
    let simulated = (scenario.ramp + scenario.time).0 as f64 / 1e9;
    let measured = outcome.time.0 as f64 / 1e9;
    let requests = outcome.simulated_requests as f64;
    Measured {
        stack: stack.to_owned(),
        workload,
        calls_per_s: calls as f64 / measured * simulated / real,
        requests_per_s: requests / real,
        virtual_per_real: simulated / real,
        allocations_per_request: (change.allocations + change.reallocations) as f64 / requests,
        peak_kib: change.bytes_allocated / 1024,
        hash: outcome.trace_hash,
    }
}

/// The section of the page: a row a stack, then the aims.
fn report(rows: &[Vec<Measured>]) -> String {
    let line =
        |row: &Vec<Measured>| {
            let mut cells = vec![row[0].stack.clone()];
            cells.extend(row.iter().map(|one| {
                format!("{:.1} ({:.2})", one.calls_per_s / 1e6, one.requests_per_s / 1e6)
            }));
            let slowest = row.iter().map(|one| one.virtual_per_real).fold(f64::INFINITY, f64::min);
            let most = row.iter().map(|one| one.allocations_per_request).fold(0.0, f64::max);
            cells.extend([format!("{slowest:.0}"), format!("{most:.3}")]);
            cells
        };
    let lines: Vec<_> = rows.iter().map(line).collect();
    let mut head = vec!["stack"];
    head.extend(rows[0].iter().map(|one| one.workload));
    head.extend(["x real time", "allocations a request"]);
    let all = || rows.iter().flatten();
    let hash = all().fold(0, |hash: u64, row| hash.rotate_left(1) ^ row.hash);
    let slowest = all().min_by(|a, b| a.calls_per_s.total_cmp(&b.calls_per_s));
    let slowest = slowest.expect("there are rows");
    let [peak, _] = page::resident_kib("self").map(|kib| kib >> 10);
    let found = format!("{:.1} million (`{}`)", slowest.calls_per_s / 1e6, slowest.stack);
    let aims = [
        page::aim(
            "Figure 1: 2 million simulated I/Os a second on a core, slowest row",
            found,
            slowest.calls_per_s >= IOS_AIM,
        ),
        page::aim(
            format!("Figure 1: under {RESIDENT_AIM} MiB resident, all runs in one process"),
            format!("{peak} MiB at most"),
            peak < RESIDENT_AIM,
        ),
    ];
    let (table, aims) = (page::table(&head, &lines), page::table(page::AIMS, &aims));
    format!("{table}\nHash of all runs: {hash:016x}.\n\n{aims}")
}

fn print_json(rows: &[Vec<Measured>]) {
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
    let lines: Vec<_> = rows.iter().flatten().map(line).collect();
    println!("{{\"lab\":[\n{}\n]}}", lines.join(",\n"));
}

fn main() {
    let (full, wanted) = page::arguments();
    let mut names = stacks::schedulers(&TABLE);
    names.extend(stacks::throttles(&TABLE).iter().map(|throttle| format!("{throttle}-none")));
    let workloads = if full { WORKLOADS } else { &WORKLOADS[..1] };
    let mut rows = Vec::new();
    for stack in &names {
        if wanted.is_empty() || wanted.contains(stack) {
            eprintln!("lab: {stack}");
            let measured = |row: &(&'static str, Pattern, Pattern)| measure(stack, *row, full);
            rows.push(workloads.iter().map(measured).collect::<Vec<_>>());
        }
    }
    assert!(!rows.is_empty(), "no such stack: {wanted:?}");
    if std::env::args().any(|argument| argument == "--json") {
        print_json(&rows);
    } else if wanted.is_empty() {
        page::publish("lab", &report(&rows));
    } else {
        println!("{}", report(&rows));
    }
}
