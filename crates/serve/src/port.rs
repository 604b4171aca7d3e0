//! The port: the one place where the reactor and the front ends meet the engine.
//!
//! A front end is a set of *endpoints*, one for each client (a connection, a guest's disk, a block device, an open
//! file), which the reactor drives ([`Endpoint`](crate::reactor::endpoint::Endpoint)). What an endpoint may rely on:
//!
//! - **Volumes.** A client *attaches* to a volume by its number, and *detaches* when none of its requests is in
//!   flight. A volume that is removed stays until then.
//! - **Submit, or full.** [`Port::submit`] takes a request by value, or returns it: the group has no room, or the
//!   server is drained. The reactor visits the endpoint again when there may be room.
//! - **Completions.** Each request that was taken is completed exactly once, also if it is cancelled, and returns with
//!   its data. Completions arrive in any order.
//! - **Room.** Before an endpoint holds payload, it asks for memory ([`Port::has_memory`]), which `port/budget.rs` divides
//!   between the groups. The port counts what is in flight ([`Client`]); the reactor adds what the endpoint itself holds.
//! - **Group.** Memory, processor time and drive time are charged to the [`Account`] of the volume's group. A change of
//!   the contracts can move a volume to another group; the account is therefore asked for, never kept across turns.
//!
//! Clients and volumes are numbers; requests, completions and changes are values; and no borrowed part of the engine
//! outlives a call. A thread can therefore be put between the port and the engine without changing a front end. Requests
//! and completions then pass through two queues; exports and budget stay on the side of the front ends, with a copy of
//! the tree of groups, which only a change of the contracts changes, and with a pool of buffers. The payload of a
//! request may lie in the client's receive buffer ([`Data::Lent`](crate::request::data::Data)): it is the port that
//! copies what is still in use before the turn ends.
//!
//! The reactor drives the other half: [`Port::turn`], the entries for its ring, and the work for other threads.

pub(crate) mod budget;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use iofair_config::contracts::Limits;
use iofair_core::group::Groups;
use iofair_core::id::RequestId;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

pub(crate) use crate::back::Lookup;
pub(crate) use crate::back::uring::Storage;
pub(crate) use crate::engine::cancel::Cancel;
pub(crate) use crate::engine::stats::Snapshot;
pub(crate) use crate::engine::{Change, Changed, Engine};
use crate::error::ServeError;
use crate::request::buffer::Pool;
use crate::request::entry::Entry;
use crate::request::export::{Export, Exports, Offer};
use crate::request::extent::Extent;
use crate::request::op::{NewOp, Op};
pub(crate) use budget::Account;
use budget::{Budget, Share};

/// A client as the port knows it: its volume, and what it has in flight.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// Its number, which is that of its endpoint.
    pub(crate) key: usize,
    pub(crate) volume: Option<usize>,
    pub(crate) in_flight: u32,
    /// Entries on the ring that will complete, for its endpoint.
    pub(crate) entries: u32,
    /// Bytes of payload in flight.
    pub(crate) held: usize,
    /// A flush has failed, and its reply was not handed over yet.
    is_untold: bool,
    /// It is the only machine that its volume may have.
    is_machine: bool,
    /// Memory that is charged to its group.
    pub(crate) share: Share,
}

impl Client {
    /// A client without a volume.
    pub(crate) fn new(key: usize) -> Self {
        Self { key, ..Self::default() }
    }
    /// Whether it has neither requests in flight nor entries on the ring.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.entries == 0
    }
    /// One of its requests is completed.
    pub(crate) fn completed(&mut self, op: &Op) {
        self.in_flight -= 1;
        self.held -= op.payload();
        self.is_untold |= op.operation == Operation::Flush && op.status != 0;
    }
}

/// The engine, and what front ends share of it.
pub(crate) struct Port {
    engine: Engine,
    /// The volumes that clients can open.
    pub(crate) exports: Exports,
    connections: u32,
    /// Volumes that a virtual machine has: one at a time, whichever socket it came through.
    machines: BTreeSet<usize>,
    /// The memory of clients.
    pub(crate) budget: Budget,
    stats_since: Instant,
    busy_before: Nanos,
}

