//! What one group may still send in one direction: blk-throttle's slices, or a token bucket. The manual
//! page of `throttle-max` has the equations.

use crate::parts::scale::scale;
use crate::parts::token_bucket::{TokenBucket, due};
use iofair_core::time::{Instant, Nanos};

/// How rates are enforced; the same for all groups.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Length of a slice in milliseconds.
    pub slice_ms: u64,
    /// Trim and change of limits as in Linux 7.0, not as in 4.18.
    pub linux_7: bool,
    /// The policy changes limits often: a request too many for a slice asks again at the slice's end, and a change begins a new
    /// slice. Without it, such a request asks when the present limit has room for it, and what was used of a slice stays used.
    pub ask_each_slice: bool,
    /// What a token bucket saves up; zero means slices.
    pub burst: Nanos,
    /// Reads and writes share one account.
    pub joint: bool,
}

impl Rule {
    /// The account of a direction.
    pub(super) const fn meter(self, direction: usize) -> usize {
        if self.joint { 0 } else { direction }
    }
}

/// Limits of one direction, in units a second, `None` where there is none: bytes, requests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limit(pub [Option<u64>; 2]);

impl Limit {
    /// Whether a request costs nothing here: a further piece of one that was charged.
    pub fn is_free(self, cost: [u64; 2]) -> bool {
        self.0.iter().zip(cost).all(|(limit, cost)| limit.is_none() || cost == 0)
    }
    /// Whether there is none at all.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// A request that asks whether it may pass.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Bytes, requests.
    pub cost: [u64; 2],
    /// Whether it has waited.
    pub queued: bool,
}

/// A change of limits.
#[derive(Clone, Copy, Debug)]
pub struct LimitChange {
    /// Those until now.
    pub old: Limit,
    /// Those from now on.
    pub new: Limit,
    /// Whether requests wait.
    pub queued: bool,
}

/// blk-throttle's account, on a clock of milliseconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Slice {
    start: u64,
    end: u64,
    /// Sent since `start`: bytes, requests. Negative: allowed before the limit changed and not used.
    sent: [i64; 2],
}

impl Slice {
    /// Whether the slice has ended, so that a new one starts with the next request.
    fn is_used(&self, now: u64) -> bool {
        now < self.start || now > self.end
    }
    fn restart(&mut self, now: u64, rule: Rule) {
        *self = Self { start: now, end: now + rule.slice_ms, sent: [0; 2] };
    }
    fn extend(&mut self, until: u64, rule: Rule) {
        if self.end < until {
            self.end = until.next_multiple_of(rule.slice_ms);
        }
    }
    /// Milliseconds until this may go; 0 is at once.
    fn wait(&mut self, now: u64, rule: Rule, limit: Limit, ask: Ask) -> u64 {
        let Ask { cost, queued } = ask;
        if self.is_used(now) && !queued {
            self.restart(now, rule);
        } else {
            self.extend(now + rule.slice_ms, rule);
        }
        let elapsed = now.saturating_sub(self.start);
        let [bytes, requests] = limit.0;
        let mut wait = 0;
        if let Some(rate) = bytes {
            let rounded = elapsed.max(1).next_multiple_of(rule.slice_ms);
            let over = self.sent[0] + cost[0] as i64 - allowed(rate, rounded);
            if over > 0 {
                wait = (scale(over as u64, 1000, rate)).max(1) + (rounded - elapsed);
            }
        }
        if let Some(rate) = requests {
            let rounded = (elapsed + 1).next_multiple_of(rule.slice_ms);
            let after = self.sent[1] + cost[1] as i64;
            if after > allowed(rate, rounded) {
                // When the slice begins in which it fits; the source asks again at each until then.
                let fits = (after as u64).saturating_mul(1000).div_ceil(rate);
                let until = match rule.ask_each_slice {
                    true => rounded,
                    false => fits.next_multiple_of(rule.slice_ms) - rule.slice_ms,
                };
                let one = if rule.linux_7 { 1000 / rate + 1 } else { 0 };
                wait = wait.max(until - elapsed).max(one);
            }
        }
        if wait > 0 {
            self.extend(now + wait, rule);
        }
        wait
    }
    fn trim(&mut self, now: u64, rule: Rule, limit: Limit) {
        if self.is_used(now) {
            return;
        }
        self.end = (now + rule.slice_ms).next_multiple_of(rule.slice_ms);
        let mut slices = (now - self.start) / rule.slice_ms;
        if rule.linux_7 {
            slices = slices.saturating_sub(1);
        }
        if slices == 0 {
            return;
        }
        let passed = slices * rule.slice_ms;
        let allowance = limit.0.map(|rate| rate.map_or(i64::MAX, |rate| allowed(rate, passed)));
        if allowance == [0; 2] {
            return;
        }
        for (sent, allowance) in self.sent.iter_mut().zip(allowance) {
            *sent = if *sent >= allowance { *sent - allowance } else { 0 };
        }
        self.start += passed;
    }
    fn change(&mut self, now: u64, rule: Rule, change: LimitChange) {
        let LimitChange { old, new, queued } = change;
        let before = *self;
        self.restart(now, rule);
        let elapsed = now.saturating_sub(before.start);
        let carries = !rule.linux_7 && !rule.ask_each_slice && !before.is_used(now);
        let in_slice = if carries { elapsed % rule.slice_ms } else { 0 };
        (self.start, self.end) = (self.start - in_slice, self.end - in_slice);
        for (kind, rates) in old.0.into_iter().zip(new.0).enumerate() {
            match rates {
                (Some(old), _) if rule.linux_7 && queued => {
                    self.sent[kind] = before.sent[kind] - allowed(old, elapsed);
                }
                // In proportion, so that a lower limit makes no debt.
                (Some(old), Some(new)) if carries => {
                    let used = before.sent[kind] - allowed(old, elapsed - in_slice);
                    self.sent[kind] = scale(used.max(0) as u64, new, old).min(1 << 62) as i64;
                }
                _ => {}
            }
        }
    }
}

