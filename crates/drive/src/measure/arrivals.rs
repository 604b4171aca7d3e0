//! Open loads: commands arrive at a rate, whether earlier ones are completed or not.

use std::collections::VecDeque;

use iofair_core::request::{Flags, Operation};
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::profile::Profile;
use crate::random::Random;
use crate::{Command, Done, Drive};

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

/// How far behind its rate a thread may be; what is more is not made up for.
const LATE_MAX: u64 = 5_000_000_000;

struct Thread {
    arrivals: Arrivals,
    next: Instant,
    in_flight: u32,
    /// Commands for which the drive has no room.
    queue: VecDeque<Command>,
    seen: Arrived,
    random: Random,
}

impl Thread {
    /// When it sends its next command, at `now` or later.
    fn sends(&self, now: Instant) -> Instant {
        if self.in_flight < self.arrivals.depth { self.next.max(now) } else { Instant::MAX }
    }
    fn send(&mut self, id: u32, now: Instant, capacity: u64) -> Operation {
        let Arrivals { per_s, is_random, read_percent, block, .. } = self.arrivals;
        let mean = Nanos::for_units_ceil(1, per_s);
        self.next += if is_random { self.random.exponential(mean) } else { mean };
        self.next = self.next.max(Instant(now.0.saturating_sub(LATE_MAX)));
        self.in_flight += 1;
        let is_read = self.random.chance(read_percent);
        let operation = if is_read { Operation::Read } else { Operation::Write };
        let start = Sectors(self.random.below(capacity / block) * (block / 512));
        let length = Sectors(block / 512);
        self.queue.push_back(Command { id, operation, flags: Flags::NONE, start, length });
        operation
    }
}

struct Host<'a> {
    drive: &'a mut dyn Drive,
    threads: Vec<Thread>,
    /// By id: thread, operation, start.
    sent: Vec<(usize, Operation, Instant)>,
    free: Vec<u32>,
    in_drive: u32,
    /// The thread whose queue is first.
    turn: usize,
    now: Instant,
}

impl Host<'_> {
    /// Hands commands to the drive while it has room, one of each queue in turn, as NVMe does.
    fn fill(&mut self) {
        let count = self.threads.len();
        while self.in_drive < self.drive.facts().depth {
            let turns = (self.turn..self.turn + count).map(|turn| turn % count);
            let Some((index, command)) = turns
                .filter_map(|index| self.threads[index].queue.pop_front().map(|next| (index, next)))
                .next()
            else {
                return;
            };
            self.turn = index + 1;
            self.in_drive += 1;
            self.drive.submit(self.now, command);
        }
    }
    fn arrive(&mut self, index: usize) {
        let id = self.free.pop().unwrap_or(self.sent.len() as u32);
        let capacity = self.drive.facts().capacity.bytes();
        let operation = self.threads[index].send(id, self.now, capacity);
        let entry = (index, operation, self.now);
        match self.sent.get_mut(id as usize) {
            Some(place) => *place = entry,
            None => self.sent.push(entry),
        }
    }
    fn complete(&mut self, completion: Done, begin: Instant) {
        let (index, operation, start) = self.sent[completion.id as usize];
        self.free.push(completion.id);
        self.in_drive -= 1;
        let thread = &mut self.threads[index];
        thread.in_flight -= 1;
        let latencies = match operation {
            Operation::Read => &mut thread.seen.reads,
            _ => &mut thread.seen.writes,
        };
        if completion.at >= begin {
            latencies.record(completion.at.since(start).0);
        }
    }
}

