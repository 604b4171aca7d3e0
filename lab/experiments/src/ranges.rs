//! Ranges: what a number that no measured row decides may be besides its value.
//!
//! `iofair-lab fit` computes them (`iofair_reproduction::fit`) and writes `profiles/machines/ranges.csv`, which is part of the program. A draw
//! takes a value from each ([`crate::experiment::Numbers`]).

use iofair_core::unit::{parse_bytes, parse_rate, parse_time};
use iofair_drive::random::Random;
use serde::Serialize;

use crate::csv_text;

const TEXT: &str = include_str!("ranges.csv");
/// How often a range is halved before a number is drawn from the rest: 256 parts of equal ratio.
const HALVINGS: u32 = 8;

/// The range of a number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Range {
    /// Its file below `profiles`, without `.toml`.
    pub file: String,
    /// Its key.
    pub number: String,
    /// Its value there. The range is about no other value.
    pub value: String,
    /// What it may be.
    pub open: Open,
    /// Why it is not less: a row that would miss its band, or [`SEARCHED`]; of choices, why others are none.
    pub low_by: String,
    /// Why it is not more.
    pub high_by: String,
}

/// Instead of a row: the end of what is searched.
pub const SEARCHED: &str = "searched";

/// What a number may be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Open {
    /// From the first to the last.
    Between(u64, u64, Unit),
    /// One of these.
    Any(Vec<String>),
}

/// The unit of a number, which is part of its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A count or percent.
    Plain,
    /// Nanoseconds.
    Time,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    Rate,
}

impl Unit {
    /// As it is written.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Time => "ns",
            Self::Bytes => "B",
            Self::Rate => "B/s",
        }
    }
    /// A number with this unit.
    pub fn text(self, number: u64) -> String {
        format!("{number}{}", self.suffix())
    }
}

/// A number with its unit; `None` for words.
pub fn measure(text: &str) -> Option<(u64, Unit)> {
    if let Ok(plain) = text.parse() {
        return Some((plain, Unit::Plain));
    }
    let rate = || parse_rate(text).ok().map(|rate| (rate, Unit::Rate));
    let bytes = || parse_bytes(text).ok().map(|bytes| (bytes, Unit::Bytes));
    parse_time(text).ok().map(|time| (time.0, Unit::Time)).or_else(rate).or_else(bytes)
}

impl Open {
    /// A value from the range. Each ratio is equally likely.
    pub fn draw(&self, random: &mut Random) -> String {
        let (mut low, mut high, unit) = match self {
            Self::Any(any) => return any[random.below(any.len() as u64) as usize].clone(),
            Self::Between(low, high, unit) => (*low, *high, *unit),
        };
        // In integers, so that a draw is the same on every machine: the middle of a ratio is a root.
        for _ in 0..HALVINGS {
            let middle = middle(low, high);
            match random.chance(50) {
                true => high = middle,
                false => low = middle,
            }
        }
        unit.text(random.between(low, high))
    }
    fn words(&self) -> [String; 3] {
        match self {
            Self::Any(any) => [String::new(), String::new(), any.join("|")],
            Self::Between(low, high, unit) => [unit.text(*low), unit.text(*high), String::new()],
        }
    }
    fn parse(low: &str, high: &str, any: &str) -> Option<Self> {
        if !any.is_empty() {
            return Some(Self::Any(any.split('|').map(str::to_owned).collect()));
        }
        let ((low, unit), (high, other)) = (measure(low)?, measure(high)?);
        (unit == other && low <= high).then_some(Self::Between(low, high, unit))
    }
}

/// The middle of a ratio.
pub fn middle(low: u64, high: u64) -> u64 {
    (u128::from(low) * u128::from(high)).isqrt() as u64
}

const HEAD: [&str; 8] = ["file", "number", "value", "low", "high", "any", "low_by", "high_by"];

/// The file.
pub fn write(ranges: &[Range]) -> String {
    csv_text(|writer| {
        writer.write_record(HEAD)?;
        for Range { file, number, value, open, low_by, high_by } in ranges {
            let [low, high, any] = &open.words();
            writer.write_record([file, number, value, low, high, any, low_by, high_by])?;
        }
        Ok(())
    })
}

/// Reads such a file.
///
/// # Errors
///
/// What is not one, with its line.
pub fn read(text: &str) -> Result<Vec<Range>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    if reader.headers().map_err(|error| error.to_string())? != HEAD.as_slice() {
        return Err(format!("the first line is not {}", HEAD.join(",")));
    }
    let mut ranges = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        let open = Open::parse(&record[3], &record[4], &record[5])
            .ok_or_else(|| format!("line {line}: {} to {} is no range", &record[3], &record[4]))?;
        let [file, number, value, low_by, high_by] =
            [0, 1, 2, 6, 7].map(|at| record[at].to_owned());
        ranges.push(Range { file, number, value, open, low_by, high_by });
    }
    Ok(ranges)
}

/// Those that are part of the program.
pub fn all() -> Vec<Range> {
    read(TEXT).expect("a test reads them")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the file says what it said when it is read again, and mistakes have a line. Method: one of each kind.
    #[test]
    fn files_are_read_again() {
        let range = |open, low_by: &str| Range {
            file: "drives/a".into(),
            number: "model.hdd.heads".into(),
            value: "4".into(),
            open,
            low_by: low_by.into(),
            high_by: SEARCHED.into(),
        };
        let any = Open::Any(vec!["fifo".into(), "round-robin".into()]);
        let ranges =
            vec![range(Open::Between(2, 8, Unit::Plain), "a/b, \"c\""), range(any, SEARCHED)];
        assert_eq!(read(&write(&ranges)), Ok(ranges));
        let broken = format!("{}\na,b,1,9us,3B,,,\n", HEAD.join(","));
        assert!(read(&broken).unwrap_err().contains("line 2: 9us to 3B"));
        assert!(read("a,b\n").is_err());
        let units = ["3", "8us", "4KiB", "70MB/s", "fifo"].map(|text| Some(measure(text)?.1));
        let expected = [Unit::Plain, Unit::Time, Unit::Bytes, Unit::Rate].map(Some);
        assert_eq!((&units[..4], units[4]), (&expected[..], None));
        for (number, unit) in ["3", "8us", "4KiB", "70MB/s"].map(|text| measure(text).unwrap()) {
            assert_eq!(measure(&unit.text(number)), Some((number, unit)), "as it is written");
        }
    }

    /// Goal: draws fill the range, each ratio as often as another. Method: many draws.
    #[test]
    fn draws_fill_the_range() {
        let open = Open::Between(1_000, 16_000, Unit::Time);
        let draw = |stream| measure(&open.draw(&mut Random::new(1, stream))).unwrap();
        let all: Vec<u64> = (0..2_000).map(|stream| draw(stream).0).collect();
        assert!(all.iter().all(|value| (1_000..=16_000).contains(value)));
        let below = all.iter().filter(|value| **value < 4_000).count();
        assert!((900..1_100).contains(&below), "{below} of 2000 are below the middle ratio");
        assert_eq!(draw(0).1, Unit::Time);
        let any = Open::Any(vec!["a".into(), "b".into()]);
        let few: Vec<String> = (0..40).map(|seed| any.draw(&mut Random::new(1, seed))).collect();
        assert!(few.contains(&"a".to_owned()) && few.contains(&"b".to_owned()));
        assert_eq!(Open::Between(7, 7, Unit::Plain).draw(&mut Random::new(1, 1)), "7");
    }
}
