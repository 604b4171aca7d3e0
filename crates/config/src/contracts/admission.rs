//! Which minimums can be kept, and what they become.
//!
//! A scheduler that keeps minimums itself has the weights as written, and its minimums are checked against what the drive
//! reaches ([`Basis::Reaches`], [`iofair_core::attainable`]). For all others minimums become weights, level by level of
//! the tree of groups: top-level groups are admitted against the drive's worst case; groups inside another against what that one then
//! gets when everybody wants everything. A group without a minimum of its own is guaranteed what the groups inside
//! it ask together, so nobody has to add up by hand; one with a minimum must not promise more inside. A group
//! that says what it reaches alone asks for the part of the drive's time that its minimum takes
//! ([`Sibling::new`]). Weights that already keep every minimum stay as they were written; only where they do
//! not, [`admit`] makes new ones.

use std::collections::{BTreeMap, HashMap};

use iofair_core::attainable::{Attainable, Claimant, Unattainable, check};
use iofair_core::contract::{Contract, Refusal, Sibling, WEIGHT_MAX, admit};

use super::{Back, Contracts, Group};
use crate::ConfigError;

/// A group's path and its contract with the weight that keeps its minimum.
pub type Admitted = Vec<(String, Contract)>;

/// The worst case of a drive of which nobody knows it: groups that all say what they reach alone ask for parts
/// of any number. Larger than what any drive gives, so that the parts are exact, and small enough to add up.
const ANY: u64 = 1 << 40;

/// Every group, parents first (those that only exist as part of a path too), with the weight that keeps
/// every minimum on a drive that gives `worst_case` bytes a second at its worst; or why the promises
/// cannot be kept.
pub fn admitted<'a>(
    groups: impl IntoIterator<Item = (&'a str, &'a Contract)>,
    worst_case: u64,
) -> Result<Admitted, Refusal> {
    let mut tree = Tree::new(groups, worst_case);
    tree.admit_below("", worst_case)?;
    Ok(tree.groups.into_iter().collect())
}

/// What is known of a drive beside what the file says.
#[derive(Clone, Copy, Default, Debug)]
pub struct Known {
    /// What it keeps at its worst, bytes a second.
    pub worst_case: Option<u64>,
    /// What it reaches.
    pub reaches: Option<Attainable>,
}

/// What the minimums of a stack that keeps them itself are checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Basis {
    /// What the drive reaches.
    Reaches(Attainable),
    /// Their sum: the file has `worst_case` and no `reaches`.
    WorstCase(u64),
    /// Nothing is known of the drive.
    Nothing,
}

/// Why contracts are refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdmissionError {
    /// A line of the file is.
    Config(ConfigError),
    /// The sum of the minimums is.
    Sum(Refusal),
}

impl From<ConfigError> for AdmissionError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}
impl From<Refusal> for AdmissionError {
    fn from(refusal: Refusal) -> Self {
        Self::Sum(refusal)
    }
}

