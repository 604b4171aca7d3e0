//! The first pass: waiting times by client and place, the rules that held requests, and the slowest requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use iofair_core::controller::{Controller, Setup, Submission};
use iofair_core::id::{ClientId, RequestId};
use iofair_core::request::Operation;
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Instant;
use iofair_core::trace::{Event, EventKind, Subject};
use iofair_simulator::observe::Observer;
use iofair_simulator::scenario::Scenario;
use serde::Serialize;

use super::names::{Names, family};
use super::pool::Pool;
use super::rule::without_values;

/// Events kept between two reads of the trace: more than one call of the engine makes.
pub(super) const TRACE_EVENTS: usize = 1 << 17;

/// Waiting times of one client's requests at one place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Wait {
    /// The client, all its processes together unless one client was asked for.
    pub client: String,
    /// A throttle, `tag`, the scheduler, `flush`, `drive`; for the scheduler also how long the drive was
    /// full and how long it had nothing to do meanwhile.
    pub place: String,
    /// Requests of the client.
    pub requests: u64,
    /// Those that waited here for more than 0 ns.
    pub waited: u64,
    /// Mean over all of them, in nanoseconds.
    pub mean_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// How often a rule was used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RuleCount {
    /// The client, the group or the drive that it was about.
    pub about: String,
    /// Where the requests were that it held; absent when it was not about single requests.
    pub place: Option<String>,
    /// The rule.
    pub rule: String,
    /// How often.
    pub times: u64,
    /// Time that requests were held by it, all added up.
    pub held_ns: u64,
}

/// One of the requests that took longest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Slow {
    /// From its submission to its completion, or to the end of the run.
    pub total_ns: u64,
    /// Its submission sequence.
    pub request: u64,
    /// Who sent it.
    pub client: String,
    /// `read`, `write`, ...
    pub operation: &'static str,
    /// Its size.
    pub bytes: u64,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// Whether it was completed before the end.
    pub completed: bool,
    /// How long at each place, in the order of [`Summary::places`].
    pub waits_ns: Vec<u64>,
}

/// Results of a survey.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Summary {
    /// Requests submitted in the whole run: their sequences are 1 to this.
    pub requests: u64,
    /// Requests that left after the ramp, or were inside at the end; all numbers below are of these.
    pub counted: u64,
    /// Those of them that were inside at the end, with the time they had waited until then.
    pub unfinished: u64,
    /// Where a request can be: throttles, `tag`, the scheduler, `flush`, `drive`.
    pub places: Vec<String>,
    /// Waiting times by client and place.
    pub waits: Vec<Wait>,
    /// Rules, the one that held requests longest first.
    pub rules: Vec<RuleCount>,
    /// The requests that took longest, the slowest first.
    pub slowest: Vec<Slow>,
}

/// The names of operations.
pub(super) fn operation(of: Operation) -> &'static str {
    match of {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::Flush => "flush",
        Operation::Discard => "discard",
        Operation::WriteZeroes => "write of zeroes",
    }
}

/// A request in flight.
#[derive(Clone, Debug)]
struct Travel {
    submitted: u64,
    place: usize,
    since: u64,
    waits: Vec<u64>,
    /// The drive's full and empty time when it came to the scheduler, and meanwhile.
    mark: (u64, u64),
    drive: (u64, u64),
    rule: Option<(&'static str, u64)>,
}

/// The subject of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum About {
    Client(usize),
    Group(usize),
    Drive,
}

/// A rule, where it held requests, and whose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct RuleKey {
    about: About,
    /// `None`: it was noted, and held none.
    place: Option<usize>,
    rule: &'static str,
}

/// How often it did, and for how long.
#[derive(Clone, Copy, Default, Debug)]
struct RuleTally {
    times: u64,
    held_ns: u64,
}

/// Times at the places of one client: each place, then the drive full and empty while queued.
type Histograms = Vec<Histogram>;

