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
    pub(super) good: Good,
    /// Another response without an error.
    pub(super) also: Option<Good>,
    /// Status codes with a `Problem`.
    pub(super) problems: &'static [u16],
}

/// The response without an error.
#[derive(Clone, Copy)]
pub(super) struct Good {
    pub(super) status: u16,
    pub(super) description: &'static str,
    /// Whether it has the revision as its ETag.
    pub(super) tagged: bool,
    pub(super) content_type: &'static str,
    /// One of these schemas; JSON without any is an object.
    pub(super) schemas: &'static [&'static str],
}

impl Good {
    /// With the revision.
    const fn done(schemas: &'static [&'static str]) -> Self {
        Self { status: 200, description: "Done", tagged: true, content_type: JSON, schemas }
    }
}

const fn operation(method: &'static str, [path, id, summary]: [&'static str; 3]) -> Operation {
    let good = Good::done(&[]);
    let (parameters, problems): (&[&str], &[u16]) = (&[], &[]);
    let (body, also) = (None, None);
    Operation { method, path, id, summary, parameters, body, good, also, problems }
}
const fn get(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    operation("get", [path, id, summary])
}
const fn put(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    operation("put", [path, id, summary])
}
const fn patch(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    operation("patch", [path, id, summary])
}
const fn post(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    operation("post", [path, id, summary])
}
const fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    operation("delete", [path, id, summary])
}

impl Operation {
    const fn with(self, parameters: &'static [&'static str]) -> Self {
        Self { parameters, ..self }
    }
    const fn body(self, schema: &'static str) -> Self {
        Self { body: Some(schema), ..self }
    }
    const fn done(self, schemas: &'static [&'static str]) -> Self {
        Self { good: Good::done(schemas), ..self }
    }
    const fn created(self, schemas: &'static [&'static str]) -> Self {
        let description = "Created (only with If-None-Match: *)";
        self.also(Good { status: 201, description, ..Good::done(schemas) })
    }
    const fn also(self, good: Good) -> Self {
        Self { also: Some(good), ..self }
    }
    const fn untagged(
        self,
        status: u16,
        description: &'static str,
        content_type: &'static str,
        schemas: &'static [&'static str],
    ) -> Self {
        Self { good: Good { status, description, tagged: false, content_type, schemas }, ..self }
    }
    const fn problems(self, problems: &'static [u16]) -> Self {
        Self { problems, ..self }
    }
}

const CHANGE: &[u16] = &[400, 403, 404, 409, 412, 415, 422, 429, 503];
const CREATION: &[u16] = &[400, 403, 409, 412, 415, 422, 429, 503];
pub(super) const JSON: &str = "application/json";
const TRACE: &str = "application/octet-stream";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A server that is not healthy.
const SICK: Good = Good {
    status: 503,
    description: "No",
    tagged: false,
    content_type: JSON,
    schemas: &["Health"],
};

