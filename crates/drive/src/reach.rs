//! The rates that a drive reaches, for admission, measured on its model in simulated time.
//!
//! The runs are short, and each has its own drive:
//!
//! - random small reads over the whole drive, one at a time;
//! - many small reads at once, and many small writes at once;
//! - large reads at the end of the drive (the slow end of a disk), many at once;
//! - large writes with a full cache;
//! - small reads, small writes, and flushes of a small write, each after a millisecond's worth of writes that have just completed,
//!   which is what a scheduler that limits writes sends. On a disk, without these writes, because their time depends on the cache's
//!   contents.
//!
//! A drive with flash translation is measured after random overwriting, in whatever state it is now: a minimum has to be kept
//! then, too.
//!
//! The same profile always gives the same result.

use iofair_core::attainable::{Attainable, SMALL_READ};
use iofair_core::contract::Latency;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

use crate::profile::{Model, Profile};
use crate::random::Random;
use crate::{Command, Done, Drive, ssd};

const SEED: u64 = 1;
/// Length and number of large requests.
const LONG: u64 = 256 << 10;
const DEPTH: u32 = 32;
/// Length of a small request, and how many are sent at once.
const SMALL: u64 = 4096;
const DEPTH_SMALL: u32 = 256;
/// Number of small reads that are timed for a mean, and of requests for a 99th percentile beside writes.
const READS_ALONE: u64 = 1024;
const BESIDE: u64 = 128;
/// A write of this many times its size fills a write cache that is emptied at nine tenths of the rate at which it is
/// filled.
const FILLS: u64 = 12;
/// Bytes of large requests that are timed, at least and at most.
const BYTES: (u64, u64) = (16 << 20, 512 << 20);
/// Drive time of the writes before each read.
const BURST: Nanos = Nanos::from_millis(1);

impl Profile {
    /// The rates that a drive of this profile reaches, in its steady state.
    pub fn reaches(&self) -> Attainable {
        let steady = self.overwritten();
        let even = steady.sustained();
        let (reads, writes) = (even.streams(Operation::Read), even.streams(Operation::Write));
        let turnaround = self.host.turnaround * READS_ALONE;
        let times = even.small_times(Operation::Read, READS_ALONE, 0);
        let time = times.iter().fold(turnaround, |sum, took| sum + *took);
        let alone = rate(READS_ALONE * SMALL_READ, time);
        let [small_reads, small_writes] =
            [Operation::Read, Operation::Write].map(|operation| even.small(operation));
        let small = Some(small_reads.min(small_writes));
        let found = Attainable { reads, writes, alone, small, latency: Latency::NONE };
        let burst = if found.has_head() { 0 } else { BURST.units_floor(writes) };
        let latency = |operation| {
            let mut times = match operation {
                Operation::Read if burst == 0 => times.clone(),
                _ => steady.small_times(operation, BESIDE, burst),
            };
            times.sort_unstable();
            Some(times[times.len() * 99 / 100])
        };
        let [read, write, sync] =
            [Operation::Read, Operation::Write, Operation::Flush].map(latency);
        Attainable { latency: Latency { read, write, sync }, ..found }
    }
    /// Whether writes cost more once the drive was overwritten.
    pub fn has_flash_translation(&self) -> bool {
        matches!(&self.model, Model::Ssd(parameters) if parameters.ftl.is_some())
    }
    /// The same after random overwriting.
    fn overwritten(&self) -> Self {
        let mut steady = self.clone();
        if let Model::Ssd(ssd::Parameters { ftl: Some(ftl), .. }) = &mut steady.model {
            ftl.state = ssd::State::Overwritten;
        }
        steady
    }
    fn bench(&self, depth: u32) -> Bench {
        let drive = self.build(SEED);
        let facts = drive.facts();
        let depth = facts.depth.min(depth);
        let long = LONG.min(facts.max_request.bytes());
        let capacity = facts.capacity.bytes();
        let begin = capacity.saturating_sub(2 * BYTES.1) / SMALL_READ * SMALL_READ;
        Bench {
            drive,
            now: Instant::ZERO,
            random: Random::new(SEED, 1),
            capacity,
            long,
            at: begin,
            begin,
            depth,
            free: (0..depth).rev().collect(),
            done: Vec::new(),
        }
    }
    /// Bytes a second of large sequential requests, once the cache is full.
    fn streams(&self, operation: Operation) -> u64 {
        let cache = match operation {
            Operation::Write => self.write_cache(),
            _ => 0,
        };
        let mut bench = self.bench(DEPTH);
        let timed = (2 * cache).clamp(BYTES.0, BYTES.1);
        let begun = bench.long(operation, FILLS * cache);
        rate(timed, bench.long(operation, timed).since(begun))
    }
    fn write_cache(&self) -> u64 {
        match &self.model {
            Model::Hdd(parameters) => parameters.write_cache * SMALL_READ,
            Model::Ssd(parameters) => parameters.write_cache,
        }
    }
    /// The same without bursts, slices and batches: what a volume lets through at once is not what it sustains, nor what a drive
    /// writes before it collects.
    pub(crate) fn sustained(&self) -> Self {
        let mut even = self.clone();
        if let Some(limits) = &mut even.volume {
            (limits.burst, limits.slice) = (Nanos(1), Nanos(1));
        }
        if let Model::Ssd(ssd::Parameters { ftl: Some(ftl), .. }) = &mut even.model {
            ftl.batch = Nanos::ZERO;
        }
        even
    }
    /// Bytes a second of random small requests, many at once. If the write cache absorbs them for longer than this
    /// run, they are not a limit, because `writes` is one; with flash translation they cost more than `writes`, so the cache is
    /// filled first.
    fn small(&self, operation: Operation) -> u64 {
        let mut bench = self.bench(DEPTH_SMALL);
        let fills = operation == Operation::Write && self.has_flash_translation();
        let first = if fills { FILLS * self.write_cache() / SMALL_READ } else { 0 };
        let begun = bench.small(operation, first.max(u64::from(bench.depth)));
        rate(SMALL * SMALL_READ, bench.small(operation, SMALL).since(begun))
    }
    /// The times of random small requests, or of flushes of a small write, each after this many bytes of writes.
    fn small_times(&self, operation: Operation, count: u64, burst: u64) -> Vec<Nanos> {
        let mut bench = self.bench(DEPTH);
        let times = (0..count).map(|_| {
            bench.long(Operation::Write, burst);
            if operation == Operation::Flush {
                bench.small(Operation::Write, 1);
            }
            let sent = bench.now;
            bench.small(operation, 1).since(sent)
        });
        times.collect()
    }
}

