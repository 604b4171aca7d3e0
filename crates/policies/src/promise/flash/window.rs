//! The window: the drive time of commands in flight that are not for reservations, and the length of pieces.
//!
//! A request for a minimum waits for what is in the drive already, and shares hold only for what waits in the scheduler. The
//! window is therefore as small as it can be without any loss of throughput, and so are the pieces into which long requests are
//! cut. What the drive does within a window of another size cannot be computed, only tried:
//!
//! ```text
//! scan      W, none, and 1, 2, 4 and 16 times what a piece takes that has the drive to itself
//! fine      W, 3/4 W, 5/4 W
//! pieces    L, L / 2, 2 L
//! turns     each size has one, and then another one of twice the length, until the noise is below 1 %
//! turn      from a command that goes by share to another one: what a turn leaves reservations behind by is done in it
//! total     drive time of all that was completed, reservations included, at the same prices for all sizes, for each second
//! noise     half of the difference between the last turn of a size and all of its turns before, which took as long
//! then      the smallest size whose total is within 1 % of the best one; the next round comes soon after a gain, else later
//! ```
//!
//! If one read in a hundred takes longer than its latency with a size, and not with all sizes, it has no more turns either.
//! A size that is worse than the best one by more than three times the noise has no more turns. If there still is noise after
//! the longest turns, the best size is taken, small or not, since otherwise W would drift to the smallest one, and with more than 3 % of
//! noise nothing changes unless one size is left; in a scan, which cannot drift, the smallest one within the noise, or 3 %, is taken. A
//! round counts only if requests waited most of the time, since a light load shows nothing about a heavy one, or one about pieces if any
//! went in pieces.
//!
//! When prices change, W changes with them. Otherwise held requests would raise prices, and higher prices would hold more.
//!
//! Source: Maron and Moore, "Hoeffding races" (1994), for sizes that drop out of a round.

use iofair_core::time::{Instant, Nanos};

use super::cost::{Costs, Work};
use super::shares::Side;
use crate::parts::scale::scale;

/// Sizes of the scan, as multiples of what a piece takes alone: as much as the drive does meanwhile keeps it busy, several times as much
/// if commands delay each other.
const SCAN: [u64; 4] = [1, 2, 4, 16];
const SIZES: usize = SCAN.len() + 2;
/// Bounds of the window: some commands of the fastest drive, and what the slowest volume does in a second.
const BOUNDS: [Nanos; 2] = [Nanos::from_micros(20), Nanos::from_secs(1)];
/// The shortest turn: some commands of a flash drive; and the longest: several times
/// what the cache of a usual drive takes to drain.
const TURN: [Nanos; 2] = [Nanos::from_millis(10), Nanos::from_millis(160)];
/// A size within this part of the best is as good, in 1/1000; noise must be below it.
const GOOD: u64 = 10;
/// With more noise than this, in 1/1000, nothing but a scan changes the window.
const LOUD: u64 = 30;
/// A size has no more turns if it is worse than the best one by so many times the noise.
const NOISES: u64 = 3;
/// One read in so many may take longer than its latency.
const LATE_PART: u32 = 100;
/// Pause after a round that changed something, and the longest one.
const PAUSE: [Nanos; 2] = [Nanos::from_millis(100), Nanos::from_millis(3200)];
/// Pause before the first round: until prices were measured.
const FIRST: Nanos = Nanos::from_millis(25);
/// Time in which a drive reads a piece at first, and bounds of pieces in bytes then; later they are a quarter to eight times as long.
const PIECE_TIME: Nanos = Nanos::from_micros(100);
pub(super) const PIECE: [u64; 2] = [32 << 10, 128 << 10];

/// What limits commands in flight.
pub(super) trait Window: Send {
    /// The most drive time in flight.
    fn limit(&self) -> Nanos;
    /// The longest piece, in bytes.
    fn piece(&self, costs: &Costs) -> u64;
    /// A command was completed. `waits`: requests wait in the scheduler.
    fn on_complete(&mut self, waits: bool);
    /// A command is dispatched by share; this much drive time is in flight now. `shared`: several clients are active.
    fn on_dispatch(&mut self, now: Instant, costs: &Costs, in_flight: Nanos, shared: bool);
    /// A request with a latency was completed.
    fn on_latency(&mut self, is_late: bool);
    /// A request goes in pieces.
    fn on_cut(&mut self);
    /// Prices have changed from `before` to `after`, for the same work.
    fn on_prices(&mut self, before: Nanos, after: Nanos);
}

/// A window of a given size, to compare with.
pub(super) struct Fixed(pub(super) Nanos);

impl Window for Fixed {
    fn limit(&self) -> Nanos {
        self.0
    }
    fn piece(&self, costs: &Costs) -> u64 {
        usual_piece(costs)
    }
    fn on_complete(&mut self, _: bool) {}
    fn on_dispatch(&mut self, _: Instant, _: &Costs, _: Nanos, _: bool) {}
    fn on_latency(&mut self, _: bool) {}
    fn on_cut(&mut self) {}
    fn on_prices(&mut self, _: Nanos, _: Nanos) {}
}

