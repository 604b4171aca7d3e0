//! Work that does not grow with the number of groups, counted in groups and clients looked at.

use iofair_core::bounds::DEPTH_MAX;
use iofair_core::contract::{Contract, Latency, Limits};
use iofair_core::controller::{Controller, FlushRule, Setup, Submission};
use iofair_core::error::EngineError;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::policy::DriveFacts;
use iofair_core::policy::Role;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Instant;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

/// Many clients in groups of their own below one more level.
struct Scale {
    engine: Controller,
    clients: Vec<ClientId>,
}

/// Groups and clients looked at by each call: adding a group and a client, finding a group, a contract, a request
/// from submission to completion, another group for a client, removing both.
type Work = [u64; 7];

impl Scale {
    fn new(stack: &str, groups: usize) -> Self {
        let facts = DriveFacts {
            rotational: false,
            depth: 32,
            max_request: Sectors(256),
            capacity: Sectors(1 << 30),
        };
        let setup = Setup {
            facts,
            tags: 1024,
            queue_limit: 1024,
            guaranteed: 4,
            client_limit: u32::MAX,
            flushes: FlushRule::Scheduled,
            trace: 0,
        };
        let stack = iofair_baselines::TABLE.stack(stack).expect("in the table");
        let mut this = Self { engine: Controller::new(setup, stack), clients: Vec::new() };
        (0..groups).for_each(|number| this.add(number));
        this
    }
    fn contract(number: usize) -> Contract {
        let number = number as u64;
        let mut max = Limits::both((1 << 30) + number);
        // Every other one has token buckets of its own.
        max.total.bytes_per_s = (number % 2 == 1).then_some(1 << 31);
        let (min, latency) = (Some(1 << 20), Some(Nanos::from_millis(5 + number % 7)));
        Contract {
            max,
            min,
            latency: Latency { read: latency, ..Latency::NONE },
            weight: 1 + number as u32 % 1000,
            ..Contract::default()
        }
    }
    fn add(&mut self, number: usize) {
        let (name, now) = (format!("tenants/group-{number}"), Instant::ZERO);
        let group = self.engine.add_group(now, &name, Self::contract(number)).expect("new");
        let client = self.engine.add_client(now, group, Priority::default());
        self.clients.push(client.expect("the group is there"));
    }
    fn count(&mut self, call: impl FnOnce(&mut Self)) -> u64 {
        self.engine.groups().take_visits();
        call(self);
        self.engine.groups().take_visits()
    }
    fn request(&mut self, now: Instant, client: ClientId, operation: Operation) {
        let length = Sectors(if operation == Operation::Flush { 0 } else { 8 });
        let (tag, flags, start) = (0, Flags::NONE, Sectors(client.to_bits() * 64));
        let submission = Submission { tag, client, operation, flags, start, length };
        self.engine.submit(now, submission).expect("has room");
    }
    /// Dispatches and completes all there is; returns the time at the end.
    fn drain(&mut self, mut now: Instant) -> Instant {
        let mut done = Vec::new();
        while self.engine.pending() > 0 {
            match self.engine.dispatch(now) {
                Some(sent) => self.engine.complete(now, sent.command, 0, &mut done).expect("sent"),
                None => now = self.engine.next_wakeup().expect("held work asks for a wake-up"),
            }
        }
        now
    }
    /// What each call looks at, beside a backlog of some groups.
    fn work(&mut self) -> Work {
        let now = Instant(1_000_000);
        for number in 0..20 {
            self.request(now, self.clients[number], Operation::Read);
        }
        let now = self.drain(now);
        let (number, last) = (self.clients.len(), self.clients.len() - 1);
        let client = self.clients[last];
        let group = self.engine.groups().client(client).group;
        let add = self.count(|this| this.add(number));
        let find = self.count(|this| {
            let path = format!("tenants/group-{last}");
            assert_eq!(this.engine.groups().find(&path), Some(group));
        });
        let update = self.count(|this| {
            let contract = Self::contract(number + 1);
            this.engine.update_group(now, group, contract).expect("it is there");
        });
        let request = self.count(|this| {
            for operation in [Operation::Read, Operation::Write, Operation::Flush] {
                this.request(now, client, operation);
            }
            this.drain(now);
        });
        let contract = self.count(|this| {
            let contract = Self::contract(number + 2);
            this.engine.update_group(now, group, contract).expect("it is there");
            this.request(now, client, Operation::Read);
            this.drain(now);
        });
        let other = self.engine.groups().client(self.clients[0]).group;
        let movement = self.count(|this| {
            let updated = this.engine.update_client(now, client, other, Priority::default());
            updated.expect("both are there");
        });
        let remove = self.count(|this| {
            this.engine.remove_client(now, client).expect("idle");
            this.engine.remove_group(now, group).expect("empty");
        });
        [add, find, update, request, contract, movement, remove]
    }
}

