//! Bounded numbers of connections, in total and per caller.
//!
//! Each kind of caller has its own pool, so callers over TCP cannot use up the places of the Unix socket, and callers
//! who may only read cannot use up the places of those who may make changes. A connection that waits for its caller, to send
//! a request or to take a response, gives way to a new one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

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
    by: BTreeMap<Key, usize>,
    /// Places by number: the caller, and how to end its connection.
    places: BTreeMap<u64, (Key, Arc<Notify>)>,
    /// Those whose connection waits for its caller, longest first: the number in this order, and that of the place.
    idle: BTreeMap<u64, u64>,
    next: u64,
}

impl Taken {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
    fn remove(&mut self, place: u64) -> Option<Arc<Notify>> {
        let (key, cut) = self.places.remove(&place)?;
        let own = self.by.get_mut(&key).expect("it was counted when it was taken");
        *own -= 1;
        if *own == 0 {
            self.by.remove(&key);
        }
        self.idle.retain(|_, idle| *idle != place);
        Some(cut)
    }
    /// Ends the connection that waits for its caller for the longest time: one of this caller, or of one that has more places.
    fn make_room(&mut self, key: &Key, own_only: bool) -> bool {
        let own = self.by.get(key).copied().unwrap_or(0);
        let of = |place: &u64| &self.places[place].0;
        let mine = self.idle.values().copied().find(|place| of(place) == key);
        let theirs = || self.idle.values().copied().find(|place| self.by[of(place)] > own + 1);
        let Some(place) = mine.or_else(|| if own_only { None } else { theirs() }) else {
            return false;
        };
        self.remove(place).expect("idle places are taken").notify_one();
        true
    }
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    place: u64,
    cut: Arc<Notify>,
    has_begun: AtomicBool,
}

impl Slots {
    pub(super) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_one, taken: Mutex::default() })
    }
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A place for this caller, if there is one, or one whose connection waits for its caller. It waits, too, at first.
    pub(super) fn try_take(self: &Arc<Self>, key: Key) -> Option<Slot> {
        let mut taken = self.taken();
        let own = taken.by.get(&key).copied().unwrap_or(0);
        if own >= self.most_of_one && !taken.make_room(&key, true) {
            return None;
        }
        if taken.places.len() >= self.most && !taken.make_room(&key, false) {
            return None;
        }
        let (place, cut) = (taken.number(), Arc::new(Notify::new()));
        *taken.by.entry(key.clone()).or_default() += 1;
        taken.places.insert(place, (key, cut.clone()));
        taken.idle.insert(place, place);
        Some(Slot { slots: self.clone(), place, cut, has_begun: AtomicBool::new(false) })
    }
}

impl Slot {
    /// The call is being carried out, and its slot is not given away meanwhile.
    pub(super) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        let place = self.place;
        self.slots.taken().idle.retain(|_, idle| *idle != place);
    }
    /// The connection waits for the caller again.
    pub(super) fn end(&self) {
        let mut taken = self.slots.taken();
        let number = taken.number();
        if taken.places.contains_key(&self.place) {
            taken.idle.insert(number, self.place);
        }
    }
    /// Whether the caller has asked for something.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
    /// Waits until the place is given to another connection.
    pub(super) async fn is_cut(&self) {
        self.cut.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken().remove(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a pool ends for one caller and for all, and places come back. Method: a pool of three, two of one, all of which are
    /// busy.
    #[test]
    fn a_pool_is_bounded() {
        let slots = Slots::new(3, 2);
        let take = |uid| slots.try_take(Key::User(uid)).inspect(Slot::begin);
        let (first, second) = (take(1), take(1));
        assert!(first.is_some() && second.is_some() && take(1).is_none());
        let third = take(2);
        assert!(third.is_some() && take(3).is_none());
        drop(first);
        assert!(take(1).is_some());
        drop((second, third));
        assert!(slots.taken.lock().unwrap().by.is_empty(), "who has gone is forgotten");
    }

    /// Goal: what waits for its caller gives way: the oldest of the same caller, or of one that has more, and nothing that is busy.
    /// Method: a pool of four, three of one.
    #[test]
    fn idle_places_give_way() {
        let slots = Slots::new(4, 3);
        let take = |uid| slots.try_take(Key::User(uid)).unwrap();
        let is_taken = |slot: &Slot| slots.taken().places.contains_key(&slot.place);
        let (busy, first, second) = (take(1), take(1), take(1));
        busy.begin();
        let third = take(1);
        assert!(is_taken(&busy) && !is_taken(&first) && is_taken(&second));
        let other = take(2);
        other.begin();
        let more = take(2);
        assert!(!is_taken(&second) && is_taken(&third) && is_taken(&other), "of the one with most");
        let again = take(3);
        assert!(is_taken(&busy) && is_taken(&other) && is_taken(&again));
        [&third, &more, &again].into_iter().for_each(Slot::begin);
        assert!(slots.try_take(Key::User(4)).is_none(), "all are busy");
        other.end();
        assert!(slots.try_take(Key::User(2)).is_some() && !is_taken(&other));
    }
}
