//! A device under a load: what is sent to it, and what completes.

use std::io;

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::Instant;

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
