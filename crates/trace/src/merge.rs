//! Several traces as one, in the order of their times.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::formats::Boxed;
use crate::names::Names;
use crate::record::{Metadata, Record, Stream};
use crate::source::{Notes, Source};

/// One of the traces.
struct Part {
    source: Boxed,
    /// Its next request, with its stream's number in the whole.
    next: Option<Record>,
    /// By its own number of a stream: the number in the whole.
    streams: Vec<u32>,
    /// By its own number of a volume.
    volumes: BTreeMap<u32, u32>,
}

/// All of them.
pub(crate) struct Merge {
    parts: Vec<Part>,
    names: Names,
}

impl Merge {
    pub(crate) fn new(sources: Vec<Boxed>) -> Result<Self> {
        let part =
            |source| Part { source, next: None, streams: Vec::new(), volumes: BTreeMap::new() };
        let parts: Vec<Part> = sources.into_iter().map(part).collect();
        let mut this = Self { parts, names: Names::default() };
        for index in 0..this.parts.len() {
            this.advance(index)?;
        }
        Ok(this)
    }
    fn advance(&mut self, index: usize) -> Result<()> {
        let part = &mut self.parts[index];
        part.next = part.source.next_record()?;
        let Some(record) = &mut part.next else { return Ok(()) };
        let streams = part.source.streams();
        for stream in &streams[part.streams.len()..] {
            // A volume has one name in all files of a format only where it is a stream; elsewhere files are apart.
            let names = &mut self.names;
            let volume = *part.volumes.entry(stream.volume).or_insert_with(|| {
                let name = match streams.iter().filter(|one| one.volume == stream.volume).count() {
                    1 => stream.name.clone(),
                    _ => format!("{index}/{}", stream.volume),
                };
                names.volume(&name)
            });
            part.streams.push(names.add(Stream { volume, ..stream.clone() }));
        }
        record.stream = part.streams[record.stream as usize];
        Ok(())
    }
}

impl Source for Merge {
    fn next_record(&mut self) -> Result<Option<Record>> {
        let ahead = self
            .parts
            .iter()
            .enumerate()
            .filter_map(|(index, part)| part.next.map(|record| (record.at, index, record)));
        let Some((_, index, record)) = ahead.min_by_key(|(at, index, _)| (*at, *index)) else {
            return Ok(None);
        };
        self.advance(index)?;
        Ok(Some(record))
    }
    fn streams(&self) -> &[Stream] {
        &self.names.streams
    }
    fn metadata(&self) -> Metadata {
        self.parts.first().map(|part| part.source.metadata()).unwrap_or_default()
    }
    fn notes(&self) -> Notes {
        let mut notes = Notes::default();
        self.parts.iter().for_each(|part| notes.merge(&part.source.notes()));
        self.names.note(&mut notes);
        notes
    }
}
