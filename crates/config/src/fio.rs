//! Job files of fio, as far as a model of clients and a drive has a meaning for them.
//!
//! [`read`] gives the jobs of a file with their settings: `[global]` sections applied to what follows them, includes, variables
//! and keywords replaced, units read. The meaning of each option is that of fio's manual (`HOWTO.rst`), with fio 3.33 where the
//! manual is silent. An option without a meaning here is an error that names it; [`ignored`] lists those that change nothing
//! that is modelled. All problems of a file are found at once ([`JobFile::problems`]). What the jobs become is decided by the
//! crate `simulator`.

mod engines;
mod lines;
mod names;
mod options;
mod problems;
mod settings;
#[cfg(test)]
mod tests;
mod values;

use std::path::Path;

use crate::error::ConfigError;
use crate::source::Source;

use problems::{Written, add, is_said};

pub use lines::Variables;
pub use names::{SUPPORTED, ignored, is_option};
pub use problems::Problem;
pub use settings::{
    Batches, Direction, Engine, Exit, Hints, LeastRate, Service, Settings, Urgent, Verify, Zones,
    is_device,
};
pub use values::{Blocks, Distribution, Size, distribution, split};

/// Most jobs of a file, as in fio.
const JOBS_MAX: usize = 4_096;

/// A job file.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// The file and what it includes.
    sources: Vec<Source>,
    /// Where the options of all `[global]` sections are written.
    inherited: Vec<Written>,
    /// Options of all `[global]` sections, as written.
    pub global: Vec<(String, String)>,
    /// Jobs in order, at least one.
    pub jobs: Vec<Job>,
    /// Why the file cannot be used as it is, in the order of the file.
    pub problems: Vec<Problem>,
    /// Options of the file that change nothing that is modelled.
    pub ignored: Vec<String>,
}

/// A section that is a job.
#[derive(Clone, Debug)]
pub struct Job {
    /// The option `name`, or else the name of the section.
    pub name: String,
    /// The name of the section, which its files have.
    pub section: String,
    /// Options of the section itself, as written.
    pub options: Vec<(String, String)>,
    /// All options together.
    pub settings: Settings,
    /// How many options of global sections stand above it.
    inherited: usize,
    /// Where its own options are written; the section itself first.
    written: Vec<Written>,
}

