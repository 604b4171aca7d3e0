//! What the engine takes at the limits of what it accepts: the smallest and largest drives, rates, times and queues.

#![allow(clippy::unwrap_used)]

use iofair_core::contract::{Burst, Contract, Latency, Limits, Low, Total};
use iofair_core::controller::{
    CAPACITY_MAX, Completion, Controller, DATALESS_MAX, FlushRule, MAX_REQUEST_MAX, Setup,
    Submission,
};
use iofair_core::error::EngineError;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::policy::{DriveFacts, Role};
use iofair_core::priority::{Class, Priority};
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_policies::TABLE;

/// Every policy in a stack of its own.
fn stacks() -> Vec<String> {
    let rows = TABLE.policies.iter().map(|row| match row.role {
        Role::Throttle => format!("{}-none", row.short),
        Role::Scheduler { groups: true, .. } => format!("prop-{}", row.name),
        Role::Scheduler { .. } => format!("none-{}", row.name),
    });
    rows.chain(TABLE.stacks.iter().map(|named| named.name.to_string())).collect()
}

fn setup(capacity: Sectors, max_request: Sectors, depth: u32, rotational: bool) -> Setup {
    let facts = DriveFacts { rotational, depth, max_request, capacity };
    let flushes = FlushRule::Scheduled;
    Setup {
        facts,
        tags: depth,
        queue_limit: 64,
        guaranteed: 8,
        client_limit: u32::MAX,
        flushes,
        trace: 8,
    }
}

/// Contracts that the engine accepts, with the least and the most of everything.
fn contracts() -> Vec<Contract> {
    let mut all = Vec::new();
    for rate in [1, u64::MAX] {
        let limits = Limits { bytes_per_s: [Some(rate); 2], iops: [Some(rate); 2], ..Limits::NONE };
        let some = Some(rate);
        let base = Contract::default();
        all.push(Contract { min: some, weight: 1, ..base.clone() });
        all.push(Contract { min_iops: some, weight: 1000, ..base.clone() });
        all.push(Contract { min: some, min_iops: some, alone: Some(1), ..base.clone() });
        all.push(Contract { min: some, alone: Some(u64::MAX), ..base.clone() });
        let low = Low { limits, latency: Some(Nanos(rate)), idle: Some(Nanos(rate)) };
        let latency =
            Latency { read: Some(Nanos(rate)), write: Some(Nanos(rate)), sync: Some(Nanos(rate)) };
        all.push(Contract { low, latency, ..base.clone() });
        all.push(Contract { class: Class::Idle, latency, ..base.clone() });
        all.push(Contract { class: Class::RealTime, min: some, ..base.clone() });
        // A ceiling of one byte a second would hold a request for years, and does.
        let (bytes, requests) = (Some(rate.max(1 << 30)), Some(rate.max(1000)));
        let max = Limits { bytes_per_s: [bytes; 2], iops: [requests; 2], ..Limits::NONE };
        all.push(Contract { max, ..base.clone() });
        let total = Total { bytes_per_s: bytes, iops: requests };
        let burst = Burst { bytes: some, requests: some };
        let max = Limits { total, burst, ..Limits::NONE };
        all.push(Contract { max, ..base });
    }
    all.push(Contract { min: Some(0), min_iops: Some(0), alone: Some(0), ..Contract::default() });
    all
}

/// One of each operation, at the start and the end of the drive, as long as the drive allows.
fn submit_all(engine: &mut Controller, now: Instant, client: ClientId, setup: &Setup) {
    use Operation::{Discard, Flush, Read, Write, WriteZeroes};
    let DriveFacts { capacity, max_request, .. } = setup.facts;
    for (tag, operation) in [Read, Write, Flush, Discard, WriteZeroes].into_iter().enumerate() {
        let longest = match operation {
            Flush => Sectors::ZERO,
            Read | Write => max_request.min(capacity),
            _ => DATALESS_MAX.min(capacity),
        };
        let start = if tag % 2 == 0 { capacity - longest } else { Sectors::ZERO };
        let start = if operation == Flush { Sectors::ZERO } else { start };
        let (tag, flags, length) = (tag as u64, Flags::NONE, longest);
        engine.submit(now, Submission { tag, client, operation, flags, start, length }).unwrap();
    }
}

