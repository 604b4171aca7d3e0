//! The policy as a whole on a drive that limits I/Os a second, as the kernel's blk-throttle and many virtual disks do.

use super::{RATE, at};
use iofair_core::contract::Contract;
use iofair_core::controller::{Dispatch, Submission};
use iofair_core::group::ClientId;
use iofair_core::request::{CommandId, Flags, Operation};
use iofair_core::testing::Rig;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use std::vec::Vec;

/// The drive takes this many commands of each kind in each slice.
const COMMANDS: u64 = 300;
const SLICE: u64 = 100_000_000;
/// Time of a read and of a write.
const TAKES: [Nanos; 2] = [Nanos(60_000), Nanos(17_000)];

/// Commands of one kind: the slice of the next one, and how many that slice has had.
#[derive(Default)]
struct Limit {
    slice: u64,
    had: u64,
}

impl Limit {
    /// When a command that comes now is completed.
    fn completes(&mut self, now: Instant, takes: Nanos) -> Instant {
        if now.0 / SLICE > self.slice {
            *self = Self { slice: now.0 / SLICE, had: 0 };
        } else if self.had == COMMANDS {
            *self = Self { slice: self.slice + 1, had: 0 };
        }
        self.had += 1;
        Instant(now.0.max(self.slice * SLICE)) + takes
    }
}

struct Load {
    rig: Rig,
    clients: Vec<ClientId>,
    limits: [Limit; 2],
    in_drive: Vec<(Instant, CommandId)>,
    /// When which client sends its next request.
    next: Vec<(Instant, usize)>,
    place: u64,
    /// Bytes read and written.
    moved: [u64; 2],
}

impl Load {
    fn submit(&mut self, client: usize) {
        self.place += 2048;
        let (operation, flags, length) = match client {
            0 => (Operation::Read, Flags::NONE, Sectors(8)),
            _ => (Operation::Write, Flags::SYNC, Sectors(2048)),
        };
        let (tag, start) = (client as u64, Sectors(self.place));
        let client = self.clients[client];
        let request = Submission { tag, client, operation, flags, start, length };
        self.rig.controller.submit(self.rig.now, request).expect("within the limit");
    }
    fn step(&mut self) {
        let now = self.rig.now;
        let due: Vec<_> = self.next.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().for_each(|(_, client)| self.submit(client));
        while let Some(Dispatch { command, length, operation, .. }) =
            self.rig.controller.dispatch(now)
        {
            let side = usize::from(operation == Operation::Write);
            let ends = self.limits[side].completes(now, TAKES[side]);
            self.in_drive.push((ends, command));
            self.moved[side] += length.bytes();
        }
        let wakeup = self.rig.controller.next_wakeup().map(|at| at.max(now + Nanos(1)));
        let others = self.in_drive.iter().map(|it| it.0).chain(self.next.iter().map(|it| it.0));
        self.rig.now = others.chain(wakeup).min().expect("requests are in flight");
        let now = self.rig.now;
        for (_, command) in self.in_drive.extract_if(.., |(ends, _)| *ends <= now) {
            let mut done = Vec::new();
            self.rig.controller.complete(now, command, 0, &mut done).expect("the drive has it");
            let again = done.iter().map(|it| (now + Nanos(20_000), it.part.tag as usize));
            self.next.extend(again);
        }
    }
}

/// Goal: writes are not taken for the cause of reads that wait for something else, as long as the minimum is kept. Method: a
/// drive that takes 300 reads and 300 writes in each 100 ms. A reader with a minimum of a third of that uses up its reads
/// and then waits, beside four writers of 1 MiB with four requests in flight.
#[test]
fn reads_that_wait_for_a_limit_do_not_hold_writes() {
    let mut rig = Rig::with(&crate::TABLE, "prop-promise", &[], |setup| {
        (setup.facts.rotational, setup.facts.max_request) = (false, Sectors(8192));
        setup.tags = 256;
    });
    let clients: Vec<_> = (0..5).map(|_| rig.client()).collect();
    let group = rig.controller.groups().client(clients[0]).group;
    let minimum = Contract { min: Some(RATE), ..Contract::default() };
    rig.controller.update_group(rig.now, group, minimum).expect("it is there");
    let writers = (1..17).map(|it| (Instant::ZERO, 1 + it % 4));
    let next = writers.chain([(Instant::ZERO, 0)]).collect();
    let (limits, in_drive) = ([Limit::default(), Limit::default()], Vec::new());
    let mut load = Load { rig, clients, limits, in_drive, next, place: 0, moved: [0; 2] };
    for second in 1..6 {
        load.moved = [0; 2];
        while load.rig.now < at(second * 1000) {
            load.step();
        }
        let [read, written] = load.moved;
        assert!(read > RATE - RATE / 50, "{read} bytes read in second {second}");
        assert!(second == 1 || written > 60_000_000, "{written} bytes written in second {second}");
    }
}
