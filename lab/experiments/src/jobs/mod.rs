//! fio job files as experiments: each clone of a job is a client, `stonewall` begins a step, a `cgroup` is a group.
//!
//! Drive, host and stacks are those of an experiment file without clients, so that the same settings change them. What a job
//! file says of files and devices becomes places on the drive ([`target`]); what it says of calls becomes a job ([`spec`]).
//! `lab/docs/fio.md` lists the options and where the model differs from fio.

mod amount;
mod info;
mod spec;
mod target;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use iofair_config::fio::{self, Engine, JobFile, Settings};
use iofair_config::{ConfigError, Source};
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;
use iofair_drive::profile;
use iofair_simulator::scenario::Exit;
use toml::{Table, Value};

use crate::experiment::file::ExperimentFile;
use crate::experiment::{Experiment, Overrides, expand};
pub use info::{JobInfo, Jobs};
use target::Targets;

/// The drive of job files.
pub const DRIVE: &str = "plextor-px256m5s";
/// The stack of job files.
pub const STACK: &str = "promise";
/// A run of jobs of which one has no `runtime` ends here at the latest.
pub const TIME_MAX: Nanos = Nanos::from_secs(3600);
/// Longest wait for calls in flight at the end.
const DRAIN_MAX: Nanos = Nanos::from_secs(10);
/// The interval of logs unless a job has `log_avg_msec`.
const LOG_WINDOW: Nanos = Nanos::from_secs(1);
/// Shortest interval of logs.
const LOG_WINDOW_MIN: Nanos = Nanos::from_millis(1);
/// Most clones of all jobs together.
const CLONES_MAX: u64 = 100_000;

/// Whether a file is a job file, by its name.
pub fn is_job_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| ["fio", "job", "ini"].contains(&extension))
}

/// Whether a text is that of a job file, whatever its name: it has a comment or an include of fio, or an option of fio in a section, with
/// a value without quotes.
pub(crate) fn is_job_text(text: &str) -> bool {
    let mut is_in_section = false;
    for line in text.trim_start_matches('\u{feff}').lines().map(str::trim) {
        let included = line.strip_prefix("include ").map(str::trim_start);
        if line.starts_with(';') || included.is_some_and(|file| !file.starts_with('=')) {
            return true;
        }
        if line.starts_with('[') {
            is_in_section = !line.starts_with("[[");
        }
        let (name, value) = line.split_once('=').unwrap_or((line, "1"));
        let (name, value) = (name.trim(), value.trim_start());
        let is_word = value.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_quoted = value.starts_with(['"', '\'', '[', '{']);
        if ["rw", "readwrite"].contains(&name) && is_word
            || is_in_section && fio::is_option(name) && !is_quoted
        {
            return true;
        }
    }
    false
}

/// Reads a job file as an experiment.
pub(crate) fn read(path: &Path, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    let (options, overrides) = split(overrides);
    resolve(fio::read(path, &overrides.variables, &options)?, &overrides)
}

/// The same of a job file that is already in memory.
pub fn parse(path: &str, text: &str, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    let (options, overrides) = split(overrides);
    resolve(fio::parse(path, text, &overrides.variables, &options)?, &overrides)
}

/// The settings that are options of jobs, and everything else.
fn split(overrides: &Overrides) -> (Vec<String>, Overrides) {
    let is_option =
        |text: &String| text.split_once('=').is_some_and(|(key, _)| fio::is_option(key.trim()));
    let (options, settings) = overrides.settings.iter().cloned().partition(is_option);
    (options, Overrides { settings, ..overrides.clone() })
}

fn resolve(file: JobFile, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    let mut file = overridden(file, overrides);
    let (mut errors, mut left_out) = (Vec::new(), Vec::new());
    for problem in std::mem::take(&mut file.problems) {
        match problem.unsupported.filter(|_| overrides.ignore_unsupported) {
            Some(what) if left_out.contains(&what) => {}
            Some(what) => left_out.push(what),
            None => errors.push(problem.error),
        }
    }
    file.jobs.retain(|job| job.settings.engine != Engine::Elsewhere);
    for job in &mut file.jobs {
        job.settings.direct |= job.settings.lacks_read_ahead();
    }
    if file.jobs.is_empty() {
        let error = || ConfigError::whole_file(file.path(), "no job does I/O on a drive");
        return Err(ConfigError::of_all(errors).unwrap_or_else(error));
    }
    let made = make(&file, overrides, &mut errors);
    let mut experiment = match made {
        Ok(experiment) if errors.is_empty() => experiment,
        made => {
            errors.extend(made.err());
            return Err(ConfigError::of_all(errors).expect("it was not empty"));
        }
    };
    let mut notes = vec![std::mem::take(&mut experiment.note)];
    if !file.ignored.is_empty() {
        notes.push(format!("Without effect here: {}.", file.ignored.join(", ")));
    }
    if !left_out.is_empty() {
        notes.push(format!("LEFT OUT, although fio would do it: {}.", left_out.join(", ")));
    }
    notes.retain(|note| !note.is_empty());
    experiment.note = notes.join(" ");
    Ok(experiment)
}

