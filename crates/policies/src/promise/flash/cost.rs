//! The cost of a command: how much of the drive's time it takes.
//!
//! ```text
//! cost = command[operation] + byte[operation] * length        of a read or a write
//! cost = mean time of a flush, less the costs of what is completed meanwhile
//! ```
//!
//! A read that has the drive to itself takes longer than its cost: the latency of the drive, and the cost of its bytes. The latency is
//! the shortest that was seen.
//!
//! In 20 ms of busy time, the costs of what was completed should add up to 20 ms. If they do not, each price changes in proportion
//! to what it contributed (the least change, each relative to the price, that makes the sum right). Prices fall at once, since
//! the drive has shown that it can do more. They rise only if at least three commands were in flight for most of the time, since
//! the drive waits for commands otherwise; and slowly, since the scheduler may be what holds the commands back.
//!
//! Source: Kaczmarz (1937), as the normalised least-mean-squares filter, for the projection; Gulati et al., "PARDA" (2009), and
//! Linux's io.cost for costs per command and per byte.

use iofair_core::time::{Instant, Nanos};

use super::shares::Side;
use crate::parts::scale::scale;

/// Busy time of one sample: some hundred commands of a flash drive, and short beside a second.
const SAMPLE: Nanos = Nanos::from_millis(20);
/// Commands in flight with which a drive is busy: one on its link, one in its flash, one on its way.
const BUSY: u32 = 3;
/// Prices rise by at most 1/16 of the difference.
const RISE: i128 = 16;
/// Prices before anything was measured: a byte as on a SATA SSD (500 MB/s), a command 2 us, less than any drive needs.
const BYTE: u64 = 2 << SHIFT;
const COMMAND: u64 = 2000 << SHIFT;
/// Fractional bits of prices, in nanoseconds.
const SHIFT: u32 = 16;

/// The shortest read before one was completed. With each sample it counts for this part more, so that a drive may become slower
/// within a minute.
const SHORTEST: Nanos = Nanos::from_millis(1);
const SHORTEST_GROWS: u64 = 1024;
/// No price is higher (17 s), and no cost counts for more (18 minutes), so that no product overflows.
const PRICE_MAX: i128 = 1 << 50;
const COST_MAX: i128 = 1 << 40;

/// Numbers of what was completed: reads, bytes read, writes, bytes written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Work {
    amounts: [u64; 4],
    /// Commands that read, and that write: a request that goes in pieces is several.
    commands: [u64; 2],
    /// Drive time of flushes.
    flushes: Nanos,
}

impl Work {
    pub(super) fn since(&self, before: &Self) -> Self {
        let amounts = core::array::from_fn(|i| self.amounts[i] - before.amounts[i]);
        let commands = [0, 1].map(|side| self.commands[side] - before.commands[side]);
        Self { amounts, commands, flushes: self.flushes - before.flushes }
    }
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, amount) in self.amounts.iter_mut().zip(other.amounts) {
            *sum += amount;
        }
        self.commands = [0, 1].map(|side| self.commands[side] + other.commands[side]);
        self.flushes += other.flushes;
    }
    fn fade(&mut self) {
        self.amounts.iter_mut().for_each(|amount| *amount -= *amount / 8);
    }
}

/// Prices, and what they are learned from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Of a read, a byte read, a write, a byte written.
    prices: [u64; 4],
    flush: Nanos,
    /// The shortest time of a read, and its bytes.
    shortest: (Nanos, u64),
    in_flight: u32,
    /// Up to when busy time is counted; busy time of the sample, and that with [`BUSY`] commands.
    at: Instant,
    busy: Nanos,
    deep: Nanos,
    /// All that was completed, and before the sample.
    done: Work,
    before: Work,
    /// What was completed recently: 1/8 of it fades with each sample.
    recent: Work,
    /// Flushes in flight, since when, what was completed before, and how many flushes since.
    flushing: u32,
    flush_since: Instant,
    flush_done: Work,
    flushed: u32,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            prices: [COMMAND, BYTE, COMMAND, BYTE],
            flush: Nanos::ZERO,
            shortest: (SHORTEST, 0),
            in_flight: 0,
            at: Instant::ZERO,
            busy: Nanos::ZERO,
            deep: Nanos::ZERO,
            done: Work::default(),
            before: Work::default(),
            recent: Work::default(),
            flushing: 0,
            flush_since: Instant::ZERO,
            flush_done: Work::default(),
            flushed: 0,
        }
    }
}

