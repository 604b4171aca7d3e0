//! What clients get of an emulated drive when it is the limit: the engine half of a server, as a contract file
//! sets it up, turned in virtual time. So the numbers are the drive's and the policy's, not this machine's.

use iofair_config::contracts::{Contracts, faults::Faults};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_drive::profile;
use iofair_drive::random::Random;
use iofair_serve::back::volume::{Map, PlannedVolume, VolumeId};
use iofair_serve::back::{emulated::Emulated, store::Store};
use iofair_serve::engine::{Engine, Plan, Timeouts};
use iofair_serve::request::buffer::Lent;
use iofair_serve::request::data::Data;
use iofair_serve::request::op::{Hints, NewOp};

const DRIVE: &str = "plextor-px256m5s";
/// Size of a client's volume.
const MEBIBYTES: u64 = 256;
const BLOCK: u32 = 4096;
/// From an answer to the next request, through a socket.
const TURNAROUND: Nanos = Nanos::from_micros(50);
/// What passes before counting begins, and until it ends.
const RAMP: Nanos = Nanos::from_millis(500);
const TIME: Nanos = Nanos::from_secs(2);

/// A client: the weight of its group, what it does, how many requests it has at once.
#[derive(Clone, Copy)]
struct Client {
    weight: u32,
    operation: Operation,
    depth: u32,
}

fn contracts(stack: &str, clients: &[Client]) -> Contracts {
    let groups = clients.iter().enumerate().map(|(number, client)| {
        // Written only where it says something: no control enforces none.
        let weight = match client.weight {
            100 => String::new(),
            weight => format!("weight = {weight}\n"),
        };
        format!(
            "[[group]]\nname = 'g{number}'\n{weight}\
             [[volume]]\nname = 'v{number}'\ngroup = 'g{number}'\nsize = '{MEBIBYTES}MiB'\n"
        )
    });
    let head = format!("[drive]\nback = 'emulated:{DRIVE}'\nstack = '{stack}'\n");
    let head = head + "[listen]\nunix = 'socket'\n";
    Contracts::parse("shares.toml", &(head + &groups.collect::<String>())).unwrap()
}

fn engine(contracts: &Contracts) -> Engine {
    let drive = profile::load(DRIVE, 1).unwrap();
    let store = Store::forgetful(drive.facts().capacity.bytes()).unwrap();
    let stack = contracts.drive.stack.clone();
    let mut engine = Engine::new(Box::new(Emulated::new(DRIVE, drive, store)), stack.clone());
    let volumes = contracts.volumes.iter().zip(0..).map(|(volume, number)| PlannedVolume {
        id: VolumeId(number.into()),
        name: volume.name.clone(),
        group: volume.group.clone(),
        map: Map::linear(number * (MEBIBYTES << 20), MEBIBYTES << 20).into(),
        size: MEBIBYTES << 20,
        read_only: false,
        storage: None,
        entry: Default::default(),
        stamp: Default::default(),
    });
    let groups = contracts.groups.iter().map(|group| (group.name.clone(), group.contract.clone()));
    let plan = Plan {
        stack,
        groups: groups.collect(),
        volumes: volumes.collect(),
        closed: Vec::new(),
        timeouts: Timeouts::default(),
        faults: Faults::default(),
    };
    engine.apply(Instant::ZERO, &plan);
    engine
}

fn read(volume: usize, offset: u64) -> NewOp {
    let (owner, cookie, operation, length, data) = (0, 0, Operation::Read, BLOCK, Data::None);
    let hints = Hints { prefetch: true, ..Hints::default() };
    NewOp { owner, cookie, volume, operation, hints, offset, length, data }
}