/// For endpoints.
impl Port {
    /// Takes a request in, or returns it if there is no room.
    // The refused request is as large as it came.
    #[allow(clippy::result_large_err)]
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        client: &mut Client,
        new: NewOp,
    ) -> Result<(), NewOp> {
        let payload = new.payload();
        self.engine.submit(now, new)?;
        client.in_flight += 1;
        client.held += payload;
        Ok(())
    }
    /// A client does not wait for its requests any more; they are completed as soon as possible.
    pub(crate) fn cancel(&mut self, now: Instant, client: &Client, which: Cancel) {
        self.engine.cancel(now, client.key as u64, which);
    }
    /// Whether requests of any client are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.engine.pending() > 0
    }
    /// A client opened a volume.
    pub(crate) fn attach(&mut self, client: &mut Client, volume: usize) {
        client.volume = Some(volume);
        self.engine.attach(volume);
        self.engine.join(volume, client.key as u64);
    }
    /// A virtual machine opened a volume; `false` if another one has it.
    pub(crate) fn attach_machine(&mut self, client: &mut Client, volume: usize) -> bool {
        client.is_machine = self.machines.insert(volume);
        if client.is_machine {
            self.attach(client, volume);
        }
        client.is_machine
    }
    /// All replies to a client were handed over.
    pub(crate) fn replied(&mut self, client: &mut Client) {
        if std::mem::take(&mut client.is_untold)
            && let Some(volume) = client.volume
        {
            self.engine.heard(volume, client.key as u64);
        }
    }
    /// A client leaves its volume, if it has one; it has no request in flight.
    pub(crate) fn detach(&mut self, client: &mut Client) {
        assert!(client.in_flight == 0, "a client leaves with requests in flight");
        if let Some(volume) = client.volume.take() {
            if std::mem::take(&mut client.is_machine) {
                self.machines.remove(&volume);
            }
            self.engine.leave(volume, client.key as u64);
            self.engine.detach(volume);
        }
    }
    /// Counts a request that the front end refused as a failed one of the client's volume.
    pub(crate) fn count_refused(&mut self, client: &Client) {
        client.volume.into_iter().for_each(|volume| self.engine.refused(volume));
    }
    /// Buffers for payloads.
    pub(crate) fn buffers(&mut self) -> &mut Pool {
        &mut self.engine.ops().pool
    }
    /// The account of a client.
    pub(crate) fn account(&self, client: &Client) -> Account {
        let group = client.volume.map(|volume| self.engine.group(volume));
        group.map_or(Account::HANDSHAKE, Account::in_group)
    }
    /// Whether a client that holds `holds` bytes, beyond those in flight, may hold `more`.
    pub(crate) fn has_memory(&mut self, client: &mut Client, holds: usize, more: usize) -> bool {
        self.charge_memory(client, holds);
        let (account, holds) = (self.account(client), client.held + holds);
        self.budget.allows(self.engine.controller().groups(), account, holds, more)
    }
    /// Records how many bytes a client holds now, beyond those in flight.
    pub(crate) fn charge_memory(&mut self, client: &mut Client, holds: usize) {
        let (account, holds) = (self.account(client), client.held + holds);
        self.budget.charge(self.engine.controller().groups(), account, &mut client.share, holds);
    }
    /// The exports, with the groups that share their connections.
    pub(crate) fn offer(&self) -> Offer<'_> {
        Offer { exports: &self.exports, groups: self.groups() }
    }
    /// Counts a connection to a volume.
    pub(crate) fn enter(&mut self, volume: usize) {
        self.exports.enter(volume as u32, self.engine.controller().groups());
    }
}

/// For the reactor: input and output of the engine.
impl Port {
    /// Lets the engine do what is possible now. Payloads in receive buffers are copied if they are still needed.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.engine.turn(now);
        self.engine.keep_lent();
    }
    /// The next completed request.
    pub(crate) fn next_completion(&mut self) -> Option<Op> {
        self.engine.next_finished()
    }
    /// The back end's new entries for the ring.
    pub(crate) fn take_entries(&mut self) -> Option<&mut Vec<Entry>> {
        self.engine.take_entries()
    }
    /// An entry of the back end completed.
    pub(crate) fn on_ring(&mut self, data: u32, result: i32) {
        self.engine.on_ring(data, result);
    }
    /// Files of removed volumes, for another thread to close.
    pub(crate) fn take_closing(&mut self) -> impl Iterator<Item = Arc<Storage>> {
        self.engine.take_closing().into_iter().flat_map(|all| all.drain(..))
    }
    /// Block statuses for another thread, and whom its time is charged to.
    pub(crate) fn take_lookups(&mut self) -> Vec<(Account, Lookup)> {
        let lookups = self.engine.take_lookups().map(std::mem::take).unwrap_or_default();
        let account = |lookup: &Lookup| Account::in_group(self.engine.group_of(lookup.op));
        lookups.into_iter().map(|lookup| (account(&lookup), lookup)).collect()
    }
    /// The result of a block status; empty after an error.
    pub(crate) fn on_found(&mut self, command: RequestId, op: usize, extents: Vec<Extent>) {
        self.engine.on_found(command, op, extents);
    }
    /// When to call [`Self::turn`] again even if nothing else happens, and whether to poll for the last microseconds
    /// before that.
    pub(crate) fn next_wakeup(&self) -> (Option<Instant>, bool) {
        let next = self.engine.next_wakeup();
        (next, next.is_some() && next == self.engine.next_event() && self.engine.polls())
    }
    /// Charges processor time to an account.
    pub(crate) fn charge_time(&mut self, account: Account, time: Nanos) {
        if let Some(group) = account.group(self.groups()) {
            self.engine.charge(group, time);
        }
    }
    /// A client of an account begins to wait for room.
    pub(crate) fn count_stalled(&mut self, account: Account) {
        if let Some(group) = account.group(self.groups()) {
            self.engine.stalled(group);
        }
    }
    /// Whether a client of an account has recently had to wait for memory.
    pub(crate) fn is_memory_short(&self, account: Account) -> bool {
        self.budget.is_short(self.groups(), account)
    }
    /// Writes, trims and zeroes that clients wait for, by volume.
    pub(crate) fn unfinished_writes(&mut self) -> BTreeMap<&str, u64> {
        self.engine.unfinished_writes()
    }
    /// Whether the back end has no command, so that it uses none of our memory.
    pub(crate) fn is_idle(&self) -> bool {
        !self.engine.is_stuck()
    }
    /// Makes everything durable.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.engine.is_stuck() {
            // A drive that did not complete commands could block forever.
            let message =
                "the drive did not complete some commands; data that was not flushed may be lost";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        self.engine.back().close()
    }
}

