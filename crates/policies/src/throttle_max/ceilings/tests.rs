//! Bursts and ceilings on reads and writes together: numbers by hand, turns, and the bound of every window at random.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use iofair_core::contract::{Burst, Contract, Limits, Total};
use iofair_core::controller::{Controller, Submission};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::Priority;
use iofair_core::request::{Direction, Flags, Operation};
use iofair_core::testing;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

use Operation::{Read, Write};

const MB: u64 = 1_000_000;
const MS: u64 = 1_000_000;
const KIB_4: u64 = 4096;

/// A request that left: when, of which group, direction, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    at: Instant,
    group: GroupId,
    direction: Direction,
    bytes: u64,
}

struct Rig {
    controller: Controller,
    now: Instant,
    sent: u64,
    /// By tag, from 1.
    directions: Vec<Direction>,
    log: Vec<Left>,
}

impl Rig {
    fn new() -> Self {
        let controller = testing::controller(testing::wide(), &crate::TABLE, "max-none", &[]);
        Self { controller, now: Instant::ZERO, sent: 0, directions: Vec::new(), log: Vec::new() }
    }
    fn group(&mut self, path: &str, weight: u32, max: Limits) -> GroupId {
        let contract = Contract { max, weight, ..Contract::default() };
        match self.controller.groups().find(path) {
            Some(group) => {
                self.controller.update_group(self.now, group, contract).expect("there");
                group
            }
            None => self.controller.add_group(self.now, path, contract).expect("new"),
        }
    }
    fn client(&mut self, path: &str, max: Limits) -> ClientId {
        self.weighed(path, 100, max)
    }
    fn weighed(&mut self, path: &str, weight: u32, max: Limits) -> ClientId {
        let group = self.group(path, weight, max);
        self.controller
            .add_client(self.now, group, Priority::default())
            .expect("the group is there")
    }
    fn send(&mut self, client: ClientId, operation: Operation, bytes: u64, count: u64) {
        for _ in 0..count {
            self.sent += 1;
            self.directions.push(operation.direction());
            let submission = Submission {
                tag: self.sent,
                client,
                operation,
                flags: Flags::NONE,
                start: Sectors(self.sent * (1 << 17)),
                length: Sectors::from_bytes_ceil(bytes),
            };
            self.controller.submit(self.now, submission).expect("within the limit");
        }
    }
    fn go(&mut self) {
        let mut done = Vec::new();
        while let Some(dispatch) = self.controller.dispatch(self.now) {
            let complete = self.controller.complete(self.now, dispatch.command, 0, &mut done);
            complete.expect("the drive has it");
        }
        for done in done {
            let group = self.controller.groups().client(done.part.client).group;
            let direction = self.directions[done.part.tag as usize - 1];
            let bytes = done.part.length.bytes();
            self.log.push(Left { at: self.now, group, direction, bytes });
        }
    }
    /// Serves wake-ups up to and at `end`.
    fn run(&mut self, end_ms: u64) {
        let end = Instant(end_ms * MS);
        self.go();
        while let Some(wakeup) = self.controller.next_wakeup().filter(|wakeup| *wakeup <= end) {
            self.now = self.now.max(wakeup);
            self.go();
        }
        self.now = end;
    }
    /// What left in a time: milliseconds, and how many at each.
    fn times(&self) -> Vec<(u64, usize)> {
        let chunks = self.log.chunk_by(|a, b| a.at == b.at);
        chunks.map(|chunk| (chunk[0].at.0 / MS, chunk.len())).collect()
    }
    fn bytes(&self, of: impl Fn(&Left) -> bool) -> u64 {
        self.log.iter().filter(|left| of(left)).map(|left| left.bytes).sum()
    }
}

fn burst(bytes: u64) -> Burst {
    Burst { bytes: Some(bytes), requests: None }
}
fn total(bytes_per_s: u64) -> Total {
    Total { bytes_per_s: Some(bytes_per_s), iops: None }
}

/// Goal: the burst goes at once, then the rate, and it is saved up again. Method: 4 MB/s of reads in requests of 40,960
/// bytes, one each 10.24 ms, with a burst of ten; by hand.
#[test]
fn first_the_burst_then_the_rate() {
    let mut rig = Rig::new();
    const LENGTH: u64 = 10 * KIB_4;
    let max = Limits { burst: burst(10 * LENGTH), ..Limits::both(4 * MB) };
    let client = rig.client("a", max);
    rig.send(client, Read, LENGTH, 13);
    rig.run(40);
    assert_eq!(rig.times(), [(0, 10), (10, 1), (20, 1), (30, 1)]);
    // After 51.2 ms, five are saved up; after a second, ten and no more.
    rig.log.clear();
    rig.now = Instant(30_720_000 + 51_200_000);
    rig.send(client, Read, LENGTH, 7);
    rig.run(200);
    assert_eq!(rig.times(), [(81, 5), (92, 1), (102, 1)]);
    rig.log.clear();
    rig.now = Instant(2000 * MS);
    rig.send(client, Read, LENGTH, 11);
    rig.run(2100);
    assert_eq!(rig.times(), [(2000, 10), (2010, 1)]);
}

