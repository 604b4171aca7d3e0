//! A plan as text: sentences for the answers, tables for the numbers. The page of `--html` has the same.

use iofair_core::time::Nanos;

use super::answers::Plan;
use super::bench::Sustained;
use super::drives::Approach;
use super::edge::Edge;
use super::fit::{Found, Row, Verdict};
use super::mix::{Breach, rate, time};
use super::set::Admission;
use crate::text_table::{PLAIN, counted, text_table};

/// Broken promises that are told; more are counted.
const BREACHES_MAX: usize = 5;
/// Clients of a drive that are named; more are counted.
const NAMED_MAX: usize = 4;

/// A heading, rows of cells, and the columns of numbers.
pub(super) struct Cells {
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) right: Vec<usize>,
}

/// The whole plan.
pub fn text(plan: &Plan) -> String {
    let mut text = format!("{}\n\n", conditions(plan));
    text += &table(clients(plan));
    for note in notes(plan) {
        text += &format!("  {note}\n");
    }
    text.push('\n');
    for answer in answers(plan) {
        text += &format!("{answer}\n");
    }
    if !plan.approaches.is_empty() {
        text.push('\n');
        text += &table(approaches(plan));
    }
    text
}

fn table(Cells { header, rows, right }: Cells) -> String {
    text_table(PLAIN, header, right, rows)
}

/// What was run.
pub(super) fn conditions(plan: &Plan) -> String {
    let seeds: Vec<String> = plan.seeds.iter().map(u64::to_string).collect();
    let plural = if seeds.len() == 1 { "" } else { "s" };
    let runs = counted(plan.runs as u64, "run");
    format!(
        "{} under {}, in simulation: {runs}, {} measured after {}, seed{plural} {}",
        plan.drive,
        plan.stack,
        Nanos(plan.time_ns),
        Nanos(plan.ramp_ns),
        seeds.join(", ")
    )
}

/// What a column of latencies shows of a row.
type Shown = fn(&Row) -> &Option<Found>;
/// Columns of latencies.
const LATENCIES: [(&str, Shown); 3] = [
    ("99 % of reads", |row| &row.latency),
    ("99 % of writes", |row| &row.write_latency),
    ("99 % of flushes", |row| &row.sync_latency),
];

/// The table of clients.
pub(super) fn clients(plan: &Plan) -> Cells {
    let slowest = plan.rows.iter().any(|row| row.slowest.is_some());
    let latencies = LATENCIES.map(|(header, value)| {
        plan.rows.iter().any(|row| value(row).is_some()).then_some((header, value))
    });
    let mut header = vec!["client", "promised", "load", "guaranteed"];
    header.extend(slowest.then_some("with the slowest load"));
    header.extend(latencies.into_iter().flatten().map(|(header, _)| header));
    header.extend(["expected", "maximum", "promise"]);
    let right = vec![header.len() - 3, header.len() - 2];
    let row = |row: &Row| {
        let found = |found: &Option<Found>, show: &dyn Fn(u64) -> String| match found {
            Some(found) if plan.rows.len() == 1 => show(found.value),
            Some(found) => format!("{} beside {}", show(found.value), found.mix),
            None => "-".to_owned(),
        };
        let promised = match row.promised.is_empty() {
            true => "-".to_owned(),
            false => row.promised.join(", "),
        };
        let load = match (&row.load, row.load_is_stated) {
            (None, _) => "(all inside)".to_owned(),
            (Some(load), true) => load.clone(),
            (Some(load), false) => format!("{load} *"),
        };
        let mut cells = vec![row.group.clone(), promised, load];
        cells.push(found(&row.guaranteed, &rate));
        if slowest {
            cells.push(found(&row.slowest, &rate));
        }
        for (_, value) in latencies.into_iter().flatten() {
            cells.push(found(value(row), &|ns| time(Nanos(ns))));
        }
        let maximum = row.maximum.map_or("-".to_owned(), rate);
        cells.extend([rate(row.expected), maximum, verdict(row).to_owned()]);
        cells
    };
    Cells { header, rows: plan.rows.iter().map(row).collect(), right }
}

/// Whether a row's promise is kept.
pub(super) fn verdict(row: &Row) -> &'static str {
    match (&row.breach, row.promised.is_empty()) {
        (_, true) => "-",
        (None, false) => "kept",
        (Some(_), false) => "broken",
    }
}

/// What has to be known to read the table of clients.
pub(super) fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.rows.iter().any(|row| row.load.is_some() && !row.load_is_stated) {
        let note = "* assumed, since nothing is known of this client: say what it does with --load FILE or --expect GROUP=JOB";
        notes.push(note.to_owned());
    }
    let used: Vec<&str> = plan
        .rows
        .iter()
        .flat_map(|row| {
            [&row.guaranteed, &row.slowest]
                .into_iter()
                .chain(LATENCIES.iter().map(|(_, value)| value(row)))
                .flatten()
                .map(|found| found.mix.as_str())
        })
        .collect();
    for neighbours in plan.neighbours.iter().filter(|neighbours| used.contains(&neighbours.name)) {
        notes.push(format!("{}: {}", neighbours.name, neighbours.about));
    }
    notes
}

