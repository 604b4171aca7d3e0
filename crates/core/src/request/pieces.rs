//! Requests that go to the drive in pieces: each piece is a command, and the request is completed with the last one.

use super::{Failed, NIL, Part, Request, Requests, Slot};
use crate::id::RequestId;
use crate::unit::Sectors;

impl Requests {
    /// Schedulers: cuts a piece of at most `length` sectors off the front of a request, as a command of its own: to be
    /// returned from [`Policy::dispatch`](crate::policy::Policy::dispatch). What is left of the request stays with the
    /// scheduler (`start` and `length` are what is left), and is used up when its length is zero. A request that was
    /// never cut and fits into `length` is returned itself.
    ///
    /// The pieces of a request are completed one by one ([`Policy::complete`](crate::policy::Policy::complete)) and are
    /// one completion to whoever submitted it.
    #[inline]
    pub fn take_piece(&mut self, id: RequestId, length: Sectors) -> RequestId {
        debug_assert!(length > Sectors::ZERO, "a piece has a length");
        let slot = &self.slots[id.0 as usize];
        if !slot.cut && length >= slot.request.length {
            return id;
        }
        self.cut_piece(id, length)
    }
    fn cut_piece(&mut self, id: RequestId, length: Sectors) -> RequestId {
        let slot = &mut self.slots[id.0 as usize];
        let length = length.min(slot.request.length);
        let piece = Request { length, ..slot.request.clone() };
        (slot.cut, slot.pieces) = (true, slot.pieces + 1);
        slot.request.start += length;
        slot.request.length -= length;
        let piece = self.take_slot(piece);
        self.slots[piece.0 as usize].whole = id.0;
        piece
    }
    /// The request that a piece belongs to, or the request itself.
    pub fn whole(&self, id: RequestId) -> RequestId {
        match self.slots[id.0 as usize].whole {
            NIL => id,
            whole => RequestId(whole),
        }
    }
    /// Is this a piece of a request?
    pub(crate) fn is_piece(&self, id: RequestId) -> bool {
        self.slots[id.0 as usize].whole != NIL
    }
    /// Has a piece been taken from this request?
    pub fn is_cut(&self, id: RequestId) -> bool {
        self.slots[id.0 as usize].cut
    }
    /// In [`Policy::complete`](crate::policy::Policy::complete): is nothing of its request left to be completed?
    pub fn is_last_piece(&self, id: RequestId) -> bool {
        let slot = &self.slots[self.whole(id).0 as usize];
        !slot.cut || (slot.pieces <= 1 && slot.request.length == Sectors::ZERO)
    }
    /// A piece was completed. Its request, if nothing of that is left.
    pub(crate) fn end_piece(&mut self, id: RequestId, status: i32) -> Option<RequestId> {
        let Slot { whole, request: Request { start, length, .. }, .. } = self.slots[id.0 as usize];
        let slot = &mut self.slots[id.0 as usize];
        slot.live = false;
        slot.fifo_next = core::mem::replace(&mut self.free, id.0);
        if status != 0 {
            self.failed.push(Failed { whole, start, end: start + length, status });
        }
        let slot = &mut self.slots[whole as usize];
        slot.pieces -= 1;
        if slot.pieces > 0 || slot.request.length > Sectors::ZERO {
            return None;
        }
        // The request is what it was.
        let (first, last) = (slot.first_part as usize, slot.last_part as usize);
        let start = self.slots[first].own_start;
        let end = self.slots[last].own_start + self.slots[last].own_length;
        let request = &mut self.slots[whole as usize].request;
        (request.start, request.length) = (start, end - start);
        Some(RequestId(whole))
    }
    /// What became of a part of a request that was cut: the first error of a piece that holds a sector of it, else zero.
    pub(crate) fn status_of(&self, id: RequestId, part: &Part) -> i32 {
        let holds = |piece: &&Failed| {
            piece.whole == id.0 && piece.start < part.start + part.length && part.start < piece.end
        };
        self.failed.iter().find(holds).map_or(0, |piece| piece.status)
    }
    /// The failed pieces of a request need not be known any more.
    pub(crate) fn forget_failed(&mut self, id: RequestId) {
        if !self.failed.is_empty() {
            self.failed.retain(|piece| piece.whole != id.0);
        }
    }
}
