//! The tables of `reproduction/stacks.md`.

use std::fmt::Write as _;

use super::load::LOADS;
use super::{Aspect, BASE, Line, OURS, STACKS, STATES, drives, read};

/// The tables: what they stand between in the page, and what they say.
///
/// # Errors
/// A table in another format.
pub fn stacks_tables(csv: &str) -> Result<[(&'static str, String); 3], String> {
    let lines = read(csv)?;
    Ok([("kept", kept(&lines)), ("loads", loads(&lines)), ("worst", worst(&lines))])
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

/// On how many drives our stack keeps what of each load.
fn loads(lines: &[Line]) -> String {
    let mut text = String::from("| load | state |");
    Aspect::ALL.iter().for_each(|aspect| text += &format!(" {} |", aspect.name()));
    text += "\n|---|---|---|---|---|---|\n";
    for load in &LOADS {
        for state in STATES {
            let _ = write!(text, "| {} | {state} |", load.name);
            for aspect in Aspect::ALL {
                let is_its = |line: &Line| {
                    line.state == state && line.stack == OURS && line.load == load.name
                };
                let is_asked = lines.iter().any(|line| is_its(line) && aspect.part(line).is_some());
                let cell = if is_asked { count(lines, &[aspect], is_its) } else { "-".to_owned() };
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
    }
    text
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
            let is_base = |other: &&Line| {
                other.drive == line.drive
                    && other.state == line.state
                    && other.load == line.load
                    && other.stack == BASE
            };
            let base = lines.iter().find(is_base).expect("every load has a run without control");
            format!("{}, {}: {}", line.load, line.state, cause(*aspect, line, base))
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
    let of_base = |direction: fn(&Line) -> f64| direction(line) / direction(base).max(1e-6);
    let (reads, writes) = (of_base(|line| line.reads), of_base(|line| line.writes));
    let read_takes =
        format!("a read takes {:.2} ms on average, {:.2} without control", line.mean, base.mean);
    match aspect {
        Aspect::Minimum => {
            let minimum = line.minimum.unwrap_or_default();
            let least = 4.096 / minimum.max(1e-6);
            format!(
                "the reader has {:.1} of {minimum:.1} MB/s, since {read_takes}, and the minimum allows {least:.2}",
                line.reader
            )
        }
        Aspect::Latency => format!(
            "one read in a hundred takes {:.2} ms, {:.2} are promised, beside {:.0} MB/s of writes; without control {:.2} ms beside {:.0}",
            line.p99,
            line.bound.unwrap_or_default(),
            line.writes,
            base.p99,
            base.writes
        ),
        Aspect::Shares => match (line.jain, line.share) {
            (Some(jain), _) if jain < super::JAIN => format!(
                "Jain's index of the others' rates by weight is {jain:.2}, {:.2} without control: writes have {writes:.2} of their rate there",
                base.jain.unwrap_or_default()
            ),
            (_, share) => format!(
                "the reader has {:.2} of its share, since {read_takes}",
                share.unwrap_or_default()
            ),
        },
        Aspect::Total => {
            let total = (line.reads + line.writes) / line.wanted;
            let (what, part, own, other) = match writes < reads {
                true => ("writes", writes, line.writes, base.writes),
                false => ("reads", reads, line.reads, base.reads),
            };
            format!(
                "all have {total:.2} of what they should: {what} have {own:.0} of the {other:.0} MB/s without control ({part:.2})"
            )
        }
    }
}
