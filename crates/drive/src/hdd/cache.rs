//! The drive's memory: read-ahead segments, and dirty runs that wait to be written.

use std::collections::BTreeMap;

use iofair_core::time::{Instant, Nanos};

/// A range of blocks in the drive's memory, and the state of read-ahead behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) start: u64,
    /// First block that is not in memory (as of `since`, when growing).
    pub(super) end: u64,
    used: u64,
}

/// Read-ahead in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefetch {
    /// It starts at this block at this instant and takes `per_block` for each block.
    from: u64,
    since: Instant,
    per_block: Nanos,
    /// The first block that it does not read.
    limit: u64,
}

impl Prefetch {
    fn reached(&self, now: Instant) -> u64 {
        let blocks = now.since(self.since).0 / self.per_block.0;
        (self.from + blocks).min(self.limit)
    }
    fn time_of(&self, end: u64) -> Instant {
        self.since + self.per_block * end.saturating_sub(self.from)
    }
}

/// Read-ahead segments, the most recently used one first; the first one may be growing.
#[derive(Debug)]
pub(super) struct ReadCache {
    segments: Vec<Segment>,
    count: usize,
    /// Number of blocks that the head reads ahead after the last requested one.
    ahead: u64,
    prefetch: Option<Prefetch>,
    clock: u64,
}

/// A read may start up to this many blocks beyond the read data and still wait for the read-ahead to reach it.
pub(super) const REACH: u64 = 8;

impl ReadCache {
    pub(super) fn new(count: usize, ahead: u64) -> Self {
        Self { segments: Vec::new(), count, ahead, prefetch: None, clock: 0 }
    }
    /// When all the blocks will be in memory, if they are or the read-ahead will reach them.
    pub(super) fn hit(&mut self, now: Instant, start: u64, end: u64) -> Option<Instant> {
        self.grow(now);
        let index = self.segments.iter().position(|segment| {
            let reach = if self.prefetch.is_some_and(|p| p.reached(now) == segment.end) {
                segment.end + REACH
            } else {
                segment.end.saturating_sub(1)
            };
            segment.start <= start && start <= reach
        })?;
        let segment = self.segments[index];
        let mut ready = now;
        if end > segment.end {
            let prefetch = self.prefetch.filter(|p| p.reached(now) == segment.end)?;
            let mut prefetch = prefetch;
            if segment.end == prefetch.limit {
                prefetch = Prefetch { from: segment.end, since: now, ..prefetch };
            }
            prefetch.limit = end + self.ahead;
            ready = prefetch.time_of(end);
            self.prefetch = Some(prefetch);
        } else if let Some(prefetch) = self.prefetch.filter(|p| p.reached(now) == segment.end) {
            let stopped = segment.end == prefetch.limit;
            let from = if stopped { segment.end } else { prefetch.from };
            let since = if stopped { now } else { prefetch.since };
            let limit = prefetch.limit.max(end + self.ahead);
            self.prefetch = Some(Prefetch { from, since, limit, ..prefetch });
        }
        self.touch(index);
        Some(ready)
    }
    fn touch(&mut self, index: usize) {
        self.clock += 1;
        self.segments[index].used = self.clock;
    }
    /// Brings the growing segment up to date.
    fn grow(&mut self, now: Instant) {
        let Some(prefetch) = self.prefetch else { return };
        let reached = prefetch.reached(now);
        let growing = |s: &&mut Segment| s.start <= prefetch.from && prefetch.from <= s.end;
        if let Some(segment) = self.segments.iter_mut().find(growing) {
            segment.end = segment.end.max(reached);
            segment.start = segment.start.max(segment.end.saturating_sub(2 * self.ahead));
        }
    }
    /// The block that the read-ahead has reached.
    pub(super) fn reading_at(&self, now: Instant) -> Option<u64> {
        self.prefetch.map(|prefetch| prefetch.reached(now))
    }
    /// Stops the read-ahead, because the arm is needed. Returns the block that it has reached.
    pub(super) fn stop(&mut self, now: Instant) -> Option<u64> {
        self.grow(now);
        self.prefetch.take().map(|prefetch| prefetch.reached(now))
    }
    /// Prepares for blocks from `start` on: unless they continue a segment, the least recently used segment is freed
    /// now.
    pub(super) fn make_room(&mut self, start: u64) {
        let continued = self.segments.iter().any(|s| s.start <= start && start <= s.end);
        if !continued && self.segments.len() == self.count {
            let oldest = (0..self.count).min_by_key(|i| self.segments[*i].used);
            self.segments.swap_remove(oldest.expect("there is at least one segment"));
        }
    }
    /// Adds blocks that were read from the media; with `on`, the head reads ahead from there.
    pub(super) fn filled(&mut self, now: Instant, start: u64, end: u64, on: Option<Nanos>) {
        let continued = self.segments.iter().position(|s| s.start <= start && start <= s.end);
        let index = match continued {
            Some(index) => {
                self.segments[index].end = self.segments[index].end.max(end);
                index
            }
            None => {
                self.segments.push(Segment { start, end, used: 0 });
                self.segments.len() - 1
            }
        };
        self.touch(index);
        self.prefetch = on.map(|per_block| {
            let from = self.segments[index].end;
            Prefetch { from, since: now, per_block, limit: end + self.ahead }
        });
    }
    /// Removes blocks that were written from the read-ahead segments.
    pub(super) fn invalidate(&mut self, start: u64, end: u64) {
        self.segments.retain(|segment| segment.end <= start || segment.start >= end);
    }
}

