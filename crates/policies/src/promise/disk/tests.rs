//! Worked examples: the policy as a whole on a disk that takes 10 ms for a movement of its head and 1 ms for a request.

use super::cached::Cached;
use super::clock::{Clocks, FRAME, frame_end};
use crate::parts::shares::{EntityId, Side};
use iofair_core::contract::{Contract, Latency};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::minimum::{Amount, Minimum};
use iofair_core::priority::Class;
use iofair_core::testing::Rig;
use iofair_core::time::{Instant, Nanos};
use std::vec::Vec;

const MS: fn(u64) -> Nanos = Nanos::from_millis;
/// Sectors between the places of two clients.
const FAR: u64 = 1 << 28;

/// A disk and its clients, each of which reads at its own place.
struct Disk {
    rig: Rig,
    clients: Vec<ClientId>,
    next: Vec<u64>,
    head: u64,
    /// Completed requests, and the longest time without one, of each client.
    served: Vec<u64>,
    longest: Vec<Nanos>,
    last: Vec<Instant>,
}

impl Disk {
    fn new(contracts: &[Contract]) -> Self {
        let mut rig = Rig::new(&crate::TABLE, "prop-promise", &[]);
        rig.now = Instant(1_000_000_000);
        let clients: Vec<ClientId> = contracts.iter().map(|_| rig.client()).collect();
        for (client, contract) in clients.iter().zip(contracts) {
            let group = rig.controller.groups().client(*client).group;
            rig.controller.update_group(rig.now, group, contract.clone()).expect("it is there");
        }
        let count = clients.len();
        let last = [rig.now].repeat(count);
        let next = (0..count as u64).map(|client| client * FAR).collect();
        let (served, longest) = ([0].repeat(count), [Nanos::ZERO].repeat(count));
        Self { rig, clients, next, head: u64::MAX, served, longest, last }
    }
    /// Sends the next request of a client, `far` from the one before or behind it.
    fn send(&mut self, client: usize, write: bool, far: bool) {
        self.next[client] += if far { 8000 } else { 8 };
        self.rig.send(self.clients[client], self.next[client], write);
    }
    /// Serves one request, or lets a millisecond pass. Returns its client.
    fn step(&mut self) -> Option<usize> {
        let Some((id, start)) = self.rig.dispatch() else {
            self.rig.now += MS(1);
            return None;
        };
        let client = (start / FAR) as usize;
        self.rig.now += if start == self.head { MS(1) } else { MS(11) };
        self.head = start + 8;
        self.rig.complete(id);
        self.served[client] += 1;
        let gap = self.rig.now.since(self.last[client]);
        self.longest[client] = self.longest[client].max(gap);
        self.last[client] = self.rig.now;
        Some(client)
    }
    /// Lets clients read, each with one read queued all the time, in order or at random, until so many seconds have passed.
    fn run(&mut self, seconds: u64, random: &[bool]) {
        let until = Instant(1_000_000_000) + Nanos::from_secs(seconds);
        if self.served.iter().sum::<u64>() == 0 {
            (0..random.len()).for_each(|client| self.send(client, false, random[client]));
        }
        while self.rig.now < until {
            if let Some(client) = self.step() {
                self.send(client, false, random[client]);
            }
        }
    }
}

fn weight(weight: u32) -> Contract {
    Contract { weight, ..Contract::default() }
}

/// Goal: the disk moves its head seldom, and time is shared by weight. Method: two readers in order with weights 1 and 3 for 20 s,
/// beside one at random of weight 1.
#[test]
fn time_is_shared_by_weight_in_turns() {
    let mut disk = Disk::new(&[weight(100), weight(300), weight(100)]);
    disk.run(20, &[false, false, true]);
    let [one, three, random] = disk.served[..] else { panic!("three clients") };
    assert!((3500..4200).contains(&one), "a fifth of 20,000 ms, less changes: {one}");
    assert!((10_500..12_500).contains(&three), "three fifths: {three}");
    assert!((320..400).contains(&random), "a fifth, at 11 ms each: {random}");
}

