//! The rules one by one: what a group and its parent remember on their own, then a small world in which
//! every completion is given by hand.

use std::vec::Vec;

use super::delay::Delay;
use super::level::Children;
use super::*;
use iofair_core::contract::{Contract, Latency};
use iofair_core::controller::{Controller, Submission};
use iofair_core::id::{ClientId, CommandId};
use iofair_core::priority::Priority;
use iofair_core::request::Operation;
use iofair_core::testing;
use iofair_core::unit::Sectors;

const ME: GroupId = GroupId::from_bits(7);
const QD: i64 = 32;

fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}
fn at(n: u64) -> Instant {
    Instant::ZERO + ms(n)
}

/// A group with a target of 1 ms, by the rule for flash or by the mean.
fn level(by_percentile: bool) -> Level {
    level_of(Rule { by_percentile, linux_4_18: false })
}
fn level_of(rule: Rule) -> Level {
    let mut level = Level::new(Instant::ZERO, GroupId::ROOT, START, rule);
    level.set_target(ms(1));
    level
}
fn children() -> Children {
    level(true).children
}
/// A window of this many good and bad completions ends now.
fn window(
    level: &mut Level,
    siblings: &mut Children,
    now: u64,
    completions: [u64; 2],
) -> Option<Step> {
    for (count, took) in completions.into_iter().zip([ms(1) / 2, ms(3)]) {
        (0..count).for_each(|_| _ = level.completed(at(now), took, false));
    }
    level.judge(at(now), ME, siblings, QD)
}

/// Goal: a window is sixteen targets, from 100 ms to a second, and ends with the first completion after it.
/// Method: completions around the end.
#[test]
fn windows_end_with_an_answer() {
    for (target, window) in [(ms(1) / 100, 100), (ms(20), 320), (ms(100), 1000)] {
        let mut level = level(true);
        level.set_target(target);
        assert!(!level.completed(at(window - 1), ms(1), false), "{target:?}");
        assert!(level.completed(at(window + 50), ms(1), false));
        assert!(!level.completed(at(2 * window + 49), ms(1), false), "the next one begins there");
        assert!(level.completed(at(2 * window + 50), ms(1), false));
    }
}

/// Goal: on flash a tenth of the completions, at least one, makes a window bad, and the target itself is a
/// miss; else the mean counts. Method: numbers around the edges.
#[test]
fn good_and_bad_windows() {
    for (by_percentile, completions, down) in [
        (true, [19, 1], false),
        (true, [18, 1], true), // Of less than 20, one is too many.
        (true, [18, 2], true),
        (true, [28, 2], false),
        (true, [27, 3], true),
        (true, [1, 1], true),
        (false, [4, 1], false), // Four of 0.5 ms and one of 3 ms: 1 ms.
        (false, [3, 1], true),
        (false, [0, 0], false),
    ] {
        let got = window(&mut level(by_percentile), &mut children(), 1000, completions);
        assert_eq!(got, down.then_some(Step::Down), "{by_percentile} {completions:?}");
    }
    let mut exact = level(true);
    exact.completed(at(500), ms(1), false);
    assert_eq!(exact.judge(at(500), ME, &mut children(), QD), Some(Step::Down));
    let mut exact = level(false);
    exact.completed(at(500), ms(1), false);
    assert_eq!(exact.judge(at(500), ME, &mut children(), QD), None);
}

/// Goal: one step in 500 ms; up only by the culprit, content and with five completions at least. Method:
/// windows by hand; 8 of 32 down, 2 up.
#[test]
fn steps_down_and_up() {
    let (mut culprit, mut other) = (level(true), level(true));
    let mut siblings = children();
    assert_eq!(window(&mut culprit, &mut siblings, 100, [0, 5]), Some(Step::Down));
    assert_eq!(siblings.cookie, START - 8);
    assert_eq!(window(&mut culprit, &mut siblings, 599, [0, 5]), None, "too early");
    assert_eq!(window(&mut culprit, &mut siblings, 600, [0, 5]), Some(Step::Down));
    assert_eq!(siblings.cookie, START - 16);
    assert_eq!(window(&mut culprit, &mut siblings, 1100, [4, 0]), None, "four are too few");
    assert_eq!(window(&mut culprit, &mut siblings, 1101, [1, 0]), Some(Step::Up), "five in all");
    assert_eq!(siblings.cookie, START - 14);
    for _ in 0..20 {
        other.completed(at(1700), ms(1) / 2, false);
    }
    assert_eq!(
        other.judge(at(1700), GroupId::from_bits(8), &mut siblings, QD),
        None,
        "not the culprit"
    );
    let mut higher = level(true);
    higher.set_target(ms(2));
    assert_eq!(window(&mut higher, &mut siblings, 1700, [0, 9]), None, "a higher target waits");
    let mut lower = level(true);
    lower.set_target(ms(1) / 2);
    lower.completed(at(1701), ms(1), false);
    assert_eq!(lower.judge(at(1701), GroupId::from_bits(9), &mut siblings, QD), Some(Step::Down));
    assert_eq!(siblings.target, ms(1) / 2, "the lowest target becomes the culprit");
    assert_eq!(window(&mut culprit, &mut siblings, 2300, [9, 0]), None, "no longer the culprit");
}

