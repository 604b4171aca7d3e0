//! Several equal drives combined chunk by chunk into one (RAID 0).
//!
//! A contiguous range of the whole is at most one contiguous range on each drive, so a command becomes at most one
//! command per drive. It completes when the last of them does. [`Geometry`] has the arithmetic; [`Stripe`] is the
//! drive that a host sees if it controls the whole and not the single drives.

use std::collections::{BTreeMap, VecDeque};

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::{Command, Done, Drive};

/// The mapping of sectors of the whole to its drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Number of drives, at least one.
    pub drives: u32,
    /// Contiguous sectors on one drive.
    pub chunk: Sectors,
}

impl Geometry {
    /// The part of a range that is on one drive: its start and length there, if any.
    pub fn piece(&self, drive: u32, start: Sectors, length: Sectors) -> Option<(Sectors, Sectors)> {
        let (from, to) = (self.below(drive, start), self.below(drive, start + length));
        (to > from).then(|| (from, to - from))
    }
    /// Sectors of one drive that are before `at` of the whole.
    fn below(&self, drive: u32, at: Sectors) -> Sectors {
        let (chunk, row) = (self.chunk.0, self.chunk.0 * u64::from(self.drives));
        let here = (at.0 % row).saturating_sub(chunk * u64::from(drive)).min(chunk);
        Sectors(at.0 / row * chunk + here)
    }
    /// The position in the whole of a sector of one drive, and how many sectors are contiguous from there.
    pub fn whole(&self, drive: u32, at: Sectors) -> (Sectors, Sectors) {
        let (row, rest) = (at.0 / self.chunk.0, at.0 % self.chunk.0);
        let chunk = row * u64::from(self.drives) + u64::from(drive);
        (Sectors(chunk * self.chunk.0 + rest), Sectors(self.chunk.0 - rest))
    }
    /// Capacity of the whole, for drives of this size; only complete rows count.
    pub fn capacity(&self, of_one: Sectors) -> Sectors {
        Sectors(of_one.0 / self.chunk.0 * self.chunk.0 * u64::from(self.drives))
    }
}

/// One drive, and the commands for which it has no slot yet.
struct Part {
    drive: Box<dyn Drive + Send>,
    depth: u32,
    under_way: u32,
    backlog: VecDeque<Command>,
}

impl Part {
    fn send(&mut self, now: Instant) {
        while self.under_way < self.depth {
            let Some(command) = self.backlog.pop_front() else { return };
            self.under_way += 1;
            self.drive.submit(now, command);
        }
    }
}

/// Several drives as one.
pub struct Stripe {
    geometry: Geometry,
    parts: Vec<Part>,
    /// For each command: the number of drives that have not completed it, and the worst status so far.
    open: BTreeMap<u32, (u32, i32)>,
    completed: Vec<Done>,
}

impl Stripe {
    /// Combines `drives`; their number must be that of `geometry`.
    pub fn new(geometry: Geometry, drives: Vec<Box<dyn Drive + Send>>) -> Self {
        assert_eq!(drives.len(), geometry.drives as usize, "a drive for each part");
        assert!(geometry.drives > 0 && geometry.chunk > Sectors::ZERO, "an empty stripe");
        let part = |drive: Box<dyn Drive + Send>| {
            let depth = drive.facts().depth;
            Part { drive, depth, under_way: 0, backlog: VecDeque::new() }
        };
        let parts = drives.into_iter().map(part).collect();
        Self { geometry, parts, open: BTreeMap::new(), completed: Vec::new() }
    }
    /// Processes everything that happens at exactly this instant.
    fn turn(&mut self, at: Instant, done: &mut Vec<Done>) {
        for part in &mut self.parts {
            if part.drive.next_event().is_none_or(|next| next > at) {
                continue;
            }
            part.drive.advance(at, &mut self.completed);
            part.under_way -= self.completed.len() as u32;
            part.send(at);
            for completion in self.completed.drain(..) {
                let (left, status) = self.open.get_mut(&completion.id).expect("it was sent");
                *left -= 1;
                if *status == 0 {
                    *status = completion.status;
                }
                if *left == 0 {
                    done.push(Done { status: *status, ..completion });
                    self.open.remove(&completion.id);
                }
            }
        }
    }
}