/// Sends the commands of all threads to a drive for `warm_up` and then for `measured`, and returns what each thread saw in that.
/// Each thread has a queue, from which the drive takes commands in turn.
pub fn arrive(
    drive: &mut dyn Drive,
    threads: &[Arrivals],
    (warm_up, measured): (Nanos, Nanos),
    seed: u64,
) -> Vec<Arrived> {
    let thread = |(index, arrivals): (usize, &Arrivals)| Thread {
        arrivals: *arrivals,
        next: Instant::ZERO,
        in_flight: 0,
        queue: VecDeque::new(),
        seen: Arrived::default(),
        random: Random::new(seed, index as u64 + 1),
    };
    let threads = threads.iter().enumerate().map(thread).collect();
    let (sent, free, mut done) = (Vec::new(), Vec::new(), Vec::new());
    let mut host = Host { drive, threads, sent, free, in_drive: 0, turn: 0, now: Instant::ZERO };
    let (begin, end) = (Instant::ZERO + warm_up, Instant::ZERO + warm_up + measured);
    while host.now < end {
        let sends = host.threads.iter().map(|thread| thread.sends(host.now)).enumerate();
        let (index, at) = sends.min_by_key(|(_, at)| *at).expect("there are threads");
        match host.drive.run_to_completion(at).filter(|event| *event < at) {
            Some(event) => {
                host.now = event;
                host.drive.advance(event, &mut done);
                done.drain(..).for_each(|completion| host.complete(completion, begin));
            }
            None => {
                host.now = at;
                host.arrive(index);
            }
        }
        host.fill();
    }
    host.threads.into_iter().map(|thread| thread.seen).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    /// Sustained random writes a second of `steady.toml`: a program and 3.18 copies of 524 us for four of 4 KiB, on 64 units
    /// (without the 1 % that reads take).
    const SUSTAINED: u64 = 64 * 4 * 1_000_000_000 / (524_000 * 418 / 100);

    /// The drive of the benches, with some numbers changed.
    fn steady(changes: &str) -> Profile {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/steady.toml");
        profile::read(&format!("{path}{changes}")).unwrap()
    }
    fn at(profile: &Profile, percent: u64) -> AtRate {
        let times = (Nanos::from_millis(200), Nanos::from_secs(2));
        ssd_iq(profile, SUSTAINED * percent / 100, times, 1)
    }

    /// Goal: below what the flash sustains, writes take the time of the cache and reads little more than alone; above it, writes
    /// wait by Little's law and reads suffer. Method: SSD-iq's load at 20, 90 and 130 % of what the numbers say.
    #[test]
    fn there_is_a_knee() {
        let drive = steady("");
        let [low, below, above] = [20, 90, 130].map(|percent| at(&drive, percent));
        for (seen, percent) in [(low, 20), (below, 90)] {
            let offered = SUSTAINED * percent / 100;
            assert!(seen.writes_per_s.abs_diff(offered) < offered / 50, "{seen:?}");
            assert!(seen.write[1] < 10_000 && seen.read[0] < 150_000, "{seen:?}");
        }
        // A unit is at work for a fifth of the time, or for nine tenths.
        assert!(low.read[0] < 75_000 && below.read[0] > 90_000, "{low:?} {below:?}");
        assert!(above.writes_per_s.abs_diff(SUSTAINED) < SUSTAINED / 30, "{above:?}");
        // Six threads have 64 commands in flight.
        let waited = 6 * 64 * 1_000_000_000 / SUSTAINED;
        assert!(above.write[0].abs_diff(waited) < waited / 4, "{above:?}");
        assert!(
            above.read[0] > 2 * below.read[0] && above.read[2] > 2 * below.read[2],
            "{above:?}"
        );
        assert_eq!(at(&drive, 130), above);
    }

    /// Goal: a read waits for the work of its unit until it is suspended, or for all of it; and in a drive that works in order
    /// also for the writes before it. Method: tails of reads below the knee with other times, medians of reads above it.
    #[test]
    fn reads_wait_for_suspension() {
        let tail = |least: &str, mean: &str| {
            let keys = "model.ssd.ftl.suspend";
            at(&steady(&format!("?{keys}.least={least}&{keys}.mean={mean}")), 80).read[2]
        };
        let [short, long, none] = [tail("0us", "40us"), tail("0us", "160us"), tail("1s", "40us")];
        assert!(3 * short < long + 60_000 * 2 && long < none, "{short} {long} {none}");
        let median = |in_order: bool| {
            let seen = at(&steady(&format!("?model.ssd.ftl.in-order={in_order}")), 130);
            (seen.read[0], seen.write[0])
        };
        assert!(2 * median(false).0 < median(false).1, "{:?}", median(false));
        assert!(median(true).0 > median(true).1 * 9 / 10, "{:?}", median(true));
    }

    /// Goal: collection that works in batches stalls writes below the knee, for as long as the cache does not absorb it. Method:
    /// the longest writes at 70 %.
    #[test]
    fn batches_stall_writes() {
        let slowest =
            |batch: &str| at(&steady(&format!("?model.ssd.ftl.batch={batch}")), 70).write[4];
        assert!(slowest("0us") < 20_000);
        assert!((15_000_000..20_000_000).contains(&slowest("30ms")), "{}", slowest("30ms"));
    }

    /// Goal: a drive in another state writes at the rate of its flash until its erased blocks are used. Method: twice the sustained
    /// rate on each state.
    #[test]
    fn states_differ() {
        let writes =
            |state: &str| at(&steady(&format!(":{state}")), 200).writes_per_s * 100 / SUSTAINED;
        let seen = ["fresh", "filled", "idle", "overwritten"].map(writes);
        assert!(seen[0] > 195 && seen[3] < 105, "{seen:?}");
        assert!(seen[3] < seen[2] && seen[2] < seen[1] && seen[1] <= seen[0], "{seen:?}");
    }
}