/// Makes the experiment. What is wrong with single jobs is added to `errors`.
fn make(
    file: &JobFile,
    overrides: &Overrides,
    errors: &mut Vec<ConfigError>,
) -> Result<Experiment, ConfigError> {
    let mut source = Source::new(file.path(), &setting(file, overrides)?);
    if !overrides.settings.is_empty() {
        source = source.with_settings(&overrides.settings).map_err(suggest)?;
    }
    let parsed: ExperimentFile = source.parse().map_err(suggest)?;
    let seed = overrides.seed.or_else(|| file.jobs.iter().find_map(|job| job.settings.seed));
    // Times belong to jobs here.
    let whole = Overrides { time: None, ramp: None, seed, ..overrides.clone() };
    let name = Path::new(file.path()).file_stem().and_then(|stem| stem.to_str()).unwrap_or("job");
    let mut experiment = expand::expand(&source, name, &parsed, &whole)?;
    let drive = profile::load(&experiment.variants[0].drive, 0)
        .map_err(|error| ConfigError::whole_file(file.path(), error.to_string()))?;
    let capacity = drive.facts().capacity;
    fill(file, capacity, &mut experiment, errors)?;
    Ok(experiment)
}

/// Says of an argument that it may also be an option of jobs, and where groups come from.
fn suggest(error: ConfigError) -> ConfigError {
    let Some((key, _)) =
        error.path.strip_prefix("--set ").and_then(|setting| setting.split_once('='))
    else {
        return error;
    };
    let (key, allowed) = (key.trim().to_owned(), error.allowed.clone());
    match allowed {
        Some(keys) if error.message.starts_with("unknown key") && !key.contains('.') => {
            let near = keys.split(", ").chain(fio::SUPPORTED.iter().copied());
            let allowed = format!("{keys}; or an option of jobs");
            error.allowed(allowed).near(&key, near)
        }
        None if key.starts_with("group.") => {
            error.allowed("a group that a job has as its `cgroup`")
        }
        _ => error,
    }
}

/// The file with the times that are asked for.
fn overridden(mut file: JobFile, overrides: &Overrides) -> JobFile {
    for job in &mut file.jobs {
        if let Some(time) = overrides.time {
            (job.settings.runtime, job.settings.time_based) = (Some(time), true);
        }
        job.settings.ramp = overrides.ramp.unwrap_or(job.settings.ramp);
    }
    file
}

/// The experiment file that has all but the clients.
fn setting(file: &JobFile, overrides: &Overrides) -> Result<String, ConfigError> {
    let text = |text: &str| Value::String(text.to_owned());
    let mut table = Table::new();
    let described = file.jobs.iter().find_map(|job| job.settings.description.as_deref());
    table.insert("title".into(), text(described.unwrap_or("fio jobs")));
    table.insert("source".into(), text(&format!("the job file {}", file.path())));
    let sets = |key: &str| overrides.settings.iter().any(|setting| setting.starts_with(key));
    if !sets("machine=") || sets("drive=") {
        table.insert("drive".into(), text(DRIVE));
    }
    table.insert("time".into(), text("1s"));
    table.insert("stacks".into(), Value::Array(vec![text(STACK)]));
    table.insert("client".into(), Value::Array(Vec::new()));
    let mut groups: Vec<(&str, Option<u32>)> = Vec::new();
    for job in &file.jobs {
        let Settings { cgroup: Some(name), cgroup_weight: weight, .. } = &job.settings else {
            continue;
        };
        match groups.iter_mut().find(|group| group.0 == name) {
            None => groups.push((name, *weight)),
            Some((_, known @ None)) => *known = *weight,
            Some((_, Some(known))) if weight.is_some_and(|weight| weight != *known) => {
                let message = format!("group `{name}` has the weight {known} above");
                return Err(file.error(job, "cgroup_weight", message));
            }
            Some(_) => {}
        }
    }
    let group = |&(name, weight): &(&str, Option<u32>)| {
        let mut group = Table::new();
        group.insert("name".into(), text(name));
        if let Some(weight) = weight {
            group.insert("weight".into(), Value::Integer(weight.into()));
        }
        Value::Table(group)
    };
    table.insert("group".into(), Value::Array(groups.iter().map(group).collect()));
    toml::to_string(&table).map_err(|error| ConfigError::whole_file(file.path(), error.to_string()))
}

