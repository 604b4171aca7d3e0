//! Numbers that cannot come from the drive: caches of the host, holes, a device that something else uses.

use std::collections::BTreeSet;

use super::row::{LONE_READS, Measured, Quantity, READS, Record};
use super::survey::Survey;

/// Fastest and slowest drives that exist, with room: bytes a second, and nanoseconds of a lone small read.
pub(super) const RATE: (f64, f64) = (100e3, 200e9);
const LATENCY: (f64, f64) = (2_000.0, 2e9);
/// Deviation of latencies that no drive has by itself, as a part of the mean.
const DEVIATION_MAX: f64 = 3.0;
/// A deeper queue loses at most this part of the rate.
const DEPTH_LOSS: f64 = 0.5;

/// A row whose numbers are left out, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Odd {
    /// The row.
    pub row: String,
    /// The number, what is allowed, and what may be wrong.
    pub why: String,
}

/// Rows without which, or with so many of which, there is no fit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(|odd| format!("{}: {}", odd.row, odd.why)).collect::<Vec<_>>().join("\n  "))]
pub struct Implausible(pub Vec<Odd>);

/// Refuses numbers of which too few can come from a drive: those of the reads from which all rows are planned, or most rows.
pub fn check(survey: &Survey, records: &[Record]) -> Result<(), Implausible> {
    let odd = odd(survey, records);
    let is_planned_from = |odd: &Odd| [LONE_READS, READS].contains(&odd.row.as_str());
    match odd.iter().any(is_planned_from) || odd.len() * 2 > records.len() {
        true => Err(Implausible(odd)),
        false => Ok(()),
    }
}

/// The records whose numbers can come from a drive.
pub(super) fn kept(odd: &[Odd], records: &[Record]) -> Vec<Record> {
    let is_kept = |record: &&Record| odd.iter().all(|odd| odd.row != record.row);
    records.iter().filter(is_kept).cloned().collect()
}

/// All rows whose numbers cannot come from a drive, each with the first reason.
pub(super) fn odd(survey: &Survey, records: &[Record]) -> Vec<Odd> {
    let mut all: Vec<Odd> = lone_read(survey).into_iter().chain(odd_numbers(records)).collect();
    // One request at a time cannot complete more than many.
    let name = "4 KiB random reads, QD32";
    let deep = records.iter().find(|record| record.row == name);
    if let Some(deep) = deep.and_then(|deep| deep.number(Quantity::Latency(0))) {
        let (one, many) = (1.0 / survey.lone_read.0, 32.0 / deep);
        if many < one * DEPTH_LOSS {
            let (one, many) = (one * 1e9, many * 1e9);
            let reason = "something else uses the drive or the machine";
            let why = format!("{many:.0} IOPS, and {one:.0} IOPS one at a time; {reason}");
            all.push(Odd { row: name.to_owned(), why });
        }
    }
    let mut known = BTreeSet::new();
    all.retain(|odd| known.insert(odd.row.clone()));
    all
}

/// The rows without numbers, or with one that no drive has.
pub(super) fn odd_numbers(records: &[Record]) -> Vec<Odd> {
    let of = |record: &Record| {
        let found = record.left_out.clone().or_else(|| record.numbers.iter().find_map(number));
        found.map(|why| Odd { row: record.row.clone(), why })
    };
    records.iter().filter_map(of).collect()
}

/// Why the lone reads of a survey cannot come from a drive.
fn lone_read(survey: &Survey) -> Option<Odd> {
    let (mean, deviation) = survey.lone_read;
    let why = match mean {
        _ if mean < LATENCY.0 => format!(
            "{mean:.0} ns are less than the 2 us of the fastest drives; reads come from a cache of the host, from memory or \
             from a hole"
        ),
        _ if mean > LATENCY.1 => format!(
            "{:.1} s are more than any drive takes; the drive is failing, or something else uses it",
            mean / 1e9
        ),
        _ if deviation > mean * DEVIATION_MAX => format!(
            "{mean:.0} ns on average, and a deviation of {deviation:.0} ns; something else uses the drive or the machine; \
             measure while it is idle"
        ),
        _ => return None,
    };
    Some(Odd { row: LONE_READS.to_owned(), why })
}

/// Why a number cannot come from a drive.
fn number(number: &Measured) -> Option<String> {
    let Measured { row, quantity, value } = number;
    if !value.is_finite() || (*value <= 0.0 && !quantity.starts_with("deviation")) {
        let what = quantity.split(" of ").next().unwrap_or(quantity);
        return Some(format!("its {what} is {value}; nothing was completed"));
    }
    let is_rate = quantity.starts_with("rate");
    if is_rate && !(RATE.0..RATE.1).contains(value) && !row.contains("random") {
        let what = format!("{value:.0} B/s; drives have 100 kB/s to 200 GB/s");
        return Some(format!("{what}; reads come from memory, or the drive is failing"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::row::Measured;
    use super::*;

    fn survey(lone_read: (f64, f64)) -> Survey {
        Survey {
            is_disk: false,
            lone_read,
            read_rate: 5e8,
            flush: 0.0,
            regimes: Vec::new(),
            write_rate: 1,
            fill_bytes: 0,
            limits: None,
        }
    }
    fn measured(row: &str, quantity: &str, value: f64) -> Record {
        let number = Measured { row: row.into(), quantity: quantity.into(), value };
        Record { row: row.into(), numbers: vec![number], ..Record::default() }
    }

    /// Goal: numbers that no drive has are refused with the row and a reason, and those of slow and fast drives are
    /// not. Method: one of each kind.
    #[test]
    fn implausible_measurements_are_refused() {
        let good = measured("256 KiB sequential reads, QD8", "rate of 0", 5e8);
        for lone_read in [(10_000.0, 1_000.0), (2e7, 5e6), (160_000.0, 20_000.0)] {
            check(&survey(lone_read), std::slice::from_ref(&good)).unwrap();
        }
        let refused =
            |lone_read, more: Record| check(&survey(lone_read), &[more]).unwrap_err().to_string();
        assert!(refused((800.0, 10.0), good.clone()).contains("cache of the host"));
        assert!(refused((3e9, 1.0), good.clone()).contains("failing"));
        assert!(refused((1e5, 9e5), good.clone()).contains("idle"));
        let wild = measured("256 KiB sequential reads, QD8", "rate of 0", 9e11);
        assert!(refused((1e5, 1e4), wild).contains("200 GB/s"));
        let nothing = measured("a row", "latency of 0", 0.0);
        assert!(refused((1e5, 1e4), nothing).contains("nothing was completed"));
        let slow = measured("4 KiB random reads, QD32", "latency of 0", 1e8);
        assert!(refused((1e5, 1e4), slow).contains("one at a time"));
        // One odd row of three is left out; the survey's, and most of the rows, are not.
        let odd = measured("flush alone", "flush of 0", 0.0);
        let other = measured("256 KiB sequential reads, QD32", "rate of 0", 5e8);
        let all = [good, odd.clone(), other.clone()];
        check(&survey((1e5, 1e4)), &all).unwrap();
        let left_out = super::odd(&survey((1e5, 1e4)), &all);
        assert_eq!(left_out.len(), 1);
        assert_eq!(kept(&left_out, &all), [all[0].clone(), other.clone()]);
        let wild = measured("256 KiB sequential reads, QD8", "rate of 0", 9e11);
        let all = check(&survey((1e5, 1e4)), &[wild, odd, other]).unwrap_err().to_string();
        assert!(all.contains("200 GB/s") && all.contains("flush alone: its flush is 0"), "{all}");
    }
}
