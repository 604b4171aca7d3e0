//! Where the fit of published rows begins: what they say directly, and what drives of a class have otherwise.

use iofair_core::request::Operation::{self, Read, Write};
use iofair_core::time::Nanos;

use super::problem::nanos;
use super::published::Published;
use super::row::{Quantity, Row, SMALL};
use crate::measure::{Order, Stream};
use crate::profile::{self, Model, ProfileError};
use crate::ssd::Parameters;

/// No SATA drive reads faster.
const SATA_MAX: f64 = 600e6;
/// All flash units together read faster than the link carries, at least by this factor.
const UNITS_OVER_LINK: f64 = 1.1;
/// Largest page: two planes of 64 KiB.
const PAGE_MAX: u64 = 128 << 10;
/// At saturation, the 95th percentile of a read is 1.5 times the mean and that of a write 2.2 times, in the median of 42
/// submissions: about this many reads wait in flash units, and collection works at once for this part of the writes in flight.
const READS_IN_UNITS: u64 = 560;
const COLLECTED_AT_ONCE: f64 = 2.2;
/// Programs of a drive are this many times as fast as what it sustains at random, where no row says how fast they are: 3.9 to 6.3
/// times in the five data-centre drives of SSD-iq (its `devices.csv`).
const PROGRAMS_OVER_SUSTAINED: f64 = 5.0;
/// The part of the time in which the firmware is busy at the highest rate, at most.
const FIRMWARE_BUSY: f64 = 0.6;

/// Keys whose numbers are read off.
const READ_OFF: [&str; 4] = ["units", "page", "firmware-write", "ftl.in-order"];
/// Streams of a row with an offered rate.
const BESIDE: usize = 4;
/// A drive whose reads take this part of a write beyond the knee, at least, keeps them in order.
const IN_ORDER: f64 = 0.5;
/// Nanoseconds of a write that waits for room in the write cache, at least.
const WAITS_FOR_ROOM: f64 = 1e6;

/// A drive to begin with, and the parameters that the rows decide.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) base: Parameters,
    /// The longest time of the firmware for a write.
    firmware_most: Nanos,
    /// Keys that the rows decide, and which of them are fitted; the others are read off.
    pub(super) keys: Vec<&'static str>,
    pub(super) fits: Vec<&'static str>,
}

fn random(operation: Operation) -> impl Fn(&Stream) -> bool {
    move |stream| {
        (stream.operation, stream.block, stream.order) == (operation, SMALL, Order::Random)
    }
}
fn sequential(operation: Operation) -> impl Fn(&Stream) -> bool {
    move |stream| {
        stream.operation == operation && stream.block > SMALL && stream.order == Order::Sequential
    }
}

/// Pages that collection copies for each page of uniformly random writes, with this part of spare flash: blocks are collected
/// when a part `valid` of their pages is valid, and `valid = exp(-(1 + spare) (1 - valid))` (Desnoyers 2012).
fn copies(spare: f64) -> f64 {
    let valid = (0..200).fold(0.5, |valid, _| f64::exp(-(1.0 + spare) * (1.0 - valid)));
    valid / (1.0 - valid)
}

impl Published {
    /// The class of a drive with such rows, where nobody says it.
    pub fn class(&self) -> &'static str {
        match self.rate(|stream| stream.operation == Read) {
            Some(rate) if rate < SATA_MAX => "sata",
            None => "datacentre",
            Some(_) => "consumer",
        }
    }
    /// The highest rate of a stream among the rows that are fitted.
    fn rate(&self, of: impl Fn(&Stream) -> bool) -> Option<f64> {
        let rows = self.rows.iter().zip(&self.records).filter(|(row, _)| !row.held_out);
        let streams = rows.flat_map(|(row, record)| {
            let streams = row.load.streams.iter().enumerate();
            streams.map(move |(index, stream)| (stream, record.number(Quantity::Rate(index))))
        });
        let rates = streams.filter(|(stream, _)| of(stream)).filter_map(|(_, rate)| rate);
        rates.reduce(f64::max)
    }
    /// Bytes a second of the slower direction of small random requests, as many as possible.
    pub fn worst_case(&self) -> u64 {
        let rates = [Read, Write].into_iter().filter_map(|of| self.rate(random(of)));
        rates.reduce(f64::min).map_or(1, |rate| rate as u64)
    }
    /// The lowest median latency of a read, among the rows that are fitted.
    fn lone_read(&self) -> Option<f64> {
        let rows = self.rows.iter().zip(&self.records).filter(|(row, _)| !row.held_out);
        let medians = rows.filter_map(|(row, record)| {
            let streams = row.load.streams.iter();
            let read = streams.enumerate().find(|(_, stream)| {
                stream.operation == Read && stream.block == SMALL && stream.depth < 64
            })?;
            record.number(Quantity::Percentile(read.0, 500_000))
        });
        medians.reduce(f64::min)
    }
    /// Whether a row that is fitted has a percentile of its first stream, and such a stream.
    fn has(&self, part: u32, of: impl Fn(&Stream) -> bool) -> bool {
        let mut rows = self.rows.iter().zip(&self.records);
        let quantity = Quantity::Percentile(0, part);
        rows.any(|(row, record)| {
            !row.held_out && of(&row.load.streams[0]) && record.number(quantity).is_some()
        })
    }

    /// A drive of this class that has about these numbers.
    ///
    /// # Errors
    /// A class without defaults.
    pub(super) fn start(&self, class: &str) -> Result<Start, ProfileError> {
        let capacity = format!("{}B", self.capacity);
        let numbers = [("capacity", capacity.as_str())];
        let known = if self.capacity > 0 { &numbers[..] } else { &[] };
        let Model::Ssd(base) = profile::of_class(class, known)?.model else {
            unreachable!("drives with an arm have no class of defaults")
        };
        let (keys, fits) = (Vec::new(), Vec::new());
        let mut start = Start { base, firmware_most: Nanos::MAX, keys, fits };
        start.reads(self);
        start.writes(self);
        start.beside(self);
        start.fits = start.keys.clone();
        start.fits.retain(|key| !READ_OFF.contains(key));
        Ok(start)
    }
}

