//! The journey itself, with the simplest policies.

use iofair_core::contract::{Burst, Contract, Limits, Total};
use iofair_core::controller::{Controller, Dispatch, FlushRule, Held, Plug, Setup, Submission};
use iofair_core::error::EngineError;
use iofair_core::id::{ClientId, CommandId, GroupId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation, Request};
use iofair_core::time::Instant;
use iofair_core::trace::{EventKind, Subject};
use iofair_core::unit::Sectors;

fn setup() -> Setup {
    let facts = DriveFacts {
        rotational: false,
        depth: 4,
        max_request: Sectors::from_kib(256),
        capacity: Sectors::from_kib(1 << 20),
    };
    Setup {
        facts,
        tags: 8,
        queue_limit: 64,
        guaranteed: 8,
        client_limit: u32::MAX,
        flushes: FlushRule::Bypass,
        trace: 0,
    }
}

fn controller() -> (Controller, ClientId) {
    let mut controller =
        Controller::new(setup(), iofair_baselines::TABLE.stack("none-none").expect("in the table"));
    let group = controller.add_group(Instant::ZERO, "a/b", Contract::default()).expect("new");
    let client = controller.add_client(Instant::ZERO, group, Priority::default()).expect("new");
    (controller, client)
}

fn request(client: ClientId, tag: u64, operation: Operation, start: u64) -> Submission {
    let length = if operation == Operation::Flush { Sectors(0) } else { Sectors(8) };
    Submission { tag, client, operation, flags: Flags::NONE, start: Sectors(start), length }
}

fn complete(controller: &mut Controller, id: CommandId) -> Vec<u64> {
    let mut done = Vec::new();
    controller.complete(Instant(9), id, 0, &mut done).expect("the drive has it");
    done.iter().map(|c| c.part.tag).collect()
}

/// Goal: a flush goes out only after the writes its client sent before it, and not after later ones.
/// Method: write, flush, write; completion the writes in both orders.
#[test]
fn a_flush_never_passes_the_writes_it_covers() {
    let (mut c, client) = controller();
    for (tag, operation) in [(1, Operation::Write), (2, Operation::Flush), (3, Operation::Write)] {
        c.submit(Instant(tag), request(client, tag, operation, tag * 100)).expect("accepted");
    }
    let first = c.dispatch(Instant(4)).expect("the first write");
    let second = c.dispatch(Instant(4)).expect("the later write may pass the flush");
    assert_eq!(c.dispatch(Instant(4)), None, "the flush waits");
    assert_eq!(complete(&mut c, second.command), [3]);
    assert_eq!(c.dispatch(Instant(5)), None, "the later write does not free it");
    assert_eq!(complete(&mut c, first.command), [1]);
    let flush = c.dispatch(Instant(6)).expect("now it goes");
    assert_eq!(flush.operation, Operation::Flush);
    assert_eq!(complete(&mut c, flush.command), [2]);
    assert_eq!(c.pending(), 0);
}

/// Goal: flushes that wait for a running one go out as one command. Method: three flushes.
#[test]
fn waiting_flushes_share_one_command() {
    let (mut c, client) = controller();
    let flush = |c: &mut Controller, tag| {
        c.submit(Instant(tag), request(client, tag, Operation::Flush, 0)).expect("accepted");
    };
    flush(&mut c, 1);
    let first = c.dispatch(Instant(2)).expect("free");
    flush(&mut c, 2);
    flush(&mut c, 3);
    assert_eq!(c.dispatch(Instant(3)), None);
    assert_eq!(complete(&mut c, first.command), [1]);
    let second = c.dispatch(Instant(4)).expect("both");
    assert_eq!(complete(&mut c, second.command), [2, 3]);
}

