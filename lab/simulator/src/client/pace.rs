//! When a process may make its next call: rate limits as fio paces them, phases of work and rest.
//!
//! fio's linear pacing: call number n (from 0) may start at `epoch + n * block / rate`, so a process
//! that fell behind catches up at full speed; the epoch moves to the end of the ramp, and what was
//! missed before is forgiven. A block of more than one second's worth makes the process on/off.
//!
//! A [`Batch`] stands for many calls at once: cheap calls that only copy from the page cache are
//! counted arithmetically, without an event each.

use iofair_core::time::{Instant, Nanos};
use iofair_drive::random::Random;

use crate::scenario::Direction;

/// A rate and what was issued under it.
#[derive(Clone, Copy, Debug)]
struct Rate {
    bytes_per_s: u64,
    epoch: Instant,
    issued: u64,
    /// When the next call may start if the times between calls are drawn.
    drawn: Option<Instant>,
}

impl Rate {
    fn new(bytes_per_s: u64, epoch: Instant, poisson: bool) -> Self {
        Self { bytes_per_s, epoch, issued: 0, drawn: poisson.then_some(epoch) }
    }
    /// When the call may start that comes `more` bytes after those issued.
    fn due(&self, more: u64) -> Instant {
        let linear = || self.epoch + Nanos::for_units_ceil(self.issued + more, self.bytes_per_s);
        self.drawn.unwrap_or_else(linear)
    }
    /// Bytes were issued.
    fn issue(&mut self, bytes: u64, random: &mut Random) {
        self.issued += bytes;
        if let Some(drawn) = &mut self.drawn {
            *drawn += random.exponential(Nanos::for_units_ceil(bytes, self.bytes_per_s));
        }
    }
    /// Begins anew.
    fn restart(&mut self, epoch: Instant) {
        (self.epoch, self.issued) = (epoch, 0);
        self.drawn = self.drawn.map(|_| epoch);
    }
    /// At the end of the ramp, drops the backlog that built up in it.
    fn drop_backlog(&mut self, ramp_end: Instant, ready: Instant) {
        if self.epoch < ramp_end && ready >= ramp_end {
            self.restart(ready);
        }
    }
}

/// Setup of a pacer.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct PacerSetup {
    pub(crate) rate: Option<u64>,
    /// Of reads, writes and trims.
    pub(crate) rates: [Option<u64>; 3],
    /// Rates are means of times that are drawn.
    pub(crate) poisson: bool,
    pub(crate) on_off: Option<(Nanos, Nanos)>,
    pub(crate) start: Instant,
    pub(crate) stop: Instant,
    pub(crate) ramp_end: Instant,
    pub(crate) limit: Limit,
}

/// How much a process does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) bytes: u64,
    pub(crate) calls: u64,
    /// Bytes of the smallest call.
    pub(crate) least: u64,
    /// Whether the last call is made whole, even if it is longer than what is left.
    pub(crate) last_is_whole: bool,
    /// Whether the bytes of trims do not count.
    pub(crate) without_trims: bool,
}

impl Default for Limit {
    fn default() -> Self {
        let (last_is_whole, without_trims) = (false, false);
        Self { bytes: u64::MAX, calls: u64::MAX, least: 1, last_is_whole, without_trims }
    }
}

/// Decides when a process may make its next call.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: Option<Rate>,
    rates: [Option<Rate>; 3],
    limit: Limit,
    ramp_end: Instant,
    stop: Instant,
    on_off: Option<(Nanos, Nanos)>,
    on_until: Instant,
    random: Random,
}

impl Pacer {
    pub(crate) fn new(setup: PacerSetup, mut random: Random) -> Self {
        let PacerSetup { on_off, start, stop, ramp_end, limit, .. } = setup;
        let on_until = match on_off {
            Some((on, _)) => start + twice_at_most(&mut random, on),
            None => Instant::MAX,
        };
        let paced = |rate: Option<u64>| rate.map(|rate| Rate::new(rate, start, setup.poisson));
        let (rate, rates) = (paced(setup.rate), setup.rates.map(paced));
        Self { rate, rates, limit, ramp_end, stop, on_off, on_until, random }
    }

