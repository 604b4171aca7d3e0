//! From a scenario to a world: groups, clients, files, flushers, processes.

use iofair_config::contracts::admission::{admitted, check_attainable};
use iofair_core::contract::Contract;
use iofair_core::controller::Setup;
use iofair_core::group::{ClientId, Priority};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;
use iofair_drive::{Drive, profile};

use super::World;
use super::changes::Changes;
use super::controllers::{self, Controllers};
use super::journal::{self, Journal, JournalSetup};
use super::roster::RosterSource;
use super::writeback::{Flushers, Flushing};
use crate::cache::pages::PAGE;
use crate::cache::{Cache, CacheSetup, FileSetup};
use crate::client::base::Base;
use crate::client::cached::CachedFile;
use crate::client::choose::{Chooser, least};
use crate::client::copy::{Copy, CopySetup};
use crate::client::direct::{Direct, DirectSetup};
use crate::client::least_rate::LeastRateCheck;
use crate::client::pace::{Limit, Pacer, PacerSetup};
use crate::client::program::{Programmed, ProgrammedSetup};
use crate::client::read_ahead::{ReadAhead, ReadAheadSetup};
use crate::client::startup::{Startup, StartupSetup};
use crate::client::tally::Tally;
use crate::client::together::Together;
use crate::client::write::{Write, WriteSetup};
use crate::client::{Kind, Process};
use crate::engine::layout::{self, Area, File, Wanted};
use crate::engine::path::{Caching, SharedPath};
use crate::engine::{Engine, Parts};
use crate::error::RunError;
use crate::observe::Observer;
use crate::outside::Outside;
use crate::scenario::{
    ClientSpec, Direction, Job, JournalSpec, Manner, Mix, Pattern, Scenario, Seat, Turn,
};
use crate::sim::Token;

/// Requests that may be inside the engine: far above what closed loops and flushers can send, so that
/// reaching it is a bug.
const QUEUE_LIMIT: usize = 1 << 22;
/// Processes of a run, calls of a process in flight at once.
const PROCESSES_MAX: u64 = 1 << 20;
const DEPTH_MAX: u32 = 1 << 16;
/// Streams of random numbers: each process has two, counted from here, and one for its start; dispatchers one each
/// from the end.
const STREAM_FIRST: u64 = 1;
const STREAM_STARTS: u64 = 1 << 32;
const STREAM_PATH: u64 = 1 << 33;
pub(super) const STREAM_LAST: u64 = u64::MAX;

/// Whether a client writes through the page cache.
pub(super) fn writes_buffered(client: &ClientSpec) -> bool {
    let job = &client.job;
    let writes = job.calls.directions(job.pattern.writes())[Direction::Write.index()];
    client.manner == Manner::Copy || (job.buffered && writes)
}

/// Whether a client reads through the page cache what others read as well.
fn reads_together(client: &ClientSpec) -> bool {
    matches!(client.manner, Manner::Interleaved { .. }) && client.job.buffered
}

/// Whether a job reads its file from the beginning to the end through the page cache, whatever the length of its calls.
fn reads_ahead(job: &Job) -> bool {
    let calls = &job.calls;
    let in_order = calls.mix == Mix::Pattern && calls.turn == Turn::Each;
    job.buffered && in_order && job.pattern.is_sequential() && !job.pattern.writes()
}

/// Builds the world of a scenario.
pub(crate) fn build<'a>(
    scenario: &Scenario,
    drives: Vec<Box<dyn Drive + Send>>,
    observer: &'a mut dyn Observer,
) -> Result<World<'a>, RunError> {
    build_over(scenario, drives, observer, None)
}

/// The same over a drive that is elsewhere. The one given here, and the controller, are only asked what they are: the
/// controller counts out groups and clients.
pub(crate) fn build_outside<'a>(
    scenario: &Scenario,
    drive: Box<dyn Drive + Send>,
    observer: &'a mut dyn Observer,
    outside: &'a mut dyn Outside,
) -> Result<World<'a>, RunError> {
    build_over(scenario, vec![drive], observer, Some(outside))
}

