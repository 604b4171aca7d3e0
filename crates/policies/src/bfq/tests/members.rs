//! Merged queues, and groups and clients that come, change and go.

use super::world::{Drive, Job, World};
use iofair_core::contract::{Contract, Limits};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::priority::{Class, Priority};
use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use std::vec::Vec;

const QUIET: &[(&str, &str)] = &[("low_latency", "false")];
const UNSTABLE: &[(&str, &str)] = &[("low_latency", "false"), ("stable_merge", "false")];

fn ratio(world: &mut World, a: usize, b: usize, seconds: u64) -> u64 {
    world.run(Nanos::from_secs(1));
    world.take_all();
    world.run(Nanos::from_secs(seconds));
    world.take(a) * 100 / world.take(b).max(1)
}

/// Two clients of the root that read one file in turns, 64 KiB each, for a while.
fn interleaved(stack: &str, drive: Drive) -> World {
    let mut world = World::new(stack, drive, UNSTABLE);
    // Enough for requests to be queued, which is what is compared.
    let depth = if drive.rotational { 1 } else { 40 };
    let job = Job { length: 128, depth, stride: 256, ..Job::sequential_read(0) };
    let usual = Priority::default();
    world.add_to(GroupId::ROOT, usual, job);
    world.add_to(GroupId::ROOT, usual, Job { base: 128, ..job });
    world.run(Nanos::from_millis(500));
    world
}

/// Goal: clients that read near each other share a queue on a disk, so that the head need not come
/// back; on flash that queues only in 4.18. Method: two clients that interleave.
#[test]
fn cooperating_clients_share_a_queue() {
    let mut disk = interleaved("none-bfq", Drive::disk());
    assert_eq!(disk.count("merge: joins"), 1);
    disk.take_all();
    disk.run(Nanos::from_secs(1));
    let rate: u64 = disk.take_all().iter().sum();
    assert!(rate > 60_000_000, "no seeks: {rate}");
    assert_eq!(interleaved("none-bfq", Drive::flash()).count("merge"), 0);
    assert_eq!(interleaved("none-bfq-4.18", Drive::flash()).count("merge: joins"), 1);
    let mut groups = World::new("prop-bfq", Drive::disk(), UNSTABLE);
    let job = Job { length: 128, depth: 1, stride: 256, ..Job::sequential_read(0) };
    groups.add(100, job);
    groups.add(100, Job { base: 128, ..job });
    groups.run(Nanos::from_millis(500));
    assert_eq!(groups.count("merge"), 0, "not across groups");
}

/// Goal: who shares a queue and turns out to seek is split off, with what was known of it. Method: two
/// merged clients that go to far ends.
#[test]
fn seeking_clients_are_split() {
    let mut world = interleaved("none-bfq", Drive::disk());
    assert_eq!(world.count("merge: joins"), 1);
    for actor in 0..2 {
        world.become_random(actor);
    }
    world.run(Nanos::from_secs(4));
    assert_eq!(world.count("merge: split"), 2);
    world.take_all();
    world.run(Nanos::from_secs(4));
    let all = world.take_all();
    assert!(all[0].abs_diff(all[1]) < all[0] / 4, "each has a turn: {all:?}");
}

/// Goal: clients that one group makes at once are merged for good, on queueing flash at once; not if
/// their priorities differ, or they come later, or the switch is off. Method: two clients.
#[test]
fn clients_made_together_are_merged() {
    let joins = |set: &[(&str, &str)], level: u8, pause: u64| {
        let mut world = World::new("none-bfq", Drive::flash(), set);
        for level in [4, level] {
            let priority = Priority { class: Class::BestEffort, level };
            let client = world.hand_in(GroupId::ROOT, priority);
            world.read(client, u64::from(level) << 20, 8);
            world.serve(100);
            world.wait(Nanos::from_millis(pause));
            world.dispatch();
        }
        world.count("merge: joins")
    };
    assert_eq!(joins(QUIET, 4, 100), 1);
    assert_eq!(joins(QUIET, 3, 100), 0);
    assert_eq!(joins(QUIET, 4, 200), 0);
    assert_eq!(joins(UNSTABLE, 4, 100), 0);
}

