//! `mq-deadline`: serves requests in batches by sector, reads before writes, with deadlines against starvation.
//!
//! Requests are in three levels by class: realtime, best effort, idle. In each level, reads and writes have
//! separate queues, by sector and by arrival. A *batch* consists of up to `fifo_batch` requests of one direction
//! with increasing sectors. The next batch is one of reads, if there are any; but after `writes_starved` batches of
//! reads at the expense of writes, it is one of writes. A batch starts where the direction's last one ended, or
//! with the oldest request if that has waited longer than `read_expire` or `write_expire`. The most urgent level
//! goes first, and a lower level gets nothing while a higher one has requests queued or in the drive. But a request
//! that has waited for `prio_aging_expire` goes before all levels (Linux 7.0, `block/mq-deadline.c`; all of this is
//! stated there).
//!
//! Requests other than reads may use only `async_depth` tags.
//!
//! Our choice, where we differ: if ageing checks a level and finds no request old enough, nothing is recorded (the
//! kernel counts that as a batch of reads), so additional wake-ups change nothing; and we request a wake-up for the
//! time when a request reaches its age. At the start no batch is active (the kernel starts as if one of writes
//! were). A scheduled flush counts as a synchronous write.

use alloc::boxed::Box;

use crate::parts::deadline_queue::{self, batch_direction};
use crate::parts::sorted_fifo::{Entry, MergeRules, Sorted, SortedFifo};
use iofair_core::id::RequestId;
use iofair_core::params::Parameter;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row, TagClass};
use iofair_core::priority::Class;
use iofair_core::request::{Direction, Requests};
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::Subject;
use iofair_core::unit::Sectors;

/// The row of the table.
pub static ROW: Row = Row {
    name: "mq-deadline",
    short: "mq-deadline",
    role: Role::SCHEDULER,
    enforces: |_, _| false,
    summary: "batches by sector, reads first, deadlines for both",
    file: "mq_deadline.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Requests are served in batches by sector, reads and urgent classes first; ten \
                random readers keep {total: none-mq-deadline / none-none [10 random readers]} of the \
                throughput.",
            shown_by: "suite/throughput-sync",
        }],
        needs: "A limit for all requests except reads (`async_depth`); it is off by default.",
        fails: &[Claim {
            says: "Buffered writers occupy all tags, so reads wait for a tag before the scheduler can \
                prefer them: a random reader gets {target of none-mq-deadline [random target, \
                writers]}, with `none` {target of none-none [random target, writers]}.",
            shown_by: "article-2018/figure-1 --stack none-none,none-mq-deadline",
        }],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[
    deadline_queue::PARAMETERS[0],
    deadline_queue::PARAMETERS[1],
    deadline_queue::PARAMETERS[2],
    deadline_queue::PARAMETERS[3],
    deadline_queue::PARAMETERS[4],
    Parameter::time(
        "prio_aging_expire",
        Nanos::from_secs(10),
        "a request older than this goes before more urgent classes",
    ),
    Parameter::count(
        "async_depth",
        0,
        (0, 1 << 20),
        "number of tags for requests other than reads; 0: all tags",
    ),
];

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let values = build.values;
    let count = |name| values.count(name) as u32;
    let fifo_batch = count("fifo_batch");
    Box::new(MqDeadline {
        expire: [values.time("read_expire"), values.time("write_expire")],
        fifo_batch,
        writes_starved: count("writes_starved"),
        front_merges: values.bool("front_merges"),
        prio_aging_expire: values.time("prio_aging_expire"),
        async_depth: count("async_depth"),
        sorted: Sorted::new(),
        levels: Default::default(),
        direction: Direction::Read,
        batched: fifo_batch,
        starved: 0,
        wakeup: None,
    })
}

