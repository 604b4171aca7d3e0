//! The numbers that the policies' own pages name (`Judgement` in their rows), and those of [`crate::promises`].
//!
//! A sentence there holds no number that was measured but says where it stands, in braces: `A random reader
//! gets {target of none-none [15 readers]}.` [`spots`] finds these places, [`Measured`] is the table
//! `reproduction/measured.csv` with what was measured at each (`make measured`), and [`Measured::fill`] puts the one
//! into the other.

use std::collections::{BTreeMap, BTreeSet};

use iofair_core::policy;
use iofair_experiments::csv_text;
use iofair_experiments::experiment::{Experiment, Reading, Results, Spot};
use iofair_experiments::report::short;
use serde::Serialize;

const HEADER: [&str; 6] = ["experiment", "variant", "stack", "quantity", "value", "unit"];

/// A sentence between its braces, outside and inside in turn.
fn pieces(says: &str) -> Result<Vec<&str>, String> {
    let pieces: Vec<&str> = says.split(['{', '}']).collect();
    let braces: String = says.chars().filter(|c| "{}".contains(*c)).collect();
    let paired = braces.as_bytes().chunks(2).all(|pair| pair == b"{}");
    if paired { Ok(pieces) } else { Err(format!("\"{says}\": a brace without its other")) }
}

/// The experiment of a claim, and the stacks that its command asks for; none: those of the file.
pub fn stacks_asked(claim: &policy::Claim) -> (&'static str, Vec<&'static str>) {
    let (experiment, rest) = claim.shown_by.split_once(' ').unwrap_or((claim.shown_by, ""));
    let stacks = rest.strip_prefix("--stack ").map(|stacks| stacks.split(',').collect());
    (experiment, stacks.unwrap_or_default())
}

/// The experiments of a claim: that which shows it, then others that its numbers are of.
pub fn experiments(claim: &policy::Claim) -> Vec<String> {
    let (first, _) = stacks_asked(claim);
    let mut all: Vec<String> = Vec::new();
    let named = spots(claim).unwrap_or_default().into_iter().map(|spot| spot.experiment);
    for name in [first.to_owned()].into_iter().chain(named) {
        if !name.is_empty() && !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Where the numbers of a claim stand.
pub fn spots(claim: &policy::Claim) -> Result<BTreeSet<Spot>, String> {
    let (experiment, _) = stacks_asked(claim);
    let mut spots = BTreeSet::new();
    for words in pieces(claim.says)?.iter().skip(1).step_by(2) {
        spots.extend(Reading::parse(words, experiment)?.spots().cloned());
    }
    Ok(spots)
}

/// The runs that these places need and `run` does not make: of which experiment and variant, on which stacks.
pub fn missing<'a>(
    run: &[Experiment],
    wanted: &'a BTreeSet<Spot>,
) -> BTreeMap<(&'a str, &'a str), BTreeSet<&'a str>> {
    let mut missing: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let is_run = |spot: &Spot| {
        let mut same = run.iter().filter(|experiment| experiment.name == spot.experiment);
        same.any(|experiment| spot.place(experiment).is_ok())
    };
    for spot in wanted.iter().filter(|spot| !is_run(spot)) {
        let place = (spot.experiment.as_str(), spot.variant.as_str());
        missing.entry(place).or_default().insert(spot.stack.as_str());
    }
    missing
}

/// What is said of a policy.
#[derive(Serialize)]
struct Judgement {
    promises: Vec<Said>,
    fails: Vec<Said>,
}

/// A claim with its numbers, the experiment that shows it, and others that the numbers are of.
#[derive(Serialize)]
struct Said {
    says: String,
    shown_by: &'static str,
    besides: Vec<String>,
}

