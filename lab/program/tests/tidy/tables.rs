//! A rule about completeness: every number of the tables of 2009 is claimed.

use iofair_experiments::experiment::{Claim, Experiment, Kind};

use crate::evidence::experiments;
use crate::files::{all, assert_none};

/// The tables in the order of the text: experiment and stack.
const TABLES: [(&str, &str); 15] = [
    ("test-1", "none-cfq"),
    ("test-1", "prop-fair-cfq"),
    ("test-1", "none-fair-cfq"),
    ("test-2", "none-cfq"),
    ("test-2", "prop-fair-cfq"),
    ("test-2", "none-fair-cfq"),
    ("test-3", "prop-fair-cfq"),
    ("cfq-sequential-readers", "none-cfq"),
    ("cfq-sequential-readers", "none-fair-cfq"),
    ("cfq-sequential-writers", "none-cfq"),
    ("cfq-sequential-writers", "none-fair-cfq"),
    ("cfq-random-readers", "none-cfq"),
    ("cfq-random-readers", "none-fair-cfq"),
    ("cfq-random-writers", "none-cfq"),
    ("cfq-random-writers", "none-fair-cfq"),
];

/// A number of a table: experiment, stack, how many processes, quantity, in KiB/s or ms.
#[derive(PartialEq, Debug)]
struct Cell {
    experiment: &'static str,
    stack: &'static str,
    count: u32,
    quantity: String,
    value: f64,
}

fn quantities(experiment: &str) -> Vec<String> {
    let (name, more): (_, &[&str]) = match experiment {
        "test-1" => ("writer", &["target", "target max"]),
        "test-2" | "test-3" => ("reader", &["target", "target max"]),
        _ => ("client", &[]),
    };
    let own = [" fastest", " slowest", "", " max"].map(|metric| format!("{name}{metric}"));
    own.into_iter().chain(more.iter().map(|name| (*name).to_owned())).collect()
}

/// Numbers of a row with their units, without the first one.
fn values(row: &str) -> Vec<f64> {
    let words: Vec<&str> = row.split_whitespace().skip(1).collect();
    let number = |(at, word): (usize, &&str)| {
        let digits = word.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let value: f64 = digits.parse().ok()?;
        // `159K usec`, `2344 msec`, `19195 usec`.
        let micros = words.get(at + 1) == Some(&"usec") && !word.ends_with('K');
        Some(if micros { value / 1000.0 } else { value })
    };
    words.iter().enumerate().filter_map(number).collect()
}

fn cells(text: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut tables = TABLES.iter();
    let mut table = None;
    for line in text.lines() {
        if line.starts_with("nr ") {
            table = tables.next();
            continue;
        }
        let count = line.split_whitespace().next().and_then(|word| word.parse().ok());
        let (Some((experiment, stack)), Some(count)) = (table, count) else {
            table = None;
            continue;
        };
        for (quantity, value) in quantities(experiment).into_iter().zip(values(line)) {
            cells.push(Cell { experiment, stack, count, quantity, value });
        }
    }
    cells
}

fn claims(claim: &Claim, experiment: &Experiment, cell: &Cell) -> bool {
    let place = &claim.places[0];
    let count = experiment.variants[place.variant].name.split(' ').next();
    let number = matches!(claim.kind, Kind::Within | Kind::AtMost | Kind::AtLeast);
    number
        && count == Some(cell.count.to_string().as_str())
        && experiment.stacks[place.stack].0 == cell.stack
        && place.quantity.to_string() == cell.quantity
        && claim.published.is_some_and(|published| (published - cell.value).abs() < 0.6)
}

/// Numbers without a claim. Of a single process the fastest and the slowest are the aggregate.
fn unclaimed(cells: &[Cell], known: &[Experiment]) -> Vec<String> {
    let repeats = |cell: &Cell| cell.count == 1 && cell.quantity.ends_with("est");
    let is_claimed = |cell: &Cell| {
        let path = format!("io-controller-2009/{}", cell.experiment);
        let its = known.iter().filter(|file| file.name.trim_end_matches(".toml").ends_with(&path));
        its.flat_map(|file| file.claims.iter().map(move |claim| (file, claim)))
            .any(|(file, claim)| claims(claim, file, cell))
    };
    let missing = cells.iter().filter(|cell| !repeats(cell) && !is_claimed(cell));
    missing.map(|cell| format!("not claimed: {cell:?}")).collect()
}

/// Goal: all 388 numbers of the tables are claimed. Method: read them from the text, which is not part of the repository.
#[test]
#[ignore = "needs sources: IOFAIR_SOURCES names a folder with the texts of the sources"]
fn needs_sources_every_number_of_2009_is_claimed() {
    let folder = std::env::var_os("IOFAIR_SOURCES").expect("IOFAIR_SOURCES is set");
    let files = std::fs::read_dir(folder).expect("IOFAIR_SOURCES names a folder of texts");
    let texts = files.map(|entry| std::fs::read_to_string(entry.expect("an entry").path()));
    let text =
        texts.map(|text| text.expect("a text")).find(|text| text.contains("IO controller V10"));
    let cells = cells(&text.expect("the text of 2009 is there"));
    assert_eq!(cells.len(), 388);
    assert_none(&unclaimed(&cells, &experiments(&all(), "reproduction/experiments")));
}

/// Goal: the rule catches what it is for. Method: a number that is claimed, one that repeats it, and one that is not.
#[test]
fn canaries() {
    let known = experiments(&all(), "reproduction/experiments");
    let table = |row: &str| unclaimed(&cells(&format!("nr  Max-bdwidth\n{row}\n")), &known).len();
    let row = "1   5737KiB/s   5737KiB/s   5737KiB/s   164K usec   503KiB/s    159K usec";
    assert_eq!(cells(&format!("nr  Max-bdwidth\n{row}\nnr  Max\n")).len(), 6);
    assert_eq!((table(row), table(&row.replace("503", "999"))), (0, 1));
    assert_eq!(values("4 119KiB/s 73KiB/s 405KiB/s 2344 msec"), [119.0, 73.0, 405.0, 2344.0]);
    assert_eq!(values("1 484KiB/s 22596 usec"), [484.0, 22.596]);
}
