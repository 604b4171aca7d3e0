//! From a scenario to a world: groups, clients, files, flushers, processes.

use iofair_core::controller::Setup;
use iofair_core::id::ClientId;
use iofair_core::priority::Priority;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use iofair_drive::Drive;
use iofair_drive::random::Random;

use super::World;
use super::changes::{Changes, groups};
use super::controllers::{self, Controllers};
use super::journal::{self, Journal, JournalSetup};
use super::processes::ProcessFactory;
use super::roster::RosterSource;
use super::spec::{Spec, expand, start, writes_buffered};
use super::writeback::Flushers;
use crate::cache::{Cache, CacheSetup};
use crate::engine::layout::{self, Area, File, PAGE, Wanted};
use crate::engine::path::{Caching, SharedPath};
use crate::engine::{Engine, Parts};
use crate::error::RunError;
use crate::observe::Observer;
use crate::outside::Outside;
use crate::scenario::{ClientSpec, JournalSpec, Manner, Pattern, Scenario};
use crate::sim::Token;

/// Requests that may be inside the engine: far above what closed loops and flushers can send, so that
/// reaching it is a bug.
const QUEUE_LIMIT: usize = 1 << 22;
/// Processes of a run, calls of a process in flight at once.
const PROCESSES_MAX: u64 = 1 << 20;
const DEPTH_MAX: u32 = 1 << 16;
/// The stream of random numbers of the path to the drive.
const STREAM_PATH: u64 = 1 << 33;

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
    let capacity = geometry.map_or(facts.capacity, |geometry| geometry.capacity(facts.capacity));
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
    let journal = journal(scenario, &mut controllers, actor, capacity)?;
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
    for (process, spec) in processes.iter().zip(&specs).filter(|pair| pair.0.base.step.is_none()) {
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
    let caching = specs.iter().map(|spec| match &spec.client.job {
        job if !job.buffered => Caching::Direct,
        job if job.pattern.is_sequential() => Caching::Sequential,
        _ => Caching::Random,
    });
    let setup = scenario.host.processors?;
    let random = Random::new(scenario.seed, STREAM_PATH);
    Some(SharedPath::new(setup, caching.collect(), flushers.count(), random))
}

/// The journal's process, with the last actor's number.
fn journal(
    scenario: &Scenario,
    controllers: &mut Controllers,
    actor: u32,
    capacity: Sectors,
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
        let lengths = job.calls.sizes.iter().flatten().map(|size| size.0).chain([job.block]);
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
