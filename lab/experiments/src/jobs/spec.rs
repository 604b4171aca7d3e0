//! A clone of a job as a client.

use iofair_config::ConfigError;
use iofair_config::fio::{self, Blocks, Engine, Job as FioJob, JobFile, Service, Settings};
use iofair_core::priority::{Class, Priority};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;
use iofair_simulator::manner::{distribution, sizes};
use iofair_simulator::scenario::{
    Batches, Calls, ClientSpec, DepthSearch, Direction, Distribution, Exit, Files, Gap, Hits, Job,
    LeastRate, Manner, Mix, Pattern, Step, Turn, Urgent,
};

use super::amount;
use super::target::Region;

/// The stream of random numbers of start delays.
const STREAM_DELAYS: u64 = 1 << 33;

/// Which clone it is, and where.
pub(super) struct Place {
    pub(super) clone: u32,
    pub(super) step: u32,
    /// The clients that it waits for, and those that end with it.
    pub(super) after: Option<(u32, u32)>,
    pub(super) group: u32,
    pub(super) exit: Option<Exit>,
    pub(super) region: Region,
    pub(super) seed: u64,
}

/// Notes about a job that does something else than its file suggests, with a file that is there before it or not.
pub(super) fn note(name: &str, settings: &Settings, is_there: bool) -> Option<String> {
    let mut notes = Vec::new();
    if let Some((engine, nearest)) = settings.engine_note {
        notes.push(format!("{name}: ioengine={engine} runs as {nearest}."));
    }
    if let Some(block) = settings.odd_block {
        let whole = settings.blocks[0].least();
        notes.push(format!(
            "{name}: blocks of {block} bytes run as {whole}, whole pages; there are as many calls."
        ));
    }
    let depth = settings.depth;
    if depth > 1 && settings.engine == Engine::Asynchronous && settings.is_buffered() {
        notes.push(format!("{name}: one call at a time, because iodepth={depth} needs direct=1."));
    }
    if settings.random && !settings.may_repeat_places() && has_mixed_sizes(settings) {
        notes.push(format!("{name}: fio's random map also shortens calls; norandommap avoids it."));
    }
    if let Some(how) = settings.verified().filter(|_| !settings.verify_reads()) {
        notes.push(format!("{name}: verify={how} makes no calls and takes no time."));
    }
    let files = settings.files();
    let number = files.len();
    if number > 1 && files.iter().all(|name| fio::is_device(name)) {
        notes.push(format!("{name}: its {number} devices are one drive."));
    }
    let is_drive = settings.names_drives || files.iter().any(|name| fio::is_device(name));
    let is_part = |size| matches!(size, fio::Size::Percent(_));
    let is_new = !is_drive && !is_there;
    if is_new && (is_part(settings.offset) || is_part(settings.offset_increment)) {
        notes.push(format!("{name}: percentages of `offset` are 0, as with fio and a new file."));
    }
    if settings.nr_files > 1 && (settings.random || !settings.takes_turns()) {
        notes.push(format!("{name}: its {} files are one of their size.", settings.nr_files));
    }
    (!notes.is_empty()).then(|| notes.join(" "))
}

/// Whether its calls have several sizes.
fn has_mixed_sizes(settings: &Settings) -> bool {
    let used = match settings.direction {
        fio::Direction::Read => &settings.blocks[..1],
        fio::Direction::Write => &settings.blocks[1..2],
        fio::Direction::Trim => &settings.blocks[2..],
        fio::Direction::Mixed => &settings.blocks[..2],
        fio::Direction::TrimWrite => &settings.blocks[1..],
    };
    used.iter().any(|blocks| *blocks != Blocks::Fixed(used[0].least()))
}