/// Commands cost no more than what they carry.
fn usual_piece(costs: &Costs) -> u64 {
    let bytes = costs.bytes_read_in(PIECE_TIME).clamp(PIECE[0], PIECE[1]);
    1 << bytes.max(costs.even()).ilog2()
}

/// What a size has shown in a round.
#[derive(Clone, Copy, Default, Debug)]
struct Shown {
    /// In all turns but the last one, and in the last one.
    work: [Work; 2],
    time: [Nanos; 2],
    /// It is worse than others, and has no more turns.
    is_out: bool,
    /// Completions, and those with requests waiting.
    completed: u32,
    waited: u32,
    /// Requests with a latency, and those that took longer.
    promised: u32,
    late: u32,
}

impl Shown {
    fn add(&mut self, work: Work, time: Nanos) {
        let [all, last] = &mut self.work;
        all.add(last);
        *last = work;
        self.time = [self.time[0] + self.time[1], time];
    }
    /// Drive time of all that was completed, in 1/10,000 of the time.
    fn total(&self, costs: &Costs) -> u64 {
        let price: u64 = self.work.iter().map(|work| costs.price(work).0).sum();
        price.saturating_mul(10_000) / (self.time[0] + self.time[1]).0.max(1)
    }
    /// In 1/1000 of the total.
    fn noise(&self, costs: &Costs) -> u64 {
        let part = |i: usize| costs.price(&self.work[i]).0.saturating_mul(10_000) / self.time[i].0;
        match self.time[0] {
            Nanos::ZERO => 1000,
            _ => part(0).abs_diff(part(1)) * 500 / self.total(costs).max(1),
        }
    }
    /// Whether latencies are kept: but for one in a hundred, or one.
    fn keeps(&self) -> bool {
        self.late.saturating_sub(1) <= self.promised / LATE_PART
    }
    fn has_waited(&self) -> bool {
        self.waited > self.completed / 2
    }
}

/// What a round changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    Scan,
    Fine,
    Pieces,
}

/// The window that is sized by what it does to the total.
pub(super) struct Adaptive {
    limit: Nanos,
    /// Doublings of pieces, and whether any request has gone in pieces in this round.
    doublings: i32,
    has_cut: bool,
    round: Round,
    /// The sizes of the round, and doublings of pieces with them; the first one is the present one.
    sizes: [(Nanos, i32); SIZES],
    shown: [Shown; SIZES],
    /// The size whose turn it is, or `None` between rounds; and the length of the turn.
    turn: Option<usize>,
    length: Nanos,
    /// Begin of the turn or of the pause, and what had been completed by then.
    began: Instant,
    before: Work,
    pause: Nanos,
    /// The most that was in flight since the last round.
    peak: Nanos,
}

