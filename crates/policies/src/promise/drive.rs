//! Rates and latency of the drive, measured while it works.
//!
//! - *Rate of reads*: each large read is a sample: the bytes that the drive completed between its dispatch and its
//!   completion. The mean over [`WINDOW`] replaces the estimate at once if it is larger; a smaller one moves it slowly,
//!   and only if there are no writes. Small reads count only if their mean is larger.
//! - *Rate of writes*: the largest rate over windows of [`WINDOW`] of busy time with only writes. A smaller one moves the
//!   estimate slowly, and only if the drive always had enough requests.
//! - *Mixed load*, as long as a rate was never measured without the other side: the time that the other side takes by its
//!   own rate is left out, at most 15/16 of it. The largest rate counts. A rate of reads found in this way is at least the
//!   rate of writes, as on any flash. One of writes comes from sums over some windows, which fade, since a window in which
//!   the drive's cache takes writes and one in which it is written out show different rates; it is at most [`RATE`] while
//!   no reads or no writes are queued at times, since nobody may use the rest of the time, else at most the rate of reads.
//! - *Requests a second*: the same over windows of mostly small requests; the time that the others take by the rates is
//!   left out, at most 3/4.
//! - *Time of a flush*: the time from the first flush in flight to the completion of the last one, minus the cost of the
//!   data completed meanwhile, divided by the number of flushes; a moving average.
//! - *Latency alone*: the median of the last nine reads that had the drive to themselves. While the drive is shared, one
//!   read is dispatched alone every [`PROBE`], or sooner after one that took 40 % longer or shorter. The drive must have
//!   had time to write out its cache. Until there is such a read, the second shortest of nine beside writes counts, or
//!   5/4 of the shortest time of any large read if that is less.
//!
//! Source of the rate: Cheng et al., "Delivery rate estimation" (IETF draft, 2017).

use alloc::vec::Vec;

use iofair_core::id::RequestId;
use iofair_core::time::{Instant, Nanos};

use super::commands::Commands;
use super::shares::Side;

/// Busy time of one sample.
const WINDOW: Nanos = Nanos::from_millis(20);
/// Interval of reads that have the drive to themselves.
const PROBE: Nanos = Nanos::from_millis(500);
/// Interval after an attempt that failed because the drive did not become idle.
const PROBE_RETRY: Nanos = Nanos::from_millis(100);
/// Requests a second are measured over windows with at most this many bytes per request on average,
pub(super) const SMALL: u64 = 8 << 10;
/// and at least this many requests in flight on average.
const DEEP: u128 = 16;
/// Minimum number of reads in a window for a sample of the rate.
const SAMPLES_MIN: u64 = 4;
/// A piece is what the drive reads in this time.
const PIECE_TIME: Nanos = Nanos::from_micros(100);
/// The limit on writes in flight is based on what the drive writes in this time, or in 5/4 of the shortest time of a write.
const WRITES: Nanos = Nanos::from_millis(1);
/// Assumed rate, in bytes a second, and latency alone before anything was measured.
pub(super) const RATE: u64 = 500_000_000;
const ALONE: Nanos = Nanos::from_micros(200);
/// For this time after a write was completed, the drive may still write out its cache.
const SETTLE: Nanos = Nanos::from_millis(100);
/// Number of samples of the latency alone.
const ALONE_SAMPLES: usize = 9;

