//! A drive behind a path: a loop device over a file system in user space, a network, a hypervisor.
//!
//! A command first passes a stage that serves one after the other ([`Path::serial`] and [`Path::per_mib`]), then waits
//! for room in the drive in order of arrival, and its completion takes [`Path::fixed`] back, and now and then more
//! ([`Path::jitter`]). The host therefore sees a deeper queue ([`Path::depth`]) than the drive has.

use std::collections::VecDeque;

use iofair_core::policy::DriveFacts;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::random::Random;
use crate::{Command, Done, Drive};

/// What lies between a host's scheduler and the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Delay of every command that others do not wait for.
    pub fixed: Nanos,
    /// Mean of a random delay in addition, about exponential: often little, sometimes much.
    pub jitter: Nanos,
    /// Time of a command in the stage that serves one after the other.
    pub serial: Nanos,
    /// Additional time in that stage for each MiB.
    pub per_mib: Nanos,
    /// Commands that the host may send at once.
    pub depth: u32,
}

impl Path {
    fn stage(&self, length: Sectors) -> Nanos {
        let bytes = u128::from(self.per_mib.0) * u128::from(length.bytes());
        self.serial + Nanos(u64::try_from(bytes >> 20).unwrap_or(u64::MAX))
    }
}

/// A drive and the path to it.
pub struct Behind {
    drive: Box<dyn Drive + Send>,
    path: Path,
    depth: u32,
    /// On their way, in order of their arrival.
    coming: VecDeque<(Instant, Command)>,
    /// Arrived, and waiting for room in the drive.
    waiting: VecDeque<Command>,
    /// On their way back, in order of time.
    going: VecDeque<Done>,
    in_drive: u32,
    free: Instant,
    completed: Vec<Done>,
    random: Random,
}

impl Behind {
    /// Puts the path before `drive`; its jitter is drawn from `random`.
    pub fn new(drive: Box<dyn Drive + Send>, path: Path, random: Random) -> Self {
        let depth = drive.facts().depth;
        let (coming, waiting, going) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (in_drive, free, completed) = (0, Instant::ZERO, Vec::new());
        Self { drive, path, depth, coming, waiting, going, in_drive, free, completed, random }
    }
    /// A draw of the jitter: uniform between powers of two, each half as likely as the one before.
    fn jitter(&mut self) -> Nanos {
        const PARTS: u64 = 1024;
        if self.path.jitter == Nanos::ZERO {
            return Nanos::ZERO;
        }
        let halvings = u64::from(self.random.bits().leading_zeros());
        let parts = halvings * PARTS + self.random.below(PARTS);
        // 3/2 halvings on average.
        Nanos(self.path.jitter.0.saturating_mul(2 * parts) / (3 * PARTS))
    }
    /// Sends a completion back to the host.
    fn go_back(&mut self, done: Done) {
        let at = done.at + self.path.fixed + self.jitter();
        let place = self.going.partition_point(|known| known.at <= at);
        self.going.insert(place, Done { at, ..done });
    }
    /// The next event before the way back.
    fn next_inside(&self) -> Option<Instant> {
        let coming = self.coming.front().map(|(at, _)| *at);
        coming.into_iter().chain(self.drive.next_event()).min()
    }
    fn fill(&mut self, now: Instant) {
        while self.in_drive < self.depth {
            let Some(command) = self.waiting.pop_front() else { return };
            self.in_drive += 1;
            self.drive.submit(now, command);
        }
    }
}

