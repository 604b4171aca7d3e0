//! Clients in steps: those of a step start when all clients of the steps before have ended, and the run ends with the last of
//! them. Runs without steps end when their time is over.

use crate::client::Process;

/// The timer that ends a process, whose number is the slot.
pub(super) const ACTOR: u32 = u32::MAX - 1;

/// Where a run with steps is.
#[derive(Debug)]
pub(super) struct Steps {
    /// Processes by step, the present one first, each list the last of its step first.
    pub(super) later: Vec<Vec<u32>>,
    /// Processes of the present step that have not ended.
    pub(super) running: usize,
    /// Those of them that wait for the end of others.
    pub(super) waiting: Vec<u32>,
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
            later.push(same.iter().map(|process| process.1).collect());
        }
        later.reverse();
        Some(Self { later, running: 0, waiting: Vec::new() })
    }
}
