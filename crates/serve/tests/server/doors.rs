//! Disks of virtual machines when the drive fails and when monitors mean no good, and groups beside a crowd: whatever
//! door trouble comes through, it stays with whom it meets. (`faults.rs` and `../limits.rs` have the same for NBD,
//! `fuse.rs` for files, `../vhost.rs` for what lies in a guest's memory.)
#![allow(unsafe_code)]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::faulty::Scene;
use crate::guest::{BLOCK, Guest, SLOTS};
use crate::rig::wire::{READ, Wire, Workload};
use crate::rig::{Directory, Ending};
use vmm_sys_util::eventfd::EventFd;

/// A volume `v` of group `g` with a disk, and `w` of group `h`.
fn contracts(directory: &Directory, back: &str, rules: &[&str]) -> String {
    let back = back.replace("DIR", &directory.path(""));
    // A slow drive is slow, and no more than that.
    let timeout = if back.contains("faulty") { "1s" } else { "30s" };
    let faults: String =
        rules.iter().map(|rule| format!("[[drive.faults.rule]]\n{rule}\n")).collect();
    format!(
        "[drive]\nback = '{back}'\nstack = 'prop-bfq'\ntimeout = '{timeout}'\ndrain = '500ms'\n\
         [drive.policy.bfq]\nlow_latency = false\n{faults}\
         [listen]\nunix = '{}'\nconnections = 2000\n\
         [[group]]\nname = 'g'\n[[group]]\nname = 'h'\n\
         [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\nvhost = '{}'\n\
         [[volume]]\nname = 'w'\ngroup = 'h'\nsize = '64MiB'\nvhost = '{}'\n",
        directory.path("socket"),
        directory.path("disk"),
        directory.path("other"),
    )
}

fn disk(scene: &Scene) -> String {
    scene.directory.path("disk")
}
fn other(scene: &Scene) -> Guest {
    Guest::connected(&scene.directory.path("other"), 1)
}

/// Goal: what fails at the drive is an error of the machine's request that met it, of no other, and of no other
/// volume; a request that never returns is waited for by that machine alone, and not by the end. Method: on every
/// back end, errors, delays and silence for a part of a disk, beside a workload in another group.
#[test]
fn faults_fail_only_the_affected_machine() {
    for back in ["faulty:file:DIR/pool.img", "faulty:directory:DIR/pool", "faulty:memory:256MiB"] {
        let mut scene = Scene::over(back, contracts);
        let mut guest = Guest::connected(&disk(&scene), 1);
        let mut neighbour = Workload::over(scene.connect("w"), 0, 256);
        let data = [7; BLOCK];
        assert_eq!([0, 1].map(|block| guest.do_one(0, block, Some(&data))), [0, 0], "{back}");
        for fault in ["eio", "enospc", "short"] {
            let part = "operation = 'write'\nvolume = 'v'\nrange = { from = '4KiB', to = '8KiB' }";
            scene.rules(&[&format!("fault = '{fault}'\n{part}")]);
            assert_eq!(guest.do_one(0, 1, Some(&data)), 1, "{back}: {fault}");
            assert_eq!([0, 2].map(|block| guest.do_one(0, block, Some(&data))), [0, 0], "{fault}");
            assert_eq!((guest.do_one(0, 0, None), guest.data(0, 0)), (0, data.to_vec()));
            neighbour.run(200, 8);
        }
        scene.rules(&["fault = 'delay'\ndelay = '5ms'\nprobability = 0.2\nvolume = 'v'"]);
        for block in 0..50 {
            assert_eq!(guest.do_one(0, block, Some(&data)), 0, "{back}: late");
        }
        neighbour.run(200, 8);
        scene.rules(&["fault = 'never'\nvolume = 'v'\nrange = { to = '4KiB' }"]);
        for (slot, block) in [(0, 0), (1, 5)] {
            let head = guest.prepare(0, slot, block, Some(&data));
            guest.publish(0, head);
        }
        guest.kick(0);
        assert_eq!((guest.used(0).0, guest.status(0, 1)), (3, 0), "{back}: the other is answered");
        // Longer than a request may take that is not a machine's.
        let mut wire = scene.connect("v");
        assert_eq!(wire.read(0, 4096).error, 5, "over NBD there is a timeout");
        neighbour.run(500, 8);
        assert_eq!(guest.take_used(0), None, "nobody says that it is over");
        drop(guest);
        neighbour.run(500, 8);
        let error = scene.server.stop().unwrap_err().to_string();
        assert!(error.contains("did not complete some commands"), "{back}: {error}");
    }
}

/// Sends as much as a socket takes while nobody reads the answers.
fn shout(path: &str, message: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(message).is_ok() {}
    stream
}