    /// Begins anew at another time. Phases and limits go on.
    pub(crate) fn restart(&mut self, start: Instant, ramp_end: Instant, stop: Instant) {
        (self.ramp_end, self.stop) = (ramp_end, stop);
        for rate in self.rates.iter_mut().chain([&mut self.rate]).flatten() {
            rate.restart(start);
        }
    }
    /// It makes no further call.
    pub(crate) fn stop_at(&mut self, stop: Instant) {
        self.stop = self.stop.min(stop);
    }
    /// When it makes no further call.
    pub(crate) fn stop(&self) -> Instant {
        self.stop
    }
    /// It has done enough.
    pub(crate) fn exhaust(&mut self) {
        self.limit.calls = 0;
    }
    /// Whether it has done all that it was to do.
    pub(crate) fn is_exhausted(&self) -> bool {
        let least = if self.limit.last_is_whole { 1 } else { self.limit.least };
        self.limit.calls == 0 || self.limit.bytes < least
    }
    /// The longest call that may be made.
    pub(crate) fn longest_call(&self) -> u64 {
        if self.limit.last_is_whole { u64::MAX } else { self.limit.bytes }
    }
    /// When the rate of a direction alone allows a call of a process that is ready at `ready`.
    pub(crate) fn due(&mut self, direction: Direction, ready: Instant) -> Instant {
        let Some(rate) = &mut self.rates[direction.index()] else { return ready };
        rate.drop_backlog(self.ramp_end, ready);
        ready.max(rate.due(0))
    }
    /// A call in a direction was started.
    pub(crate) fn issue_in(&mut self, direction: Direction, bytes: u64) {
        let is_left_out = direction == Direction::Trim && self.limit.without_trims;
        self.take(1, if is_left_out { 0 } else { bytes });
        for rate in [&mut self.rate, &mut self.rates[direction.index()]].into_iter().flatten() {
            rate.issue(bytes, &mut self.random);
        }
    }

    /// The earliest start of a call of a process that is ready at `ready`; the end of time once it
    /// stopped.
    pub(crate) fn next_start(&mut self, ready: Instant) -> Instant {
        if self.is_exhausted() {
            return Instant::MAX;
        }
        let mut start = ready;
        if let Some(rate) = &mut self.rate {
            rate.drop_backlog(self.ramp_end, ready);
            start = start.max(rate.due(0));
        }
        while start >= self.on_until {
            let (on, off) = self.on_off.expect("only phases end");
            start += twice_at_most(&mut self.random, off);
            self.on_until = start + twice_at_most(&mut self.random, on).max(Nanos(1));
        }
        if start < self.stop { start } else { Instant::MAX }
    }

    /// A call was started.
    pub(crate) fn issue(&mut self, bytes: u64) {
        self.take(1, bytes);
        if let Some(rate) = &mut self.rate {
            rate.issue(bytes, &mut self.random);
        }
    }

    /// Takes calls from what is to be done; without a limit there is no end of it.
    fn take(&mut self, calls: u64, bytes: u64) {
        let limit = &mut self.limit;
        if limit.calls < u64::MAX {
            limit.calls = limit.calls.saturating_sub(calls);
        }
        if limit.bytes < u64::MAX {
            limit.bytes = limit.bytes.saturating_sub(bytes);
        }
    }

    /// Starts as many of `plan`'s calls as may start in this phase of work and before it stops, maybe none.
    pub(crate) fn start_batch(&mut self, plan: Plan) -> Batch {
        let mut batch = Batch { plan, rate: self.rate };
        let until = self.on_until.min(self.stop);
        if until < Instant::MAX {
            batch.plan.calls = batch.started_before(until);
        }
        if self.rate.is_some_and(|rate| rate.drawn.is_some()) {
            batch.plan.calls = batch.plan.calls.min(1);
        }
        let calls =
            batch.plan.calls.min(self.limit.calls).min(self.limit.bytes / plan.block.max(1));
        batch.plan.calls = calls;
        self.take(calls, calls * plan.block);
        if let Some(rate) = &mut self.rate {
            rate.issue(calls * plan.block, &mut self.random);
        }
        batch
    }
}

/// A time between 0 and twice `mean`.
fn twice_at_most(random: &mut Random, mean: Nanos) -> Nanos {
    Nanos(random.between(0, 2 * mean.0))
}

/// Equal calls, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// When the first may start.
    pub(crate) ready: Instant,
    pub(crate) calls: u64,
    /// Bytes of a call.
    pub(crate) block: u64,
    /// Time of a call.
    pub(crate) cost: Nanos,
    /// Time between two calls.
    pub(crate) think: Nanos,
}

