//! range-bw: a minimum and a maximum for each group, counted anew every second.
//!
//! Groups below their minimum come first, by how much they lack; then those that have it, and once all
//! have theirs everybody takes turns. Who reaches its maximum gets no more until the second is over:
//! its submitters sleep. All of this decides only among requests that are *blocked*, and a request is
//! blocked only when `io_limit` requests are below or its group's turn is over.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::order::{Order, Standing};
use iofair_core::contract::Contract;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::SECTOR_BYTES;

/// Time over which bandwidth is counted.
const PERIOD: Nanos = Nanos::from_secs(1);
/// A turn of a group without a minimum; others' are longer in proportion to what they were promised.
const TURN: Nanos = Nanos::from_millis(100);
/// A turn of a group that has its minimum.
const TURN_RANGE: Nanos = Nanos::from_millis(20);
/// Sleepers at the maximum are woken so long after the period's end (10 ticks).
const LATE: Nanos = Nanos::from_millis(10);
/// Priority of a group without a minimum, and of each token that a group lacks.
const PRIORITY_BASE: i64 = 10;
/// Blocked requests at which submitters sleep: twice the group's part of `io_limit`, over so many.
const OVERCOMMIT: i64 = 4;

/// What a group may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// It lacks of its minimum.
    Minimum,
    /// It has its minimum.
    Range,
    /// It never had one.
    Default,
    /// It reached its maximum.
    Shut,
}

#[derive(Clone, Copy, Debug)]
struct Band {
    live: bool,
    /// Sectors a period; a maximum of 0 is none.
    min: i64,
    max: i64,
    mode: Mode,
    /// Sectors of this period.
    consumed: i64,
    turn: Nanos,
    turn_end: Option<Instant>,
    turn_over: bool,
    limit: i64,
    /// When everybody takes turns: the number of its last one.
    last_turn: u64,
    timer: bool,
}

const NOBODY: Band = Band {
    live: false,
    min: 0,
    max: 0,
    mode: Mode::Default,
    consumed: 0,
    turn: TURN,
    turn_end: None,
    turn_over: false,
    limit: 1,
    last_turn: 0,
    timer: false,
};

impl Band {
    fn is_unsettled(&self) -> bool {
        matches!(self.mode, Mode::Minimum | Mode::Shut)
    }
}

/// All groups' bands.
pub(super) struct Range {
    io_limit: i64,
    bands: Vec<Band>,
    order: Order,
    minimums: i64,
    consumed: i64,
    /// Groups that lack of their minimum, or reached their maximum.
    unsettled: usize,
    period_end: Option<Instant>,
    /// Everybody has its minimum.
    leftover: bool,
    turns: u64,
    running: Option<usize>,
    /// Groups at their maximum with sleepers, and when to wake these; times never fall.
    timers: VecDeque<(Instant, usize)>,
    /// A new period began since this was last asked.
    renewed: bool,
    stale: bool,
}

impl Range {
    pub(super) fn new(io_limit: i64) -> Self {
        Self {
            io_limit,
            bands: Vec::new(),
            order: Order::new(),
            minimums: 0,
            consumed: 0,
            unsettled: 0,
            period_end: None,
            leftover: false,
            turns: 0,
            running: None,
            timers: VecDeque::new(),
            renewed: false,
            stale: false,
        }
    }
    /// Blocked requests of a class at which a group's submitters sleep.
    pub(super) fn limit(&self, group: usize) -> i64 {
        self.bands[group].limit
    }
    /// The next group to release; in everybody's turn it then waits for all others.
    pub(super) fn best(&mut self, room: [bool; 2]) -> Option<usize> {
        let best = self.order.best(room)?;
        self.turns += 1;
        self.bands[best].last_turn = self.turns;
        Some(best)
    }

    fn priority(&self, group: usize) -> i64 {
        let band = &self.bands[group];
        match band.mode {
            // The original draws from 1 to 9; who may send at all is all that matters here.
            _ if self.leftover => 1,
            Mode::Minimum => (band.min - band.consumed).saturating_mul(PRIORITY_BASE),
            Mode::Default => PRIORITY_BASE,
            Mode::Range => PRIORITY_BASE / 2,
            Mode::Shut => 0,
        }
    }
    /// May a group send? Blocked requests always may, once they are chosen; a new one when it is the
    /// group's turn or nobody's, which takes the turn.
    pub(super) fn may_submit(&mut self, now: Instant, group: usize, blocked: bool) -> bool {
        if blocked {
            return true;
        }
        let band = &mut self.bands[group];
        if self.running == Some(group) {
            if core::mem::take(&mut band.turn_over) {
                band.turn_end = None;
                return false;
            }
            if band.turn_end.is_none() {
                self.begin_turn(now, group);
            }
        } else {
            self.running = Some(group);
            self.begin_turn(now, group);
        }
        // Below zero is not zero: a group that has more than its minimum of an old period may.
        self.priority(group) != 0
    }
    fn begin_turn(&mut self, now: Instant, group: usize) {
        let leftover = self.leftover;
        let band = &mut self.bands[group];
        if leftover {
            band.turn_end = Some(now + band.turn);
            return;
        }
        let turn = match band.mode {
            Mode::Minimum => Some(band.turn),
            Mode::Range => Some(TURN_RANGE),
            Mode::Default => Some(TURN),
            Mode::Shut => None,
        };
        band.turn_end = turn.map(|turn| now + turn);
        band.turn_over = turn.is_none();
    }

