//! The two buckets by hand, then who sleeps, then rates over long runs.

use std::vec::Vec;

use iofair_core::contract::{Contract, Limits};
use iofair_core::controller::{Controller, Submission};
use iofair_core::id::ClientId;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

const READ_4K: (Operation, u64) = (Operation::Read, 8);
const WRITE_4K: (Operation, u64) = (Operation::Write, 8);
/// 4 KiB every 4 ms.
const SLOW: Limits = Limits::both(1_024_000);

/// A drive that completes commands at once.
struct Rig {
    controller: Controller,
    sent: u64,
    /// Of the requests that are sent.
    flags: Flags,
}

impl Rig {
    fn new(set: &[(&str, &str)]) -> Self {
        Self {
            controller: testing::controller(testing::wide(), &crate::TABLE, "iothrottle-none", set),
            sent: 0,
            flags: Flags::NONE,
        }
    }
    fn client(&mut self, path: &str, max: Limits) -> ClientId {
        let contract = Contract { max, ..Contract::default() };
        let group = match self.controller.groups().find(path) {
            Some(group) => group,
            None => self.controller.add_group(Instant::ZERO, path, contract).expect("new"),
        };
        let client = self.controller.add_client(Instant::ZERO, group, Priority::default());
        client.expect("the group is there")
    }
    /// Sends this many requests; what goes to the drive at once.
    fn send(
        &mut self,
        now: Instant,
        client: ClientId,
        what: (Operation, u64),
        count: u64,
    ) -> usize {
        for _ in 0..count {
            self.sent += 1;
            let submission = Submission {
                tag: self.sent,
                client,
                operation: what.0,
                flags: self.flags,
                start: Sectors(self.sent << 17),
                length: Sectors(what.1),
            };
            self.controller.submit(now, submission).expect("within the limit");
        }
        self.go(now).len()
    }
    fn go(&mut self, now: Instant) -> Vec<ClientId> {
        let mut gone = Vec::new();
        while let Some(dispatch) = self.controller.dispatch(now) {
            let mut done = Vec::new();
            self.controller
                .complete(now, dispatch.command, 0, &mut done)
                .expect("the drive has it");
            gone.push(done[0].part.client);
        }
        gone
    }
    /// Serves wake-ups up to and at `end`: when, in milliseconds, and who went.
    fn run(&mut self, end: u64) -> Vec<(u64, Vec<ClientId>)> {
        let mut log = Vec::new();
        while let Some(wakeup) = self.controller.next_wakeup().filter(|w| *w <= at(end)) {
            let gone = self.go(wakeup);
            assert!(!gone.is_empty(), "woken for nothing at {wakeup:?}");
            log.push((wakeup.0 / 1_000_000, gone));
        }
        log
    }
    fn gauge(&self, name: &str) -> u64 {
        testing::gauge(&self.controller, name)
    }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Nanos::from_millis(ms)
}
fn times(log: &[(u64, Vec<ClientId>)]) -> Vec<u64> {
    log.iter().map(|(at, _)| *at).collect()
}

/// Goal: the leaky bucket to the tick. Method: 4 KiB are 4 ms. The first read after a rest is forgiven; the next
/// sleeps 4 ms from then, those behind it 4 ms each; a rest wipes out everything.
#[test]
fn leaky_bucket() {
    let mut rig = Rig::new(&[]);
    let client = rig.client("a", SLOW);
    assert_eq!(rig.send(at(100), client, READ_4K, 5), 1);
    assert_eq!(rig.gauge("sleeping_clients"), 1);
    assert_eq!(times(&rig.run(1000)), [104, 108, 112, 116]);
    // 16 ms were used in the 900 since: forgiven, and no burst.
    assert_eq!(rig.send(at(1000), client, READ_4K, 3), 1);
    assert_eq!(times(&rig.run(2000)), [1004, 1008]);
    // Slower than the limit: nobody sleeps. Half a tick short of the due time: one tick.
    for ms in [3000, 3005, 3010] {
        assert_eq!(rig.send(at(ms), client, READ_4K, 1), 1);
    }
    let early = Instant(at(3013).0 + 500_000);
    assert_eq!(rig.send(early, client, READ_4K, 1), 0);
    assert_eq!(rig.controller.next_wakeup(), Some(at(3014)));
}

/// Goal: a request that the server has cut counts once, and a trim as one sector. Method: pieces of one read, at one request a
/// second; trims of 64 KiB, as often as a sector may be written.
#[test]
fn pieces_and_trims_cost_what_clients_send() {
    let mut rig = Rig::new(&[]);
    let client = rig.client("a", Limits { iops: [Some(1); 2], ..Limits::default() });
    assert_eq!(rig.send(at(5000), client, READ_4K, 1), 1);
    rig.flags = Flags::CONTINUES;
    assert_eq!(rig.send(at(5000), client, READ_4K, 3), 3);
    rig.flags = Flags::NONE;
    let client = rig.client("b", Limits::both(1024));
    for half in 20..24 {
        assert_eq!(rig.send(at(half * 500), client, (Operation::Discard, 128), 1), 1);
    }
}

