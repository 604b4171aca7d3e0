//! Opens files, compressed or not, and cuts them into lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use crate::error::{Place, Result, TraceError};

/// Longest line.
pub const LINE_MAX: usize = 64 << 10;
/// Bytes that are looked at to recognise a format.
pub const HEAD: usize = 16 << 10;
const BUFFER: usize = 64 << 10;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A file, uncompressed, with its first bytes to look at.
pub struct Input {
    reader: Box<dyn BufRead + Send>,
    /// Its name in errors.
    pub file: String,
    head: Vec<u8>,
    /// How much of the head was read.
    taken: usize,
    /// What ended the head, for whoever reads on.
    broken: Option<io::Error>,
}

impl Input {
    /// Opens a file, and recognises gzip and zstd by their first bytes.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(TraceError::io(&name))?;
        Self::new(Box::new(file), &name)
    }
    /// The same from anywhere.
    pub fn new(raw: Box<dyn Read + Send>, file: &str) -> Result<Self> {
        let mut raw = BufReader::with_capacity(BUFFER, raw);
        let start = raw.fill_buf().map_err(TraceError::io(file))?;
        let reader: Box<dyn BufRead + Send> = if start.starts_with(&GZIP) {
            Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(raw)))
        } else if start.starts_with(&ZSTD) {
            Box::new(BufReader::with_capacity(BUFFER, Zstd { raw: Some(raw), frame: None }))
        } else {
            Box::new(raw)
        };
        let mut this =
            Self { reader, file: file.to_owned(), head: Vec::new(), taken: 0, broken: None };
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

/// Frames of zstd, one after the other.
struct Zstd<R: Read> {
    raw: Option<R>,
    frame: Option<Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>>,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let length = frame.read(into)?;
                if length > 0 || into.is_empty() {
                    return Ok(length);
                }
            }
            if let Some(frame) = self.frame.take() {
                self.raw = Some(frame.into_inner());
            }
            let Some(mut raw) = self.raw.take() else { return Ok(0) };
            if raw.fill_buf()?.is_empty() {
                self.raw = Some(raw);
                return Ok(0);
            }
            let frame = StreamingDecoder::new(raw).map_err(io::Error::other)?;
            self.frame = Some(Box::new(frame));
        }
    }
}

/// The lines of a text file, with their numbers.
pub(crate) struct Lines {
    input: Input,
    line: Vec<u8>,
    pub(crate) number: u64,
}

impl Lines {
    pub(crate) fn new(input: Input) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }
    /// The next line without its end; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<&str>> {
        self.line.clear();
        let mut limited = (&mut self.input).take(LINE_MAX as u64 + 1);
        let length = limited.read_until(b'\n', &mut self.line);
        let length = length.map_err(TraceError::io(&self.input.file))?;
        if length == 0 {
            return Ok(None);
        }
        self.number += 1;
        if length > LINE_MAX {
            return Err(self.wrong(format!("the line has more than {LINE_MAX} bytes")));
        }
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Some(text.trim_end_matches(['\n', '\r']))),
            Err(_) => Err(self.wrong("the line is not UTF-8")),
        }
    }
    /// An error about the last line.
    pub(crate) fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::content(&self.input.file, Place::Line(self.number), what)
    }
}