/// Goal: 4.18 judges each window on its own, steps down for any miss, and sooner for a lower target.
/// Method: where today's rules say otherwise.
#[test]
fn windows_of_4_18() {
    for (linux_4_18, steps) in [
        (false, [Some(Step::Down), Some(Step::Up), None, None]),
        (true, [Some(Step::Down), None, Some(Step::Down), Some(Step::Down)]),
    ] {
        let rule = Rule { by_percentile: false, linux_4_18 };
        let (mut culprit, mut siblings) = (level_of(rule), children());
        let mut got = Vec::new();
        got.push(window(&mut culprit, &mut siblings, 1000, [0, 5]));
        assert_eq!(window(&mut culprit, &mut siblings, 1400, [4, 0]), None, "too early");
        got.push(window(&mut culprit, &mut siblings, 1500, [1, 0])); // Five since the last step.
        let (mut higher, mut lower) = (level_of(rule), level_of(rule));
        higher.set_target(ms(2));
        got.push(window(&mut higher, &mut siblings, 2100, [0, 9]));
        lower.set_target(ms(1) / 2);
        let last = if linux_4_18 { 2200 } else { 1900 };
        got.push(window(&mut lower, &mut siblings, last, [0, 9]));
        assert_eq!(got, steps, "4.18: {linux_4_18}");
    }
}

/// Goal: the cookie goes down by quarters to the depth, then by one to twice the depth, and up by
/// sixteenths, or by one beyond the depth. Method: count.
#[test]
fn depth_steps_follow_the_cookie() {
    let (mut level, mut siblings) = (level(true), children());
    let mut seen = Vec::new();
    for step in 1..=50 {
        window(&mut level, &mut siblings, step * 500, [0, 1]);
        seen.push(START - siblings.cookie);
    }
    assert_eq!(seen[..6], [8, 16, 24, 32, 40, 41]);
    assert_eq!(seen[49], 64);
    let mut ups = 0;
    while siblings.cookie < START {
        ups += 1;
        window(&mut level, &mut siblings, 30_000 + ups * 500, [20, 0]);
    }
    assert_eq!(ups, 32 + 16, "one at a time to 32, then two");
}

/// Goal: depths halve from the drive's to one, grow by a sixteenth, and end with the cookie at its start.
/// Method: follow a cookie by hand.
#[test]
fn depths_follow_the_cookie() {
    let mut victim = level(true);
    victim.set_target(Nanos::ZERO);
    let mut siblings = children();
    let follow = |siblings: &Children, victim: &mut Level| {
        victim.follow(siblings, QD);
        (victim.depth, victim.use_delay)
    };
    assert_eq!(follow(&siblings, &mut victim), (UNLIMITED, 0));
    let mut depths = Vec::new();
    for _ in 0..6 {
        siblings.cookie -= 8;
        depths.push(follow(&siblings, &mut victim));
    }
    assert_eq!(depths, [(16, 0), (8, 0), (4, 0), (2, 0), (1, 0), (1, 1)]);
    siblings.cookie += 2;
    assert_eq!(follow(&siblings, &mut victim), (1, 0), "use_delay is undone first");
    assert_eq!(follow(&siblings, &mut victim), (1, 0), "nothing new");
    siblings.cookie += 2;
    assert_eq!(follow(&siblings, &mut victim), (3, 0));
    siblings.cookie = START;
    assert_eq!(follow(&siblings, &mut victim), (UNLIMITED, 0));
    // However far the cookie went since, it is one step.
    siblings.cookie -= 40;
    assert_eq!(follow(&siblings, &mut victim), (16, 0));
}