fn build_over<'a>(
    scenario: &Scenario,
    drives: Vec<Box<dyn Drive + Send>>,
    observer: &'a mut dyn Observer,
    mut outside: Option<&'a mut dyn Outside>,
) -> Result<World<'a>, RunError> {
    check(scenario)?;
    let mut facts = drives[0].facts();
    facts.max_request = facts.max_request.min(scenario.host.max_request);
    let geometry = controllers::split(scenario);
    let stripe = scenario.stripe.map(|stripe| stripe.geometry);
    let capacity = geometry.map_or(facts.capacity, |it| it.capacity(facts.capacity));
    let stack_tags = scenario.stack.tags(&facts);
    let setup = Setup {
        facts,
        tags: scenario.tags.unwrap_or(stack_tags).max(1),
        queue_limit: QUEUE_LIMIT,
        guaranteed: 0,
        client_limit: u32::MAX,
        flushes: scenario.flushes,
        trace: observer.trace_events(),
    };
    let mut controllers = Controllers::new(setup, scenario, drives.len());
    for (name, contract) in groups(scenario, drives[0].worst_case_rate())? {
        controllers.add_group(&name, &contract)?;
    }
    let specs = expand(scenario);
    let area = Area { layout: scenario.host.layout, capacity, stripe };
    let files = files(&specs, area)?;
    let mut clients = Vec::with_capacity(specs.len());
    for spec in &specs {
        let group = controllers.find(&spec.client.group)?;
        clients.push(controllers.add_client(group, spec.client.priority)?);
    }
    let threads = threads(&specs, &clients, &mut controllers)?;
    let flushers = Flushers::new(scenario, &specs, &clients, &mut controllers)?;
    let actor = (specs.len() + flushers.count()) as u32;
    let journal = journal(scenario, &mut controllers, (actor, capacity))?;
    let longest = scenario.host.writeback_request.min(facts.max_request);
    let collect_window = scenario.host.collect_window;
    let (first_actor, pages) = (specs.len() as u32, scenario.host.memory / (PAGE * 512));
    let cache_setup = CacheSetup { longest, collect_window, first_actor, pages };
    let mut cache = Cache::new(cache_setup, &flushers.domains(&scenario.host));
    let factory =
        ProcessFactory { scenario, specs: &specs, files: &files, longest, threads: &threads };
    let processes = factory.processes(facts.max_request, &flushers, &mut cache);
    let everybody =
        RosterSource { controllers: &controllers, factory: &factory, flushers: &flushers };
    let changes = Changes::new(scenario, drives[0].worst_case_rate(), &controllers)?;
    let devices = match &mut outside {
        Some(outside) => {
            outside.open(everybody.roster(setup.tags)).map_err(RunError::Outside)?;
            Vec::new()
        }
        None => {
            observer.on_start(&setup, controllers.first());
            controllers.with(drives, scenario)
        }
    };
    let (measured_from, interval) = (Instant::ZERO + scenario.ramp, scenario.interval);
    let path = shared_path(scenario, &specs, &flushers).filter(|_| outside.is_none());
    let parts =
        Parts { devices, outside, path, geometry, files, observer, measured_from, interval };
    let mut engine = Engine::new(parts);
    changes.start(&mut engine);
    cache.start(&mut engine);
    for (process, spec) in processes.iter().zip(&specs).filter(|it| it.0.base.step.is_none()) {
        for slot in 0..process.slots() {
            let token = Token { actor: process.base.actor, slot };
            engine.wake(start(scenario, spec, process.base.actor), token);
        }
    }
    engine.journaled = journal.is_some();
    let mut world = World::new(engine, cache, processes, scenario);
    (world.journal, world.changes) = (journal, changes);
    Ok(world)
}

/// What processes, flushers and the path to the drive share, if they wait for processors.
fn shared_path(
    scenario: &Scenario,
    specs: &[Spec<'_>],
    flushers: &Flushers<'_>,
) -> Option<SharedPath> {
    let caching = specs.iter().map(|it| match &it.client.job {
        job if !job.buffered => Caching::Direct,
        job if job.pattern.is_sequential() => Caching::Sequential,
        _ => Caching::Random,
    });
    let setup = scenario.host.processors?;
    let random = Random::new(scenario.seed, STREAM_PATH);
    Some(SharedPath::new(setup, caching.collect(), flushers.count(), random))
}

/// Name, client and start of each process.
pub(crate) fn processes(scenario: &Scenario) -> Vec<(String, usize, Instant)> {
    let numbers = scenario.clients.iter().zip(0..);
    let clients = numbers.flat_map(|(client, number)| (0..client.processes).map(move |_| number));
    let specs = expand(scenario);
    let all = specs.iter().zip(clients).zip(0..);
    all.map(|((spec, client), actor)| (spec.name.clone(), client, start(scenario, spec, actor)))
        .collect()
}

/// When a process starts. Where the ramp hides it this is one after the other and by chance, as for programs that a
/// shell starts; what runs only in front of the others starts when it says.
fn start(scenario: &Scenario, spec: &Spec<'_>, actor: u32) -> Instant {
    let (begin, apart) = (Instant::ZERO + spec.client.start, scenario.host.start_apart);
    let (first, after) = (begin + apart * u64::from(actor), Instant::ZERO + scenario.ramp);
    let plain = spec.client.manner == Manner::Plain && spec.client.stop.is_none();
    let mut random = Random::new(scenario.seed, STREAM_STARTS + u64::from(actor));
    let mut start = begin;
    if apart > Nanos::ZERO && plain && first + apart <= after {
        start = first + Nanos(random.below(apart.0));
    }
    let spread = scenario.host.start_spread;
    match plain && spread > Nanos::ZERO {
        true => start + Nanos(random.below(spread.0)),
        false => start,
    }
}

/// What all processes are made of.
pub(super) struct ProcessFactory<'a> {
    scenario: &'a Scenario,
    pub(super) specs: &'a [Spec<'a>],
    pub(super) files: &'a [File],
    /// Longest request of writers.
    longest: Sectors,
    /// Process by process, the client of each thread.
    pub(super) threads: &'a [Vec<ClientId>],
}

