//! Busy polling: when the thread stays awake for a moment instead of waiting for the kernel to wake it.
//!
//! A client that sends its next request at each completion gets its reply sooner if the thread stays awake: sleeping
//! and waking on another processor takes longer than such a client. (The halt polling of KVM and the I/O threads of
//! QEMU do the same.) If no request comes in time, because clients are slower or cannot run meanwhile, polling is
//! tried less and less often. A client that sends several requests at once is served better by a sleep, during which
//! they accumulate.

use iofair_core::time::Nanos;

/// Longest look-out.
pub(super) const POLL_MAX: Nanos = Nanos::from_micros(16);
/// Turns in a row with one completion at most before it is tried.
const SINGLES: u32 = 1000;
/// Most naps between two look-outs, as a power of two.
const FAILURES_MAX: u32 = 10;

/// Decides by the recent results whether busy polling is worth its processor time.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    singles: u32,
    /// Grows by 2 with each poll that found nothing, and falls by 1 with each that found something.
    failures: u32,
    /// Sleeps before the next poll.
    naps: u32,
}

impl BusyPoll {
    /// Whether to poll now, before sleeping.
    pub(super) fn is_promising(&mut self) -> bool {
        if self.singles < SINGLES {
            return false;
        }
        let due = self.naps == 0;
        self.naps -= u32::from(!due);
        due
    }
    /// A poll ended; `seen`: something arrived in time.
    pub(super) fn ended(&mut self, seen: bool) {
        match seen {
            true => self.failures = self.failures.saturating_sub(1),
            false => self.failures = (self.failures + 2).min(FAILURES_MAX),
        }
        self.naps = (1 << self.failures) - 1;
    }
    /// A turn took this many completions.
    pub(super) fn turned(&mut self, completions: usize) {
        self.singles = if completions > 1 { 0 } else { self.singles.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Look-outs in this many turns of one completion, of which one in this many is in vain (0: none).
    fn look_outs(busy_poll: &mut BusyPoll, turns: u32, vain: u32) -> u32 {
        let mut count = 0;
        for _ in 0..turns {
            if busy_poll.is_promising() {
                count += 1;
                busy_poll.ended(vain == 0 || count % vain != 0);
            }
            busy_poll.turned(1);
        }
        count
    }

    /// Goal: it is tried for a client that waits for each completion, and hardly any more where nothing comes in time;
    /// never where several requests come at once. Method: many turns of each kind, one after the other.
    #[test]
    fn busy_polling_needs_a_benefit() {
        let mut busy_poll = BusyPoll::default();
        assert_eq!(look_outs(&mut busy_poll, SINGLES, 0), 0, "not known yet");
        assert_eq!(look_outs(&mut busy_poll, 5000, 0), 5000);
        assert_eq!(look_outs(&mut busy_poll, 9000, 1), 13, "soon one in 1,024");
        assert_eq!(look_outs(&mut busy_poll, 102_400, 1), 100);
        assert!(look_outs(&mut busy_poll, 10_000, 0) > 7000, "it pays again");
        assert!(look_outs(&mut busy_poll, 10_000, 2) < 100, "every second one is too few");
        busy_poll.turned(2);
        assert_eq!(look_outs(&mut busy_poll, SINGLES, 0), 0);
    }
}
