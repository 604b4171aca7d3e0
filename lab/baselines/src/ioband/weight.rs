//! Tokens and epochs: shares in proportion to weights, counted in requests or in sectors.
//!
//! Every blocked group without tokens is refilled when a new epoch begins. Most of them at once would be
//! a walk over all groups, and a group deep in debt needs many epochs. So epochs are added up in one
//! number, [`Weight::given`]: what a group was given per token of its own since it ran dry. A dry group
//! lies in the order at the value at which it will have something.

use alloc::vec::Vec;

use super::order::{Blocked, Order};
use iofair_core::group::Groups;
use iofair_core::id::GroupId;

/// The priority of a group that has all tokens of an epoch.
const PRIORITY_BASE: i64 = 100;
/// Number of requests of one page after which a group lets others have a turn.
const BATCH: i64 = 20;
/// A dominant group with more than this part of its tokens left delays the new epoch.
const PROCEED: i64 = 8;
/// A group is active once it has used this part of its tokens, or of all tokens.
const ACTIVE: [i64; 2] = [8, 16];
/// Number of blocked requests at which a group's submitters sleep: its share divided by this.
const OVERCOMMIT: i64 = 4;
/// Tokens of all groups that may be carried over, in requests of one page.
const POOL: i64 = 2048;
/// Children's weights are percentages of this.
const PERCENT: i64 = 100;

/// One epoch's worth in [`Weight::given`].
const EPOCH: u128 = 1 << 64;

/// The policy's parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Tokens of all groups in an epoch; 0: derived from `io_limit`.
    pub(super) token: i64,
    /// Epochs whose tokens may be carried over; 0: derived from the tokens.
    pub(super) carryover: i64,
    /// Limit of requests in flight of a class.
    pub(super) io_limit: i64,
    /// Number of requests in flight at which the layer waits for a dominant group.
    pub(super) io_throttle: i64,
    /// Tokens of a page: 1 shifted by this.
    pub(super) unit: u32,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    weight: i64,
    /// Negative: a debt.
    token: i64,
    /// Tokens of an epoch, without those of children.
    initial: i64,
    /// Tokens of an epoch, and part of `io_limit`, including those of children.
    whole: [i64; 2],
    /// Number of blocked requests of a class at which submitters sleep.
    limit: i64,
    /// Tokens used since the last refill.
    consumed: i64,
    my_epoch: u64,
    /// [`Weight::given`] at the last update of the group's tokens.
    settled: u128,
}

const NOBODY: Share = Share {
    weight: 0,
    token: 1,
    initial: 1,
    whole: [1; 2],
    limit: 1,
    consumed: 0,
    my_epoch: 0,
    settled: 0,
};

/// All groups' tokens.
pub(super) struct Weight {
    settings: Settings,
    bucket: i64,
    carryover: i64,
    shares: Vec<Share>,
    order: Order,
    epoch: u64,
    given: u128,
    /// Tokens of this epoch that no group has taken yet.
    left: i64,
    /// Those of the previous epoch.
    extra: i64,
    /// Tokens per epoch of all groups without tokens.
    dry: i64,
    current: Option<usize>,
    yield_mark: i64,
    dominant: Option<usize>,
    /// Whether weights changed, so that shares must be computed again.
    stale: bool,
    walk: Vec<GroupId>,
}

