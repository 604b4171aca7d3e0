//! The clients of a queue, and the merging of two queues.
//!
//! CFQ and BFQ merge queues of processes that work close together. CFQ plans a merge when one queue would give way to
//! the other; the queue with fewer processes joins the other one. Each process moves when it sends its next request.
//! Requests that are in its old queue by then stay there.

use super::slots::{SlotId, Slots};
use iofair_core::id::ClientId;

/// The clients of a queue, and the queue with which it will be merged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sharing {
    /// Its client, unless it is shared.
    pub client: Option<ClientId>,
    /// Number of clients whose requests enter it.
    pub owners: u32,
    /// The queue to which its clients' next requests go.
    pub merge_into: Option<SlotId>,
    /// Number of queues that will be merged into it.
    pub merging: u32,
    /// Whether two or more clients have used it since it was last split.
    pub shared: bool,
}

impl Sharing {
    /// A queue of one client, or of none in particular.
    pub const fn new(client: Option<ClientId>) -> Self {
        let owners = client.is_some() as u32;
        Self { client, owners, merge_into: None, merging: 0, shared: false }
    }
    /// Whether no client uses it, now or later.
    pub const fn is_abandoned(&self) -> bool {
        self.owners == 0 && self.merging == 0
    }
    /// Removes a client.
    pub fn leave(&mut self, client: ClientId) {
        self.owners -= 1;
        if self.client == Some(client) {
            self.client = None;
        }
    }
    /// Adds a client.
    pub fn join(&mut self) {
        (self.shared, self.client) = (true, None);
        self.owners += 1;
    }
    /// Returns the queue to its last client alone.
    pub fn split(&mut self, client: ClientId) {
        (self.shared, self.client) = (false, Some(client));
    }
}

/// A queue that can be shared.
pub trait Shares {
    /// Its clients and planned merge.
    fn sharing(&mut self) -> &mut Sharing;
}

/// Plans to merge two queues: the one with fewer processes into the other. Returns which queue is merged into which;
/// `None` if the opposite is already planned, or one of them has no clients.
pub fn plan_merge<Q: Shares>(
    queues: &mut Slots<Q>,
    from: SlotId,
    mut to: SlotId,
) -> Option<(SlotId, SlotId)> {
    if queues[from].sharing().merge_into.is_some() {
        return None;
    }
    while let Some(further) = queues[to].sharing().merge_into {
        to = further;
    }
    let (ours, theirs) = (queues[from].sharing().owners, queues[to].sharing().owners);
    if to == from || ours == 0 || theirs == 0 {
        return None;
    }
    let (from, to) = if theirs >= ours { (from, to) } else { (to, from) };
    queues[from].sharing().merge_into = Some(to);
    queues[to].sharing().merging += 1;
    Some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Shares for Sharing {
        fn sharing(&mut self) -> &mut Sharing {
            self
        }
    }
    fn queues(owners: [u32; 4]) -> (Slots<Sharing>, [SlotId; 4]) {
        let mut slots = Slots::default();
        let ids = owners.map(|owners| slots.insert(Sharing { owners, ..Sharing::default() }));
        (slots, ids)
    }

    /// Goal: the smaller company moves, on a tie the one that gives way. Method: both ways.
    #[test]
    fn fewer_go_to_more() {
        let (mut slots, [a, b, c, d]) = queues([1, 1, 3, 2]);
        assert_eq!(plan_merge(&mut slots, a, b), Some((a, b)));
        assert_eq!(plan_merge(&mut slots, c, d), Some((d, c)));
        assert_eq!((slots[b].merging, slots[c].merging), (1, 1));
    }

    /// Goal: no ring, nothing twice, nothing with queues of nobody. Method: a chain of three, then the
    /// way back.
    #[test]
    fn merges_never_form_a_ring() {
        let (mut slots, [a, b, c, nobody]) = queues([1, 1, 1, 0]);
        assert_eq!(plan_merge(&mut slots, a, b), Some((a, b)));
        assert_eq!(plan_merge(&mut slots, a, c), None);
        assert_eq!(plan_merge(&mut slots, b, a), None);
        assert_eq!(plan_merge(&mut slots, c, a), Some((c, b)));
        assert_eq!(plan_merge(&mut slots, b, c), None);
        assert_eq!(plan_merge(&mut slots, b, nobody), None);
    }
}