/// Watches a run and adds up.
#[derive(Debug)]
pub struct Survey {
    names: Names,
    /// The only client that counts, if one was asked for.
    client: Option<String>,
    slowest_max: usize,
    /// From when on requests count; of clients whose steps have begun, from when on theirs do.
    from: Instant,
    of_steps: BTreeMap<ClientId, Instant>,
    end: Instant,
    pool: Pool,
    travels: Vec<Option<Travel>>,
    /// Names of the rows, and the row of each client and group; `None` if it does not count.
    labels: Vec<String>,
    of_client: Vec<Option<usize>>,
    of_group: Vec<Option<usize>>,
    waits: Vec<Histograms>,
    rules: BTreeMap<RuleKey, RuleTally>,
    /// The least slow on top; of two alike the later one.
    slowest: BinaryHeap<Reverse<(u64, Reverse<u64>, Slow)>>,
    counted: u64,
    unfinished: u64,
}

impl Survey {
    /// Will watch a run of this scenario. `client` (or one of its processes) alone if given; keeps the
    /// `slowest_max` slowest requests.
    pub fn new(scenario: &Scenario, client: Option<&str>, slowest_max: usize) -> Self {
        let from = Instant::ZERO + scenario.ramp;
        Self {
            names: Names::new(scenario),
            client: client.map(str::to_owned),
            slowest_max,
            from,
            of_steps: BTreeMap::new(),
            end: from + scenario.time,
            pool: Pool::default(),
            travels: Vec::new(),
            labels: Vec::new(),
            of_client: Vec::new(),
            of_group: Vec::new(),
            waits: Vec::new(),
            rules: BTreeMap::new(),
            slowest: BinaryHeap::new(),
            counted: 0,
            unfinished: 0,
        }
    }
    /// The clients of the scenario, by the names that `client` may have.
    pub fn clients(scenario: &Scenario) -> Vec<String> {
        Names::new(scenario).families().into_iter().map(str::to_owned).collect()
    }

    /// Whether what happens to this client's requests counts now.
    fn is_measured(&self, client: ClientId, now: u64) -> bool {
        now > self.of_steps.get(&client).unwrap_or(&self.from).0
    }
    fn label(&mut self, name: &str) -> usize {
        self.labels.iter().position(|label| label == name).unwrap_or_else(|| {
            self.labels.push(name.to_owned());
            self.labels.len() - 1
        })
    }
    fn label_everybody(&mut self, controller: &Controller) {
        self.of_group = vec![None; controller.groups().group_bound()];
        for (id, _) in controller.groups().iter_clients() {
            let name = self.names.client(id.index()).to_owned();
            let wanted = self.client.as_ref().is_none_or(|client| self.names.is_named(id, client));
            let label = if self.client.is_some() { &name } else { family(&name) };
            let label = wanted.then(|| self.label(label));
            self.of_client.push(label);
            if !wanted {
                continue;
            }
            for group in self.names.ancestry(id).to_vec() {
                let name = self.names.group(group.index());
                let label = family(&name).to_owned();
                self.of_group[group.index()] = Some(self.label(&label));
            }
        }
        let kinds = self.names.places.len() + 2;
        self.waits = vec![vec![Histogram::new(); kinds]; self.labels.len()];
    }

