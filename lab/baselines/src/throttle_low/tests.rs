//! The rules one by one: the drive's two states on a hand-made world, then what a group and the drive
//! remember, on their own.

use std::vec::Vec;

use super::device::Device;
use super::share::{Latency, Settings, Share};
use super::*;
use iofair_core::contract::{Contract, Low};
use iofair_core::controller::{Controller, Submission};
use iofair_core::id::{ClientId, CommandId};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing;
use iofair_core::unit::Sectors;

const MB: u64 = 1_000_000;
const READ: Operation = Operation::Read;
const WRITE: Operation = Operation::Write;

/// A drive of flash that completes commands when told; times in milliseconds.
struct Rig {
    controller: Controller,
    flying: Vec<(ClientId, CommandId)>,
    sent: u64,
    /// Length of the next requests.
    length: Sectors,
}

impl Rig {
    fn new(set: &[(&str, &str)]) -> Self {
        Self {
            controller: testing::controller(testing::wide(), &crate::TABLE, "low-none", set),
            flying: Vec::new(),
            sent: 0,
            length: Sectors(256),
        }
    }
    /// A client in a group of its own; `idle` is its threshold in milliseconds.
    fn client(&mut self, path: &str, limits: Limits, idle: u64) -> ClientId {
        let low = Low { limits, latency: None, idle: Some(Nanos::from_millis(idle)) };
        self.with(path, Contract { low, ..Contract::default() })
    }
    fn with(&mut self, path: &str, contract: Contract) -> ClientId {
        let group = self.controller.add_group(Instant::ZERO, path, contract).expect("new");
        self.controller.add_client(Instant::ZERO, group, Priority::default()).expect("is there")
    }
    fn send(&mut self, ms: u64, client: ClientId, operation: Operation, count: u64) {
        for _ in 0..count {
            self.sent += 1;
            let submission = Submission {
                tag: self.sent,
                client,
                operation,
                flags: Flags::NONE,
                start: Sectors(self.sent << 17),
                length: self.length,
            };
            self.controller.submit(at(ms), submission).expect("within the limit");
        }
    }
    /// How many go now; they stay with the drive.
    fn go(&mut self, ms: u64) -> usize {
        let before = self.flying.len();
        while let Some(dispatch) = self.controller.dispatch(at(ms)) {
            let client = self.controller.parts(dispatch.command).next().expect("itself").client;
            self.flying.push((client, dispatch.command));
        }
        self.flying.len() - before
    }
    /// The drive completes all that it has.
    fn completion(&mut self, ms: u64) {
        self.complete_at(at(ms));
    }
    fn complete_at(&mut self, now: Instant) {
        for (_, id) in core::mem::take(&mut self.flying) {
            self.controller.complete(now, id, 0, &mut Vec::new()).expect("the drive has it");
        }
    }
    /// Serves every wake-up up to a time: how many went.
    fn run(&mut self, end: u64) -> usize {
        let mut gone = 0;
        while let Some(wakeup) = self.controller.next_wakeup().filter(|w| *w <= at(end)) {
            gone += self.go(wakeup.0 / 1_000_000);
        }
        gone
    }
    fn gauge(&self, name: &str) -> u64 {
        testing::gauge(&self.controller, name)
    }
    fn is_low(&self) -> bool {
        self.gauge("state_low") == 1
    }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Nanos::from_millis(ms)
}
fn bytes(read: u64, write: u64) -> Limits {
    let limit = |rate| (rate > 0).then_some(rate);
    Limits { bytes_per_s: [limit(read), limit(write)], ..Limits::NONE }
}

/// A group that is not idle for four seconds after `from`: its one request took 5 ms, much longer than
/// usual. It finds the others idle and takes the drive to MAX; a limit set later takes it down again.
fn not_idle(rig: &mut Rig, path: &str, limits: Limits, from: u64) -> ClientId {
    let client = rig.client(path, limits, 1000);
    rig.send(from, client, READ, 1);
    assert_eq!(rig.go(from), 1);
    rig.completion(from + 5);
    client
}