/// Goal: where each client has its own drive beneath it, a flush of one neither waits for another's nor covers
/// it, and flushes of one client still share. Method: two clients; the first one's flush stays in flight.
#[test]
fn separate_flushes_run_side_by_side() {
    let (mut c, first) = controller();
    c.separate_flushes();
    let group = c.groups().find("a/b").expect("just made");
    let second = c.add_client(Instant::ZERO, group, Priority::default()).expect("new");
    let flush = |c: &mut Controller, client, tag| {
        c.submit(Instant(tag), request(client, tag, Operation::Flush, 0)).expect("accepted");
    };
    flush(&mut c, first, 1);
    let slow = c.dispatch(Instant(2)).expect("free");
    for (client, tag) in [(first, 2), (second, 3), (first, 4), (second, 5)] {
        flush(&mut c, client, tag);
    }
    let other = c.dispatch(Instant(6)).expect("the second client's");
    assert_eq!(c.dispatch(Instant(6)), None, "the first client's wait for the one under way");
    assert_eq!(complete(&mut c, other.command), [3, 5]);
    assert_eq!(complete(&mut c, slow.command), [1]);
    let last = c.dispatch(Instant(7)).expect("the rest of the first client's");
    assert_eq!(complete(&mut c, last.command), [2, 4]);
    assert_eq!((c.dispatch(Instant(8)), c.pending()), (None, 0));
}

/// Goal: a plug merges what is adjacent, and every piece is completed. Method: 3 + 1 reads.
#[test]
fn a_plug_merges_adjacent_requests() {
    let (mut c, client) = controller();
    let mut plug = Plug::new();
    for (tag, start) in [(1, 0), (2, 8), (3, 16), (4, 100)] {
        assert!(!plug.add(request(client, tag, Operation::Read, start)));
    }
    c.unplug(Instant(1), &mut plug).expect("accepted");
    let merged = c.dispatch(Instant(1)).expect("one of three");
    assert_eq!((merged.start, merged.length), (Sectors(0), Sectors(24)));
    let starts: Vec<_> = c.parts(merged.command).map(|part| part.start.0).collect();
    assert_eq!(starts, [0, 8, 16]);
    assert_eq!(complete(&mut c, merged.command), [1, 2, 3]);
    let single = c.dispatch(Instant(1)).expect("the far one");
    assert_eq!(complete(&mut c, single.command), [4]);
    assert_eq!(c.counters(client).merged, 2);
}

/// Goal: a ceiling counts what a client sent, and what it lets go together is merged. Method: 100 requests a second with a
/// burst of four, and blk-throttle's slice of ten, for a plug of adjacent writes; then the rest one by one.
#[test]
fn a_ceiling_counts_what_a_plug_merges() {
    let spaced = Burst { bytes: None, requests: Some(4) };
    for (burst, first) in [(spaced, 4), (Burst::default(), 10)] {
        let stack = iofair_baselines::TABLE.stack("max-none").expect("in the table");
        let mut c = Controller::new(setup(), stack);
        let max = Limits { iops: [Some(100); 2], burst, ..Limits::NONE };
        let contract = Contract { max, ..Contract::default() };
        let group = c.add_group(Instant::ZERO, "a", contract).expect("new");
        let client = c.add_client(Instant::ZERO, group, Priority::default()).expect("new");
        let mut plug = Plug::new();
        for tag in 0..12 {
            plug.add(request(client, tag, Operation::Write, 8 * tag));
        }
        c.unplug(Instant(1), &mut plug).expect("accepted");
        let sent = c.dispatch(Instant(1)).expect("what may go at once");
        assert_eq!(sent.length, Sectors(8 * first), "as one command");
        assert_eq!(complete(&mut c, sent.command), (0..first).collect::<Vec<_>>());
        assert_eq!(c.dispatch(Instant(1)), None);
        let mut left = 12 - first;
        while left > 0 {
            let wakeup = c.next_wakeup().expect("some are held");
            let sent = c.dispatch(wakeup).expect("it is due");
            left -= complete(&mut c, sent.command).len() as u64;
            let passed = 12 - left - first;
            assert!(wakeup.0 / 10_000_000 + first >= passed, "{passed} more at {wakeup:?}");
        }
    }
}

