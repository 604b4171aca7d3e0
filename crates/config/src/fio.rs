//! Job files of fio, as far as a model of clients and a drive has a meaning for them.
//!
//! [`read`] gives the jobs of a file with their settings: `[global]` sections applied to what follows them, includes, variables
//! and keywords replaced, units read. The meaning of each option is that of fio's manual (`HOWTO.rst`), with fio 3.33 where the
//! manual is silent. An option without a meaning here is an error that names it; [`IGNORED`] lists those that change nothing
//! that is modelled. What the jobs become is decided by the crate `lab`.

mod lines;
mod options;
#[cfg(test)]
mod tests;
mod values;

use std::ops::Range;
use std::path::Path;

use iofair_core::time::Nanos;

use crate::error::ConfigError;
use crate::source::Source;

pub use options::{IGNORED, SUPPORTED};
pub use values::{distribution, split};

/// Most jobs of a file.
const JOBS_MAX: usize = 1_000;
/// Most clones of a job.
const NUMJOBS_MAX: u64 = 10_000;
/// Most calls of a job in flight.
const DEPTH_MAX: u64 = 1 << 16;

/// What `${NAME}` and keywords such as `$ncpus` stand for.
#[derive(Clone, Debug)]
pub struct Variables {
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// `$ncpus`
    pub processors: u64,
    /// `$mb_memory`
    pub memory_mib: u64,
    /// `$pagesize`
    pub page_bytes: u64,
}

impl Default for Variables {
    /// No environment, and a machine of one processor and 1 GiB.
    fn default() -> Self {
        Self { environment: Vec::new(), processors: 1, memory_mib: 1024, page_bytes: 4096 }
    }
}

impl Variables {
    /// Those of this process and this machine.
    pub fn of_this_machine() -> Self {
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            environment: environment.collect(),
            processors: std::thread::available_parallelism().map_or(1, |it| it.get() as u64),
            memory_mib: kib.unwrap_or(0) / 1024,
            page_bytes: 4096,
        }
    }
}

/// A job file.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// The file and what it includes.
    sources: Vec<Source>,
    /// Options of all `[global]` sections, as written.
    pub global: Vec<(String, String)>,
    /// Jobs in order, at least one.
    pub jobs: Vec<Job>,
}

/// A section that is a job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the section, or of the option `name`.
    pub name: String,
    /// Options of the section itself, as written.
    pub options: Vec<(String, String)>,
    /// All options together.
    pub settings: Settings,
    /// Where its options are written, those of global sections included; the section itself first.
    written: Vec<Written>,
}

/// An option in a file.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    value: String,
    source: usize,
    /// Of the name and of the value, in the source's text.
    key: Range<usize>,
    place: Range<usize>,
}

impl JobFile {
    /// The file's name as it was given.
    pub fn path(&self) -> &str {
        self.sources[0].path()
    }
    /// The file itself.
    pub fn source(&self) -> &Source {
        &self.sources[0]
    }
    /// An error about an option of a job, at its place; about the section if the job does not have the option.
    pub fn error(&self, job: &Job, option: &str, message: impl Into<String>) -> ConfigError {
        let named = job.written.iter().rev().find(|it| options::canonical(&it.name) == option);
        let it = named.unwrap_or(&job.written[0]);
        self.sources[it.source].error(it.place.clone(), message)
    }
}

/// Directions of calls, in the order in which fio lists values for them.
pub const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// What calls do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// `read`, `randread`
    Read,
    /// `write`, `randwrite`
    Write,
    /// `trim`, `randtrim`
    Trim,
    /// `rw`, `randrw`
    Mixed,
    /// `trimwrite`, `randtrimwrite`: each block is trimmed, then written.
    TrimWrite,
}

/// Sizes of calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Blocks {
    /// All alike.
    Fixed(u64),
    /// Any multiple of the first up to the second, each as likely as the others.
    Range(u64, u64),
    /// Sizes and their percentages, which make 100.
    Split(Vec<(u64, u32)>),
}

impl Blocks {
    /// The smallest.
    pub fn least(&self) -> u64 {
        match self {
            Self::Fixed(size) | Self::Range(size, _) => *size,
            Self::Split(sizes) => sizes.iter().map(|it| it.0).min().unwrap_or(1),
        }
    }
    /// The largest.
    pub fn most(&self) -> u64 {
        match self {
            Self::Fixed(size) | Self::Range(_, size) => *size,
            Self::Split(sizes) => sizes.iter().map(|it| it.0).max().unwrap_or(1),
        }
    }
}

