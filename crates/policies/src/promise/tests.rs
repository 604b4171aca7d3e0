//! The policy as a whole on flash, and which kind of drive it is built for.

mod flushes;
mod limited;

use alloc::vec::Vec;

use iofair_core::contract::{Contract, Latency};
use iofair_core::controller::{FlushRule, Submission};
use iofair_core::id::ClientId;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::{Rig, rule_name};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::{Event, EventKind};
use iofair_core::unit::Sectors;

const MS: u64 = 1_000_000;
/// The minimum in these tests: 4 KiB are worth 1 ms.
const RATE: u64 = 4096 * 1000;

fn at(ms: u64) -> Instant {
    Instant(ms * MS)
}

/// Goal: a long read is dispatched in pieces, and others pass between them. Method: 1024 sectors of one client, and 8 of
/// another one.
#[test]
fn long_requests_let_others_pass() {
    let mut rig =
        Rig::with(&crate::TABLE, "prop-promise", &[], |setup| setup.facts.rotational = false);
    let (long, short) = (rig.client(), rig.client());
    rig.controller
        .submit(
            rig.now,
            Submission {
                tag: 100,
                client: long,
                operation: Operation::Read,
                flags: Flags::NONE,
                start: Sectors(10_000),
                length: Sectors(1024),
            },
        )
        .expect("within the limit");
    rig.read(short, 5);
    let mut starts = Vec::new();
    while let Some((id, start)) = rig.dispatch() {
        starts.push(start);
        rig.now += Nanos::from_micros(100);
        rig.complete(id);
    }
    assert_eq!(starts.iter().filter(|start| **start >= 10_000).count(), 4, "{starts:?}");
    assert!(starts.iter().position(|start| *start == 5) < Some(3), "{starts:?}");
    assert_eq!(rig.controller.pending(), 0);
}

/// Goal: while a group is behind its minimum, only its requests are dispatched. Method: requests worth 1 ms that take 2 ms,
/// beside a client without a minimum; then a pause.
#[test]
fn no_client_passes_a_group_that_is_behind() {
    let mut rig =
        Rig::with(&crate::TABLE, "prop-promise", &[], |setup| setup.facts.rotational = false);
    let (promised, other) = (rig.client(), rig.client());
    let group = rig.controller.groups().client(promised).group;
    let contract = Contract { min: Some(RATE), ..Contract::default() };
    rig.controller.update_group(rig.now, group, contract).expect("it is there");
    rig.now = at(10);
    rig.reads(promised, &[1, 2]);
    rig.reads(other, &[101, 102]);
    let first = rig.dispatch().expect("due");
    assert_eq!(first.1, 1);
    rig.now = at(12);
    let second = rig.dispatch().expect("behind");
    assert_eq!((second.1, rig.dispatch()), (2, None), "the others wait");
    rig.complete(first.0);
    rig.complete(second.0);
    rig.now = at(14);
    assert_eq!(rig.served(), [101, 102], "served in the pause");
    let rules: Vec<_> = rig.controller.trace().drain().filter_map(gate_rule).collect();
    assert!(rules.starts_with(&["gate: closed to others", "gate: open"]), "{rules:?}");
}

/// The rule of a trace event about the gate.
fn gate_rule(event: Event) -> Option<&'static str> {
    let EventKind::Decision { rule, .. } = event.kind else { return None };
    rule.starts_with("gate").then(|| rule_name(rule))
}

/// Goal: clients have turns on a drive that is reported as rotational, and only there. Method: random reads of two clients that take
/// 200 us, or 8 ms as on a disk.
#[test]
fn the_drive_decides_whether_clients_have_turns() {
    let together = |rotational: bool, took: Nanos| {
        let mut rig = Rig::with(&crate::TABLE, "prop-promise", &[], |setup| {
            setup.facts.rotational = rotational;
        });
        let clients = [rig.client(), rig.client()];
        let mut most = 0;
        for place in 0..40 {
            (0..2).for_each(|client| {
                rig.read(clients[client], 10_000 * place + 5_000 * client as u64)
            });
            while rig.controller.pending() > 0 {
                let sent: Vec<_> = core::iter::from_fn(|| rig.dispatch()).collect();
                most = most.max(sent.len());
                rig.now += took;
                sent.iter().for_each(|(id, _)| rig.complete(*id));
            }
        }
        most
    };
    for took in [Nanos::from_micros(200), Nanos::from_millis(8)] {
        assert_eq!([true, false].map(|rotational| together(rotational, took)), [1, 2], "{took:?}");
    }
}

