//! The loop of a replay: requests that are due go into the engine, the engine's commands go to the drive, and completions
//! go to whoever waits for them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use iofair_config::contracts::admission::admitted;
use iofair_core::contract::Contract;
use iofair_core::controller::{Controller, FlushRule, Setup as EngineSetup, Stack, Submission};
use iofair_core::id::{ClientId, GroupId};
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::Drive;
use iofair_simulator::observe::Observer;
use iofair_simulator::{ActorCompletion, Engine, NewRequest, RunError, Token};
use iofair_trace::clean::{Clean, Playable, TIME_MAX, TOO_LATE};
use iofair_trace::source::Notes;
use iofair_trace::{Source, Stream, TraceError};

use super::groups::{Mapping, OTHERS, OWN_MAX, as_path};
use super::order::{Due, Mode, Order};
use super::tally::{Counted, Played, Recorded, Tally};

/// Pieces of requests that are in the engine at a time. A trace that is too fast for the drive waits outside, where it
/// needs no memory.
const PIECES_MAX: usize = 1 << 16;
/// As in a server: least tags where the scheduler shares between groups.
const TAGS_UNBOUNDED: u32 = 1 << 20;
/// Longest piece of a trim or of zeroes, as in a server.
const EMPTY_PIECE: Sectors = Sectors::from_kib(32 << 10);

/// What a replay of one stack needs beside the trace and the drive.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The policies.
    pub stack: Stack,
    /// Groups with their contracts, parents first or made with defaults.
    pub groups: Vec<(String, Contract)>,
    /// Which stream belongs to which group.
    pub mapping: Mapping,
    /// When requests are sent.
    pub mode: Mode,
    /// How many times as fast as recorded, in thousandths.
    pub speed: u64,
    /// Replay only so much of the trace, in the time of the replay; `None`: all.
    pub duration: Option<Nanos>,
}

/// The result of one replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the replay measured.
    pub played: Played,
    /// The same of the recorded completions, if there are any. Requests without one are left out.
    pub recorded: Option<Played>,
    /// What was left out or repaired.
    pub notes: Notes,
}

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The groups, or the drive.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The trace has nothing to play, and what was left out of it.
    #[error("the trace has no request that can be replayed{0}")]
    Empty(String),
    /// A policy holds requests and never wants to be asked again.
    #[error("the stack {stack} held {pending} requests for ever")]
    Stuck {
        /// The stack.
        stack: String,
        /// Requests that it held.
        pending: usize,
    },
}

/// Replays a trace under one stack.
///
/// # Errors
///
/// What is wrong with the trace, with a place; groups that do not make a tree, or that the stack refuses.
pub fn replay(
    source: impl Source,
    drive: Box<dyn Drive + Send>,
    setup: &Setup,
) -> Result<Outcome, ReplayError> {
    let capacity = drive.facts().capacity;
    assert!(capacity > Sectors::ZERO, "drives have sectors");
    run(Clean::new(source, capacity), drive, setup)
}

/// Where a stream's requests go.
#[derive(Clone, Copy)]
struct Place {
    client: ClientId,
    group: usize,
}

/// A request in the engine.
struct Flying {
    number: u64,
    /// When it should have been sent.
    due: Instant,
    /// Pieces in the engine.
    pieces: u32,
    counted: Counted,
    /// How long ceilings have held it, and since when they do.
    held: Nanos,
    since: Instant,
    client: ClientId,
    flags: Flags,
    /// What was not given to the engine yet.
    start: Sectors,
    left: Sectors,
}

/// Notes the requests that have passed the throttles.
struct Passed<'a>(&'a RefCell<Vec<u64>>);

impl Observer for Passed<'_> {
    fn wants_passed(&self) -> bool {
        true
    }
    fn on_passed(&mut self, _: Instant, submission: &Submission) {
        self.0.borrow_mut().push(submission.tag);
    }
}

struct Driver<'a, S> {
    passed: &'a RefCell<Vec<u64>>,
    order: Order<S>,
    engine: Engine<'a>,
    setup: &'a Setup,
    longest: Sectors,
    /// By stream.
    places: Vec<Place>,
    /// By index of the group in the tally.
    groups: Vec<GroupId>,
    own: usize,
    tally: Tally,
    recorded: Recorded,
    flying: Vec<Option<Flying>>,
    free: Vec<u32>,
    pieces: usize,
    late: u64,
    too_late: u64,
    played: u64,
}

