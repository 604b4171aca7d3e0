//! Admission: checks which minimums the drive can keep, and translates minimums into weights.
//!
//! A scheduler that keeps minimums itself uses the weights as written; its minimums are checked against what the drive
//! reaches ([`Basis::Reaches`], [`iofair_core::attainable`]). For all other schedulers, minimums become weights, level by
//! level of the tree of groups. Top-level groups are admitted against the drive's worst case, and groups inside another
//! one against what that group gets while all groups are busy. A group without a minimum is guaranteed the sum of the
//! minimums inside it; a group with a minimum must not promise more to the groups inside. A group with `alone` claims the
//! part of the drive's time that its minimum takes ([`Sibling::new`]). Weights that already keep every minimum stay as
//! written; otherwise [`admit`] computes new ones.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iofair_core::attainable::{
    Attainable, Claimant, SMALL_READ, Unattainable, check, check_inside,
};
use iofair_core::contract::{Contract, Refusal, Sibling, admit};
use iofair_core::controller::Stack;
use iofair_core::priority::Class;

use super::{Contracts, Group};
use crate::ConfigError;
use crate::name::listed;
use iofair_core::key::Key;

/// A group's path and its contract with the weight that keeps its minimum.
pub type Admitted = Vec<(String, Contract)>;

/// Stands for an unknown worst case, in bytes a second, if all groups with a minimum have `alone` and so claim parts of
/// the drive's time. Larger than the rate of any drive, so that parts are exact, and small enough for sums.
pub(super) const ANY: u64 = 1 << 40;

/// All groups, parents first, including those that only exist as part of a path, with weights that keep all minimums on a
/// drive that serves `worst_case` bytes a second in its worst case.
///
/// # Errors
///
/// The group whose minimum, or whose members' minimums, cannot be kept.
pub fn admitted<'a>(
    groups: impl IntoIterator<Item = (&'a str, &'a Contract)>,
    worst_case: u64,
) -> Result<Admitted, Refusal> {
    let mut tree = Tree::new(groups, worst_case);
    tree.admit_below("", worst_case)?;
    Ok(tree.groups.into_iter().collect())
}

/// Facts about a drive that do not come from the file.
#[derive(Clone, Copy, Default, Debug)]
pub struct Known {
    /// Rate in the worst case, in bytes a second.
    pub worst_case: Option<u64>,
    /// Rates and latency that the drive reaches.
    pub reaches: Option<Attainable>,
}

/// What the minimums of a stack that keeps them itself are checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Basis {
    /// Rates and latency that the drive reaches.
    Reaches(Attainable),
    /// The sum of the minimums against this rate: the file has `worst_case` and no `reaches`.
    WorstCase(u64),
    /// Nothing is checked, since nothing is known about the drive.
    Nothing,
}

