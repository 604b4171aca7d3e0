//! The server's counters: copied on the reactor's thread in slices, so that no call delays it for long, and processed
//! elsewhere.

use std::collections::{BTreeMap, VecDeque};

use iofair_config::contracts::admission::{Floors, Rival, Rivals, shares_by_weight};
use iofair_core::group::Group;
use iofair_core::id::GroupId;
use iofair_core::minimum::Minimum;
use iofair_core::policy::Gauges;
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};
use serde::Serialize;

use super::failing::{Failure, failures};
use super::page::Page;
use super::problem::Problem;
use super::usage::{Holds, Usage, seconds};
use super::why::{self, Why};
use crate::clock::thread_time;
use crate::engine::failing::FailureReport;
use crate::engine::stats::VolumeReport;
use crate::engine::tally::{BUCKETS, GroupTally, Step, Times};
use crate::error::ServeError;
use crate::reactor::Seen;
use crate::reactor::handle::ReactorHandle;
use crate::reactor::refusals::Refusal;

/// Everything that was seen.
pub(super) struct Moment {
    /// Parents before children, the root first.
    pub(super) groups: Vec<GroupMoment>,
    pub(super) volumes: Vec<VolumeMoment>,
    pub(super) stack: String,
    /// Whether the stack shares by weight.
    shares: bool,
    pub(super) uptime: Nanos,
    pub(super) connections: usize,
    pub(super) inside: usize,
    /// The server takes no requests in.
    paused: bool,
    pub(super) commands: u32,
    pub(super) depth: u32,
    pub(super) drive_busy: Nanos,
    pub(super) reactor_busy: Nanos,
    pub(super) handshake_cpu: Nanos,
    /// Refused clients, by [`Refusal`].
    pub(super) refused: [u64; Refusal::COUNT],
    pub(super) gauges: Vec<(&'static str, u64)>,
    pub(super) failures: FailureReport,
}

/// One group.
pub(super) struct GroupMoment {
    pub(super) name: String,
    /// Index of the group above; the root has none.
    pub(super) parent: Option<usize>,
    pub(super) weight: u32,
    pub(super) minimum: Minimum,
    pub(super) tally: GroupTally,
    pub(super) holds: Holds,
    /// Part of the drive that its class, weight and minimum give it: among those who wanted it in the last second, or among
    /// all if it did not. `None` if the stack does not share by weight, or if that is not known.
    pub(super) promised: Option<f64>,
    /// Part of all bytes of the last second.
    pub(super) got: f64,
    /// What holds its requests and those of groups in it, if it has any and the server was asked.
    pub(super) why: Option<Why>,
}

/// One volume.
pub(super) struct VolumeMoment {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) connections: u32,
    pub(super) requests: [u64; 2],
    pub(super) bytes: [u64; 2],
    pub(super) flushes: u64,
    pub(super) failed: u64,
    pub(super) losses: u64,
    /// Since when every request of a kind has failed, if one does.
    pub(super) failing_since: Option<Instant>,
}

