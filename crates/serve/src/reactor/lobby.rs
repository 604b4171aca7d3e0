//! Clients without a volume: who waits to be let in, who is in, and who goes for another one.
//!
//! Places are divided by origin: a user of this host, or a host (of IPv6 the network that one host has). Those who wait
//! are let in origin by origin; who goes for another one is the oldest of the origin that has most, unless the
//! newcomer's own has as many. So an origin that holds all places and comes back at once after each that it loses takes
//! none of those that others need.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use iofair_core::time::Instant;

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

/// A client that was let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Guest {
    origin: Origin,
    /// Its endpoint.
    pub(super) key: usize,
    pub(super) since: Instant,
}

/// All of them; `S` is what a client that waits is kept as.
#[derive(Debug)]
pub(super) struct Lobby<S> {
    /// By origin, in the order in which they came.
    waiting: BTreeMap<Origin, VecDeque<S>>,
    /// Origins that wait, the next one first.
    turns: VecDeque<Origin>,
    waiters: usize,
    /// In the order in which they were let in.
    guests: BTreeMap<u64, Guest>,
    by_origin: BTreeMap<Origin, BTreeSet<u64>>,
    /// Origins by how many they have in.
    sizes: BTreeSet<(usize, Origin)>,
    next_number: u64,
}

impl<S> Default for Lobby<S> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            waiters: 0,
            guests: BTreeMap::new(),
            by_origin: BTreeMap::new(),
            sizes: BTreeSet::new(),
            next_number: 0,
        }
    }
}

impl<S> Lobby<S> {
    /// How many wait.
    pub(super) fn waiters(&self) -> usize {
        self.waiters
    }
    /// How many are in.
    pub(super) fn guests(&self) -> usize {
        self.guests.len()
    }
    /// One more waits.
    pub(super) fn wait(&mut self, origin: Origin, client: S) {
        let queue = self.waiting.entry(origin).or_default();
        if queue.is_empty() {
            self.turns.push_back(origin);
        }
        queue.push_back(client);
        self.waiters += 1;
    }
    /// Where the next one comes from.
    pub(super) fn next_origin(&self) -> Option<Origin> {
        self.turns.front().copied()
    }
    /// The next one.
    pub(super) fn call(&mut self) -> Option<(Origin, S)> {
        let origin = self.turns.pop_front()?;
        let queue = self.waiting.get_mut(&origin)?;
        let client = queue.pop_front()?;
        self.waiters -= 1;
        match queue.is_empty() {
            true => drop(self.waiting.remove(&origin)),
            false => self.turns.push_back(origin),
        }
        Some((origin, client))
    }
    /// Nobody waits any more.
    pub(super) fn turn_away(&mut self) {
        self.waiting.clear();
        self.turns.clear();
        self.waiters = 0;
    }
    /// One is let in; returns its number.
    pub(super) fn enter(&mut self, now: Instant, origin: Origin, key: usize) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.guests.insert(number, Guest { origin, key, since: now });
        self.resize(origin, |own| own.insert(number));
        number
    }
    /// One is not without a volume any more.
    pub(super) fn leave(&mut self, number: u64) {
        if let Some(guest) = self.guests.remove(&number) {
            self.resize(guest.origin, |own| own.remove(&number));
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
    /// Who goes first if one of this origin is to be let in: number and guest.
    pub(super) fn loser(&self, newcomer: Origin) -> Option<(u64, Guest)> {
        let own = self.by_origin.get(&newcomer).map_or(0, BTreeSet::len);
        let (most, largest) = *self.sizes.last()?;
        let from = if own >= most { newcomer } else { largest };
        let number = *self.by_origin.get(&from)?.first()?;
        Some((number, self.guests[&number]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Origin {
        Origin::host(IpAddr::from([127, 0, 0, last]))
    }

    /// Goal: an origin that holds all places loses them to others, and takes none from who has fewer. Method: one that
    /// fills four places and comes again whenever it may, beside two others that come once.
    #[test]
    fn who_has_most_goes_first() {
        let (many, few, user) = (host(1), host(2), Origin::User(0));
        let mut lobby = Lobby::<()>::default();
        for key in 0..4 {
            lobby.enter(Instant(key), many, key as usize);
        }
        let mut next = 4;
        let mut replace = |lobby: &mut Lobby<()>, newcomer: Origin| {
            let (number, guest) = lobby.loser(newcomer).unwrap();
            lobby.leave(number);
            lobby.enter(Instant(next), newcomer, next as usize);
            next += 1;
            guest.key
        };
        assert_eq!(replace(&mut lobby, few), 0, "the oldest of those who have most");
        assert_eq!(replace(&mut lobby, user), 1);
        for round in 0..20 {
            let gone = replace(&mut lobby, many);
            assert!(![4, 5].contains(&gone), "round {round}: {gone} had less than its part");
        }
        assert_eq!(lobby.guests(), 4);
        assert_eq!(replace(&mut lobby, few), 24, "a second one is still less than most have");
        assert_eq!(replace(&mut lobby, few), 4, "a third one would be more");
    }

    /// Goal: who waits is let in origin by origin. Method: many of one, then one of another.
    #[test]
    fn origins_take_turns() {
        let mut lobby = Lobby::default();
        (0..10).for_each(|client| lobby.wait(host(1), client));
        lobby.wait(host(2), 10);
        lobby.wait(host(3), 11);
        let order: Vec<i32> = std::iter::from_fn(|| lobby.call()).map(|(_, it)| it).collect();
        assert_eq!(order, [0, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((lobby.waiters(), lobby.next_origin()), (0, None));
        lobby.wait(host(1), 12);
        lobby.turn_away();
        assert!(lobby.call().is_none() && lobby.waiters() == 0);
    }

    /// Goal: a host that has a network of addresses is one origin. Method: two of one network, one of another, and an
    /// address of the old kind in the new one's clothes.
    #[test]
    fn a_network_is_one_host() {
        let origin = |text: &str| Origin::host(text.parse().unwrap());
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:127.0.0.1"), host(1));
    }
}
