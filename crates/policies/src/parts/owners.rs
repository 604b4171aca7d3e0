//! Which queue each request is in, by the request's slot. The schedulers with a queue for each client find at the completion of a
//! request the queue that it was dispatched from.

use alloc::vec::Vec;

use iofair_core::id::RequestId;

/// The queue of each request.
#[derive(Debug)]
pub struct Owners<Q>(Vec<Q>);

impl<Q: Copy> Owners<Q> {
    /// No request has a queue.
    pub const fn new() -> Self {
        Self(Vec::new())
    }
    /// Notes the queue of a request; that of an earlier request with the same id is forgotten.
    pub fn set(&mut self, request: RequestId, queue: Q) {
        let index = request.0 as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, queue);
        }
        self.0[index] = queue;
    }
    /// The queue of a request.
    ///
    /// # Panics
    ///
    /// If no queue was noted.
    pub fn queue(&self, request: RequestId) -> Q {
        self.0[request.0 as usize]
    }
}

impl<Q: Copy> Default for Owners<Q> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the last queue of an id counts. Method: ids with gaps, one reused.
    #[test]
    fn the_last_queue_counts() {
        let mut owners = Owners::new();
        owners.set(RequestId(5), 'a');
        owners.set(RequestId(2), 'b');
        owners.set(RequestId(5), 'c');
        assert_eq!((owners.queue(RequestId(5)), owners.queue(RequestId(2))), ('c', 'b'));
    }
}
