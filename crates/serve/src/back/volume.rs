//! A volume as engine and back end see it: its identity, and the position of its bytes on the drive.

use std::ops::Range;
use std::sync::Arc;

use iofair_config::contracts::Entry;
use iofair_core::priority::Priority;
use iofair_core::request::Flags;
use iofair_core::unit::SECTOR_BYTES;

use super::uring::Storage;

/// The identity of a volume, independent of its name: two plans mean the same data exactly if it is equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeId(pub u128);

/// A contiguous part of a volume on the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its first byte in the volume.
    pub volume: u64,
    /// Its first byte on the drive.
    pub drive: u64,
    /// Its length.
    pub length: u64,
}

impl Run {
    fn end(&self) -> u64 {
        self.volume + self.length
    }
}

/// The position of a volume's bytes on the drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// In the volume's order, without gaps; at least one.
    runs: Vec<Run>,
}

impl Map {
    /// A contiguous volume.
    pub fn linear(start: u64, length: u64) -> Self {
        Self { runs: vec![Run { volume: 0, drive: start, length }] }
    }
    /// A volume in several parts, in the volume's order. `None` unless they cover it without gaps and are aligned to
    /// sectors, because no command crosses their boundaries otherwise.
    pub fn new(runs: Vec<Run>) -> Option<Self> {
        let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
        let mut end = 0;
        for run in runs {
            let on_borders = (run.drive | run.length).is_multiple_of(SECTOR_BYTES);
            if run.volume != end || run.length == 0 || !on_borders {
                return None;
            }
            end = end.checked_add(run.length)?;
            let drive_end = run.drive.checked_add(run.length)?;
            match joined.last_mut() {
                Some(last) if last.drive + last.length == run.drive => {
                    last.length = drive_end - last.drive;
                }
                _ => joined.push(run),
            }
        }
        (!joined.is_empty()).then_some(Self { runs: joined })
    }
    /// The parts, in the volume's order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }
    /// Number of mapped bytes.
    pub fn size(&self) -> u64 {
        self.runs.last().map_or(0, Run::end)
    }
    /// The first byte on the drive.
    pub fn start(&self) -> u64 {
        self.runs[0].drive
    }
    /// The position of a byte of the volume on the drive, and the number of contiguous bytes there, including this
    /// one.
    pub(crate) fn locate(&self, offset: u64) -> (u64, u64) {
        let next = self.runs.partition_point(|run| run.volume <= offset);
        let run = &self.runs[next - 1];
        let into = offset - run.volume;
        (run.drive + into, run.length.saturating_sub(into))
    }
    /// The ranges on the drive of a part of the volume, in the volume's order.
    pub fn places(&self, part: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.runs.partition_point(|run| run.end() <= part.start);
        let runs = self.runs[first..].iter().take_while(move |run| run.volume < part.end);
        runs.map(move |run| {
            let from = part.start.max(run.volume) - run.volume;
            let to = part.end.min(run.end()) - run.volume;
            run.drive + from..run.drive + to
        })
    }
}

/// A volume and its position on the drive.
#[derive(Clone, Debug)]
pub struct PlannedVolume {
    /// Its identity.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Path of its group.
    pub group: String,
    /// The position of its bytes. When the volume grows, existing parts keep their position.
    pub map: Arc<Map>,
    /// Its size in bytes, at most that of the map.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// The file or device that contains only this volume, if there is one.
    pub storage: Option<Arc<Storage>>,
    /// The clients that may open it.
    pub entry: Entry,
    /// Properties of its requests.
    pub stamp: Stamp,
}

impl PlannedVolume {
    /// Whether both plans say the same of the same volume. Its storage does not change while it exists.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let Self { id, name, group, map, size, read_only, storage: _, entry, stamp } = self;
        (id, name, group, size) == (&other.id, &other.name, &other.group, &other.size)
            && (read_only, entry, stamp) == (&other.read_only, &other.entry, &other.stamp)
            && (Arc::ptr_eq(map, &other.map) || map == &other.map)
    }
}

/// Properties of all requests of a volume that no protocol carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Class and level inside the group.
    pub priority: Priority,
    /// Flags of its reads.
    pub reads: Flags,
    /// Flags of all others. Clients wait for their writes, so writes are synchronous unless the plan says otherwise.
    pub writes: Flags,
}

impl Default for Stamp {
    fn default() -> Self {
        Self { priority: Priority::default(), reads: Flags::SYNC, writes: Flags::SYNC }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1024;

    fn map(runs: &[(u64, u64, u64)]) -> Option<Map> {
        let run = |&(volume, drive, length)| Run { volume, drive, length };
        Map::new(runs.iter().map(run).collect())
    }

    /// Goal: every byte of a volume has its one place. Method: three pieces in another order on the drive than in the
    /// volume, two of which follow each other; look at every border and its neighbours.
    #[test]
    fn every_byte_has_one_place() {
        let map =
            map(&[(0, 64 * K, 4 * K), (4 * K, 8 * K, 2 * K), (6 * K, 10 * K, 2 * K)]).unwrap();
        assert_eq!((map.runs().len(), map.size(), map.start()), (2, 8 * K, 64 * K));
        for (offset, drive, left) in [
            (0, 64 * K, 4 * K),
            (4 * K - 1, 68 * K - 1, 1),
            (4 * K, 8 * K, 4 * K),
            (6 * K, 10 * K, 2 * K),
            (8 * K - 1, 12 * K - 1, 1),
        ] {
            assert_eq!(map.locate(offset), (drive, left), "{offset}");
        }
        let places = |map: &Map, part: Range<u64>| -> Vec<(u64, u64)> {
            map.places(part).map(|place| (place.start, place.end)).collect()
        };
        assert_eq!(places(&map, 0..8 * K), [(64 * K, 68 * K), (8 * K, 12 * K)]);
        assert_eq!(places(&map, 1..4 * K), [(64 * K + 1, 68 * K)]);
        assert_eq!(places(&map, 4 * K..u64::MAX), [(8 * K, 12 * K)]);
        assert_eq!(places(&map, 8 * K..9 * K), []);
        let linear = Map::linear(4 * K, 100);
        assert_eq!((linear.locate(0), linear.locate(99)), ((4 * K, 100), (4 * K + 99, 1)));
        assert_eq!(places(&linear, 0..u64::MAX), [(4 * K, 4 * K + 100)]);
    }

    /// Goal: pieces that would lose or double a byte are no map. Method: each of them.
    #[test]
    fn pieces_must_follow_each_other() {
        for runs in [
            &[][..],
            &[(0, 0, 0)],
            &[(512, 0, 512)],
            &[(0, 0, 512), (1024, 512, 512)],
            &[(0, 0, 1024), (512, 2048, 512)],
            &[(0, 100, 512)],
            &[(0, 0, 100)],
            &[(0, u64::MAX - 511, 1024)],
        ] {
            assert_eq!(map(runs), None, "{runs:?}");
        }
    }
}
