//! How much the drive has at once: a window on reads, a bound on writes, and pieces.
//!
//! ```text
//! L = what the drive reads in 100 us, a power of two, 32 to 128 KiB
//! X = 5/4 * rate * latency alone, at least two pieces
//! X = X * 7/8   when a request was later than its contract allows
//! X = X + L/16  when it was not, up to the above
//! W = what the drive writes in 1 ms * 2^n, at least two pieces
//! ```
//!
//! What the drive does within a window says nothing about a larger one. Now and then X is twice as large for 50 ms, or L
//! twice as long, where reads are held all the time; for less than that, if many requests are later than their contracts allow
//! that were not in the 50 ms before. If the drive does a twentieth more than in the 50 ms before (in its time for what it
//! reads and writes), it has a higher rate, or longer pieces from then on, up to 8 times as long; after a second gain X stays twice as large, until
//! half of it is as good. Pieces are shortened again where that costs nothing, and
//! where a request is late although X is two pieces: a client that rests and works in turns could fake a gain.
//!
//! The bound on writes is tried twice, half and four times as large, where it is what holds writes. The larger it is the longer a
//! trial lasts, 50 ms * 2^n: writes go in batches as large as the bound, and a rate over a few batches says little. Four times,
//! since on some drives twice as much gains nothing.
//!
//! The drive is kept full by what it needs for its rate, and what it has before a new request is so little that the
//! contract can be kept. Pieces let others pass between the parts of a long request. All three are in force only while
//! clients share the drive.
//!
//! Source of the window: Cardwell et al., "BBR" (2016), the product of bandwidth and delay, and looking for
//! more bandwidth now and then; of its feedback: Chiu and Jain (1989), additive increase and multiplicative decrease.

use super::drive::Drive;
use super::shares::{SIDES, Side};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// Two clients share the drive while both have requests inside, and so long after both sent or had some.
const SHARED: Nanos = Nanos::from_millis(20);
const PIECE: [u64; 2] = [32 << 10, 128 << 10];
/// The shortest that a piece can be: in a trial of shorter ones.
pub(super) const PIECE_MIN: u64 = PIECE[0] / 2;
/// The window is doubled at most so many times.
const WIDENINGS_MAX: u32 = 3;
/// Pieces are doubled at most so many times.
const DOUBLINGS_MAX: u32 = 3;
/// The bound on writes is halved at most so many times, and doubled: where nobody has a latency contract.
const WRITE_HALVINGS_MAX: i32 = 3;
pub(super) const WRITE_DOUBLINGS_MAX: i32 = 3;
/// Length of each half of a trial, without the change and with it.
const TRIAL: Nanos = Nanos::from_millis(50);
/// A trial ends early after so many late requests, and twice those of its first half.
const LATE: u32 = 8;
/// The pause after a trial: short after a gain, twice as long each time after none.
const TRIAL_PAUSE: [Nanos; 2] = [Nanos::from_millis(100), Nanos::from_millis(6400)];

/// What the drive has, and what it may have.
#[derive(Debug)]
pub(super) struct Window {
    /// By side: bytes that count.
    in_drive: [u64; SIDES],
    reads: u64,
    last_client: u32,
    /// Clients with something queued or in flight.
    clients: u32,
    shared_until: Instant,
    /// Of reads, and of writes.
    trial: Trial<Change>,
    write_trial: Trial<Direction>,
    /// Doublings of the window, for drives that take longer when they are busy.
    widenings: u32,
    /// Was the last trial of a larger window good?
    has_gained: bool,
    /// Of the pieces, for drives that take long for a command of any length.
    doublings: u32,
    /// Of the bound on writes, and halvings below zero.
    write_doublings: i32,
}

/// Bytes read and written, or such rates in bytes a second.
type Moved = [u64; 2];

/// What a trial of reads changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// A window twice as large, and half as large.
    Window,
    Narrower,
    /// Pieces twice as long, and half as long.
    Longer,
    Shorter,
}

