//! Clients of removed volumes, and who waits until those of a removal are gone.
//!
//! Each removal is counted for itself: a client whose request the drive does not complete keeps nobody who removes another
//! volume.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

/// Removals that have clients left.
#[derive(Debug, Default)]
pub(super) struct Ejections {
    /// The number of the last change of the contracts.
    last: u64,
    /// Clients that are left, by the change that removed their volume.
    left: BTreeMap<u64, usize>,
    /// Who waits for a change.
    waiting: Vec<(u64, Sender<()>)>,
}

impl Ejections {
    /// Another change begins.
    pub(super) fn begin(&mut self) {
        self.last += 1;
    }
    /// The present change has removed the volume of a client. Returns the number of the change.
    pub(super) fn add(&mut self) -> u64 {
        *self.left.entry(self.last).or_default() += 1;
        self.last
    }
    /// A client whose volume this change has removed is gone.
    pub(super) fn leave(&mut self, change: u64) {
        let left = self.left.get_mut(&change).expect("it was added");
        *left -= 1;
        if *left == 0 {
            self.left.remove(&change);
        }
    }
    /// Somebody waits for the present change.
    pub(super) fn wait(&mut self, reply: Sender<()>) {
        self.waiting.push((self.last, reply));
    }
    /// Those for whom no client is left.
    pub(super) fn take_done(&mut self) -> Vec<Sender<()>> {
        let left = &self.left;
        let done = self.waiting.extract_if(.., |(change, _)| !left.contains_key(change));
        done.map(|(_, reply)| reply).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Goal: a removal waits for its own clients and for no others. Method: one with a client that stays, one with a client
    /// that goes, and one without clients.
    #[test]
    fn removals_wait_for_their_own_clients() {
        let mut ejections = Ejections::default();
        let begin = |ejections: &mut Ejections, clients| {
            ejections.begin();
            let change = (0..clients).map(|_| ejections.add()).last();
            let (reply, replied) = mpsc::channel();
            ejections.wait(reply);
            (change, replied)
        };
        let (stays, first) = begin(&mut ejections, 2);
        let (goes, second) = begin(&mut ejections, 1);
        let (_, third) = begin(&mut ejections, 0);
        let done = |ejections: &mut Ejections| {
            ejections.take_done().iter().for_each(|reply| reply.send(()).expect("it waits"));
            [&first, &second, &third].map(|replied| replied.try_recv().is_ok())
        };
        assert_eq!(done(&mut ejections), [false, false, true]);
        ejections.leave(stays.expect("two"));
        ejections.leave(goes.expect("one"));
        assert_eq!(done(&mut ejections), [false, true, false]);
        ejections.leave(stays.expect("two"));
        assert_eq!(done(&mut ejections), [true, false, false]);
        assert!(ejections.left.is_empty() && ejections.waiting.is_empty());
    }
}