/// Makes the clients. What is wrong with a job is added to `errors`.
fn fill(
    file: &JobFile,
    capacity: Sectors,
    experiment: &mut Experiment,
    errors: &mut Vec<ConfigError>,
) -> Result<(), ConfigError> {
    check_clones(file)?;
    let (mut targets, found) = Targets::new(file, capacity)?;
    let mut add = |error: ConfigError| {
        // One error for each place: further errors there follow from the first one.
        if !errors.iter().any(|known| known.place.is_some() && known.place == error.place) {
            errors.push(error);
        }
    };
    found.into_iter().for_each(&mut add);
    let variant = &mut experiment.variants[0];
    let (mut names, mut infos, mut notes): (Vec<String>, Vec<JobInfo>, Vec<String>) =
        (Vec::new(), Vec::new(), Vec::new());
    let exits = file.jobs.iter().any(|job| job.settings.exit_all);
    let (mut unique, mut step, mut group) = (UniqueNames::default(), 0, 0);
    for (index, job) in file.jobs.iter().enumerate() {
        let settings = &job.settings;
        if index > 0 {
            step += u32::from(settings.stonewall);
            group += u32::from(settings.stonewall || settings.new_group);
        }
        let name = unique.name(&job.name);
        let after = awaited(&infos, settings.wait_for.as_deref());
        let exit = exits.then_some(match settings.exit_what {
            fio::Exit::Group => Exit::Group,
            fio::Exit::Stonewall => Exit::Step,
            fio::Exit::All => Exit::All,
        });
        let (mut depth, mut is_there) = (1, false);
        for clone in 0..settings.clones {
            let made = targets.region(job, clone).and_then(|region| {
                is_there |= region.is_there;
                let seed = experiment.seed;
                let place = spec::Place { clone, step, after, group, exit, region, seed };
                spec::client(file, job, &name, &place)
            });
            match made {
                Ok(client) => {
                    depth = client.job.depth;
                    variant.clients.push(client);
                }
                Err(error) => {
                    add(error);
                    break;
                }
            }
        }
        notes.extend(spec::note(&name, settings, is_there));
        infos.push(info(job, group, depth));
        names.push(name);
    }
    (variant.subjects, variant.time) = (names, time(file));
    let windows = file.jobs.iter().filter_map(|job| job.settings.log_window);
    let window = windows.min().unwrap_or(LOG_WINDOW).max(LOG_WINDOW_MIN);
    experiment.interval = experiment.interval.or(Some(window));
    experiment.note = notes.join(" ");
    experiment.jobs = Some(Jobs { global: file.global.clone(), jobs: infos });
    Ok(())
}

fn check_clones(file: &JobFile) -> Result<(), ConfigError> {
    let mut clones = 0;
    for job in &file.jobs {
        clones += u64::from(job.settings.clones);
        if clones > CLONES_MAX {
            let error = file.error(job, "numjobs", format!("{clones} clones of all jobs"));
            return Err(error.allowed(format!("{CLONES_MAX} together")));
        }
    }
    Ok(())
}

/// Facts about a job for reports.
fn info(job: &fio::Job, group: u32, depth: u32) -> JobInfo {
    let settings = &job.settings;
    JobInfo {
        name: job.name.clone(),
        description: settings.description.clone(),
        options: job.options.clone(),
        clones: settings.clones,
        group,
        group_reporting: settings.group_reporting,
        depth,
        latency: settings.latency_target.map(|target| {
            (target, settings.latency_window.unwrap_or_default(), settings.latency_per_million)
        }),
        syncs: (settings.fsync, settings.fdatasync),
        sync_gap: settings.sync_gap(),
        odd_block: settings.odd_block.map(|block| (block, settings.blocks[0].least())),
    }
}

/// The clients of the last job of this name.
fn awaited(jobs: &[JobInfo], name: Option<&str>) -> Option<(u32, u32)> {
    let name = name?;
    let index = jobs.iter().rposition(|job| job.name == name)?;
    let first = jobs[..index].iter().map(|job| job.clones).sum();
    Some((first, jobs[index].clones))
}

/// Names of clients, each given once.
#[derive(Default)]
struct UniqueNames {
    given: BTreeSet<String>,
    /// The number of the next job with this name.
    numbers: BTreeMap<String, u32>,
}

impl UniqueNames {
    /// A name that no client has yet: the second job of a name becomes `NAME#2`.
    fn name(&mut self, wanted: &str) -> String {
        let number = self.numbers.entry(wanted.to_owned()).or_insert(1);
        loop {
            let name = if *number == 1 { wanted.to_owned() } else { format!("{wanted}#{number}") };
            *number += 1;
            if self.given.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// An upper bound of the time of a run.
fn time(file: &JobFile) -> Nanos {
    let (mut all, mut step) = (Nanos::ZERO, Nanos::ZERO);
    for job in &file.jobs {
        let settings = &job.settings;
        let Some(runtime) = settings.runtime else { return TIME_MAX };
        if settings.wait_for.is_some() {
            return TIME_MAX;
        }
        if settings.stonewall {
            (all, step) = (all + step, Nanos::ZERO);
        }
        step = step.max(settings.start_delay.1 + settings.ramp + runtime);
    }
    all + step + DRAIN_MAX
}
