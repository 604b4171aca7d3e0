//! What is completed when, with a kernel played by the test.

use std::collections::VecDeque;

use iofair_core::request::Operation;
use iofair_core::time::Nanos;

use super::*;
use crate::back::testing::{Asked, Call, Scene};
use crate::request::extent::Extent;
use crate::request::op::Hints;
use crate::trial::Mode;

const BYTES: u64 = 64 << 20;
const DURABLE: Call = Call::Write { durable: true };
const PLAIN: Call = Call::Write { durable: false };

fn open(path: &Path, bytes: u64) -> Uring {
    let storage = Storage::open(path, bytes, &Mode::Serve).unwrap();
    Uring::shared(&Arc::new(storage), None)
}

/// A scene over a file that has no name any more.
fn scene(name: &str) -> Scene {
    let path = std::env::temp_dir().join(format!("iofair-{name}-{}", std::process::id()));
    let scene = Scene::new(open(&path, BYTES), BYTES);
    std::fs::remove_file(path).unwrap();
    scene
}

/// The only entry of a turn.
fn only(asked: Vec<Asked>) -> Asked {
    assert_eq!(asked.len(), 1, "{asked:?}");
    asked[0]
}

/// Goal: a write with FUA is durable before its completion. Method: aligned and not; the kernel writes a
/// part, and only when the rest of it, durable too, is written is the write completed. A plain write is not
/// made durable.
#[test]
fn fua_writes_are_completed_when_durable() {
    let mut scene = scene("fua");
    for (offset, length) in [(8192, 8192), (100_001, 3000)] {
        let cookie = scene.write(offset, length, true);
        let first = only(scene.turn());
        assert_eq!((first.call, first.offset), (DURABLE, offset));
        assert!(scene.turn().is_empty() && scene.finished().is_empty(), "completed too early");
        scene.complete(first, 1024);
        let rest = only(scene.turn());
        assert_eq!((rest.call, rest.offset), (DURABLE, offset + 1024));
        assert!(scene.finished().is_empty(), "completed with a part of it");
        scene.complete(rest, length as i32 - 1024);
        scene.turn();
        assert_eq!(scene.finished(), [(cookie, 0)]);
        scene.write(offset, length, false);
        let plain = only(scene.turn());
        assert_eq!(plain.call, PLAIN);
        scene.complete(plain, length as i32);
        scene.turn();
        assert_eq!(scene.finished().len(), 1);
    }
}

/// Goal: a write with FUA stays durable when it is merged with one without. Method: neighbours in one
/// batch, either of them with FUA; none of the bytes with FUA may go by a plain write.
#[test]
fn merged_fua_writes_stay_durable() {
    for fua in [[true, false], [false, true]] {
        let mut scene = scene("merged");
        for (number, fua) in fua.into_iter().enumerate() {
            scene.write(number as u64 * 4096, 4096, fua);
        }
        let asked = scene.turn();
        match asked.len() {
            1 => assert_eq!(asked[0].call, DURABLE),
            _ => asked.iter().zip(fua).for_each(|(asked, fua)| {
                assert_eq!(asked.call, Call::Write { durable: fua });
            }),
        }
    }
}

/// Goal: a request whose memory is not there fails alone, whatever it was merged with; the others are carried out
/// with their own bytes at their own places. Method: three neighbours that become one command; the kernel cannot read
/// the memory of each in turn, or of all.
#[test]
fn missing_memory_fails_its_request_alone() {
    for missing in [vec![0], vec![1], vec![2], vec![0, 2], vec![0, 1, 2]] {
        let mut scene = scene("missing");
        let cookies = [0, 1, 2].map(|number| scene.write(number * 4096, 4096, false));
        let mut asked = only(scene.turn());
        scene.complete(asked, -libc::EFAULT);
        for number in 0..3 {
            asked = only(scene.turn());
            assert_eq!((asked.call, asked.offset), (PLAIN, number * 4096));
            assert!(scene.finished().is_empty());
            scene.complete(asked, if missing.contains(&number) { -libc::EFAULT } else { 4096 });
        }
        scene.turn();
        let mut finished = scene.finished();
        finished.sort_unstable();
        let status = |number| if missing.contains(&number) { libc::EFAULT } else { 0 };
        assert_eq!(finished, [0, 1, 2].map(|number| (cookies[number as usize], status(number))));
    }
}