/// Goal: who has a target is spared for a higher or equal one and while it had at most 5 % of the completions;
/// who has none never. Method: groups against the same step.
#[test]
fn some_groups_are_exempt_from_scaling() {
    let mut siblings = children();
    let mut culprit = level(true);
    window(&mut culprit, &mut siblings, 1000, [0, 95]);
    for (target, completions, spared) in
        [(1, 50, true), (2, 50, false), (2, 5, true), (2, 6, false), (0, 0, false)]
    {
        let mut peer = level(true);
        peer.set_target(ms(target));
        let mut seen = siblings;
        window(&mut peer, &mut seen, 1001, [completions, 0]);
        peer.follow(&seen, QD);
        assert_eq!(
            peer.depth == UNLIMITED,
            spared,
            "target {target} ms, {completions} completions"
        );
    }
}

/// Goal: a culprit silent for 5 s is forgotten, then each look is a step up. Method: the timer by hand.
#[test]
fn silent_culprits_expire() {
    let (mut culprit, mut siblings) = (level(true), children());
    window(&mut culprit, &mut siblings, 1000, [0, 1]);
    siblings.forget(at(5999), QD);
    siblings.forget(at(6000), QD);
    assert_eq!(siblings.cookie, START - 8, "forgotten only just now");
    siblings.forget(at(7000), QD);
    assert_eq!(siblings.cookie, START - 6);
    (0..9).for_each(|_| siblings.forget(at(8000), QD));
    assert_eq!(siblings.cookie, START);
}

/// Goal: a debt is paid by the second: what was owed a second ago, at most the time that passed; half
/// at least when the pressure fell. Method: by hand.
#[test]
fn delays_are_paid_off() {
    let mut delay = Delay::default();
    delay.add(at(5000), 1, ms(600));
    assert_eq!(delay.owed(at(6000), 1), ms(600), "nothing was owed before");
    assert_eq!(delay.owed(at(6001), 1), ms(600), "now it is known");
    delay.add(at(6500), 1, ms(50));
    assert_eq!(delay.owed(at(7001), 1), ms(650));
    assert_eq!(delay.owed(at(7002), 1), ms(50), "600 were owed a second ago");
    let mut large = Delay::default();
    large.add(at(5000), 2, ms(9000));
    assert_eq!(large.owed(at(6001), 2), ms(9000));
    assert_eq!(large.owed(at(7002), 2), ms(9000 - 1001), "at most the time that passed");
    assert_eq!(large.owed(at(8003), 1), Nanos(ms(7999).0 / 2), "half: use_delay fell");
}

/// A drive of depth 32 on flash; completions are given by hand.
struct Rig {
    controller: Controller,
    now: Instant,
    flying: Vec<(ClientId, CommandId)>,
    sent: u64,
}

impl Rig {
    fn new() -> Self {
        let mut setup = testing::wide();
        setup.facts.depth = 32;
        let controller = testing::controller(setup, &crate::TABLE, "lat-none", &[]);
        let (flying, now) = (Vec::new(), Instant::ZERO);
        Self { controller, now, flying, sent: 0 }
    }
    fn client(&mut self, path: &str, target: Nanos) -> ClientId {
        let latency = (target > Nanos::ZERO).then_some(target);
        let contract =
            Contract { latency: Latency { read: latency, ..Latency::NONE }, ..Contract::default() };
        let group = self.controller.add_group(self.now, path, contract).expect("new");
        self.controller.add_client(self.now, group, Priority::default()).expect("is there")
    }
    fn send(&mut self, client: ClientId, flags: Flags, count: u64) {
        for _ in 0..count {
            self.sent += 1;
            let (tag, operation, length) = (self.sent, Operation::Read, Sectors(8));
            let start = Sectors(self.sent << 8);
            let submission = Submission { tag, client, operation, flags, start, length };
            self.controller.submit(self.now, submission).expect("within the limit");
        }
        self.go();
    }
    fn go(&mut self) {
        while let Some(dispatch) = self.controller.dispatch(self.now) {
            let client = self.controller.parts(dispatch.command).next().expect("itself").client;
            self.flying.push((client, dispatch.command));
        }
    }
    fn flying(&self, client: ClientId) -> usize {
        self.flying.iter().filter(|(of, _)| *of == client).count()
    }
    /// Time passes, then everything of this client is completed.
    fn completion(&mut self, after: Nanos, client: ClientId) {
        self.now += after;
        let (done, rest): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.flying).into_iter().partition(|(of, _)| *of == client);
        self.flying = rest;
        for (_, id) in done {
            self.controller.complete(self.now, id, 0, &mut Vec::new()).expect("the drive has it");
        }
        self.go();
    }
    fn gauge(&self, name: &str) -> u64 {
        testing::gauge(&self.controller, name)
    }
}

