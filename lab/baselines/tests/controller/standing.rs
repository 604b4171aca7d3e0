//! What a scheduler says of a request that it holds while the drive is kept free for somebody else.

use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, FlushRule, Place, Setup, Submission};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;

/// Every scheduler that waits for the client that it served last.
const WAITING: [&str; 9] = [
    "prop-bfq",
    "prop-bfq-4.20",
    "prop-bfq-4.18",
    "none-cfq",
    "prop-cfq-group",
    "prop-fair-noop",
    "prop-fair-anticipatory",
    "prop-fair-cfq",
    "none-anticipatory",
];

type Client = (GroupId, ClientId);

struct World {
    controller: Controller,
    now: Instant,
    tag: u64,
}

impl World {
    fn submit(&mut self, client: ClientId, start: u64) {
        let submission = Submission {
            tag: self.tag,
            client,
            operation: Operation::Read,
            flags: Flags::SYNC,
            start: Sectors(start),
            length: Sectors(8),
        };
        self.tag += 1;
        self.controller.submit(self.now, submission).unwrap();
    }
    /// One request after the other to the drive and back, until nothing is given out.
    fn serve(&mut self) {
        while let Some(dispatch) = self.controller.dispatch(self.now) {
            self.now += Nanos::from_micros(200);
            self.controller
                .complete(self.now, dispatch.command, 0, &mut Vec::new())
                .expect("the drive has it");
        }
    }
    /// What is said of a request of a group that is held while somebody is waited for.
    fn held(&self, group: GroupId) -> Option<(Option<Subject>, Instant)> {
        let held = self.controller.held(|request| request.group == group).next()?;
        assert_eq!(held.place, Place::Scheduler);
        Some((held.info.serves, held.info.idles_until?))
    }
}

/// Goal: an explanation names the client in service and until when it is waited for. Method: a reader in order,
/// another client now and then, and whichever of them is held while the other is waited for.
#[test]
fn an_idling_scheduler_names_the_awaited_client() {
    for name in WAITING {
        let facts = DriveFacts {
            rotational: true,
            depth: 1,
            max_request: Sectors(1024),
            capacity: Sectors(1 << 30),
        };
        let setup = Setup {
            facts,
            tags: 128,
            queue_limit: 0,
            guaranteed: 128,
            client_limit: u32::MAX,
            flushes: FlushRule::Bypass,
            trace: 0,
        };
        let mut controller = Controller::new(setup, iofair_baselines::TABLE.stack(name).unwrap());
        let now = Instant::ZERO;
        let [reader, other] = [("reader", 100), ("other", 300)].map(|(name, weight)| {
            let contract = Contract { weight, ..Contract::default() };
            let group = controller.add_group(now, name, contract).unwrap();
            (group, controller.add_client(now, group, Priority::default()).unwrap())
        });
        let mut world = World { controller, now, tag: 0 };
        let mut start = 0;
        let found = (0..200).find_map(|round| {
            world.submit(reader.1, start);
            start += 8;
            if round % 10 == 3 {
                world.submit(other.1, (1 << 25) + start);
            }
            world.serve();
            let pairs = [(other, reader), (reader, other)];
            let said = |(held, served): (Client, Client)| Some((world.held(held.0)?, served));
            let found = pairs.into_iter().find_map(said);
            world.now += Nanos::from_micros(100);
            found
        });
        let ((serves, until), served) = found.unwrap_or_else(|| panic!("{name} never waits"));
        let served = [Subject::Client(served.1), Subject::Group(served.0)];
        assert!(serves.is_some_and(|subject| served.contains(&subject)), "{name}: {serves:?}");
        assert!(until > world.now, "{name}: {until:?}");
    }
}