struct MqDeadline {
    expire: [Nanos; 2],
    fifo_batch: u32,
    writes_starved: u32,
    front_merges: bool,
    prio_aging_expire: Nanos,
    async_depth: u32,
    /// The tree nodes of every queue.
    sorted: Sorted,
    levels: [Level; 3],
    /// Of the batch that runs or ran last, in whatever level.
    direction: Direction,
    /// Requests that it has given.
    batched: u32,
    /// Batches of reads since the last batch of writes, while writes waited.
    starved: u32,
    wakeup: Option<Instant>,
}

#[derive(Default)]
struct Level {
    queues: [SortedFifo; 2],
    /// First sector of the last request given, by direction.
    position: [Sectors; 2],
    /// Requests queued or at the drive.
    present: u32,
}

/// What a level would give, and what becomes of the batch then.
struct Choice {
    id: RequestId,
    direction: Direction,
    /// It belongs to the batch that runs.
    continues: bool,
    starved: u32,
}

impl MqDeadline {
    fn arrived(&self, requests: &Requests, level: usize, choice: &Choice) -> Instant {
        let queue = &self.levels[level].queues[choice.direction as usize];
        queue.arrived(&self.sorted, requests, choice.id)
    }
    /// When the oldest request of a direction has waited too long; its queue is not empty.
    fn oldest(&self, requests: &Requests, level: usize, of: Direction) -> (RequestId, Instant) {
        let queue = &self.levels[level].queues[of as usize];
        let id = queue.oldest().expect("asked only for a direction that has requests");
        (id, queue.arrived(&self.sorted, requests, id))
    }
    fn choose(&self, requests: &Requests, now: Instant, level: usize) -> Option<Choice> {
        let queues = &self.levels[level].queues;
        let next = |direction: Direction| {
            let position = self.levels[level].position[direction as usize];
            queues[direction as usize].at_or_after(&self.sorted, position)
        };
        let (direction, starved) = (self.direction, self.starved);
        if self.batched < self.fifo_batch
            && let Some(id) = next(direction)
        {
            return Some(Choice { id, direction, continues: true, starved });
        }
        let waiting = queues.each_ref().map(|queue| !queue.is_empty());
        let (direction, starved) = batch_direction(waiting, starved, self.writes_starved)?;
        let (oldest, arrived) = self.oldest(requests, level, direction);
        let in_time = now < arrived + self.expire[direction as usize];
        let id = next(direction).filter(|_| in_time).unwrap_or(oldest);
        Some(Choice { id, direction, continues: false, starved })
    }
    fn is_mixed(&self) -> bool {
        self.levels.iter().filter(|level| level.present > 0).count() > 1
    }
    /// A request of a lower level that came of age, if levels compete.
    fn aged(&self, cx: &Context<'_>) -> Option<(usize, Choice)> {
        if !self.is_mixed() {
            return None;
        }
        let of_age = |level: usize| {
            let choice = self.choose(cx.requests, cx.now, level)?;
            let arrived = self.arrived(cx.requests, level, &choice);
            (arrived + self.prio_aging_expire <= cx.now).then_some((level, choice))
        };
        (Class::BestEffort as usize..3).find_map(of_age)
    }
    fn most_urgent(&self, cx: &Context<'_>) -> Option<(usize, Choice)> {
        let level = self.levels.iter().position(|level| level.present > 0)?;
        self.choose(cx.requests, cx.now, level).map(|choice| (level, choice))
    }
    /// When [`Self::aged`] first has something to give, if nothing happens before.
    fn comes_of_age(&self, cx: &Context<'_>) -> Option<Instant> {
        if !self.is_mixed() {
            return None;
        }
        let when = |level: usize| {
            let choice = self.choose(cx.requests, cx.now, level)?;
            let of_age = self.arrived(cx.requests, level, &choice) + self.prio_aging_expire;
            let (_, oldest) = self.oldest(cx.requests, level, choice.direction);
            let expires = oldest + self.expire[choice.direction as usize];
            // Once it has expired, a new batch starts with the oldest instead.
            match choice.continues || of_age < expires {
                true => Some(of_age),
                false => Some(expires.max(oldest + self.prio_aging_expire)),
            }
        };
        (Class::BestEffort as usize..3).filter_map(when).min()
    }
    fn give(&mut self, cx: &mut Context<'_>, level: usize, choice: &Choice) -> RequestId {
        let Choice { id, direction, continues, starved } = *choice;
        if starved > self.starved {
            let rule = "a batch of reads goes first; writes were passed over {} times";
            cx.decide(Subject::Drive, rule, [starved.into(), 0]);
        }
        self.batched = if continues { self.batched + 1 } else { 1 };
        (self.direction, self.starved) = (direction, starved);
        let level = &mut self.levels[level];
        level.position[direction as usize] = cx.requests[id].start;
        level.queues[direction as usize].remove(&mut self.sorted, cx.requests, id);
        id
    }
    fn level(&mut self, requests: &Requests, id: RequestId) -> &mut Level {
        &mut self.levels[requests[id].priority.class as usize]
    }
}

