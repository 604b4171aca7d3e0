//! The control law of `iofair host watch`: one ceiling on what all groups without a broken promise get together, so that
//! the promises of the others are kept. It knows nothing of the drive.
//!
//! - A promise is broken: the ceiling is cut by what is missing, by a tenth at least and a half at most
//!   (multiplicative decrease), from what the others really got.
//! - All promises are kept with a margin: the ceiling approaches the last one that broke a promise, by a quarter of the
//!   distance a step; close to it, it waits and then probes by one percent a step, so that it oscillates by a few
//!   percent only.
//! - In between, it stays (a dead band).
//! - Cuts that do not help are taken back: the group asks for less than it was promised, or something else holds it.
//!   The pause before the next attempt doubles.
//! - When no group with a promise is active, there is no ceiling.
//!
//! Rates are bytes a second; one step is one interval.

/// Of the minimum, in thousandths: below the first a promise is broken, above the second it has a margin.
const BAND: [u64; 2] = [1030, 1080];
/// The ceiling is never below this, so that other groups make progress and can show what they ask for.
const FLOOR: u64 = 1_000_000;
/// Thousandths that remain after a cut.
const CUT: [u64; 2] = [500, 900];
/// Steps before it probes beyond the last ceiling that broke a promise.
const HOLD: u32 = 10;
/// Steps after which that ceiling is forgotten.
const FORGET: u32 = 120;
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
    /// Whether it waited for I/O; `None`: nobody knows.
    pub waits: Option<bool>,
    /// Whether its latency target was missed.
    pub slow: bool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Attempt {
    /// Rate, and the others' rate, before the first cut.
    start: Option<(u64, u64)>,
    cuts: u32,
    /// Steps in which the promise is not pursued, and how many the next time.
    paused: u32,
    pause: u32,
}

/// The state of the controller.
#[derive(Clone, Default, Debug)]
pub struct Law {
    ceiling: Option<u64>,
    broke_at: Option<u64>,
    kept_steps: u32,
    quiet_steps: u32,
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
        if promised.iter().all(|it| it.rate == 0 && it.waits != Some(true)) {
            self.quiet_steps += 1;
            if self.quiet_steps >= QUIET {
                *self = Self::default();
            }
            return self.ceiling;
        }
        self.quiet_steps = 0;
        let missing =
            promised.iter().enumerate().filter_map(|(n, it)| self.missing(n, *it, others));
        // Collected, so that every attempt is counted.
        #[expect(clippy::needless_collect)]
        let missing: Vec<u64> = missing.collect();
        match missing.into_iter().min() {
            Some(remains) => self.cut(remains, others),
            None => self.keep(promised, others),
        }
        self.ceiling
    }

    /// What part of its promise a group gets, if that is too little and cuts can help.
    fn missing(&mut self, n: usize, group: Promised, others: u64) -> Option<u64> {
        let part =
            if group.min == 0 { 1000 } else { permille(group.rate, times(group.min, BAND[0])) };
        let broken = (part < 1000 || group.slow)
            && group.waits != Some(false)
            && (group.rate > 0 || group.waits == Some(true));
        let attempt = &mut self.attempts[n];
        if !broken {
            *attempt = Attempt { paused: attempt.paused.saturating_sub(1), ..Attempt::default() };
            return None;
        }
        if attempt.paused > 0 {
            attempt.paused -= 1;
            return None;
        }
        let (rate, ceiling) = *attempt.start.get_or_insert((group.rate, others));
        attempt.cuts += 1;
        let helps = group.rate > times(rate, 1100) || (rate == 0 && group.rate > 0);
        if attempt.cuts > CUTS_MAX && !helps {
            let pause = attempt.pause.max(PAUSE[0]);
            *attempt =
                Attempt { paused: pause, pause: (pause * 2).min(PAUSE[1]), ..Attempt::default() };
            // As before the attempt.
            (self.ceiling, self.broke_at) = (Some(ceiling.max(FLOOR)), None);
            return None;
        }
        Some(if part < 1000 { part } else { CUT[1] })
    }

    fn cut(&mut self, remains: u64, others: u64) {
        self.kept_steps = 0;
        let base = self.ceiling.map_or(others, |it| it.min(others.max(FLOOR)));
        // Another group than ours is in the way, or the cut has no effect yet.
        self.broke_at = Some(self.broke_at.map_or(base, |it| it.min(base)).max(FLOOR));
        self.ceiling = Some(times(base, remains.clamp(CUT[0], CUT[1])).max(FLOOR));
    }

    fn keep(&mut self, promised: &[Promised], others: u64) {
        self.kept_steps += 1;
        if self.kept_steps > FORGET {
            self.broke_at = None;
        }
        let Some(ceiling) = self.ceiling else { return };
        let pursued = promised.iter().zip(&self.attempts).filter(|it| it.1.paused == 0);
        let margin = |it: &Promised| {
            it.min == 0
                || it.waits == Some(false)
                || it.rate == 0
                || it.rate >= times(it.min, BAND[1])
        };
        let limits = others >= times(ceiling, 700);
        if !limits || !pursued.into_iter().all(|it| margin(it.0)) {
            return;
        }
        let near = self.broke_at.map(|it| times(it, 950));
        let step = match near {
            Some(near) if ceiling < near => ((near - ceiling) / 4).max(ceiling / 100),
            Some(_) if self.kept_steps < HOLD => 0,
            Some(_) => ceiling / 100,
            None => ceiling / 10,
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
        let weights: u64 = open.iter().map(|it| u64::from(groups[*it].0)).sum();
        let part = |it: usize| {
            let product = u128::from(left) * u128::from(groups[it].0);
            u64::try_from(product / u128::from(weights.max(1))).unwrap_or(u64::MAX)
        };
        let modest = open.iter().position(|it| groups[*it].1 < part(*it) * 7 / 10);
        let Some(at) = modest.filter(|_| open.len() > 1) else {
            for it in &open {
                parts[*it] = part(*it);
            }
            return parts;
        };
        let it = open[at];
        // Room to grow until the next step.
        parts[it] = (groups[it].1 + groups[it].1 / 3).max(part(it) / 4);
        left = left.saturating_sub(parts[it]);
        open.remove(at);
    }
}

#[cfg(test)]
mod tests;
