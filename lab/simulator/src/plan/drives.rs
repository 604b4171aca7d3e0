//! Number of drives that the same clients need, by the way they share them.
//!
//! Clients are packed first-fit decreasing: the largest minimum first, each onto the first drive on which every promise is still
//! kept. The simulator decides that, in the same mixes.

use std::collections::BTreeMap;

use iofair_config::contracts::Contracts;
use iofair_core::contract::{Contract, Latency, Limits, Total};
use iofair_core::controller::Stack;
use iofair_core::minimum::IO_BYTES;
use iofair_policies::TABLE;
use serde::Serialize;

use super::alone::Alone;
use super::bench::Bench;
use super::mix::{Tested, are_kept, mixes};
use super::question::PlanError;
use super::set::{Set, is_within, promises};
use crate::scenario::GroupSpec;

/// Percent by which a ceiling is above its client's own minimum, so that the throttle does not break that minimum.
const CEILING_PERCENT: u64 = 105;

/// How clients share drives, and how many they need then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Approach {
    /// Its name.
    pub name: &'static str,
    /// The policy stack.
    pub stack: &'static str,
    /// How the clients are controlled.
    pub about: &'static str,
    /// Drives; `None` if a promise is not kept even where its client has a drive to itself.
    pub drives: Option<usize>,
    /// The clients of each drive.
    pub packing: Vec<Vec<String>>,
    /// The client whose promise is not kept on a drive of its own.
    pub impossible: Option<String>,
    /// Number of times that admission refused a client on a drive, before any run.
    pub refused: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Throttling,
    Dedicated,
    Shares,
    Promise,
}

const APPROACHES: [(Kind, &str, &str, &str); 4] = [
    (
        Kind::Throttling,
        "throttling",
        "max-none",
        "each client has a ceiling just above its minimum",
    ),
    (Kind::Dedicated, "dedicated drives", "none-none", "one client a drive"),
    (Kind::Shares, "proportional share", "prop-bfq", "weights that stand for the minimums"),
    (Kind::Promise, "promise", "promise", "minimums and latencies as written"),
];

/// A stack with the parameters that a server gives it.
fn server_stack(name: &str) -> Stack {
    let text = format!("[drive]\nback = 'memory:1GiB'\nstack = '{name}'\n");
    let contracts = Contracts::parse_with(&TABLE, "a stack", &text);
    contracts.expect("a stack of the table over memory is good").drive.stack
}

/// All approaches.
pub(super) fn approaches(
    set: &Set,
    bench: &Bench<'_>,
    alone: &Alone,
) -> Result<Vec<Approach>, PlanError> {
    let items = items(set);
    let smallest = set.groups.iter().map(minimum).filter(|min| *min > 0).min().unwrap_or(0);
    let mut found = Vec::new();
    for (kind, name, stack, about) in APPROACHES {
        bench.stage(&format!("how many drives: {name}"));
        let own = set.stack.name() == stack;
        let stack_used = if own { set.stack.clone() } else { server_stack(stack) };
        let set = Set { stack: stack_used, ..set.clone() };
        let items = match kind {
            Kind::Dedicated => items.iter().flatten().map(|index| vec![*index]).collect(),
            _ => items.clone(),
        };
        let known = BTreeMap::new();
        let mut packer = Packer { kind, set: &set, bench, alone, known, refused: 0, smallest };
        let packed = packer.pack(&items)?;
        let names = |drive: &Vec<usize>| -> Vec<String> {
            drive.iter().map(|index| set.clients[*index].group.clone()).collect()
        };
        let (drives, packing, impossible) = match packed {
            Ok(drives) => (Some(drives.len()), drives.iter().map(names).collect(), None),
            Err(item) => (None, Vec::new(), Some(names(&item).join(", "))),
        };
        let refused = packer.refused;
        found.push(Approach { name, stack, about, drives, packing, impossible, refused });
    }
    Ok(found)
}

/// Clients that stay together, since a group around them has a promise for all of them; the largest minimum first.
fn items(set: &Set) -> Vec<Vec<usize>> {
    let mut items: Vec<(String, Vec<usize>)> = Vec::new();
    for (index, client) in set.clients.iter().enumerate() {
        let outer = set
            .groups
            .iter()
            .find(|group| is_within(&client.group, &group.name) && promises(&group.contract));
        let name = outer.map_or(&client.group, |group| &group.name);
        match items.iter_mut().find(|(known, _)| known == name) {
            Some((_, together)) => together.push(index),
            None => items.push((name.clone(), vec![index])),
        }
    }
    let size = |(name, _): &(String, Vec<usize>)| {
        let group = set.groups.iter().find(|group| group.name == *name);
        std::cmp::Reverse(group.map_or(0, minimum))
    };
    items.sort_by_key(size);
    items.into_iter().map(|(_, together)| together).collect()
}

