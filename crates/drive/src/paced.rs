//! A drive whose speed changes at given instants: at 50 %, everything takes twice as long. This models a drive that
//! is hot, that repairs itself, or that others also use.
//!
//! The inner drive has its own time, which passes at that speed; [`Paced`] converts between the two. The whole model
//! slows down: electronics, flash or head, and link.

use iofair_core::policy::DriveFacts;
use iofair_core::time::{Instant, Nanos};

use crate::{Command, Done, Drive};

/// The speed from an instant on, in percent of the profile's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The start of this speed.
    pub from: Instant,
    /// Percent, at least 1.
    pub percent: u32,
}

/// An interval of constant speed: its start in the owner's time and in the inner drive's time.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    owner: u64,
    drive: u64,
    percent: u64,
}

/// A drive with changing speed.
pub struct Paced {
    drive: Box<dyn Drive + Send>,
    /// In order; the first one starts at the epoch.
    stretches: Vec<Stretch>,
    completed: Vec<Done>,
    in_flight: usize,
    /// Until when `busy` counts, while anything is in flight.
    busy_since: Instant,
    busy: Nanos,
}

impl Paced {
    /// Wraps `drive`, which runs at full speed until the first of `paces`; these are in order of time.
    pub fn new(drive: Box<dyn Drive + Send>, paces: &[Pace]) -> Self {
        let mut stretches = vec![Stretch { owner: 0, drive: 0, percent: 100 }];
        for pace in paces {
            assert!(pace.percent > 0, "a drive that stands still completes nothing");
            let last = stretches.last().expect("there is a first one");
            assert!(pace.from.0 >= last.owner, "paces are in order of time");
            let drive = last.drive_at(pace.from.0);
            let percent = u64::from(pace.percent);
            stretches.push(Stretch { owner: pace.from.0, drive, percent });
        }
        let (completed, busy_since, busy) = (Vec::new(), Instant::ZERO, Nanos::ZERO);
        Self { drive, stretches, completed, in_flight: 0, busy_since, busy }
    }
    /// The inner drive's time at this instant, rounded down.
    fn inside(&self, at: Instant) -> Instant {
        let stretch = self.stretches.iter().rfind(|stretch| stretch.owner <= at.0);
        Instant(stretch.expect("the first one begins at the epoch").drive_at(at.0))
    }
    /// The first instant of the owner at which the inner time is not before `at`.
    fn outside(&self, at: Instant) -> Instant {
        let stretch = self.stretches.iter().rfind(|stretch| stretch.drive <= at.0);
        let Stretch { owner, drive, percent } = stretch.expect("the first begins at the epoch");
        let later = (u128::from(at.0 - drive) * 100).div_ceil(u128::from(*percent));
        Instant(*owner) + Nanos(u64::try_from(later).unwrap_or(u64::MAX))
    }
}

