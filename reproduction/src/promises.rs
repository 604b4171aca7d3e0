//! The table of `reproduction/promise.md`: what a client with a minimum and all together get, of every variant of the
//! experiments under `reproduction/experiments/promise`, on every stack of theirs. The numbers stand in `reproduction/measured.csv`.

use std::collections::BTreeSet;
use std::fmt::Write;

use iofair_experiments::experiment::{Experiment, Metric, Place, Quantity, Spot};
use iofair_experiments::report::short;

use crate::measured::Measured;

/// The folder of these experiments.
pub const PROMISES: &str = "reproduction/experiments/promise";
/// The client that the promises are for.
pub(crate) const TARGET: &str = "target";
/// A minimum counts as kept from this part of it on.
pub(crate) const KEPT: f64 = 0.97;

/// The four numbers of a run: the target's rate, its 99th percentile and longest call, and the drive's total.
fn quantities() -> [Quantity; 4] {
    let mine = |metric| Quantity::of_client(TARGET, metric);
    [mine(Metric::Rate), mine(Metric::P99), mine(Metric::Max), Quantity::TOTAL]
}

fn spot(experiment: &Experiment, variant: usize, stack: usize, quantity: Quantity) -> Spot {
    Spot::from_place(experiment, &Place { variant, stack, quantity })
}

/// Where the numbers of the table stand.
pub fn promises_spots(experiments: &[Experiment]) -> BTreeSet<Spot> {
    let mut spots = BTreeSet::new();
    for experiment in experiments {
        for variant in 0..experiment.variants.len() {
            for stack in 0..experiment.stacks.len() {
                let all = quantities().into_iter();
                spots.extend(all.map(|quantity| spot(experiment, variant, stack, quantity)));
            }
        }
    }
    spots
}

/// The target's minimum in MB/s; none where it has none.
pub(crate) fn minimum(experiment: &Experiment, variant: usize) -> Option<f64> {
    let variant = &experiment.variants[variant];
    let target = variant.clients.iter().find(|client| client.name == TARGET)?;
    let group = variant.groups.iter().find(|group| group.name == target.group)?;
    let minimum = group.contract.min.filter(|minimum| *minimum > 0)?;
    Some(minimum as f64 / 1e6)
}

/// One run: rate, p99 and longest call of the target, and the total; the rate in bold where a minimum is kept.
fn cell(measured: &Measured, spots: [Spot; 4], minimum: Option<f64>) -> String {
    let values = spots.map(|spot| measured.value(&spot));
    let mut texts = values.map(|value| value.map_or("(not measured)".to_owned(), short));
    if minimum.is_some_and(|minimum| values[0].is_some_and(|rate| rate >= KEPT * minimum)) {
        texts[0] = format!("**{}**", texts[0]);
    }
    texts.join(" / ")
}

/// The table, a row a variant.
pub fn promises_table(experiments: &[Experiment], measured: &Measured) -> String {
    let mut stacks: Vec<&str> = Vec::new();
    for (name, _) in experiments.iter().flat_map(|experiment| &experiment.stacks) {
        if !stacks.contains(&name.as_str()) {
            stacks.push(name);
        }
    }
    let mut text = format!("| drive | workload | minimum | {} |\n", stacks.join(" | "));
    text += &format!("|---|---|---|{}\n", "---|".repeat(stacks.len()));
    for experiment in experiments {
        for (index, variant) in experiment.variants.iter().enumerate() {
            let minimum = minimum(experiment, index);
            let promised = minimum.map_or("-".to_owned(), short);
            let cells = stacks.iter().map(|name| {
                let stack = experiment.stacks.iter().position(|(known, _)| known == name);
                let Some(stack) = stack else { return "-".to_owned() };
                let spots = quantities().map(|quantity| spot(experiment, index, stack, quantity));
                cell(measured, spots, minimum)
            });
            let cells: Vec<String> = cells.collect();
            let _ = writeln!(
                text,
                "| {} | {} | {promised} | {} |",
                variant.drive,
                variant.name,
                cells.join(" | ")
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_experiments::testing::{example, results};

    /// Goal: every run of a file has its row and its four numbers, and a minimum that is kept stands out. Method: the
    /// example, whose target has 10 MB/s in its own unit and a minimum of as much; without and with its numbers.
    #[test]
    fn every_run_has_its_numbers() {
        let experiments = [example()];
        let spots = promises_spots(&experiments);
        assert_eq!(spots.len(), 4 * 2 * 4, "four variants, two stacks, four numbers");
        let measured = Measured::read(&[results(example(), 1)], &spots).expect("all are there");
        let table = promises_table(&experiments, &measured);
        let row = "| plextor-px256m5s | rand, N=4 | 10 | **10** / 0.999 / 1 / 100 |";
        assert!(table.contains(row), "{table}");
        assert_eq!(table.matches("**10**").count(), 8, "{table}");
        assert_eq!(table.lines().count(), 2 + 4);
        let empty = promises_table(&experiments, &Measured::default());
        assert_eq!(empty.matches("(not measured)").count(), spots.len());
        assert!(!empty.contains("**"), "{empty}");
    }
}
