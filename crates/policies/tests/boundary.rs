//! What the engine refuses: everything that a caller can get wrong, with an error that says what, and nothing changed.

#![allow(clippy::unwrap_used)]

use iofair_core::contract::{Contract, Latency, Limits};
use iofair_core::controller::{Controller, Dispatch, FlushRule, Plug, Setup, Submission, TIME_MAX};
use iofair_core::error::EngineError;
use iofair_core::id::{ClientId, CommandId, GroupId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_policies::TABLE;

const NOW: Instant = Instant(1_000_000);

fn engine(stack: &str) -> (Controller, GroupId, ClientId) {
    let facts = DriveFacts {
        rotational: false,
        depth: 32,
        max_request: Sectors::from_kib(1024),
        capacity: Sectors::from_kib(1 << 20),
    };
    let flushes = FlushRule::Scheduled;
    let setup = Setup {
        facts,
        tags: 64,
        queue_limit: 64,
        guaranteed: 8,
        client_limit: u32::MAX,
        flushes,
        trace: 0,
    };
    let mut engine = Controller::new(setup, TABLE.stack(stack).unwrap());
    let group = engine.add_group(NOW, "a", Contract::default()).unwrap();
    let client = engine.add_client(NOW, group, Priority::default()).unwrap();
    (engine, group, client)
}

fn submit(engine: &mut Controller, now: Instant, client: ClientId, kib: u64) {
    let (operation, flags) = (Operation::Read, Flags::SYNC);
    let (start, length) = (Sectors::ZERO, Sectors::from_kib(kib));
    let submission = Submission { tag: kib, client, operation, flags, start, length };
    engine.submit(now, submission).unwrap();
}

/// Goal: a command is completed once, and never in the name of a later one in its slot. Method: under each scheduler, complete
/// twice, and again once the slot has another command; whole requests, and pieces of a long one.
#[test]
fn a_command_is_completed_once() {
    for row in TABLE.policies.iter().filter(|row| !row.name.contains("throttle")) {
        let Ok(stack) = TABLE.stack(&format!("none-{}", row.name)) else { continue };
        for kib in [4, 1024] {
            let (mut engine, _, client) = engine(stack.name());
            let other = engine.add_client(NOW, GroupId::ROOT, Priority::default()).unwrap();
            let mut done = Vec::new();
            let mut old: Vec<CommandId> = Vec::new();
            for round in 1..20 {
                let now = Instant(NOW.0 * round * 20);
                [client, other].iter().for_each(|client| submit(&mut engine, now, *client, kib));
                let mut now = now;
                while engine.pending() > 0 {
                    while let Some(Dispatch { command, .. }) = engine.dispatch(now) {
                        for stale in &old {
                            let refused = engine.complete(now, *stale, 0, &mut done);
                            assert_eq!(refused, Err(EngineError::NotInDrive(*stale)));
                            assert_eq!(engine.parts(*stale).count(), 0);
                        }
                        assert!(engine.parts(command).count() > 0);
                        engine.complete(now, command, 0, &mut done).unwrap();
                        old.push(command);
                    }
                    now = engine.next_wakeup().unwrap_or(now).max(now);
                }
                assert_eq!(done.drain(..).count(), 2, "{} {kib}", row.name);
                assert_eq!((engine.in_flight(), engine.slots_of(GroupId::ROOT)), (0, 0));
            }
            let bits = old[0].to_bits();
            assert_eq!(CommandId::from_bits(bits), old[0]);
        }
    }
    let (mut engine, ..) = engine("none-none");
    let never = CommandId::from_bits(u64::MAX);
    let refused = engine.complete(NOW, never, 0, &mut Vec::new());
    assert_eq!(refused, Err(EngineError::NotInDrive(never)));
}

/// Goal: no contract that a policy could not keep gets in. Method: weights, ceilings and latencies outside what is allowed,
/// for a new group and for one that is there.
#[test]
fn bad_contracts_are_refused() {
    let (mut engine, group, _) = engine("promise");
    let zero = Limits { bytes_per_s: [None, Some(0)], ..Limits::NONE };
    let bad = [
        (Contract { weight: 0, ..Contract::default() }, EngineError::BadWeight(0)),
        (Contract { weight: 1001, ..Contract::default() }, EngineError::BadWeight(1001)),
        (Contract { max: zero, ..Contract::default() }, EngineError::Zero("a ceiling")),
        (
            Contract { latency: Latency::of_reads(Nanos::ZERO), ..Contract::default() },
            EngineError::Zero("a latency"),
        ),
    ];
    for (contract, error) in bad {
        assert!(!error.to_string().is_empty());
        let added = engine.add_group(NOW, "new/one", contract.clone());
        assert_eq!(added, Err(error.clone()));
        assert!(engine.groups().find("new").is_none(), "nor the group above it");
        let added = engine.add_group_under(NOW, "under", GroupId::ROOT, contract.clone());
        assert_eq!(added, Err(error.clone()));
        assert_eq!(engine.update_group(NOW, group, contract), Err(error));
    }
    assert_eq!(engine.groups().group(group).contract, Contract::default());
}

/// Goal: unknown ids are refused, and so are ids of a removed group and client whose indices were reused. Method: each call
/// with ids that never existed and with stale ones, after a removal and beside the successors, which keep their contract,
/// their request and their counters.
#[test]
fn unknown_ids_are_refused() {
    let (mut engine, group, client) = engine("promise");
    engine.remove_client(NOW, client).unwrap();
    engine.remove_group(NOW, group).unwrap();
    refuses(&mut engine, group, client);
    refuses(&mut engine, GroupId::from_bits(999), ClientId::from_bits(999));

    let contract = Contract { weight: 7, ..Contract::default() };
    let next_group = engine.add_group(NOW, "next", contract.clone()).unwrap();
    let next = engine.add_client(NOW, next_group, Priority::default()).unwrap();
    assert_eq!((next_group.index(), next.index()), (group.index(), client.index()), "reused");
    assert_eq!(engine.groups().group_id(group.index()), Some(next_group));
    assert_eq!(engine.groups().client_id(client.index()), Some(next));
    submit(&mut engine, NOW, next, 4);
    refuses(&mut engine, group, client);
    assert_eq!((engine.pending_of(next), engine.slots_of(next_group)), (1, 1));
    assert_eq!(engine.groups().group(next_group).contract, contract);
    let dispatch = engine.dispatch(NOW).unwrap();
    let mut done = Vec::new();
    engine.complete(NOW, dispatch.command, 0, &mut done).unwrap();
    assert_eq!(done[0].part.client, next);
    refuses(&mut engine, group, client);
    assert_eq!(engine.counters(next).requests, [1, 0]);
    assert_eq!(engine.set_tags(0), Err(EngineError::NoTags));
    engine.set_tags(1).unwrap();
}

/// Every call with these ids is refused and changes nothing.
fn refuses(engine: &mut Controller, group: GroupId, client: ClientId) {
    let pending = engine.pending();
    let no_group = || EngineError::NoGroup(group);
    let no_client = || EngineError::NoClient(client);
    assert_eq!(engine.update_group(NOW, group, Contract::default()), Err(no_group()));
    assert_eq!(engine.remove_group(NOW, group), Err(no_group()));
    let under = engine.add_group_under(NOW, "x", group, Contract::default());
    assert_eq!(under, Err(no_group()));
    assert_eq!(engine.add_client(NOW, group, Priority::default()), Err(no_group()));
    let moved = engine.update_client(NOW, client, GroupId::ROOT, Priority::default());
    assert_eq!(moved, Err(no_client()));
    assert_eq!(engine.remove_client(NOW, client), Err(no_client()));
    assert!(!engine.has_room(client, 1) && !engine.is_held_up(client));
    assert_eq!((engine.pending_of(client), engine.slots_of(group)), (0, 0));
    assert_eq!(engine.counters(client), Default::default());
    let (tag, operation, flags) = (1, Operation::Read, Flags::NONE);
    let (start, length) = (Sectors(0), Sectors(8));
    let submission = Submission { tag, client, operation, flags, start, length };
    assert_eq!(engine.submit(NOW, submission), Err(no_client()));
    assert_eq!(engine.gather(&mut Plug::default(), submission), Err(no_client()));
    assert!(engine.groups().try_group(group).is_none());
    assert!(engine.groups().try_client(client).is_none());
    assert_eq!(engine.pending(), pending);
}

/// Goal: a clock that goes backwards does no harm: time stands still meanwhile, and somebody can see it. Method: a ceiling of
/// one request a second under a clock that jumps back by ten seconds after each.
#[test]
fn time_that_goes_backwards_stands_still() {
    let (mut engine, group, client) = engine("max-none");
    let max = Limits { iops: [Some(1); 2], ..Limits::NONE };
    engine.update_group(NOW, group, Contract { max, ..Contract::default() }).unwrap();
    let start = Instant(20_000_000_000);
    let (mut now, mut done) = (start, Vec::new());
    assert_eq!(engine.times_went_back(), 0);
    for _ in 0..5 {
        submit(&mut engine, now, client, 4);
        while engine.pending() > 0 {
            if let Some(dispatch) = engine.dispatch(now) {
                engine.complete(now, dispatch.command, 0, &mut done).unwrap();
            } else {
                now = engine.next_wakeup().unwrap();
                let before = engine.times_went_back();
                assert_eq!(engine.dispatch(Instant(now.0 - 10_000_000_000)), None);
                assert_eq!(engine.times_went_back(), before + 1);
            }
        }
    }
    assert!(now >= start + Nanos::from_secs(3), "{now:?}");
    assert!(done.is_sorted_by_key(|completion| completion.completed) && done.len() == 5);
}

/// Goal: a time that stands for "never" does no harm. Method: under each scheduler and each throttle, pass it, and the first time
/// beyond the allowed ones, to each call; the requests are then served at the usual times.
#[test]
fn a_time_that_means_never_is_ignored() {
    for row in TABLE.policies {
        let stacks = [format!("none-{}", row.name), format!("{}-none", row.name)];
        for stack in stacks.iter().filter(|stack| TABLE.stack(stack).is_ok()) {
            let (mut engine, group, client) = engine(stack);
            let (mut now, mut done) = (NOW, Vec::new());
            for never in [Instant(TIME_MAX.0 + 1), Instant::MAX] {
                let before = engine.times_went_back();
                engine.update_group(never, group, Contract::default()).unwrap();
                submit(&mut engine, never, client, 4);
                if let Some(dispatch) = engine.dispatch(never) {
                    engine.complete(never, dispatch.command, 0, &mut done).unwrap();
                }
                assert!(engine.times_went_back() >= before + 3, "{stack}");
                while engine.pending() > 0 {
                    match engine.dispatch(now) {
                        Some(sent) => engine.complete(now, sent.command, 0, &mut done).unwrap(),
                        None => now = engine.next_wakeup().unwrap().max(now),
                    }
                }
                assert!(now < Instant(1_000_000_000), "{stack}: {now:?}");
            }
            assert_eq!(done.len(), 2, "{stack}");
        }
    }
}

/// Goal: whoever reads a refusal of a range learns what is wrong with it. Method: each mistake, and its message; the position of a
/// flush is ignored.
#[test]
fn a_bad_range_is_explained() {
    let (mut engine, _, client) = engine("promise");
    let mut refused = |operation, start, length| {
        let (tag, flags) = (1, Flags::NONE);
        let (start, length) = (Sectors(start), Sectors(length));
        let submission = Submission { tag, client, operation, flags, start, length };
        engine.submit(NOW, submission).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let beyond = "8 sectors from sector 2097150 end beyond the drive, which has 2097152 sectors";
    assert_eq!(refused(Operation::Read, 2_097_150, 8), beyond);
    assert!(refused(Operation::Write, u64::MAX, u64::MAX).contains("beyond the drive"));
    assert!(refused(Operation::Discard, 0, 0).contains("only a flush has no length"));
    assert!(refused(Operation::Flush, 0, 8).contains("its length must be 0"));
    assert_eq!(refused(Operation::Read, 0, 2049), "2049 sectors in one request, at most 2048");
    assert_eq!(refused(Operation::Flush, u64::MAX, 0), "");
    let root = engine.remove_group(NOW, GroupId::ROOT).unwrap_err();
    assert_eq!(root.to_string(), "the root group cannot be removed");
}
