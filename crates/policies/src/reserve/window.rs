//! The window: the drive time of commands in flight that are not for reservations, and the length of pieces.
//!
//! A request for a minimum waits for what is in the drive already, and shares hold only for what waits in the scheduler. The
//! window is therefore as small as it can be without any loss of throughput, and so are the pieces into which long requests are
//! cut. What the drive does within a window of another size cannot be computed, only tried:
//!
//! ```text
//! scan      W, W / 4, ... W / 256, in turns, twice; W: twice what clients send at most
//! round     W, W / 2, 2 W; later W, 3/4 W, 3/2 W, or pieces L, L / 2, 2 L; in turns, until the noise is below 1 %
//! total     drive time of all that was completed, reservations included, at the same prices for all sizes, for each second
//! then      the smallest size whose total is within 1 % of the best one; the next round comes soon after a change, else later
//! ```
//!
//! A round counts only if requests waited most of the time. A size that is 10 % worse than the best after two turns has no more
//! of them. The noise is the spread of the turns of a size, divided by their number. If it is still above 1 % after 16 turns, the
//! best size is taken, small or not, since otherwise W would drift to the smallest one.
//!
//! When prices change, W changes with them. Otherwise held requests would raise prices, and higher prices would hold more.

use iofair_core::time::{Instant, Nanos};

use super::cost::{Costs, Work};

/// Sizes of the scan, each 1/4 of the one before: from all that clients send down to one command of most drives.
const SCANS: usize = 5;
/// Bounds of the window: some commands of the fastest drive, and what the slowest volume does in a second.
const BOUNDS: [Nanos; 2] = [Nanos::from_micros(20), Nanos::from_secs(1)];
/// A turn takes at least the first and at most the second time, and ends between them after so many commands, whose mean time is
/// known within some percent.
const TURN: [Nanos; 2] = [Nanos::from_millis(5), Nanos::from_millis(25)];
const COMMANDS: u32 = 512;
/// Clients that pause for longer end a turn.
const STOPPED: Nanos = Nanos::from_millis(10);
/// A size within this part of the best is as good, in 1/1000; noise must be below it.
const GOOD: u64 = 10;
/// A size this far below the best one, in 1/1000, has no more turns.
const BAD: u64 = 100;
/// Turns of a size in a round, at least and at most.
const TURNS: [u32; 2] = [2, 16];
/// Pause after a round that changed something, and the longest one.
const PAUSE: [Nanos; 2] = [Nanos::from_millis(100), Nanos::from_millis(3200)];
/// Time in which a drive reads a piece at first, and bounds of pieces in bytes then; later they are a quarter to eight times as long.
const PIECE_TIME: Nanos = Nanos::from_micros(100);
const PIECE: [u64; 2] = [32 << 10, 128 << 10];

/// What limits commands in flight.
pub(super) trait Window: Send {
    /// The most drive time in flight.
    fn limit(&self) -> Nanos;
    /// The longest piece, in bytes.
    fn piece(&self, costs: &Costs) -> u64;
    /// A command was completed. `shared`: several clients are active; `waits`: requests wait in the scheduler.
    fn on_complete(&mut self, now: Instant, costs: &Costs, shared: bool, waits: bool);
    /// A command is dispatched; this much drive time is in flight now.
    fn on_dispatch(&mut self, in_flight: Nanos);
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
    fn on_complete(&mut self, _: Instant, _: &Costs, _: bool, _: bool) {}
    fn on_dispatch(&mut self, _: Nanos) {}
    fn on_prices(&mut self, _: Nanos, _: Nanos) {}
}

fn usual_piece(costs: &Costs) -> u64 {
    let bytes = costs.bytes_read_in(PIECE_TIME).clamp(PIECE[0], PIECE[1]);
    1 << bytes.ilog2()
}

/// What a size has shown in a round.
#[derive(Clone, Copy, Default, Debug)]
struct Shown {
    work: Work,
    time: Nanos,
    turns: u32,
    /// The least and the largest total of a turn, and their sum, in 1/10,000 of the time.
    spread: Option<[u64; 2]>,
    sum: u64,
    /// Completions, and those with requests waiting.
    completed: u32,
    waited: u32,
}

