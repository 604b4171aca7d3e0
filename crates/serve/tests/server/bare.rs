//! A server of a plan without contracts, and a crowd of clients: volumes over each other, stamps, errors.

use std::path::Path;

use iofair_core::contract::Contract;
use iofair_core::request::Flags;
use iofair_core::time::{Instant, Nanos};
use iofair_policies::TABLE;
use iofair_serve::back::emulated::Emulated;
use iofair_serve::back::store::Store;
use iofair_serve::back::volume::{Map, PlannedVolume, Stamp, VolumeId};
use iofair_serve::client::{CommandType, Crowd, Request};
use iofair_serve::engine::{Engine, Plan, Timeouts};
use iofair_serve::{Bare, Clock};

const DRIVE: &str = "samsung-970-pro";
const CLIENTS: usize = 3;

fn start(socket: &Path) -> (Bare, Vec<String>, u64) {
    let drive = iofair_drive::profile::load(DRIVE, 1).unwrap();
    let size = drive.facts().capacity.bytes();
    let store = Store::forgetful(size).unwrap();
    let stack = TABLE.stack("none-mq-deadline").unwrap();
    let back = Box::new(Emulated::new(DRIVE, drive, store));
    let names: Vec<String> = (0..CLIENTS).map(|number| format!("v{number}")).collect();
    let volume = |(name, number): (&String, u128)| PlannedVolume {
        id: VolumeId(number),
        name: name.clone(),
        group: "g".into(),
        map: Map::linear(0, size).into(),
        size,
        read_only: false,
        storage: None,
        entry: Default::default(),
        stamp: Stamp { writes: Flags::NONE, ..Stamp::default() },
    };
    let plan = Plan {
        stack: stack.clone(),
        groups: vec![("g".into(), Contract::default())],
        volumes: names.iter().zip(0..).map(volume).collect(),
        closed: Vec::new(),
        timeouts: Timeouts::default(),
        faults: Default::default(),
    };
    (Bare::start(Engine::with_tags(back, stack, 4), &plan, socket).unwrap(), names, size)
}

/// Goal: every request of a crowd is answered once, whatever its size and order, and what cannot be is an error of that
/// request alone. Method: reads and writes of 4 KiB to 4 MiB and flushes from three clients over the same drive, more at
/// once than tags; then a read beyond the end.
#[test]
fn many_requests_of_any_size_are_completed() {
    let socket = std::env::temp_dir().join(format!("iofair-bare-{}", std::process::id()));
    let (server, names, size) = start(&socket);
    let mut crowd = Crowd::connect(&socket, &names, Clock::start()).unwrap();
    let mut expected = Vec::new();
    for tag in 0..240u64 {
        let command_type =
            [CommandType::Read, CommandType::Write, CommandType::Flush][tag as usize / 3 % 3];
        let length = if command_type == CommandType::Flush { 0 } else { 4096 << (tag % 11) };
        let offset = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (size / 4096 - 1024) * 4096;
        crowd.push(Request { client: tag as usize % CLIENTS, tag, command_type, offset, length });
        expected.push((tag, length, 0));
    }
    let mut told = Vec::new();
    let never = Instant::ZERO + Nanos::from_secs(60);
    while told.len() < expected.len() {
        let now = crowd.wait(never).unwrap();
        told.extend(crowd.take_replies().map(|reply| (reply.tag, reply.length, reply.error)));
        assert!(now < never, "{} of {} answers", told.len(), expected.len());
    }
    told.sort_unstable();
    assert_eq!(told, expected);
    assert!((0..CLIENTS).all(|client| crowd.in_flight(client) == 0));
    let stats = server.stats(false).unwrap();
    let requests: u64 = stats.volumes.iter().flat_map(|volume| volume.stats.requests).sum();
    let carrying = expected.iter().filter(|(_, length, _)| *length > 0).count();
    assert_eq!(requests, carrying as u64);
    crowd.push(Request {
        client: 1,
        tag: 7,
        command_type: CommandType::Read,
        offset: size,
        length: 4096,
    });
    crowd.wait(never).unwrap();
    assert!(crowd.take_replies().all(|reply| reply.tag == 7 && reply.error != 0));
    drop(crowd);
    server.stop().unwrap();
    assert!(!socket.exists(), "the socket is gone");
}
