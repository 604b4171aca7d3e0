//! Limits on bytes in flight: a window for reads, a limit for writes, and the length of pieces.
//!
//! ```text
//! L (piece)  = what the drive reads in 100 us, rounded to a power of two, 32 to 128 KiB
//! X (reads)  = 5/4 * rate * latency alone, at least two pieces
//! X = X * 7/8   when a request was later than its contract allows
//! X = X + L/16  when it was not, up to the above
//! W (writes) = what the drive writes in 1 ms * 2^n, at least two pieces; or in 5/4 of the shortest time of a write
//! ```
//!
//! The window keeps the drive at its full rate, and a new request finds little enough before it to keep its contract.
//! Pieces let other clients pass between the parts of a long request. The limits apply only while several clients share
//! the drive.
//!
//! *Search.* The rate within a window that is too small is too low, and so is X. When the window first holds reads, it is
//! therefore doubled every 10 ms as long as the drive does 5 % more, and then the length of pieces, unless a request becomes
//! late. This is repeated with twice as many clients.
//!
//! *Trials of reads.* The throughput within a window does not show what a larger window would give. So from time to time,
//! while reads are held, X or L is doubled for 50 ms and compared with the 50 ms before. A trial ends early if it makes
//! many requests later than their contracts allow. If the drive does 5 % more (in drive time of what it reads and
//! writes), the longer pieces are kept, up to a factor of 8. A larger X raises the measured rate; after a second gain, X
//! also stays doubled, until half of it is found to be as good. Pieces are shortened again if that costs nothing, or if a
//! request is late although X is only two pieces: a client that alternates load and idle time could fake a gain.
//!
//! *Trials of writes.* W is tried at half, twice and four times its size while it holds writes. Four times, since on some
//! drives a factor of two gains nothing. A trial lasts 50 ms * 2^n: beside a minimum, writes go in batches as large as W,
//! and the rate over a few batches varies too much.
//!
//! Sources: Cardwell et al., "BBR" (2016), for the product of bandwidth and delay and for probing for more bandwidth; Chiu
//! and Jain (1989), additive increase and multiplicative decrease, for the feedback.

use super::drive::Drive;
use super::shares::{SIDES, Side};
use super::trial::{Found, Search, TRIAL, Trial, done};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// Clients share the drive while at least two have requests queued or in flight, and for this time afterwards.
const SHARED: Nanos = Nanos::from_millis(20);
/// Bounds of the length of a piece before doublings, in bytes.
const PIECE: [u64; 2] = [32 << 10, 128 << 10];
/// The longest piece for a drive on which each command takes a certain time, in bytes.
const EVEN_MAX: u64 = 256 << 10;
/// The shortest piece, in a trial of shorter ones.
pub(super) const PIECE_MIN: u64 = PIECE[0] / 2;
/// Most doublings of the window.
const WIDENINGS_MAX: u32 = 3;
/// Most doublings of the length of pieces.
const DOUBLINGS_MAX: u32 = 3;
/// Most halvings of the limit on writes.
const WRITE_HALVINGS_MAX: i32 = 3;
/// Most doublings of the limit on writes, if no group has a latency contract.
pub(super) const WRITE_DOUBLINGS_MAX: i32 = 3;

/// Bytes in flight, and their limits.
#[derive(Debug)]
pub(super) struct Window {
    /// Bytes in flight that count, by side.
    in_drive: [u64; SIDES],
    /// The window by late requests alone, in bytes: X is the smaller one of this and [`Self::most_reads`].
    reads: u64,
    /// The client of the last request that arrived, or `u32::MAX`.
    last_client: u32,
    /// Clients with something queued or in flight.
    clients: u32,
    shared_until: Instant,
    /// The search for the window, and how many clients there were when it began.
    search: Search,
    searched: u32,
    /// The present trial of reads.
    trial: Trial<Change>,
    /// The present trial of writes.
    write_trial: Trial<Direction>,
    /// Doublings of the window, for drives whose latency grows with their load.
    widenings: u32,
    /// When a read was completed last while the window held others.
    full: Instant,
    /// Whether the last trial of a larger window was a gain.
    has_gained: bool,
    /// Doublings of pieces, for drives on which each command takes long whatever its length.
    doublings: u32,
    /// Doublings of the limit on writes; negative: halvings.
    write_doublings: i32,
}

