//! When the next command can complete at the earliest. A large read has an event for each of its pages, and an owner in real time
//! would wake up for all of them.

use iofair_core::request::Operation;
use iofair_core::time::Instant;

use super::slots::{Held, Slot};
use super::{Crossing, Duplex, Link, Ssd};

impl Ssd {
    /// The bound, if the next event is at `next` and nothing completed waits to be handed out. What a command has not sent over its
    /// link still has to cross it.
    pub(super) fn no_completion_before(&self, next: u64) -> Instant {
        let timer = self.timers.peek().map(|timer| timer.0.0);
        let all = self.slots.held().map(|(slot, held)| self.ends_after(next, slot, held));
        Instant(all.chain(timer).min().unwrap_or(next).max(next))
    }
    fn ends_after(&self, next: u64, slot: Slot, held: &Held) -> u64 {
        let link = match (held.operation, self.parameters.duplex) {
            (Operation::Read, _) | (Operation::Write, Duplex::Half) => &self.link,
            (Operation::Write, Duplex::Full) => &self.write_link,
            _ => return next,
        };
        if held.end > self.parameters.capacity {
            return next;
        }
        let page = self.reads.page();
        // Pages cross in order, and only the first and the last may be partial.
        let crossed = match held.crossed {
            0 => 0,
            count => held.page_bytes(0, page) + u64::from(count - 1) * page.bytes,
        };
        let left = held.bytes().saturating_sub(crossed);
        // A read of which no page was sent to its unit sends one at an event.
        let unread = held.operation == Operation::Read && held.sent == 0 && left > 0;
        if unread {
            return next + self.flash.read_least() + self.link_time(left);
        }
        let Link { crossing, free_at } = *link;
        match crossing {
            Some(Crossing::Write(other)) if other == slot => free_at,
            Some(Crossing::Page(other)) if other == slot => {
                let crosses = held.page_bytes(held.crossed, page);
                free_at + self.link_time(left.saturating_sub(crosses))
            }
            Some(_) => free_at + self.link_time(left),
            None => next + self.link_time(left),
        }
    }
}