/// Goal: the pieces of a request that is cut before the engine count as one for a ceiling, also as trims. Method: one request
/// a second with a burst of two: of two requests in three pieces each all pass, and then nothing for a second.
#[test]
fn pieces_count_as_the_request() {
    for operation in [Operation::Read, Operation::Write, Operation::Discard] {
        let stack = iofair_baselines::TABLE.stack("max-none").expect("in the table");
        let mut c = Controller::new(setup(), stack);
        let burst = Burst { bytes: Some(1024), requests: Some(2) };
        let total = Total { bytes_per_s: None, iops: Some(1) };
        let trims = Total { bytes_per_s: Some(512), ..total };
        let total = if operation == Operation::Discard { trims } else { total };
        let contract =
            Contract { max: Limits { total, burst, ..Limits::NONE }, ..Contract::default() };
        let group = c.add_group(Instant::ZERO, "a", contract).expect("new");
        let client = c.add_client(Instant::ZERO, group, Priority::default()).expect("new");
        let mut plug = Plug::new();
        for tag in 0..7 {
            let flags = if tag % 3 == 0 { Flags::NONE } else { Flags::CONTINUES };
            plug.add(Submission { flags, ..request(client, tag, operation, 100 * tag) });
        }
        c.unplug(Instant(1), &mut plug).expect("accepted");
        let sent: Vec<_> = core::iter::from_fn(|| c.dispatch(Instant(1))).collect();
        assert_eq!(sent.len(), 6.min(setup().facts.depth as usize), "{operation:?}: {sent:?}");
        assert_eq!(c.next_wakeup(), Some(Instant(1_000_000_001)));
    }
}

/// Goal: what was merged in a stack that is replaced counts for the ceilings of the next one, one by one. Method: a plug of
/// eight under a scheduler alone, then a ceiling with a burst of two.
#[test]
fn merged_requests_are_handed_over_one_by_one() {
    let table = &iofair_baselines::TABLE;
    let mut c = Controller::new(setup(), table.stack("none-noop").expect("in the table"));
    let burst = Burst { bytes: None, requests: Some(2) };
    let max = Limits { iops: [Some(1); 2], burst, ..Limits::NONE };
    let contract = Contract { max, ..Contract::default() };
    let group = c.add_group(Instant::ZERO, "a", contract).expect("new");
    let client = c.add_client(Instant::ZERO, group, Priority::default()).expect("new");
    let mut plug = Plug::new();
    for tag in 0..8 {
        plug.add(request(client, tag, Operation::Read, 8 * tag));
    }
    c.unplug(Instant(1), &mut plug).expect("accepted");
    c.switch(Instant(2), table.stack("max-noop").expect("in the table"));
    let sent = c.dispatch(Instant(2)).expect("two of them");
    assert_eq!(complete(&mut c, sent.command), [0, 1]);
    assert_eq!((c.dispatch(Instant(2)), c.pending()), (None, 6));
}

/// Goal: what cannot be taken is refused and changes nothing. Method: each rule once.
#[test]
fn bad_submissions_are_refused() {
    let (mut c, client) = controller();
    let past = request(client, 1, Operation::Read, 2 << 20);
    assert!(matches!(c.submit(Instant(0), past), Err(EngineError::BadRange { .. })));
    let nobody = request(ClientId::from_bits(9), 1, Operation::Read, 0);
    assert_eq!(c.submit(Instant(0), nobody), Err(EngineError::NoClient(ClientId::from_bits(9))));
    let long = |operation| {
        let length = Sectors::from_kib(256) + Sectors(1);
        Submission { length, ..request(client, 1, operation, 0) }
    };
    let too_long = EngineError::TooLong { length: Sectors(513), longest: Sectors(512) };
    assert_eq!(c.submit(Instant(0), long(Operation::Read)), Err(too_long.clone()));
    assert_eq!(c.gather(&mut Plug::new(), long(Operation::Write)), Err(too_long));
    assert_eq!(c.pending_of(client), 0);
    // What carries no data may be this long.
    let trim = c.submit(Instant(0), long(Operation::Discard)).expect("accepted");
    let sent = c.dispatch(Instant(0)).expect("nothing else is there");
    assert_eq!(sent.id, trim);
    assert_eq!(complete(&mut c, sent.command), [1]);
    // Its guarantee, then half of what its parent may hold of the pool, which is half of the pool.
    let taken = take_all(&mut c, client);
    assert_eq!((taken, c.pending()), (8 + 22, 30));
    let full = c.submit(Instant(0), request(client, 64, Operation::Read, 0));
    assert_eq!(full, Err(EngineError::Full(c.groups().client(client).group)));
    assert_eq!(c.pending(), 30);
}

