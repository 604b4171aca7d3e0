//! Results of each group in a replay, or in the recording.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use iofair_core::contract::Contract;
use iofair_core::minimum::Minimum;
use iofair_core::request::Operation;
use iofair_core::stats::histogram::Histogram;
use iofair_core::stats::minimum::{MinimumMeter, Passage};
use iofair_core::time::{Instant, Nanos};
use iofair_trace::record::Completion;
use iofair_trace::source::Notes;
use serde::Serialize;

const SECOND: Nanos = Nanos::from_secs(1);
/// Points of a distribution: percentiles in parts of a million.
pub const QUANTILES: &[u64] = &[
    10_000, 100_000, 250_000, 500_000, 750_000, 900_000, 950_000, 980_000, 990_000, 995_000,
    998_000, 999_000, 999_500, 999_900, 999_990, 1_000_000,
];
/// A latency counts as kept if as many reads of a million meet it.
const LATENCY_QUANTILE: u64 = 990_000;

/// What a group got.
#[derive(Clone, Default, Debug, Serialize)]
pub struct GroupResult {
    /// Its path; `all` for everything together.
    pub name: String,
    /// Completed requests.
    pub requests: u64,
    /// Bytes of completed reads.
    pub read_bytes: u64,
    /// Bytes of completed writes, and of requests for zeroes.
    pub written_bytes: u64,
    /// Completed trims.
    pub trims: u64,
    /// Bytes that they covered. No data are moved for them, so they are in no rate.
    pub trimmed_bytes: u64,
    /// Bytes read and written a second of the whole time.
    pub bytes_per_second: f64,
    /// Latencies in nanoseconds, from when a request should have been sent to its completion.
    pub latency: Totals,
    /// The distribution: parts of a million, nanoseconds.
    pub distribution: Vec<(u64, u64)>,
    /// Seconds in which the minimum was broken; `None` without a minimum.
    pub broken_seconds: Option<u64>,
    /// Reads that missed the latency of the contract; `None` without one.
    pub late_reads: Option<u64>,
    /// The same of writes.
    pub late_writes: Option<u64>,
    /// The same of flushes.
    pub late_syncs: Option<u64>,
    /// Whether 99 % of the reads, writes and flushes met their latencies of the contract; `None` without one.
    pub latency_kept: Option<bool>,
}

/// What a stack made of a trace, or what was recorded.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// Name of the stack; `recording` for what was recorded.
    pub stack: String,
    /// From the first request to the last completion.
    pub seconds: f64,
    /// Everything together.
    pub all: GroupResult,
    /// By group, in the order of their paths.
    pub groups: Vec<GroupResult>,
    /// Requests that were sent later than they should have been, because too many were in flight.
    pub late: u64,
    /// Streams of the trace.
    pub streams: usize,
}

/// A summary of latencies, in nanoseconds.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Totals {
    /// The mean.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// A request as it is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) group: usize,
    pub(super) operation: Operation,
    pub(super) bytes: u64,
    /// Which minimums count it; all if no ceiling is known to hold it.
    pub(super) passage: Passage,
}

impl Counted {
    pub(super) fn new(group: usize, operation: Operation, bytes: u64) -> Self {
        Self { group, operation, bytes, passage: Passage::default() }
    }
    /// Whether it counts for a minimum, as in a server.
    fn moves_data(&self) -> bool {
        !matches!(self.operation, Operation::Flush | Operation::Discard)
    }
}

/// Requests and bytes by what they do.
#[derive(Clone, Copy, Default, Debug)]
struct Amounts {
    requests: u64,
    read: u64,
    written: u64,
    trims: u64,
    trimmed: u64,
}

