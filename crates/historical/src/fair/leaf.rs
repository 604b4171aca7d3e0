//! What the layer asks of a leaf scheduler: how requests queue up inside one queue, and which goes first
//! there. Leaves know neither groups nor weights nor slices.
//!
//! Three keep one queue a group and order reads and writes in it themselves (`noop`, `deadline`,
//! `anticipatory`); `cfq` keeps one a client and tells the layer which of them to wait for.

pub(super) mod anticipatory;
pub(super) mod cfq;
pub(super) mod deadline;
pub(super) mod noop;

use iofair_core::group::{Change, Priority};
use iofair_core::policy::{Build, Context};
use iofair_core::request::RequestId;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// Whose queue a new one is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Birth {
    pub(super) now: Instant,
    /// Its requests are waited for; also one that takes a group's requests of all kinds.
    pub(super) sync: bool,
    pub(super) priority: Priority,
}

/// What a leaf may know of the world around a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// Where the head is thought to be: the end of what was sent last.
    pub(super) head: Sectors,
    /// Requests that the drive has: waited for, and not.
    pub(super) sync_in_driver: u32,
    pub(super) async_in_driver: u32,
    /// Of this queue.
    pub(super) dispatched: u32,
    /// By this queue in this turn.
    pub(super) sent: u32,
    /// Queues that have something to do.
    pub(super) busy_queues: u32,
    /// What is left of its slice; all of it while that has not begun.
    pub(super) slice_left: Nanos,
}

/// A leaf scheduler: what all its queues share.
pub(super) trait Leaf: Send + 'static {
    /// One queue.
    type Queue: Send;
    /// One queue a client for what somebody waits for, and shared ones for the rest; or one a group.
    const QUEUE_A_CLIENT: bool;

    fn new(build: &Build<'_>) -> Self;
    fn new_queue(&self, birth: &Birth) -> Self::Queue;
    /// Requests that wait in a queue.
    fn queued(&self, queue: &Self::Queue) -> usize;
    /// Takes a request in; `head` is where the drive's head is thought to be.
    fn insert(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut Self::Queue,
        id: RequestId,
        head: Sectors,
    );
    /// Merges an incoming request into one that waits in the queue, if it may.
    fn try_merge(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut Self::Queue,
        id: RequestId,
        head: Sectors,
    ) -> bool;
    /// The request that the queue in service sends now. `None` although some wait: it holds on purpose,
    /// until an answer or [`Self::next_wakeup`].
    fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut Self::Queue,
        situation: &Situation,
    ) -> Option<RequestId>;
    fn complete(&mut self, cx: &mut Context<'_>, queue: &mut Self::Queue, id: RequestId) {
        let _ = (cx, queue, id);
    }
    /// The drive belongs to this queue from now on, or no more.
    fn begin_turn(&mut self, cx: &Context<'_>, queue: &mut Self::Queue) {
        let _ = (cx, queue);
    }
    /// See [`Self::begin_turn`].
    fn end_turn(&mut self, cx: &Context<'_>, queue: &mut Self::Queue) {
        let _ = (cx, queue);
    }
    /// Groups or clients changed.
    fn change(&mut self, change: Change) {
        let _ = change;
    }

    /// "I am anticipating": the queue holds for a request that will come, and must not be expired.
    fn anticipates(&self, queue: &Self::Queue, now: Instant) -> bool {
        let _ = (queue, now);
        false
    }
    /// When the queue in service wants to be asked again.
    fn next_wakeup(&self, queue: &Self::Queue) -> Option<Instant> {
        let _ = queue;
        None
    }
    /// Has it an idle window: is it waited for when it is empty, as a matter of principle?
    fn has_idle_window(&self, queue: &Self::Queue) -> bool {
        let _ = queue;
        false
    }
    /// How long to wait now for a queue with an idle window, if at all.
    fn idle(&self, queue: &Self::Queue, situation: &Situation) -> Option<Nanos> {
        let _ = (queue, situation);
        None
    }
    /// It has sent what it may send in one turn.
    fn has_had_enough(&self, queue: &Self::Queue, situation: &Situation) -> bool {
        let _ = (queue, situation);
        false
    }
    /// Metadata waits in it.
    fn has_metadata(&self, queue: &Self::Queue) -> bool {
        let _ = queue;
        false
    }
    /// While `active` is waited for: is this request of another queue as good as one of its own?
    fn is_close(
        &self,
        cx: &Context<'_>,
        active: &Self::Queue,
        id: RequestId,
        head: Sectors,
    ) -> bool {
        let _ = (cx, active, id, head);
        false
    }
}
