//! The difference between two plans, computed outside the reactor: applying it costs as much as has changed, however
//! many volumes and groups there are.

use std::collections::{HashMap, HashSet};

use iofair_config::contracts::faults::Faults;
use iofair_core::contract::Contract;
use iofair_core::controller::Stack;
use iofair_core::id::GroupId;

use super::plan::{Plan, Timeouts};
use crate::back::volume::{PlannedVolume, VolumeId};

/// The difference between two plans.
#[derive(Clone, Debug)]
pub struct Change {
    /// The policy stack.
    pub stack: Stack,
    /// Groups that are new or have a new contract, parents first.
    pub groups: Vec<(String, Contract)>,
    /// Paths of removed groups, children first.
    pub gone_groups: Vec<String>,
    /// Volumes that are new or changed.
    pub volumes: Vec<PlannedVolume>,
    /// Removed volumes.
    pub gone_volumes: Vec<VolumeId>,
    /// Names of removed volumes whose clients must be disconnected.
    pub closed: Vec<String>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Injected faults, for a back end that supports them.
    pub faults: Faults,
}

/// The effects of a change.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Changed {
    /// Keys of volumes with a new size.
    pub resized: Vec<usize>,
    /// Keys of volumes whose export has changed or was removed; may contain duplicates.
    pub exports: Vec<usize>,
    /// Groups that are new or have a new contract; groups above a new one may be new, too.
    pub groups: Vec<GroupId>,
    /// Keys of volumes whose present clients must be disconnected.
    pub closed: Vec<usize>,
}

impl Change {
    /// Computes the change from the plan in force to a new one.
    pub fn between(old: &Plan, new: Plan) -> Self {
        let Plan { stack, mut groups, mut volumes, closed, timeouts, faults } = new;
        let paths: HashSet<&str> = groups.iter().map(|(path, _)| path.as_str()).collect();
        let gone = old.groups.iter().filter(|(path, _)| !paths.contains(path.as_str()));
        let mut gone_groups: Vec<String> = gone.map(|(path, _)| path.clone()).collect();
        children_first(&mut gone_groups);
        let known: HashMap<&str, &Contract> =
            old.groups.iter().map(|(path, contract)| (path.as_str(), contract)).collect();
        groups.retain(|(path, contract)| known.get(path.as_str()) != Some(&contract));

        let ids: HashSet<VolumeId> = volumes.iter().map(|volume| volume.id).collect();
        let gone = old.volumes.iter().filter(|volume| !ids.contains(&volume.id));
        let gone_volumes = gone.map(|volume| volume.id).collect();
        let known: HashMap<VolumeId, &PlannedVolume> =
            old.volumes.iter().map(|volume| (volume.id, volume)).collect();
        volumes.retain(|volume| !known.get(&volume.id).is_some_and(|known| volume.is_same(known)));
        Self { stack, groups, gone_groups, volumes, gone_volumes, closed, timeouts, faults }
    }
}

/// Children have longer paths than their parents.
pub(super) fn children_first(paths: &mut [String]) {
    paths.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::back::volume::Map;

    fn volume(id: u128, name: &str, size: u64) -> PlannedVolume {
        PlannedVolume {
            id: VolumeId(id),
            name: name.into(),
            group: "a".into(),
            map: Map::linear(0, size).into(),
            size,
            read_only: false,
            storage: None,
            entry: Default::default(),
            stamp: Default::default(),
        }
    }
    fn plan(groups: &[(&str, u32)], volumes: Vec<PlannedVolume>) -> Plan {
        let group = |&(path, weight): &(&str, u32)| {
            (path.to_string(), Contract { weight, ..Contract::default() })
        };
        Plan {
            stack: iofair_policies::TABLE.stack("none-none").unwrap(),
            groups: groups.iter().map(group).collect(),
            volumes,
            closed: Vec::new(),
            timeouts: Timeouts::default(),
            faults: Faults::default(),
        }
    }

    /// Goal: a change has what differs and nothing else. Method: groups and volumes that stay, change, come and go.
    #[test]
    fn a_change_has_what_differs() {
        let old = plan(
            &[("a", 100), ("b", 100), ("b/c", 100), ("d", 100)],
            vec![volume(1, "one", 512), volume(2, "two", 512), volume(3, "three", 512)],
        );
        let same = Change::between(&old, old.clone());
        assert!(same.groups.is_empty() && same.volumes.is_empty());
        assert!(same.gone_groups.is_empty() && same.gone_volumes.is_empty());
        let new = plan(
            &[("a", 100), ("d", 200), ("e", 100), ("e/f", 100)],
            vec![volume(1, "one", 512), volume(2, "renamed", 512), volume(4, "three", 512)],
        );
        let change = Change::between(&old, new);
        let paths: Vec<&str> = change.groups.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["d", "e", "e/f"]);
        assert_eq!(change.gone_groups, ["b/c", "b"]);
        let ids: Vec<u128> = change.volumes.iter().map(|volume| volume.id.0).collect();
        assert_eq!((ids, change.gone_volumes), (vec![2, 4], vec![VolumeId(3)]));
    }
}