/// Goal: looking in parts sees what one look sees, and each part is bounded, merged requests included. Method: a plug
/// merges four into two; parts of every size.
#[test]
fn a_query_in_parts_is_bounded() {
    let (mut c, client) = controller();
    let mut plug = Plug::new();
    for (tag, start) in [(1, 0), (2, 8), (3, 16), (4, 100)] {
        plug.add(request(client, tag, Operation::Read, start));
    }
    c.unplug(Instant(1), &mut plug).expect("accepted");
    c.submit(Instant(2), request(client, 5, Operation::Write, 200)).expect("accepted");
    let whole: Vec<u64> = c.held(|_| true).map(|held| held.request.tag).collect();
    assert_eq!(whole, [1, 4, 5]);
    for most in 1..8 {
        let (mut seen, mut next) = (Vec::new(), Some(0));
        while let Some(first) = next {
            let (mut asked, mut parts) = (core::cell::Cell::new(0), 0);
            let each = |held: Held<'_>| {
                parts += held.parts - 1;
                seen.push(held.request.tag);
            };
            let wanted = |_: &Request| {
                asked.set(asked.get() + 1);
                true
            };
            next = c.look_at(first, most, wanted, each);
            // The last one may be merged of several.
            assert!(*asked.get_mut() <= most && parts <= most + 2, "{most}");
            assert!(next.is_none_or(|next| next > first));
        }
        assert_eq!(seen, whole);
    }
}

/// Submits reads until one is refused; says how many were taken in.
fn take_all(c: &mut Controller, client: ClientId) -> u32 {
    let mut taken = 0;
    while c.has_room(client, 1) {
        let start = u64::from(taken) * 16;
        c.submit(Instant(0), request(client, 0, Operation::Read, start)).expect("has room");
        taken += 1;
    }
    taken
}

/// Goal: the backlog of one group does not use the slots of another. Method: one group is throttled to 1 B/s and
/// submits until it is refused; a group that comes later has its guarantee and half of the reserve.
#[test]
fn a_backlog_leaves_slots_to_other_groups() {
    let stack = iofair_baselines::TABLE.stack("max-none").expect("in the table");
    let mut c = Controller::new(Setup { guaranteed: 8, queue_limit: 640, ..setup() }, stack);
    let slow = Contract { max: Limits::both(1), ..Contract::default() };
    let client = |c: &mut Controller, name, contract| {
        let group = c.add_group(Instant::ZERO, name, contract).expect("new");
        c.add_client(Instant::ZERO, group, Priority::default()).expect("new")
    };
    let (bad, good) = (client(&mut c, "bad", slow), client(&mut c, "good", Contract::default()));
    assert_eq!(take_all(&mut c, bad), 8 + 320);
    assert_eq!(take_all(&mut c, good), 8 + 160);
    assert_eq!((c.pending_of(bad), c.pending_of(good)), (328, 168));

    // The reads of the good one are all served, and as many come in again.
    while let Some(command) = c.dispatch(Instant(1)) {
        complete(&mut c, command.command);
    }
    assert_eq!((c.pending_of(bad), c.pending_of(good)), (328, 0));
    assert_eq!(take_all(&mut c, good), 8 + 160);
}

/// Goal: a greedy client leaves slots to another client of its group, and is refused with the error that says why. Method: a
/// client of a throttled group submits until it is refused, without a limit and with one of 100; then another client of the
/// group does. The greedy one goes on when its requests complete.
#[test]
fn a_greedy_client_leaves_slots_to_its_group() {
    for (client_limit, expected) in [(u32::MAX, [328, 0]), (100, [100, 100])] {
        let stack = iofair_baselines::TABLE.stack("none-none").expect("in the table");
        let limits = Setup { guaranteed: 8, queue_limit: 640, client_limit, ..setup() };
        let mut c = Controller::new(limits, stack);
        let group = c.add_group(Instant::ZERO, "g", Contract::default()).expect("new");
        let [greedy, other] = [0, 1].map(|_| {
            c.add_client(Instant::ZERO, group, Priority::default()).expect("the group is there")
        });
        assert_eq!([greedy, other].map(|client| take_all(&mut c, client)), expected);
        let read = request(greedy, 0, Operation::Read, 0);
        let refused = match client_limit {
            u32::MAX => EngineError::Full(group),
            limit => EngineError::ClientFull { client: greedy, limit },
        };
        assert_eq!(c.submit(Instant::ZERO, read), Err(refused.clone()));
        assert_eq!(c.gather(&mut Plug::new(), read), Err(refused));
        assert_eq!(c.pending_of(greedy), expected[0]);

        while let Some(command) = c.dispatch(Instant(1)) {
            complete(&mut c, command.command);
        }
        assert_eq!(c.pending(), 0);
        assert_eq!(take_all(&mut c, greedy), expected[0]);
    }
}

