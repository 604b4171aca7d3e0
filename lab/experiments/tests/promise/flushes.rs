//! What `promise` keeps beside clients with minimums that do little but flush, on models of real drives.

use iofair_experiments::experiment::{self, Overrides};

const EXPERIMENT: &str = r#"
title = "A minimum beside minimums of clients that flush"
source = "our own"
drive = "plextor-px256m5s"
time = "6s"
ramp = "2s"
interval = "1s"
stacks = ["promise"]

[[client]]
name = "target"
job = "randread"
min = "10MB/s"

[[client]]
name = "flusher"
job = "write"
fdatasync = 1
"#;

/// The drive, the target's minimum in MB/s, and the least rate of all flushers together in kB/s for each of [`FLUSHERS`].
const DRIVES: &[(&str, u64, [u64; 4])] = &[
    ("plextor-px256m5s", 10, [600, 600, 600, 2400]),
    ("samsung-970-pro", 40, [400, 400, 400, 1600]),
    ("nvme-2015", 20, [900, 900, 900, 1600]),
];
/// The number of flushers, and the minimum of each in kB/s.
const FLUSHERS: [(u64, u64); 4] = [(1, 250), (1, 1_000), (1, 5_000), (4, 5_000)];

fn outcome(text: &str, settings: Vec<String>) -> iofair_simulator::outcome::Outcome {
    let overrides = Overrides { settings, ..Overrides::default() };
    let experiment = experiment::parse("flushes.toml", text, &overrides);
    let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
    iofair_simulator::simulate(&experiment.scenario(0, 0, 0)).expect("it runs")
}

/// Goal: a minimum is kept in every second beside minimums that cannot be reached because of flushes, and the flushers get what is
/// left. Method: a client that reads at random, beside clients that write 4 KiB and call fdatasync.
#[test]
fn a_minimum_is_kept_beside_promised_flushes() {
    for (drive, min, left) in DRIVES {
        for ((count, flusher_min), left) in FLUSHERS.into_iter().zip(left) {
            let settings = vec![
                format!("drive={drive}"),
                format!("client.target.min={min}MB/s"),
                format!("client.flusher.min={flusher_min}kB/s"),
                format!("client.flusher.count={count}"),
            ];
            let outcome = outcome(EXPERIMENT, settings);
            let target = outcome.clients.iter().find(|client| client.name == "target");
            let series = &target.expect("it is there").series;
            let seconds: Vec<_> = series.iter().map(|interval| interval.bytes / 1000).collect();
            let flushers =
                outcome.clients.iter().filter(|client| client.name.starts_with("flusher"));
            let written = flushers.map(|client| client.bytes).sum::<u64>() / 6_000;
            let what =
                format!("{drive}, {count} x {flusher_min} kB/s: {seconds:?}, {written} kB/s");
            println!("{what}");
            assert_eq!(seconds.len(), 6, "{what}");
            assert!(seconds.iter().all(|kb| *kb >= min * 970), "{what}");
            assert!(written >= *left, "{what}");
        }
    }
}

const DEEP: &str = r#"
title = "A minimum of a writer that flushes with many requests in flight"
source = "our own"
drive = "plextor-px256m5s"
time = "3s"
ramp = "1s"
stacks = ["promise"]

[[client]]
name = "target"
job = "write"
block = "32KiB"
buffered = false
depth = 32
fdatasync = 3
min = "1MB/s"

[[client]]
name = "reader"
job = "read"
block = "8KiB"
buffered = false
count = 8

[[client]]
name = "writer"
job = "randwrite"
fdatasync = 4
count = 2
"#;

/// Goal: flushes of a writer with many requests in flight do not take its minimum from it. Method: it is promised four tenths of what
/// it has alone, on three drives, with more and fewer flushes.
#[test]
fn a_minimum_is_kept_of_a_writer_that_flushes() {
    for (drive, ..) in DRIVES {
        for every in [1, 3, 16] {
            let run = |changes: &[String]| {
                let mut settings =
                    vec![format!("drive={drive}"), format!("client.target.fdatasync={every}")];
                settings.extend_from_slice(changes);
                outcome(DEEP, settings).clients[0].bytes / 3_000
            };
            let others = ["reader", "writer"];
            let alone = run(&others.map(|name| format!("client.{name}.inactive=true")));
            let min = alone * 2 / 5;
            let got = run(&[format!("client.target.min={min}kB/s")]);
            let what = format!("{drive}, fdatasync={every}: {got} of {min} kB/s, {alone} alone");
            println!("{what}");
            assert!(got >= min * 97 / 100, "{what}");
        }
    }
}
