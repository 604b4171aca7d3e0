//! The world of one run: processes above the page cache, above the engine, above the drive.
//!
//! ```text
//! process ─▶ page cache ─▶ controller ─▶ drive
//!    ▲            (crate::engine holds these two, the clock and the timers)
//!    └─────────────────────── completions ◀┘
//! ```
//!
//! [`World::step`] jumps to the next event: first the drive completes commands, then completions reach their
//! processes, then timers fire, then the engine is asked for commands. [`World::run_outside`] does the same at the
//! instants at which a drive outside completes them. Files belong to the processes in
//! order: process number i has file i.

pub(crate) mod build;
mod changes;
mod controllers;
pub(crate) mod journal;
mod lifecycle;
mod processes;
mod roster;
pub(crate) mod spec;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
mod writeback;

use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::stats::histogram::Histogram;
use iofair_core::time::{Instant, Nanos};

use crate::cache::Cache;
use crate::client::Process;
use crate::client::base::SlotCompletion;
use crate::engine::Engine;
use crate::outcome::{ClientOutcome, Outcome};
use crate::scenario::{GroupSpec, Scenario};
use crate::sim::{ActorCompletion, Token};
use changes::Changes;
use journal::Journal;
use steps::Steps;

/// Steps without progress in time after which a run is declared stuck: more than any real burst.
const STEPS_AT_ONCE_MAX: u32 = 10_000_000;
/// Progress is reported this often in a run.
const PROGRESS_REPORTS: u64 = 100;

