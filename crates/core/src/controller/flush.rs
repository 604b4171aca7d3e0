//! Flushes: each waits for its own client's earlier writes, and all that wait share the next one.
//!
//! A flush covers the writes that its client submitted before it. They may sit anywhere in the stack,
//! so the flush is held until they are answered; writes submitted after it may pass. Flushes that are
//! ready while another runs go out together as one command (the kernel's blk-flush does the same).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::group::ClientId;
use crate::parts::fifo::Fifo;
use crate::request::{RequestId, Requests};

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

/// All flushes on their way.
#[derive(Default, Debug)]
pub(super) struct Flushes {
    clients: Vec<Covered>,
    ready: Fifo,
    running: Fifo,
}

impl Flushes {
    fn client(&mut self, id: ClientId) -> &mut Covered {
        if id.index() >= self.clients.len() {
            self.clients.resize_with(id.index() + 1, Covered::default);
        }
        &mut self.clients[id.index()]
    }
    /// A write was submitted: the epoch to give back with [`Self::write_done`].
    pub(super) fn write_submitted(&mut self, client: ClientId) -> u32 {
        let covered = self.client(client);
        covered.open += 1;
        covered.first_epoch.wrapping_add(covered.closed.len() as u32)
    }
    /// A write of this epoch was answered; call [`Self::release`] after.
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
    /// Makes the client's flushes ready whose writes are all answered.
    pub(super) fn release(&mut self, requests: &mut Requests, client: ClientId) {
        let covered = &mut self.clients[client.index()];
        while covered.closed.front().is_some_and(|epoch| epoch.writes == 0) {
            let epoch = covered.closed.pop_front().expect("just looked at");
            covered.first_epoch = covered.first_epoch.wrapping_add(1);
            self.ready.push_back(requests, epoch.flush);
        }
    }
    /// The command to send for all flushes that are ready, unless one runs already.
    pub(super) fn dispatch(&mut self) -> Option<RequestId> {
        if !self.running.is_empty() || self.ready.is_empty() {
            return None;
        }
        self.running = core::mem::take(&mut self.ready);
        self.running.front()
    }
    /// The running command was answered: the next of the flushes that it stands for.
    pub(super) fn pop_done(&mut self, requests: &mut Requests) -> Option<RequestId> {
        self.running.pop_front(requests)
    }
    /// Has this client no write and no flush on the way?
    pub(super) fn is_idle(&self, client: ClientId) -> bool {
        self.clients.get(client.index()).is_none_or(|c| c.open == 0 && c.closed.is_empty())
    }
}
