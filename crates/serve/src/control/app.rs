//! The meaning of each call. This file knows no socket: a [`Call`] comes in, an [`ApiResponse`] goes out.

pub(super) mod changes;
mod end;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Bytes;
use iofair_config::contracts::Detail;
use iofair_config::contracts::edit::{Edit, How, Kind, listed};
use iofair_core::time::Instant;
use iofair_core::unit::Count;
use serde_json::{Value as Json, json};

use super::audit::Audit;
use super::call::{Call, unescape};
use super::failing::failures;
use super::file::{ContractFile, revision};
use super::files::Files;
use super::gate::Gate;
use super::live::{self, GroupMoment, Live, Moment, Wanted};
use super::metrics;
use super::monitor::{self, Monitor};
use super::notes;
use super::pages::Pages;
use super::problem::{Problem, Result};
use super::resources;
use super::response::{ApiResponse, not_allowed};
use super::shown::Shown;
use super::turns::{Turns, lock};
use super::usage::Usage;
use super::why;
use crate::clock::Clock;
use crate::consent::Consent;
use crate::error::ServeError;
use crate::pool::zeroing::Progress;
use crate::reactor::Message;
use crate::reactor::handle::ReactorHandle;
use crate::reactor::refusals::{Refusal, Refusals};
use crate::server::{Latch, Server, View};

/// A drain that takes longer is called off: somebody's limit or a broken drive holds requests.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// The contract with clients.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// What is asked for volumes, and for groups.
const VOLUMES: Wanted = Wanted { groups: false, volumes: true, whys: false };
const GROUPS: Wanted = Wanted { groups: true, volumes: false, whys: false };

/// How requests are treated at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Serving,
    /// Every request of a kind fails at the drive.
    Failing,
    Draining,
    Drained,
}

impl State {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Failing => "failing",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }
}

/// What changes, one change at a time.
#[derive(Debug)]
pub(super) struct Served {
    /// Gone once stopped.
    server: Option<Server>,
    pub(super) revision: String,
}

/// The server and its file.
#[derive(Debug)]
pub(super) struct App {
    pub(super) file: ContractFile,
    /// Held during each change.
    served: Turns<Served>,
    /// What calls that only read see.
    view: Mutex<Arc<Shown>>,
    pub(super) state: Mutex<State>,
    over: AtomicBool,
    /// The reactor has ended.
    ended: Arc<Latch>,
    /// Reloads on signals that are being made or wait.
    reloads: AtomicUsize,
    clock: Clock,
    pub(super) reactor: ReactorHandle,
    /// The reply that a health check waits for, which says that the reactor still runs its loop: whether the drive fails.
    pub(super) alive: Mutex<Option<Receiver<bool>>>,
    /// How far zeroing of a pool is.
    zeroing: Option<Arc<Progress>>,
    /// The files that hold volumes.
    pub(super) files: Files,
    gate: Mutex<Arc<Gate>>,
    pub(super) audit: Audit,
    /// Callers who were refused.
    refusals: Mutex<Refusals>,
    /// The name of the recording.
    pub(super) recording: Mutex<Option<String>>,
    /// Pages of metrics, by detail.
    pages: [Pages; 3],
    /// What live pages show.
    pub(super) monitor: Monitor,
}

impl Served {
    fn server(&self) -> Result<&Server, ServeError> {
        self.server.as_ref().ok_or(ServeError::Gone)
    }
}