/// Where random calls go.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Distribution {
    /// Anywhere, each place as likely as the others.
    #[default]
    Random,
    /// The block of rank k with a probability of k to the power of minus theta.
    Zipf(f64),
    /// The part h of the blocks has the part 1 - h of the calls, and so on in each part.
    Pareto(f64),
    /// Around the middle, with this deviation in percent of the range.
    Normal(f64),
    /// Percent of the calls, and percent of the range that they go to.
    Zoned(Vec<(u32, u32)>),
}

/// A size, or a part of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Percent of the target.
    Percent(u32),
}

/// How calls are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// One at a time.
    Synchronous,
    /// As many as `iodepth` says.
    Asynchronous,
}

/// What a job does. Defaults are fio's.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// `name`
    pub name: Option<String>,
    /// `description`
    pub description: Option<String>,
    /// `rw`: what calls do, whether anywhere, and the number behind the colon.
    pub direction: Direction,
    /// See above.
    pub random: bool,
    /// See above.
    pub modifier: Option<u64>,
    /// `rw_sequencer=identical`
    pub identical: bool,
    /// `bs`, `bsrange`, `bssplit`, of reads, writes, trims.
    pub blocks: [Blocks; 3],
    /// `iodepth`
    pub depth: u32,
    /// `ioengine`
    pub engine: Engine,
    /// `direct`, and the opposite of `buffered`.
    pub direct: bool,
    /// `rate`, bytes a second.
    pub rate: [Option<u64>; 3],
    /// `rate_iops`
    pub rate_iops: [Option<u64>; 3],
    /// `thinktime`
    pub think: Nanos,
    /// `thinktime_blocks`
    pub think_blocks: u32,
    /// `numjobs`
    pub clones: u32,
    /// `size`
    pub size: Option<Size>,
    /// `io_size`
    pub io_size: Option<Size>,
    /// `number_ios`
    pub number_ios: Option<u64>,
    /// `loops`
    pub loops: u64,
    /// `offset`
    pub offset: Size,
    /// `offset_increment`
    pub offset_increment: Size,
    /// `runtime`
    pub runtime: Option<Nanos>,
    /// `time_based`
    pub time_based: bool,
    /// `ramp_time`
    pub ramp: Nanos,
    /// `startdelay`: from, to.
    pub start_delay: (Nanos, Nanos),
    /// `fsync`
    pub fsync: u32,
    /// `fdatasync`
    pub fdatasync: u32,
    /// `rwmixread`, percent.
    pub reads: u32,
    /// `random_distribution`
    pub distribution: Distribution,
    /// The opposite of `norandommap`.
    pub random_map: bool,
    /// `stonewall`
    pub stonewall: bool,
    /// `new_group`
    pub new_group: bool,
    /// `group_reporting`
    pub group_reporting: bool,
    /// `prio`
    pub prio: Option<u8>,
    /// `prioclass`: 1 real time, 2 best effort, 3 idle.
    pub prio_class: Option<u8>,
    /// `cgroup`
    pub cgroup: Option<String>,
    /// `cgroup_weight`
    pub cgroup_weight: Option<u32>,
    /// `latency_target`
    pub latency_target: Option<Nanos>,
    /// `latency_window`
    pub latency_window: Option<Nanos>,
    /// `latency_percentile`, in millionths.
    pub latency_per_million: u32,
    /// `latency_run`
    pub latency_run: bool,
    /// `filename`, or `filename_format`.
    pub file: Option<String>,
    /// `directory`
    pub directory: Option<String>,
    /// `randseed`
    pub seed: Option<u64>,
    /// `randrepeat`
    pub repeat_seed: bool,
    /// `log_avg_msec`
    pub log_window: Option<Nanos>,
    /// `kb_base`
    pub kb_base: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            description: None,
            direction: Direction::Read,
            random: false,
            modifier: None,
            identical: false,
            blocks: [const { Blocks::Fixed(4096) }; 3],
            depth: 1,
            engine: Engine::Synchronous,
            direct: false,
            rate: [None; 3],
            rate_iops: [None; 3],
            think: Nanos::ZERO,
            think_blocks: 1,
            clones: 1,
            size: None,
            io_size: None,
            number_ios: None,
            loops: 1,
            offset: Size::Bytes(0),
            offset_increment: Size::Bytes(0),
            runtime: None,
            time_based: false,
            ramp: Nanos::ZERO,
            start_delay: (Nanos::ZERO, Nanos::ZERO),
            fsync: 0,
            fdatasync: 0,
            reads: 50,
            distribution: Distribution::Random,
            random_map: true,
            stonewall: false,
            new_group: false,
            group_reporting: false,
            prio: None,
            prio_class: None,
            cgroup: None,
            cgroup_weight: None,
            latency_target: None,
            latency_window: None,
            latency_per_million: 1_000_000,
            latency_run: false,
            file: None,
            directory: None,
            seed: None,
            repeat_seed: true,
            log_window: None,
            kb_base: 1024,
        }
    }
}