struct List(Vec<(&'static str, u64)>);

impl Gauges for List {
    fn gauge(&mut self, name: &'static str, value: u64) {
        self.0.push((name, value));
    }
}

/// Groups or volumes that are copied in one look. A group's numbers are 1.2 kB, so that a look takes some 100 us, and the
/// reactor serves requests between two of them.
const SLICE: usize = 256;

/// What a moment has beside the server's own numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Wanted {
    pub(super) groups: bool,
    pub(super) volumes: bool,
    /// What holds each group, too.
    pub(super) whys: bool,
}

/// Copies what is wanted, slice by slice, and works the rest out on this thread. What changes between two slices is
/// seen in one of its states.
pub(super) fn gather(
    reactor: &ReactorHandle,
    floors: &Floors,
    wanted: Wanted,
) -> Result<Moment, ServeError> {
    let mut moment = reactor.look(whole)?;
    if wanted.groups {
        let copied = slices(reactor, copy_groups)?;
        let total = copied.first().map_or(0, |root| root.tally.last.bytes);
        moment.groups = in_order(copied, total, moment.shares.then_some(floors));
    }
    if wanted.whys {
        let mut whys = why::everybody(reactor)?;
        for group in &mut moment.groups {
            group.why = whys.remove(&group.name);
        }
    }
    if wanted.volumes {
        moment.volumes = slices(reactor, copy_volumes)?;
    }
    Ok(moment)
}

/// Where the next slice begins, if there is one.
type Next = Option<usize>;

fn slices<T: Send + 'static>(
    reactor: &ReactorHandle,
    copy: fn(&Seen<'_>, usize) -> (Vec<T>, Next),
) -> Result<Vec<T>, ServeError> {
    let (mut all, mut next) = (Vec::new(), Some(0));
    while let Some(first) = next {
        let (slice, after) = reactor.look(move |seen| copy(seen, first))?;
        all.extend(slice);
        next = after;
    }
    Ok(all)
}

/// The server's own numbers.
fn whole(seen: &Seen<'_>) -> Moment {
    let engine = seen.engine;
    let controller = engine.controller();
    let mut gauges = List(Vec::new());
    controller.observe(&mut gauges);
    Moment {
        groups: Vec::new(),
        volumes: Vec::new(),
        stack: controller.stack().name().to_string(),
        shares: shares_by_weight(controller.stack()),
        uptime: Nanos(seen.now.0),
        connections: seen.connections,
        inside: engine.pending(),
        paused: engine.is_paused(),
        commands: controller.in_flight(),
        depth: controller.facts().depth,
        drive_busy: engine.busy_time(seen.now),
        reactor_busy: thread_time(),
        handshake_cpu: seen.handshake_cpu,
        refused: seen.refused,
        gauges: gauges.0,
        failures: engine.failures(),
    }
}

fn copy_volumes(seen: &Seen<'_>, first: usize) -> (Vec<VolumeMoment>, Next) {
    let (volumes, next) = seen.engine.volumes_from(first, SLICE);
    let copy = |volume: VolumeReport<'_>| VolumeMoment {
        name: volume.name.to_string(),
        group: volume.group.to_string(),
        connections: volume.connections,
        requests: volume.stats.requests,
        bytes: volume.stats.bytes,
        flushes: volume.stats.flushes,
        failed: volume.stats.failed,
        losses: volume.stats.losses,
        failing_since: volume.failing.map(|run| run.since),
    };
    (volumes.map(copy).collect(), next)
}

/// A group as it was copied.
struct Copied {
    id: GroupId,
    parent: Option<GroupId>,
    name: String,
    weight: u32,
    class: Class,
    minimum: Minimum,
    tally: GroupTally,
    holds: Holds,
}

impl Copied {
    fn rival(&self, floors: &Floors) -> Rival {
        Rival { weight: self.weight, class: self.class, floor: floors.of(&self.name) }
    }
    fn is_busy(&self) -> bool {
        self.tally.last.busy > Nanos::ZERO
    }
}

fn copy_groups(seen: &Seen<'_>, first: usize) -> (Vec<Copied>, Next) {
    let tree = seen.engine.controller().groups();
    let end = (first + SLICE).min(tree.group_bound());
    let ids = (first..end).filter_map(|index| tree.group_id(index));
    let there = ids.map(|id| (id, tree.group(id)));
    let copy = |(id, group): (GroupId, &Group)| Copied {
        id,
        parent: group.parent,
        name: group.name.clone(),
        weight: group.contract.weight,
        class: group.contract.class,
        minimum: group.contract.minimum(),
        tally: seen.engine.tally(id).clone(),
        holds: Holds::read(seen, id),
    };
    (there.map(copy).collect(), (end < tree.group_bound()).then_some(end))
}

/// The index of the group above, and what of the drive it gives.
type Above = (usize, Option<f64>);

