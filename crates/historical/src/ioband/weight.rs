//! Tokens and epochs: shares in proportion to weights, counted in requests or in sectors.
//!
//! Every blocked group without tokens is refilled when a new epoch begins. Most of them at once would be
//! a walk over all groups, and a group deep in debt needs many epochs. So epochs are added up in one
//! number, [`Weight::given`]: what a group was given per token of its own since it ran dry. A dry group
//! lies in the order at the value at which it will have something.

use alloc::vec::Vec;

use super::order::{Order, Standing};
use iofair_core::group::{GroupId, Groups};

/// A group with this many percent of an epoch's tokens, plus one, has priority so much.
const PRIORITY_BASE: i64 = 100;
/// Requests of a page's size after which a group lets others have a turn.
const BATCH: i64 = 20;
/// A dominant group with more than one part in so many of its tokens left puts the new epoch off.
const PROCEED: i64 = 8;
/// A group is active once it used one part in so many of its tokens, or of all tokens.
const ACTIVE: [i64; 2] = [8, 16];
/// Requests of a group that may be blocked before its submitters sleep: its share over so many.
const OVERCOMMIT: i64 = 4;
/// Tokens of all groups that may be carried over, in requests of a page's size.
const POOL: i64 = 2048;
/// What children's weights are percents of.
const PERCENT: i64 = 100;

/// One epoch's worth in [`Weight::given`].
const EPOCH: u128 = 1 << 64;

/// What the policy is set to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Tokens of all groups in an epoch; 0: from `io_limit`.
    pub(super) token: i64,
    /// Epochs whose tokens may be carried over; 0: from the tokens.
    pub(super) carryover: i64,
    /// Requests below, of a class.
    pub(super) io_limit: i64,
    /// Requests below at which an important group is waited for.
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
    /// Tokens of an epoch, and part of `io_limit`, with those of children.
    whole: [i64; 2],
    /// Blocked requests of a class at which submitters sleep.
    limit: i64,
    /// Used since the last refill.
    consumed: i64,
    my_epoch: u64,
    /// [`Weight::given`] when the group's tokens were last brought up to date.
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
    /// Tokens of this epoch that nobody asked for yet.
    left: i64,
    /// Those of the epoch before.
    extra: i64,
    /// Tokens of an epoch of all dry groups.
    dry: i64,
    current: Option<usize>,
    yield_mark: i64,
    dominant: Option<usize>,
    /// Weights changed: shares must be found anew.
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
    /// Blocked requests of a class at which a group's submitters sleep.
    pub(super) fn limit(&self, group: usize) -> i64 {
        self.shares[group].limit
    }
    /// The next group to release.
    pub(super) fn best(&self, room: [bool; 2]) -> Option<usize> {
        self.order.best(room)
    }

    /// May a group send? Refills it if a new epoch came since it ran out.
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
    /// Gives a dry group what it got since it was last looked at.
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
    /// Tokens with those that a refill would bring.
    fn effective(&mut self, group: usize) -> i64 {
        self.settle(group);
        let share = &self.shares[group];
        let epochs = (self.epoch - share.my_epoch).min(self.carryover as u64) as i64;
        share.token + share.initial * epochs
    }
    fn priority(&mut self, group: usize) -> i64 {
        self.effective(group).saturating_mul(PRIORITY_BASE) / self.shares[group].initial + 1
    }

    /// A group sends: takes its tokens, into debt if need be. `true`: others should have a turn now.
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

    /// Something changed for a group: what it has waiting, or its tokens.
    pub(super) fn place(&mut self, group: usize, standing: Standing) {
        self.settle(group);
        if let Some((_, true)) = self.order.leave(group) {
            self.dry -= self.shares[group].initial;
        }
        if standing == Standing::Nothing {
            return;
        }
        self.refill(group);
        if self.shares[group].token > 0 {
            let key = u128::MAX - self.priority(group).max(0) as u128;
            self.order.enter(group, standing, key);
            return;
        }
        let share = &mut self.shares[group];
        share.settled = self.given;
        let missing = ((1 - share.token) as u128) << 64;
        let due = self.given + missing.div_ceil(share.initial as u128);
        self.dry += share.initial;
        self.order.enter_dry(group, standing, due);
    }

    /// Nobody who waits has tokens: begins a new epoch, and more if one is not enough for anybody.
    /// `false`: the dominant group still has many, and the drive has enough to do without.
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
            let standing = self.order.standing(group).expect("it is in the order");
            self.place(group, standing);
        }
        true
    }
    /// So many epochs, with the same number of tokens unused in each.
    fn pass_epochs(&mut self, epochs: u64) {
        self.epoch += epochs;
        self.given += u128::from(epochs) * self.worth(self.left);
        self.extra = self.left.max(0);
        self.left = self.bucket - self.dry;
    }
    /// What an epoch gives per token of a group, with so many left over from the one before.
    fn worth(&self, left: i64) -> u128 {
        let extra = left.max(0);
        // Rounded up, so that a product with a group's tokens, rounded down, is exact.
        EPOCH + ((extra as u128) << 64).div_ceil((self.bucket - extra / 2) as u128)
    }
}

/// Groups come, go and change.
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
    /// Finds everybody's tokens anew after weights have changed; all begin with a full set.
    pub(super) fn refresh(&mut self, groups: &Groups) {
        if !core::mem::take(&mut self.stale) {
            return;
        }
        (0..self.shares.len()).for_each(|group| self.settle(group));
        let mut walk = core::mem::take(&mut self.walk);
        let root = groups.group(GroupId::ROOT);
        // The root group is the device's default group: a sibling of those below it.
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
            if let Some((standing, _)) = self.order.leave(group) {
                self.order.enter(group, standing, 0);
            }
        }
        self.dry = 0;
        for group in 0..self.shares.len() {
            if let Some(standing) = self.order.standing(group) {
                self.place(group, standing);
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