impl Change {
    const ALL: [Self; 4] = [Self::Window, Self::Narrower, Self::Longer, Self::Shorter];
}

/// What a trial of writes changes: their bound is half, twice or four times as large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Down,
    Up,
    Far,
}

impl Direction {
    const ALL: [Self; 3] = [Self::Up, Self::Down, Self::Far];

    /// Doublings, or halvings below zero.
    const fn doublings(self) -> i32 {
        match self {
            Self::Down => -1,
            Self::Up => 1,
            Self::Far => 2,
        }
    }
}

/// A look at what the drive does with another window, bound, or other pieces: what it does now tells nothing of that.
#[derive(Clone, Copy, Debug)]
struct Trial<T> {
    change: T,
    /// When the next one may begin, and how long after the last one.
    next: Instant,
    pause: Nanos,
    /// Begin of the present part, with what was moved by then: first without the change, then with it.
    began: Option<(Instant, Moved)>,
    /// The rates without the change, once it is tried.
    before: Option<Moved>,
    /// Requests that were later than their contracts allow, in each part.
    late: [u32; 2],
}

impl<T: Copy + PartialEq> Trial<T> {
    fn new(change: T) -> Self {
        let (next, pause) = (Instant::ZERO, TRIAL_PAUSE[0]);
        Self { change, next, pause, began: None, before: None, late: [0; 2] }
    }
    fn is(&self, change: T) -> bool {
        self.before.is_some() && self.change == change
    }
    /// Commands were held for want of room, and so many bytes were moved so far: is it time for a trial, or for the end of
    /// one? Then the rates without the change and with it.
    fn step(&mut self, now: Instant, moved: Moved, length: Nanos) -> Option<[Moved; 2]> {
        let Some((began, moved_then)) = self.began else {
            if now >= self.next {
                self.began = Some((now, moved));
            }
            return None;
        };
        let time = now.since(began);
        if time < length {
            return None;
        }
        let rate =
            [0, 1].map(|it| (moved[it] - moved_then[it]).saturating_mul(1_000_000_000) / time.0);
        self.began = Some((now, moved));
        // Held for most of the time without a break, or it says nothing.
        if time > length + length {
            (self.began, self.before, self.late) = (None, None, [0; 2]);
            return None;
        }
        let before = self.before.replace(rate)?;
        Some([before, rate])
    }
    /// A request was late: is that what the change does?
    fn harms(&mut self) -> bool {
        if self.began.is_none() {
            return false;
        }
        let [without, with] = &mut self.late;
        let count = if self.before.is_some() { &mut *with } else { &mut *without };
        *count = count.saturating_add(1);
        *with >= without.saturating_mul(2).saturating_add(LATE)
    }
    /// It has ended: the next one follows soon after a good one, and later after each that was not.
    fn end(&mut self, now: Instant, good: bool) {
        self.pause = if good { TRIAL_PAUSE[0] } else { (self.pause * 2).min(TRIAL_PAUSE[1]) };
        (self.began, self.before, self.next) = (None, None, now + self.pause);
        self.late = [0; 2];
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
            trial: Trial::new(Change::Window),
            write_trial: Trial::new(Direction::Up),
            widenings: 0,
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
        let piece = (1 << bytes.ilog2()).clamp(PIECE[0], PIECE[1]) << self.doublings;
        match () {
            () if self.trial.is(Change::Longer) => 2 * piece,
            () if self.trial.is(Change::Shorter) => piece / 2,
            () => piece,
        }
    }
    /// Most bytes of reads that the drive may have.
    #[inline(always)]
    fn most_reads(&self, drive: &Drive) -> u64 {
        let product = drive.product();
        // A power of two.
        let piece = self.piece(drive);
        let narrower = u32::from(self.trial.is(Change::Narrower));
        let widened = (product + product / 4) << self.widenings.saturating_sub(narrower);
        ((widened + piece - 1) & !(piece - 1)).max(2 * piece)
    }
    /// A client sent a request; `first`: it had none inside.
    pub(super) fn on_submit(&mut self, now: Instant, client: u32, first: bool) {
        self.clients += u32::from(first);
        if self.last_client != client {
            if self.last_client != u32::MAX {
                self.shared_until = now + SHARED;
            }
            self.last_client = client;
        }
    }
    /// A client has none inside any more.
    pub(super) fn on_leave(&mut self, now: Instant) {
        if self.clients > 1 {
            self.shared_until = now + SHARED;
        }
        self.clients -= 1;
    }
    /// Do clients share the drive now?
    pub(super) fn is_shared(&self, now: Instant) -> bool {
        self.clients > 1 || now < self.shared_until
    }
    /// Until when, as far as is known.
    pub(super) fn shared_until(&self) -> Instant {
        self.shared_until
    }
    /// May so much go to the drive?
    pub(super) fn has_room(&self, drive: &Drive, side: Side, bytes: u64) -> bool {
        bytes <= self.room(drive, side)
    }
    /// How much may go to the drive?
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
        // To the nearest piece: what is smaller beside large pieces takes none of their room.
        (limit + piece / 2).saturating_sub(has)
    }
    /// How much of a command counts. Reads for a promise do not: they would keep the others out.
    pub(super) fn counts(side: Side, bytes: u64, by_share: bool) -> u64 {
        if by_share || side != Side::Read { bytes } else { 0 }
    }
    pub(super) fn on_dispatch(&mut self, side: Side, counts: u64) {
        self.in_drive[side as usize] += counts;
    }
    /// Would another write like one of so many bytes have had no room?
    pub(super) fn is_full(&self, drive: &Drive, bytes: u64) -> bool {
        !self.has_room(drive, Side::Write, bytes)
    }
    pub(super) fn on_complete(&mut self, side: Side, counts: u64) {
        self.in_drive[side as usize] -= counts;
    }
    /// Most bytes of writes that the drive may have.
    fn most_writes(&self, drive: &Drive) -> u64 {
        let trial = &self.write_trial;
        let by = if trial.before.is_some() { trial.change.doublings() } else { 0 };
        let usual = drive.writes();
        match self.write_doublings + by {
            halvings @ ..0 => usual >> halvings.unsigned_abs(),
            doublings => usual << doublings.unsigned_abs(),
        }
    }
    /// A read was completed while others were held for want of room.
    pub(super) fn on_full(&mut self, now: Instant, drive: &Drive) {
        if self.write_trial.began.is_none()
            && let Some(rates) = self.trial.step(now, drive.bytes_moved(), TRIAL)
        {
            // What counts is how much of the drive both use, and that reads do not have it at the expense of writes.
            let written = rates.map(|[_, written]| written);
            let takes = written[1] < written[0] - written[0] / 8;
            let [before, rate] = rates.map(|[read, written]| {
                drive.cost(Side::Read, read).0 + drive.cost(Side::Write, written).0
            });
            let rate = if takes { rate.min(before) } else { rate };
            self.end_trial(now, before, rate);
        }
    }
    /// A read was completed while none was held: is a window that holds nobody larger than it has to be?
    pub(super) fn on_room(&mut self, now: Instant, drive: &Drive) {
        if self.widenings == 0 {
            return;
        }
        let trial = &mut self.trial;
        if trial.began.is_none_or(|(began, _)| now.since(began) > TRIAL + TRIAL) {
            *trial = Trial {
                change: Change::Narrower,
                began: None,
                before: None,
                late: [0; 2],
                ..*trial
            };
        }
        if trial.change == Change::Narrower {
            self.on_full(now, drive);
        }
    }
    /// A write was completed while others waited; `most`: how often their bound may be doubled.
    pub(super) fn on_writes(&mut self, now: Instant, drive: &Drive, most: i32) {
        if self.trial.began.is_some() {
            return;
        }
        let trial = &mut self.write_trial;
        // The larger the bound, the fewer batches go in a time.
        let larger = self.write_doublings + trial.change.doublings().max(0);
        let length = Nanos(TRIAL.0 << larger.max(0));
        if trial.began.is_some_and(|(began, _)| now.since(began) > length + length) {
            // What was found is not asked for any more.
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
        let may = |it: &Direction| (-WRITE_HALVINGS_MAX..=most).contains(&(found + it.doublings()));
        // What was good is tried again; else, and where it cannot, the next one.
        let after = Direction::ALL.iter().cycle().skip_while(|it| **it != trial.change);
        let next = after.copied().skip(usize::from(!good)).take(3).find(may);
        trial.change = next.unwrap_or(Direction::Down);
    }
    fn end_trial(&mut self, now: Instant, before: u64, rate: u64) {
        let gained = rate > before + before / 20;
        let kept = rate > before - before / 50;
        let trial = &mut self.trial;
        let good = match trial.change {
            Change::Window => {
                // After the first gain the rate is known to be higher, and that may be all.
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
                // A late request may have shortened them meanwhile.
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
        // What was good is tried again; else, and where it cannot, the next one.
        let after = Change::ALL.iter().cycle().skip_while(|it| **it != trial.change);
        let next = after.copied().skip(usize::from(!good)).find(may);
        self.trial.change = next.unwrap_or(Change::Window);
    }
    /// A request with a contract was completed, in time or late.
    pub(super) fn on_contract(&mut self, at: Instant, drive: &Drive, late: bool) {
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
    /// Bytes of reads that the drive has, those for promises left out.
    pub(super) fn reads_in_drive(&self) -> u64 {
        self.in_drive[Side::Read as usize]
    }
    /// Most bytes of reads now.
    pub(super) fn reads(&self, drive: &Drive) -> Sectors {
        Sectors::from_bytes_ceil(self.reads.min(self.most_reads(drive)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_core::request::RequestId;

    /// Goal: pieces that a late request shortens in the middle of a trial of shorter ones are not shortened below their least
    /// length. Method: both, with pieces doubled once.
    #[test]
    fn late_requests_and_trials_agree() {
        let (drive, mut window) = (Drive::default(), Window { doublings: 1, ..Window::default() });
        let whole = Window::default().piece(&drive);
        (window.trial.change, window.reads) = (Change::Shorter, 0);
        window.on_contract(Instant(1), &drive, true);
        window.end_trial(Instant(1), 100, 100);
        assert_eq!((window.doublings, window.piece(&drive)), (0, whole));
    }

    /// Goal: a window is widened where that gains twice, and no longer than it is of use. Method: results of trials; then reads
    /// that nothing holds.
    #[test]
    fn the_window_is_as_wide_as_it_gains() {
        let (drive, mut window) = (Drive::default(), Window::default());
        let usual = window.most_reads(&drive);
        window.end_trial(Instant(1), 100, 150);
        assert_eq!(window.most_reads(&drive), usual, "the rate may be higher, and no more");
        window.end_trial(Instant(2), 100, 150);
        assert_eq!(window.most_reads(&drive), 2 * usual);
        for milli in 0..1_000 {
            window.on_room(Instant(milli * 1_000_000), &drive);
        }
        assert_eq!(window.most_reads(&drive), usual);
    }

    /// Goal: a window that gains beside writes is widened, and one that only takes from writes is not. Method: a drive that reads
    /// half as much again with a window twice as large, and writes as before or a third less, asked every millisecond.
    #[test]
    fn the_window_takes_nothing_from_writes() {
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

    /// Goal: a trial that makes requests late ends at once; one beside requests that are late in any case does not. Method: the
    /// second half of a trial, with few and with many late requests in the first.
    #[test]
    fn trials_that_harm_end() {
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

    /// Goal: a bound that gains nothing before it is four times as large is found. Method: a drive that moves an eighth more from
    /// there on, and an eighth less with a smaller bound, asked every millisecond.
    #[test]
    fn writes_pass_a_plateau() {
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

    /// Goal: the bound on writes is where the drive moves most. Method: drives that are fastest at some bound, asked every
    /// millisecond for twenty seconds.
    #[test]
    fn writes_find_their_bound() {
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