pub(super) fn run<S: Source>(
    trace: Clean<S>,
    drive: Box<dyn Drive + Send>,
    setup: &Setup,
) -> Result<Outcome, ReplayError> {
    let facts = drive.facts();
    let worst_case = drive.worst_case_rate();
    let own = setup.stack.tags(&facts);
    let tags = if setup.stack.groups { own.max(TAGS_UNBOUNDED) } else { own };
    let engine_setup = EngineSetup {
        facts,
        tags,
        queue_limit: PIECES_MAX * 4,
        guaranteed: 0,
        client_limit: u32::MAX,
        flushes: FlushRule::Scheduled,
        trace: 0,
    };
    let mut controller = Controller::new(engine_setup, setup.stack.clone());
    let (mut tally, mut recorded) = (Tally::new(), Recorded::new());
    let mut groups = Vec::new();
    for (name, contract) in &named_groups(setup, worst_case)? {
        let id = match name.as_str() {
            "" => GroupId::ROOT,
            name => {
                let added = controller.add_group(Instant::ZERO, name, contract.clone());
                added.map_err(RunError::from)?
            }
        };
        tally.add(name, contract);
        recorded.tally.add(name, contract);
        groups.push(id);
    }
    let Setup { mode, speed, duration, .. } = *setup;
    let passed = RefCell::new(Vec::new());
    let mut observer = Passed(&passed);
    let mut driver = Driver {
        passed: &passed,
        order: Order::new(trace, mode, speed, duration),
        engine: Engine::lone(controller, drive, &mut observer),
        setup,
        longest: facts.max_request.max(Sectors(1)),
        places: Vec::new(),
        groups,
        own: 0,
        tally,
        recorded,
        flying: Vec::new(),
        free: Vec::new(),
        pieces: 0,
        late: 0,
        too_late: 0,
        played: 0,
    };
    driver.run()?;
    driver.finish()
}

/// All groups that have a contract or are above such a group, parents first; the first one is the root.
fn named_groups(setup: &Setup, worst_case: u64) -> Result<BTreeMap<String, Contract>, ReplayError> {
    let written = setup.groups.iter().map(|(name, contract)| (name.as_str(), contract));
    let mut groups: BTreeMap<String, Contract> = match setup.stack.admits {
        true => admitted(written, worst_case).map_err(RunError::from)?.into_iter().collect(),
        false => written.map(|(name, contract)| (name.to_owned(), contract.clone())).collect(),
    };
    for (name, _) in &setup.groups {
        for (slash, _) in name.match_indices('/') {
            groups.entry(name[..slash].to_owned()).or_default();
        }
    }
    groups.entry(String::new()).or_default();
    Ok(groups)
}

