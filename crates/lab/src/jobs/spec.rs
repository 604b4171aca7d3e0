//! A clone of a job as a client.

use iofair_config::ConfigError;
use iofair_config::fio::{self, Blocks, Engine, Job as FioJob, JobFile, Settings, Size};
use iofair_core::group::{Class, Priority};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;

use super::target::Region;
use crate::scenario::{
    Calls, ClientSpec, DepthSearch, Direction, Distribution, Job, Manner, Mix, Pattern, Sizes,
    Step, Turn,
};

/// The stream of random numbers of start delays.
const STREAM_DELAYS: u64 = 1 << 33;

/// Which clone it is, and where.
pub(super) struct Place {
    pub(super) clone: u32,
    pub(super) step: u32,
    pub(super) region: Region,
    pub(super) seed: u64,
}

/// What a job does otherwise than its file might make believe.
pub(super) fn note(name: &str, settings: &Settings) -> Option<String> {
    let buffered =
        !settings.direct && settings.depth > 1 && settings.engine == Engine::Asynchronous;
    buffered.then(|| {
        let depth = settings.depth;
        format!("{name}: one call at a time, because iodepth={depth} needs direct=1.")
    })
}

pub(super) fn client(
    file: &JobFile,
    job: &FioJob,
    name: &str,
    place: &Place,
) -> Result<ClientSpec, ConfigError> {
    let it = &job.settings;
    let name = if it.clones == 1 { name.to_owned() } else { format!("{name}.{}", place.clone) };
    let calls = calls(file, job, place)?;
    let pattern = match (writes(it), it.random) {
        (false, false) => Pattern::SequentialRead,
        (true, false) => Pattern::SequentialWrite,
        (false, true) => Pattern::RandomRead,
        (true, true) => Pattern::RandomWrite,
    };
    let used = calls.directions(pattern.writes());
    let buffered = !it.direct && !matches!(it.direction, fio::Direction::Trim);
    let depth = match it.engine {
        Engine::Asynchronous if !buffered => it.depth,
        _ => 1,
    };
    let block = Direction::ALL.into_iter().find(|it| used[it.index()]).map_or(0, Direction::index);
    let block = Sectors(it.blocks[block].least() / 512);
    let mut client = ClientSpec {
        name,
        processes: 1,
        group: it.cgroup.clone().unwrap_or_default(),
        priority: priority(it),
        guest: false,
        on_drive: None,
        manner: Manner::Plain,
        job: Job {
            pattern,
            block,
            buffered,
            depth,
            rate: None,
            fdatasync_every: match (it.fsync, it.fdatasync) {
                (0, every) | (every, 0) => every,
                (one, other) => one.min(other),
            },
            on_off: None,
            think: it.think,
            sync_writes: true,
            metadata: false,
            calls,
        },
        file_size: place.region.size,
        start: Nanos::ZERO,
        stop: None,
        step: Some(Step {
            number: place.step,
            delay: delay(it, place, &job.name),
            ramp: it.ramp,
            time: it.runtime,
        }),
        place: place.region.place,
    };
    pace(it, used, &mut client.job);
    if it.think > Nanos::ZERO && (it.think_blocks > 1 || depth > 1) {
        client.job.calls.think_every = Some(it.think_blocks);
    }
    check(file, job, &client)?;
    Ok(client)
}

/// Whether calls that are not reads write (or trim).
fn writes(it: &Settings) -> bool {
    it.direction != fio::Direction::Read
}

/// What the model cannot do.
fn check(file: &JobFile, job: &FioJob, client: &ClientSpec) -> Result<(), ConfigError> {
    let (it, calls) = (&job.settings, &client.job.calls);
    let refuse = |option: &str, message: &str| Err(file.error(job, option, message));
    if client.job.buffered && !it.random {
        let mixed = it.direction == fio::Direction::Mixed;
        if mixed || (it.direction == fio::Direction::Read && calls.turn != Turn::Each) {
            let message = "the page cache has no model of read-ahead for this; write direct=1";
            return refuse("rw", message);
        }
    }
    let used = calls.directions(client.job.pattern.writes());
    let most = Direction::ALL.into_iter().filter(|it| used[it.index()]);
    let most = most.map(|direction| it.blocks[direction.index()].most()).max().unwrap_or(0);
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
    if client.job.buffered && used[1] && !pages(&it.blocks[1]) {
        return refuse("bs", "blocks of buffered writes are whole pages of 4 KiB, or fit into one");
    }
    Ok(())
}

fn priority(it: &Settings) -> Priority {
    let class = match it.prio_class {
        Some(1) => Class::RealTime,
        Some(3) => Class::Idle,
        _ => Class::BestEffort,
    };
    Priority { class, level: it.prio.unwrap_or(Priority::default().level) }
}