/// Goal: nobody leaves a queue that was merged for good, whoever was there first. Method: two random readers of a group beside
/// one of another group, on flash that queues.
#[test]
fn clients_merged_for_good_stay() {
    let mut world = World::new("prop-bfq", Drive::flash(), QUIET);
    let [one, other] = [world.group("a", 100), world.group("b", 100)];
    for group in [one, one, other] {
        world.add_to(group, Priority::default(), Job::random_read());
    }
    world.run(Nanos::from_secs(2));
    let decisions = world.decisions();
    let count = |rule| decisions.iter().filter(|decision| decision.0 == rule).count();
    assert_eq!((count("merge: joins"), count("merge: split")), (1, 0));
    let [a, b, c] = [0, 1, 2].map(|actor| world.take(actor));
    assert!(a.abs_diff(b) < a / 20 && a + b > c + c / 2, "one slot for both: {a} {b} {c}");
}

/// Goal: on a disk such a merge waits for 600 ms, and is not done where waiting boosts throughput.
/// Method: two random readers, then two sequential ones.
#[test]
fn on_a_disk_stable_merges_come_late() {
    let joins = |job: Job| {
        let mut world = World::new("none-bfq", Drive::disk(), QUIET);
        world.add_to(GroupId::ROOT, Priority::default(), job);
        world.add_to(GroupId::ROOT, Priority::default(), Job { base: 1 << 27, ..job });
        world.run(Nanos::from_millis(590));
        let early = world.count("merge: joins");
        world.run(Nanos::from_millis(400));
        (early, world.count("merge: joins"))
    };
    // A disk that does not queue is waited for anyway; with eight random requests each it is seen to
    // queue, and seeky clients are not waited for.
    assert_eq!(joins(Job::sequential_read(0)), (0, 0));
    assert_eq!(joins(Job { depth: 8, ..Job::random_read() }), (0, 1));
}

/// Goal: groups share by weight at each level, whatever the number of clients. Method: 300 with two
/// groups of 100 and 200 inside, against 100 with three clients.
#[test]
fn groups_share_at_each_level() {
    let mut world = World::new("prop-bfq", Drive::flash(), UNSTABLE);
    world.group("a", 300);
    let inside = [world.group("a/x", 100), world.group("a/y", 200)];
    let other = world.group("b", 100);
    let usual = Priority::default();
    let job = |i: u64| Job::sequential_read(i << 25);
    let x = world.add_to(inside[0], usual, job(0));
    let y = world.add_to(inside[1], usual, job(1));
    for i in 2..5 {
        world.add_to(other, usual, job(i));
    }
    world.run(Nanos::from_secs(2));
    world.take_all();
    world.run(Nanos::from_secs(12));
    let all = world.take_all();
    let total: u64 = all.iter().sum();
    let part = |bytes: u64| bytes * 1000 / total;
    assert!((225..275).contains(&part(all[x])), "{all:?}");
    assert!((465..535).contains(&part(all[y])), "{all:?}");
    for bytes in &all[2..] {
        assert!((65..100).contains(&part(*bytes)), "{all:?}");
    }
}

/// Goal: without groups, levels of priority weigh 80 to 10; whoever weighs least is not waited for, and
/// so may fall behind when it sends little at a time. Method: levels 0 and 6, 64 or 2 at a time.
#[test]
fn priority_levels_are_weights() {
    let run = |stack: &str, depth: u32| {
        let mut world = World::new(stack, Drive::flash(), UNSTABLE);
        let level = |level| Priority { class: Class::BestEffort, level };
        let job = Job { depth, ..Job::sequential_read(0) };
        let a = world.add_to(GroupId::ROOT, level(0), job);
        let b = world.add_to(GroupId::ROOT, level(6), Job { base: 1 << 27, ..job });
        ratio(&mut world, a, b, 8)
    };
    let (deep, spared, waited) = (run("none-bfq", 64), run("none-bfq", 2), run("none-bfq-4.18", 2));
    assert!((370..430).contains(&deep), "{deep}");
    assert!((370..430).contains(&waited), "{waited}");
    assert!(spared > 430, "{spared}");
}

