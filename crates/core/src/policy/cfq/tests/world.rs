//! A rig whose clients lie 2^22 sectors apart, so that a first sector tells whose request it is.

use std::vec::Vec;

use crate::contract::Contract;
use crate::controller::Setup;
use crate::group::{Class, ClientId, Priority};
use crate::policy::testing::Rig;
use crate::request::{Flags, Operation, RequestId};
use crate::time::Nanos;
use crate::trace::EventKind;

/// Sectors of each client's own.
pub(super) const OWN: u64 = 1 << 22;

pub(super) struct World {
    pub(super) rig: Rig,
    /// Each client and where its next request lies.
    clients: Vec<(ClientId, u64)>,
}

impl World {
    pub(super) fn new(set: &[(&str, &str)]) -> Self {
        Self::with(set, |_| {})
    }
    pub(super) fn with(set: &[(&str, &str)], adjust: impl FnOnce(&mut Setup)) -> Self {
        let set: Vec<_> = set.iter().map(|(name, text)| ("cfq", *name, *text)).collect();
        let rig = Rig::with("none-cfq", &set, |setup| {
            (setup.tags, setup.trace) = (2048, 1 << 16);
            adjust(setup);
        });
        Self { rig, clients: Vec::new() }
    }
    /// A client of this class and level; they count from 0.
    pub(super) fn add(&mut self, class: Class, level: u8) -> usize {
        let index = self.clients.len();
        let path = std::format!("g{index}");
        let controller = &mut self.rig.controller;
        let group = controller.add_group(self.rig.now, &path, Contract::default()).expect("new");
        let priority = Priority { class, level };
        let client = controller.add_client(self.rig.now, group, priority).expect("there");
        self.clients.push((client, OWN * index as u64));
        index
    }
    pub(super) fn usual(&mut self) -> usize {
        self.add(Class::BestEffort, 4)
    }
    pub(super) fn client(&self, index: usize) -> ClientId {
        self.clients[index].0
    }
    /// Where a client goes on.
    pub(super) fn seek(&mut self, index: usize, sector: u64) {
        self.clients[index].1 = sector;
    }
    pub(super) fn send(&mut self, index: usize, operation: Operation, flags: Flags) {
        let (client, start) = self.clients[index];
        self.clients[index].1 += 8;
        self.rig.submit(client, start, operation, flags.with(Flags::NO_MERGE));
    }
    pub(super) fn read(&mut self, index: usize) {
        self.send(index, Operation::Read, Flags::NONE);
    }
    pub(super) fn reads(&mut self, index: usize, count: usize) {
        (0..count).for_each(|_| self.read(index));
    }
    /// Buffered ones.
    pub(super) fn writes(&mut self, index: usize, count: usize) {
        (0..count).for_each(|_| self.send(index, Operation::Write, Flags::NONE));
    }
    pub(super) fn wait(&mut self, micros: u64) {
        self.rig.now += Nanos::from_micros(micros);
    }
    /// Whose request goes to the drive now.
    pub(super) fn dispatch(&mut self) -> Option<(usize, RequestId)> {
        let (id, start) = self.rig.dispatch()?;
        Some(((start / OWN) as usize, id))
    }
    /// Sends one, and answers it so much later.
    pub(super) fn serve(&mut self, micros: u64) -> Option<usize> {
        let (client, id) = self.dispatch()?;
        self.wait(micros);
        self.rig.complete(id);
        Some(client)
    }
    /// As many as the drive gets without an answer.
    pub(super) fn burst(&mut self) -> Vec<(usize, RequestId)> {
        core::iter::from_fn(|| self.dispatch()).collect()
    }
    /// Serves so many requests one by one; runs of the same client are counted.
    pub(super) fn runs(&mut self, requests: usize, micros: u64) -> Vec<(usize, usize)> {
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
    /// A client sends one, gets its answer a millisecond later, thinks, sends the next, and so on.
    pub(super) fn habit(&mut self, index: usize, think_micros: u64, stride: u64) {
        for _ in 0..6 {
            self.read(index);
            assert_eq!(self.serve(1000), Some(index));
            self.clients[index].1 += stride;
            self.wait(think_micros);
        }
    }
    /// How long until the scheduler wants to be asked again.
    pub(super) fn wakes_in(&self) -> Option<u64> {
        let at = self.rig.controller.next_wakeup()?;
        Some(at.since(self.rig.now).as_micros())
    }
    /// Decisions since the last call, and its first number.
    pub(super) fn decisions(&mut self) -> Vec<(&'static str, u64)> {
        let events = self.rig.controller.trace().drain();
        let rules = events.filter_map(|event| match event.kind {
            EventKind::Decision { rule, values } => Some((rule, values[0])),
            _ => None,
        });
        rules.collect()
    }
    pub(super) fn decided(&mut self, rule: &str) -> bool {
        self.decisions().iter().any(|(name, _)| *name == rule)
    }
}
