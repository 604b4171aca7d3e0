//! The text of `blkparse`, in its default layout:
//!
//! ```text
//!   8,0    1        1     0.000000000  4321  Q   R 2048 + 8 [fio]
//!   8,0    1        5     0.000120000     0  C   R 2048 + 8 [0]
//! ```
//!
//! that is device, processor, sequence number, time, pid, action, letters, first sector, sectors, and process or error. With
//! `blkparse -t`, a time is in front of process or error. The summary behind the events is left out; events may follow it, where
//! files were put together.

use iofair_core::request::Operation;
use iofair_core::time::Instant;

use super::events::{Action, Event, Requests, letters};
use super::fields::{Fault, Fields, number, range};
use super::head::is_words;
use super::lines::CUT;
use crate::error::Result;
use crate::input::{Input, Lines};
use crate::names::Names;
use crate::record::{Record, Stream};
use crate::source::{Notes, Source};

/// Words that the summary begins with.
const SUMMARY: &[&str] = &["CPU", "Total", "Throughput", "Events", "Skips", "Input"];

/// Whether a line is an event.
pub(super) fn accepts(line: &str) -> bool {
    let mut fields = Fields::spaces(line);
    let device = fields.optional().is_some_and(|text| device(text).is_some());
    device && fields.number("").is_ok() && fields.number("").is_ok() && fields.seconds("").is_ok()
}

/// Whether a line begins a part of the summary. Those of processes (`blkparse -s`) begin with name and pid.
fn is_summary(line: &str) -> bool {
    let pid = line.strip_suffix(')').and_then(|line| line.rsplit_once(" (")).map(|(_, pid)| pid);
    SUMMARY.iter().any(|word| line.starts_with(word))
        || pid.is_some_and(|pid| number("", pid).is_ok())
}

/// `major,minor`
pub(super) fn device(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.split_once(',')?;
    Some((number("", major).ok()?, number("", minor).ok()?))
}

/// How the lines of a format of events are read.
pub(super) struct Layout {
    pub(super) is_event: fn(&str) -> bool,
    pub(super) is_summary: fn(&str) -> bool,
    /// The event of a line, if a request is meant.
    pub(super) parse: fn(&str, &mut Names) -> Result<Option<Event>, Fault>,
    /// What is wrong with a line that is neither.
    pub(super) wrong: &'static str,
}

/// How the lines of blkparse are read.
pub(super) const LAYOUT: Layout = Layout {
    is_event: |line| line.split_whitespace().next().and_then(device).is_some(),
    is_summary,
    parse,
    wrong: "neither an event, which begins with MAJOR,MINOR, nor a summary",
};

/// A file of events.
pub(super) struct EventLines {
    layout: Layout,
    lines: Lines,
    names: Names,
    requests: Requests,
    place: Place,
    over: bool,
}

/// Where in the file the last line was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first event.
    Begin,
    /// Among events.
    Events,
    /// In a summary.
    Summary,
}

impl EventLines {
    pub(super) fn new(input: Input, layout: Layout) -> Self {
        let (lines, names, requests) = (Lines::new(input), Names::default(), Requests::new());
        Self { layout, lines, names, requests, place: Place::Begin, over: false }
    }
}

fn parse(line: &str, names: &mut Names) -> Result<Option<Event>, Fault> {
    let mut fields = Fields::spaces(line);
    let name = fields.text("device")?;
    device(name).ok_or_else(|| format!("device `{name}`: not MAJOR,MINOR"))?;
    fields.number("processor")?;
    fields.number("sequence number")?;
    let at = Instant(fields.seconds("time")?.0);
    let pid = fields.number("pid")?;
    let action = match fields.text("action")? {
        "Q" => Action::Queued,
        "I" => Action::Inserted,
        "D" => Action::Issued,
        "C" => Action::Completed { failed: false },
        _ => return Ok(None),
    };
    let word = fields.text("operation")?;
    let Some((mut operation, flags)) = letters(word) else { return Ok(None) };
    let (range, last) =
        fields.rest().split_once('[').ok_or("the process or error in [] is missing")?;
    let last = last.strip_suffix(']').ok_or("the `]` behind the process or error is missing")?;
    let (offset, length) = sectors(range)?;
    if length == 0 && word.contains('F') {
        // An empty write with a flush before it.
        operation = Operation::Flush;
    }
    let action = match action {
        Action::Completed { .. } => Action::Completed { failed: last != "0" },
        action => action,
    };
    let volume = names.volume(name);
    let stream = match action {
        Action::Completed { .. } => 0,
        _ => names.stream(&format!("{last}.{pid}"), volume),
    };
    Ok(Some(Event { at, action, operation, flags, offset, length, volume, stream }))
}

/// Offset and length in bytes of `2048 + 8`, which may be absent, or without a length. What is in parentheses behind it, or in
/// its place, is a time or a command.
fn sectors(text: &str) -> Result<(u64, u64), Fault> {
    let text = text.split_once('(').map_or(text, |(before, _)| before);
    let mut fields = Fields::spaces(text);
    let Some(first) = fields.optional() else { return Ok((0, 0)) };
    let sectors = match fields.optional() {
        None => "0",
        Some("+") => fields.text("number of sectors")?,
        Some(other) => return Err(format!("`{other}` behind the sector: not `+`")),
    };
    fields.end()?;
    range(first, sectors)
}

impl Source for EventLines {
    fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(record) = self.requests.pop() {
                return Ok(Some(record));
            }
            if self.over {
                return Ok(self.requests.pop_anyway());
            }
            let Some(line) = self.lines.next()? else {
                self.over = true;
                continue;
            };
            if !(self.layout.is_event)(line) {
                let is_summary = (self.layout.is_summary)(line);
                self.place = match self.place {
                    Place::Begin if is_summary || is_words(line) => Place::Begin,
                    Place::Events if is_summary => Place::Summary,
                    Place::Summary => Place::Summary,
                    _ => return Err(self.lines.wrong(self.layout.wrong)),
                };
                continue;
            }
            self.place = Place::Events;
            match (self.layout.parse)(line, &mut self.names) {
                Ok(Some(event)) => self.requests.take(&event),
                Ok(None) => {}
                Err(fault) => return Err(self.lines.wrong(fault)),
            }
        }
    }
    fn streams(&self) -> &[Stream] {
        &self.names.streams
    }
    fn notes(&self) -> Notes {
        let mut notes = self.requests.notes().clone();
        self.names.note(&mut notes);
        notes.add(CUT, u64::from(self.lines.is_cut));
        notes
    }
}
