//! Hides where and who, and keeps what matters to a drive.
//!
//! The drive is divided into extents of 16 MiB, and their places are exchanged by a keyed permutation. Inside an extent
//! nothing moves: what was sequential or close stays so, except across the borders of extents. The rest of the drive behind
//! the last whole extent stays where it is. Names of streams and groups become numbers. Times stay.
//!
//! The permutation is a Feistel network of eight rounds, whose function is SipHash with the key in front, walked in cycles
//! until it stays within the number of extents. The key is forgotten with the recording.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::record::{Record, Stream};

/// Bytes of an extent.
pub(crate) const EXTENT: u64 = 16 << 20;
const ROUNDS: u8 = 8;

/// A permutation of the extents of a drive.
#[derive(Clone, Debug)]
pub struct Permutation {
    key: [u64; 4],
    extents: u64,
    /// Bits of half an index.
    half: u32,
}

impl Permutation {
    /// The permutation of a drive of this many bytes under a key.
    pub fn new(key: [u64; 4], capacity: u64) -> Self {
        let extents = capacity / EXTENT;
        let bits = u64::BITS - extents.saturating_sub(1).leading_zeros();
        Self { key, extents, half: bits.div_ceil(2).max(1) }
    }
    fn round(&self, number: u8, half: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.key, number, half).hash(&mut hasher);
        hasher.finish() & ((1 << self.half) - 1)
    }
    fn exchange(&self, index: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (index >> self.half, index & mask);
        for number in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(number, right));
        }
        left << self.half | right
    }
    /// Where an extent goes.
    pub fn extent(&self, index: u64) -> u64 {
        if index >= self.extents {
            return index;
        }
        // The network permutes at most four times as many numbers, so few steps lead back.
        let mut place = self.exchange(index);
        while place >= self.extents {
            place = self.exchange(place);
        }
        place
    }
    /// Where an offset goes.
    pub fn offset(&self, offset: u64) -> u64 {
        self.extent(offset / EXTENT) * EXTENT + offset % EXTENT
    }
}

/// Anonymises the streams and requests of one trace.
#[derive(Clone, Debug)]
pub struct Anonymiser {
    permutation: Permutation,
    /// Numbers of the components of group paths.
    groups: BTreeMap<String, usize>,
    streams: u64,
}

impl Anonymiser {
    /// For a drive of this many bytes.
    pub fn new(key: [u64; 4], capacity: u64) -> Self {
        let permutation = Permutation::new(key, capacity);
        Self { permutation, groups: BTreeMap::new(), streams: 0 }
    }
    /// The path of a group, with numbers for names. Groups that are inside each other stay so.
    pub fn group(&mut self, path: &str) -> String {
        if path.is_empty() {
            return String::new();
        }
        let mut parts = Vec::new();
        for part in path.split('/') {
            let next = self.groups.len() + 1;
            let number = *self.groups.entry(part.to_owned()).or_insert(next);
            parts.push(format!("g{number}"));
        }
        parts.join("/")
    }
    /// A stream, to be asked for once each.
    pub fn stream(&mut self, stream: &Stream) -> Stream {
        self.streams += 1;
        let name = format!("stream-{}", self.streams);
        Stream { name, group: self.group(&stream.group), volume: stream.volume }
    }
    /// A request.
    pub fn record(&self, record: Record) -> Record {
        Record { offset: self.permutation.offset(record.offset), ..record }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every extent has another's place, and each place is taken once; another key gives other places. Method: drives
    /// of many sizes, among them those of less than an extent.
    #[test]
    fn extents_are_permuted() {
        for extents in [0, 1, 2, 3, 5, 64, 1000, 4097] {
            let permutation = Permutation::new([1, 2, 3, 4], extents * EXTENT + 512);
            let mut places: Vec<u64> = (0..extents).map(|from| permutation.extent(from)).collect();
            if extents >= 64 {
                let fixed = (0..extents).filter(|from| places[*from as usize] == *from).count();
                assert!(fixed < 10, "{fixed} of {extents} stayed");
                let other = Permutation::new([1, 2, 3, 5], extents * EXTENT);
                let is_same = |from: &u64| places[*from as usize] == other.extent(*from);
                let same = (0..extents).filter(is_same);
                assert!(same.count() < 10);
            }
            places.sort_unstable();
            assert_eq!(places, (0..extents).collect::<Vec<_>>());
            assert_eq!(permutation.offset(extents * EXTENT + 3), extents * EXTENT + 3);
        }
    }

    /// Goal: locality inside an extent stays. Method: offsets of one.
    #[test]
    fn an_extent_stays_together() {
        let permutation = Permutation::new([9, 8, 7, 6], 1 << 40);
        let base = permutation.offset(5 * EXTENT);
        for inside in [0, 512, 4096, EXTENT - 1] {
            assert_eq!(permutation.offset(5 * EXTENT + inside), base + inside);
        }
    }

    /// Goal: names are gone and the tree stays. Method: three groups.
    #[test]
    fn names_become_numbers() {
        let mut anonymiser = Anonymiser::new([0; 4], 1 << 30);
        assert_eq!(anonymiser.group("tenants/alice"), "g1/g2");
        assert_eq!(anonymiser.group("tenants/bob"), "g1/g3");
        assert_eq!(anonymiser.group(""), "");
        let stream = Stream { name: "alice-root".into(), group: "tenants".into(), volume: 0 };
        assert_eq!(anonymiser.stream(&stream).name, "stream-1");
        assert_eq!(anonymiser.stream(&stream).group, "g1");
    }
}