/// Goal: in LOW all are held to their low limits; a direction without one to 320 KiB/s and 10 requests a
/// second, unless the other unit is limited. Method: a group that is not idle keeps the drive in LOW; 20 ms
/// of 10 MB/s, from 5 ms on, are one read of 128 KiB; the next lacks 62,144 bytes = 6 ms and waits for the slice's end.
#[test]
fn low_applies_each_low_limit() {
    let mut rig = Rig::new(&[]);
    not_idle(&mut rig, "victim", bytes(10 * MB, 10 * MB), 0);
    let reader = rig.client("reader", bytes(10 * MB, 0), 1);
    let plain = rig.with("plain", Contract::default());
    let iops = Limits { iops: [Some(100); 2], ..Limits::default() };
    let counted = rig.client("counted", iops, 1);
    assert!(rig.is_low(), "a low limit was set");
    rig.send(10, reader, READ, 5);
    assert_eq!(rig.go(10), 1);
    assert_eq!(rig.controller.next_wakeup(), Some(at(31)));
    rig.send(10, counted, READ, 5);
    assert_eq!(rig.go(10), 2, "100 a second in 20 ms, of any size");
    rig.send(10, reader, WRITE, 5);
    rig.send(10, plain, READ, 5);
    assert_eq!(rig.go(10), 0, "10 requests a second: none in 20 ms");
    assert!(rig.is_low());
    // 320 KiB/s are a read of 128 KiB every 400 ms.
    let first = rig.flying.len();
    rig.run(1000);
    let plain = rig.flying[first..].iter().filter(|(client, _)| *client == plain);
    assert_eq!((plain.count(), rig.is_low()), (2, true));
}

/// Goal: an upgrade wants requests waiting in every limited direction. Method: a group that is not idle
/// has reads waiting; another one over its limit asks it for leave.
#[test]
fn an_upgrade_wants_all_limited_directions_waiting() {
    for (limits, upgraded) in [(bytes(10 * MB, 0), true), (bytes(10 * MB, 10 * MB), false)] {
        let mut rig = Rig::new(&[]);
        let asked = not_idle(&mut rig, "asked", limits, 0);
        let asks = not_idle(&mut rig, "asks", bytes(10 * MB, 0), 10);
        rig.client("silent", bytes(MB, MB), 1);
        rig.send(40, asked, READ, 8);
        assert_eq!((rig.go(40), rig.is_low()), (1, true), "the other has nothing waiting");
        rig.send(41, asks, READ, 8);
        assert_eq!(rig.is_low(), !upgraded, "{limits:?}");
        rig.send(42, asked, WRITE, 40);
        assert!(!rig.is_low(), "now both wait: {limits:?}");
    }
}

/// Goal: who asks for more than its limit does not ask itself for leave. Method: one group that is not
/// idle and has nothing waiting, alone; then beside another such.
#[test]
fn a_group_over_its_limit_asks_the_others() {
    let both = bytes(10 * MB, 10 * MB);
    for beside in [false, true] {
        let mut rig = Rig::new(&[]);
        let client = not_idle(&mut rig, "a", both, 0);
        if beside {
            not_idle(&mut rig, "b", both, 10);
        }
        rig.client("silent", bytes(MB, MB), 1);
        rig.send(40, client, READ, 1);
        assert!(rig.is_low(), "within the limit, once a slice: a itself is not idle");
        rig.send(41, client, READ, 1);
        assert_eq!(rig.is_low(), beside);
    }
}

/// Goal: after the upgrade limits grow by half a low limit a slice. Method: a backlog of a group alone,
/// with limits on reads; in n slices of 20 ms 200,000 * (n + (0 + 1 + ... + n - 1) / 2) bytes, and the
/// slice's rounding.
#[test]
fn limits_grow_by_half_a_slice() {
    let mut rig = Rig::new(&[]);
    let client = rig.client("a", bytes(10 * MB, 0), 1);
    rig.send(0, client, READ, 20_000);
    let mut gone = rig.go(0) as u64;
    assert!(!rig.is_low());
    for slices in 1..=50u64 {
        gone += rig.run(slices * 20 - 1) as u64;
        let most = 200_000 * (slices + 1) + 100_000 * (slices + 1) * slices / 2;
        let least = 200_000 * (slices - 1) / 2 + 100_000 * (slices - 1) * (slices.max(2) - 2) / 2;
        let bytes = gone * 131_072;
        assert!(bytes <= most + 131_072 && bytes + 2 * 131_072 >= least, "{slices}: {bytes}");
    }
    assert_eq!(rig.gauge("scale"), 49);
}

/// One read of 128 KiB every 20 ms (6.5 MB/s) against a limit of 10 MB/s, completed after `took`, beside a
/// group that has enough: the scale after each step, and whether the drive is in LOW.
fn miss(rig: &mut Rig, slow: &str, took: Nanos) -> Vec<(u64, bool)> {
    let slow = rig.client(slow, bytes(10 * MB, 0), 50);
    let busy = rig.client("busy", bytes(10 * MB, 0), 50);
    rig.send(0, busy, READ, 3);
    rig.go(0);
    rig.flying.clear();
    assert!(!rig.is_low(), "the other is idle");
    let mut scales = Vec::new();
    for ms in [0, 6, 20, 40, 60, 80, 100] {
        // Two small ones first, so that there is something to judge.
        rig.length = Sectors(if ms < 20 { 8 } else { 256 });
        rig.send(ms, slow, READ, 1);
        scales.push((rig.gauge("scale"), rig.is_low()));
        rig.go(ms);
        rig.flying.retain(|(client, _)| *client == slow);
        rig.complete_at(at(ms) + took);
        rig.send(ms + 5, busy, READ, 1);
    }
    scales
}

