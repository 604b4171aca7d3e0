//! Counters of groups, second by second, and the time that requests spend in each step.
//!
//! The counters are updated for every request, so this is plain arithmetic on existing memory: no allocation, and no
//! loop except over the groups above. Everything else is computed when the counters are read.
//!
//! *Broken promises.* A second counts as broken for a group with a minimum if reads and writes of the group,
//! including groups inside it, were overdue for more than a twentieth of it ([`MinimumMeter`]). Flushes, trims and
//! block-status requests do not count, nor does the time for which a ceiling of the group or of one inside it holds a request: a
//! minimum is a promise for what has passed these.

use std::ops::Range;

use iofair_core::controller::Completion;
use iofair_core::group::Groups;
use iofair_core::id::GroupId;
use iofair_core::minimum::Minimum;
use iofair_core::request::Operation;
use iofair_core::stats::minimum::{MinimumMeter, Passage};
use iofair_core::time::{Instant, Nanos};

use crate::request::op::Op;

/// How many times a second.
const SECOND: Nanos = Nanos::from_secs(1);

/// Buckets of a histogram of times.
pub const BUCKETS: usize = 22;
/// The first bucket holds times of up to 2 to the power of this, in nanoseconds (8 us).
const FIRST_BITS: u32 = 13;

/// The steps in which a request spends time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Held by throttles.
    Held,
    /// In the scheduler, including the wait for a tag.
    Queued,
    /// At the drive.
    Drive,
}

impl Step {
    /// All steps in order; `step as usize` is an index.
    pub const ALL: [Self; 3] = [Self::Held, Self::Queued, Self::Drive];
    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Queued => "queued",
            Self::Drive => "drive",
        }
    }
}

/// A histogram of times with buckets of powers of two; the last bucket counts all longer times.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Times {
    /// Number of times in each bucket.
    pub counts: [u64; BUCKETS],
    /// The sum in nanoseconds.
    pub sum: u64,
}

impl Times {
    fn record(&mut self, time: Nanos) {
        let bits = u64::BITS - time.0.saturating_sub(1).leading_zeros();
        let bucket = (bits.saturating_sub(FIRST_BITS) as usize).min(BUCKETS - 1);
        self.counts[bucket] += 1;
        self.sum = self.sum.wrapping_add(time.0);
    }
    /// The longest time in a bucket, in nanoseconds; `None` for the last one.
    pub const fn bound(bucket: usize) -> Option<u64> {
        if bucket + 1 < BUCKETS { Some(1 << (FIRST_BITS as usize + bucket)) } else { None }
    }
    /// Number of times.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// A group's counters. Arrays are indexed by [`Direction`](iofair_core::request::Direction); trims and zeroes count
/// as writes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GroupTally {
    /// Completed requests of volumes directly in the group.
    pub requests: [u64; 2],
    /// Their bytes; trims have none.
    pub bytes: [u64; 2],
    /// Flushes of volumes directly in it.
    pub flushes: u64,
    /// Trims of volumes directly in it, which also count as writes.
    pub trims: u64,
    /// Zeroes of volumes directly in it, which also count as writes.
    pub zeroes: u64,
    /// Block-status requests of volumes directly in it.
    pub block_statuses: u64,
    /// Failed requests of volumes directly in it, including refused ones.
    pub failed: u64,
    /// Requests of volumes directly in it that a front end refused: malformed, out of range, or a write to a
    /// read-only volume.
    pub refused: u64,
    /// Number of times that a client of a volume directly in it waited for a request slot, memory or another
    /// block-status request.
    pub stalls: u64,
    /// Calls to the control socket that named it or a volume directly in it.
    pub control_calls: u64,
    /// Times of their pieces by [`Step`] and direction; a flush counts as a write.
    pub times: [[Times; 2]; 3],
    /// Requests in flight, including those of groups inside it.
    pub inside: u64,
    /// Processor time spent on volumes directly in it.
    pub cpu: Nanos,
    /// Seconds in which its minimum was broken.
    pub broken_seconds: u64,
    minimum: MinimumMeter,
    /// The last whole second, including groups inside it.
    pub last: Second,
    present: Second,
    /// When the first of what is inside came in, or the second began.
    busy_since: Instant,
    parent: u32,
    /// A block status of a volume directly in it is inside: there is one at most, since one thread finds out for all.
    pub(super) is_asking: bool,
    /// It is among those whose second is worked out when it is over.
    is_active: bool,
}

