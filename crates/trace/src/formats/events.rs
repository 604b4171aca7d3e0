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
/// A completed command reaches back this far at most: the longest request that the Linux block layer makes is shorter.
const SPAN: u64 = 1 << 25;

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
    /// By device, first byte and ticket: what no completion has covered yet.
    open: BTreeMap<(u32, u64, Ticket), Open>,
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
        self.open.insert((volume, offset, ticket), open);
    }
    fn complete(&mut self, event: &Event, failed: bool) {
        let Event { volume, offset: start, .. } = *event;
        let end = start.saturating_add(event.length);
        // A flush has no sectors; the kernel may tell of one at any address.
        if event.length == 0 {
            let flush = self.open.iter().find(|(key, it)| key.0 == volume && it.left == 0);
            if let Some(key) = flush.map(|(key, _)| *key) {
                self.open.remove(&key);
                self.window.complete(key.2, event.at, failed);
            }
            return;
        }
        let from = (volume, start.saturating_sub(SPAN), 0);
        let mut covered = Vec::new();
        for (key, it) in self.open.range_mut(from..(volume, end, 0)) {
            let common = it.end.min(end).saturating_sub(key.1.max(start));
            it.left = it.left.saturating_sub(common);
            if common > 0 && it.left == 0 {
                covered.push(*key);
            }
        }
        if covered.is_empty() {
            self.notes.count("completions without a request (begun before the trace, or parts)");
        }
        for key in covered {
            self.open.remove(&key);
            self.window.complete(key.2, event.at, failed);
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
            self.open.retain(|(_, _, ticket), _| window.has(*ticket));
        }
    }
}

/// The operation and flags of the letters that blkparse prints; `None` if no request is meant.
pub(super) fn letters(text: &str) -> Option<(Operation, Flags)> {
    let has = |letter| text.contains(letter);
    let operation = if has('D') {
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