    fn enter(&mut self, now: u64, id: RequestId, sequence: u64) {
        let Some(known) = self.pool.enter(id, sequence) else { return };
        let flush = known.submission.operation == Operation::Flush;
        let place = if flush { self.names.flush() } else { self.names.stage(0) };
        let mark = self.pool.drive.full_and_empty(now);
        let waits = vec![0; self.names.places.len()];
        let (drive, rule) = ((0, 0), None);
        let travel = Travel { submitted: now, place, since: now, waits, mark, drive, rule };
        let index = id.0 as usize;
        if index >= self.travels.len() {
            self.travels.resize_with(index + 1, || None);
        }
        self.travels[index] = Some(travel);
    }
    fn move_to(&mut self, now: u64, id: RequestId, place: usize) {
        self.end_rule(now, id);
        let drive = self.pool.drive.full_and_empty(now);
        let scheduler = self.names.scheduler();
        let travel = self.travels.get_mut(id.0 as usize).and_then(Option::as_mut);
        let Some(travel) = travel else { return };
        travel.waits[travel.place] += now - travel.since;
        if travel.place == scheduler {
            travel.drive.0 += drive.0 - travel.mark.0;
            travel.drive.1 += drive.1 - travel.mark.1;
        }
        (travel.place, travel.since, travel.mark) = (place, now, drive);
    }
    /// The requests that were merged into it end with it.
    fn together(&self, id: RequestId) -> Vec<RequestId> {
        let with = self.pool.known(id).map_or(&[][..], |known| &known.with);
        std::iter::once(id).chain(with.iter().copied()).collect()
    }
    fn leave(&mut self, now: u64, id: RequestId, completed: bool) {
        self.move_to(now, id, self.names.drive());
        let Some(travel) = self.travels.get_mut(id.0 as usize).and_then(Option::take) else {
            return;
        };
        let Some(known) = self.pool.known(id) else { return };
        let client = known.submission.client;
        let Some(Some(label)) = self.of_client.get(client.index()) else { return };
        if !self.is_measured(client, now) {
            return;
        }
        self.counted += 1;
        self.unfinished += u64::from(!completed);
        let times = travel.waits.iter().copied().chain([travel.drive.0, travel.drive.1]);
        for (histogram, time) in self.waits[*label].iter_mut().zip(times) {
            histogram.record(time);
        }
        let total_ns = now - travel.submitted;
        let full = self.slowest.len() >= self.slowest_max;
        if full && self.slowest.peek().is_none_or(|Reverse(least)| least.0 >= total_ns) {
            return;
        }
        let slow = Slow {
            total_ns,
            request: known.sequence,
            client: self.names.client(client.index()).to_owned(),
            operation: operation(known.submission.operation),
            bytes: known.submission.length.bytes(),
            submitted_ns: travel.submitted,
            completed,
            waits_ns: travel.waits,
        };
        self.slowest.push(Reverse((total_ns, Reverse(slow.request), slow)));
        if self.slowest.len() > self.slowest_max {
            self.slowest.pop();
        }
    }

    fn end_rule(&mut self, now: u64, id: RequestId) {
        let travel = self.travels.get_mut(id.0 as usize).and_then(Option::as_mut);
        let Some(travel) = travel else { return };
        let Some((rule, since)) = travel.rule.take() else { return };
        let place = travel.place;
        let Some(known) = self.pool.known(id) else { return };
        let client = known.submission.client;
        if let Some(Some(label)) = self.of_client.get(client.index())
            && self.is_measured(client, now)
        {
            let key = RuleKey { about: About::Client(*label), place: Some(place), rule };
            let tally = self.rules.entry(key).or_default();
            tally.times += 1;
            tally.held_ns += now - since;
        }
    }
    fn decided(&mut self, now: u64, subject: Subject, rule: &'static str) {
        let label = |labels: &[Option<usize>], index: usize| labels.get(index).copied().flatten();
        let is_measured = match subject {
            Subject::Client(id) => self.is_measured(id, now),
            _ => now > self.from.0,
        };
        let about = match subject {
            Subject::Request { id, .. } => {
                self.end_rule(now, id);
                if let Some(Some(travel)) = self.travels.get_mut(id.0 as usize) {
                    travel.rule = Some((rule, now));
                }
                return;
            }
            Subject::Client(id) => label(&self.of_client, id.index()).map(About::Client),
            Subject::Group(id) => label(&self.of_group, id.index()).map(About::Group),
            Subject::Drive => Some(About::Drive),
        };
        if let Some(about) = about
            && is_measured
        {
            self.rules.entry(RuleKey { about, place: None, rule }).or_default().times += 1;
        }
    }

