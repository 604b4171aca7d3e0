//! One recorded operation list through the lab and through a reactor's engine half with a scripted
//! clock: the same dispatches, in the same order, at the same instants.

use std::sync::{Arc, Mutex};

use iofair_baselines::TABLE;
use iofair_config::contracts::faults::Faults;
use iofair_core::contract::{Contract, Limits};
use iofair_core::controller::{Controller, Dispatch, FlushRule, Setup, Submission};
use iofair_core::id::{GroupId, RequestId};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::profile;
use iofair_serve::back::volume::{Map, PlannedVolume, VolumeId};
use iofair_serve::back::{emulated::Emulated, store::Store};
use iofair_serve::engine::{Engine, Plan, Timeouts};
use iofair_serve::request::buffer::Lent;
use iofair_serve::request::data::Data;
use iofair_serve::request::op::{Hints, NewOp};
use iofair_simulator::host;
use iofair_simulator::observe::{Observer, Recorder, Step};
use iofair_simulator::scenario::{ClientSpec, GroupSpec, Host, Job, Pattern, Scenario, Scheduling};
use iofair_simulator::simulate_with;

const DRIVE: &str = "plextor-px256m5s";
const SEED: u64 = 7;

/// A dispatch without the engine's own name for it.
type Seen = (Instant, Operation, Sectors, Sectors);

fn seen(now: Instant, dispatch: &Dispatch) -> Seen {
    (now, dispatch.operation, dispatch.start, dispatch.length)
}

fn client(name: &str, group: &str, pattern: Pattern, block: u64) -> ClientSpec {
    let fdatasync_every = if pattern == Pattern::RandomWrite { 8 } else { 0 };
    let job = Job { fdatasync_every, ..Job::new(pattern, Sectors::from_kib(block), false) };
    let file_size = Sectors::from_kib(1 << 20);
    ClientSpec { group: group.into(), file_size, ..ClientSpec::new(name, job) }
}

fn scenario(stack: &str) -> Scenario {
    let group = |name: &str, weight, max: Option<u64>| GroupSpec {
        name: name.into(),
        contract: Contract {
            weight,
            max: max.map_or(Limits::default(), Limits::both),
            ..Contract::default()
        },
    };
    Scenario {
        drive: DRIVE.into(),
        stack: TABLE.stack(stack).unwrap(),
        tags: None,
        flushes: FlushRule::Scheduled,
        stripe: None,
        // The engine half runs on this machine's processor: the model of another one's stays out.
        host: Host { scheduling: Scheduling::FREE, ..host::for_drive(DRIVE) },
        groups: vec![
            group("a", 300, None),
            group("b", 100, Some(40_000_000)),
            group("c", 100, None),
        ],
        clients: vec![
            client("target", "a", Pattern::RandomRead, 4),
            client("reader", "b", Pattern::SequentialRead, 64),
            client("writer", "c", Pattern::RandomWrite, 16),
            client("other", "c", Pattern::RandomRead, 128),
        ],
        changes: Vec::new(),
        ramp: Nanos::ZERO,
        time: Nanos::from_millis(400),
        seed: SEED,
        interval: None,
    }
}

/// Records, and learns who belongs where.
#[derive(Default)]
struct Watch {
    recorder: Recorder,
    groups: Vec<(String, Contract)>,
    /// Group of each client.
    clients: Vec<String>,
}

impl Observer for Watch {
    fn on_start(&mut self, _: &Setup, controller: &Controller) {
        let groups = controller.groups();
        let named = groups.iter().filter(|(id, _)| *id != GroupId::ROOT);
        self.groups = named.map(|(_, g)| (g.name.clone(), g.contract.clone())).collect();
        let client = |group| groups.group(group).name.clone();
        self.clients = groups.iter_clients().map(|(_, c)| client(c.group)).collect();
    }
    fn on_submit(&mut self, now: Instant, submission: &Submission) {
        self.recorder.on_submit(now, submission);
    }
    fn on_dispatch(&mut self, now: Instant, dispatch: &Dispatch) {
        self.recorder.on_dispatch(now, dispatch);
    }
    fn on_hold(&mut self, now: Instant) {
        self.recorder.on_hold(now);
    }
    fn on_command_completion(&mut self, now: Instant, id: RequestId, status: i32) {
        self.recorder.on_command_completion(now, id, status);
    }
}

