//! What happened to each request, for those who ask why: a bounded ring of events.
//!
//! Off (capacity 0) it costs one branch an event. When full, the oldest events go first and
//! [`Trace::lost`] counts them.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::group::{ClientId, GroupId};
use crate::request::RequestId;
use crate::time::Instant;

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
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
#[non_exhaustive]
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

/// A policy's decision, remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// The rule.
    pub rule: &'static str,
    /// Its numbers.
    pub values: [u64; 2],
    /// Of which request, by its submission sequence; 0 when it was not about one.
    sequence: u64,
}

/// The last decision about each request, client, group and the drive.
#[derive(Debug, Default)]
struct Memory {
    requests: Vec<Option<Decision>>,
    clients: Vec<Option<Decision>>,
    groups: Vec<Option<Decision>>,
    drive: Option<Decision>,
}

impl Memory {
    fn keep(&mut self, subject: Subject, decision: Decision) {
        match subject {
            Subject::Request { id, sequence } => {
                put(&mut self.requests, id.0 as usize, Decision { sequence, ..decision });
            }
            Subject::Client(id) => put(&mut self.clients, id.index(), decision),
            Subject::Group(id) => put(&mut self.groups, id.index(), decision),
            Subject::Drive => self.drive = Some(decision),
        }
    }
}

fn put(list: &mut Vec<Option<Decision>>, index: usize, decision: Decision) {
    if index >= list.len() {
        list.resize(index + 1, None);
    }
    list[index] = Some(decision);
}

/// A bounded ring of events.
#[derive(Debug, Default)]
pub struct Trace {
    capacity: usize,
    events: VecDeque<Event>,
    lost: u64,
    memory: Option<Memory>,
}

impl Trace {
    /// A ring of `capacity` events; 0 turns tracing off.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, events: VecDeque::with_capacity(capacity), lost: 0, memory: None }
    }
    /// Is anybody listening?
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.capacity != 0
    }
    /// Records an event.
    pub fn push(&mut self, at: Instant, subject: Subject, kind: EventKind) {
        if let (Some(memory), EventKind::Decision { rule, values }) = (&mut self.memory, kind) {
            memory.keep(subject, Decision { at, rule, values, sequence: 0 });
        }
        if self.capacity == 0 {
            return;
        }
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.lost += 1;
        }
        self.events.push_back(Event { at, subject, kind });
    }
    /// From now on the last decision about everybody is remembered, however small the ring is. Memory grows
    /// with the most requests, clients and groups that there are at once.
    pub fn remember(&mut self) {
        self.memory.get_or_insert_default();
    }
    /// The decisions remembered so far are void: other policies decide from now on.
    pub(crate) fn forget(&mut self) {
        if let Some(Memory { requests, clients, groups, drive }) = &mut self.memory {
            [requests, clients, groups].into_iter().for_each(Vec::clear);
            *drive = None;
        }
    }
    /// The last decision about something, if it is remembered.
    #[must_use]
    pub fn last(&self, subject: Subject) -> Option<Decision> {
        let memory = self.memory.as_ref()?;
        match subject {
            Subject::Request { id, sequence } => {
                let last = memory.requests.get(id.0 as usize).copied().flatten();
                last.filter(|last| last.sequence == sequence)
            }
            Subject::Client(id) => memory.clients.get(id.index()).copied().flatten(),
            Subject::Group(id) => memory.groups.get(id.index()).copied().flatten(),
            Subject::Drive => memory.drive,
        }
    }
    /// Takes the events out, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }
    /// Events that had to go because the ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// A rule with its numbers put in: `put` is told what stands between two braces (`ns`, `bytes`, `group`,
/// `client` or nothing), once a pair.
pub fn rule_in_words(rule: &str, mut put: impl FnMut(&str) -> String) -> String {
    let mut text = String::new();
    let mut rest = rule;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((kind, after)) = after.split_once('}') else { break };
        text += before;
        text += &put(kind);
        rest = after;
    }
    text + rest
}
