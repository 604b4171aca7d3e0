//! Writes `docs/openapi.json`: the table of `operations`, and the schemas of the structures that calls return.
//!
//! The keys of a contract are those of [`FIELDS`].

mod operations;

use std::path::Path;

use iofair_core::key::{FIELDS, Field, Unit, inside, tops};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value as Json, json};

use operations::{Good, JSON, OPERATIONS, OTHER_PROBLEMS, Operation, PROBLEMS, parameter};

use super::app::changes::DryRun;
use super::audit::Line;
use super::live::Live;
use super::problem::Problem;
use super::resources::{Group, Stack, Status, Volume};
use super::why::Why;
use crate::places::kept::Kept;

fn reference(schema: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// A schema of an object; names that end with `?` may be absent.
fn object(properties: &[(&str, Json)]) -> Json {
    let named = |(name, schema): &(&str, Json)| (name.trim_end_matches('?').into(), schema.clone());
    let required = properties.iter().map(|(name, _)| *name).filter(|name| !name.ends_with('?'));
    json!({
        "type": "object",
        "required": required.collect::<Vec<_>>(),
        "properties": properties.iter().map(named).collect::<Map<String, Json>>(),
        "additionalProperties": false
    })
}

fn text(description: &str) -> Json {
    json!({ "type": "string", "description": description })
}

fn list(items: Json) -> Json {
    json!({ "type": "array", "items": items })
}

/// A key of a contract; `null` removes it.
fn key(field: &Field) -> Json {
    let range = field.unit.range();
    let mut schema = match field.unit {
        Unit::Rate | Unit::Size | Unit::Time => json!({ "type": ["string", "null"] }),
        Unit::Count | Unit::Weight => {
            json!({ "type": ["integer", "null"], "minimum": range.start() })
        }
        Unit::Class => json!({ "type": ["string", "null"] }),
    };
    schema["description"] = field.doc.into();
    schema
}

/// The keys of a contract. Values are judged when they are written to the file, so that errors name their place.
fn contract() -> Json {
    let top = |top: &'static str| {
        let schema = Field::named(top).map(key).unwrap_or_else(|| {
            let inner =
                inside(top).map(|field| (field.inner().unwrap_or_default().into(), key(field)));
            json!({
                "type": ["object", "string", "null"],
                "description": if top == "latency" { "A time for reads, or a table" } else { "One rate for reads and writes each, or a table" },
                "properties": inner.collect::<Map<String, Json>>(),
                "additionalProperties": false
            })
        });
        (top.to_string(), schema)
    };
    json!({
        "type": "object",
        "description": "A contract with the keys of the contract file. In a PATCH, null removes a key.",
        "properties": tops().filter(|top| *top != "low").map(top).collect::<Map<String, Json>>(),
        "additionalProperties": true
    })
}

/// The schemas that are not those of one structure.
fn envelopes() -> Vec<(&'static str, Json)> {
    let state = json!({
        "type": "string",
        "description": "The server's state",
        "enum": ["serving", "failing", "draining", "drained"]
    });
    let revision = || ("revision", reference("Revision"));
    let next = || ("next?", text("The start of the next page; absent on the last one"));
    let mut notes = list(json!({ "type": "string" }));
    notes["description"] = "After a change: what the operator should know; absent: nothing".into();
    let (notes, kept) = (("notes?", notes), ("kept?", list(reference("Kept"))));
    vec![
        ("Revision", text(REVISION)),
        ("Revised", object(&[revision(), notes.clone()])),
        ("State", object(&[("state", state.clone())])),
        ("Contract", contract()),
        (
            "Settings",
            json!({
                "type": "object",
                "description": SETTINGS,
                "additionalProperties": true
            }),
        ),
        ("Groups", object(&[revision(), ("groups", list(reference("Group"))), next()])),
        ("Volumes", object(&[revision(), ("volumes", list(reference("Volume"))), kept, next()])),
        ("OneGroup", object(&[revision(), ("group", reference("Group")), notes.clone()])),
        ("OneVolume", object(&[revision(), ("volume", reference("Volume")), notes.clone()])),
        ("OneStack", object(&[revision(), ("stack", reference("Stack")), notes])),
        (
            "NewStack",
            object(&[
                ("name", text(STACK)),
                (
                    "policy?",
                    json!({ "type": ["object", "null"], "description": POLICY, "additionalProperties": true }),
                ),
                ("give_up?", json!({ "type": "boolean", "description": GIVE_UP })),
            ]),
        ),
        (
            "Then",
            object(&[(
                "then?",
                json!({ "type": "string", "description": THEN, "enum": ["hold", "resume", "end"] }),
            )]),
        ),
        ("Problem", object(&[("error", reference("Error"))])),
        (
            "Health",
            object(&[
                ("alive", json!({ "type": "boolean", "description": "Whether the reactor runs" })),
                ("state", state),
                (
                    "removed_files?",
                    json!({ "type": "integer", "minimum": 1, "description": REMOVED }),
                ),
            ]),
        ),
        ("Audit", object(&[("changes", list(reference("AuditLine")))])),
        (
            "Recording",
            object(&[("recording", text("The recording's name, which only its caller knows"))]),
        ),
    ]
}

