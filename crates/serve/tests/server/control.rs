//! The control socket: what the OpenAPI file says against real answers, changes that survive, drains, and
//! callers that are not welcome.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::rig::controlled::{Controlled, file};
use crate::rig::schema::complaints;
use crate::rig::wire::Wire;
use crate::rig::{Directory, parse};
use iofair_serve::control::Control;
use iofair_serve::control::client::{Call, Reply, call};
use serde_json::{Value as Json, json};

/// Calls a path of the OpenAPI file and holds the answer against it.
struct Checker {
    document: Json,
    seen: BTreeSet<String>,
}

impl Checker {
    fn new() -> Self {
        let text = include_str!("../../../../docs/openapi.json");
        Self { document: serde_json::from_str(text).unwrap(), seen: BTreeSet::new() }
    }
    fn check(&mut self, method: &str, template: &str, reply: &Reply) {
        let (status, method) = (reply.status, method.to_lowercase());
        let about = format!("{method} {template} {status}");
        let path = &self.document["paths"][template];
        let operation = match &path[&method] {
            // A method that the path does not know: the others tell of it.
            Json::Null => path.as_object().unwrap().values().find(|v| v.is_object()).unwrap(),
            operation => operation,
        };
        let response = &operation["responses"][status.to_string()];
        let body = String::from_utf8_lossy(&reply.body);
        assert!(response.is_object(), "{about} is in no list: {body}");
        let (kind, content) = response["content"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(&reply.content_type, kind, "{about}");
        if kind == "application/json" {
            let value = reply.json().unwrap();
            let found = complaints(&self.document, &content["schema"], &value, "");
            assert!(found.is_empty(), "{about}: {found:#?}\n{body}");
        }
        assert_eq!(response.get("headers").is_some(), reply.revision.is_some(), "{about}");
        let known = if path[&method].is_null() { "other".into() } else { method };
        self.seen.insert(format!("{known} {template} {status}"));
    }
    /// Everything that the file lists.
    fn listed(&self) -> BTreeSet<String> {
        let mut listed = BTreeSet::new();
        for (template, methods) in self.document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let statuses = operation.get("responses").and_then(Json::as_object);
                for status in statuses.into_iter().flat_map(|all| all.keys()) {
                    let method = if status == "405" { "other" } else { method };
                    listed.insert(format!("{method} {template} {status}"));
                }
            }
        }
        listed
    }
}

/// Not seen here: half a minute of a drain, a server that has ended, and callers who call for as long.
const RARE: [&str; 2] = ["503", "429"];
const GROUP: &str = "/v1/groups/{name}";
const VOLUME: &str = "/v1/volumes/{name}";

/// Calls that go well, in this order: method, template, name, body, status.
fn good_calls() -> Vec<(&'static str, &'static str, &'static str, Option<Json>, u16)> {
    let new = |json| Some(json);
    vec![
        ("GET", "/v1/status", "", None, 200),
        ("GET", "/v1/openapi.json", "", None, 200),
        ("GET", "/v1/groups", "", None, 200),
        ("GET", GROUP, "tenants/alice", None, 200),
        ("GET", GROUP, "tenants%2Falice", None, 200),
        ("GET", GROUP, "tenants", None, 200),
        ("GET", "/v1/groups/{name}/why", "tenants", None, 200),
        ("GET", "/v1/live", "", None, 200),
        ("GET", "/metrics", "", None, 200),
        ("PATCH", GROUP, "tenants/alice", new(json!({"weight": 500, "max": "50MB/s"})), 200),
        ("PUT", GROUP, "tenants/bob", new(json!({"max": {"read_iops": 50}})), 200),
        ("PATCH", GROUP, "tenants/bob?dry_run=true", new(json!({"weight": 50})), 200),
        ("PUT", GROUP, "tenants/carol?dry_run=true", new(json!({"weight": 50})), 200),
        ("DELETE", GROUP, "tenants/bob?dry_run=true", None, 200),
        ("DELETE", GROUP, "tenants/bob", None, 200),
        ("GET", "/v1/volumes", "", None, 200),
        ("GET", VOLUME, "w", None, 200),
        ("PUT", VOLUME, "x", new(json!({"group": "batch", "size": "1MiB"})), 200),
        ("PATCH", VOLUME, "x", new(json!({"read_only": true})), 200),
        ("DELETE", VOLUME, "x?dry_run=true", None, 200),
        ("DELETE", VOLUME, "x", None, 200),
        ("GET", "/v1/stack", "", None, 200),
        ("GET", "/healthz", "", None, 200),
        ("PUT", "/v1/stack", "", new(json!({"name": "max+cost-kyber"})), 200),
        ("POST", "/v1/drain", "", new(json!({"then": "resume"})), 200),
        ("POST", "/v1/drain", "", None, 200),
        ("POST", "/v1/resume", "", None, 200),
        ("POST", "/v1/reload", "", None, 200),
    ]
}

