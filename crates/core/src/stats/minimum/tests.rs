//! Worked examples: clients of many shapes, before drives that keep the minimum and drives that do not.

use alloc::collections::VecDeque;

use super::*;
use crate::contract::Limits;
use crate::request::Direction;

const MIN: u64 = 25_000_000;
const MINIMUM: Minimum = Minimum { bytes_per_s: Some(MIN), ios_per_s: None };
const BLOCK: u64 = 4096;
const SECONDS: u64 = 4;

const fn micros(n: u64) -> Nanos {
    Nanos::from_micros(n)
}

/// A client, and the drive as it appears to it.
#[derive(Clone, Copy)]
struct Case {
    min: u64,
    bytes: u64,
    /// Requests that it sends together.
    depth: u64,
    /// From the completion of the last of them to the next ones, or with `paced` from one arrival to the next.
    gap: Nanos,
    paced: bool,
    /// From one completion to the next, or from the arrival.
    service: Nanos,
    /// Every so often nothing is served for so long.
    stall: (Nanos, Nanos),
}

impl Case {
    const QD1: Self = Self {
        min: MIN,
        bytes: BLOCK,
        depth: 1,
        gap: Nanos::ZERO,
        paced: false,
        service: micros(160),
        stall: (Nanos(u64::MAX), Nanos::ZERO),
    };
    /// Broken seconds of the first four, and the bytes a second that were completed.
    fn run(self) -> (u64, u64) {
        let mut meter = MinimumMeter::default();
        let (mut broken, mut done, mut second) = (0, 0, Nanos::from_secs(1));
        let mut inside: VecDeque<Instant> = VecDeque::new();
        let (mut arrival, mut free, mut stall) =
            (Instant::ZERO + self.gap, Instant::ZERO, self.stall.0);
        let end = Instant::ZERO + Nanos::from_secs(SECONDS);
        let min = Minimum { bytes_per_s: Some(self.min), ios_per_s: None };
        loop {
            let completion = inside.front().map(|arrived| {
                let at = free.max(*arrived) + self.service;
                if Instant(stall.0) < at { at + self.stall.1 } else { at }
            });
            let may_arrive = self.paced || inside.is_empty();
            let next_arrival = if may_arrive { arrival } else { Instant(u64::MAX) };
            let now = completion.unwrap_or(next_arrival).min(next_arrival);
            while Instant(second.0) <= now.min(end) {
                let over = meter.end(Instant(second.0), min, Nanos::from_secs(1));
                broken += u64::from(over);
                second += Nanos::from_secs(1);
            }
            if now >= end {
                return (broken, done * self.bytes / SECONDS);
            }
            if completion == Some(now) {
                meter.complete(now, min, self.bytes);
                inside.pop_front();
                (free, done) = (now, done + 1);
                while stall.0 < now.0 {
                    stall = Nanos(stall.0.saturating_add(self.stall.0.0));
                }
                if !self.paced {
                    arrival = now + self.gap;
                }
            } else {
                (0..self.depth).for_each(|_| {
                    meter.arrive(now, min, self.bytes);
                    inside.push_back(now);
                });
                arrival = now + self.gap;
            }
        }
    }
    fn broken(self) -> u64 {
        self.run().0
    }
}

/// Goal: a client that always has one request inside is short exactly if it gets less than 95 % of its minimum.
/// Method: service a little faster and a little slower than a block's worth of 163.84 us, and 6 % slower.
#[test]
fn one_request_after_the_other() {
    for (service, broken) in [(100, 0), (163, 0), (170, 0), (175, SECONDS), (260, SECONDS)] {
        let case = Case { service: micros(service), ..Case::QD1 };
        assert_eq!(case.broken(), broken, "{service} us");
    }
}

/// Goal: the client's own gap neither hides a broken promise nor invents one. Method: gaps of 5 % to a half of the time,
/// each with a drive that keeps the minimum and with one that takes 260 us for what is worth 164.
#[test]
fn gaps_of_the_client_do_not_matter() {
    for gap in [8, 20, 50, 100, 160] {
        let good = Case { gap: micros(gap), service: micros(163), ..Case::QD1 };
        assert_eq!(good.broken(), 0, "{gap} us, kept");
        let bad = Case { service: micros(260), ..good };
        assert_eq!(bad.broken(), SECONDS, "{gap} us, and 15.8 MB/s or less");
    }
    // A gap takes nothing from the drive's part: faster service makes up for it, and the client gets its 25 MB/s.
    let (broken, rate) = Case { gap: micros(40), service: micros(120), ..Case::QD1 }.run();
    assert!(broken == 0 && rate > MIN, "{rate}");
}

