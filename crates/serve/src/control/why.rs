//! Finds what holds a group back now, and by which rule. It runs on the reactor's thread and examines a bounded
//! number of requests at a time.

use std::collections::BTreeMap;

use iofair_core::contract::{Limits, Rate};
use iofair_core::controller::{Controller, Held, Place};
use iofair_core::id::GroupId;
use iofair_core::request::Direction;
use iofair_core::time::{Instant, Nanos};
use iofair_core::trace::{Decision, Subject, rule_in_words};
use iofair_core::unit::Count;
use serde::Serialize;

use crate::engine::Engine;
use crate::error::ServeError;
use crate::reactor::Seen;
use crate::reactor::handle::ReactorHandle;

/// What holds a group back.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Why {
    pub(super) revision: String,
    group: String,
    /// The most important reason, in one line.
    pub(super) answer: String,
    /// Requests in flight of the group and the groups inside it.
    requests: usize,
    /// Commands of all groups at the drive.
    drive_commands: u32,
    /// Queue depth of the drive.
    drive_depth: u32,
    waits: Vec<Wait>,
}

/// The requests in one place; the most important place comes first.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Wait {
    /// A throttle's short name, tag, the scheduler's name, flush, or drive.
    place: String,
    requests: usize,
    /// Waiting time of the oldest request.
    oldest_seconds: f64,
    /// The policy's last rule, with its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// Time until the next one may go, if the policy knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    until_seconds: Option<f64>,
    /// The client or group in service.
    #[serde(skip_serializing_if = "Option::is_none")]
    serves: Option<String>,
    /// The complete text.
    text: String,
}

/// What was seen at one place.
#[derive(Clone)]
struct Seat {
    requests: usize,
    oldest: Instant,
    until: Option<Instant>,
    serves: Option<Subject>,
    idles_until: Option<Instant>,
    holder: Option<(GroupId, Instant)>,
    /// The newest decision about one of the requests, and its direction.
    decision: Option<(Decision, Direction)>,
    group: GroupId,
}

/// Places of the pool of requests, merged requests included, that are looked at in one look: twice what a volume may have, so that
/// an answer is mostly of one moment. This many take some 400 us.
const SLICE: usize = 8192;
/// Reasons that an answer has; of more, the last one stands for the rest.
const WAITS_MAX: usize = 16;
/// Groups for which an answer is put into words in one look.
const ANSWERS: usize = 64;

/// What came of a look for one group.
enum Looked {
    Gone,
    More(Seats, usize),
    Over(Why),
}

/// The answer for a group; `None` if there is no such group. Its sentences are of one moment. Only where more requests are in flight
/// than one look takes in, they are looked at in slices, and the reactor serves between two of them, so that one that moves meanwhile
/// may be seen twice or not at all.
pub(super) fn why(reactor: &ReactorHandle, group: &str) -> Result<Option<Why>, ServeError> {
    let (mut seats, mut first) = (Seats::new(), 0);
    loop {
        let path = group.to_string();
        let mut known = std::mem::take(&mut seats);
        let looked = reactor.look(move |seen| {
            let Some(own) = seen.engine.group_named(&path) else { return Looked::Gone };
            match slice_of(seen.engine.controller(), own, first, &mut known) {
                Some(next) => Looked::More(known, next),
                None => Looked::Over(Scene { seen, own }.why(&known)),
            }
        })?;
        match looked {
            Looked::Gone => return Ok(None),
            Looked::Over(why) => return Ok(Some(why)),
            Looked::More(more, next) => (seats, first) = (more, next),
        }
    }
}

/// Takes the seats of a slice's requests of a group and the groups in it.
fn slice_of(
    controller: &Controller,
    own: GroupId,
    first: usize,
    seats: &mut Seats,
) -> Option<usize> {
    let groups = controller.groups();
    let inside = |of: GroupId| groups.ancestry(of).any(|above| above == own);
    controller.look_at(
        first,
        SLICE,
        |request| inside(request.group),
        |held| take_seat(seats, &held),
    )
}

