//! The table of a job file: each job under each stack, reads and writes apart.

use super::number::number;
use super::summary::{JOB_TITLES, Row, Summary};
use crate::experiment::Results;
use crate::experiment::quantity::is_process_of;
use iofair_core::stats::histogram::Histogram;
use iofair_simulator::text_table::{RULED, counted, text_table};

/// Results of a job file as text. Numbers are those of all clones of a job together, and means over the repeats. `summary` is
/// of the same results.
pub fn jobs_table(results: &Results, summary: &Summary) -> String {
    let experiment = &results.experiment;
    let variant = &experiment.variants[0];
    let (seed, repeats) = (experiment.seed, experiment.repeats);
    let mut text = format!("{}\n  {}\n", experiment.title, experiment.source);
    let runs = counted(repeats.into(), "run");
    text += &format!("  {}; {runs} from seed {seed}; MB = 10^6 B\n", variant.drive);
    if !experiment.note.is_empty() {
        text += &format!("  {}\n", experiment.note);
    }
    text.push('\n');
    let titles: Vec<&str> = ["stack", "job"].into_iter().chain(JOB_TITLES).collect();
    let cells = |row: &Row| {
        let line = |cells: &Vec<String>| [std::slice::from_ref(&row.stack), &cells[..]].concat();
        row.jobs.iter().map(line).collect::<Vec<_>>()
    };
    let rows = summary.rows.iter().flat_map(cells);
    text += &text_table(RULED, titles, 3..2 + JOB_TITLES.len(), rows);
    for (stack, (name, _)) in experiment.stacks.iter().enumerate() {
        let runs = results.repeats(0, stack);
        let count = runs.len().max(1) as f64;
        let sum = |of: &dyn Fn(&iofair_simulator::outcome::Outcome) -> f64| {
            runs.iter().map(of).sum::<f64>() / count
        };
        let seconds = sum(&|run| run.time.0 as f64 / 1e9);
        let busy = sum(&|run| run.drive.busy.0 as f64 / run.time.0.max(1) as f64 * 100.0);
        let read = sum(&|run| run.drive.read_bytes as f64 / 1e6);
        let written = sum(&|run| run.drive.written_bytes as f64 / 1e6);
        text += &format!(
            "{name}: the run took {} s; the drive was busy for {} % of it, read {} MB and wrote {} MB\n",
            number(seconds),
            number(busy),
            number(read),
            number(written)
        );
        if runs.iter().any(|run| run.time >= variant.time) {
            text += &format!("{name}: jobs that had not ended were ended after {}\n", variant.time);
        }
    }
    for name in too_slow(results) {
        text += &format!("  ! {name} ended early: it got less than its rate_min\n");
    }
    for warning in &summary.warnings {
        text += &format!("  ! {warning}\n");
    }
    text
}

/// Jobs that ended because they got less than their least rate.
fn too_slow(results: &Results) -> Vec<&str> {
    let outcomes = (0..results.experiment.stacks.len()).flat_map(|stack| results.repeats(0, stack));
    let slow = outcomes.flat_map(|outcome| &outcome.clients).filter(|client| client.too_slow);
    let slow: Vec<&str> = slow.map(|client| client.name.as_str()).collect();
    let jobs = results.experiment.variants[0].subjects.iter().map(String::as_str);
    jobs.filter(|job| slow.iter().any(|client| is_process_of(client, job))).collect()
}

/// The rows of a stack: each job and direction, and their numbers ([`JOB_TITLES`]).
pub(super) fn rows(results: &Results, stack: usize) -> Vec<Vec<String>> {
    let jobs =
        results.experiment.jobs.iter().flat_map(|_| &results.experiment.variants[0].subjects);
    let all = jobs.flat_map(|job| (0..3).map(move |direction| (job, direction)));
    all.filter_map(|(job, direction)| cells(results, stack, job, direction)).collect()
}

/// A job in one direction; `None` if it has no calls there.
fn cells(results: &Results, stack: usize, job: &str, direction: usize) -> Option<Vec<String>> {
    let runs = results.repeats(0, stack);
    let (mut latency, mut seconds, mut rate, mut iops, mut bytes) =
        (Histogram::new(), 0.0, 0.0, 0.0, 0);
    for outcome in runs {
        let mine = || outcome.clients.iter().filter(|client| is_process_of(&client.name, job));
        let time = mine().map(|client| client.time.0).max().filter(|time| *time > 0);
        let time = time.unwrap_or(outcome.time.0.max(1)) as f64 / 1e9;
        let (mut own_bytes, mut own_calls) = (0, 0);
        for side in mine().map(|client| &client.directions[direction]) {
            latency.merge(&side.latency);
            own_bytes += side.bytes;
            own_calls += side.calls;
        }
        bytes += own_bytes;
        seconds += time;
        rate += own_bytes as f64 / 1e6 / time;
        iops += own_calls as f64 / time;
    }
    if latency.count() == 0 {
        return None;
    }
    let count = runs.len() as f64;
    let ms = |nanos: u64| number(nanos as f64 / 1e6);
    Some(vec![
        job.to_owned(),
        ["read", "write", "trim"][direction].to_owned(),
        number(rate / count),
        number(iops / count),
        ms(latency.mean()),
        ms(latency.quantile(500_000)),
        ms(latency.quantile(990_000)),
        ms(latency.max()),
        number(bytes as f64 / 1e6 / count),
        number(seconds / count),
    ])
}
