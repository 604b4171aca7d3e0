//! Where a plan runs: the drive with its host, and threads that share out the runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use iofair_core::attainable::Attainable;
use iofair_core::controller::{FlushRule, Stack};
use iofair_core::time::Nanos;
use iofair_drive::profile::{self, Profile};
use serde::Serialize;

use super::load::Neighbours;
use super::meter::{Measured, Meter};
use super::question::{PlanError, Question};
use crate::error::RunError;
use crate::host;
use crate::run::simulate_with;
use crate::scenario::{ClientSpec, GroupSpec, Host, Layout, Scenario, Scheduling};

/// Warm-up and measured time.
const FLASH: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(2));
const DISK: (Nanos, Nanos) = (Nanos::from_secs(5), Nanos::from_secs(20));

/// How runs are made and watched.
pub struct Runner<'a> {
    /// Threads, at least one.
    pub jobs: usize,
    /// Told what is done next.
    pub stage: &'a (dyn Fn(&str) + Sync),
    /// Told of each finished run.
    pub finished: &'a (dyn Fn() + Sync),
    /// Asked before each run whether to end.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
}

/// What a drive with flash translation sustains once it was overwritten at random, which admission counts with.
#[derive(Clone, Debug, Serialize)]
pub struct Sustained {
    /// Bytes a second of large writes.
    pub writes: u64,
    /// Bytes a second of random requests of 4 KiB, reads or writes, whichever is less.
    pub small: u64,
}

/// The measurements of a run, or why the stack's own admission refused it.
pub(super) type Ran = Result<Vec<Measured>, String>;

/// A drive that runs are made on.
pub(super) struct Bench<'a> {
    runner: &'a Runner<'a>,
    drive: String,
    host: Host,
    seed: u64,
    repeats: u32,
    made: AtomicUsize,
    /// The neighbours that are tried.
    pub(super) neighbours: Vec<Neighbours>,
    /// What it reaches.
    pub(super) reaches: Attainable,
    has_flash_translation: bool,
    /// What it keeps at its worst, bytes a second.
    pub(super) worst_case: u64,
    pub(super) capacity_bytes: u64,
    pub(super) ramp: Nanos,
    pub(super) time: Nanos,
}

/// One run, but for its seed.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) stack: Stack,
    pub(super) groups: Vec<GroupSpec>,
    pub(super) clients: Vec<ClientSpec>,
}

/// The machine: no cost of a kernel's scheduler, since a server has its own and asks it after every completion; files lie one
/// after the other, as volumes do.
fn host_of(profile: &Profile) -> Host {
    let base = host::for_drive(&profile.name);
    let facts = profile.host;
    Host {
        turnaround: facts.turnaround,
        turnaround_write: facts.turnaround,
        consume_window: facts.consume_window,
        consume_copy: base.consume_copy.min(facts.consume_window),
        scheduling: Scheduling::FREE,
        layout: Layout::Contiguous { base_permille: 0 },
        ..base
    }
}

impl<'a> Bench<'a> {
    pub(super) fn new(question: &Question<'_>, runner: &'a Runner<'a>) -> Result<Self, PlanError> {
        let profile = profile::read(&question.drive)?;
        let (reaches, drive) = (profile.reaches(), profile.build(question.seed));
        let (ramp, time) = if reaches.has_head() { DISK } else { FLASH };
        Ok(Self {
            runner,
            drive: question.drive.clone(),
            host: host_of(&profile),
            seed: question.seed,
            repeats: question.repeats.max(1),
            made: AtomicUsize::new(0),
            neighbours: question.neighbours.clone(),
            reaches,
            has_flash_translation: profile.has_flash_translation(),
            worst_case: drive.worst_case_rate(),
            capacity_bytes: drive.facts().capacity.bytes(),
            ramp: question.ramp.unwrap_or(ramp),
            time: question.time.unwrap_or(time),
        })
    }
    pub(super) fn sustained(&self) -> Option<Sustained> {
        let Attainable { writes, small, .. } = self.reaches;
        self.has_flash_translation.then(|| Sustained { writes, small: small.unwrap_or(writes) })
    }
    pub(super) fn stage(&self, text: &str) {
        (self.runner.stage)(text);
    }
    pub(super) fn runs(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
    pub(super) fn seeds(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.repeats).map(|repeat| self.seed.wrapping_add(u64::from(repeat)))
    }
    /// Makes these runs with every seed. What comes back has the order of `runs`, with the seeds of each.
    pub(super) fn run(&self, runs: &[Run]) -> Result<Vec<Vec<Ran>>, PlanError> {
        let seeds: Vec<u64> = self.seeds().collect();
        let count = runs.len() * seeds.len();
        let slots: Vec<Mutex<Option<Result<Ran, String>>>> =
            (0..count).map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while !(self.runner.is_over)() {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return;
                }
                let result = self.run_once(&runs[index / seeds.len()], seeds[index % seeds.len()]);
                *slots[index].lock().expect("nothing panics while it holds a slot") = Some(result);
                self.made.fetch_add(1, Ordering::Relaxed);
                (self.runner.finished)();
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.runner.jobs.clamp(1, count.max(1)) {
                scope.spawn(work);
            }
            work();
        });
        let mut all = Vec::with_capacity(count);
        for slot in slots {
            match slot.into_inner().expect("nothing panics while it holds a slot") {
                Some(Ok(ran)) => all.push(ran),
                Some(Err(error)) => return Err(PlanError::Run(error)),
                None => return Err(PlanError::Interrupted(self.runs())),
            }
        }
        let mut all = all.into_iter();
        Ok(runs.iter().map(|_| all.by_ref().take(seeds.len()).collect()).collect())
    }
    fn run_once(&self, run: &Run, seed: u64) -> Result<Ran, String> {
        let scenario = Scenario {
            drive: self.drive.clone(),
            stack: run.stack.clone(),
            tags: None,
            // As a server does it.
            flushes: FlushRule::Scheduled,
            stripe: None,
            host: self.host.clone(),
            groups: run.groups.clone(),
            clients: run.clients.clone(),
            changes: Vec::new(),
            ramp: self.ramp,
            time: self.time,
            seed,
            interval: None,
        };
        // A disk is judged over the whole run: while it writes cached data, single seconds are not promised.
        let mut meter = Meter::new(self.ramp, self.time, !self.reaches.has_head());
        match simulate_with(&scenario, &mut meter) {
            Ok(_) => Ok(Ok(meter.finish())),
            Err(RunError::Refused(refusal)) => Ok(Err(refusal.to_string())),
            Err(RunError::Unattainable(error)) => {
                Ok(Err(format!("{error}; allowed is {}", error.fitting())))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