impl Amounts {
    fn count(&mut self, request: &Counted) {
        self.requests += 1;
        match request.operation {
            Operation::Read => self.read += request.bytes,
            Operation::Flush => {}
            Operation::Discard => {
                self.trims += 1;
                self.trimmed = self.trimmed.saturating_add(request.bytes);
            }
            _ => self.written += request.bytes,
        }
    }
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.read += other.read;
        self.written += other.written;
        self.trims += other.trims;
        self.trimmed = self.trimmed.saturating_add(other.trimmed);
    }
    /// The part of a result that they are.
    fn result(&self, name: String, seconds: f64, latency: &Histogram) -> GroupResult {
        GroupResult {
            name,
            requests: self.requests,
            read_bytes: self.read,
            written_bytes: self.written,
            trims: self.trims,
            trimmed_bytes: self.trimmed,
            bytes_per_second: (self.read + self.written) as f64 / seconds.max(1e-9),
            latency: totals(latency),
            distribution: distribution(latency),
            ..GroupResult::default()
        }
    }
}

/// One group.
#[derive(Debug)]
struct Group {
    name: String,
    contract: Contract,
    /// Indices of this group and those above it.
    chain: Vec<usize>,
    amounts: Amounts,
    latency: Histogram,
    /// Reads, writes and flushes, and how many of them missed their latency.
    timed: [u64; 3],
    late: [u64; 3],
    meter: MinimumMeter,
    broken_seconds: u64,
}

/// Counts of all groups.
#[derive(Debug)]
pub(super) struct Tally {
    groups: Vec<Group>,
    all: Histogram,
    next_second: Instant,
    last: Instant,
}