pub(super) fn client(
    file: &JobFile,
    job: &FioJob,
    name: &str,
    place: &Place,
) -> Result<ClientSpec, ConfigError> {
    let settings = &job.settings;
    let name =
        if settings.clones == 1 { name.to_owned() } else { format!("{name}.{}", place.clone) };
    let mut calls = calls(file, job, place)?;
    let keeps = settings.is_buffered() && !settings.hints.drop_behind;
    calls.hits = keeps.then_some(Hits { invalidate: settings.invalidate });
    let pattern = match (writes(settings), settings.random) {
        (false, false) => Pattern::SequentialRead,
        (true, false) => Pattern::SequentialWrite,
        (false, true) => Pattern::RandomRead,
        (true, true) => Pattern::RandomWrite,
    };
    let used = calls.directions(pattern.writes());
    let buffered = settings.is_buffered();
    let depth = match settings.engine {
        Engine::Asynchronous if !buffered => settings.depth,
        _ => 1,
    };
    let first = Direction::ALL.into_iter().find(|direction| used[direction.index()]);
    let block = first.map_or(0, Direction::index);
    let block = Sectors(settings.blocks[block].least() / 512);
    // fio makes no sync otherwise.
    let syncs = match settings.writes() && settings.direction != fio::Direction::TrimWrite {
        true => [settings.fdatasync, settings.fsync],
        false => [0; 2],
    };
    (calls.sync_every, calls.sync_gap) = (syncs[1], settings.sync_gap());
    calls.syncs_hold = settings.sync_gap() > 0;
    calls.syncs_in_flight = settings.syncs_in_flight;
    let mut client = ClientSpec {
        name,
        processes: 1,
        group: settings.cgroup.clone().unwrap_or_default(),
        priority: priority(settings),
        guest: false,
        on_drive: None,
        manner: Manner::Plain,
        file_size: reach(calls.turn, &place.region),
        job: Job {
            pattern,
            block,
            buffered,
            depth,
            rate: None,
            fdatasync_every: syncs[0],
            on_off: None,
            think: settings.think,
            sync_writes: true,
            metadata: false,
            calls,
        },
        start: Nanos::ZERO,
        stop: None,
        step: Some(Step {
            number: place.step,
            delay: delay(settings, place, &job.name),
            ramp: settings.ramp,
            time: settings.runtime,
            after: place.after,
            group: place.group,
            exit: place.exit,
        }),
        place: place.region.place,
    };
    pace(settings, used, &mut client.job);
    group(settings, &mut client.job);
    if settings.think > Nanos::ZERO && (settings.think_blocks > 1 || depth > 1) {
        client.job.calls.think_every = Some(settings.think_blocks);
    }
    check(file, job, &client)?;
    Ok(client)
}

/// Whether calls that are not reads write (or trim).
fn writes(settings: &Settings) -> bool {
    settings.direction != fio::Direction::Read
}

/// Refuses what the model cannot do.
fn check(file: &JobFile, job: &FioJob, client: &ClientSpec) -> Result<(), ConfigError> {
    let (settings, calls) = (&job.settings, &client.job.calls);
    let refuse = |option: &str, message: &str| Err(file.error(job, option, message));
    let used = calls.directions(client.job.pattern.writes());
    let most = Direction::ALL.into_iter().filter(|direction| used[direction.index()]);
    let most = most.map(|direction| settings.blocks[direction.index()].most()).max().unwrap_or(0);
    if most > client.file_size.bytes() {
        return refuse("size", "the size is smaller than a block");
    }
    let pages = |blocks: &Blocks| {
        let good = |bytes: u64| bytes.is_multiple_of(4096) || 4096u64.is_multiple_of(bytes);
        match blocks {
            Blocks::Fixed(size) => good(*size),
            Blocks::Range(low, _) => good(*low),
            Blocks::Split(sizes) => sizes.iter().all(|size| good(size.0)),
        }
    };
    if client.job.buffered && used[1] && !pages(&settings.blocks[1]) {
        return refuse("bs", "blocks of buffered writes are whole pages of 4 KiB, or fit into one");
    }
    Ok(())
}

fn priority(settings: &Settings) -> Priority {
    let level = settings.prio.unwrap_or(Priority::default().level);
    Priority { class: class(settings.prio_class), level }
}

fn class(number: Option<u8>) -> Class {
    match number {
        Some(1) => Class::RealTime,
        Some(3) => Class::Idle,
        _ => Class::BestEffort,
    }
}

