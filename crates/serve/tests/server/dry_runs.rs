//! Dry runs tell what the change itself tells, and a check opens nothing for writing.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

use crate::rig::controlled::{Controlled, file};
use crate::rig::{Directory, run};
use iofair_config::contracts::Contracts;
use iofair_serve::Consent;
use iofair_serve::control::Control;
use iofair_serve::control::client::Call;
use iofair_serve::supervisor::Passed;
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
            // Its data can be deleted later, too.
            assert!(kept(&both(Call::new("DELETE", "/v1/volumes/v"))));
            assert_eq!(rig.get("/v1/volumes")["kept"][0]["name"], "v");
            both(Call::new("DELETE", "/v1/volumes/v?data=delete"));
            assert_eq!(rig.get("/v1/volumes")["kept"], json!([]), "{back}");
            assert_eq!(rig.status(&Call::new("DELETE", "/v1/volumes/v?data=delete")), 404);
        }
    }
}

/// Goal: a dry run says that there is no room for a volume where there is none, as the change does, and not elsewhere. Method: a pool and a
/// file elsewhere, one of them on a small file system, and a volume that only the other one has room for.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_room_is_that_of_the_file_system() {
    for (is_pool_small, is_elsewhere) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let directory = Directory::new();
        let small = directory.path(if is_pool_small { "pool" } else { "small" });
        fs::create_dir(&small).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=64m", "none", &small]);
        let text = file(&directory, &format!("directory:{}", directory.path("pool")));
        let place = directory.0.display();
        let text = text.replace("[drive]\n", &format!("[drive]\npaths = ['{place}']\n"));
        fs::write(directory.path("contracts.toml"), text).unwrap();
        let rig = Controlled::over(directory);
        let path = rig.directory.path(if is_pool_small { "large" } else { "small/file" });
        let path = is_elsewhere.then_some(path);
        for mark in ["?dry_run=true", ""] {
            let call = Call::new("PUT", &format!("/v1/volumes/x{mark}"));
            let body = json!({"group": "batch", "size": "256MiB", "path": path});
            let told = rig.ask(&Call { only_new: true, ..call.body(body) }).json().unwrap();
            let is_short = told["notes"].to_string().contains("larger than the room");
            assert_eq!(is_short, is_pool_small != is_elsewhere, "{mark} {path:?}: {told}");
        }
        let Controlled { control, directory } = rig;
        control.stop().unwrap();
        run("umount", &[&small]);
        drop(directory);
    }
}

/// Goal: a check opens no file for writing that is there: programs that watch the file would be told, and an overlay would copy it.
/// Method: the kernel tells the end of every writer of any file in the directory; every kind of back end, with an audit log. The tool is
/// proved with a writer who writes nothing.
#[test]
fn a_check_opens_nothing_for_writing() {
    for back in ["directory:", "file:", "emulated:plextor-px256m5s@"] {
        let directory = Directory::new();
        let path = directory.path("contracts.toml");
        let elsewhere =
            if back == "directory:" { directory.path("elsewhere") } else { String::new() };
        let audit = format!("[control]\naudit = '{}'\n", directory.path("audit"));
        let text = file(&directory, &format!("{back}{}", directory.path("pool")));
        let mut text = text.replace("[control]\n", &audit);
        if !elsewhere.is_empty() {
            text += &format!("path = '{elsewhere}'\n");
            text = text
                .replace("[drive]\n", &format!("[drive]\npaths = ['{}']\n", directory.path("")));
        }
        fs::write(&path, text).unwrap();
        let Controlled { control, directory } = Controlled::over(directory);
        control.stop().unwrap();
        // SAFETY: makes a descriptor, which nobody else has.
        let mut ended = unsafe { File::from_raw_fd(libc::inotify_init1(libc::IN_NONBLOCK)) };
        let mut walk = vec![directory.0.clone()];
        while let Some(here) = walk.pop() {
            for entry in fs::read_dir(here).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk.push(path.clone());
                }
                let name = CString::new(path.to_str().unwrap()).unwrap();
                let what = libc::IN_CLOSE_WRITE | libc::IN_MODIFY | libc::IN_ATTRIB;
                // SAFETY: a plain system call with a path that outlives it.
                let watch =
                    unsafe { libc::inotify_add_watch(ended.as_raw_fd(), name.as_ptr(), what) };
                assert!(watch >= 0, "{}", path.display());
            }
        }
        let mut has_ended = || ended.read(&mut [0; 4096]).map(|bytes| bytes > 0);
        // A child of another test may have had a file of the server that was stopped, until now.
        let is_quiet = (0..10).any(|_| {
            while has_ended().is_ok() {}
            let contracts = Contracts::open_with(&iofair_baselines::TABLE, Path::new(&path));
            let (passed, consent) = (Passed::default(), Consent::default());
            Control::check(Path::new(&path), contracts.unwrap(), passed, &consent).unwrap();
            has_ended().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
        assert!(is_quiet, "{back}");
        drop(OpenOptions::new().append(true).open(directory.path("audit")).unwrap());
        assert!(has_ended().unwrap());
    }
}