/// Goal: trims and zeroes with FUA are durable before their completion, also where the file system cannot
/// make zeroes and they are written. Method: the kernel allocates, then syncs; or refuses to allocate.
#[test]
fn fua_zeroes_are_completed_when_durable() {
    let fua = Hints { fua: true, ..Hints::default() };
    for operation in [Operation::WriteZeroes, Operation::Discard] {
        let mut scene = scene("zeroes");
        let cookie = scene.submit(operation, 0, 1 << 20, fua);
        let asked = only(scene.turn());
        assert_eq!(asked.call, Call::Allocate);
        scene.complete(asked, 0);
        let asked = only(scene.turn());
        assert_eq!((asked.call, scene.finished().len()), (Call::DataSync, 0));
        scene.complete(asked, 0);
        scene.turn();
        assert_eq!(scene.finished(), [(cookie, 0)]);
    }
    let mut scene = scene("written-zeroes");
    let cookie = scene.submit(Operation::WriteZeroes, 0, 1 << 20, fua);
    let asked = only(scene.turn());
    scene.complete(asked, -libc::EOPNOTSUPP);
    let asked = only(scene.turn());
    assert_eq!((asked.call, scene.finished().len()), (DURABLE, 0));
    scene.complete(asked, 1 << 20);
    scene.turn();
    assert_eq!(scene.finished(), [(cookie, 0)]);
}

/// Goal: a hole, which is charged as a trim, makes nobody write zeroes of its length: where a drive has no command for it, it is refused.
/// Method: the kernel refuses to allocate.
#[test]
fn holes_are_not_written() {
    let mut scene = scene("holes");
    let hole = Hints { hole: true, ..Hints::default() };
    let cookie = scene.submit(Operation::Discard, 0, 1 << 20, hole);
    let asked = only(scene.turn());
    assert_eq!(asked.call, Call::Allocate);
    scene.complete(asked, -libc::EOPNOTSUPP);
    assert!(scene.turn().is_empty());
    assert_eq!(scene.finished(), [(cookie, libc::EOPNOTSUPP)]);
}

/// Goal: a flush is completed after the writes before it and after `fdatasync`, in this order. Method:
/// two writes that the kernel finishes in the wrong order, a flush between them and a later write; the
/// sync must come after both, and its error is the flush's.
#[test]
fn flushes_cover_the_writes_before_them() {
    for status in [0, libc::EIO] {
        let mut scene = scene("flush");
        let (first, second) = (scene.write(0, 4096, false), scene.write(1 << 20, 4096, false));
        let writes = scene.turn();
        assert_eq!(writes.iter().map(|asked| asked.call).collect::<Vec<_>>(), [PLAIN, PLAIN]);
        let flush = scene.flush();
        let later = scene.write(2 << 20, 4096, false);
        let others: Vec<Asked> = scene.turn();
        assert!(others.iter().all(|asked| asked.call == PLAIN), "synced too early: {others:?}");
        scene.complete(writes[1], 4096);
        let mut others = [others, scene.turn()].concat();
        assert!(others.iter().all(|asked| asked.call == PLAIN), "synced too early: {others:?}");
        assert_eq!(scene.finished(), [(second, 0)]);
        scene.complete(writes[0], 4096);
        others.extend(scene.turn());
        assert_eq!(scene.finished(), [(first, 0)]);
        let sync = others.iter().find(|asked| asked.call == Call::DataSync);
        scene.complete(*sync.expect("both writes are done"), -status);
        others.extend(scene.turn());
        assert_eq!(scene.finished(), [(flush, status)]);
        let last = others.iter().find(|asked| asked.call == PLAIN);
        scene.complete(*last.expect("the later write goes on"), 4096);
        scene.turn();
        assert_eq!(scene.finished(), [(later, 0)]);
    }
}

