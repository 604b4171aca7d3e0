//! Changes between two lines of the audit log, and reading the log.

use serde_json::json;

use super::app::App;
use super::audit::{Asked, Outcome};
use super::call::Call;
use super::gate::Author;
use super::problem::{Problem, Result};
use super::response::ApiResponse;
use crate::error::ServeError;

/// Lines of the audit log that are shown unless the caller says how many, and the most.
const AUDIT_LINES: usize = 20;
const AUDIT_LINES_MAX: usize = 1000;

impl App {
    /// Makes a change between two lines of the audit log.
    pub(super) fn audited(&self, call: &Call) -> Result<ApiResponse> {
        let unwritten = |what: &str, error: std::io::Error| {
            Problem::new(503, "audit", format!("{what}: the audit log cannot be written: {error}"))
        };
        let asked = Asked::new(&call.method, &call.path, &call.query, call.body.as_deref());
        let before = self.revision();
        let author = call.author.clone().named();
        let begun = self.audit.begin(&author, asked, before);
        let begun = begun.map_err(|error| unwritten("nothing was changed", error))?;
        let changed = self.route(call);
        let present = self.revision();
        let (response, result) = match changed {
            Ok(response) => (response, "done"),
            Err(ref problem) => (ApiResponse::problem(problem), problem.message()),
        };
        // Others may have made changes since.
        let after = response.revision.as_ref().unwrap_or(&present);
        let outcome = Outcome { revision: after, status: Some(response.status), result };
        let ended = self.audit.end(&begun, &outcome);
        ended.map_err(|error| unwritten("the change was made, its end was not written", error))?;
        Ok(response)
    }
    /// [`Self::reload`] that nobody called for over a socket.
    pub(super) fn reload_on_signal(&self) -> Result<(), ServeError> {
        let author = Author::own("signal");
        let file = self.file.path().display().to_string();
        let asked = Asked::new("reload", &file, "", None);
        let before = self.revision();
        let begun = self.audit.begin(&author, asked, before.clone());
        let begun = begun.map_err(ServeError::system("the audit log"))?;
        let reloaded = self.reload(&crate::consent::Consent::default());
        let outcome = match &reloaded {
            Ok(revision) => (revision.clone(), "done".to_string()),
            Err(error) => (before, error.to_string()),
        };
        let outcome = Outcome { revision: &outcome.0, status: None, result: &outcome.1 };
        let ended = self.audit.end(&begun, &outcome).map_err(ServeError::system("the audit log"));
        reloaded.and(ended)
    }
    /// Writes a change to the audit log that its author may not make.
    pub(super) fn refused(&self, author: &Author, asked: Asked, why: &str) {
        let outcome = Outcome { revision: "", status: Some(403), result: why };
        self.audit.refused(author, asked, &outcome);
    }
    pub(super) fn show_audit(&self, call: &Call) -> Result<ApiResponse> {
        let lines = match call.query.strip_prefix("last=") {
            Some(number) => {
                number.parse().ok().filter(|lines| (1..=AUDIT_LINES_MAX).contains(lines))
            }
            None => call.query.is_empty().then_some(AUDIT_LINES),
        };
        let Some(lines) = lines else {
            let message = format!("\"{}\" after the question mark", call.query);
            let allowed = format!("last=N, 1 to {AUDIT_LINES_MAX}");
            return Err(Problem::bad_request(message).allowed(allowed));
        };
        let unread =
            |error| Problem::new(503, "audit", format!("the audit log cannot be read: {error}"));
        let last = self.audit.last(lines).map_err(unread)?;
        let Some(last) = last else {
            return Err(Problem::missing("the audit log goes to standard error: see the journal")
                .allowed("audit = \"PATH\" in [control]"));
        };
        Ok(ApiResponse::json(200, None, &json!({ "changes": last })))
    }
}
