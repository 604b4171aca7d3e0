//! Clients in steps: those of a step start when all clients of the steps before have ended, and the run ends with the last of
//! them. Runs without steps end when their time is over.

use iofair_core::time::Instant;

use super::World;
use crate::client::Process;
use crate::sim::Token;

/// The timer that ends a process, whose number is the slot.
pub(super) const ACTOR: u32 = u32::MAX - 1;

/// Where a run with steps is.
#[derive(Debug)]
pub(super) struct Steps {
    /// Processes by step, the present one first, each list the last of its step first.
    later: Vec<Vec<u32>>,
    /// Processes of the present step that have not ended.
    running: usize,
}

impl Steps {
    /// `None` if no client has a step.
    pub(super) fn new(processes: &[Process]) -> Option<Self> {
        let mut steps: Vec<(u32, u32)> = Vec::new();
        for process in processes {
            steps.push((process.base.step?.number, process.base.actor));
        }
        steps.sort_unstable();
        let mut later: Vec<Vec<u32>> = Vec::new();
        for same in steps.chunk_by(|a, b| a.0 == b.0) {
            later.push(same.iter().map(|it| it.1).collect());
        }
        later.reverse();
        Some(Self { later, running: 0 })
    }
}

impl World<'_> {
    /// Starts the next step now; `false` if there is none.
    pub(super) fn start_step(&mut self) -> bool {
        let Some(actors) = self.steps.as_mut().and_then(|steps| steps.later.pop()) else {
            return false;
        };
        if let Some(steps) = &mut self.steps {
            steps.running = actors.len();
        }
        for actor in actors {
            let process = &mut self.processes[actor as usize];
            let start = process.base.begin_step(self.engine.now);
            for slot in 0..process.slots() {
                self.engine.wake(start, Token { actor, slot });
            }
        }
        true
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
    /// A process has ended: maybe its step has, too, and maybe the run.
    pub(super) fn end_process(&mut self, actor: u32) {
        self.processes[actor as usize].base.ended = Some(self.engine.now);
        let Some(steps) = &mut self.steps else { return };
        steps.running -= 1;
        if steps.running == 0 && !self.start_step() {
            self.over = true;
        }
    }
    /// When a process ended, or the run.
    pub(super) fn end_of(process: &Process, end: Instant) -> Instant {
        process.base.ended.unwrap_or(end)
    }
}