/// Equal calls that were started together with their pacing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    plan: Plan,
    rate: Option<Rate>,
}

impl Batch {
    pub(crate) fn calls(&self) -> u64 {
        self.plan.calls
    }
    pub(crate) fn block(&self) -> u64 {
        self.plan.block
    }
    pub(crate) fn cost(&self) -> Nanos {
        self.plan.cost
    }
    /// When the call ends that is number `call` from 1.
    ///
    /// Each call starts when the one before has ended and its pace allows it. Paces are evenly spaced,
    /// so the last to bind is the first one or the call's own.
    pub(crate) fn end(&self, call: u64) -> Instant {
        let Plan { ready, block, cost, think, .. } = self.plan;
        let after_first = (cost + think) * (call - 1) + cost;
        let free = ready + after_first;
        match &self.rate {
            None => free,
            Some(rate) => {
                let first = rate.due(0) + after_first;
                let own = rate.due((call - 1) * block) + cost;
                free.max(first).max(own)
            }
        }
    }
    /// Calls that start before `time`.
    fn started_before(&self, time: Instant) -> u64 {
        self.count_while(|end| end.saturating_sub(self.plan.cost) < time)
    }
    /// Calls that have ended by `time`.
    pub(crate) fn ended_by(&self, time: Instant) -> u64 {
        self.count_while(|end| end <= time)
    }
    /// The number of first calls whose ends satisfy a condition that later ones lose.
    fn count_while(&self, holds: impl Fn(Instant) -> bool) -> u64 {
        let (mut low, mut high) = (0, self.plan.calls);
        if high > 0 && holds(self.end(high)) {
            return high;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(self.end(middle + 1)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(rate: Option<u64>, on_off: Option<(Nanos, Nanos)>) -> Pacer {
        let setup = PacerSetup {
            rate,
            on_off,
            start: Instant(0),
            stop: Instant::MAX,
            ramp_end: Instant::ZERO + Nanos::from_secs(1),
            ..PacerSetup::default()
        };
        Pacer::new(setup, Random::new(1, 1))
    }

    /// Goal: a batch gives each call the end that calls made one by one have. Method: all mixes of
    /// cost, think time and pace against a loop.
    #[test]
    fn a_batch_equals_calls_one_by_one() {
        for (cost, think, rate) in
            [(10, 0, None), (10, 5, None), (10, 3, Some(50_000_000_000)), (900, 7, Some(4_096_000))]
        {
            for ready in [0, 5_000, 3_000_000] {
                let (cost, think) = (Nanos(cost), Nanos(think));
                let mut pacer = pacer(rate, None);
                let plan = Plan { ready: Instant(ready), calls: 64, block: 4096, cost, think };
                let batch = pacer.start_batch(plan);
                let mut single = self::pacer(rate, None);
                let mut at = Instant(ready);
                for call in 1..=64 {
                    let end = single.next_start(at) + cost;
                    single.issue(4096);
                    assert_eq!(batch.end(call), end, "{cost} {think} {rate:?} {ready} {call}");
                    at = end + think;
                }
                for at in [0, 640, 9_000, 4_000_000, 500_000_000] {
                    let count = (1..=64).filter(|c| batch.end(*c) <= Instant(at)).count();
                    assert_eq!(batch.ended_by(Instant(at)), count as u64);
                }
            }
        }
    }

    /// Goal: pace is linear, a lag is caught up, and the ramp's lag is forgiven. Method: calls by
    /// hand at 4 blocks a second.
    #[test]
    fn pace_is_linear_and_forgives_the_ramp() {
        let mut pacer = pacer(Some(4 * 4096), None);
        let (quarter, mut ends) = (250_000_000, Vec::new());
        for ready in [0, 0, 600_000_000, 600_000_000] {
            ends.push(pacer.next_start(Instant(ready)).0);
            pacer.issue(4096);
        }
        assert_eq!(ends, [0, quarter, 600_000_000, 3 * quarter]);
        let late = Instant(5_000_000_000);
        assert_eq!(pacer.next_start(late), late);
        pacer.issue(4096);
        assert_eq!(pacer.next_start(late), late + Nanos(quarter), "no catching up after the ramp");
    }

    /// Goal: a stopped pace makes no calls, also none of a batch that began before. Method: asked before and after.
    #[test]
    fn a_stopped_pace_makes_no_calls() {
        let mut pacer = pacer(None, None);
        pacer.stop = Instant(1_000);
        assert_eq!(pacer.next_start(Instant(999)), Instant(999));
        assert_eq!(pacer.next_start(Instant(1_000)), Instant::MAX);
        let (ready, cost, think) = (Instant(700), Nanos(10), Nanos(90));
        let batch = pacer.start_batch(Plan { ready, calls: 64, block: 4096, cost, think });
        assert_eq!(batch.calls(), 3, "calls of a batch that would begin later");
    }

    /// Goal: a limit ends a process, whether its calls are made one by one or as a batch. Method: ten calls, four by hand and the
    /// rest of a batch of a hundred; the same in bytes.
    #[test]
    fn a_limit_ends_the_calls() {
        let bytes = Limit { bytes: 10 * 4096, least: 4096, ..Limit::default() };
        for limit in [bytes, Limit { calls: 10, ..Limit::default() }] {
            let setup = PacerSetup { limit, stop: Instant::MAX, ..PacerSetup::default() };
            let mut pacer = Pacer::new(setup, Random::new(1, 1));
            for _ in 0..4 {
                assert_eq!(pacer.next_start(Instant(7)), Instant(7));
                pacer.issue(4096);
            }
            let (ready, cost, think) = (Instant(7), Nanos(10), Nanos::ZERO);
            let batch = pacer.start_batch(Plan { ready, calls: 100, block: 4096, cost, think });
            assert_eq!(batch.calls(), 6);
            assert!(pacer.is_exhausted() && pacer.next_start(Instant(7)) == Instant::MAX);
        }
    }

    /// Goal: drawn times between calls have the mean of the rate and the spread of an exponential distribution, whether calls are
    /// made one by one or as batches. Method: 20,000 calls of 1 ms; the mean, the share above it, and that above three of it.
    #[test]
    fn times_between_calls_are_exponential() {
        let setup = PacerSetup {
            rate: Some(4_096_000),
            poisson: true,
            stop: Instant::MAX,
            ..PacerSetup::default()
        };
        let mut pacer = Pacer::new(setup, Random::new(1, 1));
        let (mut last, mut times) = (Instant::ZERO, Vec::new());
        for call in 0..20_000 {
            let start = pacer.next_start(Instant::ZERO);
            times.push(start.since(last).0);
            last = start;
            let (ready, cost, think) = (Instant::ZERO, Nanos(1), Nanos::ZERO);
            match call % 2 {
                0 => pacer.issue(4096),
                _ => {
                    let plan = Plan { ready, calls: 9, block: 4096, cost, think };
                    assert_eq!(pacer.start_batch(plan).calls(), 1);
                }
            }
        }
        let mean = times.iter().sum::<u64>() / times.len() as u64;
        assert!(mean.abs_diff(1_000_000) < 25_000, "{mean}");
        let above = |nanos: u64| times.iter().filter(|time| **time > nanos).count() * 1000 / 20_000;
        assert!(above(1_000_000).abs_diff(368) < 15 && above(3_000_000).abs_diff(50) < 8);
    }

    /// Goal: each direction has its own pace. Method: reads at 4 blocks a second, writes unlimited, trims at one.
    #[test]
    fn directions_have_their_own_pace() {
        let rates = [Some(4 * 4096), None, Some(4096)];
        let setup = PacerSetup { rates, stop: Instant::MAX, ..PacerSetup::default() };
        let mut pacer = Pacer::new(setup, Random::new(1, 1));
        for direction in Direction::ALL {
            assert_eq!(pacer.due(direction, Instant(0)), Instant(0));
            pacer.issue_in(direction, 4096);
        }
        let due = Direction::ALL.map(|direction| pacer.due(direction, Instant(0)).0);
        assert_eq!(due, [250_000_000, 0, 1_000_000_000]);
    }

    /// Goal: phases of work and rest have their means, and no call starts in a rest. Method: tiny
    /// calls for a long time; count the time between calls that is rest.
    #[test]
    fn phases_have_their_means() {
        let (on, off) = (Nanos::from_millis(10), Nanos::from_millis(30));
        let mut pacer = pacer(None, Some((on, off)));
        let (mut at, mut work, call) = (Instant::ZERO, 0u64, Nanos::from_micros(10));
        while at < Instant::ZERO + Nanos::from_secs(400) {
            let start = pacer.next_start(at);
            at = start + call;
            work += call.0;
        }
        let share = work * 1000 / at.0;
        assert!((240..=260).contains(&share), "{share}");
    }
}
