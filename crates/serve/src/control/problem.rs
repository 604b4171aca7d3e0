//! Error responses: the messages of errors in contract files, as JSON.

use std::io;

use iofair_config::ConfigError;
use iofair_config::contracts::edit::EditError;
use serde::Serialize;

use crate::consent::Consent;
use crate::error::ServeError;
use crate::reactor::refusals::Refusal;

pub(super) type Result<T, E = Problem> = std::result::Result<T, E>;

/// Why a call was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Error"))]
pub(super) struct Problem {
    #[serde(skip)]
    pub(super) status: u16,
    /// One word that identifies the kind of error.
    #[cfg_attr(test, schemars(extend("enum" = ["bad-request", "missing", "exists", "conflict", "changed-meanwhile", "infeasible", "no-space", "refused", "fixed", "ended", "system", "method", "origin", "too-slow", "too-large", "not-json", "not-drained", "zeroing", "forbidden", "host", "too-many", "busy", "audit", "bug"])))]
    kind: &'static str,
    /// The problem.
    message: String,
    /// The allowed values.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<Box<str>>,
    /// The most similar known word.
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<Box<str>>,
    /// Absent: it is not about a line of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Box<Place>>,
    /// Volumes that need consent, by the word of the query that gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    consent: Option<Box<Consent>>,
    /// The complete text.
    text: String,
}

/// The place of an error in the contract file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Place {
    file: String,
    /// Counted from 1.
    line: usize,
    /// Counted from 1.
    column: usize,
    /// The line itself.
    written: String,
}

impl Problem {
    pub(super) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let text = message.clone();
        Self {
            status,
            kind,
            message,
            allowed: None,
            nearest: None,
            place: None,
            consent: None,
            text,
        }
    }
    pub(super) fn allowed(mut self, what: impl Into<String>) -> Self {
        let what = what.into();
        self.text += &format!("\n  allowed: {what}");
        self.allowed = Some(what.into());
        self
    }
    /// Names the candidate that is nearest to what was written, if one is near enough.
    pub(super) fn near<'a>(
        mut self,
        written: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let nearest = ConfigError::whole_file("", "").near(written, candidates).nearest;
        if let Some(nearest) = &nearest {
            self.text += &format!("\n  did you mean `{nearest}`?");
        }
        self.nearest = nearest.map(Into::into);
        self
    }
    /// The reason for which a caller was turned away before its call was looked at, if it was.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self.kind {
            "too-many" | "busy" => Some(Refusal::Calls),
            "origin" | "host" => Some(Refusal::Origin),
            "forbidden" => Some(Refusal::Role),
            "too-slow" => Some(Refusal::Unfinished),
            _ => None,
        }
    }
    /// What is wrong.
    pub(super) fn message(&self) -> &str {
        &self.message
    }
    /// The call itself cannot be understood.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "bad-request", message)
    }
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self::new(404, "missing", message)
    }
    /// Somebody else was faster.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "conflict", message)
    }
    fn written(status: u16, kind: &'static str, error: &ConfigError) -> Self {
        let place = error.place.as_ref().map(|place| {
            let (file, written) = (error.path.clone(), place.text.clone());
            Box::new(Place { file, line: place.line, column: place.column, written })
        });
        Self {
            status,
            kind,
            message: error.message.clone(),
            allowed: error.allowed.clone().map(Into::into),
            nearest: error.nearest.clone().map(Into::into),
            place,
            consent: None,
            text: error.to_string(),
        }
    }
}

impl From<EditError> for Problem {
    fn from(error: EditError) -> Self {
        match &error {
            EditError::Missing(error) => Self::written(404, "missing", error),
            EditError::Exists(error) => Self::written(409, "exists", error),
            EditError::Bad(error) => Self::written(422, "refused", error),
        }
    }
}

impl From<ServeError> for Problem {
    fn from(error: ServeError) -> Self {
        if let ServeError::Full(inner) = error {
            return Self { kind: "no-space", ..Self::from(*inner) };
        }
        match &error {
            ServeError::Config(error) => Self::written(422, "refused", error),
            ServeError::Infeasible(error) => Self::written(422, "infeasible", error),
            ServeError::Refused(_) => Self::new(422, "infeasible", error.to_string()),
            ServeError::Fixed(_) => Self::new(422, "fixed", error.to_string()),
            ServeError::Consent(unagreed) => {
                let consent = Some(Box::new(unagreed.missing.clone()));
                Self { consent, ..Self::new(422, "refused", unagreed.why.clone()) }
            }
            ServeError::Volume { .. } | ServeError::Tls { .. } => {
                Self::new(422, "refused", error.to_string())
            }
            ServeError::System { error: cause, .. } if is_no_room(cause) => {
                Self::new(422, "no-space", error.to_string())
            }
            ServeError::Zeroing(_) => Self::new(503, "zeroing", error.to_string()),
            ServeError::Busy(_) => Self::new(503, "busy", error.to_string()),
            ServeError::Gone => Self::new(503, "ended", error.to_string()),
            _ => Self::new(500, "system", error.to_string()),
        }
    }
}

/// Whether the file system has no room for what was asked, or no files of this length.
fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}
