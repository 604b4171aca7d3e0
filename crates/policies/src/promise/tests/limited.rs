//! The policy as a whole on a volume that allows so many commands a second, long ones or short ones.

use super::at;
use iofair_core::contract::Contract;
use iofair_core::controller::{Dispatch, Submission};
use iofair_core::id::{ClientId, CommandId};
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::Rig;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use std::vec::Vec;

/// The volume completes a command each millisecond, a millisecond after its turn.
const MS: Nanos = Nanos::from_millis(1);
/// Length of every request.
const LENGTH: Sectors = Sectors(512);

struct Load {
    rig: Rig,
    clients: Vec<ClientId>,
    free: Instant,
    in_drive: Vec<(Instant, CommandId)>,
    place: u64,
    /// Bytes read by each client.
    read: Vec<u64>,
}

impl Load {
    fn submit(&mut self, client: usize) {
        self.place += 4096;
        let request = Submission {
            tag: client as u64,
            client: self.clients[client],
            operation: Operation::Read,
            flags: Flags::NONE,
            start: Sectors(self.place),
            length: LENGTH,
        };
        self.rig.controller.submit(self.rig.now, request).expect("within the limit");
    }
    /// Sends what may go, and advances to the next event.
    fn step(&mut self) {
        let now = self.rig.now;
        while let Some(Dispatch { command, .. }) = self.rig.controller.dispatch(now) {
            self.free = self.free.max(now) + MS;
            self.in_drive.push((self.free + MS, command));
        }
        let wakeup = self.rig.controller.next_wakeup().map(|at| at.max(now + Nanos(1)));
        let ends = self.in_drive.iter().map(|request| request.0);
        self.rig.now = ends.chain(wakeup).min().expect("requests are in flight");
        let (now, mut done) = (self.rig.now, Vec::new());
        for (_, command) in self.in_drive.extract_if(.., |(ends, _)| *ends <= now) {
            self.rig.controller.complete(now, command, 0, &mut done).expect("the drive has it");
        }
        for client in done.iter().map(|done| done.part.tag as usize) {
            self.read[client] += LENGTH.bytes();
            self.submit(client);
        }
    }
}

/// Goal: a minimum that needs whole requests is kept, and the rest is used in long commands as well. Method: a volume with 1000
/// commands a second, a reader of 256 KiB with a minimum of a quarter of what whole requests reach, and eight without.
#[test]
fn a_limit_on_commands_is_used_by_long_ones() {
    let mut rig = Rig::with(&crate::TABLE, "prop-promise", &[], |setup| {
        (setup.facts.rotational, setup.facts.max_request) = (false, LENGTH);
        setup.tags = 256;
    });
    let clients: Vec<_> = (0..9).map(|_| rig.client()).collect();
    let group = rig.controller.groups().client(clients[0]).group;
    let all = LENGTH.bytes() * 1000;
    let minimum = Contract { min: Some(all / 4), ..Contract::default() };
    rig.controller.update_group(rig.now, group, minimum).expect("it is there");
    let (free, in_drive, read) = (Instant::ZERO, Vec::new(), Vec::from([0; 9]));
    let mut load = Load { rig, clients, free, in_drive, place: 0, read };
    (0..9).for_each(|client| (0..4).for_each(|_| load.submit(client)));
    for second in 1..6 {
        load.read.fill(0);
        while load.rig.now < at(second * 1000) {
            load.step();
        }
        let (own, total) = (load.read[0], load.read.iter().sum::<u64>());
        let least = all / 4 - all / 100;
        assert!(own >= least, "{own} of {least} in second {second}");
        assert!(second < 5 || total > all - all / 50, "{total} of {all} in second {second}");
    }
}
