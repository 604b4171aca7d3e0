//! Calls that are submitted and completed in groups: fio's `iodepth_batch` and the options like it.

use crate::scenario::Batches;

/// The groups of a process.
#[derive(Debug)]
pub(super) struct Groups {
    setup: Batches,
    /// Slots whose processor time before the request is not over.
    pub(super) starting: u32,
    /// Slots that are ready to be sent.
    ready: Vec<u32>,
    /// Slots whose calls are complete.
    done: Vec<u32>,
}

impl Groups {
    pub(super) fn new(setup: Batches) -> Self {
        Self { setup, starting: 0, ready: Vec::new(), done: Vec::new() }
    }
    /// A slot is ready: the slots to be sent now.
    pub(super) fn add(&mut self, slot: u32) -> Vec<u32> {
        self.starting -= 1;
        self.ready.push(slot);
        let whole = self.ready.len() >= self.setup.submit as usize || self.starting == 0;
        if whole { std::mem::take(&mut self.ready) } else { Vec::new() }
    }
    /// A slot's call is complete, and this many are not: the slots that go on now.
    pub(super) fn end(&mut self, slot: u32, active: u32) -> Vec<u32> {
        self.done.push(slot);
        let whole = self.done.len() >= self.setup.complete as usize || active == 0;
        if whole { std::mem::take(&mut self.done) } else { Vec::new() }
    }
}