/// Goal: a group below its low limit that is not idle halves the growth and at last takes the drive to
/// LOW; one whose requests are as fast as usual does not. Method: completions after 5 ms, and after 50 us.
#[test]
fn a_missed_low_limit_leads_to_low() {
    let scales = miss(&mut Rig::new(&[]), "slow", Nanos::from_millis(5));
    assert!(scales.contains(&(0, true)), "{scales:?}");
    let scales = miss(&mut Rig::new(&[]), "fast", Nanos::from_micros(50));
    assert_eq!(scales, [0, 0, 1, 2, 3, 4, 5].map(|scale| (scale, false)), "a slice a step");
}

/// Goal: a child of a group without low limits counts as idle and its own limit never takes effect; below
/// a group that misses its limits too it does. Method: the slow group of the last test as a child.
#[test]
fn thresholds_are_inherited() {
    for (parent, falls) in [(bytes(0, 0), false), (bytes(30 * MB, 30 * MB), true)] {
        let mut rig = Rig::new(&[]);
        rig.client("p", parent, 100);
        let scales = miss(&mut rig, "p/slow", Nanos::from_millis(5));
        assert_eq!(scales.iter().any(|(_, low)| *low), falls, "{scales:?}");
    }
}

/// Goal: the suite's trap. A group with limits on both directions that only reads takes the drive down
/// however much it reads, since its writes never overflow; with a limit on reads alone it does not.
/// Method: a busy reader whose requests take 5 ms, above its limit all the time.
#[test]
fn limits_on_both_directions_bind_a_reader() {
    for (limits, falls) in [(bytes(MB, MB), true), (bytes(MB, 0), false)] {
        let mut rig = Rig::new(&[]);
        let reader = rig.client("reader", limits, 1000);
        let mut lows = 0;
        for step in 0..200 {
            rig.send(step * 5, reader, READ, 2);
            rig.go(step * 5);
            rig.completion(step * 5 + 4);
            lows += u32::from(rig.is_low());
        }
        assert_eq!(lows > 100, falls, "LOW in {lows} of 200");
    }
}

/// Goal: a held request is asked again every eight slices at the latest. Method: 1 read a second in LOW.
#[test]
fn held_requests_are_retried_within_eight_slices() {
    let mut rig = Rig::new(&[]);
    not_idle(&mut rig, "victim", bytes(10 * MB, 10 * MB), 0);
    let slow = rig.client("slow", bytes(1000, 0), 1);
    rig.send(10, slow, READ, 1);
    assert_eq!(rig.go(10), 0);
    assert_eq!(rig.controller.next_wakeup(), Some(at(10 + 160)), "not in 131 s");
    // The victim falls silent: after 4 s it is idle, the drive is in MAX, and limits grow.
    assert_eq!(rig.run(3900), 0);
    assert!(rig.is_low());
    rig.run(4400);
    assert!(!rig.is_low());
}

/// Goal: low limits come from `low`, else from `min`, are dropped when a threshold is unset, and a contract
/// can change live. Method: look at the number of groups with low limits and at the state.
#[test]
fn low_limits_come_from_the_contract() {
    let minimum = Contract { min: Some(5 * MB), ..Contract::default() };
    for (set, lows) in [(&[][..], 1), (&[("idle", "0ms")], 0), (&[("latency", "0ms")], 0)] {
        let mut rig = Rig::new(set);
        rig.with("a", minimum.clone());
        assert_eq!((rig.gauge("groups_with_low"), rig.is_low()), (lows, lows > 0), "{set:?}");
    }
    let mut rig = Rig::new(&[]);
    let client = rig.with("a", minimum.clone());
    rig.send(0, client, READ, 1000);
    assert!(rig.go(0) < 1000);
    let group = rig.controller.groups().find("a").expect("made above");
    rig.controller.update_group(at(1), group, Contract::default()).expect("is there");
    assert_eq!((rig.gauge("groups_with_low"), rig.is_low()), (0, false));
    rig.go(1);
    assert_eq!(rig.gauge("held_requests"), 0, "no limit, no wait");
    rig.controller.update_group(at(2), group, minimum).expect("is there");
    assert!(rig.is_low());
    rig.completion(3);
    rig.controller.remove_client(at(3), client).expect("nothing inside");
    rig.controller.remove_group(at(3), group).expect("empty");
    assert!(!rig.is_low(), "nobody is left who wants it");
}

