//! How often each claim holds over many draws, as a CSV file: `reproduction/evidence/robust.csv`.

use crate::csv_text;
use crate::experiment::{Claim, Experiment, Verdict};

/// A claim that holds in fewer percent of its draws does not count as held.
pub const HOLDS_PERCENT: u32 = 80;

/// What the draws of a claim gave.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Draws {
    /// In how many it holds.
    pub held: u32,
    /// Of how many.
    pub of: u32,
    /// 5 % of the draws have less, of those with a number.
    pub p5: f64,
    /// Half have less.
    pub p50: f64,
    /// 95 % have less.
    pub p95: f64,
}

impl Draws {
    /// Of the number of a claim in each draw.
    pub fn for_claim(claim: &Claim, numbers: &[f64]) -> Self {
        let held = numbers.iter().filter(|number| claim.verdict(**number) == Verdict::Holds);
        let mut sorted: Vec<f64> =
            numbers.iter().copied().filter(|number| !number.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |percent: usize| match sorted.len() {
            0 => f64::NAN,
            count => sorted[(count * percent).div_ceil(100).clamp(1, count) - 1],
        };
        let (held, of) = (held.count() as u32, numbers.len() as u32);
        Self { held, of, p5: at(5), p50: at(50), p95: at(95) }
    }
    /// Whether it counts as held.
    pub fn holds(&self) -> bool {
        self.of > 0 && self.held * 100 >= self.of * HOLDS_PERCENT
    }
    /// In words.
    pub fn text(&self) -> String {
        let percent = f64::from(self.held) * 100.0 / f64::from(self.of.max(1));
        // Not rounded up to a limit that it misses.
        format!("holds in {} % of {} draws", percent.floor(), self.of)
    }
}

/// A claim's row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Experiment, variant, words, lower and upper end of the band: what the row is about.
    pub claim: [String; 5],
    /// Its draws.
    pub draws: Draws,
}

/// What a row is about.
pub fn claim_of(experiment: &Experiment, claim: &Claim) -> [String; 5] {
    let end = |end: Option<f64>| end.map(|end| end.to_string()).unwrap_or_default();
    let variant = experiment.variants[claim.places[0].variant].name.clone();
    [experiment.name.clone(), variant, claim.text.clone(), end(claim.low), end(claim.high)]
}

const HEAD: [&str; 10] =
    ["experiment", "variant", "claim", "low", "high", "held", "draws", "p5", "p50", "p95"];

/// The file.
pub fn write(rows: &[Row]) -> String {
    let number = |value: f64| match value.is_nan() {
        true => String::new(),
        false => format!("{value:.6}"),
    };
    csv_text(|writer| {
        writer.write_record(HEAD)?;
        for Row { claim, draws } in rows {
            let counts = [draws.held.to_string(), draws.of.to_string()];
            let numbers = [draws.p5, draws.p50, draws.p95].map(number);
            writer.write_record(claim.iter().chain(&counts).chain(&numbers))?;
        }
        Ok(())
    })
}

/// Reads such a file.
///
/// # Errors
///
/// What is not one, with its line.
pub fn read(text: &str) -> Result<Vec<Row>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    if reader.headers().map_err(|error| error.to_string())? != HEAD.as_slice() {
        return Err(format!("the first line is not {}", HEAD.join(",")));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        let count = |at: usize| {
            record[at].parse().map_err(|_| format!("line {line}: {} is no count", &record[at]))
        };
        let number = |at: usize| match &record[at] {
            "" => Ok(f64::NAN),
            text => text.parse().map_err(|_| format!("line {line}: {text} is no number")),
        };
        let draws = Draws {
            held: count(5)?,
            of: count(6)?,
            p5: number(7)?,
            p50: number(8)?,
            p95: number(9)?,
        };
        rows.push(Row { claim: std::array::from_fn(|at| record[at].to_owned()), draws });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::example;

    /// Goal: counts and quantiles are what they say, and survive the file. Method: a band of 9 to 11, 20 numbers.
    #[test]
    fn draws_are_counted() {
        let experiment = example();
        let claim = &experiment.claims[0];
        let numbers: Vec<f64> = (0..20).map(f64::from).collect();
        let draws = Draws::for_claim(claim, &numbers);
        assert_eq!((draws.held, draws.of), (3, 20), "9, 10 and 11");
        assert_eq!((draws.p5, draws.p50, draws.p95), (0.0, 9.0, 18.0));
        assert!(!draws.holds() && draws.text() == "holds in 15 % of 20 draws");
        let rows = vec![Row { claim: claim_of(&experiment, claim), draws }];
        assert_eq!(read(&write(&rows)), Ok(rows));
        assert!(read("a,b\n").is_err());
        let broken = format!("{}\nx,,t,,,three,20,1,2,3\n", HEAD.join(","));
        assert!(read(&broken).unwrap_err().contains("line 2: three"));
    }

    /// Goal: the limit is 80 %, itself included. Method: 79, 80 and 81 of 100, no draw, a number that is none.
    #[test]
    fn four_of_five_hold() {
        let draws = |held, of| Draws { held, of, p5: 0.0, p50: 0.0, p95: 0.0 };
        let counts = [79, 80, 81].map(|held| draws(held, 100).holds());
        assert_eq!((counts, draws(0, 0).holds()), ([false, true, true], false));
        assert_eq!(draws(159, 200).text(), "holds in 79 % of 200 draws");
        let none = Draws::for_claim(&example().claims[0], &[f64::NAN, 10.0]);
        assert_eq!((none.held, none.of, none.p50), (1, 2, 10.0));
    }
}
