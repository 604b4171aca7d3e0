//! The published rules one by one, on a drive of depth 32 that completes commands when told.

use iofair_core::id::{ClientId, CommandId};
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::{self, Rig};
use iofair_core::time::{Instant, Nanos};
use std::vec::Vec;

fn rig(set: &[(&str, &str)]) -> Rig {
    let set: Vec<_> = set.iter().map(|(name, text)| ("wbt", *name, *text)).collect();
    let mut rig = Rig::new(&crate::TABLE, "wbt-none", &set);
    // Far from the start, which counts as a read.
    rig.now = ms(1000);
    rig
}

const fn ms(n: u64) -> Instant {
    Instant(n * 1_000_000)
}
/// Milliseconds after the start of the test.
const fn at(n: u64) -> Instant {
    ms(1000 + n)
}

fn gauge(rig: &Rig, name: &str) -> u64 {
    testing::gauge(&rig.controller, name)
}
/// The depth, once what is due has been done.
fn depth(rig: &mut Rig) -> u64 {
    assert_eq!(rig.dispatch(), None);
    gauge(rig, "wbt_depth")
}

fn send(rig: &mut Rig, client: ClientId, count: u64, operation: Operation, flags: Flags) {
    (0..count).for_each(|i| rig.submit(client, 1000 * i, operation, flags));
}
/// All that goes to the drive now.
fn go(rig: &mut Rig) -> Vec<CommandId> {
    core::iter::from_fn(|| rig.dispatch()).map(|(id, _)| id).collect()
}

/// Goal: sixteen writes at most, the next ones when six are left, up to sixteen again. Method: 40 writes, completed one by one.
#[test]
fn writes_go_sixteen_deep() {
    let mut rig = rig(&[]);
    let a = rig.client();
    send(&mut rig, a, 40, Operation::Write, Flags::NONE);
    let flying = go(&mut rig);
    assert_eq!(flying.len(), 16);
    for id in &flying[..9] {
        rig.complete(*id);
        assert_eq!(rig.dispatch(), None);
    }
    rig.complete(flying[9]);
    assert_eq!(go(&mut rig).len(), 10);
}

/// Goal: each kind of request has its limit. Method: 30 of it, with and without a read shortly before, writers waiting or not.
#[test]
fn limits_by_kind() {
    let (none, metadata, sync) = (Flags::NONE, Flags::METADATA, Flags::SYNC);
    for (operation, flags, set, read, limit) in [
        (Operation::Write, none, &[][..], true, 16),
        (Operation::Write, none, &[("dirty_wait", "false")], true, 4),
        (Operation::Write, none, &[("dirty_wait", "false")], false, 8),
        (Operation::Write, metadata, &[("dirty_wait", "false")], true, 16),
        (Operation::Write, sync, &[("dirty_wait", "false")], true, 30),
        (Operation::Write, sync, &[("sync_writes", "true")], true, 16),
        (Operation::Discard, none, &[], false, 4),
        (Operation::WriteZeroes, none, &[], true, 30),
        (Operation::Read, none, &[], true, 30),
    ] {
        let mut rig = rig(set);
        let a = rig.client();
        if read {
            rig.now = at(0);
            rig.read(a, 1 << 20);
            let id = go(&mut rig)[0];
            rig.complete(id);
        }
        rig.now = at(99);
        send(&mut rig, a, 30, operation, flags);
        assert_eq!(go(&mut rig).len(), limit, "{operation:?} {flags:?} {set:?} {read}");
    }
}

/// Goal: a read is near for 100 ms after it was sent, and after it was completed. Method: both sides of both.
#[test]
fn reads_are_near_for_a_while() {
    for (sent, completed, asked, limit) in
        [(0, 50, 149, 4), (0, 50, 150, 8), (0, 500, 99, 4), (0, 500, 100, 8)]
    {
        let mut rig = rig(&[("dirty_wait", "false"), ("min_lat", "10s")]);
        let a = rig.client();
        rig.now = at(sent);
        rig.read(a, 1 << 20);
        let id = go(&mut rig)[0];
        if completed < asked {
            rig.now = at(completed);
            rig.complete(id);
        }
        rig.now = at(asked);
        send(&mut rig, a, 30, Operation::Write, Flags::NONE);
        assert_eq!(go(&mut rig).len(), limit, "{completed} {asked}");
    }
}

