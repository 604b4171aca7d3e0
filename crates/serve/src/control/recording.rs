//! Recordings over the control socket: begun, taken and ended by one caller, who alone knows the recording's name.
//!
//! A recording shows which parts of the drive clients use, so only operators may begin one, and viewers cannot take one
//! that they have not begun: its name is random. The server writes no file; the caller takes the trace piece by piece.

use hyper::body::Bytes;
use iofair_config::contracts::Contracts;
use iofair_core::time::Instant;
use iofair_trace::record::Metadata;
use serde_json::json;
use uuid::Uuid;

use super::app::App;
use super::call::Call;
use super::problem::{Problem, Result};
use super::response::{ApiResponse, not_allowed};
use super::turns::lock;
use crate::engine::Engine;
use crate::engine::record::{NoRecording, Taken};
use crate::error::ServeError;

/// A trace, or a part of one.
const TRACE: &str = "application/octet-stream";

impl App {
    /// `/v1/recordings` and what is below.
    pub(super) fn recording(&self, call: &Call, below: &[&str]) -> Result<ApiResponse> {
        match (below, call.method.as_str()) {
            ([], "POST") => self.start_recording(),
            ([], _) => Ok(not_allowed("POST")),
            ([name], "GET") => {
                self.is_recording(name)?;
                let from = from(call)?;
                piece(self.engine(move |now, engine| engine.take_recording(now, from))?)
            }
            ([name], "DELETE") => {
                self.is_recording(name)?;
                let from = from(call)?;
                let taken = self.engine(move |_, engine| engine.stop_recording(from))?;
                *lock(&self.recording) = None;
                piece(taken)
            }
            ([_], _) => Ok(not_allowed("GET, DELETE")),
            _ => Err(Problem::missing("there is nothing below a recording".to_owned())),
        }
    }
    fn start_recording(&self) -> Result<ApiResponse> {
        let metadata = metadata(self.view().server.contracts());
        let begun = self.engine(move |now, engine| engine.start_recording(now, metadata))?;
        match begun {
            Ok(()) => {}
            Err(NoRecording::Busy) => {
                return Err(Problem::conflict("there is a recording already".to_owned()).allowed(
                    "one at a time; it ends when its caller ends it, or 60 s after the last call",
                ));
            }
            Err(NoRecording::Long) => {
                return Err(Problem::conflict("the contracts have more than 1 MiB".to_owned()));
            }
        }
        let name = Uuid::new_v4().to_string();
        *lock(&self.recording) = Some(name.clone());
        Ok(ApiResponse::json(201, None, &json!({ "recording": name })))
    }
    fn is_recording(&self, name: &str) -> Result<()> {
        match lock(&self.recording).as_deref() == Some(name) {
            true => Ok(()),
            false => Err(Problem::missing("there is no such recording".to_owned())),
        }
    }
    /// Calls a function with the engine, on the reactor's thread.
    fn engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(Instant, &mut Engine) -> T + Send + 'static,
    ) -> Result<T, ServeError> {
        self.reactor.with_engine(work)
    }
}

/// Where in the trace the caller goes on.
fn from(call: &Call) -> Result<u64> {
    let value = call.query.strip_prefix("from=").map(str::parse);
    match (call.query.as_str(), value) {
        ("", _) => Ok(0),
        (_, Some(Ok(from))) => Ok(from),
        (query, _) => Err(Problem::bad_request(format!("\"{query}\" after the question mark"))
            .allowed("from=BYTES, the number of bytes that the caller has")),
    }
}

fn piece(taken: Option<Taken>) -> Result<ApiResponse> {
    let Some(Taken { bytes, .. }) = taken else {
        return Err(Problem::missing("the recording has ended, or that place is gone".to_owned()));
    };
    let body = Bytes::from(bytes);
    Ok(ApiResponse { status: 200, revision: None, kind: TRACE, allow: None, body })
}

/// What a replay needs to know of the server. Paths and names of clients are left out.
fn metadata(contracts: &Contracts) -> Metadata {
    let back = &contracts.drive.back;
    let profile = back.profile().map(|profile| format!(":{profile}")).unwrap_or_default();
    let back = format!("{}{profile}", back.kind());
    Metadata::default()
        .with(Metadata::PROGRAM, concat!("iofair ", env!("CARGO_PKG_VERSION")))
        .with(Metadata::STACK, contracts.drive.stack.name())
        .with(Metadata::BACK, back)
        .with(Metadata::CONTRACTS, contracts.bare())
}
