//! A controller and its drive, and when the controller is asked for commands.

use iofair_core::controller::{Completion, Controller};
use iofair_core::id::{CommandId, RequestId};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_drive::random::Random;
use iofair_drive::{Done, Drive};

use crate::observe::Observer;
use crate::scenario::Scheduling;

/// The properties of a command, by its request's slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) command: CommandId,
    pub(super) operation: Operation,
    pub(super) bytes: u64,
    /// Whether it is read into new pages of the page cache.
    pub(super) new_pages: bool,
}

/// A controller and its drive. A stripe controlled at its leaves has several.
pub(crate) struct Device {
    pub(crate) controller: Controller,
    pub(crate) drive: Box<dyn Drive + Send>,
    pub(super) sent: Vec<Sent>,
    /// When to call the controller's `dispatch`, because a request was submitted or completed since the last call.
    pub(super) run_at: Option<Instant>,
    /// Time of a request in the scheduler, under its lock, and when the lock is free.
    scheduler_time: Nanos,
    free_at: Instant,
    dispatcher: Option<Dispatcher>,
    /// Whether `dispatch` is called after every completion, or only after some.
    on_completion: bool,
    /// Commands in the drive, flushes apart.
    in_drive: u32,
    /// A scheduler that holds back requests is asked again at the second of these ticks; zero: not.
    again: Nanos,
    pub(super) again_at: Option<Instant>,
}

/// The thread that calls `dispatch` after a completion.
pub(crate) struct Dispatcher {
    pub(crate) wakeup: Nanos,
    pub(crate) spread: u32,
    pub(crate) random: Random,
}

