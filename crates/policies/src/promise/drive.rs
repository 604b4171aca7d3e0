//! What the drive can do, measured while it works.
//!
//! - *Rate of reads*: each large read tells what the drive completed between its dispatch and its completion. The mean over
//!   a window of [`WINDOW`] counts at once if it is larger than what is known, else by and by, unless
//!   there are writes. Small reads count only if their mean is larger.
//! - *Rate of writes*: the largest over windows of [`WINDOW`] of busy time with writes only. A smaller one counts by and by,
//!   and only if the drive was not short of requests.
//! - *Either beside the other*, while it was not measured without it: the time that the other side takes by its own rate is left
//!   out, 15/16 of the window at most. A rate of reads found that way is at least that of writes, as on any flash.
//! - *Requests a second*: the same over windows of small requests.
//! - *Time of a flush*: what the drive did not do because of it. From the first flush in flight to the last one's
//!   completion, less what the data completed meanwhile costs, divided by the flushes; a mean over some.
//! - *Latency alone*: the median of the last nine reads that had the drive to themselves. While the drive is shared, one
//!   read is sent alone every [`PROBE`], and soon again after one that took two fifths longer or shorter. The drive must
//!   have had time to write what it has cached. Until there was such a read, the second shortest of nine beside writes counts,
//!   or 5/4 of the shortest time of any large read if that is less.
//!
//! Source of the rate: Cheng et al., "Delivery rate estimation" (IETF draft, 2017).

use alloc::vec::Vec;

use iofair_core::request::RequestId;
use iofair_core::time::{Instant, Nanos};

use super::shares::Side;

/// Busy time that makes a sample.
const WINDOW: Nanos = Nanos::from_millis(20);
/// How often a read is sent alone.
const PROBE: Nanos = Nanos::from_millis(500);
/// How soon again, after no read came to be alone.
const PROBE_RETRY: Nanos = Nanos::from_millis(100);
/// Requests of at most this many bytes on average tell how many a second the drive can do.
pub(super) const SMALL: u64 = 8 << 10;
/// With fewer in flight on average they do not.
const DEEP: u128 = 16;
/// Large reads in a window that tell of the rate.
const SAMPLES_MIN: u64 = 4;
/// What it has at once is counted in what it reads and writes in these times.
const PIECE_TIME: Nanos = Nanos::from_micros(100);
const WRITES: Nanos = Nanos::from_millis(1);
/// Before anything is known.
const RATE: u64 = 500_000_000;
const ALONE: Nanos = Nanos::from_micros(200);
/// A drive may write what it has cached for so long.
const SETTLE: Nanos = Nanos::from_millis(100);
/// Samples of the latency alone.
const ALONE_SAMPLES: usize = 9;

/// A drive at work.
#[derive(Debug)]
pub(super) struct Drive {
    rates: [u64; 2],
    known: [bool; 2],
    /// Were they measured without requests of the other side?
    rate_settled: [bool; 2],
    iops: u64,
    derived: Derived,
    alone: [Nanos; ALONE_SAMPLES],
    alone_count: usize,
    /// The shortest time of a large read, whatever else the drive had.
    shortest: Nanos,
    /// The median of `alone`, or the second shortest.
    latency: Nanos,
    /// Did the drive have no writes left while those of `alone` were read?
    settled: bool,
    next_probe: Instant,
    last_write: Option<Instant>,
    /// Writes in flight.
    writing: u32,
    /// The read that has the drive to itself since when, if it still has.
    lone: Option<Instant>,
    in_flight: u32,
    at: Instant,
    /// The present window.
    busy: Nanos,
    bytes: [u64; 2],
    requests: u64,
    /// Requests in flight times nanoseconds.
    depth: u128,
    /// Was the drive ever short of requests in it, or were some held back?
    short: bool,
    /// Bytes read so far, and what they were when each request in flight was sent.
    delivered: u64,
    written: u64,
    sent: Vec<(Instant, u64)>,
    /// Sum and number of the samples of the rate of reads in this window, bytes a second: of large ones, and small ones.
    samples: [(u128, u64); 2],
    flushes: Flushes,
}

