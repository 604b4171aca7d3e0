//! A drive that fails on purpose, and clients that see every answer: a fault fails the affected request and no other.

use std::io::Write;

use crate::faulty::Scene;
use crate::rig::Directory;
use crate::rig::wire::{BLOCK, FUA, READ, Workload};

const MIB: usize = 1 << 20;
/// Errors as the protocol numbers them.
const EIO: u32 = 5;
const ENOSPC: u32 = 28;

/// Every kind of back end that commands can fail on.
const BACKS: [&str; 4] = ["file", "directory", "memory:256MiB", "emulated:samsung-970-pro"];

/// A faulty drive with a volume `v` that rules are about and a neighbour `w`; requests have the time that a busy machine takes.
fn contracts(directory: &Directory, back: &str, rules: &[&str]) -> String {
    with_timeout("30s", directory, back, rules)
}

/// The same for what the drive never answers: a busy machine is faster than this, almost always.
fn impatient(directory: &Directory, back: &str, rules: &[&str]) -> String {
    with_timeout("1s", directory, back, rules)
}

/// The same for answers that come too late.
fn hasty(directory: &Directory, back: &str, rules: &[&str]) -> String {
    with_timeout("250ms", directory, back, rules)
}

fn with_timeout(timeout: &str, directory: &Directory, back: &str, rules: &[&str]) -> String {
    // Where it is a file, long requests go to the drive in pieces.
    let stack = if back == "file" { "promise" } else { "prop-bfq" };
    let back = match back {
        "file" => format!("file:{}", directory.path("pool.img")),
        "directory" => format!("directory:{}", directory.path("pool")),
        back => back.to_string(),
    };
    let rule = |rule: &&str| format!("[[drive.faults.rule]]\n{rule}\n");
    format!(
        "[drive]\nback = 'faulty:{back}'\nstack = '{stack}'\ntimeout = '{timeout}'\ndrain = '500ms'\n\
         [drive.faults]\nseed = 3\n{}\n[listen]\nunix = '{}'\n\
         [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\n\
         [[group]]\nname = 'h'\n[[volume]]\nname = 'w'\ngroup = 'h'\nsize = '16MiB'\n",
        rules.iter().map(rule).collect::<String>(),
        directory.path("socket")
    )
}

/// Goal: an error of the drive is the error of the requests that met it, of no other and of no other volume,
/// and is over when it is over. Method: on every back end, errors for writes in a part of one volume.
#[test]
fn errors_reach_only_the_affected_requests() {
    for back in BACKS {
        let mut scene = Scene::over(back, contracts);
        let (mut wire, mut neighbour) =
            (scene.connect("v"), Workload::over(scene.connect("w"), 0, 256));
        assert_eq!(wire.write(0, 0, &[1; 16384]), 0);
        for (fault, error) in [("eio", EIO), ("enospc", ENOSPC)] {
            let rule = format!(
                "fault = '{fault}'\noperation = 'write'\nvolume = 'v'\nrange = {{ from = '4KiB', to = '8KiB' }}"
            );
            scene.rules(&[&rule]);
            for (offset, length, met) in
                [(0, 4096, 0), (0, 4097, error), (5000, 1, error), (8192, 4096, 0)]
            {
                assert_eq!(wire.write(0, offset, &vec![2; length]), met, "{back} {fault}");
            }
            assert_eq!(wire.write(FUA, 4096, &[2; 4096]), error);
            assert_eq!(wire.read(4096, 4096).data.len(), 4096, "only writes fail");
            neighbour.run(200, 8);
            scene.rules(&["fault = 'eio'\noperation = 'flush'\nvolume = 'v'"]);
            for (wire, met) in [(&mut wire, EIO), (&mut neighbour.wire, 0)] {
                wire.send_flush().unwrap();
                assert_eq!(wire.receive().unwrap().error, met, "{back}");
            }
            scene.rules(&[]);
            assert_eq!(wire.write(0, 4096, &[3; 4096]), 0);
            assert_eq!(wire.read(4096, 4096).data, [3; 4096]);
        }
        scene.server.stop().unwrap();
    }
}

