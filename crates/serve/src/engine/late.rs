//! Handling of requests whose commands the back end does not complete in time.

use std::collections::BTreeMap;

use iofair_core::stats::minimum::Passage;
use iofair_core::time::Instant;

use super::fences::Fences;
use super::{Engine, Volume};
use crate::request::op::{NewOp, Op};

/// Whether a part of a volume overlaps a fence.
fn meet(fences: &Fences, volume: &Volume, offset: u64, length: u32) -> bool {
    volume.map().places(offset..offset + u64::from(length)).any(|place| fences.meet(&place))
}

impl Engine {
    /// Completes the requests of commands that the back end has had for too long. The controller is told that
    /// they are over, so that nothing else waits for them.
    pub(super) fn expire(&mut self, now: Instant) {
        let mut fenced = false;
        while let Some((key, command)) = self.commands.take_late() {
            self.parts.clear();
            self.parts.extend(self.controller.parts(command));
            for at in 0..self.parts.len() {
                let part = self.parts[at];
                self.commands.keeps(key, part.tag);
                let op = self.ops.piece(&part).op;
                fenced |= self.give_up(now, op);
            }
            let mut completions = std::mem::take(&mut self.completions);
            let over = self.controller.complete(now, command, libc::EIO, &mut completions);
            over.expect("it was late, and the drive still has it");
            for completion in completions.drain(..) {
                // Flushes that shared the command too.
                let key = self.ops.piece(&completion.part).op;
                fenced |= self.give_up(now, key);
                if self.ops.complete_piece(completion.part.tag) {
                    self.piece_done(now, completion.part.tag, libc::EIO);
                }
            }
            self.completions = completions;
        }
        if fenced {
            self.fail_fenced();
        }
        self.commands.turn(now);
    }
    /// Abandons a request of a late command, unless its data are in a client's own memory: that cannot be taken back from
    /// the kernel, so such a request waits on. Returns whether the abandoned request may still write.
    fn give_up(&mut self, now: Instant, key: usize) -> bool {
        let op = &self.ops[key];
        if op.abandoned || !op.data.is_ours() {
            return false;
        }
        let writes = op.operation.modifies();
        self.abandon(now, key);
        writes
    }
    /// Completes a request although commands use its memory. What it may still write is fenced.
    fn abandon(&mut self, now: Instant, key: usize) {
        let op = &mut self.ops[key];
        (op.status, op.abandoned) = (libc::EIO, true);
        self.abandoned += 1;
        if op.cancelled {
            self.tallies.cancelled(now, op, self.controller.groups());
        } else {
            let volume = &mut self.volumes[op.volume];
            volume.finished(now, op);
            self.failures.ended(now, op, volume);
            self.tallies.finished(now, op, self.controller.groups());
        }
        // Nothing counts it any more, whatever happens to its pieces.
        op.passage = Passage::default();
        self.early.push_back(op.completion_without_data());
        if op.operation.modifies() {
            self.ops.fence(key, |range| self.fences.add(&range));
        }
    }
    /// Requests that are inside and may be overwritten by a late write must not be completed as if they could not.
    /// Looks at all requests, since no index is kept for what happens so rarely.
    fn fail_fenced(&mut self) {
        let (fences, volumes) = (&self.fences, &self.volumes);
        for op in self.ops.iter_mut() {
            let matters = op.operation.modifies() && !op.abandoned && op.status == 0;
            if matters && meet(fences, &volumes[op.volume], op.offset, op.length) {
                op.status = libc::EIO;
            }
        }
    }
    /// Writes, trims and zeroes that clients wait for, by volume.
    pub(crate) fn unfinished_writes(&mut self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for op in self.ops.iter_mut().filter(|op| op.operation.modifies()) {
            let volume = &self.volumes[op.volume];
            if !(op.abandoned || op.cancelled || op.finished || volume.is_drive) {
                *counts.entry(volume.plan.name.as_str()).or_default() += 1;
            }
        }
        counts
    }
    /// Whether a new request must fail, because an older write could still overwrite it.
    pub(super) fn is_fenced(&self, new: &NewOp) -> bool {
        !self.fences.is_empty()
            && new.operation.modifies()
            && meet(&self.fences, &self.volumes[new.volume], new.offset, new.length)
    }
    /// Completes a new request with an error without having it carried out.
    pub(super) fn fail(&mut self, now: Instant, new: NewOp, status: i32) {
        let volume = &mut self.volumes[new.volume];
        let op = Op { status, ..Op::new(now, new, volume.group, Default::default()) };
        self.tallies.came_in(now, &op, self.controller.groups());
        volume.finished(now, &op);
        self.tallies.finished(now, &op, self.controller.groups());
        self.early.push_back(op);
    }
}
