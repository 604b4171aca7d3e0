//! The published rules on a drive that completes commands after a time that the test sets.

use iofair_core::id::ClientId;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::{self, Rig};
use iofair_core::time::{Instant, Nanos};
use std::vec;
use std::vec::Vec;

fn rig() -> Rig {
    Rig::new(&crate::TABLE, "none-kyber", &[])
}

const fn ms(n: u64) -> Instant {
    Instant(n * 1_000_000)
}

fn gauge(rig: &Rig, name: &str) -> u64 {
    testing::gauge(&rig.controller, name)
}
fn tokens(rig: &Rig) -> [u64; 2] {
    [gauge(rig, "kyber_read_tokens"), gauge(rig, "kyber_write_tokens")]
}

/// Sixteen rounds of 32 requests that take `drive` milliseconds each, after `queue` in the queue.
fn round(rig: &mut Rig, client: ClientId, operation: Operation, [queue, drive]: [u64; 2]) {
    for _ in 0..16 {
        (0..32).for_each(|i| rig.submit(client, 1000 * i, operation, Flags::SYNC));
        rig.now += Nanos::from_millis(queue);
        let mut left = 32;
        while left > 0 {
            let flying: Vec<_> = core::iter::from_fn(|| rig.dispatch()).collect();
            rig.now += Nanos::from_millis(drive);
            flying.iter().for_each(|(id, _)| rig.complete(*id));
            left -= flying.len();
        }
    }
}
/// Lets the timer of what was gathered run, and begins far from it.
fn judge(rig: &mut Rig) {
    rig.now += Nanos::from_millis(200);
    assert_eq!(rig.dispatch(), None);
}

/// Goal: domains take turns in batches of 16, 8, 1 and 1, first come, first served. Method: some of each; every request's
/// first sector tells its domain.
#[test]
fn domains_take_turns() {
    let mut rig = rig();
    let a = rig.client();
    for (operation, base, count) in [
        (Operation::WriteZeroes, 4, 2),
        (Operation::Discard, 3, 2),
        (Operation::Write, 2, 10),
        (Operation::Read, 1, 20),
    ] {
        // Downwards, so that sorting would show.
        (0..count)
            .rev()
            .for_each(|i| rig.submit(a, base * 100_000 + i * 100, operation, Flags::NONE));
    }
    let served = rig.served();
    assert!(served[..16].is_sorted_by(|a, b| a > b));
    let domains: Vec<u64> = served.iter().map(|start| start / 100_000).collect();
    let expected = [vec![1; 16], vec![2; 8], vec![3, 4], vec![1; 4], vec![2; 2], vec![3, 4]];
    assert_eq!(domains, expected.concat());
}

/// Goal: three quarters of the tags for what nobody waits for. Method: 64 tags, too many writes; the reads find
/// their quarter free.
#[test]
fn buffered_writes_get_three_quarters_of_the_tags() {
    let mut rig = rig();
    let (a, b) = (rig.client(), rig.client());
    (0..70).for_each(|i| rig.write(a, 1000 * i));
    assert_eq!(gauge(&rig, "kyber_queued_requests"), 48);
    (0..20).for_each(|i| rig.read(b, 1_000_000 + 1000 * i));
    assert_eq!(gauge(&rig, "kyber_queued_requests"), 64);
}

/// Goal: in congestion a domain is cut to its p99 in quarters of its target, until its queue is as long as the target allows;
/// the slow one itself keeps its tokens. Method: reads of 3 ms, 32 writes at once of 1 ms each, over and over.
#[test]
fn fast_domains_are_cut_when_the_drive_is_slow() {
    let mut rig = rig();
    let a = rig.client();
    assert_eq!(tokens(&rig), [256, 128]);
    // With 8 tokens the last of 32 writes takes 4 ms, two quarters; with 4 tokens 8 ms, the whole target.
    for left in [32, 8, 4, 4, 4] {
        round(&mut rig, a, Operation::Write, [0, 1]);
        round(&mut rig, a, Operation::Read, [0, 3]);
        judge(&mut rig);
        assert_eq!(tokens(&rig), [256, left]);
    }
}

