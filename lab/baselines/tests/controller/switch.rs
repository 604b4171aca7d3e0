//! Changing the stack under load: requests that wait are handed over at once, and none waits for the drive.

use iofair_baselines::TABLE;
use iofair_core::contract::{Contract, Limits};
use iofair_core::controller::{Controller, Dispatch, FlushRule, Place, Setup, Stack, Submission};
use iofair_core::id::ClientId;
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;
use iofair_testkit::stacks;

fn stack(name: &str) -> Stack {
    TABLE.stack(name).unwrap()
}

struct World {
    engine: Controller,
    now: Instant,
    clients: Vec<ClientId>,
    tag: u64,
}

impl World {
    /// A stack above a drive of this depth, and two clients in groups of their own; a ceiling of ten requests a second for
    /// each, where the stack keeps ceilings.
    fn new(name: &str, depth: u32, tags: u32) -> Self {
        let facts = DriveFacts {
            rotational: false,
            depth,
            max_request: Sectors::from_kib(1024),
            capacity: Sectors(1 << 30),
        };
        let flushes = FlushRule::Scheduled;
        let setup = Setup {
            facts,
            tags,
            queue_limit: 0,
            guaranteed: 64,
            client_limit: u32::MAX,
            flushes,
            trace: 0,
        };
        let mut engine = Controller::new(setup, stack(name));
        engine.remember_decisions();
        let now = Instant(1_000_000);
        let max = Limits { iops: [Some(10); 2], ..Limits::NONE };
        let clients = ["a", "b"].map(|name| {
            let contract = Contract { max, ..Contract::default() };
            let group = engine.add_group(now, name, contract).unwrap();
            engine.add_client(now, group, Priority::default()).unwrap()
        });
        Self { engine, now, clients: clients.to_vec(), tag: 0 }
    }
    fn send(&mut self, client: usize, operation: Operation, length: u64) {
        self.tag += 1;
        let (start, length) = (Sectors(self.tag * 4096), Sectors(length));
        let (tag, client) = (self.tag, self.clients[client]);
        let flags = Flags::SYNC;
        let submission = Submission { tag, client, operation, flags, start, length };
        self.engine.submit(self.now, submission).unwrap();
    }
    fn reads(&mut self, client: usize, count: usize) {
        (0..count).for_each(|_| self.send(client, Operation::Read, 8));
    }
    fn switch(&mut self, name: &str) {
        self.engine.switch(self.now, stack(name));
        assert_eq!(self.engine.stack().name(), name);
    }
    fn dispatch(&mut self) -> Vec<Dispatch> {
        std::iter::from_fn(|| self.engine.dispatch(self.now)).collect()
    }
    fn complete(&mut self, command: &Dispatch) -> Vec<u64> {
        self.now += Nanos::from_micros(100);
        let mut done = Vec::new();
        self.engine.complete(self.now, command.command, 0, &mut done).unwrap();
        done.iter().map(|done| done.part.tag).collect()
    }
    /// Serves everything but what is in the drive now; waits for whatever the policies wait for.
    fn serve_until(&mut self, end: Instant) -> Vec<u64> {
        let mut done = Vec::new();
        loop {
            let sent = self.dispatch();
            sent.iter().for_each(|sent| done.extend(self.complete(sent)));
            if sent.is_empty() {
                let Some(at) = self.engine.next_wakeup().filter(|at| *at <= end) else { break };
                self.now = self.now.max(at);
            }
        }
        done
    }
    fn places(&self) -> Vec<Place> {
        self.engine.held(|_| true).map(|held| held.place).collect()
    }
}

/// Goal: a request that the drive does not complete delays no request in the new stack, neither those who waited nor those who
/// come after. Method: from and to every scheduler, one request in the drive for ever, some that wait in the old
/// stack, two changes, some more; all but the first are served within a second.
#[test]
fn a_slow_request_does_not_delay_the_new_stack() {
    for old in stacks::schedulers(&TABLE) {
        for new in stacks::schedulers(&TABLE) {
            let mut world = World::new(&old, 4, 8);
            world.reads(0, 1);
            let slow = world.dispatch();
            assert_eq!(slow.len(), 1, "{old}");
            world.reads(1, 9);
            world.reads(0, 3);
            world.switch(&new);
            assert!(world.places().contains(&Place::Scheduler), "{:?}", world.places());
            world.reads(0, 2);
            let mut done = world.serve_until(world.now + Nanos::from_secs(1));
            world.switch(&old);
            world.reads(1, 2);
            done.extend(world.serve_until(world.now + Nanos::from_secs(1)));
            done.sort_unstable();
            assert_eq!(done, (2..=17).collect::<Vec<u64>>(), "{old} to {new}");
            assert_eq!(world.complete(&slow[0]), [1]);
            assert_eq!((world.engine.pending(), world.engine.in_flight()), (0, 0));
        }
    }
}