impl Shown {
    /// The spread of the turns, divided by their number, in 1/1000 of the largest one.
    fn noise(&self) -> u64 {
        let [least, most] = self.spread.unwrap_or([0; 2]);
        (most - least) * 1000 / (most * u64::from(self.turns)).max(1)
    }
}

/// What a round changes, and to which sizes, in quarters of the present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    Scan,
    Window([u64; 3]),
    Pieces,
}

const COARSE: Round = Round::Window([4, 2, 8]);
const FINE: Round = Round::Window([4, 3, 6]);

/// The window that is sized by what it does to the total.
pub(super) struct Adaptive {
    limit: Nanos,
    /// Doublings of pieces.
    doublings: i32,
    round: Round,
    /// The size whose turn it is, or `None` between rounds.
    turn: Option<usize>,
    shown: [Shown; SCANS],
    /// Begin of the turn or of the pause, what had been completed by then, and commands completed since.
    began: Instant,
    before: Work,
    commands: u32,
    pause: Nanos,
    /// The most that was in flight since the last round.
    peak: Nanos,
    /// The last completion.
    last: Instant,
}

impl Adaptive {
    pub(super) fn new() -> Self {
        Self {
            limit: BOUNDS[1],
            doublings: 0,
            round: Round::Scan,
            turn: None,
            shown: [Shown::default(); SCANS],
            began: Instant::ZERO,
            before: Work::default(),
            commands: 0,
            pause: TURN[1],
            peak: Nanos::ZERO,
            last: Instant::ZERO,
        }
    }
    /// Number of sizes in the round.
    fn sizes(&self) -> usize {
        if self.round == Round::Scan { SCANS } else { 3 }
    }
    /// The window with this size's turn.
    fn limit_of(&self, turn: Option<usize>) -> Nanos {
        let limit = match (self.round, turn) {
            (Round::Scan, Some(turn)) => Nanos(self.limit.0 >> (2 * turn)),
            (Round::Window(quarters), Some(turn)) => self.limit / 4 * quarters[turn],
            (Round::Pieces, _) | (_, None) => self.limit,
        };
        limit.clamp(BOUNDS[0], BOUNDS[1])
    }
    fn doublings_of(&self, turn: Option<usize>) -> i32 {
        match (self.round, turn) {
            (Round::Pieces, Some(turn)) => (self.doublings + [0, -1, 1][turn]).clamp(-2, 3),
            _ => self.doublings,
        }
    }
    /// The turn is over. The next one, if the round is not.
    fn end_turn(&mut self, now: Instant, costs: &Costs, turn: usize) {
        let (work, time) = (costs.done().since(&self.before), now.since(self.began));
        let shown = &mut self.shown[turn];
        shown.work.add(&work);
        shown.time += time;
        shown.turns += 1;
        let total = costs.price(&work).0.saturating_mul(10_000) / time.0.max(1);
        shown.sum += total;
        let [least, most] = shown.spread.unwrap_or([total; 2]);
        shown.spread = Some([least.min(total), most.max(total)]);
        self.begin_turn(now, costs);
        let next = (turn + 1..self.sizes()).find(|next| !self.is_bad(*next));
        self.turn = Some(next.unwrap_or(0));
        if next.is_some() {
            return;
        }
        let noise = self.shown[..self.sizes()].iter().map(Shown::noise).max().unwrap_or(0);
        let turns = self.shown[0].turns;
        if turns >= TURNS[1] || turns >= TURNS[0] && (noise <= GOOD || self.round == Round::Scan) {
            self.end_round(now, costs, noise);
        }
    }
    fn begin_turn(&mut self, now: Instant, costs: &Costs) {
        (self.began, self.before, self.commands) = (now, *costs.done(), 0);
    }
    /// Whether a size was so much worse than the best that it has no more turns.
    fn is_bad(&self, turn: usize) -> bool {
        let mean = |shown: &Shown| shown.sum / u64::from(shown.turns.max(1));
        let best = self.shown[..self.sizes()].iter().map(mean).max().unwrap_or(0);
        let shown = &self.shown[turn];
        turn > 0
            && self.round != Round::Scan
            && shown.turns >= TURNS[0]
            && mean(shown) * 1000 < best * (1000 - BAD)
    }
    /// All sizes were tried.
    fn end_round(&mut self, now: Instant, costs: &Costs, noise: u64) {
        let shown = &self.shown[..self.sizes()];
        let waits = |shown: &Shown| shown.waited > shown.completed / 2;
        // In the scan, the largest windows hold nothing.
        let is_scan = self.round == Round::Scan;
        let waited = if is_scan { shown.iter().any(waits) } else { shown.iter().all(waits) };
        let total =
            |shown: &Shown| costs.price(&shown.work).0.saturating_mul(10_000) / shown.time.0.max(1);
        let best = shown.iter().map(total).max().unwrap_or(0);
        let margin = if noise > GOOD && !is_scan { 0 } else { GOOD };
        let is_good = |turn: &usize| total(&shown[*turn]) * 1000 >= best * (1000 - margin);
        let size = |turn: &usize| (self.limit_of(Some(*turn)), self.doublings_of(Some(*turn)));
        let found = (0..shown.len()).filter(is_good).min_by_key(size).filter(|_| waited);
        let changes = found.is_some_and(|turn| turn > 0);
        if let Some(turn) = found {
            (self.limit, self.doublings) = size(&turn);
        }
        self.pause = if changes { PAUSE[0] } else { (self.pause * 2).clamp(PAUSE[0], PAUSE[1]) };
        self.round = match self.round {
            Round::Scan if found.is_none() => Round::Scan,
            Round::Scan => COARSE,
            COARSE if changes => COARSE,
            Round::Window(_) if changes => FINE,
            Round::Window(_) => Round::Pieces,
            Round::Pieces => FINE,
        };
        (self.turn, self.began, self.shown) = (None, now, [Shown::default(); SCANS]);
    }
}