/// Goal: a client with a minimum that only flushes does not get the whole drive. Method: flushes of 2 ms, one after the
/// other, beside reads of 100 us of another client.
#[test]
fn a_loop_of_flushes_does_not_get_the_drive() {
    let mut rig = Rig::with(&crate::TABLE, "prop-promise", &[], |setup| {
        setup.facts.rotational = false;
        setup.flushes = FlushRule::Scheduled;
    });
    let (flusher, reader) = (rig.client(), rig.client());
    let group = rig.controller.groups().client(flusher).group;
    let contract = Contract { min: Some(RATE), ..Contract::default() };
    rig.controller.update_group(rig.now, group, contract).expect("it is there");
    rig.now = at(10);
    let (mut flushes, mut reads) = (0, 0);
    let flush = |rig: &mut Rig| submit(rig, flusher, Operation::Flush, 0);
    flush(&mut rig);
    rig.read(reader, 5_000);
    while rig.now < at(1010) {
        let Some((id, start)) = rig.dispatch() else {
            rig.now += Nanos::from_micros(100);
            continue;
        };
        if start == 5_000 {
            rig.now += Nanos::from_micros(100);
            rig.complete(id);
            reads += 1;
            rig.read(reader, 5_000);
        } else {
            rig.now += Nanos::from_millis(2);
            rig.complete(id);
            flushes += 1;
            flush(&mut rig);
        }
    }
    assert!(flushes > 20 && reads > 4000, "{flushes} flushes, {reads} reads");
}

/// A flush, or an awaited write of 4 KiB.
fn submit(rig: &mut Rig, client: ClientId, operation: Operation, start: u64) {
    let length = if operation == Operation::Flush { 0 } else { 8 };
    let (start, length, flags) = (Sectors(start), Sectors(length), Flags::SYNC);
    let submission = Submission { tag: start.0, client, operation, flags, start, length };
    rig.controller.submit(rig.now, submission).expect("within the limit");
}

/// A rig on flash with a client whose group has latency contracts of 300 us, and another client.
fn urgent_and_other() -> (Rig, ClientId, ClientId) {
    let mut rig = Rig::with(&crate::TABLE, "prop-promise", &[], |setup| {
        setup.facts.rotational = false;
        setup.flushes = FlushRule::Scheduled;
    });
    let (urgent, other) = (rig.client(), rig.client());
    let group = rig.controller.groups().client(urgent).group;
    let [read, write, sync] = [Some(Nanos::from_micros(300)); 3];
    let contract = Contract { latency: Latency { read, write, sync }, ..Contract::default() };
    rig.controller.update_group(rig.now, group, contract).expect("it is there");
    rig.now = at(10);
    (rig, urgent, other)
}

/// Goal: a burst of a group with a latency contract is served before earlier requests of others. Method: 32 reads of
/// another client, one of which is dispatched; then a burst of eight.
#[test]
fn a_burst_goes_before_its_turn() {
    let (mut rig, urgent, other) = urgent_and_other();
    let places = |from: u64, count: u64| (0..count).map(|n| from + 100 * n).collect::<Vec<_>>();
    rig.reads(other, &places(50_000, 32));
    rig.serve();
    rig.reads(urgent, &places(1_000, 8));
    let served = rig.served();
    assert_eq!(served[..8], places(1_000, 8), "{served:?}");
    assert_eq!(served.len(), 39);
}

/// Goal: a commit of a group with latency contracts passes earlier writes of others; a flush waits for the writes in flight, and they
/// for it. Method: 32 writes of another client, one of which is dispatched; then a write and a flush.
#[test]
fn a_commit_goes_before_its_turn() {
    let (mut rig, urgent, other) = urgent_and_other();
    (0..32).for_each(|n| submit(&mut rig, other, Operation::Write, 50_000 + 100 * n));
    let (first, _) = rig.dispatch().expect("one of them");
    submit(&mut rig, urgent, Operation::Write, 1_000);
    let (write, start) = rig.dispatch().expect("the write");
    assert_eq!(start, 1_000);
    submit(&mut rig, urgent, Operation::Flush, 0);
    rig.complete(write);
    assert_eq!(rig.dispatch(), None, "a write is in flight");
    rig.complete(first);
    // The engine looks at the next command, which may be a flush too, and sends it before the flush.
    let starts: Vec<u64> = (0..2).filter_map(|_| rig.dispatch()).map(|(_, start)| start).collect();
    assert_eq!(starts, [50_100, 0]);
}

/// Goal: the reads of a client that starts go first and alone, and others wait for the next one for a moment. Method: a client with
/// reads queued, and one that reads for the first time after a second.
#[test]
fn a_start_goes_first_and_alone() {
    let (mut rig, _, other) = urgent_and_other();
    let starter = rig.client();
    rig.reads(other, &(0..40).map(|n| 50_000 + 100 * n).collect::<Vec<_>>());
    let (first, _) = rig.dispatch().expect("one of them");
    rig.now = at(1_100);
    rig.read(starter, 1_000);
    let (read, start) = rig.dispatch().expect("the start");
    assert_eq!((start, rig.dispatch()), (1_000, None), "it is alone");
    [first, read].into_iter().for_each(|id| rig.complete(id));
    assert_eq!(rig.dispatch(), None, "the next read of the start may come");
    assert_eq!(rig.controller.next_wakeup(), Some(at(1_101)));
    rig.now = at(1_101);
    assert!(rig.dispatch().is_some_and(|(_, start)| start >= 50_000));
}