/// Goal: requests keep the order of their submission, and who asks learns at once where they wait now. Method: requests that
/// a ceiling holds, that wait for a tag and that the scheduler has go to first come, first served, and back.
#[test]
fn requests_keep_their_order() {
    let mut world = World::new("max-none", 1, 2);
    // Leaves the pool's slots in another order than that of submission.
    world.reads(0, 12);
    assert_eq!(world.serve_until(world.now + Nanos::from_secs(10)).len(), 12);
    world.tag = 0;
    world.reads(0, 6);
    world.reads(1, 6);
    let first = world.dispatch();
    let places = world.places();
    for place in [Place::Drive, Place::Throttle(0)] {
        assert!(places.contains(&place), "{places:?}");
    }
    world.switch("none-none");
    let places = world.places();
    for (place, count) in [(Place::Drive, 1), (Place::Scheduler, 1), (Place::Tag, 10)] {
        assert_eq!(places.iter().filter(|other| **other == place).count(), count, "{places:?}");
    }
    let mut done = world.complete(&first[0]);
    for _ in 0..3 {
        let next = world.dispatch();
        done.extend(world.complete(&next[0]));
    }
    // A client waits for one tag at a time, so the second client's first request comes after the first one's next.
    assert_eq!(done, [7, 1, 2, 8]);
    let at = world.now;
    world.switch("max-none");
    assert!(world.places().contains(&Place::Throttle(0)), "{:?}", world.places());
    let served = world.serve_until(at + Nanos::from_millis(150));
    assert!((2..6).contains(&served.len()), "the ceiling holds from the change on: {served:?}");
}

/// Goal: what the old policies decided is no reason any more. Method: a ceiling's decision about a request and its group; then
/// a stack without ceilings.
#[test]
fn old_decisions_are_forgotten() {
    let mut world = World::new("max-none", 4, 8);
    world.reads(0, 6);
    let sent = world.dispatch();
    let held = |world: &World| -> Vec<bool> {
        let held = world.engine.held(|request| request.dispatched == Instant::MAX);
        held.map(|held| held.decision.is_some() || held.info.until.is_some()).collect()
    };
    assert!(held(&world).contains(&true), "the throttle says why");
    world.switch("none-none");
    assert!(!held(&world).contains(&true));
    let group = world.engine.groups().client(world.clients[0]).group;
    for subject in [Subject::Group(group), Subject::Client(world.clients[0]), Subject::Drive] {
        assert_eq!(world.engine.last_decision(subject), None);
    }
    assert!(!sent.is_empty());
}

/// Goal: a request of which the drive has a piece goes on as it is, under whatever stack, and is completed once. Method:
/// long requests under `promise`, which cuts them; a change with a piece in the drive; a second change.
#[test]
fn pieces_go_on_as_they_are() {
    for new in stacks::schedulers(&TABLE) {
        let mut world = World::new("prop-promise", 2, 64);
        world.reads(0, 2);
        world.send(1, Operation::Read, 2048);
        world.send(0, Operation::Read, 2048);
        let mut sent = world.dispatch();
        let mut done = Vec::new();
        while !sent.iter().any(|command| command.length > Sectors(8)) {
            sent.iter().for_each(|command| done.extend(world.complete(command)));
            sent = world.dispatch();
        }
        let piece = sent.iter().find(|command| command.length > Sectors(8)).unwrap();
        assert!(piece.length < Sectors(2048), "{piece:?}");
        sent.iter().filter(|command| command.command != piece.command).for_each(|command| {
            done.extend(world.complete(command));
        });
        world.switch(&new);
        world.reads(1, 3);
        world.switch("none-none");
        let rest = world.engine.dispatch(world.now).unwrap();
        assert_eq!(
            (rest.start, rest.length),
            (piece.start + piece.length, Sectors(2048) - piece.length)
        );
        assert!(!world.complete(piece).contains(&3), "{new}: not all of it came");
        done.extend(world.complete(&rest));
        done.extend(world.serve_until(world.now + Nanos::from_secs(1)));
        done.sort_unstable();
        assert_eq!(done, [1, 2, 3, 4, 5, 6, 7], "{new}");
    }
}

/// Goal: tags of commands in the drive count under the new stack. Method: a drive with two commands and two tags.
#[test]
fn tags_in_the_drive_stay_in_use() {
    let mut world = World::new("none-none", 8, 2);
    world.reads(0, 4);
    let first = world.dispatch();
    assert_eq!(first.len(), 2);
    world.switch("prop-bfq");
    assert_eq!(world.dispatch().len(), 0, "no tag is free");
    world.complete(&first[0]);
    assert!(world.engine.has_waiting(), "a tag is free, which the new scheduler was not told");
    assert_eq!(world.dispatch().len(), 1);
    assert_eq!(world.engine.pending(), 3);
}