/// Reads a job file.
pub fn read(path: &Path, variables: &Variables) -> Result<JobFile, ConfigError> {
    parse_source(lines::open(path)?, variables)
}

/// Reads a job file that is already in memory; includes are looked for beside `path`.
pub fn parse(path: &str, text: &str, variables: &Variables) -> Result<JobFile, ConfigError> {
    parse_source(Source::new(path, text), variables)
}

fn parse_source(source: Source, variables: &Variables) -> Result<JobFile, ConfigError> {
    let lines::Lines { sources, sections } = lines::read(source, variables)?;
    let (mut global, mut base, mut inherited) = (Vec::new(), Settings::default(), Vec::new());
    let mut jobs: Vec<Job> = Vec::new();
    let refuse = |it: &Written, bad: options::Bad| bad.at(&sources[it.source], it);
    for section in sections {
        let plain = |it: &Written| (it.name.clone(), it.value.clone());
        let own: Vec<(String, String)> = section.options.iter().map(plain).collect();
        let mut settings = base.clone();
        // Values of the whole section are read in its base of units.
        let units = |it: &&Written| it.name == "kb_base";
        let (first, rest): (Vec<&Written>, Vec<&Written>) =
            section.options.iter().partition(|it| units(it));
        for it in first.into_iter().chain(rest) {
            options::apply(&mut settings, &it.name, &it.value).map_err(|bad| refuse(it, bad))?;
        }
        if section.is_global() {
            base = settings;
            global.extend(own);
            inherited.extend(section.options);
            continue;
        }
        if jobs.len() >= JOBS_MAX {
            let error = sources[section.head.source].error(section.head.place, "too many jobs");
            return Err(error.allowed(format!("{JOBS_MAX} in a file")));
        }
        let mut written = vec![section.head];
        written.extend(inherited.iter().cloned());
        written.extend(section.options);
        let name = settings.name.clone().unwrap_or(section.name);
        jobs.push(Job { name, options: own, settings, written });
    }
    if jobs.is_empty() {
        let error = ConfigError::whole_file(sources[0].path(), "no job in this file");
        return Err(error.allowed("a section such as [reader]"));
    }
    let file = JobFile { sources, global, jobs };
    file.jobs.iter().try_for_each(|job| check(&file, job))?;
    Ok(file)
}

/// What no option can see by itself.
fn check(file: &JobFile, job: &Job) -> Result<(), ConfigError> {
    let it = &job.settings;
    let refuse = |option: &str, message: &str| Err(file.error(job, option, message));
    if it.time_based && it.runtime.is_none() {
        return refuse("time_based", "`time_based` needs a `runtime`");
    }
    if it.cgroup_weight.is_some() && it.cgroup.is_none() {
        return refuse("cgroup_weight", "`cgroup_weight` needs a `cgroup`");
    }
    if it.latency_target.is_some() && it.latency_window.is_none() {
        return refuse("latency_target", "`latency_target` needs a `latency_window`");
    }
    if it.engine == Engine::Synchronous && it.depth > 1 && it.latency_target.is_some() {
        return refuse("latency_target", "`latency_target` needs an asynchronous `ioengine`");
    }
    let zoned = it.distribution != Distribution::Random;
    if zoned && !it.random {
        return refuse("random_distribution", "a sequential job has no distribution of places");
    }
    if it.start_delay.0 > it.start_delay.1 {
        return refuse("startdelay", "the range is the wrong way round");
    }
    Ok(())
}
