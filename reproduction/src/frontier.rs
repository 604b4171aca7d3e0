//! What a promise costs on every stack, and over seeds and variants of a drive: the tables `reproduction/evidence/frontier.csv` and
//! `reproduction/evidence/seeds.csv`, and those of reproduction/promise.md that are made from them. A line is what the client `target` got
//! of one workload on one stack over all seeds.

use std::collections::BTreeMap;
use std::fmt::Write;

use iofair_core::stats::histogram::Histogram;
use iofair_experiments::csv_text;
use iofair_experiments::experiment::quantity::{is_process_of, merged};
use iofair_experiments::experiment::{Experiment, Metric, Quantity, Results};
use iofair_experiments::report::short;
use serde::{Deserialize, Serialize};

use crate::promises::{KEPT, TARGET, minimum};

/// Our own stack.
pub(crate) const STACK: &str = "promise";

/// One line. Rates are MB/s, times milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) experiment: String,
    pub(crate) variant: String,
    pub(crate) drive: String,
    pub(crate) stack: String,
    pub(crate) seeds: u32,
    pub(crate) minimum: f64,
    /// Mean of the seeds, and the worst of them.
    pub(crate) rate: f64,
    pub(crate) rate_least: f64,
    /// The worst interval of each seed: their mean, and the worst of all.
    pub(crate) second: f64,
    pub(crate) second_least: f64,
    /// Seeds in which every interval had its minimum.
    pub(crate) seeds_kept: u32,
    /// Of the calls of all seeds together; infinite if none was completed.
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// Mean of the seeds.
    pub(crate) total: f64,
}

impl Row {
    /// Whether the minimum was kept over the measured time.
    fn is_kept(&self) -> bool {
        self.rate >= KEPT * self.minimum
    }
    /// Rate, p99.9 and total, as the tables print them.
    fn cell(&self) -> String {
        let rate = short(self.rate);
        let rate = if self.is_kept() { format!("**{rate}**") } else { rate };
        format!("{rate} / {} / {}", short(self.p999), short(self.total))
    }
}

/// Whether the client `target` of this variant has a minimum. Only such variants have lines.
pub fn has_promise(experiment: &Experiment, variant: usize) -> bool {
    minimum(experiment, variant).is_some()
}

fn rows(results: &Results) -> Vec<Row> {
    let experiment = &results.experiment;
    // Enough for the page, and stable where the last bits of a sum are not worth a change.
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    let mut rows = Vec::new();
    for (v, variant) in experiment.variants.iter().enumerate() {
        let Some(minimum) = minimum(experiment, v) else { continue };
        for (s, (stack, _)) in experiment.stacks.iter().enumerate() {
            let statistics =
                |metric| results.statistics(v, s, &Quantity::of_client(TARGET, metric));
            let milliseconds = |latency: &Histogram, per_million| match latency.count() {
                0 => f64::INFINITY,
                _ => rounded(latency.quantile(per_million) as f64 / 1e6),
            };
            let (rate, second) = (statistics(Metric::Rate), statistics(Metric::Least));
            let mut latency = Histogram::new();
            let mut seeds_kept = 0;
            for outcome in results.repeats(v, s) {
                latency.merge(&merged(outcome, |name| is_process_of(name, TARGET)));
                let least =
                    Quantity::of_client(TARGET, Metric::Least).read(outcome, experiment.units);
                seeds_kept += u32::from(least >= KEPT * minimum);
            }
            rows.push(Row {
                experiment: experiment.name.clone(),
                variant: variant.name.clone(),
                drive: variant.drive.clone(),
                stack: stack.clone(),
                seeds: experiment.repeats,
                minimum,
                rate: rounded(rate.mean),
                rate_least: rounded(rate.min),
                second: rounded(second.mean),
                second_least: rounded(second.min),
                seeds_kept,
                p99: milliseconds(&latency, 990_000),
                p999: milliseconds(&latency, 999_000),
                total: rounded(results.statistics(v, s, &Quantity::TOTAL).mean),
            });
        }
    }
    rows
}

