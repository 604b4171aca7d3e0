//! A server over a drive that fails by rules, which a test changes while it runs.

use iofair_serve::Server;

use crate::rig::wire::Wire;
use crate::rig::{Directory, parse};

/// Contracts over a back end with these rules, with their sockets in the directory.
pub(crate) type Contracts = fn(&Directory, back: &str, rules: &[&str]) -> String;

/// A running server, and what its contracts are made of.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) directory: Directory,
    back: String,
    contracts: Contracts,
}

impl Scene {
    /// Without rules at first.
    pub(crate) fn over(back: &str, contracts: Contracts) -> Self {
        let directory = Directory::new();
        let server = Server::start(parse(&contracts(&directory, back, &[])));
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        Self { server, directory, back: back.to_string(), contracts }
    }
    /// From now on these faults happen.
    pub(crate) fn rules(&mut self, rules: &[&str]) {
        let contracts = (self.contracts)(&self.directory, &self.back, rules);
        self.server.reload(parse(&contracts)).unwrap();
    }
    /// A client of a volume, over the socket `socket`.
    pub(crate) fn connect(&self, volume: &str) -> Wire {
        Wire::connect_to(&self.directory.path("socket"), volume).unwrap()
    }
}
