//! The published rules, one by one, on a drive that completes commands when told.

use iofair_core::id::{ClientId, CommandId};
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::Rig;
use iofair_core::time::{Instant, Nanos};
use std::vec;

const FAR: u64 = 500_000_000;

fn rig(set: &[(&str, &str)]) -> Rig {
    let set: vec::Vec<_> = set.iter().map(|(name, text)| ("anticipatory", *name, *text)).collect();
    Rig::new(&crate::TABLE, "none-anticipatory", &set)
}

const fn ms(n: u64) -> Instant {
    Instant(n * 1_000_000)
}

/// What goes out now, which must be at `start`.
fn go(rig: &mut Rig, start: u64) -> CommandId {
    let (id, at) = rig.dispatch().expect("something goes out");
    assert_eq!(at, start);
    id
}
fn completion(rig: &mut Rig, start: u64) {
    let id = go(rig, start);
    rig.complete(id);
}

/// A and B, A's read at 1000 completed at 1 ms, B's far one waiting.
fn reader_and_other(set: &[(&str, &str)]) -> (Rig, ClientId, ClientId) {
    let mut rig = rig(set);
    let (a, b) = (rig.client(), rig.client());
    rig.reads(a, &[1000]);
    rig.reads(b, &[FAR]);
    let first = go(&mut rig, 1000);
    assert_eq!(
        (rig.dispatch(), rig.controller.next_wakeup()),
        (None, None),
        "for its completion first"
    );
    rig.now = ms(1);
    rig.complete(first);
    (rig, a, b)
}

/// Goal: between two reads of a process the drive waits, for 6 ms after the completion and no longer, and does
/// not wait twice for the same. Method: a far read of another process waits; the first comes back in time,
/// then not.
#[test]
fn waits_for_the_next_read_of_a_process() {
    let (mut rig, a, _) = reader_and_other(&[]);
    assert_eq!((rig.dispatch(), rig.controller.next_wakeup()), (None, Some(ms(7))));
    rig.now = ms(6);
    rig.read(a, 1008);
    completion(&mut rig, 1008);
    assert_eq!((rig.dispatch(), rig.controller.next_wakeup()), (None, Some(ms(12))));
    rig.now = Instant(ms(12).0 - 1);
    assert_eq!(rig.dispatch(), None);
    rig.now = ms(12);
    completion(&mut rig, FAR);
    assert_eq!(rig.controller.next_wakeup(), None);
}

/// Goal: a wait that nobody asked about in time is over all the same. Method: the next question comes with A's
/// read, 43 ms late; it is near, so it goes, and A's pause is known to be long then.
#[test]
fn a_late_question_finds_the_wait_over() {
    let (mut rig, a, _) = reader_and_other(&[]);
    assert_eq!(rig.dispatch(), None);
    rig.now = ms(50);
    rig.read(a, 1008);
    completion(&mut rig, 1008);
    completion(&mut rig, FAR);
}

/// Goal: with no wait allowed the scheduler never waits. Method: the same world.
#[test]
fn a_zero_wait_never_waits() {
    let mut rig = rig(&[("antic_expire", "0s")]);
    let (a, b) = (rig.client(), rig.client());
    rig.reads(a, &[1000]);
    rig.reads(b, &[FAR]);
    go(&mut rig, 1000);
    go(&mut rig, FAR);
}

/// Goal: no wait for a process that has more to send. Method: two reads of A, the second farther from the
/// head than B's.
#[test]
fn a_process_with_more_is_not_waited_for() {
    let mut rig = rig(&[]);
    let (a, b) = (rig.client(), rig.client());
    rig.reads(a, &[1000, FAR]);
    rig.reads(b, &[400_000]);
    assert_eq!(rig.served(), [1000, 400_000]);
    assert_eq!(rig.controller.next_wakeup(), Some(ms(6)), "but now B has no more");
}

/// Goal: a close request of another process goes instead; close is 8192 sectors ahead, half of it behind,
/// and doubles with each millisecond since the completion. Method: both sides of each border.
#[test]
fn close_requests_are_served_during_a_wait() {
    let head = 1008 + 100_000;
    for (waited, start, goes) in [
        (0, head + 8192, true),
        (0, head + 8193, false),
        (0, head - 4096, true),
        (0, head - 4097, false),
        (1, head + 16_384, true),
        (1, head + 16_385, false),
        (3, head - 32_768, true),
        (3, head - 32_769, false),
    ] {
        let mut rig = rig(&[]);
        let (a, b, c) = (rig.client(), rig.client(), rig.client());
        rig.read(a, head - 8);
        rig.read(b, FAR);
        completion(&mut rig, head - 8);
        assert_eq!(rig.dispatch(), None);
        rig.now = ms(waited);
        rig.read(c, start);
        let out = rig.dispatch().map(|(_, start)| start);
        assert_eq!(out, goes.then_some(start), "{waited} ms, {start}");
    }
}