impl Contracts {
    /// The groups with the weights in force, or why their minimums cannot be kept. `before`: the contracts that were in force;
    /// groups that ask for more than there are asked to give way.
    pub fn admit(&self, known: &Known, before: Option<&Self>) -> Result<Admitted, AdmissionError> {
        if !self.drive.stack.keeps_minimums() {
            let worst_case = self.drive.worst_case.or(known.worst_case);
            if let (Some(group), None) = (self.asks_worst_case(), worst_case) {
                let message = format!(
                    "group \"{}\" has a min, but the worst-case rate of this back end is not known: add \
                     worst_case = \"...MB/s\" to [drive], or alone = \"...MB/s\" to the group",
                    group.name
                );
                return Err(self.back_error(message).into());
            }
            let admitted = self.admitted(worst_case)?;
            if self.drive.stack.admits
                && let Some(drive) = self.drive.reaches.over(known.reaches)
            {
                let claimants = claimants(&admitted, before);
                check(&drive, &claimants).map_err(|error| self.unattainable(&error))?;
            }
            return Ok(admitted);
        }
        let groups = self.groups.iter().map(|group| (group.name.as_str(), &group.contract));
        let groups: Admitted = Tree::new(groups, ANY).groups.into_iter().collect();
        match self.basis(known) {
            Basis::Reaches(drive) => {
                let claimants = claimants(&groups, before);
                check(&drive, &claimants).map_err(|error| self.unattainable(&error))?;
            }
            Basis::WorstCase(rate) => drop(self.admitted(Some(rate))?),
            Basis::Nothing => {}
        }
        Ok(groups)
    }
    /// What the minimums are checked against, if the stack keeps them itself.
    pub fn basis(&self, known: &Known) -> Basis {
        let drive = &self.drive;
        let written = drive.reaches != super::Reaches::default();
        match (drive.worst_case.filter(|_| !written), drive.reaches.over(known.reaches)) {
            (Some(rate), _) => Basis::WorstCase(rate),
            (None, Some(drive)) => Basis::Reaches(drive),
            (None, None) => Basis::Nothing,
        }
    }
    /// Must somebody find out what this emulated drive reaches before the contracts can be admitted?
    pub fn asks_reaches(&self) -> Option<&str> {
        let Back::Emulated(name) = &self.drive.back else { return None };
        let stack = &self.drive.stack;
        let unknown = match stack.keeps_minimums() {
            true => self.basis(&Known::default()) == Basis::Nothing,
            false => stack.admits && self.drive.reaches.over(None).is_none(),
        };
        (unknown && self.promises()).then_some(name)
    }
    /// Is there a minimum or a latency?
    fn promises(&self) -> bool {
        let mut contracts = self.groups.iter().map(|group| &group.contract);
        contracts.any(|contract| contract.minimum().is_some() || contract.latency.is_some())
    }
    /// That nobody checks the minimums, and what would change that.
    pub fn unchecked(&self, known: &Known) -> Option<&'static str> {
        let checked = !self.drive.stack.keeps_minimums() || self.basis(known) != Basis::Nothing;
        (self.promises() && !checked).then_some(
            "minimums and latencies are not checked, because the file does not say what this drive reaches: add reaches = { read = \
             \"...MB/s\", write = \"...MB/s\", random = \"...MB/s\" } to [drive]",
        )
    }
    /// The error in the line of the group that asks too much.
    fn unattainable(&self, error: &Unattainable) -> ConfigError {
        let group = self.groups.iter().find(|group| group.name == error.group());
        let group = group.expect("only groups of the file ask for something");
        let span = match error {
            Unattainable::Latency { .. } => &group.latency_span,
            Unattainable::Minimum { in_ios: true, .. }
            | Unattainable::Inside { in_ios: true, .. } => &group.min_iops_span,
            _ => &group.min_span,
        };
        let span = span.as_ref().unwrap_or(&group.span);
        let mut allowed = error.fitting().to_string();
        if matches!(error, Unattainable::Minimum { .. }) && group.contract.alone.is_none() {
            allowed += "; more if the group says what its clients reach with the drive to themselves, \
                        alone = \"...MB/s\"";
        }
        self.source.error(span.clone(), error.to_string()).allowed(allowed)
    }
    /// [`admitted`] for the groups of the file; without a worst case if there is no [`Self::asks_worst_case`].
    pub fn admitted(&self, worst_case: Option<u64>) -> Result<Admitted, Refusal> {
        let groups = self.groups.iter().map(|group| (group.name.as_str(), &group.contract));
        admitted(groups, worst_case.unwrap_or(ANY))
    }
    /// What the minimums claim together of a drive that gives `worst_case` bytes a second at its worst.
    pub(super) fn claimed(&self, worst_case: u64) -> u64 {
        let groups = self.groups.iter().map(|group| (group.name.as_str(), &group.contract));
        let tree = Tree::new(groups, worst_case);
        let claims = tree.children("").iter().filter_map(|path| tree.claims[path]);
        claims.fold(0, u64::saturating_add)
    }
    /// The first group whose minimum counts on the drive's worst case: it does not say what it reaches alone.
    pub fn asks_worst_case(&self) -> Option<&Group> {
        let asks = |group: &&Group| group.contract.min.is_some() && group.contract.alone.is_none();
        self.groups.iter().find(asks)
    }
}

/// Each group's part of the drive while every group is busy; parents come first.
pub fn shares(groups: &[(String, Contract)]) -> Vec<f64> {
    let parent = |name: &str| name.rfind('/').unwrap_or(0);
    let mut sums: HashMap<&str, u64> = HashMap::new();
    for (name, contract) in groups {
        *sums.entry(&name[..parent(name)]).or_default() += u64::from(contract.weight);
    }
    let mut shares: HashMap<&str, f64> = HashMap::new();
    for (name, contract) in groups {
        let above = &name[..parent(name)];
        let part = f64::from(contract.weight) / sums[above] as f64;
        shares.insert(name, shares.get(above).copied().unwrap_or(1.0) * part);
    }
    groups.iter().map(|(name, _)| shares[name.as_str()]).collect()
}

/// Can this drive keep all these minimums and latencies, whoever schedules? The groups are those of [`admitted`].
pub fn check_attainable(drive: &Attainable, groups: &Admitted) -> Result<(), Unattainable> {
    check(drive, &claimants(groups, None))
}

