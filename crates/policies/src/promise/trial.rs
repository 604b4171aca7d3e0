//! Trials of a limit: what the drive does without a change, and with it.

use super::drive::Drive;
use super::shares::Side;
use iofair_core::time::{Instant, Nanos};

/// Length of each half of a trial, without the change and with it.
pub(super) const TRIAL: Nanos = Nanos::from_millis(50);
/// A trial ends early after this many late requests more than twice those of its first half.
const LATE: u32 = 8;
/// Bounds of the pause after a trial: the shortest one after a gain, doubled after each trial without a gain.
const TRIAL_PAUSE: [Nanos; 2] = [Nanos::from_millis(100), Nanos::from_millis(6400)];

/// Length of a step of the search.
const STEP: Nanos = Nanos::from_millis(10);

/// Bytes read and written, or rates of both in bytes a second.
pub(super) type Moved = [u64; 2];

/// Drive time of what was read and written a second without a change, and with it. Reads must not gain at the expense of
/// writes.
pub(super) fn done(drive: &Drive, rates: [Moved; 2]) -> [u64; 2] {
    let written = rates.map(|[_, written]| written);
    let takes = written[1] < written[0] - written[0] / 8;
    let [before, rate] = rates
        .map(|[read, written]| drive.cost(Side::Read, read).0 + drive.cost(Side::Write, written).0);
    [before, if takes { rate.min(before) } else { rate }]
}

/// What a search changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    /// Nothing: no read was held yet.
    #[default]
    Waiting,
    /// Nothing: the drive still serves what it had before.
    Settling,
    /// The window.
    Window,
    /// Pieces are doubled.
    Pieces,
    Over,
}

/// What a step of a search has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Longer pieces are a gain.
    LongerPieces,
    /// Nothing more is.
    End,
}

/// The search for the window and the length of pieces when the window first holds reads. The window is doubled until the
/// drive does no more, and then the pieces.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Search {
    phase: Phase,
    /// The window, in bytes.
    window: u64,
    /// Begin of the present step, and what had been moved by then.
    began: Instant,
    moved: Moved,
    /// The rates without the change.
    before: Option<Moved>,
}

impl Search {
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }
    /// The window while the search runs.
    pub(super) fn window(&self) -> Option<u64> {
        matches!(self.phase, Phase::Settling | Phase::Window | Phase::Pieces).then_some(self.window)
    }
    /// By how much pieces are longer than usual.
    pub(super) fn doublings(&self) -> u32 {
        u32::from(self.phase == Phase::Pieces)
    }
    /// The window is to be this one.
    pub(super) fn settle(&mut self, window: u64) {
        self.window = window;
    }
    /// Ends the search, and returns the window that was found.
    pub(super) fn end(&mut self) -> Option<u64> {
        let found = self.window();
        self.phase = Phase::Over;
        found
    }
    /// A read was completed while the window, of `most` bytes, held others.
    pub(super) fn step(&mut self, now: Instant, drive: &Drive, most: u64) -> Option<Found> {
        let moved = drive.bytes_moved();
        if self.phase == Phase::Waiting {
            *self = Self { phase: Phase::Settling, window: most, began: now, moved, before: None };
            return None;
        }
        let time = now.since(self.began);
        if time < STEP {
            return None;
        }
        let rate = [0, 1]
            .map(|side| (moved[side] - self.moved[side]).saturating_mul(1_000_000_000) / time.0);
        (self.began, self.moved) = (now, moved);
        if self.phase == Phase::Settling {
            self.phase = Phase::Window;
            return None;
        }
        let gains = self.before.is_none_or(|before| {
            let [before, rate] = done(drive, [before, rate]);
            rate > before + before / 20
        });
        if gains {
            self.before = Some(rate);
        }
        match (self.phase, gains) {
            (Phase::Window, true) => self.window = self.window.saturating_mul(2),
            (Phase::Window, false) => (self.phase, self.window) = (Phase::Pieces, self.window / 2),
            (_, true) => return Some(Found::LongerPieces),
            (_, false) => return Some(Found::End),
        }
        None
    }
}

/// Measures the drive's throughput without a change of the limits, and then with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial<T> {
    pub(super) change: T,
    /// When the next trial may begin, and how long after the last one.
    pub(super) next: Instant,
    pub(super) pause: Nanos,
    /// Begin of the present half, and what had been moved by then. `None`: no trial runs.
    pub(super) began: Option<(Instant, Moved)>,
    /// The rates without the change. Present in the second half, in which the change is in effect.
    pub(super) before: Option<Moved>,
    /// In each half: requests that were later than their contracts allow.
    pub(super) late: [u32; 2],
}

impl<T: Copy + PartialEq> Trial<T> {
    pub(super) fn new(change: T) -> Self {
        let (next, pause) = (Instant::ZERO, TRIAL_PAUSE[0]);
        Self { change, next, pause, began: None, before: None, late: [0; 2] }
    }
    /// Whether this change is in effect.
    pub(super) fn is(&self, change: T) -> bool {
        self.before.is_some() && self.change == change
    }
    /// Called while the limit holds commands, with the bytes moved so far. Begins a trial, or a half of it. At its end,
    /// returns the rates without the change and with it.
    pub(super) fn step(&mut self, now: Instant, moved: Moved, length: Nanos) -> Option<[Moved; 2]> {
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
        let rate = [0, 1]
            .map(|side| (moved[side] - moved_then[side]).saturating_mul(1_000_000_000) / time.0);
        self.began = Some((now, moved));
        // If the limit did not hold commands most of the time, the half shows nothing.
        if time > length + length {
            self.stop();
            return None;
        }
        let before = self.before.replace(rate)?;
        Some([before, rate])
    }
    /// Counts a late request, and returns whether the change has made too many requests late.
    pub(super) fn harms(&mut self) -> bool {
        if self.began.is_none() {
            return false;
        }
        let [without, with] = &mut self.late;
        let count = if self.before.is_some() { &mut *with } else { &mut *without };
        *count = count.saturating_add(1);
        *with >= without.saturating_mul(2).saturating_add(LATE)
    }
    /// Ends the trial without a result.
    pub(super) fn stop(&mut self) {
        (self.began, self.before, self.late) = (None, None, [0; 2]);
    }
    /// Ends the trial; `good`: it was a gain, and the next one follows soon.
    pub(super) fn end(&mut self, now: Instant, good: bool) {
        self.pause = if good { TRIAL_PAUSE[0] } else { (self.pause * 2).min(TRIAL_PAUSE[1]) };
        (self.began, self.before, self.next) = (None, None, now + self.pause);
        self.late = [0; 2];
    }
}
