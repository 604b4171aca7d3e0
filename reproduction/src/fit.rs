//! What the rows leave open: for each number that no row decides, the range within which the rows that chose the other numbers
//! of its drive and machine stay in their bands.
//!
//! Only uncontrolled rows count, those without a policy that is under test; they are in the lists `[[fitted_on]]` of drives and
//! machines. A row that misses its band with the numbers as they are says nothing about a range. One number changes at a time,
//! from half of its value to twice; a size that is a power of two stays one. The ends of a range are searched by halving.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use iofair_drive::profile::{self, ProfileError, Sourced};
use iofair_experiments::experiment::{self, Basis, Claim, Experiment, Numbers, Overrides, Verdict};
use iofair_experiments::ranges::{Open, Range, SEARCHED, Unit, measure, middle};
use iofair_simulator::machine::{self, base};
use iofair_simulator::outcome::Outcome;
use iofair_simulator::scenario::Scenario;

use crate::draws;

/// Stacks without a policy that is under test: none, or the scheduler that the kernel of 2009 had.
const UNCONTROLLED: [&str; 3] = ["none-none", "none-noop", "none-cfq"];
/// Halvings between a value that holds and one that does not: the ends are known to 4 %.
const HALVINGS: u32 = 4;
/// Words that a number may be, by the end of its key.
const WORDS: [(&str, [&str; 2]); 1] = [("link-order", ["fifo", "round-robin"])];

/// Runs a scenario.
pub type Simulate<'a> = &'a (dyn Fn(&Scenario) -> Result<Outcome, String> + Sync);

/// A number whose range is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its file below `profiles`, without `.toml`.
    pub file: String,
    /// The number.
    pub number: Sourced,
}

/// The rows of an experiment that decide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    path: PathBuf,
    /// The claims, by their place in the file.
    claims: Vec<usize>,
    /// The drives and machines that they are about.
    files: BTreeSet<String>,
}

/// Where the range of a number may end.
enum Candidates {
    Between(u64, Unit),
    Any(Vec<String>),
}

fn candidates(number: &Sourced) -> Option<Candidates> {
    let words = WORDS.iter().find(|(end, _)| number.key.ends_with(end));
    if let Some((_, words)) = words {
        return Some(Candidates::Any(words.map(str::to_owned).to_vec()));
    }
    match measure(&number.value)? {
        // Twice nothing is nothing.
        (0, _) => None,
        (size, Unit::Bytes) if size.is_power_of_two() => {
            let around = [size / 2, size, size * 2].map(|size| Unit::Bytes.text(size));
            Some(Candidates::Any(around.to_vec()))
        }
        (value, unit) => Some(Candidates::Between(value, unit)),
    }
}

