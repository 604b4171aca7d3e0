//! Names of clients, their groups, and the places where a request waits.

use crate::distinct;
use iofair_core::controller::Controller;
use iofair_core::id::{ClientId, GroupId};
use iofair_simulator::scenario::{ClientSpec, Manner, Scenario};

/// Names by id.
#[derive(Default, Debug)]
pub(super) struct Names {
    /// Of each process, of further threads, of the flushers of the page cache, of the journal.
    clients: Vec<String>,
    journaled: bool,
    /// From each client's own group up to below the root.
    ancestries: Vec<Vec<GroupId>>,
    groups: Vec<String>,
    /// Throttles, `tag`, the scheduler, `flush`, `drive`.
    pub(super) places: Vec<String>,
    throttles: usize,
}

/// `reader.3` is one of `reader`.
pub(super) fn family(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((family, number)) if number.bytes().all(|b| b.is_ascii_digit()) => family,
        _ => name,
    }
}

impl Names {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let name = |client: &ClientSpec, number: u32| match client.processes {
            1 => client.name.clone(),
            _ => format!("{}.{number}", client.name),
        };
        let processes = || {
            let all = scenario.clients.iter();
            all.flat_map(|client| (0..client.processes).map(move |number| (client, number)))
        };
        let mut clients: Vec<String> = processes().map(|(client, of)| name(client, of)).collect();
        // Threads of start-ups, and calls of another priority, come after all processes.
        for (client, number) in processes() {
            let threads = match &client.manner {
                Manner::Startup(recording) => recording.threads - 1,
                _ => 0,
            } + usize::from(client.job.calls.urgent.is_some());
            clients.extend((0..threads).map(|_| name(client, number)));
        }
        let journaled = scenario.host.journal.is_some();
        Self { clients, journaled, ..Self::default() }
    }
    /// The controller has all groups and clients: processes first, then flushers, then the journal.
    pub(super) fn learn(&mut self, controller: &Controller) {
        let groups = controller.groups();
        self.groups = vec![String::new(); groups.group_bound()];
        for (id, group) in groups.iter() {
            self.groups[id.index()] = group.name.clone();
        }
        for (id, client) in groups.iter_clients() {
            if id.index() >= self.clients.len() {
                let group = &self.groups[client.group.index()];
                let of = if group.is_empty() { String::new() } else { format!(" of {group}") };
                self.clients.push(format!("flusher{of}"));
            }
            self.ancestries.push(groups.ancestry(client.group).collect());
        }
        if let Some(last) = self.clients.last_mut().filter(|_| self.journaled) {
            *last = "journal".to_string();
        }
        let stack = controller.stack();
        self.throttles = stack.throttles.len();
        self.places = stack.throttles.iter().map(|stage| stage.row.short.to_string()).collect();
        let scheduler = stack.scheduler.row.name.to_string();
        self.places.extend([
            "tag".to_string(),
            scheduler,
            "flush".to_string(),
            "drive".to_string(),
        ]);
    }
    /// The name of the client with this index.
    pub(super) fn client(&self, index: usize) -> &str {
        self.clients.get(index).map_or("?", String::as_str)
    }
    /// The groups that a client is in, its own first, the root last.
    pub(super) fn ancestry(&self, id: ClientId) -> &[GroupId] {
        self.ancestries.get(id.index()).map_or(&[], Vec::as_slice)
    }
    /// The group with this index: `group tenants/alice`.
    pub(super) fn group(&self, index: usize) -> String {
        match self.groups.get(index).map(String::as_str) {
            None => "a group".to_string(),
            Some("") => "the root group".to_string(),
            Some(name) => format!("group {name}"),
        }
    }
    /// Whether this is the client asked for: it itself or one of that name's processes.
    pub(super) fn is_named(&self, id: ClientId, name: &str) -> bool {
        let own = self.client(id.index());
        own == name || family(own) == name
    }
    /// Place of a stage as the engine counts them.
    pub(super) fn stage(&self, stage: u8) -> usize {
        let stage = usize::from(stage);
        if stage < self.throttles { stage } else { self.scheduler() }
    }
    pub(super) fn tag(&self) -> usize {
        self.throttles
    }
    pub(super) fn scheduler(&self) -> usize {
        self.throttles + 1
    }
    pub(super) fn flush(&self) -> usize {
        self.throttles + 2
    }
    pub(super) fn drive(&self) -> usize {
        self.throttles + 3
    }
    /// Everybody's name, one a client of the experiment.
    pub(super) fn families(&self) -> Vec<&str> {
        distinct(self.clients.iter().map(|name| family(name)))
    }
}
