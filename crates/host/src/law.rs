//! The control law of `iofair host watch`: one ceiling on what all groups without a broken promise get together, so that
//! the promises of the others are kept. It knows nothing of the drive.
//!
//! - A promise is broken (at first, in two steps one after the other): the ceiling is cut by what is missing, by a tenth at least and a half at most
//!   (multiplicative decrease), from what the others really got.
//! - All promises are kept with a margin: the ceiling approaches the last one that broke a promise, by a quarter of the
//!   distance a step; close to it, it waits and then probes by one percent a step, so that it oscillates by a few
//!   percent only.
//! - In between, it stays (a dead band).
//! - Cuts that do not help are taken back: the group asks for less than it was promised, or something else holds it. For
//!   a pause, what it gets is pursued instead of its minimum. The pause doubles with each attempt.
//! - When no group with a promise is active, there is no ceiling.
//!
//! Rates are bytes a second; one step is one interval.

/// Of the minimum, in thousandths: below the first a promise is broken, above the second it has a margin.
const BAND: [u64; 2] = [1030, 1080];
/// The ceiling is never below this, so that other groups make progress and can show what they ask for.
const FLOOR: u64 = 1_000_000;
/// Thousandths that remain after a cut.
const CUT: [u64; 2] = [500, 900];
/// Steps before it probes beyond the last ceiling that broke a promise; they double with each probe that breaks one.
const HOLD: [u32; 2] = [10, 80];
/// Steps after which a ceiling is known to keep the promises.
const SETTLED: u32 = 3;
/// Thousandths of what a group asks for that are pursued while its minimum is out of reach: above it is the band.
const SATURATED: u64 = 880;
/// Steps after which that ceiling is forgotten.
const FORGET: u32 = 240;
/// Steps without an active group before the ceiling goes.
const QUIET: u32 = 4;
/// Cuts after which they must have helped.
const CUTS_MAX: u32 = 6;
/// Pauses of a group whom cuts do not help, in steps.
const PAUSE: [u32; 2] = [20, 640];

/// What one group with a promise got in a step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Promised {
    /// Guaranteed; 0: only a latency.
    pub min: u64,
    /// What it got.
    pub rate: u64,
    /// Whether it waited for I/O; `None`: unknown.
    pub waits: Option<bool>,
    /// Whether its latency target was missed.
    pub slow: bool,
}

/// Cuts for one group.
#[derive(Clone, Copy, Default, Debug)]
struct Attempt {
    /// The group's rate and the ceiling at the first of the last few cuts.
    start: Option<(u64, u64)>,
    cuts: u32,
    /// Steps in which the group is believed to ask for no more than `demand`, and how many the next time.
    paused: u32,
    pause: u32,
    demand: u64,
}

/// The state of the controller.
#[derive(Clone, Default, Debug)]
pub struct Law {
    ceiling: Option<u64>,
    /// The lowest ceiling that broke a promise lately.
    broke_at: Option<u64>,
    /// The last ceiling with which all promises were kept for some steps.
    kept_at: Option<u64>,
    kept_steps: u32,
    /// Steps before the next probe.
    hold: u32,
    quiet_steps: u32,
    /// Whether a promise was broken in the last step.
    broken_before: bool,
    attempts: Vec<Attempt>,
}

fn permille(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 1000 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}
fn times(value: u64, permille: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(permille) / 1000).unwrap_or(u64::MAX)
}

impl Law {
    /// The ceiling on what the other groups get together in the next step; `None`: none.
    pub fn step(&mut self, promised: &[Promised], others: u64) -> Option<u64> {
        self.attempts.resize(promised.len(), Attempt::default());
        if promised.iter().all(|group| group.rate == 0 && group.waits != Some(true)) {
            self.quiet_steps += 1;
            if self.quiet_steps >= QUIET {
                *self = Self::default();
            }
            return self.ceiling;
        }
        self.quiet_steps = 0;
        let groups = promised.iter().enumerate();
        let missing = groups.filter_map(|(n, group)| self.missing(n, *group, others));
        match missing.min() {
            // The first look at clients that have just started sees a part of their rates.
            Some(_)
                if self.ceiling.is_none() && !std::mem::replace(&mut self.broken_before, true) => {}
            Some(remains) => self.cut(remains, others),
            None => {
                self.broken_before = false;
                self.keep(promised, others);
            }
        }
        self.ceiling
    }

    /// The minimum that is pursued: what the group asks for, if it is known to ask for less.
    fn pursued(&self, n: usize, group: Promised) -> u64 {
        let attempt = &self.attempts[n];
        if attempt.paused > 0 { times(attempt.demand, SATURATED).min(group.min) } else { group.min }
    }

