//! A volume of a cloud, a network or a hypervisor: a drive behind a path, with limits on I/Os and bytes a second.
//!
//! ```text
//! command ──▶ limits: not before its time ──▶ path ──▶ drive ──▶ path ──▶ complete
//!
//! due     = max(due, time of admission of this command) + I/Os / iops        the same for bytes / rate
//! admit   = due - burst, rounded up to a multiple of `slice`, not before the command before it
//! ```
//!
//! That is a token bucket for I/Os and one for bytes: `burst` is the time in which an empty bucket becomes full, and tokens
//! arrive once in each `slice`. A command longer than `io` counts as several I/Os. Reads and writes share the buckets, or
//! have their own (`shared`).
//!
//! Sources: Amazon EBS, "I/O characteristics and monitoring": an I/O of up to 256 KiB counts as one, longer ones are divided,
//! and reads and writes count together. QEMU, `docs/throttle.txt`: leaky buckets that hold a tenth of a second, for reads, writes
//! or both, and `iops-size`. Linux, blkio controller: limits for reads and for writes, each enforced in slices of 100 ms.
//! ITU-T I.371: the virtual scheduling form of the leaky bucket.

use std::collections::VecDeque;

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use serde::Deserialize;

use crate::behind::{Behind, Path};
use crate::number::{Invalid, Number, Rate, Size, Time};
use crate::random::Random;
use crate::{Command, Done, Drive};

/// Limits of a volume, and its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// The path to the drive.
    pub path: Path,
    /// I/Os a second.
    pub iops: u64,
    /// Bytes a second.
    pub rate: u64,
    /// A longer command counts as several I/Os of this many bytes.
    pub io: u64,
    /// After this time without commands, as much as the limits allow in it passes at once.
    pub burst: Nanos,
    /// Commands that exceed a limit wait for the next multiple of this time.
    pub slice: Nanos,
    /// Whether reads and writes share the limits.
    pub shared: bool,
}

/// `[volume]` of a profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Table {
    latency: Number<Time>,
    jitter: Number<Time>,
    depth: Number<u32>,
    iops: Number<u64>,
    rate: Number<Rate>,
    io: Number<Size>,
    burst: Number<Time>,
    slice: Number<Time>,
    shared: Number<bool>,
}

impl Table {
    pub(crate) fn parameters(&self) -> Result<Parameters, Invalid> {
        const SECOND: Nanos = Nanos::from_secs(1);
        let refuse = |key, allowed| Err(Invalid { key, allowed });
        let (latency, jitter) = (self.latency.value.0, self.jitter.value.0);
        if latency > SECOND || jitter > SECOND {
            return refuse("volume.latency and volume.jitter", "at most 1s");
        }
        if !(1..=65_536).contains(&self.depth.value) {
            return refuse("volume.depth", "from 1 to 65536");
        }
        if !(1..=1_000_000_000).contains(&self.iops.value) {
            return refuse("volume.iops", "from 1 to 1000000000");
        }
        if !(4096..=1 << 40).contains(&self.rate.value.0) {
            return refuse("volume.rate", "from 4096B/s to 1TiB/s");
        }
        if !(512..=1 << 30).contains(&self.io.value.0) {
            return refuse("volume.io", "from 512B to 1GiB");
        }
        if self.slice.value.0 > SECOND || self.slice.value.0 == Nanos::ZERO {
            return refuse("volume.slice", "from 1ns to 1s");
        }
        if !(self.slice.value.0..=Nanos::from_secs(3600)).contains(&self.burst.value.0) {
            return refuse("volume.burst", "at least volume.slice, and at most 1h");
        }
        let path = Path {
            fixed: latency,
            jitter,
            serial: Nanos::ZERO,
            per_mib: Nanos::ZERO,
            depth: self.depth.value,
        };
        Ok(Parameters {
            path,
            iops: self.iops.value,
            rate: self.rate.value.0,
            io: self.io.value.0,
            burst: self.burst.value.0,
            slice: self.slice.value.0,
            shared: self.shared.value,
        })
    }
}

/// Limits that commands share.
#[derive(Clone, Copy, Default, Debug)]
struct Bucket {
    /// When the buckets for I/Os and for bytes would be full again, but for the burst.
    due: [Instant; 2],
    /// When the last command was admitted.
    last: Instant,
}

impl Bucket {
    /// When a command that comes now is admitted.
    fn admit(&mut self, now: Instant, limits: &Parameters, bytes: u64) -> Instant {
        let free = self.due[0].max(self.due[1]);
        let waits = free.since(now) > limits.burst;
        let at = if waits { Instant(free.0 - limits.burst.0) } else { now };
        let slice = limits.slice.0;
        let at = if waits { Instant(at.0.div_ceil(slice) * slice) } else { at };
        self.last = self.last.max(at);
        let ios = bytes.div_ceil(limits.io).max(1);
        let takes =
            [Nanos::for_units_ceil(ios, limits.iops), Nanos::for_units_ceil(bytes, limits.rate)];
        for (due, takes) in self.due.iter_mut().zip(takes) {
            *due = (*due).max(self.last) + takes;
        }
        self.last
    }
}

