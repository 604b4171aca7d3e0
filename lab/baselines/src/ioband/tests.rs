//! dm-ioband's rules by hand, then its shares in a closed loop; and the ordered set against a plain scan.

mod model;

use std::collections::VecDeque;
use std::format;
use std::vec::Vec;

use iofair_core::contract::{Contract, Limits};
use iofair_core::controller::{Controller, Submission};
use iofair_core::id::{ClientId, CommandId};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

const MB: u64 = 1_000_000;
const READ: (Operation, u64) = (Operation::Read, 8);
const WRITE: (Operation, u64) = (Operation::Write, 8);

/// A drive that completes in order, when told to.
struct Rig {
    controller: Controller,
    now: Instant,
    below: VecDeque<(CommandId, ClientId)>,
    sent: u64,
}

impl Rig {
    fn new(stack: &str, set: &[(&str, &str)]) -> Self {
        let now = Instant::ZERO;
        Self {
            controller: testing::controller(testing::wide(), &crate::TABLE, stack, set),
            now,
            below: VecDeque::new(),
            sent: 0,
        }
    }
    fn client(&mut self, path: &str, contract: Contract) -> ClientId {
        let group = match self.controller.groups().find(path) {
            Some(group) => group,
            None => self.controller.add_group(self.now, path, contract).expect("new"),
        };
        let added = self.controller.add_client(self.now, group, Priority::default());
        added.expect("the group is there")
    }
    fn weighted(&mut self, path: &str, weight: u32) -> ClientId {
        self.client(path, Contract { weight, ..Contract::default() })
    }
    fn send(&mut self, client: ClientId, what: (Operation, u64), count: u64) {
        self.send_flagged(client, what, count, Flags::NONE);
    }
    fn send_flagged(
        &mut self,
        client: ClientId,
        (operation, sectors): (Operation, u64),
        count: u64,
        flags: Flags,
    ) {
        for _ in 0..count {
            self.sent += 1;
            let (start, length) = (Sectors(self.sent << 17), Sectors(sectors));
            let tag = self.sent;
            let submission = Submission { tag, client, operation, flags, start, length };
            self.controller.submit(self.now, submission).expect("within the limit");
        }
    }
    /// What goes to the drive now, and stays there: the clients in order.
    fn go(&mut self) -> Vec<ClientId> {
        let mut gone = Vec::new();
        while let Some(dispatch) = self.controller.dispatch(self.now) {
            let client = self.controller.parts(dispatch.command).next().expect("itself").client;
            self.below.push_back((dispatch.command, client));
            gone.push(client);
        }
        gone
    }
    /// The drive completes the oldest.
    fn completion(&mut self) -> Option<ClientId> {
        let (id, client) = self.below.pop_front()?;
        self.controller.complete(self.now, id, 0, &mut Vec::new()).expect("the drive has it");
        Some(client)
    }
    fn gauge(&self, name: &str) -> u64 {
        testing::gauge(&self.controller, name)
    }
    /// Lets the drive complete one request each `service` for this long; the client then sends another one.
    /// Sectors by client.
    fn closed_loop(&mut self, service: Nanos, time: Nanos, what: &[(ClientId, u64)]) -> Vec<u64> {
        let mut served: Vec<u64> = what.iter().map(|_| 0).collect();
        let end = self.now + time;
        self.go();
        while self.now < end {
            if self.below.is_empty() {
                self.now = self.controller.next_wakeup().expect("held work asks for a wake-up");
            } else {
                // On the way there the policy may want to be asked.
                let next = self.now + service;
                while let Some(at) = self.controller.next_wakeup().filter(|at| *at <= next) {
                    self.now = self.now.max(at);
                    self.go();
                }
                self.now = next;
                let client = self.completion().expect("just looked");
                let index = what.iter().position(|(known, _)| *known == client);
                let (_, sectors) = what[index.expect("one of them")];
                served[index.expect("one of them")] += sectors;
                self.send(client, (Operation::Read, sectors), 1);
            }
            self.go();
        }
        served
    }
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Goal: tokens of an epoch, what is carried over from it, blocking, and sleep, to the request. Method: 40
/// tokens, half of them the root's; 200 reads at once. 20 go, 24 are blocked (192 / 2 / 4), the rest sleeps
/// with its submitter. At the first completion an epoch begins. Nobody had asked for any of its 40 tokens, so the
/// group gets 20 + 40 * 20 / (40 - 20) = 60: the 24, then 36 of the sleeper's. In the next 20 are left over:
/// 20 + 20 * 20 / (40 - 10) = 33.
#[test]
fn an_epoch_to_the_token() {
    let mut rig = Rig::new("ioband-none", &[("token", "40")]);
    let client = rig.weighted("a", 100);
    rig.send(client, READ, 200);
    assert_eq!(rig.go().len(), 20);
    assert_eq!(rig.gauge("blocked_requests"), 24);
    assert_eq!((rig.gauge("sleeping_clients"), rig.gauge("epochs")), (1, 0));
    for (gone, epochs) in [(60, 1), (33, 2), (33, 3)] {
        rig.completion();
        assert_eq!(rig.go().len(), gone);
        assert_eq!(rig.gauge("epochs"), epochs);
    }
    assert_eq!(rig.gauge("issued_requests"), 143);
}

/// Goal: bandwidth in proportion to weights, by requests and by sectors. Method: always eight requests of each
/// group, weights 300 and 100; one sends 4 KiB, the other 32 KiB.
#[test]
fn shares_by_weight() {
    for (iosize, expected) in [("false", 3.0 / 8.0), ("true", 3.0)] {
        let mut rig =
            Rig::new("ioband-none", &[("iosize", iosize), ("io_limit", "8"), ("token", "3000")]);
        let (a, b) = (rig.weighted("a", 300), rig.weighted("b", 100));
        rig.send(a, (Operation::Read, 8), 8);
        rig.send(b, (Operation::Read, 64), 8);
        let served = rig.closed_loop(ms(1), Nanos::from_secs(40), &[(a, 8), (b, 64)]);
        let ratio = served[0] as f64 / served[1] as f64;
        assert!((ratio / expected - 1.0).abs() < 0.05, "{iosize}: {ratio} of {expected}");
    }
}

/// Goal: a group that is alone gets all there is. Method: weight 1 beside a thousand for an idle one; a drive
/// that is never without work.
#[test]
fn tokens_of_idle_groups_are_used() {
    let mut rig = Rig::new("ioband-none", &[("iosize", "true")]);
    let _idle = rig.weighted("idle", 1000);
    let small = rig.weighted("small", 1);
    rig.send(small, (Operation::Read, 2048), 3);
    let served = rig.closed_loop(ms(1), Nanos::from_secs(2), &[(small, 2048)]);
    assert_eq!(served[0], 2000 * 2048);
}

/// Goal: nobody is waited for. Method: a reader with nine tenths of the weight that sends its next request 1 ms
/// after each completion, beside a group with eight always there, on a drive that takes 1 ms: at most every other
/// request can be the reader's; with the eight in the drive before it, one in nine is.
#[test]
fn a_reader_that_thinks_loses_its_share() {
    let mut rig = Rig::new("ioband-none", &[]);
    let (reader, other) = (rig.weighted("reader", 900), rig.weighted("other", 100));
    rig.send(other, READ, 8);
    rig.send(reader, READ, 1);
    let (mut got, mut total, mut thinks) = (0, 0, false);
    rig.go();
    while total < 3000 {
        rig.now += ms(1);
        let client = rig.completion().expect("never idle");
        total += 1;
        got += u64::from(client == reader);
        if core::mem::replace(&mut thinks, client == reader) {
            rig.send(reader, READ, 1);
        }
        if client == other {
            rig.send(other, READ, 1);
        }
        rig.go();
    }
    assert!(got * 5 < total, "{got} of {total}");
}

/// Goal: at most `io_limit` of a class go below, whatever the tokens; classes do not take each other's room; who
/// was put aside for lack of room goes first. Method: room for four; writes, then reads, then more writes.
#[test]
fn room_by_class() {
    let mut rig = Rig::new("ioband-none", &[("io_limit", "4"), ("token", "1000")]);
    let mut clients = || rig.weighted("a", 100);
    let (writer, reader, last) = (clients(), clients(), clients());
    rig.send(writer, WRITE, 6);
    rig.send(reader, READ, 2);
    rig.send(last, WRITE, 1);
    assert_eq!(rig.go(), [writer, writer, writer, writer, reader, reader]);
    assert_eq!(rig.gauge("blocked_requests"), 3);
    rig.completion();
    assert_eq!(rig.go(), [writer]);
    // The other two writes are parked now, and a read passes them.
    rig.send(reader, READ, 1);
    assert_eq!(rig.go(), [reader]);
    rig.completion();
    assert_eq!(rig.go(), [writer]);
    rig.completion();
    assert_eq!(rig.go(), [last]);
}

/// Goal: a group that is active and has many tokens left puts the new epoch off while the drive has
/// `io_throttle` requests, and no longer. Method: 400 tokens, the heavy group uses 100 of its 320 and stops; the
/// light one runs out of its 40 and asks for more.
#[test]
fn a_dominant_group_puts_the_epoch_off() {
    let mut rig = Rig::new("ioband-none", &[("token", "400"), ("io_limit", "64")]);
    rig.controller
        .update_group(rig.now, iofair_core::id::GroupId::ROOT, Contract::default())
        .expect("the root is there");
    let (heavy, light) = (rig.weighted("heavy", 800), rig.weighted("light", 100));
    for _ in 0..100 {
        rig.send(heavy, READ, 1);
        rig.go();
        rig.completion();
    }
    rig.send(light, READ, 41);
    assert_eq!(rig.go().len(), 40, "its tokens");
    for below in (4..40).rev() {
        rig.completion();
        assert_eq!(rig.go(), [], "{below} below");
    }
    rig.completion();
    assert_eq!(rig.go(), [light], "three below");
}

/// Goal: an absent group comes back with the tokens of at most `carryover` epochs. Method: 100 tokens a group and
/// epoch; one is away for ten epochs of the other.
#[test]
fn absent_groups_carry_tokens_over() {
    for (carryover, tokens) in [("1", 100), ("3", 300)] {
        let set = [("token", "300"), ("carryover", carryover), ("io_limit", "30000")];
        let mut rig = Rig::new("ioband-none", &set);
        let (away, busy) = (rig.weighted("away", 100), rig.weighted("busy", 100));
        // All of the first set, and one more to be refused.
        rig.send(away, READ, 100);
        assert_eq!(rig.go().len(), 100);
        while rig.gauge("epochs") < 10 {
            rig.send(busy, READ, 1);
            rig.go();
            if rig.gauge("blocked_requests") > 0 {
                rig.completion();
                rig.go();
            }
        }
        rig.send(away, READ, 1000);
        let gone = rig.go().len();
        // What others left unused comes on top.
        assert!(gone >= tokens && gone <= tokens + 200, "{carryover}: {gone}");
    }
}

/// Goal: a sleeping client sends nothing else, and no other sleeps for it; the flusher's writes sleep only when
/// `io_limit` are blocked in all. Method: one group out of tokens with two clients in it, another with tokens.
#[test]
fn submitters_without_tokens_sleep() {
    let mut rig = Rig::new("ioband-none", &[("token", "30"), ("io_limit", "24")]);
    let (a, b) = (rig.weighted("a", 100), rig.weighted("b", 100));
    let neighbour = rig.weighted("a", 100);
    rig.send(a, READ, 10);
    // Out of tokens: 24 / 3 / 4 = 2 are blocked, one is slept over.
    rig.send(a, READ, 3);
    rig.send(a, WRITE, 1);
    assert_eq!(rig.go().len(), 10);
    assert_eq!((rig.gauge("blocked_requests"), rig.gauge("sleeping_clients")), (2, 1));
    rig.send(neighbour, READ, 1);
    assert_eq!(rig.gauge("sleeping_clients"), 2, "of the same group");
    rig.send(b, READ, 1);
    assert_eq!(rig.go(), [b]);
    rig.send(neighbour, WRITE, 1);
    assert_eq!(rig.gauge("blocked_requests"), 2, "behind its read");
    let flusher = rig.weighted("a", 100);
    rig.send(flusher, WRITE, 30);
    assert_eq!((rig.gauge("blocked_requests"), rig.gauge("sleeping_clients")), (26, 3));
    rig.completion();
    // 10 tokens and 30 * 10 / (30 - 15) that nobody used: the blocked two reads and 24 writes, and two reads of
    // those who slept; their writes find no room.
    assert_eq!(rig.go().len(), 28);
}

/// Goal: sleepers wake only when nothing of their group is blocked any more. Method: 4 tokens, half of them the
/// root's: two reads go, 24 are blocked, the rest is slept over. An epoch gives 2 + 4 * 2 / (4 - 2) = 6; the next
/// ones 2 + 2 * 2 / (4 - 1) = 3. After 20 requests the group's turn is over: the conductor looks for another, finds
/// none with tokens, and makes one more epoch.
#[test]
fn sleepers_wait_until_all_are_gone() {
    let mut rig = Rig::new("ioband-none", &[("token", "4")]);
    let client = rig.weighted("a", 100);
    rig.send(client, READ, 40);
    assert_eq!(rig.go().len(), 2);
    for (gone, blocked, asleep) in [(6, 18, 1), (3, 15, 1), (3, 12, 1), (3, 9, 1), (6, 3, 1)] {
        rig.completion();
        assert_eq!(rig.go().len(), gone);
        let is = (rig.gauge("blocked_requests"), rig.gauge("sleeping_clients"));
        assert_eq!(is, (blocked, asleep));
    }
    rig.completion();
    assert_eq!(rig.go().len(), 3);
    // 40 - 2 - 24 woke, and had no token: all of them are blocked now.
    assert_eq!((rig.gauge("blocked_requests"), rig.gauge("sleeping_clients")), (14, 0));
}

/// Goal: metadata passes when so told. Method: a group deep in debt sends data, then metadata.
#[test]
fn urgent_metadata() {
    for (urgent, first) in [("true", 0), ("false", 1)] {
        let mut rig = Rig::new("ioband-none", &[("token", "4"), ("metadata_urgent", urgent)]);
        let (data, meta) = (rig.weighted("a", 100), rig.weighted("a", 100));
        rig.send(data, READ, 3);
        rig.send_flagged(meta, READ, 1, Flags::METADATA);
        assert_eq!(rig.go().len(), 2);
        rig.completion();
        let gone = rig.go();
        assert_eq!(gone.iter().position(|client| *client == meta), Some(first), "{gone:?}");
    }
}

/// Goal: children get percents of their parent's tokens, which keeps the rest. Method: a parent of 100 tokens, a
/// child of 30 percent.
#[test]
fn percents_of_the_parent() {
    let mut rig = Rig::new("ioband-none", &[("token", "200"), ("io_limit", "1000")]);
    let child = rig.weighted("p/c", 30);
    let parent = rig.weighted("p", 100);
    rig.send(child, READ, 40);
    assert_eq!(rig.go().len(), 30);
    // The first set is a full one; the rest of it, 70, shows from the second on.
    rig.send(parent, READ, 101);
    assert_eq!(rig.go().len(), 100);
    assert_eq!(rig.gauge("blocked_requests"), 11);
}

fn band(min: Option<u64>, max: Option<u64>) -> Contract {
    let max = max.map_or_else(Limits::default, Limits::both);
    Contract { min, max, ..Contract::default() }
}

/// Goal: range-bw's maximum to the request. Method: 1 MB/s is 1953 sectors, so the 245th read of 8 shuts the
/// group; its submitter sleeps until 10 ms after the second that began with the first read. The flusher's
/// writes do not care. In the new period the group is one with a minimum of nothing: what follows the first read
/// is blocked until a completion.
#[test]
fn a_maximum_to_the_request() {
    let mut rig = Rig::new("rangebw-none", &[("io_limit", "10000")]);
    let client = rig.client("a", band(None, Some(MB)));
    rig.now += ms(5);
    rig.send(client, READ, 1000);
    assert_eq!(rig.go().len(), 245);
    assert_eq!(rig.gauge("sleeping_clients"), 1);
    assert_eq!(rig.controller.next_wakeup(), Some(Instant::ZERO + ms(1015)));
    let flusher = rig.client("a", band(None, Some(MB)));
    rig.send(flusher, WRITE, 10);
    rig.completion();
    assert_eq!(rig.go().len(), 10, "they were only blocked");
    rig.now = Instant::ZERO + ms(1015);
    assert_eq!(rig.go().len(), 1, "the first begins the new period and is not counted in it");
    rig.completion();
    assert_eq!(rig.go().len(), 245);
}

/// Goal: a group whose turn is over has one request blocked, then a new turn. Method: 100 ms for a group that was
/// promised nothing.
#[test]
fn a_turn_over_blocks_one_request() {
    let mut rig = Rig::new("rangebw-none", &[]);
    let client = rig.client("a", band(None, None));
    for (at, sent, gone) in [(0, 3, 3), (100, 3, 3), (101, 3, 1)] {
        rig.now = Instant::ZERO + ms(at);
        rig.send(client, READ, sent);
        assert_eq!(rig.go().len() as u64, gone, "{at} ms");
    }
    assert_eq!((rig.gauge("blocked_requests"), rig.gauge("sleeping_clients")), (1, 1));
    rig.completion();
    assert_eq!(rig.go().len(), 2);
    rig.send(client, READ, 1);
    assert_eq!(rig.go().len(), 1);
}

/// Goal: minimums come first, then turns, but only among blocked requests; who was promised nothing starves.
/// Method: a drive of 4.1 MB/s, one group is promised 3 MB/s, one 0.5 or nothing, both always have 40
/// requests. With little room below, the promises are kept, and the 0.6 MB/s beyond are shared: 80 %. With
/// 192 nothing is ever blocked, and the drive is shared equally.
#[test]
fn minimums_show_only_above_the_limit() {
    let half = Some(MB / 2);
    for (io_limit, min, low, high) in
        [("4", half, 0.78, 0.82), ("4", None, 0.98, 1.0), ("192", half, 0.48, 0.52)]
    {
        let mut rig = Rig::new("rangebw-none", &[("io_limit", io_limit)]);
        let kept = rig.client("kept", band(Some(3 * MB), None));
        let other = rig.client("other", band(min, None));
        for _ in 0..40 {
            rig.send(kept, READ, 1);
            rig.send(other, READ, 1);
        }
        let served = rig.closed_loop(ms(1), Nanos::from_secs(20), &[(kept, 8), (other, 8)]);
        let share = served[0] as f64 / (served[0] + served[1]) as f64;
        assert!(share > low && share < high, "io_limit {io_limit}, {min:?}: {share}");
    }
}

/// Goal: early and double calls change nothing. Method: one rig asked only when it has to be, one asked four times
/// a millisecond.
#[test]
fn early_and_double_calls() {
    for stack in ["ioband-none", "rangebw-none"] {
        let run = |nervous: bool| {
            let mut rig = Rig::new(stack, &[("io_limit", "6"), ("token", "20")]);
            let clients: Vec<_> = (0..3)
                .map(|i| rig.client(&format!("g{i}"), band(Some(MB * i), Some(2 * MB + MB * i))))
                .collect();
            clients.iter().for_each(|client| rig.send(*client, READ, 20));
            let mut order = rig.go();
            for _ in 0..3000 {
                for _ in 0..4 {
                    rig.now += Nanos::from_micros(250);
                    if nervous {
                        order.extend(rig.go());
                        rig.gauge("blocked_requests");
                    }
                    while rig.controller.next_wakeup().is_some_and(|at| at <= rig.now) {
                        order.extend(rig.go());
                    }
                }
                if let Some(client) = rig.completion() {
                    rig.send(client, READ, 1);
                    order.extend(rig.go());
                }
            }
            order
        };
        assert_eq!(run(false), run(true), "{stack}");
    }
}
