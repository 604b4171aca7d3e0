//! The operations of the API.

use serde_json::{Value as Json, json};

/// An operation of the API.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [&'static str],
    /// The schema of the body.
    pub(super) body: Option<&'static str>,
    /// What goes well.
    pub(super) good: &'static [Good],
    /// Status codes with a [`Problem`].
    pub(super) bad: &'static [u16],
}

/// A response without an error.
pub(super) struct Good {
    pub(super) status: u16,
    pub(super) description: &'static str,
    /// Whether it has the revision as its ETag.
    pub(super) tagged: bool,
    pub(super) content: Content,
}

pub(super) enum Content {
    Json(&'static [&'static str]),
    /// Another type.
    Text(&'static str),
}

const fn done(schemas: &'static [&'static str]) -> Good {
    Good { status: 200, description: "Done", tagged: true, content: Content::Json(schemas) }
}
const fn created(schemas: &'static [&'static str]) -> Good {
    let description = "Created (only with If-None-Match: *)";
    Good { status: 201, description, ..done(schemas) }
}
const fn untagged(status: u16, description: &'static str, content: Content) -> Good {
    Good { status, description, tagged: false, content }
}

const CHANGE: &[u16] = &[400, 403, 404, 409, 412, 415, 422, 429, 503];
const CREATION: &[u16] = &[400, 403, 409, 412, 415, 422, 429, 503];
const TRACE: &str = "application/octet-stream";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "get",
        path: "/v1/status",
        id: "status",
        summary: "The state of the server",
        parameters: &[],
        body: None,
        good: &[done(&["Status"])],
        bad: &[405],
    },
    Operation {
        method: "get",
        path: "/v1/groups",
        id: "listGroups",
        summary: "All groups",
        parameters: &["limit", "after"],
        body: None,
        good: &[done(&["Groups"])],
        bad: &[400, 405],
    },
    Operation {
        method: "get",
        path: "/v1/groups/{name}",
        id: "getGroup",
        summary: "One group",
        parameters: &[],
        body: None,
        good: &[done(&["OneGroup"])],
        bad: &[404],
    },
    Operation {
        method: "put",
        path: "/v1/groups/{name}",
        id: "putGroup",
        summary: "Creates or replaces a group; missing keys are removed",
        parameters: &["If-Match", "If-None-Match", "dry_run"],
        body: Some("Contract"),
        good: &[done(&["OneGroup", "DryRun"]), created(&["OneGroup"])],
        bad: CREATION,
    },
    Operation {
        method: "patch",
        path: "/v1/groups/{name}",
        id: "patchGroup",
        summary: "Changes some keys of a group",
        parameters: &["If-Match", "dry_run"],
        body: Some("Contract"),
        good: &[done(&["OneGroup", "DryRun"])],
        bad: CHANGE,
    },
    Operation {
        method: "delete",
        path: "/v1/groups/{name}",
        id: "deleteGroup",
        summary: "Removes a group",
        parameters: &["If-Match", "dry_run"],
        body: None,
        good: &[done(&["Revised", "DryRun"])],
        bad: CHANGE,
    },
    Operation {
        method: "get",
        path: "/v1/volumes",
        id: "listVolumes",
        summary: "All volumes",
        parameters: &["limit", "after"],
        body: None,
        good: &[done(&["Volumes"])],
        bad: &[400, 405],
    },
    Operation {
        method: "get",
        path: "/v1/volumes/{name}",
        id: "getVolume",
        summary: "One volume",
        parameters: &[],
        body: None,
        good: &[done(&["OneVolume"])],
        bad: &[404],
    },
    Operation {
        method: "put",
        path: "/v1/volumes/{name}",
        id: "putVolume",
        summary: "Creates or replaces a volume; missing keys are removed",
        parameters: &["If-Match", "If-None-Match", "shrink", "take_over", "dry_run"],
        body: Some("Settings"),
        good: &[done(&["OneVolume", "DryRun"]), created(&["OneVolume"])],
        bad: CREATION,
    },
    Operation {
        method: "patch",
        path: "/v1/volumes/{name}",
        id: "patchVolume",
        summary: "Changes some keys of a volume",
        parameters: &["If-Match", "shrink", "take_over", "dry_run"],
        body: Some("Settings"),
        good: &[done(&["OneVolume", "DryRun"])],
        bad: CHANGE,
    },
    Operation {
        method: "delete",
        path: "/v1/volumes/{name}",
        id: "deleteVolume",
        summary: "Removes a volume",
        parameters: &["If-Match", "data", "dry_run"],
        body: None,
        good: &[done(&["Revised", "DryRun"])],
        bad: CHANGE,
    },
    Operation {
        method: "get",
        path: "/v1/stack",
        id: "getStack",
        summary: "The policies and their parameters",
        parameters: &[],
        body: None,
        good: &[done(&["OneStack"])],
        bad: &[405],
    },
    Operation {
        method: "put",
        path: "/v1/stack",
        id: "putStack",
        summary: "Changes the stack; waiting requests are handed over to the new one",
        parameters: &["If-Match", "dry_run"],
        body: Some("NewStack"),
        good: &[done(&["OneStack", "DryRun"])],
        bad: CREATION,
    },
    Operation {
        method: "post",
        path: "/v1/drain",
        id: "drain",
        summary: "Accepts no new clients and requests, completes all requests in flight, then holds, resumes or ends",
        parameters: &[],
        body: Some("Then"),
        good: &[untagged(200, "Drained", Content::Json(&["State"]))],
        bad: &[400, 403, 409, 415, 429, 503],
    },
    Operation {
        method: "post",
        path: "/v1/resume",
        id: "resume",
        summary: "Resumes after a drain with `hold`",
        parameters: &[],
        body: None,
        good: &[untagged(200, "Serving", Content::Json(&["State"]))],
        bad: &[400, 403, 405, 415, 429, 503],
    },
    Operation {
        method: "post",
        path: "/v1/reload",
        id: "reload",
        summary: "Applies the edits of the contract file",
        parameters: &["dry_run"],
        body: None,
        good: &[done(&["Revised", "DryRun"])],
        bad: &[400, 403, 405, 415, 422, 429, 503],
    },
    Operation {
        method: "get",
        path: "/v1/openapi.json",
        id: "openapi",
        summary: "This file",
        parameters: &[],
        body: None,
        good: &[untagged(200, "OpenAPI 3.1", Content::Json(&[]))],
        bad: &[405],
    },
    Operation {
        method: "get",
        path: "/v1/groups/{name}/why",
        id: "why",
        summary: "What holds a group back right now, and which rule",
        parameters: &[],
        body: None,
        good: &[done(&["Why"])],
        bad: &[404, 405],
    },
    Operation {
        method: "get",
        path: "/v1/live",
        id: "live",
        summary: "Current counters of all groups, for live views",
        parameters: &["limit", "after"],
        body: None,
        good: &[done(&["Live"])],
        bad: &[400, 405],
    },
    Operation {
        method: "get",
        path: "/metrics",
        id: "metrics",
        summary: "The server's counters for Prometheus",
        parameters: &["detail"],
        body: None,
        good: &[untagged(200, "Text format 0.0.4", Content::Text(METRICS))],
        bad: &[400, 405],
    },
    Operation {
        method: "get",
        path: "/healthz",
        id: "health",
        summary: "Checks whether the reactor runs; with `?ready`, also whether clients are served",
        parameters: &["ready"],
        body: None,
        good: &[
            untagged(200, "Yes", Content::Json(&["Health"])),
            untagged(503, "No", Content::Json(&["Health"])),
        ],
        bad: &[405],
    },
    Operation {
        method: "get",
        path: "/v1/audit",
        id: "getAudit",
        summary: "The last lines of the audit log, oldest first",
        parameters: &["last"],
        body: None,
        good: &[untagged(200, "Done", Content::Json(&["Audit"]))],
        bad: &[400, 404, 405],
    },
    Operation {
        method: "post",
        path: "/v1/recordings",
        id: "startRecording",
        summary: "Begins to record the requests of clients. One recording at a time; it ends by itself 60 s \
             after the last call.",
        parameters: &[],
        body: None,
        good: &[untagged(201, "Recording", Content::Json(&["Recording"]))],
        bad: &[403, 405, 409, 429, 503],
    },
    Operation {
        method: "get",
        path: "/v1/recordings/{recording}",
        id: "takeRecording",
        summary: "Returns the next bytes of the trace, at most 256 KiB",
        parameters: &["from"],
        body: None,
        good: &[untagged(
            200,
            "A part of the trace; empty if nothing is new",
            Content::Text(TRACE),
        )],
        bad: &[400, 404, 429, 503],
    },
    Operation {
        method: "delete",
        path: "/v1/recordings/{recording}",
        id: "endRecording",
        summary: "Ends the recording, and returns the rest of the trace",
        parameters: &["from"],
        body: None,
        good: &[untagged(200, "The rest of the trace", Content::Text(TRACE))],
        bad: &[400, 403, 404, 405, 429, 503],
    },
];

