//! Volumes and groups, and changes to them while requests are in flight.

use std::collections::HashSet;
use std::ops::Range;

use iofair_core::contract::Contract;
use iofair_core::controller::{Stack, Stage};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::time::{Instant, Nanos};

use super::Engine;
use super::change::{Change, Changed, children_first};
use super::losses::Losses;
use super::plan::Plan;
use super::runs::Runs;
use super::stats::{Snapshot, VolumeReport, VolumeSnapshot, VolumeStats};
use super::tally::GroupTally;
use super::volume::Volume;
use crate::back::volume::{PlannedVolume, VolumeId};
use crate::request::export::Export;

/// Clients and groups that are looked at in one turn, whether they may go.
const LEAVING_MAX: usize = 64;

impl Engine {
    /// The first volume that the change makes smaller while a client has it open, if there is one. That client would
    /// still use the old size.
    pub fn cuts(&self, change: &Change) -> Option<&str> {
        let mut volumes = change.volumes.iter().filter_map(|new| {
            let volume = &self.volumes[*self.index.volumes.get(&new.id)?];
            let cut = volume.connections > 0 && new.size < volume.plan.size;
            cut.then_some(volume.plan.name.as_str())
        });
        volumes.next()
    }
    /// Brings groups, volumes and stack into the state of the plan.
    pub fn apply(&mut self, now: Instant, plan: &Plan) -> Changed {
        let Plan { stack, groups, volumes, closed, timeouts, faults } = plan.clone();
        let paths: HashSet<&str> = groups.iter().map(|(path, _)| path.as_str()).collect();
        let gone = self.index.groups.keys().filter(|path| !paths.contains(path.as_str()));
        let mut gone_groups: Vec<String> = gone.cloned().collect();
        // In an order of their own, since that of a table is not the same twice.
        children_first(&mut gone_groups);
        let ids: HashSet<VolumeId> = volumes.iter().map(|volume| volume.id).collect();
        let gone = self.volumes.iter().map(|(_, volume)| volume.plan.id);
        let gone_volumes = gone.filter(|id| !ids.contains(id)).collect();
        let change =
            Change { stack, groups, gone_groups, volumes, gone_volumes, closed, timeouts, faults };
        self.change(now, &change)
    }
    /// Applies a change. Requests in flight are not affected.
    pub fn change(&mut self, now: Instant, change: &Change) -> Changed {
        let mut changed = Changed::default();
        self.commands.timeout = change.timeouts.timeout;
        self.back.set_faults(&change.faults);
        if !same_stack(self.controller.stack(), &change.stack) {
            let tags = || super::tags(self.controller.facts(), &change.stack);
            let tags = self.fixed_tags.unwrap_or_else(tags);
            self.controller.set_tags(tags).expect("a drive has at least one tag");
            self.controller.switch(now, change.stack.clone());
        }
        for (path, contract) in &change.groups {
            changed.groups.push(self.apply_group(now, path, contract));
        }
        for volume in &change.volumes {
            self.back.place(volume);
            self.apply_volume(now, volume, &mut changed);
        }
        for id in &change.gone_volumes {
            let Some(key) = self.index.volumes.get(id).copied() else { continue };
            let volume = &mut self.volumes[key];
            volume.retired = true;
            if volume.connections == 0 {
                self.leaving.volumes.push(key);
            }
            changed.exports.push(key);
        }
        // Also of those that were removed before.
        let is_closed =
            |volume: &Volume| volume.retired && change.closed.contains(&volume.plan.name);
        let closed = self.volumes.iter().filter(|(_, volume)| is_closed(volume));
        changed.closed.extend(closed.map(|(key, _)| key));
        let gone = change.gone_groups.iter().filter_map(|path| self.index.groups.get(path));
        self.leaving.groups.extend(gone);
        self.settle(now);
        changed
    }
    fn apply_group(&mut self, now: Instant, path: &str, contract: &Contract) -> GroupId {
        let Some(id) = self.index.groups.get(path).copied() else {
            return self.add_group(now, path, contract);
        };
        self.leaving.groups.retain(|leaving| *leaving != id);
        if self.controller.groups().group(id).contract != *contract {
            let updated = self.controller.update_group(now, id, contract.clone());
            updated.expect("groups in the index are there");
        }
        id
    }
    fn add_group(&mut self, now: Instant, path: &str, contract: &Contract) -> GroupId {
        let parent = match path.rsplit_once('/') {
            None => GroupId::ROOT,
            Some((above, _)) => match self.index.groups.get(above) {
                Some(id) => *id,
                None => self.add_group(now, above, &Contract::default()),
            },
        };
        let id = self.controller.add_group_under(now, path, parent, contract.clone());
        let id = id.expect("checked with the file, and new");
        self.tallies.add(id, self.controller.groups());
        self.index.groups.insert(path.to_string(), id);
        id
    }
    /// Clients of a volume that was removed and comes again in another group are those of the group before.
    fn apply_volume(&mut self, now: Instant, plan: &PlannedVolume, changed: &mut Changed) {
        let group = self.index.groups.get(&plan.group);
        let group = *group.expect("every volume's group is in the plan");
        if let Some(key) = self.index.volumes.get(&plan.id).copied() {
            let volume = &mut self.volumes[key];
            if volume.plan.group != plan.group || volume.plan.stamp != plan.stamp {
                let priority = plan.stamp.priority;
                let moved = self.controller.update_client(now, volume.client, group, priority);
                moved.expect("a volume's client lives as long as the volume");
            }
            volume.group = group;
            let is_given = volume.retired && volume.plan.group != plan.group;
            changed.closed.extend(is_given.then_some(key));
            changed.resized.extend((volume.plan.size != plan.size).then_some(key));
            changed.exports.push(key);
            volume.plan = plan.clone();
            volume.retired = false;
            return;
        }
        let client = self.controller.add_client(now, group, plan.stamp.priority);
        let client = client.expect("the group was just found");
        let key = self.volumes.insert(Volume {
            plan: plan.clone(),
            client,
            group,
            connections: 0,
            retired: false,
            is_drive: false,
            losses: Losses::default(),
            full: None,
            stats: VolumeStats::default(),
            runs: Runs::default(),
        });
        self.index.volumes.insert(plan.id, key);
        self.index.set_client(client, key);
        changed.exports.push(key);
    }

