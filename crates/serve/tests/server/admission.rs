//! What a drive cannot keep is refused, with the value that it can, and nothing changes.

use crate::rig::Directory;
use crate::rig::controlled::Controlled;
use iofair_config::contracts::Contracts;
use iofair_serve::control::client::{Call, Reply};
use iofair_serve::{Consent, Server};
use serde_json::json;

/// The rig's contracts on this back end under the stack that keeps minimums.
fn text(directory: &Directory, back: &str) -> String {
    let text = crate::rig::controlled::file(directory, back);
    text.replace("stack = 'max+prop-bfq'\nworst_case = '100MB/s'\n", "")
        .replace("[drive.policy.bfq]\nlow_latency = false # as promised\n", "")
}

fn start(directory: Directory, text: &str) -> Controlled {
    std::fs::write(directory.path("contracts.toml"), text).unwrap();
    Controlled::over(directory)
}

/// The words of a refusal, and what is allowed.
fn refused(reply: &Reply) -> (String, String) {
    let body = reply.json().unwrap();
    assert_eq!((reply.status, &body["error"]["kind"]), (422, &json!("infeasible")), "{body}");
    let word = |key: &str| body["error"][key].as_str().unwrap_or_default().to_string();
    (word("text"), word("allowed"))
}

/// The number in "at most 12.34 MB/s", as a contract writes it.
fn named(allowed: &str) -> String {
    let rate = allowed.strip_prefix("at most ").unwrap_or_else(|| panic!("{allowed}"));
    rate.split("/s").next().unwrap().replace(' ', "") + "/s"
}

/// Goal: a minimum or latency that an emulated drive cannot keep is refused at a change, at a reload and at the start, with its
/// line and the value that it can keep; nothing has changed, and that value is taken. Method: a server on a model, changed as
/// `ctl` does it.
#[test]
fn what_cannot_be_kept_is_refused() {
    let directory = Directory::new();
    let before = text(&directory, "emulated:plextor-px256m5s");
    let rig = start(directory, &before);
    let status = rig.get("/v1/status");
    assert_eq!(status["reaches"]["random_bytes_per_second"].as_u64().unwrap() / 1_000_000, 23);
    let change = |name: &str, json| rig.ask(&Call::new("PATCH", name).body(json));
    let unchanged = || {
        assert_eq!(rig.text(), before);
        assert_eq!(rig.get("/v1/status")["revision"], status["revision"]);
        let group = rig.get("/v1/groups/tenants/alice");
        assert_eq!(group["group"]["in_force"]["min_bytes_per_second"], 10_000_000);
        assert_eq!(group["group"]["in_force"]["weight"], 300, "as written");
    };
    let alice = "/v1/groups/tenants/alice";
    let (words, allowed) = refused(&change(alice, json!({"min": "24MB/s"})));
    assert!(words.contains("group \"tenants/alice\": 24.00 MB/s cannot be kept"), "{words}");
    assert!(words.contains("min = \"24MB/s\""), "the line: {words}");
    let most = named(&allowed);
    unchanged();
    let (words, allowed) = refused(&change("/v1/groups/batch", json!({"min": "300MB/s"})));
    assert!(
        words.contains("group \"batch\": 300.00 MB/s cannot be kept beside another"),
        "{words}"
    );
    let beside = named(&allowed);
    let (words, allowed) = refused(&change(alice, json!({"latency": "100us"})));
    assert!(words.contains("a latency of 100us"), "{words}");
    assert!(allowed.starts_with("at least 1."), "{allowed}");
    unchanged();

    let path = rig.directory.path("contracts.toml");
    std::fs::write(&path, before.replace("10MB/s", "24MB/s")).unwrap();
    let (words, allowed) = refused(&rig.ask(&Call::new("POST", "/v1/reload")));
    assert!(words.contains("contracts.toml:"), "{words}");
    assert_eq!(named(&allowed), most);
    std::fs::write(&path, &before).unwrap();
    unchanged();
    let contracts = Contracts::parse("new.toml", &before.replace("10MB/s", "24MB/s")).unwrap();
    let error = Server::check(&contracts, &Consent::default()).unwrap_err().to_string();
    assert!(error.contains(&allowed), "{error}");
    let error = Server::start(contracts).unwrap_err().to_string();
    assert!(error.contains(&allowed), "{error}");

    assert_eq!(change("/v1/groups/batch", json!({"min": beside})).status, 200);
    assert_eq!(change("/v1/groups/batch", json!({"min": null})).status, 200);
    assert_eq!(change(alice, json!({"min": most})).status, 200);
    let (words, _) = refused(&change("/v1/groups/batch", json!({"min": "5MB/s"})));
    assert!(words.contains("group \"batch\": 5.00 MB/s cannot be kept"), "{words}");
    // A new stack is checked as a change of the minimums is.
    let stack = |name: &str| rig.ask(&Call::new("PUT", "/v1/stack").body(json!({ "name": name })));
    assert_eq!(stack("max+prop-bfq").status, 200);
    assert_eq!(change(alice, json!({"min": "100MB/s"})).status, 200, "by the worst case");
    let (words, _) = refused(&stack("promise"));
    assert!(words.contains("group \"tenants/alice\": 100.00 MB/s"), "{words}");
    assert_eq!(rig.get("/v1/stack")["stack"]["name"], "max+prop-bfq");
}

/// Goal: where the drive's rates are unknown nothing is refused, a check says so, and what the file says of the drive
/// changes that. Method: memory, without and with the key.
#[test]
fn an_unknown_drive_refuses_nothing() {
    let (directory, started) = (Directory::new(), Directory::new());
    let of = |directory| text(directory, "memory:64MiB").replace("10MB/s", "900MB/s");
    let (text, own) = (of(&directory), of(&started));
    let parse = |text: &str| Contracts::parse("c.toml", text).unwrap();
    let notes = Server::check(&parse(&text), &Consent::default()).unwrap();
    assert!(matches!(&notes[..], [note] if note.contains("not checked")), "{notes:?}");
    drop(start(started, &own));
    let written = "[drive]\nreaches = { read = '1GB/s', write = '1GB/s', random = '100MB/s' }\n";
    let known = parse(&text.replace("[drive]\n", written));
    let error = Server::check(&known, &Consent::default()).unwrap_err().to_string();
    assert!(error.contains("at most 95.00 MB/s"), "{error}");
    let fits = parse(&text.replace("[drive]\n", written).replace("900MB/s", "95MB/s"));
    let notes = Server::check(&fits, &Consent::default()).unwrap();
    assert!(matches!(&notes[..], [note] if note.contains("at least 50.00 MB/s")), "{notes:?}");
}
