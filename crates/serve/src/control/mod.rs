//! Control of a running server: HTTP with JSON over a Unix socket, and over TLS if asked; metrics and health.
//!
//! **The contract file is the state.** A change is made in the file and in the running server, or in
//! neither: the new text is written beside the file and synced, the server takes the new contracts over,
//! and the text takes the file's place; if the last step fails, the server goes back. So a change survives
//! a restart, and reading the file again finds what is in force.
//!
//! Changes come one after the other. Every answer carries the *revision* of the file that it speaks of (in
//! `ETag`, too); a change that names one (`If-Match`) is refused if another was faster. A file that somebody
//! edited by hand is not overwritten: its changes are to be taken over first (SIGHUP, `POST /v1/reload`).
//!
//! A dry run is checked as the change would be, and tells what would differ: the file's lines and what groups get.
//!
//! [`Control`] is what a program holds; `http` turns sockets into calls of `app`, which knows no socket; `gate` says who
//! may do what, `slots`, `rate` and `limits` how much of it, `audit` writes down who did what; `resources` says how things
//! look from outside, `docs/openapi.json` is the contract with clients.

mod app;
mod audit;
mod audited;
pub mod client;
mod diff;
mod file;
mod gate;
mod health;
mod http;
mod limits;
mod live;
mod metrics;
mod notes;
mod page;
mod pages;
mod problem;
mod rate;
mod resources;
mod running;
mod slots;
mod usage;
mod why;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use iofair_config::contracts::Contracts;

use crate::error::ServeError;
use crate::log;
use crate::places::Consent;
use crate::server::Server;
use crate::socket::Allowed;
use crate::supervisor::Passed;
use crate::trial::{Mode, Trial};

use app::App;
use audit::Audit;
use file::ContractFile;
use gate::Gate;
use http::{Http, Places};

/// A server under control of its contract file.
#[derive(Debug)]
pub struct Control {
    app: Arc<App>,
    /// Gone once stopped.
    http: Option<Http>,
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
        let (control, metrics) = (contracts.control.clone(), contracts.metrics.clone());
        let sockets = [std::mem::take(&mut passed.control), std::mem::take(&mut passed.metrics)];
        let allowed = [&control.access, &metrics.access];
        let [control_allowed, metrics_allowed] = allowed.map(|a| Allowed::new(contracts, a));
        let allowed = [control_allowed?, metrics_allowed?];
        let gate = Gate::load(contracts)?;
        let audit = Audit::open(control.audit.as_deref(), mode);
        let audit = audit.map_err(ServeError::system("the audit log"))?;
        let places = Places { control, metrics, allowed, passed: sockets, mode: mode.clone() };
        Ok(Self { places, gate, audit })
    }
}

impl Control {
    /// Starts what the file says, and listens where its `[control]` says.
    pub fn start(file: &Path, contracts: Contracts) -> Result<Self, ServeError> {
        Self::start_under(file, contracts, Passed::default())
    }
    /// [`Self::start`] with what a service manager passed.
    pub fn start_under(
        file: &Path,
        contracts: Contracts,
        passed: Passed,
    ) -> Result<Self, ServeError> {
        Self::start_with(file, contracts, passed, &Consent::default())
    }
    /// [`Self::start_under`], with what was agreed to beyond the contracts.
    pub fn start_with(
        file: &Path,
        contracts: Contracts,
        mut passed: Passed,
        consent: &Consent,
    ) -> Result<Self, ServeError> {
        let Parts { places, gate, audit } = Parts::new(&contracts, &mut passed, &Mode::Serve)?;
        let server = Server::start_with(contracts, passed, consent)?;
        for note in notes::notes(server.contracts()) {
            log::tell("server", &note);
        }
        let app = Arc::new(App::new(file, server, gate, audit)?);
        let http = Http::start(places, &app)?;
        Ok(Self { app, http: Some(http) })
    }
    /// Would [`Self::start_with`] start a server? Runs everything that it runs before clients are served, and changes nothing
    /// on disk. What a running server with this file uses counts as free. Returns what an operator should know.
    pub fn check(
        file: &Path,
        contracts: Contracts,
        mut passed: Passed,
        consent: &Consent,
    ) -> Result<Vec<String>, ServeError> {
        let (runs, process) = running::find(file, &contracts);
        let mode = Mode::Check(Arc::new(Trial::new(runs, process)));
        let Parts { places, .. } = Parts::new(&contracts, &mut passed, &mode)?;
        let mut notes = Server::try_out_start(contracts.clone(), passed, consent, &mode)?;
        ContractFile::new(file).map_err(ServeError::system(file.display().to_string()))?;
        Http::check(places)?;
        notes.extend(notes::notes(&contracts));
        if runs {
            notes.push(running::NOTE.to_string());
        }
        Ok(notes)
    }
    /// Looks at the server.
    pub fn server<T>(&self, look: impl FnOnce(&Server) -> T) -> Result<T, ServeError> {
        self.app.server(look)
    }
    /// The TCP address of the control socket, with the port that was given out when 0 was asked.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(Http::control)
    }
    /// The TCP address of metrics, likewise.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(Http::metrics)
    }
    /// Takes over the file as it is now; on an error everything stays as it was.
    pub fn reload(&self) -> Result<(), ServeError> {
        self.app.reload_on_signal()
    }
    /// Has the server ended, or was it told to?
    pub fn is_over(&self) -> bool {
        self.app.is_over()
    }
    /// Answers all requests that came in, makes everything durable, and removes the sockets.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end()
    }
    fn end(&mut self) -> Result<(), ServeError> {
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