/// Parents before children, the root first, with their shares, if there are any beyond these. A group whose parent went between two
/// slices is left out.
fn in_order(copied: Vec<Copied>, total: u64, floors: Option<&Floors>) -> Vec<GroupMoment> {
    let mut children: BTreeMap<GroupId, Vec<Copied>> = BTreeMap::new();
    let mut level = Vec::new();
    for one in copied {
        match one.parent {
            None => level.push((one, None)),
            Some(parent) => children.entry(parent).or_default().push(one),
        }
    }
    let mut groups: Vec<GroupMoment> = Vec::new();
    let mut level: VecDeque<(Copied, Option<Above>)> = level.into();
    while let Some((one, above)) = level.pop_front() {
        let promised = above.map_or(floors.map(|_| 1.0), |(_, share)| share);
        let Copied { id, name, weight, minimum, tally, holds, .. } = one;
        let below = children.remove(&id).unwrap_or_default();
        // Among those who wanted it; without a wish, what is right whoever wants it.
        let rivals = |is_wanted: fn(&Copied) -> bool| {
            let floors = floors?;
            let wanted = below.iter().filter(|one| is_wanted(one));
            Some((floors, Rivals::new(wanted.map(|one| one.rival(floors)), promised)))
        };
        let (all, busy) = (rivals(|_| true), rivals(Copied::is_busy));
        let index = groups.len();
        level.extend(below.into_iter().map(|child| {
            let rivals = if child.is_busy() { busy } else { all };
            let share = rivals.and_then(|(floors, rivals)| rivals.part(child.rival(floors)));
            (child, Some((index, share)))
        }));
        let got = tally.last.bytes as f64 / total.max(1) as f64;
        let parent = above.map(|(parent, _)| parent);
        let why = None;
        groups.push(GroupMoment {
            name,
            parent,
            weight,
            minimum,
            tally,
            holds,
            promised,
            got,
            why,
        });
    }
    groups
}

/// The numbers that `iofair top` shows, as JSON.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Live {
    pub(super) revision: String,
    uptime_seconds: f64,
    stack: String,
    connections: usize,
    requests_in_flight: usize,
    drive_commands: u32,
    drive_depth: u32,
    /// Time in which the drive had a command.
    drive_busy_seconds: f64,
    /// Processor time of the reactor thread.
    reactor_busy_seconds: f64,
    /// Longest time in each bucket of the steps; the last bucket has no bound.
    bucket_bounds_seconds: Vec<f64>,
    /// The drive and volumes of which the last requests of a kind have all failed; absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<Failure>,
    groups: Vec<LiveGroup>,
    /// The start of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LiveGroup {
    name: String,
    /// In force.
    weight: u32,
    min_bytes_per_second: Option<u64>,
    min_ios_per_second: Option<u64>,
    /// Share of the drive by class, weight and minimum: among the groups that were busy in the last second, or among all if it
    /// was not; null if the stack does not share by weight, or if its minimum is all that it is promised and the drive's rate is
    /// not known.
    share_promised: Option<f64>,
    /// Share of all bytes of the last second.
    share_got: f64,
    #[serde(flatten)]
    usage: Usage,
    steps: [LiveStep; 3],
    /// Why requests of volumes directly in it wait, if any do.
    why: Option<String>,
}

/// Times that pieces of requests spent in one step, since the start.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LiveStep {
    #[cfg_attr(test, schemars(extend("enum" = ["held", "queued", "drive"])))]
    step: &'static str,
    /// Sum.
    seconds: f64,
    /// Count for each bucket.
    counts: [u64; BUCKETS],
}

impl Live {
    pub(super) fn new(moment: &Moment, page: &Page) -> Result<Self, Problem> {
        let groups: Vec<&GroupMoment> =
            moment.groups.iter().filter(|group| group.parent.is_some()).collect();
        let (groups, next) = page.slice(groups, |group| &group.name)?;
        Ok(Self {
            revision: String::new(),
            uptime_seconds: seconds(moment.uptime),
            stack: moment.stack.clone(),
            connections: moment.connections,
            requests_in_flight: moment.inside,
            drive_commands: moment.commands,
            drive_depth: moment.depth,
            drive_busy_seconds: seconds(moment.drive_busy),
            reactor_busy_seconds: seconds(moment.reactor_busy),
            bucket_bounds_seconds: bounds().collect(),
            failures: failures(Instant(moment.uptime.0), moment.failures.clone()),
            groups: groups.into_iter().map(|group| live_group(group, moment.paused)).collect(),
            next,
        })
    }
}

fn live_group(group: &GroupMoment, paused: bool) -> LiveGroup {
    let tally = &group.tally;
    let step = |step: Step| {
        let [mut times, writes] = tally.times[step as usize];
        times.counts.iter_mut().zip(writes.counts).for_each(|(all, more)| *all += more);
        let sum = times.sum.wrapping_add(writes.sum);
        LiveStep { step: step.word(), seconds: seconds(Nanos(sum)), counts: times.counts }
    };
    LiveGroup {
        name: group.name.clone(),
        weight: group.weight,
        min_bytes_per_second: group.minimum.bytes_per_s,
        min_ios_per_second: group.minimum.ios_per_s,
        share_promised: group.promised,
        share_got: group.got,
        usage: Usage::new(tally, group.holds),
        steps: Step::ALL.map(step),
        why: match &group.why {
            Some(why) => Some(why.answer.clone()),
            None if paused || tally.inside > 0 => {
                Some(why::nothing(paused, tally.inside).to_string())
            }
            None => None,
        },
    }
}