pub(super) const OPERATIONS: &[Operation] = &[
    get("/v1/status", "status", "The state of the server").done(&["Status"]).problems(&[405]),
    get("/v1/groups", "listGroups", "All groups")
        .with(&["limit", "after"])
        .done(&["Groups"])
        .problems(&[400, 405]),
    get("/v1/groups/{name}", "getGroup", "One group").done(&["OneGroup"]).problems(&[404]),
    put("/v1/groups/{name}", "putGroup", "Creates or replaces a group; missing keys are removed")
        .with(&["If-Match", "If-None-Match", "dry_run"])
        .body("Contract")
        .done(&["OneGroup", "DryRun"])
        .created(&["OneGroup"])
        .problems(CREATION),
    patch("/v1/groups/{name}", "patchGroup", "Changes some keys of a group")
        .with(&["If-Match", "dry_run"])
        .body("Contract")
        .done(&["OneGroup", "DryRun"])
        .problems(CHANGE),
    delete("/v1/groups/{name}", "deleteGroup", "Removes a group")
        .with(&["If-Match", "dry_run"])
        .done(&["Revised", "DryRun"])
        .problems(CHANGE),
    get("/v1/volumes", "listVolumes", "All volumes")
        .with(&["limit", "after"])
        .done(&["Volumes"])
        .problems(&[400, 405]),
    get("/v1/volumes/{name}", "getVolume", "One volume").done(&["OneVolume"]).problems(&[404]),
    put(
        "/v1/volumes/{name}",
        "putVolume",
        "Creates or replaces a volume; missing keys are removed",
    )
    .with(&["If-Match", "If-None-Match", "shrink", "take_over", "dry_run"])
    .body("Settings")
    .done(&["OneVolume", "DryRun"])
    .created(&["OneVolume"])
    .problems(CREATION),
    patch("/v1/volumes/{name}", "patchVolume", "Changes some keys of a volume")
        .with(&["If-Match", "shrink", "take_over", "dry_run"])
        .body("Settings")
        .done(&["OneVolume", "DryRun"])
        .problems(CHANGE),
    delete("/v1/volumes/{name}", "deleteVolume", "Removes a volume")
        .with(&["If-Match", "data", "dry_run"])
        .done(&["Revised", "DryRun"])
        .problems(CHANGE),
    get("/v1/stack", "getStack", "The policies and their parameters")
        .done(&["OneStack"])
        .problems(&[405]),
    put(
        "/v1/stack",
        "putStack",
        "Changes the stack; waiting requests are handed over to the new one",
    )
    .with(&["If-Match", "dry_run"])
    .body("NewStack")
    .done(&["OneStack", "DryRun"])
    .problems(CREATION),
    post(
        "/v1/drain",
        "drain",
        "Accepts no new clients and requests, completes all requests in flight, then holds, \
         resumes or ends",
    )
    .body("Then")
    .untagged(200, "Drained", JSON, &["State"])
    .problems(&[400, 403, 409, 415, 429, 503]),
    post("/v1/resume", "resume", "Resumes after a drain with `hold`")
        .untagged(200, "Serving", JSON, &["State"])
        .problems(&[400, 403, 405, 415, 429, 503]),
    post("/v1/reload", "reload", "Applies the edits of the contract file")
        .with(&["shrink...", "take_over...", "delete...", "dry_run"])
        .done(&["Revised", "DryRun"])
        .problems(&[400, 403, 405, 415, 422, 429, 503]),
    get("/v1/openapi.json", "openapi", "This file")
        .untagged(200, "OpenAPI 3.1", JSON, &[])
        .problems(&[405]),
    get("/v1/groups/{name}/why", "why", "What holds a group back right now, and which rule")
        .done(&["Why"])
        .problems(&[404, 405]),
    get("/v1/live", "live", "Current counters of all groups, for live views")
        .with(&["limit", "after"])
        .done(&["Live"])
        .problems(&[400, 405]),
    get("/metrics", "metrics", "The server's counters for Prometheus")
        .with(&["detail"])
        .untagged(200, "Text format 0.0.4", METRICS, &[])
        .problems(&[400, 405]),
    get(
        "/healthz",
        "health",
        "Checks whether the reactor runs; with `?ready`, also whether clients are \
         served",
    )
    .with(&["ready"])
    .untagged(200, "Yes", JSON, &["Health"])
    .also(SICK)
    .problems(&[405]),
    get("/v1/audit", "getAudit", "The last lines of the audit log, oldest first")
        .with(&["last"])
        .untagged(200, "Done", JSON, &["Audit"])
        .problems(&[400, 404, 405]),
    post(
        "/v1/recordings",
        "startRecording",
        "Begins to record the requests of clients. One recording at a time; it ends \
         by itself 60 s after the last call.",
    )
    .untagged(201, "Recording", JSON, &["Recording"])
    .problems(&[403, 405, 409, 429, 503]),
    get(
        "/v1/recordings/{recording}",
        "takeRecording",
        "Returns the next bytes of the trace, at most 256 KiB",
    )
    .with(&["from"])
    .untagged(200, "A part of the trace; empty if nothing is new", TRACE, &[])
    .problems(&[400, 404, 429, 503]),
    delete(
        "/v1/recordings/{recording}",
        "endRecording",
        "Ends the recording, and returns the rest of the trace",
    )
    .with(&["from"])
    .untagged(200, "The rest of the trace", TRACE, &[])
    .problems(&[400, 403, 404, 405, 429, 503]),
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
    let text = || json!({ "type": "string" });
    let (place, description, schema) = match name {
        "name" => (
            "path",
            "A name. Slashes in a group's path may be written as %2F or as they are.",
            text(),
        ),
        "recording" => ("path", "The recording, as the call that began it returned it", text()),
        "If-Match" => (
            "header",
            "Refuses the call (412) unless the contract file still has this revision",
            text(),
        ),
        "If-None-Match" => ("header", "`*`: refuses the call (412) if the name exists", text()),
        name => {
            let (description, schema) = query(name);
            ("query", description, schema)
        }
    };
    let name = name.trim_end_matches("...");
    let mut parameter =
        json!({ "name": name, "in": place, "description": description, "schema": schema });
    if place == "path" {
        parameter["required"] = true.into();
    }
    parameter
}

/// A parameter of the query: what it means, its schema. One whose name ends in `...` takes several names.
fn query(name: &str) -> (&'static str, Json) {
    let names = json!({"type": "array", "items": {"type": "string"}});
    match name {
        "shrink..." => {
            ("Volumes that may shrink to the size in the file; data beyond it is lost.", names)
        }
        "take_over..." => {
            ("Volumes whose data, kept for another group, goes to the group in the file.", names)
        }
        "delete..." => ("Volumes that the file no longer has, and whose data is deleted.", names),
        "limit" => (
            "Number of entries; default 1000, at most 10000",
            json!({"type": "integer", "minimum": 1}),
        ),
        "after" => {
            ("Only entries after this name: `next` of the previous page", json!({"type": "string"}))
        }
        "dry_run" => (
            "`true`: makes all checks and reports what would change. Nothing changes, and the audit log has no entry.",
            json!({"type": "boolean"}),
        ),
        "shrink" => (
            "`true`: the volume may shrink; data beyond the new size is lost.",
            json!({"type": "string", "enum": ["true"]}),
        ),
        "take_over" => (
            "`true`: the volume may be created in another group than the one for which its data was kept.",
            json!({"type": "string", "enum": ["true"]}),
        ),
        "data" => (
            "`delete`: also deletes its data (a volume of a pool, or NAME.img of a directory), after completing \
                 the requests in flight and disconnecting its clients. Without it, the data is kept for the \
                 volume's group, and clients may continue until they disconnect.",
            json!({"type": "string", "enum": ["keep", "delete"]}),
        ),
        "detail" => (
            "Level of detail; default: `detail` of [metrics]",
            json!({"type": "string", "enum": ["none", "groups", "volumes"]}),
        ),
        "ready" => {
            ("Without a value. A server that drains is not ready.", json!({"type": "boolean"}))
        }
        "last" => ("Number of lines; default 20", json!({"type": "integer", "minimum": 1})),
        "from" => (
            "Number of bytes of the trace that the caller has. The server forgets them.",
            json!({"type": "integer", "minimum": 0}),
        ),
        name => panic!("no parameter {name}"),
    }
}