fn path(template: &str, name: &str) -> String {
    template.replace("{name}", name)
}

/// Goal: every path, method and status of the OpenAPI file is what the server really answers, and the
/// server serves the file. Method: calls that go well and calls that do not, each answer held against the
/// schemas; at the end the list of what was seen is the list of what is documented.
#[test]
fn every_path_answers_as_the_openapi_file_says() {
    let rig = Controlled::start();
    let mut checker = Checker::new();
    for (method, template, name, body, status) in good_calls() {
        let reply = rig.ask(&Call { body, ..Call::new(method, &path(template, name)) });
        let told = String::from_utf8_lossy(&reply.body);
        assert_eq!(reply.status, status, "{method} {template} {name}: {told}");
        checker.check(method, template, &reply);
    }
    assert_eq!(rig.get("/v1/openapi.json"), checker.document);
    bad_calls(&rig, &mut checker);
    recordings(&rig, &mut checker);
    calls_of_viewers(&mut checker);
    let listed: BTreeSet<String> = checker.listed();
    let unseen: Vec<_> = listed
        .difference(&checker.seen)
        .filter(|s| !RARE.iter().any(|rare| s.ends_with(rare)))
        .collect();
    assert!(unseen.is_empty(), "documented and never seen: {unseen:#?}");
}