/// Goal: a volume with a large backlog leaves request slots to another volume of its group, and is held back until its own
/// requests complete. Method: two volumes of one group submit reads until they are refused; the drive works; both go on.
#[test]
fn a_greedy_volume_leaves_slots_to_its_group() {
    const LIMIT: u64 = 4096;
    let text = format!(
        "[drive]\nback = 'emulated:{DRIVE}'\n[listen]\nunix = 'socket'\n[[group]]\nname = 'g'\n\
         [[volume]]\nname = 'greedy'\ngroup = 'g'\nsize = '{MEBIBYTES}MiB'\n\
         [[volume]]\nname = 'other'\ngroup = 'g'\nsize = '{MEBIBYTES}MiB'\n"
    );
    let mut engine = engine(&Contracts::parse("greedy.toml", &text).unwrap());
    let now = Instant::ZERO;
    for volume in [0, 1] {
        let mut taken = 0;
        while engine.has_room(volume) {
            assert!(engine.submit(now, read(volume, taken * u64::from(BLOCK) * 4)).is_ok());
            taken += 1;
        }
        assert_eq!(taken, LIMIT, "volume {volume}");
        assert!(engine.submit(now, read(volume, 0)).is_err(), "it comes back");
    }
    let mut completed = [0; 2];
    while completed.contains(&0) {
        let now = engine.next_wakeup().unwrap_or(now);
        engine.turn(now);
        while let Some(op) = engine.next_finished() {
            completed[op.volume] += 1;
            engine.ops().release(op.data);
        }
    }
    for volume in [0, 1] {
        assert!(engine.has_room(volume), "{completed:?}");
        assert!(engine.submit(now, read(volume, 0)).is_ok());
    }
}

/// Requests that each client was answered.
fn run(stack: &str, clients: &[Client]) -> Vec<u64> {
    let mut engine = engine(&contracts(stack, clients));
    let mut random = Random::new(7, 0);
    let payload = std::sync::Arc::new(vec![0u8; BLOCK as usize]);
    let mut due: Vec<(Instant, usize)> = (0..clients.len())
        .flat_map(|client| vec![(Instant::ZERO, client); clients[client].depth as usize])
        .collect();
    let mut answered = vec![0; clients.len()];
    let end = Instant::ZERO + RAMP + TIME;
    loop {
        let first = due.iter().map(|(at, _)| *at).min();
        let now = first.into_iter().chain(engine.next_wakeup()).min().unwrap();
        if now > end {
            return answered;
        }
        due.retain(|(at, volume)| {
            if *at > now {
                return true;
            }
            let offset = random.below(MEBIBYTES << 8) * u64::from(BLOCK);
            let operation = clients[*volume].operation;
            let data = match operation {
                Operation::Write => Data::Lent(Lent::new(&payload, 0..payload.len())),
                _ => Data::None,
            };
            let hints = Hints { prefetch: operation == Operation::Read, ..Hints::default() };
            let (owner, cookie, volume, length) = (0, 0, *volume, BLOCK);
            let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
            assert!(engine.submit(now, new).is_ok(), "the queue is long enough");
            false
        });
        engine.turn(now);
        engine.keep_lent();
        while let Some(op) = engine.next_finished() {
            assert_eq!(op.status, 0);
            answered[op.volume] += u64::from(now >= Instant::ZERO + RAMP);
            due.push((now + TURNAROUND, op.volume));
            engine.ops().release(op.data);
        }
    }
}

/// Goal: with equal weights a policy costs no throughput where the drive is the limit, and no client gets more than
/// another. Method: four groups, each with 32 or 8 requests at once, with BFQ and without.
#[test]
fn equal_groups_get_all_that_the_drive_does() {
    for operation in [Operation::Read, Operation::Write] {
        for depth in [32, 8] {
            let clients = [Client { weight: 100, operation, depth }; 4];
            let [none, bfq] = ["none-none", "prop-bfq"].map(|stack| run(stack, &clients));
            let [all, shared] = [&none, &bfq].map(|each| each.iter().sum::<u64>());
            assert!(shared * 100 >= all * 97, "{operation:?} {depth}: {none:?} {bfq:?}");
            let fair = |part: &u64| (22..=28).contains(&(part * 100 / shared));
            assert!(bfq.iter().all(fair), "{operation:?} {depth}: {bfq:?}");
        }
    }
}

/// Goal: clients of weights 2 and 1 get 2 and 1 of the drive, however deep their queues. Method: readers and
/// writers with 64, 32 and 8 requests at once.
#[test]
fn deep_queues_share_by_weight() {
    for operation in [Operation::Read, Operation::Write] {
        for depth in [64, 32, 8] {
            let client = |weight| Client { weight, operation, depth };
            let got = run("prop-bfq", &[client(1000), client(500)]);
            let ratio = got[0] * 100 / got[1];
            assert!((180..=220).contains(&ratio), "{operation:?} {depth}: {got:?}");
        }
    }
}