/// The groups as admission sees them, parents first; those that ask for something else than `before` are new.
pub(super) fn claimants(groups: &Admitted, before: Option<&Contracts>) -> Vec<Claimant> {
    let asks = |contract: &Contract| (contract.minimum(), contract.alone, contract.latency);
    let old: HashMap<&str, _> = before.map_or_else(HashMap::new, |before| {
        before.groups.iter().map(|it| (it.name.as_str(), asks(&it.contract))).collect()
    });
    let places: HashMap<&str, usize> = groups.iter().map(|it| it.0.as_str()).zip(0..).collect();
    let claimant = |(name, contract): &(String, Contract)| {
        let parent = name.rsplit_once('/').map(|(above, _)| places[above]);
        let is_new = before.is_some() && old.get(name.as_str()) != Some(&asks(contract));
        Claimant { is_new, ..Claimant::new(name, contract, parent) }
    };
    groups.iter().map(claimant).collect()
}

/// Paths sort parents before children, since a parent's path is a prefix of theirs.
struct Tree {
    groups: BTreeMap<String, Contract>,
    /// By path, sorted; the top level's are under the empty path.
    children: HashMap<String, Vec<String>>,
    /// What each group must be guaranteed: see [`Self::sibling`].
    claims: HashMap<String, Option<u64>>,
    worst_case: u64,
}

impl Tree {
    fn new<'a>(
        written: impl IntoIterator<Item = (&'a str, &'a Contract)>,
        worst_case: u64,
    ) -> Self {
        let mut groups: BTreeMap<String, Contract> = BTreeMap::new();
        for (name, contract) in written {
            for (slash, _) in name.match_indices('/') {
                groups.entry(name[..slash].to_string()).or_default();
            }
            groups.insert(name.to_string(), contract.clone());
        }
        let mut children: HashMap<String, Vec<String>> = HashMap::new();
        for path in groups.keys() {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            children.entry(above.to_string()).or_default().push(path.clone());
        }
        let mut tree = Self { groups, children, claims: HashMap::new(), worst_case };
        // Children before parents, so that each is worked out once.
        let paths: Vec<String> = tree.groups.keys().rev().cloned().collect();
        for path in paths {
            let claim = tree.claim(&path);
            tree.claims.insert(path, claim);
        }
        tree
    }
    fn children(&self, parent: &str) -> &[String] {
        self.children.get(parent).map_or(&[], Vec::as_slice)
    }
    fn own(&self, path: &str) -> Sibling {
        Sibling::new(path, &self.groups[path], self.worst_case)
    }
    /// What a group must be guaranteed: what its own minimum claims, or what its children ask.
    fn sibling(&self, path: &str) -> Sibling {
        Sibling { claim: self.claims[path], ..self.own(path) }
    }
    /// The claim of a group whose children's are known.
    fn claim(&self, path: &str) -> Option<u64> {
        let own = self.own(path);
        if own.claim.is_some() {
            return own.claim;
        }
        let children = self.children(path);
        let asked: Vec<Option<u64>> = children.iter().map(|child| self.claims[child]).collect();
        let sum = asked.iter().flatten().fold(0, |sum: u64, claim| sum.saturating_add(*claim));
        if sum == 0 {
            return None;
        }
        // A child without a minimum still needs the smallest weight there is (see `admit`).
        let all_ask = asked.iter().all(Option::is_some);
        let smallest = u128::from(WEIGHT_MAX);
        let more = (u128::from(sum) * smallest).div_ceil(smallest - 1) + 1;
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        Some(if all_ask { sum } else { more })
    }
    fn admit_below(&mut self, parent: &str, rate: u64) -> Result<(), Refusal> {
        let children = self.children(parent);
        let siblings: Vec<Sibling> = children.iter().map(|path| self.sibling(path)).collect();
        let known = self.groups.contains_key(parent);
        if let Some(own) = known.then(|| self.own(parent).claim).flatten() {
            // By its weight it may get more, but that is nothing to promise.
            admit(own, &siblings)?;
        }
        let weights = match suffice(rate, &siblings) {
            true => siblings.iter().map(|group| group.weight).collect(),
            false => admit(rate, &siblings)?,
        };
        let total: u64 = weights.iter().copied().map(u64::from).sum();
        for (group, weight) in siblings.into_iter().zip(weights) {
            let path = group.name;
            self.groups.get_mut(&path).expect("listed from the same map").weight = weight;
            let share = u128::from(rate) * u128::from(weight) / u128::from(total);
            self.admit_below(&path, group.claim.unwrap_or(0).max(share as u64))?;
        }
        Ok(())
    }
}

/// Do the weights as written give each group what it claims of `rate`?
fn suffice(rate: u64, siblings: &[Sibling]) -> bool {
    let total: u64 = siblings.iter().map(|group| u64::from(group.weight)).sum();
    let kept = |group: &Sibling| {
        let share = u128::from(rate) * u128::from(group.weight);
        u128::from(group.claim.unwrap_or(0)) * u128::from(total) <= share
    };
    siblings.iter().all(kept)
}

#[cfg(test)]
mod tests;
