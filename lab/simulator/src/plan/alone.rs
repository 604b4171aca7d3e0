//! Rates of loads that have the drive to themselves, and the loads that a promise covers.

use iofair_policies::TABLE;

use super::bench::{Bench, Ran, Run};
use super::load::{LADDER, Load, Neighbours};
use super::question::PlanError;
use crate::scenario::GroupSpec;

/// Percent of a rate from which on a load counts as reaching it.
const REACHED_PERCENT: u64 = 97;
/// Space for a load that has the drive to itself.
const SPACE: u64 = 1 << 30;

/// Rate of each load with the drive to itself, in bytes a second.
pub(super) struct Alone {
    /// The neighbours that are tried.
    pub(super) tried: Vec<Neighbours>,
    /// By neighbours; and what those reach that do the second thing.
    pub(super) neighbours: Vec<[u64; 2]>,
    ladder: Vec<u64>,
}

impl Alone {
    pub(super) fn measure(bench: &Bench<'_>) -> Result<Self, PlanError> {
        bench.stage("what each load reaches with the drive to itself");
        let mut loads: Vec<Load> = LADDER.iter().map(|keys| Load::from_keys(keys)).collect();
        for neighbours in &bench.neighbours {
            loads.push(Load::from_keys(neighbours.keys));
            loads.push(Load::from_keys(neighbours.second.unwrap_or(neighbours.keys)));
        }
        let stack = TABLE.stack("none-none").expect("in the table");
        let space = SPACE.min(bench.capacity_bytes / 2);
        let run = |load: &Load| {
            let mut clients = load.in_group("alone", space);
            // A burst reaches what it would without its rests.
            clients.iter_mut().for_each(|client| client.job.on_off = None);
            let groups = vec![GroupSpec { name: "alone".into(), contract: Default::default() }];
            Run { stack: stack.clone(), groups, clients }
        };
        let runs: Vec<Run> = loads.iter().map(run).collect();
        let rate = |ran: &Vec<Ran>| {
            let rates = ran.iter().flatten().map(|measured| measured[0].rate);
            rates.min().unwrap_or(0)
        };
        let rates: Vec<u64> = bench.run(&runs)?.iter().map(rate).collect();
        let (ladder, rest) = rates.split_at(LADDER.len());
        let neighbours = rest.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
        Ok(Self { tried: bench.neighbours.clone(), neighbours, ladder: ladder.to_vec() })
    }
    /// The slowest load that the promise of a group covers: one that reaches what its contract says it reaches alone, or else a
    /// small read after the other.
    pub(super) fn slowest(&self, alone: Option<u64>) -> Load {
        let Some(wanted) = alone else { return Load::from_keys(LADDER[0]) };
        let reaching =
            |rate: u64| rate.saturating_mul(100) >= wanted.saturating_mul(REACHED_PERCENT);
        let rungs = self.ladder.iter().zip(LADDER);
        let slowest =
            rungs.clone().filter(|(rate, _)| reaching(**rate)).min_by_key(|(rate, _)| **rate);
        let fastest = || rungs.clone().max_by_key(|(rate, _)| **rate);
        Load::from_keys(slowest.or_else(fastest).expect("the ladder has rungs").1)
    }
    /// Whether the promise of a group covers a load that reaches this rate alone.
    pub(super) fn covers(&self, alone: Option<u64>, rate: u64) -> bool {
        let counted_on = alone.unwrap_or(self.ladder[0]);
        rate.saturating_mul(100) >= counted_on.saturating_mul(REACHED_PERCENT)
    }
}