impl Stretch {
    fn drive_at(&self, owner: u64) -> u64 {
        let passed = u128::from(owner - self.owner) * u128::from(self.percent) / 100;
        self.drive.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

impl Drive for Paced {
    fn submit(&mut self, now: Instant, command: Command) {
        if self.in_flight == 0 {
            self.busy_since = now;
        }
        self.in_flight += 1;
        self.drive.submit(self.inside(now), command);
    }
    fn next_event(&self) -> Option<Instant> {
        self.drive.next_event().map(|at| self.outside(at))
    }
    fn advance(&mut self, now: Instant, done: &mut Vec<Done>) {
        let mut completed = std::mem::take(&mut self.completed);
        self.drive.advance(self.inside(now), &mut completed);
        for completion in completed.drain(..) {
            let at = self.outside(completion.at);
            self.in_flight -= 1;
            self.busy += at.since(self.busy_since);
            self.busy_since = at;
            done.push(Done { at, ..completion });
        }
        self.completed = completed;
    }
    fn facts(&self) -> DriveFacts {
        self.drive.facts()
    }
    /// Up to its last completion.
    fn busy(&self) -> Nanos {
        self.busy
    }
    fn worst_case_rate(&self) -> u64 {
        self.drive.worst_case_rate()
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::request::{Flags, Operation};
    use iofair_core::unit::Sectors;

    use super::*;
    use crate::profile;

    fn load() -> Box<dyn Drive + Send> {
        profile::load("plextor-px256m5s", 1).unwrap()
    }
    fn pace(from: u64, percent: u32) -> Pace {
        Pace { from: Instant(from), percent }
    }

    fn command(id: u32) -> Command {
        Command {
            id,
            operation: if id.is_multiple_of(3) { Operation::Write } else { Operation::Read },
            flags: Flags::NONE,
            start: Sectors(u64::from(id) * 7_777 * 8),
            length: Sectors(8 << (id % 6)),
        }
    }
    /// Completions of a closed loop of four mixed commands until `end`.
    fn completions(drive: &mut dyn Drive, end: u64) -> Vec<Done> {
        let (mut done, mut all) = (Vec::new(), Vec::new());
        (0..4).for_each(|id| drive.submit(Instant::ZERO, command(id)));
        while let Some(at) = drive.next_event().filter(|at| at.0 <= end) {
            drive.advance(at, &mut done);
            for completion in done.drain(..) {
                assert_eq!(completion.at, at, "a completion at another time than its event");
                all.push(completion);
                drive.submit(at, command(all.len() as u32 + 3));
            }
        }
        all
    }

    /// Goal: at full speed nothing changes, at half speed every completion comes at twice its time. Method: one closed loop
    /// on the drive itself and on two paced ones.
    #[test]
    fn every_completion_takes_longer() {
        let plain = completions(&mut *load(), 20_000_000);
        assert!(plain.len() > 100, "{}", plain.len());
        assert_eq!(completions(&mut Paced::new(load(), &[]), 20_000_000), plain);
        let slow = completions(&mut Paced::new(load(), &[pace(0, 50)]), 40_000_000);
        let twice = plain.iter().map(|done| Done { at: Instant(done.at.0 * 2), ..*done });
        assert_eq!(slow, twice.collect::<Vec<_>>());
    }

    /// Goal: a change acts at its instant, on what is in the drive too. Method: a read that takes 162,957 ns is slowed
    /// to a third after 100 us and hurried to double speed 90 us later: 30 us of it pass in between.
    #[test]
    fn speed_changes_in_the_middle_of_a_command() {
        let mut drive = Paced::new(load(), &[]);
        let read = Command {
            id: 1,
            operation: Operation::Read,
            flags: Flags::NONE,
            start: Sectors(8),
            length: Sectors(8),
        };
        let last = |drive: &mut Paced| {
            drive.submit(Instant::ZERO, read);
            let mut done = Vec::new();
            while let Some(at) = drive.next_event() {
                drive.advance(at, &mut done);
            }
            assert_eq!((done.len(), drive.busy()), (1, done[0].at.since(Instant::ZERO)));
            done[0].at.0
        };
        let plain = last(&mut drive);
        assert!(plain > 130_000, "{plain}");
        let mut drive = Paced::new(load(), &[pace(100_000, 33), pace(190_000, 200)]);
        let rest = plain - 100_000 - 90_000 * 33 / 100;
        assert_eq!(last(&mut drive), 190_000 + rest.div_ceil(2));
    }

    /// Goal: advancing early, late or twice changes no completion's time. Method: the same commands looked at just before,
    /// at and just after each event, and once at the end.
    #[test]
    fn late_and_repeated_advances_change_nothing() {
        let run = |late: bool| {
            let mut drive = Paced::new(load(), &[pace(150_000, 50), pace(400_000, 170)]);
            let mut done = Vec::new();
            (0..20).for_each(|id| drive.submit(Instant::ZERO, command(id)));
            if late {
                drive.advance(Instant(60_000_000), &mut done);
            }
            while let Some(at) = drive.next_event() {
                for now in [at.0 - 1, at.0, at.0, at.0 + 1] {
                    drive.advance(Instant(now), &mut done);
                    assert!(
                        done.iter().all(|done| done.at.0 <= now),
                        "a completion from the future"
                    );
                }
            }
            done
        };
        let (often, once) = (run(false), run(true));
        assert_eq!(often.len(), 20);
        assert!(often[0].at.0 < 150_000 && often[19].at.0 > 400_000, "{often:?}");
        assert_eq!(often, once);
    }
}