/// Goal: what the kernel refuses is told, and what it does in part goes on; neither is tried for ever.
/// Method: errors, interruptions and short counts for a read and a write.
#[test]
fn errors_and_short_counts() {
    let mut scene = scene("errors");
    for operation in [Operation::Read, Operation::Write] {
        for (result, status) in [
            (-libc::EIO, libc::EIO),
            (-libc::ENOSPC, libc::ENOSPC),
            // Nothing done and no error: the file ends here.
            (0, libc::EIO),
        ] {
            for before in [None, Some(-libc::EINTR), Some(512)] {
                let cookie = scene.submit(operation, 4096, 4096, Hints::default());
                let mut asked = only(scene.turn());
                if let Some(before) = before {
                    scene.complete(asked, before);
                    asked = only(scene.turn());
                    assert_eq!(asked.offset, 4096 + before.max(0) as u64);
                }
                scene.complete(asked, result);
                scene.turn();
                assert_eq!(scene.finished(), [(cookie, status)]);
            }
        }
        let cookie = scene.submit(operation, 0, 4096, Hints::default());
        let mut asked = scene.turn();
        let mut rounds = 0;
        while let Some(again) = asked.pop() {
            rounds += 1;
            assert!(rounds < 10_000, "tried for ever");
            scene.complete(again, -libc::EINTR);
            asked = scene.turn();
        }
        assert_eq!(scene.finished(), [(cookie, libc::EINTR)]);
    }
}

/// Goal: a command that the kernel does not complete is an error for its request after the timeout, once; its
/// memory and its slot are kept until the kernel completes it after all; others go on. Method: a read and a write
/// that are completed late, a flush behind the write, requests between and after.
#[test]
fn late_commands_fail_and_keep_their_memory() {
    let mut scene = scene("late");
    for operation in [Operation::Read, Operation::Write] {
        let cookie = scene.submit(operation, 0, 8192, Hints::default());
        let stuck = only(scene.turn());
        scene.pass(Nanos::from_secs(29));
        let flush = scene.flush();
        let other = scene.submit(Operation::Read, 1 << 20, 4096, Hints::default());
        let asked = scene.turn();
        scene.complete(*asked.iter().find(|asked| asked.call == Call::Read).unwrap(), 4096);
        scene.turn();
        assert_eq!(scene.finished(), [(other, 0)], "others go on");
        let mut sync = asked.into_iter().find(|asked| asked.call == Call::DataSync);
        assert_eq!(sync.is_some(), operation == Operation::Read, "a flush waits for writes");
        scene.pass(Nanos::from_secs(1));
        sync = scene.turn().pop().or(sync);
        assert_eq!(scene.finished(), [(cookie, libc::EIO)]);
        assert!(scene.engine().is_stuck() && scene.engine().pending() == 1, "only the flush waits");
        scene.complete(sync.expect("nothing keeps the flush any more"), 0);
        scene.turn();
        assert_eq!((scene.finished(), scene.engine().pending()), (vec![(flush, 0)], 0));
        let next = scene.submit(Operation::Read, 0, 8192, Hints::default());
        let asked = only(scene.turn());
        scene.complete(asked, 8192);
        scene.turn();
        assert_eq!(scene.finished(), [(next, 0)]);
        assert_eq!(scene.engine().ops().len(), 1, "the memory is kept");
        // In part, so that the rest is asked for: the late command goes on like any other.
        scene.complete(stuck, 4096);
        let rest = only(scene.turn());
        assert_eq!(rest.offset, 4096);
        scene.complete(rest, 4096);
        scene.turn();
        assert_eq!(scene.finished(), [], "nothing is completed twice");
        assert!(!scene.engine().is_stuck() && scene.engine().ops().is_empty());
    }
}