struct Packer<'a> {
    kind: Kind,
    set: &'a Set,
    bench: &'a Bench<'a>,
    alone: &'a Alone,
    /// Whether clients of these classes can share a drive.
    known: BTreeMap<Vec<String>, bool>,
    refused: usize,
    /// The smallest minimum of all clients; 0: there is none.
    smallest: u64,
}

impl Packer<'_> {
    /// The clients of each drive; or the item that cannot be kept on a drive of its own.
    fn pack(
        &mut self,
        items: &[Vec<usize>],
    ) -> Result<Result<Vec<Vec<usize>>, Vec<usize>>, PlanError> {
        let mut drives: Vec<Vec<usize>> = Vec::new();
        for item in items {
            let mut fits = false;
            let shared = if self.kind == Kind::Dedicated { &mut [][..] } else { &mut drives[..] };
            for drive in shared {
                let together: Vec<usize> = drive.iter().chain(item).copied().collect();
                if self.is_kept(&together)? {
                    *drive = together;
                    fits = true;
                    break;
                }
            }
            if !fits {
                if !self.is_kept(item)? {
                    return Ok(Err(item.clone()));
                }
                drives.push(item.clone());
            }
        }
        Ok(Ok(drives))
    }
    /// Whether every promise is kept if these clients share a drive.
    fn is_kept(&mut self, clients: &[usize]) -> Result<bool, PlanError> {
        let mut key: Vec<String> =
            clients.iter().map(|index| self.set.class(&self.set.clients[*index])).collect();
        key.sort();
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let part = self.set.part(clients);
        let controlled = match self.kind {
            Kind::Throttling => Some(throttled(&part, self.smallest)),
            Kind::Dedicated => Some(alone_in(&part)),
            Kind::Shares => part.weighted(self.bench.worst_case).ok(),
            Kind::Promise => Some(part).filter(|part| part.is_attainable(self.bench)),
        };
        let kept = match controlled {
            Some(set) => {
                let mixes = mixes(&set, self.alone);
                let mut order: Vec<usize> = (0..mixes.len()).collect();
                are_kept(self.bench, Tested::All, &set, &mixes, &mut order)?
            }
            None => {
                self.refused += 1;
                false
            }
        };
        self.known.insert(key, kept);
        Ok(kept)
    }
}

/// Without what groups around the clients are promised: that is for several drives together.
fn alone_in(set: &Set) -> Set {
    set.with_contracts(|group| match set.clients.iter().any(|client| client.group == group.name) {
        true => group.contract.clone(),
        false => {
            Contract { min: None, min_iops: None, latency: Latency::NONE, ..group.contract.clone() }
        }
    })
}

/// Ceilings just above the minimum of each client. A client without a minimum has the minimum of the group around it as
/// ceiling, or else the smallest minimum of all, so that it cannot take what others were promised.
fn throttled(set: &Set, smallest: u64) -> Set {
    set.with_contracts(|group| {
        if !set.clients.iter().any(|client| client.group == group.name) {
            return group.contract.clone();
        }
        let around = set.groups.iter().filter(|outer| is_within(&group.name, &outer.name));
        let innermost = around.rev().map(minimum).find(|min| *min > 0);
        let ceiling = match minimum(group) {
            // Clients may use what was promised to all of them together.
            0 => innermost.unwrap_or(smallest),
            min => min.saturating_mul(CEILING_PERCENT) / 100,
        };
        let max = &group.contract.max;
        let own = [Some(ceiling).filter(|rate| *rate > 0), max.total.bytes_per_s];
        let bytes_per_s = own.into_iter().flatten().min();
        let iops = group.contract.min_iops.map(|ios| ios.saturating_mul(CEILING_PERCENT) / 100 + 1);
        let total = Total { bytes_per_s, iops: max.total.iops.or(iops) };
        Contract { max: Limits { total, ..*max }, ..group.contract.clone() }
    })
}

/// The minimum of a group in bytes a second, with I/Os as long as they may be.
fn minimum(group: &GroupSpec) -> u64 {
    group.contract.minimum().in_bytes(IO_BYTES).unwrap_or(0)
}