/// Bytes a second, rounded down.
fn rate(bytes: u64, time: Nanos) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(time.0.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// A drive, and a host that only waits for it.
struct Bench {
    drive: Box<dyn Drive + Send>,
    now: Instant,
    random: Random,
    capacity: u64,
    /// Length of a large request, the position of the next one, and that of the first one.
    long: u64,
    at: u64,
    begin: u64,
    depth: u32,
    free: Vec<u32>,
    done: Vec<Done>,
}

impl Bench {
    fn submit(&mut self, operation: Operation, start: u64, bytes: u64) {
        let id = self.free.pop().expect("no more are sent than the drive takes");
        let (start, length) = (Sectors::from_bytes_ceil(start), Sectors::from_bytes_ceil(bytes));
        self.drive.submit(self.now, Command { id, operation, flags: Flags::NONE, start, length });
    }
    /// Advances the drive until it has completed something.
    fn wait(&mut self) {
        while self.done.is_empty() {
            let Some(at) = self.drive.next_event() else { return };
            self.drive.advance(at, &mut self.done);
        }
        for done in self.done.drain(..) {
            self.now = self.now.max(done.at);
            self.free.push(done.id);
        }
    }
    /// Sends large sequential requests to the last part of the drive until at least this many bytes are complete.
    /// Returns when the last one completed.
    fn long(&mut self, operation: Operation, bytes: u64) -> Instant {
        let mut left = bytes.div_ceil(self.long);
        while left > 0 || self.free.len() < self.depth as usize {
            if left > 0 && !self.free.is_empty() {
                self.submit(operation, self.at, self.long);
                left -= 1;
                self.at += self.long;
                if self.at + self.long > self.capacity {
                    self.at = self.begin;
                }
            } else {
                self.wait();
            }
        }
        self.now
    }
    /// Sends random small requests until this many have completed. Returns when the last one completed.
    fn small(&mut self, operation: Operation, mut left: u64) -> Instant {
        while left > 0 || self.free.len() < self.depth as usize {
            if left > 0 && !self.free.is_empty() {
                let place = self.random.below(self.capacity / SMALL_READ) * SMALL_READ;
                let length = if operation == Operation::Flush { 0 } else { SMALL_READ };
                self.submit(operation, place, length);
                left -= 1;
            } else {
                self.wait();
            }
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use crate::profile;

    /// Goal: what is measured is what the profiles were fitted to, and what is known to be attainable. Method: the rates of
    /// the rows, with a tenth either way; the latencies of a study of these models beside writers.
    #[test]
    fn embedded_drives_reach_what_was_measured() {
        const MB: u64 = 1_000_000;
        for (name, [reads, writes, alone], micros) in [
            ("plextor-px256m5s", [535 * MB, 386 * MB, 23_550_000], 1400),
            ("samsung-970-pro", [3480 * MB, 2300 * MB, 61_000_000], 900),
            ("nvme-2015", [2770 * MB, 1400 * MB, 42_700_000], 800),
        ] {
            let profile = profile::read(name).unwrap();
            let found = profile.reaches();
            println!("{name}: {found:?}");
            for (found, known) in
                [(found.reads, reads), (found.writes, writes), (found.alone, alone)]
            {
                assert!(found.abs_diff(known) <= known / 10, "{name}: {found} of {known}");
            }
            let latency = found.latency.read.expect("it is measured").as_micros();
            assert!((micros / 2..micros * 2).contains(&latency), "{name}: {latency} us");
            assert!(!found.has_head());
            assert_eq!(found, profile.reaches(), "no chance in it");
        }
        let disk = profile::read("hitachi-hts727550a9e364").unwrap().reaches();
        println!("disk: {disk:?}");
        assert!(disk.has_head());
        // Half of what a client reaches that reads 500 MB of it.
        assert!((242_000..490_000).contains(&disk.alone), "{disk:?}");
    }

    /// Goal: what can be promised of a drive with flash translation is what it sustains after random overwriting, in whatever state it is
    /// now. Method: states of three drives, whose random writes at saturation others have measured.
    #[test]
    fn what_is_reached_is_the_steady_state() {
        for (name, measured) in [
            ("toshiba-kxg6azn512", 92_864_512),
            ("samsung-mzul2512", 39_708_672),
            ("wd-960gb", 174_806_302),
        ] {
            let found = profile::read(name).unwrap().reaches();
            let small = found.small.expect("it is measured");
            assert!(small.abs_diff(measured) <= measured / 10, "{name}: {found:?}");
            for state in crate::ssd::State::NAMES {
                let other = profile::read(&format!("{name}:{state}")).unwrap().reaches();
                assert_eq!(other, found, "{name}:{state}");
            }
        }
    }

    /// Goal: any profile can be measured, and quickly enough for the start of a server. Method: all embedded ones with
    /// their variants, and drawn ones, against a count of processor time.
    #[test]
    fn every_drive_can_be_measured() {
        let drawn = (0..20).map(|seed| format!("random-flash:{seed}"));
        let drawn = drawn.chain((0..10).map(|seed| format!("random-disk:{seed}")));
        let drawn = drawn.chain((0..20).map(|seed| format!("random-volume:{seed}")));
        let names = profile::list().into_iter().map(|listed| listed.name).chain(drawn);
        for name in names {
            let begun = cpu_time::ThreadTime::now();
            let found = profile::read(&name).unwrap().reaches();
            let took = begun.elapsed();
            println!("{name}: {took:?}, {found:?}");
            assert!(found.reads > 0 && found.writes > 0 && found.alone > 0, "{name}: {found:?}");
            assert!(found.alone < found.reads, "{name}: {found:?}");
        }
    }

    /// Goal: a volume reaches its limits, whatever it lets through after a pause, and any of them is measured in seconds. Method: a
    /// volume with bursts of a tenth of a second and of an hour, and one whose limits are a typo.
    #[test]
    fn a_burst_is_not_what_a_volume_sustains() {
        let found = |burst: &str, iops: u64| {
            let limits = format!("volume.iops={iops}&volume.rate=125MB/s&volume.io=256KiB");
            let name = format!("random-volume:17?{limits}&volume.burst={burst}&volume.slice=100ms");
            profile::read(&name).unwrap_or_else(|error| panic!("{error}")).reaches()
        };
        for burst in ["100ms", "3600s"] {
            let found = found(burst, 3000);
            assert!(found.reads.abs_diff(125_000_000) < 12_500_000, "{burst}: {found:?}");
            let small = found.small.expect("it is measured");
            assert!(small.abs_diff(3000 * 4096) < 300 * 4096, "{burst}: {found:?}");
        }
        assert!(found("3600s", 1_000_000_000).reads > 100_000_000);
    }
}
