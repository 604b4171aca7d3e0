//! Requests in the order of their submission, each with its completion, which comes later.
//!
//! A [`Window`] holds requests until those before them are complete. It has a bound: when it is full, the oldest request
//! leaves it without its completion. `blktrace` readers and the server's recorder use it.

use std::collections::VecDeque;

use iofair_core::time::{Instant, Nanos};

use crate::record::{Completion, Record};

/// Names a request in a window: its number in order of submission.
pub(crate) type Ticket = u64;

/// Requests, oldest first.
#[derive(Debug)]
pub struct Window {
    slots: VecDeque<(Record, bool)>,
    /// Ticket of the oldest.
    first: Ticket,
    limit: usize,
}

impl Window {
    /// A window that holds at most `limit` requests (at least one).
    pub fn new(limit: usize) -> Self {
        Self { slots: VecDeque::new(), first: 0, limit: limit.max(1) }
    }
    /// Adds a request.
    pub fn push(&mut self, record: Record) -> Ticket {
        self.slots.push_back((record, false));
        self.first + self.slots.len() as u64 - 1
    }
    /// A request is complete. One that has left the window is not in it any more: `false`.
    pub fn complete(&mut self, ticket: Ticket, at: Instant, failed: bool) -> bool {
        let Some(index) = ticket.checked_sub(self.first) else { return false };
        let Some((record, done)) = self.slots.get_mut(index as usize) else { return false };
        let latency = Nanos(at.0.saturating_sub(record.at.0));
        (record.completion, *done) = (Some(Completion { latency, failed }), true);
        true
    }
    /// Whether a request is in the window.
    pub fn contains(&self, ticket: Ticket) -> bool {
        ticket >= self.first
    }
    /// The oldest request, if it is complete or the window is over its limit.
    pub fn pop(&mut self) -> Option<Record> {
        let is_full = self.slots.len() > self.limit;
        self.pop_if(is_full)
    }
    /// The oldest request, complete or not.
    pub fn pop_anyway(&mut self) -> Option<Record> {
        self.pop_if(true)
    }
    fn pop_if(&mut self, anyway: bool) -> Option<Record> {
        let (_, done) = self.slots.front()?;
        if !done && !anyway {
            return None;
        }
        self.first += 1;
        self.slots.pop_front().map(|(record, _)| record)
    }
    /// Number of requests.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
