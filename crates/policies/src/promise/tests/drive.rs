//! The measurement of the drive's rates and latency.

use super::super::drive::{Drive, RATE};
use super::super::shares::Side;
use iofair_core::id::RequestId;
use iofair_core::time::{Instant, Nanos};
use std::vec::Vec;

const MS: u64 = 1_000_000;

/// Goal: the latency alone is measured although writers never pause, and more precisely once they pause. Method: one
/// write each millisecond and reads beside them, two of three of which wait for writes; then reads alone.
#[test]
fn the_latency_is_measured_beside_writes() {
    let mut drive = Drive::default();
    let mut read = |ms: u64, micros: u64, write: bool| {
        if write {
            drive.on_dispatch(Instant(ms * MS), RequestId(0), Side::Write, false);
            drive.on_complete(Instant(ms * MS), RequestId(0), Side::Write, 32 << 10);
        }
        if !drive.wants_probe(Instant(ms * MS)) {
            return false;
        }
        drive.on_dispatch(Instant(ms * MS), RequestId(0), Side::Read, true);
        drive.on_complete(Instant(ms * MS + micros * 1_000), RequestId(0), Side::Read, 32 << 10);
        true
    };
    let beside =
        (0..2_000).filter(|ms| read(*ms, if ms % 3 == 0 { 500 } else { 5_000 }, true)).count();
    assert!((18..=21).contains(&beside), "every 100 ms: {beside}");
    (2_200..2_400).for_each(|ms| _ = read(ms, 300, false));
    (2_400..4_000).for_each(|ms| assert!(!read(ms, 700, true), "no probes beside writes"));
    assert_eq!(drive.latency(), Nanos::from_micros(300));
}

/// Goal: waiting for writes is not measured as the drive's latency. Method: probes that wait 20 ms for the drive's
/// writes, and one read of 300 us; then a write that stays in flight for seconds.
#[test]
fn what_writes_add_is_not_the_latency() {
    let (mut drive, id) = (Drive::default(), RequestId(0));
    let mut read = |ms: u64, micros: u64, probe: bool| {
        drive.on_dispatch(Instant(ms * MS), id, Side::Write, false);
        drive.on_complete(Instant(ms * MS), id, Side::Write, 4096);
        let done = Instant(ms * MS + micros * 1_000);
        drive.on_dispatch(Instant(ms * MS), id, Side::Read, probe);
        drive.on_complete(done, id, Side::Read, 32 << 10);
        drive.latency()
    };
    read(1, 300, false);
    (1..20).for_each(|count| _ = read(count * 100, 20_000, true));
    assert_eq!(read(2_000, 20_000, true), Nanos::from_micros(375));
    drive.on_dispatch(Instant(3_000 * MS), RequestId(1), Side::Write, false);
    assert!(drive.writes_recent(Instant(9_000 * MS)), "one is in flight");
}

/// Goal: the rate of writes is measured although reads never pause. Method: a drive that reads and writes 400 MB/s, one
/// command at a time; first reads alone, then three for each write.
#[test]
fn the_rate_of_writes_leaves_out_reads() {
    let (mut drive, mut now) = (Drive::default(), Instant(MS));
    let mut one = |side: Side, micros: u64| {
        drive.on_dispatch(now, RequestId(0), side, false);
        now += Nanos::from_micros(micros);
        drive.on_complete(now, RequestId(0), side, 40_000);
        drive.rate(Side::Write)
    };
    (0..1_000).for_each(|_| _ = one(Side::Read, 100));
    let last = (0..4_000).map(|turn| match turn % 4 {
        0 => one(Side::Write, 100),
        _ => one(Side::Read, 100),
    });
    let found = last.last().unwrap();
    assert!((360_000_000..=500_000_000).contains(&found), "{found}");
}

/// Goal: the drive time of a small request is found beside large ones. Method: a drive that needs 20 us for a read of
/// 4 KiB and 100 us for one of 40 kB; first only large ones, then one of them with 15 small ones.
#[test]
fn the_time_of_small_requests_leaves_out_large_ones() {
    let (mut drive, mut now) = (Drive::default(), Instant(MS));
    (0..32).for_each(|id| drive.on_dispatch(now, RequestId(id), Side::Read, false));
    for turn in 0..20_000 {
        let large = turn < 2_000 || turn % 16 == 0;
        let (bytes, micros) = if large { (40_000, 100) } else { (4_096, 20) };
        now += Nanos::from_micros(micros);
        drive.on_complete(now, RequestId(turn % 32), Side::Read, bytes);
        drive.on_dispatch(now, RequestId(turn % 32), Side::Read, false);
    }
    let cost = drive.cost(Side::Read, 4096).0;
    assert!((19_000..=21_000).contains(&cost), "{cost}");
}

/// Goal: the rate of reads beside writes leaves out the time for writes. Method: a drive that writes 100 MB/s and
/// spends nine tenths of its time on writes; then reads alone.
#[test]
fn the_rate_of_reads_leaves_out_writes() {
    let mut drive = Drive::default();
    let mut one = |ms: u64, micros: u64, side: Side, bytes: u64| {
        drive.on_dispatch(Instant(ms * MS), RequestId(0), side, false);
        drive.on_complete(Instant(ms * MS + micros * 1_000), RequestId(0), side, bytes);
        drive.rate(Side::Read)
    };
    (0..100).for_each(|ms| _ = one(ms, 1_000, Side::Write, 100_000));
    let beside: Vec<u64> = (100..300)
        .map(|ms| match ms % 4 {
            0 => one(ms, 1_000, Side::Read, 30_000),
            _ => one(ms, 1_000, Side::Write, 120_000),
        })
        .collect();
    let rate = beside.last().copied().unwrap();
    assert!(rate > 100_000_000 && rate <= RATE, "30 MB/s in a tenth of the time: {rate}");
    let alone = (500..1_500).map(|ms| one(ms, 1_000, Side::Read, 60_000)).last().unwrap();
    assert!((55_000_000..70_000_000).contains(&alone), "{alone}");
}
