//! Many disks of virtual machines on one server. In a process of its own, since threads are counted.

#![allow(unsafe_code, clippy::unwrap_used)]

#[path = "rig/disk.rs"]
mod disk;
mod rig;

use std::fmt::Write as _;
use std::fs;

use disk::Disk;
use iofair_serve::Server;
use rig::{Directory, parse};

/// Disks, and those of them that have a client.
const DISKS: usize = 200;
const CLIENTS: usize = 150;
/// The thread that waits, and those that handle messages at most.
const THREADS_MAX: usize = 1 + 64;

/// Threads of this process with this name.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.map(|task| fs::read_to_string(task.path().join("comm")));
    names.filter(|found| found.as_ref().is_ok_and(|found| found.trim() == name)).count()
}

/// Goal: a disk costs no thread, whether a client is connected or not. Method: many disks, clients that come one after
/// the other and stay; all of them work, also when they come again.
#[test]
fn disks_share_a_thread() {
    let directory = Directory::new();
    let mut text = String::from("[drive]\nback = 'memory:64MiB'\nstack = 'none-none'\n");
    text += "[[group]]\nname = 'g'\n";
    for number in 0..DISKS {
        let socket = directory.path(&format!("disk-{number}"));
        let _ = write!(
            text,
            "[[volume]]\nname = 'v{number}'\ngroup = 'g'\nsize = '64KiB'\nvhost = '{socket}'\n"
        );
    }
    let server = Server::start(parse(&text)).unwrap();
    // A thread names itself.
    while threads("vhost-user") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(threads("vhost-user"), 1, "nobody is connected");
    for _ in 0..2 {
        let connect = |number| Disk::connect(&directory.path(&format!("disk-{number}")), 1, 16);
        let mut disks: Vec<Disk> = (0..CLIENTS).map(connect).collect();
        for (number, disk) in disks.iter_mut().enumerate() {
            let data = vec![number as u8 + 1; 4096];
            assert_eq!(disk.write(0, &data), 0);
            assert_eq!(disk.read(0, 4096), Ok(data));
        }
        let found = threads("vhost-user");
        assert!(found <= THREADS_MAX, "{found} threads for {CLIENTS} clients");
    }
    server.stop().unwrap();
}