impl App {
    pub(super) fn new(
        file: &Path,
        server: Server,
        gate: Gate,
        audit: Audit,
    ) -> Result<Self, ServeError> {
        let told = file.display().to_string();
        let file = ContractFile::new(file).map_err(ServeError::system(told))?;
        file.reserve();
        let revision = revision(server.contracts().text());
        Ok(Self {
            reactor: server.line().clone(),
            alive: Mutex::default(),
            zeroing: server.zeroing().cloned(),
            gate: Mutex::new(Arc::new(gate)),
            audit,
            refusals: Mutex::default(),
            files: Files::default(),
            pages: Default::default(),
            monitor: Monitor::default(),
            recording: Mutex::default(),
            file,
            view: Mutex::new(Arc::new(Shown::new(&server, revision.clone()))),
            ended: server.end_of_reactor().clone(),
            served: Turns::new(Served { server: Some(server), revision }),
            state: Mutex::new(State::Serving),
            over: AtomicBool::new(false),
            reloads: AtomicUsize::new(0),
            clock: Clock::start(),
        })
    }
    pub(super) fn server<T>(&self, look: impl FnOnce(&Server) -> T) -> Result<T, ServeError> {
        self.served.wait().server().map(look)
    }
    /// The server as it was after the last change.
    pub(super) fn view(&self) -> Arc<Shown> {
        lock(&self.view).clone()
    }
    pub(super) fn revision(&self) -> String {
        self.view().revision.clone()
    }
    /// Who may do what at this moment.
    pub(super) fn gate(&self) -> Arc<Gate> {
        lock(&self.gate).clone()
    }
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }
    fn system(&self) -> impl FnOnce(std::io::Error) -> ServeError {
        ServeError::system(self.file.path().display().to_string())
    }
}

/// Calls.
impl App {
    pub(super) fn respond(&self, call: &Call) -> ApiResponse {
        let named = self.group_named(call);
        let changes = call.method != "GET" && !call.is_dry_run();
        let response = if changes { self.audited(call) } else { self.route(call) };
        // What the call made is there only now.
        if let Some(group) = named.or_else(|| self.group_named(call)) {
            // A reactor that is gone counts nothing.
            let _ = self
                .reactor
                .send(Message::Engine(Box::new(move |_, engine| engine.called(&group))));
        }
        response.unwrap_or_else(|problem| ApiResponse::problem(&problem))
    }
    /// The group that a call is about: the one that it names, or that of the volume.
    fn group_named(&self, call: &Call) -> Option<String> {
        let parts: Vec<&str> = call.path.trim_matches('/').split('/').collect();
        let name = match parts.as_slice() {
            ["v1", "groups", name @ .., "why"] | ["v1", "groups", name @ ..] => {
                return unescape(name).ok().filter(|name| !name.is_empty());
            }
            ["v1", "volumes", name @ ..] => unescape(name).ok()?,
            _ => return None,
        };
        let shown = self.view();
        let mut volumes = shown.server.contracts().volumes.iter();
        volumes.find(|volume| volume.name == name).map(|volume| volume.group.clone())
    }
    pub(super) fn route(&self, call: &Call) -> Result<ApiResponse> {
        let path = call.path.as_str();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let method = call.method.as_str();
        match (parts.as_slice(), method) {
            (["v1", "status"], "GET") => self.status(),
            (["v1", "status"], _) => Ok(not_allowed("GET")),
            (["v1", "openapi.json"], "GET") => Ok(self.openapi()),
            (["v1", "openapi.json"], _) => Ok(not_allowed("GET")),
            (["v1", "stack"], "GET") => self.stack(Vec::new()),
            (["v1", "stack"], "PUT") if call.is_dry_run() || call.query.is_empty() => {
                self.put_stack(call)
            }
            (["v1", "stack"], "PUT") => {
                Err(Problem::bad_request(format!("\"{}\" after the question mark", call.query))
                    .allowed("dry_run=true"))
            }
            (["v1", "stack"], _) => Ok(not_allowed("GET, PUT")),
            (["v1", "groups"], "GET") => self.groups(call),
            (["v1", "volumes"], "GET") => self.volumes(call),
            (["v1", "groups" | "volumes"], _) => Ok(not_allowed("GET")),
            (["v1", "groups", name @ .., "why"], "GET") if !name.is_empty() => {
                self.why(&unescape(name)?)
            }
            (["v1", "groups", name @ .., "why"], _) if !name.is_empty() => Ok(not_allowed("GET")),
            (["v1", "live"], "GET") => self.live(call),
            (["v1", "recordings", below @ ..], _) => self.recording(call, below),
            (["v1", "audit"], "GET") => self.show_audit(call),
            (["metrics"], "GET") => self.metrics(call),
            (["healthz"], "GET") => Ok(self.health(&call.query)),
            ([file], "GET") if self.has_page() && monitor::file(file).is_some() => {
                Ok(monitor::file(file).expect("it was just looked for"))
            }
            (["v1", "live" | "audit"] | ["metrics" | "healthz"], _) => Ok(not_allowed("GET")),
            (["v1", "groups", name @ ..], _) => self.object(call, Kind::Group, &unescape(name)?),
            (["v1", "volumes", name @ ..], _) => self.object(call, Kind::Volume, &unescape(name)?),
            (["v1", "drain" | "resume"], "POST") if !call.query.is_empty() => {
                Err(Problem::bad_request(format!("\"{}\" after the question mark", call.query))
                    .allowed("nothing"))
            }
            (["v1", "drain"], "POST") => self.drain(call),
            (["v1", "resume"], "POST") => self.resume(),
            (["v1", "reload"], "POST") if call.is_dry_run() => {
                self.dry_run(call, None, &call.consent_to_reload()?)
            }
            (["v1", "reload"], "POST") => {
                let before = self.view();
                let revision = self.reload(&call.consent_to_reload()?)?;
                Ok(revised(revision, self.notes_since(&before)))
            }
            (["v1", "drain" | "resume" | "reload"], _) => Ok(not_allowed("POST")),
            _ => Err(Problem::missing(format!("there is nothing at {path}"))
                .allowed("what /v1/openapi.json lists")),
        }
    }

