//! The memory for payloads that requests of all endpoints share.
//!
//! Each endpoint may always hold [`OWN`] bytes of payload. Anything beyond comes from a budget that is divided over
//! the groups ([`Quota`]): each group has a small guarantee and shares the rest by weight, so a group whose clients
//! do not read their replies leaves room for the others. An endpoint that finds no room waits; while one waits,
//! clients of its group that hold much and make no progress are disconnected (see `Connection::periodic_check`).
//!
//! Clients that have not chosen a volume use none of it: constants limit what one of them may hold, and the contracts
//! limit their number.

use iofair_core::group::Groups;
use iofair_core::id::GroupId;
use iofair_core::quota::{Limits, Quota};

/// The group that processor time and memory are charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Account(pub(crate) u32);

impl Account {
    /// Clients that have not chosen a volume.
    pub(crate) const HANDSHAKE: Self = Self(0);
    /// The clients of volumes directly in a group.
    pub(crate) fn in_group(group: GroupId) -> Self {
        Self(2 * group.index() as u32 + 2)
    }
    /// The group; `None` for clients that have not chosen a volume, and if the group was removed.
    pub(crate) fn group(self, groups: &Groups) -> Option<GroupId> {
        if self == Self::HANDSHAKE { None } else { groups.group_id(self.0 as usize / 2 - 1) }
    }
}

/// Payload that every endpoint may hold, whatever others do: 32 reads of 4 KiB. As much is guaranteed to each group
/// beyond it.
pub(crate) const OWN: usize = 128 << 10;

/// What one endpoint took out of the budget.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Share {
    group: Option<GroupId>,
    bytes: u64,
}

impl Share {
    /// Bytes beyond its own.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What is shared, and who holds how much of it.
#[derive(Debug)]
pub(crate) struct Budget {
    quota: Quota,
    /// By group: the round of checks in which it had to wait last.
    waited: Vec<u64>,
    /// The round in which a group that holds nothing had to wait last: the pool itself is used up.
    exhausted: u64,
    round: u64,
    /// Something came back since the last call of [`Self::take_released`].
    released: bool,
}

fn limits(bytes: u64) -> Limits {
    Limits { guaranteed: OWN as u64, shared: bytes }
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        let quota = Quota::new(limits(bytes));
        Self { quota, waited: Vec::new(), exhausted: 0, round: 2, released: false }
    }
    /// Another size from now on.
    pub(crate) fn resize(&mut self, bytes: u64) {
        if self.quota.limits() != limits(bytes) {
            self.quota.resize(limits(bytes));
            self.released = true;
        }
    }
    /// Whether an endpoint that holds `held` bytes may hold `more`.
    pub(crate) fn allows(
        &mut self,
        groups: &Groups,
        account: Account,
        held: usize,
        more: usize,
    ) -> bool {
        let wanted = beyond(held + more) - beyond(held);
        let Some(group) = account.group(groups).filter(|_| wanted > 0) else { return true };
        let allowed = self.quota.has_room(groups, group, wanted);
        if !allowed {
            if self.waited.len() <= group.index() {
                self.waited.resize(group.index() + 1, 0);
            }
            self.waited[group.index()] = self.round;
            if self.quota.shared(group) == 0 {
                self.exhausted = self.round;
            }
        }
        allowed
    }
    /// An endpoint holds this many bytes now. What does not fit, because it grew without asking, is taken with the
    /// next call that finds room.
    pub(crate) fn charge(
        &mut self,
        groups: &Groups,
        account: Account,
        share: &mut Share,
        holds: usize,
    ) {
        let (group, bytes) = (account.group(groups), beyond(holds));
        if let Some(old) = share.group
            && (share.group != group || bytes < share.bytes)
        {
            let kept = if share.group == group { bytes } else { 0 };
            self.quota.give(old, share.bytes - kept);
            self.released = true;
            *share = Share { group: share.group.filter(|_| kept > 0), bytes: kept };
        }
        if let Some(group) = group
            && bytes > share.bytes
            && self.quota.try_take(groups, group, bytes - share.bytes)
        {
            *share = Share { group: Some(group), bytes };
        }
    }
    /// Bytes that a group's endpoints hold of what is shared.
    pub(crate) fn held(&self, group: GroupId) -> u64 {
        self.quota.held(group)
    }
    /// Whether anything came back since the last call.
    pub(crate) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }
    /// Another round of checks begins.
    pub(crate) fn next_round(&mut self) {
        self.round += 1;
    }
    /// Whether an endpoint of this group has had to wait since the round before this one, or anybody because nothing is left.
    pub(crate) fn is_short(&self, groups: &Groups, account: Account) -> bool {
        let waited = account.group(groups).and_then(|group| self.waited.get(group.index()));
        waited.copied().unwrap_or(0).max(self.exhausted) + 1 >= self.round
    }
}

