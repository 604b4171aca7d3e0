//! Requests of clients that are gone, or whose volume is removed.

use iofair_core::request::Operation;
use iofair_core::time::Instant;

use super::Engine;
use crate::request::op::Op;

/// Which requests of a client are cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cancel {
    /// Reads and block statuses, whose client is gone. What it wrote is kept.
    Reads,
    /// All but flushes, because the volume is removed.
    All,
}

impl Cancel {
    const fn cancels(self, operation: Operation) -> bool {
        match operation {
            Operation::Read => true,
            Operation::Flush => false,
            _ => matches!(self, Self::All),
        }
    }
    /// How they end.
    const fn status(self) -> i32 {
        match self {
            Self::Reads => libc::ECANCELED,
            Self::All => libc::ESHUTDOWN,
        }
    }
}

impl Engine {
    /// Cancels requests of one owner. What is queued of them ends at once, without the drive and without being charged; what
    /// the drive has is completed as usual. All of them end with an error. Takes time in proportion to what the owner
    /// has in flight. Call [`Self::turn`] and take finished requests afterwards.
    pub(crate) fn cancel(&mut self, now: Instant, owner: u64, which: Cancel) {
        let goes =
            |op: &Op| which.cancels(op.operation) && !op.abandoned && !op.cancelled && !op.finished;
        let found = self.ops.of_owner(owner).filter(|(_, op)| goes(op));
        let mut keys: Vec<usize> = found.map(|(key, _)| key).collect();
        if keys.is_empty() {
            return;
        }
        if !self.plug.is_empty() {
            self.unplug(now);
        }
        let mut tags = Vec::new();
        for key in &keys {
            let op = &mut self.ops[*key];
            op.cancelled = true;
            op.status = if op.status == 0 { which.status() } else { op.status };
            tags.extend_from_slice(&op.pieces[..op.left as usize]);
        }
        let mut gone = Vec::new();
        for tag in tags {
            if let Some(id) = self.ops.request(tag.into()) {
                let ops = &self.ops;
                self.controller.cancel(now, id, |tag| ops.is_cancelled(tag), &mut gone);
            }
        }
        for tag in gone {
            let piece = self.ops.end_piece(tag);
            if piece.fenced {
                self.fences.remove(&piece.range());
            }
            // It was merged with a request of another owner, who was gone before.
            let op = &self.ops[piece.op];
            if op.left == 0 && op.owner != owner {
                keys.push(piece.op);
            }
        }
        for key in keys {
            let op = &self.ops[key];
            if op.left == 0 {
                self.unfed.remove(op.volume, key);
                self.finish(now, key);
            }
        }
        self.unfinished = Some(now);
    }
}