    fn status(&self) -> Result<ApiResponse> {
        let shown = self.view();
        let server = &shown.server;
        let moment = self.gather(Wanted::default())?;
        let state = self.state(moment.failures.drive.is_some());
        let contracts = server.contracts();
        let files = self.files.look(&shown);
        let absolute = |path: &PathBuf| std::path::absolute(path).ok();
        let status = resources::Status {
            revision: shown.revision.clone(),
            version: env!("CARGO_PKG_VERSION"),
            state: state.word(),
            failures: failures(Instant(moment.uptime.0), moment.failures),
            file: self.file.path().to_path_buf(),
            drive: server.description().to_string(),
            stack: contracts.drive.stack.name().to_string(),
            worst_case_bytes_per_second: server.worst_case(),
            reaches: server.reaches().map(Into::into),
            listen_unix: contracts.listen.unix.as_ref().and_then(absolute),
            listen_tcp: server.tcp().map(|address| address.to_string()),
            fuse_mount: contracts.mount.as_ref().and_then(absolute),
            unmounted: files.unmounted,
            free_bytes: files.free.map(|free| free.new),
            removed_files: files.removed,
            uptime_seconds: self.clock.now().0 as f64 / 1e9,
            groups: contracts.groups.len(),
            volumes: contracts.volumes.len(),
            connections: moment.connections,
            pending: moment.inside,
            in_flight: moment.commands,
            utilisation: moment.drive_busy.0 as f64 / moment.uptime.0.max(1) as f64,
            dirty_bytes: self.zeroing.as_ref().map(|zeroing| zeroing.dirty_bytes()),
            zeroed_bytes: self.zeroing.as_ref().map(|zeroing| zeroing.zeroed_bytes()),
        };
        Ok(ApiResponse::json(200, Some(status.revision.clone()), &status))
    }
    /// How requests are treated now. `fails`: the drive does not carry them out.
    pub(super) fn state(&self, fails: bool) -> State {
        let state = *lock(&self.state);
        if fails && state == State::Serving { State::Failing } else { state }
    }
    fn openapi(&self) -> ApiResponse {
        let body = Bytes::from_static(OPENAPI.as_bytes());
        ApiResponse { status: 200, revision: None, kind: "application/json", allow: None, body }
    }
    fn stack(&self, notes: Vec<String>) -> Result<ApiResponse> {
        let shown = self.view();
        let stack = resources::stack(shown.server.contracts());
        let revision = shown.revision.clone();
        let body = noted(json!({ "revision": revision, "stack": stack }), notes);
        Ok(ApiResponse::json(200, Some(revision), &body))
    }
    fn put_stack(&self, call: &Call) -> Result<ApiResponse> {
        let mut keys = call.keys()?;
        let name = keys.remove("name").and_then(|name| name.as_str().map(str::to_owned));
        let policy = keys.remove("policy");
        let give_up = keys.remove("give_up").unwrap_or(false.into());
        let (Some(name), None, Some(give_up)) = (name, keys.keys().next(), give_up.as_bool())
        else {
            return Err(Problem::bad_request("a stack is its name and, if you like, parameters")
                .allowed(
                    "{\"name\": \"prop-bfq\", \"policy\": {\"bfq\": {\"slice_idle\": \"4ms\"}}}",
                ));
        };
        let policy = match policy {
            None | Some(Json::Null) => None,
            Some(Json::Object(policy)) => Some(policy),
            Some(_) => return Err(Problem::bad_request("`policy` holds one object a policy")),
        };
        let edit = Edit::Stack { name, policy, give_up };
        if call.is_dry_run() {
            return self.dry_run(call, Some(&edit), &Consent::default());
        }
        let before = self.view();
        self.change(call, &edit)?;
        self.stack(self.notes_since(&before))
    }
    fn groups(&self, call: &Call) -> Result<ApiResponse> {
        let page = call.page()?;
        let moment = self.gather(GROUPS)?.groups.into_iter();
        let usage = |group: GroupMoment| (group.name, Usage::new(&group.tally, group.holds));
        let mut usage: BTreeMap<String, Usage> = moment.map(usage).collect();
        let shown = self.view();
        let groups = resources::groups(&shown.server, |name| usage.remove(name))?;
        let revision = shown.revision.clone();
        let (groups, next) = page.slice(groups, |group| &group.name)?;
        let mut body = json!({ "revision": revision, "groups": groups });
        next.into_iter().for_each(|next| body["next"] = next.into());
        Ok(ApiResponse::json(200, Some(revision), &body))
    }
    fn volumes(&self, call: &Call) -> Result<ApiResponse> {
        let page = call.page()?;
        let moment = self.gather(VOLUMES)?;
        let shown = self.view();
        let volumes = resources::volumes(&shown.server, &moment.volumes);
        let revision = shown.revision.clone();
        let (volumes, next) = page.slice(volumes, |volume| &volume.name)?;
        let mut body = json!({ "revision": revision, "volumes": volumes });
        if page.is_first() {
            body["kept"] = json!(shown.server.kept());
        }
        next.into_iter().for_each(|next| body["next"] = next.into());
        Ok(ApiResponse::json(200, Some(revision), &body))
    }