/// Goal: what a drive does in part is finished, or told as an error; never half an answer. Method: short
/// commands on a file and on memory, long and short, and a workload that compares everything.
#[test]
fn short_commands_are_continued_or_fail() {
    for (back, long) in [("file", 0), ("directory", 0), ("memory:256MiB", EIO)] {
        let mut scene = Scene::over(back, contracts);
        let mut wire = scene.connect("v");
        let data: Vec<u8> = (0..MIB).map(|i| (i >> 8) as u8).collect();
        assert_eq!(wire.write(0, 0, &data), 0);
        scene.rules(&["fault = 'short'"]);
        let answer = wire.read(0, MIB as u32);
        assert_eq!((answer.error, answer.data == data), (long, long == 0));
        assert_eq!(wire.write(0, 1 << 20, &data), long);
        assert_eq!(wire.read(0, 4096).error, EIO, "half a page is nothing");
        scene.rules(&["fault = 'short'\nprobability = 0.1"]);
        let mut load = Workload::over(wire, 4096, 512);
        load.forgiven = Some(EIO);
        load.run(2_000, 16);
        assert!(load.failed > 20, "{} of 2000", load.failed);
        scene.rules(&[]);
        load.run(500, 16);
    }
}

/// Goal: a request that the drive never answers is an error after the timeout, others do not wait for it, not
/// even a flush behind it; the server ends in bounded time and says what it knows. Method: reads and
/// writes of one part never return; a neighbour works meanwhile.
#[test]
fn what_never_returns_is_an_error() {
    for back in BACKS {
        let mut scene = Scene::over(back, impatient);
        let (mut wire, mut neighbour) =
            (scene.connect("v"), Workload::over(scene.connect("w"), 0, 256));
        scene.rules(&[
            "fault = 'never'\nvolume = 'v'\nrange = { to = '1MiB' }\noperation = 'write'",
            "fault = 'never'\nvolume = 'v'\nrange = { to = '1MiB' }\noperation = 'read'",
        ]);
        let stuck =
            [wire.send_read(0, 4096).unwrap(), wire.send_write(0, 8192, &[7; 70_000]).unwrap()];
        let flush = wire.send_flush().unwrap();
        let fine = wire.send_write(FUA, 1 << 20, &[8; 4096]).unwrap();
        neighbour.run(500, 8);
        let mut answers = Vec::new();
        for _ in 0..4 {
            let answer = wire.receive().unwrap();
            answers.push((answer.cookie, answer.error));
        }
        assert_eq!(answers[0], (fine, 0), "{back}: others do not wait");
        answers.sort_unstable();
        assert_eq!(answers, [(stuck[0], EIO), (stuck[1], EIO), (flush, 0), (fine, 0)], "{back}");
        neighbour.run(500, 8);
        scene.rules(&[]);
        assert_eq!(wire.write(0, 8192, &[9; 4096]), EIO, "the old write may still come");
        assert_eq!(wire.write(0, 4096, &[9; 4096]), 0);
        assert_eq!(wire.read(4096, 4096).data, [9; 4096]);
        let told = scene.server.stats(false).unwrap();
        assert_eq!((told.pending, told.volumes[0].stats.failed), (0, 3));
        let error = scene.server.stop().unwrap_err().to_string();
        assert!(error.contains("did not complete some commands"), "{error}");
    }
}

/// Goal: a command that comes back after its timeout gives back its slot and its memory, and nobody is answered
/// twice. Method: answers that are later than the timeout, again and again, more of them than there are
/// slots; then everything is compared.
#[test]
fn late_answers_are_forgotten() {
    for back in ["file", "emulated:hitachi-hts727550a9e364"] {
        let mut scene = Scene::over(back, hasty);
        let mut load = Workload::over(scene.connect("v"), 0, 64);
        load.forgiven = Some(EIO);
        scene.rules(&["fault = 'delay'\ndelay = '300ms'\nvolume = 'v'"]);
        load.run(48, 48);
        assert!(load.failed >= 16, "{} of 48", load.failed);
        scene.rules(&[]);
        while load.failed > 0 {
            // Slots come back.
            load.failed = 0;
            load.run(64, 16);
        }
        load.run(200, 16);
        scene.server.stop().unwrap();
    }
}