/// When it starts: a range is drawn from.
fn delay(it: &Settings, place: &Place, name: &str) -> Nanos {
    let (low, high) = it.start_delay;
    let stream = name
        .bytes()
        .fold(u64::from(place.clone), |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let mut random = Random::new(place.seed, STREAM_DELAYS ^ stream);
    Nanos(random.between(low.0, high.0))
}

fn calls(file: &JobFile, job: &FioJob, place: &Place) -> Result<Calls, ConfigError> {
    let it = &job.settings;
    let mix = match it.direction {
        fio::Direction::Read | fio::Direction::Write => Mix::Pattern,
        fio::Direction::Trim => Mix::Trims,
        fio::Direction::Mixed => Mix::ReadsAndWrites { reads: it.reads },
        fio::Direction::TrimWrite => Mix::TrimsThenWrites,
    };
    let mut calls = Calls { mix, distribution: places(it), ..Calls::default() };
    let used = calls.directions(writes(it));
    let first = Direction::ALL.into_iter().find(|direction| used[direction.index()]);
    let common = first.map_or(0, |direction| it.blocks[direction.index()].least());
    for direction in Direction::ALL.map(Direction::index).into_iter().filter(|it| used[*it]) {
        let blocks = &it.blocks[direction];
        if *blocks != Blocks::Fixed(common) {
            calls.sizes[direction] = sizes(blocks);
        }
    }
    calls.turn = match (it.modifier, it.random, it.identical) {
        (None, ..) => Turn::Each,
        (Some(bytes), false, _) => Turn::Gap(Sectors(bytes / 512)),
        (Some(number), true, false) => Turn::Run(number),
        (Some(number), true, true) => Turn::Same(number),
    };
    if let (Some(target), Some(window)) = (it.latency_target, it.latency_window) {
        let (per_million, goes_on) = (it.latency_per_million, it.latency_run);
        calls.search = Some(DepthSearch { target, window, per_million, goes_on });
    }
    calls.calls_max = it.number_ios;
    if !it.time_based {
        let bytes = match it.io_size {
            None => place.region.size.bytes(),
            Some(Size::Bytes(bytes)) => bytes,
            Some(Size::Percent(percent)) => place.region.whole / 100 * u64::from(percent),
        };
        let least = Direction::ALL.map(Direction::index).into_iter().filter(|it| used[*it]);
        let least = least.map(|direction| it.blocks[direction].least()).min().unwrap_or(512);
        let twice = if it.direction == fio::Direction::TrimWrite { 2 } else { 1 };
        let bytes = (bytes / least * least).checked_mul(it.loops * twice);
        let too_many = || file.error(job, "loops", "more bytes than can be counted");
        calls.bytes_max = Some(bytes.ok_or_else(too_many)?);
    }
    Ok(calls)
}

/// Sizes with their percentages. A range has at most a hundred of its multiples, evenly chosen.
pub(crate) fn sizes(blocks: &Blocks) -> Sizes {
    let sectors = |bytes: u64| Sectors(bytes / 512);
    match blocks {
        Blocks::Fixed(size) => vec![(sectors(*size), 100)],
        Blocks::Split(sizes) => sizes.iter().map(|(size, part)| (sectors(*size), *part)).collect(),
        Blocks::Range(low, high) => {
            let number = high / low;
            let shown = number.min(100);
            let size = |index: u64| sectors(low * (1 + index * number / shown));
            let part = |index: u64| (100 * (index + 1) / shown - 100 * index / shown) as u32;
            (0..shown).map(|index| (size(index), part(index))).collect()
        }
    }
}

fn places(it: &Settings) -> Distribution {
    match it.distribution {
        fio::Distribution::Random if it.random && it.random_map => Distribution::Once,
        _ => distribution(&it.distribution),
    }
}

/// A distribution as it was written.
pub(crate) fn distribution(written: &fio::Distribution) -> Distribution {
    match written {
        fio::Distribution::Random => Distribution::Uniform,
        fio::Distribution::Zipf(theta) => Distribution::Zipf { theta: *theta },
        fio::Distribution::Pareto(h) => Distribution::Pareto { h: *h },
        fio::Distribution::Normal(deviation_percent) => {
            Distribution::Normal { deviation_percent: *deviation_percent }
        }
        fio::Distribution::Zoned(zones) => Distribution::Zoned(zones.clone()),
    }
}

/// Rates: of the only direction as that of the job, else for each. An I/O of `rate_iops` counts as the smallest block.
fn pace(it: &Settings, used: [bool; 3], job: &mut Job) {
    let rate = |direction: usize| {
        let least = it.blocks[direction].least();
        let iops = it.rate_iops[direction].map(|iops| iops.saturating_mul(least));
        [iops, it.rate[direction]].into_iter().flatten().min()
    };
    let used: Vec<usize> = (0..3).filter(|direction| used[*direction]).collect();
    match used[..] {
        [only] => job.rate = rate(only),
        _ => used.iter().for_each(|direction| job.calls.rates[*direction] = rate(*direction)),
    }
}
