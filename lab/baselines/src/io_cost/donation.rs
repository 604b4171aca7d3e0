//! Donations: groups that use less than their share lend the rest to groups that need more.
//!
//! Only the weights of the donors and of the groups above them change, and all others gain in
//! proportion to their own shares (Heo et al., "IOCost: Block IO Control for Containers in
//! Datacenters", ASPLOS 2022, section 3.6). With, of a node, b the share by weights, d the share of the
//! donors below and d' the same after donating, w weight, s the sum of the weights below, p the parent:
//!
//! ```text
//! what all others gain by      g  = (1 - d'_root) / (1 - d_root)
//! share after                  b' = g * (b - d) + d'
//! first level                  s' = s * (1 - d_root) / (1 - d'_root)
//! weight after                 w' = s'_p * b' / b'_p
//! weights below, adjusted      s' = s * (1 - d / b) + s * (d / b) * (w' * d' / b') / (w * d / b)
//! ```
//!
//! A donor is a leaf, with d = b and b' = d'.

use crate::parts::shares::{Inner, NIL, WHOLE, Weights};

/// A leaf that gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Donor {
    pub(super) leaf: u32,
    /// Its share by weights.
    pub(super) share: u64,
    /// The share that it keeps.
    pub(super) after: u64,
    /// The weight that makes it so.
    pub(super) inuse: u64,
}

impl Weights {
    /// Computes the weights that donors must have for their shares to become what they keep. At least one active
    /// group must not donate.
    pub(super) fn solve(&mut self, donors: &mut [Donor]) {
        scale_down(donors);
        self.find_inner(donors);
        let walk = core::mem::take(&mut self.walk);
        self.add_up(donors, &walk);
        let root = walk[0] as usize;
        let Inner { donating, after, .. } = self.inner[root];
        let left = WHOLE - donating.min(WHOLE - 1);
        let gain = ((WHOLE - after) * WHOLE).div_ceil(left);
        let sum = self.node(walk[0]).active_sum * (WHOLE - donating);
        self.inner[root].adjusted = sum.div_ceil(WHOLE - after);
        for node in &walk[1..] {
            self.adjust(*node, gain);
        }
        for donor in donors {
            donor.inuse = self.weight_after(donor.leaf, donor.after);
        }
        for node in &walk {
            self.inner[*node as usize].walked = false;
        }
        self.walk = walk;
    }
    /// Lists the nodes above donors, each after the one above it.
    fn find_inner(&mut self, donors: &[Donor]) {
        self.walk.clear();
        for donor in donors {
            let first = self.walk.len();
            let mut at = self.node(donor.leaf).parent;
            while at != NIL && !self.inner[at as usize].walked {
                let share = WHOLE;
                self.inner[at as usize] =
                    Inner { walked: true, share, inuse: WHOLE, ..Inner::default() };
                self.walk.push(at);
                at = self.node(at).parent;
            }
            self.walk[first..].reverse();
        }
    }
    fn add_up(&mut self, donors: &[Donor], walk: &[u32]) {
        for donor in donors {
            let parent = self.node(donor.leaf).parent;
            self.add_to(parent, donor.share, donor.after);
        }
        for node in walk[1..].iter().rev() {
            let Inner { donating, after, .. } = self.inner[*node as usize];
            self.add_to(self.node(*node).parent, donating, after);
        }
        for node in walk {
            let n = *self.node(*node);
            let share = match n.parent {
                NIL => WHOLE,
                parent => {
                    let above = self.node(parent);
                    (self.inner[parent as usize].share * n.active).div_ceil(above.active_sum)
                }
            };
            // Shares are coarse and rounded up on the way.
            let inner = &mut self.inner[*node as usize];
            inner.share = share;
            inner.donating = inner.donating.min(share);
            inner.after = inner.after.min(inner.donating.saturating_sub(1));
        }
    }
    fn add_to(&mut self, parent: u32, donating: u64, after: u64) {
        let inner = &mut self.inner[parent as usize];
        inner.donating += donating;
        inner.after += after;
    }
    fn adjust(&mut self, node: u32, gain: u64) {
        let n = *self.node(node);
        let Inner { share, donating, after, .. } = self.inner[node as usize];
        let inuse = ((gain * (share - donating)).div_ceil(WHOLE) + after).max(1);
        let weight = self.weight_after(node, inuse);
        // Below: the part that donates, and its weights before and after.
        let giving = (n.active_sum * donating).div_ceil(share);
        let before = (n.active * donating).div_ceil(share).max(1);
        let kept = (weight * after).div_ceil(inuse);
        let inner = &mut self.inner[node as usize];
        inner.inuse = inuse;
        inner.adjusted = n.active_sum - giving + (giving * kept).div_ceil(before);
    }
    fn weight_after(&self, node: u32, share: u64) -> u64 {
        let above = &self.inner[self.node(node).parent as usize];
        (above.adjusted * share).div_ceil(above.inuse)
    }
}

/// Shares are rounded up, so what donors keep may add up to everything. Donors that keep more than their share by
/// weights then keep less.
fn scale_down(donors: &mut [Donor]) {
    let sum: u64 = donors.iter().map(|donor| donor.after).sum();
    if sum < WHOLE {
        return;
    }
    let over = |donor: &&mut Donor| donor.after > donor.share;
    let kept: u64 = donors.iter_mut().filter(over).map(|donor| donor.after).sum();
    let target = kept.saturating_sub(sum - (WHOLE - 1));
    for donor in donors.iter_mut().filter(over) {
        donor.after = (donor.after * target / kept).max(1);
    }
}
