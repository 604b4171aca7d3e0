//! Splitting requests into pieces for the controller, and refusing requests without room.
//!
//! Each piece takes a request slot of its group; the controller decides whether one is free, and whether the volume may
//! hold one more. A refused request is returned to its front end. A request in flight that finds no slot for its next piece
//! waits here, in the order of its volume, and meanwhile no new request of the volume is accepted. So no volume and no group
//! has more in flight than it has had slots.

use iofair_core::controller::Submission;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Instant;
use iofair_core::unit::{SECTOR_BYTES, Sectors};

use super::{EMPTY_MAX, Engine};
use crate::request::extent;
use crate::request::op::{self, Op, WINDOW};

/// Pieces of one request that the controller may have together.
fn window(operation: Operation) -> u32 {
    match operation {
        Operation::Discard | Operation::WriteZeroes => 1,
        _ => WINDOW,
    }
}

impl Engine {
    /// Whether a new request of this volume would be accepted now. If not, it may be after a request of its group
    /// completes, or of a group that uses much of the shared slots.
    pub fn has_room(&self, volume: usize) -> bool {
        let client = self.volumes[volume].client;
        !self.paused && !self.unfed.waits(volume) && self.controller.has_room(client, 1)
    }
    /// Gives the controller more pieces of a request, as many as it may have together.
    pub(super) fn feed(&mut self, now: Instant, key: usize) {
        loop {
            let op = &self.ops[key];
            if !op.is_uncut() || op.left >= window(op.operation) {
                return;
            }
            let (volume, left) = (op.volume, op.left);
            let client = self.volumes[volume].client;
            if self.unfed.waits(volume) || !self.controller.has_room(client, 1) {
                if left == 0 {
                    self.unfed.push(volume, key);
                }
                return;
            }
            self.feed_one(now, key);
        }
    }
    /// Gives the controller the next piece, for which there must be room.
    pub(super) fn feed_one(&mut self, now: Instant, key: usize) {
        let Op { operation, mut flags, volume, cut, .. } = self.ops[key];
        if cut > 0 {
            flags = flags.with(Flags::CONTINUES);
        }
        let volume = &self.volumes[volume];
        let (client, op) = (volume.client, &self.ops[key]);
        let (offset, together) = volume.map().locate(op.offset + u64::from(op.cut));
        let is_status = op.asks_status();
        let longest = match operation {
            _ if is_status => u64::MAX,
            Operation::Discard | Operation::WriteZeroes => EMPTY_MAX.bytes(),
            _ => self.longest_data,
        };
        // Sectors count whole, and the first one may be cut. Not longer than what is left, which fits.
        let longest = longest - offset % SECTOR_BYTES;
        let length = u64::from(op.length - op.cut).min(together).min(longest) as u32;
        let tag = self.ops.cut(key, offset, length);
        let (start, length) = match operation {
            Operation::Flush => (Sectors::ZERO, Sectors::ZERO),
            _ if is_status => (Sectors(offset / SECTOR_BYTES), extent::COST),
            _ => op::sectors(offset, length),
        };
        let submission = Submission { tag, client, operation, flags, start, length };
        let gathered = self.controller.gather(&mut self.plug, submission);
        gathered.expect("there is room, and clients and ranges are our own");
        if self.plug.is_full() {
            self.unplug(now);
        }
    }
    /// The minimums count the requests that have passed the ceilings now.
    pub(super) fn count_passed(&mut self, now: Instant) {
        while let Some(passed) = self.controller.next_passed() {
            let Some(op) = self.ops.pass_piece(passed.tag) else { continue };
            let levels = op.passage.pass();
            self.tallies.counted(now, op, levels, self.controller.groups());
        }
    }
    /// Continues requests that wait for a slot; volumes take turns.
    pub(super) fn feed_waiting(&mut self, now: Instant) {
        for _ in 0..self.unfed.volumes.len() {
            let Some(volume) = self.unfed.volumes.pop_front() else { return };
            let client = self.volumes[volume].client;
            while let Some(key) = self.unfed.requests[volume].front().copied() {
                let failed = self.ops[key].status != 0;
                if !failed && !self.controller.has_room(client, 1) {
                    self.unfed.volumes.push_back(volume);
                    break;
                }
                self.unfed.requests[volume].pop_front();
                match failed {
                    true => self.finish(now, key),
                    false => self.feed_one(now, key),
                }
            }
        }
    }
}