/// Descriptions of errors, by status.
pub(super) const PROBLEMS: [(u16, &str); 10] = [
    (400, "The call cannot be understood"),
    (403, "The caller may read but not make changes"),
    (404, "Not found"),
    (405, "This path does not support the method"),
    (
        409,
        "It exists already, the contract file has edits that have not been applied, or a drain is in progress",
    ),
    (412, "The contract file has another revision by now"),
    (415, "The call has no Content-Type: application/json"),
    (422, "The contract file would be invalid, or a running server cannot change this"),
    (429, "The caller exceeds the rate of calls"),
    (
        503,
        "The server has ended, too many calls are in progress, or the audit log cannot be written",
    ),
];

/// Descriptions that differ, by operation.
pub(super) const OTHER_PROBLEMS: [(&str, u16, &str); 8] = [
    ("drain", 503, "Not drained in time (it serves again), or the server has ended"),
    ("getAudit", 404, "The audit log goes to standard error"),
    ("startRecording", 409, "There is a recording already"),
    ("startRecording", 503, "The server has ended"),
    ("takeRecording", 503, "The server has ended"),
    ("endRecording", 503, "The server has ended"),
    ("takeRecording", 404, "There is no such recording, or that part of it is gone"),
    ("endRecording", 404, "There is no such recording, or that part of it is gone"),
];