/// For the reactor: what the operator changes and reads.
impl Port {
    /// The port of an engine whose volumes are in place.
    pub(crate) fn new(engine: Engine, now: Instant, limits: &Limits) -> Self {
        let (exports, connections) = (Exports::default(), limits.connections);
        let budget = Budget::new(limits.memory_bytes);
        let (stats_since, busy_before) = (now, Nanos::ZERO);
        let machines = BTreeSet::new();
        let mut this =
            Self { engine, exports, connections, machines, budget, stats_since, busy_before };
        this.offer_volumes(connections);
        this
    }
    fn offer_volumes(&mut self, connections: u32) {
        self.connections = connections;
        let (volumes, groups) = (self.engine.exports(), self.engine.controller().groups());
        self.exports.set(connections, volumes, groups);
    }
    /// The tree of groups.
    pub(crate) fn groups(&self) -> &Groups {
        self.engine.controller().groups()
    }
    /// Applies new contracts, unless they would shrink a volume that a client has open.
    pub(crate) fn apply(
        &mut self,
        now: Instant,
        change: &Change,
        limits: &Limits,
    ) -> Result<Changed, ServeError> {
        if let Some(name) = self.engine.cuts(change) {
            let message = "clients have it open; only a volume without clients can shrink";
            return Err(ServeError::volume(name, message));
        }
        let mut changed = self.engine.change(now, change);
        changed.exports.sort_unstable();
        changed.closed.sort_unstable();
        if !changed.exports.is_empty() || limits.connections != self.connections {
            self.offer_volumes(limits.connections);
        }
        self.budget.resize(limits.memory_bytes);
        Ok(changed)
    }
    /// The size of a volume in bytes.
    pub(crate) fn size(&self, volume: usize) -> u64 {
        self.engine.size(volume)
    }
    /// A removed volume that still has clients, and its group.
    pub(crate) fn removed(&self, volume: usize) -> Option<(Export, &str)> {
        self.engine.removed(volume)
    }
    /// Removes what is idle of volumes and groups that are not in the contracts any more.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.engine.settle(now);
    }
    /// Makes a volume that is the whole drive, for a job of the server itself. It goes when it is detached.
    pub(crate) fn open_drive(&mut self, now: Instant, group: Option<&str>) -> usize {
        self.engine.open_drive(now, group)
    }
    /// Stops or resumes taking requests in; those in flight continue.
    pub(crate) fn pause(&mut self, paused: bool) {
        self.engine.pause(paused);
    }
    /// Whether no request is taken in for now.
    pub(crate) fn is_paused(&self) -> bool {
        self.engine.is_paused()
    }
    /// The counters since the last reset.
    pub(crate) fn stats(&mut self, now: Instant, reset: bool) -> Snapshot {
        let snapshot = self.engine.snapshot(now, self.stats_since, self.busy_before);
        if reset {
            self.engine.reset_stats();
            (self.stats_since, self.busy_before) = (now, self.engine.busy_time(now));
        }
        snapshot
    }
    /// The engine and the memory of clients, for control to look at.
    pub(crate) fn look(&mut self, now: Instant) -> (&Engine, &Budget) {
        self.engine.turn_second(now);
        (&self.engine, &self.budget)
    }
    /// The engine, for control to record requests.
    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }
}
