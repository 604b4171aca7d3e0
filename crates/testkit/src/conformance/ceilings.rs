//! The law of ceilings: in any time, no group's clients get more through than burst and rate, counted in what they sent.
//!
//! The checker remembers when each request left the throttles. A change of ceilings, or to a stack that promises something else
//! about them, begins a new *epoch*, for which alone a bound is known. Bounds are those of `docs/contracts.md`:
//! `max(burst, largest request) + rate * t` for groups with a burst or a total, and some time slices more for others, as long as nobody
//! around or inside them holds requests too.

use iofair_core::contract::{BURST_DEFAULT, Limits};
use iofair_core::controller::{Completion, FlushRule, Setup, Stack};
use iofair_core::group::{Group, Groups};
use iofair_core::id::GroupId;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::SECTOR_BYTES;

use std::collections::BTreeMap;

use super::check::{Checker, Event, law};

/// Slices that a group limited as by Linux may get through at once: the one that has passed without a request, the present
/// one, and two by which the start of a slice may lie off.
const SLICES: u64 = 4;

/// More tags than any request waits for.
pub(super) const TAGS: u32 = 1 << 20;

/// What the last throttle of a stack promises about ceilings; `None`: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Promise {
    /// Time at the rate that groups without a burst and a total may get through at once.
    at_once: Nanos,
}

impl Promise {
    /// By its short name, so that one that is broken on purpose can promise it, too. Where requests wait for tags, their
    /// completions do not tell when they left the throttles.
    pub(super) fn made_by(stack: &Stack, tags: u32) -> Option<Self> {
        let last = stack.throttles.last().filter(|stage| stage.row.short == "max")?;
        if tags < TAGS {
            return None;
        }
        let time = |name: &str, default: Nanos| {
            let mut all = last.values.iter();
            all.find(|(key, _)| key.name == name).map_or(default, |(_, value)| Nanos(value))
        };
        let slice = time("slice", BURST_DEFAULT);
        Some(Self { at_once: slice * SLICES + time("burst", Nanos::ZERO) })
    }
}

/// A group in an epoch.
#[derive(PartialEq)]
struct Member {
    id: GroupId,
    parent: Option<GroupId>,
    max: Limits,
}

/// A time without a change of contracts.
struct Epoch {
    from: Instant,
    groups: Vec<Member>,
    promise: Option<Promise>,
}

/// A request that left the throttles.
#[derive(Clone, Copy)]
struct Passed {
    at: Instant,
    group: GroupId,
    operation: Operation,
    bytes: u64,
}

impl Passed {
    /// Bytes and requests, as ceilings count them.
    fn cost(&self) -> [u64; 2] {
        [if self.operation == Operation::Discard { SECTOR_BYTES } else { self.bytes }, 1]
    }
}

/// See above.
pub(super) struct Ceilings {
    flushes: FlushRule,
    /// Longest time by which wake-ups come late, as far as that is made up for.
    late: Nanos,
    epochs: Vec<Epoch>,
    /// The group of each request inside.
    groups: BTreeMap<u64, GroupId>,
    passed: Vec<Passed>,
}

impl Ceilings {
    pub(super) fn new(setup: &Setup, late: Nanos) -> Self {
        let (groups, flushes) = (BTreeMap::new(), setup.flushes);
        Self { flushes, late, epochs: Vec::new(), groups, passed: Vec::new() }
    }
    fn changed(&mut self, from: Instant, groups: &Groups, promise: Option<Promise>) {
        let member = |(id, group): (GroupId, &Group)| Member {
            id,
            parent: group.parent,
            max: group.contract.max,
        };
        let groups: Vec<Member> = groups.iter().map(member).collect();
        let is_as =
            |last: &Epoch| promise.is_some() && last.promise == promise && last.groups == groups;
        if self.epochs.last().is_some_and(is_as) {
            return;
        }
        self.epochs.push(Epoch { from, groups, promise });
    }
    fn completed(&mut self, done: &Completion) {
        let group = self.groups.remove(&done.part.tag).expect("the ledger knows it");
        let (at, operation, bytes) = (done.released, done.operation, done.part.length.bytes());
        if operation != Operation::Flush || self.flushes == FlushRule::Scheduled {
            self.passed.push(Passed { at, group, operation, bytes });
        }
    }
    fn judge(&mut self) -> Result<(), String> {
        self.passed.sort_by_key(|passed| passed.at);
        for (index, epoch) in self.epochs.iter().enumerate() {
            let end = self.epochs.get(index + 1).map_or(Instant::MAX, |next| next.from);
            // What left at the moment of a change left before or after it.
            let first = self.passed.partition_point(|passed| passed.at <= epoch.from);
            let last = self.passed.partition_point(|passed| passed.at < end);
            if first < last {
                epoch.judge(&self.passed[first..last], self.late)?;
            }
        }
        Ok(())
    }
}

