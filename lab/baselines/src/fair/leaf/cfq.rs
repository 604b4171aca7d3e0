//! `cfq`: a queue a client; the layer takes care of slices and of whose turn it is, so what is left is the
//! order of requests in a queue, which queues are worth waiting for, and how many requests go at once.

use crate::parts::habits::{Habits, WaitRules};
use crate::parts::hw_tag::{HwTag, Load};
use iofair_core::id::RequestId;
use iofair_core::policy::{Build, Context};
use iofair_core::request::Flags;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_policies::parts::priority_slice::async_requests;
use iofair_policies::parts::sorted_fifo::{
    Entry, MergeRules, SeekRules, Sorted, SortedFifo, choose,
};

use super::{Leaf, NewQueue, Situation};

/// A queue without competitors may have this many times `quantum` requests at the drive.
const ALONE: u32 = 4;

pub(in super::super) struct Cfq {
    sorted: Sorted,
    slice_idle: Nanos,
    quantum: u32,
    slice_async_rq: u64,
    /// The age at which a request goes first: of buffered writes, and of synchronous requests.
    fifo_expire: [Nanos; 2],
    seek: SeekRules,
    rotational: bool,
    hw_tag: HwTag,
    queued: u32,
    in_driver: u32,
}

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct CfqQueue {
    list: SortedFifo,
    /// The request that it would dispatch next.
    next: Option<RequestId>,
    sync: bool,
    idle_class: bool,
    /// Number of buffered writes that it may dispatch in a turn while others wait.
    writes_max: u64,
    habits: Habits,
    /// Number of queued metadata requests.
    metadata: u32,
    /// Whether the expiry of its oldest request was checked in this turn.
    fifo_checked: bool,
}

impl Cfq {
    fn wait_rules(&self) -> WaitRules {
        WaitRules { slice_idle: self.slice_idle, spurn_seeky: self.hw_tag.queues() }
    }
    fn is_refused(&self, queue: &CfqQueue, situation: &Situation) -> bool {
        let foreign = match queue.sync {
            true => queue.habits.idle_window() && situation.async_in_driver > 0,
            false => situation.sync_in_driver > 0,
        };
        let quantum = if queue.idle_class { 1 } else { self.quantum };
        let alone = situation.busy_queues == 1 && !queue.idle_class;
        let most = if alone { ALONE * quantum } else { quantum };
        foreign || situation.dispatched >= most
    }
    /// Removes a request that is dispatched from its queue, and finds the next one.
    fn take_out(&mut self, cx: &mut Context<'_>, queue: &mut CfqQueue) -> Option<RequestId> {
        let look = !core::mem::replace(&mut queue.fifo_checked, true);
        let expire = self.fifo_expire[usize::from(queue.sync)];
        let expired = queue.list.oldest().filter(|oldest| {
            look && queue.list.arrived(&self.sorted, cx.requests, *oldest) + expire <= cx.now
        });
        let request = expired.or(queue.next)?;
        queue.next = queue.list.next_request(&self.sorted, cx.requests, request, &self.seek);
        queue.list.remove(&mut self.sorted, cx.requests, request);
        queue.metadata -= u32::from(is_metadata(cx, request));
        self.queued -= 1;
        self.in_driver += 1;
        Some(request)
    }
    fn prefer(&self, cx: &Context<'_>, queue: &mut CfqQueue, id: RequestId, head: Sectors) {
        queue.next = Some(match queue.next {
            Some(next) if next != id => choose(cx.requests, next, id, head, &self.seek),
            _ => id,
        });
    }
}

fn is_metadata(cx: &Context<'_>, id: RequestId) -> bool {
    cx.requests[id].flags.has(Flags::METADATA)
}

impl Leaf for Cfq {
    type Queue = CfqQueue;
    const QUEUE_A_CLIENT: bool = true;

