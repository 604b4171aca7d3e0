//! Reads the compact format.

use std::io::{ErrorKind, Read};

use crate::block::{self, BlockHeader, HEADER, MAGIC, NAME_MAX, PAYLOAD_MAX, VERSION};
use crate::code::{Context, Cursor};
use crate::error::{Place, Result, TraceError};
use crate::printable::printable;
use crate::record::{Metadata, Record, Stream};
use crate::source::{Notes, STREAMS_MAX, Source};

/// The note about a file without its end.
pub const TORN: &str = "the trace has no end: what followed its last whole block was lost";
/// The note about requests that the recorder dropped.
pub const DROPPED: &str = "requests that were not recorded (dropped)";
/// Why the next block is not whole: there is none, and the trace has not ended.
const MISSING: &str = "is missing";
/// Longest value of metadata.
const VALUE_MAX: usize = PAYLOAD_MAX;

/// What a read of a block gave.
enum Block {
    Whole(BlockHeader),
    /// Why it is not whole.
    Torn(String),
}

/// A trace in the compact format.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    file: String,
    /// Of the next block.
    position: u64,
    /// Of the present block.
    began: u64,
    payload: Vec<u8>,
    /// In the payload.
    at: usize,
    left: u32,
    context: Context,
    streams: Vec<Stream>,
    metadata: Metadata,
    requests: u64,
    dropped: u64,
    /// Why the present block is not whole.
    torn: Option<String>,
    over: bool,
    /// Whether nothing may follow the end.
    is_alone: bool,
}

