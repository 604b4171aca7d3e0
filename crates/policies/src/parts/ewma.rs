//! The moving average that the kernel's schedulers use for the behaviour of processes: an eighth of each new sample,
//! seven eighths of the previous value.
//!
//! ```text
//! samples = (7 samples + 256) / 8      total = (7 total + 256 x) / 8      mean = (total + 128) / samples
//! ```
//!
//! Both sums start at zero, so the mean is not biased towards zero. `samples` grows 32, 60, 84, 105, ... to 249 and
//! shows how reliable the mean is: it counts as known above [`TRUSTED`], after three samples. (249 and not 256
//! because of the rounding: in the long run the mean is 2.8 % too high, as in the kernel.) Anticipatory, CFQ and BFQ
//! use it (Linux 2.6.32 `block/as-iosched.c`, `cfq-iosched.c`).

use iofair_core::time::{Instant, Nanos};

/// A mean of more than this weight of samples counts as known.
const TRUSTED: u64 = 80;

/// Average of a sequence of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ewma {
    samples: u64,
    total: u64,
}

impl Ewma {
    /// Without samples.
    pub const NEW: Self = Self { samples: 0, total: 0 };

    /// Adds a sample.
    pub fn add(&mut self, sample: u64) {
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * sample) / 8;
    }
    /// Weight of the samples: 0, 32, 60, 84, ... 249.
    pub const fn samples(&self) -> u64 {
        self.samples
    }
    /// The mean, if there were three samples.
    pub fn mean(&self) -> Option<u64> {
        self.mean_so_far().filter(|_| self.samples > TRUSTED)
    }
    /// The mean, if there was a sample.
    pub fn mean_so_far(&self) -> Option<u64> {
        (self.total + 128).checked_div(self.samples)
    }
}

/// Average time between a completion and the next request of a process. Callers limit the samples (CFQ and BFQ to
/// twice `slice_idle`, anticipatory to 20 ms), so that one long pause is soon forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ThinkTime(Ewma);

impl ThinkTime {
    /// Without samples.
    pub const NEW: Self = Self(Ewma::NEW);

    /// Adds a pause.
    pub fn add(&mut self, thought: Nanos) {
        self.0.add(thought.0);
    }
    /// Weight of the samples, see [`Ewma::samples`].
    pub const fn samples(&self) -> u64 {
        self.0.samples()
    }
    /// The mean, if there were three samples.
    pub fn mean(&self) -> Option<Nanos> {
        self.0.mean().map(Nanos)
    }
    /// The mean, if there was a sample.
    pub fn mean_so_far(&self) -> Option<Nanos> {
        self.0.mean_so_far().map(Nanos)
    }
}

/// Think time, with the completion from which it is counted; for a queue, several queues, or a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pauses {
    /// From a completion to the next request.
    pub think: ThinkTime,
    last_answer: Instant,
}

impl Pauses {
    /// Starts now.
    pub const fn new(now: Instant) -> Self {
        Self { think: ThinkTime::NEW, last_answer: now }
    }
    /// Records a request. A pause counts as at most twice `wait`, the time for which the scheduler would idle.
    pub fn on_request(&mut self, now: Instant, wait: Nanos) {
        self.think.add(now.since(self.last_answer).min(wait * 2));
    }
    /// Records a completion.
    pub fn on_completion(&mut self, now: Instant) {
        self.last_answer = now;
    }
    /// Whether pauses are known to be longer than this.
    pub fn longer_than(&self, wait: Nanos) -> bool {
        self.think.mean().is_some_and(|mean| mean > wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// Goal: the weights are the kernel's and the mean is known after three samples. Method: its
    /// recurrence by hand: 32, 60, 84, 105 and at last 249.
    #[test]
    fn weights_grow_as_published() {
        let mut average = Ewma::default();
        assert_eq!((average.mean_so_far(), average.mean()), (None, None));
        let mut weights = vec![];
        for number in 1..=4 {
            average.add(1000);
            weights.push(average.samples());
            assert_eq!(average.mean().is_some(), number >= 3);
        }
        assert_eq!(weights, [32, 60, 84, 105]);
        (0..100).for_each(|_| average.add(1000));
        assert_eq!(average.samples(), 249);
    }

    /// Goal: the mean follows by an eighth a sample and is not pulled towards zero at the start.
    /// Method: a constant, then one other sample, by hand: (7 * 1004 + 1 * 9000) / 8.
    #[test]
    fn mean_moves_by_an_eighth() {
        let mut think = ThinkTime::default();
        think.add(Nanos(1000));
        assert_eq!(think.mean_so_far(), Some(Nanos(1004)));
        (0..100).for_each(|_| think.add(Nanos(1000)));
        let before = think.mean().expect("known").0;
        think.add(Nanos(9000));
        let after = think.mean().expect("known").0;
        assert!((before + 1000..before + 1060).contains(&after), "{before} {after}");
    }
}
