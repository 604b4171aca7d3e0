//! Connections that have not chosen a volume yet: accepted ones that wait for a handshake slot, and those that have one.
//!
//! Slots are divided by origin. An origin is a user of this host, or a remote host (for IPv6, its /64 network). Waiting
//! connections get slots origin by origin. When no slot is free, a connection is evicted: the oldest one of the origin
//! that holds most slots, or of the newcomer's own origin if that holds as many; the oldest is the one that did no step of its
//! handshake for the longest time. So an origin that holds all slots and
//! reconnects at once after each eviction takes no slot that another origin needs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use iofair_core::time::{Instant, Nanos};

/// Where a client comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    User(u32),
    Host(IpAddr),
}

impl Origin {
    /// The host of an address.
    pub(crate) fn host(address: IpAddr) -> Self {
        Self::Host(match address {
            IpAddr::V6(ip) => {
                let network = u128::from(ip) >> 64 << 64;
                ip.to_ipv4_mapped().map_or(IpAddr::V6(network.into()), IpAddr::V4)
            }
            ip => ip,
        })
    }
}

/// A connection that has a handshake slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handshake {
    pub(super) origin: Origin,
    /// Its endpoint.
    pub(super) key: usize,
    /// When it got the slot, and when it last did a step of its handshake.
    pub(super) entered: Instant,
    pub(super) since: Instant,
}

/// All such connections; `S` stands for one that waits (its socket).
#[derive(Debug)]
pub(super) struct DeferredAccepts<S> {
    /// Waiting connections by origin, oldest first.
    waiting: BTreeMap<Origin, VecDeque<S>>,
    /// Origins with waiting connections, the next one first.
    turns: VecDeque<Origin>,
    waiting_count: usize,
    /// Connections with a slot, in the order in which they got it or did a step.
    handshaking: BTreeMap<u64, Handshake>,
    by_origin: BTreeMap<Origin, BTreeSet<u64>>,
    /// Origins by the number of slots that they hold.
    sizes: BTreeSet<(usize, Origin)>,
    next_number: u64,
}

impl<S> Default for DeferredAccepts<S> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            waiting_count: 0,
            handshaking: BTreeMap::new(),
            by_origin: BTreeMap::new(),
            sizes: BTreeSet::new(),
            next_number: 0,
        }
    }
}

