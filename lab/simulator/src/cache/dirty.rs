//! How much may be dirty, and how long a writer pauses: the kernel's `balance_dirty_pages` in brief
//! (Linux `mm/page-writeback.c`; the idea is in Wu, "IO-less dirty throttling", 2010).
//!
//! Below the middle of background and limit no writer pauses. Above it, with `setpoint` half-way from
//! there to the limit,
//!
//! ```text
//! position = 1 + ((setpoint - dirty) / (limit - setpoint))^3, from 0 to 2
//! pause    = bytes / (rate * position), at most 200 ms
//! ```
//!
//! where `rate` is every writer's fair rate, corrected each 200 ms by how much faster than the drive
//! all writers together made pages dirty. Different from the kernel: a writer's time of copying is not deducted from
//! its pause, and the limit is never exceeded: a writer that finds no room waits.

use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::engine::layout::PAGE;

const PAGE_BYTES: u64 = PAGE * 512;
/// The rate is corrected this often.
const INTERVAL: Nanos = Nanos::from_millis(200);
/// Longest pause for each [`STRIDE_MAX`] bytes.
const PAUSE_MAX: Nanos = Nanos::from_millis(200);
/// Most bytes between two checks of the limits.
const STRIDE_MAX: u64 = 256 * 1024;
/// First guess of the drive's write rate, as in the kernel: 100 MiB/s.
const RATE_START: u64 = 100 << 20;
const RATE_MIN: u64 = 64 << 10;
/// Binary places of ratios.
const SHIFT: u32 = 16;

/// Limits and counts of one domain.
#[derive(Debug)]
pub(crate) struct Throttle {
    background: u64,
    limit: u64,
    /// Pages that are dirty and not yet sent.
    dirty: u64,
    /// Pages on the way to the drive.
    under_way: u64,
    /// A writer's fair rate, and the drive's rate, in bytes a second.
    rate: u64,
    bandwidth: u64,
    /// Pages made dirty and written since `since`.
    since: Instant,
    made_dirty: u64,
    cleaned: u64,
}

impl Throttle {
    pub(crate) fn new(background: u64, limit: u64) -> Self {
        let limit = limit.max(8 * STRIDE_MAX);
        Self {
            background: background.min(limit / 2),
            limit,
            dirty: 0,
            under_way: 0,
            rate: RATE_START,
            bandwidth: RATE_START,
            since: Instant::ZERO,
            made_dirty: 0,
            cleaned: 0,
        }
    }
    /// Bytes dirty or being written.
    pub(crate) fn load(&self) -> u64 {
        (self.dirty + self.under_way) * PAGE_BYTES
    }
    /// Bytes above which writers pause.
    fn free_run(&self) -> u64 {
        (self.background + self.limit) / 2
    }
    pub(crate) fn is_above_background(&self) -> bool {
        self.dirty * PAGE_BYTES > self.background
    }
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.load() + bytes <= self.limit || self.load() == 0
    }
    pub(crate) fn stride(&self) -> u64 {
        match self.load() <= self.free_run() {
            true => STRIDE_MAX,
            // About 30 ms at the writer's rate.
            false => (self.rate / 32).clamp(PAGE_BYTES, STRIDE_MAX),
        }
    }
    /// Bytes of one flusher's turn on a file.
    pub(crate) fn chunk(&self) -> u64 {
        (self.bandwidth / 2).min(self.limit / 8).max(4 << 20)
    }
    pub(crate) fn dirtied(&mut self, pages: u64) {
        self.dirty += pages;
        self.made_dirty += pages;
    }
    pub(crate) fn sent(&mut self, length: Sectors) {
        let pages = length.0 / PAGE;
        self.dirty -= pages;
        self.under_way += pages;
    }
    pub(crate) fn written(&mut self, length: Sectors) {
        let pages = length.0 / PAGE;
        self.under_way -= pages;
        self.cleaned += pages;
    }

    /// The pause of a writer that just made `bytes` dirty.
    pub(crate) fn balance(&mut self, bytes: u64, now: Instant) -> Nanos {
        let throttled = self.load() > self.free_run();
        let task_rate = (self.rate * self.position()) >> SHIFT;
        self.correct(now, task_rate, throttled);
        if !throttled {
            return Nanos::ZERO;
        }
        let longest = PAUSE_MAX * bytes.div_ceil(STRIDE_MAX);
        match task_rate {
            0 => longest,
            rate => Nanos::for_units_ceil(bytes, rate).min(longest),
        }
    }
    /// How far from the set point, from 0 to 2, in units of 2^-SHIFT.
    fn position(&self) -> u64 {
        let set_point = (self.free_run() + self.limit) / 2;
        let reach = i128::from((self.limit - set_point).max(1));
        let off = (i128::from(set_point) - i128::from(self.load())) << SHIFT;
        let x = (off / reach).clamp(-(1 << SHIFT), 1 << SHIFT);
        let cube = (((x * x) >> SHIFT) * x) >> SHIFT;
        ((1 << SHIFT) + cube) as u64
    }
    fn correct(&mut self, now: Instant, task_rate: u64, throttled: bool) {
        let elapsed = now.since(self.since);
        if elapsed < INTERVAL {
            return;
        }
        if throttled {
            let per_second = |pages: u64| {
                let bytes = u128::from(pages * PAGE_BYTES);
                (bytes * 1_000_000_000 / u128::from(elapsed.0)) as u64
            };
            self.bandwidth = (7 * self.bandwidth + per_second(self.cleaned)) / 8;
            let made = per_second(self.made_dirty).max(1);
            let fair = u128::from(task_rate) * u128::from(self.bandwidth) / u128::from(made);
            let fair = (fair as u64).clamp(RATE_MIN, 2 * self.bandwidth.max(RATE_MIN));
            self.rate = (3 * self.rate + fair) / 4;
        }
        (self.since, self.made_dirty, self.cleaned) = (now, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nobody pauses below the free run; at the set point the pause is bytes / rate; at the
    /// limit it is the longest. Method: fill by hand.
    #[test]
    fn pauses_follow_the_position() {
        let (background, limit) = (100 << 20, 200 << 20);
        let mut throttle = Throttle::new(background, limit);
        let pages = |mib: u64| mib * 256;
        throttle.dirtied(pages(150));
        assert_eq!(throttle.balance(1 << 20, Instant(1)), Nanos::ZERO);
        throttle.dirtied(pages(25));
        assert_eq!(throttle.position(), 1 << SHIFT);
        assert_eq!(throttle.balance(1 << 20, Instant(1)), Nanos::from_millis(10));
        throttle.dirtied(pages(25));
        assert!(!throttle.has_room(1));
        assert_eq!(throttle.balance(1, Instant(1)), PAUSE_MAX);
    }
}
