//! What `complete` admits it keeps: promises at the edge of what fits, on the model of a real drive.

use std::path::Path;

use iofair_core::time::Nanos;
use iofair_experiments::experiment::{self, Overrides};

/// The survey's variant whose clients say what they reach alone: 23 MB/s at random, 400 in order.
const VARIANT: &str = "one random, 15 sequential";

/// Minimums in MB/s of the one that reads at random, and of so many that read in order. Of 90 % of the drive's
/// time they take from 97 to nearly 100 %.
const EDGES: &[(u64, u64, u64)] = &[(12, 15, 10), (18, 15, 3), (4, 15, 19), (14, 1, 110)];

/// Time measured, in seconds: a reader in order gets its turn of up to one budget every few seconds.
const SECONDS: u64 = 20;
/// BFQ's largest budget: what the drive reads in order in the longest turn, 125 ms at 400 MB/s. By so much anybody
/// may lag at the end.
const BUDGET: u64 = 50_000_000;

/// Goal: a minimum by time is kept by everybody, where the drive has hardly a hundredth of its time left to
/// promise; and a little more is refused. Method: the survey's mix without ceilings, with edges of all shapes.
#[test]
fn admitted_minimums_are_kept_at_the_edge() {
    for (random, count, in_order) in EDGES {
        let run = |random: u64| {
            let settings = [
                format!("client.target.min={random}MB/s"),
                format!("client.interferer.min={in_order}MB/s"),
                format!("client.interferer.count={count}"),
                "client.target.max=600MB/s".to_owned(),
                "client.interferer.max=600MB/s".to_owned(),
            ];
            let overrides = Overrides {
                stacks: Some(vec!["complete".to_owned()]),
                repeats: Some(1),
                time: Some(Nanos::from_secs(SECONDS)),
                ramp: Some(Nanos::from_secs(4)),
                seed: None,
                numbers: None,
                settings: settings.to_vec(),
                ..Overrides::default()
            };
            let path = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../reproduction/experiments/survey-2019/complete.toml"
            );
            let experiment = experiment::read(Path::new(path), &overrides);
            let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
            let variant = experiment.variants.iter().position(|variant| variant.name == VARIANT);
            iofair_simulator::simulate(&experiment.scenario(variant.expect("in the file"), 0, 0))
        };
        let outcome = run(*random).expect("admitted");
        let due = |min: u64| min * 1_000_000 * SECONDS;
        let (mut all_in_order, mut seen) = (0, 0);
        for client in &outcome.clients {
            let (name, got) = (&client.name, client.bytes);
            let at = format!("{name}, {random} beside {count} x {in_order}: {got} B");
            if name == "target" {
                assert!(got >= due(*random), "{at}");
                seen += 1;
            } else if name.starts_with("interferer") {
                assert!(got + BUDGET >= due(*in_order), "{at}");
                (all_in_order, seen) = (all_in_order + got, seen + 1);
            }
        }
        assert_eq!(seen, 1 + *count, "all clients were looked at");
        assert!(all_in_order >= count * due(*in_order), "{random} beside {count} x {in_order}");
        let refusal = run(random + 1).expect_err("too much").to_string();
        assert!(refusal.contains("too much"), "{refusal}");
    }
}
