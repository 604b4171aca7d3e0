//! Watching a run from outside: progress, every step between world and engine, the engine's trace.
//!
//! A stripe controlled at its leaves has several engines, whose requests share ids.
//!
//! An observer changes nothing. [`Recorder`] keeps the list of steps, which a server's reactor with a
//! scripted clock can be made to repeat.

use iofair_core::controller::{Completion, Controller, Dispatch, Setup, Submission};
use iofair_core::id::{ClientId, RequestId};
use iofair_core::time::Instant;
use iofair_core::trace::Event;

/// An observer of a run. Every method has an empty default.
pub trait Observer {
    /// How many trace events the engine keeps between two steps; 0 leaves the trace off.
    fn trace_events(&self) -> usize {
        0
    }
    /// The engine is built, with all groups and clients.
    fn on_start(&mut self, setup: &Setup, controller: &Controller) {
        let _ = (setup, controller);
    }
    /// The step of a process begins, whose requests as these clients are measured from a time on. Processes without a step are
    /// measured from the end of the scenario's warm-up on.
    fn on_step(&mut self, clients: &[ClientId], measured_from: Instant) {
        let _ = (clients, measured_from);
    }
    /// Virtual time went on; called about a hundred times a run, at last when it has ended.
    fn on_progress(&mut self, now: Instant, end: Instant) {
        let _ = (now, end);
    }
    /// A request went into the engine.
    fn on_submit(&mut self, now: Instant, submission: &Submission) {
        let _ = (now, submission);
    }
    /// Whether it is told of requests that have passed the throttles.
    fn wants_passed(&self) -> bool {
        false
    }
    /// A request has passed all throttles (only with [`Self::wants_passed`]).
    fn on_passed(&mut self, now: Instant, submission: &Submission) {
        let _ = (now, submission);
    }
    /// The engine was asked for work and gave a command.
    fn on_dispatch(&mut self, now: Instant, dispatch: &Dispatch) {
        let _ = (now, dispatch);
    }
    /// The engine was asked for work and gave no (more) command.
    fn on_hold(&mut self, now: Instant) {
        let _ = now;
    }
    /// The drive completed a command.
    fn on_command_completion(&mut self, now: Instant, id: RequestId, status: i32) {
        let _ = (now, id, status);
    }
    /// A submission is complete; one command may complete several.
    fn on_completion(&mut self, now: Instant, completion: &Completion) {
        let _ = (now, completion);
    }
    /// The engine explained itself (only with [`Self::trace_events`] above zero).
    fn on_event(&mut self, event: &Event) {
        let _ = event;
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Nobody;

impl Observer for Nobody {}

/// One call of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// `submit`.
    Submit(Instant, Submission),
    /// `complete`.
    Completion(Instant, RequestId, i32),
    /// `dispatch`, with its result.
    Dispatch(Instant, Option<Dispatch>),
}

/// Keeps every step.
#[derive(Clone, Default, Debug)]
pub struct Recorder {
    /// In order.
    pub steps: Vec<Step>,
}

impl Observer for Recorder {
    fn on_submit(&mut self, now: Instant, submission: &Submission) {
        self.steps.push(Step::Submit(now, *submission));
    }
    fn on_dispatch(&mut self, now: Instant, dispatch: &Dispatch) {
        self.steps.push(Step::Dispatch(now, Some(*dispatch)));
    }
    fn on_hold(&mut self, now: Instant) {
        self.steps.push(Step::Dispatch(now, None));
    }
    fn on_command_completion(&mut self, now: Instant, id: RequestId, status: i32) {
        self.steps.push(Step::Completion(now, id, status));
    }
}
