//! Something that one thread at a time has for as long as it needs, while others wait for it for a limited time.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A lock's content, even if a thread died with it: all that is in these is whole at any time.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thing, unless a thread has it.
#[derive(Debug)]
pub(super) struct Turns<T> {
    free: Mutex<Option<T>>,
    given_back: Condvar,
}

/// The thing, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a, T> {
    turns: &'a Turns<T>,
    /// Until it is given back.
    thing: Option<T>,
}

impl<T> Turns<T> {
    pub(super) fn new(thing: T) -> Self {
        Self { free: Mutex::new(Some(thing)), given_back: Condvar::new() }
    }
    fn free(&self) -> MutexGuard<'_, Option<T>> {
        lock(&self.free)
    }
    /// Waits for it, at most this long.
    pub(super) fn take(&self, limit: Duration) -> Option<Turn<'_, T>> {
        let free = self.free();
        let waited = self.given_back.wait_timeout_while(free, limit, |free| free.is_none());
        let thing = waited.unwrap_or_else(PoisonError::into_inner).0.take();
        thing.map(|thing| Turn { turns: self, thing: Some(thing) })
    }
    /// Whether a thread has it.
    pub(super) fn is_taken(&self) -> bool {
        self.free().is_none()
    }
    /// Waits for it, however long.
    pub(super) fn wait(&self) -> Turn<'_, T> {
        let free = self.given_back.wait_while(self.free(), |free| free.is_none());
        let thing = free.unwrap_or_else(PoisonError::into_inner).take();
        Turn { turns: self, thing }
    }
}

const HERE: &str = "it is given back when this is dropped";

impl<T> Deref for Turn<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.thing.as_ref().expect(HERE)
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect(HERE)
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        *self.turns.free() = self.thing.take();
        self.turns.given_back.notify_one();
    }
}