/// The answers for the groups that have requests in flight, their own or those of groups in them, by name.
pub(super) fn everybody(reactor: &ReactorHandle) -> Result<BTreeMap<String, Why>, ServeError> {
    let (mut groups, mut next) = (BTreeMap::new(), Some(0));
    let mut answers = BTreeMap::new();
    while next.is_some() || !groups.is_empty() {
        let (mut known, first) = (std::mem::take(&mut groups), next);
        let some;
        (groups, next, some) = reactor.look(move |seen| {
            let next =
                first.and_then(|first| slice_of_all(seen.engine.controller(), first, &mut known));
            let some = if next.is_none() { words(seen, &mut known) } else { Vec::new() };
            (known, next, some)
        })?;
        answers.extend(some);
    }
    Ok(answers)
}

/// Takes the seats of a slice's requests, for their groups and those around them.
fn slice_of_all(
    controller: &Controller,
    first: usize,
    groups: &mut BTreeMap<GroupId, Seats>,
) -> Option<usize> {
    let each = |held: Held<'_>| {
        for group in controller.groups().ancestry(held.request.group) {
            take_seat(groups.entry(group).or_default(), &held);
        }
    };
    controller.look_at(first, SLICE, |_| true, each)
}

/// Takes some groups and puts their answers into words.
fn words(seen: &Seen<'_>, groups: &mut BTreeMap<GroupId, Seats>) -> Vec<(String, Why)> {
    let border = groups.keys().nth(ANSWERS).copied();
    let rest = border.map(|border| groups.split_off(&border)).unwrap_or_default();
    let tree = seen.engine.controller().groups();
    // A group may have gone since.
    let there = std::mem::replace(groups, rest).into_iter().filter_map(|(own, seats)| {
        let name = tree.try_group(own)?.name.clone();
        Some((name, Scene { seen, own }.why(&seats)))
    });
    there.collect()
}

/// What is said of a group of which no request was seen.
pub(super) fn nothing(paused: bool, requests: u64) -> &'static str {
    match (paused, requests) {
        (true, _) => "the server is drained: new requests wait until it resumes",
        (false, 0) => "nothing waits: the group has no request in flight",
        // They came or went between two slices.
        (false, _) => "nothing waits: the requests in flight moved on meanwhile",
    }
}

const fn weight(place: Place) -> u32 {
    match place {
        Place::Throttle(_) => 1,
        Place::Tag => 2,
        Place::Scheduler => 3,
        Place::Flush => 4,
        _ => 5,
    }
}

fn take_seat(seats: &mut Seats, held: &Held<'_>) {
    let is_throttle = matches!(held.place, Place::Throttle(_));
    let who = (held.request.operation.direction(), held.request.group);
    let seat = seats.entry((held.place, is_throttle.then_some(who))).or_insert(Seat {
        requests: 0,
        oldest: held.since,
        until: None,
        serves: held.info.serves,
        idles_until: held.info.idles_until,
        holder: held.info.holder,
        decision: None,
        group: held.request.group,
    });
    seat.requests += held.parts;
    seat.oldest = seat.oldest.min(held.since);
    seat.until = seat.until.into_iter().chain(held.info.until).min();
    let newer = |new: &Decision| seat.decision.is_none_or(|(old, _)| old.at <= new.at);
    if let Some(decision) = held.decision.filter(newer) {
        seat.decision = Some((decision, held.request.operation.direction()));
    }
}

/// By place, and in a throttle by direction and group, which may each have a ceiling.
type Seats = BTreeMap<(Place, Option<(Direction, GroupId)>), Seat>;

impl Seat {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.oldest = self.oldest.min(other.oldest);
        self.until = self.until.into_iter().chain(other.until).min();
    }
}

struct Scene<'a> {
    seen: &'a Seen<'a>,
    own: GroupId,
}

