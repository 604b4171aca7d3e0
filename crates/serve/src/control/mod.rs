//! Control of a running server: HTTP with JSON over a Unix socket, and over TLS; metrics and health checks.
//!
//! **The contract file is the state.** A change is made both in the file and in the running server, or in neither.
//! The new text is written to a temporary file and synced; the server applies the new contracts; then the temporary
//! file replaces the contract file. If the last step fails, the server reverts the change. So a change survives a
//! restart, and the file always shows the contracts in force.
//!
//! Changes are made one at a time, and one that has waited for another for a while is refused. Calls that only read see
//! the state before the change that is being made, and wait for none. Every response carries the *revision* of the contract file (also as `ETag`). A
//! change that names a revision (`If-Match`) is refused if the file has another one by then. A file that was edited
//! by hand is not overwritten: its changes must be applied first (SIGHUP, `POST /v1/reload`).
//!
//! A dry run makes the same checks as the change, and reports what would change: lines of the file, and shares of
//! groups.
//!
//! [`Control`] is the interface for programs. `http` turns connections into calls of `app`, which knows no sockets.
//! `gate` decides who may do what; `slots`, `rate` and `limits` bound it; `audit` logs changes. `resources` defines
//! the JSON of groups, volumes and the server, `monitor` the live page for browsers, and `openapi` writes
//! `docs/openapi.json`, which documents the interface.

mod app;
mod audit;
mod audited;
mod call;
pub mod client;
mod diff;
mod events;
mod failing;
mod file;
mod files;
mod gate;
mod health;
mod http;
mod limits;
mod live;
mod metrics;
mod monitor;
mod notes;
#[cfg(test)]
mod openapi;
mod page;
mod pages;
mod problem;
mod rate;
mod recording;
mod resources;
mod response;
mod running;
mod shown;
mod slots;
mod turns;
mod usage;
mod why;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use iofair_config::contracts::Contracts;

use crate::confine;
use crate::consent::Consent;
use crate::error::ServeError;
use crate::log;
use crate::server::Server;
use crate::socket::{Allowed, SocketPlace};
use crate::supervisor::Passed;
use crate::trial::{Mode, Trial};

use app::App;
use audit::Audit;
use file::ContractFile;
use gate::Gate;
use http::{Http, Places};

/// How often somebody looks at the files of volumes and sockets.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A server that is controlled through its contract file.
#[derive(Debug)]
pub struct Control {
    app: Arc<App>,
    /// Gone once stopped.
    http: Option<Http>,
    /// Ends the thread that looks at files.
    watch: Option<Sender<()>>,
}

/// What control needs beside the server.
struct Parts {
    places: Places,
    gate: Gate,
    audit: Audit,
}

impl Parts {
    /// Takes its sockets out of those that were passed.
    fn new(contracts: &Contracts, passed: &mut Passed, mode: &Mode) -> Result<Self, ServeError> {
        notes::check_descriptors(contracts)?;
        let (control, metrics) = (contracts.control.clone(), contracts.metrics.clone());
        let sockets = [std::mem::take(&mut passed.control), std::mem::take(&mut passed.metrics)];
        let allowed = [&control.access, &metrics.access];
        let [control_allowed, metrics_allowed] = allowed.map(|a| Allowed::new(contracts, a));
        let allowed = [control_allowed?, metrics_allowed?];
        let gate = Gate::load(contracts)?;
        confine::check_own(contracts)?;
        let audit = Audit::open(control.audit.as_deref(), mode);
        let audit = audit.map_err(|error| {
            let path = control.audit.iter().map(|path| format!(" {}", path.display()));
            ServeError::system("the audit log".to_owned() + &path.collect::<String>())(error)
        })?;
        let places = Places { control, metrics, allowed, passed: sockets, mode: mode.clone() };
        Ok(Self { places, gate, audit })
    }
}

