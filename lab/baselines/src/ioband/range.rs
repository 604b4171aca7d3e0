//! range-bw: a minimum and a maximum for each group, counted anew every second.
//!
//! Groups below their minimum come first, by how much they lack; then those that have it, and once all
//! have theirs everybody takes turns. Who reaches its maximum gets no more until the second is over:
//! its submitters sleep. All of this decides only among requests that are *blocked*, and a request is
//! blocked only when `io_limit` requests are below or its group's turn is over.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::order::{Blocked, Order};
use iofair_core::contract::Contract;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::SECTOR_BYTES;

/// Time over which bandwidth is counted.
const PERIOD: Nanos = Nanos::from_secs(1);
/// The turn of a group without a minimum; those of other groups are longer in proportion to their minimums.
const TURN: Nanos = Nanos::from_millis(100);
/// A turn of a group that has its minimum.
const TURN_RANGE: Nanos = Nanos::from_millis(20);
/// Clients that sleep at a maximum are woken this long after the period's end (10 ticks).
const LATE: Nanos = Nanos::from_millis(10);
/// Priority of a group without a minimum, and of each token that a group lacks.
const PRIORITY_BASE: i64 = 10;
/// Number of blocked requests at which submitters sleep: twice the group's part of `io_limit`, divided by this.
const OVERCOMMIT: i64 = 4;

/// What a group may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// It is below its minimum.
    Minimum,
    /// It has its minimum.
    Range,
    /// It never had a minimum.
    Default,
    /// It reached its maximum.
    Shut,
}

#[derive(Clone, Copy, Debug)]
struct Band {
    live: bool,
    /// Sectors per period; a maximum of 0 means none.
    min: i64,
    max: i64,
    mode: Mode,
    /// Sectors in this period.
    consumed: i64,
    turn: Nanos,
    turn_end: Option<Instant>,
    turn_over: bool,
    limit: i64,
    /// When all take turns: the number of its last turn.
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

/// The bands of all groups.
pub(super) struct Range {
    io_limit: i64,
    bands: Vec<Band>,
    order: Order,
    minimums: i64,
    consumed: i64,
    /// Number of groups that are below their minimum or at their maximum.
    unsettled: usize,
    period_end: Option<Instant>,
    /// Whether all groups have their minimum.
    leftover: bool,
    turns: u64,
    running: Option<usize>,
    /// Groups at their maximum with sleeping clients, and when to wake these; in order of time.
    timers: VecDeque<(Instant, usize)>,
    /// Whether a new period began since this was last checked.
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
    /// Number of blocked requests of a class at which a group's submitters sleep.
    pub(super) fn limit(&self, group: usize) -> i64 {
        self.bands[group].limit
    }
    /// The next group to release. While all take turns, it then waits for all others.
    pub(super) fn best(&mut self, room: [bool; 2]) -> Option<usize> {
        let best = self.order.best(room)?;
        self.turns += 1;
        self.bands[best].last_turn = self.turns;
        Some(best)
    }

    fn priority(&self, group: usize) -> i64 {
        let band = &self.bands[group];
        match band.mode {
            // The original draws from 1 to 9; here only matters which groups may send at all.
            _ if self.leftover => 1,
            Mode::Minimum => (band.min - band.consumed).saturating_mul(PRIORITY_BASE),
            Mode::Default => PRIORITY_BASE,
            Mode::Range => PRIORITY_BASE / 2,
            Mode::Shut => 0,
        }
    }
    /// Whether a group may send. Blocked requests always may, once they are chosen; a new one may if it is the
    /// group's turn, or no group's, in which case the group's turn begins.
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
        // Negative is not zero: a group that has more than its minimum of an old period may send.
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

    /// Counts sectors that a group sends. Returns whether other groups should have a turn now.
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
    /// Returns whether the group has reached its maximum.
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
    /// Whether a new period began. All sleeping clients should then check again.
    pub(super) fn take_renewed(&mut self) -> bool {
        core::mem::take(&mut self.renewed)
    }

    /// Whether a submitter must sleep because its group has reached its maximum. Makes sure that it is woken.
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
    /// When sleeping clients must be woken.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.front().map(|(at, _)| *at)
    }
    /// A group whose sleeping clients must be woken now.
    pub(super) fn pop_timer(&mut self, now: Instant) -> Option<usize> {
        self.next_timer().filter(|at| *at <= now)?;
        let (_, group) = self.timers.pop_front()?;
        self.bands[group].timer = false;
        if self.bands[group].mode == Mode::Shut {
            self.set_mode(group, Mode::Minimum);
        }
        Some(group)
    }

    /// Updates a group after a change of its blocked requests or its consumption.
    pub(super) fn place(&mut self, group: usize, blocked: Blocked) {
        self.order.leave(group);
        if blocked == Blocked::Nothing {
            return;
        }
        let key = match self.leftover {
            true => u128::from(self.bands[group].last_turn),
            false => u128::MAX - self.priority(group).max(1) as u128,
        };
        self.order.enter(group, blocked, key);
    }
    fn place_all(&mut self) {
        for group in 0..self.bands.len() {
            if let Some(blocked) = self.order.blocked(group) {
                self.place(group, blocked);
            }
        }
    }
}

/// Handling of new, removed and changed groups.
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
    /// Computes turns and limits again after bands have changed.
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

/// Minimum and maximum of a contract in sectors a second. Both directions count together, so the lower of their
/// ceilings applies to both.
fn bounds(contract: &Contract) -> (i64, i64) {
    let sectors = |rate: u64| (rate / SECTOR_BYTES).clamp(1, 1 << 40) as i64;
    let max = contract.max.bytes_per_s.iter().flatten().min();
    let (min, max) = (contract.min.map_or(0, sectors), max.map_or(0, |max| sectors(*max)));
    // The original refuses a maximum below the minimum.
    (if max > 0 { min.min(max) } else { min }, max)
}
