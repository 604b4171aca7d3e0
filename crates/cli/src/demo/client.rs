//! The demo's clients: one that reads at random, and sequential ones that read ahead.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Instant;
use iofair_serve::Clock;
use iofair_serve::client::Client;

/// What the article's target reads: 4 KiB at random places, one at a time, direct.
const RANDOM_BYTES: u32 = 4 << 10;
/// A sequential reader's read-ahead window: 128 KiB, doubled by the kernel for a reader that announced
/// itself as sequential (as fio does).
const WINDOW_BYTES: u32 = 256 << 10;
/// The window being consumed and the one requested ahead of it.
const WINDOWS: usize = 2;

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// One 4 KiB read at a time, anywhere.
    Random,
    /// Two windows of 256 KiB in flight, in order.
    Sequential,
}

/// What all clients of a run share with the one who watches.
pub(crate) struct Shared {
    /// A [`Phase`].
    phase: AtomicU8,
    /// The one clock of the run.
    pub(crate) clock: Clock,
}

/// What a run is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Running, but not counted yet.
    Ramp,
    /// Counted.
    Measure,
    /// It has ended.
    Stop,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self { phase: AtomicU8::new(Phase::Ramp as u8), clock: Clock::start() }
    }
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
    pub(crate) fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }
}

/// What a client got while it was measured.
#[derive(Default)]
pub(crate) struct Got {
    /// Bytes of finished reads.
    pub(crate) bytes: u64,
    /// Nanoseconds from sending a read to having its data.
    pub(crate) latency: Histogram,
}

/// One client: runs until the phase is [`Phase::Stop`], adding bytes to `live` as they come, measured or
/// not.
pub(crate) fn run(
    socket: &Path,
    export: &str,
    work: Work,
    shared: &Shared,
    live: &AtomicU64,
) -> io::Result<Got> {
    let mut client = Client::connect(socket, export)?;
    let mut places = Places::new(work, client.size, export);
    let mut sent: Vec<(u64, Instant)> = Vec::with_capacity(WINDOWS);
    let mut got = Got::default();
    loop {
        while !shared.is(Phase::Stop) && client.in_flight() < places.depth() {
            let now = shared.clock.now();
            sent.push((client.send_read(places.next(), places.length)?, now));
        }
        if client.in_flight() == 0 {
            break;
        }
        let (cookie, data) = client.receive()?;
        let bytes = data.len() as u64;
        let place = sent.iter().position(|(c, _)| *c == cookie).expect("the client checked it");
        let (_, at) = sent.remove(place);
        live.fetch_add(bytes, Ordering::Relaxed);
        if shared.is(Phase::Measure) {
            got.bytes += bytes;
            got.latency.record(shared.clock.now().since(at).0);
        }
    }
    client.disconnect()?;
    Ok(got)
}

/// Where a client reads next.
struct Places {
    work: Work,
    length: u32,
    /// Whole reads in the export.
    reads: u64,
    next: u64,
    random: u64,
}

impl Places {
    fn new(work: Work, size: u64, name: &str) -> Self {
        let length = match work {
            Work::Random => RANDOM_BYTES,
            Work::Sequential => WINDOW_BYTES,
        };
        // FNV-1a of the name: every client its own stream, the same in every run.
        let hash = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let random = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
        Self { work, length, reads: (size / u64::from(length)).max(1), next: 0, random }
    }
    fn depth(&self) -> usize {
        match self.work {
            Work::Random => 1,
            Work::Sequential => WINDOWS,
        }
    }
    fn next(&mut self) -> u64 {
        let index = match self.work {
            Work::Random => splitmix(&mut self.random) % self.reads,
            Work::Sequential => {
                self.next += 1;
                (self.next - 1) % self.reads
            }
        };
        index * u64::from(self.length)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): plenty for places on a drive.
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sequential places wrap at the end, random ones stay inside and aligned. Method: a small
    /// export that is no multiple of the window.
    #[test]
    fn places_stay_inside() {
        let size = 3 * u64::from(WINDOW_BYTES) + 512;
        let mut sequential = Places::new(Work::Sequential, size, "s");
        let places: Vec<u64> = (0..4).map(|_| sequential.next()).collect();
        assert_eq!(places, [0, 262_144, 524_288, 0]);
        let mut random = Places::new(Work::Random, size, "r");
        for _ in 0..1000 {
            let place = random.next();
            assert!(place.is_multiple_of(4096) && place + 4096 <= size, "{place}");
        }
    }
}