/// Bounds of the buckets that have one.
pub(super) fn bounds() -> impl Iterator<Item = f64> {
    (0..BUCKETS).filter_map(Times::bound).map(|bound| seconds(Nanos(bound)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use iofair_config::contracts::Contracts;
    use iofair_core::contract::Contract;

    /// A group of a class and a weight, which was busy in the last second or not.
    type Case = (&'static str, Class, u32, bool);

    fn promised(cases: &[Case]) -> Vec<f64> {
        promised_beside(cases, &Floors::default())
    }
    fn promised_beside(cases: &[Case], floors: &Floors) -> Vec<f64> {
        let contract = |class, weight| Contract { class, weight, ..Contract::default() };
        let groups =
            cases.iter().map(|(name, class, weight, _)| (*name, contract(*class, *weight)));
        let controller = testing::controller(groups);
        let busy: BTreeMap<&str, bool> =
            cases.iter().map(|(name, .., busy)| (*name, *busy)).collect();
        let copied = controller.groups().iter().map(|(id, group)| {
            let mut tally = GroupTally::default();
            if busy.get(group.name.as_str()) == Some(&true) {
                tally.last.busy = Nanos::from_millis(1);
            }
            Copied {
                id,
                parent: group.parent,
                name: group.name.clone(),
                weight: group.contract.weight,
                class: group.contract.class,
                minimum: Minimum::NONE,
                tally,
                holds: Holds { slots: 0, memory: 0 },
            }
        });
        let groups = in_order(copied.collect(), 0, Some(floors));
        let of = |name: &str| groups.iter().find(|group| group.name == name)?.promised;
        cases.iter().map(|(name, ..)| of(name).expect("all are there")).collect()
    }

    /// Goal: a group is promised what it has whoever wants the drive, and while it wants it itself, what it has beside those who
    /// do; a less urgent class beside another one is promised nothing. Method: by hand.
    #[test]
    fn shares_that_are_promised() {
        use Class::{BestEffort, Idle, RealTime};
        let five = ["a", "b", "c", "d", "e"].map(|name| (name, BestEffort, 100, false));
        assert_eq!(promised(&five), [0.2; 5], "nobody wants anything");
        let mut two_busy = five;
        (two_busy[0].3, two_busy[1].3) = (true, true);
        assert_eq!(promised(&two_busy), [0.5, 0.5, 0.2, 0.2, 0.2]);
        for is_busy in [false, true] {
            let groups = [("a", BestEffort, 300, is_busy), ("z", Idle, 100, is_busy)];
            assert_eq!(promised(&groups), [1.0, 0.0], "{is_busy}");
        }
        let alone = [("a", BestEffort, 300, false), ("z", Idle, 100, true)];
        assert_eq!(promised(&alone), [1.0, 1.0], "nobody else wants it");
        let nested = [
            ("a", BestEffort, 100, true),
            ("b", BestEffort, 300, true),
            ("b/x", RealTime, 1, true),
            ("b/y", BestEffort, 1000, true),
            ("b/z", BestEffort, 1000, false),
        ];
        assert_eq!(promised(&nested), [0.25, 0.75, 0.75, 0.0, 0.0]);
    }

    /// Goal: a group with a minimum is promised it beside a more urgent class, and beside heavier groups of its own, whoever is busy.
    /// Method: by hand.
    #[test]
    fn minimums_are_promised() {
        let text = "[drive]\nback = 'memory:1GiB'\nworst_case = '100MB/s'\n[[group]]\nname = 'a'\n\
                    [[group]]\nname = 'z'\nclass = 'idle'\nmin = '20MB/s'\n";
        let contracts = Contracts::parse("c.toml", text).expect("right");
        let floors = contracts.floors(&Default::default());
        for is_busy in [false, true] {
            for (class, weight) in [(Class::Idle, 100), (Class::BestEffort, 1)] {
                let groups = [("a", Class::BestEffort, 99, is_busy), ("z", class, weight, is_busy)];
                assert_eq!(promised_beside(&groups, &floors), [0.8, 0.2], "{is_busy}");
            }
        }
    }
}
