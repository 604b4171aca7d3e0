//! The server as it is between two changes, for those who only look at it: they never wait for a change.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use iofair_config::contracts::Contracts;
use iofair_config::contracts::admission::Admitted;
use iofair_core::attainable::Attainable;

use super::Server;
use super::admission::Facts;
use crate::error::ServeError;
use crate::places::{Damaged, Places};

/// What a server is under the contracts in force.
#[derive(Debug)]
pub(crate) struct View {
    contracts: Contracts,
    facts: Arc<Facts>,
    places: Places,
    blocks: Vec<(String, PathBuf)>,
    description: String,
    tcp: Option<SocketAddr>,
}

impl View {
    pub(crate) fn contracts(&self) -> &Contracts {
        &self.contracts
    }
    /// The rate that admission uses under stacks that translate minimums into weights.
    pub(crate) fn worst_case(&self) -> Option<u64> {
        self.facts.worst_case(&self.contracts)
    }
    /// The rates of the drive, if minimums are checked against them.
    pub(crate) fn reaches(&self) -> Option<Attainable> {
        self.facts.reaches(&self.contracts)
    }
    /// The groups with the weights in force.
    pub(crate) fn admitted(&self) -> Result<Admitted, ServeError> {
        self.facts.admit(&self.contracts, None)
    }
    /// The volumes that are block devices of this host, and their paths.
    pub(crate) fn blocks(&self) -> &[(String, PathBuf)] {
        &self.blocks
    }
    pub(crate) fn description(&self) -> &str {
        &self.description
    }
    pub(crate) fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }
    /// Bytes that new volumes can have. It may wait for a file system.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        self.places.free_bytes(self.facts.capacity())
    }
    /// Files of volumes that somebody has removed, moved or cut off. It may wait for a file system.
    pub(crate) fn damaged(&self) -> Vec<Damaged> {
        self.places.damaged()
    }
}

impl Server {
    /// How the server is now.
    pub(crate) fn view(&self) -> View {
        View {
            contracts: self.contracts.clone(),
            facts: self.facts.clone(),
            places: self.places.clone(),
            blocks: self.blocks.paths(),
            description: self.description.clone(),
            tcp: self.tcp,
        }
    }
    /// The end of the reactor, to be watched by others.
    pub(crate) fn end_of_reactor(&self) -> &Arc<Latch> {
        &self.ended
    }
}

/// Something that happens once.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    happened: Mutex<bool>,
    changed: Condvar,
}

/// Sets a latch when dropped, also by a panic.
pub(super) struct SetAtEnd(pub(super) Arc<Latch>);

impl Drop for SetAtEnd {
    fn drop(&mut self) {
        *self.0.happened.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

impl Latch {
    /// Whether it has happened.
    pub(crate) fn is_set(&self) -> bool {
        *self.happened.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Waits until it happens, at most this long; whether it has happened.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let happened = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(happened, limit, |happened| !*happened);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