/// Goal: what a late command may still write is written by no other command, whichever of the merged requests asked
/// for it, and whether the newer write came before or after the timeout. Method: two writes that become one command, and
/// one over both that comes before the timeout; writes and trims around after it; then the completion.
#[test]
fn late_writes_are_fenced() {
    let mut scene = scene("fenced");
    let old = [scene.write(4096, 4096, false), scene.write(8192, 4096, false)];
    let stuck = only(scene.turn());
    scene.pass(Nanos::from_secs(29));
    let meanwhile = scene.write(6144, 1024, false);
    let waits = scene.turn();
    let beside = scene.write(16384, 4096, false);
    let asked = only(scene.turn());
    scene.complete(asked, 4096);
    scene.turn();
    assert_eq!(scene.finished(), [(beside, 0)]);
    scene.pass(Nanos::from_secs(1));
    scene.turn();
    assert_eq!(scene.finished(), old.map(|cookie| (cookie, libc::EIO)));
    let zeroes = scene.submit(Operation::WriteZeroes, 0, 1 << 20, Hints::default());
    let trim = scene.submit(Operation::Discard, 12287, 1, Hints::default());
    let write = scene.write(4096, 1, false);
    assert!(scene.turn().is_empty(), "they reach nothing");
    assert_eq!(scene.finished(), [zeroes, trim, write].map(|cookie| (cookie, libc::EIO)));
    let reads = [(0, 4096), (8192, 4096)]
        .map(|(at, length)| scene.submit(Operation::Read, at, length, Hints::default()));
    let neighbour = scene.write(12288, 4096, false);
    let asked = scene.turn();
    asked.iter().for_each(|asked| scene.complete(*asked, 4096));
    scene.turn();
    let mut finished = scene.finished();
    finished.sort_unstable();
    assert_eq!(finished, [(reads[0], 0), (reads[1], 0), (neighbour, 0)]);
    scene.complete(stuck, 8192);
    let waits = [waits, scene.turn()].concat();
    scene.complete(only(waits), 1024);
    scene.turn();
    assert_eq!(scene.finished(), [(meanwhile, libc::EIO)], "it may have been overwritten");
    let again = scene.write(4096, 8192, false);
    let asked = only(scene.turn());
    scene.complete(asked, 8192);
    scene.turn();
    assert_eq!(scene.finished(), [(again, 0)]);
    assert!(scene.engine().ops().is_empty() && !scene.engine().is_stuck());
}

/// Goal: when late commands have every slot, what comes fails instead of waiting for ever, until one of them is
/// completed. Method: as many reads as there are slots, and some.
#[test]
fn a_dead_drive_refuses() {
    let mut scene = scene("dead");
    let read =
        |scene: &mut Scene, i: u64| scene.submit(Operation::Read, i << 16, 4096, Hints::default());
    let depth = scene.engine().back().facts().depth;
    for i in 0..u64::from(depth) + 5 {
        read(&mut scene, i);
    }
    let stuck = scene.turn();
    assert_eq!(stuck.len(), depth as usize);
    scene.pass(Nanos::from_secs(30));
    assert!(scene.turn().is_empty(), "no slot is free");
    let failed = scene.finished();
    assert_eq!(failed.len(), depth as usize + 5);
    assert!(failed.iter().all(|(_, status)| *status == libc::EIO));
    let cookie = read(&mut scene, 0);
    assert!(scene.turn().is_empty());
    assert_eq!(scene.finished(), [(cookie, libc::EIO)]);
    scene.complete(stuck[0], 4096);
    scene.turn();
    let cookie = read(&mut scene, 0);
    let asked = only(scene.turn());
    read(&mut scene, 1);
    assert!(scene.turn().is_empty(), "there is one slot");
    scene.complete(asked, 4096);
    assert_eq!(scene.turn().len(), 1);
    assert_eq!(scene.finished(), [(cookie, 0)]);
}