/// A parameter: where it is, what it means, its schema.
pub(super) fn parameter(name: &str) -> Json {
    let (place, description, schema) = match name {
        "limit" => (
            "query",
            "Number of entries; default 1000, at most 10000",
            json!({"type": "integer", "minimum": 1}),
        ),
        "after" => (
            "query",
            "Only entries after this name: `next` of the previous page",
            json!({"type": "string"}),
        ),
        "name" => (
            "path",
            "A name. Slashes in a group's path may be written as %2F or as they are.",
            json!({"type": "string"}),
        ),
        "If-Match" => (
            "header",
            "Refuses the call (412) unless the contract file still has this revision",
            json!({"type": "string"}),
        ),
        "If-None-Match" => {
            ("header", "`*`: refuses the call (412) if the name exists", json!({"type": "string"}))
        }
        "dry_run" => (
            "query",
            "`true`: makes all checks and reports what would change. Nothing changes, and the audit log has no entry.",
            json!({"type": "boolean"}),
        ),
        "shrink" => (
            "query",
            "`true`: the volume may shrink; data beyond the new size is lost.",
            json!({"type": "string", "enum": ["true"]}),
        ),
        "take_over" => (
            "query",
            "`true`: the volume may be created in another group than the one for which its data was kept.",
            json!({"type": "string", "enum": ["true"]}),
        ),
        "data" => (
            "query",
            "`delete`: also deletes its data (a volume of a pool, or NAME.img of a directory), after completing \
                 the requests in flight and disconnecting its clients. Without it, the data is kept for the \
                 volume's group, and clients may continue until they disconnect.",
            json!({"type": "string", "enum": ["keep", "delete"]}),
        ),
        "detail" => (
            "query",
            "Level of detail; default: `detail` of [metrics]",
            json!({"type": "string", "enum": ["none", "groups", "volumes"]}),
        ),
        "ready" => (
            "query",
            "Without a value. A server that drains is not ready.",
            json!({"type": "boolean"}),
        ),
        "last" => {
            ("query", "Number of lines; default 20", json!({"type": "integer", "minimum": 1}))
        }
        "recording" => (
            "path",
            "The recording, as the call that began it returned it",
            json!({"type": "string"}),
        ),
        "from" => (
            "query",
            "Number of bytes of the trace that the caller has. The server forgets them.",
            json!({"type": "integer", "minimum": 0}),
        ),
        name => panic!("no parameter {name}"),
    };
    let mut parameter =
        json!({ "name": name, "in": place, "description": description, "schema": schema });
    if place == "path" {
        parameter["required"] = true.into();
    }
    parameter
}