impl Tally {
    pub(super) fn new() -> Self {
        let next_second = Instant::ZERO + SECOND;
        Self { groups: Vec::new(), all: Histogram::new(), next_second, last: Instant::ZERO }
    }
    /// Adds a group, after those above it. Returns its index.
    pub(super) fn add(&mut self, name: &str, contract: &Contract) -> usize {
        let index = self.groups.len();
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        let parent = self.groups.iter().find(|group| group.name == above && index > 0);
        let mut chain = parent.map(|group| group.chain.clone()).unwrap_or_default();
        chain.push(index);
        self.groups.push(Group {
            name: name.to_owned(),
            contract: contract.clone(),
            chain,
            amounts: Amounts::default(),
            latency: Histogram::new(),
            timed: [0; 3],
            late: [0; 3],
            meter: MinimumMeter::default(),
            broken_seconds: 0,
        });
        index
    }
    /// The index of a group.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.name == name)
    }
    /// Ends the seconds that are over.
    fn turn(&mut self, now: Instant) {
        while self.next_second <= now {
            let at = self.next_second;
            for group in &mut self.groups {
                let broken = group.meter.end(at, group.contract.minimum(), SECOND);
                group.broken_seconds += u64::from(broken);
            }
            // A long pause has nothing to count.
            let due = |group: &Group| group.meter.due(group.contract.minimum());
            let idle = self.groups.iter().all(|group| due(group).is_none());
            self.next_second = match idle {
                true => at + Nanos(now.since(at).0 / SECOND.0 * SECOND.0) + SECOND,
                false => at + SECOND,
            };
        }
    }
    /// Which minimums count a request that ceilings may hold.
    pub(super) fn passage(&self, request: &Counted) -> Passage {
        if !request.moves_data() {
            return Passage::default();
        }
        let above = self.groups[request.group].chain.iter().rev();
        let limits = above.map(|index| &self.groups[*index].contract.max);
        Passage::new(limits, request.operation.direction())
    }
    /// A request is sent.
    pub(super) fn arrive(&mut self, now: Instant, request: &Counted) {
        self.count(now, request, request.passage.levels());
    }
    /// These levels of groups count a request from now on.
    pub(super) fn count(&mut self, now: Instant, request: &Counted, levels: Range<usize>) {
        self.turn(now);
        self.meters(request, levels, |meter, min| meter.arrive(now, min, request.bytes));
    }
    /// These levels of groups do not count it any more.
    pub(super) fn withdraw(&mut self, now: Instant, request: &Counted, levels: Range<usize>) {
        self.turn(now);
        self.meters(request, levels, |meter, min| meter.withdraw(now, min, request.bytes));
    }
    /// Calls `each` with the meters of these levels of groups, the request's own first, and their minimums.
    fn meters(
        &mut self,
        request: &Counted,
        levels: Range<usize>,
        mut each: impl FnMut(&mut MinimumMeter, Minimum),
    ) {
        let chain = self.groups[request.group].chain.len();
        let levels = levels.start..levels.end.min(if request.moves_data() { chain } else { 0 });
        for level in levels {
            let index = self.groups[request.group].chain[chain - 1 - level];
            let group = &mut self.groups[index];
            each(&mut group.meter, group.contract.minimum());
        }
    }
    /// A request has ended, and nobody waits for it any more. One that has failed counts for nothing else.
    pub(super) fn end(&mut self, now: Instant, request: &Counted) {
        self.turn(now);
        self.last = self.last.max(now);
        let levels = request.passage.levels();
        self.meters(request, levels, |meter, min| meter.complete(now, min, request.bytes));
    }
    /// A request is complete; after which time, and how long ceilings held it, may be unknown.
    pub(super) fn complete(
        &mut self,
        now: Instant,
        request: &Counted,
        latency: Option<Nanos>,
        held: Nanos,
    ) {
        self.end(now, request);
        let group = &mut self.groups[request.group];
        group.amounts.count(request);
        let Some(latency) = latency else { return };
        self.all.record(latency.0);
        group.latency.record(latency.0);
        let kind = match request.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => 2,
            _ => return,
        };
        group.timed[kind] += 1;
        // A ceiling of the group, or one around it, breaks no promise.
        let own = Nanos(latency.0.saturating_sub(held.0));
        let is_late = group.contract.latency.times()[kind].is_some_and(|target| own > target);
        group.late[kind] += u64::from(is_late);
    }
    /// The results.
    pub(super) fn finish(self, stack: &str, streams: usize, late: u64) -> Played {
        let seconds = self.last.0 as f64 / 1e9;
        let mut amounts = Amounts::default();
        let mut groups = Vec::new();
        for group in &self.groups {
            amounts.merge(&group.amounts);
            let minimum = group.contract.minimum().is_some();
            if group.amounts.requests == 0 && !minimum && !group.contract.latency.is_some() {
                continue;
            }
            let times = group.contract.latency.times();
            let late = |kind: usize| times[kind].map(|_| group.late[kind]);
            let is_kept = |kind: usize| {
                let most = group.timed[kind] * (1_000_000 - LATENCY_QUANTILE);
                late(kind).map(|late| late * 1_000_000 <= most)
            };
            let name = if group.name.is_empty() { "(root)" } else { group.name.as_str() };
            groups.push(GroupResult {
                broken_seconds: minimum.then_some(group.broken_seconds),
                late_reads: late(0),
                late_writes: late(1),
                late_syncs: late(2),
                latency_kept: (0..3).filter_map(is_kept).reduce(|a, b| a && b),
                ..group.amounts.result(name.to_owned(), seconds, &group.latency)
            });
        }
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        let sum =
            |of: fn(&GroupResult) -> Option<u64>| groups.iter().filter_map(of).reduce(|a, b| a + b);
        let latency_kept =
            groups.iter().filter_map(|group| group.latency_kept).reduce(|a, b| a && b);
        let all = GroupResult {
            broken_seconds: sum(|group| group.broken_seconds),
            late_reads: sum(|group| group.late_reads),
            late_writes: sum(|group| group.late_writes),
            late_syncs: sum(|group| group.late_syncs),
            latency_kept,
            ..amounts.result("all".into(), seconds, &self.all)
        };
        Played { stack: stack.to_owned(), seconds, all, groups, late, streams }
    }
}

fn totals(latency: &Histogram) -> Totals {
    Totals {
        mean: latency.mean(),
        p50: latency.quantile(500_000),
        p99: latency.quantile(990_000),
        p999: latency.quantile(999_000),
        max: latency.max(),
    }
}

