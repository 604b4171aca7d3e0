//! From events of the block layer to requests: blkparse and blktrace.
//!
//! A request begins when it is queued (Q). A trace without such events begins requests where they are inserted into a
//! scheduler (I) or issued to the drive (D), whichever comes first. It is complete when completions (C) have covered its
//! sectors; a completed command may cover several requests that were merged, or a part of one that was split.

use std::collections::BTreeMap;

use iofair_core::request::{Flags, Operation};
use iofair_core::time::Instant;

use crate::record::Record;
use crate::source::Notes;
use crate::window::{Ticket, Window};

/// Requests whose completion is awaited at a time; the oldest go without one then.
const WINDOW: usize = 1 << 16;
/// How far a completed command may reach back, by the kind of its requests: the longest ones that the Linux block layer makes
/// are shorter.
const SPANS: [u64; 3] = [1 << 25, 1 << 33, 0];

/// Requests that a completion of one kind cannot complete are apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Data,
    /// Trims and zeroes.
    Range,
    /// A flush, or anything else without sectors.
    Empty,
}

impl Kind {
    fn of_event(event: &Event) -> Self {
        match event.operation {
            _ if event.length == 0 => Self::Empty,
            Operation::Discard | Operation::WriteZeroes => Self::Range,
            _ => Self::Data,
        }
    }
}

/// A request that is not complete: device, kind, first byte, ticket.
type Key = (u32, Kind, u64, Ticket);

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Queued,
    Inserted,
    Issued,
    Completed { failed: bool },
}

/// One event of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) at: Instant,
    pub(super) action: Action,
    pub(super) operation: Operation,
    pub(super) flags: Flags,
    /// In bytes.
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Number of the device.
    pub(super) volume: u32,
    pub(super) stream: u32,
}

/// What is left of a request.
struct Open {
    end: u64,
    left: u64,
}

/// Requests, put together from events.
pub(super) struct Requests {
    window: Window,
    /// What no completion has covered yet.
    open: BTreeMap<Key, Open>,
    /// The kind of event that requests begin with; better ones replace it.
    begins: Option<Action>,
    notes: Notes,
}

impl Requests {
    pub(super) fn new() -> Self {
        let (window, open) = (Window::new(WINDOW), BTreeMap::new());
        Self { window, open, begins: None, notes: Notes::default() }
    }
    pub(super) fn notes(&self) -> &Notes {
        &self.notes
    }
    /// An event. Call [`Self::pop`] until it has no request.
    pub(super) fn take(&mut self, event: &Event) {
        match event.action {
            Action::Completed { failed } => self.complete(event, failed),
            action => {
                let rank = |action| match action {
                    Action::Queued => 0,
                    Action::Inserted => 1,
                    _ => 2,
                };
                if self.begins.is_none_or(|known| rank(action) < rank(known)) {
                    self.begins = Some(action);
                }
                if self.begins == Some(action) {
                    self.begin(event);
                }
            }
        }
    }
    fn begin(&mut self, event: &Event) {
        let Event { at, operation, flags, offset, length, stream, volume, .. } = *event;
        let completion = None;
        let record = Record { at, stream, operation, flags, offset, length, completion };
        let ticket = self.window.push(record);
        let open = Open { end: offset.saturating_add(length), left: length };
        self.open.insert((volume, Kind::of_event(event), offset, ticket), open);
    }
    fn complete(&mut self, event: &Event, failed: bool) {
        let Event { volume, offset: start, .. } = *event;
        let end = start.saturating_add(event.length);
        let kind = Kind::of_event(event);
        // A flush has no sectors; the kernel may tell of one at any address.
        if kind == Kind::Empty {
            let all = (volume, kind, 0, 0)..=(volume, kind, u64::MAX, Ticket::MAX);
            if let Some(key) = self.open.range(all).next().map(|(key, _)| *key) {
                self.open.remove(&key);
                self.window.complete(key.3, event.at, failed);
            }
            return;
        }
        let from = (volume, kind, start.saturating_sub(SPANS[kind as usize]), 0);
        let mut covered = Vec::new();
        for (key, open) in self.open.range_mut(from..(volume, kind, end, 0)) {
            let common = open.end.min(end).saturating_sub(key.2.max(start));
            open.left = open.left.saturating_sub(common);
            if common > 0 && open.left == 0 {
                covered.push(*key);
            }
        }
        if covered.is_empty() {
            self.notes.count("completions without a request (begun before the trace, or parts)");
        }
        for key in covered {
            self.open.remove(&key);
            self.window.complete(key.3, event.at, failed);
        }
    }
    /// The next request whose completion is known, or awaited for too long.
    pub(super) fn pop(&mut self) -> Option<Record> {
        let before = self.window.len();
        let record = self.window.pop()?;
        if before > WINDOW {
            self.forget();
        }
        Some(record)
    }
    /// The next request at the end of the trace.
    pub(super) fn pop_anyway(&mut self) -> Option<Record> {
        self.window.pop_anyway()
    }
    /// Drops what has left the window without a completion.
    fn forget(&mut self) {
        if self.open.len() > WINDOW + WINDOW / 4 {
            let window = &self.window;
            self.open.retain(|(_, _, _, ticket), _| window.contains(*ticket));
        }
    }
}

/// The operation and flags of the letters that blkparse prints; `None` if no request is meant.
pub(super) fn letters(text: &str) -> Option<(Operation, Flags)> {
    let has = |letter| text.contains(letter);
    let operation = if text.starts_with("WZ") {
        Operation::WriteZeroes
    } else if text.starts_with("ZA") {
        Operation::Write
    } else if text.starts_with('Z') {
        // Commands to zones move no data.
        return None;
    } else if has('D') {
        Operation::Discard
    } else if has('W') {
        Operation::Write
    } else if has('R') {
        Operation::Read
    } else if has('F') {
        Operation::Flush
    } else {
        return None;
    };
    let mut flags = Flags::NONE;
    // An `F` before the operation is a flush before it, one behind it FUA.
    let fua = text.find(['W', 'R', 'D']).is_some_and(|at| text[at + 1..].contains('F'));
    let wanted = [(fua, Flags::FUA), (has('S'), Flags::SYNC), (has('M'), Flags::METADATA)];
    for (is_set, flag) in wanted.into_iter().chain([(has('A'), Flags::READ_AHEAD)]) {
        flags = if is_set { flags.with(flag) } else { flags };
    }
    Some((operation, flags))
}
