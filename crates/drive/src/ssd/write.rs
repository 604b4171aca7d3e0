//! The path of a write: it waits for room in the write cache, crosses the link, and completes. Then flash programs
//! empty the cache.
//!
//! Programs are sent to the units at once, so a full cache is a backlog of programs in front of reads. This is how
//! writes slow down reads.

use std::collections::VecDeque;

use super::Parameters;
use super::flash::Flash;
use super::slots::{Slot, Slots};

#[derive(Debug)]
pub(super) struct WritePath {
    page: u64,
    cache: u64,
    /// Bytes that occupy, or have reserved, room in the cache.
    cached: u64,
    /// Bytes in the cache that do not fill a page yet.
    open: u64,
    /// Commands that wait for room, in order.
    waiting: VecDeque<Slot>,
    /// Commands that have room and wait for the link, in order.
    turns: VecDeque<Slot>,
    /// Programs in progress, by their ends: when each ends, and how many bytes it frees. They are only processed when a
    /// command waits for room, because nothing else depends on them. Units program in turn, so a new one is among the last.
    programs: VecDeque<(u64, u64)>,
    /// When the last program ends.
    programs_end: u64,
}

impl WritePath {
    /// Capacities of its queues, for the test that nothing grows.
    #[cfg(test)]
    pub(super) fn rooms(&self) -> [usize; 3] {
        [self.waiting.capacity(), self.turns.capacity(), self.programs.capacity()]
    }
    pub(super) fn new(parameters: &Parameters) -> Self {
        let depth = parameters.slots as usize;
        let pages = parameters.write_cache / parameters.page + 2;
        Self {
            page: parameters.page,
            cache: parameters.write_cache,
            cached: 0,
            open: 0,
            waiting: VecDeque::with_capacity(depth),
            turns: VecDeque::with_capacity(depth),
            programs: VecDeque::with_capacity(usize::try_from(pages).unwrap_or(depth)),
            programs_end: 0,
        }
    }

    /// Takes a write from the firmware.
    pub(super) fn list(&mut self, slot: Slot) {
        self.waiting.push_back(slot);
    }

    /// Gives room to waiting writes, in order. A write larger than the whole cache gets in when the
    /// cache is empty.
    pub(super) fn admit(&mut self, now: u64, slots: &Slots, flash: &mut Flash) {
        if self.waiting.is_empty() {
            return;
        }
        self.make_room(now, slots, flash);
        flash.is_pressed = !self.waiting.is_empty();
    }
    fn make_room(&mut self, now: u64, slots: &Slots, flash: &mut Flash) {
        self.free_up_to(now);
        while let Some(&slot) = self.waiting.front() {
            let bytes = slots[slot].bytes();
            if self.cached > 0 && self.cached + bytes > self.cache {
                // With nothing but an unfinished page in the cache no program would ever make room.
                if self.cached == self.open {
                    self.program(now, flash, self.open);
                }
                return;
            }
            self.cached += bytes;
            self.waiting.pop_front();
            self.turns.push_back(slot);
        }
    }
    fn free_up_to(&mut self, now: u64) {
        while let Some(&(end, bytes)) = self.programs.front() {
            if end > now {
                return;
            }
            self.programs.pop_front();
            self.cached -= bytes;
        }
    }

    /// When room may appear for somebody who waits for it.
    pub(super) fn next_room(&self) -> Option<u64> {
        if self.waiting.is_empty() {
            return None;
        }
        self.programs.front().map(|&(end, _)| end)
    }

    /// Whether a write waits for the link.
    pub(super) fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }
    /// Takes the write whose turn it is; returns it and its bytes.
    pub(super) fn take_turn(&mut self, slots: &Slots) -> Option<(Slot, u64)> {
        let slot = self.turns.pop_front()?;
        Some((slot, slots[slot].bytes()))
    }

    /// A whole write has crossed the link: programs every page that it fills. A durable one also
    /// programs the rest, padded; then the instant is returned at which all of it is in flash.
    pub(super) fn crossed(
        &mut self,
        now: u64,
        flash: &mut Flash,
        bytes: u64,
        durable: bool,
    ) -> Option<u64> {
        self.open += bytes;
        let mut end = now;
        while self.open >= self.page {
            end = end.max(self.program(now, flash, self.page));
        }
        if !durable {
            return None;
        }
        if self.open > 0 {
            end = end.max(self.program(now, flash, self.open));
        }
        Some(end)
    }
    fn program(&mut self, now: u64, flash: &mut Flash, bytes: u64) -> u64 {
        self.open -= bytes;
        let end = flash.program(now);
        let later = self.programs.iter().rev().take_while(|program| program.0 > end).count();
        self.programs.insert(self.programs.len() - later, (end, bytes));
        self.programs_end = self.programs_end.max(end);
        end
    }

    /// Programs everything cached, the last page padded; returns when the cache is empty. No write
    /// may be in flight.
    pub(super) fn flush(&mut self, now: u64, flash: &mut Flash) -> u64 {
        assert!(self.waiting.is_empty() && self.turns.is_empty(), "a flush overtook a write");
        if self.open > 0 {
            self.program(now, flash, self.open);
        }
        self.programs_end.max(now)
    }
}
