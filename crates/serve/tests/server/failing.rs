//! Drives and volumes that fail, as operators see them.

use std::fs;

use crate::rig::Directory;
use crate::rig::controlled::{Controlled, file};
use crate::rig::wire::Wire;
use iofair_serve::control::client::Call;
use serde_json::{Value as Json, json};

/// What status, health and metrics say: the state, what fails, readiness, and the seconds of the drive.
fn told(rig: &Controlled) -> (Json, Json, u16, bool) {
    let status = rig.get("/v1/status");
    let ready = rig.status(&Call::new("GET", "/healthz?ready"));
    assert_eq!(rig.status(&Call::new("GET", "/healthz")), 200, "a restart does not help");
    let page = String::from_utf8(rig.ask(&Call::new("GET", "/metrics")).body.to_vec()).unwrap();
    let line = page.lines().find(|line| line.starts_with("iofair_drive_failing_seconds "));
    let fails = line.unwrap().split(' ').nth(1).unwrap() != "0";
    (status["state"].clone(), status["failures"].clone(), ready, fails)
}

/// Goal: a server whose emulated drive has lost its file does not say that it serves, but since when it fails. Method: the file is
/// truncated, and a client reads.
#[test]
fn a_lost_drive_is_told() {
    let directory = Directory::new();
    let pool = directory.path("pool");
    let text = file(&directory, &format!("emulated:plextor-px256m5s@{pool}"));
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let rig = Controlled::over(directory);
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    assert_eq!(wire.read(0, 4096).error, 0);
    assert_eq!(told(&rig), (json!("serving"), Json::Null, 200, false));
    fs::File::options().write(true).open(&pool).unwrap().set_len(0).unwrap();
    assert_eq!(wire.read(0, 4096).error, 5);
    let (state, failures, ready, fails) = told(&rig);
    assert_eq!((state, ready, fails), (json!("failing"), 503, true));
    assert_eq!((&failures[0]["volume"], &failures[0]["requests"]), (&Json::Null, &json!("read")));
    assert!(failures[0]["text"].as_str().unwrap().contains("every read since 20"), "{failures}");
    assert_eq!(failures[1]["volume"], "v");
}

/// Goal: a volume that fails is named, and does not make the server unready, however often its client reads a bad place; a drive does
/// after some places; both end with a success. Method: a drive that fails on purpose, reads and writes.
#[test]
fn runs_of_failures_are_told() {
    let directory = Directory::new();
    let text = file(&directory, "faulty:memory:64MiB");
    let rules = |rule: &str| format!("{text}\n[drive.faults]\n{rule}\n");
    let contracts = directory.path("contracts.toml");
    fs::write(&contracts, rules("")).unwrap();
    let rig = Controlled::over(directory);
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    let set = |rule: &str| {
        fs::write(&contracts, rules(rule)).unwrap();
        assert_eq!(rig.status(&Call::new("POST", "/v1/reload")), 200);
    };
    set("[[drive.faults.rule]]\nfault = 'eio'\noperation = 'read'\nvolume = 'v'");
    for _ in 0..3 {
        assert_eq!(wire.read(0, 4096).error, 5);
        assert_eq!(wire.write(0, 0, &[1; 4096]), 0);
    }
    let (state, failures, ready, fails) = told(&rig);
    assert_eq!((state, ready, fails), (json!("serving"), 200, false));
    let [failure] = failures.as_array().unwrap().as_slice() else { panic!("{failures}") };
    assert_eq!((&failure["volume"], &failure["count"]), (&json!("v"), &json!(3)));
    for sector in 0..40 {
        assert_eq!(wire.read(sector * 512, 1 << 20).error, 5);
    }
    let (state, failures, ready, fails) = told(&rig);
    assert_eq!(
        (state, ready, fails),
        (json!("serving"), 200, false),
        "one place, or its neighbours"
    );
    assert_eq!(failures[0]["count"], 43);
    for place in 1..8 {
        assert_eq!(wire.read(place * (2 << 20), 4096).error, 5);
    }
    let (state, _, ready, fails) = told(&rig);
    assert_eq!((state, ready, fails), (json!("failing"), 503, true));
    set("[[drive.faults.rule]]\nfault = 'enospc'\noperation = 'write'");
    assert_eq!((wire.read(0, 4096).error, wire.write(0, 0, &[1; 4096])), (0, 28));
    assert_eq!(
        told(&rig),
        (json!("serving"), Json::Null, 200, false),
        "a full drive has not failed"
    );
}

/// Goal: metrics have since when each volume fails, however many fail. Method: thirty of them.
#[test]
fn all_failing_volumes_have_a_metric() {
    let directory = Directory::new();
    let mut text = file(&directory, "faulty:memory:64MiB");
    for number in 0..30 {
        text += &format!("[[volume]]\nname = 'v{number}'\ngroup = 'batch'\nsize = '4KiB'\n");
    }
    text += "[[drive.faults.rule]]\nfault = 'eio'\n";
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let rig = Controlled::over(directory);
    for number in 0..30 {
        let name = format!("v{number}");
        let mut wire = Wire::connect_to(&rig.directory.path("socket"), &name).unwrap();
        assert_eq!(wire.read(0, 4096).error, 5);
    }
    let page = String::from_utf8(rig.ask(&Call::new("GET", "/metrics")).body.to_vec()).unwrap();
    let lines = page.lines().filter(|line| line.starts_with("iofair_volume_failing_seconds{"));
    let fails = lines.filter(|line| !line.ends_with("} 0"));
    assert_eq!(fails.count(), 30);
}