    /// A group sends so many sectors. `true`: others should have a turn now.
    pub(super) fn charge(&mut self, now: Instant, group: usize, sectors: i64) -> bool {
        let end = *self.period_end.get_or_insert(now + PERIOD);
        if now > end {
            self.renew(now);
        } else if self.count(group, sectors) {
            return true;
        }
        let band = &mut self.bands[group];
        let over = band.turn_end.is_some_and(|end| now > end);
        band.turn_over |= over;
        over
    }
    /// `true`: it has reached its maximum.
    fn count(&mut self, group: usize, sectors: i64) -> bool {
        self.consumed += sectors;
        let band = &mut self.bands[group];
        band.consumed += sectors;
        if band.max > 0 && band.consumed >= band.max {
            self.set_mode(group, Mode::Shut);
            return true;
        }
        if band.mode != Mode::Range && band.min <= band.consumed {
            self.set_mode(group, Mode::Range);
            let all_have = self.minimums <= self.consumed && self.unsettled == 0;
            if all_have && !self.leftover {
                self.leftover = true;
                self.place_all();
            }
        }
        false
    }
    fn set_mode(&mut self, group: usize, mode: Mode) {
        let band = &mut self.bands[group];
        self.unsettled -= usize::from(band.is_unsettled());
        band.mode = mode;
        self.unsettled += usize::from(band.is_unsettled());
    }
    fn renew(&mut self, now: Instant) {
        for group in 0..self.bands.len() {
            self.bands[group].consumed = 0;
            if self.bands[group].mode != Mode::Default {
                self.set_mode(group, Mode::Minimum);
            }
        }
        self.consumed = 0;
        self.period_end = Some(now + PERIOD);
        self.leftover = false;
        self.renewed = true;
        self.place_all();
    }
    /// Did a new period begin? Then all that sleep should look again.
    pub(super) fn take_renewed(&mut self) -> bool {
        core::mem::take(&mut self.renewed)
    }

    /// Must a submitter sleep because its group has reached its maximum? Sees to it that it is woken.
    pub(super) fn is_shut(&mut self, now: Instant, group: usize) -> bool {
        let band = &mut self.bands[group];
        let Some(end) = self.period_end.filter(|end| band.mode == Mode::Shut && *end > now) else {
            return false;
        };
        if !core::mem::replace(&mut band.timer, true) {
            self.timers.push_back((end + LATE, group));
        }
        true
    }
    /// When sleepers are to be woken.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.front().map(|(at, _)| *at)
    }
    /// A group whose sleepers are to be woken by now.
    pub(super) fn pop_timer(&mut self, now: Instant) -> Option<usize> {
        self.next_timer().filter(|at| *at <= now)?;
        let (_, group) = self.timers.pop_front()?;
        self.bands[group].timer = false;
        if self.bands[group].mode == Mode::Shut {
            self.set_mode(group, Mode::Minimum);
        }
        Some(group)
    }

    /// Something changed for a group: what it has waiting, or what it consumed.
    pub(super) fn place(&mut self, group: usize, standing: Standing) {
        self.order.leave(group);
        if standing == Standing::Nothing {
            return;
        }
        let key = match self.leftover {
            true => u128::from(self.bands[group].last_turn),
            false => u128::MAX - self.priority(group).max(1) as u128,
        };
        self.order.enter(group, standing, key);
    }
    fn place_all(&mut self) {
        for group in 0..self.bands.len() {
            if let Some(standing) = self.order.standing(group) {
                self.place(group, standing);
            }
        }
    }
}

/// Groups come, go and change.
impl Range {
    pub(super) fn add(&mut self, group: usize, contract: &Contract) {
        if self.bands.len() <= group {
            self.bands.resize(group + 1, NOBODY);
            self.order.grow(group + 1);
        }
        self.bands[group] = Band { live: true, ..NOBODY };
        self.set(group, contract);
        self.stale = true;
    }
    pub(super) fn update(&mut self, group: usize, contract: &Contract) {
        let (min, max) = bounds(contract);
        if (min, max) != (self.bands[group].min, self.bands[group].max) {
            self.set(group, contract);
            self.stale = true;
        }
    }
    fn set(&mut self, group: usize, contract: &Contract) {
        let band = &mut self.bands[group];
        (band.min, band.max) = bounds(contract);
        let mode = if band.min > 0 { Mode::Minimum } else { Mode::Default };
        self.set_mode(group, mode);
    }
    pub(super) fn remove(&mut self, group: usize) {
        self.set_mode(group, Mode::Default);
        self.bands[group] = NOBODY;
        self.timers.retain(|(_, other)| *other != group);
        self.running = self.running.filter(|running| *running != group);
        self.stale = true;
    }
    /// Finds turns and limits anew after bands have changed.
    pub(super) fn refresh(&mut self) {
        if !core::mem::take(&mut self.stale) {
            return;
        }
        self.minimums = self.bands.iter().map(|band| band.min).sum();
        for band in self.bands.iter_mut().filter(|band| band.live) {
            (band.turn, band.limit) = (TURN, 1);
            if self.minimums > 0 {
                let part = u128::from(TURN.0) * ((band.min + band.max) / 2) as u128;
                band.turn += Nanos((part / self.minimums as u128) as u64);
                let part = i128::from(self.io_limit) * 2 * i128::from(band.min);
                band.limit += (part / i128::from(self.minimums)) as i64 / OVERCOMMIT;
            }
        }
        self.place_all();
    }
}

/// Minimum and maximum of a contract in sectors a second. Both directions count together, so the lower of
/// their ceilings holds for both.
fn bounds(contract: &Contract) -> (i64, i64) {
    let sectors = |rate: u64| (rate / SECTOR_BYTES).clamp(1, 1 << 40) as i64;
    let max = contract.max.bytes_per_s.iter().flatten().min();
    let (min, max) = (contract.min.map_or(0, sectors), max.map_or(0, |max| sectors(*max)));
    // What the original refuses: a maximum below the minimum.
    (if max > 0 { min.min(max) } else { min }, max)
}
