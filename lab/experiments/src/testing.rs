//! An experiment, and a simulator that gives known numbers. Used by tests of this crate and of the reproduction.

use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Nanos;
use iofair_simulator::outcome::{ClientOutcome, DriveOutcome, Outcome};
use iofair_simulator::scenario::Scenario;

use crate::experiment::{Experiment, Overrides, Results, Runner, parse, read, run};

/// A small experiment with one of everything.
pub const EXAMPLE: &str = r#"
title = "Random reader against sequential readers"
source = "an example"
drive = "plextor-px256m5s"
time = "2s"
ramp = "1s"
repeats = 3
units = "suite"
stacks = ["none-none", "again"]

[stack.again]
base = "none-none"

[[client]]
name = "target"
job = "randread"
weight = 300
min = "10MB/s"
max = "10MB/s"

[[client]]
name = "reader"
count = 4
job = "read"
weight = 100
max = { read = "15MB/s", write_iops = 7 }

[[client]]
name = "idle"
count = 5
inactive = true
weight = 200

[[variant]]
name = "rand"
[[variant]]
name = "seq"
time = "3s"
client.target.job = "read"

[[sweep]]
client = "reader"
key = "count"
values = [4, 1]
label = "N={}"

[[expect]]
kind = "within"
variant = "rand, N=4"
stack = "none-none"
of = "target"
basis = "published"
published = "10MB/s"
band = "10%"
hard = true
reference = "S0"
"#;

/// A run whose numbers depend on nothing but the scenario: each client has its place's number of
/// 1.024 MB/s, the drive 100 MiB/s, and the seed adds a little.
pub fn simulate(scenario: &Scenario) -> Result<Outcome, String> {
    let seconds = scenario.time.0 / 1_000_000_000;
    let mut clients = Vec::new();
    for (index, client) in scenario.clients.iter().enumerate() {
        let mut latency = Histogram::new();
        for step in 1..=100 {
            latency.record(step * 10_000 * (index as u64 + 1) + scenario.seed);
        }
        clients.push(ClientOutcome {
            name: client.name.clone(),
            group: client.group.clone(),
            weight: 100,
            bytes: (10_240_000 + 1_024 * scenario.seed) * seconds,
            drive_bytes: Some((10_240_000 + 1_024 * scenario.seed) * seconds),
            calls: 2_500 * seconds,
            latency,
            ..ClientOutcome::default()
        });
    }
    let drive = DriveOutcome {
        read_bytes: (100 << 20) * seconds,
        written_bytes: 0,
        commands: 1_000 * seconds,
        busy: Nanos(scenario.time.0 / 2),
        ..DriveOutcome::default()
    };
    let trace_hash = scenario.seed;
    let (time, requests) = (scenario.time, Vec::new());
    Ok(Outcome { time, clients, drive, trace_hash, simulated_requests: 7, requests })
}

/// [`EXAMPLE`], read.
pub fn example() -> Experiment {
    parse("reproduction/experiments/a/example.toml", EXAMPLE, &Overrides::default())
        .expect("a good file")
}

/// Results of [`simulate`].
pub fn results(experiment: Experiment, jobs: usize) -> Results {
    let runner = Runner { jobs, simulate: &simulate, finished: &|_| {} };
    run(vec![experiment], &runner).expect("the simulator never fails").remove(0)
}

/// All files under `reproduction/experiments/`.
pub fn all_shipped() -> Vec<Experiment> {
    let root = format!("{}/../../reproduction/experiments", env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    let entries = std::fs::read_dir(root).expect("the directory is there");
    // Beside the directories are the table of bands and the page of their changes.
    let directories =
        entries.map(|entry| entry.expect("listed").path()).filter(|path| path.is_dir());
    for directory in directories {
        for file in std::fs::read_dir(directory).expect("it can be read") {
            let path = file.expect("listed").path();
            let experiment = read(&path, &Overrides::default());
            all.push(experiment.unwrap_or_else(|error| panic!("{error}")));
        }
    }
    all
}