/// All numbers that have a range: the free ones of each machine and its drive.
pub fn targets() -> Vec<Target> {
    let mut targets = Vec::new();
    let mut add = |file: &str, numbers: Vec<Sourced>| {
        let free = numbers.into_iter().filter(|number| number.free);
        for number in free.filter(|number| candidates(number).is_some()) {
            let target = Target { file: file.to_owned(), number };
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    };
    for (name, _) in machine::list().into_iter().filter(|(name, _)| base(name) == name) {
        let machine = machine::load(&name).expect("it is listed");
        let drive = profile::read(&machine.drive).expect("a test reads the drives of machines");
        add(&format!("drives/{}", machine.drive), drive.numbers);
        add(&format!("machines/{name}"), machine.numbers);
    }
    targets
}

/// The experiments that lists name, below a folder.
pub fn experiments(folder: &Path) -> BTreeSet<PathBuf> {
    let mut names = BTreeSet::new();
    for (name, _) in machine::list() {
        let machine = machine::load(&name).expect("it is listed");
        let drive = profile::read(&machine.drive).expect("a test reads the drives of machines");
        let lists = machine.fitted_on.into_iter().flat_map(|(_, list)| list);
        names.extend(lists.chain(drive.fitted_on).map(|entry| entry.experiment));
    }
    names.into_iter().map(|name| folder.join(name + ".toml")).collect()
}

fn read(path: &Path, numbers: Option<Numbers>) -> Result<Experiment, String> {
    let overrides = Overrides { repeats: Some(1), numbers, ..Overrides::default() };
    experiment::read(path, &overrides).map_err(|error| error.to_string())
}

/// Whether a claim is about uncontrolled rows that chose numbers, and nothing else.
fn is_listed(experiment: &Experiment, claim: &Claim) -> bool {
    let is_row = |place: &experiment::Place| {
        let stack = experiment.stacks[place.stack].0.as_str();
        UNCONTROLLED.contains(&stack) && experiment.is_fitted_run(place.variant, place.stack)
    };
    let of_source = matches!(claim.origin.basis, Basis::Published | Basis::Derived);
    of_source && claim.places.iter().all(is_row)
}

/// The rows of an experiment that hold with the numbers as they are.
///
/// # Errors
///
/// A file that cannot be read, and those of the simulator.
pub fn rows(path: &Path, simulate: Simulate<'_>) -> Result<Rows, String> {
    let mut experiment = read(path, None)?;
    let all = std::mem::take(&mut experiment.claims);
    let (mut at, mut listed): (Vec<usize>, Vec<Claim>) = (Vec::new(), Vec::new());
    for (index, claim) in all.into_iter().enumerate() {
        if is_listed(&experiment, &claim) {
            at.push(index);
            listed.push(claim);
        }
    }
    experiment.claims = listed;
    let numbers = draws::numbers(&experiment, simulate)?;
    let mut rows = Rows { path: path.to_owned(), claims: Vec::new(), files: BTreeSet::new() };
    for ((claim, index), number) in experiment.claims.iter().zip(at).zip(numbers) {
        if claim.verdict(number) == Verdict::Holds {
            rows.claims.push(index);
            for place in &claim.places {
                let variant = &experiment.variants[place.variant];
                rows.files.insert(format!("drives/{}", base(&variant.drive)));
                rows.files.insert(format!("machines/{}", base(&variant.machine)));
            }
        }
    }
    Ok(rows)
}

/// The first row that misses its band with another value of a number.
fn missed(
    rows: &[Rows],
    target: &Target,
    value: &str,
    simulate: Simulate<'_>,
) -> Result<Option<String>, String> {
    let (file, key) = (target.file.clone(), target.number.key.clone());
    let numbers = Numbers::One { file, key, value: value.to_owned() };
    let named = rows.iter().filter(|rows| rows.files.contains(&target.file));
    for rows in named.filter(|rows| !rows.claims.is_empty()) {
        let mut experiment = read(&rows.path, Some(numbers.clone()))?;
        experiment.claims = rows.claims.iter().map(|at| experiment.claims[*at].clone()).collect();
        for variant in &experiment.variants {
            if let Err(ProfileError::Invalid { invalid, .. }) = profile::read(&variant.drive) {
                return Ok(Some(format!("{} must be {}", invalid.key, invalid.allowed)));
            }
        }
        let numbers = draws::numbers(&experiment, simulate)?;
        let claims = experiment.claims.iter().zip(numbers);
        let miss = claims.into_iter().find(|(claim, got)| claim.verdict(*got) != Verdict::Holds);
        if let Some((claim, _)) = miss {
            let variant = match experiment.variants[claim.places[0].variant].name.as_str() {
                "" => String::new(),
                name => format!(" [{name}]"),
            };
            return Ok(Some(format!("{} in {}{variant}", claim.text, experiment.name)));
        }
    }
    Ok(None)
}

/// The range of a number.
///
/// # Errors
///
/// Those of the simulator.
pub fn range(target: &Target, rows: &[Rows], simulate: Simulate<'_>) -> Result<Range, String> {
    let misses = |value: &str| missed(rows, target, value, simulate);
    let candidates = candidates(&target.number).expect("a target has candidates");
    let (open, low_by, high_by) = match candidates {
        Candidates::Any(all) => {
            let (mut any, mut why) = (Vec::new(), Vec::new());
            for value in all {
                match if is_same(&value, &target.number.value) { None } else { misses(&value)? } {
                    None => any.push(value),
                    Some(row) => why.push(format!("{value}: {row}")),
                }
            }
            let why = if why.is_empty() { SEARCHED.to_owned() } else { why.join("; ") };
            (Open::Any(any), why, SEARCHED.to_owned())
        }
        Candidates::Between(value, unit) => {
            let misses = |value: u64| misses(&unit.text(value));
            let (low, low_by) = end(value, value.div_ceil(2), &misses)?;
            let (high, high_by) = end(value, value * 2, &misses)?;
            (Open::Between(low, high, unit), low_by, high_by)
        }
    };
    let Target { file, number } = target.clone();
    Ok(Range { file, number: number.key, value: number.value, open, low_by, high_by })
}

fn is_same(one: &str, other: &str) -> bool {
    one == other || measure(one).is_some_and(|value| measure(other) == Some(value))
}

/// The end of a range on the way from a value to a limit, and what misses beyond it.
fn end(
    value: u64,
    limit: u64,
    misses: &dyn Fn(u64) -> Result<Option<String>, String>,
) -> Result<(u64, String), String> {
    let Some(mut by) = misses(limit)? else { return Ok((limit, SEARCHED.to_owned())) };
    let (mut good, mut bad) = (value, limit);
    for _ in 0..HALVINGS {
        let middle = middle(good, bad);
        if middle == good || middle == bad {
            break;
        }
        match misses(middle)? {
            None => good = middle,
            Some(row) => (bad, by) = (middle, row),
        }
    }
    Ok((good, by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_experiments::ranges;

    /// Goal: the ranges in the repository are those of the numbers that files have now. Method: both lists; what the ranges are
    /// is checked by a test that takes minutes (`iofair-lab fit`).
    #[test]
    fn every_free_number_has_its_range() {
        let text = |file: &str, number: &str, value: &str| format!("{file} {number} = {value}");
        let wanted = targets();
        let wanted =
            wanted.iter().map(|Target { file, number }| text(file, &number.key, &number.value));
        let ranges = ranges::all();
        let there = ranges.iter().map(|range| text(&range.file, &range.number, &range.value));
        let (wanted, there): (BTreeSet<_>, BTreeSet<_>) = (wanted.collect(), there.collect());
        let missing: Vec<_> = wanted.symmetric_difference(&there).collect();
        assert!(missing.is_empty(), "run make ranges: {missing:#?}");
        for range in ranges {
            let inside = match &range.open {
                Open::Any(any) => any.iter().any(|value| is_same(value, &range.value)),
                Open::Between(low, high, unit) => measure(&range.value)
                    .is_some_and(|(value, own)| own == *unit && (*low..=*high).contains(&value)),
            };
            assert!(inside, "{range:?}");
        }
    }

    /// Goal: the end of a range is the last value that holds, to 4 %. Method: rows that miss above or below a number.
    #[test]
    fn ends_are_found() {
        let row = |miss: bool| Ok(miss.then(|| "row".to_owned()));
        let (high, by) = end(1_000, 2_000, &|value| row(value > 1_300)).unwrap();
        assert!((1_250..=1_300).contains(&high) && by == "row", "{high}");
        let (low, _) = end(1_000, 500, &|value| row(value < 900)).unwrap();
        assert!((900..=940).contains(&low), "{low}");
        assert_eq!(end(4, 8, &|_| row(false)), Ok((8, SEARCHED.to_owned())));
        assert_eq!(end(4, 8, &|value| row(value > 4)), Ok((4, "row".to_owned())));
    }

    /// Goal: a range ends where a row leaves its band. Method: one row about a drive that reads 4 KiB in a known time.
    #[test]
    fn rows_end_a_range() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        let path = folder.join("survey-2019/alone.toml");
        let simulate = |scenario: &Scenario| {
            let mut short = scenario.clone();
            (short.time, short.ramp) = (scenario.time / 20, scenario.ramp / 20);
            iofair_simulator::simulate(&short).map_err(|error| error.to_string())
        };
        let rows = rows(&path, &simulate).expect("the file is there");
        assert!(rows.claims.len() > 1 && rows.files.contains("machines/plextor-2018"), "{rows:?}");
        let target = |key: &str| {
            let is_wanted = |target: &Target| {
                target.file == "machines/plextor-2018" && target.number.key == key
            };
            targets().into_iter().find(is_wanted).expect(key)
        };
        let got = |key: &str| range(&target(key), std::slice::from_ref(&rows), &simulate).unwrap();
        let Open::Between(low, high, Unit::Time) = got("turnaround").open else { panic!() };
        assert!(low < 11_000 && (11_000..22_000).contains(&high), "{low} to {high} ns");
        assert_eq!(got("produce_window").high_by, SEARCHED, "nobody writes");
    }
}