/// Measured facts about the drive. Pairs are for reads and writes.
#[derive(Debug)]
pub(super) struct Drive {
    /// Bytes a second.
    rates: [u64; 2],
    /// Whether the rate was measured.
    known: [bool; 2],
    /// Whether the rate was measured without requests of the other side.
    rate_settled: [bool; 2],
    /// Small requests a second, or 0 if not measured yet.
    iops: u64,
    derived: Derived,
    alone: [Nanos; ALONE_SAMPLES],
    alone_count: usize,
    /// The shortest time of a large read, whatever else was in flight.
    shortest: Nanos,
    /// The latency alone: the median of `alone`, or the second shortest.
    latency: Nanos,
    /// Whether the samples in `alone` were taken while nothing was being written.
    settled: bool,
    next_probe: Instant,
    last_write: Option<Instant>,
    /// Writes in flight.
    writing: u32,
    /// Dispatch time of a probe in flight, as long as it has the drive to itself.
    probe_sent: Option<Instant>,
    in_flight: u32,
    /// Up to this time, the present window is accounted.
    at: Instant,
    /// Busy time in the present window, and bytes and requests completed in it.
    busy: Nanos,
    bytes: [u64; 2],
    requests: u64,
    /// Of those, the small ones, and the drive time of the others.
    small: u64,
    others: Nanos,
    /// Drive time of the flushes completed in it.
    flushing: Nanos,
    /// Sum over the window of requests in flight times nanoseconds.
    depth: u128,
    /// Whether the drive had too few requests at some time in the window, or requests were held back.
    short: bool,
    /// Whether no reads or no writes were queued at some time in the window.
    sparse: bool,
    /// Bytes read so far, and bytes written.
    delivered: u64,
    written: u64,
    /// For each request in flight: when it was dispatched, and `delivered` at that time.
    sent: Vec<(Instant, u64)>,
    /// Sum and number of the samples of the rate of reads in this window, in bytes a second: of large and of small reads.
    samples: [(u128, u64); 2],
    mixed: Mixed,
    flushes: Flushes,
    commands: Commands,
}

/// Values that follow from the rates and the latency. They are needed for each request, and divisions are slow.
#[derive(Clone, Copy, Debug)]
struct Derived {
    /// Drive time of one byte, in nanoseconds with [`COST_SHIFT`] fractional bits.
    byte: [u64; 2],
    /// Drive time of one request at least.
    request: Nanos,
    /// Bytes that take as long as a command does anyway; 0 if that can be neglected.
    even: u64,
    /// Bytes that a shorter command counts as.
    least: [u64; 2],
    /// Bytes read in [`PIECE_TIME`].
    piece: u64,
    /// Bytes read in the latency alone: the product of bandwidth and delay.
    product: u64,
    /// Bytes written in [`WRITES`], or in 5/4 of the shortest time of a write.
    writes: u64,
}

const COST_SHIFT: u32 = 24;

impl Derived {
    fn new(rates: [u64; 2], iops: u64, latency: Nanos, commands: &Commands) -> Self {
        let write = commands.shortest(Side::Write);
        let request = if iops == 0 { Nanos::ZERO } else { Nanos::for_units_ceil(1, iops) };
        Self {
            byte: rates.map(|rate| (1_000_000_000 << COST_SHIFT) / rate.max(1)),
            request: request.max(commands.command()),
            even: commands.even_length(),
            least: rates.map(|rate| commands.command().units_floor(rate)),
            piece: PIECE_TIME.units_floor(rates[0]),
            product: latency.units_floor(rates[0]),
            writes: WRITES.max(write + write / 4).units_floor(rates[1]),
        }
    }
}

/// Flushes in flight, and their cost.
#[derive(Clone, Copy, Default, Debug)]
struct Flushes {
    in_flight: u32,
    /// Since when there have been flushes in flight.
    since: Instant,
    /// Flushes completed since then, and the cost of the data completed since then.
    done: u32,
    data: Nanos,
    /// Mean time of a flush, once measured.
    time: Option<Nanos>,
}

/// Busy time with reads and writes, the part of it that reads and flushes take by their own rates, and the bytes written: sums
/// that fade.
#[derive(Clone, Copy, Default, Debug)]
struct Mixed {
    time: Nanos,
    others: Nanos,
    written: u64,
}

impl Mixed {
    /// Adds a window, and returns the rate of writes in the time that the others left, in bytes a second.
    fn add(&mut self, time: Nanos, others: Nanos, written: u64) -> u64 {
        self.time = self.time - self.time / 16 + time;
        self.others = self.others - self.others / 16 + others;
        self.written = self.written - self.written / 16 + written;
        rate(self.written, self.time.saturating_sub(self.others).max(self.time / 16))
    }
}

impl Default for Drive {
    fn default() -> Self {
        Self {
            rates: [RATE; 2],
            known: [false; 2],
            rate_settled: [false; 2],
            iops: 0,
            derived: Derived::new([RATE; 2], 0, ALONE, &Commands::default()),
            alone: [ALONE; ALONE_SAMPLES],
            alone_count: 0,
            shortest: Nanos(u64::MAX),
            latency: ALONE,
            next_probe: Instant::ZERO,
            last_write: None,
            writing: 0,
            settled: false,
            probe_sent: None,
            in_flight: 0,
            at: Instant::ZERO,
            busy: Nanos::ZERO,
            bytes: [0; 2],
            requests: 0,
            small: 0,
            others: Nanos::ZERO,
            flushing: Nanos::ZERO,
            depth: 0,
            short: false,
            sparse: false,
            delivered: 0,
            written: 0,
            sent: Vec::new(),
            samples: [(0, 0); 2],
            mixed: Mixed::default(),
            flushes: Flushes::default(),
            commands: Commands::default(),
        }
    }
}