/// A drive behind limits and a path.
pub struct Volume {
    behind: Behind,
    limits: Parameters,
    /// Of reads and writes; the first one of both if they share it.
    buckets: [Bucket; 2],
    /// Commands that are not admitted yet, in order of time.
    waiting: VecDeque<(Instant, Command)>,
}

impl Volume {
    /// Puts the limits and the path before `drive`; the jitter is drawn from `random`.
    pub fn new(drive: Box<dyn Drive + Send>, limits: Parameters, random: Random) -> Self {
        let behind = Behind::new(drive, limits.path, random);
        Self { behind, limits, buckets: [Bucket::default(); 2], waiting: VecDeque::new() }
    }
}

impl Drive for Volume {
    fn submit(&mut self, now: Instant, command: Command) {
        let bytes = match command.operation {
            Operation::Read | Operation::Write => command.length.bytes(),
            _ => 0,
        };
        let own = !self.limits.shared && command.operation != Operation::Read;
        let at = self.buckets[usize::from(own)].admit(now, &self.limits, bytes);
        let place = self.waiting.partition_point(|(known, _)| *known <= at);
        self.waiting.insert(place, (at, command));
    }
    fn next_event(&self) -> Option<Instant> {
        let admits = self.waiting.front().map(|(at, _)| *at);
        admits.into_iter().chain(self.behind.next_event()).min()
    }
    fn advance(&mut self, now: Instant, done: &mut Vec<Done>) {
        while let Some((at, command)) = self.waiting.front().filter(|(at, _)| *at <= now) {
            self.behind.advance(*at, done);
            self.behind.submit(*at, *command);
            self.waiting.pop_front();
        }
        self.behind.advance(now, done);
    }
    fn facts(&self) -> DriveFacts {
        self.behind.facts()
    }
    fn busy(&self) -> Nanos {
        self.behind.busy()
    }
    fn worst_case_rate(&self) -> u64 {
        let small = self.limits.iops.saturating_mul(Sectors(8).bytes());
        self.behind.worst_case_rate().min(self.limits.rate).min(small)
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::request::Flags;

    use super::*;
    use crate::profile;

    const US: Nanos = Nanos::from_micros(1);
    const MS: Nanos = Nanos::from_millis(1);

    fn limits(burst: Nanos, slice: Nanos, shared: bool) -> Parameters {
        let zero = Nanos::ZERO;
        let path = Path { fixed: US, jitter: zero, serial: zero, per_mib: zero, depth: 256 };
        Parameters { path, iops: 1000, rate: 100_000_000, io: 256 << 10, burst, slice, shared }
    }
    /// When commands are admitted that all come at once.
    fn admitted(limits: Parameters, bytes: &[u64]) -> Vec<u64> {
        let mut bucket = Bucket::default();
        let now = Instant::ZERO + MS * 1000;
        bytes
            .iter()
            .map(|bytes| bucket.admit(now, &limits, *bytes).since(now).as_micros())
            .collect()
    }

    /// Goal: the first commands pass at once, and the others at the limit. Method: worked examples.
    #[test]
    fn a_burst_passes_and_the_rest_waits() {
        let smooth = limits(MS * 3, US, true);
        assert_eq!(admitted(smooth, &[4096; 6]), [0, 0, 0, 0, 1000, 2000], "1000 I/Os a second");
        let sliced = limits(MS * 4, MS * 4, true);
        assert_eq!(admitted(sliced, &[4096; 10])[4..], [0, 4000, 4000, 4000, 4000, 8000]);
        // A MiB takes 10.5 ms by bytes and 4 by I/Os.
        assert_eq!(admitted(smooth, &[1 << 20; 3]), [0, 7486, 17972]);
    }

    /// Goal: the volume has the rates of its limits over seconds, for both directions together or for each. Method: reads and
    /// writes of 4 KiB, 32 at once.
    #[test]
    fn reads_and_writes_share_limits_or_have_their_own() {
        let rates = |shared| {
            let drive = profile::load("samsung-970-pro", 1).expect("a profile");
            let mut volume =
                Volume::new(drive, limits(MS * 100, MS * 100, shared), Random::new(1, 0));
            let (mut now, mut done, mut counts) = (Instant::ZERO, Vec::new(), [0_u64; 2]);
            let command = |id: u32, now: Instant| Command {
                id,
                operation: if id.is_multiple_of(2) { Operation::Read } else { Operation::Write },
                flags: Flags::NONE,
                start: Sectors((now.0 + u64::from(id)) % (1 << 20) * 8),
                length: Sectors(8),
            };
            (0..32).for_each(|id| volume.submit(now, command(id, now)));
            while now < Instant::ZERO + MS * 4000 {
                now = volume.next_event().expect("commands are in the volume");
                volume.advance(now, &mut done);
                for done in done.drain(..) {
                    counts[done.id as usize % 2] += 1;
                    volume.submit(now, command(done.id, now));
                }
            }
            counts
        };
        let [reads, writes] = rates(true);
        assert!((4000..4200).contains(&(reads + writes)), "{reads} and {writes} in 4 s");
        assert!(
            rates(false).iter().all(|count| (4000..4200).contains(count)),
            "{:?}",
            rates(false)
        );
    }
}
