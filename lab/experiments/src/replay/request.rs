//! A replay as people ask for it: files, stacks, contracts and a drive by their names. The recorded ones stand for what is not
//! named.

use std::path::PathBuf;

use iofair_baselines::TABLE;
use iofair_config::contracts::Contracts;
use iofair_config::{ConfigError, stack_error};
use iofair_core::controller::Stack;
use iofair_core::policy::Table;
use iofair_core::time::Nanos;
use iofair_drive::profile;
use iofair_simulator::machine::drive_error;
use iofair_trace::formats::{self, Format};
use iofair_trace::source::Notes;
use iofair_trace::{Columns, Metadata, Options, Source as _, Trace, TraceError, printable};
use serde::Serialize;

use super::{Agreement, Mapping, Mode, Outcome, Played, ReplayError, Setup, agreement, replay};

/// Stacks that are compared if none is named and the trace names none.
const STACKS: [&str; 2] = ["none-none", "promise"];
/// Before the name of an emulated drive in contracts.
const EMULATED: &str = "emulated:";

/// What is asked for.
#[derive(Clone)]
pub struct Request {
    /// Files of the trace; `-` is standard input. The requests of several files are merged by time.
    pub traces: Vec<PathBuf>,
    /// Format of the files; `None`: it is recognised.
    pub format: Option<String>,
    /// What the columns of a table are ([`Columns::parse`]).
    pub columns: Option<String>,
    /// Stacks, besides the recorded one.
    pub stacks: Vec<String>,
    /// The policies of the stacks.
    pub table: &'static Table,
    /// Drive profile; `None`: the emulated drive of the contracts, or else of the recorded server.
    pub drive: Option<String>,
    /// When requests are sent.
    pub mode: Mode,
    /// How many times as fast as recorded, in thousandths.
    pub scale: u64,
    /// Only so much of the trace, in the time of the replay.
    pub duration: Option<Nanos>,
    /// Contract file; `None`: the recorded contracts.
    pub contracts: Option<PathBuf>,
    /// `PATTERN=GROUP`: the group of streams by their names.
    pub groups: Vec<String>,
    /// Seed of the drive model.
    pub seed: u64,
}

/// The results, as `iofair-lab replay --json` prints them.
#[derive(Serialize)]
pub struct Replayed {
    /// As they may be printed.
    traces: Vec<String>,
    /// Name of the drive.
    pub drive: String,
    mode: &'static str,
    /// How many times as fast as recorded.
    pub scale: f64,
    /// How far the replay under the recorded stack, drive and times is from the recording.
    pub agreement: Option<Agreement>,
    /// The recording if it has completions, then each stack.
    pub results: Vec<Played>,
    notes: Vec<Note>,
    /// What was left out or repaired.
    #[serde(skip)]
    pub told: Notes,
}

#[derive(Serialize)]
struct Note {
    count: u64,
    what: &'static str,
}

/// Why a replay was refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The contracts, or a name that is not there.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Everything else, in words.
    #[error("{0}")]
    Refused(String),
}

/// Everything that a replay needs, from a request and the trace's metadata.
struct Plan {
    trace: Trace,
    drive: String,
    /// Stacks in the order of running; the recorded one is first if there is one.
    stacks: Vec<Stack>,
    /// Whether the first stack is the recorded one, on the recorded drive, at the recorded times.
    compares: bool,
    setup: Setup,
}

/// Replays a trace under all stacks.
///
/// # Errors
///
/// What is wrong with the request, the contracts or the trace.
pub fn run(request: &Request) -> Result<Replayed, RequestError> {
    let plan = plan(request)?;
    let mut results: Vec<Played> = Vec::new();
    let (mut told, mut agreed) = (Notes::default(), None);
    for (index, stack) in plan.stacks.iter().enumerate() {
        let Outcome { played, recorded, notes } = replay_one(request, &plan, stack)?;
        if index == 0 {
            let compared = recorded.as_ref().filter(|_| plan.compares);
            agreed = compared.map(|recorded| agreement(&played, recorded));
            results.extend(recorded);
            told = notes;
        }
        results.push(played);
    }
    let notes = told.iter().map(|(what, count)| Note { count, what }).collect();
    let (traces, mode) = (names(request), request.mode.word());
    let scale = request.scale as f64 / 1000.0;
    Ok(Replayed { traces, drive: plan.drive, mode, scale, agreement: agreed, results, notes, told })
}

impl Replayed {
    /// Files, drive, mode and scale in a line.
    pub fn title(&self) -> String {
        let Self { traces, drive, mode, scale, .. } = self;
        format!("{} on {drive}, mode {mode}, scale {scale}", traces.join(", "))
    }
}

