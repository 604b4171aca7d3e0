//! What the versions of CFQ have in common: queues of clients and of buffered writes, the path of a request through them, and
//! queues that several processes share. A version adds the rules ([`Version`]): the order of the queues, slices, idling,
//! preemption.
//!
//! The path of a request: `arrive`, then `slice`. `members`: which queue a request enters. `merge`: processes that work close
//! together.

mod arrive;
mod members;
mod merge;
pub(crate) mod queue;
mod settings;
mod slice;

use alloc::vec::Vec;
use core::fmt::Debug;

use crate::parts::backlog::Head;
use crate::parts::hw_tag::HwTag;
use crate::parts::slots::Slots;
use iofair_core::group::{Change, Groups};
use iofair_core::id::RequestId;
use iofair_core::policy::{Build, Context, Gauges, HoldInfo, Policy, TagClass};
use iofair_core::priority::Priority;
use iofair_core::request::Requests;
use iofair_core::time::Instant;
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;
use iofair_policies::parts::owners::Owners;
use iofair_policies::parts::positions::Positions;
use iofair_policies::parts::priority_slice::SHARED;
use iofair_policies::parts::sorted_fifo::Sorted;
use iofair_policies::parts::tree::Tree;

use queue::{Member, Queue, QueueId};
pub(crate) use settings::Settings;

/// Requests in the drive by kind.
pub(crate) const SYNC: usize = 0;
pub(crate) const ASYNC: usize = 1;

/// A version's own state. Its rules are [`Rules`] of a [`Cfq`] with that state.
pub(crate) trait Version: Sized {
    /// What a queue has in this version besides.
    type Own: Debug;
    /// That of a new queue.
    fn own(now: Instant, member: &Member) -> Self::Own;
}

/// The scheduler's whole state.
pub(crate) struct Cfq<V: Version> {
    pub(crate) version: V,
    pub(crate) settings: Settings,
    /// Whether it shares between groups.
    pub(crate) by_groups: bool,
    pub(crate) rotational: bool,
    pub(crate) queues: Slots<Queue<V::Own>>,
    /// Each live request's queue, by its slot.
    owners: Owners<QueueId>,
    /// Each client's queue for what it waits for.
    clients: Vec<Option<QueueId>>,
    /// Queues for buffered writes, by group.
    writes: Vec<[Option<QueueId>; SHARED]>,
    /// Requests by sector.
    sorted: Sorted,
    /// Queues by the sector of their next request, one tree a level.
    positions: Positions,
    position_trees: [Tree; 8],
    pub(crate) hw_tag: HwTag,
    /// Whose slice it is.
    pub(crate) active: Option<QueueId>,
    /// The active queue is empty and waited for until then.
    pub(crate) wait_until: Option<Instant>,
    /// Nothing was to be sent when last asked, and nothing happened since.
    holds: bool,
    /// Requests that the drive has from us: synchronous ones, buffered writes.
    pub(crate) in_driver: [u32; 2],
    /// Requests that we hold.
    pub(crate) queued: u32,
    pub(crate) head: Head,
}

impl<V: Version> Cfq<V> {
    pub(crate) fn new(build: &Build<'_>, hw_tag: HwTag, version: V) -> Self {
        let settings = Settings::new(build.values);
        Self {
            version,
            settings,
            by_groups: build.groups,
            rotational: build.facts.rotational,
            queues: Slots::default(),
            owners: Owners::new(),
            clients: Vec::new(),
            writes: Vec::new(),
            sorted: Sorted::new(),
            positions: Positions::new(),
            position_trees: [Tree::new(); 8],
            hw_tag,
            active: None,
            wait_until: None,
            holds: false,
            in_driver: [0; 2],
            queued: 0,
            head: Head { at: Sectors::ZERO, rules: settings.seek },
        }
    }
}

/// The rules of a version.
pub(crate) trait Rules: Order + Arrivals + Slices + Idling + Splits {}
impl<T: Order + Arrivals + Slices + Idling + Splits> Rules for T {}