fn bad_calls(rig: &Controlled, checker: &mut Checker) {
    let mut refused = |template: &str, ask: Call, status: u16| {
        let reply = rig.ask(&ask);
        let told = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, status, "{} {}: {told}", ask.method, ask.path);
        checker.check(&ask.method, template, &reply);
    };
    for (template, name, body) in [
        (GROUP, "batch", json!({"weight": 50})),
        (VOLUME, "w", json!({"group": "batch", "size": "1MiB", "read_only": true})),
    ] {
        let ask = |method: &str| Call::new(method, &path(template, name));
        for method in ["PUT", "PATCH"] {
            let with = |body| ask(method).body(body);
            refused(template, with(json!([1])), 400);
            refused(template, with(json!({"colour": "red"})), 422);
            let late = Call { if_match: Some("0123456789abcdef".into()), ..with(body.clone()) };
            refused(template, late, 412);
        }
        let nobody = path(template, "nobody");
        for method in ["GET", "PATCH", "DELETE"] {
            refused(template, Call::new(method, &nobody).body(body.clone()), 404);
        }
        let late = Some("0123456789abcdef".into());
        refused(template, Call { if_match: late, ..ask("DELETE") }, 412);
        refused(template, Call::new("DELETE", &(path(template, name) + "?data=burn")), 400);
        let new = |name: &str| Call { only_new: true, ..Call::new("PUT", &path(template, name)) };
        refused(template, new(name).body(body.clone()), 409);
        refused(template, new("fresh").body(body.clone()), 201);
    }
    // A group that a volume is in cannot go; the places of volumes in memory are fixed.
    refused(GROUP, Call::new("DELETE", "/v1/groups/batch"), 422);
    refused(VOLUME, Call::new("PATCH", "/v1/volumes/w").body(json!({"size": "2MiB"})), 422);
    refused(VOLUME, Call::new("DELETE", "/v1/volumes/w?data=delete"), 422);
    refused("/v1/groups/{name}/why", Call::new("GET", "/v1/groups/nobody/why"), 404);
    refused("/v1/groups/{name}/why", Call::new("PUT", "/v1/groups/batch/why"), 405);
    for template in ["/metrics", "/healthz", "/v1/audit"] {
        refused(template, Call::new("POST", template), 405);
    }
    for (path, query) in [
        ("/v1/audit", "last=0"),
        ("/v1/groups", "limit=0"),
        ("/v1/volumes", "after=nobody"),
        ("/v1/live", "from=here"),
        ("/metrics", "detail=all"),
    ] {
        refused(path, Call::new("GET", &format!("{path}?{query}")), 400);
    }
    refused("/v1/audit", Call::new("GET", "/v1/audit"), 404);
    let stack = |body| Call::new("PUT", "/v1/stack").body(body);
    refused("/v1/stack", stack(json!({"nome": "x"})), 400);
    refused("/v1/stack", stack(json!({"name": "none-nobody"})), 422);
    refused("/v1/stack", stack(json!({"name": "none-none"})), 422);
    let late = Some("0123456789abcdef".into());
    refused("/v1/stack", Call { if_match: late, ..stack(json!({"name": "none-none"})) }, 412);
    refused("/v1/drain", Call::new("POST", "/v1/drain").body(json!({"then": "party"})), 400);
    for template in
        ["status", "live", "groups", "volumes", "stack", "openapi.json", "resume", "reload"]
    {
        let template = format!("/v1/{template}");
        refused(&template, Call::new("OPTIONS", &template), 405);
    }
    for path in ["/v1/drain", "/v1/resume", "/v1/reload"] {
        refused(path, Call::new("POST", &format!("{path}?dry_run=maybe")), 400);
    }
    refused("/v1/drain", Call::new("POST", "/v1/drain?dry_run=true"), 400);
    let tried = Call::new("PUT", "/v1/stack?now=true").body(json!({"name": "promise"}));
    refused("/v1/stack", tried, 400);
    edited_by_hand(rig, &mut refused);
    wrong_words(rig, checker);
}

/// Changes by a caller who may only read; what the audit log records of those who may make changes.
const RECORDINGS: &str = "/v1/recordings";
const RECORDING: &str = "/v1/recordings/{recording}";

/// Calls about a recording, good ones and bad ones.
fn recordings(rig: &Controlled, checker: &mut Checker) {
    let mut ask = |method: &str, template: &str, path: &str, status: u16| {
        let reply = rig.ask(&Call::new(method, path));
        let told = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, status, "{method} {path}: {told}");
        checker.check(method, template, &reply);
        reply
    };
    ask("GET", RECORDINGS, RECORDINGS, 405);
    ask("GET", RECORDING, "/v1/recordings/x", 404);
    let begun = ask("POST", RECORDINGS, RECORDINGS, 201).json().unwrap();
    ask("POST", RECORDINGS, RECORDINGS, 409);
    let path = format!("/v1/recordings/{}", begun["recording"].as_str().unwrap());
    let first = ask("GET", RECORDING, &path, 200).body;
    assert!(first.starts_with(b"IOFTRACE"));
    ask("PUT", RECORDING, &path, 405);
    for method in ["GET", "DELETE"] {
        ask(method, RECORDING, &format!("{path}?from=here"), 400);
        ask(method, RECORDING, "/v1/recordings/x", 404);
    }
    ask("GET", RECORDING, &format!("{path}?from={}", first.len()), 200);
    ask("GET", RECORDING, &path, 404);
    ask("DELETE", RECORDING, &format!("{path}?from={}", first.len()), 200);
    ask("DELETE", RECORDING, &path, 404);
}