/// Goal: no call looks at more groups or clients when there are 10,000 of them. Method: count with 100 and 10,000,
/// for every scheduler and throttle but those whose source visits all groups when a limit changes.
#[test]
fn work_does_not_grow_with_the_number_of_groups() {
    // blk-throttle's low limits, dm-ioband's tokens.
    let walks = ["throttle-low", "ioband"];
    for row in iofair_baselines::TABLE.policies {
        let stack = match row.role {
            Role::Throttle => format!("{}-none", row.short),
            Role::Scheduler { groups: true, .. } => format!("max+prop-{}", row.name),
            Role::Scheduler { groups: false, .. } => format!("max-{}", row.name),
        };
        let few = Scale::new(&stack, 100).work();
        let many = Scale::new(&stack, 10_000).work();
        let grows = few.iter().zip(&many).any(|(few, many)| *many > few + 2);
        // Those that do visit all groups show that the count sees it.
        let wanted = walks.contains(&row.name);
        assert_eq!(grows, wanted, "{stack}: {few:?} with 100 groups, {many:?} with 10,000");
    }
}

/// Goal: paths find their groups whatever is added and removed. Method: half of them go, ids are used again.
#[test]
fn paths_find_their_groups() {
    let mut scale = Scale::new("none-none", 200);
    let path = |number: usize| format!("tenants/group-{number}");
    let groups = |scale: &Scale, number: usize| scale.engine.groups().find(&path(number));
    for number in (0..200).step_by(2) {
        let group = groups(&scale, number).expect("added");
        scale.engine.remove_client(Instant::ZERO, scale.clients[number]).expect("idle");
        scale.engine.remove_group(Instant::ZERO, group).expect("empty");
        assert_eq!(groups(&scale, number), None);
    }
    (200..250).for_each(|number| scale.add(number));
    for number in (1..200).step_by(2).chain(200..250) {
        let group = groups(&scale, number).expect("there");
        assert_eq!(scale.engine.groups().group(group).name, path(number));
    }
    let tenants = scale.engine.groups().find("tenants").expect("made on the path");
    let children = &scale.engine.groups().group(tenants).children;
    assert!(children.len() == 150 && children.is_sorted());
    assert_eq!(scale.engine.groups().find(""), Some(GroupId::ROOT));
    let again = scale.engine.add_group(Instant::ZERO, &path(201), Contract::default());
    assert_eq!(again, Err(EngineError::Exists(path(201))));
}

/// Goal: the depth of the tree is bounded, and what is refused makes no group on its path. Method: the bound itself.
#[test]
fn the_tree_is_not_deeper_than_it_may_be() {
    let mut engine = Scale::new("none-none", 0).engine;
    let path = |depth: usize| std::vec!["g"; depth].join("/");
    let deep = engine.add_group(Instant::ZERO, &path(DEPTH_MAX + 1), Contract::default());
    assert_eq!(deep, Err(EngineError::TooDeep(path(DEPTH_MAX + 1))));
    assert_eq!(engine.groups().iter().count(), 1);
    let group = engine.add_group(Instant::ZERO, &path(DEPTH_MAX), Contract::default());
    let group = group.expect("as deep as it may be");
    assert_eq!(engine.groups().ancestry(group).count(), DEPTH_MAX + 1);
}