/// Everything of one run.
pub(crate) struct World<'a> {
    pub(crate) engine: Engine<'a>,
    pub(crate) cache: Cache,
    pub(crate) processes: Vec<Process>,
    journal: Option<Journal>,
    completions: Vec<ActorCompletion>,
    ramp_end: Instant,
    end: Instant,
    ramp_over: bool,
    steps_at_once: u32,
    /// Weights of the groups as the scenario has them.
    weights: Vec<(String, u32)>,
    /// Contracts that change, one list a timer.
    changes: Changes,
    interval: Option<Nanos>,
    /// Where the run is, if its clients are in steps, and whether the last step is over.
    steps: Option<Steps>,
    over: bool,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        engine: Engine<'a>,
        cache: Cache,
        processes: Vec<Process>,
        scenario: &Scenario,
    ) -> Self {
        let ramp_end = Instant::ZERO + scenario.ramp;
        let weight = |group: &GroupSpec| (group.name.clone(), group.contract.weight);
        let steps = Steps::new(&processes);
        let mut this = Self {
            weights: scenario.groups.iter().map(weight).collect(),
            engine,
            cache,
            processes,
            journal: None,
            completions: Vec::new(),
            ramp_end,
            end: ramp_end + scenario.time,
            ramp_over: false,
            steps_at_once: 0,
            changes: Changes::default(),
            interval: scenario.interval,
            steps,
            over: false,
        };
        this.start_step();
        this
    }

    /// Runs to the end.
    pub(crate) fn run(&mut self) {
        let every = self.end.0 / PROGRESS_REPORTS + 1;
        let mut report_at = Instant(every);
        while self.step() {
            if self.engine.now >= report_at {
                self.engine.report_progress(self.end);
                report_at = Instant((self.engine.now.0 / every + 1) * every);
            }
        }
        self.engine.report_progress(self.end);
    }

    /// Goes to the next event; `false` when there is none before the end.
    pub(crate) fn step(&mut self) -> bool {
        if self.over {
            self.end = self.engine.now;
            return false;
        }
        // The drive may not run on beyond the end of the warm-up before that is measured.
        let limit = if self.ramp_over { self.end } else { self.ramp_end.min(self.end) };
        let Some(at) = self.engine.next_event(limit) else {
            let goes_on = !self.ramp_over;
            self.end_ramp();
            self.engine.now = limit;
            return goes_on;
        };
        self.steps_at_once = if at > self.engine.now { 0 } else { self.steps_at_once + 1 };
        assert!(self.steps_at_once < STEPS_AT_ONCE_MAX, "time stands still at {at:?}");
        self.step_at(at);
        true
    }
    /// Runs to the end in the time of where the drive is; `false` when that was over earlier.
    pub(crate) fn run_outside(&mut self) -> bool {
        loop {
            let next = self.engine.next_event(self.end).unwrap_or(self.end);
            let Some(now) = self.engine.wait(next) else { return false };
            self.step_at(now.min(self.end));
            if self.over {
                self.end = self.end.min(now);
            }
            if now >= self.end {
                return true;
            }
        }
    }

    /// Everything that happens at one instant.
    fn step_at(&mut self, at: Instant) {
        self.advance_to(at);
        let mut completions = std::mem::take(&mut self.completions);
        self.engine.collect(&mut completions);
        for completion in completions.drain(..) {
            self.deliver(completion);
        }
        self.completions = completions;
        while let Some(token) = self.engine.timers.pop_due(at) {
            self.wake(token);
        }
        self.note_ended();
        if let Some(journal) = &mut self.journal {
            journal.collect(&mut self.engine);
        }
        self.engine.pump();
        self.cache.go_on(&mut self.engine);
    }

    fn advance_to(&mut self, at: Instant) {
        if at > self.ramp_end {
            self.end_ramp();
        }
        self.engine.now = at;
    }
    fn end_ramp(&mut self) {
        if !self.ramp_over {
            self.ramp_over = true;
            self.engine.end_ramp();
        }
    }

    fn deliver(
        &mut self,
        ActorCompletion { token: Token { actor, slot }, length }: ActorCompletion,
    ) {
        let owner = if self.cache.is_flusher(actor) { slot } else { actor };
        if let Some(owner) = self.processes.get_mut(owner as usize) {
            owner.base.tally.count_drive(self.engine.now, length.bytes());
        }
        match self.processes.get_mut(actor as usize) {
            Some(process) => {
                process.on_done(&mut self.engine, &mut self.cache, SlotCompletion { slot, length });
            }
            None if self.cache.is_flusher(actor) => {
                self.cache.on_done(actor, length, &mut self.engine);
            }
            None => {
                let journal = self.journal.as_mut().expect("the last actor is the journal");
                journal.on_done(&mut self.engine);
            }
        }
    }

    fn wake(&mut self, token: Token) {
        if token.actor == changes::ACTOR {
            return self.changes.apply(token.slot, &mut self.engine);
        }
        if token.actor == steps::ACTOR {
            return self.end_process(token.slot);
        }
        match self.processes.get_mut(token.actor as usize) {
            Some(process) => process.on_timer(&mut self.engine, &mut self.cache, token.slot),
            None => self.cache.on_timer(token, &mut self.engine),
        }
    }

    /// What was measured.
    pub(crate) fn finish(self) -> Outcome {
        let time = self.end.since(self.ramp_end);
        let (mut drive, trace_hash, simulated_requests) = self.engine.finish();
        if let Some(interval) = self.interval {
            drive.series.resize(time.0.div_ceil(interval.0.max(1)) as usize, 0);
        }
        let weights = self.weights;
        let clients = self.processes.into_iter().map(|process| {
            let (name, group) = (process.name.clone(), process.group.clone());
            let (depth, end) = (process.depth_found(), Self::end_of(&process, self.end));
            let (step, too_slow) = (process.base.step, process.base.too_slow);
            let tally = process.into_tally(self.end);
            let mut latency = Histogram::new();
            tally.sides.iter().for_each(|side| latency.merge(&side.latency));
            let written = weights.iter().find(|(name, _)| *name == group);
            ClientOutcome {
                name,
                weight: written.map_or(WEIGHT_DEFAULT, |(_, weight)| *weight),
                group,
                bytes: tally.sides.iter().map(|side| side.bytes).sum(),
                drive_bytes: Some(tally.drive_bytes),
                calls: tally.calls(),
                latency,
                series: tally.series(end),
                time: step.map_or(Nanos::ZERO, |_| end.since(tally.after())),
                sync_latency: tally.sync_latency,
                directions: tally.sides,
                depth,
                too_slow,
            }
        });
        let (clients, requests) = (clients.collect(), Vec::new());
        Outcome { time, clients, drive, trace_hash, simulated_requests, requests }
    }
}