/// Goal: a start delays no client that pauses. Method: a client that had a read and then none for half a second, while a
/// start is in flight: its next read goes at once, and one more waits.
#[test]
fn a_client_that_pauses_waits_for_no_start() {
    let (mut rig, _, light) = urgent_and_other();
    let starter = rig.client();
    rig.now = at(600);
    rig.read(light, 50_000);
    let (read, _) = rig.dispatch().expect("nobody else is there");
    rig.complete(read);
    rig.now = at(1_100);
    rig.read(starter, 1_000);
    rig.dispatch().expect("the start");
    rig.reads(light, &[60_000, 70_000]);
    let starts = [0, 1].map(|_| rig.dispatch().map(|(_, start)| start));
    assert_eq!(starts, [Some(60_000), None]);
}

/// Goal: nobody lives on starts. Method: a client that reads for one second and pauses for one and a half, again and again, beside one
/// that always reads: half of the time in which both do, an eighth of all, and what starts have at once.
#[test]
fn starts_are_bounded() {
    const READ: Nanos = Nanos::from_micros(100);
    let (mut rig, _, other) = urgent_and_other();
    let starter = rig.client();
    (0..8).for_each(|n| rig.read(other, 50_000 + 100 * n));
    let (mut time, mut next, mut ends) = (Nanos::ZERO, at(1_100), at(2_100));
    let mut has_read = false;
    while rig.now < at(30_000) {
        if !has_read && rig.now >= next && rig.now < ends {
            rig.read(starter, 1_000);
            has_read = true;
        } else if rig.now >= ends {
            (next, ends) =
                (rig.now + Nanos::from_millis(1_500), rig.now + Nanos::from_millis(2_500));
        }
        let sent = rig.dispatch();
        rig.now += READ;
        match sent {
            Some((id, 1_000)) => {
                (time, has_read) = (time + READ, false);
                rig.complete(id);
            }
            Some((id, start)) => {
                rig.complete(id);
                rig.read(other, start);
            }
            None => {}
        }
    }
    let range = Nanos::from_millis(5_000)..Nanos::from_millis(12_000 / 2 + 30_000 / 8 + 500);
    assert!(range.contains(&time), "{time}");
}

/// Goal: the level of an I/O priority weighs within the group, and a change counts at once. Method: two clients of one group that always
/// have reads queued, with levels 0 and 7 (8 to 1), then with equal ones.
#[test]
fn levels_weigh_within_a_group() {
    const READ: Nanos = Nanos::from_micros(8);
    let (mut rig, _, other) = urgent_and_other();
    let group = rig.controller.groups().client(other).group;
    let best_effort = |level| Priority { level, ..Priority::default() };
    let clients = [0, 7].map(|level| {
        let added = rig.controller.add_client(rig.now, group, best_effort(level));
        added.expect("the group is there")
    });
    clients.iter().for_each(|client| {
        (0..8).for_each(|n| rig.read(*client, client.to_bits() * 1_000_000 + 100 * n))
    });
    let served = |rig: &mut Rig| {
        let mut served = [0u32; 2];
        while served[0] + served[1] < 18_000 {
            let sent = rig.dispatch();
            rig.now += READ;
            let Some((id, start)) = sent else { continue };
            rig.complete(id);
            let index = clients.iter().position(|client| start / 1_000_000 == client.to_bits());
            served[index.expect("one of the two")] += 1;
            rig.read(clients[index.expect("one of the two")], start);
        }
        served
    };
    let [most, least] = served(&mut rig);
    assert!(most.abs_diff(16_000) < 1_500, "{most} {least}");
    for client in clients {
        rig.controller.update_client(rig.now, client, group, best_effort(4)).expect("it is there");
    }
    let [one, other] = served(&mut rig);
    assert!(one.abs_diff(other) < 2_000, "{one} {other}");
}

/// Goal: a latency contract does not enlarge the share of a client that always asks for more. Method: two clients that
/// always have reads queued get half each, apart from what a burst may take ahead.
#[test]
fn a_latency_is_no_larger_share() {
    /// 4 KiB at the rate assumed before measurements.
    const READ: Nanos = Nanos::from_micros(8);
    let (mut rig, urgent, other) = urgent_and_other();
    let mut served = [0u32; 2];
    for client in [urgent, other] {
        (0..8).for_each(|n| rig.read(client, client.to_bits() * 1_000_000 + 100 * n));
    }
    for turn in 0..40_000 {
        let Some((id, start)) = rig.dispatch() else {
            rig.now += READ;
            continue;
        };
        rig.now += READ;
        rig.complete(id);
        let index = if start / 1_000_000 == urgent.to_bits() { 0 } else { 1 };
        served[index] += 1;
        let client = [urgent, other][index];
        rig.read(client, client.to_bits() * 1_000_000 + 1_000 + 100 * (turn % 1000));
    }
    let [mine, others] = served;
    assert!(mine + others > 39_000 && mine.abs_diff(others) < 8_000, "{served:?}");
}