    /// Lets go what is idle of volumes and groups that are not in the contracts any more. What is still busy is looked
    /// at again in a later turn, a few at a time.
    pub(crate) fn settle(&mut self, now: Instant) {
        while let Some(key) = self.leaving.volumes.pop() {
            // It may be named twice, or have come back.
            let goes = |volume: &Volume| volume.retired && volume.connections == 0;
            if self.volumes.get(key).is_some_and(goes) {
                let volume = self.volumes.remove(key);
                self.leaving.clients.push_back(volume.client);
                if !volume.is_drive {
                    self.index.volumes.remove(&volume.plan.id);
                    self.back.forget(&volume.plan);
                }
            }
        }
        let controller = &mut self.controller;
        for _ in 0..self.leaving.clients.len().min(LEAVING_MAX) {
            let Some(id) = self.leaving.clients.pop_front() else { break };
            if controller.remove_client(now, id).is_err() {
                self.leaving.clients.push_back(id);
            }
        }
        for _ in 0..self.leaving.groups.len().min(LEAVING_MAX) {
            let Some(id) = self.leaving.groups.pop_front() else { break };
            let Some(group) = controller.groups().try_group(id) else { continue };
            let path = group.name.clone();
            match controller.remove_group(now, id) {
                Ok(()) => drop(self.index.groups.remove(&path)),
                Err(_) => self.leaving.groups.push_back(id),
            }
        }
    }