/// Goal: weights count for clients that send one request at a time. Method: two such clients that read at random, with weights 1 and 3,
/// each 1 ms after the last read was completed, for 20 s.
#[test]
fn weights_count_for_one_request_at_a_time() {
    let mut disk = Disk::new(&[weight(100), weight(300)]);
    let mut next = [Some(disk.rig.now); 2];
    while disk.rig.now < Instant(21_000_000_000) {
        for (client, at) in next.iter_mut().enumerate() {
            if at.is_some_and(|at| at <= disk.rig.now) {
                *at = None;
                disk.send(client, false, true);
            }
        }
        if let Some(client) = disk.step() {
            next[client] = Some(disk.rig.now + MS(1));
        }
    }
    let [one, three] = disk.served[..] else { panic!("two clients") };
    assert!((26 * one..34 * one).contains(&(10 * three)), "{one} : {three}");
}

/// Goal: a minimum is kept in each second beside readers, of whatever weight. Method: 20 of some 90 reads at random a second, beside
/// two readers in order with 100 times its weight.
#[test]
fn a_minimum_is_kept_in_each_second() {
    let minimum = Contract { min_iops: Some(20), weight: 10, ..Contract::default() };
    let mut disk = Disk::new(&[minimum, weight(1000), weight(1000)]);
    let mut before = 0;
    for second in 1..=10 {
        disk.run(second, &[true, false, false]);
        let served = disk.served[0] - before;
        assert!((19..=22).contains(&served), "{served} in second {second}");
        before = disk.served[0];
    }
    assert!(disk.served[1] + disk.served[2] > 6500, "of 10,000 ms: {:?}", disk.served);
}

/// Goal: a minimum that the disk cannot keep does not starve others for ever. Method: 200 reads at random a second, of which it
/// serves 90, for 100 s.
#[test]
fn an_infeasible_minimum_is_cut() {
    let minimum = Contract { min_iops: Some(200), ..Contract::default() };
    let mut disk = Disk::new(&[minimum, weight(100)]);
    disk.run(100, &[true, false]);
    assert!(disk.served[0] > 7000 && disk.served[1] > 3000, "{:?}", disk.served);
}

/// Goal: a group whose minimum is lifted gets its share soon. Method: for 100 s it has twice as much as its share, which is a quarter.
#[test]
fn a_lifted_minimum_leaves_no_debt() {
    let minimum = Contract { min_iops: Some(45), ..Contract::default() };
    let mut disk = Disk::new(&[minimum, weight(300)]);
    disk.run(100, &[true, false]);
    let group = disk.rig.controller.groups().client(disk.clients[0]).group;
    disk.rig.controller.update_group(disk.rig.now, group, weight(100)).expect("it is there");
    let before = disk.served[0];
    disk.run(200, &[true, false]);
    let served = disk.served[0] - before;
    assert!(served > 1800, "{served} of the 2270 that are a quarter");
}

/// Goal: a turn ends early for a read with a deadline. Method: a client with a latency of 50 ms reads each 100 ms beside two readers
/// in order; without the contract it waits for two turns of 200 ms.
#[test]
fn a_deadline_ends_a_turn() {
    for (latency, least, most) in [(Some(MS(50)), 0, 60), (None, 150, 500)] {
        let mut disk = Disk::new(&[
            Contract { latency: Latency { read: latency, ..Latency::NONE }, ..weight(100) },
            weight(100),
            weight(100),
        ]);
        (1..3).for_each(|client| disk.send(client, false, false));
        let mut longest = Nanos::ZERO;
        for _ in 0..100 {
            let sent = disk.rig.now;
            disk.send(0, false, true);
            let mut is_served = false;
            while !is_served || disk.rig.now < sent + MS(100) {
                match disk.step() {
                    Some(0) => {
                        is_served = true;
                        longest = longest.max(disk.rig.now.since(sent));
                    }
                    Some(client) => disk.send(client, false, false),
                    None => {}
                }
            }
        }
        let range = MS(least)..MS(most);
        assert!(range.contains(&longest), "{latency:?}: {longest:?}");
    }
}