/// Why contracts are refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdmissionError {
    /// Because of a line of the file.
    Config(ConfigError),
    /// Because of the sum of the minimums.
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
    /// The groups with the weights in force. `before`: the contracts in force so far; an error names a group that asks for
    /// more than before, if there is one.
    ///
    /// # Errors
    ///
    /// A minimum or a latency cannot be kept, or the worst case is needed and unknown.
    pub fn admit(&self, known: &Known, before: Option<&Self>) -> Result<Admitted, AdmissionError> {
        super::inside::check(self, before)?;
        let groups = self.all_groups();
        let inside = check_inside(&claimants(&groups, before));
        inside.map_err(|error| self.unattainable(&error))?;
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
        match self.basis(known) {
            Basis::Reaches(drive) => {
                let claimants = claimants(&groups, before);
                check(&drive, &claimants).map_err(|error| self.unattainable(&error))?;
            }
            Basis::WorstCase(rate) => self.check_sum(rate)?,
            Basis::Nothing => {}
        }
        Ok(groups)
    }
    /// What minimums are checked against under a stack that keeps them itself.
    pub fn basis(&self, known: &Known) -> Basis {
        let drive = &self.drive;
        let written = drive.reaches != super::Reaches::default();
        match (drive.worst_case.filter(|_| !written), drive.reaches.over(known.reaches)) {
            (Some(rate), _) => Basis::WorstCase(rate),
            (None, Some(drive)) => Basis::Reaches(drive),
            (None, None) => Basis::Nothing,
        }
    }
    /// The same under any stack: others use the rate of the worst case.
    pub(super) fn basis_of_stack(&self, known: &Known) -> Basis {
        match self.drive.stack.keeps_minimums() {
            true => self.basis(known),
            false => {
                let worst_case = self.drive.worst_case.or(known.worst_case);
                worst_case.map_or(Basis::Nothing, Basis::WorstCase)
            }
        }
    }
    /// The parts of the drive's rate, with long requests or at its worst, that the minimums are.
    pub fn floors(&self, known: &Known) -> Floors {
        if !self.groups.iter().any(|group| group.contract.minimum().is_some()) {
            return Floors::default();
        }
        let rate = match self.basis_of_stack(known) {
            Basis::Reaches(drive) => Some(drive.reads.min(drive.writes)),
            Basis::WorstCase(rate) => Some(rate),
            Basis::Nothing => None,
        };
        let groups = self.in_bytes();
        let is_known = rate.is_some()
            || groups.iter().all(|(_, group)| group.min.is_none() || group.alone.is_some());
        let rate = rate.unwrap_or(ANY);
        let tree = Tree::of(&groups, rate);
        let part = |claim: u64| is_known.then(|| (claim as f64 / rate as f64).min(1.0));
        let claims = tree.claims.into_iter();
        Floors(claims.filter_map(|(name, claim)| Some((name, part(claim?)))).collect())
    }
    /// The profile of the emulated drive that must be measured before the contracts can be checked, if that is necessary.
    pub fn asks_reaches(&self) -> Option<&str> {
        let profile = self.drive.back.profile()?;
        let stack = &self.drive.stack;
        let unknown = match stack.keeps_minimums() {
            true => self.basis(&Known::default()) == Basis::Nothing,
            false => stack.admits && self.drive.reaches.over(None).is_none(),
        };
        (unknown && self.promises()).then_some(profile)
    }
    /// Whether any group has a minimum or a latency.
    fn promises(&self) -> bool {
        let mut contracts = self.groups.iter().map(|group| &group.contract);
        contracts.any(|contract| contract.minimum().is_some() || contract.latency.is_some())
    }
    /// What is not refused and may not be meant: promises that the drive may not keep, and volumes that are closed to all.
    pub fn warnings(&self, known: &Known) -> Vec<String> {
        self.unchecked(known).into_iter().chain(self.closed()).collect()
    }
    /// Groups whose volumes nobody may open, since other groups have `clients`.
    fn closed(&self) -> Option<String> {
        let closed = self.volumes.iter().filter(|volume| {
            let is_disk = volume.vhost.is_some() || volume.ublk.is_some();
            volume.entry.names.as_ref().is_some_and(Vec::is_empty) && !is_disk
        });
        let groups: BTreeSet<&str> = closed.map(|volume| volume.group.as_str()).collect();
        let groups: Vec<&str> = groups.into_iter().collect();
        (!groups.is_empty() && self.mount.is_none()).then(|| {
            format!(
                "no client may open the volumes of {}: other groups have `clients`, and these have none (\"*\": every client)",
                listed(&groups)
            )
        })
    }
    /// Promises that nothing is known to check against, and those that exceed a rate of the file by which this stack does not go.
    fn unchecked(&self, known: &Known) -> Vec<String> {
        const ADD: &str = "add reaches = { read = \"...MB/s\", write = \"...MB/s\", random = \"...MB/s\" } to [drive]";
        if !self.promises() {
            return Vec::new();
        }
        let (stack, basis) = (&self.drive.stack, self.basis_of_stack(known));
        let drive = self.drive.reaches.over(known.reaches);
        let has_latency = self.groups.iter().any(|group| group.contract.latency.is_some());
        let unchecked = match basis {
            Basis::Nothing if stack.keeps_minimums() => Some(format!(
                "minimums and latencies are not checked, because the file does not say what this drive reaches: {ADD}"
            )),
            Basis::WorstCase(_) if has_latency && stack.keeps_minimums() => Some(format!(
                "latencies are not checked, because there is only `worst_case`: {ADD}"
            )),
            _ => None,
        };
        let missing = drive.and_then(|drive| self.unknown_latencies(&drive));
        let written = self.drive.worst_case.filter(|_| !matches!(basis, Basis::WorstCase(_)));
        let sum = written.and_then(|rate| self.check_sum(rate).err()).map(|refusal| {
            format!(
                "{refusal}; this is not refused, because `reaches` counts in place of `worst_case`"
            )
        });
        let others = !stack.admits && !matches!(basis, Basis::Reaches(_));
        let claimed = drive
            .filter(|_| others)
            .and_then(|drive| check(&drive, &claimants(&self.all_groups(), None)).err());
        let claimed = claimed.map(|error| {
            format!(
                "{error}; this is not refused, because the stack \"{}\" goes by `worst_case`",
                stack.name()
            )
        });
        unchecked.into_iter().chain(missing).chain(sum).chain(claimed).collect()
    }
    /// Latencies that groups have, and of which nothing is known about the drive.
    fn unknown_latencies(&self, drive: &Attainable) -> Option<String> {
        let known = drive.latency.times().into_iter();
        let keys = ["read", "write", "sync"].into_iter().zip(known).enumerate();
        let is_asked = |place: usize| {
            let mut groups = self.groups.iter();
            groups.any(|group| group.contract.latency.times()[place].is_some())
        };
        let unknown = keys.filter(|(place, (_, known))| known.is_none() && is_asked(*place));
        let keys: Vec<&str> = unknown.map(|(_, (key, _))| key).collect();
        (!keys.is_empty()).then(|| {
            let add: Vec<String> = keys.iter().map(|key| format!("{key} = \"...ms\"")).collect();
            format!(
                "latencies ({}) are not checked, because `reaches` does not say what this drive reaches: add latency = {{ {} }} \
                 to it",
                keys.join(", "),
                add.join(", ")
            )
        })
    }
    /// All groups as written, with those that only exist as part of a path.
    fn all_groups(&self) -> Admitted {
        let written = self.groups.iter().map(|group| (group.name.as_str(), &group.contract));
        Tree::new(written, ANY).groups.into_iter().collect()
    }
    /// The same, with minimums in bytes a second only.
    fn in_bytes(&self) -> Admitted {
        let mut groups = self.all_groups();
        for (_, contract) in &mut groups {
            contract.min = contract.minimum().in_bytes(SMALL_READ);
            contract.min_iops = None;
        }
        groups
    }
    /// Whether the sum of the minimums is within a rate.
    fn check_sum(&self, rate: u64) -> Result<(), Refusal> {
        let groups = self.in_bytes();
        admitted(groups.iter().map(|(name, contract)| (name.as_str(), contract)), rate).map(drop)
    }
    /// The error at the line of the group that asks for too much.
    fn unattainable(&self, error: &Unattainable) -> ConfigError {
        let group = self.groups.iter().find(|group| group.name == error.group());
        let group = group.expect("only groups of the file ask for something");
        let key = match error {
            Unattainable::Latency { key, .. } => super::enforced::whole(*key),
            Unattainable::Minimum { in_ios: true, .. }
            | Unattainable::Inside { in_ios: true, .. } => Key::MinIops,
            _ => Key::Min,
        };
        let span = group.keys.span(key.word()).unwrap_or_else(|| group.span.clone());
        let mut allowed = error.fitting().to_string();
        if matches!(error, Unattainable::Minimum { .. }) && group.contract.alone.is_none() {
            allowed += "; more if the group says what its clients reach with the drive to themselves, \
                        alone = \"...MB/s\"";
        }
        self.source.error(span, error.to_string()).allowed(allowed)
    }
    /// [`admitted`] for the groups of the file; without a worst case if there is no [`Self::asks_worst_case`].
    pub fn admitted(&self, worst_case: Option<u64>) -> Result<Admitted, Refusal> {
        let groups = self.groups.iter().map(|group| (group.name.as_str(), &group.contract));
        admitted(groups, worst_case.unwrap_or(ANY))
    }
    /// Sum of the claims of all minimums on a drive that serves `worst_case` bytes a second in its worst case.
    pub(super) fn claimed(&self, worst_case: u64) -> u64 {
        let tree = Tree::of(&self.in_bytes(), worst_case);
        let claims = tree.children("").iter().filter_map(|path| tree.claims[path]);
        claims.fold(0, u64::saturating_add)
    }
    /// The first group whose minimum counts against the drive's worst case, because it has no `alone`.
    pub(crate) fn asks_worst_case(&self) -> Option<&Group> {
        let asks = |group: &&Group| group.contract.min.is_some() && group.contract.alone.is_none();
        self.groups.iter().find(asks)
    }
}