impl Window for Adaptive {
    fn limit(&self) -> Nanos {
        self.limit_of(self.turn)
    }
    fn piece(&self, costs: &Costs) -> u64 {
        let usual = usual_piece(costs);
        match self.doublings_of(self.turn) {
            halvings if halvings < 0 => usual >> -halvings,
            doublings => usual << doublings,
        }
    }
    fn on_complete(&mut self, now: Instant, costs: &Costs, shared: bool, waits: bool) {
        // A turn with a pause of the clients shows nothing.
        if now.since(self.last) > STOPPED {
            self.begin_turn(now, costs);
        }
        self.last = now;
        let time = now.since(self.began);
        let Some(turn) = self.turn else {
            let begins = if self.round == Round::Scan { shared } else { waits };
            if time >= self.pause && begins {
                self.begin_turn(now, costs);
                self.turn = Some(0);
                if self.round == Round::Scan {
                    self.limit = (self.peak * 2).clamp(BOUNDS[0], BOUNDS[1]);
                }
                self.peak = Nanos::ZERO;
            }
            return;
        };
        let shown = &mut self.shown[turn];
        shown.completed += 1;
        shown.waited += u32::from(waits);
        self.commands += 1;
        if time >= TURN[1] || time >= TURN[0] && self.commands >= COMMANDS {
            self.end_turn(now, costs, turn);
        }
    }
    fn on_dispatch(&mut self, in_flight: Nanos) {
        self.peak = self.peak.max(in_flight);
    }
    fn on_prices(&mut self, before: Nanos, after: Nanos) {
        if self.limit < BOUNDS[1] {
            let limit =
                u128::from(self.limit.0) * u128::from(after.0) / u128::from(before.0.max(1));
            self.limit =
                Nanos(u64::try_from(limit).unwrap_or(u64::MAX)).clamp(BOUNDS[0], BOUNDS[1]);
        }
    }
}
