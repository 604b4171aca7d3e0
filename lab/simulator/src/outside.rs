//! Clients of the lab over an engine and a drive that are not the lab's: the same processes, page cache and files, in
//! the time of whoever has the drive.
//!
//! [`run_outside`] asks an [`Outside`] for three things: the groups and clients of the run there (its [`Roster`]), the
//! time, and completions of requests. Everything that a client decides is decided by the same code as in virtual time,
//! with the same random streams.

mod receiver;

use iofair_core::time::Instant;
use iofair_drive::Drive;

use crate::error::RunError;
use crate::observe::Nobody;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::world::build::build_outside;
use crate::world::spec;
pub use receiver::{Member, Outside, Reply, Roster};

/// The processes of a scenario in order: name, index of the client in the scenario, and start time, which is the same as in
/// the simulator.
pub fn processes(scenario: &Scenario) -> Vec<(String, usize, Instant)> {
    spec::processes(scenario)
}

/// Runs a scenario with an engine and a drive elsewhere; `drive` is only used for its properties. `None` if the run was ended.
pub fn run_outside(
    scenario: &Scenario,
    drive: Box<dyn Drive + Send>,
    outside: &mut dyn Outside,
) -> Result<Option<Outcome>, RunError> {
    if scenario.stripe.is_some() {
        return Err(RunError::Outside("`stripe`: a server has one drive".into()));
    }
    if !scenario.changes.is_empty() {
        return Err(RunError::Outside("`change`: contracts and drives elsewhere stay".into()));
    }
    let mut nobody = Nobody;
    let mut world = build_outside(scenario, drive, &mut nobody, outside)?;
    Ok(world.run_outside().then(|| world.finish()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use iofair_core::controller::Submission;
    use iofair_core::id::ClientId;
    use iofair_core::request::{Flags, Operation};
    use iofair_core::time::Nanos;

    use super::*;
    use crate::outcome::{ClientOutcome, DriveOutcome};
    use crate::scenario::{Job, Pattern};
    use crate::testing::{Fixed, client, job, scenario};

    /// Completes everything 100 us later, a flush 100 us after the write before it, and remembers what was asked.
    #[derive(Default)]
    struct Script {
        now: Instant,
        /// By their time, then in order.
        queue: BTreeMap<(Instant, usize), Reply>,
        written: Instant,
        asked: Vec<Submission>,
        roster: Option<Roster>,
        measured: DriveOutcome,
        /// Ends the run then.
        over: Option<Instant>,
    }

    impl Outside for Script {
        fn open(&mut self, roster: Roster) -> Result<(), String> {
            self.roster = Some(roster);
            Ok(())
        }
        fn wait(&mut self, until: Instant) -> Option<Instant> {
            let next = self.queue.first_key_value().map_or(until, |((at, _), _)| until.min(*at));
            self.now = self.now.max(next);
            self.over.is_none_or(|over| self.now < over).then_some(self.now)
        }
        fn submit(&mut self, submission: &Submission) {
            let Submission { tag, length, operation, .. } = *submission;
            let takes = Nanos::from_micros(100);
            let at = match operation {
                Operation::Flush => self.now.max(self.written) + takes,
                _ => self.now + takes,
            };
            self.written = if operation == Operation::Write { at } else { self.written };
            self.queue.insert((at, self.asked.len()), Reply { tag, length });
            self.asked.push(*submission);
        }
        fn send(&mut self) {}
        fn collect(&mut self, replies: &mut Vec<Reply>) {
            while let Some(first) =
                self.queue.first_entry().filter(|entry| entry.key().0 <= self.now)
            {
                let reply = first.remove();
                self.measured.read_bytes += reply.length.bytes();
                replies.push(reply);
            }
        }
        fn is_asleep(&self, _: ClientId) -> bool {
            false
        }
        fn end_ramp(&mut self) {
            self.measured = DriveOutcome::default();
        }
        fn measured(&mut self) -> DriveOutcome {
            self.measured.clone()
        }
    }

    fn fixed() -> Box<dyn Drive + Send> {
        Box::new(Fixed::new(Nanos::from_micros(100), None))
    }

    /// Goal: over a drive elsewhere that takes as long as the lab's, clients do and measure the same. Method: readers
    /// and a writer with fdatasync over a drive of 100 us; outcomes of both worlds compared.
    #[test]
    fn clients_behave_alike_over_an_outside_drive() {
        let writer = Job { fdatasync_every: 4, ..job(Pattern::SequentialWrite, 4, true) };
        let random = client("random", job(Pattern::RandomRead, 4, false));
        let sequential = client("sequential", job(Pattern::SequentialRead, 4, true));
        let clients = vec![random, client("writer", writer), sequential];
        let run = scenario(clients, Nanos::from_millis(100));
        let inside = crate::simulate_on(&run, fixed(), &mut Nobody).unwrap();
        let mut script = Script::default();
        let outside = run_outside(&run, fixed(), &mut script).unwrap().expect("nobody ended it");
        let numbers = |client: &ClientOutcome| {
            let ClientOutcome { bytes, calls, latency, sync_latency, .. } = client;
            (*bytes, *calls, latency.mean(), latency.max(), sync_latency.mean())
        };
        let all = |outcome: &Outcome| outcome.clients.iter().map(numbers).collect::<Vec<_>>();
        assert_eq!(all(&inside), all(&outside));
        assert!(outside.clients.iter().all(|client| client.bytes > 0));
        assert!(script.asked.iter().any(|request| request.operation == Operation::Flush));
        let members = script.roster.unwrap().members;
        assert_eq!(members.len(), 4, "three processes and a flusher");
        assert!(members[1].writes.has(Flags::SYNC), "what fdatasync writes is waited for");
        assert!(!members[3].writes.has(Flags::SYNC), "and nobody waits for the flusher");
    }

    /// Goal: a run can be ended. Method: in the middle.
    #[test]
    fn a_run_can_be_ended() {
        let reader = client("a", job(Pattern::RandomRead, 4, false));
        let run = scenario(vec![reader], Nanos::from_millis(100));
        let over = Some(Instant::ZERO + Nanos::from_millis(50));
        let mut script = Script { over, ..Script::default() };
        assert!(run_outside(&run, fixed(), &mut script).unwrap().is_none());
    }
}