/// Goal: beside a minimum, scattered writes leave the disk time to write them out, and reads with a deadline do not wait for that.
/// Method: a client with a minimum, one that always has scattered writes queued, and one with a latency of 30 ms that reads
/// each 100 ms, for 10 s.
#[test]
fn scattered_writes_leave_time_to_write_them_out() {
    let minimum = Contract { min_iops: Some(20), ..Contract::default() };
    let latency = Contract { latency: Latency::of_reads(MS(30)), ..Contract::default() };
    let mut disk = Disk::new(&[minimum, weight(100), latency]);
    disk.send(0, false, true);
    (0..16).for_each(|_| disk.send(1, true, true));
    let until = disk.rig.now + Nanos::from_secs(10);
    let (mut sent, mut next, mut longest) = (None, disk.rig.now, Nanos::ZERO);
    while disk.rig.now < until {
        if sent.is_none() && disk.rig.now >= next {
            (sent, next) = (Some(disk.rig.now), disk.rig.now + MS(100));
            disk.send(2, false, true);
        }
        match disk.step() {
            Some(0) => disk.send(0, false, true),
            Some(1) => disk.send(1, true, true),
            Some(_) => longest = longest.max(disk.rig.now.since(sent.take().expect("one is sent"))),
            None => {}
        }
    }
    assert!(disk.served[0] >= 190, "{:?}", disk.served);
    // What it writes in a second takes the disk less than that to write out, at 5 ms each.
    assert!((20..1000).contains(&disk.served[1]), "{:?}", disk.served);
    assert!(longest < MS(200), "{longest:?}");
}

/// Goal: reads with a near deadline are served while the disk is kept idle to write out its cache, also if they came after
/// a write of the same client. Method: a client fills the cache with scattered writes beside a minimum. In each step of
/// 20 ms, the client with the latency contract sends a read, or a write and a read.
#[test]
fn near_deadlines_do_not_wait_for_the_cache() {
    for writes in [false, true] {
        let mut rig = Rig::new(&crate::TABLE, "prop-promise", &[]);
        let minimum = Contract { min_iops: Some(250), ..Contract::default() };
        let latency = Contract { latency: Latency::of_reads(MS(30)), ..Contract::default() };
        let [promised, urgent, writer] = [minimum, latency, Contract::default()].map(|contract| {
            let client = rig.client();
            let group = rig.controller.groups().client(client).group;
            rig.controller.update_group(rig.now, group, contract).expect("it is there");
            client
        });
        let (mut place, mut served, mut longest) = (0u64, 0u32, Nanos::ZERO);
        let mut sent = None;
        for step in 0..500u64 {
            let step_end = Instant::ZERO + MS(20 * (step + 1));
            place += 100_000;
            if rig.controller.pending() < 64 {
                rig.read(promised, step * 8);
                (0..8).for_each(|n| rig.write(writer, 700_000_000 + place + 10_000 * n));
            }
            if sent.is_none() {
                sent = Some(rig.now);
                if writes {
                    rig.write(urgent, 300_000_000 + place);
                }
                rig.read(urgent, 500_000_000 + place);
            }
            while rig.now < step_end {
                let Some((id, start)) = rig.dispatch() else {
                    rig.now += MS(1) / 2;
                    continue;
                };
                let is_cached = start >= 700_000_000 || (300_000_000..500_000_000).contains(&start);
                rig.now += if is_cached { MS(1) / 10 } else { MS(6) };
                rig.complete(id);
                if (500_000_000..700_000_000).contains(&start) {
                    served += 1;
                    longest = longest.max(rig.now.since(sent.take().expect("one is queued")));
                }
            }
        }
        assert!(served > 50 && longest < MS(500), "{served} served, {longest:?}");
    }
}