/// As the document has it: what a schema of a structure says beyond that goes.
fn tidy(schema: &mut Json) {
    match schema {
        Json::Array(list) => list.iter_mut().for_each(tidy),
        Json::Object(words) => {
            if let Some(target) = words.get("$ref").cloned() {
                *words = Map::from_iter([("$ref".to_string(), target)]);
                return;
            }
            for word in ["title", "format", "minItems", "maxItems", "maximum"] {
                words.remove(word);
            }
            let is_number = |name: &Json| name == "number" || name == "integer";
            let named = words.get("type").cloned().unwrap_or_default();
            if is_number(&named)
                || named.as_array().is_some_and(|names| names.iter().any(is_number))
            {
                words.entry("minimum").or_insert(0.into());
            }
            if let Some(Json::String(text)) = words.get_mut("description") {
                *text = text.replace('\n', " ").trim_end_matches('.').to_string();
            }
            if words.contains_key("properties") {
                words.insert("additionalProperties".into(), false.into());
            }
            let required = words.get("required").cloned().unwrap_or_default();
            let is_required = |name: &String| {
                required.as_array().is_some_and(|names| names.iter().any(|one| one == name))
            };
            for (name, schema) in
                words.get_mut("properties").and_then(Json::as_object_mut).into_iter().flatten()
            {
                if !is_required(name) {
                    not_null(schema);
                }
                if name == "revision" && schema.get("description").is_none() {
                    *schema = reference("Revision");
                }
            }
            words.iter_mut().filter(|(word, _)| *word != "enum").for_each(|(_, inner)| tidy(inner));
        }
        _ => {}
    }
}

/// A property that is absent where there is nothing is never `null`.
fn not_null(schema: &mut Json) {
    let some = |name: &Json| name != "null" && *name != json!({ "type": "null" });
    for word in ["type", "anyOf"] {
        let Some(Json::Array(names)) = schema.get_mut(word) else { continue };
        names.retain(some);
        if let [one] = names.as_slice() {
            let one = one.clone();
            match word {
                "type" => schema[word] = one,
                _ => *schema = one,
            }
        }
    }
}

/// The schemas of the structures, and of those in them.
fn structures() -> Map<String, Json> {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut generator = SchemaGenerator::new(settings);
    generator.subschema_for::<Status>();
    generator.subschema_for::<Group>();
    generator.subschema_for::<Volume>();
    generator.subschema_for::<Kept>();
    generator.subschema_for::<Stack>();
    generator.subschema_for::<Problem>();
    generator.subschema_for::<Why>();
    generator.subschema_for::<Live>();
    generator.subschema_for::<Line<'_>>();
    generator.subschema_for::<DryRun>();
    let mut schemas = generator.take_definitions(true);
    schemas.values_mut().for_each(tidy);
    schemas
}

fn content(kind: &str, schema: &Json) -> Json {
    json!({ kind: { "schema": schema } })
}

fn response(good: &Good) -> Json {
    let schema = match good.schemas {
        [] if good.content_type == JSON => {
            json!({ "type": "object", "additionalProperties": true })
        }
        [] => json!({ "type": "string" }),
        [schema] => reference(schema),
        schemas => {
            json!({ "anyOf": schemas.iter().map(|name| reference(name)).collect::<Vec<_>>() })
        }
    };
    let content = content(good.content_type, &schema);
    let mut response = json!({ "description": good.description, "content": content });
    if good.tagged {
        let tag = json!({ "description": "The revision", "schema": { "type": "string" } });
        response["headers"] = json!({ "ETag": tag });
    }
    response
}