impl Weight {
    pub(super) fn new(settings: Settings) -> Self {
        let Settings { token, carryover, io_limit, unit, .. } = settings;
        let bucket = if token > 0 { token } else { (io_limit * 4) << unit };
        let carryover = if carryover > 0 { carryover } else { ((POOL << unit) / bucket).max(1) };
        Self {
            settings,
            bucket,
            carryover,
            shares: Vec::new(),
            order: Order::new(),
            epoch: 0,
            given: 0,
            left: bucket,
            extra: 0,
            dry: 0,
            current: None,
            yield_mark: 0,
            dominant: None,
            stale: false,
            walk: Vec::new(),
        }
    }
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }
    /// Number of blocked requests of a class at which a group's submitters sleep.
    pub(super) fn limit(&self, group: usize) -> i64 {
        self.shares[group].limit
    }
    /// The next group to release.
    pub(super) fn best(&self, room: [bool; 2]) -> Option<usize> {
        self.order.best(room)
    }

    /// Whether a group may send. Refills it if a new epoch has begun since it used its tokens.
    pub(super) fn may_submit(&mut self, group: usize) -> bool {
        self.settle(group);
        self.refill(group);
        self.shares[group].token > 0
    }
    fn refill(&mut self, group: usize) {
        let share = &mut self.shares[group];
        let epochs = (self.epoch - share.my_epoch).min(self.carryover as u64) as i64;
        if share.token > 0 || epochs == 0 {
            return;
        }
        share.my_epoch = self.epoch;
        share.consumed = 0;
        let own = share.initial * epochs;
        let delta = own + self.extra * share.initial / (self.bucket - self.extra / 2);
        share.token += delta;
        self.left -= own;
        if self.current == Some(group) {
            self.yield_mark += delta;
        }
    }
    /// Gives a group without tokens what it got since its last update.
    fn settle(&mut self, group: usize) {
        if !self.order.is_dry(group) || self.shares[group].settled == self.given {
            return;
        }
        let share = &mut self.shares[group];
        let delta = ((share.initial as u128 * (self.given - share.settled)) >> 64) as i64;
        share.token += delta;
        share.consumed = 0;
        share.my_epoch = self.epoch;
        share.settled = self.given;
        if self.current == Some(group) {
            self.yield_mark += delta;
        }
    }
    /// Its tokens including those of a refill that is due.
    fn effective(&mut self, group: usize) -> i64 {
        self.settle(group);
        let share = &self.shares[group];
        let epochs = (self.epoch - share.my_epoch).min(self.carryover as u64) as i64;
        share.token + share.initial * epochs
    }
    fn priority(&mut self, group: usize) -> i64 {
        self.effective(group).saturating_mul(PRIORITY_BASE) / self.shares[group].initial + 1
    }

    /// Takes the tokens of a request from its group, into debt if necessary. Returns whether others should have a
    /// turn now.
    pub(super) fn charge(&mut self, group: usize, tokens: i64, urgent: bool) -> bool {
        let effective = self.effective(group);
        let share = &self.shares[group];
        let [own, all] = ACTIVE;
        let active = share.consumed * own >= share.initial || share.consumed * all >= self.bucket;
        if active && self.dominant.is_none_or(|dominant| effective > self.effective(dominant)) {
            self.dominant = Some(group);
        }
        let share = &mut self.shares[group];
        let runs_out = share.token > 0 && share.token <= tokens && share.my_epoch == self.epoch;
        if runs_out && self.dominant == Some(group) {
            self.dominant = None;
        }
        if self.current != Some(group) {
            self.current = Some(group);
            self.yield_mark = share.token - (BATCH << self.settings.unit);
        }
        share.token -= tokens;
        share.consumed += tokens;
        if share.token <= self.yield_mark && !urgent {
            self.current = None;
            return true;
        }
        false
    }

    /// Updates a group after a change of its blocked requests or its tokens.
    pub(super) fn place(&mut self, group: usize, blocked: Blocked) {
        self.settle(group);
        if let Some((_, true)) = self.order.leave(group) {
            self.dry -= self.shares[group].initial;
        }
        if blocked == Blocked::Nothing {
            return;
        }
        self.refill(group);
        if self.shares[group].token > 0 {
            let key = u128::MAX - self.priority(group).max(0) as u128;
            self.order.enter(group, blocked, key);
            return;
        }
        let share = &mut self.shares[group];
        share.settled = self.given;
        let missing = ((1 - share.token) as u128) << 64;
        let due = self.given + missing.div_ceil(share.initial as u128);
        self.dry += share.initial;
        self.order.enter_dry(group, blocked, due);
    }

    /// Begins a new epoch, because no group with blocked requests has tokens, and more epochs if one is not enough
    /// for any group. Returns false if the dominant group still has many tokens and the drive has enough to do
    /// without.
    pub(super) fn restart(&mut self, issued: i64) -> bool {
        if let Some(dominant) = self.dominant {
            let many = self.priority(dominant).saturating_mul(PROCEED) > PRIORITY_BASE;
            if many && issued >= self.settings.io_throttle {
                return false;
            }
        }
        self.dominant = None;
        self.pass_epochs(1);
        if let Some((_, due)) = self.order.first_dry()
            && due > self.given
        {
            let epochs = (due - self.given).div_ceil(self.worth(self.left));
            self.pass_epochs(epochs as u64);
        }
        while let Some((group, due)) = self.order.first_dry() {
            if due > self.given {
                break;
            }
            let blocked = self.order.blocked(group).expect("it is in the order");
            self.place(group, blocked);
        }
        true
    }
    /// Advances by several epochs with the same number of unused tokens in each.
    fn pass_epochs(&mut self, epochs: u64) {
        self.epoch += epochs;
        self.given += u128::from(epochs) * self.worth(self.left);
        self.extra = self.left.max(0);
        self.left = self.bucket - self.dry;
    }
    /// Tokens per token of a group that an epoch gives, if this many were left over from the previous one.
    fn worth(&self, left: i64) -> u128 {
        let extra = left.max(0);
        // Rounded up, so that a product with a group's tokens, rounded down, is exact.
        EPOCH + ((extra as u128) << 64).div_ceil((self.bucket - extra / 2) as u128)
    }
}