fn beyond(held: usize) -> u64 {
    held.saturating_sub(OWN) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use iofair_core::contract::Contract;
    use iofair_core::controller::Controller;

    /// Two groups, and whom their endpoints are charged to.
    fn scene() -> (Controller, [Account; 2]) {
        let names = ["a", "b"];
        let controller = testing::controller(names.map(|name| (name, Contract::default())));
        let accounts = names
            .map(|name| Account::in_group(controller.groups().find(name).expect("just added")));
        (controller, accounts)
    }

    /// Goal: one group's clients cannot take the memory of another's, and what they held comes back. Method: a
    /// client of one group takes all it can, then one of the other asks.
    #[test]
    fn a_budget_is_shared() {
        const LARGE: usize = 1 << 20;
        let (controller, [a, b]) = scene();
        let groups = controller.groups();
        let mut budget = Budget::new(4 * LARGE as u64);
        let (mut greedy, mut holds) = (Share::default(), 0);
        while budget.allows(groups, a, holds, LARGE) {
            holds += LARGE;
            budget.charge(groups, a, &mut greedy, holds);
        }
        assert!((2 * LARGE..=3 * LARGE).contains(&holds), "{holds}");
        assert!(budget.is_short(groups, a) && !budget.is_short(groups, b));
        assert!(budget.allows(groups, a, 0, OWN), "its own share is there in any case");
        assert!(budget.allows(groups, b, 0, LARGE), "there is room for others");
        for _ in 0..2 {
            assert!(budget.is_short(groups, a));
            budget.next_round();
        }
        assert!(!budget.is_short(groups, a) && !budget.take_released());
        budget.charge(groups, a, &mut greedy, OWN);
        assert!(budget.take_released() && !budget.take_released());
        assert!(budget.allows(groups, a, OWN, LARGE));
    }

    /// Goal: a share follows its endpoint to another group, and nothing is lost or doubled. Method: charges under
    /// both groups, then none; all of the pool is there again.
    #[test]
    fn a_share_moves_with_its_endpoint() {
        const LARGE: usize = 1 << 20;
        let (controller, [a, b]) = scene();
        let groups = controller.groups();
        let mut budget = Budget::new(2 * LARGE as u64);
        let mut share = Share::default();
        for account in [a, b, a, Account::HANDSHAKE, b] {
            budget.charge(groups, account, &mut share, LARGE);
            assert_eq!(share.bytes() > 0, account != Account::HANDSHAKE);
        }
        assert_eq!(budget.quota.held_by_all(), (LARGE - OWN) as u64);
        budget.charge(groups, b, &mut share, 0);
        assert_eq!((budget.quota.held_by_all(), share.bytes()), (0, 0));
        // More than there is: not taken, not forgotten.
        budget.charge(groups, a, &mut share, 8 * LARGE);
        assert_eq!(share.bytes(), 0);
        budget.charge(groups, a, &mut share, LARGE);
        assert_eq!(share.bytes(), (LARGE - OWN) as u64);
    }
}
