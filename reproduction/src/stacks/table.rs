//! The tables of `reproduction/stacks.md`.

use std::fmt::Write as _;

use iofair_experiments::report::short;

use super::line::{Aspect, BASE, JAIN, Line, OURS, STACKS, STATES, drives, read};
use super::load::LOADS;

/// Rates that differ by less than this part are equal.
const EVEN: f64 = 0.15;

/// The tables: what they stand between in the page, and what they say.
///
/// # Errors
/// A table in another format.
pub fn stacks_tables(csv: &str) -> Result<[(&'static str, String); 3], String> {
    let lines = read(csv)?;
    Ok([("kept", kept(&lines)), ("loads", loads(&lines, OURS)), ("worst", worst(&lines))])
}

/// On how many drives a stack keeps what of each load, and the drive that is farthest from it.
///
/// # Errors
/// A table in another format.
pub fn stacks_kept(csv: &str, stack: &str) -> Result<String, String> {
    Ok(loads(&read(csv)?, stack))
}

/// On how many drives nothing of this is broken in these lines.
fn count<'a>(lines: &'a [Line], aspects: &[Aspect], is_asked: impl Fn(&Line) -> bool) -> String {
    let is_kept = |drive: &&&'a str| {
        let mut of_drive = lines.iter().filter(|line| line.drive == **drive && is_asked(line));
        of_drive.all(|line| aspects.iter().all(|aspect| !aspect.is_broken(line)))
    };
    drives(lines).iter().filter(is_kept).count().to_string()
}

/// On how many drives each stack keeps what.
fn kept(lines: &[Line]) -> String {
    let mut text = String::from("| state | stack |");
    Aspect::ALL.iter().for_each(|aspect| text += &format!(" {} |", aspect.name()));
    text += " all |\n|---|---|---|---|---|---|---|\n";
    for state in STATES {
        for stack in STACKS {
            let is_its = |line: &Line| line.state == state && line.stack == stack;
            let _ = write!(text, "| {state} | `{stack}` |");
            let each = Aspect::ALL.iter().map(|aspect| count(lines, &[*aspect], is_its));
            for cell in each.chain([count(lines, &Aspect::ALL, is_its)]) {
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
    }
    text
}

fn loads(lines: &[Line], stack: &str) -> String {
    let head = "| load | state | asked | kept | the worst drive |\n|---|---|---|---|---|\n";
    let mut text = head.to_owned();
    for (load, state) in LOADS.iter().flat_map(|load| STATES.map(|state| (load.name, state))) {
        let is_its = |line: &Line| line.state == state && line.stack == stack && line.load == load;
        for aspect in Aspect::ALL {
            let parts = lines.iter().filter(|line| is_its(line));
            let parts = parts.filter_map(|line| Some((aspect.part(line)?, line)));
            let Some((part, line)) = parts.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            let kept = count(lines, &[aspect], is_its);
            let worst = match part < 1.0 {
                true => format!("`{}`: {}", line.drive, cause(aspect, line, base(line, lines))),
                false => "-".to_owned(),
            };
            let _ = writeln!(text, "| {load} | {state} | {} | {kept} | {worst} |", aspect.name());
        }
    }
    text
}

/// The run of the same load without control.
fn base<'a>(line: &Line, lines: &'a [Line]) -> &'a Line {
    let key = |line: &Line| (line.drive.clone(), line.state.clone(), line.load.clone());
    let mut others = lines.iter().filter(|other| other.stack == BASE);
    others.find(|other| key(other) == key(line)).expect("every load has a run without control")
}

/// The drives on which our stack breaks most, the worst first.
fn worst(lines: &[Line]) -> String {
    let mut all: Vec<_> = drives(lines).into_iter().map(|drive| Broken::of(drive, lines)).collect();
    all.sort_by(|a, b| {
        let count = |broken: &Broken<'_>| broken.fresh + broken.steady;
        count(b).cmp(&count(a)).then(a.lowest.total_cmp(&b.lowest))
    });
    let mut text = String::from(
        "| drive | broken, fresh | overwritten | what is broken most, and why |\n|---|---|---|---|\n",
    );
    for Broken { drive, fresh, steady, cause, .. } in all {
        let _ = writeln!(text, "| `{drive}` | {fresh} | {steady} | {cause} |");
    }
    text
}

