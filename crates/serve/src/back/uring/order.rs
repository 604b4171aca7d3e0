//! The order of conflicting commands: unaligned commands go through the page cache, and must not overlap direct I/O
//! on the same pages, or a stale page could be written over new data.
//!
//! Without unaligned commands, this costs one push and one removal per command.

use std::collections::VecDeque;

/// Pages of the page cache.
const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug)]
struct Claim {
    slot: usize,
    first: u64,
    last: u64,
    alone: bool,
}

impl Claim {
    fn collides(&self, other: &Self) -> bool {
        (self.alone || other.alone) && self.first <= other.last && other.first <= self.last
    }
}

/// Commands with a range, running and waiting.
#[derive(Debug, Default)]
pub(super) struct Order {
    running: Vec<Claim>,
    waiting: VecDeque<Claim>,
    /// Claims that must be alone on their pages, running or waiting.
    alone: usize,
}

impl Order {
    /// Whether the command in this slot may begin now. If not, [`Self::finish`] will name it.
    pub(super) fn start(&mut self, slot: usize, offset: u64, length: u64, alone: bool) -> bool {
        let last = (offset + length - 1) / PAGE;
        let claim = Claim { slot, first: offset / PAGE, last, alone };
        self.alone += usize::from(alone);
        let free = self.alone == 0
            || !self.running.iter().chain(&self.waiting).any(|other| claim.collides(other));
        if free {
            self.running.push(claim);
        } else {
            self.waiting.push_back(claim);
        }
        free
    }
    /// The command in this slot is over: the commands that may begin now.
    pub(super) fn finish(&mut self, slot: usize) -> Vec<usize> {
        let mut begun = Vec::new();
        let Some(index) = self.running.iter().position(|claim| claim.slot == slot) else {
            return begun;
        };
        self.alone -= usize::from(self.running.swap_remove(index).alone);
        let mut next = 0;
        while let Some(claim) = self.waiting.get(next).copied() {
            let earlier = self.waiting.iter().take(next);
            if self.running.iter().chain(earlier).any(|other| claim.collides(other)) {
                next += 1;
                continue;
            }
            self.waiting.remove(next);
            self.running.push(claim);
            begun.push(claim.slot);
        }
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: direct commands never wait for each other, unaligned ones are alone on their pages, and
    /// the order of those that collide is kept. Method: a small scene.
    #[test]
    fn unaligned_commands_are_alone_on_their_pages() {
        let mut order = Order::default();
        assert!(order.start(0, 0, 8192, false));
        assert!(order.start(1, 4096, 4096, false), "direct beside direct");
        assert!(!order.start(2, 5000, 10, true), "waits for both");
        assert!(!order.start(3, 4096, 4096, false), "waits for the unaligned one");
        assert!(order.start(4, 8192, 4096, false), "other pages");
        assert_eq!(order.finish(0), [0usize; 0]);
        assert_eq!(order.finish(1), [2usize]);
        assert_eq!(order.finish(4), [0usize; 0]);
        assert_eq!(order.finish(2), [3usize]);
        assert_eq!(order.finish(3), [0usize; 0]);
        assert_eq!((order.running.len(), order.alone), (0, 0));
    }
}
