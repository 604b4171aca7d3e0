//! From results to their summary.

use super::clients::ClientRow;
use super::jobs;
use super::number::short;
use super::summary::{ClaimRow, Row, Summary};
use super::synopsis;
use crate::distinct;
use crate::experiment::dedicated;
use crate::experiment::{Experiment, Metric, Quantity, Results, Subject, Units, Verdict};

/// The client that an experiment is about: `target`, or the first that does I/O.
fn focus(experiment: &Experiment) -> String {
    let mut subjects = experiment.variants.iter().flat_map(|v| &v.subjects);
    let target = subjects.clone().find(|name| *name == "target");
    target.or_else(|| subjects.next()).cloned().unwrap_or_default()
}

fn sizing_texts(results: &Results) -> Vec<String> {
    let Some(dedicated) = results.experiment.dedicated else { return Vec::new() };
    let sizings = dedicated::sizings(results);
    sizings.iter().map(|sizing| sizing.text(dedicated.promise)).collect()
}

/// Computes what the reports print.
pub fn summarize(results: &Results) -> Summary {
    let experiment = &results.experiment;
    let focus = focus(experiment);
    let mut rows = Vec::new();
    for variant in 0..experiment.variants.len() {
        for stack in 0..experiment.stacks.len() {
            rows.push(row(results, variant, stack));
        }
    }
    let claims = experiment.claims.iter().zip(results.verdicts());
    let claims = claims.map(|(claim, (got, verdict))| {
        let place = &claim.places[0];
        let single = claim.places.len() == 1 && !claim.kind.is_time();
        let statistics = results.statistics(place.variant, place.stack, &place.quantity);
        ClaimRow {
            text: claim.text.clone(),
            variant: experiment.variants[place.variant].name.clone(),
            stack: experiment.stacks[place.stack].0.clone(),
            kind: claim.kind,
            unit: claim.unit,
            published: claim.published,
            got,
            low: claim.low,
            high: claim.high,
            holds: match verdict {
                Verdict::Holds => Some(true),
                Verdict::DoesNotHold => Some(false),
                Verdict::Informative => None,
            },
            verdict,
            hard: claim.hard,
            basis: claim.origin.basis,
            fitted: experiment.is_fitted(claim),
            quote: claim.origin.quote.clone(),
            follows: claim.origin.follows.clone(),
            reference: claim.reference.clone(),
            why: claim.why.clone(),
            quantity: single.then(|| place.quantity.clone()),
            spread: single.then_some((statistics.min, statistics.max)),
            draws: None,
            subject: place.quantity.subject.clone(),
            is_rate: claim.places.len() == 1 && place.quantity.metric == Metric::Rate,
        }
    });
    let mut summary = Summary {
        synopsis: String::new(),
        warnings: Vec::new(),
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        note: experiment.note.clone(),
        conditions: conditions(results),
        focus,
        rate_unit: experiment.units.rate(),
        rows,
        claims: claims.collect(),
        claims_left_out: experiment.claims_left_out,
        sizings: sizing_texts(results),
        interval: experiment.interval.map(|interval| interval.0 as f64 / 1e9),
    };
    summary.synopsis = synopsis::synopsis(&summary);
    let clients = experiment.variants.iter().flat_map(|variant| &variant.clients);
    let warm_ups =
        clients.filter(|client| client.step.as_ref().is_some_and(|step| step.ramp.0 > 0));
    let warm_ups: Vec<&str> = warm_ups.map(|client| client.name.as_str()).collect();
    summary.warnings = synopsis::warnings(&summary, &warm_ups);
    summary
}

fn conditions(results: &Results) -> String {
    let experiment = &results.experiment;
    let first = &experiment.variants[0];
    let drives = distinct(experiment.variants.iter().map(|variant| variant.drive.as_str()));
    let units = match experiment.units {
        Units::Si => "MB = 10^6 B",
        Units::Kib => "KiB/s as fio prints",
        Units::Suite => "MB/s as the S suite prints: clients KiB/s / 1000, total MiB/s",
    };
    let (seed, repeats) = (experiment.seed, u64::from(experiment.repeats));
    let (times, seeds) = match repeats {
        1 => (String::new(), format!("seed {seed}")),
        n => (format!("{n} x "), format!("seeds {seed} to {}", seed.wrapping_add(n - 1))),
    };
    let ramp = match first.ramp.0 {
        0 => String::new(),
        _ => format!(" after {}", first.ramp),
    };
    let time = if experiment.jobs.is_some() { took(results) } else { first.time.to_string() };
    format!("{}; {times}{time}{ramp}; {seeds}; {units}", drives.join(", "))
}

/// How long the runs of jobs took.
fn took(results: &Results) -> String {
    let stacks = 0..results.experiment.stacks.len();
    let times = || stacks.clone().flat_map(|stack| results.repeats(0, stack)).map(|run| run.time.0);
    let [least, most] = [times().min(), times().max()].map(|time| time.unwrap_or(0) as f64 / 1e9);
    match [short(least), short(most)] {
        [least, most] if least == most => format!("{least} s"),
        [least, most] => format!("{least} to {most} s"),
    }
}

fn row(results: &Results, variant: usize, stack: usize) -> Row {
    let experiment = &results.experiment;
    let statistics = |quantity: &Quantity| results.statistics(variant, stack, quantity);
    Row {
        variant: experiment.variants[variant].name.clone(),
        base: experiment.variants[variant].base.clone(),
        swept: experiment.variants[variant].swept.clone(),
        stack: experiment.stacks[stack].0.clone(),
        clients: ClientRow::all(results, variant, stack),
        jobs: jobs::rows(results, stack),
        requests: results.repeats(variant, stack)[0].requests.clone(),
        total: statistics(&Quantity::TOTAL),
        busy: statistics(&Quantity { subject: Subject::Total, metric: Metric::Busy }),
    }
}
