//! An intrusive queue of requests: the links lie in the pool, so nothing is allocated and any member
//! can leave in constant time. A request may be in one queue at a time.

use crate::id::RequestId;
use crate::request::Requests;

const NIL: u32 = u32::MAX;

/// First in, first out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fifo {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Fifo {
    fn default() -> Self {
        Self::new()
    }
}

impl Fifo {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }
    /// Requests in it.
    pub const fn len(&self) -> usize {
        self.len as usize
    }
    /// Is nobody in it?
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The one that came first.
    pub const fn front(&self) -> Option<RequestId> {
        if self.head == NIL { None } else { Some(RequestId(self.head)) }
    }
    /// The one that came last.
    pub const fn back(&self) -> Option<RequestId> {
        if self.tail == NIL { None } else { Some(RequestId(self.tail)) }
    }
    /// Enters at the end.
    pub fn push_back(&mut self, requests: &mut Requests, id: RequestId) {
        let (prev, next) = requests.fifo_links(id);
        (*prev, *next) = (self.tail, NIL);
        match self.tail {
            NIL => self.head = id.0,
            tail => *requests.fifo_links(RequestId(tail)).1 = id.0,
        }
        self.tail = id.0;
        self.len += 1;
    }
    /// Takes out the one that came first.
    pub fn pop_front(&mut self, requests: &mut Requests) -> Option<RequestId> {
        let id = self.front()?;
        let (_, next) = requests.fifo_links(id);
        self.head = core::mem::replace(next, NIL);
        match self.head {
            NIL => self.tail = NIL,
            head => *requests.fifo_links(RequestId(head)).0 = NIL,
        }
        self.len -= 1;
        Some(id)
    }
    /// Takes out a member.
    pub fn remove(&mut self, requests: &mut Requests, id: RequestId) {
        let (prev, next) = requests.fifo_links(id);
        let (before, after) = (*prev, *next);
        (*prev, *next) = (NIL, NIL);
        match before {
            NIL => self.head = after,
            before => *requests.fifo_links(RequestId(before)).1 = after,
        }
        match after {
            NIL => self.tail = before,
            after => *requests.fifo_links(RequestId(after)).0 = before,
        }
        self.len -= 1;
    }
    /// The member that came before `id`.
    pub fn previous(&self, requests: &Requests, id: RequestId) -> Option<RequestId> {
        match requests.fifo_prev(id) {
            NIL => None,
            previous => Some(RequestId(previous)),
        }
    }
    /// The member that came after `id`.
    pub fn next(&self, requests: &Requests, id: RequestId) -> Option<RequestId> {
        match requests.fifo_next(id) {
            NIL => None,
            next => Some(RequestId(next)),
        }
    }
}