/// Goal: a write that is acknowledged is never overwritten by an older one that its client was told has failed. Method:
/// a write that is carried out long after its timeout; newer ones to the same bytes, to a part of them and beside them;
/// once the old one is over, all is as it was.
#[test]
fn late_writes_never_overwrite_newer_ones() {
    for back in BACKS {
        let mut scene = Scene::over(back, hasty);
        let mut wire = scene.connect("v");
        // Reads of another part take their time, and so tell the time.
        let slow =
            "fault = 'delay'\ndelay = '200ms'\noperation = 'read'\nrange = { from = '1MiB' }";
        let late = "fault = 'late'\ndelay = '700ms'\nvolume = 'v'\nrange = { to = '1MiB' }";
        scene.rules(&[&format!("{late}\noperation = 'write'"), slow]);
        assert_eq!(wire.write(0, 4096, &[1; 8192]), EIO, "{back}: after the timeout");
        scene.rules(&[slow]);
        let newer = wire.write(0, 8192, &[2; 4096]);
        let found = wire.read(8192, 4096);
        assert_eq!(found.error, 0, "{back}: reads go on");
        let part = wire.write(0, 12287, &[2; 10]);
        let beside = [wire.write(0, 0, &[3; 4096]), wire.write(FUA, 12288, &[3; 4096])];
        let flush = wire.request(3, 0, 0, 0);
        wire.stream.write_all(&flush).unwrap();
        assert_eq!(wire.receive().unwrap().error, 0, "{back}: a flush promises what went well");
        for _ in 0..4 {
            assert_eq!(wire.read(1 << 20, 4096).error, 0);
        }
        if newer == 0 {
            assert!(wire.read(8192, 4096).data == [2; 4096], "{back}: it was acknowledged");
        }
        assert_eq!((newer, part, beside), (EIO, EIO, [0, 0]), "{back}");
        assert!(wire.read(4096, 8192).data == [1; 8192], "{back}: carried out after all");
        assert_eq!(wire.write(0, 8192, &[4; 4096]), 0, "{back}: the old one is over");
        assert_eq!(wire.read(8192, 4096).data, [4; 4096]);
        assert_eq!(wire.read(0, 4096).data, [3; 4096]);
        let told = scene.server.stats(false).unwrap();
        assert_eq!((told.pending, told.volumes[0].stats.failed), (0, 3), "{back}");
        scene.server.stop().unwrap();
    }
}

/// Goal: latency spikes delay whom they meet and change nothing else. Method: one in ten waits; everything is
/// compared, beside a neighbour.
#[test]
fn latency_spikes_change_nothing_else() {
    for back in BACKS {
        let mut scene = Scene::over(back, contracts);
        scene.rules(&["fault = 'delay'\ndelay = '20ms'\nprobability = 0.1\nvolume = 'v'"]);
        let mut load = Workload::over(scene.connect("v"), 0, 256);
        let mut neighbour = Workload::over(scene.connect("w"), 0, 256);
        for _ in 0..5 {
            load.run(200, 32);
            neighbour.run(200, 8);
        }
        let told = scene.server.stats(false).unwrap();
        let slowest = |volume: usize| told.volumes[volume].stats.latency[1].max();
        assert!(slowest(0) >= 20_000_000, "the spikes are seen");
        scene.server.stop().unwrap();
    }
}

/// Goal: everything at once, at random, and what was answered well is there. Method: all faults on every back
/// end under a verified load; then the faults stop, and all is read again.
#[test]
fn random_faults_lose_nothing() {
    for back in BACKS {
        let mut scene = Scene::over(back, impatient);
        let mut load = Workload::over(scene.connect("v"), 0, 512);
        let mut neighbour = Workload::over(scene.connect("w"), 0, 512);
        load.forgiven = Some(EIO);
        scene.rules(&[
            "fault = 'eio'\nprobability = 0.02\nvolume = 'v'",
            "fault = 'short'\nprobability = 0.02\nvolume = 'v'",
            "fault = 'never'\nprobability = 0.002\nvolume = 'v'",
            "fault = 'delay'\nprobability = 0.02\nvolume = 'v'\ndelay = '10ms'",
        ]);
        for _ in 0..4 {
            load.run(500, 16);
            neighbour.run(100, 8);
        }
        assert!(load.failed > 10, "{} of 2000", load.failed);
        scene.rules(&[]);
        let volume = load.wire.read(0, 512 * BLOCK as u32).data;
        load.verify(&volume);
        neighbour.run(500, 8);
    }
}

/// Goal: a client that never reads its answers does not hold up the end for longer than the drain may take, and
/// what others were promised is durable. Method: one asks for 64 MiB and reads nothing; another has written.
#[test]
fn a_client_that_does_not_read_does_not_delay_the_stop() {
    let scene = Scene::over("file", contracts);
    let mut silent = scene.connect("v");
    let mut writer = scene.connect("w");
    assert_eq!(writer.write(0, 0, &[6; 8192]), 0);
    let requests = (0..64).map(|i| silent.request(READ, 0, i << 20, MIB as u32));
    let requests = requests.collect::<Vec<_>>().concat();
    silent.stream.write_all(&requests).unwrap();
    while scene.server.stats(false).unwrap().volumes[0].stats.requests[0] < 32 {
        std::thread::yield_now();
    }
    let Scene { server, directory, .. } = scene;
    server.stop().unwrap();
    assert!(writer.receive().is_err(), "cut off");
    assert_eq!(crate::rig::stored(&directory.path("pool.img"), "w")[..8192], [6; 8192]);
}