fn calls_of_viewers(checker: &mut Checker) {
    let with = |keys: &str| {
        let directory = Directory::new();
        let text = file(&directory, "memory:64MiB");
        let keys = keys.replace("AUDIT", &directory.path("audit"));
        let text = text.replace("[control]\n", &format!("[control]\n{keys}\n"));
        fs::write(directory.path("contracts.toml"), text).unwrap();
        Controlled::over(directory)
    };
    let rig = with("admins = ['uid:4711']");
    for (template, path) in [(GROUP, "/v1/groups/batch"), (VOLUME, "/v1/volumes/w")] {
        for method in ["PUT", "PATCH", "DELETE"] {
            let reply = rig.ask(&Call::new(method, path).body(json!({})));
            checker.check(method, template, &reply);
            assert_eq!(reply.status, 403);
        }
    }
    for (method, path) in [
        ("PUT", "/v1/stack"),
        ("POST", "/v1/drain"),
        ("POST", "/v1/resume"),
        ("POST", "/v1/reload"),
        ("POST", RECORDINGS),
    ] {
        let reply = rig.ask(&Call::new(method, path));
        checker.check(method, path, &reply);
        assert_eq!(reply.status, 403);
    }
    let reply = rig.ask(&Call::new("DELETE", "/v1/recordings/x"));
    checker.check("DELETE", RECORDING, &reply);
    assert_eq!(reply.status, 403);
    let rig = with("audit = 'AUDIT'");
    assert_eq!(rig.status(&Call::new("POST", "/v1/reload")), 200);
    let reply = rig.ask(&Call::new("GET", "/v1/audit"));
    checker.check("GET", "/v1/audit", &reply);
    assert_eq!(reply.json().unwrap()["changes"].as_array().unwrap().len(), 2);
}

/// A file that is being edited is not overwritten.
fn edited_by_hand(rig: &Controlled, refused: &mut impl FnMut(&str, Call, u16)) {
    let good = rig.text();
    fs::write(rig.directory.path("contracts.toml"), good.clone() + "# mine\n").unwrap();
    let weight = json!({"weight": 9});
    refused(GROUP, Call::new("PATCH", "/v1/groups/batch").body(weight.clone()), 409);
    refused(GROUP, Call::new("DELETE", "/v1/groups/batch"), 409);
    refused(VOLUME, Call::new("PATCH", "/v1/volumes/w").body(json!({"read_only": true})), 409);
    refused(VOLUME, Call::new("DELETE", "/v1/volumes/w"), 409);
    refused("/v1/stack", Call::new("PUT", "/v1/stack").body(json!({"name": "promise"})), 409);
    assert_eq!(rig.text(), good.clone() + "# mine\n");
    refused("/v1/reload", Call::new("POST", "/v1/reload"), 200);
    refused(GROUP, Call::new("PATCH", "/v1/groups/batch").body(weight), 200);
    let mine = rig.text();
    fs::write(rig.directory.path("contracts.toml"), "nonsense").unwrap();
    refused("/v1/reload", Call::new("POST", "/v1/reload"), 422);
    fs::write(rig.directory.path("contracts.toml"), mine).unwrap();
    // A volume in use by nobody goes, and then nothing keeps the server from one drain at a time.
    refused(VOLUME, Call::new("DELETE", "/v1/volumes/fresh"), 200);
}

/// Writes that hold up a drain, one a second: far more than the slowest machine needs to ask for a second drain.
const HELD: u64 = 20;

fn limited(iops: u32) -> Json {
    json!({"max": {"write_iops": iops}})
}

