//! Job files of fio, as far as a model of clients and a drive has a meaning for them.
//!
//! [`read`] gives the jobs of a file with their settings: `[global]` sections applied to what follows them, includes, variables
//! and keywords replaced, units read. The meaning of each option is that of fio's manual (`HOWTO.rst`), with fio 3.33 where the
//! manual is silent. An option without a meaning here is an error that names it; [`IGNORED`] lists those that change nothing
//! that is modelled. All problems of a file are found at once ([`JobFile::problems`]). What the jobs become is decided by the
//! crate `lab`.

mod engines;
mod lines;
mod names;
mod options;
mod settings;
#[cfg(test)]
mod tests;
mod values;

use std::ops::Range;
use std::path::Path;

use crate::error::ConfigError;
use crate::source::Source;

pub use names::{IGNORED, SUPPORTED, is_option};
pub use settings::{
    Batches, Blocks, DIRECTIONS, Direction, Distribution, Engine, Exit, Settings, Size, Urgent,
};
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
    /// Why the file cannot be used as it is, in the order of the file.
    pub problems: Vec<Problem>,
    /// Options of the file that change nothing that is modelled.
    pub ignored: Vec<String>,
}

/// Why a file cannot be used as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What is wrong, and where.
    pub error: ConfigError,
    /// What is left out if the file is used all the same, such as `nrfiles=8`; `None`: it cannot be used.
    pub unsupported: Option<String>,
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        Self { error, unsupported: None }
    }
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
    /// The file, if nothing is wrong with it.
    pub fn checked(self) -> Result<Self, ConfigError> {
        let errors = self.problems.iter().map(|problem| problem.error.clone()).collect();
        ConfigError::of_all(errors).map_or(Ok(self), Err)
    }
    /// An error about an option of a job, at its place; about the section if the job does not have the option.
    pub fn error(&self, job: &Job, option: &str, message: impl Into<String>) -> ConfigError {
        let named = job.written.iter().rev().find(|it| options::canonical(&it.name) == option);
        let it = named.unwrap_or(&job.written[0]);
        self.sources[it.source].error(it.place.clone(), message)
    }
}

/// Reads a job file. `options` are `NAME=VALUE`, in place of those of every job.
pub fn read(
    path: &Path,
    variables: &Variables,
    options: &[String],
) -> Result<JobFile, ConfigError> {
    parse_source(lines::open(path)?, variables, options)
}

/// Reads a job file that is already in memory; includes are looked for beside `path`.
pub fn parse(
    path: &str,
    text: &str,
    variables: &Variables,
    options: &[String],
) -> Result<JobFile, ConfigError> {
    parse_source(Source::new(path, text), variables, options)
}

fn parse_source(
    source: Source,
    variables: &Variables,
    options: &[String],
) -> Result<JobFile, ConfigError> {
    let lines::Lines { sources, sections, problems } = lines::read(source, variables, options)?;
    let (mut global, mut base, mut inherited) = (Vec::new(), Settings::default(), Vec::new());
    let (jobs, ignored) = (Vec::new(), Vec::new());
    let mut file = JobFile { sources, global: Vec::new(), jobs, problems, ignored };
    for section in sections {
        let plain = |it: &Written| (it.name.clone(), it.value.clone());
        let own: Vec<(String, String)> = section.options.iter().map(plain).collect();
        let mut settings = base.clone();
        file.apply(&mut settings, &section.options);
        if section.is_global() {
            base = settings;
            global.extend(own);
            inherited.extend(section.options);
            continue;
        }
        if file.jobs.len() >= JOBS_MAX {
            let head = section.head;
            let error = file.sources[head.source].error(head.place, "too many jobs");
            return Err(error.allowed(format!("{JOBS_MAX} in a file")));
        }
        let mut written = vec![section.head];
        written.extend(inherited.iter().cloned());
        written.extend(section.options);
        let name = settings.name.clone().unwrap_or(section.name);
        file.jobs.push(Job { name, options: own, settings, written });
    }
    if file.jobs.is_empty() {
        let error = ConfigError::whole_file(file.path(), "no job in this file");
        return Err(error.allowed("a section such as [reader]"));
    }
    file.global = global;
    let found: Vec<ConfigError> = file.jobs.iter().filter_map(|job| check(&file, job)).collect();
    file.problems.extend(found.into_iter().map(Problem::from));
    Ok(file)
}

impl JobFile {
    /// Applies the options of a section, and takes note of those that cannot be used.
    fn apply(&mut self, settings: &mut Settings, options: &[Written]) {
        // Values of the whole section are read in its base of units.
        let units = |it: &&Written| it.name == "kb_base";
        let (first, rest): (Vec<&Written>, Vec<&Written>) = options.iter().partition(units);
        for it in first.into_iter().chain(rest) {
            if names::is_ignored(&it.name, &it.value) {
                if !self.ignored.contains(&it.name) {
                    self.ignored.push(it.name.clone());
                }
                continue;
            }
            if let Err(bad) = options::apply(settings, &it.name, &it.value) {
                let value = if it.value.is_empty() { "" } else { "=" };
                let named = format!("{}{value}{}", it.name, it.value);
                let unsupported = bad.is_unsupported().then_some(named);
                let error = bad.at(&self.sources[it.source], it);
                self.problems.push(Problem { error, unsupported });
            }
        }
    }
}

/// What no option can see by itself.
fn check(file: &JobFile, job: &Job) -> Option<ConfigError> {
    let it = &job.settings;
    let refuse = |option: &str, message: &str| Some(file.error(job, option, message));
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
    let before = file.jobs.iter().take_while(|other| !std::ptr::eq(*other, job));
    if let Some(name) = &it.wait_for
        && !before.into_iter().any(|other| other.name == *name)
    {
        return refuse("wait_for", &format!("no job above is called `{name}`"));
    }
    None
}
