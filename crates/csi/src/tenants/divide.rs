//! How a tenant's total is divided among nodes: max-min fairness, that is, each node gets its demand, up to an equal share of
//! what the others leave.

/// 1/8 of a total is divided equally, whatever the demand, so that a node whose demand begins is served at once.
const EQUAL: u64 = 8;
/// Changes of less than 1/32 of the total are not made.
const LEAST_CHANGE: u64 = 32;

/// What the volumes of one node ask for and have, in bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Demand {
    /// What they got.
    pub(super) rate: u64,
    /// Whether they had more requests.
    pub(super) waits: bool,
    /// Their present ceiling, if there is one.
    pub(super) ceiling: Option<u64>,
}

impl Demand {
    /// What they would use of a total: a quarter more than they got, or all if something held them.
    fn wanted(self, total: u64) -> u64 {
        let is_held = self.waits && self.ceiling.is_none_or(|most| self.rate >= most / 10 * 9);
        if is_held { total } else { self.rate.saturating_add(self.rate / 4).min(total) }
    }
}

/// Divides a total. The parts add up to the total at most.
pub(super) fn divide(total: u64, demands: &[Demand]) -> Vec<u64> {
    let count = demands.len() as u64;
    let least = total / EQUAL / count.max(1);
    let wanted: Vec<u64> = demands.iter().map(|demand| demand.wanted(total).max(least)).collect();
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|&node| wanted[node]);
    let mut parts = vec![0; demands.len()];
    let mut left = total;
    for (place, node) in order.into_iter().enumerate() {
        let share = left / (count - place as u64);
        parts[node] = wanted[node].min(share);
        left -= parts[node];
    }
    // The rest is divided equally, so that a node whose demand grows has room at once.
    parts.iter_mut().for_each(|part| *part += left / count);
    parts
}

/// What a node should get now: its part, or what it has, if the difference is too small for a change.
pub(super) fn settled(total: u64, part: u64, has: Option<u64>) -> u64 {
    has.filter(|before| before.abs_diff(part) <= total / LEAST_CHANGE).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rates: &[u64]) -> Vec<Demand> {
        rates.iter().map(|&rate| Demand { rate, ..Demand::default() }).collect()
    }

    /// Goal: parts follow demand, never exceed the total, and nobody is left without one.
    #[test]
    fn parts_follow_demand() {
        assert_eq!(divide(800, &rates(&[0, 0])), [400, 400]);
        assert_eq!(divide(800, &rates(&[160, 600])), [200, 600]);
        assert_eq!(divide(800, &rates(&[900, 800])), [400, 400]);
        assert_eq!(divide(800, &[]), Vec::<u64>::new());
        let mut seed = 1_u64;
        for _ in 0..10_000 {
            let mut next = |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 16) % below
            };
            let (total, count) = (next(1 << 40), 1 + next(40));
            let mut demand = || {
                let rate = next(1 << 40) >> next(40);
                let ceiling = (next(2) == 0).then_some(rate);
                Demand { rate, waits: next(2) == 0, ceiling }
            };
            let demands: Vec<Demand> = (0..count).map(|_| demand()).collect();
            let parts = divide(total, &demands);
            assert!(parts.iter().sum::<u64>() <= total, "{total} {demands:?}");
            let least = total / EQUAL / count;
            assert!(parts.iter().all(|&part| part >= least), "{total} {demands:?}");
        }
    }

    /// Goal: a node that its ceiling holds gets what idle ones leave, and two such nodes get the same, however they began.
    #[test]
    fn held_nodes_grow() {
        let held = |ceiling| Demand { rate: ceiling, waits: true, ceiling: Some(ceiling) };
        assert_eq!(divide(800, &[held(400), Demand::default()]), [750, 50]);
        assert_eq!(divide(800, &[held(750), held(50)]), [400, 400]);
        assert_eq!(divide(900, &[held(300), held(300), rates(&[80])[0]]), [400, 400, 100]);
    }

    /// Goal: small differences change nothing.
    #[test]
    fn small_differences_are_left() {
        assert_eq!(settled(3200, 1000, Some(1100)), 1100);
        assert_eq!(settled(3200, 1000, Some(1101)), 1000);
        assert_eq!(settled(3200, 1000, None), 1000);
    }
}
