//! No allocation per request once warm: every scheduler, and every throttle above `none`, with few and
//! many groups, under a counting allocator. That is also the bound on what a policy may hoard.

#[path = "support/load.rs"]
mod load;
#[path = "support/stacks.rs"]
mod stacks;

use std::alloc::System;

use iofair_core::controller::Stack;
use iofair_core::policy::{Build, Context, Policy, Role, Row};
use iofair_core::request::RequestId;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::load::Load;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations of 5,000 requests after a warm-up.
fn allocations(stack: Stack, groups: u32, iops: u64) -> usize {
    let mut load = Load::new(stack, groups, iops);
    load.fill();
    load.run(20_000);
    let region = Region::new(ALLOCATOR);
    load.run(5_000);
    let change = region.change();
    change.allocations + change.reallocations
}

/// Goal: a warm engine allocates nothing, and the count is no fiction. Method: every stack, 1, 16 and
/// 1,000 groups, ceilings far off and ceilings that hold; then a policy that hoards. One test, because
/// the allocator counts for the whole process.
#[test]
fn a_warm_engine_allocates_nothing() {
    let mut names = stacks::schedulers();
    names.extend(stacks::throttles().iter().map(|throttle| format!("{throttle}-none")));
    let mut guilty = Vec::new();
    for name in names {
        for groups in [1, 16, 1000] {
            for iops in [1_000_000, 50] {
                let stack = Stack::parse(&name).expect("made from the table");
                let count = allocations(stack, groups, iops);
                if count > 0 {
                    guilty.push(format!("{name}, {groups} groups, {iops}/s: {count}"));
                }
            }
        }
    }
    assert!(guilty.is_empty(), "allocations in 5,000 requests: {guilty:#?}");

    let mut stack = Stack::parse("none-none").expect("in the table");
    stack.scheduler.row = &HOARDER;
    assert!(allocations(stack, 1, 50) > 0, "the canary is not seen");
}

static HOARDER: Row = Row {
    name: "hoarder",
    short: "hoarder",
    role: Role::Scheduler { groups: false },
    summary: "remembers every request for ever",
    file: "none",
    parameters: &[],
    overrides: &[],
    build: |_: &Build<'_>| Box::new(Hoarder { all: Vec::new(), given: 0 }),
};

struct Hoarder {
    all: Vec<RequestId>,
    given: usize,
}

impl Policy for Hoarder {
    fn submit(&mut self, _: &mut Context<'_>, id: RequestId) {
        // Doubling would hide most of the growth from the count.
        self.all.reserve_exact(1);
        self.all.push(id);
    }
    fn dispatch(&mut self, _: &mut Context<'_>) -> Option<RequestId> {
        let id = *self.all.get(self.given)?;
        self.given += 1;
        Some(id)
    }
}
