//! The interface of all readers.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::record::{Metadata, Record, Stream};

/// Streams of a trace that are kept apart. Requests of further ones belong to the last stream, `others`, and are counted:
/// a trace of a million processes needs no memory for a million of them.
pub(crate) const STREAMS_MAX: usize = 1 << 16;

/// A trace that is read request by request.
pub trait Source {
    /// The next request; `None` at the end.
    fn next_record(&mut self) -> Result<Option<Record>>;
    /// The streams that were seen so far. A record's stream is among them.
    fn streams(&self) -> &[Stream];
    /// What is known about the whole.
    fn metadata(&self) -> Metadata {
        Metadata::default()
    }
    /// What was left out or repaired so far.
    fn notes(&self) -> Notes {
        Notes::default()
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn next_record(&mut self) -> Result<Option<Record>> {
        (**self).next_record()
    }
    fn streams(&self) -> &[Stream] {
        (**self).streams()
    }
    fn metadata(&self) -> Metadata {
        (**self).metadata()
    }
    fn notes(&self) -> Notes {
        (**self).notes()
    }
}

/// Counts of what was left out or repaired, by a sentence about it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Notes(BTreeMap<&'static str, u64>);

impl Notes {
    /// Counts one.
    pub fn count(&mut self, what: &'static str) {
        self.add(what, 1);
    }
    /// Counts several.
    pub fn add(&mut self, what: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(what).or_default() += count;
        }
    }
    /// Adds those of another.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }
    /// All counts, in the order of their sentences.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, count)| (*what, *count))
    }
    /// The count of one kind of events.
    pub fn count_of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}