/// A group that wants the drive.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Its weight in force.
    pub weight: u32,
    /// Its class.
    pub class: Class,
    /// The part of the drive that it is guaranteed ([`Floors::of`]).
    pub floor: Option<f64>,
}

/// What sibling groups that want the drive at the same time are promised of it. Those of the most urgent class share what the minimums
/// of the others leave by weight, but each has at least its minimum; the others are promised their minimums, and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Rivals {
    class: Option<Class>,
    /// What all of them have, and of that what each unit of weight gives in the class.
    together: Option<f64>,
    per_weight: Option<f64>,
}

impl Rivals {
    /// These groups, which have this part of the drive together; `None`: unknown.
    pub fn new(groups: impl IntoIterator<Item = Rival>, together: Option<f64>) -> Self {
        let mut groups: Vec<Rival> = groups.into_iter().collect();
        let class = groups.iter().map(|group| group.class).min();
        let floor = |group: &Rival| group.floor.unwrap_or(0.0);
        let others = groups.iter().filter(|group| Some(group.class) != class);
        let taken: f64 = others.map(floor).sum();
        groups.retain(|group| Some(group.class) == class);
        // Those whose minimums are more than their weights give come first.
        let needs = |group: &Rival| floor(group) / f64::from(group.weight);
        groups.sort_by(|one, other| needs(other).total_cmp(&needs(one)));
        let mut left = together.map(|together| (together - taken).max(0.0));
        let mut weights: f64 = groups.iter().map(|group| f64::from(group.weight)).sum();
        for group in &groups {
            match &mut left {
                Some(left) if needs(group) * weights > *left => {
                    *left = (*left - floor(group)).max(0.0)
                }
                _ => break,
            }
            weights -= f64::from(group.weight);
        }
        Self { class, together, per_weight: left.map(|left| left / weights.max(1.0)) }
    }
    /// The part of one of them; `None`: unknown.
    pub fn part(&self, rival: Rival) -> Option<f64> {
        let floor = || rival.floor.map(|floor| floor.min(self.together.unwrap_or(1.0)));
        match self.class == Some(rival.class) {
            true => {
                let by_weight = self.per_weight? * f64::from(rival.weight);
                Some(by_weight.max(floor().unwrap_or(0.0)))
            }
            false => floor(),
        }
    }
}