/// Goal: what a plug has gathered is never refused, and keeps its slot and group whatever happens before it is
/// submitted. Method: gather until refused, move the client, submit.
#[test]
fn gathered_requests_have_their_slots() {
    let (mut c, client) = controller();
    let mut plug = Plug::new();
    while plug.len() < 30 {
        let next = request(client, 1, Operation::Read, 16 * plug.len() as u64);
        c.gather(&mut plug, next).expect("has room");
    }
    let old = c.groups().client(client).group;
    let full = c.gather(&mut plug, request(client, 1, Operation::Read, 0));
    assert_eq!((full, c.slots_of(old), c.pending()), (Err(EngineError::Full(old)), 30, 0));
    assert!(c.remove_client(Instant(0), client).is_err(), "it has requests");
    let new = c.add_group(Instant(0), "c", Contract::default()).expect("new");
    c.update_client(Instant(0), client, new, Priority::default()).expect("both are there");
    assert!(c.remove_group(Instant(0), old).is_err(), "it has requests");
    c.unplug(Instant(0), &mut plug).expect("all have slots");
    assert_eq!((c.slots_of(old), c.slots_of(new), c.pending()), (30, 0, 30));
    while let Some(command) = c.dispatch(Instant(1)) {
        complete(&mut c, command.command);
    }
    assert_eq!((c.slots_of(old), c.pending_of(client)), (0, 0));
    c.remove_group(Instant(2), old).expect("empty");
    c.remove_client(Instant(2), client).expect("idle");
}

/// Goal: what still holds something is not removed. Method: remove top-down, then bottom-up.
#[test]
fn groups_go_bottom_up() {
    let (mut c, client) = controller();
    let b = c.groups().find("a/b").expect("made");
    let a = c.groups().find("a").expect("made on the way");
    assert!(c.remove_group(Instant(0), a).is_err());
    assert!(c.remove_group(Instant(0), b).is_err());
    assert!(c.remove_group(Instant(0), GroupId::ROOT).is_err());
    c.remove_client(Instant(0), client).expect("idle");
    c.remove_group(Instant(0), b).expect("empty");
    c.remove_group(Instant(0), a).expect("empty");
}

/// Goal: a freed tag goes to who waits longest, whatever its class. Method: writes take all 8 tags, a
/// read waits, and a write comes in the moment a tag is free.
#[test]
fn a_newcomer_takes_no_tag_before_a_waiter() {
    let (mut c, client) = controller();
    for tag in 1..=8 {
        let write = request(client, tag, Operation::Write, tag * 100);
        c.submit(Instant(tag), write).expect("accepted");
    }
    let dispatched: Vec<_> = std::iter::from_fn(|| c.dispatch(Instant(9))).collect();
    c.submit(Instant(10), request(client, 9, Operation::Read, 5_000)).expect("accepted");
    let mut done = Vec::new();
    c.complete(Instant(11), dispatched[0].command, 0, &mut done).expect("the drive has it");
    c.submit(Instant(11), request(client, 10, Operation::Write, 6_000)).expect("accepted");
    let mut order = Vec::new();
    for now in 12.. {
        let Some(dispatch) = c.dispatch(Instant(now)) else { break };
        order.extend(c.parts(dispatch.command).map(|part| part.tag));
        c.complete(Instant(now), dispatch.command, 0, &mut done).expect("the drive has it");
    }
    assert_eq!(order, [5, 6, 7, 8, 9, 10]);
}