    /// The results.
    pub fn finish(mut self) -> Summary {
        for index in 0..self.travels.len() {
            if self.travels[index].is_some() {
                self.leave(self.end.0, RequestId(index as u32), false);
            }
        }
        let mut rules: Vec<RuleCount> =
            self.rules.iter().map(|(key, tally)| self.rule(key, *tally)).collect();
        rules.sort_by_key(|rule| Reverse((rule.held_ns, rule.times)));
        let slowest = std::mem::take(&mut self.slowest).into_sorted_vec();
        Summary {
            requests: self.pool.submitted(),
            counted: self.counted,
            unfinished: self.unfinished,
            waits: self.rows(),
            rules,
            slowest: slowest.into_iter().map(|Reverse((.., slow))| slow).collect(),
            places: self.names.places,
        }
    }
    fn rule(&self, key: &RuleKey, tally: RuleTally) -> RuleCount {
        let RuleKey { about, place, rule } = key;
        let RuleTally { times, held_ns } = tally;
        let about = match about {
            About::Client(label) | About::Group(label) => self.labels[*label].clone(),
            About::Drive => "the drive".to_owned(),
        };
        let place = place.map(|place| self.names.places[place].clone());
        RuleCount { about, place, rule: without_values(rule), times, held_ns }
    }
    fn rows(&self) -> Vec<Wait> {
        let scheduler = &self.names.places[self.names.scheduler()];
        let mut places: Vec<(usize, String)> =
            self.names.places.iter().cloned().enumerate().collect();
        let after = self.names.scheduler() + 1;
        for (kind, what) in [(1, "drive empty"), (0, "drive full")] {
            places.insert(after, (self.names.places.len() + kind, format!("{scheduler}: {what}")));
        }
        let mut rows = Vec::new();
        for (client, histograms) in self.labels.iter().zip(&self.waits) {
            for (kind, place) in &places {
                let times = &histograms[*kind];
                if times.max() == 0 {
                    continue;
                }
                let none: u64 =
                    times.buckets().take_while(|(value, _)| *value == 0).map(|(_, n)| n).sum();
                rows.push(Wait {
                    client: client.clone(),
                    place: place.clone(),
                    requests: times.count(),
                    waited: times.count() - none,
                    mean_ns: times.mean(),
                    p99_ns: times.quantile(990_000),
                    max_ns: times.max(),
                });
            }
        }
        rows
    }
}

impl Observer for Survey {
    fn trace_events(&self) -> usize {
        TRACE_EVENTS
    }
    fn on_start(&mut self, setup: &Setup, controller: &Controller) {
        self.names.learn(controller);
        self.pool.drive.depth = setup.facts.depth;
        self.label_everybody(controller);
    }
    fn on_step(&mut self, clients: &[ClientId], measured_from: Instant) {
        self.of_steps.extend(clients.iter().map(|client| (*client, measured_from)));
    }
    fn on_progress(&mut self, _: Instant, end: Instant) {
        self.end = end;
    }
    fn on_submit(&mut self, _: Instant, submission: &Submission) {
        self.pool.announce(submission);
    }
    fn on_event(&mut self, event: &Event) {
        let now = event.at.0;
        let Subject::Request { id, sequence } = event.subject else {
            if let EventKind::Decision { rule, .. } = event.kind {
                self.decided(now, event.subject, rule);
            }
            return;
        };
        match event.kind {
            EventKind::Submitted => self.enter(now, id, sequence),
            EventKind::Merged { into } => {
                self.move_to(now, id, self.names.scheduler());
                self.pool.merge(id, into);
            }
            EventKind::Entered { stage } => self.move_to(now, id, self.names.stage(stage)),
            EventKind::WaitsForTag { .. } => self.move_to(now, id, self.names.tag()),
            EventKind::GotTag => self.move_to(now, id, self.names.scheduler()),
            EventKind::Decision { rule, .. } => self.decided(now, event.subject, rule),
            EventKind::Dispatched => {
                for part in self.together(id) {
                    self.move_to(now, part, self.names.drive());
                }
                self.pool.send(id, now);
            }
            EventKind::Completed => {
                for part in self.together(id) {
                    self.leave(now, part, true);
                }
                self.pool.leave(id, now);
            }
            _ => {}
        }
    }
}