/// What a rate gives in this many milliseconds.
fn allowed(rate: u64, ms: u64) -> i64 {
    scale(rate, ms, 1000).min(1 << 62) as i64
}

/// The account of one group in one direction.
#[derive(Clone, Copy, Debug)]
pub enum Meter {
    /// blk-throttle's time slices.
    Slices(Slice),
    /// Token buckets: bytes, requests.
    Buckets([Option<TokenBucket>; 2]),
}

impl Meter {
    /// An account that is opened now.
    pub fn new(now: Instant, rule: Rule, limit: Limit) -> Self {
        if rule.burst == Nanos::ZERO {
            let mut slice = Slice::default();
            if !limit.is_none() {
                slice.restart(now.0 / MS, rule);
            }
            return Self::Slices(slice);
        }
        Self::Buckets(limit.0.map(|rate| rate.map(|rate| TokenBucket::new(now, rate, rule.burst))))
    }
    /// Whether a request may pass, or when to ask again.
    pub fn wait(&mut self, now: Instant, rule: Rule, limit: Limit, ask: Ask) -> Option<Instant> {
        if limit.is_none() {
            return None;
        }
        match self {
            Self::Slices(slice) => {
                let now = now.0 / MS;
                let wait = slice.wait(now, rule, limit, ask);
                (wait > 0).then(|| Instant((now.saturating_add(wait)).saturating_mul(MS)))
            }
            Self::Buckets(buckets) => ready_at(buckets, ask.cost).filter(|at| *at > now),
        }
    }
    /// A request goes that was held, at a wake-up that was planned earlier.
    pub(crate) fn charge_held(&mut self, now: Instant, planned: Instant, cost: [u64; 2]) {
        let at = match self {
            Self::Buckets(buckets) => due(now, planned, ready_at(buckets, cost).unwrap_or(now)),
            Self::Slices(_) => now,
        };
        self.charge(at, cost);
    }
    /// A request goes.
    pub fn charge(&mut self, now: Instant, cost: [u64; 2]) {
        match self {
            Self::Slices(slice) => {
                for (sent, cost) in slice.sent.iter_mut().zip(cost) {
                    *sent = sent.saturating_add(cost as i64);
                }
            }
            Self::Buckets(buckets) => {
                for (bucket, cost) in buckets.iter_mut().zip(cost) {
                    if let Some(bucket) = bucket {
                        bucket.take(now, cost);
                    }
                }
            }
        }
    }
    /// Gives up the credit of slices gone by; after each charge.
    pub fn trim(&mut self, now: Instant, rule: Rule, limit: Limit) {
        if let Self::Slices(slice) = self {
            slice.trim(now.0 / MS, rule, limit);
        }
    }
    /// A request comes up from a child that was metered by `child`: if no slice is active, the new
    /// one starts when the child's did, since that is how long the request has been waiting.
    pub(crate) fn credit_from(&mut self, now: Instant, rule: Rule, child: &Self) {
        let now = now.0 / MS;
        let (Self::Slices(slice), Self::Slices(child)) = (self, child) else { return };
        if slice.is_used(now) {
            slice.sent = [0; 2];
            slice.start = slice.start.max(child.start);
            slice.end = now + rule.slice_ms;
        }
    }
    /// Other limits from now on.
    pub fn change(&mut self, now: Instant, rule: Rule, change: LimitChange) {
        match self {
            Self::Slices(slice) => slice.change(now.0 / MS, rule, change),
            Self::Buckets(buckets) => {
                for (bucket, rate) in buckets.iter_mut().zip(change.new.0) {
                    match (bucket.as_mut(), rate) {
                        (Some(bucket), Some(rate)) => bucket.set_rate(now, rate, rule.burst),
                        (_, rate) => {
                            *bucket = rate.map(|rate| TokenBucket::new(now, rate, rule.burst));
                        }
                    }
                }
            }
        }
    }
}

fn ready_at(buckets: &[Option<TokenBucket>; 2], cost: [u64; 2]) -> Option<Instant> {
    let ready = buckets.iter().zip(cost);
    ready.filter_map(|(bucket, cost)| Some(bucket.as_ref()?.ready_at(cost))).max()
}

/// Nanoseconds in a tick of blk-throttle's clock, a millisecond (`HZ` = 1000).
const MS: u64 = 1_000_000;