/// Goal: requests have bursts of their own, and zero spaces them evenly. Method: 100 requests a second with bursts of
/// 5 and of none, by hand; without one, what the rate gives in 100 ms.
#[test]
fn bursts_of_requests() {
    let times = |requests| {
        let mut rig = Rig::new();
        let burst = Burst { bytes: None, requests };
        let total = Total { bytes_per_s: None, iops: Some(100) };
        let client = rig.client("a", Limits { total, burst, ..Limits::NONE });
        rig.send(client, Write, KIB_4, 12);
        rig.run(35);
        rig.times()
    };
    assert_eq!(times(Some(5)), [(0, 5), (10, 1), (20, 1), (30, 1)]);
    assert_eq!(times(Some(0)), [(0, 1), (10, 1), (20, 1), (30, 1)]);
    assert_eq!(times(None), [(0, 10), (10, 1), (20, 1)]);
}

/// Goal: reads and writes share a total, half each while both want it, and one has all of it alone; each keeps its
/// own ceiling besides. Method: long loads of both at 10 MB/s, with and without a ceiling of 2 MB/s on reads.
#[test]
fn reads_and_writes_share_a_total() {
    for (ceiling, want, sizes) in [
        (None, [5.0, 5.0], [KIB_4, KIB_4]),
        // Long writes and short reads: neither waits for the other for ever.
        (None, [5.0, 5.0], [KIB_4, 1 << 20]),
        (None, [5.0, 5.0], [1 << 20, KIB_4]),
        (Some(2 * MB), [2.0, 8.0], [KIB_4, 16 * KIB_4]),
        (Some(2 * MB), [2.0, 8.0], [16 * KIB_4, 1 << 20]),
    ] {
        let mut rig = Rig::new();
        let rates = Limits { bytes_per_s: [ceiling, None], total: total(10 * MB), ..Limits::NONE };
        let client = rig.client("a", rates);
        for (operation, bytes) in [Read, Write].into_iter().zip(sizes) {
            rig.send(client, operation, bytes, 50 * MB / bytes);
        }
        rig.run(5000);
        let rate = |direction| rig.bytes(|left| left.direction == direction) as f64 / 5e6;
        let got = [rate(Direction::Read), rate(Direction::Write)];
        let near = |(got, want): (f64, f64)| (got - want).abs() < 0.25;
        assert!(got.into_iter().zip(want).all(near), "{got:?} of {want:?}, {sizes:?}");
        assert!(rig.bytes(|_| true) <= 51 * MB, "{}", rig.bytes(|_| true));
    }
    let mut rig = Rig::new();
    let client = rig.client("a", Limits { total: total(10 * MB), ..Limits::NONE });
    rig.send(client, Write, KIB_4, 20 * MB / KIB_4);
    rig.run(1000);
    assert!(rig.bytes(|_| true).abs_diff(11 * MB) < 10 * KIB_4, "the rate and a burst of 100 ms");
}

/// Goal: whoever waits for a parent's bucket takes turns by weight, whatever the lengths and however many requests wait;
/// requests directly in the parent are one more group of weight 100. Method: long loads of three.
#[test]
fn turns_by_weight() {
    let mut rig = Rig::new();
    let own = rig.client("p", Limits { total: total(10 * MB), ..Limits::NONE });
    let light = rig.weighed("p/light", 100, Limits::NONE);
    let heavy = rig.weighed("p/heavy", 300, Limits::NONE);
    rig.send(own, Read, 2 * KIB_4, 6000);
    rig.send(light, Read, KIB_4, 12_000);
    rig.send(heavy, Read, 64 * KIB_4, 200);
    rig.run(4000);
    let of = |path: &str| {
        let group = rig.controller.groups().find(path).expect("there");
        rig.bytes(|left| left.group == group) as f64 / 4e6
    };
    let got = ["p", "p/light", "p/heavy"].map(of);
    assert!(got.iter().zip([2.0, 2.0, 6.0]).all(|(got, want)| (got - want).abs() < 0.4), "{got:?}");
}

