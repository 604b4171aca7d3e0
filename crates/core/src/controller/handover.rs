//! Changing the stack while requests are on their way: nobody waits for the drive, and no request is lost.
//!
//! Requests that wait, wherever they are in the old stack, enter the new one in the order of their submission, as if they
//! came now, also those that were merged: its throttles and scheduler hold them by its own rules from the change on. Commands that the drive has
//! are *orphans*: they keep their tags, their clients get their completions, and the new policies, which never
//! dispatched them, are not told. What is left of a request of which the drive has had a piece goes to the drive
//! as one more piece, before anything else: it was dispatched already. A throttle that both stacks have keeps what it has charged
//! to groups, where it can: otherwise each change would hand out a burst. Flushes that wait for writes are in no stack and
//! go on waiting; those that wait to share the next command were dispatched and share it.
//!
//! The alternative, which the kernel chooses, is to drain the old stack first. Everybody would wait for the slowest
//! request in the drive.

use super::{Controller, Stack};
use crate::id::RequestId;
use crate::time::Instant;

impl Controller {
    /// Changes the stack at once. Requests that wait are handed over to it in the order of their submission; commands in
    /// the drive stay there. Takes time in proportion to the requests pending. Call [`Self::set_tags`] before, if the
    /// new stack has other tags, and [`Self::dispatch`] afterwards.
    pub fn switch(&mut self, now: Instant, stack: Stack) {
        let now = self.present(now);
        let (throttles, scheduler) = stack.build(&self.setup.facts);
        let mut old = core::mem::replace(&mut self.throttles, throttles);
        self.scheduler = scheduler;
        self.throttled.fill(0);
        let before = core::mem::replace(&mut self.stack, stack);
        // Nothing that the old policies decided holds a request now.
        self.trace.forget();
        let (waiting, tags_used) = self.requests.hand_over(&mut self.cut);
        self.tags.start_again(tags_used);
        self.tell_everything(now);
        for (new, stage) in self.throttles.iter_mut().zip(&self.stack.throttles) {
            let same = before.throttles.iter().position(|throttle| throttle.is_same(stage));
            if let Some(old) = same.map(|at| &mut old[at])
                && old.hand_over()
            {
                core::mem::swap(new, old);
            }
        }
        for id in waiting {
            match self.requests[id].is_cancelled() {
                true => self.end_cancelled(now, 0, id),
                false => self.start(now, id),
            }
        }
        self.send_plugged(now);
    }
    /// The rest of a request of which an earlier stack gave a piece to the drive.
    pub(super) fn next_cut(&mut self) -> Option<RequestId> {
        let id = self.cut.pop_front(&mut self.requests)?;
        let length = self.requests[id].length;
        Some(self.requests.take_piece(id, length))
    }
}
