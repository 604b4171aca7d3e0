//! Loads and what they measure.

use iofair_core::request::Operation;
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Nanos;

use super::place::Order;

/// A closed loop of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// A read, a write, or a flush.
    pub operation: Operation,
    /// Bytes of a request.
    pub block: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Where they go.
    pub order: Order,
    /// First byte of its area, and bytes of it.
    pub area: (u64, u64),
    /// A flush after this many writes; 0: none.
    pub flush_every: u32,
    /// Whether each write must be durable before it completes.
    pub durable: bool,
    /// A pause before each request ...
    pub pause: Nanos,
    /// ... or only before one in this many.
    pub pause_every: u32,
    /// Requests are due at random times with this mean distance, also if fewer than `depth` are in flight: an offered rate. Zero: a
    /// request is due when another one completes.
    pub interval: Nanos,
}

impl Stream {
    /// Requests of `block` bytes, `depth` in flight, without pauses and flushes.
    pub const fn new(operation: Operation, block: u64, depth: u32, order: Order) -> Self {
        let (area, flush_every, durable) = ((0, 0), 0, false);
        let (pause, pause_every, interval) = (Nanos::ZERO, 1, Nanos::ZERO);
        Self {
            operation,
            block,
            depth,
            order,
            area,
            flush_every,
            durable,
            pause,
            pause_every,
            interval,
        }
    }
}

/// An end: whichever comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amount {
    /// Requests of the first stream.
    pub requests: u64,
    /// Time.
    pub time: Nanos,
}

/// Streams that run together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// At least one; the first one decides when the load ends.
    pub streams: Vec<Stream>,
    /// What is not counted at the start.
    pub warm_up: Amount,
    /// What is counted.
    pub measured: Amount,
    /// Bytes of the first stream between two entries of [`Outcome::series`]; 0: no series.
    pub window: u64,
}

/// What one stream got.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Bytes of completed requests.
    pub bytes: u64,
    /// Latencies of reads or writes, in nanoseconds.
    pub latency: Histogram,
    /// Latencies of flushes, in nanoseconds.
    pub flush: Histogram,
}

/// The result of a load.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Measured time.
    pub time: Nanos,
    /// What each stream got.
    pub streams: Vec<Counted>,
    /// Bytes of the first stream and the time, since the start of the warm-up, after each window.
    pub series: Vec<(u64, Nanos)>,
}

impl Outcome {
    /// Bytes a second of a stream.
    pub fn rate(&self, stream: usize) -> f64 {
        self.streams[stream].bytes as f64 * 1e9 / self.time.0.max(1) as f64
    }
    /// Requests a second of a stream.
    pub fn iops(&self, stream: usize) -> f64 {
        let counted = &self.streams[stream];
        let requests = counted.latency.count() + counted.flush.count();
        requests as f64 * 1e9 / self.time.0.max(1) as f64
    }
    /// Mean latency of a stream's reads or writes, in nanoseconds.
    pub fn latency(&self, stream: usize) -> f64 {
        self.streams[stream].latency.mean() as f64
    }
}