/// Goal: a total is shared by weight whatever the directions, also by groups further down, and a group's reads and writes
/// count together. Method: long loads at 10 MB/s of groups that read, write or do both, the last of them one level deeper.
#[test]
fn a_total_is_shared_whatever_the_direction() {
    const BOTH: &[Operation] = &[Read, Write];
    for (one, other, want) in [
        (&[Read][..], &[Write][..], [2.5, 7.5]),
        (BOTH, &[Read], [2.5, 7.5]),
        (&[Write], BOTH, [2.5, 7.5]),
    ] {
        for middle in ["", "c/"] {
            let mut rig = Rig::new();
            rig.group("p", 100, Limits { total: total(10 * MB), ..Limits::NONE });
            let paths = ["a", "b"].map(|name| format!("p/{middle}{name}"));
            for ((path, weight), operations) in paths.iter().zip([100, 300]).zip([one, other]) {
                let client = rig.weighed(path, weight, Limits::NONE);
                for operation in operations {
                    rig.send(client, *operation, 4 * KIB_4, 3000);
                }
            }
            rig.run(4000);
            let of = |path: &String, operation: Operation| {
                let (group, direction) =
                    (rig.controller.groups().find(path), operation.direction());
                // Without the first burst, which goes to who asks first.
                let counts = |left: &Left| left.at > Instant::ZERO && Some(left.group) == group;
                rig.bytes(|left| counts(left) && left.direction == direction) as f64 / 4e6
            };
            let each = paths
                .each_ref()
                .map(|path| BOTH.iter().map(|operation| of(path, *operation)).collect::<Vec<_>>());
            let got = each.each_ref().map(|each| each.iter().sum::<f64>());
            let near = |(got, want): (&f64, f64)| (got - want).abs() < 0.1;
            assert!(got.iter().zip(want).all(near), "{middle}: {got:?} of {want:?}");
            // Who does both does each half of the time.
            for (each, operations) in each.iter().zip([one, other]) {
                assert!(operations.len() < 2 || (each[0] - each[1]).abs() < 0.2, "{each:?}");
            }
        }
    }
}

/// Goal: a ceiling on one direction, or on one group, holds nobody else. Method: writes that wait beside reads, of
/// the same group and of its sibling, below a total that has room.
#[test]
fn only_what_is_limited_waits() {
    let mut rig = Rig::new();
    rig.group("p", 100, Limits { total: total(100 * MB), ..Limits::NONE });
    let slow = Limits { bytes_per_s: [None, Some(1000)], burst: burst(0), ..Limits::NONE };
    let one = rig.client("p/one", slow);
    let other = rig.client("p/other", Limits::NONE);
    rig.send(one, Write, KIB_4, 10);
    rig.run(1);
    assert_eq!(rig.times(), [(0, 1)], "then one each 4 s");
    rig.now = Instant(2000 * MS);
    rig.log.clear();
    rig.send(one, Read, KIB_4, 5);
    rig.send(other, Write, KIB_4, 5);
    rig.run(2000);
    assert_eq!(rig.times(), [(2000, 10)]);
    assert_eq!(rig.bytes(|left| left.direction == Direction::Write), 5 * KIB_4);
}

/// Goal: a change of ceilings counts at once, and a lower rate forgives no debt. Method: a request that waits for a
/// second, then a higher rate, then none; a debt of 100 ms under another rate.
#[test]
fn changes_count_at_once() {
    let mut rig = Rig::new();
    let slow = |rate| Limits { total: total(rate), burst: burst(0), ..Limits::NONE };
    let client = rig.client("a", slow(KIB_4));
    rig.send(client, Read, KIB_4, 4);
    rig.run(1500);
    assert_eq!(rig.times(), [(0, 1), (1000, 1)]);
    rig.group("a", 100, slow(10 * KIB_4));
    rig.run(1600);
    assert_eq!(
        rig.times().last(),
        Some(&(1550, 1)),
        "half of the time was over, half of 100 ms is left"
    );
    rig.group("a", 100, Limits::NONE);
    rig.run(1600);
    assert_eq!(rig.times().last(), Some(&(1600, 1)));
    rig.send(client, Read, KIB_4, 100);
    rig.run(1600);
    assert_eq!(rig.times().last(), Some(&(1600, 101)));
    assert_eq!(rig.controller.next_wakeup(), None);
}