impl GroupTally {
    /// When it becomes overdue with this minimum ([`MinimumMeter::due`]).
    pub fn due(&self, min: Minimum) -> Option<Instant> {
        self.minimum.due(min)
    }
}

/// A second, or the interval between two updates if there was no activity.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Second {
    /// Bytes of completed requests.
    pub bytes: u64,
    /// Time with requests in flight.
    pub busy: Nanos,
    /// Processor time.
    pub cpu: Nanos,
    /// Its length.
    pub length: Nanos,
}

impl Second {
    /// Processor time in per cent of one core.
    pub fn cpu_percent(&self) -> f64 {
        self.cpu.0 as f64 * 100.0 / self.length.0.max(1) as f64
    }
    /// Bytes a second.
    pub fn rate(&self) -> u64 {
        let rate = u128::from(self.bytes) * 1_000_000_000 / u128::from(self.length.0.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

const NONE: u32 = u32::MAX;

/// What a request counts for: flushes, trims and block statuses carry nothing.
pub(super) fn op_bytes(op: &Op) -> u64 {
    let has_none = matches!(op.operation, Operation::Flush | Operation::Discard);
    if has_none || op.asks_status() { 0 } else { u64::from(op.length) }
}

/// Which minimums count a request; all if it has no bytes.
pub(super) fn passage(op: &Op, groups: &Groups) -> Passage {
    if op_bytes(op) == 0 {
        return Passage::default();
    }
    let above = std::iter::successors(Some(op.group), |id| groups.group(*id).parent);
    Passage::new(above.map(|id| &groups.group(id).contract.max), op.operation.direction())
}

/// The minimum of the group with this index.
fn minimum(groups: &Groups, index: usize) -> Minimum {
    groups.group_id(index).map_or(Minimum::NONE, |id| groups.group(id).contract.minimum())
}

/// All groups, by id.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    groups: Vec<GroupTally>,
    /// Indices of groups with requests in flight, or whose last second was not idle. No call visits the others.
    active: Vec<u32>,
    began: Instant,
}

impl Tallies {
    /// Adds a group, or resets the entry of its index for a new one.
    pub(super) fn add(&mut self, id: GroupId, groups: &Groups) {
        if id.index() >= self.groups.len() {
            self.groups.resize(id.index() + 1, GroupTally::default());
        }
        let parent = groups.group(id).parent.map_or(NONE, |parent| parent.index() as u32);
        let is_active = self.groups[id.index()].is_active;
        self.groups[id.index()] = GroupTally { parent, is_active, ..GroupTally::default() };
    }
    pub(super) fn get(&self, id: GroupId) -> &GroupTally {
        &self.groups[id.index()]
    }
    /// Counts a request of the group that was refused at submission.
    pub(super) fn refused(&mut self, group: GroupId) {
        let tally = &mut self.groups[group.index()];
        tally.failed += 1;
        tally.refused += 1;
    }
    /// Counts a client of the group that has to wait for room.
    pub(super) fn stalled(&mut self, group: GroupId) {
        if let Some(tally) = self.groups.get_mut(group.index()) {
            tally.stalls += 1;
        }
    }
    /// Counts a call to the control socket that named the group.
    pub(super) fn called(&mut self, group: GroupId) {
        self.groups[group.index()].control_calls += 1;
    }
    /// Charges processor time to a group.
    pub(super) fn charge(&mut self, group: GroupId, time: Nanos) {
        if let Some(tally) = self.groups.get_mut(group.index()) {
            tally.cpu += time;
        }
        let mut at = group.index() as u32;
        while let Some(tally) = self.groups.get_mut(at as usize) {
            tally.present.cpu += time;
            if !std::mem::replace(&mut tally.is_active, true) {
                self.active.push(at);
            }
            at = tally.parent;
        }
    }
    /// A request was submitted.
    pub(super) fn came_in(&mut self, now: Instant, op: &Op, groups: &Groups) {
        self.entered(now, op.group);
        self.meters(op, groups, |meter, min| meter.arrive(now, min, op_bytes(op)));
    }
    /// A request has passed the ceilings: these levels count it from now on.
    pub(super) fn counted(&mut self, now: Instant, op: &Op, levels: Range<usize>, groups: &Groups) {
        let bytes = op_bytes(op);
        self.meters_of(op.group, levels, groups, |meter, min| meter.arrive(now, min, bytes));
    }
    /// What is left of a request waits at a ceiling again: these levels do not count it any more.
    pub(super) fn uncounted(
        &mut self,
        now: Instant,
        op: &Op,
        levels: Range<usize>,
        groups: &Groups,
    ) {
        let bytes = op_bytes(op);
        self.meters_of(op.group, levels, groups, |meter, min| meter.withdraw(now, min, bytes));
    }
    /// Calls `each` with each meter that counts the request, and its minimum.
    fn meters(&mut self, op: &Op, groups: &Groups, each: impl FnMut(&mut MinimumMeter, Minimum)) {
        if op_bytes(op) > 0 {
            self.meters_of(op.group, op.passage.levels(), groups, each);
        }
    }
    /// The same for these levels of groups, which begin with this one.
    fn meters_of(
        &mut self,
        group: GroupId,
        levels: Range<usize>,
        groups: &Groups,
        mut each: impl FnMut(&mut MinimumMeter, Minimum),
    ) {
        let (mut at, mut level) = (group.index() as u32, 0);
        while level < levels.end
            && let Some(tally) = self.groups.get_mut(at as usize)
        {
            if level >= levels.start {
                each(&mut tally.minimum, minimum(groups, at as usize));
            }
            (at, level) = (tally.parent, level + 1);
        }
    }
    fn entered(&mut self, now: Instant, group: GroupId) {
        let mut at = group.index() as u32;
        while let Some(tally) = self.groups.get_mut(at as usize) {
            if tally.inside == 0 {
                tally.busy_since = now;
            }
            if !std::mem::replace(&mut tally.is_active, true) {
                self.active.push(at);
            }
            tally.inside += 1;
            at = tally.parent;
        }
    }
    /// A request was completed.
    pub(super) fn finished(&mut self, now: Instant, op: &Op, groups: &Groups) {
        let (bytes, is_status) = (op_bytes(op), op.asks_status());
        let tally = &mut self.groups[op.group.index()];
        tally.failed += u64::from(op.status != 0);
        if op.operation == Operation::Flush {
            tally.flushes += 1;
        } else if is_status {
            tally.block_statuses += 1;
            tally.is_asking = false;
        } else {
            tally.trims += u64::from(op.operation == Operation::Discard);
            tally.zeroes += u64::from(op.operation == Operation::WriteZeroes);
            let direction = op.operation.direction() as usize;
            tally.requests[direction] += 1;
            tally.bytes[direction] += bytes;
        }
        self.meters(op, groups, |meter, min| meter.complete(now, min, bytes));
        self.left(now, op.group, bytes);
    }
    /// A cancelled request ended. It counts as neither served nor failed, and is not owed.
    pub(super) fn cancelled(&mut self, now: Instant, op: &Op, groups: &Groups) {
        if op.asks_status() {
            self.groups[op.group.index()].is_asking = false;
        }
        self.meters(op, groups, |meter, _| meter.complete(now, Minimum::NONE, op_bytes(op)));
        self.left(now, op.group, 0);
    }
    /// A block status of the group came in.
    pub(super) fn asks_status(&mut self, group: GroupId) {
        self.groups[group.index()].is_asking = true;
    }
    /// A request left its group and all groups above it; so many bytes of it were served.
    fn left(&mut self, now: Instant, group: GroupId, bytes: u64) {
        let mut at = group.index() as u32;
        while let Some(tally) = self.groups.get_mut(at as usize) {
            tally.present.bytes += bytes;
            tally.inside -= 1;
            if tally.inside == 0 {
                tally.present.busy += now.since(tally.busy_since);
            }
            at = tally.parent;
        }
    }
    /// A piece of one of its requests was completed by the drive.
    pub(super) fn piece(&mut self, group: GroupId, done: &Completion) {
        let times = &mut self.groups[group.index()].times;
        let direction = done.operation.direction() as usize;
        times[Step::Held as usize][direction].record(done.released.since(done.part.submitted));
        times[Step::Queued as usize][direction].record(done.dispatched.since(done.released));
        times[Step::Drive as usize][direction].record(done.completed.since(done.dispatched));
    }

    /// When the present second is over.
    pub(super) fn next_second(&self) -> Instant {
        self.began + SECOND
    }
    /// Begins another second, if this one is over.
    pub(super) fn turn(&mut self, now: Instant, groups: &Groups) {
        if now < self.next_second() {
            return;
        }
        let length = now.since(self.began);
        self.began = now;
        let all = &mut self.groups;
        self.active.retain(|index| {
            let tally = &mut all[*index as usize];
            if tally.inside > 0 {
                tally.present.busy += now.since(tally.busy_since);
                tally.busy_since = now;
            }
            tally.last = Second { length, ..std::mem::take(&mut tally.present) };
            if tally.minimum.end(now, minimum(groups, *index as usize), length) {
                // A turn that came late stands for all the seconds since the last one.
                tally.broken_seconds += length.0 / SECOND.0;
            }
            let Second { bytes, busy, cpu, .. } = tally.last;
            tally.is_active =
                tally.inside > 0 || bytes > 0 || busy > Nanos::ZERO || cpu > Nanos::ZERO;
            tally.is_active
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use iofair_core::contract::Contract;
    use iofair_core::controller::Controller;

    impl Tallies {
        fn arrived(&mut self, now: Instant, group: GroupId, bytes: u64, groups: &Groups) {
            self.entered(now, group);
            let levels = 0..if bytes > 0 { usize::MAX } else { 0 };
            self.meters_of(group, levels, groups, |meter, min| meter.arrive(now, min, bytes));
        }
        fn completed(&mut self, now: Instant, group: GroupId, bytes: u64, groups: &Groups) {
            let levels = 0..usize::MAX;
            self.meters_of(group, levels, groups, |meter, min| meter.complete(now, min, bytes));
            self.left(now, group, bytes);
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(millis)
    }

    /// A controller with `a`, which is promised a megabyte a second, and `a/b` in it.
    fn scene() -> (Controller, Tallies, [GroupId; 2]) {
        let promised = Contract { min: Some(1_000_000), ..Contract::default() };
        let controller = testing::controller([("a", promised), ("a/b", Contract::default())]);
        let [a, b] = ["a", "a/b"].map(|name| controller.groups().find(name).expect("just added"));
        let mut tallies = Tallies::default();
        for (id, _) in controller.groups().iter() {
            tallies.add(id, controller.groups());
        }
        (controller, tallies, [a, b])
    }

    /// Goal: seconds are counted for the group that has the minimum, whichever of its clients sends; a turn that comes late stands for all
    /// of its seconds. Method: requests of a group inside, worth half a second each, in time and late.
    #[test]
    fn broken_promises_are_counted() {
        let (controller, mut tallies, [a, b]) = scene();
        let groups = controller.groups();
        let broken = |tallies: &Tallies| [a, b].map(|id| tallies.get(id).broken_seconds);
        tallies.arrived(at(10), b, 500_000, groups);
        tallies.completed(at(500), b, 500_000, groups);
        tallies.arrived(at(510), b, 500_000, groups);
        tallies.turn(at(999), groups);
        tallies.turn(at(1000), groups);
        assert_eq!(broken(&tallies), [0, 0], "half a megabyte of the one promised, in time");
        tallies.completed(at(1300), b, 500_000, groups);
        tallies.turn(at(2000), groups);
        assert_eq!(broken(&tallies), [1, 0], "290 ms late, and then it asked for nothing");
        tallies.arrived(at(3000), b, 500_000, groups);
        tallies.turn(at(6500), groups);
        assert_eq!(
            broken(&tallies),
            [5, 0],
            "four whole seconds since the last turn, most of them overdue"
        );
        assert_eq!(tallies.get(a).inside, 1);
        assert_eq!(tallies.get(GroupId::ROOT).last.busy, Nanos::from_millis(3500));
    }

    /// Goal: flushes are no part of a minimum. Method: one that takes two seconds.
    #[test]
    fn flushes_break_no_promise() {
        let (controller, mut tallies, [a, _]) = scene();
        tallies.arrived(at(0), a, 0, controller.groups());
        tallies.turn(at(2000), controller.groups());
        assert_eq!((tallies.get(a).broken_seconds, tallies.get(a).inside), (0, 1));
    }

    /// Goal: a turn visits only groups that did something, and what it shows of one that stopped is nothing. Method: a
    /// group is busy in one second and idle in the next ones, beside one that never was anything.
    #[test]
    fn idle_groups_are_not_visited() {
        let (controller, mut tallies, [a, b]) = scene();
        let groups = controller.groups();
        tallies.arrived(at(10), a, 1000, groups);
        tallies.completed(at(20), a, 1000, groups);
        tallies.turn(at(1000), controller.groups());
        assert_eq!(tallies.active, [a, GroupId::ROOT].map(|id| id.index() as u32));
        assert_eq!((tallies.get(a).last.bytes, tallies.get(b).last.bytes), (1000, 0));
        tallies.turn(at(2000), controller.groups());
        assert_eq!((tallies.get(a).last.bytes, tallies.active.len()), (0, 0));
        tallies.arrived(at(2500), b, 1000, groups);
        tallies.turn(at(3000), controller.groups());
        assert_eq!(tallies.active, [b, a, GroupId::ROOT].map(|id| id.index() as u32));
        assert_eq!(tallies.get(b).last.busy, Nanos::from_millis(500));
    }

    /// Goal: processor time is that of the second in which it was used, for groups above too, and is forgotten after it.
    /// Method: a group without requests is charged, and two seconds pass.
    #[test]
    fn processor_time_is_of_its_second() {
        let (controller, mut tallies, [a, b]) = scene();
        tallies.charge(b, Nanos::from_millis(100));
        tallies.charge(b, Nanos::from_millis(150));
        tallies.turn(at(1000), controller.groups());
        let percent = |tallies: &Tallies| [a, b].map(|id| tallies.get(id).last.cpu_percent());
        assert_eq!(percent(&tallies), [25.0, 25.0]);
        let total = [a, b].map(|id| tallies.get(id).cpu);
        assert_eq!(total, [Nanos::ZERO, Nanos::from_millis(250)], "of volumes directly in it");
        tallies.turn(at(2000), controller.groups());
        assert_eq!((percent(&tallies), tallies.active.len()), ([0.0, 0.0], 0));
    }

    /// Goal: every time falls into the bucket whose bound it does not exceed. Method: bounds and their
    /// neighbours.
    #[test]
    fn times_fall_into_their_buckets() {
        for bucket in 0..BUCKETS {
            let mut times = Times::default();
            let bound = Times::bound(bucket).unwrap_or(u64::MAX);
            times.record(Nanos(bound));
            assert_eq!(times.counts[bucket], 1, "{bound}");
            if Times::bound(bucket).is_some() {
                times.record(Nanos(bound + 1));
                assert_eq!(times.counts[bucket + 1], 1, "{bound} and one");
            }
        }
        let mut nothing = Times::default();
        nothing.record(Nanos::ZERO);
        assert_eq!((nothing.counts[0], nothing.count(), nothing.sum), (1, 1, 0));
    }
}