impl Costs {
    /// Drive time of a command.
    pub(super) fn cost(&self, side: Side, bytes: u64) -> Nanos {
        let [command, byte] = match side {
            Side::Flush => return self.flush,
            Side::Read => [self.prices[0], self.prices[1]],
            Side::Write => [self.prices[2], self.prices[3]],
        };
        Self::of(command, byte, bytes)
    }
    fn of(command: u64, byte: u64, bytes: u64) -> Nanos {
        let cost = u128::from(byte) * u128::from(bytes) + u128::from(command);
        let cost = u64::try_from(cost >> SHIFT).unwrap_or(u64::MAX);
        Nanos(cost.max(1))
    }
    /// Time of a command that has the drive to itself.
    pub(super) fn alone(&self, side: Side, bytes: u64) -> Nanos {
        let cost = self.cost(side, bytes);
        match side {
            Side::Read => {
                let (took, of) = self.shortest;
                let [of, bytes] = [of, bytes].map(|bytes| Self::of(0, self.prices[1], bytes));
                // As long as prices are wrong, its bytes alone may cost more than the read took.
                cost.max(took.saturating_sub(of).max(took / 4) + bytes)
            }
            _ => cost,
        }
    }
    /// Drive time of the reads and writes in some work.
    pub(super) fn price(&self, work: &Work) -> Nanos {
        let parts = self.prices.iter().zip(work.amounts);
        let sum: u128 = parts.map(|(price, amount)| u128::from(*price) * u128::from(amount)).sum();
        Nanos(u64::try_from(sum >> SHIFT).unwrap_or(u64::MAX))
    }
    /// All that was completed so far.
    pub(super) fn done(&self) -> &Work {
        &self.done
    }
    /// Bytes that are read in this time.
    pub(super) fn bytes_read_in(&self, time: Nanos) -> u64 {
        time.0.saturating_mul(1 << SHIFT) / self.prices[1].max(1)
    }
    /// The length of a read whose bytes cost as much as its command, up to a megabyte.
    pub(super) fn even(&self) -> u64 {
        (self.prices[0] / self.prices[1].max(1)).min(1 << 20)
    }

    fn pass(&mut self, now: Instant) {
        let passed = now.since(self.at);
        if self.in_flight > 0 {
            self.busy += passed;
        }
        if self.in_flight >= BUSY {
            self.deep += passed;
        }
        self.at = self.at.max(now);
    }
    pub(super) fn on_dispatch(&mut self, now: Instant, side: Side) {
        self.pass(now);
        self.in_flight += 1;
        if side == Side::Flush {
            self.flushing += 1;
            if self.flushing == 1 {
                (self.flush_since, self.flushed, self.flush_done) = (now, 0, self.done);
            }
        }
    }
    /// A command was completed; `is_last`: all of its request was. Trims and zeroes move no data. If prices have changed: the drive time of the
    /// same work by the prices before and after.
    pub(super) fn on_complete(
        &mut self,
        now: Instant,
        side: Side,
        (bytes, is_last): (u64, bool),
        took: Nanos,
    ) -> Option<[Nanos; 2]> {
        self.pass(now);
        if side == Side::Read {
            self.shortest = self.shortest.min((took, bytes));
        }
        self.in_flight -= 1;
        match side {
            Side::Flush => self.end_flush(now),
            side => {
                let first = 2 * side as usize;
                self.done.amounts[first] += u64::from(is_last);
                self.done.commands[side as usize] += 1;
                self.done.amounts[first + 1] += bytes;
            }
        }
        if self.busy < SAMPLE {
            return None;
        }
        let work = self.done.since(&self.before);
        self.recent.fade();
        self.recent.add(&work);
        let before = self.price(&self.recent);
        self.learn(&work);
        self.bound_reads();
        (self.before, self.busy, self.deep) = (self.done, Nanos::ZERO, Nanos::ZERO);
        self.shortest.0 += self.shortest.0 / SHORTEST_GROWS;
        Some([before, self.price(&self.recent)])
    }
    fn end_flush(&mut self, now: Instant) {
        self.flushing -= 1;
        self.flushed += 1;
        if self.flushing > 0 {
            return;
        }
        // What the drive did meanwhile is no cost of the flush.
        let meanwhile = self.price(&self.done.since(&self.flush_done));
        let took = now.since(self.flush_since).saturating_sub(meanwhile);
        self.done.flushes += took;
        let each = took / u64::from(self.flushed);
        self.flush = if self.flush == Nanos::ZERO { each } else { self.flush * 7 / 8 + each / 8 };
    }
    /// A read costs at most the shortest time that one took: what writes cost is otherwise not told apart from what reads cost.
    fn bound_reads(&mut self) {
        let (took, bytes) = self.shortest;
        let cost = self.cost(Side::Read, bytes);
        if cost > took {
            for price in &mut self.prices[..2] {
                *price = scale(*price, took.0, cost.0).max(1);
            }
        }
    }
    fn learn(&mut self, work: &Work) {
        let time = self.busy.saturating_sub(work.flushes);
        let costs: [i128; 4] = core::array::from_fn(|i| {
            let amount = if i % 2 == 0 { work.commands[i / 2] } else { work.amounts[i] };
            let cost = (i128::from(self.prices[i]) * i128::from(amount)) >> SHIFT;
            cost.min(COST_MAX)
        });
        let sum: i128 = costs.iter().sum();
        let squares: i128 = costs.iter().map(|cost| cost * cost).sum();
        let mut error = (i128::from(time.0) - sum).clamp(-COST_MAX, COST_MAX);
        if squares == 0 || error > 0 && self.deep < self.busy / 8 * 7 {
            return;
        }
        if error > 0 {
            error /= RISE;
        }
        for (price, cost) in self.prices.iter_mut().zip(costs) {
            let change = i128::from(*price) * error * cost / squares;
            let changed = i128::from(*price) + change;
            // No price changes to less than a sixteenth or more than twice what it was.
            let [least, most] = [*price / 16, price.saturating_mul(2)].map(i128::from);
            *price = u64::try_from(changed.clamp(least.max(1), most.min(PRICE_MAX)))
                .expect("it is clamped");
        }
    }
}