/// Most that a rate let through beyond itself: in any window, bytes or requests less `rate * time`.
fn beyond(rate: u64, passed: impl Iterator<Item = (Instant, u64)>) -> u64 {
    let (mut most, mut level, mut last) = (0, 0i128, Instant::ZERO);
    for (at, units) in passed {
        level = (level - i128::from(at.since(last).0) * i128::from(rate)).max(0);
        level += i128::from(units) * 1_000_000_000;
        (most, last) = (most.max(level), at);
    }
    u64::try_from(most / 1_000_000_000).expect("small")
}

/// Every ceiling of a group, held against what left: what went beyond, and what may.
fn excesses(
    log: &[Left],
    max: Limits,
    inside: impl Fn(GroupId) -> bool,
) -> Vec<(String, u64, u64)> {
    let mut found = Vec::new();
    for direction in [Some(Direction::Read), Some(Direction::Write), None] {
        let of = |left: &&Left| inside(left.group) && direction.is_none_or(|d| d == left.direction);
        let [bytes, iops] = match direction {
            Some(d) => [max.bytes_per_s[d as usize], max.iops[d as usize]],
            None => [max.total.bytes_per_s, max.total.iops],
        };
        let largest = log.iter().filter(of).map(|left| left.bytes).max().unwrap_or(0);
        let tenth = |rate: u64| rate.div_ceil(10);
        if let Some(rate) = bytes {
            let passed = log.iter().filter(of).map(|left| (left.at, left.bytes));
            let most = max.burst.bytes.unwrap_or(tenth(rate)).max(largest);
            found.push((format!("{direction:?} bytes"), beyond(rate, passed), most));
        }
        if let Some(rate) = iops {
            let passed = log.iter().filter(of).map(|left| (left.at, 1));
            let most = max.burst.requests.unwrap_or(tenth(rate)).max(1);
            found.push((format!("{direction:?} requests"), beyond(rate, passed), most));
        }
    }
    found
}

/// Draws numbers below a bound.
type Draw<'a> = dyn FnMut(u64) -> u64 + 'a;

fn draw(random: &mut Draw<'_>) -> Limits {
    let mut some = |odds, low: u64, high| (random(odds) == 0).then(|| low + random(high));
    let bytes_per_s = [some(3, MB, 20 * MB), some(3, MB, 20 * MB)];
    let iops = [some(5, 20, 2000), some(5, 20, 2000)];
    let total = Total { bytes_per_s: some(2, MB, 20 * MB), iops: some(5, 20, 2000) };
    let mut limits = Limits { bytes_per_s, iops, total, burst: Burst::default() };
    limits.burst.bytes = some(3, 0, 2 * MB);
    limits.burst.requests = some(3, 0, 50);
    // blk-throttle's own accounts do not keep this bound.
    if !super::applies(&limits) { Limits::NONE } else { limits }
}

/// Goal: at every group, in every window, no more passes than burst and rate, also when the stack changes; nothing is lost, and
/// nothing waits without reason. Method: random trees, ceilings, loads, lengths and changes; then everything drains.
#[test]
fn every_window_at_random() {
    for seed in 1..=60 {
        let mut state = seed;
        let mut random = |below: u64| {
            state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut rig = Rig::new();
        let mut groups = Vec::new();
        for path in ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "e/g"] {
            let (max, weight) = (draw(&mut random), 1 + random(1000) as u32);
            groups.push((path.to_string(), max, rig.weighed(path, weight, max)));
        }
        for _ in 0..400 {
            let client = groups[random(groups.len() as u64) as usize].2;
            let operation = if random(2) == 0 { Read } else { Write };
            let longest = if random(4) == 0 { 256 } else { 16 };
            let bytes = (1 + random(longest)) * KIB_4;
            rig.send(client, operation, bytes, 1 + random(6));
            let rest = random(20);
            if random(8) == 0 {
                let stack = ["max-none", "max-mq-deadline"][random(2) as usize];
                rig.controller.switch(rig.now, crate::TABLE.stack(stack).expect("in the table"));
            }
            rig.run(rig.now.0 / MS + rest);
        }
        let loaded = rig.now.0 / MS;
        rig.run(loaded + 3600 * 1000);
        assert_eq!(rig.log.len() as u64, rig.sent, "seed {seed}: all came through");
        for (path, max, _) in &groups {
            let tree = rig.controller.groups();
            let top = tree.find(path).expect("there");
            let inside = |group| tree.ancestry(group).any(|at| at == top);
            for (what, got, most) in excesses(&rig.log, *max, inside) {
                assert!(
                    got <= most,
                    "seed {seed}, {path}, {what}: {got} beyond the rate, {most} allowed"
                );
            }
        }
    }
}

