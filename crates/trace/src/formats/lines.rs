//! Formats with one request on a line.

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};

use super::fields::Fault;
use super::head::is_words;
use crate::error::Result;
use crate::input::{Input, Lines};
use crate::names::Names;
use crate::record::{Completion, Record, Stream};
use crate::source::{Notes, Source};

/// The note about a file whose last line may be a part of one.
pub(super) const CUT: &str =
    "files whose last line has no line break: they may have been cut off there";
/// The note about requests that are neither reads nor writes.
const UNKNOWN: &str = "requests of an unknown operation, which were skipped";

/// What a line was.
pub(super) enum Parsed {
    /// A request.
    Request(Record),
    /// A request whose operation the trace does not know.
    Unknown,
    /// Something that a replay has no use for: a header, an opened file.
    Nothing,
}

/// The parser of a format.
pub(super) trait LineFormat {
    /// Parses the content of a line.
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault>;
}

/// Whether a format accepts a line, by which formats are recognised.
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
        self.with(Flags::NONE)
    }
    pub(super) fn with(self, flags: Flags) -> Parsed {
        let Self { at, stream, operation, offset, length, latency } = self;
        let completion = latency.map(|latency| Completion { latency, failed: false });
        let at = Instant(at.0);
        Parsed::Request(Record { at, stream, operation, flags, offset, length, completion })
    }
}

/// A file of such lines. Lines without a number before the first request are a header, or what programs print before it; the
/// same header may come again where files were put together.
pub(super) struct LineSource<F> {
    lines: Lines,
    format: F,
    names: Names,
    header: String,
    has_begun: bool,
    unknown: u64,
}

impl<F: LineFormat> LineSource<F> {
    pub(super) fn new(input: Input, format: F) -> Self {
        let (lines, names) = (Lines::new(input), Names::default());
        Self { lines, format, names, header: String::new(), has_begun: false, unknown: 0 }
    }
}

impl<F: LineFormat> Source for LineSource<F> {
    fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if self.has_begun && line == self.header {
                continue;
            }
            match self.format.parse(line, &mut self.names) {
                Ok(Parsed::Request(record)) => {
                    self.has_begun = true;
                    return Ok(Some(record));
                }
                Ok(Parsed::Unknown) => self.unknown += 1,
                Ok(Parsed::Nothing) if self.has_begun || !is_words(line) => {}
                Err(fault) if self.has_begun || !is_words(line) => {
                    return Err(self.lines.wrong(fault));
                }
                Ok(Parsed::Nothing) | Err(_) => line.clone_into(&mut self.header),
            }
        }
    }
    fn streams(&self) -> &[Stream] {
        &self.names.streams
    }
    fn notes(&self) -> Notes {
        let mut notes = Notes::default();
        self.names.note(&mut notes);
        notes.add(UNKNOWN, self.unknown);
        notes.add(CUT, u64::from(self.lines.is_cut));
        notes
    }
}