/// Goal: the cut is by the p99: three quarters of the target leave three quarters of the tokens. Method: writes of 7 ms,
/// reads slow.
#[test]
fn the_cut_is_proportional() {
    let mut rig = rig();
    let a = rig.client();
    round(&mut rig, a, Operation::Write, [0, 6]);
    round(&mut rig, a, Operation::Read, [0, 3]);
    judge(&mut rig);
    assert_eq!(tokens(&rig), [256, 96]);
}

/// Goal: without congestion nothing is cut, and a domain that misses its target for want of tokens gets more: twice as
/// many at twice the target or above, a quarter more just above it. Method: cut to 32, then writes that wait in the queue and 1 ms at the drive.
#[test]
fn missing_the_target_brings_tokens_back() {
    let mut rig = rig();
    let a = rig.client();
    round(&mut rig, a, Operation::Write, [0, 1]);
    round(&mut rig, a, Operation::Read, [0, 3]);
    judge(&mut rig);
    assert_eq!(tokens(&rig), [256, 32]);
    round(&mut rig, a, Operation::Read, [0, 1]);
    judge(&mut rig);
    assert_eq!(tokens(&rig), [256, 32], "no congestion, nothing missed");
    for (queue, more) in [(9, 32), (10, 40), (30, 80), (30, 128), (30, 128)] {
        round(&mut rig, a, Operation::Write, [queue, 1]);
        judge(&mut rig);
        assert_eq!(tokens(&rig), [256, more]);
    }
}

/// Goal: without a token a domain waits and the others do not; who waits for tokens is woken when they are next counted
/// out. Method: writes cut to 8, twelve writes and a read.
#[test]
fn tokens_hold_requests_back() {
    let mut rig = rig();
    let a = rig.client();
    for _ in 0..2 {
        round(&mut rig, a, Operation::Write, [0, 1]);
        round(&mut rig, a, Operation::Read, [0, 3]);
        judge(&mut rig);
    }
    assert_eq!(tokens(&rig), [256, 8]);
    assert_eq!(rig.controller.next_wakeup(), None);
    rig.now = ms(10_000);
    (0..12).for_each(|i| rig.write(a, 1000 * i));
    let flying: Vec<_> = core::iter::from_fn(|| rig.dispatch()).collect();
    assert_eq!(flying.len(), 8);
    rig.read(a, 1_000_000);
    assert_eq!(rig.dispatch().map(|(_, start)| start), Some(1_000_000));
    assert_eq!(
        (rig.dispatch(), rig.controller.next_wakeup()),
        (None, None),
        "nothing to count yet"
    );
    rig.now = ms(10_001);
    rig.complete(flying[0].0);
    assert_eq!(rig.dispatch().map(|(_, start)| start), Some(8000), "a token came free");
    assert_eq!((rig.dispatch(), rig.controller.next_wakeup()), (None, Some(ms(10_101))));
    rig.now = ms(10_101);
    assert_eq!((rig.dispatch(), rig.controller.next_wakeup()), (None, None));
}

/// Goal: a newcomer merges with one of the last eight of its domain, behind or in front, newest first; closing a gap joins
/// nothing. Method: a neighbour eighth and ninth from the end.
#[test]
fn the_last_eight_merge() {
    for (others, merges) in [(7, true), (8, false)] {
        let mut rig = rig();
        let a = rig.client();
        rig.read(a, 100);
        (0..others).for_each(|i| rig.read(a, 10_000 * (1 + i)));
        rig.read(a, 108);
        assert_eq!(rig.serve(), Some(if merges { vec![100, 108] } else { vec![100] }));
    }
    let mut rig = rig();
    let a = rig.client();
    rig.reads(a, &[100, 116, 108, 92]);
    assert_eq!(rig.served_parts(), [vec![92, 100], vec![108, 116]]);
}

/// Goal: once a token was free, those that waited then merge no more. Method: two wait, one goes, a neighbour of the other
/// comes; one that comes later merges again.
#[test]
fn those_on_their_way_do_not_merge() {
    let mut rig = rig();
    let a = rig.client();
    rig.reads(a, &[100, 200]);
    assert_eq!(rig.serve(), Some(vec![100]));
    rig.reads(a, &[208, 216]);
    assert_eq!(rig.served_parts(), [vec![200], vec![208, 216]]);
}