/// Units a second, rounded down.
fn rate(units: u64, time: Nanos) -> u64 {
    let time = time.0.max(1);
    if let Some(units) = units.checked_mul(1_000_000_000) {
        return units / time;
    }
    let rate = u128::from(units) * 1_000_000_000 / u128::from(time);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

impl Drive {
    /// Rate of one side, in bytes a second.
    pub(super) fn rate(&self, side: Side) -> u64 {
        self.rates[usize::from(side != Side::Read)]
    }
    /// Bytes read and written so far.
    pub(super) fn bytes_moved(&self) -> [u64; 2] {
        [self.delivered, self.written]
    }
    /// Latency of a read that has the drive to itself.
    pub(super) fn latency(&self) -> Nanos {
        self.latency
    }
    /// Drive time of a command.
    pub(super) fn cost(&self, side: Side, bytes: u64) -> Nanos {
        if side == Side::Flush
            && let Some(time) = self.flushes.time
        {
            return time;
        }
        let byte = self.derived.byte[usize::from(side != Side::Read)];
        let by_bytes = (u128::from(bytes) * u128::from(byte)) >> COST_SHIFT;
        let by_bytes = Nanos(u64::try_from(by_bytes).unwrap_or(u64::MAX));
        by_bytes.max(self.derived.request)
    }
    /// Drive time of this number of reads with this many bytes in all.
    pub(super) fn time_of(&self, reads: u64, bytes: u64) -> Nanos {
        let by_bytes = self.cost(Side::Read, bytes);
        by_bytes.max(Nanos(self.derived.request.0.saturating_mul(reads)))
    }
    /// Bytes that the drive reads in [`PIECE_TIME`].
    pub(super) fn in_piece_time(&self) -> u64 {
        self.derived.piece
    }
    /// Whether the drive completes so few commands that each of them may take it a certain time whatever its length.
    pub(super) fn is_slow(&self) -> bool {
        self.commands.is_slow()
    }
    /// Pieces are never longer only to measure what that gives.
    pub(super) fn keep_pieces(&mut self) {
        self.commands.keep_pieces();
        self.derive();
    }
    /// Bytes that take the drive as long as a command does whatever its length; 0 if that can be neglected.
    pub(super) fn even_length(&self) -> u64 {
        self.derived.even
    }
    /// Bytes that a command counts as: at least those that the drive moves in the time of any command.
    pub(super) fn counts(&self, side: Side, bytes: u64) -> u64 {
        bytes.max(self.derived.least[usize::from(side != Side::Read)])
    }
    /// Bytes that the drive reads in the latency alone.
    pub(super) fn product(&self) -> u64 {
        self.derived.product
    }
    /// Bytes that the drive writes in [`WRITES`].
    pub(super) fn writes(&self) -> u64 {
        self.derived.writes
    }
    /// A probe was given up; the next one follows after [`PROBE_RETRY`].
    pub(super) fn skip_probe(&mut self, now: Instant) {
        self.next_probe = now + PROBE_RETRY;
    }
    /// Whether writes are in flight, or the drive may still write out its cache.
    pub(super) fn writes_recent(&self, now: Instant) -> bool {
        self.writing > 0 || self.last_write.is_some_and(|at| now.since(at) < SETTLE)
    }
    /// Whether the next read should be a probe. Not while there are writes, unless the latency alone was never measured
    /// without them.
    pub(super) fn wants_probe(&self, now: Instant) -> bool {
        now >= self.next_probe && (!self.settled || !self.writes_recent(now))
    }
    /// Whether a probe may go before a write whose turn it is.
    pub(super) fn probes_before_writes(&self) -> bool {
        !self.settled
    }
    /// The drive could serve more requests than it has: none are queued, or they are held back.
    pub(super) fn on_short(&mut self) {
        self.short = true;
    }

    /// No reads or no writes are queued: more of the drive's time may be left than the other side takes.
    pub(super) fn on_sparse(&mut self) {
        self.sparse = true;
    }

    /// Accounts busy time and depth up to `now`.
    fn account(&mut self, now: Instant) {
        if self.in_flight > 0 {
            let passed = now.since(self.at);
            self.busy += passed;
            self.commands.on_busy(passed);
            self.depth += u128::from(passed.0) * u128::from(self.in_flight);
        }
        self.at = self.at.max(now);
    }
    /// A command is dispatched; `probe`: a read that is to have the drive to itself.
    pub(super) fn on_dispatch(&mut self, now: Instant, id: RequestId, side: Side, probe: bool) {
        self.account(now);
        if side == Side::Flush {
            if self.flushes.in_flight == 0 {
                (self.flushes.since, self.flushes.data, self.flushes.done) = (now, Nanos::ZERO, 0);
            }
            self.flushes.in_flight += 1;
            self.commands.on_flush();
        }
        let place = id.0 as usize;
        if place >= self.sent.len() {
            self.sent.resize(place + 1, (now, 0));
        }
        self.sent[place] = (now, self.delivered);
        self.probe_sent = (self.in_flight == 0 && probe).then_some(now);
        self.in_flight += 1;
        self.writing += u32::from(side == Side::Write);
    }
    /// A command was completed; `bytes` is zero for a command that moves no data.
    pub(super) fn on_complete(&mut self, now: Instant, id: RequestId, side: Side, bytes: u64) {
        self.account(now);
        self.in_flight -= 1;
        self.watch_flushes(now, side, bytes);
        self.writing -= u32::from(side == Side::Write);
        if side != Side::Read {
            self.last_write = Some(now);
        }
        if side == Side::Read {
            self.delivered += bytes;
            let (at, before) = self.sent[id.0 as usize];
            if bytes > SMALL {
                self.shortest = self.shortest.min(now.since(at));
            }
            let samples = &mut self.samples[usize::from(bytes <= SMALL)];
            samples.0 += u128::from(rate(self.delivered - before, now.since(at)));
            samples.1 += 1;
        }
        if let Some(sent) = self.probe_sent.take()
            && bytes > 0
        {
            self.sample_latency(now, now.since(sent));
        }
        if side == Side::Write {
            self.written += bytes;
        }
        self.bytes[usize::from(side != Side::Read)] += bytes;
        self.requests += 1;
        match bytes {
            0 => {}
            1..=SMALL => self.small += 1,
            _ => self.others += self.cost(side, bytes),
        }
        if side == Side::Flush {
            self.flushing += self.cost(side, 0);
            self.commands.on_flush();
        } else if bytes > 0 {
            let took = now.since(self.sent[id.0 as usize].0);
            if self.commands.on_complete(side, bytes, took) {
                self.derive();
            }
        }
        if self.busy >= WINDOW {
            self.end_window();
        }
    }
    fn derive(&mut self) {
        self.derived = Derived::new(self.rates, self.iops, self.latency, &self.commands);
    }
    fn watch_flushes(&mut self, now: Instant, side: Side, bytes: u64) {
        if side != Side::Flush {
            if self.flushes.in_flight > 0 {
                self.flushes.data += self.cost(side, bytes);
            }
            return;
        }
        let flushes = &mut self.flushes;
        flushes.in_flight -= 1;
        flushes.done += 1;
        if flushes.in_flight == 0 {
            let lost = now.since(flushes.since).saturating_sub(flushes.data);
            let sample = Nanos(lost.0 / u64::from(flushes.done));
            let time = flushes.time.unwrap_or(sample);
            flushes.time = Some(Nanos(time.0 - time.0 / 4 + sample.0 / 4));
        }
    }
    fn sample_latency(&mut self, now: Instant, latency: Nanos) {
        let settled = !self.writes_recent(now);
        if settled && !self.settled {
            (self.settled, self.alone_count) = (true, 0);
        }
        let known = self.latency;
        let is_other = latency > known + known / 5 * 2 || known > latency + latency / 5 * 2;
        let soon = self.alone_count < ALONE_SAMPLES || is_other;
        let pause = match () {
            () if !settled => PROBE_RETRY,
            () if soon => WINDOW,
            () => PROBE,
        };
        self.next_probe = now + pause;
        self.alone[self.alone_count % ALONE_SAMPLES] = latency;
        self.alone_count += 1;
        let known = self.alone_count.min(ALONE_SAMPLES);
        let mut sorted = self.alone;
        sorted[..known].sort_unstable();
        self.latency = sorted[if self.settled { known / 2 } else { known / ALONE_SAMPLES }];
        if !self.settled {
            self.latency =
                self.latency.min(Nanos(self.shortest.0.saturating_add(self.shortest.0 / 4)));
        }
        self.derive();
    }
    /// Estimates the rate of one side without the other one: leaves `other`, the drive time that the other side took, out
    /// of `time`. The estimate is at most [`RATE`], unless `sample` itself is larger.
    fn without_other(sample: u64, time: Nanos, other: Nanos) -> u64 {
        let left = time.saturating_sub(other).max(time / 16);
        let alone = u128::from(sample) * u128::from(time.0) / u128::from(left.0.max(1));
        sample.max(u64::try_from(alone).unwrap_or(u64::MAX).min(RATE))
    }
    /// Learns a rate that was measured without requests of the other side.
    fn learn_alone(&mut self, side: usize, sample: u64, short: bool) {
        self.known[side] &= core::mem::replace(&mut self.rate_settled[side], true);
        self.learn(side, sample, short);
    }
    fn learn(&mut self, side: usize, sample: u64, short: bool) {
        let rate = self.rates[side];
        self.rates[side] = match () {
            () if !self.known[side] || sample > rate => sample,
            () if short => rate,
            () => rate - (rate - sample) / 16,
        };
        self.known[side] = true;
    }
    fn end_window(&mut self) {
        let time = core::mem::take(&mut self.busy);
        let bytes = core::mem::take(&mut self.bytes);
        let requests = core::mem::take(&mut self.requests);
        let small_requests = core::mem::take(&mut self.small);
        let others = core::mem::take(&mut self.others);
        let flushing = core::mem::take(&mut self.flushing);
        let depth = core::mem::take(&mut self.depth) / u128::from(time.0.max(1));
        let short = core::mem::take(&mut self.short);
        let sparse = core::mem::take(&mut self.sparse);
        let all = bytes[0] + bytes[1];
        let a_second = |units: u64| rate(units, time);
        let [large, small] = core::mem::take(&mut self.samples).map(|(sum, count)| {
            let mean = sum / u128::from(count.max(1));
            (count >= SAMPLES_MIN).then_some(u64::try_from(mean).unwrap_or(u64::MAX).max(1))
        });
        // Small requests that took a part of the time make large ones seem slower.
        let beside_small = self.derived.request.0.saturating_mul(small_requests) > time.0 / 8;
        if let Some(sample) = large {
            match (self.writes_recent(self.at), self.rate_settled[0]) {
                (false, _) => self.learn_alone(0, sample, beside_small),
                (true, true) => self.learn(0, sample, true),
                (true, false) => {
                    let sample =
                        Self::without_other(sample, time, self.cost(Side::Write, bytes[1]));
                    // Flash is read at least as fast as it is written.
                    let least = if self.known[1] { self.rates[1].min(RATE) } else { 0 };
                    let sample = sample.max(least);
                    self.learn(0, sample, true);
                }
            }
        }
        // Small reads give a lower bound of the rate.
        if let Some(sample) = small.filter(|sample| *sample > self.rates[0]) {
            self.learn(0, sample, true);
        }
        // At most a twentieth of the bytes were read.
        if bytes[1] > 0 && bytes[1] >= all - all / 20 {
            self.learn_alone(1, a_second(bytes[1]).max(1), short);
        } else if bytes[1] > all / 20 && !self.rate_settled[1] {
            let read = self.cost(Side::Read, bytes[0]) + flushing;
            let beside = self.mixed.add(time, read, bytes[1]);
            let own = a_second(bytes[1]);
            // Flash is read at least as fast as it is written.
            let most = if sparse { RATE } else { self.rates[0].max(RATE) };
            self.learn(1, beside.min(most).max(own).max(1), true);
        }
        if small_requests > requests / 2 && depth >= DEEP {
            let sample = rate(small_requests, time.saturating_sub(others).max(time / 4));
            if sample > self.iops {
                self.iops = sample;
            } else if !short && small_requests == requests && bytes.contains(&0) {
                self.iops -= (self.iops - sample) / 16;
            }
        }
        self.derive();
    }
}
