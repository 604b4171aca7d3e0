//! The tree of groups that share a drive, and the clients in it.
//!
//! A *group* holds a contract and may hold groups. A *client* is one source of requests (a process, a
//! volume) and belongs to one group at a time. An id consists of a small dense index, so that a policy can keep its
//! state in a vector indexed by it, and of a generation, so that the id of a removed group or client is not mistaken for
//! that of its successor. An index is reused only after policies were notified of the removal.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::contract::Contract;
use crate::id::{ClientId, GroupId, Id};
use crate::priority::Priority;

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

/// Groups or clients by index. The generation of an index grows when its member is removed.
#[derive(Debug)]
struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    member: Option<T>,
}

impl<T> Table<T> {
    const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
    fn get<K: Copy>(&self, id: Id<K>) -> Option<&T> {
        let entry = self.entries.get(id.index())?;
        entry.member.as_ref().filter(|_| entry.generation == id.generation)
    }
    fn get_mut<K: Copy>(&mut self, id: Id<K>) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.index())?;
        entry.member.as_mut().filter(|_| entry.generation == id.generation)
    }
    fn insert<K>(&mut self, member: T) -> Id<K> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, member: None });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.member = Some(member);
        Id::new(index, entry.generation)
    }
    fn remove(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index as usize];
        let member = entry.member.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        Some(member)
    }
    /// The id of the live member with this index.
    fn id<K>(&self, index: usize) -> Option<Id<K>> {
        let entry = self.entries.get(index)?;
        entry.member.as_ref().map(|_| Id::new(index as u32, entry.generation))
    }
    fn iter<K>(&self) -> impl Iterator<Item = (Id<K>, &T)> {
        let all = (0..).zip(&self.entries);
        all.filter_map(|(index, entry)| {
            Some((Id::new(index, entry.generation), entry.member.as_ref()?))
        })
    }
}

/// The tree of groups and the table of clients.
#[derive(Debug)]
pub struct Groups {
    groups: Table<Group>,
    /// All groups except the root, by path.
    paths: BTreeMap<String, GroupId>,
    /// Number of groups and clients accessed, for tests that count work.
    #[cfg(feature = "testing")]
    visits: core::sync::atomic::AtomicU64,
    clients: Table<Client>,
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
        let mut groups = Table::new();
        let _: GroupId = groups.insert(root);
        Self {
            groups,
            paths: BTreeMap::new(),
            #[cfg(feature = "testing")]
            visits: core::sync::atomic::AtomicU64::new(0),
            clients: Table::new(),
        }
    }
    /// The group with this id, which must be alive.
    ///
    /// # Panics
    ///
    /// If the group does not exist or was removed. [`Self::try_group`] returns `None` instead.
    pub fn group(&self, id: GroupId) -> &Group {
        self.count_visit();
        self.try_group(id).expect("a group id is valid until the group is removed")
    }
    /// The client with this id, which must be alive.
    ///
    /// # Panics
    ///
    /// If the client does not exist or was removed. [`Self::try_client`] returns `None` instead.
    pub fn client(&self, id: ClientId) -> &Client {
        self.count_visit();
        self.try_client(id).expect("a client id is valid until the client is removed")
    }
    /// The client with this id, if it is alive.
    #[must_use]
    pub fn try_client(&self, id: ClientId) -> Option<&Client> {
        self.clients.get(id)
    }
    /// The group with this id, if it is alive.
    #[must_use]
    pub fn try_group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id)
    }
    /// The id of the live group with this index ([`GroupId::index`]).
    #[must_use]
    pub fn group_id(&self, index: usize) -> Option<GroupId> {
        self.groups.id(index)
    }
    /// The id of the live client with this index ([`ClientId::index`]).
    #[must_use]
    pub fn client_id(&self, index: usize) -> Option<ClientId> {
        self.clients.id(index)
    }
    /// All live groups by index, the root first.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().inspect(|_| self.count_visit())
    }
    /// All live clients by index.
    pub fn iter_clients(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.clients.iter().inspect(|_| self.count_visit())
    }
    /// One more than the largest group index ever given out.
    #[must_use]
    pub fn group_bound(&self) -> usize {
        self.groups.entries.len()
    }
    /// One more than the largest client index ever given out.
    #[must_use]
    pub fn client_bound(&self) -> usize {
        self.clients.entries.len()
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
        let id = self.groups.insert(group);
        let siblings = &mut self.group_mut(parent).children;
        let place = siblings.binary_search(&id).expect_err("a new group has no parent yet");
        siblings.insert(place, id);
        self.paths.insert(name.to_string(), id);
        id
    }
    pub(crate) fn remove_group(&mut self, id: GroupId) {
        let group = self.groups.remove(id.index).expect("a group is removed once");
        let parent = group.parent.expect("the root is never removed");
        let siblings = &mut self.group_mut(parent).children;
        let place = siblings.binary_search(&id).expect("it is among its parent's children");
        siblings.remove(place);
        self.paths.remove(&group.name);
    }
    pub(crate) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        let group = self.groups.get_mut(id);
        group.expect("a group id is valid until the group is removed")
    }
    pub(crate) fn add_client(&mut self, client: Client) -> ClientId {
        self.group_mut(client.group).clients += 1;
        self.clients.insert(client)
    }
    pub(crate) fn remove_client(&mut self, id: ClientId) {
        let client = self.clients.remove(id.index).expect("a client is removed once");
        self.group_mut(client.group).clients -= 1;
    }
    pub(crate) fn update_client(&mut self, id: ClientId, client: Client) {
        let (old, new) = (self.client(id).group, client.group);
        let known = self.clients.get_mut(id);
        *known.expect("a client id is valid until the client is removed") = client;
        self.group_mut(old).clients -= 1;
        self.group_mut(new).clients += 1;
    }
}