impl<S> DeferredAccepts<S> {
    /// Connections that wait.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting_count
    }
    /// Connections that have a slot.
    pub(super) fn handshaking(&self) -> usize {
        self.handshaking.len()
    }
    /// Adds a connection that waits for a slot.
    pub(super) fn wait(&mut self, origin: Origin, client: S) {
        let queue = self.waiting.entry(origin).or_default();
        if queue.is_empty() {
            self.turns.push_back(origin);
        }
        queue.push_back(client);
        self.waiting_count += 1;
    }
    /// The origin of the connection that gets the next slot.
    pub(super) fn next_origin(&self) -> Option<Origin> {
        self.turns.front().copied()
    }
    /// Takes the connection that gets the next slot.
    pub(super) fn call(&mut self) -> Option<(Origin, S)> {
        let origin = self.turns.pop_front()?;
        let queue = self.waiting.get_mut(&origin)?;
        let client = queue.pop_front()?;
        self.waiting_count -= 1;
        match queue.is_empty() {
            true => drop(self.waiting.remove(&origin)),
            false => self.turns.push_back(origin),
        }
        Some((origin, client))
    }
    /// Drops all waiting connections.
    pub(super) fn clear_waiting(&mut self) {
        self.waiting.clear();
        self.turns.clear();
        self.waiting_count = 0;
    }
    /// Gives a slot to a connection; returns the slot's number.
    pub(super) fn enter(&mut self, now: Instant, origin: Origin, key: usize) -> u64 {
        self.insert(Handshake { origin, key, entered: now, since: now })
    }
    fn insert(&mut self, handshake: Handshake) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.handshaking.insert(number, handshake);
        self.resize(handshake.origin, |own| own.insert(number));
        number
    }
    /// The server did not run for this long: that is not the time of connections with a slot.
    pub(super) fn forgive(&mut self, stopped: Nanos) {
        for handshake in self.handshaking.values_mut() {
            (handshake.entered, handshake.since) =
                (handshake.entered + stopped, handshake.since + stopped);
        }
    }
    /// A connection with a slot did a step of its handshake; returns the slot's new number.
    pub(super) fn renew(&mut self, now: Instant, number: u64) -> u64 {
        let handshake = self.handshaking[&number];
        self.leave(number);
        self.insert(Handshake { since: now, ..handshake })
    }
    /// Frees a slot: its connection has chosen a volume or is gone.
    pub(super) fn leave(&mut self, number: u64) {
        if let Some(handshake) = self.handshaking.remove(&number) {
            self.resize(handshake.origin, |own| own.remove(&number));
        }
    }
    fn resize(&mut self, origin: Origin, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let own = self.by_origin.entry(origin).or_default();
        self.sizes.remove(&(own.len(), origin));
        change(own);
        match own.len() {
            0 => drop(self.by_origin.remove(&origin)),
            size => drop(self.sizes.insert((size, origin))),
        }
    }
    /// The connection that is evicted for one of this origin: its number and handshake.
    pub(super) fn eviction_candidate(&self, newcomer: Origin) -> Option<(u64, Handshake)> {
        let own = self.by_origin.get(&newcomer).map_or(0, BTreeSet::len);
        let (most, largest) = *self.sizes.last()?;
        let from = if own >= most { newcomer } else { largest };
        let number = *self.by_origin.get(&from)?.first()?;
        Some((number, self.handshaking[&number]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Origin {
        Origin::host(IpAddr::from([127, 0, 0, last]))
    }

    /// Goal: an origin that holds all places loses them to others, and takes none from origins with fewer. Method: one that
    /// fills four places and comes again whenever it may, beside two others that come once.
    #[test]
    fn the_origin_with_the_most_places_is_evicted() {
        let (many, few, user) = (host(1), host(2), Origin::User(0));
        let mut deferred = DeferredAccepts::<()>::default();
        for key in 0..4 {
            deferred.enter(Instant(key), many, key as usize);
        }
        let mut next = 4;
        let mut replace = |deferred: &mut DeferredAccepts<()>, newcomer: Origin| {
            let (number, handshake) = deferred.eviction_candidate(newcomer).unwrap();
            deferred.leave(number);
            deferred.enter(Instant(next), newcomer, next as usize);
            next += 1;
            handshake.key
        };
        assert_eq!(replace(&mut deferred, few), 0, "the oldest of those who have most");
        assert_eq!(replace(&mut deferred, user), 1);
        for round in 0..20 {
            let gone = replace(&mut deferred, many);
            assert!(![4, 5].contains(&gone), "round {round}: {gone} had less than its part");
        }
        assert_eq!(deferred.handshaking(), 4);
        assert_eq!(replace(&mut deferred, few), 24, "a second one is still less than most have");
        assert_eq!(replace(&mut deferred, few), 4, "a third one would be more");
    }

    /// Goal: waiting connections get slots origin by origin. Method: many of one, then one of another.
    #[test]
    fn origins_take_turns() {
        let mut deferred = DeferredAccepts::default();
        (0..10).for_each(|client| deferred.wait(host(1), client));
        deferred.wait(host(2), 10);
        deferred.wait(host(3), 11);
        let calls = std::iter::from_fn(|| deferred.call());
        let order: Vec<i32> = calls.map(|(_, call)| call).collect();
        assert_eq!(order, [0, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((deferred.waiting_count(), deferred.next_origin()), (0, None));
        deferred.wait(host(1), 12);
        deferred.clear_waiting();
        assert!(deferred.call().is_none() && deferred.waiting_count() == 0);
    }

    /// Goal: a host that has a network of addresses is one origin. Method: two of one network, one of another, and an
    /// IPv4 address mapped into IPv6.
    #[test]
    fn a_network_is_one_host() {
        let origin = |text: &str| Origin::host(text.parse().unwrap());
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:127.0.0.1"), host(1));
    }
}