impl<S: Source> Driver<'_, S> {
    fn run(&mut self) -> Result<(), ReplayError> {
        let mut done = Vec::new();
        loop {
            self.order.fill()?;
            let due = self.order.next_due().filter(|_| self.pieces < PIECES_MAX);
            let due = due.map(|at| at.max(self.engine.now));
            let Some(now) = self.engine.next_event(due.unwrap_or(Instant::MAX)).or(due) else {
                break;
            };
            self.engine.now = now;
            self.engine.collect(&mut done);
            for completion in done.drain(..) {
                self.complete(&completion);
            }
            while self.pieces < PIECES_MAX
                && let Some(due) = self.order.take_due(now)
            {
                self.send(&due)?;
                self.order.fill()?;
            }
            self.engine.pump();
            self.count_passed();
        }
        match self.pieces {
            0 => Ok(()),
            pending => {
                Err(ReplayError::Stuck { stack: self.setup.stack.name().to_owned(), pending })
            }
        }
    }
    fn send(&mut self, due: &Due) -> Result<(), ReplayError> {
        let Playable { record, start, length } = due.request;
        let now = self.engine.now;
        if due.at.0 > TIME_MAX.0 {
            self.too_late += 1;
            self.order.on_completed(due.number, now);
            return Ok(());
        }
        let Place { client, group } = self.place(record.stream)?;
        let mut counted = Counted::new(group, record.operation, length.bytes());
        self.recorded.add(record.at, record.completion, counted);
        self.late += u64::from(now > due.at);
        self.played += 1;
        let slot = self.free.pop().unwrap_or(self.flying.len() as u32);
        if slot as usize == self.flying.len() {
            self.flying.push(None);
        }
        counted.passage = self.tally.passage(&counted);
        self.tally.arrive(now, &counted);
        let flags = record.flags;
        let (number, due, pieces, left) = (due.number, due.at, 0, length);
        let (held, since) = (Nanos::ZERO, now);
        let flying =
            Flying { number, due, pieces, counted, held, since, client, flags, start, left };
        self.flying[slot as usize] = Some(flying);
        self.feed(slot);
        Ok(())
    }
    /// Gives the engine more of a request: all of its data, or, as a server does, the next piece of a trim or of zeroes, which
    /// may be as long as the drive.
    fn feed(&mut self, slot: u32) {
        let flying = self.flying[slot as usize].as_mut().expect("it was just there");
        let Counted { operation, .. } = flying.counted;
        let is_range = matches!(operation, Operation::Discard | Operation::WriteZeroes);
        let longest = if is_range { EMPTY_PIECE.max(self.longest) } else { self.longest };
        loop {
            let (start, length) = (flying.start, flying.left.min(longest));
            let token = Token { actor: slot, slot: 0 };
            let (client, flags) = (flying.client, flying.flags);
            let request = NewRequest { token, client, operation, flags, start, length };
            let pieces = self.engine.submit(request);
            self.pieces += pieces as usize;
            flying.pieces += pieces;
            (flying.start, flying.left) = (start + length, flying.left - length);
            if is_range || flying.left == Sectors::ZERO {
                break;
            }
        }
        self.count_passed();
    }
    /// The minimums count the requests that have passed the ceilings now.
    fn count_passed(&mut self) {
        let now = self.engine.now;
        for tag in self.passed.borrow_mut().drain(..) {
            let place = &mut self.flying[Token::unpack(tag).actor as usize];
            let Flying { counted, held, since, .. } = place.as_mut().expect("it is in the engine");
            let levels = counted.passage.pass();
            if !levels.is_empty() {
                *held += now.since(*since);
            }
            self.tally.count(now, counted, levels);
        }
    }
    fn complete(&mut self, completion: &ActorCompletion) {
        let slot = completion.token.actor;
        let place = &mut self.flying[slot as usize];
        let flying = place.as_mut().expect("the engine completes what it was given");
        flying.pieces -= 1;
        self.pieces -= 1;
        let levels = flying.counted.passage.end(true, flying.pieces);
        if !levels.is_empty() {
            flying.since = self.engine.now;
        }
        self.tally.withdraw(self.engine.now, &flying.counted, levels);
        if flying.pieces > 0 {
            return;
        }
        if flying.left > Sectors::ZERO {
            return self.feed(slot);
        }
        let Flying { number, due, counted, held, .. } = place.take().expect("it was just there");
        self.free.push(slot);
        let now = self.engine.now;
        self.tally.complete(now, &counted, Some(now.since(due)), held);
        self.order.on_completed(number, now);
    }

    /// The client of a stream, which is made for its first request.
    fn place(&mut self, stream: u32) -> Result<Place, ReplayError> {
        while self.places.len() <= stream as usize {
            let next = &self.order.trace().streams()[self.places.len()];
            let group = match self.setup.mapping.find(next) {
                Some(path) => path.to_owned(),
                None => own_group(next, &mut self.own),
            };
            let group = self.group(&group)?;
            let client = self.engine.add_client(self.groups[group]);
            let client = client.map_err(RunError::from)?;
            self.places.push(Place { client, group });
        }
        Ok(self.places[stream as usize])
    }
    fn group(&mut self, path: &str) -> Result<usize, ReplayError> {
        if let Some(known) = self.tally.find(path) {
            return Ok(known);
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.group(above)?;
        }
        let contract = Contract::default();
        let id = self.engine.add_group(path, &contract).map_err(RunError::from)?;
        self.groups.push(id);
        self.recorded.tally.add(path, &contract);
        Ok(self.tally.add(path, &contract))
    }
    fn finish(self) -> Result<Outcome, ReplayError> {
        let trace = self.order.trace();
        let (mut notes, streams): (Notes, usize) = (trace.notes(), trace.streams().len());
        notes.add(TOO_LATE, self.too_late);
        if self.played == 0 {
            let why = notes.iter().map(|(what, count)| format!("; {count}: {what}")).collect();
            return Err(ReplayError::Empty(why));
        }
        let played = self.tally.finish(self.setup.stack.name(), streams, self.late);
        let recorded = self.recorded.finish(streams, &mut notes);
        Ok(Outcome { played, recorded, notes })
    }
}

/// The name of a group for a stream that no rule and no group of the trace puts anywhere.
fn own_group(stream: &Stream, own: &mut usize) -> String {
    if *own >= OWN_MAX {
        return OTHERS.to_owned();
    }
    *own += 1;
    as_path(&stream.name)
}