impl Control {
    /// Starts a server with these contracts, and listens where its `[control]` says.
    pub fn start(file: &Path, contracts: Contracts) -> Result<Self, ServeError> {
        Self::start_with(file, contracts, Passed::default(), &Consent::default())
    }
    /// The same with sockets from a service manager, and with consent to changes that need it.
    pub fn start_with(
        file: &Path,
        contracts: Contracts,
        mut passed: Passed,
        consent: &Consent,
    ) -> Result<Self, ServeError> {
        let Parts { places, gate, audit } = Parts::new(&contracts, &mut passed, &Mode::Serve)?;
        let server = Server::start_with(contracts, passed, consent)?;
        for note in notes::notes(server.contracts(), None) {
            log::tell("server", &note);
        }
        let app = Arc::new(App::new(file, server, gate, audit)?);
        let http = Http::start(places, &app)?;
        let watch = Some(watch(&app, http.sockets())?);
        Ok(Self { app, http: Some(http), watch })
    }
    /// Checks whether [`Self::start_with`] would start a server. Runs everything that a start runs before clients are
    /// served, and changes nothing on disk. What a running server with this file uses counts as free. Returns notes
    /// for the operator.
    pub fn check(
        file: &Path,
        contracts: Contracts,
        mut passed: Passed,
        consent: &Consent,
    ) -> Result<Vec<String>, ServeError> {
        let server = running::find(file);
        let mode = Mode::Check(Arc::new(Trial::new(server)));
        let Parts { places, .. } = Parts::new(&contracts, &mut passed, &mode)?;
        let mut notes = Server::try_out_start(contracts.clone(), passed, consent, &mode)?;
        ContractFile::new(file).map_err(ServeError::system(file.display().to_string()))?;
        Http::check(places)?;
        notes.extend(notes::notes(&contracts, None));
        notes.extend(mode.notes());
        if server.is_some() {
            notes.push(running::NOTE.to_string());
        }
        Ok(notes)
    }
    /// Calls `look` with the server.
    pub fn server<T>(&self, look: impl FnOnce(&Server) -> T) -> Result<T, ServeError> {
        self.app.server(look)
    }
    /// The TCP address of the control socket, with the real port if the contract file says 0.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(Http::control)
    }
    /// The TCP address of metrics, likewise.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(Http::metrics)
    }
    /// [`Self::reload`] on a thread of its own, since the file or the storage may make it wait; `then` gets the result. One
    /// reload may wait for another: a third one would read nothing that the second does not.
    pub fn reload_then(&self, then: impl FnOnce(Result<(), ServeError>) + Send + 'static) {
        let app = self.app.clone();
        if !app.begin_reload() {
            return;
        }
        let work = move || {
            let reloaded = app.reload_on_signal();
            app.end_reload();
            then(reloaded);
        };
        if thread::Builder::new().name("reload".into()).spawn(work).is_err() {
            log::tell("server", "no reload: no thread for it");
            self.app.end_reload();
        }
    }
    /// Applies the present contract file; on an error nothing changes.
    pub fn reload(&self) -> Result<(), ServeError> {
        self.app.reload_on_signal()
    }
    /// Whether the server has ended, or was told to end.
    pub fn is_over(&self) -> bool {
        self.app.is_over()
    }
    /// Completes all requests in flight, makes everything durable, and removes the sockets.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end()
    }
    fn end(&mut self) -> Result<(), ServeError> {
        self.watch = None;
        let ended = self.app.stop();
        if let Some(http) = self.http.take() {
            http.stop();
        }
        ended
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Who wants to know calls `stop`.
        let _ = self.end();
    }
}

/// Puts back the sockets of front ends and those of control (`own`) whose files somebody has removed. What happened to them and to
/// the mount, in words; during a change nobody knows which there should be.
fn restore_sockets(app: &App, own: &[SocketPlace]) -> Vec<String> {
    let shown = app.view();
    let sockets = shown.server.sockets().iter().chain(own);
    let mut told: Vec<String> = sockets.filter_map(SocketPlace::restore).collect();
    told.extend(shown.server.unmounted());
    if app.is_changing() || !Arc::ptr_eq(&shown, &app.view()) {
        told.clear();
    }
    told
}

/// Looks at a server's files and sockets now and from time to time, and tells the log, until the result is dropped.
fn watch(app: &Arc<App>, own: Vec<SocketPlace>) -> Result<Sender<()>, ServeError> {
    let look = |app: &App| {
        app.files.look(&app.view());
        app.files.tell(|| (!app.is_changing()).then(|| app.view()));
    };
    look(app);
    let (stop, stopped) = mpsc::channel();
    let app = Arc::downgrade(app);
    let looks = move || {
        let mut before = Vec::new();
        while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let Some(app) = app.upgrade() else { return };
            look(&app);
            let told = restore_sockets(&app, &own);
            if stopped.try_recv() == Err(TryRecvError::Disconnected) {
                return;
            }
            let new = told.iter().filter(|text| !before.contains(*text));
            new.for_each(|text| log::tell("server", text));
            before = told;
        }
    };
    let thread = thread::Builder::new().name("files".into()).spawn(looks);
    thread.map(|_| stop).map_err(ServeError::system("a thread"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Goal: a socket whose file somebody removes is there again, which is told, and never in the place of another one. Method: the
    /// sockets of every kind, removed alone, with another server's in their place, and with their second names.
    #[test]
    fn removed_sockets_come_back() {
        let directory = std::env::temp_dir().join(format!("iofair-sockets-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let sockets = ["nbd", "control", "metrics", "disk"].map(|name| directory.join(name));
        let [nbd, control, metrics, disk] = sockets.each_ref().map(|path| path.display());
        let text = format!(
            "[drive]\nback = 'memory:1MiB'\nstack = 'none-none'\n[listen]\nunix = '{nbd}'\n\
             [control]\nunix = '{control}'\n[metrics]\nunix = '{metrics}'\n[[group]]\nname = 'g'\n\
             [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\nvhost = '{disk}'\n"
        );
        let file = directory.join("contracts.toml");
        fs::write(&file, &text).unwrap();
        let mut control = Control::start(&file, Contracts::open(&file).unwrap()).unwrap();
        // Only this test puts them back.
        control.watch = None;
        let own = control.http.as_ref().unwrap().sockets();
        let restore = || restore_sockets(&control.app, &own);
        assert!(restore().is_empty());
        sockets.iter().for_each(|path| fs::remove_file(path).unwrap());
        let told = restore();
        for path in &sockets {
            UnixStream::connect(path).unwrap();
            assert!(told.iter().any(|text| text.contains(path.to_str().unwrap())), "{told:?}");
        }
        assert!(told.iter().all(|text| text.contains("is there again")) && restore().is_empty());
        let [nbd, _, _, disk] = &sockets;
        fs::remove_file(nbd).unwrap();
        let other = UnixListener::bind(nbd).unwrap();
        fs::remove_file(disk).unwrap();
        fs::remove_file(directory.join("disk.link")).unwrap();
        let told = restore();
        assert!(told.iter().all(|text| text.contains("restart the server")), "{told:?}");
        assert_eq!(told.len(), 2);
        control.stop().unwrap();
        drop(other);
        let left = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
        left.retain(|name| !name.starts_with('.'));
        left.sort();
        assert_eq!(left, ["contracts.toml", "nbd"]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
