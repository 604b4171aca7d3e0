//! Errors of servers, as codes of the interface.

use std::io;

use serde_json::Value as Json;
use tonic::{Code, Status};

/// A call that a server refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    /// The word of the control API for it.
    pub(crate) kind: String,
    /// The complete text, for people.
    pub(crate) text: String,
}

impl Refused {
    /// Reads the error of a response.
    pub(crate) fn read(status: u16, body: &Json) -> Self {
        let word = |key: &str| body["error"][key].as_str().map(str::to_string);
        Self {
            kind: word("kind").unwrap_or_default(),
            text: word("text")
                .unwrap_or_else(|| format!("the server responded with status {status}")),
        }
    }
}

/// Why a call of a server failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refused it.
    Refused(Refused),
    /// The server did not respond.
    Unreachable(io::Error),
    /// The response lacks a value, or has one of a wrong type.
    MalformedResponse { missing: String },
}

impl Failure {
    /// Whether the server refused with this word.
    pub(crate) fn is(&self, kind: &str) -> bool {
        matches!(self, Self::Refused(refused) if refused.kind == kind)
    }
    /// As a status of the interface; `node`: whose server it was.
    pub(crate) fn status(&self, node: &str) -> Status {
        match self {
            Self::Unreachable(error) => {
                Status::unavailable(format!("the server on node {node} does not respond: {error}"))
            }
            Self::MalformedResponse { missing } => Status::internal(format!(
                "the response of the server on node {node} has no {missing}: is its version older than the driver's?"
            )),
            Self::Refused(Refused { kind, text }) => {
                let code = match kind.as_str() {
                    // The numbers are in the text.
                    "infeasible" | "no-space" => Code::ResourceExhausted,
                    "refused" | "fixed" | "bad-request" | "too-large" => Code::InvalidArgument,
                    "missing" => Code::NotFound,
                    "exists" => Code::AlreadyExists,
                    "forbidden" | "host" | "origin" => Code::PermissionDenied,
                    // These pass: another change, a volume that is being zeroed, a server that is busy or ends.
                    "conflict" | "changed-meanwhile" | "too-slow" | "zeroing" | "ended"
                    | "too-many" | "busy" | "not-drained" => Code::Unavailable,
                    _ => Code::Internal,
                };
                Status::new(code, format!("node {node}: {text}"))
            }
        }
    }
}
