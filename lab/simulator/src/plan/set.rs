//! The clients of a contract file and their groups, as a plan sees them.

use std::collections::BTreeMap;

use iofair_config::contracts::admission::{Known, admitted, check_attainable};
use iofair_config::contracts::{Contracts, Group};
use iofair_core::contract::Contract;
use iofair_core::controller::Stack;
use serde::Serialize;

use super::alone::Alone;
use super::bench::Bench;
use super::load::Load;
use super::question::{PlanError, Question};
use crate::scenario::GroupSpec;

/// Most clients of a plan: each of the worst mixes has all of them.
const CLIENTS_MAX: usize = 256;
/// Space of a group without volumes, if the drive has that much left.
const SPACE: u64 = 1 << 30;

/// The clients of one group: what uses its volumes.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Path of the group.
    pub(super) group: String,
    /// Bytes of its volumes.
    pub(super) space: u64,
    /// Its expected load.
    pub(super) expected: Load,
    /// Whether a person stated that load.
    pub(super) is_stated: bool,
}

/// Result of admission, the server's own check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Admission {
    /// Are the contracts admitted?
    pub admitted: bool,
    /// Why not, and what would be.
    pub refusal: Option<String>,
}

/// Clients that share a drive under a stack.
#[derive(Clone)]
pub(super) struct Set {
    pub(super) stack: Stack,
    /// Parents first.
    pub(super) groups: Vec<GroupSpec>,
    pub(super) clients: Vec<Client>,
    pub(super) admission: Admission,
}

/// The promises to a group.
pub(super) fn promises(contract: &Contract) -> bool {
    contract.minimum().is_some() || contract.latency.is_some()
}

