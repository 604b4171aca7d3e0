//! Minimums beside minimums of clients that flush after each write.

use alloc::vec;
use alloc::vec::Vec;

use iofair_core::contract::Contract;
use iofair_core::controller::{FlushRule, Submission};
use iofair_core::id::{ClientId, CommandId};
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::Rig;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// Drive time of a read or a write of 4 KiB, and of a flush. Flushes go one at a time, and hold everything else.
const DATA: Nanos = Nanos::from_micros(170);
const FLUSH: Nanos = Nanos::from_micros(3500);
/// Time between a completion and the client's next request.
const TICK: Nanos = Nanos::from_micros(10);
const SECONDS: usize = 4;
const BLOCK: u64 = 4096;
/// Reads of the reader in each second: 10 MB/s, which take 42 % of the drive's time.
const READS: u64 = 2442;

/// A group with a minimum in bytes a second, with clients that read and clients that flush after each write.
#[derive(Clone, Copy)]
struct Group {
    path: &'static str,
    min: u64,
    readers: usize,
    flushers: usize,
}

const fn group(path: &'static str, min: u64, readers: usize, flushers: usize) -> Group {
    Group { path, min, readers, flushers }
}

struct Client {
    id: ClientId,
    group: usize,
    flushes: bool,
    last: Operation,
}

impl Client {
    fn submission(&self, tag: u64) -> Submission {
        Submission {
            tag,
            client: self.id,
            operation: self.last,
            flags: if self.last == Operation::Write { Flags::SYNC } else { Flags::NONE },
            start: Sectors(if self.last == Operation::Flush { 0 } else { tag * 1_000_000 }),
            length: Sectors(if self.last == Operation::Flush { 0 } else { 8 }),
        }
    }
}

fn clients(rig: &mut Rig, groups: &[Group]) -> Vec<Client> {
    let mut clients = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let min = (group.min > 0).then_some(group.min);
        let contract = Contract { min, ..Contract::default() };
        let id = rig.controller.add_group(rig.now, group.path, contract).expect("it is new");
        for place in 0..group.readers + group.flushers {
            let client = rig.controller.add_client(rig.now, id, Priority::default());
            let flushes = place >= group.readers;
            let id = client.expect("the group is there");
            clients.push(Client { id, group: number, flushes, last: Operation::Flush });
        }
    }
    clients
}

/// For each second after the first, and each group: completed reads and completed flushes.
fn run(groups: &[Group]) -> Vec<Vec<[u64; 2]>> {
    let mut rig = Rig::with(&crate::TABLE, "prop-promise", &[], |setup| {
        setup.facts.rotational = false;
        setup.flushes = FlushRule::Scheduled;
    });
    let mut clients = clients(&mut rig, groups);
    let mut done = vec![vec![[0; 2]; groups.len()]; SECONDS];
    let mut idle: Vec<usize> = (0..clients.len()).collect();
    let mut in_flight: Vec<(Instant, CommandId)> = Vec::new();
    let mut flushed = Instant::ZERO;
    while rig.now < Instant(SECONDS as u64 * 1_000_000_000) {
        for client in idle.drain(..) {
            let own = &mut clients[client];
            own.last = match own.last {
                Operation::Write => Operation::Flush,
                _ if own.flushes => Operation::Write,
                _ => Operation::Read,
            };
            let submission = own.submission(client as u64);
            rig.controller.submit(rig.now, submission).expect("within the limit");
        }
        while let Some(sent) = rig.controller.dispatch(rig.now) {
            let begins = flushed.max(rig.now);
            let ends = match sent.operation {
                Operation::Flush => begins + FLUSH,
                _ => begins + DATA,
            };
            if sent.operation == Operation::Flush && begins == rig.now {
                flushed = ends;
            }
            in_flight.push((ends, sent.command));
        }
        rig.now += TICK;
        let mut completed = Vec::new();
        in_flight.retain(|(ends, command)| {
            if *ends <= rig.now {
                rig.controller
                    .complete(rig.now, *command, 0, &mut completed)
                    .expect("the drive has it");
            }
            *ends > rig.now
        });
        for completion in completed {
            let client = completion.part.tag as usize;
            let Client { group, last, .. } = clients[client];
            let second = (rig.now.0 / 1_000_000_000) as usize;
            if last != Operation::Write && second < SECONDS {
                done[second][group][usize::from(last == Operation::Flush)] += 1;
            }
            idle.push(client);
        }
    }
    done.split_off(1)
}

/// Goal: a minimum is kept in every second beside minimums of clients that mostly flush and never reach theirs; those get
/// the rest of the drive. Method: a drive that a flush occupies for 3.5 ms.
#[test]
fn flushes_for_a_minimum_get_only_the_rest_of_the_drive() {
    let min = READS * BLOCK;
    for flushers in [
        &[group("f", 250_000, 0, 1)][..],
        &[group("f", 1_000_000, 0, 1)],
        &[group("f", 5_000_000, 0, 1)],
        &[group("f", 5_000_000, 0, 4)],
        &[
            group("f", 5_000_000, 0, 1),
            group("g", 5_000_000, 0, 1),
            group("h", 5_000_000, 0, 1),
            group("i", 5_000_000, 0, 1),
        ],
        // A group that also reads, and groups inside another group with a minimum.
        &[group("f", 2_000_000, 1, 1)],
        &[
            group("f", 3_000_000, 0, 0),
            group("f/a", 1_000_000, 0, 1),
            group("f/b", 1_000_000, 0, 1),
        ],
    ] {
        for readers in [1, 2] {
            let groups: Vec<_> = [group("t", min, readers, 0), group("rest", 0, 4, 0)]
                .into_iter()
                .chain(flushers.iter().copied())
                .collect();
            let all = flushers.iter().map(|group| (group.path, group.min, group.flushers));
            let all: Vec<_> = all.collect();
            for second in run(&groups) {
                let beside = std::format!("{readers} readers beside {all:?}: {second:?}");
                assert!(second[0][0] * 100 >= READS * 97, "{beside}");
                // Each flush takes 3.5 ms and waits for the reader's data. A flusher writes a block for each flush.
                for (flusher, [_, flushes]) in flushers.iter().zip(&second[2..]) {
                    let promised = flusher.min / BLOCK * 97 / 100;
                    assert!(flusher.flushers == 0 || *flushes >= promised.min(130), "{beside}");
                }
            }
        }
    }
}

/// Goal: a group keeps its minimum although flushes of one of its clients are in flight between two reads of the other
/// client. Method: a reader and a flusher in one group, beside a flusher in another group.
#[test]
fn a_group_with_a_flusher_keeps_its_minimum() {
    for second in run(&[group("m", READS * BLOCK, 1, 1), group("g", 5_000_000, 0, 1)]) {
        let [reads, flushes] = second[0];
        // The flusher writes once for each flush.
        assert!((reads + flushes) * 100 >= READS * 97, "{second:?}");
        assert!(second[1][1] > 130, "{second:?}");
    }
}
