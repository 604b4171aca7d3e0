//! Clean pages of the page cache, for clients whose reads may hit what was read or written before.
//!
//! When memory is full, the clock algorithm evicts pages that were not used since its hand passed them, which is close
//! to least recently used. (Reading a page into memory is not a use of it.) Pages are numbered by their place on the
//! drive, so that clients that share a file share its pages.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of a word.
const BITS: u64 = 64;

/// 64 consecutive pages: which are resident, and which of them were used since the hand passed.
#[derive(Clone, Copy, Default, Debug)]
struct Word {
    there: u64,
    used: u64,
}

/// The resident pages.
#[derive(Debug)]
pub(crate) struct Resident {
    words: BTreeMap<u64, Word>,
    count: u64,
    most: u64,
    /// The word at which the search for unused pages goes on.
    hand: u64,
}

/// The words of a range, and their bits in it.
fn words(pages: &Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let pages = pages.clone();
    (pages.start / BITS..pages.end.div_ceil(BITS)).map(move |word| (word, bits_of(word, &pages)))
}

/// The bits of a range in one of its words.
fn bits_of(word: u64, pages: &Range<u64>) -> u64 {
    let low = pages.start.saturating_sub(word * BITS);
    let high = (pages.end - word * BITS).min(BITS);
    (u64::MAX << low) & (u64::MAX >> (BITS - high))
}

impl Resident {
    /// Memory for `most` pages.
    pub(crate) fn new(most: u64) -> Self {
        Self { words: BTreeMap::new(), count: 0, most: most.max(1), hand: 0 }
    }
    /// Whether all pages of a range are resident; if so, they are marked as used.
    pub(crate) fn hit(&mut self, pages: &Range<u64>) -> bool {
        let resident = |(word, bits): (u64, u64)| {
            self.words.get(&word).is_some_and(|state| state.there & bits == bits)
        };
        if pages.is_empty() || !words(pages).all(resident) {
            return false;
        }
        for (word, bits) in words(pages) {
            self.words.entry(word).or_default().used |= bits;
        }
        true
    }
    /// Makes pages resident, and evicts others if memory is full.
    pub(crate) fn insert(&mut self, pages: &Range<u64>) {
        for (word, bits) in words(pages) {
            let state = self.words.entry(word).or_default();
            self.count += u64::from((bits & !state.there).count_ones());
            state.there |= bits;
        }
        while self.count > self.most {
            self.evict();
        }
    }
    /// Drops the pages of a range.
    pub(crate) fn drop_range(&mut self, pages: &Range<u64>) {
        let (first, last) = (pages.start / BITS, pages.end.div_ceil(BITS));
        let there: Vec<u64> =
            self.words.range(first..last.max(first)).map(|(word, _)| *word).collect();
        there.into_iter().for_each(|word| self.take(word, bits_of(word, pages)));
    }
    /// Moves the hand by a word and evicts those of its pages that were not used.
    fn evict(&mut self) {
        let next = self.words.range(self.hand..).next().or_else(|| self.words.iter().next());
        let Some((&word, &state)) = next else { return };
        self.hand = word + 1;
        self.take(word, state.there & !state.used);
        if let Some(state) = self.words.get_mut(&word) {
            state.used = 0;
        }
    }
    fn take(&mut self, word: u64, bits: u64) {
        let Some(state) = self.words.get_mut(&word) else { return };
        self.count -= u64::from((bits & state.there).count_ones());
        state.there &= !bits;
        state.used &= !bits;
        if state.there == 0 {
            self.words.remove(&word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pages are there from their arrival until they are dropped. Method: ranges across words.
    #[test]
    fn pages_come_and_go() {
        let mut memory = Resident::new(1 << 20);
        assert!(!memory.hit(&(0..1)) && !memory.hit(&(5..5)));
        memory.insert(&(60..200));
        assert!(memory.hit(&(60..200)) && memory.hit(&(64..128)) && memory.hit(&(199..200)));
        assert!(!memory.hit(&(59..61)) && !memory.hit(&(199..201)));
        memory.insert(&(100..210));
        assert_eq!(memory.count, 150);
        memory.drop_range(&(70..150));
        assert!(memory.hit(&(60..70)) && memory.hit(&(150..210)) && !memory.hit(&(69..71)));
        memory.drop_range(&(0..u64::MAX / 2));
        assert_eq!((memory.count, memory.words.len()), (0, 0));
    }

    /// Goal: memory never has more pages than it can hold, and pages in use stay. Method: a small set that is used again and
    /// again beside a long scan.
    #[test]
    fn memory_is_bounded_and_keeps_what_is_used() {
        let mut memory = Resident::new(1_024);
        memory.insert(&(0..256));
        let mut kept = 0;
        for page in 1_000..101_000 {
            memory.insert(&(page..page + 1));
            kept += u64::from((0..256).step_by(64).all(|word| memory.hit(&(word..word + 64))));
            assert!(memory.count <= 1_024);
        }
        assert_eq!(kept, 100_000);
        assert!(!memory.hit(&(1_000..1_001)) && memory.hit(&(100_999..101_000)));
    }
}