/// Goal: with a target of 10 us peers go 16, 8, 4, 2, 1 in steps of at least half a second, in order of
/// arrival, and all waits end when the target goes. Method: a target that is always missed, a peer with 40
/// requests outstanding.
#[test]
fn peers_lose_their_depth() {
    let mut rig = Rig::new();
    let target = rig.client("target", Nanos::from_micros(10));
    let peer = rig.client("peer", Nanos::ZERO);
    rig.controller.add_group(rig.now, "silent", Contract::default()).expect("new");
    let mut depths = Vec::new();
    for _ in 0..7 {
        rig.send(target, Flags::NONE, 1);
        rig.completion(ms(500), target);
        // The first of these sees the cookie; then as many go on as the depth is.
        rig.send(peer, Flags::NONE, 40);
        rig.completion(Nanos::ZERO, peer);
        depths.push(rig.flying(peer));
    }
    assert_eq!(depths, [16, 8, 4, 2, 1, 1, 1]);
    assert_eq!((rig.gauge("groups_limited"), rig.gauge("smallest_depth")), (1, 1));
    let held = rig.gauge("held_requests");
    assert!(held > 0);
    let group = rig.controller.groups().find("target").expect("made above");
    rig.controller.update_group(rig.now, group, Contract::default()).expect("is there");
    rig.go();
    assert_eq!((rig.gauge("held_requests"), rig.flying(peer)), (0, 32));
}

/// Goal: limits hold at each level: a parent's depth is shared by its children, whoever comes first.
/// Method: a peer with two children; the children themselves are not limited.
#[test]
fn a_parents_depth_holds_for_its_children() {
    let mut rig = Rig::new();
    let target = rig.client("target", Nanos::from_micros(10));
    let (one, two) = (rig.client("peer/one", Nanos::ZERO), rig.client("peer/two", Nanos::ZERO));
    for _ in 0..3 {
        rig.send(target, Flags::NONE, 1);
        rig.completion(ms(500), target);
        rig.send(one, Flags::NONE, 1);
        rig.completion(Nanos::ZERO, one);
    }
    rig.send(one, Flags::NONE, 3);
    rig.send(two, Flags::NONE, 9);
    assert_eq!((rig.flying(one), rig.flying(two)), (3, 1), "a depth of four");
    rig.completion(ms(1), one);
    assert_eq!(rig.flying(two), 4);
}

/// Goal: metadata never waits; at a depth of one further steps count as use_delay; fast metadata
/// makes a delay for which the client sleeps, at most 250 ms, once it is completed. Method: a peer with a
/// target of its own, higher than the culprit's.
#[test]
fn metadata_makes_its_client_sleep() {
    let mut rig = Rig::new();
    let target = rig.client("target", Nanos::from_micros(10));
    let peer = rig.client("peer", ms(400));
    for _ in 0..20 {
        rig.send(target, Flags::NONE, 10);
        rig.send(peer, Flags::NONE, 10);
        rig.completion(ms(500), target);
        while rig.flying(peer) > 0 {
            rig.completion(Nanos::from_micros(1), peer);
        }
    }
    rig.send(peer, Flags::NONE, 2);
    assert_eq!(rig.flying(peer), 1, "a depth of one");
    rig.send(peer, Flags::METADATA, 3);
    assert_eq!(rig.flying(peer), 4, "metadata goes");
    rig.completion(ms(1), peer);
    rig.completion(ms(1), peer);
    assert_eq!(rig.gauge("sleeping_clients"), 0, "nothing was owed when these were completed");
    rig.send(peer, Flags::NONE, 1);
    rig.completion(ms(1), peer);
    let from = rig.now;
    assert_eq!(rig.gauge("sleeping_clients"), 1);
    rig.send(peer, Flags::METADATA, 1);
    assert_eq!(rig.flying(peer), 0, "it sleeps");
    let wakeup = rig.controller.next_wakeup().expect("it wakes up");
    assert!(wakeup <= from + ms(250) && wakeup >= from + ms(240), "{wakeup:?} after {from:?}");
    rig.now = wakeup;
    rig.go();
    assert_eq!(rig.flying(peer), 1);
}