/// What is said of these policies, with what was measured: the file that `iofair list policies` reads.
pub fn judgements(policies: &[&policy::Row], measured: &Measured) -> String {
    let said = |claim: &policy::Claim| Said {
        says: measured.fill(claim),
        shown_by: claim.shown_by,
        besides: experiments(claim).into_iter().skip(1).collect(),
    };
    let all = |claims: &[policy::Claim]| claims.iter().map(said).collect();
    let judgement = |row: &policy::Row| Judgement {
        promises: all(row.judgement.promises),
        fails: all(row.judgement.fails),
    };
    let judgements: BTreeMap<_, _> =
        policies.iter().map(|row| (row.name, judgement(row))).collect();
    let text = serde_json::to_string_pretty(&judgements).expect("texts and lists are JSON");
    text + "\n"
}

/// What was measured where.
#[derive(Clone, Default, Debug)]
pub struct Measured {
    lines: BTreeMap<Spot, (f64, String)>,
}

impl Measured {
    /// Reads the table.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let mut lines = BTreeMap::new();
        for record in reader.records() {
            let record = record.map_err(|error| error.to_string())?;
            let wrong = || format!("{record:?}: not a line of {}", HEADER.join(","));
            let cells: Vec<&str> = record.iter().collect();
            let Ok([experiment, variant, stack, quantity, value, unit]) = <[_; 6]>::try_from(cells)
            else {
                return Err(wrong());
            };
            let [experiment, variant, stack] = [experiment, variant, stack].map(str::to_owned);
            let spot = Spot { experiment, variant, stack, quantity: quantity.parse()? };
            let value = (value.parse().map_err(|_| wrong())?, unit.to_owned());
            if lines.insert(spot, value).is_some() {
                return Err(format!("{record:?}: twice"));
            }
        }
        Ok(Self { lines })
    }

    /// Reads these numbers off results, among which are the runs of [`missing`].
    pub fn read(results: &[Results], wanted: &BTreeSet<Spot>) -> Result<Self, String> {
        let mut lines = BTreeMap::new();
        for spot in wanted {
            let all = results.iter().filter(|results| results.experiment.name == spot.experiment);
            let mut error = format!("{}: not run", spot.experiment);
            for results in all {
                match spot.place(&results.experiment) {
                    Ok(place) => {
                        let unit = spot.quantity.unit(results.experiment.units).to_owned();
                        lines.insert(spot.clone(), (results.value(&place), unit));
                        break;
                    }
                    Err(other) => error = other,
                }
            }
            if !lines.contains_key(spot) {
                return Err(error);
            }
        }
        Ok(Self { lines })
    }

    /// The table.
    pub fn csv(&self) -> String {
        csv_text(|writer| {
            writer.write_record(HEADER)?;
            for (spot, (value, unit)) in &self.lines {
                let (quantity, value) = (spot.quantity.to_string(), format!("{value:.6}"));
                let names = [&spot.experiment, &spot.variant, &spot.stack];
                writer.write_record(names.into_iter().chain([&quantity, &value, unit]))?;
            }
            Ok(())
        })
    }

    /// The places of all lines.
    pub fn spots(&self) -> impl Iterator<Item = &Spot> {
        self.lines.keys()
    }

    /// What was measured there.
    pub(crate) fn value(&self, spot: &Spot) -> Option<f64> {
        self.lines.get(spot).map(|(value, _)| *value)
    }

    /// The sentence of a claim with its numbers. What is not in the table is called so; the repository's own
    /// tests see to it that all is.
    pub fn fill(&self, claim: &policy::Claim) -> String {
        let (experiment, _) = stacks_asked(claim);
        let Ok(pieces) = pieces(claim.says) else { return claim.says.to_owned() };
        let number = |words: &str| {
            let reading = Reading::parse(words, experiment).ok()?;
            let (value, unit) = self.lines.get(&reading.of)?;
            let Some(to) = &reading.to else { return Some(with_unit(*value, unit)) };
            let (divisor, other) = self.lines.get(to)?;
            (unit == other).then(|| short(value / divisor))
        };
        let filled = pieces.iter().enumerate().map(|(index, piece)| match index % 2 {
            0 => (*piece).to_owned(),
            _ => number(piece).unwrap_or_else(|| "(not measured)".to_owned()),
        });
        filled.collect()
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "ms" if value >= 1000.0 => format!("{} s", short(value / 1000.0)),
        "KiB/s" if value >= 1024.0 => format!("{} MiB/s", short(value / 1024.0)),
        _ => format!("{} {unit}", short(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_experiments::testing::{example, results};

    fn claim(says: &'static str, shown_by: &'static str) -> policy::Claim {
        policy::Claim { says, shown_by }
    }

    fn measured(claim: &policy::Claim) -> Measured {
        Measured::read(&[results(example(), 1)], &spots(claim).expect(claim.says))
            .expect(claim.says)
    }

    /// Goal: a sentence gets the numbers that it names, and no other. Method: the example, whose clients have
    /// 1.024 MB/s a process in KiB/s / 1000; a number, a metric and a quotient, by way of the file.
    #[test]
    fn sentences_are_filled() {
        let says = "It gets {target of again [rand, N=4]}, {reader / {x";
        assert!(pieces(says).is_err() && spots(&claim(says, "")).is_err());
        let claim = claim(
            "It gets {target of again [rand, N=4]}, four {reader: again / none-none [rand, N=4]} and \
             {reader of again [rand, N=4] / target of again [seq, N=1]} in {target max of again [rand, N=4]}.",
            "a/example --stack none-none,again",
        );
        let measured = measured(&claim);
        assert_eq!(measured.spots().count(), 5);
        let read = Measured::parse(&measured.csv()).expect("what was written");
        assert_eq!(read.csv(), measured.csv());
        assert_eq!(read.fill(&claim), "It gets 10 MB/s, four 1 and 4 in 1 ms.");
        assert_eq!(Measured::default().fill(&claim).matches("(not measured)").count(), 4);
    }

    /// Goal: what is read stays as it is. Method: spoiled tables; a place that no result has.
    #[test]
    fn spoiled_tables_are_refused() {
        let good = "experiment,variant,stack,quantity,value,unit\na/b,,none-none,target,1.5,MB/s\n";
        assert!(Measured::parse(good).is_ok());
        for (from, to) in [("1.5", "x"), ("target", "target p98"), (",MB/s", ""), ("a/b", "a/b,c")]
        {
            assert!(Measured::parse(&good.replace(from, to)).is_err(), "{from} {to}");
        }
        let twice = good.to_owned() + "a/b,,none-none,target,1.5,MB/s\n";
        assert!(Measured::parse(&twice).is_err());
        let spots = spots(&claim("{target of again}", "a/other")).expect("well written");
        let error = Measured::read(&[results(example(), 1)], &spots).expect_err("not run");
        assert!(error.contains("a/other: not run"), "{error}");
    }

    /// Goal: only what is not run anyway is run besides. Method: two places of the example, one of its
    /// stacks, one not; and another experiment.
    #[test]
    fn runs_that_are_missing() {
        let says = "{target: again / max-none [rand, N=4]}, {total of again [x] in a/other}";
        let wanted = spots(&claim(says, "a/example")).expect("well written");
        let found = missing(&[example()], &wanted);
        let found: Vec<_> =
            found.into_iter().map(|(place, stacks)| (place, stacks.len())).collect();
        assert_eq!(found, [(("a/example", "rand, N=4"), 1), (("a/other", "x"), 1)]);
        assert_eq!(experiments(&claim(says, "a/example")), ["a/example", "a/other"]);
        assert_eq!(stacks_asked(&claim("", "a/b --stack c,d")), ("a/b", vec!["c", "d"]));
    }

    /// Goal: units that read well. Method: one value a rule.
    #[test]
    fn units_of_sentences() {
        assert_eq!(with_unit(4428.0, "ms"), "4.43 s");
        assert_eq!(with_unit(27.5, "ms"), "27.5 ms");
        assert_eq!(with_unit(11264.0, "KiB/s"), "11 MiB/s");
        assert_eq!(with_unit(0.8, "KiB/s"), "0.8 KiB/s");
    }
}
