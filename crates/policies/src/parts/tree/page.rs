//! A page of a tree: entries in order of their keys, in arrays that are searched without a guess.

use super::NIL;

/// Entries of a page.
pub(super) const FANOUT: usize = 16;

/// A leaf leads to nodes, any other page to pages of the level below. What lies beyond `len` is old.
#[derive(Debug)]
pub(super) struct Page<K, S> {
    /// In a leaf the nodes' keys. Above, a bound for each page below: its keys are not below the bound,
    /// and those of the pages before it not above. The first bound is never looked at: there is none.
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
    /// An empty page; the key and the summary may be any.
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
    /// Makes it an empty page again.
    pub(super) fn restart(&mut self, leaf: bool) {
        (self.parent, self.previous, self.next) = (NIL, NIL, NIL);
        (self.len, self.leaf) = (0, leaf);
    }
    pub(super) fn len(&self) -> usize {
        // Never more; says so to the compiler.
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
    /// The last node or page below.
    pub(super) fn last(&self) -> u32 {
        self.links[self.len() - 1]
    }
    /// Summary of all entries; there must be one.
    pub(super) fn summary(&self, join: impl Fn(S, S) -> S) -> S {
        self.summaries[1..self.len()].iter().fold(self.summaries[0], |sum, one| join(sum, *one))
    }
    /// Where a node or page is that is here.
    pub(super) fn position_of(&self, link: u32) -> usize {
        // A bit for each, all at once and without a guess; the valid one comes before old ones.
        let bits = (0..FANOUT).fold(0, |bits, i| bits | (u32::from(self.links[i] == link) << i));
        bits.trailing_zeros() as usize
    }
    /// The last page below whose bound passes, the first one if none does.
    pub(super) fn child_where(&self, passes: impl Fn(K) -> bool) -> usize {
        self.keys[1..self.len()].partition_point(|bound| passes(*bound))
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
