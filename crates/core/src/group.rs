//! The tree of groups that share a drive, and the clients in it.
//!
//! A *group* holds a contract and may hold groups. A *client* is one source of requests (a process, a
//! volume) and belongs to one group at a time. Ids are small dense integers, so that a policy can keep
//! its own state in a vector indexed by them. The id of a removed group or client is reused only after policies were notified.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::contract::Contract;
use crate::error::EngineError;

/// Maximum number of levels below the root, which bounds every walk from a group to the root.
pub const DEPTH_MAX: usize = 32;

/// Lowest priority of a client in its class ([`Priority::level`]).
pub const LEVEL_MAX: u8 = 7;

/// Identifies a group in [`Groups`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The root group, which contains all others.
    pub const ROOT: Self = Self(0);
    /// The id as an index of a vector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identifies a client in [`Groups`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

impl ClientId {
    /// The id as an index of a vector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Scheduling class, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Class {
    /// Served before the other classes.
    RealTime,
    /// The default.
    #[default]
    BestEffort,
    /// Served only when no other client needs the drive.
    Idle,
}

impl Class {
    /// All classes, most urgent first; `class as usize` indexes an array of three.
    pub const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];
}

/// A client's I/O priority: a class, and a level in it from 0 (highest) to [`LEVEL_MAX`] (lowest).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority {
    /// Scheduling class.
    pub class: Class,
    /// Level in the class, 0 to [`LEVEL_MAX`].
    pub level: u8,
}

impl Priority {
    /// Checks the level.
    ///
    /// # Errors
    ///
    /// [`EngineError::BadLevel`] if the level is above [`LEVEL_MAX`].
    pub const fn check(&self) -> Result<(), EngineError> {
        if self.level > LEVEL_MAX {
            return Err(EngineError::BadLevel(self.level));
        }
        Ok(())
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self { class: Class::BestEffort, level: 4 }
    }
}

/// One group.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Group {
    /// Its path, such as `tenants/alice`; empty for the root.
    pub name: String,
    /// Its parent group; `None` for the root.
    pub parent: Option<GroupId>,
    /// Groups directly inside, by id.
    pub children: Vec<GroupId>,
    /// Its contract.
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

/// A change of the tree, for policies ([`crate::policy::Policy::change`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A group was added.
    GroupAdded(GroupId),
    /// A group's contract changed.
    GroupUpdated(GroupId),
    /// A group is about to be removed; it no longer holds requests, clients or groups.
    GroupRemoved(GroupId),
    /// A client was added.
    ClientAdded(ClientId),
    /// A client's group or priority changed. Requests submitted earlier keep the old ones.
    ClientUpdated(ClientId),
    /// A client is about to be removed; it no longer has requests.
    ClientRemoved(ClientId),
}

/// The tree of groups and the table of clients.
#[derive(Debug)]
pub struct Groups {
    groups: Vec<Option<Group>>,
    free_groups: Vec<GroupId>,
    /// All groups except the root, by path.
    paths: BTreeMap<String, GroupId>,
    /// Number of groups and clients accessed, for tests that count work.
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
    /// A tree with only the root.
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
    ///
    /// # Panics
    ///
    /// If the group does not exist. [`Self::try_group`] returns `None` instead.
    pub fn group(&self, id: GroupId) -> &Group {
        self.count_visit();
        self.groups[id.index()].as_ref().expect("a group id is valid until the group is removed")
    }
    /// The client with this id, which must be alive.
    ///
    /// # Panics
    ///
    /// If the client does not exist. [`Self::try_client`] returns `None` instead.
    pub fn client(&self, id: ClientId) -> &Client {
        self.count_visit();
        self.clients[id.index()].as_ref().expect("a client id is valid until the client is removed")
    }
    /// The client with this id, if it is alive.
    #[must_use]
    pub fn try_client(&self, id: ClientId) -> Option<&Client> {
        self.clients.get(id.index())?.as_ref()
    }
    /// The group with this id, if it is alive.
    #[must_use]
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
    #[must_use]
    pub fn group_bound(&self) -> usize {
        self.groups.len()
    }
    /// One more than the largest client id ever given out.
    #[must_use]
    pub fn client_bound(&self) -> usize {
        self.clients.len()
    }
    /// The group with this path; the root's is empty.
    #[must_use]
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
    /// Number of groups and clients accessed since the last call.
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
