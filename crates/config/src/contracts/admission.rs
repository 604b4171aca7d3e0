//! Minimums become weights, level by level of the tree of groups.
//!
//! Top-level groups are admitted against the drive's worst case; groups inside another against what
//! that one is guaranteed. A group without a minimum of its own is guaranteed what the groups inside
//! it ask together, so nobody has to add up by hand. Weights that already keep every minimum stay as
//! they were written; only where they do not, [`admit`] makes new ones.

use std::collections::{BTreeMap, BTreeSet};

use iofair_core::contract::{Contract, Refusal, WEIGHT_MAX, admit};

use super::Contracts;

/// A group's path and its contract with the weight that keeps its minimum.
pub type Admitted = Vec<(String, Contract)>;

/// Every group, parents first (those that only exist as part of a path too), with the weight that keeps
/// every minimum on a drive that gives `worst_case` bytes a second at its worst; or why the promises
/// cannot be kept.
pub fn admitted<'a>(
    groups: impl IntoIterator<Item = (&'a str, &'a Contract)>,
    worst_case: u64,
) -> Result<Admitted, Refusal> {
    let mut tree = Tree::new(groups);
    tree.admit_below("", worst_case)?;
    Ok(tree.groups.into_iter().collect())
}

impl Contracts {
    /// [`admitted`] for the groups of the file.
    pub fn admitted(&self, worst_case: u64) -> Result<Admitted, Refusal> {
        let groups = self.groups.iter().map(|group| (group.name.as_str(), &group.contract));
        admitted(groups, worst_case)
    }
}

/// Paths sort parents before children, since a parent's path is a prefix of theirs.
struct Tree {
    groups: BTreeMap<String, Contract>,
}

impl Tree {
    fn new<'a>(written: impl IntoIterator<Item = (&'a str, &'a Contract)>) -> Self {
        let mut groups: BTreeMap<String, Contract> = BTreeMap::new();
        for (name, contract) in written {
            for (slash, _) in name.match_indices('/') {
                groups.entry(name[..slash].to_string()).or_default();
            }
            groups.insert(name.to_string(), contract.clone());
        }
        Self { groups }
    }
    fn children(&self, parent: &str) -> BTreeSet<String> {
        let above = |path: &str| path.rsplit_once('/').map_or("", |(above, _)| above).to_string();
        self.groups.keys().filter(|path| above(path) == parent).cloned().collect()
    }
    /// What a group must be guaranteed: its own minimum, or what its children ask.
    fn guaranteed(&self, path: &str) -> Option<u64> {
        let own = self.groups[path].min;
        if own.is_some() {
            return own;
        }
        let children = self.children(path);
        let asked: Vec<Option<u64>> = children.iter().map(|c| self.guaranteed(c)).collect();
        let sum: u64 = asked.iter().flatten().sum();
        if sum == 0 {
            return None;
        }
        // A child without a minimum still needs the smallest weight there is (see `admit`).
        let all_ask = asked.iter().all(Option::is_some);
        let smallest = u64::from(WEIGHT_MAX);
        Some(if all_ask { sum } else { (sum * smallest).div_ceil(smallest - 1) + 1 })
    }
    fn admit_below(&mut self, parent: &str, rate: u64) -> Result<(), Refusal> {
        let children = self.children(parent);
        let asking: Vec<(String, Option<u64>, u32)> = children
            .iter()
            .map(|path| (path.clone(), self.guaranteed(path), self.groups[path].weight))
            .collect();
        let weights = match suffice(rate, &asking) {
            true => asking.iter().map(|(_, _, weight)| *weight).collect(),
            false => admit(rate, &asking)?,
        };
        for ((path, guaranteed, _), weight) in asking.into_iter().zip(weights) {
            self.groups.get_mut(&path).expect("listed from the same map").weight = weight;
            // Without a guarantee nobody inside asks for one either, so any rate admits them.
            self.admit_below(&path, guaranteed.unwrap_or(rate))?;
        }
        Ok(())
    }
}

/// Do the weights as written give each group its minimum of `rate`?
fn suffice(rate: u64, asking: &[(String, Option<u64>, u32)]) -> bool {
    let total: u64 = asking.iter().map(|(_, _, weight)| u64::from(*weight)).sum();
    let kept = |(_, min, weight): &(String, Option<u64>, u32)| {
        let share = u128::from(rate) * u128::from(*weight);
        u128::from(min.unwrap_or(0)) * u128::from(total) <= share
    };
    asking.iter().all(kept)
}
