//! Who shares the drive: the tree of groups, and the clients in it.
//!
//! A *group* holds a contract and may hold groups. A *client* is one source of requests (a process, a
//! volume) and belongs to one group at a time. Ids are small dense integers, so that a policy can keep
//! its own state in a vector beside them; a removed id is reused only after the policy was told.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::contract::Contract;

/// Levels of groups below the root: what walks from a group to the root is bounded.
pub const DEPTH_MAX: usize = 32;

/// A group's place in [`Groups`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The group that holds all others.
    pub const ROOT: Self = Self(0);
    /// As an index of a vector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A client's place in [`Groups`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

impl ClientId {
    /// As an index of a vector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Scheduling class, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Class {
    /// Before everybody else.
    RealTime,
    /// The usual one.
    #[default]
    BestEffort,
    /// Only when nobody else wants the drive.
    Idle,
}

impl Class {
    /// All classes, most urgent first; `class as usize` indexes an array of three.
    pub const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];
}

/// A client's own priority: class, and level 0 (most) to 7 (least) in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority {
    /// Scheduling class.
    pub class: Class,
    /// Level in the class, 0 to 7.
    pub level: u8,
}

impl Default for Priority {
    fn default() -> Self {
        Self { class: Class::BestEffort, level: 4 }
    }
}

/// One group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its path: `tenants/alice`; the root's is empty.
    pub name: String,
    /// The group that holds it; `None` for the root.
    pub parent: Option<GroupId>,
    /// Groups directly inside, by id.
    pub children: Vec<GroupId>,
    /// What it was promised.
    pub contract: Contract,
    /// Clients directly inside.
    pub clients: u32,
}

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    /// The group it belongs to.
    pub group: GroupId,
    /// Its own priority.
    pub priority: Priority,
}

/// What changed in the tree, as told to policies ([`crate::policy::Policy::change`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A group is there now.
    GroupAdded(GroupId),
    /// A group's contract changed.
    GroupUpdated(GroupId),
    /// A group is about to go; it holds no request, client or group any more.
    GroupRemoved(GroupId),
    /// A client is there now.
    ClientAdded(ClientId),
    /// A client's group or priority changed; requests submitted before keep their old ones.
    ClientUpdated(ClientId),
    /// A client is about to go; it has no request any more.
    ClientRemoved(ClientId),
}

/// The tree of groups and the table of clients.
#[derive(Debug)]
pub struct Groups {
    groups: Vec<Option<Group>>,
    free_groups: Vec<GroupId>,
    /// All but the root by path.
    paths: BTreeMap<String, GroupId>,
    /// Groups and clients looked at, for tests that count work.
    #[cfg(feature = "testing")]
    visits: core::sync::atomic::AtomicU64,
    clients: Vec<Option<Client>>,
    free_clients: Vec<ClientId>,
}

impl Default for Groups {
    fn default() -> Self {
        Self::new()
    }
}

