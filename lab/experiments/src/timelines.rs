//! Single requests of a run: how long each was held before the scheduler, waited in it, and was in the drive.
//!
//! For each process, the longest requests are kept, and a random sample. That is all that an observer of a run keeps,
//! whatever its length.

use iofair_core::controller::Completion;
use iofair_core::time::Instant;
use iofair_drive::random::Random;
use iofair_simulator::observe::Observer;
use iofair_simulator::outcome::{Outcome, Timeline};
use iofair_simulator::outside::processes;
use iofair_simulator::scenario::Scenario;
use iofair_simulator::{RunError, Token, simulate_with};

/// Requests of each kind that are kept of a process.
const KEPT: usize = 4;
/// Most processes whose requests are kept.
const PROCESSES_MAX: usize = 256;
/// The stream of random numbers of the choice.
const STREAM: u64 = 1 << 41;

/// The requests of one process.
#[derive(Clone, Default)]
struct Kept {
    /// Longest first.
    longest: Vec<Timeline>,
    chosen: Vec<Timeline>,
    seen: u64,
}

/// Keeps requests.
struct Keeper {
    from: Instant,
    names: Vec<String>,
    processes: Vec<Kept>,
    random: Random,
}

impl Observer for Keeper {
    fn on_completion(&mut self, _: Instant, done: &Completion) {
        let Token { actor, slot } = Token::unpack(done.part.tag);
        let submitted = done.part.submitted;
        if submitted < self.from {
            return;
        }
        // What the flusher writes has its owner in the place of the slot.
        let written_back = actor as usize >= self.names.len();
        let owner = if written_back { slot } else { actor } as usize;
        let Some(kept) = self.processes.get_mut(owner) else { return };
        let released = done.released.max(submitted);
        let dispatched = done.dispatched.max(released);
        let timeline = Timeline {
            // Given when the run has ended, so that a request allocates nothing.
            process: String::new(),
            written_back,
            operation: done.operation,
            bytes: done.part.length.bytes(),
            submitted: submitted.since(self.from),
            throttled: released.since(submitted),
            scheduled: dispatched.since(released),
            served: done.completed.since(dispatched),
            is_longest: false,
        };
        kept.add(timeline, &mut self.random);
    }
}

impl Kept {
    fn add(&mut self, timeline: Timeline, random: &mut Random) {
        // Each request has the same chance to be among those that are chosen (Vitter's algorithm R).
        self.seen += 1;
        let place = random.below(self.seen) as usize;
        if self.chosen.len() < KEPT {
            self.chosen.push(timeline.clone());
        } else if place < KEPT {
            self.chosen[place] = timeline.clone();
        }
        let latency = timeline.latency();
        if self.longest.len() == KEPT && self.longest[KEPT - 1].latency() >= latency {
            return;
        }
        let at = self.longest.partition_point(|request| request.latency() >= latency);
        self.longest.insert(at, Timeline { is_longest: true, ..timeline });
        self.longest.truncate(KEPT);
    }
    /// The random sample without the longest ones, in order of time.
    fn into_timelines(self) -> impl Iterator<Item = Timeline> {
        let Self { longest, mut chosen, .. } = self;
        chosen.retain(|request| {
            let same =
                |other: &Timeline| Timeline { is_longest: false, ..other.clone() } == *request;
            !longest.iter().any(same)
        });
        chosen.sort_by_key(|request| request.submitted);
        longest.into_iter().chain(chosen)
    }
}

/// Runs a scenario, and keeps single requests in the outcome.
///
/// # Errors
///
/// As [`iofair_simulator::simulate`].
pub fn simulate(scenario: &Scenario) -> Result<Outcome, RunError> {
    let names: Vec<String> = processes(scenario).into_iter().map(|process| process.0).collect();
    let mut keeper = Keeper {
        from: Instant::ZERO + scenario.ramp,
        processes: vec![Kept::default(); names.len().min(PROCESSES_MAX)],
        names,
        random: Random::new(scenario.seed, STREAM),
    };
    let outcome = simulate_with(scenario, &mut keeper)?;
    let named = keeper.processes.into_iter().zip(&keeper.names).flat_map(|(kept, name)| {
        kept.into_timelines().map(|request| Timeline { process: name.clone(), ..request })
    });
    let requests = named.collect();
    Ok(Outcome { requests, ..outcome })
}

#[cfg(test)]
mod tests {
    use iofair_simulator::scenario::{GroupSpec, Pattern};
    use iofair_simulator::testing::{client, job, scenario};

    use super::*;
    use iofair_baselines::TABLE;
    use iofair_core::contract::{Contract, Limits};
    use iofair_core::time::Nanos;

    /// Goal: the parts of a request's time are where it was, and the outcome is that of a run that nobody watches. Method: a reader
    /// behind a ceiling, and a sequential one whose requests wait for a scheduler of turns.
    #[test]
    fn parts_of_the_time() {
        let mut limited = client("limited", job(Pattern::RandomRead, 4, false));
        limited.group = "limited".to_owned();
        limited.job.depth = 4;
        let mut free = client("free", job(Pattern::RandomRead, 64, false));
        free.job.depth = 4;
        let run = scenario(vec![limited, free], Nanos::from_millis(200));
        let max = Limits { iops: [Some(1000), None], ..Limits::NONE };
        let contract = Contract { max, ..Contract::default() };
        let groups = vec![GroupSpec { name: "limited".to_owned(), contract }];
        let stack = TABLE.stack("max-none").unwrap();
        let drive = "plextor-px256m5s".to_owned();
        let run = Scenario { groups, stack, drive, ..run };
        let found = simulate(&run).unwrap();
        let plain = iofair_simulator::simulate(&run).unwrap();
        assert_eq!(Outcome { requests: Vec::new(), ..found.clone() }, plain);
        let sent_by = |name: &'static str| {
            found.requests.iter().filter(move |request| request.process == name)
        };
        assert!(sent_by("limited").count() > KEPT && sent_by("free").count() <= 2 * KEPT);
        let mut longest = sent_by("limited").filter(|request| request.is_longest);
        assert!(longest.all(|request| request.throttled > request.served), "four are in flight");
        let free =
            |request: &Timeline| request.throttled == Nanos::ZERO && request.served > Nanos::ZERO;
        assert!(sent_by("free").all(free));
        let longest: Vec<Nanos> = sent_by("limited")
            .filter(|request| request.is_longest)
            .map(Timeline::latency)
            .collect();
        assert!(longest.len() == KEPT && longest.is_sorted_by(|a, b| a >= b));
        assert!(sent_by("limited").all(|request| request.latency() <= longest[0]));
    }

    /// Goal: what is written back belongs to who wrote it. Method: a buffered writer with little memory.
    #[test]
    fn pages_belong_to_their_writer() {
        let writer = client("writer", job(Pattern::SequentialWrite, 64, true));
        let run = scenario(vec![writer], Nanos::from_millis(500));
        let drive = "plextor-px256m5s".to_owned();
        let host = iofair_simulator::scenario::Host { memory: 256 << 20, ..run.host.clone() };
        let found = simulate(&Scenario { drive, host, ..run }).unwrap();
        assert!(!found.requests.is_empty());
        let written_back = |request: &Timeline| request.process == "writer" && request.written_back;
        assert!(found.requests.iter().all(written_back));
    }
}