/// Whether a group is this one or inside it.
pub(super) fn is_within(group: &str, outer: &str) -> bool {
    group.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Set {
    pub(super) fn new(
        question: &Question<'_>,
        bench: &Bench<'_>,
        alone: &Alone,
    ) -> Result<Self, PlanError> {
        let contracts = question.contracts;
        contracts.check_capacity(bench.capacity_bytes)?;
        let clients = clients(question, bench, alone)?;
        if clients.is_empty() {
            let message = format!(
                "{}: no group, so there is no client to plan for: add a [[group]]",
                contracts.path()
            );
            return Err(PlanError::Refused(message));
        }
        if clients.len() > CLIENTS_MAX {
            let message = format!(
                "{}: {} groups have clients, and a plan takes at most {CLIENTS_MAX}",
                contracts.path(),
                clients.len()
            );
            return Err(PlanError::Refused(message));
        }
        let known = Known { worst_case: Some(bench.worst_case), reaches: Some(bench.reaches) };
        let (groups, refusal) = match contracts.admit(&known, None) {
            Ok(groups) => (groups, None),
            Err(error) => (as_written(contracts), Some(admission_text(&error))),
        };
        let spec = |(name, contract)| GroupSpec { name, contract };
        Ok(Self {
            stack: contracts.drive.stack.clone(),
            groups: groups.into_iter().map(spec).collect(),
            clients,
            admission: Admission { admitted: refusal.is_none(), refusal },
        })
    }
    pub(super) fn contract(&self, group: &str) -> &Contract {
        let found = self.groups.iter().find(|known| known.name == group);
        &found.expect("every client's group is there").contract
    }
    /// Groups with something to promise.
    pub(super) fn promised(&self) -> impl Iterator<Item = &GroupSpec> {
        self.groups.iter().filter(|group| promises(&group.contract))
    }
    /// Only some of the clients, with the groups above and around them.
    pub(super) fn part(&self, keep: &[usize]) -> Self {
        let clients: Vec<Client> = keep.iter().map(|index| self.clients[*index].clone()).collect();
        let is_used =
            |group: &GroupSpec| clients.iter().any(|client| is_within(&client.group, &group.name));
        let groups = self.groups.iter().filter(|group| is_used(group)).cloned().collect();
        Self { groups, clients, ..self.clone() }
    }
    /// The same groups with other contracts.
    pub(super) fn with_contracts(&self, change: impl Fn(&GroupSpec) -> Contract) -> Self {
        let changed =
            |group: &GroupSpec| GroupSpec { name: group.name.clone(), contract: change(group) };
        Self { groups: self.groups.iter().map(changed).collect(), ..self.clone() }
    }
    /// With the weights that keep the minimums by weight, as a server sets them; or why it refuses.
    pub(super) fn weighted(&self, worst_case: u64) -> Result<Self, String> {
        let groups = self.groups.iter().map(|group| (group.name.as_str(), &group.contract));
        let groups = admitted(groups, worst_case).map_err(|refusal| refusal.to_string())?;
        let spec = |(name, contract)| GroupSpec { name, contract };
        Ok(Self { groups: groups.into_iter().map(spec).collect(), ..self.clone() })
    }
    /// Whether the admission of `promise` accepts it.
    pub(super) fn is_attainable(&self, bench: &Bench<'_>) -> bool {
        let groups =
            self.groups.iter().map(|group| (group.name.clone(), group.contract.clone())).collect();
        check_attainable(&bench.reaches, &groups).is_ok()
    }
    /// The groups of clients that are equal to the one of this group, itself included.
    pub(super) fn equals(&self, group: &str) -> Vec<&str> {
        let Some(own) = self.clients.iter().find(|client| client.group == group) else {
            return Vec::new();
        };
        let class = self.class(own);
        let equal = self.clients.iter().filter(|client| self.class(client) == class);
        equal.map(|client| client.group.as_str()).collect()
    }
    /// What makes clients equal: their contract, its place, and what they are expected to do.
    pub(super) fn class(&self, client: &Client) -> String {
        let above = client.group.rsplit_once('/').map_or("", |(above, _)| above);
        let (contract, load) = (self.contract(&client.group), &client.expected.text);
        format!("{above}|{contract:?}|{load}|{}", client.space)
    }
}

/// Groups that clients use: those with volumes, and those without groups inside.
fn clients(
    question: &Question<'_>,
    bench: &Bench<'_>,
    alone: &Alone,
) -> Result<Vec<Client>, PlanError> {
    let contracts = question.contracts;
    let mut spaces: BTreeMap<&str, u64> = BTreeMap::new();
    for volume in &contracts.volumes {
        *spaces.entry(&volume.group).or_default() += volume.size_bytes;
    }
    let is_leaf = |group: &&Group| {
        let mut others = contracts.groups.iter().filter(|other| other.name != group.name);
        !others.any(|other| is_within(&other.name, &group.name))
    };
    let mut names: Vec<&str> = Vec::new();
    let leaves = contracts.groups.iter().filter(is_leaf).map(|group| group.name.as_str());
    for name in spaces.keys().copied().chain(leaves) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // In the order of the file, groups that only exist as part of a path last.
    let place = |name: &&str| contracts.groups.iter().position(|group| group.name == **name);
    names.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
    if let Some((_, (_, unknown))) =
        question.loads.of.iter().find(|(group, _)| !names.contains(&group.as_str()))
    {
        let error = unknown.clone().allowed(names.join(", "));
        let (group, names) =
            (error.message.split('"').nth(1).unwrap_or("").to_owned(), names.iter());
        return Err(error.near(&group, names.copied()).into());
    }
    let used: u64 = spaces.values().sum();
    let without = names.iter().filter(|name| !spaces.contains_key(**name)).count() as u64;
    let left = bench.capacity_bytes.saturating_sub(used) / without.max(1);
    // Where nothing is known, the slowest that the contract covers.
    let says = |name: &str| {
        let group = contracts.groups.iter().find(|group| group.name == name);
        group.and_then(|group| group.contract.alone)
    };
    let client = |name: &&str| {
        let space = spaces.get(*name).copied().unwrap_or(SPACE.min(left));
        let stated = question.loads.of.get(*name).map(|(load, _)| load.clone());
        Client {
            group: (*name).to_owned(),
            space,
            is_stated: stated.is_some(),
            expected: stated.unwrap_or_else(|| alone.slowest(says(name))),
        }
    };
    Ok(names.iter().map(client).collect())
}

/// The groups as the file has them, with those that only exist as part of a path, parents first.
fn as_written(contracts: &Contracts) -> Vec<(String, Contract)> {
    let mut groups: BTreeMap<String, Contract> = BTreeMap::new();
    for group in &contracts.groups {
        for (slash, _) in group.name.match_indices('/') {
            groups.entry(group.name[..slash].to_owned()).or_default();
        }
        groups.insert(group.name.clone(), group.contract.clone());
    }
    groups.into_iter().collect()
}

fn admission_text(error: &iofair_config::contracts::admission::AdmissionError) -> String {
    use iofair_config::contracts::admission::AdmissionError::{Config, Sum};
    match error {
        Config(error) => match &error.allowed {
            Some(allowed) => format!("{}; allowed: {allowed}", error.message),
            None => error.message.clone(),
        },
        Sum(refusal) => refusal.to_string(),
    }
}