impl Drive for Behind {
    fn submit(&mut self, now: Instant, command: Command) {
        self.free = self.free.max(now) + self.path.stage(command.length);
        self.coming.push_back((self.free, command));
    }
    fn next_event(&self) -> Option<Instant> {
        let going = self.going.front().map(|done| done.at);
        self.next_inside().into_iter().chain(going).min()
    }
    fn advance(&mut self, now: Instant, done: &mut Vec<Done>) {
        while let Some(at) = self.next_inside().filter(|at| *at <= now) {
            let mut completed = std::mem::take(&mut self.completed);
            self.drive.advance(at, &mut completed);
            for completion in completed.drain(..) {
                self.in_drive -= 1;
                self.go_back(completion);
            }
            self.completed = completed;
            while let Some((_, command)) = self.coming.front().filter(|(when, _)| *when <= at) {
                self.waiting.push_back(*command);
                self.coming.pop_front();
            }
            self.fill(at);
        }
        while let Some(completion) = self.going.front().filter(|completion| completion.at <= now) {
            done.push(*completion);
            self.going.pop_front();
        }
    }
    fn facts(&self) -> DriveFacts {
        DriveFacts { depth: self.path.depth, ..self.drive.facts() }
    }
    fn busy(&self) -> Nanos {
        self.drive.busy()
    }
    fn worst_case_rate(&self) -> u64 {
        self.drive.worst_case_rate()
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::request::{Flags, Operation};

    use super::*;
    use crate::profile;

    fn read(id: u32, start: u64, sectors: u64) -> Command {
        let (start, length) = (Sectors(start), Sectors(sectors));
        Command { id, operation: Operation::Read, flags: Flags::NONE, start, length }
    }
    fn times(drive: &mut dyn Drive, commands: u32) -> Vec<(u32, Instant)> {
        for id in 0..commands {
            drive.submit(Instant::ZERO, read(id, u64::from(id) << 16, 8));
        }
        let (mut done, mut turns) = (Vec::new(), 0);
        while let Some(at) = drive.next_event() {
            drive.advance(at, &mut done);
            drive.advance(at, &mut done);
            turns += 1;
            assert!(turns < 100_000, "it ends");
        }
        done.iter().map(|completion| (completion.id, completion.at)).collect()
    }
    fn behind(path: Path) -> Behind {
        let drive = profile::load("plextor-px256m5s", 1).expect("a profile");
        Behind::new(drive, path, Random::new(1, 0))
    }

    /// Goal: a lone command takes the path's time more. Method: one read with and without a path.
    #[test]
    fn a_path_takes_time() {
        let mut bare = profile::load("plextor-px256m5s", 1).expect("a profile");
        let alone = times(&mut *bare, 1)[0].1;
        let us = Nanos::from_micros;
        let jitter = Nanos::ZERO;
        let path = Path { fixed: us(90), jitter, serial: us(5), per_mib: us(256), depth: 128 };
        // 4 KiB are a 256th of a MiB.
        assert_eq!(times(&mut behind(path), 1)[0].1, alone + us(96));
        assert_eq!(behind(path).facts().depth, 128);
    }

    /// Goal: more commands than the drive takes wait and are all completed once, none before the stage let it pass.
    /// Method: 100 reads at once over a drive with room for 32.
    #[test]
    fn what_the_drive_has_no_room_for_waits() {
        let us = Nanos::from_micros;
        let path =
            Path { fixed: us(0), jitter: us(30), serial: us(20), per_mib: us(0), depth: 128 };
        let done = times(&mut behind(path), 100);
        let mut ids: Vec<u32> = done.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..100).collect::<Vec<_>>());
        assert!(done.last().expect("some").1 >= Instant::ZERO + us(2000));
    }

    /// Goal: jitter has the mean that it is given, and a tail. Method: many draws.
    #[test]
    fn jitter_is_as_long_as_said() {
        let us = Nanos::from_micros;
        let path = Path { fixed: us(0), jitter: us(30), serial: us(0), per_mib: us(0), depth: 1 };
        let mut behind = behind(path);
        let draws: Vec<u64> = (0..100_000).map(|_| behind.jitter().0).collect();
        let mean = draws.iter().sum::<u64>() / 100_000;
        let late = draws.iter().filter(|draw| **draw > 100_000).count();
        assert!(mean.abs_diff(30_000) < 300, "{mean}");
        assert!((2_000..5_000).contains(&late), "{late}");
    }
}