/// Goal: a seeky client on a disk is charged its time, so that it does not have the drive nearly always,
/// as equal bytes would mean. Its part is more than half because the mixture lowers the estimate of the
/// peak rate, by which time is charged. Method: bytes against what each gets alone.
#[test]
fn seeky_clients_are_charged_their_time() {
    let run = |jobs: &[Job]| {
        let mut world = World::new("prop-bfq", Drive::disk(), QUIET);
        for job in jobs {
            world.add(100, *job);
        }
        world.run(Nanos::from_secs(2));
        world.take_all();
        world.run(Nanos::from_secs(10));
        world.take_all()
    };
    let (random, sequential) = (Job::random_read(), Job::sequential_read(1 << 27));
    let (alone_random, alone_sequential) = (run(&[random])[0], run(&[sequential])[0]);
    let both = run(&[random, sequential]);
    let part = |got: u64, alone: u64| got * 100 / alone;
    assert!((40..70).contains(&part(both[0], alone_random)), "{both:?} {alone_random}");
    assert!((25..60).contains(&part(both[1], alone_sequential)), "{both:?} {alone_sequential}");
}

/// Goal: a new weight counts while everybody goes on. Method: 100 to 100, then 400 to 100, then back.
#[test]
fn weights_change_live() {
    let mut world = World::new("prop-bfq", Drive::flash(), QUIET);
    let a = world.add(100, Job::sequential_read(0));
    let b = world.add(100, Job::sequential_read(1 << 27));
    let group = world.controller.groups().client(world.client(a)).group;
    for (weight, low, high) in [(100, 95, 106), (400, 375, 430), (100, 95, 106)] {
        let contract = Contract { weight, ..Contract::default() };
        world.controller.update_group(world.now, group, contract).expect("there");
        let got = ratio(&mut world, a, b, 6);
        assert!((low..high).contains(&got), "{weight}: {got}");
    }
}

/// Goal: a client that changes its level or its group takes its requests along and has its new share.
/// Method: two clients of one group; one gets another level, then a group of its own.
#[test]
fn clients_change_live() {
    let mut world = World::new("prop-bfq", Drive::flash(), UNSTABLE);
    let (shared, own) = (world.group("shared", 100), world.group("own", 300));
    let usual = Priority::default();
    let a = world.add_to(shared, usual, Job { depth: 16, ..Job::sequential_read(0) });
    let b = world.add_to(shared, usual, Job { depth: 16, ..Job::sequential_read(1 << 27) });
    assert!((95..106).contains(&ratio(&mut world, a, b, 6)));
    let client = world.client(a);
    let now = world.now;
    let first = Priority { level: 0, ..usual };
    world.controller.update_client(now, client, shared, first).expect("there");
    let got = ratio(&mut world, a, b, 6);
    assert!((185..216).contains(&got), "80 to 40: {got}");
    let now = world.now;
    world.controller.update_client(now, client, own, usual).expect("there");
    let got = ratio(&mut world, a, b, 6);
    assert!((280..325).contains(&got), "{got}");
}

/// Goal: clients and groups go without a trace, also when just waited for, merged, or with buffered
/// writes behind them; their ids serve others. Method: three rounds of a full life.
#[test]
fn clients_and_groups_go() {
    for stack in ["prop-bfq", "none-bfq", "prop-bfq-4.18"] {
        let mut world = World::new(stack, Drive::flash(), &[]);
        for round in 0..3 {
            let now = world.now;
            let group = world.group("g", 100);
            let clients: [ClientId; 3] = [0; 3].map(|_| world.hand_in(group, Priority::default()));
            for client in clients {
                world.read(client, (client.index() as u64) << 20, 8);
                world.send_one(client, Operation::Write, 1 << 27, 8);
            }
            let mut served = 0;
            while served < 6 {
                match world.serve(100) {
                    Some(_) => served += 1,
                    None => world.wait(world.wakes_in().expect("something is waited for")),
                }
            }
            for client in clients {
                world.controller.remove_client(now, client).expect("idle");
            }
            world.controller.remove_group(now, group).expect("empty");
            assert!(world.dispatch().is_none());
            assert_eq!(world.gauge("bfq_busy_queues"), 0, "{stack} round {round}");
            assert_eq!(world.gauge("bfq_busy_groups"), 0);
            assert_eq!(world.gauge("bfq_raised_queues"), 0);
            world.wait(Nanos::from_secs(1));
        }
    }
}