impl Epoch {
    fn judge(&self, passed: &[Passed], late: Nanos) -> Result<(), String> {
        let Some(promise) = self.promise else { return Ok(()) };
        for member in self.groups.iter().filter(|member| member.max != Limits::NONE) {
            let exact = is_exact(&member.max);
            let at_once = match (exact, self.is_alone(member)) {
                (true, _) => late,
                (false, true) => promise.at_once,
                (false, false) => continue,
            };
            let inside = |request: &&Passed| self.is_inside(request.group, member.id);
            let passed: Vec<Passed> = passed.iter().filter(inside).copied().collect();
            member.judge(&passed, at_once)?;
        }
        Ok(())
    }
    fn member(&self, id: GroupId) -> Option<&Member> {
        self.groups.iter().find(|member| member.id == id)
    }
    fn is_inside(&self, id: GroupId, outer: GroupId) -> bool {
        let above = |id: &GroupId| self.member(*id)?.parent;
        core::iter::successors(Some(id), above).any(|id| id == outer)
    }
    /// Whether no other ceiling holds what this group's ceilings have let through.
    fn is_alone(&self, member: &Member) -> bool {
        let mut others = self.groups.iter().filter(|other| other.id != member.id);
        others.all(|other| match self.is_inside(other.id, member.id) {
            true => !is_exact(&other.max),
            false => !self.is_inside(member.id, other.id) || other.max == Limits::NONE,
        })
    }
}

const fn is_exact(max: &Limits) -> bool {
    max.has_total() || max.has_burst()
}

impl Member {
    fn judge(&self, passed: &[Passed], at_once: Nanos) -> Result<(), String> {
        let max = &self.max;
        let rates = [0, 1].map(|d| [max.bytes_per_s[d], max.iops[d]]);
        let total = [max.total.bytes_per_s, max.total.iops];
        let bursts = [max.burst.bytes, max.burst.requests];
        for (direction, rates) in [(Some(0), rates[0]), (Some(1), rates[1]), (None, total)] {
            let counts = |one: &&Passed| {
                direction.is_none_or(|side| side == one.operation.direction() as usize)
            };
            let passed: Vec<&Passed> = passed.iter().filter(counts).collect();
            for kind in [0, 1] {
                let Some(rate) = rates[kind] else { continue };
                let default =
                    (u128::from(rate) * u128::from(BURST_DEFAULT.0)).div_ceil(NANOS) as u64;
                let burst = match is_exact(max) {
                    true => bursts[kind].unwrap_or(default),
                    false => 0,
                };
                let largest = passed.iter().map(|request| request.cost()[kind]).max().unwrap_or(0);
                let most = u128::from(burst.max(largest)) * NANOS
                    + u128::from(rate) * u128::from(at_once.0);
                let got = beyond(rate, passed.iter().map(|one| (one.at, one.cost()[kind])));
                law(got <= most, || {
                    let unit = ["bytes", "requests"][kind];
                    let (got, most) = (got / NANOS, most / NANOS);
                    format!(
                        "{:?} of {max:?}, {direction:?}: {got} {unit} beyond the rate, {most} allowed",
                        self.id
                    )
                })?;
            }
        }
        Ok(())
    }
}

const NANOS: u128 = 1_000_000_000;

/// The most that passed in any time beyond what the rate gives in it, in units and nanoseconds.
fn beyond(rate: u64, passed: impl Iterator<Item = (Instant, u64)>) -> u128 {
    let (mut most, mut level, mut last) = (0, 0u128, Instant::ZERO);
    for (at, units) in passed {
        level = level.saturating_sub(u128::from(at.since(last).0) * u128::from(rate));
        level += u128::from(units) * NANOS;
        (most, last) = (most.max(level), at);
    }
    most
}

impl Checker for Ceilings {
    fn name(&self) -> &'static str {
        "ceilings"
    }
    fn see(&mut self, now: Instant, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Accepted(accepted) => drop(self.groups.insert(accepted.tag, accepted.group)),
            Event::Changed(groups, promise) => self.changed(now, groups, *promise),
            Event::Completed { done, .. } => done.iter().for_each(|done| self.completed(done)),
            Event::Ended(_) => return self.judge(),
            _ => {}
        }
        Ok(())
    }
}