impl Start {
    fn reads(&mut self, rows: &Published) {
        let base = &mut self.base;
        let (small, large) = (rows.rate(random(Read)), rows.rate(sequential(Read)));
        let streams = large.or(small).unwrap_or(0.0);
        base.link = if large.is_some() { streams as u64 } else { base.link };
        let lone = rows.lone_read();
        if let Some(lone) = lone {
            let other = base.firmware_read.0 as f64 + SMALL as f64 * 1e9 / base.link as f64;
            base.page_read = nanos((lone - other).max(lone * 0.5));
            self.keys.push("page-read");
        }
        if let Some(small) = small {
            // All units are busy.
            let turns = small / SMALL as f64;
            base.units = ((turns * base.page_read.0 as f64 / 1e9).round() as u32).max(1);
            base.page_read = nanos(f64::from(base.units) * 1e9 / turns);
            base.firmware_read = base.firmware_read.min(nanos(FIRMWARE_BUSY * 1e9 / turns));
            base.link = base.link.max((small * 1.05) as u64);
            while turns * (base.page as f64) < streams * UNITS_OVER_LINK && base.page < PAGE_MAX {
                base.page *= 2;
            }
            base.read_buffer = READS_IN_UNITS * SMALL;
            self.keys.extend(["units", "page"]);
            if lone.is_none() {
                self.keys.push("page-read");
            }
            if rows.has(950_000, random(Read)) {
                self.keys.push("read-buffer");
            }
        }
        if large.is_some() {
            self.keys.push("link");
        }
    }
    fn writes(&mut self, rows: &Published) {
        let (small, large) = (rows.rate(random(Write)), rows.rate(sequential(Write)));
        let (base, keys) = (&mut self.base, &mut self.keys);
        match (large, small) {
            (None, None) => return,
            (None, Some(small)) => base.drain = (small * PROGRAMS_OVER_SUSTAINED) as u64,
            (Some(large), small) => base.drain = large.max(small.unwrap_or(0.0)) as u64,
        }
        keys.push("drain");
        let (Some(small), units) = (small, f64::from(base.units) * base.page as f64) else {
            return;
        };
        let turns = small / SMALL as f64;
        self.firmware_most = nanos(FIRMWARE_BUSY * 1e9 / turns);
        base.firmware_write = base.firmware_write.min(self.firmware_most);
        keys.push("firmware-write");
        let Some(ftl) = &mut base.ftl else { return };
        let copies = copies(ftl.over_provisioning as f64 / base.capacity as f64);
        let more = units * 1e9 * (1.0 / small - 1.0 / base.drain as f64);
        ftl.copy = nanos((more / copies).max(1000.0));
        keys.push("ftl.copy");
        if large.is_some() {
            let part = 1.0 - small / base.drain as f64;
            let in_flight = 2048.0 * SMALL as f64 / small;
            ftl.batch = nanos(COLLECTED_AT_ONCE * part * in_flight * 1e9);
            if rows.has(950_000, random(Write)) {
                keys.push("ftl.batch");
            }
        }
    }
    /// Percentiles beside an offered rate of writes.
    fn beside(&mut self, published: &Published) {
        let is_offered = |row: &&Row| !row.held_out && row.load.streams.len() == BESIDE;
        let rows: Vec<&Row> = published.rows.iter().filter(is_offered).collect();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
        let number = |row: &Row, stream, part| {
            let record = published.records.iter().find(|record| record.row == row.name)?;
            record.number(Quantity::Percentile(stream, part))
        };
        let base = &mut self.base;
        if let Some(write) = number(first, 1, 500_000) {
            base.firmware_write = nanos(write - SMALL as f64 * 1e9 / base.link as f64)
                .max(Nanos(500))
                .min(self.firmware_most);
        }
        let Some(ftl) = &mut base.ftl else { return };
        if let (Some(read), Some(write)) = (number(last, 0, 900_000), number(last, 1, 900_000))
            && write > WAITS_FOR_ROOM
        {
            ftl.in_order = read > write * IN_ORDER;
            self.keys.push("ftl.in-order");
        }
        let middle = rows[rows.len() / 2];
        if let (Some(suspend), Some(from), Some(to)) =
            (&mut ftl.suspend, number(middle, 0, 900_000), number(middle, 0, 999_000))
        {
            // The tail of an exponential distribution, from one in ten to one in a thousand.
            suspend.mean = nanos((to - from) / f64::ln(100.0));
            suspend.mean_full = suspend.mean;
            self.keys.extend(["ftl.suspend.least", "ftl.suspend.mean", "ftl.suspend.mean-full"]);
        }
        self.keys.extend(["write-cache", "ftl.batch"]);
    }
}
