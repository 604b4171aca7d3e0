//! No allocation per request once warm: every scheduler, and every throttle above `none`, with few and
//! many groups, with and without flushes, under a counting allocator. That is also the bound on what a policy may hoard.

#[path = "support/load.rs"]
mod load;

use std::alloc::System;

use iofair_baselines::TABLE;
use iofair_core::controller::Stack;
use iofair_core::id::RequestId;
use iofair_core::policy::{Build, Context, Judgement, Policy, Role, Row};
use iofair_testkit::stacks;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::load::Load;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests in a window.
const WINDOW: u64 = 5_000;
/// Windows without an allocation that make an engine warm, and windows that it may take to get there.
const QUIET: u32 = 10;
const WARM_UP_MAX: u32 = 300;

/// What a warm engine may hold, in bytes: for itself, a group and an outstanding request.
const BYTES_MAX: [usize; 3] = [64 << 10, 4 << 10, 512];

/// A load, and the ceilings of its groups.
#[derive(Clone, Copy)]
struct Case {
    groups: u32,
    flush_every: u64,
    iops: u64,
    /// Whether reads and writes have a ceiling together.
    totals: bool,
}

/// Puts a stack under load; tells what is wrong, if anything.
fn verify(stack: Stack, case: Case) -> Result<(), String> {
    let Case { groups, flush_every, iops, totals } = case;
    let all = Region::new(ALLOCATOR);
    let mut load = Load::new(stack, groups, iops);
    if totals {
        load.limit_totals(iops);
    }
    load.flush_every(flush_every);
    load.fill_half();
    load.fill_half();
    let mut quiet = 0;
    for _ in 0..WARM_UP_MAX {
        let window = Region::new(ALLOCATOR);
        load.run(WINDOW);
        let change = window.change();
        quiet = if change.allocations + change.reallocations == 0 { quiet + 1 } else { 0 };
        if quiet == QUIET {
            break;
        }
    }
    if quiet < QUIET {
        return Err(format!("still allocates after {} requests", u64::from(WARM_UP_MAX) * WINDOW));
    }
    let change = all.change();
    let bytes = change.bytes_allocated - change.bytes_deallocated;
    let [engine, group, request] = BYTES_MAX;
    let allowed = engine + group * groups as usize + request * Load::outstanding(groups) as usize;
    if bytes > allowed { Err(format!("holds {bytes} bytes of {allowed}")) } else { Ok(()) }
}

/// Stacks that take turns under load: bytes held after some changes, and after many more.
fn bytes_after_switches(name: &str) -> [usize; 2] {
    let all = Region::new(ALLOCATOR);
    let stack = |name: &str| TABLE.stack(name).expect("in the table");
    let mut load = Load::new(stack("none-none"), 16, 1_000_000);
    load.flush_every(10);
    load.fill_half();
    load.fill_half();
    [20, 200].map(|rounds| {
        for round in 0..rounds {
            load.switch(stack(if round % 2 == 0 { name } else { "max-none" }));
            load.run(500);
        }
        let change = all.change();
        change.bytes_allocated - change.bytes_deallocated
    })
}

/// Goal: a warm engine allocates nothing and holds no more than it may. Method: every stack, 1, 16 and
/// 1,000 groups, flushes among the requests or not, ceilings far off and ceilings that hold, on each direction and on
/// both together; stacks
/// that replace each other; then a policy that hoards. One test, because
/// the allocator counts for the whole process.
#[test]
fn a_warm_engine_allocates_nothing() {
    let mut names = stacks::schedulers(&TABLE);
    names.extend(stacks::throttles(&TABLE).iter().map(|throttle| format!("{throttle}-none")));
    let mut guilty = Vec::new();
    for name in names {
        for (groups, flush_every) in [(1, 0), (16, 0), (16, 10), (1000, 0)] {
            for (iops, totals) in [(1_000_000, false), (50, false), (1_000_000, true), (50, true)] {
                if totals && name != "max-none" {
                    continue;
                }
                let stack = TABLE.stack(&name).expect("made from the table");
                if let Err(text) = verify(stack, Case { groups, flush_every, iops, totals }) {
                    guilty.push(format!(
                        "{name}, {groups} groups, {iops}/s, totals {totals}, flushes {flush_every}: {text}"
                    ));
                }
            }
        }
    }
    assert!(guilty.is_empty(), "{guilty:#?}");

    for name in stacks::schedulers(&TABLE) {
        let [first, last] = bytes_after_switches(&name);
        assert!(last <= first + (8 << 10), "{name}: {first} bytes, {last} after many changes");
    }

    let mut stack = TABLE.stack("none-none").expect("in the table");
    stack.scheduler.row = &HOARDER;
    assert!(
        verify(stack, Case { groups: 1, flush_every: 0, iops: 1_000_000, totals: false }).is_err(),
        "the canary is not seen"
    );
}

static HOARDER: Row = Row {
    name: "hoarder",
    short: "hoarder",
    role: Role::SCHEDULER,
    enforces: |_, _| false,
    summary: "remembers every request for ever",
    file: "none",
    parameters: &[],
    overrides: &[],
    judgement: Judgement::NONE,
    build: |_: &Build<'_>| Box::new(Hoarder { all: Vec::new(), given: 0 }),
};

struct Hoarder {
    all: Vec<RequestId>,
    given: usize,
}

impl Policy for Hoarder {
    fn submit(&mut self, _: &mut Context<'_>, id: RequestId) {
        self.all.push(id);
    }
    fn dispatch(&mut self, _: &mut Context<'_>) -> Option<RequestId> {
        let id = *self.all.get(self.given)?;
        self.given += 1;
        Some(id)
    }
}