/// When it starts: a range is drawn from.
fn delay(settings: &Settings, place: &Place, name: &str) -> Nanos {
    let (low, high) = settings.start_delay;
    let stream = name
        .bytes()
        .fold(u64::from(place.clone), |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let mut random = Random::new(place.seed, STREAM_DELAYS ^ stream);
    Nanos(random.between(low.0, high.0))
}

fn calls(file: &JobFile, job: &FioJob, place: &Place) -> Result<Calls, ConfigError> {
    let settings = &job.settings;
    let mix = match settings.direction {
        fio::Direction::Read | fio::Direction::Write => Mix::Pattern,
        fio::Direction::Trim => Mix::Trims,
        fio::Direction::Mixed => Mix::ReadsAndWrites { reads: settings.reads },
        fio::Direction::TrimWrite => Mix::TrimsThenWrites,
    };
    let mut calls = Calls { mix, distribution: places(settings), ..Calls::default() };
    let align = settings.align.filter(|_| settings.random).map(|bytes| Sectors(bytes / 512));
    calls.align = align.filter(|align| *align != Sectors(settings.blocks[0].least() / 512));
    let used = calls.directions(writes(settings));
    let first = Direction::ALL.into_iter().find(|direction| used[direction.index()]);
    let common = first.map_or(0, |direction| settings.blocks[direction.index()].least());
    for direction in Direction::ALL.map(Direction::index).into_iter().filter(|index| used[*index]) {
        let blocks = &settings.blocks[direction];
        if *blocks != Blocks::Fixed(common) {
            calls.sizes[direction] = sizes(blocks);
        }
    }
    calls.files = settings.takes_turns().then(|| files(settings));
    calls.turn = match (settings.modifier, settings.random, settings.identical) {
        _ if settings.has_gaps() => Turn::Gap(gap(settings, &place.region)),
        (None, ..) | (_, false, _) => Turn::Each,
        (Some(number), true, false) => Turn::Run(number.unsigned_abs()),
        (Some(number), true, true) => Turn::Same(number.unsigned_abs()),
    };
    if let (Some(target), Some(window)) = (settings.latency_target, settings.latency_window) {
        let (per_million, goes_on) = (settings.latency_per_million, settings.latency_run);
        calls.search = Some(DepthSearch { target, window, per_million, goes_on });
    }
    calls.durable = settings.sync && settings.writes();
    calls.end_sync = settings.end_syncs.contains(&true) && settings.writes();
    calls.urgent = urgent(file, job)?;
    let (passes, all) = (amount::passes(settings, &place.region), settings.blocks.iter());
    if !passes.goes_on && passes.wanted < all.map(Blocks::least).min().unwrap_or(512) {
        let option = if settings.io_size.is_some() { "io_size" } else { "size" };
        return Err(file.error(job, option, "the size is smaller than a block"));
    }
    if !settings.time_based {
        let amount = amount::total(settings, used, &place.region);
        let too_many = || file.error(job, "loops", "more bytes than can be counted");
        let amount = amount.ok_or_else(too_many)?;
        (calls.bytes_max, calls.last_is_whole) = (Some(amount.bytes), amount.last_is_whole);
        // Of pairs of a trim and a write, fio counts on from pass to pass, and doubles the number for each.
        let (pair, doubled) = match settings.direction {
            fio::Direction::TrimWrite => (2, 1 << (settings.loops - 1).min(62)),
            _ => (1, 1),
        };
        let passes = |calls: u64| calls.saturating_mul(settings.loops);
        let number = settings.number_ios.map(|number| number.saturating_mul(pair));
        let all = number.map(|number| number.saturating_mul(doubled));
        calls.calls_max = amount.pass.into_iter().chain(all).min().map(passes);
        if let Some(files) = &mut calls.files {
            let of_pass = amount.pass.into_iter().chain(number.map(passes));
            files.pass = of_pass.min().unwrap_or(u64::MAX);
        }
        let is_before = |most: u64| amount.bytes / common < most;
        calls.last_sync = amount.fails && calls.calls_max.is_none_or(is_before);
    }
    Ok(calls)
}

/// Part of its file that a job uses.
fn reach(turn: Turn, region: &Region) -> Sectors {
    let bytes = if matches!(turn, Turn::Gap(_)) { region.room } else { region.reach };
    Sectors(bytes / 512)
}

/// The turns of several files.
fn files(settings: &Settings) -> Files {
    let calls = if let Service::RoundRobin(calls) = settings.service { calls.into() } else { 1 };
    Files { number: settings.nr_files, calls, pass: u64::MAX }
}

/// What follows a sequential call with a gap, or a zone.
fn gap(settings: &Settings, region: &Region) -> Gap {
    let passes = (!settings.time_based).then(|| amount::passes(settings, region));
    let Region { offset: start, reach, room, .. } = *region;
    let (sectors, zone) = match (settings.modifier, settings.direction) {
        (Some(bytes), _) => (bytes / 512, 0),
        (None, fio::Direction::Mixed) => (0, 0),
        _ => ((settings.zone_gap() / 512) as i64, settings.zones.size / 512),
    };
    Gap { sectors, zone, start, reach, room, passes }
}

/// Calls of another priority: one of both directions, as far as the model has it.
fn urgent(file: &JobFile, job: &FioJob) -> Result<Option<Urgent>, ConfigError> {
    let both = job.settings.urgent;
    let percent = both.map(|urgent| urgent.percent);
    let Some(one) = both.into_iter().find(|urgent| urgent.percent > 0) else { return Ok(None) };
    let differs = |urgent: &fio::Urgent| {
        urgent.percent > 0 && (urgent.class, urgent.level) != (one.class, one.level)
    };
    if both.iter().any(differs) {
        let message = "reads and writes cannot have different priorities";
        return Err(file.error(job, "cmdprio", message));
    }
    let priority = Priority { class: class(Some(one.class)), level: one.level };
    Ok(Some(Urgent { percent, priority }))
}

/// How calls are submitted and completed together. One call at a time is no group, and with a rate each is sent when it is due.
fn group(settings: &Settings, job: &mut Job) {
    let depth = job.depth;
    let fio::Batches { submit, complete, low } = settings.batches;
    let has_rate = job.rate.is_some() || job.calls.rates.iter().any(Option::is_some);
    let submit = if has_rate { 1 } else { submit };
    let low = low.map_or(0, |low| depth.saturating_sub(low));
    let batches =
        Batches { submit: submit.clamp(1, depth), complete: complete.max(low).clamp(1, depth) };
    let grouped = batches != Batches { submit: 1, complete: 1 };
    job.calls.batches = (depth > 1 && grouped).then_some(batches);
}

fn places(settings: &Settings) -> Distribution {
    match settings.distribution {
        fio::Distribution::Random if settings.random && settings.random_map => Distribution::Once,
        _ => distribution(&settings.distribution),
    }
}

/// Rates: of the only direction as that of the job, else for each. An I/O of `rate_iops` counts as the smallest block.
fn pace(settings: &Settings, used: [bool; 3], job: &mut Job) {
    let rate = |direction: usize| {
        let least = settings.blocks[direction].least();
        let iops = settings.rate_iops[direction].map(|iops| iops.saturating_mul(least));
        [iops, settings.rate[direction]].into_iter().flatten().min()
    };
    job.calls.poisson = settings.poisson;
    let fio::LeastRate { bytes, calls, cycle } = settings.least_rate;
    if bytes.iter().chain(&calls).any(Option::is_some) {
        let used =
            |rates: [Option<u64>; 3]| std::array::from_fn(|at| rates[at].filter(|_| used[at]));
        let (bytes, calls) = (used(bytes), used(calls));
        job.calls.least_rate = Some(LeastRate { bytes, calls, cycle });
    }
    let used: Vec<usize> = (0..3).filter(|direction| used[*direction]).collect();
    match used[..] {
        [only] => job.rate = rate(only),
        _ => used.iter().for_each(|direction| job.calls.rates[*direction] = rate(*direction)),
    }
}