/// Goal: before the completion the time does not count for closeness. Method: the watched read stays at
/// the drive for 5 ms.
#[test]
fn closeness_grows_from_the_completion_on() {
    let mut rig = rig(&[]);
    let (a, b, c) = (rig.client(), rig.client(), rig.client());
    rig.read(a, 1000);
    rig.read(b, FAR);
    let first = go(&mut rig, 1000);
    assert_eq!(rig.dispatch(), None);
    rig.now = ms(5);
    rig.read(c, 1008 + 8193);
    assert_eq!(rig.dispatch(), None);
    rig.complete(first);
    rig.read(c, 1008 + 8192);
    go(&mut rig, 1008 + 8192);
}

/// Goal: what is nearer than the process's own next request is likely to be goes instead. Method: A jumps by
/// 100,000 sectors each time; B's read at 50,000 goes, at 150,000 it waits.
#[test]
fn nearer_requests_go_before_those_of_distant_readers() {
    for (way, goes) in [(50_000, true), (150_000, false)] {
        let mut rig = rig(&[]);
        let (a, b) = (rig.client(), rig.client());
        for i in 1..20 {
            rig.read(a, 100_008 * i);
            completion(&mut rig, 100_008 * i);
        }
        let start = 100_008 * 19 + 8 + way;
        rig.read(b, start);
        assert_eq!(rig.dispatch().map(|(_, start)| start), goes.then_some(start));
    }
}

/// Goal: a process that thinks longer than the longest wait is not waited for, one that thinks less is.
/// Method: A alone for some rounds, then B with a far read.
#[test]
fn slow_thinkers_are_not_waited_for() {
    for (think, waits) in [(5, true), (8, false)] {
        let mut rig = rig(&[]);
        let (a, b) = (rig.client(), rig.client());
        for i in 0..20 {
            rig.read(a, 1000 + 8 * i);
            completion(&mut rig, 1000 + 8 * i);
            rig.now += Nanos::from_millis(think);
        }
        rig.read(a, 1160);
        rig.read(b, FAR);
        completion(&mut rig, 1160);
        assert_eq!(rig.dispatch().is_none(), waits, "{think} ms");
    }
}

/// Goal: a new process is judged by the first pauses of those before it. Method: many processes that each
/// think 10 ms once.
#[test]
fn new_processes_are_judged_by_earlier_new_ones() {
    let mut rig = rig(&[]);
    for i in 0..20 {
        let one = rig.client();
        rig.read(one, 1000 * i);
        completion(&mut rig, 1000 * i);
        rig.now += Nanos::from_millis(10);
        rig.read(one, 1000 * i + 8);
        completion(&mut rig, 1000 * i + 8);
        rig.now += Nanos::from_millis(10);
    }
    let (new, other) = (rig.client(), rig.client());
    rig.read(new, 100_000);
    rig.read(other, FAR);
    completion(&mut rig, 100_000);
    completion(&mut rig, FAR);
}

/// Goal: nobody is waited for after a write that nobody waits for; a synchronous write counts as a read.
/// Method: a write, then a far read.
#[test]
fn writes_are_not_followed() {
    for (flags, waits) in [(Flags::NONE, false), (Flags::SYNC, true)] {
        let mut rig = rig(&[]);
        let (a, b) = (rig.client(), rig.client());
        rig.submit(a, 1000, Operation::Write, flags);
        completion(&mut rig, 1000);
        rig.read(b, FAR);
        assert_eq!(rig.dispatch().is_none(), waits);
    }
}

/// Goal: the kinds do not mix at the drive: the next kind waits until the last one is completed. Method: a
/// write at the drive when a read comes; then a read when a write comes.
#[test]
fn the_drive_is_drained_between_batches() {
    let mut rig = rig(&[("antic_expire", "0s")]);
    let (a, b) = (rig.client(), rig.client());
    rig.writes(a, &[100, 200]);
    let writes = [go(&mut rig, 100), go(&mut rig, 200)];
    rig.read(b, 500);
    assert_eq!(rig.dispatch(), None);
    rig.complete(writes[0]);
    assert_eq!(rig.dispatch(), None);
    rig.complete(writes[1]);
    let read = go(&mut rig, 500);
    rig.write(a, 300);
    assert_eq!(rig.dispatch(), None);
    rig.complete(read);
    completion(&mut rig, 300);
}