/// Bodies that do not say what they are; a drain beside another.
fn wrong_words(rig: &Controlled, checker: &mut Checker) {
    let template = [GROUP, VOLUME, "/v1/stack", "/v1/drain", "/v1/resume", "/v1/reload"];
    let all: &[&str] = &["PUT", "PATCH", "DELETE"];
    let methods: [&[&str]; 6] = [all, all, &["PUT"], &["POST"], &["POST"], &["POST"]];
    for (template, methods) in template.into_iter().zip(methods) {
        for method in methods {
            let path = path(template, "w");
            let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
            let told = rig.raw(format!("{head}Content-Length: 2\r\n\r\n{{}}").as_bytes());
            assert!(told.starts_with("HTTP/1.1 415"), "{told}");
            let body = told.split("\r\n\r\n").nth(1).unwrap().as_bytes().to_vec();
            let content_type = "application/json".to_string();
            checker.check(
                method,
                template,
                &Reply { status: 415, revision: None, content_type, body },
            );
        }
    }
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    let limit = |iops: u32| Call::new("PATCH", "/v1/groups/tenants/alice").body(limited(iops));
    let stack = json!({"name": "max-none", "give_up": true});
    assert_eq!(rig.ask(&Call::new("PUT", "/v1/stack").body(stack)).status, 200);
    assert_eq!(rig.ask(&limit(1)).status, 200);
    for at in 0..HELD {
        wire.send_write(0, at * 4096, &[1; 4096]).unwrap();
    }
    // All are inside before the drain begins; from then on a socket is not looked at. The first is answered.
    while rig.get("/v1/status")["pending"].as_u64() < Some(HELD - 1) {
        std::thread::yield_now();
    }
    let address = rig.address();
    let first =
        std::thread::spawn(move || call(&address, &Call::new("POST", "/v1/drain")).unwrap());
    while rig.get("/v1/status")["state"] == "serving" {
        std::thread::yield_now();
    }
    let second = rig.ask(&Call::new("POST", "/v1/drain"));
    assert_eq!(second.status, 409);
    checker.check("POST", "/v1/drain", &second);
    assert_eq!(rig.ask(&limit(1_000_000)).status, 200, "what holds them goes");
    let first = first.join().unwrap();
    assert_eq!(first.status, 200);
    (0..HELD).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
    assert_eq!(rig.get("/v1/status")["state"], "drained");
    assert_eq!(rig.ask(&Call::new("POST", "/v1/resume")).status, 200);
}

/// Goal: a change is in the file, in the server and in the next server, comments and all; a refused one
/// is in neither, with the words that a bad file gets. Method: changes, looked for in the text, in the
/// answers, and in a server started anew.
#[test]
fn changes_survive_and_refusals_leave_no_trace() {
    let rig = Controlled::start();
    let before = rig.text();
    let revision = rig.get("/v1/status")["revision"].as_str().unwrap().to_string();
    let alice = "/v1/groups/tenants/alice";
    let change = |json: Json| rig.ask(&Call::new("PATCH", alice).body(json));
    let refused = change(json!({"weight": 5000})).json().unwrap();
    let error = &refused["error"];
    assert_eq!(error["kind"], "refused");
    assert_eq!(error["allowed"], "1 to 1000");
    assert_eq!((&error["place"]["line"], &error["place"]["column"]), (&json!(20), &json!(10)));
    let text = error["text"].as_str().unwrap();
    assert!(text.contains("contracts.toml:20:10: weight 5000 is out of range"), "{text}");
    let promised = change(json!({"min": "200MB/s"})).json().unwrap();
    let text = promised["error"]["text"].as_str().unwrap();
    assert!(text.contains("too much (tenants 200.00 MB/s)"), "{text}");
    assert_eq!(rig.text(), before);
    assert_eq!(rig.get("/v1/status")["revision"], revision.as_str());

    let good = change(json!({"weight": 700}));
    assert_eq!((good.status, rig.text()), (200, before.replace("300 #", "700 #")));
    let late = Call { if_match: Some(revision), ..Call::new("PATCH", alice) };
    assert_eq!(rig.ask(&late.body(json!({"weight": 1}))).status, 412);
    let seen = Call { if_match: good.revision, ..Call::new("PATCH", alice) };
    assert_eq!(rig.ask(&seen.body(json!({"max": "40MB/s"}))).status, 200);
    let stack = |body: Json| rig.ask(&Call::new("PUT", "/v1/stack").body(body));
    let lost = stack(json!({"name": "prop-bfq"})).json().unwrap();
    let text = lost["error"]["text"].as_str().unwrap();
    assert!(
        text.contains("\"prop-bfq\" does not enforce `max` of group \"tenants/alice\""),
        "{text}"
    );
    assert_eq!(rig.get("/v1/stack")["stack"]["name"], "max+prop-bfq");
    assert_eq!(stack(json!({"name": "wbt+max+prop-bfq"})).status, 200);
    let (group, text) = (rig.get(alice), rig.text());
    assert_eq!(group["group"]["contract"]["max"], "40MB/s");
    assert!(text.contains("# thrice") && text.contains("# as promised"), "{text}");
    let Controlled { control, directory } = rig;
    control.stop().unwrap();
    assert!(!fs::exists(directory.path("control.sock")).unwrap(), "the socket is gone");
    let again = Controlled::over(directory);
    for part in ["contract", "in_force", "volumes"] {
        assert_eq!(again.get(alice)["group"][part], group["group"][part]);
    }
    assert_eq!(again.get("/v1/stack")["stack"]["name"], "wbt+max+prop-bfq");
    assert_eq!(again.get("/v1/stack")["stack"]["stages"][2]["parameters"]["low_latency"], "false");
}

