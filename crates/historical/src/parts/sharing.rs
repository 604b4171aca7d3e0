//! Whose queue a queue is, and how two become one.
//!
//! CFQ and BFQ merge queues of processes that work close together. In CFQ the merge is planned when the
//! one would give way to the other, in the direction of the fewer processes, and done one process at a
//! time, when it sends its next request. What a queue holds by then it keeps.

use super::slots::{SlotId, Slots};
use iofair_core::group::ClientId;

/// Who uses a queue, and with which other it will be one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sharing {
    /// Its client, unless it is shared.
    pub client: Option<ClientId>,
    /// Clients whose requests come here.
    pub owners: u32,
    /// Its clients' next requests go there.
    pub merge_into: Option<SlotId>,
    /// Queues that will merge into it.
    pub merging: u32,
    /// Two clients or more have used it since it was last split.
    pub shared: bool,
}

impl Sharing {
    /// A queue of one client, or of nobody in particular.
    pub const fn of(client: Option<ClientId>) -> Self {
        let owners = client.is_some() as u32;
        Self { client, owners, merge_into: None, merging: 0, shared: false }
    }
    /// Nobody sends to it, now or later.
    pub const fn is_abandoned(&self) -> bool {
        self.owners == 0 && self.merging == 0
    }
    /// A client does not use it any more.
    pub fn leave(&mut self, client: ClientId) {
        self.owners -= 1;
        if self.client == Some(client) {
            self.client = None;
        }
    }
    /// A client uses it from now on, besides others.
    pub fn join(&mut self) {
        (self.shared, self.client) = (true, None);
        self.owners += 1;
    }
    /// The last client has it for itself again.
    pub fn split(&mut self, client: ClientId) {
        (self.shared, self.client) = (false, Some(client));
    }
}

/// A queue that can be shared.
pub trait Shares {
    /// By whom.
    fn sharing(&mut self) -> &mut Sharing;
}

/// Two queues shall be one: whose processes are fewer go to the other's. Tells who goes where; `None` if
/// that is planned already, the other way round, or one of them is nobody's.
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