/// Goal: the trace tells of every way a request goes: waiting for a tag and getting it, merging, and a flush
/// that shares another's command. Method: one tag, neighbours, two flushes.
#[test]
fn the_trace_records_every_path() {
    let setup = Setup { tags: 1, trace: 64, ..setup() };
    let mut c =
        Controller::new(setup, iofair_baselines::TABLE.stack("none-noop").expect("in the table"));
    let client = c.add_client(Instant::ZERO, GroupId::ROOT, Priority::default()).expect("new");
    for (tag, start) in [(1, 0), (2, 8), (3, 800)] {
        c.submit(Instant(tag), request(client, tag, Operation::Read, start)).expect("accepted");
    }
    let first = c.dispatch(Instant(4)).expect("two in one");
    assert_eq!(complete(&mut c, first.command), [1, 2]);
    let second = c.dispatch(Instant(10)).expect("it has the tag now");
    assert_eq!(complete(&mut c, second.command), [3]);
    let mut events = |sequence: u64| -> Vec<EventKind> {
        let about = |event: &iofair_core::trace::Event| matches!(event.subject, Subject::Request { sequence: of, .. } if of == sequence);
        let events: Vec<_> = c.trace().drain().collect();
        for event in &events {
            c.trace().push(event.at, event.subject, event.kind);
        }
        events.into_iter().filter(about).map(|event| event.kind).collect()
    };
    use EventKind::{Completed, Dispatched, Entered, GotTag, Merged, Submitted, WaitsForTag};
    let entered = Entered { stage: 0 };
    assert_eq!(events(1), [Submitted, entered, Dispatched, Completed]);
    assert_eq!(events(2), [Submitted, entered, Merged { into: first.id }]);
    let waits = WaitsForTag { used: 1, limit: 1 };
    assert_eq!(events(3), [Submitted, entered, waits, GotTag, Dispatched, Completed]);
    let flush = |c: &mut Controller, tag| {
        c.submit(Instant(tag), request(client, tag, Operation::Flush, 0)).expect("accepted");
    };
    flush(&mut c, 4);
    let running = c.dispatch(Instant(11)).expect("free");
    (5..=6).for_each(|tag| flush(&mut c, tag));
    assert_eq!(complete(&mut c, running.command), [4]);
    let shared = c.dispatch(Instant(12)).expect("both");
    assert_eq!(complete(&mut c, shared.command), [5, 6]);
    let told: Vec<_> = c.trace().drain().map(|event| event.kind).collect();
    assert_eq!(told[told.len() - 3..], [Dispatched, Completed, Completed]);
}

/// Goal: a client waits for a tag over one request at a time, so that a pile of one client's is overtaken by
/// another's; and it sleeps as long as it waits. Method: all tags taken, five requests of one client, one of
/// another.
#[test]
fn sleepers_are_clients_and_not_requests() {
    let (mut c, first) = controller();
    let group = c.groups().client(first).group;
    let second = c.add_client(Instant::ZERO, group, Priority::default()).expect("new");
    for tag in 0..14 {
        let client = if tag == 13 { second } else { first };
        c.submit(Instant(tag), request(client, tag, Operation::Read, tag * 100)).expect("accepted");
    }
    assert!(c.is_held_up(first) && c.is_held_up(second));
    let mut order = Vec::new();
    while c.pending() > 0 {
        let sent = c.dispatch(Instant(20)).expect("there is work and the drive is free");
        order.extend(complete(&mut c, sent.command));
        assert_eq!(c.is_held_up(second), !order.contains(&2));
    }
    // Eight tags; request 8 slept first, then 13, and the rest of the first client behind both.
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 9, 10, 11, 12]);
}

/// Goal: what a throttle puts aside does not make its submitter sleep, and one worker sends it. Method: a limit of one request
/// a slice, then many tags' worth let go at once.
#[test]
fn held_requests_do_not_block_the_submitter() {
    let mut setup = setup();
    setup.tags = 2;
    let mut c =
        Controller::new(setup, iofair_baselines::TABLE.stack("max-none").expect("in the table"));
    let mut contract = Contract::default();
    contract.max.bytes_per_s = [Some(8192 * 10); 2];
    let slow = c.add_group(Instant::ZERO, "slow", contract).expect("new");
    let slow = c.add_client(Instant::ZERO, slow, Priority::default()).expect("new");
    let free = c.add_group(Instant::ZERO, "free", Contract::default()).expect("new");
    let free = c.add_client(Instant::ZERO, free, Priority::default()).expect("new");
    for tag in 0..12 {
        c.submit(Instant(0), request(slow, tag, Operation::Write, tag * 100)).expect("accepted");
    }
    let taken = [c.dispatch(Instant(0)), c.dispatch(Instant(0))].map(|sent| sent.expect("passes"));
    assert_eq!(c.dispatch(Instant(0)), None);
    assert!(!c.is_held_up(slow), "ten are held, and it may go on");
    let mut later = Instant::ZERO + iofair_core::time::Nanos::from_secs(10);
    while c.next_wakeup().is_some_and(|at| at <= later) {
        assert_eq!(c.dispatch(later), None, "there is no tag");
    }
    c.submit(later, request(free, 99, Operation::Read, 9_000)).expect("accepted");
    let mut order: Vec<u64> =
        taken.into_iter().flat_map(|sent| complete(&mut c, sent.command)).collect();
    while c.pending() > 0 {
        let sent = c.dispatch(later);
        order.extend(sent.map(|sent| complete(&mut c, sent.command)).into_iter().flatten());
        later = c.next_wakeup().map_or(later, |at| at.max(later));
    }
    assert_eq!(order, [0, 1, 2, 99, 3, 4, 5, 6, 7, 8, 9, 10, 11], "the reader passes the pile");
}