    fn new(build: &Build<'_>) -> Self {
        let values = build.values;
        let seek = SeekRules {
            back_max: Sectors::from_kib(values.count("back_seek_max") >> 10),
            back_penalty: values.count("back_seek_penalty"),
            urgent_first: true,
        };
        Self {
            sorted: Sorted::new(),
            slice_idle: values.time("slice_idle"),
            quantum: values.count("quantum") as u32,
            slice_async_rq: values.count("slice_async_rq"),
            fifo_expire: [values.time("fifo_expire_async"), values.time("fifo_expire_sync")],
            seek,
            rotational: build.facts.rotational,
            hw_tag: HwTag::new(false),
            queued: 0,
            in_driver: 0,
        }
    }
    fn new_queue(&self, new: &NewQueue) -> CfqQueue {
        CfqQueue {
            list: SortedFifo::new(),
            next: None,
            sync: new.sync,
            idle_class: new.priority.class == iofair_core::priority::Class::Idle,
            writes_max: async_requests(self.slice_async_rq, new.priority.level),
            habits: Habits::new(new.now),
            metadata: 0,
            fifo_checked: false,
        }
    }
    fn queued(&self, queue: &CfqQueue) -> usize {
        queue.list.len()
    }
    fn insert(&mut self, cx: &mut Context<'_>, queue: &mut CfqQueue, id: RequestId, head: Sectors) {
        let request = &cx.requests[id];
        if queue.sync {
            queue.habits.on_request(cx.now, request.start, request.length, &self.wait_rules());
        }
        queue.metadata += u32::from(is_metadata(cx, id));
        let entry = Entry { id, arrived: cx.now };
        queue.list.insert(&mut self.sorted, cx.requests, entry);
        self.queued += 1;
        self.prefer(cx, queue, id, head);
    }
    fn try_merge(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut CfqQueue,
        id: RequestId,
        head: Sectors,
    ) -> bool {
        let rules = MergeRules { front: true, max: cx.facts.max_request };
        let merged = queue.list.try_merge(&mut self.sorted, cx.requests, id, rules);
        let Some(merged) = merged else { return false };
        if let Some(absorbed) = merged.absorbed {
            queue.metadata -= u32::from(is_metadata(cx, absorbed));
            self.queued -= 1;
            if queue.next == Some(absorbed) {
                queue.next = Some(merged.into);
            }
        }
        self.prefer(cx, queue, merged.into, head);
        true
    }
    fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        queue: &mut CfqQueue,
        situation: &Situation,
    ) -> Option<RequestId> {
        if self.is_refused(queue, situation) { None } else { self.take_out(cx, queue) }
    }
    fn complete(&mut self, cx: &mut Context<'_>, queue: &mut CfqQueue, _: RequestId) {
        let load = Load { in_driver: self.in_driver, queued: self.queued, active_waited_for: None };
        self.hw_tag.sample(&load);
        self.in_driver -= 1;
        if queue.sync {
            queue.habits.on_completion(cx.now);
        }
    }
    fn begin_turn(&mut self, _: &Context<'_>, queue: &mut CfqQueue) {
        queue.fifo_checked = false;
    }
    fn has_idle_window(&self, queue: &CfqQueue) -> bool {
        queue.sync && queue.habits.idle_window()
    }
    fn idle(&self, queue: &CfqQueue, situation: &Situation) -> Option<Nanos> {
        let flash = !self.rotational && self.hw_tag.queues();
        let in_driver = situation.sync_in_driver + situation.async_in_driver;
        let in_time = !queue.habits.thinks_longer_than(situation.slice_left);
        let waits = self.has_idle_window(queue) && !flash && in_driver == 0 && in_time;
        waits.then(|| queue.habits.wait(self.slice_idle)).filter(|time| *time > Nanos::ZERO)
    }
    fn has_had_enough(&self, queue: &CfqQueue, situation: &Situation) -> bool {
        !queue.sync && u64::from(situation.sent) >= queue.writes_max
    }
    fn has_metadata(&self, queue: &CfqQueue) -> bool {
        queue.metadata > 0
    }
    fn is_close(&self, cx: &Context<'_>, active: &CfqQueue, id: RequestId, head: Sectors) -> bool {
        active.habits.is_close(head, cx.requests[id].start)
    }
}
