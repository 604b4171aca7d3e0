//! Scorecards as tables for a terminal.

use core::fmt::Write;

use super::score::{Grade, KEPT, Score, Scorecard};
use crate::report::short;
use iofair_simulator::text_table::{PLAIN, counted, text_table};

/// The columns.
pub(super) const HEADER: [&str; 7] =
    ["stack", "overhead", "fairness", "minimum", "use of drive", "p99, ms", "served after, ms"];
/// What the columns mean.
pub(super) const MEANINGS: [&str; 6] = [
    "overhead: longer mean latency of one reader, or lower rate of 16, than without control; 32 idle groups are there",
    "fairness: Jain's index of shares by weight (each client's rate as a part of what four of its kind have together), the worst of four mixes",
    "minimum: beside how many kinds of neighbours a reader keeps a third of what it has alone, and the lowest part of this minimum",
    "use of drive: total of all clients beside that without control, the lowest",
    "p99: the reader's 99th percentile, the longest",
    "served after: time until a reader that comes back has its rate again, the longest",
];

/// All scorecards, with a sentence for each drive first.
pub fn text(cards: &[Scorecard]) -> String {
    let mut text = String::new();
    for card in cards {
        let _ = writeln!(text, "{}\n", sentence(card));
    }
    for card in cards {
        push_table(&mut text, card);
    }
    for meaning in MEANINGS {
        let _ = writeln!(text, "  {meaning}");
    }
    text
}

fn push_table(text: &mut String, card: &Scorecard) {
    let _ = writeln!(text, "{}", conditions(card));
    let rows = card.scores.iter().map(|score| cells(card, score, true));
    text.push_str(&text_table(PLAIN, HEADER.to_vec(), 1..HEADER.len(), rows));
    text.push('\n');
}

/// The conditions of a scorecard.
pub(super) fn conditions(card: &Scorecard) -> String {
    let alone = &card.alone;
    format!(
        "{}: a random reader of 4 KiB has {} MB/s alone (mean {} ms, p99 {} ms); its minimum is {} MB/s; {} of {} s for each mix",
        card.drive,
        short(alone.reader_bytes_per_s / 1e6),
        short(alone.reader_mean_ns / 1e6),
        short(alone.reader_p99_ns / 1e6),
        short(card.minimum_bytes_per_s as f64 / 1e6),
        counted(card.repeats.into(), "run"),
        short(card.seconds)
    )
}

/// A row of the table. `marks`: with a sign for what is poor, where there are no colours.
pub(super) fn cells(card: &Scorecard, score: &Score, marks: bool) -> [String; 7] {
    let grades = score.grades(card);
    let served = score.served();
    let values = [
        format!("{} %", short(score.overhead() * 100.0)),
        format!("{:.2}", score.fairness()),
        format!("{} of {} ({:.2})", score.kept_count(), score.kept.len(), score.part()),
        format!("{:.2}", score.usage()),
        short(score.p99() / 1e6),
        if served.is_finite() { short(served / 1e6) } else { "never".into() },
    ];
    let mut row: [String; 7] = Default::default();
    row[0].clone_from(&score.stack);
    for (index, (value, grade)) in values.into_iter().zip(grades).enumerate() {
        let mark = match grade {
            Grade::Poor if marks => " !",
            _ if marks => "  ",
            _ => "",
        };
        row[index + 1] = value + mark;
    }
    row
}

/// What a reader wants to know first.
pub(super) fn sentence(card: &Scorecard) -> String {
    let all = |score: &&Score| score.kept_count() == score.kept.len();
    let keeping: Vec<&Score> = card.scores.iter().filter(all).collect();
    let kinds = card.scores.first().map_or(0, |score| score.kept.len());
    let runs = match card.repeats {
        1 => String::new(),
        repeats => format!(" in each of {repeats} runs"),
    };
    match keeping.iter().max_by(|a, b| a.usage().total_cmp(&b.usage())) {
        Some(best) => {
            let others: Vec<String> = keeping
                .iter()
                .filter(|score| score.stack != best.stack)
                .map(|score| format!("{} keeps it at {:.2}", score.stack, score.usage()))
                .collect();
            let rest = match others.is_empty() {
                true => "no other stack here keeps it".to_owned(),
                false => others.join(", "),
            };
            format!(
                "On {}, {} keeps the minimum beside all {kinds} kinds of neighbours{runs} and leaves at least {:.2} of the \
                 uncontrolled total; {rest}.",
                card.drive,
                best.stack,
                best.usage()
            )
        }
        None => {
            let most = card.scores.iter().max_by(|a, b| a.part().total_cmp(&b.part()));
            most.map_or_else(String::new, |most| {
                format!(
                    "On {}, no stack keeps {KEPT} of the minimum beside all {kinds} kinds of neighbours; {} comes closest \
                     with {:.2} of it, at {:.2} of the uncontrolled total.",
                    card.drive,
                    most.stack,
                    most.part(),
                    most.usage()
                )
            })
        }
    }
}