impl JobFile {
    /// The file's name as it was given.
    pub fn path(&self) -> &str {
        self.sources[0].path()
    }
    /// The file, if nothing is wrong with it.
    pub fn checked(self) -> Result<Self, ConfigError> {
        let errors = self.problems.iter().map(|problem| problem.error.clone()).collect();
        ConfigError::of_all(errors).map_or(Ok(self), Err)
    }
    /// An error about an option of a job, at its place; about the section if the job does not have the option.
    pub fn error(&self, job: &Job, option: &str, message: impl Into<String>) -> ConfigError {
        let written = self.written(job, option).unwrap_or(&job.written[0]);
        self.sources[written.source].error(written.place.clone(), message)
    }
    /// Where a job has its option from.
    fn written<'a>(&'a self, job: &'a Job, option: &str) -> Option<&'a Written> {
        let own = job.written.iter().rev();
        let mut all = own.chain(self.inherited[..job.inherited].iter().rev());
        all.find(|written| options::canonical(&written.name) == option)
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
    let lines::Lines { sources, sections } = lines::read(source, variables, options)?;
    let (mut global, mut base) = (Vec::new(), Settings::default());
    let (inherited, jobs, ignored) = (Vec::new(), Vec::new(), Vec::new());
    let problems = Vec::new();
    let mut file = JobFile { sources, inherited, global: Vec::new(), jobs, problems, ignored };
    for section in sections {
        let plain = |option: &Written| (option.name.clone(), option.value.clone());
        let own: Vec<(String, String)> = section.options.iter().map(plain).collect();
        let mut settings = base.clone();
        let before = file.problems.len();
        file.apply(&mut settings, &section.options)?;
        if section.is_global() {
            // Sections have names of their own, which fio does not take from a global one.
            base = Settings { name: None, ..settings };
            global.extend(own);
            file.inherited.extend(section.options);
            continue;
        }
        if file.jobs.len() >= JOBS_MAX {
            let head = section.head;
            let error = file.sources[head.source].error(head.place, "too many jobs");
            return Err(error.allowed(format!("{JOBS_MAX} in a file")));
        }
        let mut written = vec![section.head];
        written.extend(section.options);
        for what in settings.finish(&section.name) {
            file.ignore(what);
        }
        let name = settings.name.clone().unwrap_or_else(|| section.name.clone());
        let (section, inherited) = (section.name, file.inherited.len());
        let job = Job { name, section, options: own, settings, inherited, written };
        if let Some(engine) = file.dropped(&job) {
            let problems = file.problems[before..].iter_mut();
            problems.for_each(|problem| problem.unsupported = Some(engine.clone()));
        }
        file.jobs.push(job);
    }
    if file.jobs.is_empty() {
        let error = ConfigError::whole_file(file.path(), "no job in this file");
        return Err(error.allowed("a section such as [reader]"));
    }
    file.global = global;
    for index in 0..file.jobs.len() {
        let job = &file.jobs[index];
        let unsupported = file.dropped(job);
        let found = check(&file, job).map(|error| Problem { error, unsupported });
        for problem in found.into_iter().chain(left_out(&file, job)) {
            add(&mut file.problems, problem)?;
        }
    }
    Ok(file)
}

impl JobFile {
    /// Takes note of something without effect.
    fn ignore(&mut self, what: &str) {
        if self.ignored.iter().all(|known| known != what) {
            self.ignored.push(what.to_owned());
        }
    }
    /// The engine of a job that does no I/O: without the job, its errors are none.
    fn dropped(&self, job: &Job) -> Option<String> {
        let engine = self.written(job, "ioengine")?;
        (job.settings.engine == Engine::Elsewhere).then(|| engine.shown())
    }
    /// Applies the options of a section, and takes note of those that cannot be used.
    fn apply(&mut self, settings: &mut Settings, options: &[Written]) -> Result<(), ConfigError> {
        // Values of the whole section are read in its base of units.
        let units = |option: &&Written| option.name == "kb_base";
        let (first, rest): (Vec<&Written>, Vec<&Written>) = options.iter().partition(units);
        for written in first.into_iter().chain(rest) {
            if let Some(error) = written.error.clone() {
                let is_used = SUPPORTED.contains(&&*written.name);
                let unsupported = (!is_used).then(|| written.shown());
                add(&mut self.problems, Problem { error, unsupported })?;
                continue;
            }
            let applied = match names::check_ignored(&written.name, &written.value) {
                Some(Ok(())) => {
                    self.ignore(&written.name);
                    continue;
                }
                Some(Err(bad)) => Err(bad),
                None => {
                    // An argument replaces what the file says, also where a line in the file would have no effect.
                    let is_argument = self.sources[written.source].path() == lines::ARGUMENT;
                    if is_argument && options::canonical(&written.name) == "bs" {
                        settings.spread = Default::default();
                    }
                    options::apply(settings, &written.name, &written.value)
                }
            };
            let Err(bad) = applied else { continue };
            let unsupported = bad.is_unsupported().then(|| written.shown());
            if is_said(&self.problems, unsupported.as_deref()) {
                continue;
            }
            let error = bad.at(&self.sources[written.source], written);
            add(&mut self.problems, Problem { error, unsupported })?;
        }
        Ok(())
    }
}

/// What several options together ask for, and the model does not have.
struct LeftOut {
    option: &'static str,
    /// What of the option is left out, if it is not all.
    part: &'static str,
    message: &'static str,
    allowed: &'static str,
}

fn left_out(file: &JobFile, job: &Job) -> Vec<Problem> {
    let settings = &job.settings;
    let found = asked_together(settings).into_iter().chain(not_alone(settings));
    let found = found.filter(|rule| rule.0);
    let problem = |(_, rule): (bool, LeftOut)| {
        let LeftOut { option, part, message, allowed } = rule;
        let error = file.error(job, option, format!("option `{option}`: {message}"));
        let written = file.written(job, option).map(Written::shown);
        let unsupported = written.map(|written| format!("{part}{written}"));
        Problem { error: error.allowed(allowed), unsupported }
    };
    found.map(problem).collect()
}

/// Random pairs of a trim and a write at an offset: fio adds it twice (seen with 3.33).
fn offset_of_pairs(settings: &Settings) -> (bool, LeftOut) {
    let offsets = [("offset", settings.offset), ("offset_increment", settings.offset_increment)];
    let offset = offsets.iter().find(|(_, size)| *size != Size::Bytes(0));
    let is_random_pair = settings.random && settings.direction == Direction::TrimWrite;
    let rule = LeftOut {
        option: offset.map_or("offset", |(name, _)| name),
        part: "fio's writes with ",
        message: "fio trims one random block, and then writes another one again and again",
        allowed: "0, rw=trimwrite, or the argument --ignore-unsupported, with which each block is trimmed and written",
    };
    (is_random_pair && offset.is_some(), rule)
}

/// Options that change nothing alone.
fn not_alone(settings: &Settings) -> [(bool, LeftOut); 3] {
    let of = |option, message| {
        let allowed = "0, or the argument --ignore-unsupported";
        LeftOut { option, part: "", message, allowed }
    };
    let is_fixed = |blocks: &Blocks| matches!(blocks, Blocks::Fixed(_));
    [
        (
            settings.hints.unaligned && !settings.blocks.iter().all(is_fixed),
            of("bs_unaligned", "sizes that are no sectors are not modelled"),
        ),
        (
            settings.verify.only && settings.verified().is_some(),
            of("verify_only", "reads that only check what was written are not modelled"),
        ),
        (
            settings.is_random_in_part(),
            LeftOut {
                allowed: "100, rw without `rand`, or the argument --ignore-unsupported",
                ..of("percentage_random", "calls that are random in part are not modelled")
            },
        ),
    ]
}

/// What is not modelled, with whether a job asks for it.
fn asked_together(settings: &Settings) -> [(bool, LeftOut); 7] {
    let several = if settings.files().len() > 1 { "filename" } else { "nrfiles" };
    let verify = if settings.verify.how.is_some() { "verify" } else { "verify_pattern" };
    let jumps = match settings.takes_turns() {
        true => several,
        false if settings.zone_gap() > 0 => "zonemode",
        false => "rw",
    };
    let of = |option, part, message, allowed| LeftOut { option, part, message, allowed };
    [
        (
            !settings.orders_files(),
            of(
                several,
                "the order of files of ",
                "this order of several files is not supported",
                "one file; random calls with roundrobin or random, or sequential ones in one direction, or trimwrite, with roundrobin (and one size for all of them) or sequential, as `file_service_type`; --ignore-unsupported makes one file of them",
            ),
        ),
        (
            settings.zones.strided && !settings.has_zones(),
            of(
                "zonemode",
                "",
                "these zones are not modelled",
                "sequential calls in one direction, of a size that divides `zonesize`, and no smaller `zonerange`; or the argument --ignore-unsupported",
            ),
        ),
        (
            settings.zones.size > 0 && !settings.zones.strided,
            of(
                "zonesize",
                "",
                "zones need `zonemode=strided`",
                "zonemode=strided, or the argument --ignore-unsupported",
            ),
        ),
        offset_of_pairs(settings),
        (
            settings.verify_reads(),
            of(
                verify,
                "",
                "the reads that check what was written are not modelled",
                "0, do_verify=0, time_based without verify_backlog, or the argument --ignore-unsupported",
            ),
        ),
        (
            settings.lacks_read_ahead(),
            of(
                jumps,
                "the page cache of ",
                "the page cache has no model of read-ahead for this",
                "direct=1, which the argument --ignore-unsupported takes",
            ),
        ),
        (
            settings.hints.random && !settings.random && settings.is_buffered(),
            of(
                "fadvise_hint",
                "",
                "sequential calls without read-ahead are not modelled",
                "1, 0, or the argument --ignore-unsupported",
            ),
        ),
    ]
}

/// Rates that fio refuses together, even of different directions: an option, and what it does not go with.
fn conflicting_rates(settings: &Settings) -> Option<(&'static str, &'static str)> {
    let Settings { rate, rate_iops, least_rate: least, .. } = settings;
    let given = |rates: &[Option<u64>; 3]| rates.iter().any(Option::is_some);
    let is_above = |least: &[Option<u64>; 3], rates: &[Option<u64>; 3]| {
        least.iter().zip(rates).any(|(least, rate)| rate.is_some() && least > rate)
    };
    let conflicts = [
        (given(rate) && given(rate_iops), ("rate_iops", "cannot stand beside `rate`")),
        (
            given(&least.bytes) && given(&least.calls),
            ("rate_iops_min", "cannot stand beside `rate_min`"),
        ),
        (is_above(&least.bytes, rate), ("rate_min", "is more than `rate`")),
        (is_above(&least.calls, rate_iops), ("rate_iops_min", "is more than `rate_iops`")),
    ];
    conflicts.into_iter().find(|(is_there, _)| *is_there).map(|(_, conflict)| conflict)
}

/// What no option can see by itself.
fn check(file: &JobFile, job: &Job) -> Option<ConfigError> {
    let settings = &job.settings;
    let refuse = |option: &str, message: &str, allowed: &str| {
        Some(file.error(job, option, message).allowed(allowed))
    };
    let odd = settings.blocks.iter().find(|blocks| blocks.least() % 512 != 0);
    if let Some(bytes) = odd.map(Blocks::least) {
        let message = format!("a block of {bytes} bytes is no number of sectors of 512 bytes");
        let allowed = "multiples of 512 bytes, up to 1 GiB; with direct=0 also one other size for all directions";
        return refuse("bs", &message, allowed);
    }
    if let Some((option, conflict)) = conflicting_rates(settings) {
        let allowed = "one of the two, and no least rate above the rate";
        return refuse(option, &format!("`{option}` {conflict}"), allowed);
    }
    if settings.cgroup_weight.is_some() && settings.cgroup.is_none() {
        return refuse(
            "cgroup_weight",
            "`cgroup_weight` needs a `cgroup`",
            "cgroup=NAME beside it",
        );
    }
    if settings.latency_target.is_some() && settings.latency_window.is_none() {
        return refuse(
            "latency_target",
            "`latency_target` needs a `latency_window`",
            "latency_window=TIME",
        );
    }
    let is_deep = settings.engine == Engine::Synchronous && settings.depth > 1;
    if is_deep && settings.latency_target.is_some() {
        return refuse(
            "latency_target",
            "`latency_target` needs an asynchronous `ioengine`",
            "libaio, io_uring",
        );
    }
    let before = || file.jobs.iter().take_while(|other| !std::ptr::eq(*other, job));
    if let Some(name) = &settings.wait_for
        && !before().any(|other| other.name == *name)
    {
        let above: Vec<&str> = before().map(|other| other.name.as_str()).collect();
        let allowed = format!("a job above: {}", above.join(", "));
        return refuse("wait_for", &format!("no job above is called `{name}`"), &allowed);
    }
    None
}
