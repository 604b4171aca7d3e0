//! A page of a tree: entries in key order, in arrays that are searched without branches.

use super::NIL;

/// Number of entries in a page.
pub(super) const FANOUT: usize = 16;

/// A leaf page contains nodes, any other page contains pages of the level below. Entries before `start` and after the last
/// one are stale; links before `start` are [`NIL`].
#[derive(Debug)]
pub(super) struct Page<K, S> {
    /// In a leaf: the keys of the nodes. Above: a lower bound for each page below, which is also an upper bound for
    /// the previous pages. The first bound is never used.
    keys: [K; FANOUT],
    summaries: [S; FANOUT],
    links: [u32; FANOUT],
    pub(super) parent: u32,
    /// Neighbours on the same level.
    pub(super) previous: u32,
    pub(super) next: u32,
    /// The first entry: that one leaves most often, and nothing is moved then. Zero above leaves.
    start: u8,
    /// After the last entry.
    end: u8,
    pub(super) leaf: bool,
}

impl<K: Copy, S: Copy> Page<K, S> {
    /// An empty page; key and summary are arbitrary.
    pub(super) fn new(leaf: bool, key: K, summary: S) -> Self {
        Self {
            keys: [key; FANOUT],
            summaries: [summary; FANOUT],
            links: [NIL; FANOUT],
            parent: NIL,
            previous: NIL,
            next: NIL,
            start: 0,
            end: 0,
            leaf,
        }
    }
    /// Empties the page.
    pub(super) fn restart(&mut self, leaf: bool) {
        (self.parent, self.previous, self.next) = (NIL, NIL, NIL);
        (self.start, self.end, self.leaf) = (0, 0, leaf);
    }
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        usize::from(self.end - self.start)
    }
    #[inline(always)]
    fn range(&self) -> core::ops::Range<usize> {
        // They are never larger: a hint to the compiler.
        let end = usize::from(self.end).min(FANOUT);
        usize::from(self.start).min(end)..end
    }
    #[inline(always)]
    pub(super) fn keys(&self) -> &[K] {
        &self.keys[self.range()]
    }
    #[inline(always)]
    pub(super) fn summaries(&self) -> &[S] {
        &self.summaries[self.range()]
    }
    #[inline(always)]
    pub(super) fn links(&self) -> &[u32] {
        &self.links[self.range()]
    }
    pub(super) fn entry(&self, at: usize) -> (K, S, u32) {
        (self.keys()[at], self.summaries()[at], self.links()[at])
    }
    /// Another key and summary for an entry.
    pub(super) fn set(&mut self, at: usize, key: K, summary: S) {
        let at = usize::from(self.start) + at;
        (self.keys[at], self.summaries[at]) = (key, summary);
    }
    /// Another summary for an entry.
    pub(super) fn set_summary(&mut self, at: usize, summary: S) {
        self.summaries[usize::from(self.start) + at] = summary;
    }
    /// Joins the summary of a page below with another one.
    #[inline(always)]
    pub(super) fn join_summary(&mut self, at: usize, other: S, join: impl Fn(S, S) -> S) {
        self.summaries[at] = join(self.summaries[at], other);
    }
    /// The first node or page.
    #[inline(always)]
    pub(super) fn first(&self) -> u32 {
        self.links[usize::from(self.start) % FANOUT]
    }
    /// The first and the last key; the page must not be empty.
    #[inline(always)]
    pub(super) fn first_key(&self) -> K {
        self.keys[usize::from(self.start) % FANOUT]
    }
    #[inline(always)]
    pub(super) fn last_key(&self) -> K {
        self.keys[usize::from(self.end - 1) % FANOUT]
    }
    /// The last node or page.
    pub(super) fn last(&self) -> u32 {
        self.links[usize::from(self.end - 1) % FANOUT]
    }
    /// The summary of all entries; the page must not be empty.
    pub(super) fn summary(&self, join: impl Fn(S, S) -> S) -> S {
        let summaries = self.summaries();
        summaries[1..].iter().fold(summaries[0], |sum, one| join(sum, *one))
    }
    /// The index of an entry.
    #[inline(always)]
    pub(super) fn position_of(&self, link: u32) -> usize {
        if self.first() == link { 0 } else { self.position_after_first(link) }
    }
    fn position_after_first(&self, link: u32) -> usize {
        // One bit per entry, computed without branches; the valid one precedes stale ones.
        let bits = (0..FANOUT).fold(0, |bits, i| bits | (u32::from(self.links[i] == link) << i));
        bits.trailing_zeros() as usize - usize::from(self.start)
    }
    /// A page below.
    #[inline(always)]
    pub(super) fn child(&self, at: usize) -> u32 {
        self.links[at]
    }
    /// The last page whose bound passes, or the first page if none does.
    pub(super) fn child_where(&self, passes: impl Fn(K) -> bool) -> usize {
        self.keys[1..usize::from(self.end).min(FANOUT)].partition_point(|bound| passes(*bound))
    }
    /// Adds an entry at the end, if there is room.
    #[inline(always)]
    pub(super) fn push(&mut self, (key, summary, link): (K, S, u32)) -> bool {
        if usize::from(self.end) >= FANOUT {
            if self.start == 0 {
                return false;
            }
            self.move_to_start();
        }
        let end = usize::from(self.end) % FANOUT;
        (self.keys[end], self.summaries[end], self.links[end]) = (key, summary, link);
        self.end += 1;
        true
    }
    pub(super) fn insert(&mut self, at: usize, entry: (K, S, u32)) {
        if usize::from(self.end) == FANOUT {
            self.move_to_start();
        }
        let (at, end) = (usize::from(self.start) + at, usize::from(self.end));
        if at < end {
            self.keys.copy_within(at..end, at + 1);
            self.summaries.copy_within(at..end, at + 1);
            self.links.copy_within(at..end, at + 1);
        }
        (self.keys[at], self.summaries[at], self.links[at]) = entry;
        self.end += 1;
    }
    fn move_to_start(&mut self) {
        let range = self.range();
        self.keys.copy_within(range.clone(), 0);
        self.summaries.copy_within(range.clone(), 0);
        self.links.copy_within(range, 0);
        (self.start, self.end) = (0, self.end - self.start);
    }
    #[inline(always)]
    pub(super) fn remove(&mut self, at: usize) {
        let first = usize::from(self.start) % FANOUT;
        // A leaf that is followed by none is soon added to, and needs its room.
        if at == 0 && self.leaf && self.next != NIL {
            self.links[first] = NIL;
            self.start += 1;
        } else {
            self.remove_within(first + at);
        }
    }
    fn remove_within(&mut self, at: usize) {
        let end = usize::from(self.end).min(FANOUT);
        self.keys.copy_within(at + 1..end, at);
        self.summaries.copy_within(at + 1..end, at);
        self.links.copy_within(at + 1..end, at);
        self.end -= 1;
    }
    pub(super) fn truncate(&mut self, len: usize) {
        self.end = self.start + len as u8;
    }
}
