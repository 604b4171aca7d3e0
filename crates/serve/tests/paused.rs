//! A server that does not run for a while: stopped, or in a virtual machine that is paused.
#![allow(clippy::unwrap_used)]

#[path = "rig/process.rs"]
mod process;
mod rig;

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use rig::wire::{OPTION_LIST, Options, TIMEOUT};
use rig::{Directory, run};

/// Serves until it is killed, if this is that process.
#[test]
fn server_to_be_killed() {
    process::serve_if_asked();
}

/// Goal: a pause of the server is not the time of clients that shake hands, and ends no silent client's deadline for ever. Method: a
/// deadline of a second, a pause of three; one client that goes on during the pause, one after it, and one that never does.
#[test]
fn a_pause_is_not_the_time_of_clients() {
    let directory = Directory::new();
    let (socket, contracts) = (directory.path("socket"), directory.path("contracts.toml"));
    let text = format!(
        "[drive]\nback = 'memory:1MiB'\nstack = 'none-none'\n[listen]\nunix = '{socket}'\nhandshake = '1s'\n\
         [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n"
    );
    fs::write(&contracts, text).unwrap();
    let server = process::start(&contracts);
    let connect = || loop {
        if let Ok(stream) = UnixStream::connect(&socket) {
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            return stream;
        }
        thread::yield_now();
    };
    let greet = || Options::greet(connect()).unwrap();
    let (mut early, mut late) = (greet(), greet());
    let mut silent = connect();
    silent.read_exact(&mut [0; 18]).unwrap();
    let signal = |name: &str| run("kill", &[name, &server.id().to_string()]);
    signal("-STOP");
    early.send(OPTION_LIST, &[]).unwrap();
    // What is tested is that time passes.
    thread::park_timeout(Duration::from_secs(3));
    signal("-CONT");
    assert_eq!(early.receive().unwrap().1[4..], *b"v");
    assert_eq!(late.list().unwrap(), ["v"]);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "it is cut off in the end");
}