impl Scene<'_> {
    fn engine(&self) -> &Engine {
        self.seen.engine
    }
    fn why(&self, seats: &Seats) -> Why {
        let controller = self.engine().controller();
        let waits = self.reasons(seats).into_iter();
        let waits: Vec<Wait> =
            waits.map(|(place, rule, seat)| self.wait(place, rule, &seat)).collect();
        let answer = match waits.first() {
            None => {
                let inside = self.engine().tally(self.own).inside;
                nothing(self.engine().is_paused(), inside).to_string()
            }
            Some(first) => {
                let waits = seats.keys().any(|(place, _)| !matches!(place, Place::Drive));
                let nothing = if waits { "" } else { "nothing waits: " };
                format!("{nothing}{}{}", first.text, self.minimum())
            }
        };
        Why {
            revision: String::new(),
            group: controller.groups().group(self.own).name.clone(),
            answer,
            requests: waits.iter().map(|wait| wait.requests).sum(),
            drive_commands: controller.in_flight(),
            drive_depth: controller.facts().depth,
            waits,
        }
    }
    /// Where requests wait and by which rule, the most important first: the drive is no obstacle, and what waits for a turn matters
    /// less than what waits before it.
    fn reasons(&self, seats: &Seats) -> Vec<(Place, Option<String>, Seat)> {
        let mut all: Vec<_> = seats.iter().collect();
        // Those without a decision wait behind others, and for the same reason.
        all.sort_by_key(|((place, _), seat)| (weight(*place), seat.decision.is_none()));
        let mut reasons: Vec<(Place, Option<String>, Seat)> = Vec::new();
        for ((place, _), seat) in all {
            let rule = self.rule_at(*place, seat);
            let is_full = reasons.len() >= WAITS_MAX;
            let same = reasons.iter_mut().rev().find(|(other, known, _)| {
                other == place && (rule.is_none() || *known == rule || is_full)
            });
            match same {
                Some((.., into)) => into.add(seat),
                None => reasons.push((*place, rule, seat.clone())),
            }
        }
        reasons.sort_by_key(|(place, _, seat)| (weight(*place), seat.oldest));
        reasons
    }
    /// The last rule by which requests wait here. What was decided about one at the drive is no reason to be there.
    fn rule_at(&self, place: Place, seat: &Seat) -> Option<String> {
        let decides = matches!(place, Place::Throttle(_) | Place::Scheduler);
        let (decision, direction) = seat.decision.filter(|_| decides)?;
        Some(self.rule(&decision, direction, place, seat.group))
    }
    fn wait(&self, place: Place, rule: Option<String>, seat: &Seat) -> Wait {
        let now = self.seen.now;
        let stack = self.engine().controller().stack();
        let name = match place {
            Place::Throttle(stage) => stack.throttles[stage].row.short,
            Place::Tag => "tag",
            Place::Scheduler => stack.scheduler.row.name,
            Place::Flush => "flush",
            _ => "drive",
        };
        let until = seat.until.map(|until| until.since(now));
        let serves = seat.serves.map(|subject| self.subject(subject));
        let mut wait = Wait {
            place: name.to_string(),
            requests: seat.requests,
            oldest_seconds: seconds(now.since(seat.oldest)),
            rule,
            until_seconds: until.map(seconds),
            serves,
            text: String::new(),
        };
        wait.text = self.text(place, seat, &wait, until);
        wait
    }
    fn text(&self, place: Place, seat: &Seat, wait: &Wait, until: Option<Nanos>) -> String {
        let Wait { place: name, rule, serves, .. } = wait;
        let controller = self.engine().controller();
        let count = Count(seat.requests, "request");
        let rule = rule.as_ref().map(|rule| format!(": {rule}")).unwrap_or_default();
        let (waits, are) = if seat.requests == 1 { ("waits", "is") } else { ("wait", "are") };
        let (commands, depth) = (controller.in_flight(), controller.facts().depth);
        match place {
            Place::Throttle(_) => {
                let until = until.map(|rest| format!(" for another {}", brief(rest)));
                format!("throttle {name} holds {count}{}{rule}", until.unwrap_or_default())
            }
            Place::Tag => format!(
                "{count} {waits} for a tag: the scheduler and the drive have as many requests as they may"
            ),
            Place::Scheduler => {
                let full = if commands >= depth {
                    format!("; the drive is full with {}", Count(commands, "command"))
                } else {
                    String::new()
                };
                if let Some((group, kept)) = seat.holder
                    && kept <= self.seen.now
                    && !self.is_own(Subject::Group(group))
                {
                    // By the same account as in the answer of that group.
                    let due = self.due(group).filter(|due| *due < self.seen.now);
                    let group = self.group(group);
                    return match due.map(|due| brief(self.seen.now.since(due))) {
                        Some(behind) => {
                            format!("{count} {are} held: {group} is {behind} behind its minimum")
                        }
                        None => format!("{count} {are} held for the minimum of {group}"),
                    };
                }
                let Some(serves) = serves else {
                    return format!("{count} {are} queued in {name}{rule}{full}");
                };
                if seat.serves.is_some_and(|subject| self.is_own(subject)) {
                    return format!("it is its turn in {name}: {count} {are} queued{full}");
                }
                let idles = seat.idles_until.map(|until| {
                    let rest = brief(until.since(self.seen.now));
                    format!(", idling another {rest} for its next request")
                });
                let idles = idles.unwrap_or_default();
                format!("{count} {waits} for a turn: {name} serves {serves}{idles}{full}")
            }
            Place::Flush => {
                format!("{count} {waits} to flush: earlier writes are not answered yet")
            }
            _ => format!("{count} {are} at the drive, which has {commands} of {depth} commands"),
        }
    }
    /// How the group stands by its minimum.
    fn minimum(&self) -> String {
        let now = self.seen.now;
        match self.due(self.own) {
            None => String::new(),
            Some(due) if due < now => format!("; {} behind its minimum", brief(now.since(due))),
            Some(due) => format!("; {} ahead of its minimum", brief(due.since(now))),
        }
    }
    /// The time up to which the minimum of a group is kept, if it has one and wants it.
    fn due(&self, group: GroupId) -> Option<Instant> {
        let min = self.engine().controller().groups().try_group(group)?.contract.minimum();
        self.engine().tally(group).due(min)
    }
    /// Whether this is the group asked about, or something in it.
    fn is_own(&self, subject: Subject) -> bool {
        let groups = self.engine().controller().groups();
        let group = match subject {
            Subject::Client(id) => groups.try_client(id).map(|client| client.group),
            Subject::Group(id) => Some(id),
            Subject::Request { .. } | Subject::Drive => None,
        };
        group.is_some_and(|group| groups.ancestry(group).any(|above| above == self.own))
    }
    fn group(&self, id: GroupId) -> String {
        let groups = self.engine().controller().groups();
        match groups.try_group(id).map(|group| group.name.as_str()) {
            None => "a group".to_string(),
            Some("") => "the root group".to_string(),
            Some(name) => format!("group {name}"),
        }
    }
    /// The group with this index, a number of a decision.
    fn group_at(&self, index: u64) -> String {
        let id = self.engine().controller().groups().group_id(index as usize);
        id.map_or("a group".to_string(), |id| self.group(id))
    }
    fn subject(&self, subject: Subject) -> String {
        match subject {
            Subject::Client(id) => {
                let volume = self.engine().volume_of(id).unwrap_or("?");
                let groups = self.engine().controller().groups();
                let group = groups.try_client(id).map(|client| self.group(client.group));
                format!("volume {volume} of {}", group.unwrap_or_default())
            }
            Subject::Group(id) => self.group(id),
            Subject::Request { .. } | Subject::Drive => "another client".to_string(),
        }
    }
    /// A rule with its numbers; for a ceiling what the ceiling is, too.
    fn rule(&self, decision: &Decision, direction: Direction, place: Place, of: GroupId) -> String {
        let mut values = decision.values.into_iter();
        let is_ceiling = matches!(place, Place::Throttle(stage)
            if self.engine().controller().stack().throttles[stage].row.name == "throttle-max");
        rule_in_words(decision.rule, |kind| {
            let value = values.next().unwrap_or(0);
            match kind {
                "ns" => Nanos(value).to_string(),
                "bytes" => Count(value, "byte").to_string(),
                "group" if is_ceiling => {
                    let groups = self.engine().controller().groups();
                    let id = groups.group_id(value as usize);
                    let limits = id.map(|id| groups.group(id).contract.max);
                    let limits = ceiling(limits.unwrap_or_default(), direction);
                    format!("{} ({limits})", self.group_at(value))
                }
                "group" => self.group_at(value),
                "client" => self.group(of),
                _ => value.to_string(),
            }
        })
    }
}