impl Adaptive {
    pub(super) fn new() -> Self {
        Self {
            limit: BOUNDS[1],
            doublings: 0,
            has_cut: false,
            round: Round::Scan,
            sizes: [(BOUNDS[1], 0); SIZES],
            shown: [Shown::default(); SIZES],
            turn: None,
            length: TURN[0],
            began: Instant::ZERO,
            before: Work::default(),
            pause: FIRST,
            peak: Nanos::ZERO,
        }
    }
    fn doublings(&self) -> i32 {
        self.turn.map_or(self.doublings, |turn| self.sizes[turn].1)
    }
    fn begin_round(&mut self, now: Instant, costs: &Costs) {
        let (limit, doublings) = (self.limit, self.doublings);
        let window = |limit: Nanos| (limit.clamp(BOUNDS[0], BOUNDS[1]), doublings);
        let pieces = |by: i32| (limit, (doublings + by).clamp(-2, 3));
        self.sizes = [(limit, doublings); SIZES];
        let others: &[_] = match self.round {
            Round::Scan => {
                let alone = costs.alone(Side::Read, self.piece(costs));
                let [a, b, c, d] = SCAN.map(|times| window(alone * times));
                &[window(BOUNDS[1]), a, b, c, d]
            }
            Round::Fine => &[window(limit / 4 * 3), window(limit / 4 * 5)],
            Round::Pieces => &[pieces(-1), pieces(1)],
        };
        self.sizes[1..=others.len()].copy_from_slice(others);
        self.shown = [Shown::default(); SIZES];
        self.shown[1 + others.len()..].iter_mut().for_each(|shown| shown.is_out = true);
        (self.turn, self.length, self.peak) = (Some(0), TURN[0], Nanos::ZERO);
        self.has_cut = false;
        self.begin_turn(now, costs);
    }
    fn begin_turn(&mut self, now: Instant, costs: &Costs) {
        (self.began, self.before) = (now, *costs.done());
    }
    /// The turn is over. The next one, if the round is not.
    fn end_turn(&mut self, now: Instant, costs: &Costs, turn: usize) {
        self.shown[turn].add(costs.done().since(&self.before), now.since(self.began));
        self.begin_turn(now, costs);
        let next = |from: usize| (from..SIZES).find(|turn| !self.shown[*turn].is_out);
        if let Some(turn) = next(turn + 1) {
            self.turn = Some(turn);
            return;
        }
        let in_race = self.shown.iter().filter(|shown| !shown.is_out);
        let noise = in_race.clone().map(|shown| shown.noise(costs)).max().unwrap_or(0);
        let keeps = in_race.clone().any(Shown::keeps);
        let in_race = in_race.filter(|shown| shown.keeps() == keeps);
        let best = in_race.map(|shown| shown.total(costs)).max().unwrap_or(0);
        let mut left = 0;
        for shown in self.shown.iter_mut().filter(|shown| !shown.is_out) {
            let range = GOOD.max(shown.noise(costs) * NOISES);
            let is_worse = shown.total(costs) * (1000 + range) < best * 1000;
            shown.is_out = is_worse || keeps && !shown.keeps() && shown.time[0] > Nanos::ZERO;
            left += usize::from(!shown.is_out);
        }
        let longest = if self.round == Round::Scan { TURN[1] / 4 } else { TURN[1] };
        if left == 1 || noise <= GOOD || self.length >= longest {
            self.end_round(now, costs, best, noise);
        } else {
            self.length += self.length;
            self.turn = (0..SIZES).find(|turn| !self.shown[*turn].is_out);
        }
    }
    /// Sizes are compared.
    fn end_round(&mut self, now: Instant, costs: &Costs, best: u64, noise: u64) {
        let margin = match self.round {
            Round::Scan => noise.clamp(GOOD, LOUD),
            Round::Fine | Round::Pieces if noise > GOOD => 0,
            Round::Fine | Round::Pieces => GOOD,
        };
        let is_good = |turn: &usize| {
            let shown = &self.shown[*turn];
            !shown.is_out && shown.total(costs) * 1000 >= best * (1000 - margin)
        };
        let has_waited = self.shown.iter().any(Shown::has_waited);
        let found = (0..SIZES).filter(is_good).min_by_key(|turn| self.sizes[*turn]);
        let shows = if self.round == Round::Pieces { self.has_cut } else { has_waited };
        let found = found.filter(|_| shows);
        let is_sure = noise <= LOUD || self.shown.iter().filter(|shown| !shown.is_out).count() == 1;
        let found = found.filter(|_| self.round == Round::Scan || is_sure);
        if let Some(turn) = found {
            (self.limit, self.doublings) = self.sizes[turn];
            // A window that holds nothing becomes one that holds what more clients send.
            self.limit = self.limit.min(self.peak * 2).max(BOUNDS[0]);
        }
        let is_worse = self.shown[0].total(costs) * (1000 + GOOD) < best * 1000;
        let gains = self.shown[0].is_out || is_worse;
        self.pause = if gains { PAUSE[0] } else { (self.pause * 2).clamp(PAUSE[0], PAUSE[1]) };
        self.round = match self.round {
            Round::Scan if found.is_some() => Round::Fine,
            Round::Scan => Round::Pieces,
            Round::Fine | Round::Pieces if gains => self.round,
            Round::Fine => Round::Pieces,
            Round::Pieces => Round::Scan,
        };
        (self.turn, self.began) = (None, now);
    }
}

impl Window for Adaptive {
    fn limit(&self) -> Nanos {
        self.turn.map_or(self.limit, |turn| self.sizes[turn].0)
    }
    fn piece(&self, costs: &Costs) -> u64 {
        let usual = usual_piece(costs);
        match self.doublings() {
            halvings if halvings < 0 => usual >> -halvings,
            doublings => usual << doublings,
        }
    }
    fn on_complete(&mut self, waits: bool) {
        if let Some(turn) = self.turn {
            self.shown[turn].completed += 1;
            self.shown[turn].waited += u32::from(waits);
        }
    }
    fn on_dispatch(&mut self, now: Instant, costs: &Costs, in_flight: Nanos, shared: bool) {
        self.peak = self.peak.max(in_flight);
        let time = now.since(self.began);
        match self.turn {
            None if time >= self.pause && shared => self.begin_round(now, costs),
            Some(turn) if time >= self.length => self.end_turn(now, costs, turn),
            _ => {}
        }
    }
    fn on_cut(&mut self) {
        self.has_cut = true;
    }
    fn on_latency(&mut self, is_late: bool) {
        if let Some(turn) = self.turn {
            self.shown[turn].promised += 1;
            self.shown[turn].late += u32::from(is_late);
        }
    }
    fn on_prices(&mut self, before: Nanos, after: Nanos) {
        let sizes = self.sizes.iter_mut().map(|(limit, _)| limit);
        for limit in sizes.chain([&mut self.limit]).filter(|limit| **limit < BOUNDS[1]) {
            let changed = scale(limit.0, after.0, before.0.max(1));
            *limit = Nanos(changed).clamp(BOUNDS[0], BOUNDS[1]);
        }
    }
}
