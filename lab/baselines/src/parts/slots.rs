//! A table of items that are added and removed; each has an index. Allocates nothing unless it holds more items than
//! ever before.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// An index in [`Slots`]; reused after its item is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotId(pub u32);

/// The table.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<T>,
    free: Vec<SlotId>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Adds an item.
    pub fn insert(&mut self, thing: T) -> SlotId {
        if let Some(id) = self.free.pop() {
            self[id] = thing;
            return id;
        }
        self.slots.push(thing);
        SlotId(self.slots.len() as u32 - 1)
    }
    /// Removes an item. Its value stays in memory until the index is reused.
    pub fn remove(&mut self, id: SlotId) {
        debug_assert!(!self.free.contains(&id), "{id:?} is free already");
        self.free.push(id);
    }
}

impl<T> Index<SlotId> for Slots<T> {
    type Output = T;
    fn index(&self, id: SlotId) -> &T {
        &self.slots[id.0 as usize]
    }
}
impl<T> IndexMut<SlotId> for Slots<T> {
    fn index_mut(&mut self, id: SlotId) -> &mut T {
        &mut self.slots[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a place is used again, the one freed last first. Method: three things, two of which go.
    #[test]
    fn slots_are_reused() {
        let mut slots = Slots::default();
        let ids = [10, 20, 30].map(|thing| slots.insert(thing));
        slots.remove(ids[0]);
        slots.remove(ids[2]);
        assert_eq!((slots.insert(40), slots.insert(50)), (ids[2], ids[0]));
        assert_eq!((slots[ids[0]], slots[ids[1]], slots[ids[2]]), (50, 20, 40));
        assert_eq!(slots.insert(60), SlotId(3));
    }
}