/// The answers in sentences.
pub(super) fn answers(plan: &Plan) -> Vec<String> {
    let mut answers =
        vec![mixes("worst mix", &plan.worst_mix), mixes("expected mix", &plan.expected_mix)];
    answers.push(admission(&plan.admission, plan.fits()));
    answers.extend(plan.sustained.as_ref().map(|Sustained { writes, small }| {
        format!(
            "steady state: admission counts with what the drive sustains after random overwriting, {} of large writes and {} of \
             random 4 KiB requests, in whatever state it is now",
            rate(*writes),
            rate(*small)
        )
    }));
    answers.extend(plan.edge.as_ref().map(edge));
    answers
}

fn mixes(name: &str, verdict: &Verdict) -> String {
    let mut text = format!("{name}: ");
    if verdict.is_kept() {
        return text + "every promise is kept";
    }
    let plural = if verdict.breaches.len() == 1 { "promise is" } else { "promises are" };
    text += &format!("{} {plural} broken", verdict.breaches.len());
    for breach in verdict.breaches.iter().take(BREACHES_MAX) {
        text += &format!("\n  {}", breach_text(breach));
    }
    if let Some(more @ 1..) = verdict.breaches.len().checked_sub(BREACHES_MAX) {
        text += &format!("\n  and {more} more");
    }
    text
}

fn breach_text(breach: &Breach) -> String {
    let Breach { group, mix, load, promised, got, kept, broken } = breach;
    if group.is_empty() {
        return format!("the stack's own admission refuses the groups: {got}");
    }
    let does = if load.is_empty() { String::new() } else { format!(" with {load}") };
    let place = match mix.as_str() {
        "expected" => "in the expected mix".to_owned(),
        mix => format!("beside {mix}"),
    };
    let short = (1.0 - kept) * 100.0;
    let missing = match broken {
        [0, 0] => format!("{:.2} times as long", 1.0 / kept),
        [broken, all] if short <= 0.0 => {
            format!("enough on average, but late in {broken} of {all} s")
        }
        [broken, all] if short < 0.5 => format!("broken in {broken} of {all} s"),
        [1, 1] => format!("{short:.0} % short"),
        [broken, all] => format!("{short:.0} % short, broken in {broken} of {all} s"),
    };
    format!("{group}: {got} of {promised}{does} {place} ({missing})")
}

fn admission(admission: &Admission, fits: bool) -> String {
    let verdict = match &admission.refusal {
        None => "admission: admitted".to_owned(),
        Some(refusal) => format!("admission: refused: {refusal}"),
    };
    match (admission.admitted, fits) {
        (true, false) => {
            verdict + "\n  the simulator disagrees: see docs/plan.md, \"Plan and admission\""
        }
        (false, true) => {
            verdict
                + "\n  the simulator found no mix that breaks a promise: see docs/plan.md, \"Plan and admission\""
        }
        _ => verdict,
    }
}

fn factor(permille: u64) -> String {
    let factor = permille as f64 / 1000.0;
    if permille < 1000 { format!("{factor:.3}") } else { format!("{factor:.2}") }
}

fn edge(edge: &Edge) -> String {
    let what = if edge.of_latencies { "latencies divided" } else { "minimums multiplied" };
    let by = |permille| format!("with all {what} by {}", factor(permille));
    let held = match edge.holds_permille {
        0 => "no factor was found with which every promise is kept".to_owned(),
        holds => format!("every promise is kept {}", by(holds)),
    };
    let breaks = match (edge.breaks_permille, &edge.first) {
        (Some(at), Some(first)) => {
            format!("; {} the first breaks:\n  {}", by(at), breach_text(first))
        }
        _ => "; no larger factor was tried".to_owned(),
    };
    format!("first to break: {held}{breaks}")
}

/// The table of drives.
pub(super) fn approaches(plan: &Plan) -> Cells {
    let row = |approach: &Approach| {
        let Approach { name, stack, about, packing, .. } = approach;
        let drives = approach.drives.map_or("-".to_owned(), |drives| drives.to_string());
        let packing = match &approach.impossible {
            Some(client) => format!("{client} is not kept on a drive of its own"),
            None => packing.iter().map(|drive| names(drive)).collect::<Vec<_>>().join(" | "),
        };
        vec![(*name).to_owned(), (*stack).to_owned(), (*about).to_owned(), drives, packing]
    };
    let header = vec!["drives needed with", "stack", "", "drives", "clients of each"];
    Cells { header, rows: plan.approaches.iter().map(row).collect(), right: vec![3] }
}

fn names(drive: &[String]) -> String {
    match drive.len() {
        0..=NAMED_MAX => drive.join(" "),
        many => format!("{} and {} more", drive[..NAMED_MAX - 1].join(" "), many - (NAMED_MAX - 1)),
    }
}