/// Goal: the check above sees a ceiling that is not kept. Method: blk-throttle's own accounts, which let two slices
/// through at once, held against a burst of half a slice.
#[test]
fn the_check_sees_too_much() {
    let mut rig = Rig::new();
    let client = rig.client("a", Limits::both(10 * MB));
    rig.send(client, Read, KIB_4, 2000);
    rig.run(5000);
    let told = Limits { burst: burst(MB / 2), ..Limits::both(10 * MB) };
    let found = excesses(&rig.log, told, |_| true);
    assert!(found.iter().any(|(_, got, most)| got > most), "{found:?}");
}

/// Goal: a ceiling costs no throughput: while requests wait, the bucket that they wait for is never full. Method: a
/// tree in which the parent is the limit, then one in which the children are.
#[test]
fn the_rate_is_reached() {
    for (parent, child) in [(10 * MB, 8 * MB), (100 * MB, 5 * MB)] {
        let mut rig = Rig::new();
        rig.group("p", 100, Limits { total: total(parent), ..Limits::NONE });
        let clients = ["p/a", "p/b"].map(|path| {
            rig.client(path, Limits { total: total(child), burst: burst(0), ..Limits::NONE })
        });
        for client in clients {
            for operation in [Read, Write] {
                rig.send(client, operation, 8 * KIB_4, 3000);
            }
        }
        rig.run(4000);
        let got = rig.bytes(|_| true) as f64 / 4e6;
        let want = parent.min(2 * child) as f64 / 1e6;
        assert!(got >= want * 0.99 && got <= want * 1.03, "{got} of {want}");
    }
}

/// Goal: the rate is reached with any burst, however late wake-ups come, up to what is made up for; and nothing passes
/// beyond burst, rate and that. Method: 10,000 requests a second with bursts of one and more, 40 always queued,
/// the same in bytes, under a parent that holds as much; wake-ups late by times drawn up to a bound.
#[test]
fn late_wake_ups_lose_nothing() {
    const RATE: u64 = 10_000;
    let iops = |burst| Limits {
        total: Total { bytes_per_s: None, iops: Some(RATE) },
        burst: Burst { bytes: None, requests: Some(burst) },
        ..Limits::NONE
    };
    let bytes = |units| Limits { burst: burst(units * KIB_4), ..Limits::both(RATE * KIB_4) };
    let parents: [fn(Limits) -> Limits; 2] = [|_| Limits::NONE, |max| max];
    for (max, parent) in [iops(0), iops(1), iops(3), bytes(0), bytes(1), bytes(3)]
        .into_iter()
        .flat_map(|max| parents.map(|parent| (max, parent(max))))
    {
        for latest in [0, 20_000, 300_000, 5 * MS] {
            let mut rig = Rig::new();
            rig.group("p", 100, parent);
            let client = rig.client("p/a", max);
            rig.send(client, Write, KIB_4, 40);
            let (mut state, end) = (latest, Instant(2000 * MS));
            loop {
                // As much is always queued: a client sends as soon as it is answered.
                rig.go();
                while rig.sent < rig.log.len() as u64 + 40 {
                    rig.send(client, Write, KIB_4, 1);
                    rig.go();
                }
                state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1);
                let late = (state >> 33) % (latest + 1);
                let wakeup = rig.controller.next_wakeup().expect("something waits");
                rig.now = rig.now.max(Instant(wakeup.0 + late));
                if rig.now > end {
                    break;
                }
            }
            let got = rig.log.len() as u64;
            assert!(got >= 2 * RATE * 99 / 100, "{max:?}, {latest} ns late: {got} in 2 s");
            let made_up = latest * RATE / 1_000_000_000;
            let most =
                max.burst.requests.or(max.burst.bytes.map(|b| b / KIB_4)).unwrap_or(0).max(1);
            let beyond = beyond(RATE, rig.log.iter().map(|left| (left.at, 1)));
            assert!(beyond <= most + made_up, "{max:?}, {latest} ns late: {beyond} beyond");
        }
    }
}

/// Goal: a stop of the server that is longer than what is made up for is lost, as far as it exceeds the burst. Method: a
/// burst of one, asked after a second.
#[test]
fn a_long_stop_is_not_made_up_for() {
    let mut rig = Rig::new();
    let total = Total { bytes_per_s: None, iops: Some(1000) };
    let burst = Burst { bytes: None, requests: Some(1) };
    let client = rig.client("a", Limits { total, burst, ..Limits::NONE });
    rig.send(client, Write, KIB_4, 100);
    rig.run(0);
    rig.now = Instant(1000 * MS);
    rig.run(1001);
    assert_eq!(rig.times(), [(0, 1), (1000, 6), (1001, 1)]);
}
