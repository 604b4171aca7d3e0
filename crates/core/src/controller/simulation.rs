//! What the kernel around the engine would do, for a simulator that imitates it: whether a process that sends requests would
//! sleep, and whether a completion would make the driver ask for the next command.
//!
//! Other owners have no use for it: they call [`Controller::dispatch`] after every completion, and ask
//! [`Controller::has_room`] before they submit. Hence the feature `simulation`, which changes nothing else.

#[cfg(feature = "simulation")]
use super::Controller;
#[cfg(feature = "simulation")]
use alloc::vec::Vec;

use crate::id::ClientId;

/// What the completions need; nothing, without the feature.
#[derive(Debug)]
pub(super) struct Kernel {
    /// By throttle and client: requests that it holds.
    #[cfg(feature = "simulation")]
    held: Vec<Vec<u32>>,
    /// Is there something to dispatch after the last completed command that its scheduler does not know of: a flush that
    /// entered the stack, or room that a command of an earlier stack left?
    #[cfg(feature = "simulation")]
    calls_dispatch: bool,
}

#[cfg(feature = "simulation")]
impl Kernel {
    pub(super) fn new(throttles: usize, clients: usize) -> Self {
        Self { held: alloc::vec![alloc::vec![0; clients]; throttles], calls_dispatch: false }
    }
    /// There is a new client; all are below this.
    pub(super) fn resize(&mut self, clients: usize) {
        self.held.iter_mut().for_each(|held| held.resize(clients, 0));
    }
    /// A throttle got a request of this client.
    pub(super) fn holds(&mut self, stage: usize, client: ClientId) {
        self.held[stage][client.index()] += 1;
    }
    /// A throttle passed a request of this client on.
    pub(super) fn lets_go(&mut self, stage: usize, client: ClientId) {
        self.held[stage][client.index()] -= 1;
    }
    /// A command was completed; was it of an earlier stack?
    pub(super) fn on_complete(&mut self, is_orphan: bool) {
        self.calls_dispatch = is_orphan;
    }
    /// A flush enters the stack.
    pub(super) fn on_flush(&mut self) {
        self.calls_dispatch = true;
    }
}

#[cfg(not(feature = "simulation"))]
impl Kernel {
    pub(super) fn new(_throttles: usize, _clients: usize) -> Self {
        Self {}
    }
    pub(super) fn resize(&mut self, _clients: usize) {}
    pub(super) fn holds(&mut self, _stage: usize, _client: ClientId) {}
    pub(super) fn lets_go(&mut self, _stage: usize, _client: ClientId) {}
    pub(super) fn on_complete(&mut self, _is_orphan: bool) {}
    pub(super) fn on_flush(&mut self) {}
}

#[cfg(feature = "simulation")]
impl Controller {
    /// Would the kernel make the process sleep that sends in this client's name: waiting for a tag, or in a throttle? False
    /// for an unknown client.
    pub fn is_asleep(&self, client: ClientId) -> bool {
        if self.groups.try_client(client).is_none() {
            return false;
        }
        let mut throttles = self.throttles.iter().zip(&self.kernel.held);
        let sleeps =
            |(it, held): (&alloc::boxed::Box<dyn crate::policy::Policy + Send>, &Vec<u32>)| {
                held[client.index()] > 0 && !it.has_worker(client)
            };
        self.tags.is_asleep(client) || throttles.any(sleeps)
    }

    /// Right after [`Self::complete`] of a command other than a flush: would the kernel dispatch now even though its driver
    /// does not run the queue after each completion? It does if the scheduler schedules it, if the drive was full, or if
    /// a request comes from elsewhere: from a throttle, from a process that waited for a tag, or a flush.
    pub fn schedules_dispatch(&self) -> bool {
        let was_full = self.in_flight + 1 >= self.setup.facts.depth;
        let comes =
            !self.throttles.is_empty() || self.tags.has_waiters() || self.flushes.is_ready();
        let comes = comes || self.kernel.calls_dispatch;
        was_full || comes || self.scheduler.schedules_dispatch()
    }
}