/// Goal: what a throttle lets go at once its client sends itself, however late the drive asks for work: nobody
/// lines up behind a pile of another's. Method: ceilings far away, two tags, four requests of one client and one of
/// another; the drive asks later.
#[test]
fn what_no_throttle_held_is_sent_by_its_client() {
    let mut setup = setup();
    setup.tags = 2;
    let mut c =
        Controller::new(setup, iofair_baselines::TABLE.stack("max-none").expect("in the table"));
    let contract = Contract { max: Limits::both(1 << 40), ..Contract::default() };
    let [pile, lone] = ["pile", "lone"].map(|name| {
        let group = c.add_group(Instant::ZERO, name, contract.clone()).expect("new");
        c.add_client(Instant::ZERO, group, Priority::default()).expect("new")
    });
    for tag in 0..5 {
        c.submit(Instant(0), request(pile, tag, Operation::Write, tag * 100)).expect("accepted");
    }
    c.submit(Instant(0), request(lone, 99, Operation::Read, 9_000)).expect("accepted");
    let (mut order, later) = (Vec::new(), Instant(2_500));
    while c.pending() > 0 {
        let sent = c.dispatch(later).expect("there is work and the drive is free");
        order.extend(complete(&mut c, sent.command));
    }
    assert_eq!(order, [0, 1, 2, 99, 3, 4]);
}

/// Goal: an error of one piece is the error of the submissions that it holds, and of no other; everybody is completed when
/// all pieces were. Method: three submissions merged to 48 KiB, sent in two pieces of 32 and 16 KiB by `promise` while
/// another client is there that has a minimum; the second piece fails.
#[test]
fn a_failed_piece_fails_its_submissions() {
    let stack = iofair_baselines::TABLE.stack("prop-promise").expect("in the table");
    let mut c = Controller::new(setup(), stack);
    let clients = [("a", None), ("b", Some(1_000_000))].map(|(name, min)| {
        let contract = Contract { min, ..Contract::default() };
        let group = c.add_group(Instant::ZERO, name, contract).expect("new");
        c.add_client(Instant::ZERO, group, Priority::default()).expect("new")
    });
    let mut plug = Plug::new();
    for (tag, start) in [(1, 0), (2, 32), (3, 64)] {
        let read = request(clients[0], tag, Operation::Read, start);
        assert!(!plug.add(Submission { length: Sectors(32), ..read }));
    }
    c.submit(Instant(1), request(clients[1], 4, Operation::Read, 900)).expect("accepted");
    c.unplug(Instant(1), &mut plug).expect("accepted");
    let sent: Vec<Dispatch> = core::iter::from_fn(|| c.dispatch(Instant(1))).collect();
    let lengths: Vec<u64> = sent.iter().map(|dispatch| dispatch.length.0).collect();
    assert_eq!(lengths, [8, 64, 32], "two pieces behind the request with a minimum: {sent:?}");
    let held: Vec<_> = c.parts(sent[1].command).map(|part| (part.tag, part.length.0)).collect();
    assert_eq!(held, [(1, 32), (2, 32)]);
    let mut done = Vec::new();
    c.complete(Instant(2), sent[2].command, 5, &mut done).expect("the drive has it");
    c.complete(Instant(3), sent[0].command, 0, &mut done).expect("the drive has it");
    assert_eq!(done.len(), 1, "only what was whole: {done:?}");
    c.complete(Instant(4), sent[1].command, 0, &mut done).expect("the drive has it");
    let statuses: Vec<_> = done[1..].iter().map(|done| (done.part.tag, done.status)).collect();
    assert_eq!(statuses, [(1, 0), (2, 0), (3, 5)]);
    assert_eq!((c.pending(), c.in_flight()), (0, 0));
}