/// What follows from the rates and the latency, and is asked for with each request: divisions take long.
#[derive(Clone, Copy, Debug)]
struct Derived {
    /// Of one byte, in nanoseconds with [`COST_SHIFT`] bits behind the point, and of one request.
    byte: [u64; 2],
    request: Nanos,
    /// Bytes read in the time of a piece, and in that of a read that has the drive to itself; bytes written in a millisecond.
    piece: u64,
    product: u64,
    writes: u64,
}

const COST_SHIFT: u32 = 24;

impl Derived {
    fn of(rates: [u64; 2], iops: u64, latency: Nanos) -> Self {
        Self {
            byte: rates.map(|rate| (1_000_000_000 << COST_SHIFT) / rate.max(1)),
            request: if iops == 0 { Nanos::ZERO } else { Nanos::for_units_ceil(1, iops) },
            piece: PIECE_TIME.units_floor(rates[0]),
            product: latency.units_floor(rates[0]),
            writes: WRITES.units_floor(rates[1]),
        }
    }
}

/// Flushes in flight, and what they cost.
#[derive(Clone, Copy, Default, Debug)]
struct Flushes {
    in_flight: u32,
    since: Instant,
    /// Completed since then, and the cost of the data completed since then.
    done: u32,
    data: Nanos,
    /// Of one flush, once known.
    time: Option<Nanos>,
}

impl Default for Drive {
    fn default() -> Self {
        Self {
            rates: [RATE; 2],
            known: [false; 2],
            rate_settled: [false; 2],
            iops: 0,
            derived: Derived::of([RATE; 2], 0, ALONE),
            alone: [ALONE; ALONE_SAMPLES],
            alone_count: 0,
            shortest: Nanos(u64::MAX),
            latency: ALONE,
            next_probe: Instant::ZERO,
            last_write: None,
            writing: 0,
            settled: false,
            lone: None,
            in_flight: 0,
            at: Instant::ZERO,
            busy: Nanos::ZERO,
            bytes: [0; 2],
            requests: 0,
            depth: 0,
            short: false,
            delivered: 0,
            written: 0,
            sent: Vec::new(),
            samples: [(0, 0); 2],
            flushes: Flushes::default(),
        }
    }
}