impl Device {
    pub(crate) fn new(controller: Controller, drive: Box<dyn Drive + Send>) -> Self {
        Self {
            controller,
            drive,
            sent: Vec::new(),
            run_at: None,
            scheduler_time: Nanos::ZERO,
            free_at: Instant::ZERO,
            dispatcher: None,
            on_completion: true,
            in_drive: 0,
            again: Nanos::ZERO,
            again_at: None,
        }
    }
    /// Sets the cost of its scheduler.
    pub(crate) fn with_cost(mut self, time: Nanos, dispatcher: Option<Dispatcher>) -> Self {
        (self.scheduler_time, self.dispatcher) = (time, dispatcher);
        self
    }
    /// Sets when `dispatch` is called.
    pub(crate) fn with_scheduling(mut self, scheduling: &Scheduling) -> Self {
        (self.on_completion, self.again) = (scheduling.on_completion, scheduling.again);
        self
    }
    pub(super) fn run_by(&mut self, at: Instant) {
        self.run_at = Some(self.run_at.map_or(at, |known| known.min(at)));
    }
    /// A request was submitted: it takes its time in the scheduler, after the requests before it.
    pub(super) fn on_submitted(&mut self, now: Instant) {
        self.free_at = self.free_at.max(now) + self.scheduler_time;
        self.run_by(self.free_at);
    }
    /// A command goes to the drive.
    pub(super) fn on_dispatched(&mut self, RequestId(slot): RequestId, sent: Sent) {
        if slot as usize >= self.sent.len() {
            self.sent.resize(slot as usize + 1, sent);
        }
        self.sent[slot as usize] = sent;
        self.in_drive += u32::from(sent.operation != Operation::Flush);
    }
    /// The drive completed a command. (A flush bypasses the scheduler, and blk-mq runs the queue at the next completion after
    /// it.)
    pub(super) fn complete(
        &mut self,
        now: Instant,
        done: &Done,
        completions: &mut Vec<Completion>,
    ) {
        let Sent { command, operation, .. } = self.sent[done.id as usize];
        let idled_until = self.controller.next_wakeup();
        let result = self.controller.complete(now, command, done.status, completions);
        result.expect("the drive has it");
        let is_flush = operation == Operation::Flush;
        self.in_drive -= u32::from(!is_flush);
        if !self.on_completion && !is_flush && !self.runs_queue(idled_until) {
            return;
        }
        let late = self.dispatcher.as_mut().map_or(Nanos::ZERO, |thread| {
            Nanos(thread.random.around(thread.wakeup.0, thread.spread))
        });
        self.run_by((now + late).max(self.free_at));
    }
    /// Whether the kernel runs the queue after a completion although its driver does not: the drive was full, something waits
    /// outside of the scheduler, or the scheduler runs it. BFQ does so only if the drive is empty and it did not begin to idle;
    /// before the completion it idled until `idled_until`.
    fn runs_queue(&self, idled_until: Option<Instant>) -> bool {
        let controller = &self.controller;
        let was_full = controller.in_flight() + 1 >= controller.facts().depth;
        let stack = controller.stack();
        let is_bfq = stack.scheduler.row.name.starts_with("bfq");
        let until = controller.next_wakeup();
        let begins_to_idle = until.is_some() && until != idled_until;
        was_full
            || controller.has_waiting()
            || !stack.throttles.is_empty()
            || !is_bfq
            || (self.in_drive == 0 && !begins_to_idle)
    }
    /// The scheduler held back what waits, at once or after it sent something: the kernel's queue runs again at the second tick
    /// from now. A run that sends nothing leaves that time as it is. One that sends something starts it anew: in a trace
    /// of Linux 6.18 (block_rq_issue, workqueue_queue_work) each request is followed by a run of the queue 3 us later, which
    /// takes the place of the one that was due.
    pub(super) fn ask_again(&mut self, now: Instant, sent: bool) {
        let waits = self.controller.pending() > self.controller.in_flight() as usize;
        if sent {
            self.again_at = None;
        }
        if self.again > Nanos::ZERO && waits && self.again_at.is_none() {
            self.again_at = Some(Instant((now.0 / self.again.0 + 2) * self.again.0));
        }
    }
    /// Tells the observer what has passed the throttles, and passes the controller's events to it, often enough that the ring
    /// never fills.
    pub(super) fn hand_on(&mut self, now: Instant, traced: bool, observer: &mut dyn Observer) {
        while let Some(passed) = self.controller.next_passed() {
            observer.on_passed(now, &passed);
        }
        if traced {
            for event in self.controller.trace().drain() {
                observer.on_event(&event);
            }
        }
    }
    /// When `dispatch` is called next, if nothing happens before.
    pub(super) fn next_dispatch(&self) -> Instant {
        let times = [self.run_at, self.controller.next_wakeup(), self.again_at];
        times.into_iter().flatten().min().unwrap_or(Instant::MAX)
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::contract::Contract;
    use iofair_core::controller::{FlushRule, Setup, Submission};
    use iofair_core::id::ClientId;
    use iofair_core::priority::Priority;
    use iofair_core::request::Flags;
    use iofair_core::unit::Sectors;

    use super::*;
    use crate::testing::Fixed;

    /// Submits a request and dispatches what may be; returns the slots of the commands.
    fn send(device: &mut Device, client: ClientId, operation: Operation, start: u64) -> Vec<u32> {
        let (flags, start, length) = (Flags::NO_MERGE, Sectors(start), Sectors(8));
        let submission = Submission { tag: 0, client, operation, flags, start, length };
        device.controller.submit(Instant::ZERO, submission).unwrap();
        let mut slots = Vec::new();
        while let Some(dispatch) = device.controller.dispatch(Instant::ZERO) {
            let (command, operation) = (dispatch.command, dispatch.operation);
            let sent = Sent { command, operation, bytes: 4096, new_pages: false };
            device.on_dispatched(dispatch.id, sent);
            slots.push(dispatch.id.0);
        }
        slots
    }
    /// Whether the queue runs after the completion of a command.
    fn runs_after(device: &mut Device, id: u32) -> bool {
        let done = Done { id, at: Instant::ZERO, status: 0 };
        device.complete(Instant::ZERO, &done, &mut Vec::new());
        device.run_at.take().is_some()
    }

    /// Goal: where the driver does not run the queue, a completion brings about a dispatch by itself when it leaves the drive
    /// empty and BFQ does not wait for its queue, or when the drive was full. Method: single completions, by hand.
    #[test]
    fn bfq_runs_the_queue_of_an_empty_drive() {
        let drive = Fixed::new(Nanos(100_000), None);
        let (facts, tags, queue_limit, guaranteed) = (drive.facts, 1024, 1024, 0);
        let (client_limit, flushes, trace) = (u32::MAX, FlushRule::Bypass, 0);
        let setup = Setup { facts, tags, queue_limit, guaranteed, client_limit, flushes, trace };
        let mut stack = iofair_policies::TABLE.stack("prop-bfq").unwrap();
        for (parameter, value) in [("low_latency", "false"), ("max_budget", "16384")] {
            stack.set("bfq", parameter, value).unwrap();
        }
        let mut controller = Controller::new(setup, stack);
        let [a, b] = ["a", "b"].map(|name| {
            let group = controller.add_group(Instant::ZERO, name, Contract::default()).unwrap();
            controller.add_client(Instant::ZERO, group, Priority::default()).unwrap()
        });
        let scheduling = Scheduling { on_completion: false, ..Scheduling::FREE };
        let mut device = Device::new(controller, Box::new(drive)).with_scheduling(&scheduling);
        let first = send(&mut device, b, Operation::Write, 0);
        let second = send(&mut device, b, Operation::Write, 1 << 20);
        assert!(!runs_after(&mut device, first[0]), "the drive has another one");
        assert!(runs_after(&mut device, second[0]));
        let read = send(&mut device, a, Operation::Read, 0);
        assert!(!runs_after(&mut device, read[0]), "it is waited for");
        assert!(device.controller.next_wakeup().is_some());
        let sent: Vec<u32> =
            (0..32).flat_map(|i| send(&mut device, a, Operation::Read, 8 * i)).collect();
        assert_eq!(sent.len(), 32, "as many as the drive takes");
        assert!(runs_after(&mut device, sent[0]), "there was no room");
        assert!(!runs_after(&mut device, sent[1]));
    }
}
