//! The memory that requests of all connections share.
//!
//! Each connection may hold [`OWN`] bytes of payload in any case; what is beyond comes out of a budget.
//! When that is used up, connections wait, and those that hold much of it and do not move are cut off
//! (see `Connection::periodic_check`).

/// Payload that every connection may hold, whatever others do: 32 reads of 4 KiB.
pub(super) const OWN: usize = 128 << 10;

/// What is shared, and what is used of it.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: usize,
    used: usize,
    /// Somebody had to wait since the last look.
    short: bool,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { bytes, used: 0, short: false }
    }
    /// Another size from now on.
    pub(super) fn resize(&mut self, bytes: u64) {
        self.bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    /// May a connection that holds `held` hold `more`?
    pub(super) fn allows(&mut self, held: usize, more: usize) -> bool {
        let wanted = beyond(held + more) - beyond(held);
        let allowed = wanted == 0 || self.used + wanted <= self.bytes;
        self.short |= !allowed;
        allowed
    }
    /// A connection that held `before` holds `now`.
    pub(super) fn charge(&mut self, before: usize, now: usize) {
        self.used = self.used - beyond(before) + beyond(now);
    }
    /// Had somebody to wait since the last call?
    pub(super) fn take_short(&mut self) -> bool {
        std::mem::take(&mut self.short)
    }
}

fn beyond(held: usize) -> usize {
    held.saturating_sub(OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what one connection holds beyond its own share is nobody else's, and comes back. Method: three
    /// connections and a budget for one large request.
    #[test]
    fn a_budget_is_shared() {
        const LARGE: usize = 1 << 20;
        let mut budget = Budget::new(LARGE as u64);
        assert!(budget.allows(0, LARGE));
        budget.charge(0, LARGE);
        assert!(!budget.allows(0, LARGE) && budget.take_short() && !budget.take_short());
        assert!(budget.allows(0, OWN), "its own share is there in any case");
        budget.charge(0, OWN);
        assert!(!budget.allows(OWN, OWN + 1));
        budget.charge(LARGE, 0);
        assert!(budget.allows(OWN, LARGE));
        budget.resize(0);
        assert!(!budget.allows(OWN, 1));
    }
}
