//! CFQ's measurements of a synchronous queue: think time and distances between requests. From them follow whether
//! idling for its next request is worthwhile (the *idle window*), and which other queues work close by.
//!
//! The window depends on the mean think time, once that is known. It must not exceed the time for which CFQ would
//! idle: `slice_idle`, or 2 ms for a seeky queue, for which idling saves no seek but keeps its share. A seeky queue
//! has no window where seeks cost little (a drive that queues commands, with `low_latency` off).
//!
//! Source: Linux 2.6.31 and 2.6.32 `block/cfq-iosched.c`; the last CFQ uses [`iofair_policies::parts::seeks::SeekHistory`]
//! instead of the mean distance.

use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_policies::parts::ewma::Pauses;
use iofair_policies::parts::seeks::SeekDistance;

/// Two milliseconds, the shortest time that is significant for CFQ and BFQ (`CFQ_MIN_TT`).
pub const SHORT: Nanos = Nanos::from_millis(2);

/// The measurements of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Habits {
    /// From a completion to the next request.
    pub pauses: Pauses,
    /// From the end of a request to the start of the next one.
    pub distance: SeekDistance,
    last_position: Option<Sectors>,
    idle_window: bool,
}

/// Conditions for idling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitRules {
    /// How long to idle for an empty queue; zero: never.
    pub slice_idle: Nanos,
    /// Whether seeky queues have no idle window (the drive queues commands, and `low_latency` is off).
    pub spurn_seeky: bool,
}

impl Habits {
    /// Of a new queue; it has an idle window until measurements say otherwise.
    pub const fn new(now: Instant) -> Self {
        Self {
            pauses: Pauses::new(now),
            distance: SeekDistance::NEW,
            last_position: None,
            idle_window: true,
        }
    }
    /// Records a request. The first one, and one that arrives while others are in flight, count as well.
    pub fn on_request(&mut self, now: Instant, start: Sectors, length: Sectors, rules: &WaitRules) {
        self.pauses.on_request(now, rules.slice_idle);
        let distance = self.last_position.map_or(Sectors::ZERO, |last| last.distance(start));
        self.distance.add(distance);
        self.last_position = Some(start + length);
        self.judge(rules);
    }
    fn judge(&mut self, rules: &WaitRules) {
        if rules.slice_idle == Nanos::ZERO || (rules.spurn_seeky && self.seeky()) {
            self.idle_window = false;
        } else if let Some(mean) = self.pauses.think.mean() {
            self.idle_window = mean <= self.wait(rules.slice_idle);
        }
    }
    /// Records a completion.
    pub fn on_completion(&mut self, now: Instant) {
        self.pauses.on_completion(now);
    }
    /// Whether idling for it is worthwhile.
    pub const fn idle_window(&self) -> bool {
        self.idle_window
    }
    /// How long to idle for it at most.
    pub fn wait(&self, slice_idle: Nanos) -> Nanos {
        if self.distance.known_seeky() { slice_idle.min(SHORT) } else { slice_idle }
    }
    /// Whether its next request will come too late for the rest of a slice.
    pub fn thinks_longer_than(&self, left: Nanos) -> bool {
        self.pauses.longer_than(left)
    }
    /// Whether it is seeky.
    pub fn seeky(&self) -> bool {
        self.distance.seeky()
    }
    /// Whether a request at `start` is as good as one of its own, with the head at `head`.
    pub fn is_close(&self, head: Sectors, start: Sectors) -> bool {
        head.distance(start) <= self.distance.reach()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: WaitRules = WaitRules { slice_idle: Nanos::from_millis(8), spurn_seeky: false };

    /// Requests one after the other, each this long after the completion to the one before.
    fn after(think: Nanos, stride: u64, rules: &WaitRules) -> Habits {
        let mut now = Instant::ZERO;
        let mut habits = Habits::new(now);
        for number in 0..20 {
            habits.on_request(now, Sectors(number * stride), Sectors(8), rules);
            habits.on_completion(now);
            now += think;
        }
        habits
    }

    /// Goal: the window follows the think time, against 8 ms or, seeky, 2 ms. Method: both sides.
    #[test]
    fn window_follows_think_time() {
        let far = 1 << 20;
        for (micros, stride, open) in
            [(7_000, 8, true), (8_100, 8, false), (1_900, far, true), (2_100, far, false)]
        {
            let habits = after(Nanos::from_micros(micros), stride, &RULES);
            assert_eq!(habits.idle_window(), open, "{micros} {stride}");
            assert_eq!(
                habits.wait(RULES.slice_idle),
                if stride == 8 { RULES.slice_idle } else { SHORT }
            );
        }
    }

    /// Goal: nobody is waited for with `slice_idle` zero, and no seeky queue where that is pointless.
    /// Method: quick thinkers under both rules.
    #[test]
    fn window_can_be_refused() {
        let think = Nanos::from_micros(100);
        let never = WaitRules { slice_idle: Nanos::ZERO, ..RULES };
        assert!(!after(think, 8, &never).idle_window());
        let spurn = WaitRules { spurn_seeky: true, ..RULES };
        assert!(after(think, 8, &spurn).idle_window());
        assert!(!after(think, 1 << 20, &spurn).idle_window());
    }

    /// Goal: a long pause counts as twice `slice_idle`, so the window reopens soon. Method: a minute's
    /// pause amid quick requests.
    #[test]
    fn a_pause_is_soon_forgotten() {
        let mut habits = after(Nanos::from_micros(100), 8, &RULES);
        let mut now = Instant(60_000_000_000);
        habits.on_request(now, Sectors(160), Sectors(8), &RULES);
        assert!(habits.pauses.think.mean().expect("known") < Nanos::from_millis(3));
        (0..2).for_each(|_| {
            habits.on_completion(now);
            now += Nanos::from_micros(100);
            habits.on_request(now, Sectors(168), Sectors(8), &RULES);
        });
        assert!(habits.idle_window());
    }

    /// Goal: who is close. Method: the reach of a queue that never moved (8192 sectors), and of a
    /// sequential one, whose mean distance is next to nothing.
    #[test]
    fn closeness_is_the_mean_distance() {
        let new = Habits::new(Instant::ZERO);
        assert!(new.is_close(Sectors(10_000), Sectors(10_000 - 8192)));
        assert!(!new.is_close(Sectors(10_000), Sectors(10_000 + 8193)));
        let sequential = after(Nanos::from_micros(100), 8, &RULES);
        assert!(!sequential.is_close(Sectors(10_000), Sectors(10_100)));
    }
}
