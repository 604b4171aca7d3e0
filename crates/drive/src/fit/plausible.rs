//! Numbers that cannot come from the drive: caches of the host, holes, a device that something else uses.

use super::problem::{Numbers, numbers};
use super::row::{LONE_READS, Record};
use super::survey::Survey;

/// Fastest and slowest drives that exist, with room: bytes a second, and nanoseconds of a lone small read.
pub(super) const RATE: (f64, f64) = (100e3, 200e9);
const LATENCY: (f64, f64) = (2_000.0, 2e9);
/// Deviation of latencies that no drive has by itself, as a part of the mean.
const DEVIATION_MAX: f64 = 3.0;
/// A deeper queue loses at most this part of the rate.
const DEPTH_LOSS: f64 = 0.5;

/// Why numbers are refused.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{row}: {what}; {reason}")]
pub struct Implausible {
    /// The row.
    pub row: String,
    /// The number and what is allowed.
    pub what: String,
    /// What may be wrong.
    pub reason: &'static str,
}

/// Refuses numbers that are too low or too high for a drive.
pub fn check(survey: &Survey, records: &[Record]) -> Result<(), Implausible> {
    let refuse =
        |row: &str, what: String, reason| Err(Implausible { row: row.to_owned(), what, reason });
    let (lone_read, deviation) = survey.lone_read;
    let row = LONE_READS;
    if lone_read < LATENCY.0 {
        let what = format!("{lone_read:.0} ns are less than the 2 us of the fastest drives");
        return refuse(
            row,
            what,
            "reads come from a cache of the host, from memory or from a hole",
        );
    }
    if lone_read > LATENCY.1 {
        let what = format!("{:.1} s are more than any drive takes", lone_read / 1e9);
        return refuse(row, what, "the drive is failing, or something else uses it");
    }
    if deviation > lone_read * DEVIATION_MAX {
        let what = format!("{lone_read:.0} ns on average, and a deviation of {deviation:.0} ns");
        return refuse(
            row,
            what,
            "something else uses the drive or the machine; measure while it is idle",
        );
    }
    let known: Numbers = numbers(records);
    for ((row, quantity), value) in &known {
        let is_rate = quantity.starts_with("rate");
        if !value.is_finite() || (*value <= 0.0 && !quantity.starts_with("deviation")) {
            let what = quantity.split(" of ").next().unwrap_or(quantity);
            return refuse(row, format!("its {what} is {value}"), "nothing was completed");
        }
        if is_rate && !(RATE.0..RATE.1).contains(value) && !row.contains("random") {
            let what = format!("{value:.0} B/s; drives have 100 kB/s to 200 GB/s");
            return refuse(row, what, "reads come from memory, or the drive is failing");
        }
    }
    // One request at a time cannot complete more than many.
    let latency = |depth: u32| {
        let row = format!("4 KiB random reads, QD{depth}");
        known.get(&(row, "latency of 0".to_owned())).copied()
    };
    if let Some(deep) = latency(32) {
        let (one, many) = (1.0 / lone_read, 32.0 / deep);
        if many < one * DEPTH_LOSS {
            let what = format!("{:.0} IOPS, and {:.0} IOPS one at a time", many * 1e9, one * 1e9);
            return refuse(
                "4 KiB random reads, QD32",
                what,
                "something else uses the drive or the machine",
            );
        }
    }
    Ok(())
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
        Record { row: row.into(), numbers: vec![number], series: Vec::new() }
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
    }
}
