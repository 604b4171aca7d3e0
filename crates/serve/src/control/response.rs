//! The response to a call, without HTTP.

use hyper::body::Bytes;
use serde::Serialize;
use serde_json::json;

use super::problem::Problem;

/// What a call gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ApiResponse {
    pub(super) status: u16,
    pub(super) revision: Option<String>,
    pub(super) kind: &'static str,
    /// Methods that the path knows, when another was used.
    pub(super) allow: Option<&'static str>,
    pub(super) body: Bytes,
}

impl ApiResponse {
    pub(super) fn json(status: u16, revision: Option<String>, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("our own structs are JSON").into();
        Self { status, revision, kind: "application/json", allow: None, body }
    }
    pub(super) fn problem(problem: &Problem) -> Self {
        Self::json(problem.status, None, &json!({ "error": problem }))
    }
}

pub(super) fn not_allowed(allow: &'static str) -> ApiResponse {
    let problem = Problem::new(405, "method", "this method is not supported here").allowed(allow);
    ApiResponse { allow: Some(allow), ..ApiResponse::problem(&problem) }
}
