//! What `promise` admits it keeps: minimums at the edge of what the models of real drives can keep.

use std::fmt::Write as _;

use iofair_core::attainable::{Attainable, Claimant, check};
use iofair_drive::profile;
use iofair_experiments::experiment::{self, Overrides};
use iofair_simulator::outcome::Outcome;

const FLASH: &[&str] = &["plextor-px256m5s", "plextor-px256m5s:b", "samsung-970-pro", "nvme-2015"];
const DISKS: &[&str] = &["hitachi-hts727550a9e364", "sata-7200-2009"];

/// A promise counts as kept with this much of it, in hundredths.
const KEPT: u64 = 97;

/// The largest minimum that so many groups can have each.
fn edge(drive: &Attainable, groups: u64) -> u64 {
    let fits = |min: u64| {
        let group =
            |number| Claimant { name: format!("g{number}"), min: Some(min), ..Claimant::default() };
        let groups: Vec<Claimant> = (0..groups).map(group).collect();
        check(drive, &groups).is_ok()
    };
    let (mut low, mut high) = (1, drive.alone);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Clients that do the same.
struct Clients<'a> {
    count: u64,
    keys: &'a str,
    min: Option<u64>,
}

fn run(drive: &str, seconds: u64, clients: &[Clients<'_>]) -> Outcome {
    let mut text = format!(
        "title = \"edge\"\nsource = \"own\"\ndrive = \"{drive}\"\ntime = \"{seconds}s\"\nramp = \"2s\"\n\
         stacks = [\"promise\"]\n"
    );
    for (Clients { count, keys, min }, number) in clients.iter().zip(0..) {
        let min = min.map(|min| format!("min = \"{min}B/s\"\n")).unwrap_or_default();
        writeln!(text, "[[client]]\nname = \"c{number}\"\ncount = {count}\n{min}{keys}")
            .expect("a string takes everything");
    }
    let experiment = experiment::parse("edge.toml", &text, &Overrides::default());
    let experiment = experiment.unwrap_or_else(|error| panic!("{error}\n{text}"));
    iofair_simulator::simulate(&experiment.scenario(0, 0, 0)).expect("it can be run")
}

/// Asserts that each of the first `promised` clients got its minimum.
fn assert_kept(outcome: &Outcome, promised: usize, min: u64, at: &str) {
    for client in &outcome.clients[..promised] {
        let due = u128::from(min) * u128::from(outcome.time.0) / 1_000_000_000;
        let got = u128::from(client.bytes) * 100 / due;
        assert!(got >= u128::from(KEPT), "{at}: {} got {got} % of {min} B/s", client.name);
    }
}

/// Goal: the largest minimum of one small random reader is kept, whatever those without a promise do. Method: readers and
/// writers beside it on every drive; on a disk over more seconds, since turns are long.
#[test]
fn one_reader_at_the_edge() {
    for (drives, seconds) in [(FLASH, 1), (DISKS, 20)] {
        for drive in drives {
            let reaches = profile::read(drive).expect("embedded").reaches();
            let min = edge(&reaches, 1);
            for keys in
                ["job = \"read\"", "job = \"write\"", "job = \"randwrite\"\nbuffered = false"]
            {
                // What is known not to be kept in full: destages of a disk between a random writer's requests.
                if drives == DISKS && keys.contains("randwrite") {
                    continue;
                }
                let reader = Clients { count: 1, keys: "job = \"randread\"", min: Some(min) };
                let outcome = run(drive, seconds, &[reader, Clients { count: 4, keys, min: None }]);
                assert_kept(&outcome, 1, min, &format!("{drive}, {keys}"));
            }
        }
    }
}

/// Goal: sixteen equal minimums at the edge are kept beside clients without one. Method: all read at random; one reads at
/// random and the others in order.
#[test]
fn sixteen_readers_at_the_edge() {
    for drive in FLASH {
        let reaches = profile::read(drive).expect("embedded").reaches();
        let min = edge(&reaches, 16);
        for keys in ["job = \"randread\"", "job = \"read\""] {
            let clients = [
                Clients { count: 1, keys: "job = \"randread\"", min: Some(min) },
                Clients { count: 15, keys, min: Some(min) },
                Clients { count: 4, keys: "job = \"read\"", min: None },
            ];
            let outcome = run(drive, 1, &clients);
            assert_kept(&outcome, 16, min, &format!("{drive}, {keys}"));
        }
    }
}