/// What a trial of reads changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// The window is doubled.
    Window,
    /// The window is halved.
    Narrower,
    /// Pieces are doubled.
    Longer,
    /// Pieces are halved.
    Shorter,
}

impl Change {
    const ALL: [Self; 4] = [Self::Window, Self::Narrower, Self::Longer, Self::Shorter];
}

/// How a trial of writes changes their limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    /// Half.
    Down,
    /// Twice.
    Up,
    /// Four times.
    Far,
}

impl Direction {
    const ALL: [Self; 3] = [Self::Up, Self::Down, Self::Far];

    /// Doublings; negative: halvings.
    const fn doublings(self) -> i32 {
        match self {
            Self::Down => -1,
            Self::Up => 1,
            Self::Far => 2,
        }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self {
            in_drive: [0; SIDES],
            reads: u64::MAX,
            last_client: u32::MAX,
            clients: 0,
            shared_until: Instant::ZERO,
            search: Search::default(),
            searched: 0,
            trial: Trial::new(Change::Window),
            write_trial: Trial::new(Direction::Up),
            widenings: 0,
            full: Instant::ZERO,
            has_gained: false,
            doublings: 0,
            write_doublings: 0,
        }
    }
}

impl Window {
    /// The longest piece.
    #[inline(always)]
    pub(super) fn piece(&self, drive: &Drive) -> u64 {
        let bytes = drive.in_piece_time().max(1);
        let piece = (1 << bytes.ilog2()).clamp(PIECE[0], PIECE[1])
            << (self.doublings + self.search.doublings()).min(DOUBLINGS_MAX);
        let piece = match () {
            () if self.trial.is(Change::Longer) => 2 * piece,
            () if self.trial.is(Change::Shorter) => piece / 2,
            () => piece,
        };
        match drive.even_length() {
            0 => piece,
            even => piece.max((1 << even.ilog2()).min(EVEN_MAX)),
        }
    }
    /// Upper bound of the window, in bytes.
    #[inline(always)]
    fn most_reads(&self, drive: &Drive) -> u64 {
        let product = drive.product();
        // A power of two.
        let piece = self.piece(drive);
        if let Some(bytes) = self.search.window() {
            return bytes.max(2 * piece);
        }
        let narrower = u32::from(self.trial.is(Change::Narrower));
        let widened = (product + product / 4) << self.widenings.saturating_sub(narrower);
        ((widened + piece - 1) & !(piece - 1)).max(2 * piece)
    }
    /// A request of a client arrived; `first`: the client had nothing queued or in flight.
    pub(super) fn on_submit(&mut self, now: Instant, client: u32, first: bool) {
        self.clients += u32::from(first);
        if self.last_client != client {
            if self.last_client != u32::MAX {
                self.shared_until = now + SHARED;
            }
            self.last_client = client;
        }
    }
    /// A client has nothing queued or in flight any more.
    pub(super) fn on_leave(&mut self, now: Instant) {
        if self.clients > 1 {
            self.shared_until = now + SHARED;
        }
        self.clients -= 1;
    }
    /// Whether several clients share the drive.
    pub(super) fn is_shared(&self, now: Instant) -> bool {
        self.clients > 1 || now < self.shared_until
    }
    /// Until when [`Self::is_shared`] holds, unless requests arrive.
    pub(super) fn shared_until(&self) -> Instant {
        self.shared_until
    }
    /// Whether a command with this many bytes may be dispatched.
    pub(super) fn has_room(&self, drive: &Drive, side: Side, bytes: u64) -> bool {
        bytes <= self.room(drive, side)
    }
    /// How many bytes may be dispatched now.
    pub(super) fn room(&self, drive: &Drive, side: Side) -> u64 {
        let has = self.in_drive[side as usize];
        if has == 0 || side == Side::Flush {
            return u64::MAX;
        }
        let piece = self.piece(drive);
        let limit = match side {
            Side::Read if self.trial.is(Change::Window) => 2 * self.most_reads(drive),
            Side::Read => self.reads.min(self.most_reads(drive)).max(2 * piece),
            _ => self.most_writes(drive).max(2 * piece),
        };
        // Half a piece more: small commands in flight do not take the place of a whole piece.
        (limit + piece / 2).saturating_sub(has)
    }
    /// How many bytes of a command count. Reads for a minimum do not count, or they would hold all other reads.
    pub(super) fn counts(side: Side, bytes: u64, by_share: bool) -> u64 {
        if by_share || side != Side::Read { bytes } else { 0 }
    }
    pub(super) fn on_dispatch(&mut self, side: Side, counts: u64) {
        self.in_drive[side as usize] += counts;
    }
    /// Whether another write of this length would be held.
    pub(super) fn is_full(&self, drive: &Drive, bytes: u64) -> bool {
        !self.has_room(drive, Side::Write, bytes)
    }
    pub(super) fn on_complete(&mut self, side: Side, counts: u64) {
        self.in_drive[side as usize] -= counts;
    }
    /// The limit on writes, in bytes.
    fn most_writes(&self, drive: &Drive) -> u64 {
        let trial = &self.write_trial;
        let by = if trial.before.is_some() { trial.change.doublings() } else { 0 };
        let usual = drive.writes();
        match self.write_doublings + by {
            halvings @ ..0 => usual >> halvings.unsigned_abs(),
            doublings => usual << doublings.unsigned_abs(),
        }
    }
    /// A read was completed while the window held others.
    pub(super) fn on_full(&mut self, now: Instant, drive: &Drive) {
        self.full = now;
        self.step(now, drive);
    }
    /// Measures for the search.
    fn search(&mut self, now: Instant, drive: &Drive) {
        let most = self.most_reads(drive);
        if self.search.window().is_none() {
            self.searched = self.clients.max(1);
        }
        match self.search.step(now, drive, most) {
            Some(Found::LongerPieces) if self.doublings < DOUBLINGS_MAX => self.doublings += 1,
            Some(_) => self.end_search(drive),
            None => {}
        }
    }
    /// The window is as wide from now on as the search has found.
    fn end_search(&mut self, drive: &Drive) {
        let Some(bytes) = self.search.end() else { return };
        while self.widenings < WIDENINGS_MAX && self.most_reads(drive) < bytes - bytes / 4 {
            self.widenings += 1;
        }
    }
    /// Measures for a trial of reads, unless one of writes runs.
    fn step(&mut self, now: Instant, drive: &Drive) {
        if self.search.is_over() && self.clients >= 2 * self.searched {
            self.search = Search::default();
            self.trial.stop();
        }
        if !self.search.is_over() {
            return self.search(now, drive);
        }
        if self.write_trial.began.is_none()
            && let Some(rates) = self.trial.step(now, drive.bytes_moved(), TRIAL)
        {
            let [before, rate] = done(drive, rates);
            self.end_trial(now, before, rate);
        }
    }
    /// A read was completed while no other was held. A window that was doubled and has held none for a while may be too large.
    pub(super) fn on_room(&mut self, now: Instant, drive: &Drive) {
        if self.search.window().is_some() && now.since(self.full) > TRIAL {
            self.end_search(drive);
        }
        if self.widenings == 0 {
            return;
        }
        let trial = &mut self.trial;
        if now.since(self.full) > TRIAL
            && trial.began.is_none_or(|(began, _)| now.since(began) > TRIAL + TRIAL)
        {
            *trial = Trial {
                change: Change::Narrower,
                began: None,
                before: None,
                late: [0; 2],
                ..*trial
            };
        }
        if trial.change == Change::Narrower {
            self.step(now, drive);
        }
    }
    /// A write was completed while the limit held others; `most`: upper bound of the doublings.
    pub(super) fn on_writes(&mut self, now: Instant, drive: &Drive, most: i32) {
        if self.trial.began.is_some() || self.search.window().is_some() {
            return;
        }
        let trial = &mut self.write_trial;
        // With a larger limit, fewer batches go in the same time.
        let larger = self.write_doublings + trial.change.doublings().max(0);
        let length = Nanos(TRIAL.0 << larger.max(0));
        if trial.began.is_some_and(|(began, _)| now.since(began) > length + length) {
            // The limit has not held writes for a while: return towards the usual one.
            self.write_doublings -= self.write_doublings.signum();
        }
        let Some(rates) = trial.step(now, drive.bytes_moved(), length) else { return };
        let [before, rate] = rates.map(|[read, written]| read + written);
        let by = trial.change.doublings();
        let good = match trial.change {
            Direction::Up => rate > before + before / 50,
            Direction::Far => rate > before + before / 20,
            Direction::Down => rate > before - before / 200,
        };
        self.write_doublings = (self.write_doublings + if good { by } else { 0 }).min(most);
        trial.end(now, good);
        let found = self.write_doublings;
        let range = -WRITE_HALVINGS_MAX..=most;
        let may = |direction: &Direction| range.contains(&(found + direction.doublings()));
        // A good change is tried again if possible; otherwise the next one is tried.
        let after = Direction::ALL.iter().cycle().skip_while(|way| **way != trial.change);
        let next = after.copied().skip(usize::from(!good)).take(3).find(may);
        trial.change = next.unwrap_or(Direction::Down);
    }
    fn end_trial(&mut self, now: Instant, before: u64, rate: u64) {
        let gained = rate > before + before / 20;
        let kept = rate > before - before / 50;
        let trial = &mut self.trial;
        let good = match trial.change {
            Change::Window => {
                // The first gain may only mean that the measured rate was too low.
                self.widenings += u32::from(gained && self.has_gained);
                self.has_gained = gained;
                gained
            }
            Change::Narrower => {
                let narrows = rate > before - before / 100;
                self.widenings = self.widenings.saturating_sub(u32::from(narrows));
                narrows
            }
            Change::Longer => {
                self.doublings += u32::from(gained);
                gained
            }
            Change::Shorter => {
                // A late request may have shortened pieces meanwhile.
                self.doublings = self.doublings.saturating_sub(u32::from(kept));
                false
            }
        };
        self.next_trial(now, good);
    }
    /// A trial of reads has ended.
    fn next_trial(&mut self, now: Instant, good: bool) {
        self.trial.end(now, good);
        let trial = &self.trial;
        let may = |change: &Change| match change {
            Change::Window => self.widenings < WIDENINGS_MAX,
            Change::Narrower => self.widenings > 0,
            Change::Longer => self.doublings < DOUBLINGS_MAX,
            Change::Shorter => self.doublings > 0,
        };
        // A good change is tried again if possible; otherwise the next one is tried.
        let after = Change::ALL.iter().cycle().skip_while(|change| **change != trial.change);
        let next = after.copied().skip(usize::from(!good)).find(may);
        self.trial.change = next.unwrap_or(Change::Window);
    }
    /// A request with a contract was completed, in time or late.
    pub(super) fn on_contract(&mut self, at: Instant, drive: &Drive, late: bool) {
        if let Some(bytes) = self.search.window().filter(|_| late) {
            self.search.settle(bytes / 2);
            self.end_search(drive);
        }
        let more = matches!(self.trial.change, Change::Window | Change::Longer);
        if late && self.trial.harms() && more {
            self.next_trial(at, false);
        }
        let (piece, most) = (self.piece(drive), self.most_reads(drive));
        let now = self.reads.min(most);
        if late && now <= 2 * piece {
            self.doublings = self.doublings.saturating_sub(1);
        }
        self.reads = match late {
            true => (now - now / 8).max(2 * piece),
            false => (now + piece / 16).min(most),
        };
    }
    /// Bytes of reads in flight, except reads for minimums.
    pub(super) fn reads_in_drive(&self) -> u64 {
        self.in_drive[Side::Read as usize]
    }
    /// The present window X.
    pub(super) fn reads(&self, drive: &Drive) -> Sectors {
        Sectors::from_bytes_ceil(self.reads.min(self.most_reads(drive)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_core::id::RequestId;

    /// Goal: pieces do not become too short if a late request shortens them during a trial of shorter ones. Method: both,
    /// with pieces doubled once.
    #[test]
    fn late_requests_and_trials_agree() {
        let (drive, mut window) = (Drive::default(), Window { doublings: 1, ..Window::default() });
        let whole = Window::default().piece(&drive);
        (window.trial.change, window.reads) = (Change::Shorter, 0);
        window.on_contract(Instant(1), &drive, true);
        window.end_trial(Instant(1), 100, 100);
        assert_eq!((window.doublings, window.piece(&drive)), (0, whole));
    }

    /// Goal: the window is found within a tenth of a second. Method: a drive that reads up to four times as much within a larger
    /// window, or with longer pieces; one call each millisecond.
    #[test]
    fn the_search_finds_the_window() {
        for (best, longer) in [(1, 1), (4, 1), (1, 4), (2, 2)] {
            let (mut drive, mut window) = (Drive::default(), Window::default());
            let (usual, piece) = (window.most_reads(&drive), window.piece(&drive));
            for milli in 0..150 {
                let now = Instant(milli * 1_000_000);
                let wide = (window.most_reads(&drive) / usual).clamp(1, best);
                let long = (window.piece(&drive) / piece).clamp(1, longer);
                drive.on_dispatch(now, RequestId(0), Side::Read, false);
                drive.on_complete(now, RequestId(0), Side::Read, 10_000 * wide * long);
                window.on_full(now, &drive);
            }
            assert!(window.search.is_over());
            assert!(window.most_reads(&drive) >= usual * best * 3 / 4, "{best}, {longer}");
            assert_eq!(window.piece(&drive), piece * longer, "{best}, {longer}");
        }
    }

    /// Goal: a late request ends the search at the window before. Method: a drive that reads more within any window.
    #[test]
    fn a_late_request_ends_the_search() {
        let (mut drive, mut window) = (Drive::default(), Window::default());
        for milli in 0..25 {
            let now = Instant(milli * 1_000_000);
            drive.on_dispatch(now, RequestId(0), Side::Read, false);
            drive.on_complete(now, RequestId(0), Side::Read, window.most_reads(&drive) / 16);
            window.on_full(now, &drive);
        }
        assert!(window.search.window().is_some());
        window.on_contract(Instant(25_000_000), &drive, true);
        assert!(window.search.is_over());
    }

    /// Goal: a window that has room at times is still doubled if that is a gain. Method: the window was doubled once, which
    /// is needed; a drive that reads half as much again with twice that; one call each millisecond, of which every third has
    /// room.
    #[test]
    fn a_window_with_room_at_times_is_tried_larger() {
        let (mut drive, mut window) =
            (Drive::default(), Window { widenings: 1, ..Window::default() });
        let usual = window.most_reads(&drive);
        for milli in 0..5_000 {
            let now = Instant(milli * 1_000_000);
            let tried = if window.trial.is(Change::Window) { 2 } else { 1 };
            let bytes = match tried * window.most_reads(&drive) / usual {
                0 => 30_000,
                1 => 60_000,
                _ => 90_000,
            };
            drive.on_dispatch(now, RequestId(0), Side::Read, false);
            drive.on_complete(now, RequestId(0), Side::Read, bytes);
            if milli % 3 == 0 {
                window.on_room(now, &drive);
            } else {
                window.on_full(now, &drive);
            }
        }
        assert!(window.widenings > 1);
    }

    /// Goal: the window is doubled after two gains, and returns to its usual size when it holds nothing. Method: results of
    /// trials; then reads that the window does not hold.
    #[test]
    fn the_window_is_as_wide_as_it_gains() {
        let (drive, mut window) = (Drive::default(), Window::default());
        let usual = window.most_reads(&drive);
        window.end_trial(Instant(1), 100, 150);
        assert_eq!(window.most_reads(&drive), usual, "the first gain may only be a higher rate");
        window.end_trial(Instant(2), 100, 150);
        assert_eq!(window.most_reads(&drive), 2 * usual);
        for milli in 0..1_000 {
            window.on_room(Instant(milli * 1_000_000), &drive);
        }
        assert_eq!(window.most_reads(&drive), usual);
    }

    /// Goal: a window that gains beside writes is doubled, but not if writes lose. Method: a drive that reads half as much
    /// again with twice the window, and writes as before or a third less; one call each millisecond.
    #[test]
    fn the_window_does_not_slow_writes() {
        for (written, widens) in [(30_000, true), (20_000, false)] {
            let (mut drive, mut window) = (Drive::default(), Window::default());
            for milli in 0..2_000 {
                let now = Instant(milli * 1_000_000);
                let larger = window.trial.is(Change::Window) || window.widenings > 0;
                let (read, written) = if larger { (90_000, written) } else { (60_000, 30_000) };
                for (side, moved) in [(Side::Write, written), (Side::Read, read)] {
                    drive.on_dispatch(now, RequestId(0), side, false);
                    drive.on_complete(now, RequestId(0), side, moved);
                }
                window.on_full(now, &drive);
            }
            assert_eq!(window.widenings > 0, widens, "{written}");
        }
    }

    /// Goal: a trial ends early if it makes requests late, but not if they are late without it, too. Method: the second half
    /// of a trial, after a first half with no or many late requests.
    #[test]
    fn a_trial_that_makes_requests_late_ends_early() {
        let drive = Drive::default();
        for (late, ends) in [(0, true), (100, false)] {
            let mut window = Window::default();
            (window.trial.began, window.trial.late) = (Some((Instant(1), [0; 2])), [late, 0]);
            window.trial.before = Some([100, 0]);
            (0..7).for_each(|_| window.on_contract(Instant(2), &drive, true));
            assert!(window.trial.is(Change::Window));
            window.on_contract(Instant(2), &drive, true);
            assert_eq!(window.trial.is(Change::Window), !ends);
        }
    }

    /// Goal: a limit that gains only at four times its size is found. Method: a drive that moves an eighth more from there
    /// on, and an eighth less with a smaller limit; one call each millisecond.
    #[test]
    fn the_limit_on_writes_passes_a_plateau() {
        let (mut drive, mut window) = (Drive::default(), Window::default());
        for milli in 0..20_000 {
            let now = Instant(milli * 1_000_000);
            let moved = match window.most_writes(&drive) / drive.writes() {
                0 => 35_000,
                1..4 => 40_000,
                _ => 45_000,
            };
            drive.on_dispatch(now, RequestId(0), Side::Write, false);
            drive.on_complete(now, RequestId(0), Side::Write, moved);
            window.on_writes(now, &drive, 3);
        }
        assert!(window.write_doublings >= 2, "{}", window.write_doublings);
    }

    /// Goal: the limit on writes goes to where the drive moves most. Method: drives that are fastest at some limit; one call
    /// each millisecond for twenty seconds.
    #[test]
    fn the_limit_on_writes_is_found() {
        for (best, most, found) in [(-2, 3, -2..=-2), (2, 3, 2..=2), (2, 0, 0..=0), (9, 3, 3..=3)] {
            let (mut drive, mut window) = (Drive::default(), Window::default());
            for milli in 0..20_000 {
                let now = Instant(milli * 1_000_000);
                let bound = window.most_writes(&drive).ilog2() as i32;
                let away = (bound - drive.writes().ilog2() as i32 - best).unsigned_abs();
                drive.on_dispatch(now, RequestId(0), Side::Write, false);
                drive.on_complete(
                    now,
                    RequestId(0),
                    Side::Write,
                    100_000 - 5_000 * u64::from(away),
                );
                window.on_writes(now, &drive, most);
            }
            assert!(found.contains(&window.write_doublings), "{best}: {}", window.write_doublings);
        }
    }
}