/// Goal: a monitor that stands still keeps its own socket and nothing else, and not the end of the server. Method: half
/// a message; questions whose answers nobody reads; a call that cannot be rung without waiting; each beside the machine
/// of another group, a reload, and followed by a good monitor; at the end by none.
#[test]
fn stalled_monitors_do_not_affect_others() {
    let mut scene = Scene::over("memory:128MiB", contracts);
    let mut other = other(&scene);
    // "What features are there?", and half of that.
    let question = [[1, 0, 0, 0], [1, 0, 0, 0], [0; 4]].concat();
    for kind in 0..3 {
        let path = disk(&scene);
        let (mut stuck, mut silent) = (None, None);
        match kind {
            0 => {
                let mut stream = UnixStream::connect(&path).unwrap();
                stream.write_all(&question[..6]).unwrap();
                silent = Some(stream);
            }
            1 => silent = Some(shout(&path, &question.repeat(100))),
            _ => {
                let mut guest = Guest::new(1);
                // Full, and whoever writes to it waits until somebody reads.
                guest.queues[0].call = EventFd::new(0).unwrap();
                guest.queues[0].call.write(u64::MAX - 1).unwrap();
                guest.connect(&path);
                guest.start();
                for _ in 0..3 {
                    for slot in 0..SLOTS {
                        let head = guest.prepare(0, slot, slot.into(), Some(&[9; BLOCK]));
                        guest.publish(0, head);
                    }
                    guest.kick(0);
                    for _ in 0..SLOTS {
                        while guest.take_used(0).is_none() {
                            thread::yield_now();
                        }
                    }
                }
                stuck = Some(guest);
            }
        }
        for block in 0..100 {
            assert_eq!(other.do_one(0, block, Some(&[kind; BLOCK])), 0);
        }
        scene.rules(&[]);
        assert_eq!(scene.server.stats(false).unwrap().pending, 0);
        drop((stuck, silent));
        assert_eq!(Guest::connected(&path, 1).do_one(0, 0, None), 0, "after {kind}");
    }
    let last = shout(&disk(&scene), &question.repeat(100));
    scene.server.stop().unwrap();
    drop(last);
}

/// Bytes of a read that keeps the drive busy, and not the processor.
const LARGE: u32 = 256 << 10;

/// Reads in flight: more than the drive has room for, or a client could not use all of its share.
const DEPTH: u64 = 64;

/// A client that always has this many reads in flight, until it has read this many or is told to end.
fn read_on(mut wire: Wire, most: u64, over: &AtomicBool) {
    let offset = |number: u64| number * 79 % 256 * u64::from(LARGE);
    (0..DEPTH).for_each(|number| _ = wire.send_read(offset(number), LARGE).unwrap());
    for number in DEPTH..most {
        assert_eq!(wire.receive().unwrap().error, 0);
        wire.send_read(offset(number), LARGE).unwrap();
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    (0..DEPTH).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
}

/// Goal: a group gets what it was promised, however many clients another has and whatever they do. Method: one client
/// against one machine, three busy connections, and nine hundred that ask for much and read nothing, in a group of
/// the same weight, on a slow drive; three tenths of all have to be the one client's, on however busy a machine.
#[test]
fn many_clients_take_no_other_groups_share() {
    let scene = Scene::over("emulated:plextor-px256m5s", contracts);
    let mut silent: Vec<Wire> = (0..900).map(|_| scene.connect("w")).collect();
    for (number, wire) in silent.iter_mut().enumerate() {
        let place = |i: u64| (number as u64 + i) % 256 * u64::from(LARGE);
        let reads: Vec<u8> = (0..4).flat_map(|i| wire.request(READ, 0, place(i), LARGE)).collect();
        wire.stream.write_all(&reads).unwrap();
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            let (wire, over) = (scene.connect("w"), &over);
            scope.spawn(move || read_on(wire, u64::MAX, over));
        }
        scope.spawn(|| {
            let (mut guest, mut number) = (other(&scene), 0);
            while !over.load(Ordering::Relaxed) {
                for slot in 0..SLOTS {
                    number += 1;
                    let head = guest.prepare(0, slot, number * 7_919 % 16_000, None);
                    guest.publish(0, head);
                }
                guest.kick(0);
                (0..SLOTS).for_each(|_| _ = guest.used(0));
            }
        });
        let _ending = Ending(&over);
        let wire = scene.connect("v");
        scene.server.stats(true).unwrap();
        read_on(wire, 1000, &over);
        let told = scene.server.stats(false).unwrap();
        let bytes = |volume: usize| told.volumes[volume].stats.bytes.iter().sum::<u64>();
        let (one, crowd) = (bytes(0), bytes(1));
        assert!(one * 10 >= (one + crowd) * 3, "{one} bytes against {crowd}");
    });
}