impl Groups {
    /// Just the root.
    pub fn new() -> Self {
        let root = Group {
            name: String::new(),
            parent: None,
            children: Vec::new(),
            contract: Contract::default(),
            clients: 0,
        };
        Self {
            groups: alloc::vec![Some(root)],
            free_groups: Vec::new(),
            paths: BTreeMap::new(),
            #[cfg(feature = "testing")]
            visits: core::sync::atomic::AtomicU64::new(0),
            clients: Vec::new(),
            free_clients: Vec::new(),
        }
    }
    /// The group with this id, which must be alive.
    pub fn group(&self, id: GroupId) -> &Group {
        self.count_visit();
        self.groups[id.index()].as_ref().expect("a group id is valid until the group is removed")
    }
    /// The client with this id, which must be alive.
    pub fn client(&self, id: ClientId) -> &Client {
        self.count_visit();
        self.clients[id.index()].as_ref().expect("a client id is valid until the client is removed")
    }
    /// The client with this id, if it is alive.
    pub fn try_client(&self, id: ClientId) -> Option<&Client> {
        self.clients.get(id.index())?.as_ref()
    }
    /// The group with this id, if it is alive.
    pub fn try_group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.index())?.as_ref()
    }
    /// All live groups by id, the root first.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        let indexed = self.groups.iter().enumerate();
        indexed.filter_map(|(i, g)| {
            self.count_visit();
            Some((GroupId(i as u32), g.as_ref()?))
        })
    }
    /// All live clients by id.
    pub fn iter_clients(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        let indexed = self.clients.iter().enumerate();
        indexed.filter_map(|(i, c)| {
            self.count_visit();
            Some((ClientId(i as u32), c.as_ref()?))
        })
    }
    /// One more than the largest group id ever given out.
    pub fn group_bound(&self) -> usize {
        self.groups.len()
    }
    /// One more than the largest client id ever given out.
    pub fn client_bound(&self) -> usize {
        self.clients.len()
    }
    /// The group with this path; the root's is empty.
    pub fn find(&self, name: &str) -> Option<GroupId> {
        if name.is_empty() { Some(GroupId::ROOT) } else { self.paths.get(name).copied() }
    }
    fn count_visit(&self) {
        #[cfg(feature = "testing")]
        {
            use core::sync::atomic::Ordering::Relaxed;
            self.visits.store(self.visits.load(Relaxed) + 1, Relaxed);
        }
    }
    /// Groups and clients looked at since this was asked last.
    #[cfg(feature = "testing")]
    pub fn take_visits(&self) -> u64 {
        self.visits.swap(0, core::sync::atomic::Ordering::Relaxed)
    }
    /// From the group up to and including the root.
    pub fn ancestry(&self, id: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        core::iter::successors(Some(id), |id| self.group(*id).parent)
    }

    /// Adds a group under `parent`; `name` is its whole path.
    pub(crate) fn add_group(&mut self, name: &str, parent: GroupId, contract: Contract) -> GroupId {
        let group = Group {
            name: name.to_string(),
            parent: Some(parent),
            children: Vec::new(),
            contract,
            clients: 0,
        };
        let id = self.free_groups.pop().unwrap_or(GroupId(self.groups.len() as u32));
        match self.groups.get_mut(id.index()) {
            Some(free) => *free = Some(group),
            None => self.groups.push(Some(group)),
        }
        let siblings = &mut self.group_mut(parent).children;
        let place = siblings.binary_search(&id).expect_err("a new group is nobody's child yet");
        siblings.insert(place, id);
        self.paths.insert(name.to_string(), id);
        id
    }
    pub(crate) fn remove_group(&mut self, id: GroupId) {
        let group = self.groups[id.index()].take().expect("a group is removed once");
        let parent = group.parent.expect("the root is never removed");
        let siblings = &mut self.group_mut(parent).children;
        let place = siblings.binary_search(&id).expect("it is among its parent's children");
        siblings.remove(place);
        self.paths.remove(&group.name);
        self.free_groups.push(id);
    }
    pub(crate) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups[id.index()].as_mut().expect("a group id is valid until the group is removed")
    }
    pub(crate) fn add_client(&mut self, client: Client) -> ClientId {
        self.group_mut(client.group).clients += 1;
        let id = self.free_clients.pop().unwrap_or(ClientId(self.clients.len() as u32));
        match self.clients.get_mut(id.index()) {
            Some(free) => *free = Some(client),
            None => self.clients.push(Some(client)),
        }
        id
    }
    pub(crate) fn remove_client(&mut self, id: ClientId) {
        let group = self.client(id).group;
        self.group_mut(group).clients -= 1;
        self.clients[id.index()] = None;
        self.free_clients.push(id);
    }
    pub(crate) fn update_client(&mut self, id: ClientId, client: Client) {
        let old = self.client(id).group;
        self.group_mut(old).clients -= 1;
        self.group_mut(client.group).clients += 1;
        self.clients[id.index()] = Some(client);
    }
}
