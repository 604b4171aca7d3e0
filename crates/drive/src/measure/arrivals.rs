//! Open loads: commands arrive at a rate, whether earlier ones are completed or not.

use iofair_core::request::{Flags, Operation};
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::profile::Profile;
use crate::random::Random;
use crate::{Command, Drive};

/// A thread that sends commands of one size to random places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrivals {
    /// Commands a second.
    pub per_s: u64,
    /// Whether the times between arrivals are exponentially distributed; otherwise they are equal.
    pub is_random: bool,
    /// Reads among them, in percent; the others are writes.
    pub read_percent: u32,
    /// Bytes of a command.
    pub block: u64,
    /// Commands in flight at most; later ones are sent when earlier ones complete.
    pub depth: u32,
}

/// What one thread saw.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Arrived {
    /// Latencies of its reads, in nanoseconds.
    pub reads: Histogram,
    /// The same of its writes.
    pub writes: Histogram,
}

struct Thread {
    arrivals: Arrivals,
    next: Instant,
    in_flight: u32,
    seen: Arrived,
    random: Random,
}

impl Thread {
    /// When it sends its next command, at `now` or later.
    fn sends(&self, now: Instant) -> Instant {
        if self.in_flight < self.arrivals.depth { self.next.max(now) } else { Instant::MAX }
    }
    fn send(&mut self, id: u32, now: Instant, area: u64) -> Command {
        let Arrivals { per_s, is_random, read_percent, block, .. } = self.arrivals;
        let mean = Nanos::for_units_ceil(1, per_s);
        self.next += if is_random { self.random.exponential(mean) } else { mean };
        // A thread that falls behind does not catch up for ever.
        self.next = self.next.max(Instant(now.0.saturating_sub(LATE_MAX)));
        self.in_flight += 1;
        let is_read = self.random.chance(read_percent);
        let operation = if is_read { Operation::Read } else { Operation::Write };
        let start = Sectors(self.random.below(area / block) * (block / 512));
        Command { id, operation, flags: Flags::NONE, start, length: Sectors(block / 512) }
    }
}

/// How far behind its rate a thread may be.
const LATE_MAX: u64 = 5_000_000_000;

/// Sends the commands of all threads to a drive for `warm_up` and then for `measured`, and returns what each thread saw in that.
pub fn arrive(
    drive: &mut dyn Drive,
    threads: &[Arrivals],
    (warm_up, measured): (Nanos, Nanos),
    seed: u64,
) -> Vec<Arrived> {
    let facts = drive.facts();
    let area = facts.capacity.bytes();
    let thread = |(index, arrivals): (usize, &Arrivals)| Thread {
        arrivals: *arrivals,
        next: Instant::ZERO,
        in_flight: 0,
        seen: Arrived::default(),
        random: Random::new(seed, index as u64 + 1),
    };
    let mut threads: Vec<Thread> = threads.iter().enumerate().map(thread).collect();
    let (begin, end) = (Instant::ZERO + warm_up, Instant::ZERO + warm_up + measured);
    // By id: thread, operation, start.
    let mut sent: Vec<(usize, Operation, Instant)> = Vec::new();
    let (mut free, mut done, mut now) = (Vec::new(), Vec::new(), Instant::ZERO);
    while now < end {
        let (index, at) = threads
            .iter()
            .map(|thread| thread.sends(now))
            .enumerate()
            .min_by_key(|(_, at)| *at)
            .expect("there are threads");
        let is_full = sent.len() - free.len() == facts.depth as usize;
        let limit = if is_full { Instant::MAX } else { at };
        match drive.run_to_completion(limit) {
            Some(event) if event < limit => {
                now = event;
                drive.advance(now, &mut done);
                for completion in done.drain(..) {
                    let (index, operation, start) = sent[completion.id as usize];
                    free.push(completion.id);
                    threads[index].in_flight -= 1;
                    let seen = &mut threads[index].seen;
                    let latencies = match operation {
                        Operation::Read => &mut seen.reads,
                        _ => &mut seen.writes,
                    };
                    if completion.at >= begin {
                        latencies.record(completion.at.since(start).0);
                    }
                }
            }
            _ => {
                now = limit;
                let id = free.pop().unwrap_or(sent.len() as u32);
                let command = threads[index].send(id, now, area);
                let entry = (index, command.operation, now);
                match sent.get_mut(id as usize) {
                    Some(place) => *place = entry,
                    None => sent.push(entry),
                }
                drive.submit(now, command);
            }
        }
    }
    threads.into_iter().map(|thread| thread.seen).collect()
}

/// Rates and latencies of a load on a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtRate {
    /// Reads a second of all threads.
    pub reads_per_s: u64,
    /// Writes a second of all threads.
    pub writes_per_s: u64,
    /// Percentiles of the first thread's reads in nanoseconds: 50, 90, 99, 99.9 and 99.99.
    pub read: [u64; 5],
    /// The same of its writes.
    pub write: [u64; 5],
}

/// The load of SSD-iq (Haas et al., VLDB 2025): seven threads of 64 commands of 4 KiB at most. One sends 5,000 reads and 5,000
/// writes a second at equal distances, and measures; the others bring the writes up to `writes_per_s`, with 1 % reads. The times
/// are those of the warm-up and of the measurement. Latencies include the turnaround of the profile's host.
pub fn ssd_iq(profile: &Profile, writes_per_s: u64, times: (Nanos, Nanos), seed: u64) -> AtRate {
    let probe =
        Arrivals { per_s: 10_000, is_random: false, read_percent: 50, block: 4096, depth: 64 };
    let per_s = (writes_per_s.saturating_sub(5_000) / 6).max(1);
    let writer = Arrivals { per_s, is_random: true, read_percent: 1, ..probe };
    let mut drive = profile.build(seed);
    let seen = arrive(&mut *drive, &[[probe].as_slice(), &[writer; 6]].concat(), times, seed);
    let per_s = |count: u64| count * 1_000_000_000 / times.1.0.max(1);
    let percentiles = |latencies: &Histogram| {
        [500_000, 900_000, 990_000, 999_000, 999_900]
            .map(|part| latencies.quantile(part) + profile.host.turnaround.0)
    };
    AtRate {
        reads_per_s: per_s(seen.iter().map(|thread| thread.reads.count()).sum()),
        writes_per_s: per_s(seen.iter().map(|thread| thread.writes.count()).sum()),
        read: percentiles(&seen[0].reads),
        write: percentiles(&seen[0].writes),
    }
}