/// The table of these runs, which have an `interval`.
pub fn frontier_csv(results: &[Results]) -> String {
    csv_text(|writer| results.iter().flat_map(rows).try_for_each(|row| writer.serialize(row)))
}

/// What [`frontier_csv`] wrote.
pub(crate) fn read(text: &str) -> Result<Vec<Row>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Result<_, csv::Error> = reader.deserialize().collect();
    rows.map_err(|error| error.to_string())
}

/// Lines of one workload on one drive, which follow each other.
pub(crate) fn workloads(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    let name = |row: &Row| (row.experiment.clone(), row.variant.clone(), row.drive.clone());
    rows.chunk_by(move |a, b| name(a) == name(b))
}

fn largest_total<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.into_iter().max_by(|a, b| a.total.total_cmp(&b.total))
}

/// The table of the frontier, a row a workload: of the other stacks that keep the minimum the one with the largest total, and
/// `promise`.
pub fn frontier_table(csv: &str) -> Result<String, String> {
    let mut text = "| drive | workload | minimum | other stacks that keep it | largest total among them | its numbers | \
        `promise` |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for workload in workloads(&read(csv)?) {
        let (ours, others): (Vec<_>, Vec<_>) = workload.iter().partition(|row| row.stack == STACK);
        let keep: Vec<&Row> = others.iter().copied().filter(|row| row.is_kept()).collect();
        let best = largest_total(keep.iter().copied());
        let (name, cell) =
            best.map_or(("-".into(), "-".into()), |row| (format!("`{}`", row.stack), row.cell()));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} of {} | {name} | {cell} | {} |",
            workload[0].drive,
            workload[0].variant,
            short(workload[0].minimum),
            keep.len(),
            others.len(),
            ours.first().map_or("-".to_owned(), |row| row.cell())
        );
    }
    Ok(text)
}

/// What one stack did over all workloads.
#[derive(Clone, Copy, Default)]
struct Sum {
    workloads: u32,
    kept: u32,
    kept_always: u32,
    /// Sum of its totals, each as a part of the largest of that workload.
    totals: f64,
}

impl Sum {
    /// The mean of these parts.
    fn total(&self) -> f64 {
        self.totals / f64::from(self.workloads)
    }
}

