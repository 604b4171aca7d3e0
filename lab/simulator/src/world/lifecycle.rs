//! The begin and the end of processes in steps: see [`super::steps`].

use iofair_core::time::Instant;

use super::World;
use super::steps::ACTOR;
use crate::client::Process;
use crate::scenario::{Exit, Step};
use crate::sim::Token;

impl World<'_> {
    /// Starts the next step now; `false` if there is none.
    pub(super) fn start_step(&mut self) -> bool {
        let Some(actors) = self.steps.as_mut().and_then(|steps| steps.later.pop()) else {
            return false;
        };
        if let Some(steps) = &mut self.steps {
            steps.running = actors.len();
        }
        self.start_processes(actors);
        true
    }
    /// Starts processes, those that wait for others when these have ended.
    fn start_processes(&mut self, actors: Vec<u32>) {
        // Clones of a job wait for the same processes.
        let mut known = ((0, 0), false);
        for actor in actors {
            let process = &self.processes[actor as usize];
            let awaited = process.base.step.and_then(|step| step.after).unwrap_or_default();
            if known.0 != awaited {
                let mut range = awaited.0..awaited.0 + awaited.1;
                let runs =
                    range.any(|process| self.processes[process as usize].base.ended.is_none());
                known = (awaited, runs);
            }
            if known.1 {
                self.steps.as_mut().expect("a step runs").waiting.push(actor);
                continue;
            }
            process.base.invalidate(&self.engine, &mut self.cache);
            let process = &mut self.processes[actor as usize];
            let (start, ramp_end) = process.base.begin_step(self.engine.now);
            self.engine.report_step(&[process.base.client, process.base.urgent], ramp_end);
            for slot in 0..process.slots() {
                self.engine.wake(start, Token { actor, slot });
            }
        }
    }
    /// Takes note of processes that have made their last call.
    pub(super) fn note_ended(&mut self) {
        while let Some((actor, at)) = self.engine.ended.pop() {
            match at > self.engine.now {
                true => self.engine.wake(at, Token { actor: ACTOR, slot: actor }),
                false => self.end_process(actor),
            }
        }
    }
    /// A process has ended: maybe others end with it or begin after it, maybe its step has ended, too, and maybe the run.
    pub(super) fn end_process(&mut self, actor: u32) {
        let now = self.engine.now;
        let base = &mut self.processes[actor as usize].base;
        if base.ended.is_some() {
            return;
        }
        base.ended = Some(now);
        let step = base.step;
        let Some(steps) = &mut self.steps else { return };
        steps.running -= 1;
        if let Some((step, exit)) = step.and_then(|step| Some((step, step.exit?))) {
            self.stop_others(step, exit);
        }
        let waiting = self.steps.as_mut().map(|steps| std::mem::take(&mut steps.waiting));
        self.start_processes(waiting.unwrap_or_default());
        if self.steps.as_ref().is_some_and(|steps| steps.running == 0) && !self.start_step() {
            self.over = true;
        }
    }
    /// Ends other processes at once. What they have in flight is completed, and does not count.
    fn stop_others(&mut self, step: Step, exit: Exit) {
        let now = self.engine.now;
        let steps = self.steps.as_mut().expect("a step runs");
        if exit == Exit::All {
            steps.later.clear();
        }
        for process in self.processes.iter_mut().map(|process| &mut process.base) {
            let own = process.step.filter(|own| own.number == step.number);
            let own = own.filter(|_| process.ended.is_none());
            let same = own.is_some_and(|own| exit != Exit::Group || own.group == step.group);
            if same {
                process.stop_now(now);
                steps.running -= 1;
                steps.waiting.retain(|actor| *actor != process.actor);
            }
        }
    }
    /// When a process ended, or the run.
    pub(super) fn end_of(process: &Process, end: Instant) -> Instant {
        process.base.ended.unwrap_or(end)
    }
}