/// Dirty runs by their first block; adjacent runs are joined.
#[derive(Debug, Default)]
pub(super) struct WriteCache {
    runs: BTreeMap<u64, u64>,
    blocks: u64,
}

impl WriteCache {
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
    /// Adds `[start, end)`; blocks that are already dirty count once.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        while let Some((&first, &last)) = self.runs.range(..=end).next_back() {
            if last < start {
                break;
            }
            self.runs.remove(&first);
            self.blocks -= last - first;
            (start, end) = (start.min(first), end.max(last));
        }
        self.runs.insert(start, end);
        self.blocks += end - start;
    }
    /// Whether all of `[start, end)` is dirty.
    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        self.runs.range(..=start).next_back().is_some_and(|(_, last)| *last >= end)
    }
    /// Removes up to `most` blocks from `start`, which is the start of a run.
    pub(super) fn take(&mut self, start: u64, most: u64) -> u64 {
        let last = self.runs.remove(&start).expect("a run starts here");
        let end = last.min(start + most);
        if end < last {
            self.runs.insert(end, last);
        }
        self.blocks -= end - start;
        end
    }
    /// Up to `most` runs on each side of a block, as start and end, nearest first on each side.
    pub(super) fn near(&self, block: u64, most: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let below = self.runs.range(..block).rev().take(most);
        below.chain(self.runs.range(block..).take(most)).map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: runs join and split, and blocks are counted once. Method: overlaps of every kind.
    #[test]
    fn dirty_runs_join_and_split() {
        let mut cache = WriteCache::default();
        for (start, end) in [(10, 12), (20, 22), (12, 14), (13, 21), (40, 41)] {
            cache.insert(start, end);
        }
        assert_eq!(cache.blocks(), 13);
        assert!(cache.holds(10, 22) && !cache.holds(21, 23));
        assert_eq!(cache.near(15, 8).collect::<Vec<_>>(), [(10, 22), (40, 41)]);
        assert_eq!(cache.take(10, 4), 14);
        assert_eq!(cache.blocks(), 9);
        assert_eq!(cache.near(0, 8).collect::<Vec<_>>(), [(14, 22), (40, 41)]);
    }

    /// Goal: a growing segment serves reads when the head gets there, and stops at its limit.
    /// Method: one block each 50 us, 100 ahead.
    #[test]
    fn a_growing_segment_completes_reads_in_time() {
        let mut cache = ReadCache::new(1, 100);
        let at = |us: u64| Instant(us * 1_000);
        cache.filled(at(0), 0, 10, Some(Nanos::from_micros(50)));
        assert_eq!(cache.hit(at(100), 10, 12), Some(at(100)), "two blocks in 100 us");
        assert_eq!(cache.hit(at(100), 12, 20), Some(at(500)), "ten blocks in 500 us");
        assert_eq!(cache.hit(at(100), 200, 201), None, "too far");
        assert_eq!(cache.stop(at(1_000_000)), Some(120), "100 beyond the last block asked");
        assert_eq!(cache.hit(at(1_000_001), 119, 120), Some(at(1_000_001)), "still in memory");
        assert_eq!(cache.hit(at(1_000_001), 120, 121), None, "nobody reads on");
    }
}