/// Serves until nothing is left, at most for some years of the engine's time.
fn serve(engine: &mut Controller, mut now: Instant, done: &mut Vec<Completion>) -> Instant {
    for _ in 0..1_000_000 {
        if let Some(dispatch) = engine.dispatch(now) {
            now += Nanos::from_micros(100);
            engine.complete(now, dispatch.command, 0, done).unwrap();
        } else if engine.pending() == 0 {
            return now;
        } else {
            let next = engine.next_wakeup();
            now = next.expect("what is held has a time to be asked for again").max(now);
        }
    }
    panic!("{} requests are never served", engine.pending());
}

/// Goal: nothing that the engine accepts makes it panic or forget a request. Method: every policy, on the smallest and the
/// largest drives, with the least and the most in contracts, at the beginning of time and late in it. Overflow panics in tests.
#[test]
fn limits_are_served() {
    let drives = [
        setup(Sectors(1), Sectors(1), 1, false),
        setup(Sectors(1), MAX_REQUEST_MAX, 1, true),
        setup(CAPACITY_MAX, MAX_REQUEST_MAX, u32::MAX, false),
        setup(CAPACITY_MAX, Sectors(8), 1, true),
    ];
    // The second one is 500 years later.
    let starts = [Instant::ZERO, Instant(500 * 365 * 86_400 * 1_000_000_000)];
    for stack in stacks() {
        for setup in &drives {
            starts.iter().for_each(|start| run(&stack, setup, *start));
        }
    }
}

fn run(stack: &str, setup: &Setup, start: Instant) {
    let mut engine = Controller::new(*setup, TABLE.stack(stack).unwrap());
    let mut done = Vec::new();
    let mut clients = Vec::new();
    for (number, contract) in contracts().into_iter().enumerate() {
        let group = engine.add_group(start, &format!("g{number}"), contract).unwrap();
        let priority = Priority { class: Class::ALL[number % 3], level: number as u8 % 8 };
        clients.push(engine.add_client(start, group, priority).unwrap());
    }
    let mut now = start;
    for _ in 0..3 {
        clients.iter().for_each(|client| submit_all(&mut engine, now, *client, setup));
        now = serve(&mut engine, now, &mut done);
    }
    assert_eq!(done.len(), clients.len() * 15, "{stack} on {:?}", setup.facts);
}

/// Goal: what no drive has, and what no client may be, is refused with an error. Method: each field out of its range, by one
/// where it has a number.
#[test]
fn what_is_beyond_the_limits_is_refused() {
    let good = setup(Sectors(1), Sectors(1), 1, false);
    let beyond = |sectors: Sectors| sectors + Sectors(1);
    let bad = [
        Setup { tags: 0, ..good },
        Setup { queue_limit: 0, guaranteed: 0, ..good },
        Setup { client_limit: 0, ..good },
        setup(Sectors::ZERO, Sectors(1), 1, false),
        setup(beyond(CAPACITY_MAX), Sectors(1), 1, false),
        setup(Sectors(1), Sectors::ZERO, 1, false),
        setup(Sectors(1), beyond(MAX_REQUEST_MAX), 1, false),
        Setup { facts: DriveFacts { depth: 0, ..good.facts }, ..good },
    ];
    for setup in bad {
        let refused = Controller::try_new(setup, TABLE.stack("promise").unwrap()).err();
        let refused = refused.expect("refused");
        assert!(matches!(refused, EngineError::NoTags | EngineError::BadSetup(_)), "{setup:?}");
        assert!(!refused.to_string().is_empty());
    }
    let mut engine = Controller::try_new(good, TABLE.stack("promise").unwrap()).unwrap();
    let (now, root) = (Instant::ZERO, GroupId::ROOT);
    let low = Priority { level: 8, ..Priority::default() };
    assert_eq!(engine.add_client(now, root, low), Err(EngineError::BadLevel(8)));
    let client = engine.add_client(now, root, Priority::default()).unwrap();
    assert_eq!(engine.update_client(now, client, root, low), Err(EngineError::BadLevel(8)));
    assert_eq!(engine.groups().client(client).priority, Priority::default());
    let outer = engine.add_group(now, "a", Contract::default()).unwrap();
    for (path, parent) in [("", root), ("b//c", root), ("b/c", root), ("c", outer), ("b/c", outer)]
    {
        let refused = engine.add_group_under(now, path, parent, Contract::default());
        assert_eq!(refused, Err(EngineError::BadName(path.to_string())));
    }
    engine.add_group_under(now, "a/b", outer, Contract::default()).unwrap();
}