/// Goal: up to 5.4, BFQ also idles on a disk for a queue that no client uses any more. Method: a client in service, whose last
/// read is at the drive, sends one beside a read of another client and so joins that client's queue.
#[test]
fn a_queue_without_clients_is_waited_for_up_to_5_4() {
    let idles = |set: &[(&str, &str)]| {
        let set: Vec<_> = UNSTABLE.iter().chain(set).copied().collect();
        let mut world = World::new("none-bfq", Drive::disk(), &set);
        let [joins, other] = [0; 2].map(|_| world.hand_in(GroupId::ROOT, Priority::default()));
        for read in 0..8 {
            world.read(joins, read * 256, 256);
            world.serve(3_000).expect("its slot");
        }
        world.read(other, 1 << 27, 256);
        world.read(joins, 8 * 256, 256);
        let dispatch = world.dispatch().expect("the slot goes on");
        assert_eq!(dispatch.start.0, 8 * 256);
        world.read(joins, (1 << 27) + 256, 256);
        assert_eq!(world.count("merge: joins"), 1);
        world.wait(Nanos::from_micros(3_000));
        world.complete(dispatch);
        world.dispatch();
        world.count("idle: wait")
    };
    assert_eq!(idles(&[]), 0);
    assert_eq!(idles(&[("idle_deserted", "true")]), 1);
}

/// Goal: a known peak rate counts from the first slot on. Method: the gauges of an engine at rest.
#[test]
fn a_known_peak_rate_counts_at_once() {
    let set = [("low_latency", "false"), ("peak_rate", "400MB/s")];
    let world = World::new("prop-bfq", Drive::flash(), &set);
    let rate = world.gauge("bfq_peak_rate_bytes_per_s");
    assert!(rate <= 400_000_000 && 400_000_000 - rate < 10_000, "{rate}");
    let budget = world.gauge("bfq_max_budget_bytes");
    assert!(budget.abs_diff(50_000_000) < 10_000, "{budget}");
}

/// Goal: the largest budget follows the measured peak rate. Method: three seconds of sequential reads
/// at 520 MB/s, of which 125 ms are 65 MB.
#[test]
fn budgets_follow_the_peak_rate() {
    let mut world = World::new("prop-bfq", Drive::flash(), QUIET);
    world.add(100, Job { depth: 8, ..Job::sequential_read(0) });
    assert_eq!(world.gauge("bfq_max_budget_bytes"), 16 * 1024 * 512);
    world.add(100, Job { depth: 8, ..Job::sequential_read(1 << 27) });
    world.run(Nanos::from_secs(6));
    let rate = world.gauge("bfq_peak_rate_bytes_per_s");
    assert!(rate.abs_diff(520_000_000) < 20_000_000, "{rate}");
    let budget = world.gauge("bfq_max_budget_bytes");
    assert!(budget.abs_diff(rate / 8) < 1_000_000, "{budget}");
}

/// Goal: what a throttle held comes from queues of its group where the version has them: one is merged for good with the
/// client's, since that was made less than 180 ms before. Everything is served, and the queues end with their group. Method:
/// a reader below a ceiling beside a free one, without injection.
#[test]
fn held_requests_come_from_a_worker() {
    for (set, has_worker) in [("0", false), ("2", true)] {
        let set = [("low_latency", "false"), ("injection", "false"), ("workers", set)];
        let mut world = World::new("max+prop-bfq", Drive::flash(), &set);
        let job = Job { depth: 4, ..Job::random_read() };
        let max = Limits { iops: [Some(1_000), None], ..Limits::NONE };
        let contract = Contract { max, ..Contract::default() };
        let group = world.controller.add_group(world.now, "capped", contract).expect("new");
        let capped = world.add_to(group, Priority::default(), job);
        world.add(100, job);
        world.run(Nanos::from_secs(2));
        let decisions = world.decisions();
        let joins = decisions.iter().filter(|decision| decision.0 == "merge: joins").count();
        assert_eq!(joins, usize::from(has_worker));
        world.run(Nanos::from_secs(1));
        assert_eq!(world.slots_of_groups() > 0, has_worker);
        assert!(world.take(capped) > 100 * 4096);
        world.stop(0);
        world.stop(1);
        world.run(Nanos::from_secs(1));
        assert_eq!(world.gauge("bfq_busy_queues"), 0);
        let client = world.client(capped);
        world.controller.remove_client(world.now, client).expect("it has no request");
        world.controller.remove_group(world.now, group).expect("it is empty");
    }
}