impl Drive for Stripe {
    fn submit(&mut self, now: Instant, command: Command) {
        let mut pieces = 0;
        for (part, drive) in self.parts.iter_mut().zip(0..) {
            let piece = match command.operation {
                Operation::Flush => Some((command.start, command.length)),
                _ => self.geometry.piece(drive, command.start, command.length),
            };
            if let Some((start, length)) = piece {
                part.backlog.push_back(Command { start, length, ..command });
                part.send(now);
                pieces += 1;
            }
        }
        self.open.insert(command.id, (pieces, 0));
    }
    fn next_event(&self) -> Option<Instant> {
        self.parts.iter().filter_map(|part| part.drive.next_event()).min()
    }
    fn advance(&mut self, now: Instant, done: &mut Vec<Done>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.turn(at, done);
        }
    }
    fn facts(&self) -> DriveFacts {
        let one = self.parts[0].drive.facts();
        let depth = one.depth.saturating_mul(self.geometry.drives);
        DriveFacts { depth, capacity: self.geometry.capacity(one.capacity), ..one }
    }
    /// The mean over its drives: a stripe of two drives is half busy if one is idle.
    fn busy(&self) -> Nanos {
        let sum: u64 = self.parts.iter().map(|part| part.drive.busy().0).sum();
        Nanos(sum / self.parts.len() as u64)
    }
    /// The rate of one drive, because all clients may want the same one.
    fn worst_case_rate(&self) -> u64 {
        self.parts[0].drive.worst_case_rate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;
    use iofair_core::request::Flags;

    /// Goal: the pieces of a range are disjoint, cover it, and lie where single sectors lie. Method:
    /// every range of a small whole, sector by sector.
    #[test]
    fn pieces_cover_a_range_once() {
        let geometry = Geometry { drives: 3, chunk: Sectors(4) };
        for start in 0..40 {
            for length in 1..30 {
                let mut seen = 0;
                for drive in 0..3 {
                    let piece = geometry.piece(drive, Sectors(start), Sectors(length));
                    let Some((from, count)) = piece else { continue };
                    for sector in from.0..from.0 + count.0 {
                        let (at, run) = geometry.whole(drive, Sectors(sector));
                        assert!((start..start + length).contains(&at.0) && run.0 > 0);
                        seen += 1;
                    }
                }
                assert_eq!(seen, length, "{start} {length}");
            }
        }
        assert_eq!(geometry.capacity(Sectors(11)), Sectors(24));
    }

    /// Goal: every command is completed once, at the same instant however late the owner looks; a flush
    /// goes to all. Method: 200 reads, writes and flushes on two disks; look at each event, and only at the end.
    #[test]
    fn commands_are_completed_once_and_in_time() {
        let run = |late: bool| {
            let disk = || profile::load("sata-7200-2009", 1).unwrap();
            let geometry = Geometry { drives: 2, chunk: Sectors(128) };
            let mut stripe = Stripe::new(geometry, vec![disk(), disk()]);
            for id in 0..60 {
                let operation = match id % 10 {
                    0 => Operation::Flush,
                    1 | 2 => Operation::Write,
                    _ => Operation::Read,
                };
                let (start, length) = (Sectors(u64::from(id) * 999_992), Sectors(8 << (id % 6)));
                let empty = operation == Operation::Flush;
                let length = if empty { Sectors::ZERO } else { length };
                let flags = Flags::NONE;
                stripe.submit(Instant::ZERO, Command { id, operation, flags, start, length });
            }
            let mut done = Vec::new();
            if late {
                stripe.advance(Instant(60_000_000_000), &mut done);
            }
            while let Some(at) = stripe.next_event() {
                stripe.advance(at, &mut done);
                stripe.advance(at, &mut done);
            }
            done
        };
        let (early, late) = (run(false), run(true));
        let completed: std::collections::BTreeSet<u32> = early.iter().map(|done| done.id).collect();
        assert_eq!((early.len(), completed.len()), (60, 60));
        assert!(early.is_sorted_by_key(|done| done.at));
        assert_eq!(early, late[..early.len()]);
    }
}