    /// What the operator should know of the change that was made since.
    fn notes_since(&self, before: &Shown) -> Vec<String> {
        let view = self.view();
        let free = self.files.look(&view).free.map(|free| free.least([]));
        let mut told = view.server.notes_since(&before.server, free);
        told.extend(notes::notes(view.server.contracts(), Some(before.server.contracts())));
        told
    }
    /// Everything about one group or volume.
    fn object(&self, call: &Call, kind: Kind, name: &str) -> Result<ApiResponse> {
        let how = match call.method.as_str() {
            "GET" => return self.show(200, &self.body(kind, name)?),
            "DELETE" => {
                let edit = Edit::Remove { kind, name: name.into() };
                let agreed = call.consent(kind, name)?;
                if call.is_dry_run() {
                    return self.dry_run(call, Some(&edit), &agreed);
                }
                let before = self.view();
                let revision = self.change_with(call, &edit, &agreed)?;
                return Ok(revised(revision, self.notes_since(&before)));
            }
            "PUT" if call.only_new => How::Create,
            "PUT" => How::Replace,
            "PATCH" => How::Merge,
            _ => return Ok(not_allowed("GET, PUT, PATCH, DELETE")),
        };
        let agreed = call.consent(kind, name)?;
        let edit = Edit::Set { kind, name: name.to_string(), keys: call.keys()?, how };
        if call.is_dry_run() {
            return self.dry_run(call, Some(&edit), &agreed);
        }
        let before = self.view();
        self.change_with(call, &edit, &agreed)?;
        let (body, notes) = (self.body(kind, name)?, self.notes_since(&before));
        self.show(if how == How::Create { 201 } else { 200 }, &noted(body, notes))
    }
    fn show(&self, status: u16, body: &Json) -> Result<ApiResponse> {
        let revision = body["revision"].as_str().map(str::to_owned);
        Ok(ApiResponse::json(status, revision, body))
    }
    /// A group or volume as it is now.
    fn body(&self, kind: Kind, name: &str) -> Result<Json> {
        let path = name.to_string();
        let mut usage = match kind {
            Kind::Group => self.reactor.look(move |seen| Usage::read(seen, &path))?,
            Kind::Volume => None,
        };
        let shown = self.view();
        let server = &shown.server;
        let revision = shown.revision.clone();
        let missing = || unknown(server, kind, name);
        Ok(match kind {
            Kind::Group => {
                let usage = |one: &str| if one == name { usage.take() } else { None };
                let mut groups = resources::groups(server, usage)?.into_iter();
                let group = groups.find(|group| group.name == name).ok_or_else(missing)?;
                json!({ "revision": revision, "group": group })
            }
            Kind::Volume => {
                let moment = self.gather(VOLUMES)?;
                let mut volumes = resources::volumes(server, &moment.volumes).into_iter();
                let volume = volumes.find(|volume| volume.name == name).ok_or_else(missing)?;
                json!({ "revision": revision, "volume": volume })
            }
        })
    }