/// Goal: writes and discards are counted apart. Method: both above their limits.
#[test]
fn discards_have_their_own_account() {
    let mut rig = rig(&[]);
    let a = rig.client();
    send(&mut rig, a, 20, Operation::Write, Flags::NONE);
    send(&mut rig, a, 20, Operation::Discard, Flags::NONE);
    assert_eq!(go(&mut rig).len(), 16 + 4);
}

/// Goal: with a write cache, and no writers waiting, the next ones go when none is left; without one when two fit again.
/// Method: eight of twenty at the drive, completed one by one.
#[test]
fn a_write_cache_is_let_drain() {
    for (cache, completions, more) in [("true", 8, 8), ("false", 2, 2)] {
        let mut rig = rig(&[("dirty_wait", "false"), ("write_cache", cache)]);
        let a = rig.client();
        send(&mut rig, a, 20, Operation::Write, Flags::NONE);
        let flying = go(&mut rig);
        assert_eq!(flying.len(), 8);
        for id in &flying[..completions - 1] {
            rig.complete(*id);
            assert_eq!(rig.dispatch(), None);
        }
        rig.complete(flying[completions - 1]);
        assert_eq!(go(&mut rig).len(), more, "{cache}");
    }
}

/// One window that begins now: some writes completed at once, and a read after `read` milliseconds.
fn window(rig: &mut Rig, client: ClientId, writes: u64, read: u64) {
    send(rig, client, writes, Operation::Write, Flags::NONE);
    rig.read(client, 1 << 20);
    let flying = go(rig);
    rig.now += Nanos::from_millis(read);
    flying.into_iter().for_each(|id| rig.complete(id));
    rig.now += Nanos::from_millis(100);
}

/// Goal: each window whose fastest read took longer than the target halves the depth, the windows become shorter, each with
/// a faster one doubles it. Method: window after window without a gap, each with three writes and a read of 3 or 2 ms.
#[test]
fn slow_reads_step_down() {
    let mut rig = rig(&[("min_lat", "2ms"), ("dirty_wait", "false")]);
    let a = rig.client();
    for (read, expected) in
        [(3, 8), (3, 4), (3, 2), (3, 1), (3, 1), (2, 2), (2, 4), (3, 2), (2, 4), (2, 8), (2, 16)]
    {
        let end = rig.now + Nanos(gauge(&rig, "wbt_window_ns"));
        rig.read(a, 1 << 20);
        let sent = go(&mut rig)[0];
        send(&mut rig, a, 3, Operation::Write, Flags::NONE);
        while let Some((id, _)) = rig.dispatch() {
            rig.complete(id);
        }
        rig.now += Nanos::from_millis(read);
        rig.complete(sent);
        rig.now = end;
        assert_eq!(depth(&mut rig), expected);
    }
}

/// Goal: the same for reads within the target, for too few writes, and for the fastest of several reads. Method: one
/// window each, from the middle.
#[test]
fn other_windows_step_up() {
    for (writes, reads, expected) in
        [(3, &[2][..], 24), (2, &[50][..], 24), (3, &[50, 2][..], 24), (3, &[50, 3][..], 8)]
    {
        let mut rig = rig(&[("min_lat", "2ms"), ("dirty_wait", "false")]);
        let a = rig.client();
        send(&mut rig, a, writes, Operation::Write, Flags::NONE);
        go(&mut rig).into_iter().for_each(|id| rig.complete(id));
        for took in reads {
            rig.read(a, 1 << 20);
            let read = go(&mut rig)[0];
            rig.now += Nanos::from_millis(*took);
            rig.complete(read);
        }
        rig.now = at(100);
        assert_eq!(depth(&mut rig), expected, "{writes} {reads:?}");
    }
}

/// Goal: a read that is not completed at all counts when the window ends: above the target if no other was completed, else
/// above the window. Method: one stays at the drive, others do or do not come back.
#[test]
fn a_read_on_its_way_counts() {
    for (sent, others, expected) in [(97, false, 8), (98, false, 24), (0, true, 24), (97, true, 24)]
    {
        let mut rig = rig(&[("min_lat", "2ms"), ("dirty_wait", "false")]);
        let a = rig.client();
        send(&mut rig, a, 3, Operation::Write, Flags::NONE);
        let writes = go(&mut rig);
        rig.now = at(sent);
        rig.read(a, 1 << 20);
        go(&mut rig);
        if others {
            rig.read(a, 1 << 21);
            let other = go(&mut rig)[0];
            rig.complete(other);
        }
        writes.into_iter().for_each(|id| rig.complete(id));
        rig.now = at(100);
        assert_eq!(depth(&mut rig), expected, "{sent} {others}");
        if (sent, others) == (0, true) {
            // In the next window it is older than a window, and others still come back at once.
            rig.write(a, 0);
            rig.read(a, 1 << 21);
            let other = go(&mut rig)[1];
            rig.complete(other);
            rig.now = at(200);
            assert_eq!(depth(&mut rig), 16, "from above the middle at once to it");
        }
    }
}