impl Policy for MqDeadline {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let request = &cx.requests[id];
        let direction = request.operation.direction();
        let level = &mut self.levels[request.priority.class as usize];
        level.present += 1;
        let entry = Entry { id, arrived: cx.now };
        level.queues[direction as usize].insert(&mut self.sorted, cx.requests, entry);
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let request = &cx.requests[id];
        let direction = request.operation.direction();
        let rules = MergeRules { front: self.front_merges, max: cx.facts.max_request };
        let level = &mut self.levels[request.priority.class as usize];
        let queue = &mut level.queues[direction as usize];
        let merged = queue.try_merge(&mut self.sorted, cx.requests, id, rules);
        level.present -= u32::from(merged.is_some_and(|merged| merged.absorbed.is_some()));
        merged.is_some()
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.wakeup = None;
        let aged = self.aged(cx);
        if let Some((_, Choice { id, .. })) = aged {
            let sequence = cx.requests[id].sequence;
            cx.decide(Subject::Request { id, sequence }, "came of age", [0; 2]);
        }
        let Some((level, choice)) = aged.or_else(|| self.most_urgent(cx)) else {
            self.wakeup = self.comes_of_age(cx);
            return None;
        };
        Some(self.give(cx, level, &choice))
    }
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.level(cx.requests, id).present -= 1;
    }
    fn next_wakeup(&self) -> Option<Instant> {
        self.wakeup
    }
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        match (class, self.async_depth) {
            (TagClass::SyncRead, _) | (_, 0) => tags,
            (_, depth) => depth.min(tags),
        }
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        let queued = |direction: Direction| {
            let queues = self.levels.iter().map(|level| &level.queues[direction as usize]);
            queues.map(SortedFifo::len).sum::<usize>() as u64
        };
        gauges.gauge("mq_deadline_queued_reads", queued(Direction::Read));
        gauges.gauge("mq_deadline_queued_writes", queued(Direction::Write));
        gauges.gauge("mq_deadline_starved_batches", u64::from(self.starved));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_core::request::{Flags, Operation};
    use iofair_core::testing::Rig;
    use std::vec;

    fn rig(set: &[(&str, &str)]) -> Rig {
        let set: vec::Vec<_> =
            set.iter().map(|(name, text)| ("mq-deadline", *name, *text)).collect();
        Rig::new(&crate::TABLE, "none-mq-deadline", &set)
    }

    const fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    /// Goal: batches go upwards by sector, then the other direction has its turn. Method: batches of
    /// two and one batch of reads before writes, worked by hand.
    #[test]
    fn batches_sweep_upwards() {
        let mut rig = rig(&[("fifo_batch", "2"), ("writes_starved", "1")]);
        let a = rig.client();
        rig.reads(a, &[500, 100, 300, 700]);
        rig.writes(a, &[2000, 1000]);
        assert_eq!(rig.served(), [100, 300, 1000, 2000, 500, 700]);
    }

    /// Goal: the default batch is of 16, a batch ends with the last sector queued, writes wait for two. Method: 20 reads
    /// above and below the last position, writes waiting.
    #[test]
    fn a_batch_has_sixteen() {
        let mut rig = rig(&[]);
        let a = rig.client();
        rig.read(a, 5000);
        assert_eq!(rig.served(), [5000]);
        (0..20).for_each(|i| rig.read(a, 6000 + 100 * i));
        rig.write(a, 1000);
        rig.read(a, 100);
        let served = rig.served();
        // 5000 was the first of its batch, so it ends with the 15th; the second ends at 7900 for want
        // of more; the third is the read behind the head.
        let sweep: vec::Vec<u64> = (0..20).map(|i| 6000 + 100 * i).collect();
        assert_eq!(served[..20], sweep);
        assert_eq!(served[20..], [100, 1000], "writes wait for two batches of reads");
    }

    /// Goal: writes get one batch after `writes_starved` batches of reads. Method: batches of one.
    #[test]
    fn writes_starve_so_long() {
        let mut rig = rig(&[("fifo_batch", "1")]);
        let a = rig.client();
        (1..7).for_each(|i| rig.read(a, 100 * i));
        (1..4).for_each(|i| rig.write(a, 10_000 * i));
        assert_eq!(rig.served(), [100, 200, 10_000, 300, 400, 20_000, 500, 600, 30_000]);
    }

    /// Goal: a request that waited too long starts the next batch. Method: a read behind the head,
    /// asked just before and at its deadline.
    #[test]
    fn expired_requests_start_a_batch() {
        for (at, served) in [(9, [200, 300, 50]), (10, [200, 50, 300])] {
            let mut rig = rig(&[("fifo_batch", "1"), ("read_expire", "10ms")]);
            let a = rig.client();
            rig.read(a, 100);
            assert_eq!(rig.served(), [100]);
            rig.read(a, 50);
            rig.now = ms(1);
            rig.reads(a, &[200, 300]);
            rig.now = ms(2);
            assert_eq!(rig.serve(), Some(vec![served[0]]));
            rig.now = ms(at);
            assert_eq!(rig.served(), served[1..]);
        }
    }

    /// Goal: a running batch is not broken by an expired request, writes expire by their own time.
    /// Method: an expired write behind the head while a batch of writes runs.
    #[test]
    fn a_batch_is_not_broken() {
        let mut rig = rig(&[("fifo_batch", "3"), ("write_expire", "10ms")]);
        let a = rig.client();
        rig.write(a, 100);
        assert_eq!(rig.served(), [100]);
        rig.writes(a, &[50, 200, 300, 400, 500]);
        rig.now = ms(20);
        assert_eq!(rig.served(), [200, 300, 50, 400, 500]);
    }

    /// Goal: a class waits while a more urgent one has anything queued or at the drive. Method: three
    /// classes at a drive with room for all.
    #[test]
    fn urgent_classes_block_the_others() {
        let mut rig = rig(&[]);
        let idle = rig.client_of(Class::Idle);
        let usual = rig.client_of(Class::BestEffort);
        let urgent = rig.client_of(Class::RealTime);
        rig.read(idle, 100);
        rig.reads(usual, &[200, 300]);
        rig.read(urgent, 400);
        let (first, start) = rig.dispatch().expect("the urgent one");
        assert_eq!((start, rig.dispatch()), (400, None));
        rig.complete(first);
        let (second, start) = rig.dispatch().expect("the first usual one");
        let (third, next) = rig.dispatch().expect("the second");
        assert_eq!((start, next, rig.dispatch()), (200, 300, None));
        rig.complete(second);
        assert_eq!(rig.dispatch(), None);
        rig.complete(third);
        assert_eq!(rig.served(), [100]);
    }

    /// Goal: a request of age passes more urgent classes, and we ask to be woken for it. Method: an
    /// urgent request stays at the drive; a usual and an idle one come of age in turn.
    #[test]
    fn aged_requests_pass_urgent_classes() {
        let mut rig = rig(&[("prio_aging_expire", "100ms")]);
        let [idle, usual, urgent] =
            [Class::Idle, Class::BestEffort, Class::RealTime].map(|class| rig.client_of(class));
        rig.read(idle, 100);
        rig.read(urgent, 400);
        rig.now = ms(30);
        rig.read(usual, 200);
        assert_eq!(rig.dispatch().map(|(_, start)| start), Some(400));
        rig.read(urgent, 500);
        assert_eq!(rig.dispatch().map(|(_, start)| start), Some(500));
        for (at, start) in [(100, 100), (130, 200)] {
            assert_eq!(rig.dispatch(), None);
            assert_eq!(rig.controller.next_wakeup(), Some(ms(at)));
            rig.now = Instant(ms(at).0 - 1);
            assert_eq!(rig.dispatch(), None, "one nanosecond early");
            rig.now = ms(at);
            assert_eq!(rig.dispatch().map(|(_, start)| start), Some(start));
        }
        assert_eq!(rig.controller.next_wakeup(), None);
    }

    /// Goal: ageing offers what the level itself would give next, refuses it while that is young, and
    /// asks to be woken when it no longer is. Method: an aged read behind the head of a running batch.
    #[test]
    fn ageing_keeps_to_the_batch() {
        let mut rig = rig(&[("prio_aging_expire", "100ms")]);
        let (usual, urgent) = (rig.client(), rig.client_of(Class::RealTime));
        rig.read(usual, 100);
        assert_eq!(rig.served(), [100]);
        rig.read(usual, 50);
        rig.read(urgent, 400);
        assert_eq!(rig.dispatch().map(|(_, start)| start), Some(400));
        rig.now = ms(60);
        rig.read(usual, 200);
        rig.now = ms(110);
        assert_eq!(rig.dispatch(), None, "50 is of age, but the batch would go on with 200");
        assert_eq!(rig.controller.next_wakeup(), Some(ms(160)));
        rig.now = ms(160);
        assert_eq!(rig.dispatch().map(|(_, start)| start), Some(200));
        assert_eq!(rig.dispatch().map(|(_, start)| start), Some(50), "now it starts a batch");
    }

    /// Goal: everything but reads is held to `async_depth` tags. Method: writes from above downwards,
    /// which only a policy that sees two at a time serves in this order; reads get past.
    #[test]
    fn writes_get_fewer_tags() {
        let starts = [400, 300, 200, 100];
        for (depth, flags, order) in [
            ("0", Flags::NONE, [100, 200, 300, 400]),
            ("2", Flags::NONE, [300, 400, 200, 100]),
            ("2", Flags::SYNC, [300, 400, 200, 100]),
        ] {
            let mut rig = rig(&[("async_depth", depth)]);
            let a = rig.client();
            for start in starts {
                rig.submit(a, start, Operation::Write, flags);
            }
            assert_eq!(rig.served(), order);
            rig.reads(a, &starts);
            assert_eq!(rig.served(), [100, 200, 300, 400]);
        }
    }

    /// Goal: neighbours merge, in front only if allowed, and a merge that closes a gap leaves the
    /// count of requests right. Method: both settings; afterwards a lower class must not be blocked.
    #[test]
    fn neighbours_merge() {
        for (front, parts) in [
            ("true", vec![vec![92, 100, 108, 116]]),
            ("false", vec![vec![92], vec![100, 108, 116]]),
        ] {
            let mut rig = rig(&[("front_merges", front)]);
            let (usual, idle) = (rig.client(), rig.client_of(Class::Idle));
            rig.read(idle, 5000);
            rig.reads(usual, &[100, 116, 108, 92]);
            let mut expected = parts;
            expected.push(vec![5000]);
            assert_eq!(rig.served_parts(), expected);
        }
    }
}