    /// What part of its promise a group gets, if that is too little.
    fn missing(&mut self, n: usize, group: Promised, others: u64) -> Option<u64> {
        let pursued = times(self.pursued(n, group), BAND[0]);
        let part = if group.min == 0 { 1000 } else { permille(group.rate, pursued) };
        let asks = group.waits != Some(false) && (group.rate > 0 || group.waits == Some(true));
        let broken = (part < 1000 || group.slow) && asks;
        let attempt = &mut self.attempts[n];
        if attempt.paused > 0 {
            let more = group.rate > times(attempt.demand, 1250);
            attempt.paused = if more { 0 } else { attempt.paused - 1 };
            return broken.then_some(part.min(CUT[1]));
        }
        if !broken {
            // A kept promise shows that cuts can help.
            let pause = if group.rate >= group.min { 0 } else { attempt.pause };
            *attempt = Attempt { pause, ..Attempt::default() };
            return None;
        }
        let ceiling = self.ceiling.unwrap_or(others);
        let (rate, from) = *attempt.start.get_or_insert((group.rate, ceiling));
        attempt.cuts += 1;
        if attempt.cuts > CUTS_MAX {
            if group.rate <= times(rate, 1100) {
                let pause = attempt.pause.max(PAUSE[0]);
                let next = (pause * 2).min(PAUSE[1]);
                let demand = group.rate.max(rate);
                *attempt = Attempt { paused: pause, pause: next, demand, ..Attempt::default() };
                (self.ceiling, self.broke_at) = (Some(from.max(FLOOR)), None);
                return None;
            }
            (attempt.start, attempt.cuts) = (Some((group.rate, ceiling)), 0);
        }
        Some(part.min(CUT[1]))
    }

    fn cut(&mut self, remains: u64, others: u64) {
        self.kept_steps = 0;
        let base = self.ceiling.map_or(others, |ceiling| ceiling.min(others.max(FLOOR)));
        self.broke_at = Some(self.broke_at.map_or(base, |ceiling| ceiling.min(base)).max(FLOOR));
        let cut = times(base, remains.clamp(CUT[0], CUT[1]));
        // After a probe: back to what is known to keep the promises, and longer without one.
        let back = self.kept_at.take().map(|kept| times(kept, 950)).filter(|back| *back < base);
        self.hold = match back {
            Some(_) => (self.hold * 2).clamp(HOLD[0], HOLD[1]),
            None => HOLD[0],
        };
        self.ceiling = Some(back.map_or(cut, |known| known.max(cut)).max(FLOOR));
    }

    fn keep(&mut self, promised: &[Promised], others: u64) {
        self.kept_steps += 1;
        if self.kept_steps > FORGET {
            self.broke_at = None;
        }
        let Some(ceiling) = self.ceiling else { return };
        let margin = |(n, group): (usize, &Promised)| {
            let enough = group.rate >= times(self.pursued(n, *group), BAND[1]);
            group.min == 0 || group.waits == Some(false) || group.rate == 0 || enough
        };
        let limits = others >= times(ceiling, 700);
        if !limits || !promised.iter().enumerate().all(margin) {
            return;
        }
        if self.kept_steps >= SETTLED {
            self.kept_at = Some(ceiling);
        }
        // The drive gives more than it did.
        self.broke_at = self.broke_at.filter(|broke_at| ceiling <= times(*broke_at, 1050));
        let near = self.broke_at.map(|ceiling| times(ceiling, 950));
        let step = match near {
            Some(near) if ceiling < near => ((near - ceiling) / 4).max(ceiling / 100),
            Some(_) if self.kept_steps < self.hold => 0,
            Some(_) => ceiling / 100,
            None => ceiling / 4,
        };
        self.ceiling = Some(ceiling.saturating_add(step));
    }
}

/// Divides a ceiling between groups by weight; what a group does not use goes to the others. `groups`: weight, and what
/// it got in the last step.
pub fn divide(ceiling: u64, groups: &[(u32, u64)]) -> Vec<u64> {
    let mut parts = vec![0; groups.len()];
    let mut open: Vec<usize> = (0..groups.len()).collect();
    let mut left = ceiling;
    loop {
        let weights: u64 = open.iter().map(|index| u64::from(groups[*index].0)).sum();
        let part = |index: usize| {
            let product = u128::from(left) * u128::from(groups[index].0);
            u64::try_from(product / u128::from(weights.max(1))).unwrap_or(u64::MAX)
        };
        let modest = open.iter().position(|index| groups[*index].1 < part(*index) * 7 / 10);
        let Some(at) = modest.filter(|_| open.len() > 1) else {
            for index in &open {
                parts[*index] = part(*index);
            }
            return parts;
        };
        let index = open[at];
        // Room to grow until the next step.
        parts[index] = (groups[index].1 + groups[index].1 / 3).max(part(index) / 4);
        left = left.saturating_sub(parts[index]);
        open.remove(at);
    }
}

#[cfg(test)]
mod tests;
