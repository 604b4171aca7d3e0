//! One request of a trace, and what is known about the whole.

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it was submitted, since an epoch that the whole trace shares.
    pub at: Instant,
    /// Index of its stream ([`Source::streams`](crate::Source::streams)).
    pub stream: u32,
    /// Its operation.
    pub operation: Operation,
    /// Flags: FUA, SYNC, METADATA and READ_AHEAD are kept.
    pub flags: Flags,
    /// First byte, in the stream's volume.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub length: u64,
    /// Its completion, if that was recorded.
    pub completion: Option<Completion>,
}

/// The completion of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Time since the submission.
    pub latency: Nanos,
    /// Whether the request failed.
    pub failed: bool,
}

impl Record {
    /// When it was completed, if that was recorded.
    pub fn completed(&self) -> Option<Instant> {
        self.completion.map(|completion| Instant(self.at.0.saturating_add(completion.latency.0)))
    }
}

/// A sender of requests: a process, a volume or a host, depending on the format.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// Path of its group, where the trace knows groups.
    pub group: String,
    /// Number of the volume that its offsets count in.
    pub volume: u32,
}

/// What is known about a whole trace: keys and values. The keys that `iofair record` writes are constants here.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Metadata {
    /// In the order of writing.
    pub entries: Vec<(String, String)>,
}

impl Metadata {
    /// The program that wrote the trace.
    pub const PROGRAM: &'static str = "program";
    /// Name of the policy stack.
    pub const STACK: &'static str = "stack";
    /// The back end, as in a contract file.
    pub const BACK: &'static str = "back";
    /// Bytes of the drive.
    pub const CAPACITY: &'static str = "capacity";
    /// The contracts of the groups, as tables of a contract file.
    pub const CONTRACTS: &'static str = "contracts";
    /// Present if offsets and names are not the real ones.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
    /// Sets a key.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.entries.retain(|(known, _)| known != key);
        self.entries.push((key.to_owned(), value.into()));
    }
    /// With this key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.set(key, value);
        self
    }
}
