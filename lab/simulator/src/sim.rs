//! Virtual time: a clock that jumps from event to event, and the queue of what is to come.
//!
//! Events of one instant happen in the order in which they were asked for, so a run depends on nothing
//! but its scenario.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

/// The target of a wake-up: an actor's number, and a number that the actor chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Token {
    /// The actor.
    pub actor: u32,
    /// Number that the actor chose.
    pub slot: u32,
}

impl Token {
    /// As the tag of a request.
    pub fn pack(self) -> u64 {
        u64::from(self.actor) << 32 | u64::from(self.slot)
    }
    /// From the tag of a request.
    pub fn unpack(tag: u64) -> Self {
        Self { actor: (tag >> 32) as u32, slot: tag as u32 }
    }
}

/// A completed request, for its actor.
#[derive(Clone, Copy, Debug)]
pub struct ActorCompletion {
    /// Whose.
    pub token: Token,
    /// How much of its request it is.
    pub length: Sectors,
}

/// Timers, earliest first; equal ones in the order of their setting.
#[derive(Default, Debug)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u64, Token)>>,
    sequence: u64,
}

impl Timers {
    /// None set.
    pub(crate) fn new() -> Self {
        Self::default()
    }
    /// Sets one. It cannot be taken back; actors ignore what no longer concerns them.
    pub(crate) fn set(&mut self, at: Instant, token: Token) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, token)));
    }
    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }
    /// Takes out the next one that is due by `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Token> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((.., token))| token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: time first, then order of setting; nothing before it is due. Method: five timers.
    #[test]
    fn timers_come_by_time_then_by_order() {
        let mut timers = Timers::new();
        for (at, actor) in [(20, 0), (10, 1), (20, 2), (10, 3), (30, 4)] {
            timers.set(Instant(at), Token { actor, slot: 7 });
        }
        assert_eq!(timers.pop_due(Instant(9)), None);
        let mut order = Vec::new();
        while let Some(token) = timers.pop_due(Instant(20)) {
            order.push(token.actor);
        }
        assert_eq!(order, [1, 3, 0, 2]);
        assert_eq!(timers.next(), Some(Instant(30)));
    }

    /// Goal: a token survives its trip through a request's tag. Method: extremes.
    #[test]
    fn tokens_survive_tags() {
        for token in [Token { actor: 0, slot: u32::MAX }, Token { actor: u32::MAX, slot: 1 }] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
