//! What happened to each request, for those who ask why: a bounded ring of events.
//!
//! Off (capacity 0) it costs one branch an event. When full, the oldest events go first and
//! [`Trace::lost`] counts them.

use alloc::collections::VecDeque;

use crate::group::{ClientId, GroupId};
use crate::request::RequestId;
use crate::time::Instant;

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// What it is about.
    pub subject: Subject,
    /// What happened.
    pub kind: EventKind,
}

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A request, named by its submission sequence (ids are reused, sequences never).
    Request {
        /// Its slot.
        id: RequestId,
        /// Its submission sequence.
        sequence: u64,
    },
    /// A client, or the policy's queue of it.
    Client(ClientId),
    /// A group.
    Group(GroupId),
    /// The whole drive.
    Drive,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// It came in.
    Submitted,
    /// It was merged into another request.
    Merged {
        /// The request that took it in.
        into: RequestId,
    },
    /// It entered a stage: throttles count from 0, then the scheduler.
    Entered {
        /// The stage.
        stage: u8,
    },
    /// It waits for a tag: as many are in use as its class may use, or others waited before it.
    WaitsForTag {
        /// Tags in use.
        used: u32,
        /// Tags in use at which its class gets none.
        limit: u32,
    },
    /// The tag that it waited for is there; it enters the scheduler.
    GotTag,
    /// It went to the drive.
    Dispatched,
    /// The drive answered.
    Completed,
    /// A policy's own decision: which rule, and up to two numbers that the rule explains.
    Decision {
        /// The rule, in the policy's words; a semicolon ends its name. `{}` in it stands for the next of the
        /// numbers, and `{ns}`, `{bytes}`, `{group}`, `{client}` for one that is a time, a size, or somebody's id.
        rule: &'static str,
        /// Its numbers.
        values: [u64; 2],
    },
}

/// A bounded ring of events.
#[derive(Debug, Default)]
pub struct Trace {
    capacity: usize,
    events: VecDeque<Event>,
    lost: u64,
}

impl Trace {
    /// A ring of `capacity` events; 0 turns tracing off.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, events: VecDeque::with_capacity(capacity), lost: 0 }
    }
    /// Is anybody listening?
    pub fn is_on(&self) -> bool {
        self.capacity != 0
    }
    /// Records an event.
    pub fn push(&mut self, at: Instant, subject: Subject, kind: EventKind) {
        if self.capacity == 0 {
            return;
        }
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.lost += 1;
        }
        self.events.push_back(Event { at, subject, kind });
    }
    /// Takes the events out, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }
    /// Events that had to go because the ring was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