fn problem(operation: &Operation, status: u16) -> Json {
    let other = OTHER_PROBLEMS.iter().find(|other| (other.0, other.1) == (operation.id, status));
    let usual = || PROBLEMS.iter().find(|problem| problem.0 == status).expect("a known status").1;
    let description = other.map_or_else(usual, |other| other.2);
    json!({ "description": description, "content": content(JSON, &reference("Problem")) })
}

fn paths() -> Json {
    let mut paths = json!({});
    for operation in OPERATIONS {
        let good = [operation.good].into_iter().chain(operation.also);
        let good = good.map(|good| (good.status, response(&good)));
        let problems = operation.problems.iter();
        let problems = problems.map(|status| (*status, problem(operation, *status)));
        let responses = good.chain(problems);
        let responses = responses.map(|(status, response)| (status.to_string(), response));
        let mut written = json!({
            "operationId": operation.id,
            "summary": operation.summary,
            "responses": responses.collect::<Map<String, Json>>()
        });
        if !operation.parameters.is_empty() {
            let all = operation.parameters.iter().map(|name| parameter(name));
            written["parameters"] = all.collect();
        }
        if let Some(schema) = operation.body {
            let content = content(JSON, &reference(schema));
            let required = operation.id != "drain";
            written["requestBody"] = json!({ "required": required, "content": content });
        }
        if operation.id == "why" {
            let text = "For a group whose own name ends in /why, write its slash as %2F.";
            written["description"] = text.into();
        }
        let path = &mut paths[operation.path];
        path[operation.method] = written;
        for name in ["name", "recording"] {
            if operation.path.contains(&format!("{{{name}}}")) {
                path["parameters"] = json!([parameter(name)]);
            }
        }
    }
    paths
}

/// The document.
fn document() -> String {
    let mut schemas = structures();
    schemas.extend(envelopes().into_iter().map(|(name, schema)| (name.to_string(), schema)));
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "iofair control",
            "version": "1",
            "license": { "name": "MIT OR Apache-2.0" },
            "description": INTRODUCTION
        },
        "servers": [
            { "url": "http://localhost", "description": "over the Unix socket of [control]" }
        ],
        "paths": paths(),
        "components": { "schemas": schemas }
    });
    serde_json::to_string_pretty(&document).expect("JSON") + "\n"
}

const REVISION: &str = "Identifies the text of the contract file; it does not change with a restart. Also sent as ETag. \
    With If-Match, a change is refused if the file has changed since.";
const SETTINGS: &str = "A volume with the keys of the contract file: group, size, read_only and more. In a \
    PATCH, null removes a key.";
const STACK: &str = "<policy>-<scheduler>, as in max+prop-bfq";
const POLICY: &str =
    "Parameters by policy. Without it, policies that are in both stacks keep their parameters.";
const GIVE_UP: &str = "true: removes keys of groups that the new stack does not enforce from the contract file. \
    Without it, such keys are an error (422).";
const THEN: &str = "What follows once no request is in flight: hold (until POST /v1/resume), resume at once, or \
    end the server";
const REMOVED: &str =
    "Files that somebody removed, moved or truncated while they are served; absent: none";
const INTRODUCTION: &str = "Control of a running iofair server over its control socket. The contract file is \
    the state: a change is made both in the file and in the server, or in neither. Changes are made one at a \
    time; each response carries the revision of the file. Everyone who can connect to the Unix socket may read; \
    administrators may make changes (403 for others). Over TCP, TLS is mandatory, and the names in a \
    certificate determine what its owner may do. A change must have the content type application/json, even \
    without a body (415). Calls beyond a rate wait, and are refused (429) if they would wait for more than five \
    seconds. With too many calls in progress, the response is 503 with Retry-After.";

/// Goal: the document is that of the table and the structures, and knows every key of a contract that a server enforces. Method: write it and
/// compare; IOFAIR_BLESS=1 writes it.
#[test]
fn the_openapi_document_is_fresh() {
    let fresh = document();
    for field in FIELDS {
        assert_eq!(fresh.contains(field.doc), field.top() != "low", "{}", field.name);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(path, fresh).expect("written");
        return;
    }
    let bless = "IOFAIR_BLESS=1 cargo test -p iofair-serve --lib openapi writes it";
    let written = std::fs::read_to_string(path).expect("the document");
    assert!(written == fresh, "docs/openapi.json is not fresh: {bless}");
}