/// So many in this time, a second.
fn rate(units: u64, time: Nanos) -> u64 {
    let time = time.0.max(1);
    if let Some(units) = units.checked_mul(1_000_000_000) {
        return units / time;
    }
    let rate = u128::from(units) * 1_000_000_000 / u128::from(time);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

impl Drive {
    /// Bytes a second.
    pub(super) fn rate(&self, side: Side) -> u64 {
        self.rates[usize::from(side != Side::Read)]
    }
    /// Bytes read and written so far.
    pub(super) fn bytes_moved(&self) -> [u64; 2] {
        [self.delivered, self.written]
    }
    /// Of a read that has the drive to itself.
    pub(super) fn latency(&self) -> Nanos {
        self.latency
    }
    /// The drive's time for a command.
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
    /// The drive's time for so many reads with so many bytes.
    pub(super) fn time_of(&self, reads: u64, bytes: u64) -> Nanos {
        let by_bytes = self.cost(Side::Read, bytes);
        by_bytes.max(Nanos(self.derived.request.0.saturating_mul(reads)))
    }
    /// Bytes that it reads in [`PIECE_TIME`].
    pub(super) fn in_piece_time(&self) -> u64 {
        self.derived.piece
    }
    /// Bytes that it reads in the time of a read that has it to itself.
    pub(super) fn product(&self) -> u64 {
        self.derived.product
    }
    /// Bytes that it writes in [`WRITES`].
    pub(super) fn writes(&self) -> u64 {
        self.derived.writes
    }
    /// No read came to be alone.
    pub(super) fn skip_probe(&mut self, now: Instant) {
        self.next_probe = now + PROBE_RETRY;
    }
    /// Has the drive written just now, or does it perhaps still?
    pub(super) fn writes_about(&self, now: Instant) -> bool {
        self.writing > 0 || self.last_write.is_some_and(|at| now.since(at) < SETTLE)
    }
    /// Should the next read have the drive to itself? Not while the drive may be busy with writes that it has completed,
    /// unless nothing better is known.
    pub(super) fn wants_probe(&self, now: Instant) -> bool {
        now >= self.next_probe && (!self.settled || !self.writes_about(now))
    }
    /// May such a read go before a write whose turn it is?
    pub(super) fn probes_before_writes(&self) -> bool {
        !self.settled
    }
    /// Nothing waits for the drive although it could take more, or something is held back although it could.
    pub(super) fn on_short(&mut self) {
        self.short = true;
    }

    fn pass(&mut self, now: Instant) {
        if self.in_flight > 0 {
            let passed = now.since(self.at);
            self.busy += passed;
            self.depth += u128::from(passed.0) * u128::from(self.in_flight);
        }
        self.at = self.at.max(now);
    }
    /// `probe`: a read that is to be alone.
    pub(super) fn on_dispatch(&mut self, now: Instant, id: RequestId, side: Side, probe: bool) {
        self.pass(now);
        if side == Side::Flush {
            if self.flushes.in_flight == 0 {
                (self.flushes.since, self.flushes.data, self.flushes.done) = (now, Nanos::ZERO, 0);
            }
            self.flushes.in_flight += 1;
        }
        let place = id.0 as usize;
        if place >= self.sent.len() {
            self.sent.resize(place + 1, (now, 0));
        }
        self.sent[place] = (now, self.delivered);
        self.lone = (self.in_flight == 0 && probe).then_some(now);
        self.in_flight += 1;
        self.writing += u32::from(side == Side::Write);
    }
    /// `bytes` is zero for what carries no data.
    pub(super) fn on_complete(&mut self, now: Instant, id: RequestId, side: Side, bytes: u64) {
        self.pass(now);
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
        if let Some(sent) = self.lone.take()
            && bytes > 0
        {
            self.sample_latency(now, now.since(sent));
        }
        if side == Side::Write {
            self.written += bytes;
        }
        self.bytes[usize::from(side != Side::Read)] += bytes;
        self.requests += 1;
        if self.busy >= WINDOW {
            self.end_window();
        }
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
        let settled = !self.writes_about(now);
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
        self.derived = Derived::of(self.rates, self.iops, self.latency);
    }
    /// The rate of one side without the other side: `other`, the drive time that the other side took, is left out of `time`.
    /// At most [`RATE`], the first guess, as long as this side was never measured alone.
    fn without_other(sample: u64, time: Nanos, other: Nanos) -> u64 {
        let left = time.saturating_sub(other).max(time / 16);
        let alone = u128::from(sample) * u128::from(time.0) / u128::from(left.0.max(1));
        sample.max(u64::try_from(alone).unwrap_or(u64::MAX).min(RATE))
    }
    /// The rate of one side, measured without the other.
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
        let depth = core::mem::take(&mut self.depth) / u128::from(time.0.max(1));
        let short = core::mem::take(&mut self.short);
        let all = bytes[0] + bytes[1];
        let a_second = |units: u64| rate(units, time);
        let [large, small] = core::mem::take(&mut self.samples).map(|(sum, count)| {
            let mean = sum / u128::from(count.max(1));
            (count >= SAMPLES_MIN).then_some(u64::try_from(mean).unwrap_or(u64::MAX).max(1))
        });
        if let Some(sample) = large {
            match (self.writes_about(self.at), self.rate_settled[0]) {
                (false, _) => self.learn_alone(0, sample, false),
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
        // Small reads show that the drive does at least so much.
        if let Some(sample) = small.filter(|sample| *sample > self.rates[0]) {
            self.learn(0, sample, true);
        }
        // Hardly anything of the other direction.
        if bytes[1] > 0 && bytes[1] >= all - all / 20 {
            self.learn_alone(1, a_second(bytes[1]).max(1), short);
        } else if bytes[1] > all / 20 && !self.rate_settled[1] {
            let sample =
                Self::without_other(a_second(bytes[1]), time, self.cost(Side::Read, bytes[0]));
            self.learn(1, sample, true);
        }
        if requests > 0 && all / requests <= SMALL && depth >= DEEP {
            let sample = a_second(requests);
            if sample > self.iops {
                self.iops = sample;
            } else if !short {
                self.iops -= (self.iops - sample) / 16;
            }
        }
        self.derived = Derived::of(self.rates, self.iops, self.latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Goal: the latency alone is known although writers never pause, and better once they do. Method: writes of which one is
    /// completed each millisecond, and reads beside them, of which two in three wait for the drive's writes; then reads alone.
    #[test]
    fn the_latency_is_measured_beside_writes() {
        let mut drive = Drive::default();
        let mut read = |ms: u64, micros: u64, write: bool| {
            if write {
                drive.on_dispatch(Instant(ms * MS), RequestId(0), Side::Write, false);
                drive.on_complete(Instant(ms * MS), RequestId(0), Side::Write, 32 << 10);
            }
            if !drive.wants_probe(Instant(ms * MS)) {
                return false;
            }
            drive.on_dispatch(Instant(ms * MS), RequestId(0), Side::Read, true);
            drive.on_complete(
                Instant(ms * MS + micros * 1_000),
                RequestId(0),
                Side::Read,
                32 << 10,
            );
            true
        };
        let beside =
            (0..2_000).filter(|ms| read(*ms, if ms % 3 == 0 { 500 } else { 5_000 }, true)).count();
        assert!((18..=21).contains(&beside), "every 100 ms: {beside}");
        (2_200..2_400).for_each(|ms| _ = read(ms, 300, false));
        (2_400..4_000).for_each(|ms| assert!(!read(ms, 700, true), "one alone is known"));
        assert_eq!(drive.latency(), Nanos::from_micros(300));
    }

    /// Goal: a cache that is always full is not taken for the drive's latency. Method: reads that wait 20 ms for the drive's writes
    /// whenever one is to be alone, and one of 300 us; then reads while a write that is not completed holds them up.
    #[test]
    fn what_writes_add_is_not_the_latency() {
        let (mut drive, id) = (Drive::default(), RequestId(0));
        let mut read = |ms: u64, micros: u64, probe: bool| {
            drive.on_dispatch(Instant(ms * MS), id, Side::Write, false);
            drive.on_complete(Instant(ms * MS), id, Side::Write, 4096);
            let done = Instant(ms * MS + micros * 1_000);
            drive.on_dispatch(Instant(ms * MS), id, Side::Read, probe);
            drive.on_complete(done, id, Side::Read, 32 << 10);
            drive.latency()
        };
        read(1, 300, false);
        (1..20).for_each(|count| _ = read(count * 100, 20_000, true));
        assert_eq!(read(2_000, 20_000, true), Nanos::from_micros(375));
        drive.on_dispatch(Instant(3_000 * MS), RequestId(1), Side::Write, false);
        assert!(drive.writes_about(Instant(9_000 * MS)), "it has one");
    }

    /// Goal: reads that are known only beside writes are not taken for all that the drive can do. Method: a drive of 100 MB/s for
    /// writes, nine tenths of which it does for them; then reads alone.
    #[test]
    fn the_rate_of_reads_leaves_out_writes() {
        let mut drive = Drive::default();
        let mut one = |ms: u64, micros: u64, side: Side, bytes: u64| {
            drive.on_dispatch(Instant(ms * MS), RequestId(0), side, false);
            drive.on_complete(Instant(ms * MS + micros * 1_000), RequestId(0), side, bytes);
            drive.rate(Side::Read)
        };
        (0..100).for_each(|ms| _ = one(ms, 1_000, Side::Write, 100_000));
        let beside: Vec<u64> = (100..300)
            .map(|ms| match ms % 4 {
                0 => one(ms, 1_000, Side::Read, 30_000),
                _ => one(ms, 1_000, Side::Write, 120_000),
            })
            .collect();
        let rate = beside.last().copied().unwrap();
        assert!(rate > 100_000_000 && rate <= RATE, "30 MB/s in a tenth of the time: {rate}");
        let alone = (500..1_500).map(|ms| one(ms, 1_000, Side::Read, 60_000)).last().unwrap();
        assert!((55_000_000..70_000_000).contains(&alone), "{alone}");
    }
}
