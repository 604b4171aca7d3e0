//! What `promise` keeps beside clients with minimums that do little but flush, on models of real drives.

use iofair_lab::experiment::{self, Overrides};

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
            let overrides = Overrides { settings, ..Overrides::default() };
            let experiment = experiment::parse("flushes.toml", EXPERIMENT, &overrides);
            let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
            let outcome = iofair_lab::simulate(&experiment.scenario(0, 0, 0)).expect("it runs");
            let target = outcome.clients.iter().find(|client| client.name == "target");
            let seconds: Vec<_> =
                target.expect("it is there").series.iter().map(|it| it.bytes / 1000).collect();
            let flushers = outcome.clients.iter().filter(|it| it.name.starts_with("flusher"));
            let written = flushers.map(|it| it.bytes).sum::<u64>() / 6_000;
            let what =
                format!("{drive}, {count} x {flusher_min} kB/s: {seconds:?}, {written} kB/s");
            println!("{what}");
            assert_eq!(seconds.len(), 6, "{what}");
            assert!(seconds.iter().all(|kb| *kb >= min * 970), "{what}");
            assert!(written >= *left, "{what}");
        }
    }
}
