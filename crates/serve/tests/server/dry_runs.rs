//! Dry runs tell what the change itself tells.

use std::fs;

use crate::rig::Directory;
use crate::rig::controlled::{Controlled, file};
use iofair_serve::control::client::Call;
use serde_json::{Value as Json, json};

/// Goal: a dry run of any change has the notes that the change has, above all where the data of removed volumes stays and how it is
/// used again or deleted. Method: removals with and without data, a reload that removes, and one that gives a kept volume back, on
/// every kind of storage, each tried and then made.
#[test]
fn a_dry_run_has_the_notes_of_the_change() {
    for back in ["directory:", "file:", "emulated:plextor-px256m5s@", "memory:64MiB"] {
        let directory = Directory::new();
        let place = if back.starts_with("memory") { String::new() } else { directory.path("pool") };
        let text = file(&directory, &format!("{back}{place}"));
        let contracts = directory.path("contracts.toml");
        fs::write(&contracts, &text).unwrap();
        let rig = Controlled::over(directory);
        let both = |call: Call| {
            let mark = if call.path.contains('?') { '&' } else { '?' };
            let tried = Call { path: format!("{}{mark}dry_run=true", call.path), ..call.clone() };
            let [tried, made] = [tried, call].map(|call| {
                let reply = rig.ask(&call);
                let text = String::from_utf8_lossy(&reply.body).into_owned();
                assert!(reply.is_good(), "{back} {}: {text}", call.path);
                reply.json().unwrap()["notes"].clone()
            });
            assert_eq!(tried, made, "{back}");
            made
        };
        let kept = |notes: &Json| {
            notes.as_array().is_some_and(|notes| {
                notes.iter().any(|note| note.as_str().unwrap().contains("is kept"))
            })
        };
        let place = if place.is_empty() { "in memory until" } else { &place };
        let notes = both(Call::new("DELETE", "/v1/volumes/w"));
        assert!(kept(&notes) && notes[0].as_str().unwrap().contains(place), "{notes}");
        let body = json!({"group": "batch", "size": "1MiB"});
        both(Call { only_new: true, ..Call::new("PUT", "/v1/volumes/w").body(body) });
        let (rest, _) = text.split_once("[[volume]]\nname = 'w'").unwrap();
        fs::write(&contracts, rest).unwrap();
        assert!(kept(&both(Call::new("POST", "/v1/reload"))));
        fs::write(&contracts, &text).unwrap();
        assert!(!kept(&both(Call::new("POST", "/v1/reload"))));
        if back.ends_with(':') {
            assert!(!kept(&both(Call::new("DELETE", "/v1/volumes/w?data=delete"))));
        }
    }
}