/// `reads at 10.00 MB/s and 50 reads a second and both at 15.00 MB/s`.
fn ceiling(limits: Limits, direction: Direction) -> String {
    let index = direction as usize;
    let what = ["read", "write"][index];
    let rate = limits.bytes_per_s[index].map(|rate| format!("{what}s at {}", Rate(rate)));
    let iops = limits.iops[index].map(|iops| format!("{} a second", Count(iops, what)));
    let both = limits.total.bytes_per_s.map(|rate| format!("both at {}", Rate(rate)));
    let both_iops = limits.total.iops.map(|iops| format!("{} a second", Count(iops, "request")));
    let all = [rate, iops, both, both_iops];
    all.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

/// To the microsecond, or to three digits when it is long.
fn brief(time: Nanos) -> String {
    match time.0 {
        0..1_000_000 => format!("{} us", time.as_micros()),
        1_000_000..1_000_000_000 => format!("{:.1} ms", time.0 as f64 / 1e6),
        _ => format!("{:.1} s", seconds(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_core::contract::Contract;
    use iofair_core::controller::{FlushRule, Setup, Submission};
    use iofair_core::id::ClientId;
    use iofair_core::policy::DriveFacts;
    use iofair_core::priority::Priority;
    use iofair_core::request::{Flags, Operation};
    use iofair_core::unit::Sectors;

    /// A controller under a stack, and two groups with a client each.
    fn scene(depth: u32, stack: &str) -> (Controller, [(GroupId, ClientId); 2]) {
        let (max_request, capacity) = (Sectors(2048), Sectors(1 << 30));
        let facts = DriveFacts { rotational: false, depth, max_request, capacity };
        let (queue_limit, guaranteed, flushes) = (0, 10_000, FlushRule::Bypass);
        let setup = Setup {
            facts,
            tags: depth,
            queue_limit,
            guaranteed,
            client_limit: u32::MAX,
            flushes,
            trace: 0,
        };
        let mut controller = Controller::new(setup, iofair_policies::TABLE.stack(stack).unwrap());
        let groups = ["others", "own"].map(|name| {
            let group = controller.add_group(Instant::ZERO, name, Contract::default()).unwrap();
            (group, controller.add_client(Instant::ZERO, group, Priority::default()).unwrap())
        });
        (controller, groups)
    }

    fn submit(controller: &mut Controller, client: ClientId, length: Sectors, count: u64) {
        for number in 0..count {
            let (operation, flags) = (Operation::Read, Flags::NO_MERGE);
            let start = Sectors(number * 4096);
            let new = Submission { tag: number, client, operation, flags, start, length };
            controller.submit(Instant::ZERO, new).unwrap();
        }
    }

    /// Goal: a request is at the drive once nothing of it waits in the scheduler, and its pieces are no requests. Method: long
    /// reads of two clients, which `promise` sends in pieces; the places after each piece.
    #[test]
    fn what_waits_in_pieces_is_not_at_the_drive() {
        let (mut controller, [others, own]) = scene(32, "promise");
        let length = Sectors(2048);
        for (_, client) in [others, own] {
            submit(&mut controller, client, length, 1);
        }
        let mut sent = [Sectors::ZERO; 2];
        let mut pieces = 0;
        while let Some(dispatch) = controller.dispatch(Instant::ZERO) {
            let part = controller.parts(dispatch.command).next().unwrap();
            sent[usize::from(part.client == own.1)] += dispatch.length;
            pieces += 1;
            let mut seats = Seats::new();
            assert!(slice_of(&controller, GroupId::ROOT, 0, &mut seats).is_none());
            let at = |place| seats.get(&(place, None)).map_or(0, |seat| seat.requests);
            let whole = sent.iter().filter(|sent| **sent == length).count();
            assert_eq!([Place::Drive, Place::Scheduler].map(at), [whole, 2 - whole], "{pieces}");
        }
        assert!(pieces > 2, "{pieces} commands");
    }

    /// Goal: what one look costs the reactor does not depend on how many requests others have inside, and no request is
    /// missed for that. Method: ten thousand of others, three of a group behind them; the requests that each look sees.
    #[test]
    fn the_cost_of_a_query_is_bounded() {
        let (mut controller, [others, own]) = scene(1, "max-none");
        submit(&mut controller, others.1, Sectors(8), 10_000);
        submit(&mut controller, own.1, Sectors(8), 3);
        for (group, count) in [(own.0, 3), (others.0, 10_000), (GroupId::ROOT, 10_003)] {
            let (mut seats, mut next, mut looks) = (Seats::new(), Some(0), 0);
            while let Some(first) = next {
                let before: usize = seats.values().map(|seat| seat.requests).sum();
                next = slice_of(&controller, group, first, &mut seats);
                let after: usize = seats.values().map(|seat| seat.requests).sum();
                let places = next.unwrap_or(10_003) - first;
                assert!(places <= SLICE && after - before <= places, "{places} places");
                looks += 1;
            }
            let found: usize = seats.values().map(|seat| seat.requests).sum();
            assert_eq!((found, looks), (count, 10_003_usize.div_ceil(SLICE)));
        }
    }
}
