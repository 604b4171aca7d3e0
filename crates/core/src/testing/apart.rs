//! A rig whose clients lie 2^22 sectors apart, so that a first sector tells whose request it is.

use std::vec::Vec;

use super::{Rig, rule_name};
use crate::contract::Contract;
use crate::controller::Setup;
use crate::id::{ClientId, CommandId, GroupId};
use crate::policy::Table;
use crate::priority::{Class, Priority};
use crate::request::{Flags, Operation};
use crate::time::Nanos;
use crate::trace::EventKind;

/// Sectors of each client's own.
pub const OWN: u64 = 1 << 22;

pub struct World {
    pub rig: Rig,
    /// Each client and where its next request lies.
    clients: Vec<(ClientId, u64)>,
}

impl World {
    /// A stack, with parameters of its scheduler.
    pub fn new(table: &'static Table, stack: &str, set: &[(&str, &str)]) -> Self {
        Self::with(table, stack, set, |_| {})
    }
    pub fn with(
        table: &'static Table,
        stack: &str,
        set: &[(&str, &str)],
        adjust: impl FnOnce(&mut Setup),
    ) -> Self {
        let (_, stage) = stack.split_once('-').expect("policy-scheduler");
        let set: Vec<_> = set.iter().map(|(name, text)| (stage, *name, *text)).collect();
        let rig = Rig::with(table, stack, &set, |setup| {
            (setup.tags, setup.trace) = (2048, 1 << 16);
            adjust(setup);
        });
        Self { rig, clients: Vec::new() }
    }
    pub fn group(&mut self, path: &str, weight: u32) -> GroupId {
        let contract = Contract { weight, ..Contract::default() };
        self.rig.controller.add_group(self.rig.now, path, contract).expect("new")
    }
    /// A client in this group; they count from 0.
    pub fn add_to(&mut self, group: GroupId, class: Class, level: u8) -> usize {
        let index = self.clients.len();
        let priority = Priority { class, level };
        let client = self.rig.controller.add_client(self.rig.now, group, priority);
        self.clients.push((client.expect("the group is there"), OWN * index as u64));
        index
    }
    /// A usual client in this group.
    pub fn usual_in(&mut self, group: GroupId) -> usize {
        self.add_to(group, Class::BestEffort, 4)
    }
    /// A client of this class and level, in a group of its own.
    pub fn add(&mut self, class: Class, level: u8) -> usize {
        let group = self.group(&std::format!("g{}", self.clients.len()), 100);
        self.add_to(group, class, level)
    }
    /// A usual client in a group of its own.
    pub fn usual(&mut self) -> usize {
        self.add(Class::BestEffort, 4)
    }
    pub fn client(&self, index: usize) -> ClientId {
        self.clients[index].0
    }
    /// Where a client goes on.
    pub fn seek(&mut self, index: usize, sector: u64) {
        self.clients[index].1 = sector;
    }
    pub fn send(&mut self, index: usize, operation: Operation, flags: Flags) {
        let (client, start) = self.clients[index];
        self.clients[index].1 += 8;
        self.rig.submit(client, start, operation, flags.with(Flags::NO_MERGE));
    }
    pub fn read(&mut self, index: usize) {
        self.send(index, Operation::Read, Flags::NONE);
    }
    pub fn reads(&mut self, index: usize, count: usize) {
        (0..count).for_each(|_| self.read(index));
    }
    /// Buffered ones.
    pub fn writes(&mut self, index: usize, count: usize) {
        (0..count).for_each(|_| self.send(index, Operation::Write, Flags::NONE));
    }
    pub fn wait(&mut self, micros: u64) {
        self.rig.now += Nanos::from_micros(micros);
    }
    /// Whose request goes to the drive now.
    pub fn dispatch(&mut self) -> Option<(usize, CommandId)> {
        let (id, start) = self.rig.dispatch()?;
        Some(((start / OWN) as usize, id))
    }
    /// Sends one, and completes it so much later.
    pub fn serve(&mut self, micros: u64) -> Option<usize> {
        let (client, id) = self.dispatch()?;
        self.wait(micros);
        self.rig.complete(id);
        Some(client)
    }
    /// As many as the drive gets without a completion.
    pub fn burst(&mut self) -> Vec<(usize, CommandId)> {
        core::iter::from_fn(|| self.dispatch()).collect()
    }
    /// Serves so many requests one by one; runs of the same client are counted.
    pub fn runs(&mut self, requests: usize, micros: u64) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for _ in 0..requests {
            let Some(client) = self.serve(micros) else { break };
            match runs.last_mut().filter(|(last, _)| *last == client) {
                Some((_, count)) => *count += 1,
                None => runs.push((client, 1)),
            }
        }
        runs
    }
    /// Serves all there is and waits for whatever is waited for, until nothing is.
    pub fn drain(&mut self, micros: u64) {
        loop {
            while self.serve(micros).is_some() {}
            let Some(at) = self.rig.controller.next_wakeup() else { break };
            self.rig.now = self.rig.now.max(at);
        }
        assert_eq!(self.rig.controller.pending(), 0, "held, and no wake-up");
    }
    /// A client sends one, gets its completion a millisecond later, thinks, sends the next, and so on.
    pub fn habit(&mut self, index: usize, think_micros: u64, stride: u64) {
        for _ in 0..6 {
            self.read(index);
            assert_eq!(self.serve(1000), Some(index));
            self.clients[index].1 += stride;
            self.wait(think_micros);
        }
    }
    /// How long until the scheduler wants to be asked again.
    pub fn wakes_in(&self) -> Option<u64> {
        let at = self.rig.controller.next_wakeup()?;
        Some(at.since(self.rig.now).as_micros())
    }
    /// Decisions since the last call, each with its first number.
    pub fn decisions(&mut self) -> Vec<(&'static str, u64)> {
        let events = self.rig.controller.trace().drain();
        let rules = events.filter_map(|event| match event.kind {
            EventKind::Decision { rule, values } => Some((rule_name(rule), values[0])),
            _ => None,
        });
        rules.collect()
    }
    pub fn decided(&mut self, rule: &str) -> bool {
        self.decisions().iter().any(|(name, _)| *name == rule)
    }
}