/// Goal: of a long trim the kernel has one piece at a time, of a long read a few, and after an error it is not asked for
/// the rest. Method: 1 GiB of zeroes and 32 MiB to read, completed piece by piece.
#[test]
fn long_requests_go_in_pieces() {
    let path = std::env::temp_dir().join(format!("iofair-long-{}", std::process::id()));
    let mut scene = Scene::new(open(&path, 2 << 30), 2 << 30);
    std::fs::remove_file(path).unwrap();
    let cookie = scene.submit(Operation::WriteZeroes, 1 << 30, 1 << 30, Hints::default());
    for number in 0..32 {
        let asked = only(scene.turn());
        assert_eq!((asked.call, asked.offset), (Call::Allocate, (1 << 30) + (number << 25)));
        assert!(scene.turn().is_empty() && scene.finished().is_empty());
        scene.complete(asked, 0);
    }
    assert!(scene.turn().is_empty());
    assert_eq!(scene.finished(), [(cookie, 0)]);
    let cookie = scene.submit(Operation::Read, 1, 32 << 20, Hints::default());
    let mut asked: VecDeque<Asked> = scene.turn().into();
    let mut completed = 0;
    while let Some(next) = asked.pop_front() {
        assert!(asked.len() < 4 && scene.finished().is_empty());
        completed += 1;
        let whole = if completed < 33 { 1 << 20 } else { 1 };
        scene.complete(next, if completed == 1 { whole - 1 } else { whole });
        asked.extend(scene.turn());
    }
    assert_eq!((completed, scene.finished()), (33, vec![(cookie, 0)]));
    let cookie = scene.submit(Operation::WriteZeroes, 0, 1 << 30, Hints::default());
    let asked = only(scene.turn());
    scene.complete(asked, -libc::ENOSPC);
    assert!(scene.turn().is_empty());
    assert_eq!(scene.finished(), [(cookie, libc::ENOSPC)]);
    assert!(scene.engine().ops().is_empty());
}

/// Goal: a block status of a file is a command of the drive that another thread carries out: a group has one at a time,
/// it is late like any other, and what is found too late is nobody's. Method: one that is completed in time, one that
/// is not, another one meanwhile, and one about which nothing can be found out.
#[test]
fn block_status_is_a_command() {
    let mut scene = scene("status");
    let ask = |scene: &mut Scene| {
        let hints = Hints { extents: 10, ..Hints::default() };
        let cookie = scene.submit(Operation::Read, 1 << 20, 3 << 20, hints);
        assert!(scene.turn().is_empty(), "nothing for the ring");
        assert!(!scene.takes_status(), "a second one");
        (cookie, scene.lookup())
    };
    let whole = [Extent { length: 3 << 20, hole: true }];
    let (first, lookup) = ask(&mut scene);
    assert!(scene.finished().is_empty(), "nothing was found yet");
    assert_eq!(scene.look_up(lookup), whole);
    scene.turn();
    assert_eq!(scene.finished(), [(first, 0)]);

    let (late, lookup) = ask(&mut scene);
    scene.pass(Nanos::from_secs(31));
    scene.turn();
    assert_eq!(scene.finished(), [(late, libc::EIO)]);
    let (second, other) = ask(&mut scene);
    assert_eq!(scene.look_up(lookup), whole);
    scene.turn();
    assert!(scene.finished().is_empty() && scene.engine().is_stuck());
    scene.look_up(other);
    scene.turn();
    assert_eq!(scene.finished(), [(second, 0)]);

    let (failed, Lookup { command, op, .. }) = ask(&mut scene);
    scene.engine().on_found(command, op, Vec::new());
    scene.turn();
    assert_eq!(scene.finished(), [(failed, libc::EIO)]);
    assert!(!scene.engine().is_stuck() && scene.engine().pending() == 0);
}

/// Goal: a durable write that fails does not hide that older writes were lost, and is no loss by itself. Method: the kernel plays a
/// write that finds no space, and a sync of the other descriptor that finds an error or none; then flushes of the client.
#[test]
fn failed_durable_writes_look_for_lost_ones() {
    for lost in [0, libc::EIO] {
        let mut scene = scene("lost");
        scene.engine().join(0, 0);
        let cookie = scene.write(0, 4096, false);
        let asked = only(scene.turn());
        scene.complete(asked, 4096);
        scene.turn();
        assert_eq!(scene.finished(), [(cookie, 0)]);
        let cookie = scene.write(0, 4096, true);
        let asked = only(scene.turn());
        scene.complete(asked, -libc::ENOSPC);
        let asked = only(scene.turn());
        assert_eq!((asked.call, scene.finished().len()), (Call::DataSync, 0));
        scene.complete(asked, -lost);
        scene.turn();
        assert_eq!(scene.finished(), [(cookie, libc::ENOSPC)]);
        for status in [lost, 0] {
            let flush = scene.flush();
            let asked = only(scene.turn());
            scene.complete(asked, 0);
            scene.turn();
            assert_eq!(scene.finished(), [(flush, status)]);
        }
    }
}