/// Goal: a dry run tells what would differ, refuses what the change would be refused for, and changes nothing, not even the audit
/// log. Method: every call that changes, tried beside an audit log; then the same for real.
#[test]
fn dry_runs_tell_and_change_nothing() {
    let directory = Directory::new();
    let audit = directory.path("audit");
    let text = file(&directory, "memory:64MiB");
    let text = text.replace("[control]\n", &format!("[control]\naudit = '{audit}'\n"));
    fs::write(directory.path("contracts.toml"), &text).unwrap();
    let rig = Controlled::over(directory);
    let revision = rig.get("/v1/status")["revision"].clone();
    let told = |ask: Call| {
        let path = ask.path.clone() + if ask.path.contains('?') { "&" } else { "?" };
        let reply = rig.ask(&Call { path: path + "dry_run=true", ..ask });
        assert_eq!(rig.text(), text, "nothing has changed");
        assert_eq!(rig.get("/v1/status")["revision"], revision);
        (reply.status, reply.json().unwrap())
    };
    let alice = "/v1/groups/tenants/alice";
    let (status, tried) = told(Call::new("PATCH", alice).body(json!({"weight": 500})));
    let lines = json!(["-weight = 300 # thrice", "+weight = 500 # thrice"]);
    assert_eq!((status, &tried["dry_run"], &tried["lines"]), (200, &json!(true), &lines));
    let group = &tried["groups"][0];
    let weights = [&group["before"]["weight"], &group["after"]["weight"]];
    assert_eq!((&group["name"], weights), (&json!("tenants/alice"), [&json!(300), &json!(500)]));
    let (_, tried) =
        told(Call { only_new: true, ..Call::new("PUT", "/v1/groups/new").body(json!({})) });
    let shares: Vec<_> = tried["groups"].as_array().unwrap().iter().collect();
    let share = |name: &str, when: &str| {
        let group = shares.iter().find(|group| group["name"] == name).unwrap();
        group[when]["share"].as_f64()
    };
    assert_eq!((share("new", "before"), share("batch", "before")), (None, Some(0.5)));
    assert!(share("batch", "after").unwrap() < 0.34, "{tried}");
    let smaller = |name: &str| {
        let text = format!(
            "group \"{name}\" gets 33.3 % of the drive instead of 50.0 % while all groups are busy"
        );
        json!({"about": "share", "group": name, "text": text})
    };
    let lost = tried["gives_up"].as_array().unwrap();
    assert!(lost.contains(&smaller("batch")) && lost.contains(&smaller("tenants")), "{tried}");
    let none = json!({"name": "none-none", "give_up": true});
    let (_, tried) = told(Call::new("PUT", "/v1/stack").body(none));
    let lost = json!([
        {"about": "contract", "group": "tenants/alice",
         "text": "group \"tenants/alice\" is no longer guaranteed 10.00 MB/s"},
        {"about": "share",
         "text": "the stack \"none-none\" does not share the drive by weight: a group gets what others leave"},
    ]);
    assert_eq!(tried["gives_up"], lost);
    for (ask, status) in [
        (Call::new("PATCH", alice).body(json!({"min": "200MB/s"})), 422),
        (Call::new("PATCH", "/v1/groups/nobody").body(json!({})), 404),
        (Call::new("DELETE", alice), 422),
        (Call::new("DELETE", "/v1/volumes/w?data=delete"), 422),
        (Call::new("PUT", "/v1/stack").body(json!({"name": "none-none"})), 422),
        (Call::new("PUT", "/v1/stack").body(json!({"name": "none-none", "give_up": true})), 200),
        (Call::new("POST", "/v1/reload"), 200),
    ] {
        let about = format!("{} {}", ask.method, ask.path);
        let (found, told) = told(ask);
        assert_eq!(found, status, "{about}: {told}");
    }
    assert_eq!(fs::read_to_string(&audit).unwrap(), "", "nobody changed anything");
    fs::write(rig.directory.path("contracts.toml"), text.replace("300 #", "400 #")).unwrap();
    let tried = rig.ask(&Call::new("POST", "/v1/reload?dry_run=true")).json().unwrap();
    assert_eq!(tried["lines"], json!(["-weight = 300 # thrice", "+weight = 400 # thrice"]));
    assert_eq!(rig.get(alice)["group"]["contract"]["weight"], 300);
}

