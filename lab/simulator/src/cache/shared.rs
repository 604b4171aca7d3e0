//! Clean pages of a file that several processes read: a page that one process requested is there for all.
//!
//! Keeps which pages are resident or in flight, which of them carry the read-ahead mark, and the processes that sleep
//! until a page arrives. Nothing is evicted: the readers of a file go through it side by side, and look back no further
//! than a window ([`SharedPages::drop_all`] is what reopening the file does).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::sim::Token;

/// Pages of a read that is in flight.
#[derive(Clone, Debug)]
struct UnderWay {
    pages: Range<u64>,
    /// Requests not completed yet; 0 is a free place.
    parts: u32,
}

/// The pages of one file that are there or in flight.
#[derive(Default, Debug)]
pub(crate) struct SharedPages {
    /// Runs of them, first page to the one behind the last; runs do not touch.
    runs: BTreeMap<u64, u64>,
    marks: BTreeSet<u64>,
    under_way: Vec<UnderWay>,
    sleepers: Vec<(u64, Token)>,
}

impl SharedPages {
    fn run_of(&self, page: u64) -> Option<Range<u64>> {
        let (start, end) = self.runs.range(..=page).next_back()?;
        (page < *end).then_some(*start..*end)
    }
    /// Whether the page is there or in flight.
    pub(crate) fn contains(&self, page: u64) -> bool {
        self.run_of(page).is_some()
    }
    /// Pages without a gap just before this one.
    pub(crate) fn before(&self, page: u64) -> u64 {
        let run = page.checked_sub(1).and_then(|last| self.run_of(last));
        run.map_or(0, |run| page - run.start)
    }
    /// The first page from this one on that is neither there nor in flight.
    pub(crate) fn gap_from(&self, page: u64) -> u64 {
        self.run_of(page).map_or(page, |run| run.end)
    }
    /// The first piece of a range that is missing.
    pub(crate) fn missing(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let start = self.gap_from(range.start);
        let next = self.runs.range(start..).next().map_or(range.end, |(start, _)| *start);
        (start < range.end).then(|| start..next.min(range.end))
    }
    /// Registers a read of missing pages; returns its number.
    pub(crate) fn register_read(&mut self, pages: Range<u64>, mark: Option<u64>) -> u32 {
        self.marks.extend(mark.filter(|mark| pages.contains(mark)));
        let before =
            self.runs.range(..=pages.start).next_back().filter(|run| *run.1 == pages.start);
        let start = before.map_or(pages.start, |run| *run.0);
        let end = self.runs.remove(&pages.end).unwrap_or(pages.end);
        self.runs.insert(start, end);
        let free = self.under_way.iter().position(|read| read.parts == 0);
        let place = free.unwrap_or(self.under_way.len());
        let read = UnderWay { pages, parts: 0 };
        match free {
            Some(place) => self.under_way[place] = read,
            None => self.under_way.push(read),
        }
        place as u32
    }
    /// Sets the number of requests of a read.
    pub(crate) fn set_requests(&mut self, number: u32, parts: u32) {
        self.under_way[number as usize].parts = parts;
    }
    /// One of a read's requests completed; after the last one, the processes that sleep on the read are woken.
    pub(crate) fn completed(&mut self, number: u32, mut wake: impl FnMut(Token)) {
        let read = &mut self.under_way[number as usize];
        read.parts -= 1;
        if read.parts == 0 {
            let pages = read.pages.clone();
            self.sleepers.retain(|(page, token)| {
                let woken = pages.contains(page);
                if woken {
                    wake(*token);
                }
                !woken
            });
        }
    }
    /// Whether the page is still in flight. Then the process sleeps until it is there.
    pub(crate) fn sleep_on(&mut self, page: u64, token: Token) -> bool {
        let on_its_way =
            self.under_way.iter().any(|read| read.parts > 0 && read.pages.contains(&page));
        if on_its_way {
            self.sleepers.push((page, token));
        }
        on_its_way
    }
    /// Takes the mark off a page, if it has one.
    pub(crate) fn take_mark(&mut self, page: u64) -> bool {
        self.marks.remove(&page)
    }
    /// Drops all pages except those in flight.
    pub(crate) fn drop_all(&mut self) {
        self.runs.clear();
        self.marks.clear();
        let live = self.under_way.iter().filter(|read| read.parts > 0);
        let live: Vec<_> = live.map(|read| read.pages.clone()).collect();
        for pages in live {
            self.runs.insert(pages.start, pages.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(runs: &[Range<u64>]) -> SharedPages {
        let mut pages = SharedPages::default();
        for run in runs {
            pages.register_read(run.clone(), None);
        }
        pages
    }

    /// Goal: runs join, and what is missing is found piece by piece. Method: two runs, then what lies between them.
    #[test]
    fn runs_join() {
        let mut pages = pages(&[0..8, 16..24]);
        assert_eq!((pages.before(8), pages.before(16), pages.gap_from(3)), (8, 0, 8));
        assert_eq!(pages.missing(&(4..32)), Some(8..16));
        assert_eq!(pages.missing(&(4..8)), None);
        pages.register_read(8..16, None);
        assert_eq!((pages.before(24), pages.gap_from(0), pages.runs.len()), (24, 24, 1));
        assert_eq!(pages.missing(&(4..32)), Some(24..32));
    }

    /// Goal: who sleeps on a page is woken when all of its read is completed, and nobody else. Method: a read of two
    /// requests, one sleeper on it and one on another read; then the cache is dropped.
    #[test]
    fn sleepers_wake_with_their_pages() {
        let mut pages = SharedPages::default();
        let first = pages.register_read(0..8, Some(4));
        pages.set_requests(first, 2);
        let second = pages.register_read(8..16, None);
        pages.set_requests(second, 1);
        let token = |actor| Token { actor, slot: 0 };
        assert!(pages.sleep_on(3, token(1)) && pages.sleep_on(9, token(2)));
        let mut woken = Vec::new();
        pages.completed(first, |token| woken.push(token.actor));
        assert!(woken.is_empty());
        pages.completed(first, |token| woken.push(token.actor));
        assert_eq!(woken, [1]);
        assert!(!pages.sleep_on(3, token(1)), "it is there");
        assert!(pages.take_mark(4) && !pages.take_mark(4));
        pages.drop_all();
        assert!(!pages.contains(3) && pages.contains(9), "what is on its way stays");
    }
}
