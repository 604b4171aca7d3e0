//! What the survey's rows say about a drive, before anything is fitted.

use super::limits::Limits;
use super::regimes::{CLIFF, Regime, regimes};
use super::row::{FILL, FILL_SHORT, FLUSH, LONE_READS, Quantity, READS, Record, SMALL, STEADY};

/// A lone small read that takes longer comes from a disk.
const DISK_NANOS: f64 = 2_000_000.0;
/// Where nothing was written.
const WRITE_RATE_UNKNOWN: f64 = 100e6;

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

impl Survey {
    /// From what the survey's rows gave; rows that did not run are missing. `None` without reads.
    pub fn new(records: &[Record]) -> Option<Self> {
        let of = |name: &str| records.iter().find(|record| record.row == name);
        let number = |name: &str, quantity| of(name).and_then(|record| record.number(quantity));
        let deviation = number(LONE_READS, Quantity::Deviation(0)).unwrap_or(0.0);
        let lone_read = (number(LONE_READS, Quantity::Latency(0))?, deviation);
        let read_rate = number(READS, Quantity::Rate(0))?;
        let flush = number(FLUSH, Quantity::Flush(0)).unwrap_or(0.0);
        let series = |name| of(name).map(|record| regimes(&record.series)).unwrap_or_default();
        let (long, short) = (series(FILL), series(FILL_SHORT));
        let mut regimes = long;
        // A small cache is full within the first window of the long series.
        if let (true, Some(steady)) =
            (regimes.len() == 1 && short.len() > 1, regimes.first().copied())
            && short[0].rate > steady.rate * CLIFF
        {
            regimes = vec![short[0], Regime { from: short[1].from, ..steady }];
        }
        let limits = Limits::found(records);
        // Writes that the limits of a volume slow down say nothing about a cache.
        if let Some(limited) = limits.and_then(|limits| limits.limited(&of(FILL)?.series)) {
            regimes = limited;
        }
        let cliff = regimes.get(1);
        let steady = number(STEADY, Quantity::Rate(0)).unwrap_or(WRITE_RATE_UNKNOWN);
        let write_rate = cliff.or(regimes.first()).map_or(steady, |regime| regime.rate) as u64;
        let fill_bytes = cliff.map_or(0, |cliff| cliff.from + cliff.from / 2 + 256 * SMALL);
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
        Some(second.from as f64 * (1.0 - second.rate / first.rate)).filter(|bytes| *bytes > 0.0)
    }
}