/// Goal: the token bucket to the millisecond. Method: at rest a bucket of 20 ms fills with 20,480 bytes: five reads
/// go at once, four more are 4 ms apart; without a rest none is saved.
#[test]
fn token_bucket() {
    let mut rig = Rig::new(&[("token_bucket", "true"), ("bucket", "20ms")]);
    let client = rig.client("a", SLOW);
    // The bucket is full before the first is taken out, and never fuller after.
    assert_eq!(rig.send(at(500), client, READ_4K, 9), 6);
    assert_eq!(times(&rig.run(1000)), [504, 508, 512]);
    assert_eq!(rig.send(at(513), client, READ_4K, 1), 0);
    assert_eq!(rig.controller.next_wakeup(), Some(at(516)));
    let mut rig = Rig::new(&[("token_bucket", "true")]);
    let client = rig.client("a", SLOW);
    assert_eq!(rig.send(at(0), client, READ_4K, 1), 0, "it starts empty");
    assert_eq!(rig.controller.next_wakeup(), Some(at(4)));
}

/// Goal: requests a second, and of two limits the one that sleeps longer. Method: 100 a second is 10 ms; 24 KiB are
/// 24 ms, of which 10 have passed since the request before, which was long paid for.
#[test]
fn requests_a_second() {
    for token_bucket in ["false", "true"] {
        let mut rig = Rig::new(&[("token_bucket", token_bucket), ("bucket", "0ms")]);
        let both = Limits { iops: [Some(100), Some(500)], ..SLOW };
        let client = rig.client("a", both);
        rig.send(at(1000), client, READ_4K, 4);
        rig.send(at(1000), client, (Operation::Read, 48), 1);
        let times = times(&rig.run(2000));
        let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps[gaps.len() - 3..], [10, 10, 14], "{times:?}");
    }
}

/// Goal: who sleeps sends nothing else; its neighbours in the group sleep on their own, after it; other groups do
/// not care. Buffered writes are put aside one by one and nobody sleeps for them. Method: look.
#[test]
fn throttled_clients_sleep() {
    let mut rig = Rig::new(&[]);
    let (a, b) = (rig.client("g", SLOW), rig.client("g", SLOW));
    let (free, flusher) = (rig.client("f", Limits::default()), rig.client("g", SLOW));
    assert_eq!(rig.send(at(100), a, READ_4K, 2), 1);
    assert_eq!(rig.send(at(100), a, WRITE_4K, 1), 0);
    assert_eq!(rig.gauge("delayed_writes"), 0, "behind the read");
    assert_eq!(rig.send(at(100), b, READ_4K, 1), 0);
    assert_eq!(rig.send(at(100), free, READ_4K, 5), 5);
    assert_eq!(rig.send(at(100), flusher, WRITE_4K, 2), 0);
    assert_eq!((rig.gauge("delayed_writes"), rig.gauge("sleeping_clients")), (2, 2));
    let expected = [(104, [a]), (108, [b]), (112, [flusher]), (116, [flusher]), (120, [a])];
    let log = rig.run(1000);
    assert_eq!(log, expected.map(|(at, who)| (at, Vec::from(who))));
}

/// Goal: sleeps end on a tick, and who is less than a tick ahead does not sleep. Method: 4 ms of 4 KiB on a clock
/// of 10 ms: every other read finds its due time in the present tick.
#[test]
fn sleeps_end_on_a_tick() {
    let mut rig = Rig::new(&[("tick", "10ms")]);
    let client = rig.client("a", SLOW);
    assert_eq!(rig.send(at(103), client, READ_4K, 5), 1);
    assert_eq!(rig.run(1000), [(110, Vec::from([client; 2])), (120, Vec::from([client; 2]))]);
}

/// Goal: a new limit starts a new account, and another contract of the same limit does not; who sleeps sleeps on.
/// Method: change it under a sleeper, whose next read is 4 ms, or 16 less the 4 since the change.
#[test]
fn changes_of_the_limit() {
    for (max, next) in [(SLOW, 108), (Limits::both(256_000), 116)] {
        let mut rig = Rig::new(&[]);
        let client = rig.client("a", SLOW);
        rig.send(at(100), client, READ_4K, 3);
        let group = rig.controller.groups().find("a").expect("made");
        let contract = Contract { max, weight: 7, ..Contract::default() };
        rig.controller.update_group(at(100), group, contract).expect("made");
        assert_eq!(times(&rig.run(200)), [104, next]);
    }
}

/// Goal: over a long run the limit is kept, from below. Method: readers that send again when completed; 1 to 5
/// processes, both buckets, sizes from 4 KiB to 1 MiB.
#[test]
fn the_limit_in_the_long_run() {
    for token_bucket in ["false", "true"] {
        for (sectors, processes, rate) in
            [(8, 1, 2_000_000), (8, 5, 10_000_000), (256, 2, 30_000_000), (2048, 3, 5_000_000)]
        {
            let mut rig = Rig::new(&[("token_bucket", token_bucket), ("bucket", "100ms")]);
            let mut clients = Vec::new();
            for _ in 0..processes {
                clients.push(rig.client("a", Limits::both(rate)));
            }
            for client in &clients {
                rig.send(at(0), *client, (Operation::Read, sectors), 20_000);
            }
            let gone: usize = rig.run(10_000).iter().map(|(_, gone)| gone.len()).sum();
            let got = gone as u64 * sectors * 512;
            let (size, tenth) = (2 * sectors * 512, rate / 10);
            let (low, high) = (10 * rate - tenth - size, 10 * rate + 2 * tenth + size);
            assert!((low..=high).contains(&got), "{token_bucket} {sectors} {processes}: {got}");
        }
    }
}