impl<R: Read> Reader<R> {
    /// Opens a trace and reads its metadata; `file` is its name in errors.
    pub fn new(input: R, file: &str) -> Result<Self> {
        let mut this = Self {
            input,
            file: file.to_owned(),
            position: 0,
            began: 0,
            payload: Vec::new(),
            at: 0,
            left: 0,
            context: Context::default(),
            streams: Vec::new(),
            metadata: Metadata::default(),
            requests: 0,
            dropped: 0,
            torn: None,
            over: false,
            is_alone: false,
        };
        let mut header = [0; HEADER];
        let length = this.fill(&mut header)?;
        if (1..HEADER).contains(&length) && MAGIC.starts_with(&header[..length.min(MAGIC.len())]) {
            return Err(this.cut_off(&format!("has {length} of {HEADER} bytes")));
        }
        if length < HEADER || header[..8] != MAGIC {
            return Err(this.wrong("this is no trace of iofair: it does not begin with IOFTRACE"));
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != VERSION {
            let what = format!("the trace has version {version}; this program reads {VERSION}");
            return Err(this.wrong(what));
        }
        this.position = HEADER as u64;
        match this.block()? {
            Some(Block::Whole(header)) if header.kind == block::METADATA => this.take_metadata()?,
            Some(Block::Whole(_)) => {
                return Err(this.wrong("the first block has no metadata"));
            }
            Some(Block::Torn(why)) => return Err(this.cut_off(&why)),
            None => return Err(this.cut_off(MISSING)),
        }
        Ok(this)
    }
    /// Refuses bytes behind the end, such as a second trace.
    #[must_use]
    pub(crate) fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }
    /// What the trace is read from.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.input
    }
    /// Whether the file ended before the trace did.
    pub fn is_torn(&self) -> bool {
        self.torn.is_some()
    }

    /// The error about a file that ends before its first request.
    fn cut_off(&self, why: &str) -> TraceError {
        let what = "the file was cut off before its first request; it is needed whole";
        self.wrong(format!("{what}: what begins here {why}"))
    }
    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::content(&self.file, Place::Byte(self.began), what)
    }
    /// Reads as much as there is. Returns the length.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut length = 0;
        while length < into.len() {
            match self.input.read(&mut into[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A compressed file that was cut off.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(TraceError::io(&self.file)(error)),
            }
        }
        Ok(length)
    }
    /// Reads the next block into the payload; `None` at the end of the file.
    fn block(&mut self) -> Result<Option<Block>> {
        self.began = self.position;
        let mut bytes = [0; HEADER];
        match self.fill(&mut bytes)? {
            0 => return Ok(None),
            HEADER => {}
            length => {
                return Ok(Some(Block::Torn(format!("has {length} of at least {HEADER} bytes"))));
            }
        }
        let header = BlockHeader::read(&bytes);
        if bytes == [0; HEADER] && self.only_zeroes()? {
            // A file system that lost its power leaves zeroes.
            return Ok(Some(Block::Torn("has only zeroes".into())));
        }
        if header.length as usize > PAYLOAD_MAX {
            let what = format!("a block of {} bytes; at most {PAYLOAD_MAX}", header.length);
            return Err(self.wrong(what));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(header.length as usize, 0);
        let length = self.fill(&mut payload)?;
        self.payload = payload;
        if length < self.payload.len() {
            let (length, whole) = (HEADER + length, HEADER + self.payload.len());
            return Ok(Some(Block::Torn(format!("has {length} of {whole} bytes"))));
        }
        if block::checksum(&bytes, &self.payload) != header.checksum {
            let is_last = self.fill(&mut [0])? == 0;
            return match is_last {
                true => Ok(Some(Block::Torn("has a wrong checksum".into()))),
                false => Err(self.wrong("the checksum of a block is wrong")),
            };
        }
        self.position += (HEADER + length) as u64;
        Ok(Some(Block::Whole(header)))
    }
    fn only_zeroes(&mut self) -> Result<bool> {
        let mut bytes = [0; 4096];
        loop {
            let length = self.fill(&mut bytes)?;
            if length == 0 {
                return Ok(true);
            }
            if bytes[..length].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }
    fn take_metadata(&mut self) -> Result<()> {
        let mut cursor = Cursor::new(&self.payload);
        let mut entries = Vec::new();
        while !cursor.is_over() {
            let key = cursor.text(NAME_MAX).map_err(|what| self.wrong(what))?;
            let value = cursor.text(VALUE_MAX).map_err(|what| self.wrong(what))?;
            entries.push((key, value));
        }
        self.metadata = Metadata { entries };
        Ok(())
    }
    fn take_streams(&mut self) -> Result<()> {
        let mut cursor = Cursor::new(&self.payload);
        let mut streams = Vec::new();
        let mut read = || {
            while !cursor.is_over() {
                let [name, group] = [cursor.text(NAME_MAX)?, cursor.text(NAME_MAX)?]
                    .map(|text| printable(&text).into_owned());
                let volume = cursor.number()?;
                let volume = u32::try_from(volume).map_err(|_| "a volume's number is too large")?;
                if self.streams.len() + streams.len() >= STREAMS_MAX {
                    return Err("there are more than 65536 streams");
                }
                streams.push(Stream { name, group, volume });
            }
            Ok(())
        };
        read().map_err(|what| self.wrong(what))?;
        self.streams.append(&mut streams);
        Ok(())
    }
    fn numbers<const N: usize>(&self) -> Result<[u64; N]> {
        let mut cursor = Cursor::new(&self.payload);
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = cursor.number().map_err(|what| self.wrong(what))?;
        }
        Ok(numbers)
    }
    /// Goes on to the next block of requests; `false` at the end.
    fn next_block(&mut self) -> Result<bool> {
        while !self.over {
            let header = match self.block()? {
                Some(Block::Whole(header)) => header,
                Some(Block::Torn(why)) => {
                    (self.torn, self.over) = (Some(why), true);
                    break;
                }
                None => {
                    (self.torn, self.over) = (Some(MISSING.to_owned()), true);
                    break;
                }
            };
            match header.kind {
                block::STREAMS => self.take_streams()?,
                block::REQUESTS if header.requests > 0 => {
                    let mut cursor = Cursor::new(&self.payload);
                    let at = cursor.number().map_err(|what| self.wrong(what))?;
                    (self.at, self.left) = (cursor.at, header.requests);
                    self.context.begin(at);
                    return Ok(true);
                }
                block::REQUESTS => return Err(self.wrong("a block of requests has none")),
                block::DROPPED => {
                    let [count] = self.numbers()?;
                    self.dropped = self.dropped.saturating_add(count);
                }
                block::END => {
                    let [requests, _] = self.numbers()?;
                    if requests != self.requests {
                        let read = self.requests;
                        let what = format!("{read} requests were read, and {requests} written");
                        return Err(self.wrong(what));
                    }
                    self.over = true;
                    self.began = self.position;
                    if self.is_alone && self.fill(&mut [0])? > 0 {
                        let what =
                            "bytes behind the end of the trace; several traces are several files";
                        return Err(self.wrong(what));
                    }
                }
                kind => {
                    let what = format!("a block of the unknown kind {kind}");
                    return Err(self.wrong(what));
                }
            }
        }
        match &self.torn {
            Some(why) if self.is_alone && self.requests == 0 => Err(self.cut_off(why)),
            _ => Ok(false),
        }
    }
}

impl<R: Read> Source for Reader<R> {
    fn next_record(&mut self) -> Result<Option<Record>> {
        if self.left == 0 && !self.next_block()? {
            return Ok(None);
        }
        let mut cursor = Cursor::resume(&self.payload, self.at);
        let record = self.context.decode(&mut cursor, self.streams.len());
        self.at = cursor.at;
        let record = record.map_err(|what| self.wrong(what))?;
        self.left -= 1;
        self.requests += 1;
        if self.left == 0 && self.at != self.payload.len() {
            return Err(self.wrong("a block has more bytes than its requests"));
        }
        Ok(Some(record))
    }
    fn streams(&self) -> &[Stream] {
        &self.streams
    }
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }
    fn notes(&self) -> Notes {
        let mut notes = Notes::default();
        notes.add(TORN, u64::from(self.is_torn()));
        notes.add(DROPPED, self.dropped);
        notes
    }
}