/// Goal: a dry run names the data that a change destroys, and only that. Method: a volume is removed with and without its data,
/// shrinks and grows, over a directory.
#[test]
fn a_dry_run_names_the_data_that_would_go() {
    let directory = Directory::new();
    let text = file(&directory, &format!("directory:{}", directory.path("pool")));
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let rig = Controlled::over(directory);
    let lost = |ask: Call| {
        let tried = rig.ask(&ask).json().unwrap();
        assert_eq!(tried["dry_run"], true, "{tried}");
        let data = |event: &&Json| event["about"] == "data";
        tried["gives_up"].as_array().unwrap().iter().filter(data).cloned().collect::<Vec<_>>()
    };
    let size = |query: &str, size: &str| {
        lost(Call::new("PATCH", &format!("/v1/volumes/v?{query}")).body(json!({"size": size})))
    };
    let told = |text: &str| vec![json!({"about": "data", "group": "tenants/alice", "text": text})];
    let remove = |query: &str| lost(Call::new("DELETE", &format!("/v1/volumes/v?{query}")));
    assert_eq!(remove("dry_run=true"), [] as [Json; 0]);
    assert_eq!(remove("data=keep&dry_run=true"), [] as [Json; 0]);
    assert_eq!(remove("data=delete&dry_run=true"), told("the data of volume \"v\" is deleted"));
    assert_eq!(size("dry_run=true", "32MiB"), [] as [Json; 0]);
    let shrunk = told("volume \"v\" loses its last 8388608 bytes");
    assert_eq!(size("shrink=true&dry_run=true", "8MiB"), shrunk);
}