fn distribution(latency: &Histogram) -> Vec<(u64, u64)> {
    match latency.count() {
        0 => Vec::new(),
        _ => QUANTILES.iter().map(|part| (*part, latency.quantile(*part))).collect(),
    }
}

/// The recorded completions, counted in the order of their times although the trace is in the order of submissions.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) tally: Tally,
    /// Completions that lie ahead: time, number.
    ahead: BinaryHeap<Reverse<(Instant, u64)>>,
    requests: BTreeMap<u64, (Counted, Completion)>,
    number: u64,
    unknown: u64,
    failed: u64,
}

/// Recorded requests in flight; further ones are counted without their latencies.
const RECORDED_MAX: usize = 1 << 17;
/// The note about requests without a latency.
const UNKNOWN: &str =
    "requests without a recorded latency, which count for the rates of the recording only";
/// The note about requests that failed.
const FAILED: &str =
    "requests that failed in the recording, of which they are left out; replays complete them";

impl Recorded {
    pub(super) fn new() -> Self {
        let (ahead, requests) = (BinaryHeap::new(), BTreeMap::new());
        Self { tally: Tally::new(), ahead, requests, number: 0, unknown: 0, failed: 0 }
    }
    /// A request with its recorded completion.
    pub(super) fn add(&mut self, at: Instant, completion: Option<Completion>, request: Counted) {
        self.advance(at);
        self.tally.arrive(at, &request);
        let failed = completion.is_some_and(|completion| completion.failed);
        self.failed += u64::from(failed);
        let Some(completion) = completion.filter(|_| self.ahead.len() < RECORDED_MAX) else {
            if failed {
                return self.tally.end(at, &request);
            }
            self.unknown += 1;
            return self.tally.complete(at, &request, None, Nanos::ZERO);
        };
        self.number += 1;
        self.requests.insert(self.number, (request, completion));
        let done = Instant(at.0.saturating_add(completion.latency.0));
        self.ahead.push(Reverse((done, self.number)));
    }
    fn advance(&mut self, now: Instant) {
        while let Some(Reverse((at, number))) = self.ahead.peek().copied() {
            if at > now {
                break;
            }
            self.ahead.pop();
            let (request, Completion { latency, failed }) =
                self.requests.remove(&number).expect("it was put there");
            match failed {
                true => self.tally.end(at, &request),
                false => self.tally.complete(at, &request, Some(latency), Nanos::ZERO),
            }
        }
    }
    /// The results; `None` if there was no completion.
    pub(super) fn finish(mut self, streams: usize, notes: &mut Notes) -> Option<Played> {
        self.advance(Instant::MAX);
        if self.number == 0 {
            return None;
        }
        notes.add(UNKNOWN, self.unknown);
        notes.add(FAILED, self.failed);
        Some(self.tally.finish("recording", streams, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: requests that failed move no bytes, are in no latency, and are told. Method: two good reads and a failed one, which
    /// takes the longest, of a group with a minimum.
    #[test]
    fn failed_requests_move_nothing() {
        let mut recorded = Recorded::new();
        let contract = Contract { min: Some(1000), ..Contract::default() };
        let group = recorded.tally.add("a", &contract);
        let read = Counted::new(group, Operation::Read, 4096);
        for (at, latency, failed) in [(0, 5, false), (1, 900, true), (2, 7, false)] {
            let completion = Completion { latency: Nanos::from_millis(latency), failed };
            recorded.add(Instant(at * 1_000_000), Some(completion), read);
        }
        let mut notes = Notes::default();
        let played = recorded.finish(1, &mut notes).expect("there are completions");
        assert_eq!((played.all.requests, played.all.read_bytes), (2, 8192));
        assert_eq!(played.all.bytes_per_second, 8192.0 / 0.901);
        assert!(played.all.latency.max < 8_000_000, "{:?}", played.all.latency);
        assert_eq!((notes.count_of(FAILED), notes.count_of(UNKNOWN)), (1, 0));
    }
}