/// The table of stacks, those that keep most minimums first.
pub fn stacks_table(csv: &str) -> Result<String, String> {
    let rows = read(csv)?;
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for workload in workloads(&rows) {
        let most = largest_total(workload).map_or(0.0, |row| row.total);
        for row in workload {
            let sum = sums.entry(&row.stack).or_default();
            sum.workloads += 1;
            sum.kept += u32::from(row.is_kept());
            sum.kept_always += u32::from(row.seeds_kept == row.seeds);
            sum.totals += row.total / most;
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(_, a), (_, b)| b.kept.cmp(&a.kept).then(b.total().total_cmp(&a.total())));
    let mut text =
        "| stack | workloads | minimum kept | kept in every second | total, % of the largest |\n\
        |---|---|---|---|---|\n"
            .to_owned();
    for (stack, sum) in sums {
        let (Sum { workloads, kept, kept_always, .. }, total) = (sum, sum.total() * 100.0);
        let _ = writeln!(text, "| `{stack}` | {workloads} | {kept} | {kept_always} | {total:.0} |");
    }
    Ok(text)
}

/// The table over seeds and variants of the drive, a row a workload.
pub fn seeds_table(csv: &str) -> Result<String, String> {
    let rows = read(csv)?;
    let mut workloads: Vec<Vec<&Row>> = Vec::new();
    for row in rows.iter().filter(|row| row.stack == STACK) {
        let is_same = |all: &&mut Vec<&Row>| {
            (&all[0].experiment, &all[0].variant) == (&row.experiment, &row.variant)
        };
        match workloads.iter_mut().find(is_same) {
            Some(all) => all.push(row),
            None => workloads.push(vec![row]),
        }
    }
    let mut text = "| drive | workload | minimum | rate: mean, worst | worst second: mean, worst | p99.9: worst | \
        total: mean, worst | runs with every second kept |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for rows in workloads {
        let mean = |of: fn(&Row) -> f64| {
            short(rows.iter().map(|row| of(row)).sum::<f64>() / rows.len() as f64)
        };
        let least = |of: fn(&Row) -> f64| {
            short(rows.iter().map(|row| of(row)).fold(f64::INFINITY, f64::min))
        };
        let sum = |of: fn(&Row) -> u32| rows.iter().map(|row| of(row)).sum::<u32>();
        let first = rows[0];
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}, {} | {}, {} | {} | {}, {} | {} of {} |",
            first.drive,
            first.variant,
            short(first.minimum),
            mean(|row| row.rate),
            least(|row| row.rate_least),
            mean(|row| row.second),
            least(|row| row.second_least),
            short(rows.iter().map(|row| row.p999).fold(0.0, f64::max)),
            mean(|row| row.total),
            least(|row| row.total),
            sum(|row| row.seeds_kept),
            sum(|row| row.seeds)
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_core::time::Nanos;
    use iofair_experiments::experiment::{Runner, run};
    use iofair_experiments::testing::{example, simulate};
    use iofair_simulator::outcome::Interval;
    use iofair_simulator::scenario::Scenario;

    /// Goal: lines hold what was measured and are read as written. Method: the example, of three seeds; the second seed has
    /// a bad interval.
    #[test]
    fn lines_are_read_as_written() {
        let mut experiment = example();
        experiment.interval = Some(Nanos::from_secs(1));
        let seconds = |scenario: &Scenario| {
            let mut outcome = simulate(scenario)?;
            let second = |bytes| Interval { bytes, ..Interval::default() };
            let bad = if scenario.seed == 2 { 5_120_000 } else { 10_240_000 };
            outcome.clients[0].series = vec![second(10_240_000), second(bad)];
            Ok(outcome)
        };
        let runner = Runner { jobs: 1, simulate: &seconds, finished: &|_| {} };
        let csv = frontier_csv(&run(vec![experiment], &runner).expect("the simulator never fails"));
        let rows = read(&csv).expect("as written");
        assert_eq!(rows.len(), 4 * 2);
        assert_eq!(workloads(&rows).count(), 4);
        let row = &rows[0];
        assert_eq!((row.seeds, row.seeds_kept, row.minimum), (3, 2, 10.0));
        assert_eq!((row.second_least, row.total), (5.0, 100.0));
        assert!((row.rate - 10.002).abs() < 0.001, "{row:?}");
        let ours = csv.replace(",again,", ",promise,");
        let lines = ours.split_once('\n').expect("a header").1;
        let of_a_variant = lines.replace("plextor-px256m5s,", "plextor-px256m5s:b,");
        let table = seeds_table(&(ours.clone() + &of_a_variant)).expect("good lines");
        assert!(table.contains("| 8.33, 5 |") && table.contains("| 4 of 6 |"), "{table}");
        assert_eq!(table.lines().count(), 2 + 4);
        assert!(read(&csv.replace("100.0", "x")).is_err() && read("a,b\n1,2\n").is_err());
    }

    /// Goal: the tables name the best other stack that keeps a minimum, and put first what keeps most. Method: four stacks
    /// by hand on two drives; on the second one nothing but ours keeps it.
    #[test]
    fn the_best_of_the_others_is_named() {
        let csv = crate::pareto::tests::lines();
        let table = frontier_table(&csv).expect("good lines");
        assert!(
            table.contains(
                "| a:x | v | 10 | 1 of 3 | `max-none` | **10** / 10 / 70 | **10** / 9 / 350 |"
            ),
            "{table}"
        );
        assert!(table.contains("| b | v | 10 | 0 of 3 | - | - | **10** / 9 / 350 |"), "{table}");
        let stacks = stacks_table(&csv).expect("good lines");
        let names: Vec<_> = stacks.lines().skip(2).map(|line| &line[..10]).collect();
        assert_eq!(names, ["| `promise", "| `max-non", "| `none-no", "| `slow` |"], "{stacks}");
        assert!(stacks.contains("| `promise` | 2 | 2 | 2 | 70 |"), "{stacks}");
        assert_eq!(stacks_table("").expect("nothing").lines().count(), 2);
    }
}