    /// The server's counters.
    fn gather(&self, wanted: Wanted) -> Result<Moment> {
        let floors = self.view().server.floors();
        Ok(live::gather(&self.reactor, &floors, wanted)?)
    }
    /// The reactor and the revision.
    fn line(&self) -> (ReactorHandle, String) {
        (self.reactor.clone(), self.revision())
    }
    fn why(&self, name: &str) -> Result<ApiResponse> {
        let (line, revision) = self.line();
        let why = why::why(&line, name)?;
        let Some(mut why) = why else {
            return Err(unknown(&self.view().server, Kind::Group, name));
        };
        why.revision = revision;
        Ok(ApiResponse::json(200, Some(why.revision.clone()), &why))
    }
    fn live(&self, call: &Call) -> Result<ApiResponse> {
        let page = call.page()?;
        let revision = self.revision();
        let wanted = Wanted { groups: true, volumes: false, whys: true };
        let mut live = Live::new(&self.gather(wanted)?, &page)?;
        live.revision = revision;
        Ok(ApiResponse::json(200, Some(live.revision.clone()), &live))
    }
    fn metrics(&self, call: &Call) -> Result<ApiResponse> {
        let query = call.query.as_str();
        let detail = match query.split_once('=') {
            Some(("detail", level)) => Detail::parse(level),
            _ => query.is_empty().then_some(self.gate().metrics.detail),
        };
        let Some(detail) = detail else {
            return Err(Problem::bad_request(format!("\"{query}\" after the question mark"))
                .allowed("detail=none, groups or volumes"));
        };
        let (groups, volumes) = (detail >= Detail::Groups, detail >= Detail::Volumes);
        let render = || -> Result<Vec<u8>> {
            let mut moment = self.gather(Wanted { groups, volumes, whys: false })?;
            let callers = lock(&self.refusals).counts();
            moment.refused.iter_mut().zip(callers).for_each(|(all, more)| *all += more);
            Ok(metrics::page(&moment, &self.files, self.zeroing.as_deref(), detail).into_bytes())
        };
        let caller = call.caller.as_ref();
        let body = self.pages[detail as usize].get(|| self.clock.now(), caller, render)?;
        Ok(ApiResponse { status: 200, revision: None, kind: metrics::KIND, allow: None, body })
    }