/// Handling of new, removed and changed groups.
impl Weight {
    pub(super) fn add(&mut self, group: usize, weight: u32) {
        if self.shares.len() <= group {
            self.shares.resize(group + 1, NOBODY);
            self.order.grow(group + 1);
        }
        let weight = i64::from(weight);
        self.shares[group] = Share { weight, my_epoch: self.epoch, ..NOBODY };
        self.stale = true;
    }
    pub(super) fn update(&mut self, group: usize, weight: u32) {
        self.stale |= self.shares[group].weight != i64::from(weight);
        self.shares[group].weight = i64::from(weight);
    }
    pub(super) fn remove(&mut self, group: usize) {
        self.shares[group] = NOBODY;
        if self.current == Some(group) {
            self.current = None;
        }
        self.dominant = None;
        self.stale = true;
    }
    /// Computes all tokens again after weights have changed; all groups start with a full set.
    pub(super) fn refresh(&mut self, groups: &Groups) {
        if !core::mem::take(&mut self.stale) {
            return;
        }
        (0..self.shares.len()).for_each(|group| self.settle(group));
        let mut walk = core::mem::take(&mut self.walk);
        let root = groups.group(GroupId::ROOT);
        // The root group is the device's default group: a sibling of the groups below it.
        let weights = root.children.iter().map(|id| self.shares[id.index()].weight);
        let total = weights.sum::<i64>() + self.shares[GroupId::ROOT.index()].weight;
        let all = [self.bucket, self.settings.io_limit];
        self.give(GroupId::ROOT.index(), total, all);
        for child in &root.children {
            self.give(child.index(), total, all);
            walk.push(*child);
        }
        while let Some(id) = walk.pop() {
            let parent = groups.group(id);
            let weights = parent.children.iter().map(|id| self.shares[id.index()].weight);
            let total = weights.sum::<i64>().max(PERCENT);
            for child in &parent.children {
                let [tokens, limit] =
                    self.give(child.index(), total, self.shares[id.index()].whole);
                let above = &mut self.shares[id.index()];
                above.initial = (above.initial - tokens).max(1);
                above.limit = (above.limit - limit / OVERCOMMIT).max(1);
                walk.push(*child);
            }
        }
        self.walk = walk;
        for group in 0..self.shares.len() {
            if let Some((blocked, _)) = self.order.leave(group) {
                self.order.enter(group, blocked, 0);
            }
        }
        self.dry = 0;
        for group in 0..self.shares.len() {
            if let Some(blocked) = self.order.blocked(group) {
                self.place(group, blocked);
            }
        }
    }
    fn give(&mut self, group: usize, total: i64, of: [i64; 2]) -> [i64; 2] {
        let share = &mut self.shares[group];
        share.whole = of.map(|of| (of * share.weight / total.max(1)).max(1));
        (share.token, share.initial) = (share.whole[0], share.whole[0]);
        share.limit = (share.whole[1] / OVERCOMMIT).max(1);
        share.whole
    }
}
