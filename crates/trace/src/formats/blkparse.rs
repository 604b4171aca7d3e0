//! The text of `blkparse`, in its default layout:
//!
//! ```text
//!   8,0    1        1     0.000000000  4321  Q   R 2048 + 8 [fio]
//!   8,0    1        5     0.000120000     0  C   R 2048 + 8 [0]
//! ```
//!
//! that is device, processor, sequence number, time, pid, action, letters, first sector, sectors, and process or error. The
//! summary behind the events is left out.

use iofair_core::request::Operation;
use iofair_core::time::Instant;

use super::events::{Action, Event, Requests, letters};
use super::fields::{Fault, Fields, number};
use crate::error::Result;
use crate::input::{Input, Lines};
use crate::names::Names;
use crate::record::{Record, Stream};
use crate::source::{Notes, Source};

/// Words that the summary begins with.
const SUMMARY: &[&str] = &["CPU", "Total", "Throughput", "Events", "Skips", "Input"];

pub(super) fn recognises(line: &str) -> bool {
    let mut fields = Fields::spaces(line);
    let device = fields.optional().is_some_and(|text| device(text).is_some());
    device && fields.number("").is_ok() && fields.number("").is_ok() && fields.seconds("").is_ok()
}

/// `major,minor`
fn device(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.split_once(',')?;
    Some((number("", major).ok()?, number("", minor).ok()?))
}

pub(super) struct Blkparse {
    lines: Lines,
    names: Names,
    requests: Requests,
    over: bool,
}

impl Blkparse {
    pub(super) fn new(input: Input) -> Self {
        let (names, requests) = (Names::default(), Requests::new());
        Self { lines: Lines::new(input), names, requests, over: false }
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
    let mut next = fields.optional().unwrap_or_default();
    let (mut offset, mut length) = (0, 0);
    if !next.is_empty() && !next.starts_with(['[', '(']) {
        let bytes = |name: &str, text| -> Result<u64, Fault> {
            let sectors: u64 = number(name, text)?;
            sectors.checked_mul(512).ok_or_else(|| format!("{name} {sectors}: too large"))
        };
        offset = bytes("sector", next)?;
        next = fields.optional().unwrap_or_default();
        if next == "+" {
            length = bytes("number of sectors", fields.text("number of sectors")?)?;
            next = fields.optional().unwrap_or_default();
        }
    }
    if length == 0 && word.contains('F') {
        // An empty write with a flush before it.
        operation = Operation::Flush;
    }
    let last = next.trim_start_matches('[').trim_end_matches(']');
    let action = match action {
        Action::Completed { .. } => Action::Completed { failed: !matches!(last, "0" | "") },
        action => action,
    };
    let volume = names.volume(name);
    let stream = match action {
        Action::Completed { .. } => 0,
        _ => names.stream(&format!("{last}.{pid}"), volume),
    };
    Ok(Some(Event { at, action, operation, flags, offset, length, volume, stream }))
}

impl Source for Blkparse {
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
            if line.trim().is_empty() {
                continue;
            }
            if SUMMARY.iter().any(|word| line.starts_with(word)) {
                self.over = true;
                continue;
            }
            match parse(line, &mut self.names) {
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
        notes
    }
}
