//! Results as one table of plain numbers: a row a run and client, and one for the whole drive.

use crate::experiment::Results;
use crate::{csv_text, distinct};

const HEADER: [&str; 18] = [
    "experiment",
    "variant",
    "drive",
    "stack",
    "repeat",
    "seed",
    "seconds",
    "name",
    "group",
    "bytes",
    "calls",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "latency_max_ns",
    "fitted",
    "drive_bytes",
];

/// The keys of all sweeps, in the order in which they come.
fn swept(results: &[Results]) -> Vec<&str> {
    let variants = results.iter().flat_map(|result| &result.experiment.variants);
    distinct(variants.flat_map(|variant| &variant.swept).map(|(key, _)| key.as_str()))
}

/// All runs of these experiments as CSV with a header. Each swept key has a column, named like the key, after the others. The drive's own row is named `total`, has its
/// commands as calls and no latency.
pub fn csv(results: &[Results]) -> String {
    let keys = swept(results);
    csv_text(|writer| {
        writer.write_record(HEADER.iter().chain(&keys))?;
        for results in results {
            let experiment = &results.experiment;
            for (v, variant) in experiment.variants.iter().enumerate() {
                let value = |key: &&str| variant.swept.iter().find(|(swept, _)| swept == key);
                let values =
                    keys.iter().map(|key| value(key).map_or("", |(_, value)| value).to_owned());
                let values: Vec<String> = values.collect();
                for (s, (stack, _)) in experiment.stacks.iter().enumerate() {
                    for (repeat, outcome) in results.repeats(v, s).iter().enumerate() {
                        let seed = experiment.seed.wrapping_add(repeat as u64);
                        let head = [
                            experiment.name.clone(),
                            variant.name.clone(),
                            variant.drive.clone(),
                            stack.clone(),
                            repeat.to_string(),
                            seed.to_string(),
                            (outcome.time.0 as f64 / 1e9).to_string(),
                        ];
                        let fitted = experiment.is_fitted_run(v, s).to_string();
                        let drive = &outcome.drive;
                        let moved = (drive.read_bytes + drive.written_bytes).to_string();
                        let total = [
                            "total".to_owned(),
                            String::new(),
                            moved.clone(),
                            drive.commands.to_string(),
                        ];
                        let none = vec![String::new(); 5];
                        let last = [fitted.clone(), moved];
                        let record =
                            head.iter().chain(&total).chain(&none).chain(&last).chain(&values);
                        writer.write_record(record)?;
                        for client in &outcome.clients {
                            let latency = &client.latency;
                            let own = [
                                client.name.clone(),
                                client.group.clone(),
                                client.bytes.to_string(),
                                client.calls.to_string(),
                                latency.mean().to_string(),
                                latency.quantile(500_000).to_string(),
                                latency.quantile(990_000).to_string(),
                                latency.quantile(999_000).to_string(),
                                latency.max().to_string(),
                            ];
                            let bytes = client.drive_bytes.map(|bytes| bytes.to_string());
                            let last = [fitted.clone(), bytes.unwrap_or_default()];
                            let record = head.iter().chain(&own).chain(&last).chain(&values);
                            writer.write_record(record)?;
                        }
                    }
                }
            }
        }
        Ok(())
    })
}