/// The engine half over the same drive, with a volume as large as the drive for every client.
fn engine(stack: &str, watch: &Watch) -> Engine {
    let drive = profile::load(DRIVE, SEED).unwrap();
    let bytes = drive.facts().capacity.bytes();
    let back = Emulated::new(DRIVE, drive, Store::anonymous(bytes).unwrap());
    let stack = TABLE.stack(stack).unwrap();
    let mut engine = Engine::new(Box::new(back), stack.clone());
    let volume = |(number, group): (usize, &String)| PlannedVolume {
        id: VolumeId(number as u128),
        name: format!("v{number}"),
        group: group.clone(),
        map: Map::linear(0, bytes).into(),
        size: bytes,
        read_only: false,
        storage: None,
        entry: Default::default(),
        stamp: Default::default(),
    };
    let volumes = watch.clients.iter().enumerate().map(volume).collect();
    let (groups, closed) = (watch.groups.clone(), Vec::new());
    let (timeouts, faults) = (Timeouts::default(), Faults::default());
    engine.apply(Instant::ZERO, &Plan { stack, groups, volumes, closed, timeouts, faults });
    engine
}

fn repeat(stack: &str, watch: &Watch) -> Vec<Seen> {
    let mut engine = engine(stack, watch);
    let log = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&log);
    engine.observe_dispatches(Box::new(move |now, dispatch| {
        into.lock().unwrap().push(seen(now, dispatch));
    }));
    let payload = Arc::new(vec![0u8; 1 << 20]);
    for step in &watch.recorder.steps {
        match *step {
            Step::Submit(now, submission) => {
                let Submission { client, operation, start, length, .. } = submission;
                let bytes = length.bytes() as usize;
                let data = match operation {
                    Operation::Write => Data::Lent(Lent::new(&payload, 0..bytes)),
                    _ => Data::None,
                };
                let (volume, hints) = (client.index(), Hints::default());
                let (offset, length) = (start.bytes(), bytes as u32);
                let (owner, cookie) = (0, 0);
                let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
                assert!(engine.submit(now, new).is_ok(), "the queue is long enough");
            }
            Step::Dispatch(now, None) => {
                engine.turn(now);
                engine.keep_lent();
                while let Some(op) = engine.next_finished() {
                    engine.ops().release(op.data);
                }
                let late = engine.next_wakeup().is_some_and(|next| next <= now);
                assert!(!late, "a turn leaves nothing to be done at {now:?}");
            }
            Step::Dispatch(..) | Step::Completion(..) => {}
        }
    }
    drop(engine);
    Arc::into_inner(log).unwrap().into_inner().unwrap()
}

/// Goal: the lab and the data plane take the same decisions. Method: record a run of the lab with
/// readers and a writer that flushes, under four stacks; feed its submissions to the engine half at
/// the recorded instants, over a fresh copy of the same drive; compare every dispatch.
#[test]
fn lab_and_reactor_dispatch_alike() {
    for stack in ["none-none", "max-mq-deadline", "max+prop-bfq", "prop-bfq-4.18", "promise"] {
        let mut watch = Watch::default();
        simulate_with(&scenario(stack), &mut watch).unwrap();
        let steps = watch.recorder.steps.iter();
        let lab: Vec<Seen> = steps
            .filter_map(|step| match step {
                Step::Dispatch(now, Some(dispatch)) => Some(seen(*now, dispatch)),
                _ => None,
            })
            .collect();
        assert!(lab.len() > 500, "{stack}: only {} dispatches", lab.len());
        let reactor = repeat(stack, &watch);
        let differs = lab.iter().zip(&reactor).position(|(a, b)| a != b);
        if let Some(at) = differs {
            panic!("{stack}: dispatch {at}: lab {:?}, reactor {:?}", lab[at], reactor[at]);
        }
        assert_eq!(lab.len(), reactor.len(), "{stack}");
    }
}
