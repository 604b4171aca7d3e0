//! Measures the path from a client to the engine and back on this machine: NBD, two threads, one socket.
//!
//! The hosts of the lab have a *turnaround*: the processor time of a whole I/O path between a completion and the next
//! request. Live, this path is a part of that, so what is left to wait is the difference.

use std::path::Path;

use anyhow::Result;
use iofair_baselines::TABLE;
use iofair_core::contract::Contract;
use iofair_core::time::Nanos;
use iofair_serve::back::memory::Memory;
use iofair_serve::back::volume::{Map, PlannedVolume, VolumeId};
use iofair_serve::client::{CommandType, Crowd, Request};
use iofair_serve::engine::{Engine, Plan, Timeouts};
use iofair_serve::{Bare, Clock};

/// Reads.
const READS: u64 = 301;
/// Between two of them, about what an SSD takes: then server and client are as sleepy as in a run.
const PAUSE: Nanos = Nanos::from_micros(150);
const LENGTH: u32 = 4096;

/// The median time of a read of 4 KiB from memory, which answers at once.
pub(super) fn measure(socket: &Path) -> Result<Nanos> {
    let stack = TABLE.stack("none-none")?;
    let memory = Memory::new(u64::from(LENGTH))?;
    let volume = PlannedVolume {
        id: VolumeId(0),
        name: "path".into(),
        group: "g".into(),
        map: Map::linear(0, LENGTH.into()).into(),
        size: LENGTH.into(),
        read_only: true,
        storage: None,
        entry: Default::default(),
        stamp: Default::default(),
    };
    let groups = vec![("g".to_owned(), Contract::default())];
    let (volumes, closed) = (vec![volume], Vec::new());
    let (timeouts, faults) = (Timeouts::default(), Default::default());
    let plan = Plan { stack: stack.clone(), groups, volumes, closed, timeouts, faults };
    let server = Bare::start(Engine::new(Box::new(memory), stack), &plan, socket)?;
    let clock = Clock::start();
    let mut crowd = Crowd::connect(socket, &["path".to_owned()], clock)?;
    let mut times = Vec::new();
    for tag in 0..READS {
        let after = clock.now() + PAUSE;
        while crowd.wait(after)? < after {}
        let sent = clock.now();
        crowd.push(Request {
            client: 0,
            tag,
            command_type: CommandType::Read,
            offset: 0,
            length: LENGTH,
        });
        let late = sent + Nanos::from_secs(1);
        let mut answered = sent;
        while crowd.in_flight(0) > 0 && answered < late {
            answered = crowd.wait(late)?;
        }
        crowd.take_replies();
        times.push(answered.since(sent));
    }
    drop(crowd);
    server.stop()?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
