//! The server's numbers at one moment: gathered on the reactor's thread in one look, worked out and shown
//! elsewhere.

use iofair_core::group::GroupId;
use iofair_core::policy::Gauges;
use iofair_core::time::Nanos;
use serde::Serialize;

use super::why::{self, Why};
use crate::clock::thread_time;
use crate::engine::tally::{BUCKETS, GroupTally, Step, Times};
use crate::reactor::Seen;

/// Everything that was seen.
pub(super) struct Moment {
    /// Parents before children, the root first.
    pub(super) groups: Vec<GroupMoment>,
    pub(super) volumes: Vec<VolumeMoment>,
    pub(super) stack: String,
    pub(super) uptime: Nanos,
    pub(super) connections: usize,
    pub(super) inside: usize,
    pub(super) commands: u32,
    pub(super) depth: u32,
    pub(super) drive_busy: Nanos,
    pub(super) reactor_busy: Nanos,
    pub(super) handshake_cpu: Nanos,
    pub(super) gauges: Vec<(&'static str, u64)>,
}

/// One group.
pub(super) struct GroupMoment {
    pub(super) name: String,
    /// Index of the group above; the root has none.
    pub(super) parent: Option<usize>,
    pub(super) weight: u32,
    pub(super) min: Option<u64>,
    pub(super) tally: GroupTally,
    /// Part of the drive that its weight gives it among those who wanted it in the last second.
    pub(super) promised: f64,
    /// Part of all bytes of the last second.
    pub(super) got: f64,
    /// What holds requests of volumes directly in it, if anything does.
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
}

struct List(Vec<(&'static str, u64)>);

impl Gauges for List {
    fn gauge(&mut self, name: &'static str, value: u64) {
        self.0.push((name, value));
    }
}

/// Looks at everything; `whys`: also at what holds each group.
pub(super) fn gather(seen: &Seen<'_>, whys: bool) -> Moment {
    let engine = seen.engine;
    let controller = engine.controller();
    let mut gauges = List(Vec::new());
    controller.observe(&mut gauges);
    let mut groups = groups(seen);
    if whys {
        for (id, why) in why::everybody(seen) {
            let name = &controller.groups().group(id).name;
            if let Some(group) = groups.iter_mut().find(|group| group.name == *name) {
                group.why = Some(why);
            }
        }
    }
    let volumes = engine.volumes().map(|(name, group, connections, stats)| VolumeMoment {
        name: name.to_string(),
        group: group.to_string(),
        connections,
        requests: stats.requests,
        bytes: stats.bytes,
        flushes: stats.flushes,
        failed: stats.failed,
    });
    Moment {
        groups,
        volumes: volumes.collect(),
        stack: controller.stack().name().to_string(),
        uptime: Nanos(seen.now.0),
        connections: seen.connections,
        inside: engine.pending(),
        commands: controller.in_flight(),
        depth: controller.facts().depth,
        drive_busy: engine.busy_time(seen.now),
        reactor_busy: thread_time(),
        handshake_cpu: seen.handshake_cpu,
        gauges: gauges.0,
    }
}

fn groups(seen: &Seen<'_>) -> Vec<GroupMoment> {
    let tree = seen.engine.controller().groups();
    let mut order = vec![(GroupId::ROOT, None)];
    let mut next = 0;
    while let Some((id, _)) = order.get(next).copied() {
        order.extend(tree.group(id).children.iter().map(|child| (*child, Some(next))));
        next += 1;
    }
    let all: u64 = seen.engine.tally(GroupId::ROOT).last.bytes;
    let mut groups: Vec<GroupMoment> = Vec::with_capacity(order.len());
    for (id, parent) in order {
        let (group, tally) = (tree.group(id), seen.engine.tally(id));
        // Among those who wanted it, and itself: a share that it would have is a share, too.
        let alone = [id];
        let siblings = group.parent.map_or(&alone[..], |above| &tree.group(above).children);
        let wants =
            |one: &&GroupId| **one == id || seen.engine.tally(**one).last.busy > Nanos::ZERO;
        let weight = |one: &GroupId| u64::from(tree.group(*one).contract.weight);
        let sum: u64 = siblings.iter().filter(wants).map(weight).sum();
        let above = parent.map_or(1.0, |parent: usize| groups[parent].promised);
        groups.push(GroupMoment {
            name: group.name.clone(),
            parent,
            weight: group.contract.weight,
            min: group.contract.min,
            promised: above * weight(&id) as f64 / sum as f64,
            got: tally.last.bytes as f64 / all.max(1) as f64,
            tally: tally.clone(),
            why: None,
        });
    }
    groups
}

/// The numbers that `iofair top` shows, as JSON.
#[derive(Serialize)]
pub(super) struct Live {
    pub(super) revision: String,
    uptime_seconds: f64,
    stack: String,
    connections: usize,
    requests_inside: usize,
    drive_commands: u32,
    drive_depth: u32,
    drive_busy_seconds: f64,
    reactor_busy_seconds: f64,
    /// Longest time in each bucket of `steps`; the last bucket has no bound.
    bucket_bounds_seconds: Vec<f64>,
    groups: Vec<LiveGroup>,
}

#[derive(Serialize)]
struct LiveGroup {
    name: String,
    weight: u32,
    min_bytes_per_second: Option<u64>,
    share_promised: f64,
    share_got: f64,
    /// In the last second, groups in it included.
    bytes_per_second: u64,
    requests_inside: u64,
    broken_promise_seconds: u64,
    /// Time of the reactor's processor that volumes directly in it cost, since the start.
    cpu_seconds: f64,
    /// Of volumes directly in it, since the start: reads, then the rest.
    requests: [u64; 2],
    bytes: [u64; 2],
    failed: u64,
    steps: [LiveStep; 3],
    /// What holds it back, if anything is inside.
    why: Option<String>,
}

/// Times that pieces of requests spent in one step, since the start.
#[derive(Serialize)]
struct LiveStep {
    step: &'static str,
    seconds: f64,
    counts: [u64; BUCKETS],
}

impl Live {
    pub(super) fn new(moment: &Moment) -> Self {
        let groups = moment.groups.iter().filter(|group| group.parent.is_some());
        Self {
            revision: String::new(),
            uptime_seconds: seconds(moment.uptime),
            stack: moment.stack.clone(),
            connections: moment.connections,
            requests_inside: moment.inside,
            drive_commands: moment.commands,
            drive_depth: moment.depth,
            drive_busy_seconds: seconds(moment.drive_busy),
            reactor_busy_seconds: seconds(moment.reactor_busy),
            bucket_bounds_seconds: bounds().collect(),
            groups: groups.map(live_group).collect(),
        }
    }
}

fn live_group(group: &GroupMoment) -> LiveGroup {
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
        min_bytes_per_second: group.min,
        share_promised: group.promised,
        share_got: group.got,
        bytes_per_second: tally.last.rate(),
        requests_inside: tally.inside,
        broken_promise_seconds: tally.broken_seconds,
        cpu_seconds: seconds(tally.cpu),
        requests: tally.requests,
        bytes: tally.bytes,
        failed: tally.failed,
        steps: Step::ALL.map(step),
        why: group.why.as_ref().map(|why| why.answer.clone()),
    }
}

/// Bounds of the buckets that have one.
pub(super) fn bounds() -> impl Iterator<Item = f64> {
    (0..BUCKETS).filter_map(Times::bound).map(|bound| seconds(Nanos(bound)))
}

pub(super) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}