/// The parts of the drive that groups are guaranteed by their minimums, or by those inside them.
#[derive(Clone, Default, Debug)]
pub struct Floors(HashMap<String, Option<f64>>);

impl Floors {
    /// That of a group; `None` if the rate of the drive is not known.
    pub fn of(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied().unwrap_or(Some(0.0))
    }
}

/// Each group's part of the drive while all groups are busy, if it is known; parents come first.
pub fn shares(groups: &[(String, Contract)], floors: &Floors) -> Vec<Option<f64>> {
    let parent = |name: &str| name.rfind('/').unwrap_or(0);
    let rival = |name: &str, contract: &Contract| {
        let Contract { weight, class, .. } = *contract;
        Rival { weight, class, floor: floors.of(name) }
    };
    let mut siblings: HashMap<&str, Vec<Rival>> = HashMap::new();
    for (name, contract) in groups {
        siblings.entry(&name[..parent(name)]).or_default().push(rival(name, contract));
    }
    let (mut rivals, mut shares) = (HashMap::new(), HashMap::new());
    for (name, contract) in groups {
        let above = &name[..parent(name)];
        let together = shares.get(above).copied().unwrap_or(Some(1.0));
        let rivals = rivals
            .entry(above)
            .or_insert_with(|| Rivals::new(siblings.remove(above).unwrap_or_default(), together));
        shares.insert(name.as_str(), rivals.part(rival(name, contract)));
    }
    groups.iter().map(|(name, _)| shares[name.as_str()]).collect()
}