/// Goal: an idle drive goes back to the middle, a step every five windows, from below and above, and then is watched no more.
/// Method: one step down, or one up, then nothing.
#[test]
fn idle_drives_return_to_the_middle() {
    for (read, first, windows) in [(3, 8, 1_600_000 / 22), (1, 24, 100_000)] {
        let mut rig = rig(&[("min_lat", "2ms"), ("dirty_wait", "false")]);
        let a = rig.client();
        window(&mut rig, a, 3, read);
        assert_eq!(depth(&mut rig), first);
        let end = at(100) + Nanos::from_micros(5 * windows);
        rig.now = end.saturating_sub(Nanos::from_micros(1));
        assert_eq!(depth(&mut rig), first);
        rig.now = end + Nanos::from_micros(6);
        assert_eq!(depth(&mut rig), 16);
        rig.now = ms(100_000);
        assert_eq!((depth(&mut rig), rig.controller.next_wakeup()), (16, None));
    }
}

/// Goal: writers alone are given more, at the end of the window, and are woken for it; at the top nobody need be woken.
/// Method: 40 writes, no completion.
#[test]
fn writers_alone_get_more() {
    let mut rig = rig(&[]);
    let a = rig.client();
    send(&mut rig, a, 40, Operation::Write, Flags::NONE);
    assert_eq!(go(&mut rig).len(), 16);
    assert_eq!(rig.controller.next_wakeup(), Some(at(100)));
    rig.now = at(100);
    assert_eq!(go(&mut rig).len(), 8);
    assert_eq!(rig.controller.next_wakeup(), None);
}

/// Goal: windows end at their own times whether or not anybody asks. Method: the same hour asked every millisecond of its
/// start, and once at its end.
#[test]
fn nobody_need_ask() {
    let run = |asking: bool| {
        let mut rig = rig(&[("min_lat", "2ms")]);
        let a = rig.client();
        let mut depths = Vec::new();
        for read in [3, 3, 3, 1, 3] {
            window(&mut rig, a, 3, read);
            let end = rig.now + Nanos::from_millis(400);
            while asking && rig.now < end {
                rig.now += Nanos::from_millis(1);
                assert_eq!(rig.dispatch(), None);
            }
            rig.now = end;
            depths.push((depth(&mut rig), gauge(&rig, "wbt_window_ns")));
        }
        rig.now += Nanos::from_secs(3600);
        depths.push((depth(&mut rig), 0));
        depths
    };
    assert_eq!(run(true), run(false));
}

/// Goal: flash has a target of 2 ms, a moving head one of 75 ms. Method: reads of 75 and 76 ms, 2 and 3 ms.
#[test]
fn the_target_is_the_drives() {
    for (rotational, read, expected) in
        [(true, 75, 24), (true, 76, 8), (false, 2, 24), (false, 3, 8)]
    {
        let mut rig =
            Rig::with(&crate::TABLE, "wbt-none", &[], |setup| setup.facts.rotational = rotational);
        let a = rig.client();
        send(&mut rig, a, 3, Operation::Write, Flags::NONE);
        rig.read(a, 1 << 20);
        let flying = go(&mut rig);
        rig.now += Nanos::from_millis(read);
        flying.into_iter().for_each(|id| rig.complete(id));
        rig.now = ms(100);
        assert_eq!(depth(&mut rig), expected);
    }
}

/// Goal: what the scheduler merges is still counted off. Method: four writes become one; then sixteen may go again.
#[test]
fn merged_writes_are_counted_off() {
    let mut rig = Rig::new(&crate::TABLE, "wbt-mq-deadline", &[]);
    let a = rig.client();
    rig.writes(a, &[0, 8, 16, 24]);
    let flying = go(&mut rig);
    assert_eq!((flying.len(), gauge(&rig, "wbt_in_flight_writes")), (1, 4));
    rig.complete(flying[0]);
    assert_eq!(gauge(&rig, "wbt_in_flight_writes"), 0);
    send(&mut rig, a, 40, Operation::Write, Flags::NONE);
    assert_eq!(go(&mut rig).len(), 16);
}
