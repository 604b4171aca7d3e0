//! Formats with one request on a line.

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};

use super::fields::Fault;
use crate::error::Result;
use crate::input::{Input, Lines};
use crate::names::Names;
use crate::record::{Completion, Record, Stream};
use crate::source::{Notes, Source};

/// What a line was.
pub(super) enum Parsed {
    /// A request.
    Request(Record),
    /// Something that a replay has no use for: a header, an opened file.
    Nothing,
}

/// The parser of a format.
pub(super) trait LineFormat {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault>;
    /// Whether the first line may be a header, which has no digits.
    fn has_header(&self) -> bool {
        true
    }
}

/// Whether a format accepts a line. Formats are told apart by that.
pub(super) fn accepts(format: &mut impl LineFormat, line: &str) -> bool {
    matches!(format.parse(line, &mut Names::default()), Ok(Parsed::Request(_)))
}

/// A request without flags, whose completion is known or not.
pub(super) struct Plain {
    pub(super) at: Nanos,
    pub(super) stream: u32,
    pub(super) operation: Operation,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) latency: Option<Nanos>,
}

impl Plain {
    pub(super) fn request(self) -> Parsed {
        let Self { at, stream, operation, offset, length, latency } = self;
        Parsed::Request(Record {
            at: Instant(at.0),
            stream,
            operation,
            flags: Flags::NONE,
            offset,
            length,
            completion: latency.map(|latency| Completion { latency, failed: false }),
        })
    }
}

/// A file of such lines.
pub(super) struct LineSource<F> {
    lines: Lines,
    format: F,
    names: Names,
}

impl<F: LineFormat> LineSource<F> {
    pub(super) fn new(input: Input, format: F) -> Self {
        Self { lines: Lines::new(input), format, names: Names::default() }
    }
}

impl<F: LineFormat> Source for LineSource<F> {
    fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            let number = self.lines.number + 1;
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if line.trim().is_empty() {
                continue;
            }
            match self.format.parse(line, &mut self.names) {
                Ok(Parsed::Request(record)) => return Ok(Some(record)),
                Ok(Parsed::Nothing) => {}
                Err(fault) => {
                    let header = number == 1 && self.format.has_header();
                    if !header || line.bytes().any(|byte| byte.is_ascii_digit()) {
                        return Err(self.lines.wrong(fault));
                    }
                }
            }
        }
    }
    fn streams(&self) -> &[Stream] {
        &self.names.streams
    }
    fn notes(&self) -> Notes {
        let mut notes = Notes::default();
        self.names.note(&mut notes);
        notes
    }
}
