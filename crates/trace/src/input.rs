//! Files, uncompressed, and cut into lines.

use std::io::{self, BufRead, BufReader, Read};

use crate::compression;
use crate::error::{Place, Result, TraceError};
use crate::printable::{printable, shortened, shown_line};

/// Longest line.
pub const LINE_MAX: usize = 64 << 10;
/// Bytes that are looked at to recognise a format.
pub const HEAD: usize = 16 << 10;
/// Lines without content that may follow each other: a small compressed file can have any number of them.
const EMPTY_LINES_MAX: u64 = 1 << 20;
/// Characters of an error about a line, which repeats fields of any length.
const MESSAGE_MAX: usize = 240;
/// What an error says of a line at the end of a file that may be a part of one.
pub(crate) const CUT_LINE: &str = ", which has no line break: the file may have been cut off";
const BUFFER: usize = 64 << 10;
/// What some programs write before UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A file, uncompressed, with its first bytes to look at.
pub struct Input {
    reader: BufReader<Box<dyn Read + Send>>,
    /// Its name in errors.
    pub file: String,
    head: Vec<u8>,
    /// How much of the head was read.
    taken: usize,
    /// The error that ended the head; the read that follows the head returns it.
    broken: Option<io::Error>,
    is_compressed: bool,
}

impl Input {
    /// Reads from anywhere. Compression is recognised by the first bytes.
    pub fn new(raw: Box<dyn Read + Send>, file: &str) -> Result<Self> {
        let mut raw = raw;
        let mut start = Vec::new();
        let first = (&mut raw).take(compression::MAGIC_BYTES as u64).read_to_end(&mut start);
        first.map_err(TraceError::io(file))?;
        let compression = compression::compression(&start);
        let is_compressed = compression.is_some();
        let mut whole: Box<dyn Read + Send> = Box::new(io::Cursor::new(start).chain(raw));
        if let Some(compression) = compression {
            whole = compression.open(whole);
        }
        let reader = BufReader::with_capacity(BUFFER, whole);
        let (file_name, head) = (file.to_owned(), Vec::new());
        let mut this =
            Self { reader, file: file_name, head, taken: 0, broken: None, is_compressed };
        let head = (&mut this.reader).take(HEAD as u64).read_to_end(&mut this.head);
        // A compressed file that was cut off may still have a good beginning.
        this.broken = head.err();
        match (this.head.is_empty(), this.broken.take()) {
            (true, Some(error)) => return Err(TraceError::io(file)(error)),
            (_, broken) => this.broken = broken,
        }
        Ok(this)
    }
    /// The first bytes.
    pub fn head(&self) -> &[u8] {
        &self.head
    }
    /// Reads a compressed file to its end, which checks it.
    pub(crate) fn check(mut self) -> Result<()> {
        if self.is_compressed {
            let file = self.file.clone();
            io::copy(&mut self, &mut io::sink()).map_err(TraceError::io(&file))?;
        }
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut from = self.fill_buf()?;
        let length = from.read(into)?;
        self.consume(length);
        Ok(length)
    }
}
impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken < self.head.len() {
            return Ok(&self.head[self.taken..]);
        }
        match self.broken.take() {
            Some(error) => Err(error),
            None => self.reader.fill_buf(),
        }
    }
    fn consume(&mut self, amount: usize) {
        if self.taken < self.head.len() {
            self.taken += amount;
        } else {
            self.reader.consume(amount);
        }
    }
}

/// The content of a line of bytes: without its end, a byte order mark and white space; `None` if nothing is left, or a
/// comment. Programs put comments into traces and readers of other projects accept them, so all text formats here have them.
pub(crate) fn content(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(BYTE_ORDER_MARK).trim();
    (!line.is_empty() && !line.starts_with('#')).then_some(line)
}

/// The lines of a text file that have content, with their numbers.
pub(crate) struct Lines {
    input: Input,
    line: Vec<u8>,
    number: u64,
    /// Whether the last line has no line break: it may be a part of one.
    pub(crate) is_cut: bool,
}

impl Lines {
    pub(crate) fn new(input: Input) -> Self {
        Self { input, line: Vec::new(), number: 0, is_cut: false }
    }
    /// The content of the next line that has any; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<&str>> {
        for _ in 0..EMPTY_LINES_MAX {
            if !self.advance()? {
                return Ok(None);
            }
            if self.line.contains(&0) {
                return Err(self.wrong("the line has a zero byte, so the file was damaged"));
            }
            if self.line.trim_ascii_end().contains(&b'\r') {
                return Err(self.wrong(
                    "the line has a carriage return; lines end with line feeds: tr '\\r' '\\n' < FILE",
                ));
            }
            let text = std::str::from_utf8(&self.line);
            let text = text.map_err(|_| self.wrong("the line is not UTF-8"))?;
            if content(text).is_some() {
                // Found again, because a borrow cannot leave a loop.
                return Ok(std::str::from_utf8(&self.line).ok().and_then(content));
            }
        }
        Err(self.wrong(format!("more than {EMPTY_LINES_MAX} lines without content")))
    }
    fn advance(&mut self) -> Result<bool> {
        self.line.clear();
        let mut limited = (&mut self.input).take(LINE_MAX as u64 + 1);
        let length = limited.read_until(b'\n', &mut self.line);
        let length = length.map_err(TraceError::io(&self.input.file))?;
        if length == 0 {
            return Ok(false);
        }
        self.number += 1;
        self.is_cut = length <= LINE_MAX && !self.line.ends_with(b"\n");
        if length > LINE_MAX {
            return Err(self.wrong(format!("the line has more than {LINE_MAX} bytes")));
        }
        Ok(true)
    }
    /// An error about the last line, which it shows.
    pub(crate) fn wrong(&self, what: impl Into<String>) -> TraceError {
        let what = what.into();
        let what = printable(&what);
        let what = shortened(&what, MESSAGE_MAX);
        let cut = match self.is_cut {
            true => CUT_LINE,
            false => "",
        };
        let what = format!("{what}; the line is {}{cut}", shown_line(&self.line));
        TraceError::content(&self.input.file, Place::Line(self.number), what)
    }
}
