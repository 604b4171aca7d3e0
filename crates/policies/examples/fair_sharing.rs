//! Two clients share a drive that takes 100 us a command: `web` was promised 8 MB/s, `backup` asks for all it can get.
//!
//! `cargo run -p iofair-policies --example fair_sharing`

use iofair_core::contract::Contract;
use iofair_core::controller::{Completion, Controller, FlushRule, Setup, Submission};
use iofair_core::error::EngineError;
use iofair_core::id::ClientId;
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// Sends the next request of a client, 16 KiB somewhere; its tag is the client's number, and comes back with its completion.
fn submit(engine: &mut Controller, now: Instant, client: ClientId) -> Result<(), EngineError> {
    let start = Sectors::from_kib(now.0 / 997 % (1 << 20));
    let (operation, flags, length) = (Operation::Read, Flags::SYNC, Sectors::from_kib(16));
    let tag = client.to_bits();
    engine.submit(now, Submission { tag, client, operation, flags, start, length }).map(|_| ())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let facts = DriveFacts {
        rotational: false,
        depth: 1,
        max_request: Sectors::from_kib(1024),
        capacity: Sectors::from_kib(1 << 21),
    };
    let flushes = FlushRule::Scheduled;
    let setup = Setup {
        facts,
        tags: 64,
        queue_limit: 1024,
        guaranteed: 8,
        client_limit: 256,
        flushes,
        trace: 0,
    };
    let mut engine = Controller::new(setup, iofair_policies::TABLE.stack("promise")?);
    let mut now = Instant::ZERO;
    let web = Contract { min: Some(8_000_000), weight: 10, ..Contract::default() };
    let backup = Contract { weight: 1000, ..Contract::default() };
    let mut clients = Vec::new();
    for (name, contract, outstanding) in [("web", web, 1), ("backup", backup, 32)] {
        let group = engine.add_group(now, name, contract)?;
        let client = engine.add_client(now, group, Priority::default())?;
        (0..outstanding).try_for_each(|_| submit(&mut engine, now, client))?;
        clients.push((name, client));
    }
    let mut done: Vec<Completion> = Vec::new();
    while now < Instant::ZERO + Nanos::from_secs(1) {
        if let Some(command) = engine.dispatch(now) {
            now += Nanos::from_micros(100); // the drive works, one command after the other
            engine.complete(now, command.command, 0, &mut done)?;
            for completion in done.drain(..) {
                submit(&mut engine, now, completion.part.client)?; // its client goes on at once
            }
        } else {
            now = engine.next_wakeup().expect("requests that wait ask for a wake-up");
        }
    }
    for (name, client) in clients {
        let rate = engine.counters(client).bytes[0];
        println!("{name:8} {:6.2} MB/s", rate as f64 / 1e6);
        assert!(rate >= 8_000_000, "{name}");
    }
    Ok(())
}

/// Goal: the example runs, and does what it says. Method: run it.
#[test]
fn the_example_runs() {
    main().expect("no error");
}
