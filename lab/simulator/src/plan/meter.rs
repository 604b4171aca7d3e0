//! Watches a run and judges the minimum of each group as the server does: which intervals of the run were broken. Time for which
//! ceilings hold requests breaks no promise.

use std::ops::Range;

use iofair_core::contract::Limits;
use iofair_core::controller::{Completion, Controller, Setup, Submission};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::minimum::{Amount, Minimum};
use iofair_core::request::Operation;
use iofair_core::stats::histogram::Histogram;
use iofair_core::stats::minimum::{MinimumMeter, Passage};
use iofair_core::time::{Instant, Nanos};

use crate::observe::Observer;

/// Length of an interval that is judged.
const SECOND: Nanos = Nanos::from_secs(1);

/// Measurements of one group in a run, groups inside it included.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Its path.
    pub(super) group: String,
    /// Bytes a second of reads and writes that completed.
    pub(super) rate: u64,
    /// I/Os a second, as minimums count them.
    pub(super) ios: u64,
    /// Time that 99 of 100 of its reads, writes and flushes took, from submission, or behind ceilings, to completion.
    pub(super) p99: [Option<Nanos>; 3],
    /// Intervals in which its minimum was broken.
    pub(super) broken: u32,
    /// Intervals that were judged.
    pub(super) intervals: u32,
}

#[derive(Default)]
struct Group {
    name: String,
    parent: Option<GroupId>,
    minimum: Minimum,
    max: Limits,
    meter: MinimumMeter,
    done: Amount,
    /// Of reads, writes and flushes.
    times: [Histogram; 3],
    broken: u32,
}

/// The observer.
pub(super) struct Meter {
    groups: Vec<Group>,
    /// The group of each client.
    clients: Vec<GroupId>,
    /// Judged from here on, in intervals of this length.
    from: Instant,
    interval: Nanos,
    next: Instant,
    intervals: u32,
    by_seconds: bool,
}

impl Meter {
    /// Judges every second, or else the run as a whole, in which a group may catch up.
    pub(super) fn new(ramp: Nanos, time: Nanos, by_seconds: bool) -> Self {
        let from = Instant::ZERO + ramp;
        let interval = if by_seconds { SECOND.min(time) } else { time };
        let (groups, clients) = (Vec::new(), Vec::new());
        Self { groups, clients, from, interval, next: from, intervals: 0, by_seconds }
    }
    /// Measurements of every group but the root.
    pub(super) fn finish(self) -> Vec<Measured> {
        let intervals = self.intervals;
        let time = self.interval * u64::from(intervals.max(1));
        let a_second = |count: u64| {
            let rate = u128::from(count) * 1_000_000_000 / u128::from(time.0.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let measured = |group: Group| {
            let (rate, ios) = (a_second(group.done.bytes), a_second(group.done.ios));
            let short =
                is_short(rate, group.minimum.bytes_per_s) || is_short(ios, group.minimum.ios_per_s);
            Measured {
                rate,
                ios,
                p99: group
                    .times
                    .map(|times| (times.count() > 0).then(|| Nanos(times.quantile(990_000)))),
                // What a group gets after a break on a disk makes up for it.
                broken: if self.by_seconds || short { group.broken } else { 0 },
                group: group.name,
                intervals,
            }
        };
        self.groups.into_iter().filter(|group| !group.name.is_empty()).map(measured).collect()
    }
    /// Ends the intervals that are over. The one before the measured time is not judged.
    fn turn(&mut self, now: Instant) {
        while now >= self.next {
            let judged = self.next > self.from;
            for group in &mut self.groups {
                let broken = group.meter.end(self.next, group.minimum, self.interval);
                group.broken += u32::from(broken && judged);
            }
            self.intervals += u32::from(judged);
            self.next += self.interval;
        }
    }
    fn above(&self, client: ClientId) -> impl Iterator<Item = GroupId> {
        let first = self.clients.get(client.index()).copied();
        std::iter::successors(first, |id| self.groups[id.index()].parent)
    }
    fn passage(&self, client: ClientId, operation: Operation) -> Passage {
        let limits = self.above(client).map(|id| &self.groups[id.index()].max);
        Passage::new(limits, operation.direction())
    }
    /// These levels of groups around a client count a request from now on.
    fn arrive(&mut self, now: Instant, submission: &Submission, levels: Range<usize>) {
        let above: Vec<GroupId> = self.above(submission.client).collect();
        for (_, id) in (0..).zip(above).filter(|(level, _)| levels.contains(level)) {
            let group = &mut self.groups[id.index()];
            group.meter.arrive(now, group.minimum, submission.length.bytes());
        }
    }
}

/// Whether a rate is below 95 % of the promise.
fn is_short(rate: u64, promised: Option<u64>) -> bool {
    promised.is_some_and(|promised| rate.saturating_mul(100) < promised.saturating_mul(95))
}

fn carries_data(operation: Operation) -> bool {
    matches!(operation, Operation::Read | Operation::Write)
}

impl Observer for Meter {
    fn on_start(&mut self, _: &Setup, controller: &Controller) {
        let groups = controller.groups();
        self.groups.resize_with(groups.group_bound(), Group::default);
        for (id, group) in groups.iter() {
            let (minimum, max) = (group.contract.minimum(), group.contract.max);
            let (name, parent) = (group.name.clone(), group.parent);
            self.groups[id.index()] = Group { name, parent, minimum, max, ..Group::default() };
        }
        self.clients = vec![GroupId::ROOT; groups.client_bound()];
        for (id, client) in groups.iter_clients() {
            self.clients[id.index()] = client.group;
        }
    }
    fn on_progress(&mut self, now: Instant, _: Instant) {
        self.turn(now);
    }
    fn on_submit(&mut self, now: Instant, submission: &Submission) {
        self.turn(now);
        if carries_data(submission.operation) {
            let passage = self.passage(submission.client, submission.operation);
            self.arrive(now, submission, passage.levels());
        }
    }
    fn wants_passed(&self) -> bool {
        true
    }
    fn on_passed(&mut self, now: Instant, submission: &Submission) {
        self.turn(now);
        if carries_data(submission.operation) {
            let mut passage = self.passage(submission.client, submission.operation);
            self.arrive(now, submission, passage.pass());
        }
    }
    fn on_completion(&mut self, now: Instant, completion: &Completion) {
        self.turn(now);
        let kind = match completion.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => 2,
            _ => return,
        };
        let (part, bytes) = (completion.part, completion.part.length.bytes());
        let is_limited = self.passage(part.client, completion.operation).is_limited();
        let begun = if is_limited { completion.released } else { part.submitted };
        for id in self.above(part.client).collect::<Vec<_>>() {
            let group = &mut self.groups[id.index()];
            if now > self.from {
                group.times[kind].record(now.since(begun).0);
            }
            if carries_data(completion.operation) {
                group.meter.complete(now, group.minimum, bytes);
                group.done += if now > self.from { Amount::of(bytes) } else { Amount::default() };
            }
        }
    }
}