/// The order of service.
pub(crate) trait Order {
    /// Who is meant by a queue of no single client.
    fn shared_subject(&self, id: QueueId) -> Subject;
    /// Number of queues in it (`busy_queues`).
    fn busy(&self) -> u32;
    /// Adds a queue that gets its first request.
    fn become_busy(&mut self, now: Instant, id: QueueId);
    /// Puts a busy queue before others, since it ended the slice of `preempted`.
    fn put_first(&mut self, now: Instant, id: QueueId, preempted: Option<QueueId>);
    fn set_priority(&mut self, id: QueueId, priority: Priority);
    /// A group was added or changed.
    fn change_group(&mut self, cx: &Context<'_>, change: Change);
}

/// What a request means that has entered its queue.
pub(crate) trait Arrivals {
    /// Measures its process.
    fn observe_arrival(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId);
    /// The rule by which it ends the active slice of another queue, if any.
    fn preempts(&self, cx: &Context<'_>, id: QueueId, request: RequestId) -> Option<&'static str>;
}

/// Slices and their ends.
pub(crate) trait Slices {
    /// The active queue, or the next one; `None` while CFQ idles for the active one.
    fn select(&mut self, cx: &mut Context<'_>) -> Option<QueueId>;
    /// A queue becomes the active one.
    fn begin(&mut self, now: Instant, id: QueueId);
    /// Ends the active slice. `timed`: its unused or excess time counts in the next turn.
    fn expire(&mut self, cx: &mut Context<'_>, rule: &'static str, timed: bool);
    /// Number of requests of this queue that the drive may have.
    fn depth(&self, cx: &Context<'_>, id: QueueId) -> u32;
    /// The queue has dispatched a request.
    fn sent(&mut self, id: QueueId);
    /// A request of the queue was completed.
    fn completed(&mut self, cx: &Context<'_>, id: QueueId, request: RequestId);
    /// A request of the active queue was completed.
    fn completed_in_slice(&mut self, cx: &mut Context<'_>, id: QueueId, request: RequestId);
}

/// Idling for a queue's next request.
pub(crate) trait Idling {
    /// Whether measurements of the queue let CFQ idle for it.
    fn idle_window(&self, id: QueueId) -> bool;
    /// Whether CFQ would idle for the queue.
    fn should_idle(&self, id: QueueId) -> bool;
    /// The time of idling for the active queue has passed.
    fn stop_idling(&mut self, cx: &mut Context<'_>, active: QueueId);
}

/// Splits of queues that are shared.
pub(crate) trait Splits {
    fn wants_split(&self, now: Instant, id: QueueId) -> bool;
    /// A queue was split: `own` is a new one for the client that leaves; `None`: it was the last client's.
    fn after_split(&mut self, id: QueueId, own: Option<QueueId>);
}

impl<V: Version> Policy for Cfq<V>
where
    Self: Rules,
{
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.on_submit(cx, id);
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        self.on_try_merge(cx, id)
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.on_dispatch(cx)
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.on_complete(cx, id);
    }
    fn next_wakeup(&self) -> Option<Instant> {
        self.wait_until
    }
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        self.holds = false;
        self.on_change(cx, change);
    }
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        class.single_queue_limit(tags)
    }
    fn hold_info(&self, _groups: &Groups, _requests: &Requests, _id: RequestId) -> HoldInfo {
        let serves = self.active.map(|id| self.subject(id));
        HoldInfo { serves, idles_until: self.wait_until, ..HoldInfo::default() }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("cfq_busy_queues", u64::from(self.busy()));
        gauges.gauge("cfq_queued_requests", u64::from(self.queued));
        gauges.gauge("cfq_waiting", u64::from(self.wait_until.is_some()));
        gauges.gauge("cfq_drive_queues", u64::from(self.hw_tag.queues()));
    }
}
