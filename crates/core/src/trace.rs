//! A trace of what happened to each request: a bounded ring of events.
//!
//! If it is off (capacity 0), an event costs one branch. If the ring is full, the oldest events are dropped, and
//! [`Trace::lost`] counts them.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::id::{ClientId, GroupId, RequestId};
use crate::time::Instant;

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The time of the event.
    pub at: Instant,
    /// The request, client or group that it is about.
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
    /// A client, or its queue in the policy.
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
    /// The request was submitted.
    Submitted,
    /// The request was merged into another one.
    Merged {
        /// The other request.
        into: RequestId,
    },
    /// The request entered a stage: throttles count from 0, the scheduler follows.
    Entered {
        /// The stage.
        stage: u8,
    },
    /// The request waits for a tag: its class has as many tags as it may, or other requests waited before it.
    WaitsForTag {
        /// Tags in use.
        used: u32,
        /// Number of tags in use at which its class gets no more.
        limit: u32,
    },
    /// The request got the tag that it waited for, and enters the scheduler.
    GotTag,
    /// The request was dispatched to the drive.
    Dispatched,
    /// The drive completed the request.
    Completed,
    /// A decision of a policy.
    Decision {
        /// The rule as a sentence; its name ends at the first semicolon. `{}` stands for the next of the numbers, and `{ns}`,
        /// `{bytes}`, `{group}`, `{client}` for one that is a time, a size, or the index of a group or client.
        rule: &'static str,
        /// The numbers of the rule.
        values: [u64; 2],
    },
}

/// A decision of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// The time of the decision.
    pub at: Instant,
    /// The rule.
    pub rule: &'static str,
    /// Its numbers.
    pub values: [u64; 2],
    /// The submission sequence of the request that it is about; 0 if it is not about a request.
    sequence: u64,
}

/// The last decision about each request, client, group and the drive.
#[derive(Debug, Default)]
struct Memory {
    requests: Vec<Option<Decision>>,
    clients: Vec<Option<(ClientId, Decision)>>,
    groups: Vec<Option<(GroupId, Decision)>>,
    drive: Option<Decision>,
}

impl Memory {
    fn keep(&mut self, subject: Subject, decision: Decision) {
        match subject {
            Subject::Request { id, sequence } => {
                put(&mut self.requests, id.0 as usize, Decision { sequence, ..decision });
            }
            Subject::Client(id) => put(&mut self.clients, id.index(), (id, decision)),
            Subject::Group(id) => put(&mut self.groups, id.index(), (id, decision)),
            Subject::Drive => self.drive = Some(decision),
        }
    }
}

fn put<T: Copy>(list: &mut Vec<Option<T>>, index: usize, kept: T) {
    if index >= list.len() {
        list.resize(index + 1, None);
    }
    list[index] = Some(kept);
}

/// The decision about a client or group, unless it is about an earlier one with the same index.
fn last_about<T: Copy + PartialEq>(
    list: &[Option<(T, Decision)>],
    index: usize,
    id: T,
) -> Option<Decision> {
    let (about, decision) = list.get(index).copied().flatten()?;
    (about == id).then_some(decision)
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
    /// Whether events are recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.capacity != 0
    }
    /// Whether decisions are kept at all, in the ring or as the last one about each request, client and group.
    pub fn records(&self) -> bool {
        self.is_on() || self.memory.is_some()
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
    /// Keeps the last decision about each request, client and group from now on, whatever the size of the ring. Memory grows
    /// with the largest number of requests, clients and groups at once.
    pub fn remember(&mut self) {
        self.memory.get_or_insert_default();
    }
    /// Drops the decisions of policies that were replaced.
    pub(crate) fn forget(&mut self) {
        if let Some(Memory { requests, clients, groups, drive }) = &mut self.memory {
            requests.clear();
            clients.clear();
            groups.clear();
            *drive = None;
        }
    }
    /// The last decision about a request, client, group or the drive, if it was kept.
    #[must_use]
    pub fn last(&self, subject: Subject) -> Option<Decision> {
        let memory = self.memory.as_ref()?;
        match subject {
            Subject::Request { id, sequence } => {
                let last = memory.requests.get(id.0 as usize).copied().flatten();
                last.filter(|last| last.sequence == sequence)
            }
            Subject::Client(id) => last_about(&memory.clients, id.index(), id),
            Subject::Group(id) => last_about(&memory.groups, id.index(), id),
            Subject::Drive => memory.drive,
        }
    }
    /// Removes and returns the events, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }
    /// Number of events that were dropped because the ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// A rule with its numbers inserted: `put` is called for each pair of braces with the text between them (`ns`, `bytes`,
/// `group`, `client` or nothing) and returns the replacement.
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