/// Goal: a client that is below its minimum by its own pace is never short. Method: open and closed clients that have
/// requests inside for up to half of the time, with service far slower than what a block is worth.
#[test]
fn a_clients_own_pace_breaks_no_promise() {
    for (gap, service) in [(200, 150), (420, 400), (10_000, 5000), (200_000, 200_000)] {
        let closed = Case { gap: micros(gap), service: micros(service), ..Case::QD1 };
        assert_eq!(closed.broken(), 0, "closed, {gap} us");
        let gap = micros(gap + service);
        let open = Case { gap, paced: true, service: micros(service), ..Case::QD1 };
        assert_eq!(open.broken(), 0, "open, {gap}");
    }
    // 100 MB/s are promised, a block is worth 41 us, and no drive is as fast.
    let few = Case { min: 100_000_000, gap: micros(850), service: micros(150), ..Case::QD1 };
    assert_eq!(few.broken(), 0);
}

/// Goal: a client that pauses and is then starved is short all the same. Method: half of the time of its own, but each block
/// takes 100 ms.
#[test]
fn pauses_do_not_hide_starvation() {
    let case = Case { gap: micros(160), service: micros(100_000), ..Case::QD1 };
    assert_eq!(case.broken(), SECONDS);
}

/// Goal: bursts are worth what they are together. Method: 32 blocks, worth 5.2 ms, and then 4 ms of nothing; served within 5 ms
/// and in 8.
#[test]
fn bursts_are_valued_as_a_whole() {
    let burst = Case { depth: 32, gap: micros(4000), service: micros(150), ..Case::QD1 };
    assert_eq!(burst.broken(), 0);
    assert_eq!(Case { service: micros(250), ..burst }.broken(), SECONDS);
    // What is sent in bulk and never served is late from the first block's worth on.
    let never = Case { depth: 8192, service: Nanos::from_secs(9), ..Case::QD1 };
    assert_eq!(never.broken(), SECONDS, "1.3 s worth of blocks");
}

/// Goal: large requests have the time that they are worth, also over the ends of seconds. Method: 1 MiB at 10 MB/s, worth 105 ms,
/// one after the other and four at once.
#[test]
fn large_requests_have_the_time_that_they_are_worth() {
    for depth in [1, 4] {
        let large = Case { min: 10_000_000, bytes: 1 << 20, depth, ..Case::QD1 };
        assert_eq!(Case { service: micros(104_000), ..large }.broken(), 0, "{depth}");
        assert_eq!(Case { service: micros(115_000), ..large }.broken(), SECONDS, "{depth}");
    }
}

/// Goal: service in turns is service, a second with nothing is none. Method: fast service that stops for 170 ms twice a
/// second; the same that stops for 990 ms once.
#[test]
fn turns_keep_a_promise_and_long_stalls_do_not() {
    let turns = Case { service: micros(90), ..Case::QD1 };
    let stall = |every, length| (Nanos::from_millis(every), Nanos::from_millis(length));
    assert_eq!(Case { stall: stall(400, 170), ..turns }.broken(), 0);
    assert_eq!(Case { stall: stall(2000, 990), ..turns }.broken(), 1);
}

/// Goal: a minimum that comes, goes or changes owes nothing from before. Method: a group without one is starved, gets one in
/// the middle of a second, and loses it.
#[test]
fn a_changed_minimum_starts_without_debt() {
    let (mut meter, second) = (MinimumMeter::default(), Nanos::from_secs(1));
    let at = |millis| Instant::ZERO + Nanos::from_millis(millis);
    meter.arrive(at(0), Minimum::NONE, BLOCK);
    assert!(!meter.end(at(1000), Minimum::NONE, second));
    assert!(!meter.end(at(1040), MINIMUM, second), "40 ms of a minimum");
    assert!(meter.end(at(2040), MINIMUM, second));
    assert!(!meter.end(at(3040), Minimum::NONE, second));
    meter.complete(at(3050), Minimum::NONE, BLOCK);
    assert!(!meter.end(at(9000), MINIMUM, second), "nobody asks");
    meter.arrive(at(9000), Minimum::NONE, BLOCK);
    assert!(!meter.end(at(10_000), Minimum::NONE, second), "a minimum of nothing is kept");
}

/// Goal: a request counts for the levels above a ceiling while a piece of it that has passed is in the engine, and for those below from
/// the first to the last. Method: pieces of a request two levels below a ceiling, and of one without.
#[test]
fn requests_count_above_a_ceiling_once_they_have_passed_it() {
    let (free, limited) = (Limits::NONE, Limits::both(1));
    let mut request = Passage::new([&free, &free, &limited, &free], Direction::Read);
    let (all, above, none) = (0..usize::MAX, 2..usize::MAX, 0..0);
    assert_eq!((request.is_limited(), request.levels()), (true, 0..2));
    assert_eq!((request.pass(), request.levels()), (above.clone(), all.clone()));
    assert_eq!((request.pass(), request.end(true, 3)), (none.clone(), none.clone()));
    assert_eq!((request.end(true, 2), request.levels()), (above.clone(), 0..2));
    assert_eq!((request.pass(), request.end(true, 0)), (above, none.clone()));
    assert_eq!(request.levels(), all, "until it is completed");
    let mut request = Passage::new([&free, &free], Direction::Read);
    assert_eq!((request.is_limited(), request.levels()), (false, all));
    assert_eq!((request.pass(), request.end(true, 1)), (none.clone(), none));
}
