//! Clients without a volume: those who wait, those who were let in, and when they are served while groups are busy.

use std::os::fd::OwnedFd;

use iofair_core::time::{Instant, Nanos};

use super::deferred::DeferredAccepts;
use super::endpoint::Accept;
use super::refusals::Refusals;

/// Time that is spent for clients without a volume before groups come again; a visit that has begun is ended.
const SLICE: Nanos = Nanos::from_micros(30);
/// What groups have for themselves after that, as a multiple of the time spent.
const REST: u64 = 4;
/// Groups count as busy for this long after a request of theirs was taken in.
const BUSY: Nanos = Nanos::from_millis(1);

/// When clients without a volume are served while groups are busy.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// Time spent for them since their last rest.
    spent: Nanos,
    /// They rest until then.
    until: Option<Instant>,
    /// When an endpoint of a group was visited last.
    visited: Option<Instant>,
}

impl Throttle {
    /// When the rest ends, if there is one.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }
    /// This much time was spent for clients without a volume.
    pub(super) fn spend(&mut self, time: Nanos) {
        self.spent += time;
    }
    /// An endpoint of a group is visited.
    pub(super) fn visit(&mut self, now: Instant) {
        self.visited = Some(now);
    }
    /// After a visit of theirs: do they rest from now on? `pending`: there are requests in the engine.
    pub(super) fn rests(&mut self, now: Instant, pending: bool) -> bool {
        if self.spent < SLICE {
            return false;
        }
        let spent = std::mem::take(&mut self.spent);
        let busy = pending || self.visited.is_some_and(|visited| now < visited + BUSY);
        self.until = busy.then(|| now + Nanos(spent.0 * REST));
        busy
    }
    /// Whether their pause ends now.
    pub(super) fn ends(&mut self, now: Instant) -> bool {
        self.until.take_if(|until| now >= *until).is_some()
    }
}

/// Clients without a volume.
#[derive(Default)]
pub(super) struct Handshakes {
    /// Those who were accepted and wait, and those who were let in.
    pub(super) deferred: DeferredAccepts<(Accept, OwnedFd)>,
    /// Listeners on which nothing is accepted now.
    pub(super) paused_listeners: Vec<usize>,
    /// The entries of all others were cancelled.
    pub(super) is_pausing: bool,
    /// When one that was let in may be cut off for one that waits.
    pub(super) next: Option<Instant>,
    pub(super) throttle: Throttle,
    pub(super) refusals: Refusals,
}

impl Handshakes {
    /// When to look again though nothing else happens.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: while groups are busy, clients without a volume get a fifth of the time at most, in short slices; when
    /// they are not, all of it. Method: visits of many lengths on a clock that only they move.
    #[test]
    fn handshakes_get_a_fifth_while_groups_are_busy() {
        for cost in [1, 7, 29, 40, 500].map(Nanos::from_micros) {
            let mut throttle = Throttle::default();
            let (mut now, mut spent) = (Instant::ZERO, Nanos::ZERO);
            let end = Instant::ZERO + Nanos::from_secs(1);
            while now < end {
                let mut slice = Nanos::ZERO;
                loop {
                    now += cost;
                    slice += cost;
                    throttle.spend(cost);
                    throttle.visit(now);
                    if throttle.rests(now, false) {
                        break;
                    }
                }
                assert!(slice < SLICE + cost, "a slice of {slice:?} in visits of {cost:?}");
                spent += slice;
                let until = throttle.until().unwrap();
                assert!(!throttle.ends(Instant(until.0 - 1)));
                assert!(throttle.ends(until) && throttle.until().is_none());
                now = until;
            }
            let share = spent.0 as f64 / now.since(Instant::ZERO).0 as f64;
            assert!((0.19..=0.2).contains(&share), "{share} in visits of {cost:?}");
        }
        let mut throttle = Throttle::default();
        throttle.visit(Instant::ZERO);
        let mut rests = |millis, pending| {
            throttle.spend(SLICE);
            throttle.rests(Instant::ZERO + Nanos::from_millis(millis), pending)
        };
        assert_eq!([rests(0, false), rests(2, false), rests(3, true)], [true, false, true]);
    }
}
