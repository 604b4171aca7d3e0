//! The second pass: what happened to a few requests, step by step.
//!
//! A story has a line for each step of its request, and for each decision about it, its client, its groups
//! or the drive while it waited; a decision that comes again and again is counted after its second line.
//! A line between two of these says what other clients got meanwhile.

use std::collections::BTreeMap;

use iofair_core::controller::{Controller, Setup, Submission};
use iofair_core::id::{ClientId, GroupId, RequestId};
use iofair_core::request::Flags;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::{Event, EventKind, Subject};
use iofair_simulator::observe::Observer;
use iofair_simulator::scenario::Scenario;
use iofair_simulator::text_table::counted;
use serde::Serialize;

use super::names::Names;
use super::pool::Pool;
use super::rule::{size, with_values, without_values};
use super::survey::{TRACE_EVENTS, operation};

/// A decision is told in full this often at one place, and counted from then on.
const TOLD_MAX: u32 = 2;
/// This many others are named in one line.
const OTHERS_MAX: usize = 4;

/// One line of a story.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Line {
    /// Time since the request was submitted.
    pub after_ns: u64,
    /// What happened.
    pub what: String,
}

/// What happened to one request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Story {
    /// Its submission sequence.
    pub request: u64,
    /// Who sent it.
    pub client: String,
    /// The client's group.
    pub group: String,
    /// `read`, `write`, ...
    pub operation: &'static str,
    /// Whether it reads or writes the file system's own data.
    pub metadata: bool,
    /// Its first sector.
    pub start_sector: u64,
    /// Its size.
    pub bytes: u64,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// From then to its completion, or to the end of the run.
    pub total_ns: u64,
    /// Whether it was completed before the end.
    pub completed: bool,
    /// Where it was longest, how long, and by which rule.
    pub why: String,
    /// Step by step.
    pub lines: Vec<Line>,
}

/// Requests of another client that were served while a request waited.
#[derive(Clone, Default, Debug)]
struct Meanwhile {
    commands: u64,
    bytes: u64,
    /// Of the commands, those submitted after the request.
    later: u64,
    rules: BTreeMap<&'static str, u64>,
}

/// What a policy decided: its rule with the values.
#[derive(Clone, Copy)]
struct Decision {
    rule: &'static str,
    values: [u64; 2],
}

/// How often a decision was told.
#[derive(Clone, Copy, Default, Debug)]
struct Told {
    times: u32,
    last: u64,
}

/// A request that is watched.
#[derive(Debug)]
struct Watch {
    story: Story,
    client: ClientId,
    groups: Vec<GroupId>,
    /// Itself, or the request that it was merged into.
    head: RequestId,
    place: usize,
    since: u64,
    /// Each place: how long, and the last rule about the request there.
    waits: Vec<(u64, Option<String>)>,
    /// The drive's full and empty time when it came to the scheduler.
    mark: (u64, u64),
    told: BTreeMap<(String, &'static str), Told>,
    others: BTreeMap<ClientId, Meanwhile>,
    /// Others' commands that went to the drive before it, and their bytes.
    overtaken: (u64, u64),
    sent: bool,
    /// Others' commands completed since it was sent.
    completed: u64,
}

/// Watches a run for some requests.
#[derive(Debug)]
pub struct Stories {
    names: Names,
    end: Instant,
    /// Sequences to come, ascending.
    wanted: Vec<u64>,
    pool: Pool,
    inside: Vec<Watch>,
    done: Vec<Story>,
}

impl Stories {
    /// Will tell of the requests with these submission sequences.
    pub fn new(scenario: &Scenario, requests: &[u64]) -> Self {
        let mut wanted = requests.to_vec();
        wanted.sort_unstable();
        Self {
            names: Names::new(scenario),
            end: Instant::ZERO + scenario.ramp + scenario.time,
            wanted,
            pool: Pool::default(),
            inside: Vec::new(),
            done: Vec::new(),
        }
    }
    /// The stories of those that came, by sequence, and how many requests there were.
    pub fn finish(mut self) -> (Vec<Story>, u64) {
        for mut watch in std::mem::take(&mut self.inside) {
            watch.move_to(&self.names, self.end.0, self.names.drive());
            let what = "the run ends; the request is still in flight".to_owned();
            watch.tell(&self.names, self.end.0, what);
            self.done.push(watch.ended(&self.names, false));
        }
        self.done.sort_by_key(|story| story.request);
        (self.done, self.pool.submitted())
    }

