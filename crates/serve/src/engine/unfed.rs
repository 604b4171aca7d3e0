//! Requests whose next piece has no slot yet.

use std::collections::VecDeque;

/// Requests that wait for a slot for their next piece.
#[derive(Debug, Default)]
pub(super) struct Unfed {
    /// By volume.
    pub(super) requests: Vec<VecDeque<usize>>,
    /// Volumes that have some, the next in turn first.
    pub(super) volumes: VecDeque<usize>,
}

impl Unfed {
    /// Whether a request of this volume waits.
    pub(super) fn waits(&self, volume: usize) -> bool {
        self.requests.get(volume).is_some_and(|requests| !requests.is_empty())
    }
    /// Removes a cancelled request, if it waits.
    pub(super) fn remove(&mut self, volume: usize, key: usize) {
        if let Some(requests) = self.requests.get_mut(volume) {
            requests.retain(|other| *other != key);
            if requests.is_empty() {
                self.volumes.retain(|other| *other != volume);
            }
        }
    }
    pub(super) fn push(&mut self, volume: usize, key: usize) {
        if volume >= self.requests.len() {
            self.requests.resize_with(volume + 1, VecDeque::new);
        }
        let requests = &mut self.requests[volume];
        if requests.is_empty() {
            self.volumes.push_back(volume);
        }
        requests.push_back(key);
    }
}