    /// Counts a refused caller, and logs refusals from time to time.
    pub(super) fn refuse(&self, refusal: Refusal) {
        let mut refusals = lock(&self.refusals);
        refusals.count(refusal);
        refusals.tell(self.clock.now(), "control");
    }
    /// Whether there is a live page.
    pub(super) fn has_page(&self) -> bool {
        self.gate().metrics.page
    }
    /// Copies the counters for live pages.
    pub(super) fn sample(&self) -> Result<()> {
        let revision = self.revision();
        let whys = self.monitor.is_watched();
        let moment = self.gather(Wanted { groups: true, volumes: false, whys })?;
        self.monitor.add(&moment, revision)
    }

    /// Stops accepting requests and waits until all requests in flight are completed.
    fn drain(&self, call: &Call) -> Result<ApiResponse> {
        let then = call.keys()?.remove("then").unwrap_or("hold".into());
        if !["hold", "resume", "end"].iter().any(|word| then == *word) {
            return Err(Problem::bad_request(format!("after a drain: {then}?"))
                .allowed("{\"then\": \"hold\"}, \"resume\" or \"end\""));
        }
        let (line, _) = self.line();
        {
            let mut state = lock(&self.state);
            if *state == State::Draining {
                return Err(Problem::conflict("the server is draining already"));
            }
            *state = State::Draining;
        }
        let drained = line.pause().and_then(|asked| ReactorHandle::paused(&asked, DRAIN_MAX));
        if !matches!(drained, Ok(true)) {
            *lock(&self.state) = State::Serving;
            line.resume()?;
            drained?;
            let held = line.look(|seen| seen.engine.pending())?;
            let message = format!(
                "not completed in {DRAIN_MAX:?}: {}; serving again",
                Count(held, "request")
            );
            return Err(Problem::new(503, "not-drained", message));
        }
        if then == "resume" {
            return self.resume();
        }
        *lock(&self.state) = State::Drained;
        if then == "end" {
            self.over.store(true, Ordering::Relaxed);
        }
        Ok(ApiResponse::json(200, None, &json!({ "state": State::Drained.word() })))
    }
    fn resume(&self) -> Result<ApiResponse> {
        self.reactor.resume()?;
        *lock(&self.state) = State::Serving;
        Ok(ApiResponse::json(200, None, &json!({ "state": State::Serving.word() })))
    }
}

/// A reply with what the operator should know.
fn noted(mut body: Json, notes: Vec<String>) -> Json {
    if !notes.is_empty() {
        body["notes"] = notes.into();
    }
    body
}

/// The reply to a change of which only the revision is told.
fn revised(revision: String, notes: Vec<String>) -> ApiResponse {
    let body = noted(json!({ "revision": revision }), notes);
    ApiResponse::json(200, Some(revision), &body)
}

/// The error for a group or volume that does not exist, with the names that do.
fn unknown(server: &View, kind: Kind, name: &str) -> Problem {
    let contracts = server.contracts();
    let names: Vec<&str> = match kind {
        Kind::Group => contracts.groups.iter().map(|group| group.name.as_str()).collect(),
        Kind::Volume => contracts.volumes.iter().map(|volume| volume.name.as_str()).collect(),
    };
    let problem = Problem::missing(format!("there is no {} \"{name}\"", kind.word()));
    problem.allowed(listed(&names)).near(name, names)
}