    fn begin(&mut self, now: u64, id: RequestId, sequence: u64) {
        let mark = self.pool.drive.full_and_empty(now);
        let Some(known) = self.pool.enter(id, sequence) else { return };
        if self.wanted.binary_search(&sequence).is_err() {
            return;
        }
        let names = &self.names;
        let submission = &known.submission;
        let groups = names.ancestry(submission.client).to_vec();
        let group = names.group(groups.first().copied().unwrap_or(GroupId::ROOT).index());
        let story = Story {
            request: sequence,
            client: names.client(submission.client.index()).to_owned(),
            group,
            operation: operation(submission.operation),
            metadata: submission.flags.has(Flags::METADATA),
            start_sector: submission.start.0,
            bytes: submission.length.bytes(),
            submitted_ns: now,
            total_ns: 0,
            completed: false,
            why: String::new(),
            lines: Vec::new(),
        };
        let flush = story.operation == "flush";
        let mut watch = Watch {
            story,
            client: submission.client,
            groups,
            head: id,
            place: if flush { names.flush() } else { names.stage(0) },
            since: now,
            waits: vec![(0, None); names.places.len()],
            mark,
            told: BTreeMap::new(),
            others: BTreeMap::new(),
            overtaken: (0, 0),
            sent: false,
            completed: 0,
        };
        if flush {
            let what = "waits for its client's writes, and for the flush that the drive has";
            watch.tell(names, now, what.to_owned());
        }
        self.inside.push(watch);
    }
    fn about_request(&mut self, now: u64, id: RequestId, kind: &EventKind) {
        self.pool.drive.full_and_empty(now);
        let names = &self.names;
        let sent = (self.pool.known(id), self.pool.bytes(id));
        for watch in &mut self.inside {
            if watch.head == id {
                watch.step(names, now, kind, &self.pool);
                continue;
            }
            match (kind, sent) {
                (EventKind::Dispatched, (Some(known), bytes)) if !watch.sent => {
                    let other = watch.others.entry(known.submission.client).or_default();
                    other.commands += 1;
                    other.bytes += bytes;
                    watch.overtaken = (watch.overtaken.0 + 1, watch.overtaken.1 + bytes);
                    other.later += u64::from(known.sequence > watch.story.request);
                }
                (EventKind::Completed, _) if watch.sent => watch.completed += 1,
                (EventKind::Merged { into }, (Some(known), _)) if *into == watch.head => {
                    let client = names.client(known.submission.client.index());
                    let what = format!("request {} of {client} is merged into it", known.sequence);
                    watch.tell(names, now, what);
                }
                _ => {}
            }
        }
        if matches!(kind, EventKind::Completed) {
            let mut index = 0;
            while index < self.inside.len() {
                if self.inside[index].head == id {
                    self.done.push(self.inside.remove(index).ended(names, true));
                } else {
                    index += 1;
                }
            }
        }
    }
    fn about_others(&mut self, now: u64, subject: Subject, decision: Decision) {
        for watch in self.inside.iter_mut().filter(|watch| !watch.sent) {
            let about = match subject {
                Subject::Client(id) if id == watch.client => "its client",
                Subject::Group(id) if watch.groups.contains(&id) => &match id {
                    GroupId::ROOT => self.names.group(id.index()),
                    _ => format!("its {}", self.names.group(id.index())),
                },
                Subject::Drive => "the drive",
                Subject::Client(id) => {
                    let other = watch.others.entry(id).or_default();
                    *other.rules.entry(decision.rule).or_default() += 1;
                    continue;
                }
                _ => continue,
            };
            watch.decision(&self.names, now, about, decision);
        }
    }
}

impl Watch {
    fn line(&mut self, now: u64, what: String) {
        self.story.lines.push(Line { after_ns: now - self.story.submitted_ns, what });
    }
    /// Adds a line, after one that says what others got before it.
    fn tell(&mut self, names: &Names, now: u64, what: String) {
        let others = std::mem::take(&mut self.others);
        if !others.is_empty() {
            self.line(now, meanwhile(names, &others));
        }
        self.line(now, what);
    }
    fn decision(
        &mut self,
        names: &Names,
        now: u64,
        about: &str,
        Decision { rule, values }: Decision,
    ) {
        let told = self.told.entry((about.to_owned(), rule)).or_default();
        (told.times, told.last) = (told.times + 1, now);
        if told.times <= TOLD_MAX {
            let rule = with_values(rule, values, names);
            self.tell(names, now, format!("{about}: {rule}"));
        }
    }
    /// Leaves its place: reports how often each decision was repeated after it was told in full.
    fn move_to(&mut self, names: &Names, now: u64, place: usize) {
        for ((about, rule), told) in std::mem::take(&mut self.told) {
            if told.times > TOLD_MAX {
                let more = match told.times - TOLD_MAX {
                    1 => "repeated once, here".to_owned(),
                    more => format!("repeated {more} times, here the last"),
                };
                let rule = without_values(rule);
                self.tell(names, told.last, format!("{about}: {rule}: {more}"));
            }
        }
        self.waits[self.place].0 += now - self.since;
        (self.place, self.since) = (place, now);
    }
    /// Leaves its place; in words: `released by max after 3ms`.
    fn left(&mut self, names: &Names, now: u64, place: usize) -> String {
        let (before, waited) = (self.place, Nanos(now - self.since));
        self.move_to(names, now, place);
        let name = &names.places[before];
        match waited {
            Nanos::ZERO => format!("passes {name}"),
            _ => format!("released by {name} after {waited}"),
        }
    }
    fn step(&mut self, names: &Names, now: u64, kind: &EventKind, pool: &Pool) {
        let what = match kind {
            EventKind::Submitted => return,
            EventKind::Entered { stage } => {
                let place = names.stage(*stage);
                self.mark = pool.drive.totals();
                match *stage {
                    0 => format!("enters {}", names.places[place]),
                    _ => self.left(names, now, place) + ", enters " + &names.places[place],
                }
            }
            EventKind::WaitsForTag { used, limit } => {
                self.move_to(names, now, names.tag());
                match used < limit {
                    true => "waits for a tag behind others that wait for one".to_owned(),
                    false => format!("waits for a tag: {used} in use, for its kind until {limit}"),
                }
            }
            EventKind::GotTag => {
                let waited = Nanos(now - self.since);
                self.move_to(names, now, names.scheduler());
                self.mark = pool.drive.totals();
                format!("gets a tag after {waited}")
            }
            EventKind::Merged { into } => {
                self.head = *into;
                let (sequence, client) = pool.known(*into).map_or((0, "?"), |known| {
                    (known.sequence, names.client(known.submission.client.index()))
                });
                format!("merged into request {sequence} of {client}")
            }
            EventKind::Decision { rule, values } => {
                self.waits[self.place].1 = Some(with_values(rule, *values, names));
                return self.decision(
                    names,
                    now,
                    &names.places[self.place].clone(),
                    Decision { rule, values: *values },
                );
            }
            EventKind::Dispatched => {
                self.sent = true;
                self.sent(names, now, pool)
            }
            EventKind::Completed => {
                let (waited, others) = (Nanos(now - self.since), self.completed);
                self.move_to(names, now, names.drive());
                format!(
                    "the drive completes it after {waited}; it completed {} meanwhile",
                    counted(others, "other")
                )
            }
            _ => return,
        };
        self.tell(names, now, what);
    }
    fn sent(&mut self, names: &Names, now: u64, pool: &Pool) -> String {
        let (drive, commands) = (pool.drive.totals(), pool.drive.in_flight);
        let mut what = self.left(names, now, names.drive());
        let part = |time: u64, so: &str| match time {
            0 => String::new(),
            _ => format!(", the drive {so} for {} of it", Nanos(time)),
        };
        if self.waits[names.scheduler()].0 > 0 {
            what += &part(drive.0 - self.mark.0, "full");
            what += &part(drive.1 - self.mark.1, "idle");
        }
        format!("{what}; goes to the drive, which has {}", counted(u64::from(commands), "other"))
    }
    fn ended(mut self, names: &Names, completed: bool) -> Story {
        let total = self.waits.iter().map(|(time, _)| time).sum::<u64>();
        let longest = self.waits.iter().enumerate().rev().max_by_key(|(_, (time, _))| *time);
        let (place, (time, rule)) = longest.expect("there are always places");
        let percent = (time * 100).checked_div(total).unwrap_or(100);
        let rule = rule.as_ref().map_or_else(String::new, |rule| format!(": {rule}"));
        let (name, time) = (&names.places[place], Nanos(*time));
        let before = match self.overtaken {
            (0, _) => String::new(),
            (commands, bytes) => {
                let requests = counted(commands, "request");
                format!("; {requests} of others, {}, went to the drive before it", size(bytes))
            }
        };
        self.story.why = match place {
            _ if place == names.tag() => format!("{percent} % ({time}) waiting for a tag{before}"),
            _ if place == names.drive() => format!("{percent} % ({time}) at the drive"),
            _ if place == names.scheduler() => {
                format!("{percent} % ({time}) queued in {name}{rule}{before}")
            }
            _ if place == names.flush() => {
                format!("{percent} % ({time}) waiting for earlier writes")
            }
            _ => format!("{percent} % ({time}) held by {name}{rule}"),
        };
        (self.story.total_ns, self.story.completed) = (total, completed);
        self.story
    }
}

/// Requests and bytes of other clients in words, the largest first.
fn meanwhile(names: &Names, others: &BTreeMap<ClientId, Meanwhile>) -> String {
    let mut sorted: Vec<_> = others.iter().collect();
    sorted.sort_by_key(|(id, other)| (std::cmp::Reverse(other.bytes), **id));
    let describe = |name: &str, of: &Meanwhile| {
        let later = match of.later {
            0 => String::new(),
            later => format!(" ({later} of them submitted later)"),
        };
        let requests = counted(of.commands, "request");
        let mut text = format!("{requests} of {name}, {}{later}", size(of.bytes));
        if of.commands == 0 {
            text = name.to_owned();
        }
        let rules: Vec<String> = of
            .rules
            .iter()
            .map(|(rule, times)| match times {
                1 => without_values(rule),
                _ => format!("{} x{times}", without_values(rule)),
            })
            .collect();
        if rules.is_empty() { text } else { format!("{text} [{}]", rules.join(", ")) }
    };
    let mut parts: Vec<String> = sorted
        .iter()
        .take(OTHERS_MAX)
        .map(|(id, other)| describe(names.client(id.index()), other))
        .collect();
    let mut rest = Meanwhile::default();
    for (_, other) in sorted.iter().skip(OTHERS_MAX) {
        rest.commands += other.commands;
        rest.bytes += other.bytes;
        rest.later += other.later;
    }
    if rest.commands > 0 {
        parts.push(describe(&counted((sorted.len() - OTHERS_MAX) as u64, "other"), &rest));
    }
    format!("meanwhile: {}", parts.join("; "))
}

impl Observer for Stories {
    fn trace_events(&self) -> usize {
        TRACE_EVENTS
    }
    fn on_start(&mut self, setup: &Setup, controller: &Controller) {
        self.names.learn(controller);
        self.pool.drive.depth = setup.facts.depth;
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
            if let EventKind::Decision { rule, values } = event.kind {
                self.about_others(now, event.subject, Decision { rule, values });
            }
            return;
        };
        if event.kind == EventKind::Submitted {
            return self.begin(now, id, sequence);
        }
        self.about_request(now, id, &event.kind);
        match event.kind {
            EventKind::Merged { into } => self.pool.merge(id, into),
            EventKind::Dispatched => self.pool.send(id, now),
            EventKind::Completed => self.pool.leave(id, now),
            _ => {}
        }
    }
}
