//! One group: its limit of requests in flight, its latencies, and the state of its children.

use super::delay::Delay;
use iofair_core::id::GroupId;
use iofair_core::parts::fifo::Fifo;
use iofair_core::time::{Instant, Nanos};

/// The cookie of children that are not scaled down (`DEFAULT_SCALE_COOKIE`).
pub(super) const START: i64 = 1_000_000;
/// Depth of a group that may have any number of requests in flight.
pub(super) const UNLIMITED: i64 = i64::MAX;
/// A window is this many targets long, within these bounds.
const WINDOW_TARGETS: u64 = 16;
const WINDOW_MIN: Nanos = Nanos::from_millis(100);
const WINDOW_MAX: Nanos = Nanos::from_secs(1);
/// Shortest time between two steps.
const STEP_EVERY: Nanos = Nanos::from_millis(500);
/// Fewest completions for a step up.
const GOOD_SAMPLES: u64 = 5;
/// A culprit is forgotten if the last step was this long ago.
const FORGET: Nanos = Nanos::from_secs(5);
/// A sibling with a target and at most this percentage of all completions is spared.
const SPARED_PERCENT: u64 = 5;

/// A step of the cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Up,
    Down,
}

impl Step {
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Self::Up => "content: siblings may have more in flight",
            Self::Down => "misses its target: siblings may have less in flight",
        }
    }
}

/// How windows are judged; the same for all groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Too many misses make a window bad, not the mean.
    pub(super) by_percentile: bool,
    /// As RHEL's 4.18 and 4.19: each window on its own.
    pub(super) linux_4_18: bool,
}

/// Completions of a window.
#[derive(Clone, Copy, Default, Debug)]
struct Completions {
    count: u64,
    missed: u64,
    sum: Nanos,
}

/// What a group keeps for its children.
#[derive(Clone, Copy, Debug)]
pub(super) struct Children {
    pub(super) cookie: i64,
    last_step: Option<Instant>,
    /// The lowest target that was missed; zero is none.
    pub(super) target: Nanos,
    culprit: Option<GroupId>,
    /// Completions of the children with targets at the last check.
    samples: u64,
}

impl Children {
    const fn new() -> Self {
        Self { cookie: START, last_step: None, target: Nanos::ZERO, culprit: None, samples: 0 }
    }
    /// A child's target changed.
    pub(super) fn reset(&mut self) {
        *self = Self { samples: self.samples, ..Self::new() };
    }
    fn step(&mut self, step: Step, depth: i64) {
        let distance = START - self.cookie;
        match step {
            Step::Up => {
                let amount = (depth / 16).max(1);
                if self.cookie + amount > START {
                    self.cookie = START;
                } else {
                    self.cookie += if distance > depth { 1 } else { amount };
                }
            }
            Step::Down if distance <= depth => self.cookie -= (depth / 4).max(1),
            Step::Down if distance < 2 * depth => self.cookie -= 1,
            Step::Down => {}
        }
    }
    /// The timer: without a culprit things get better, and a culprit that is silent is forgotten.
    pub(super) fn forget(&mut self, now: Instant, depth: i64) {
        if self.cookie >= START || self.last_step.is_some_and(|last| last >= now) {
            return;
        }
        if self.culprit.is_none() {
            self.step(Step::Up, depth);
        } else if self.last_step.is_none_or(|last| now.since(last) >= FORGET) {
            self.culprit = None;
        }
    }
}

/// One group.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) parent: GroupId,
    rule: Rule,
    /// Zero is none.
    pub(super) target: Nanos,
    window: Nanos,
    window_start: Instant,
    /// Of this window, and since the last step that was possible.
    completions: Completions,
    gathered: Completions,
    samples: u64,
    /// The parent's cookie as last seen.
    cookie: i64,
    /// Requests that it may have in flight.
    pub(super) depth: i64,
    pub(super) in_flight: i64,
    /// Those that wait for a slot.
    pub(super) waiting: Fifo,
    /// Steps down at a depth of one.
    pub(super) use_delay: u64,
    pub(super) delay: Delay,
    pub(super) children: Children,
}