    /// Volumes in service in `count` places from `first` on, and where to go on.
    pub(crate) fn volumes_from(
        &self,
        first: usize,
        count: usize,
    ) -> (impl Iterator<Item = VolumeReport<'_>>, Option<usize>) {
        let end = (first + count).min(self.volumes.capacity());
        let there = (first..end).filter_map(|key| self.volumes.get(key));
        let there = there.filter(|volume| !volume.is_drive);
        let told = there.map(|volume| VolumeReport {
            name: &volume.plan.name,
            group: &volume.plan.group,
            connections: volume.connections,
            stats: &volume.stats,
            failing: volume.runs.longest(),
        });
        (told, (end < self.volumes.capacity()).then_some(end))
    }
    /// The name of the volume that is this client of the controller.
    pub(crate) fn volume_of(&self, client: ClientId) -> Option<&str> {
        let volume = self.volumes.get(*self.index.clients.get(client.index())?)?;
        (volume.client == client).then_some(volume.plan.name.as_str())
    }
    /// A group's counters.
    pub fn tally(&self, group: GroupId) -> &GroupTally {
        self.tallies.get(group)
    }
    /// All volumes as clients see them, in the order of their ids, with their groups.
    pub fn exports(&self) -> Vec<(Export, GroupId)> {
        let open = self.volumes.iter().filter(|(_, volume)| !volume.retired);
        open.map(|(key, volume)| (self.export(key), volume.group)).collect()
    }
    fn export(&self, key: usize) -> Export {
        let PlannedVolume { name, size, read_only, entry, .. } = self.volumes[key].plan.clone();
        let (id, rotational, connections) = (key as u32, self.rotational, 0);
        Export { id, name, size, read_only, rotational, entry, connections }
    }
    /// A volume that was removed and still has clients, as they see it, and its group.
    pub(crate) fn removed(&self, key: usize) -> Option<(Export, &str)> {
        let volume = self.volumes.get(key).filter(|volume| volume.retired)?;
        Some((self.export(key), &volume.plan.group))
    }
    /// Records that a client opened a volume.
    pub fn attach(&mut self, volume: usize) {
        self.volumes[volume].connections += 1;
    }
    /// Records that a client closed a volume; all its requests are complete.
    pub fn detach(&mut self, volume: usize) {
        let left = &mut self.volumes[volume];
        left.connections -= 1;
        if left.retired && left.connections == 0 {
            self.leaving.volumes.push(volume);
        }
    }
    /// The group to which its usage is charged.
    pub fn group(&self, volume: usize) -> GroupId {
        self.volumes[volume].group
    }
    /// Counts a request of a volume that a front end refused as failed.
    pub fn refused(&mut self, volume: usize) {
        let volume = &mut self.volumes[volume];
        volume.stats.failed += 1;
        self.tallies.refused(volume.group);
    }
    /// A client of a group has to wait for room.
    pub(crate) fn stalled(&mut self, group: GroupId) {
        self.tallies.stalled(group);
    }
    /// A call to the control socket named a group, or a volume in it; one that is not there counts for nobody.
    pub(crate) fn called(&mut self, group: &str) {
        if let Some(id) = self.group_named(group) {
            self.tallies.called(id);
        }
    }
    /// A group by its path.
    pub fn group_named(&self, path: &str) -> Option<GroupId> {
        self.index.groups.get(path).copied()
    }
    /// Charges processor time to a group.
    pub fn charge(&mut self, group: GroupId, time: Nanos) {
        self.tallies.charge(group, time);
    }
    /// Can no command, however late, meet these bytes of the drive, which a volume had that is gone or shorter now? A
    /// volume only becomes shorter while nobody has it open.
    pub(crate) fn lets_go(&self, id: VolumeId, bytes: &Range<u64>) -> bool {
        let reaches = |volume: &Volume| {
            let PlannedVolume { map, size, .. } = &volume.plan;
            map.places(0..*size).any(|place| place.start < bytes.end && bytes.start < place.end)
        };
        let has = |volume: &Volume| volume.plan.id == id && !volume.is_drive && reaches(volume);
        self.commands.late() == 0 && !self.volumes.iter().any(|(_, volume)| has(volume))
    }
    /// Its size in bytes.
    pub fn size(&self, volume: usize) -> u64 {
        self.volumes[volume].plan.size
    }

    /// The counters; `since` is when counting began.
    pub fn snapshot(&self, now: Instant, since: Instant, busy_before: Nanos) -> Snapshot {
        let volume = |(_, volume): (usize, &Volume)| VolumeSnapshot {
            name: volume.plan.name.clone(),
            group: volume.plan.group.clone(),
            connections: volume.connections,
            stats: volume.stats.clone(),
        };
        let seen = self.volumes.iter().filter(|(_, volume)| !volume.is_drive);
        let volumes: Vec<VolumeSnapshot> = seen.map(volume).collect();
        Snapshot {
            time: now.since(since),
            busy: self.busy_time(now).saturating_sub(busy_before),
            connections: volumes.iter().map(|volume| volume.connections as usize).sum(),
            pending: self.pending(),
            volumes,
        }
    }
    /// Time in which the drive had at least one command.
    pub(crate) fn busy_time(&self, now: Instant) -> Nanos {
        self.back.busy().unwrap_or_else(|| self.busy.total(now))
    }
    /// Resets the counters of all volumes.
    pub(crate) fn reset_stats(&mut self) {
        for (_, volume) in &mut self.volumes {
            volume.stats = VolumeStats::default();
        }
    }
}

fn same_stack(a: &Stack, b: &Stack) -> bool {
    let same = |(a, b): (&Stage, &Stage)| {
        let values = a.values.iter().map(|(_, value)| value);
        values.eq(b.values.iter().map(|(_, value)| value))
    };
    a.name() == b.name()
        && a.throttles.iter().zip(&b.throttles).all(same)
        && same((&a.scheduler, &b.scheduler))
}
