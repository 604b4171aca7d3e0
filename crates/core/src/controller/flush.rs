//! Flushes: each waits for its own client's earlier writes, and all that wait share the next one.
//!
//! A flush covers the writes that its client submitted before it. They may sit anywhere in the stack,
//! so the flush is held until they are completed; writes submitted after it may pass. Flushes that are
//! ready while another runs go out together as one command (the kernel's blk-flush does the same). Where
//! each client has a drive of its own beneath it (a file a volume), only its own flushes go together, and
//! those of different clients run side by side.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::id::{ClientId, RequestId};
use crate::parts::fifo::Fifo;
use crate::request::Requests;
use crate::time::Instant;

/// What flushes pass on their path to the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FlushRule {
    /// Nothing: they go as soon as the writes that they cover are completed, and cost nothing.
    Bypass,
    /// Throttles and scheduler, at a measured cost.
    Scheduled,
}

/// One client's writes between two of its flushes.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    writes: u32,
    /// The flush that ends the epoch.
    flush: RequestId,
}

#[derive(Default, Debug)]
struct Covered {
    /// Closed epochs, oldest first; `first_epoch` is the number of the front one.
    closed: VecDeque<Epoch>,
    first_epoch: u32,
    /// Writes since the last flush.
    open: u32,
}

/// Flushes that go out together: those of all clients, or of one.
#[derive(Default, Debug)]
struct Shared {
    ready: Fifo,
    running: Fifo,
}

/// All flushes on their way.
#[derive(Default, Debug)]
pub(super) struct Flushes {
    clients: Vec<Covered>,
    shared: Vec<Shared>,
    /// Those of `shared` that are ready and do not run.
    turns: VecDeque<usize>,
    /// Flushes without writes to wait for, that have the stack before them.
    freed: Fifo,
    scheduled: bool,
    /// Does each client share with nobody?
    separate: bool,
}

impl Flushes {
    pub(super) fn new(rule: FlushRule) -> Self {
        Self { scheduled: rule == FlushRule::Scheduled, ..Self::default() }
    }
    /// From now on a client's flush covers what this client wrote and nothing else.
    pub(super) fn separate(&mut self) {
        assert!(self.clients.is_empty(), "requests came already");
        self.separate = true;
    }
    fn client(&mut self, id: ClientId) -> &mut Covered {
        if id.index() >= self.clients.len() {
            self.clients.resize_with(id.index() + 1, Covered::default);
        }
        &mut self.clients[id.index()]
    }
    /// Whom a client shares its flushes with.
    fn shared(&mut self, client: ClientId) -> (usize, &mut Shared) {
        let index = if self.separate { client.index() } else { 0 };
        if index >= self.shared.len() {
            self.shared.resize_with(index + 1, Shared::default);
        }
        (index, &mut self.shared[index])
    }
    /// A write was submitted: the epoch to give back with [`Self::write_done`].
    pub(super) fn write_submitted(&mut self, client: ClientId) -> u32 {
        let covered = self.client(client);
        covered.open += 1;
        covered.first_epoch.wrapping_add(covered.closed.len() as u32)
    }
    /// A write of this epoch was completed; call [`Self::release`] after.
    pub(super) fn write_done(&mut self, client: ClientId, epoch: u32) {
        let covered = self.client(client);
        let index = epoch.wrapping_sub(covered.first_epoch) as usize;
        match covered.closed.get_mut(index) {
            Some(closed) => closed.writes -= 1,
            None => covered.open -= 1,
        }
    }
    /// A flush was submitted.
    pub(super) fn submit(&mut self, requests: &mut Requests, id: RequestId) {
        let client = requests[id].client;
        let covered = self.client(client);
        let writes = core::mem::take(&mut covered.open);
        covered.closed.push_back(Epoch { writes, flush: id });
        self.release(requests, client);
    }
    /// Makes the client's flushes ready whose writes are all completed, or lets them go to the first stage.
    pub(super) fn release(&mut self, requests: &mut Requests, client: ClientId) {
        while let Some(id) = self.next_freed(client) {
            if self.scheduled {
                self.freed.push_back(requests, id);
            } else {
                self.share(requests, id);
            }
        }
    }
    fn next_freed(&mut self, client: ClientId) -> Option<RequestId> {
        let covered = &mut self.clients[client.index()];
        covered.closed.front().filter(|epoch| epoch.writes == 0)?;
        covered.first_epoch = covered.first_epoch.wrapping_add(1);
        covered.closed.pop_front().map(|epoch| epoch.flush)
    }
    /// The next flush that waits for no write and has the stack before it.
    pub(super) fn pop_freed(&mut self, requests: &mut Requests) -> Option<RequestId> {
        self.freed.pop_front(requests)
    }
    /// A flush is ready for the next command.
    pub(super) fn share(&mut self, requests: &mut Requests, id: RequestId) {
        let (index, shared) = self.shared(requests[id].client);
        let waits = shared.ready.is_empty() && shared.running.is_empty();
        shared.ready.push_back(requests, id);
        if waits {
            self.turns.push_back(index);
        }
    }
    /// The command to send for flushes that are ready, unless one runs already.
    pub(super) fn dispatch(&mut self, requests: &mut Requests, now: Instant) -> Option<RequestId> {
        let shared = &mut self.shared[self.turns.pop_front()?];
        shared.running = core::mem::take(&mut shared.ready);
        let mut next = shared.running.front();
        while let Some(id) = next {
            requests[id].dispatched = now;
            next = shared.running.next(requests, id);
        }
        shared.running.front()
    }
    /// Is there a command to send?
    pub(super) fn is_ready(&self) -> bool {
        !self.turns.is_empty()
    }
    /// The running command of this client was completed: the next of the flushes that it stands for. Call
    /// it until it says `None`.
    pub(super) fn pop_done(
        &mut self,
        requests: &mut Requests,
        client: ClientId,
    ) -> Option<RequestId> {
        let (index, shared) = self.shared(client);
        let done = shared.running.pop_front(requests);
        if done.is_none() && !shared.ready.is_empty() {
            self.turns.push_back(index);
        }
        done
    }
}