fn replay_one(request: &Request, plan: &Plan, stack: &Stack) -> Result<Outcome, RequestError> {
    let source = plan.trace.source()?;
    let at = || ConfigError::whole_file("--drive", "");
    let drive =
        profile::load(&plan.drive, request.seed).map_err(|error| drive_error(at(), &error))?;
    let setup = Setup { stack: stack.clone(), ..plan.setup.clone() };
    replay(source, drive, &setup).map_err(|error| match error {
        ReplayError::Trace(error) => error.into(),
        ReplayError::Run(error) => RequestError::Refused(format!("{}: {error}", stack.name())),
        error => RequestError::Refused(format!("{}: {error}", names(request).join(", "))),
    })
}

/// The names of the trace's files.
fn names(request: &Request) -> Vec<String> {
    let name = |path: &PathBuf| printable(&path.display().to_string()).into_owned();
    request.traces.iter().map(name).collect()
}

fn format(request: &Request) -> Result<Option<&'static Format>, RequestError> {
    let Some(name) = &request.format else { return Ok(None) };
    let names = formats::TABLE.iter().map(|format| format.name);
    let missing = || ConfigError::unknown("--format", "format", name, names);
    Ok(Some(formats::find(name).ok_or_else(missing)?))
}

fn plan(request: &Request) -> Result<Plan, RequestError> {
    let columns = request.columns.as_deref().map(Columns::parse).transpose();
    let columns = columns.map_err(|error| RequestError::Refused(format!("--columns: {error}")))?;
    let paths = request.traces.clone();
    let trace = Trace::open(&Options { paths, format: format(request)?, columns })?;
    let metadata = trace.source()?.metadata();
    let recorded = match metadata.value(Metadata::CONTRACTS) {
        None => None,
        Some(text) => Some(Contracts::parse_with(&TABLE, "the recorded contracts", text)?),
    };
    let written = match &request.contracts {
        None => None,
        Some(path) => Some(Contracts::open_with(&TABLE, path)?),
    };
    let recorded_drive =
        metadata.value(Metadata::BACK).and_then(|back| back.strip_prefix(EMULATED));
    let recorded_drive =
        recorded_drive.map(|drive| drive.split_once('@').map_or(drive, |(name, _)| name));
    let written_drive = written.as_ref().and_then(|contracts| contracts.drive.back.profile());
    let drive = request.drive.as_deref().or(written_drive).or(recorded_drive).ok_or_else(|| {
        let text = "no emulated drive is named by the contracts or the trace; add --drive NAME (see `iofair list drives`)";
        RequestError::Refused(text.to_owned())
    })?;
    let mut stacks = Vec::new();
    let same_drive = recorded_drive == Some(drive);
    stacks.extend(recorded.as_ref().map(|contracts| contracts.drive.stack.clone()));
    let has_recorded = !stacks.is_empty();
    let named = request.stacks.iter().map(String::as_str);
    let default = STACKS.into_iter().filter(|_| request.stacks.is_empty() && !has_recorded);
    for name in named.chain(default) {
        if !stacks.iter().any(|known: &Stack| known.name() == name) {
            let at = || ConfigError::whole_file("--stack", "");
            let stack = request.table.stack(name).map_err(|error| stack_error(at(), &error))?;
            stacks.push(stack);
        }
    }
    let groups = written.as_ref().or(recorded.as_ref());
    let groups = groups.map(|contracts| contracts.groups.as_slice()).unwrap_or_default();
    let setup = Setup {
        stack: stacks[0].clone(),
        groups: groups.iter().map(|group| (group.name.clone(), group.contract.clone())).collect(),
        mapping: mapping(request, written.as_ref())?,
        mode: request.mode,
        speed: request.scale,
        duration: request.duration,
    };
    // Without pauses, clients are faster than they were.
    let unchanged = request.scale == 1000 && request.mode != Mode::Closed && written.is_none();
    let compares = has_recorded && same_drive && unchanged && request.groups.is_empty();
    Ok(Plan { trace, drive: drive.to_owned(), stacks, compares, setup })
}

fn mapping(request: &Request, contracts: Option<&Contracts>) -> Result<Mapping, RequestError> {
    let mut mapping = Mapping::default();
    for rule in &request.groups {
        let Some((pattern, group)) = rule.rsplit_once('=') else {
            let text = format!("--group {rule}: write PATTERN=GROUP, as in 'web.*=tenants/web'");
            return Err(RequestError::Refused(text));
        };
        mapping.add(pattern, group);
    }
    for volume in contracts.map(|contracts| contracts.volumes.as_slice()).unwrap_or_default() {
        mapping.add(&volume.name, &volume.group);
    }
    Ok(mapping)
}