/// What our stack breaks on a drive.
struct Broken<'a> {
    drive: &'a str,
    fresh: usize,
    steady: usize,
    lowest: f64,
    cause: String,
}

impl<'a> Broken<'a> {
    fn of(drive: &'a str, lines: &'a [Line]) -> Self {
        let ours = lines.iter().filter(|line| line.drive == drive && line.stack == OURS);
        let asked = ours.flat_map(|line| Aspect::ALL.map(|aspect| (line, aspect)));
        let parts = asked.filter_map(|(line, aspect)| Some((aspect.part(line)?, line, aspect)));
        let broken: Vec<_> = parts.filter(|part| part.0 < 1.0).collect();
        let count = |state| broken.iter().filter(|part| part.1.state == state).count();
        let worst = broken.iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let cause = worst.map(|(_, line, aspect)| {
            let cause = cause(*aspect, line, base(line, lines));
            format!("{}, {}: {cause}", line.load, line.state)
        });
        Self {
            drive,
            fresh: count(STATES[0]),
            steady: count(STATES[1]),
            lowest: worst.map_or(1.0, |worst| worst.0),
            cause: cause.unwrap_or_else(|| "-".to_owned()),
        }
    }
}

/// Why something is broken, beside a run without control.
fn cause(aspect: Aspect, line: &Line, base: &Line) -> String {
    match aspect {
        Aspect::Minimum => format!(
            "the reader has {} of {} MB/s, since {}",
            short(line.reader),
            short(line.minimum.unwrap_or_default()),
            reads_take(line, base)
        ),
        Aspect::Latency => format!(
            "one read in a hundred takes {} ms, {} are promised; without control {}, beside {} MB/s of writes in place of {}",
            short(line.p99),
            short(line.bound.unwrap_or_default()),
            short(base.p99),
            short(base.writes),
            short(line.writes)
        ),
        Aspect::Shares => match (line.jain, line.share) {
            (Some(jain), _) if jain < JAIN => {
                let others = short(base.jain.unwrap_or_default());
                format!(
                    "Jain's index of rates by weight is {}, {others} without control",
                    short(jain)
                )
            }
            (_, share) => {
                let share = short(share.unwrap_or_default());
                format!("the reader has {share} of its share, since {}", reads_take(line, base))
            }
        },
        Aspect::Total => total(line, base),
    }
}

/// How long a read takes.
fn reads_take(line: &Line, base: &Line) -> String {
    let few = match line.mean > line.p99 {
        true => format!(" because a few wait long (99 of 100 take at most {})", short(line.p99)),
        false => String::new(),
    };
    format!(
        "a read takes {} ms on average{few}, {} without control",
        short(line.mean),
        short(base.mean)
    )
}

/// Why a total is low: the direction that has lost more, and what holds it.
fn total(line: &Line, base: &Line) -> String {
    let part = short((line.reads + line.writes) / line.wanted);
    let (what, own, other) = match base.writes - line.writes > base.reads - line.reads {
        true => ("writes", line.writes, base.writes),
        false => ("reads", line.reads, base.reads),
    };
    let other_reads = line.reads - line.reader;
    let is_even = (other_reads / line.writes.max(1e-6) - 1.0).abs() < EVEN;
    let why = match what {
        "reads" if other_reads > line.reader && is_even => {
            format!(": equal weights are equal bytes, and writes have {}", short(line.writes))
        }
        "reads" if line.mean > line.p99 => format!(": {}", reads_take(line, base)),
        _ => String::new(),
    };
    let (own, other) = (short(own), short(other));
    format!(
        "all have {part} of what they should; {what} have {own} of the {other} MB/s without control{why}"
    )
}
