//! The distances between requests of a process. They show whether idling for its next request saves a seek, and
//! whether two processes work near each other.
//!
//! There are two measures. Anticipatory and CFQ up to 2.6.33 use an average of the distances ([`SeekDistance`]).
//! Later CFQ and BFQ record which of the last 32 requests were far away ([`SeekHistory`]), so that a single long jump
//! counts only once.
//!
//! Sources: Linux 2.6.32 `block/as-iosched.c` and `cfq-iosched.c`, 4.18 `cfq-iosched.c`, `bfq-iosched.c`.

use super::ewma::Ewma;
use iofair_core::unit::Sectors;

/// A process with an average distance above this is seeky, and two positions at most this far apart are close to each
/// other (CFQ, BFQ).
pub const CLOSE: Sectors = Sectors(8 * 1024);

/// Average distance from the end of a request to the start of the next one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SeekDistance(Ewma);

impl SeekDistance {
    /// Without samples.
    pub const NEW: Self = Self(Ewma::NEW);

    /// Adds the distance of a request from the end of the previous one. A jump is limited, so that the first page
    /// after a long pause does not spoil the average: to four times the mean plus 1 GiB, and plus 64 MiB after two
    /// samples.
    pub fn add(&mut self, distance: Sectors) {
        let margin = if self.0.samples() <= 60 { 2 << 20 } else { 128 << 10 };
        let mean = self.0.mean_so_far().unwrap_or(0);
        self.0.add(distance.0.min(mean * 4 + margin));
    }
    /// Weight of the samples, see [`Ewma::samples`].
    pub const fn samples(&self) -> u64 {
        self.0.samples()
    }
    /// The mean, if there were three samples.
    pub fn mean(&self) -> Option<Sectors> {
        self.0.mean().map(Sectors)
    }
    /// The mean, if there was a sample.
    pub fn mean_so_far(&self) -> Option<Sectors> {
        self.0.mean_so_far().map(Sectors)
    }
    /// Whether it seems seeky, by the mean so far (CFQ).
    pub fn seeky(&self) -> bool {
        self.mean_so_far().is_some_and(|mean| mean > CLOSE)
    }
    /// Whether it is known to be seeky, by three samples.
    pub fn known_seeky(&self) -> bool {
        self.mean().is_some_and(|mean| mean > CLOSE)
    }
    /// The distance up to which a position counts as near (CFQ 2.6.32): the mean, or [`CLOSE`] while it is unknown.
    pub fn reach(&self) -> Sectors {
        self.mean().unwrap_or(CLOSE)
    }
}

/// A request farther than this from the end of the previous one is a seek (8 * 100 sectors).
const SEEK: Sectors = Sectors(800);
/// On flash, a request of this length is never a seek.
pub(crate) const LARGE_ON_FLASH: Sectors = Sectors(64);

/// Whether a request at `start` is a seek for a process whose last position was `last`.
pub(crate) fn is_seek(rotational: bool, last: Sectors, start: Sectors, length: Sectors) -> bool {
    last.distance(start) > SEEK && (rotational || length < LARGE_ON_FLASH)
}

/// One bit for each of the last 32 requests, the newest lowest: whether it was a seek.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SeekHistory {
    bits: u32,
    last: Option<Sectors>,
}

impl SeekHistory {
    /// A process without requests. `first_is_seek`: its first request counts as a seek.
    pub const fn new(first_is_seek: bool) -> Self {
        Self { bits: first_is_seek as u32, last: None }
    }
    /// Adds a request.
    pub fn note(&mut self, rotational: bool, start: Sectors, length: Sectors) {
        let seek = self.last.is_some_and(|last| is_seek(rotational, last, start, length));
        self.push(seek, start + length);
    }
    /// Adds a request by the rule of the last CFQ: on flash, every short request is a seek.
    pub fn note_cfq(&mut self, rotational: bool, start: Sectors, length: Sectors) {
        let seek = match rotational {
            true => self.last.is_some_and(|last| last.distance(start) > SEEK),
            false => length < LARGE_ON_FLASH,
        };
        self.push(seek, start + length);
    }
    fn push(&mut self, seek: bool, end: Sectors) {
        self.bits = (self.bits << 1) | u32::from(seek);
        self.last = Some(end);
    }
    /// Number of seeks among the last 32 requests.
    pub const fn seeks(&self) -> u32 {
        self.bits.count_ones()
    }
    /// The end of the last request.
    pub const fn last(&self) -> Option<Sectors> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the clamp of a long jump, by hand. Method: first sample far beyond 2 Mi sectors; then two
    /// of no distance, and a jump again, now bounded by four means and 128 Ki sectors.
    #[test]
    fn a_jump_is_bounded_by_what_is_known() {
        let mut distance = SeekDistance::default();
        distance.add(Sectors(1 << 40));
        assert_eq!(distance.mean_so_far(), Some(Sectors((2 << 20) + 4)));
        let mut calm = SeekDistance::default();
        (0..3).for_each(|_| calm.add(Sectors(0)));
        assert_eq!((calm.samples(), calm.mean()), (84, Some(Sectors(1))));
        calm.add(Sectors(1 << 40));
        let bounded = 256 * (4 + (128 << 10)) / 8;
        assert_eq!(calm.mean(), Some(Sectors((bounded + 128) / 105)));
    }

    /// Goal: seeky is a mean above 8192 sectors, known after three samples; until then the reach is 8192.
    /// Method: a mean just above, sample by sample, and one just below.
    #[test]
    fn seeky_above_the_threshold() {
        let mut distance = SeekDistance::default();
        for known in [false, false, true] {
            distance.add(Sectors(8_193));
            assert_eq!((distance.seeky(), distance.known_seeky()), (true, known));
            assert_eq!(distance.reach() > CLOSE, known);
        }
        let mut near = SeekDistance::default();
        (0..200).for_each(|_| near.add(Sectors(7_960)));
        assert!(!near.seeky(), "{near:?}");
        assert_eq!(SeekDistance::default().reach(), CLOSE);
    }

    /// Goal: what counts as a seek, on a disk and on flash. Method: both sides of both thresholds.
    #[test]
    fn history_counts_far_requests() {
        for (start, length, rotational, seeks) in
            [(908, 8, true, 0), (909, 8, true, 1), (909, 63, false, 1), (909, 64, false, 0)]
        {
            let mut history = SeekHistory::default();
            history.note(rotational, Sectors(100), Sectors(8));
            history.note(rotational, Sectors(start), Sectors(length));
            assert_eq!(history.seeks(), seeks, "{start} {length} {rotational}");
        }
        let mut flash = SeekHistory::default();
        [63, 64, 8]
            .into_iter()
            .for_each(|length| flash.note_cfq(false, Sectors(0), Sectors(length)));
        assert_eq!(flash.seeks(), 2);
        let mut history = SeekHistory::new(true);
        assert_eq!(history.seeks(), 1);
        (0..32).for_each(|i| history.note(true, Sectors(8 * i), Sectors(8)));
        assert_eq!((history.seeks(), history.last()), (0, Some(Sectors(256))));
    }
}
