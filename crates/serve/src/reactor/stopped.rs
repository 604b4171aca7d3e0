//! Time in which the server itself does not run: SIGSTOP, a virtual machine that is paused. It is nobody's fault, so it moves
//! the deadlines of clients that have not chosen a volume, and that of a drain.

use iofair_core::time::{Instant, Nanos};

use super::Reactor;
use super::ring::Wait;

/// A turn that takes longer, or comes later, is no matter of a busy machine.
const STOP_MIN: Nanos = Nanos::from_millis(500);

impl Reactor {
    /// Moves deadlines if the turn that begins comes long after the one before it and this wait.
    pub(super) fn forgive_stop(&mut self, now: Instant, wait: Wait) {
        let stopped = now.since(std::mem::replace(&mut self.turned, now));
        let wanted = match wait {
            // Nothing has a deadline.
            Wait::Forever => return,
            Wait::Poll => Nanos::ZERO,
            Wait::For(rest) => rest,
        };
        if stopped < wanted + STOP_MIN {
            return;
        }
        for (_, slot) in &mut self.endpoints {
            if slot.handshake.is_some() {
                slot.endpoint.forgive(stopped);
            }
        }
        self.handshakes.deferred.forgive(stopped);
        self.handshakes.next = self.handshakes.next.map(|next| next + stopped);
        self.draining = self.draining.map(|until| until + stopped);
    }
}