/// Goal: scattered writes add up until the disk is idle. Method: writes that take 5 ms each, and times without commands.
#[test]
fn scattered_writes_add_up_until_the_disk_is_idle() {
    let (mut cached, now) = (Cached::new(), Instant::ZERO);
    let time = cached.write_time(0);
    assert_eq!(time, MS(5));
    assert_eq!(cached.settles_in(Nanos::ZERO), Nanos::ZERO);
    (0..4).for_each(|_| cached.on_write(time));
    assert_eq!(cached.settles_in(Nanos::ZERO), MS(20 + 25));
    assert_eq!(cached.settles_in(MS(30)), MS(15));
    cached.on_idle(now, MS(20), false);
    assert_eq!(cached.settles_in(Nanos::ZERO), MS(20 + 25), "it did not begin");
    cached.on_idle(now, MS(35), false);
    assert_eq!(cached.settles_in(Nanos::ZERO), MS(10 + 25));
    cached.on_complete(now, Side::Flush);
    assert_eq!(cached.settles_in(Nanos::ZERO), Nanos::ZERO);
}

/// Goal: the time of a distant read is learned, but not from reads that wait for cached writes. Method: reads of 6 ms; then of 1 s
/// soon after a write.
#[test]
fn the_time_of_a_distant_read_is_learned() {
    let (mut cached, mut now) = (Cached::new(), Instant::ZERO);
    let mut read = |cached: &mut Cached, takes: Nanos| {
        cached.on_idle(now, Nanos::ZERO, true);
        now += takes;
        cached.on_complete(now, Side::Read);
        now
    };
    (0..100).for_each(|_| _ = read(&mut cached, MS(6)));
    let known = cached.access();
    assert!((MS(6)..MS(7)).contains(&known), "{known:?}");
    let now = read(&mut cached, MS(6));
    cached.on_complete(now, Side::Write);
    read(&mut cached, MS(50));
    assert!(cached.access() <= known, "{:?}", cached.access());
}

/// Goal: a group is due until it has what is promised for the frame, what it missed is owed, and no claim arises from a pause.
/// Method: requests worth 1 ms.
#[test]
fn a_frame_holds_what_is_promised_for_it() {
    let (mut clocks, id) = (Clocks::default(), EntityId::group(GroupId::from_bits(1)));
    let at = |ms: u64| Instant(ms * 1_000_000);
    let minimum = Minimum { bytes_per_s: Some(4_096_000), ios_per_s: None };
    clocks.set(at(0), id, minimum, Class::BestEffort);
    let mut serve = |now: Instant, wakes: bool| {
        clocks.arrive(now, id, wakes);
        let mut served = 0;
        while clocks.due(now).is_some() {
            clocks.dispatch(now, id, Amount::of(4096), true);
            served += 1;
        }
        assert_eq!(clocks.next_due(), Some(frame_end(now)), "in the next frame");
        // Further service does not move the clock.
        (0..100).for_each(|_| clocks.dispatch(now, id, Amount::of(4096), true));
        assert_eq!(clocks.kept_until(id), frame_end(now));
        served
    };
    assert_eq!(serve(at(100), true), 400, "the rest of the first frame");
    assert_eq!(serve(at(600), false), FRAME.as_millis());
    assert_eq!(serve(at(1700), false), 2 * FRAME.as_millis(), "one frame was missed");
    assert_eq!(serve(at(9000), false), 2000 + 500, "at most two seconds");
    assert_eq!(serve(at(30_000), true), FRAME.as_millis(), "a pause");
}

/// Goal: of groups that are due, the most urgent class goes first. Method: two groups, the one of the less urgent class is further
/// behind.
#[test]
fn more_urgent_minimums_go_first() {
    let mut clocks = Clocks::default();
    let ids = [1, 2].map(|bits| EntityId::group(GroupId::from_bits(bits)));
    let minimum = Minimum { bytes_per_s: Some(4_096_000), ios_per_s: None };
    for (id, class, ms) in [(ids[0], Class::BestEffort, 10), (ids[1], Class::RealTime, 30)] {
        clocks.set(Instant::ZERO, id, minimum, class);
        clocks.arrive(Instant(ms * 1_000_000), id, true);
    }
    let due = |clocks: &Clocks| clocks.due(Instant(40_000_000)).map(|(id, _)| id);
    assert_eq!(due(&clocks), Some(ids[1]));
    clocks.put(ids[1], false);
    assert_eq!(due(&clocks), Some(ids[0]));
}