impl Level {
    pub(super) fn new(now: Instant, parent: GroupId, cookie: i64, rule: Rule) -> Self {
        Self {
            parent,
            rule,
            target: Nanos::ZERO,
            window: WINDOW_MIN,
            window_start: now,
            completions: Completions::default(),
            gathered: Completions::default(),
            samples: 0,
            cookie,
            depth: UNLIMITED,
            in_flight: 0,
            waiting: Fifo::new(),
            use_delay: 0,
            delay: Delay::default(),
            children: Children::new(),
        }
    }
    pub(super) fn set_target(&mut self, target: Nanos) {
        self.target = target;
        self.window = (target * WINDOW_TARGETS).clamp(WINDOW_MIN, WINDOW_MAX);
        if target == Nanos::ZERO {
            self.use_delay = 0;
        }
    }
    pub(super) const fn has_room(&self) -> bool {
        self.in_flight < self.depth
    }
    /// All limits end.
    pub(super) fn unlimit(&mut self) {
        (self.cookie, self.depth, self.use_delay) = (START, UNLIMITED, 0);
        self.children.reset();
    }

    /// Counts a completion and its time. `in_root`: it was dispatched in the root's name. Returns whether the window
    /// is over.
    pub(super) fn completed(&mut self, now: Instant, took: Nanos, in_root: bool) -> bool {
        if self.target == Nanos::ZERO {
            return false;
        }
        if in_root && self.depth != UNLIMITED {
            if took < self.target {
                self.delay.add(now, self.use_delay, self.target - took);
            }
        } else if took > Nanos::ZERO {
            self.completions.count += 1;
            self.completions.missed += u64::from(took >= self.target);
            self.completions.sum += took;
        }
        if now.since(self.window_start) < self.window {
            return false;
        }
        self.window_start = now;
        true
    }
    fn is_good(&self, completions: &Completions) -> bool {
        match self.rule.by_percentile {
            true => completions.missed < (completions.count / 10).max(1),
            false => completions.sum / completions.count.max(1) <= self.target,
        }
    }
    /// At the end of a window: decides whether the parent takes a step.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        me: GroupId,
        siblings: &mut Children,
        depth: i64,
    ) -> Option<Step> {
        let completions = core::mem::take(&mut self.completions);
        let is_good = self.is_good(&completions);
        if is_good && siblings.cookie == START {
            return None;
        }
        if self.rule.linux_4_18 {
            self.gathered = Completions::default();
        }
        self.gathered.count += completions.count;
        self.gathered.missed += completions.missed;
        self.gathered.sum += completions.sum;
        siblings.samples = siblings.samples - self.samples + self.gathered.count;
        self.samples = self.gathered.count;
        let is_early = siblings.last_step.is_some_and(|last| now.since(last) < STEP_EVERY);
        if is_early && (!self.rule.linux_4_18 || siblings.target <= self.target) {
            return None;
        }
        let mut step = None;
        if is_good && self.is_good(&self.gathered) {
            if self.gathered.count < GOOD_SAMPLES {
                return None;
            }
            if siblings.culprit == Some(me) {
                step = Some(Step::Up);
            }
        } else if self.rule.linux_4_18
            || siblings.target == Nanos::ZERO
            || siblings.target >= self.target
        {
            if siblings.culprit.is_none() || siblings.target > self.target {
                (siblings.target, siblings.culprit) = (self.target, Some(me));
            }
            step = Some(Step::Down);
        }
        if let Some(step) = step {
            siblings.last_step = Some(now);
            siblings.step(step, depth);
        }
        self.gathered = Completions::default();
        step
    }

    /// Adopts the parent's cookie; `true` when that changed what the group may do.
    pub(super) fn follow(&mut self, siblings: &Children, depth: i64) -> bool {
        let old = core::mem::replace(&mut self.cookie, siblings.cookie);
        let goes_down = siblings.cookie < old;
        if siblings.cookie == old || (goes_down && self.is_spared(siblings)) {
            return false;
        }
        if goes_down && self.depth == 1 {
            self.use_delay += 1;
        } else if siblings.cookie == START {
            (self.use_delay, self.depth) = (0, UNLIMITED);
        } else if goes_down {
            self.depth = (self.depth.min(depth) / 2).max(1);
        } else {
            self.grow(depth);
        }
        true
    }
    /// A group with a target is not scaled down for a higher target, nor if it has hardly any requests.
    fn is_spared(&self, siblings: &Children) -> bool {
        if self.target == Nanos::ZERO {
            return false;
        }
        let least = if self.rule.linux_4_18 { 0 } else { 1 };
        let few = (siblings.samples * SPARED_PERCENT / 100).max(least);
        siblings.target == Nanos::ZERO || self.target <= siblings.target || self.samples <= few
    }
    fn grow(&mut self, depth: i64) {
        let old = self.depth.min(depth);
        if old == 1 && self.use_delay > 0 {
            self.use_delay -= 1;
        } else if old < depth {
            self.depth = (old + (depth / 16).max(1)).min(depth);
        }
    }
}