impl ProcessFactory<'_> {
    /// Makes them, and their files in the page cache.
    fn processes(
        &self,
        longest_read: Sectors,
        flushers: &Flushers<'_>,
        cache: &mut Cache,
    ) -> Vec<Process> {
        let mut copies = self.specs.len()..self.files.len();
        let mut processes = Vec::with_capacity(self.specs.len());
        let mut shared = 0;
        for (index, spec) in self.specs.iter().enumerate() {
            let builder = Builder {
                scenario: self.scenario,
                index,
                spec,
                longest_read,
                hole: self.files[index].is_hole(),
                threads: &self.threads[index],
            };
            let file = flushers.of[index].map(|Flushing { domain, client, flags }| {
                let size = spec.client.file_size;
                let file = match spec.client.manner {
                    Manner::Copy => copies.next().expect("as many files as copies"),
                    _ => index,
                };
                let owner = index as u32;
                cache.add_file(FileSetup { file, owner, size, domain, client, flags })
            });
            let together = reads_together(spec.client).then(|| match spec.client.manner {
                Manner::Interleaved { index: 1.., .. } => shared,
                _ => cache.add_shared(),
            });
            shared = together.unwrap_or(shared);
            let place = Place { file, together, longest: self.longest };
            processes.push(builder.process(self.threads[index][0], place));
        }
        processes
    }
}

/// Groups with their contracts; with the weights that keep their minimums if the stack admits them, and the drive could keep
/// them at all.
pub(super) fn groups(
    scenario: &Scenario,
    worst_case: u64,
) -> Result<Vec<(String, Contract)>, RunError> {
    let written = scenario.groups.iter().map(|group| (group.name.as_str(), &group.contract));
    if scenario.stack.admits {
        let admitted = admitted(written, worst_case)?;
        // A drive of a test has no profile.
        if let (Ok(profile), None) = (profile::read(&scenario.drive), scenario.stripe) {
            check_attainable(&profile.reaches(), &admitted)?;
        }
        return Ok(admitted);
    }
    Ok(written.map(|(name, contract)| (name.to_string(), contract.clone())).collect())
}

/// One process of a client.
pub(super) struct Spec<'a> {
    pub(super) client: &'a ClientSpec,
    name: String,
}

fn expand(scenario: &Scenario) -> Vec<Spec<'_>> {
    let mut specs = Vec::new();
    for client in &scenario.clients {
        for number in 0..client.processes {
            let name = match client.processes {
                1 => client.name.clone(),
                _ => format!("{}.{number}", client.name),
            };
            specs.push(Spec { client, name });
        }
    }
    specs
}

/// The journal's process, with the last actor's number.
fn journal(
    scenario: &Scenario,
    controllers: &mut Controllers,
    (actor, capacity): (u32, Sectors),
) -> Result<Option<Journal>, RunError> {
    let Some(JournalSpec { group, barrier }) = &scenario.host.journal else { return Ok(None) };
    let client = controllers.add_client(controllers.find(group)?, Priority::default())?;
    let start = journal::place(capacity);
    Ok(Some(Journal::new(JournalSetup { actor, client, start, barrier: *barrier })))
}

