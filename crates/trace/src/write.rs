//! Writes the compact format. [`Encoder`] makes blocks in memory; [`Writer`] sends them somewhere.

use std::io::Write;

use crate::block::{self, BlockHeader, NAME_MAX, PAYLOAD_MAX, PAYLOAD_TARGET};
use crate::code::{Context, put, put_text};
use crate::error::{Place, Result, TraceError};
use crate::record::{Metadata, Record, Stream};
use crate::source::STREAMS_MAX;

/// Makes the blocks of a trace, in [`Self::ready`].
#[derive(Debug, Default)]
pub struct Encoder {
    /// Whole blocks (the header of the file first), for the owner to take.
    pub ready: Vec<u8>,
    context: Context,
    streams: Vec<u8>,
    introduced: u32,
    payload: Vec<u8>,
    /// In the payload.
    requests: u32,
    /// Of finished blocks.
    written: u64,
    dropped: u64,
    /// Not written yet.
    dropped_now: u64,
}

impl Encoder {
    /// Begins a trace. Metadata that does not fit into a block is refused.
    pub fn new(metadata: &Metadata) -> Result<Self, &'static str> {
        let mut payload = Vec::new();
        for (key, value) in &metadata.entries {
            put_text(&mut payload, key);
            put_text(&mut payload, value);
        }
        if payload.len() > PAYLOAD_MAX {
            return Err("the metadata of a trace has at most 1 MiB");
        }
        let mut this = Self::default();
        this.ready.extend_from_slice(&block::file_header());
        BlockHeader::write(block::METADATA, 0, &payload, &mut this.ready);
        Ok(this)
    }
    /// Introduces a stream, and returns its number; `None` if there are [`STREAMS_MAX`], or a name is longer than
    /// [`NAME_MAX`].
    pub fn add_stream(&mut self, stream: &Stream) -> Option<u32> {
        let number = self.introduced;
        let fits = stream.name.len() <= NAME_MAX && stream.group.len() <= NAME_MAX;
        if !fits || number as usize >= STREAMS_MAX {
            return None;
        }
        if self.streams.len() >= PAYLOAD_TARGET {
            self.end_streams();
        }
        put_text(&mut self.streams, &stream.name);
        put_text(&mut self.streams, &stream.group);
        put(&mut self.streams, u64::from(stream.volume));
        self.introduced += 1;
        Some(number)
    }
    /// Appends a request of a stream that was introduced.
    pub fn push(&mut self, record: &Record) {
        assert!(record.stream < self.introduced, "streams are introduced first");
        if self.requests == 0 {
            self.context.begin(record.at.0);
            put(&mut self.payload, record.at.0);
        }
        self.context.encode(record, &mut self.payload);
        self.requests += 1;
        if self.payload.len() >= PAYLOAD_TARGET {
            self.end_block();
        }
    }
    /// Notes that requests were not recorded.
    pub fn drop_requests(&mut self, count: u64) {
        self.dropped_now += count;
        self.dropped += count;
    }
    /// Requests so far, and those not recorded.
    pub fn counts(&self) -> (u64, u64) {
        (self.written + u64::from(self.requests), self.dropped)
    }
    /// Ends the present block early, so that [`Self::ready`] has everything.
    pub fn end_block(&mut self) {
        self.end_streams();
        if self.requests > 0 {
            BlockHeader::write(block::REQUESTS, self.requests, &self.payload, &mut self.ready);
            self.written += u64::from(self.requests);
            self.requests = 0;
            self.payload.clear();
        }
        if self.dropped_now > 0 {
            let mut payload = Vec::new();
            put(&mut payload, std::mem::take(&mut self.dropped_now));
            BlockHeader::write(block::DROPPED, 0, &payload, &mut self.ready);
        }
    }
    fn end_streams(&mut self) {
        if !self.streams.is_empty() {
            BlockHeader::write(block::STREAMS, 0, &self.streams, &mut self.ready);
            self.streams.clear();
        }
    }
    /// Ends the trace; [`Self::ready`] then has its last blocks.
    pub fn end(&mut self) {
        self.end_block();
        let mut payload = Vec::new();
        put(&mut payload, self.written);
        put(&mut payload, self.dropped);
        BlockHeader::write(block::END, 0, &payload, &mut self.ready);
    }
}

/// Writes a trace to a file or another sink.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    file: String,
    encoder: Encoder,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace; `file` is its name in errors.
    pub fn new(out: W, file: &str, metadata: &Metadata) -> Result<Self> {
        let encoder =
            Encoder::new(metadata).map_err(|what| TraceError::content(file, Place::Whole, what))?;
        let mut this = Self { out, file: file.to_owned(), encoder, bytes: 0 };
        this.send()?;
        Ok(this)
    }
    /// Introduces a stream ([`Encoder::add_stream`]).
    pub fn add_stream(&mut self, stream: &Stream) -> Option<u32> {
        self.encoder.add_stream(stream)
    }
    /// Appends a request.
    pub fn push(&mut self, record: &Record) -> Result<()> {
        self.encoder.push(record);
        self.send()
    }
    /// Notes that requests were not recorded.
    pub fn drop_requests(&mut self, count: u64) {
        self.encoder.drop_requests(count);
    }
    /// Writes everything, so that no later crash can lose it, as far as the sink is concerned.
    pub fn flush(&mut self) -> Result<()> {
        self.encoder.end_block();
        self.send()?;
        self.out.flush().map_err(TraceError::io(&self.file))
    }
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Requests so far, and those not recorded.
    pub fn counts(&self) -> (u64, u64) {
        self.encoder.counts()
    }
    /// Ends the trace, and returns the sink.
    pub fn finish(mut self) -> Result<W> {
        self.encoder.end();
        self.send()?;
        self.out.flush().map_err(TraceError::io(&self.file))?;
        Ok(self.out)
    }
    fn send(&mut self) -> Result<()> {
        if !self.encoder.ready.is_empty() {
            self.out.write_all(&self.encoder.ready).map_err(TraceError::io(&self.file))?;
            self.bytes += self.encoder.ready.len() as u64;
            self.encoder.ready.clear();
        }
        Ok(())
    }
}
