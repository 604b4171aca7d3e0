//! Which pages of a file are dirty: one bit a page, and where writing back goes on.

use iofair_core::unit::Sectors;

use crate::engine::layout::PAGE;

/// Bytes that [`crate::scenario::Host::consume_window`] and `produce_window` are costs of.
pub(crate) const COST_WINDOW: u64 = 256 * 1024;

/// The dirty pages of one file.
#[derive(Debug)]
pub(crate) struct DirtyPages {
    words: Vec<u64>,
    pages: u64,
    count: u64,
    /// Writing back goes through the file in order and goes on where it stopped.
    cursor: u64,
}

impl DirtyPages {
    pub(crate) fn new(file: Sectors) -> Self {
        let pages = file.0.div_ceil(PAGE);
        Self { words: vec![0; pages.div_ceil(64) as usize], pages, count: 0, cursor: 0 }
    }
    /// Dirty pages.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
    /// Makes the pages of a range dirty; how many were clean.
    pub(crate) fn mark(&mut self, offset: Sectors, length: Sectors) -> u64 {
        let end = (offset + length).0.div_ceil(PAGE).min(self.pages);
        let (mut page, mut new) = (offset.0 / PAGE, 0);
        while page < end {
            let bits = (64 - page % 64).min(end - page);
            let mask = (u64::MAX >> (64 - bits)) << (page % 64);
            let word = &mut self.words[(page / 64) as usize];
            new += u64::from((mask & !*word).count_ones());
            *word |= mask;
            page += bits;
        }
        self.count += new;
        new
    }
    /// Takes the next run of dirty pages, at most `longest`, as offset and length.
    pub(crate) fn take(&mut self, longest: Sectors) -> Option<(Sectors, Sectors)> {
        if self.count == 0 {
            return None;
        }
        let first = self.next_from(self.cursor).or_else(|| self.next_from(0));
        let first = first.expect("there are dirty pages");
        let end = self.pages.min(first + (longest.0 / PAGE).max(1));
        let mut page = first;
        while page < end && self.words[(page / 64) as usize] >> (page % 64) & 1 == 1 {
            self.words[(page / 64) as usize] &= !(1 << (page % 64));
            page += 1;
        }
        self.count -= page - first;
        self.cursor = if page >= self.pages { 0 } else { page };
        Some((Sectors(first * PAGE), Sectors((page - first) * PAGE)))
    }
    fn next_from(&self, page: u64) -> Option<u64> {
        let mut index = (page / 64) as usize;
        let mut word = self.words.get(index)? & (u64::MAX << (page % 64));
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        Some(index as u64 * 64 + u64::from(word.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every marked page is taken exactly once, in order, in runs no longer than allowed.
    /// Method: overlapping ranges across word borders.
    #[test]
    fn marked_pages_are_taken_once_and_in_order() {
        let mut dirty = DirtyPages::new(Sectors(300 * PAGE));
        assert_eq!(dirty.mark(Sectors(60 * PAGE), Sectors(10 * PAGE)), 10);
        assert_eq!(dirty.mark(Sectors(65 * PAGE), Sectors(100 * PAGE)), 95);
        assert_eq!(dirty.mark(Sectors(299 * PAGE), Sectors(PAGE)), 1);
        let mut runs = Vec::new();
        while let Some((offset, length)) = dirty.take(Sectors(64 * PAGE)) {
            runs.push((offset.0 / PAGE, length.0 / PAGE));
        }
        assert_eq!(runs, [(60, 64), (124, 41), (299, 1)]);
        assert_eq!(dirty.count(), 0);
    }

    /// Goal: writing back goes round the file. Method: dirty again behind the cursor.
    #[test]
    fn the_cursor_goes_round() {
        let mut dirty = DirtyPages::new(Sectors(128 * PAGE));
        dirty.mark(Sectors(0), Sectors(128 * PAGE));
        assert_eq!(dirty.take(Sectors(100 * PAGE)), Some((Sectors(0), Sectors(100 * PAGE))));
        dirty.mark(Sectors(0), Sectors(PAGE));
        assert_eq!(dirty.take(Sectors(100 * PAGE)), Some((Sectors(800), Sectors(28 * PAGE))));
        assert_eq!(dirty.take(Sectors(100 * PAGE)), Some((Sectors(0), Sectors(PAGE))));
        assert_eq!(dirty.take(Sectors(100 * PAGE)), None);
    }
}
