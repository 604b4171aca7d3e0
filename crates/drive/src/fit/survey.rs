//! What the survey's rows say about a drive, before anything is fitted.

use super::limits::Limits;
use super::plan::{FILL, FILL_SHORT, FLUSH, LONE_READS, READS, SMALL, STEADY};
use super::row::{Quantity, Record};

/// A lone small read that takes longer comes from a disk.
const DISK_NANOS: f64 = 2_000_000.0;
/// A change of the rate by this factor is a cliff.
pub(super) const CLIFF: f64 = 1.12;
/// Windows that must agree.
const WINDOWS_MIN: usize = 4;
/// Where nothing was written.
const WRITE_RATE_UNKNOWN: u64 = 100_000_000;

/// The rate of writes from a number of written bytes on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Regime {
    /// Written bytes at its start.
    pub from: u64,
    /// Bytes a second.
    pub rate: f64,
}

/// What the survey found.
#[derive(Clone, PartialEq, Debug)]
pub struct Survey {
    /// Whether the drive has an arm.
    pub is_disk: bool,
    /// Mean latency of a lone small read in nanoseconds, and its standard deviation.
    pub lone_read: (f64, f64),
    /// Bytes a second of sequential reads.
    pub read_rate: f64,
    /// Mean latency of a flush with an empty cache, in nanoseconds.
    pub flush: f64,
    /// Rates of sequential writes, in order; empty if nothing was written.
    pub regimes: Vec<Regime>,
    /// Bytes a second of sequential writes after the first cliff.
    pub write_rate: u64,
    /// Bytes that fill the write cache.
    pub fill_bytes: u64,
    /// Limits on I/Os and bytes a second, as far as reads show them.
    pub limits: Option<Limits>,
}

/// Splits a series into stretches of constant rate. A single slow window, such as one during which something else used the
/// drive, is no stretch.
pub(super) fn regimes(series: &[(u64, u64)]) -> Vec<Regime> {
    let mut windows = Vec::new();
    let mut before = (0, 0);
    for (bytes, at) in series {
        let time = at.saturating_sub(before.1).max(1);
        windows.push((before.0, (bytes - before.0) as f64 * 1e9 / time as f64));
        before = (*bytes, *at);
    }
    let mean = |from: usize, to: usize| {
        // Of times, not of rates: a window has the same bytes as any other.
        let part = &windows[from..to.min(windows.len())];
        part.len() as f64 / part.iter().map(|it| 1.0 / it.1).sum::<f64>().max(1e-12)
    };
    let mut found: Vec<Regime> = Vec::new();
    let mut begun = 0;
    let mut at = WINDOWS_MIN;
    while at + WINDOWS_MIN <= windows.len() {
        let (here, next) = (mean(begun, at), mean(at, at + WINDOWS_MIN));
        let change = (here / next).max(next / here);
        // It is a cliff only if the windows after these agree with them.
        let after = mean(at + WINDOWS_MIN, at + 3 * WINDOWS_MIN);
        let stays =
            at + 2 * WINDOWS_MIN > windows.len() || (after / next).max(next / after) < CLIFF;
        if change > CLIFF && stays {
            found.push(Regime { from: windows[begun].0, rate: here });
            begun = at;
            at += WINDOWS_MIN;
        } else {
            at += 1;
        }
    }
    if !windows.is_empty() {
        found.push(Regime { from: windows[begun].0, rate: mean(begun, windows.len()) });
    }
    found
}

impl Survey {
    /// From what the survey's rows gave; rows that did not run are missing. `None` without reads.
    pub fn new(records: &[Record]) -> Option<Self> {
        let of = |name: &str| records.iter().find(|it| it.row == name);
        let number = |name: &str, quantity| of(name).and_then(|it| it.number(quantity));
        let deviation = number(LONE_READS, Quantity::Deviation(0)).unwrap_or(0.0);
        let lone_read = (number(LONE_READS, Quantity::Latency(0))?, deviation);
        let read_rate = number(READS, Quantity::Rate(0))?;
        let flush = number(FLUSH, Quantity::Flush(0)).unwrap_or(0.0);
        let series = |name| of(name).map(|it| regimes(&it.series)).unwrap_or_default();
        let (long, short) = (series(FILL), series(FILL_SHORT));
        let mut regimes = long;
        // A small cache is full within the first window of the long series.
        if let (true, Some(steady)) =
            (regimes.len() == 1 && short.len() > 1, regimes.first().copied())
            && short[0].rate > steady.rate * CLIFF
        {
            regimes = vec![short[0], Regime { from: short[1].from, ..steady }];
        }
        let limits = Limits::of(records);
        // Writes that the limits of a volume slow down say nothing about a cache.
        if let Some(limited) = limits.and_then(|it| it.limited(&of(FILL)?.series)) {
            regimes = limited;
        }
        let cliff = regimes.get(1);
        let steady = number(STEADY, Quantity::Rate(0)).map_or(WRITE_RATE_UNKNOWN, |it| it as u64);
        let write_rate = cliff.or(regimes.first()).map_or(steady, |it| it.rate as u64);
        let fill_bytes = cliff.map_or(0, |it| it.from + it.from / 2 + 256 * SMALL);
        Some(Self {
            is_disk: lone_read.0 > DISK_NANOS,
            lone_read,
            read_rate,
            flush,
            regimes,
            write_rate,
            fill_bytes,
            limits,
        })
    }
    /// Bytes of the write cache, as far as they show in the first cliff: it fills at the difference of the rates.
    pub(super) fn cache_bytes(&self) -> Option<f64> {
        let [first, second, ..] = self.regimes.as_slice() else { return None };
        Some(second.from as f64 * (1.0 - second.rate / first.rate)).filter(|it| *it > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(parts: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (mut all, mut bytes, mut at) = (Vec::new(), 0, 0);
        for (windows, nanos) in parts {
            for _ in 0..*windows {
                bytes += 1 << 20;
                at += nanos;
                all.push((bytes, at));
            }
        }
        all
    }

    /// Goal: cliffs are found where they are, and a single slow window is none. Method: made-up series.
    #[test]
    fn cliffs_are_found() {
        let found = regimes(&series(&[(20, 1_000_000), (40, 2_000_000), (40, 6_000_000)]));
        let from: Vec<u64> = found.iter().map(|it| it.from >> 20).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(from[1].abs_diff(20) <= 3 && from[2].abs_diff(60) <= 3, "{from:?}");
        let found = regimes(&series(&[(30, 1_000_000), (1, 4_000_000), (30, 1_000_000)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(regimes(&[]).is_empty());
    }
}
