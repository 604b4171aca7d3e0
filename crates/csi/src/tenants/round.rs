//! One round for one tenant, without input and output: what to lower, what to write, what to raise.

use std::collections::BTreeMap;

use super::divide::{Demand, divide, settled};
use super::resource::Part;

/// A node in a round.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Place {
    /// What its volumes ask for; `None`: the namespace has none there.
    pub(super) demand: Option<Demand>,
    /// What its server has in force.
    pub(super) has: Part,
}

/// Parts by nodes.
pub(super) type Parts = BTreeMap<String, Part>;

/// A round.
#[derive(Debug)]
pub(super) struct Round {
    total: Part,
    /// What each node has at most. It is written between the two halves.
    pub(super) parts: Parts,
    /// What servers have in force, of those that respond.
    has: Parts,
    /// What they should have.
    targets: Parts,
}

fn lower_ceiling(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

fn is_above(a: Part, b: Part) -> bool {
    let most = |part: Part| part.max.unwrap_or(u64::MAX);
    a.min > b.min || most(a) > most(b)
}

impl Round {
    /// A round for a total; `parts`: the list as it was written last; `places`: the nodes whose servers respond and have volumes of
    /// the tenant or a part.
    pub(super) fn new(total: Part, parts: Parts, places: &BTreeMap<String, Place>) -> Self {
        let targets = targets(total, &parts, places);
        let has = places.iter().map(|(node, place)| (node.clone(), place.has)).collect();
        Self { total, parts, has, targets }
    }
    /// Nodes of the list that must have less, and what they should have.
    pub(super) fn lower(&mut self) -> Vec<(String, Part)> {
        let mut lower = Vec::new();
        for (node, known) in &mut self.parts {
            let Some((target, has)) = self.targets.get(node).zip(self.has.get(node)) else {
                continue;
            };
            // A node without a ceiling gets its first one like a node that is new.
            let max = known.max.and_then(|known| lower_ceiling(Some(known), target.max));
            let least = Part { min: known.min.min(target.min), max };
            if is_above(*has, least) {
                lower.push((node.clone(), least));
            } else {
                *known = least;
            }
        }
        lower
    }
    /// A node has its new part.
    pub(super) fn done(&mut self, node: &str, part: Part) {
        self.has.insert(node.to_string(), part);
        self.parts.insert(node.to_string(), part);
    }
    /// Enters in the list what nodes will have, as far as the total allows: those that could not be lowered keep theirs.
    pub(super) fn grow(&mut self) {
        let mut min_left =
            self.total.min.saturating_sub(self.parts.values().map(|part| part.min).sum());
        let maxima: u64 = self.parts.values().filter_map(|part| part.max).sum();
        let mut max_left = self.total.max.map(|total| total.saturating_sub(maxima));
        for (node, target) in &self.targets {
            let part = self.parts.entry(node.clone()).or_default();
            let more = target.min.saturating_sub(part.min).min(min_left);
            part.min += more;
            min_left -= more;
            part.max = target.max.zip(max_left).and_then(|(target, left)| {
                let known = part.max.unwrap_or(0);
                let more = target.saturating_sub(known).min(left);
                max_left = Some(left - more);
                // A new node for which nothing is left must wait.
                Some(known + more).filter(|&max| max > 0)
            });
        }
    }
    /// Nodes that get what the list says now.
    pub(super) fn raise(&self) -> Vec<(String, Part)> {
        let differs = |(node, part): (&String, &Part)| {
            self.has.get(node).is_some_and(|applied| applied != part).then(|| (node.clone(), *part))
        };
        self.parts.iter().filter_map(differs).collect()
    }
    /// Removes nodes from the list that have no part any more.
    pub(super) fn finish(&mut self) {
        let has = &self.has;
        let is_over = |node: &String, part: &Part| {
            *part == Part::default() && has.get(node).is_none_or(|had| *had == Part::default())
        };
        self.parts.retain(|node, part| !is_over(node, part));
    }
    /// A node could not get its part: it has what it had.
    pub(super) fn failed(&mut self, node: &str) {
        let has = self.has[node];
        if let Some(part) = self.parts.get_mut(node) {
            part.min = part.min.min(has.min);
            part.max = lower_ceiling(part.max, has.max);
        }
    }
}

/// What each node should have. Servers that do not respond keep their part of the total.
fn targets(total: Part, parts: &Parts, places: &BTreeMap<String, Place>) -> Parts {
    let kept =
        || parts.iter().filter(|(node, _)| !places.contains_key(*node)).map(|(_, part)| part);
    let active: Vec<(&String, Demand)> =
        places.iter().filter_map(|(node, place)| Some((node, place.demand?))).collect();
    let demands: Vec<Demand> = active.iter().map(|(_, demand)| *demand).collect();
    let maxima = total
        .max
        .map(|max| divide(max.saturating_sub(kept().filter_map(|part| part.max).sum()), &demands));
    // A ceiling does not hold back what a minimum promises.
    let waiting = demands.iter().map(|demand| Demand { ceiling: None, ..*demand });
    let waiting: Vec<Demand> = waiting.collect();
    let minima = divide(total.min.saturating_sub(kept().map(|part| part.min).sum()), &waiting);
    let mut targets: Parts = places.keys().map(|node| (node.clone(), Part::default())).collect();
    for (at, (node, _)) in active.into_iter().enumerate() {
        let known = parts.get(node);
        let min = settled(total.min, minima[at], known.map(|part| part.min));
        let max = maxima
            .as_ref()
            .zip(total.max)
            .map(|(maxima, total)| settled(total, maxima[at], known.and_then(|part| part.max)));
        targets.insert(node.clone(), Part { min, max });
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: Part = Part { min: 100, max: Some(1000) };

    struct Cluster {
        random: u64,
        servers: Parts,
        list: Parts,
    }

    impl Cluster {
        fn next(&mut self, below: u64) -> u64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.random >> 33) % below
        }
        /// A round in which calls fail, servers do not respond and the process dies anywhere. Whether it was complete.
        fn round(&mut self, total: Part, trouble: u64) -> bool {
            let mut places = BTreeMap::new();
            for (node, has) in self.servers.clone() {
                let rate = self.next(2) * self.next(500);
                let demand = Demand { rate, waits: rate > 0, ceiling: has.max };
                if self.next(100) >= trouble {
                    places.insert(node, Place { demand: Some(demand), has });
                }
            }
            let mut round = Round::new(total, self.list.clone(), &places);
            for (node, part) in round.lower() {
                if self.next(100) < trouble {
                    continue;
                }
                self.set(&mut round, &node, part);
                self.check(total);
            }
            round.grow();
            if self.next(100) < trouble {
                return false;
            }
            self.list = round.parts.clone();
            for (node, part) in round.raise() {
                match self.next(100) {
                    dies if dies < trouble / 2 => return false,
                    fails if fails < trouble => round.failed(&node),
                    _ => self.set(&mut round, &node, part),
                }
                self.check(total);
            }
            round.finish();
            self.list = round.parts;
            places.len() == self.servers.len()
        }
        fn set(&mut self, round: &mut Round, node: &str, part: Part) {
            let before = self.servers.insert(node.to_string(), part).expect("it is there");
            // Nodes begin without a ceiling, and never lose one.
            assert!(part.max.is_some() || before.max.is_none(), "{node}: {before:?} {part:?}");
            round.done(node, part);
        }
        /// What is in force does not exceed the list, nor the list the total.
        fn check(&self, total: Part) {
            let sum = |parts: &Parts, of: fn(&Part) -> u64| parts.values().map(of).sum::<u64>();
            assert!(sum(&self.list, |part| part.min) <= total.min, "{:?}", self.list);
            assert!(sum(&self.list, |part| part.max.unwrap_or(0)) <= total.max.unwrap_or(u64::MAX));
            assert!(sum(&self.servers, |part| part.min) <= total.min, "{:?}", self.servers);
            let maxima = self.servers.values().filter_map(|part| part.max);
            assert!(maxima.sum::<u64>() <= total.max.unwrap_or(u64::MAX), "{:?}", self.servers);
        }
    }

    fn nodes(count: u64) -> Parts {
        (0..count).map(|at| (format!("node-{at}"), Part::default())).collect()
    }

    /// Goal: the sum of the parts in force never exceeds the total, although calls fail, servers do not respond and the process dies
    /// between any two steps; without trouble, all of the total is in force.
    #[test]
    fn the_sum_is_never_exceeded() {
        for seed in 0..500 {
            let servers = nodes(1 + seed % 7);
            let mut cluster = Cluster { random: seed, servers, list: Parts::new() };
            for _ in 0..30 {
                cluster.round(TOTAL, 30);
                cluster.check(TOTAL);
            }
            // Demand changes from round to round, so one round may not reach all.
            let used =
                |world: &Cluster| world.servers.values().filter_map(|part| part.max).sum::<u64>();
            let best = (0..5).map(|_| {
                assert!(cluster.round(TOTAL, 0));
                used(&cluster)
            });
            let best = best.max().expect("rounds");
            assert!(best > 900, "{best}: {:?}", cluster.servers);
        }
    }

    /// Goal: a deleted tenant leaves nothing on its servers.
    #[test]
    fn a_deleted_tenant_leaves_nothing() {
        let servers =
            (0..3).map(|at| (format!("node-{at}"), Part { min: 0, max: Some(0) })).collect();
        let mut cluster = Cluster { random: 1, servers, list: Parts::new() };
        cluster.round(TOTAL, 0);
        assert!(cluster.list.len() == 3 && cluster.servers["node-0"].min > 0);
        let places = cluster.servers.iter();
        let places =
            places.map(|(node, &has)| (node.clone(), Place { demand: None, has })).collect();
        let mut round = Round::new(Part::default(), cluster.list.clone(), &places);
        for (node, part) in round.lower() {
            round.done(&node, part);
        }
        round.grow();
        for (node, part) in round.raise() {
            round.done(&node, part);
        }
        round.finish();
        assert!(round.has.values().all(|part| *part == Part::default()), "{round:?}");
        assert!(round.parts.is_empty());
    }
}
