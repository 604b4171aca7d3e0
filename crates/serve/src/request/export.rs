//! What a front end knows of a volume, and of the client that opens it.

use iofair_config::contracts::Entry;

/// A volume as clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The owner's name for it, returned when a client chose it.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Are writes refused?
    pub read_only: bool,
    /// Does a head move?
    pub rotational: bool,
    /// Who may open it.
    pub entry: Entry,
    /// Connections to it now.
    pub connections: u32,
}

/// How a client is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Over a Unix socket, as this user id.
    Unix(u32),
    /// Over TCP.
    Tcp,
}

impl Export {
    /// Has it as many connections as it may have?
    pub fn is_full(&self) -> bool {
        self.connections >= self.entry.connections
    }
}