/// The clients of each process' threads: the first thread of a start-up is the process itself, the others are
/// clients of their own; so are calls of another priority.
fn threads(
    specs: &[Spec<'_>],
    clients: &[ClientId],
    controllers: &mut Controllers,
) -> Result<Vec<Vec<ClientId>>, RunError> {
    let mut all: Vec<Vec<ClientId>> = clients.iter().map(|client| vec![*client]).collect();
    for (Spec { client, .. }, threads) in specs.iter().zip(&mut all) {
        if let Manner::Startup(recording) = &client.manner {
            let group = controllers.find(&client.group)?;
            for _ in 1..recording.threads {
                threads.push(controllers.add_client(group, client.priority)?);
            }
        }
        if let Some(urgent) = client.job.calls.urgent {
            let group = controllers.find(&client.group)?;
            threads.push(controllers.add_client(group, urgent.priority)?);
        }
    }
    Ok(all)
}

/// The files of all processes, and behind all that was there before those that copies are written to.
fn files(specs: &[Spec<'_>], area: Area) -> Result<Vec<File>, RunError> {
    let copies = specs.iter().filter(|spec| spec.client.manner == Manner::Copy);
    let wanted: Vec<Wanted> = specs.iter().chain(copies).map(|spec| wanted(spec.client)).collect();
    layout::lay_out(area, &wanted).ok_or(RunError::NoRoom { capacity: area.capacity })
}

fn wanted(client: &ClientSpec) -> Wanted {
    let hole = client.job.pattern == Pattern::RandomWrite && !client.job.buffered;
    let shares = matches!(client.manner, Manner::Interleaved { index: 1.., .. });
    let size = if shares { Sectors::ZERO } else { client.file_size };
    Wanted { size, hole, on_drive: client.on_drive, place: client.place }
}

/// Refuses what cannot be run.
fn check(scenario: &Scenario) -> Result<(), RunError> {
    let processes: u64 = scenario.clients.iter().map(|c| u64::from(c.processes)).sum();
    if processes == 0 || processes > PROCESSES_MAX {
        return Err(RunError::Processes { given: processes, most: PROCESSES_MAX });
    }
    if scenario.host.read_ahead.0 == 0 || scenario.host.read_ahead_request.0 == 0 {
        return Err(RunError::Host("read-ahead must be at least one sector"));
    }
    if scenario.host.writeback_request.0 < PAGE {
        return Err(RunError::Host("requests of the flusher must be at least 4KiB"));
    }
    if scenario.host.max_request.0 < PAGE {
        return Err(RunError::Host("max_request must be at least 4KiB"));
    }
    for client in &scenario.clients {
        let refuse = |what| Err(RunError::Job { client: client.name.clone(), what });
        let job = &client.job;
        let lengths = job.calls.sizes.iter().flatten().map(|it| it.0).chain([job.block]);
        let fits = |length: Sectors| length > Sectors::ZERO && length <= client.file_size;
        if !lengths.clone().all(fits) {
            return refuse("a block is at least one sector and at most the file");
        }
        if job.depth > DEPTH_MAX {
            return refuse("at most 65536 calls are under way at once");
        }
        if matches!(client.manner, Manner::Program(_)) && job.buffered {
            return refuse("programs make direct calls");
        }
        if job.depth > 1 && job.buffered {
            return refuse("several calls at once need direct access");
        }
        let drives = scenario.stripe.map_or(1, |stripe| stripe.geometry.drives);
        if client.on_drive.is_some_and(|drive| drive >= drives) {
            return refuse("there is no such drive in the stripe");
        }
        if client.guest && !job.buffered {
            return refuse("what a guest does goes through its page cache");
        }
        let mut rates = job.calls.rates.iter().chain([&job.rate]);
        if rates.any(|rate| *rate == Some(0)) {
            return refuse("a rate is at least 1 byte a second");
        }
        let pages =
            |length: Sectors| length.0.is_multiple_of(PAGE) || PAGE.is_multiple_of(length.0);
        if writes_buffered(client) && !lengths.clone().all(pages) {
            return refuse("blocks of buffered writes are whole pages of 4KiB, or fit into one");
        }
    }
    Ok(())
}

/// Where a process' file is in the page cache.
struct Place {
    /// Among those that are written.
    file: Option<usize>,
    /// Among those that several read.
    together: Option<usize>,
    /// Longest request of writers.
    longest: Sectors,
}

/// Makes one process.
struct Builder<'a> {
    scenario: &'a Scenario,
    index: usize,
    spec: &'a Spec<'a>,
    longest_read: Sectors,
    /// Whether its file starts as a hole.
    hole: bool,
    /// The client of each thread.
    threads: &'a [ClientId],
}

impl Builder<'_> {
    fn process(&self, client: ClientId, place: Place) -> Process {
        let Place { file, together, longest } = place;
        let base = self.base(client);
        let host = &self.scenario.host;
        let job = &self.spec.client.job;
        let consume = match self.spec.client.manner {
            Manner::Copy => host.consume_window,
            _ => host.consume_in_calls_of(job.block),
        };
        let read = ReadAheadSetup {
            window: host.read_ahead,
            longest: host.read_ahead_request.min(self.longest_read),
            consume_window: consume,
        };
        let kind = match (&self.spec.client.manner, file) {
            (Manner::Startup(recording), _) => {
                let (recording, clients) = (recording.clone(), self.threads.to_vec());
                let longest = self.longest_read;
                Kind::Startup(Startup::new(StartupSetup { recording, clients, longest }))
            }
            (Manner::Program(program), _) => {
                let seat = Seat {
                    process: self.index as u32,
                    slot: 0,
                    file_size: self.spec.client.file_size,
                    block: job.block,
                    seed: self.scenario.seed,
                };
                let (program, longest) = (program.0.as_ref(), self.longest_read);
                let depth = job.depth.max(1);
                Kind::Program(Programmed::new(ProgrammedSetup { program, seat, depth, longest }))
            }
            (Manner::Copy, Some(target)) => {
                let produce_window = host.produce_window;
                Kind::Copy(Copy::new(CopySetup { read, produce_window, target }))
            }
            (_, Some(file)) if job.calls.are_plain() && !job.calls.durable => {
                let produce_window = host.produce_window;
                Kind::Write(Write::new(WriteSetup { produce_window, longest, file }))
            }
            (_, None) if reads_ahead(job) => match together {
                Some(shared) => Kind::Together(Together::new(read, shared)),
                None => Kind::ReadAhead(ReadAhead::new(&base, read)),
            },
            (_, file) => {
                // A direct write into a hole of ext3 falls back to a buffered write with wait, so the
                // submitting call itself waits.
                let depth = if self.hole { 1 } else { job.depth.max(1) };
                let produce_window = host.produce_window;
                let cached = file.map(|file| CachedFile { file, produce_window, longest });
                let (longest, hole) = (self.longest_read, self.hole);
                let hit = job.calls.hits.filter(|_| job.buffered).map(|_| consume);
                let setup = DirectSetup { longest, depth, hole, cached, hit };
                Kind::Direct(Direct::new(&base, setup))
            }
        };
        let group = self.spec.client.group.clone();
        Process { name: self.spec.name.clone(), group, base, kind }
    }

    fn base(&self, client: ClientId) -> Base {
        let Scenario { host, seed, .. } = self.scenario;
        let spec = self.spec.client;
        let stream = STREAM_FIRST + 2 * self.index as u64;
        let ramp_end = Instant::ZERO + self.scenario.ramp;
        let (job, calls) = (&spec.job, &spec.job.calls);
        let directions = calls.directions(job.pattern.writes());
        let used = Direction::ALL.into_iter().filter(|it| directions[it.index()]);
        let limit = Limit {
            bytes: calls.bytes_max.unwrap_or(u64::MAX),
            calls: calls.calls_max.unwrap_or(u64::MAX),
            least: used.map(|it| least(job, it).bytes()).min().unwrap_or(1),
            last_is_whole: calls.last_is_whole,
        };
        let mut random = Random::new(*seed, stream);
        let chooser = (!calls.are_plain()).then(|| Chooser::new(job, spec.file_size, &mut random));
        let pacer = PacerSetup {
            rate: spec.job.rate,
            rates: calls.rates,
            poisson: calls.poisson,
            limit,
            on_off: spec.job.on_off,
            start: start(self.scenario, self.spec, self.index as u32),
            stop: spec.stop.map_or(Instant::MAX, |stop| Instant::ZERO + stop),
            ramp_end,
        };
        let interleaved = match spec.manner {
            Manner::Interleaved { index, of } => (u64::from(index), u64::from(of)),
            _ => (0, 1),
        };
        Base {
            actor: self.index as u32,
            client,
            urgent: self.threads[self.threads.len() - 1],
            file: self.index - interleaved.0 as usize,
            job: spec.job.clone(),
            file_size: spec.file_size,
            pacer: Pacer::new(pacer, Random::new(*seed, stream + 1)),
            random,
            tally: Tally::new(ramp_end, ramp_end + self.scenario.time)
                .with_interval(self.scenario.interval),
            direction: job.pattern.direction(),
            chooser,
            since_thought: 0,
            step: spec.step,
            ended: None,
            is_ending: false,
            least_rate: calls.least_rate.map(LeastRateCheck::new),
            too_slow: false,
            turnaround: host.turnaround,
            turnaround_write: host.turnaround_write,
            process_wakeup: host.process_wakeup,
            turnaround_spread: host.turnaround_spread,
            position: Sectors(spec.job.block.0 * interleaved.0),
            interleaved,
        }
    }
}