/// Whether a stack shares by weight. Where it does not, no share is promised.
pub fn shares_by_weight(stack: &Stack) -> bool {
    stack.enforces(Key::Weight)
}

/// [`shares`] under a stack; `None` for every group if it does not share by weight.
pub fn shares_under(
    stack: &Stack,
    groups: &[(String, Contract)],
    floors: &Floors,
) -> Vec<Option<f64>> {
    match shares_by_weight(stack) {
        true => shares(groups, floors),
        false => vec![None; groups.len()],
    }
}

/// Checks whether this drive can keep all minimums and latencies under any scheduler. The groups are those of [`admitted`].
pub fn check_attainable(drive: &Attainable, groups: &Admitted) -> Result<(), Unattainable> {
    check(drive, &claimants(groups, None))
}

/// The claims of all groups, parents first. A group whose claims differ from `before` counts as new.
pub(super) fn claimants(groups: &Admitted, before: Option<&Contracts>) -> Vec<Claimant> {
    let asks = |contract: &Contract| (contract.minimum(), contract.alone, contract.latency);
    let old: HashMap<&str, _> = before.map_or_else(HashMap::new, |before| {
        before.groups.iter().map(|group| (group.name.as_str(), asks(&group.contract))).collect()
    });
    let names = groups.iter().map(|(name, _)| name.as_str());
    let places: HashMap<&str, usize> = names.zip(0..).collect();
    let claimant = |(name, contract): &(String, Contract)| {
        let parent = name.rsplit_once('/').map(|(above, _)| places[above]);
        let is_new = before.is_some() && old.get(name.as_str()) != Some(&asks(contract));
        Claimant { is_new, ..Claimant::new(name, contract, parent) }
    };
    groups.iter().map(claimant).collect()
}

/// The tree of groups. Paths sort parents before children, since a parent's path is a prefix of theirs.
struct Tree {
    groups: BTreeMap<String, Contract>,
    /// Sorted paths of the children of each group; those of the top level are under the empty path.
    children: HashMap<String, Vec<String>>,
    /// What each group must be guaranteed.
    claims: HashMap<String, Option<u64>>,
    worst_case: u64,
}

impl Tree {
    fn of(groups: &Admitted, worst_case: u64) -> Self {
        Self::new(groups.iter().map(|(name, contract)| (name.as_str(), contract)), worst_case)
    }
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
        // Children before parents, so that each claim is computed once.
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
    /// A group with what it must be guaranteed: the claim of its own minimum, or the sum of its children's claims.
    fn sibling(&self, path: &str) -> Sibling {
        Sibling { claim: self.claims[path], ..self.own(path) }
    }
    /// The claim of a group whose children's claims are known.
    fn claim(&self, path: &str) -> Option<u64> {
        let own = self.own(path);
        if own.claim.is_some() {
            return own.claim;
        }
        let claims = self.children(path).iter().filter_map(|child| self.claims[child]);
        Some(claims.fold(0, u64::saturating_add)).filter(|sum| *sum > 0)
    }
    fn admit_below(&mut self, parent: &str, rate: u64) -> Result<(), Refusal> {
        let children = self.children(parent);
        let siblings: Vec<Sibling> = children.iter().map(|path| self.sibling(path)).collect();
        let known = self.groups.contains_key(parent);
        if let Some(own) = known.then(|| self.own(parent).claim).flatten() {
            // By its weight it may get more, but only its own minimum is guaranteed.
            admit(own, &siblings).map_err(|mut refusal| {
                refusal.parent = Some(parent.into());
                refusal
            })?;
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

/// Whether the weights as written give each group its claim of `rate`.
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
