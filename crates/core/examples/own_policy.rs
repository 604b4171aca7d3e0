//! A policy of one's own: a scheduler that serves the shortest request first, and no request later than 10 ms if others were
//! sent after it.
//!
//! `cargo run -p iofair-core --example own_policy`

use std::collections::BTreeSet;

use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, FlushRule, Setup, Submission};
use iofair_core::id::RequestId;
use iofair_core::params::Parameter;
use iofair_core::policy::{Build, Context, DriveFacts, Judgement, Policy, Role, Row, Table};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// Requests by length, and by arrival.
struct ShortestFirst {
    patience: Nanos,
    by_length: BTreeSet<(Sectors, RequestId)>,
    by_arrival: BTreeSet<(Instant, RequestId)>,
}

impl Policy for ShortestFirst {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.by_length.insert((cx.requests[id].length, id));
        self.by_arrival.insert((cx.requests[id].asked_tag, id));
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let &(arrived, oldest) = self.by_arrival.first()?;
        let late = cx.now.since(arrived) >= self.patience;
        let id = if late { oldest } else { self.by_length.first()?.1 };
        let request = &cx.requests[id];
        self.by_length.remove(&(request.length, id));
        self.by_arrival.remove(&(request.asked_tag, id));
        Some(id)
    }
}

/// Its parameters are declared, so that users can list and set them.
static PARAMETERS: &[Parameter] =
    &[Parameter::time("patience", Nanos::from_millis(10), "no request waits longer than this")];

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let patience = build.values.time("patience");
    Box::new(ShortestFirst { patience, by_length: BTreeSet::new(), by_arrival: BTreeSet::new() })
}

static ROW: Row = Row {
    name: "shortest-first",
    short: "shortest-first",
    role: Role::SCHEDULER,
    enforces: |_, _| false,
    summary: "the shortest request first",
    file: "own_policy.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement::NONE,
    build,
};
static TABLE: Table = Table { policies: &[&ROW], stacks: &[] };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let capacity = Sectors::from_kib(1 << 20);
    let max_request = Sectors::from_kib(1024);
    let facts = DriveFacts { rotational: false, depth: 1, max_request, capacity };
    let flushes = FlushRule::Bypass;
    let setup = Setup {
        facts,
        tags: 64,
        queue_limit: 64,
        guaranteed: 8,
        client_limit: 64,
        flushes,
        trace: 0,
    };
    let mut stack = TABLE.stack("none-shortest-first")?;
    stack.set("shortest-first", "patience", "5ms")?;
    let mut engine = Controller::new(setup, stack);
    let mut now = Instant::ZERO;
    let group = engine.add_group(now, "all", Contract::default())?;
    let client = engine.add_client(now, group, Priority::default())?;
    for (tag, kib) in [(1, 256), (2, 4), (3, 64), (4, 8)] {
        let (start, length) = (Sectors::from_kib(1024 * tag), Sectors::from_kib(kib));
        let (operation, flags) = (Operation::Read, Flags::SYNC);
        engine.submit(now, Submission { tag, client, operation, flags, start, length })?;
    }
    let (mut order, mut done) = (Vec::new(), Vec::new());
    while let Some(command) = engine.dispatch(now) {
        now += Nanos::from_millis(2);
        engine.complete(now, command.command, 0, &mut done)?;
        order.extend(done.drain(..).map(|completion| completion.part.tag));
    }
    println!("served: {order:?}");
    assert_eq!(order, [2, 4, 3, 1], "by length; the first one waited for 6 ms");
    Ok(())
}

/// Goal: the example runs, and does what it says. Method: run it.
#[test]
fn the_example_runs() {
    main().expect("no error");
}
