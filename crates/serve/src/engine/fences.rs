//! Parts of the drive that a late write may still change although its client got an error.
//!
//! A command that the back end does not complete in time fails with an error, but it cannot be cancelled: it may be
//! executed at any time, or never. It could then overwrite newer data that was acknowledged. Therefore these bytes
//! are fenced until the back end completes the command: newer writes, trims and zeroes there fail. Reads pass. Fences
//! apply to positions on the drive, because the volume may have been removed by then.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes between two places, with late writes somewhere in them.
#[derive(Clone, Copy, Debug)]
struct Fence {
    end: u64,
    writes: u32,
}

/// All fences. Those that overlap are one, which stays until the last of its writes is over.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// By first byte; no two overlap.
    fences: BTreeMap<u64, Fence>,
}

impl Fences {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }
    /// Whether a part of this range is fenced.
    pub(super) fn meet(&self, range: &Range<u64>) -> bool {
        // Of those that begin before its end, the last one ends last.
        let last = self.fences.range(..range.end).next_back();
        last.is_some_and(|(_, fence)| fence.end > range.start)
    }
    /// A write to this range is late.
    pub(super) fn add(&mut self, range: &Range<u64>) {
        let Range { mut start, mut end } = *range;
        let mut writes = 1;
        while let Some((&first, &fence)) = self.fences.range(..end).next_back()
            && fence.end > start
        {
            self.fences.remove(&first);
            (start, end, writes) = (start.min(first), end.max(fence.end), writes + fence.writes);
        }
        self.fences.insert(start, Fence { end, writes });
    }
    /// A late write to this range is over.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        let around = self.fences.range_mut(..=range.start).next_back();
        let (&first, fence) = around.expect("it was added");
        fence.writes -= 1;
        if fence.writes == 0 {
            self.fences.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a byte is fenced at least as long as a late write to it is in flight, and nothing is fenced for ever. Method:
    /// random ranges that come and go, against a list of them.
    #[test]
    fn fences_cover_late_writes() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut fences, mut list) = (Fences::default(), Vec::new());
        for _ in 0..10_000 {
            let start = random(1000);
            let range = start..start + 1 + random(50);
            if list.len() < 20 && random(2) == 0 {
                fences.add(&range);
                list.push(range);
            } else if !list.is_empty() {
                let gone = list.swap_remove(random(list.len() as u64) as usize);
                fences.remove(&gone);
            }
            let probe = random(1100);
            let covered = list.iter().any(|range: &Range<u64>| range.contains(&probe));
            assert!(!covered || fences.meet(&(probe..probe + 1)));
            assert_eq!(fences.is_empty(), list.is_empty());
        }
    }

    /// Goal: neighbours of a fence are free, and of two that overlap none ends early. Method: borders.
    #[test]
    fn fences_end_at_their_borders() {
        let mut fences = Fences::default();
        fences.add(&(100..200));
        for (range, met) in [(0..100, false), (0..101, true), (199..300, true), (200..300, false)] {
            assert_eq!(fences.meet(&range), met, "{range:?}");
        }
        fences.add(&(150..250));
        fences.remove(&(100..200));
        assert!(fences.meet(&(249..250)) && fences.meet(&(150..151)));
        fences.remove(&(150..250));
        assert!(fences.is_empty() && !fences.meet(&(0..u64::MAX)));
    }
}
