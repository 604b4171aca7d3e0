//! What CFQ knows of one queue that somebody waits for: how long its process thinks, how far apart its
//! requests lie, and hence whether to wait for the next one (the *idle window*) and who works close by.
//!
//! The window opens and closes by the mean think time, once that is known: it must not exceed what would
//! be waited, `slice_idle`, or 2 ms for a seeky queue, for which a wait saves no seek but keeps its
//! share. Where seeks cost little (a drive that queues commands, and nobody asked for low latency) a
//! seeky queue has none.
//!
//! Source: Linux 2.6.31 and 2.6.32 `block/cfq-iosched.c`; the last CFQ uses [`iofair_policies::parts::seeks::SeekHistory`]
//! instead of the mean distance.

use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_policies::parts::ewma::Pauses;
use iofair_policies::parts::seeks::SeekDistance;

/// Two milliseconds, the shortest time that means something to CFQ and BFQ (`CFQ_MIN_TT`).
pub const SHORT: Nanos = Nanos::from_millis(2);

/// A queue's habits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Habits {
    /// From an answer to the next request.
    pub pauses: Pauses,
    /// From the end of a request to the start of the next.
    pub distance: SeekDistance,
    last_position: Option<Sectors>,
    idle_window: bool,
}

/// When not to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitRules {
    /// How long an empty queue is waited for; zero never waits.
    pub slice_idle: Nanos,
    /// Seeky queues have no idle window (the drive queues commands, and `low_latency` is off).
    pub spurn_seeky: bool,
}

impl Habits {
    /// Of a queue made now; it has an idle window until its habits say otherwise.
    pub const fn new(now: Instant) -> Self {
        Self {
            pauses: Pauses::new(now),
            distance: SeekDistance::NEW,
            last_position: None,
            idle_window: true,
        }
    }
    /// A request comes. The first one, and one that comes while others are on their way, count as well.
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
    /// One of its requests was answered.
    pub fn on_answer(&mut self, now: Instant) {
        self.pauses.on_answer(now);
    }
    /// Is it worth being waited for?
    pub const fn idle_window(&self) -> bool {
        self.idle_window
    }
    /// For how long it is waited for at most.
    pub fn wait(&self, slice_idle: Nanos) -> Nanos {
        if self.distance.known_seeky() { slice_idle.min(SHORT) } else { slice_idle }
    }
    /// Its next request will come too late for a slice of which so much is left.
    pub fn thinks_longer_than(&self, left: Nanos) -> bool {
        self.pauses.longer_than(left)
    }
    /// Does it jump about?
    pub fn seeky(&self) -> bool {
        self.distance.seeky()
    }
    /// Would a request at `start` be as good as one of its own, with the head at `head`?
    pub fn is_close(&self, head: Sectors, start: Sectors) -> bool {
        head.distance(start) <= self.distance.reach()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: WaitRules = WaitRules { slice_idle: Nanos::from_millis(8), spurn_seeky: false };

    /// Requests one after the other, each so long after the answer to the one before.
    fn after(think: Nanos, stride: u64, rules: &WaitRules) -> Habits {
        let mut now = Instant::ZERO;
        let mut habits = Habits::new(now);
        for number in 0..20 {
            habits.on_request(now, Sectors(number * stride), Sectors(8), rules);
            habits.on_answer(now);
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
            habits.on_answer(now);
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