/// Goal: a low limit is at most the ceiling, which holds in MAX, with `ceilings`; without, ceilings are not
/// looked at. Method: 10 MB/s low, 6 MB/s max, a backlog for a second.
#[test]
fn ceilings_hold_if_asked_for() {
    for (ceilings, most) in [("true", 50), ("false", 1000)] {
        let mut rig = Rig::new(&[("ceilings", ceilings)]);
        let low = Low { limits: bytes(10 * MB, 0), ..Low::default() };
        let max = Limits::both(6 * MB);
        let client = rig.with("a", Contract { low, max, ..Contract::default() });
        rig.send(0, client, READ, 1000);
        let gone = rig.go(0) + rig.run(1000);
        assert!(gone <= most && gone >= 45, "{gone}");
    }
}

fn share(latency: u64, idle: u64) -> Share {
    let thresholds = [Nanos::from_micros(latency), Nanos::from_micros(idle)];
    let settings = Settings::new(Limits::default(), bytes(MB, MB), thresholds);
    let mut share = Share::new(settings);
    [share.latency, share.idle] = settings.thresholds();
    share
}

/// Goal: a group's last overflow is that of its direction where it is longest ago, or a later one of a
/// group above that has low limits; never is long ago, and a direction without limit does not count.
/// Method: a chain of groups, overflows set by hand.
#[test]
fn overflows_of_groups_above_count_if_later() {
    let rule = Rule {
        slice_ms: 20,
        linux_7: false,
        ask_each_slice: true,
        burst: Nanos::ZERO,
        joint: false,
    };
    let mut low = ThrottleLow {
        levels: Levels::new(rule, Nanos::MAX, Device::new(20, false)),
        latency: Nanos::from_micros(100),
        idle: Nanos::from_micros(1000),
        ceilings: false,
        stale: false,
        walk: Vec::new(),
        refuser: TOP,
    };
    let thresholds = [low.latency, low.idle];
    let chain = [bytes(0, 0), bytes(9 * MB, 0), bytes(0, 0), bytes(MB, MB)];
    for (index, limits) in chain.into_iter().enumerate() {
        let settings = Settings::new(Limits::default(), limits, thresholds);
        low.levels.add(at(0), index + 1, index, Share::new(settings));
    }
    let mut last = |leaf: [u64; 2], plain: [u64; 2], above: [u64; 2]| {
        for (level, overflow) in [(4, leaf), (3, plain), (2, above)] {
            low.levels.account_mut(level).overflow = overflow;
        }
        low.last_overflow(1000, 4)
    };
    assert_eq!(last([500, 0], [0, 0], [0, 0]), 0, "never written");
    assert_eq!(last([500, 400], [0, 0], [300, 0]), 400, "the earlier one of its own");
    assert_eq!(last([500, 400], [900, 900], [0, 0]), 400, "no low limit says nothing");
    assert_eq!(last([500, 400], [0, 0], [600, 0]), 600, "the group above had enough later");
}

/// The latency of a request that usually takes 50 us.
fn latency(took: u64) -> Latency {
    Latency { took, usual: 50, counts_from: 0 }
}

/// Goal: each of the reasons to count as idle. Method: one by one, from a group that is not.
#[test]
fn reasons_to_be_idle() {
    let busy = |share: &mut Share, bad: u64, good: u64| {
        share.completed(at(1000), latency(200), 20); // The first one is halved away at once.
        for (count, took) in [(bad, 200), (good, 150)] {
            (0..count).for_each(|_| share.completed(at(1000), latency(took), 20));
        }
    };
    let now = micros(at(1000));
    let mut never = share(100, 1000);
    assert!(never.is_idle(now), "no completion yet");
    busy(&mut never, 1, 4);
    assert!(!never.is_idle(now), "a fifth of the requests took 100 us longer than usual");
    let mut good = share(100, 1000);
    busy(&mut good, 1, 6);
    assert!(good.is_idle(now), "less than a fifth");
    assert!(!never.is_idle(now + 4000) && never.is_idle(now + 4001), "silent for 4 thresholds");
    let mut patient = share(100, 10_000_000);
    busy(&mut patient, 1, 0);
    assert!(!patient.is_idle(now + 5_000_000) && patient.is_idle(now + 5_000_001), "or 5 s");
    let mut thinker = share(100, 1000);
    busy(&mut thinker, 1, 0);
    thinker.came(now + 8000);
    assert!(!thinker.is_idle(now + 1), "mean think time 8000 / 8");
    thinker.came(now + 9000);
    assert!(!thinker.is_idle(now + 1), "an completion counts once");
    thinker.completed(at(1001), latency(200), 20);
    thinker.came(micros(at(1001)) + 2000);
    assert!(thinker.is_idle(micros(at(1001))), "(1000 * 7 + 2000) / 8 = 1125");
}

