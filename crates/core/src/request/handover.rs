//! What a change of the stack means for each request: those that wait leave the old policies, those that the drive has
//! become *orphans*, which the new policies are told nothing of.

use alloc::vec::Vec;

use super::{MERGED, NIL, NO_STAGE, Requests, SHARES};
use crate::id::RequestId;
use crate::parts::fifo::Fifo;
use crate::time::Instant;
use crate::unit::Sectors;

impl Requests {
    /// Takes all requests from a stack that is replaced. Returns those that wait, in the order of submission and as they
    /// were before they entered it, those that were merged one by one; and the number of tags that orphans hold.
    ///
    /// A request of which the drive has had a piece is an orphan as a whole: it joins `cut` if something of it is left.
    /// Flushes that wait for writes are in no stack, and those that share the next command have left theirs.
    pub(crate) fn hand_over(&mut self, cut: &mut Fifo) -> (Vec<RequestId>, u32) {
        let (mut waiting, mut begun) = (Vec::new(), Vec::new());
        let mut tags = 0;
        for index in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[index as usize];
            let stage = slot.request.stage;
            if !slot.live || slot.whole != NIL || stage == MERGED || stage == NO_STAGE {
                continue;
            }
            if slot.request.dispatched == Instant::MAX && stage != SHARES {
                self.forget_stack(index, &mut waiting);
                continue;
            }
            tags += u32::from(slot.tagged);
            let is_new = !core::mem::replace(&mut slot.orphan, true);
            if is_new && slot.cut && slot.request.length > Sectors::ZERO {
                begun.push(RequestId(index));
            }
        }
        waiting.sort_unstable_by_key(|id| self[*id].sequence);
        begun.sort_unstable_by_key(|id| self[*id].sequence);
        for id in begun {
            cut.push_back(self, id);
        }
        (waiting, tags)
    }
    /// A request that waits becomes what was submitted, and so does each that was merged into it.
    fn forget_stack(&mut self, index: u32, waiting: &mut Vec<RequestId>) {
        let mut part = self.slots[index as usize].first_part;
        while part != NIL {
            let slot = &mut self.slots[part as usize];
            waiting.push(RequestId(part));
            (slot.fifo_next, slot.fifo_prev, slot.place) = (NIL, NIL, NIL);
            (slot.first_part, slot.last_part) = (part, part);
            slot.tagged = false;
            let request = &mut slot.request;
            (request.start, request.length) = (slot.own_start, slot.own_length);
            request.stage = NO_STAGE;
            (request.asked_tag, request.got_tag) = (Instant::MAX, Instant::MAX);
            part = core::mem::replace(&mut slot.next_part, NIL);
        }
    }
    /// Was this request, or that of this piece, given to the drive by an earlier stack?
    pub(crate) fn is_orphan(&self, id: RequestId) -> bool {
        self.slots[self.whole(id).0 as usize].orphan
    }
}
