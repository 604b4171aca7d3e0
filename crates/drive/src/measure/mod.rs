//! Puts a load on a device and measures rates and latencies. The same loads run on a drive model in simulated time
//! ([`Simulated`]) and on real devices (the server's crate has those), so that their results can be compared.
//!
//! A [`Load`] consists of streams; each keeps a fixed number of requests in flight. [`run()`] needs no clock: the device
//! says what time it is.

mod place;
mod run;
mod simulated;

use std::io;

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::{Instant, Nanos};

pub use self::place::Order;
pub use self::run::run;
pub use self::simulated::Simulated;

/// One request to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Returned with the completion; below the number of requests in flight.
    pub tag: u32,
    /// A read, a write or a flush.
    pub operation: Operation,
    /// Whether a write must be durable before it completes.
    pub durable: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub bytes: u64,
}

/// A completed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u32,
    /// When it completed.
    pub at: Instant,
}

/// What is measured: a model, a file, a block device, a volume.
pub trait Device {
    /// What is known of it.
    fn facts(&self) -> DriveFacts;
    /// The present.
    fn now(&mut self) -> Instant;
    /// Sends a request.
    fn submit(&mut self, request: Request) -> io::Result<()>;
    /// Waits until a request completes, or until `until`; appends the completions. A failed request is an error.
    fn wait(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()>;
}

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
}

impl Stream {
    /// Requests of `block` bytes, `depth` in flight, without pauses and flushes.
    pub const fn new(operation: Operation, block: u64, depth: u32, order: Order) -> Self {
        let (area, flush_every, durable) = ((0, 0), 0, false);
        let (pause, pause_every) = (Nanos::ZERO, 1);
        Self { operation, block, depth, order, area, flush_every, durable, pause, pause_every }
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