/// Goal: counts are halved each slice and above 1,024. Method: a bad past against a good present.
#[test]
fn old_counts_are_halved() {
    let mut share = share(100, 1_000_000);
    for _ in 0..64 {
        share.completed(at(1000), latency(500), 20);
    }
    assert!(!share.is_idle(micros(at(1000))));
    for slice in 1..=6 {
        (0..8).for_each(|_| share.completed(at(1000 + slice * 21), latency(50), 20));
    }
    assert!(share.is_idle(micros(at(1127))), "64 bad ones, six times halved");
}

/// Goal: what is usual is learned in LOW alone, on flash alone, from 32 completions or more, once a second,
/// slowly, and never falls with size. Method: hand-made completions.
#[test]
fn the_usual_time_is_learned() {
    let (small, large) = (Sectors(8), Sectors(2048));
    let feed = |device: &mut Device, length, took, count| {
        (0..count).for_each(|_| device.measure(READ, length, took));
    };
    let mut device = Device::new(20, false);
    device.lows = 1;
    feed(&mut device, small, 100, 40);
    device.learn(300_000);
    assert_eq!(device.usual(0, small), 0, "not in MAX");
    device.is_low = true;
    feed(&mut device, small, 100, 31);
    device.learn(301_000);
    assert_eq!(device.usual(0, small), 0, "31 are too few");
    feed(&mut device, small, 100, 1);
    device.learn(301_999);
    assert_eq!(device.usual(0, small), 0, "not yet a second");
    device.learn(302_000);
    assert_eq!(device.usual(0, small), 100, "but the 31 were kept");
    assert_eq!((device.usual(0, large), device.usual(1, small)), (100, 0), "no less when larger");
    feed(&mut device, small, 180, 32);
    feed(&mut device, large, 90, 32);
    device.learn(303_000);
    assert_eq!(device.usual(0, small), 110, "(7 * 100 + 180) / 8");
    assert_eq!(device.usual(0, large), 110, "90 measured, but no less than smaller ones");
    let sizes = [1, 8, 9, 16, 17, 1024, 1025, 2048, 1 << 20];
    let mut one = Device::new(20, false);
    (one.lows, one.is_low) = (1, true);
    for (place, sectors) in sizes.into_iter().enumerate() {
        feed(&mut one, Sectors(sectors), 10 * (place as u64 + 1), 32);
    }
    one.learn(400_000);
    let usual = sizes.map(|sectors| one.usual(0, Sectors(sectors)));
    assert_eq!(usual, [15, 15, 35, 35, 50, 60, 80, 80, 80]);

    let mut head = Device::new(100, true);
    (head.lows, head.is_low) = (1, true);
    feed(&mut head, small, 100, 64);
    head.learn(400_000);
    assert_eq!((head.usual(0, small), head.latency_counted()), (4000, 1000));
}

/// Goal: `scale` counts slices since the upgrade, stops at 4,096, and a downgrade halves it down to LOW.
/// Method: by hand.
#[test]
fn the_scale_grows_and_is_halved() {
    let mut device = Device::new(20, false);
    device.upgraded = jiffies(at(0));
    assert_eq!(device.grown(10 * MB, at(19)), 10 * MB);
    assert_eq!(device.grown(10 * MB, at(20)), 15 * MB);
    assert_eq!(device.grown(10 * MB, at(100)), 35 * MB);
    assert_eq!((device.downgrade(jiffies(at(100))), device.is_low), (2, false));
    assert_eq!(device.grown(10 * MB, at(100)), 20 * MB);
    assert_eq!(device.grown(10 * MB, at(120)), 25 * MB, "it grows again from there");
    assert_eq!(device.downgrade(jiffies(at(121))), 1);
    assert_eq!((device.downgrade(jiffies(at(122))), device.is_low), (0, true));
    let mut far = Device::new(20, false);
    far.upgraded = jiffies(at(0));
    assert_eq!(far.grown(2, at(4096 * 20)), 2 + 4096);
    assert_eq!(far.grown(2, at(9000 * 20)), 2 + 4096);
}