/// Goal: a drain completes requests in flight, accepts no new ones, and loses none that waits. Method: requests
/// of an old and of a new connection during a drain are answered after it, and not before.
#[test]
fn a_drain_holds_all_requests_and_loses_none() {
    let rig = Controlled::start();
    let socket = rig.directory.path("socket");
    let mut old = Wire::connect(&socket);
    assert_eq!(old.write(0, 0, &[7; 4096]), 0);
    let drained = rig.ask(&Call::new("POST", "/v1/drain").body(json!({"then": "hold"})));
    assert_eq!(drained.json().unwrap()["state"], "drained");
    old.send_read(0, 4096).unwrap();
    let late = std::thread::spawn(move || Wire::connect(&socket).read(0, 4096).data);
    // Whatever is turned meanwhile, nothing goes in.
    for _ in 0..50 {
        let status = rig.get("/v1/status");
        assert_eq!((&status["pending"], &status["state"]), (&json!(0), &json!("drained")));
    }
    assert_eq!(rig.get("/v1/volumes/v")["volume"]["requests"], 1);
    assert_eq!(rig.ask(&Call::new("POST", "/v1/resume")).status, 200);
    assert_eq!(old.receive().unwrap().data, [7; 4096]);
    assert_eq!(late.join().unwrap(), [7; 4096]);
    let end = rig.ask(&Call::new("POST", "/v1/drain").body(json!({"then": "end"})));
    assert!(end.is_good() && rig.control.is_over());
    rig.control.stop().unwrap();
}

/// Goal: the socket is its owner's only, a living server's is not taken, a dead one's is. Method: modes,
/// a second server, a socket that nobody listens to.
#[test]
fn the_socket_is_for_its_owner() {
    let rig = Controlled::start();
    let path = rig.directory.path("control.sock");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let other = Directory::new();
    let text = file(&other, "memory:64MiB").replace(&other.path("control.sock"), &path);
    let place = other.path("contracts.toml");
    fs::write(&place, &text).unwrap();
    let second = Control::start(place.as_ref(), parse(&text)).unwrap_err();
    assert!(second.to_string().contains("in use"), "{second}");
    assert_eq!(rig.get("/v1/status")["state"], "serving");
    rig.control.stop().unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let third = Control::start(place.as_ref(), parse(&text)).unwrap();
    third.stop().unwrap();
    let wide = text.replace("[control]\n", "[control]\nmode = '0660'\n");
    let fourth = Control::start(place.as_ref(), parse(&wide)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    fourth.stop().unwrap();
}

/// Goal: web pages, long bodies, long heads and nonsense are refused, and the server lives. Method: one of
/// each.
#[test]
fn malformed_calls_are_refused() {
    let directory = Directory::new();
    let text = file(&directory, "memory:64MiB");
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let rig = Controlled::over(directory);
    let head = "GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let page = rig.raw(format!("{head}Origin: http://evil.example\r\n\r\n").as_bytes());
    assert!(page.starts_with("HTTP/1.1 403"), "{page}");
    let long = rig.raw(format!("{head}X: {}\r\n\r\n", "a".repeat(1_000_000)).as_bytes());
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 431"), "{long}");
    let site = rig.raw(format!("{head}Sec-Fetch-Site: cross-site\r\n\r\n").as_bytes());
    assert!(site.starts_with("HTTP/1.1 403"), "{site}");
    let many = rig.raw(format!("{head}{}\r\n", "X: y\r\n".repeat(100)).as_bytes());
    assert!(many.is_empty() || many.starts_with("HTTP/1.1 431"), "{many}");
    let put =
        head.replace("GET /v1/status", "PUT /v1/stack") + "Content-Type: application/json\r\n";
    let body = format!("{put}Content-Length: 2000000\r\n\r\n{}", "1".repeat(2_000_000));
    let large = rig.raw(body.as_bytes());
    assert!(large.is_empty() || large.starts_with("HTTP/1.1 413"), "{large}");
    for nonsense in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET\r\n\r\n", &[0; 4096]] {
        let told = rig.raw(nonsense);
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 400"), "{told}");
    }
    let bad = rig.ask(&Call::new("GET", "/v1/groups/%zz"));
    assert_eq!(bad.status, 400);
    assert_eq!(rig.ask(&Call::new("GET", "/etc/passwd")).status, 404);
}
