//! A page of a tree: entries in key order, in arrays that are searched without branches.

use super::NIL;

/// Number of entries in a page.
pub(super) const FANOUT: usize = 16;

/// A leaf page contains nodes, any other page contains pages of the level below. Entries beyond `len` are stale.
#[derive(Debug)]
pub(super) struct Page<K, S> {
    /// In a leaf: the keys of the nodes. Above: a lower bound for each page below, which is also an upper bound for
    /// the previous pages. The first bound is never used.
    pub(super) keys: [K; FANOUT],
    pub(super) summaries: [S; FANOUT],
    pub(super) links: [u32; FANOUT],
    pub(super) parent: u32,
    /// Neighbours on the same level.
    pub(super) previous: u32,
    pub(super) next: u32,
    len: u16,
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
            len: 0,
            leaf,
        }
    }
    /// Empties the page.
    pub(super) fn restart(&mut self, leaf: bool) {
        (self.parent, self.previous, self.next) = (NIL, NIL, NIL);
        (self.len, self.leaf) = (0, leaf);
    }
    pub(super) fn len(&self) -> usize {
        // `len` is never larger; this tells the compiler.
        usize::from(self.len).min(FANOUT)
    }
    pub(super) fn keys(&self) -> &[K] {
        &self.keys[..self.len()]
    }
    pub(super) fn summaries(&self) -> &[S] {
        &self.summaries[..self.len()]
    }
    pub(super) fn entry(&self, at: usize) -> (K, S, u32) {
        (self.keys[at], self.summaries[at], self.links[at])
    }
    /// The last node or page.
    pub(super) fn last(&self) -> u32 {
        self.links[self.len() - 1]
    }
    /// The summary of all entries; the page must not be empty.
    pub(super) fn summary(&self, join: impl Fn(S, S) -> S) -> S {
        self.summaries[1..self.len()].iter().fold(self.summaries[0], |sum, one| join(sum, *one))
    }
    /// The index of an entry.
    pub(super) fn position_of(&self, link: u32) -> usize {
        // The first entry leaves most often.
        if self.links[0] == link {
            return 0;
        }
        // One byte per entry, computed without branches; the valid one precedes stale ones.
        let bytes = core::array::from_fn(|i| u8::from(self.links[i] == link));
        u128::from_le_bytes(bytes).trailing_zeros() as usize / 8
    }
    /// The last page whose bound passes, or the first page if none does.
    pub(super) fn child_where(&self, passes: impl Fn(K) -> bool) -> usize {
        self.keys[1..self.len()].partition_point(|bound| passes(*bound))
    }
    /// Adds an entry at the end, if there is room.
    pub(super) fn push(&mut self, (key, summary, link): (K, S, u32)) -> bool {
        let len = self.len();
        if len == FANOUT {
            return false;
        }
        (self.keys[len], self.summaries[len], self.links[len]) = (key, summary, link);
        self.len += 1;
        true
    }
    pub(super) fn insert(&mut self, at: usize, (key, summary, link): (K, S, u32)) {
        let len = self.len();
        self.keys.copy_within(at..len, at + 1);
        self.summaries.copy_within(at..len, at + 1);
        self.links.copy_within(at..len, at + 1);
        (self.keys[at], self.summaries[at], self.links[at]) = (key, summary, link);
        self.len += 1;
    }
    pub(super) fn remove(&mut self, at: usize) {
        let len = self.len();
        self.keys.copy_within(at + 1..len, at);
        self.summaries.copy_within(at + 1..len, at);
        self.links.copy_within(at + 1..len, at);
        self.len -= 1;
    }
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = len as u16;
    }
}
