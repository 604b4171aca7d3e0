//! Clients that are more than a job of fio's: copies, start-ups, processes that share a file.

use std::sync::Arc;

use iofair_config::fio::{self, Blocks};
use iofair_config::{ConfigError, Source};
use iofair_core::unit::Sectors;

use crate::client_file::{ClientFile, JobFile};
use crate::recording;
use crate::scenario::{Calls, ClientSpec, Distribution, Manner, Mix, Pattern, Sizes};

/// What `job` may be.
pub(crate) const JOBS: &str =
    "read, write, randread, randwrite, rw, randrw, trim, randtrim, copy, startup";

/// Where a job reads or writes.
pub(crate) fn pattern(job: JobFile) -> Pattern {
    match job {
        JobFile::Read | JobFile::Copy => Pattern::SequentialRead,
        JobFile::Write | JobFile::Rw | JobFile::Trim => Pattern::SequentialWrite,
        JobFile::Randread | JobFile::Startup => Pattern::RandomRead,
        JobFile::Randwrite | JobFile::Randrw | JobFile::Randtrim => Pattern::RandomWrite,
    }
}

/// What differs between the calls of a client.
pub(crate) fn calls(source: &Source, keys: &ClientFile) -> Result<Calls, ConfigError> {
    let job = keys.job.expect("checked before");
    let reads = keys.reads.unwrap_or(50);
    let mix = match job {
        JobFile::Rw | JobFile::Randrw => Mix::ReadsAndWrites { reads: reads.min(100) },
        JobFile::Trim | JobFile::Randtrim => Mix::Trims,
        _ => Mix::Pattern,
    };
    let at = keys.name.as_ref().expect("checked before").span();
    let refuse = |message: &str| Err(source.error(at.clone(), message));
    if keys.reads.is_some() && mix != (Mix::ReadsAndWrites { reads }) {
        return refuse("`reads` is a percentage, for the jobs rw and randrw");
    }
    let plain = !matches!(job, JobFile::Copy | JobFile::Startup);
    let differs = keys.blocks.is_some() || keys.distribution.is_some() || keys.iops.is_some();
    if differs && (!plain || keys.interleaved == Some(true)) {
        return refuse("`blocks`, `distribution` and `iops` are for jobs of fio's");
    }
    let buffered = keys.buffered.unwrap_or(true);
    if buffered && job == JobFile::Rw {
        return refuse("a sequential mix needs `buffered = false`");
    }
    let mut calls = Calls { mix, ..Calls::default() };
    if let Some(written) = &keys.blocks {
        let blocks = fio::split(written.get_ref(), 1024);
        let blocks = blocks.map_err(|message| source.error(written.span(), message))?;
        calls.sizes = std::array::from_fn(|_| sizes(&blocks));
    }
    if let Some(written) = &keys.distribution {
        if pattern(job).is_sequential() {
            return Err(source.error(written.span(), "a sequential job has no distribution"));
        }
        let read = fio::distribution(written.get_ref());
        let read = read.map_err(|message| source.error(written.span(), message))?;
        calls.distribution = distribution(&read);
    }
    Ok(calls)
}

/// Gives one of a client's processes its manner: number `index` of `count`.
pub(crate) fn apply(
    source: &Source,
    keys: &ClientFile,
    index: u32,
    count: u32,
    spec: &mut ClientSpec,
) -> Result<(), ConfigError> {
    let at = keys.name.as_ref().expect("a client without a name was refused before").span();
    let refuse =
        |message: &str| source.error(at.clone(), format!("client `{}`: {message}", spec.name));
    let (job, buffered) = (keys.job, keys.buffered.unwrap_or(true));
    if (keys.program.is_some() || keys.pauses.is_some()) && job != Some(JobFile::Startup) {
        return Err(refuse("`program` and `pauses` are for `job = \"startup\"`"));
    }
    if keys.interleaved == Some(true) {
        let job_is_good = match job {
            Some(JobFile::Read) => true,
            Some(JobFile::Write) => !buffered,
            _ => false,
        };
        if !job_is_good {
            let error = refuse("`interleaved` needs `job` read, or write and `buffered = false`");
            return Err(error);
        }
        spec.manner = Manner::Interleaved { index, of: count };
    }
    match job {
        Some(JobFile::Copy) if !buffered => {
            return Err(refuse("a copy goes through the page cache"));
        }
        Some(JobFile::Copy) => spec.manner = Manner::Copy,
        Some(JobFile::Startup) => {
            let known = recording::names().collect::<Vec<_>>().join(", ");
            let Some(program) = &keys.program else {
                return Err(refuse("a start-up needs its `program`").allowed(known));
            };
            let Some(recording) = recording::load(program) else {
                let error = refuse(&format!("no program `{program}`"));
                return Err(error.allowed(known).near(program, recording::names()));
            };
            let recording = match keys.pauses.unwrap_or(false) {
                true => recording,
                false => recording.without_pauses(),
            };
            spec.file_size = recording.file_size();
            spec.manner = Manner::Startup(Arc::new(recording));
        }
        _ => {}
    }
    Ok(())
}

/// Sizes with their percentages. A range has at most a hundred of its multiples, evenly chosen.
pub fn sizes(blocks: &Blocks) -> Sizes {
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

/// A distribution as it was written.
pub fn distribution(written: &fio::Distribution) -> Distribution {
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