/// Goal: while writes wait, a batch of reads lasts 500 ms from its first completion, and the writes then have a
/// batch of their number, oldest first. Method: a read every 100 ms at the drive, 40 writes.
#[test]
fn reads_and_writes_take_turns() {
    let mut rig = rig(&[("antic_expire", "0s")]);
    let (a, b) = (rig.client(), rig.client());
    rig.now = ms(1000);
    rig.read(b, 0);
    rig.now = ms(1100);
    let first = go(&mut rig, 0);
    (0..40).for_each(|i| rig.write(a, 1_000_000 - 1000 * i));
    rig.now = ms(1200);
    rig.complete(first);
    for i in 1..=6 {
        rig.read(b, 100 * i);
        if i <= 5 {
            // Alone the reads would push the end ahead of them; with writes waiting it stays at 1700.
            completion(&mut rig, 100 * i);
            rig.now += Nanos::from_millis(100);
        }
    }
    rig.now = Instant(ms(1700).0 + 1);
    let served = rig.served();
    assert_eq!(served[0], 1_000_000, "the oldest write");
    // Upwards there is nothing; short ways back are taken in order of nearness: 11 more, then the read.
    let back: vec::Vec<u64> = (1..12).map(|i| 1_000_000 - 1000 * i).collect();
    assert_eq!((&served[1..12], served[12]), (&back[..], 600));
}

/// Goal: of one kind the way of the head decides: ahead, or a short way back at twice its length. Method: a
/// process with reads all over.
#[test]
fn the_nearest_goes_next() {
    let mut rig = rig(&[]);
    let a = rig.client();
    rig.reads(a, &[2_000_000, 2_000_300, 1_999_900, 10, 3_500_000]);
    assert_eq!(rig.served(), [2_000_000, 1_999_900, 2_000_300, 3_500_000, 10]);
}

/// Goal: once in 125 ms the oldest read goes first if it has waited longer, even if a wait would pay. Method:
/// A reads on and on, B's far read waits.
#[test]
fn the_oldest_is_not_forgotten() {
    let (mut rig, a, _) = reader_and_other(&[]);
    let mut start = 1008;
    while rig.now < ms(400) {
        assert_eq!(rig.dispatch(), None, "at {:?}", rig.now);
        rig.now += Nanos::from_millis(1);
        rig.read(a, start);
        let (id, at) = rig.dispatch().expect("A's");
        if at == FAR {
            break;
        }
        rig.now += Nanos::from_millis(1);
        rig.complete(id);
        start += 8;
    }
    assert_eq!(rig.now, ms(250), "at 125 ms it was looked at and not yet older than that");
}

/// Goal: a merge that makes one of two waiting requests keeps count of what a process has queued. Method: a gap
/// closes; afterwards the process must be waited for again.
#[test]
fn merged_requests_are_counted_once() {
    let mut rig = rig(&[]);
    let (a, b) = (rig.client(), rig.client());
    rig.reads(a, &[100, 116, 108]);
    rig.read(b, FAR);
    assert_eq!(rig.serve(), Some(vec![100, 108, 116]));
    assert_eq!(rig.dispatch(), None);
    rig.read(a, 124);
    completion(&mut rig, 124);
}

/// Goal: when the next request by the way of the head is merged away, the whole or its upper neighbour is next, whichever
/// is nearer. Method: head at 308, next at 316; the gap before it closes, from one and from two requests further back.
#[test]
fn the_next_request_survives_a_merge() {
    let near = [vec![300, 308, 316], vec![330]];
    let far = [vec![330], vec![292, 300, 308, 316]];
    for (waiting, served) in [
        (&[300, 316, 330][..], &near),
        (&[316, 300, 330][..], &near),
        (&[292, 300, 316, 330][..], &far),
        (&[316, 292, 300, 330][..], &far),
    ] {
        let mut rig = rig(&[]);
        let a = rig.client();
        rig.read(a, 300);
        completion(&mut rig, 300);
        rig.reads(a, waiting);
        rig.read(a, 308);
        assert_eq!(rig.served_parts(), *served, "{waiting:?}");
    }
}

/// Goal: the time of a batch of reads counts from its last read with no write waiting. Method: two seconds of reads alone; then
/// a write and reads, on both sides of the end.
#[test]
fn reads_alone_have_no_end() {
    for (after, first) in [(500, 5000), (501, 9_000_000)] {
        let mut rig = rig(&[("antic_expire", "0s")]);
        let (a, b) = (rig.client(), rig.client());
        for i in 0..=20 {
            rig.now = ms(100 * i);
            rig.read(a, 100 * i);
            completion(&mut rig, 100 * i);
        }
        rig.write(b, 9_000_000);
        rig.read(a, 5000);
        rig.now += Nanos::from_millis(after);
        assert_eq!(rig.dispatch().map(|(_, start)| start), Some(first));
    }
}

/// Goal: buffered writes cannot take all requests. Method: more writes than there are tags, then a read.
#[test]
fn reads_find_a_request() {
    let mut rig = rig(&[]);
    let (a, b) = (rig.client(), rig.client());
    (0..70).for_each(|i| rig.write(a, 1000 * i));
    rig.read(b, 500);
    assert_eq!(rig.serve(), Some(vec![500]));
}
