//! Names of streams and volumes as small numbers.

use std::collections::BTreeMap;

use crate::printable::{printable, shortened};
use crate::record::Stream;
use crate::source::{Notes, STREAMS_MAX};

/// Requests of streams beyond [`STREAMS_MAX`].
pub(crate) const MERGED: &str = "requests of streams beyond the first 65535, which count as one";

/// Characters of a name; of a longer one, the beginning counts.
const NAME_MAX: usize = 256;

/// The streams of a source.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) streams: Vec<Stream>,
    index: BTreeMap<(String, u32), u32>,
    volumes: BTreeMap<String, u32>,
    merged: u64,
}

impl Names {
    /// The number of a volume. Those beyond [`STREAMS_MAX`] share the last number.
    pub(crate) fn volume(&mut self, name: &str) -> u32 {
        let name = shortened(name, NAME_MAX);
        if let Some(known) = self.volumes.get(&*name) {
            return *known;
        }
        let new = self.volumes.len().min(STREAMS_MAX - 1) as u32;
        if self.volumes.len() < STREAMS_MAX {
            self.volumes.insert(name.into_owned(), new);
        }
        new
    }
    /// The number of a stream.
    pub(crate) fn stream(&mut self, name: &str, volume: u32) -> u32 {
        let name = shortened(&printable(name), NAME_MAX).into_owned();
        self.add(Stream { name, group: String::new(), volume })
    }
    /// The same for a volume that is a stream.
    pub(crate) fn volume_stream(&mut self, name: &str) -> u32 {
        let volume = self.volume(name);
        self.stream(name, volume)
    }
    pub(crate) fn add(&mut self, stream: Stream) -> u32 {
        let key = (stream.name.clone(), stream.volume);
        if let Some(known) = self.index.get(&key) {
            return *known;
        }
        if self.streams.len() >= STREAMS_MAX - 1 {
            self.merged += 1;
            if self.streams.len() < STREAMS_MAX {
                self.streams.push(Stream { name: "others".into(), ..Stream::default() });
            }
            return STREAMS_MAX as u32 - 1;
        }
        let new = self.streams.len() as u32;
        self.index.insert(key, new);
        self.streams.push(stream);
        new
    }
    pub(crate) fn note(&self, notes: &mut Notes) {
        notes.add(MERGED, self.merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a million streams need the memory of 65,536. Method: a million names.
    #[test]
    fn streams_are_bounded() {
        let mut names = Names::default();
        let last = (0..1_000_000).map(|name| names.volume_stream(&name.to_string())).last();
        assert_eq!(last, Some(STREAMS_MAX as u32 - 1));
        assert_eq!((names.streams.len(), names.index.len()), (STREAMS_MAX, STREAMS_MAX - 1));
        assert_eq!(names.streams[STREAMS_MAX - 1].name, "others");
        let mut notes = Notes::default();
        names.note(&mut notes);
        assert_eq!(notes.count_of(MERGED), 1_000_000 - (STREAMS_MAX as u64 - 1));
        assert_eq!(names.volume_stream("7"), 7, "known streams keep their number");
    }

    /// Goal: a name needs no more memory than it may have. Method: names of a megabyte, of volumes and streams.
    #[test]
    fn names_are_bounded() {
        let mut names = Names::default();
        let long = "a\u{1b}".repeat(1 << 19);
        assert_eq!([names.volume_stream(&long), names.volume_stream(&long)], [0, 0]);
        assert!(names.streams[0].name.chars().count() == NAME_MAX + 3);
        assert!(names.volumes.keys().all(|name| name.chars().count() == NAME_MAX + 3));
    }
}
