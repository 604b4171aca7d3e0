//! The interface between the layer and a leaf scheduler, which orders requests inside a queue. Leaf schedulers know
//! neither groups nor weights nor slices.
//!
//! Three of them have one queue per group and order reads and writes in it themselves (`noop`, `deadline`,
//! `anticipatory`). `cfq` has one per client and tells the layer for which of them to idle.

pub(super) mod anticipatory;
pub(super) mod cfq;
pub(super) mod deadline;
pub(super) mod noop;

use iofair_core::group::Change;
use iofair_core::id::RequestId;
use iofair_core::policy::{Build, Context};
use iofair_core::priority::Priority;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

/// The properties of a new queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewQueue {
    pub(super) now: Instant,
    /// Whether its requests are synchronous; also true for a queue with a group's requests of all kinds.
    pub(super) sync: bool,
    pub(super) priority: Priority,
}

/// The state outside a queue that a leaf scheduler may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// The assumed position of the head: the end of the last dispatched request.
    pub(super) head: Sectors,
    /// Requests in the drive, synchronous and others.
    pub(super) sync_in_driver: u32,
    pub(super) async_in_driver: u32,
    /// Those of this queue.
    pub(super) dispatched: u32,
    /// Requests that this queue dispatched in this turn.
    pub(super) sent: u32,
    /// Number of queues with requests.
    pub(super) busy_queues: u32,
    /// The rest of its slice; all of it if the slice has not begun.
    pub(super) slice_left: Nanos,
}

/// A leaf scheduler: the state that all its queues share.
pub(super) trait Leaf: Send + 'static {
    /// One queue.
    type Queue: Send;
    /// Whether there is one queue per client for synchronous requests and shared ones for the rest, or one queue per
    /// group.
    const QUEUE_A_CLIENT: bool;

    fn new(build: &Build<'_>) -> Self;
    fn new_queue(&self, new: &NewQueue) -> Self::Queue;
    /// Number of requests in a queue.
    fn queued(&self, queue: &Self::Queue) -> usize;
    /// Adds a request; `head` is the assumed position of the drive's head.
    fn insert(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut Self::Queue,
        id: RequestId,
        head: Sectors,
    );
    /// Merges a new request into one in the queue, if possible.
    fn try_merge(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut Self::Queue,
        id: RequestId,
        head: Sectors,
    ) -> bool;
    /// The request that the queue in service dispatches now. `None` although some wait: the queue holds them on
    /// purpose, until a completion or [`Self::next_wakeup`].
    fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut Self::Queue,
        situation: &Situation,
    ) -> Option<RequestId>;
    fn complete(&mut self, cx: &mut Context<'_>, queue: &mut Self::Queue, id: RequestId) {
        let _ = (cx, queue, id);
    }
    /// The queue comes into service.
    fn begin_turn(&mut self, cx: &Context<'_>, queue: &mut Self::Queue) {
        let _ = (cx, queue);
    }
    /// The queue leaves service.
    fn end_turn(&mut self, cx: &Context<'_>, queue: &mut Self::Queue) {
        let _ = (cx, queue);
    }
    /// Groups or clients changed.
    fn change(&mut self, change: Change) {
        let _ = change;
    }

    /// Whether it anticipates: the queue holds its requests for one that will arrive, and must not be expired.
    fn anticipates(&self, queue: &Self::Queue, now: Instant) -> bool {
        let _ = (queue, now);
        false
    }
    /// When the queue in service must be called again.
    fn next_wakeup(&self, queue: &Self::Queue) -> Option<Instant> {
        let _ = queue;
        None
    }
    /// Whether it has an idle window: the layer idles for it when it is empty.
    fn has_idle_window(&self, queue: &Self::Queue) -> bool {
        let _ = queue;
        false
    }
    /// How long to idle now for a queue with an idle window, if at all.
    fn idle(&self, queue: &Self::Queue, situation: &Situation) -> Option<Nanos> {
        let _ = (queue, situation);
        None
    }
    /// Whether it has dispatched as much as allowed in one turn.
    fn has_had_enough(&self, queue: &Self::Queue, situation: &Situation) -> bool {
        let _ = (queue, situation);
        false
    }
    /// Whether it contains metadata requests.
    fn has_metadata(&self, queue: &Self::Queue) -> bool {
        let _ = queue;
        false
    }
    /// While the layer idles for `active`: whether this request of another queue is as good as one of `active`.
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
