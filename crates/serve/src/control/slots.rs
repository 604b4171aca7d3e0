//! Bounded numbers of connections, in total and per caller.
//!
//! Each kind of caller has its own pool, so callers over TCP cannot use up the places of the Unix socket, and callers
//! who may only read cannot use up the places of those who may make changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::gate::Key;

/// A pool.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: BTreeMap<Key, usize>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    key: Key,
}

impl Slots {
    pub(super) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_one, taken: Mutex::default() })
    }
    /// A place for this caller, if there is one.
    pub(super) fn try_take(self: &Arc<Self>, key: Key) -> Option<Slot> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by.get(&key).copied().unwrap_or(0);
        if taken.all >= self.most || own >= self.most_of_one {
            return None;
        }
        taken.all += 1;
        taken.by.insert(key.clone(), own + 1);
        Some(Slot { slots: self.clone(), key })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        let own = taken.by.get_mut(&self.key).expect("it was counted when it was taken");
        *own -= 1;
        if *own == 0 {
            taken.by.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a pool ends for one caller and for all, and places come back. Method: a pool of three, two of one.
    #[test]
    fn a_pool_is_bounded() {
        let slots = Slots::new(3, 2);
        let take = |uid| slots.try_take(Key::User(uid));
        let (first, second) = (take(1), take(1));
        assert!(first.is_some() && second.is_some() && take(1).is_none());
        let third = take(2);
        assert!(third.is_some() && take(3).is_none());
        drop(first);
        assert!(take(1).is_some());
        drop((second, third));
        assert!(slots.taken.lock().unwrap().by.is_empty(), "who has gone is forgotten");
    }
}
