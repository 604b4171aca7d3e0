//! Volumes as disks of virtual machines: the `virtio-driver` crate against a live server.

#![allow(unsafe_code, clippy::unwrap_used)]

#[path = "rig/disk.rs"]
mod disk;
#[path = "rig/guest.rs"]
mod guest;
#[path = "rig/process.rs"]
mod process;
mod rig;
#[path = "vhost/shared.rs"]
mod shared;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use disk::{Disk, all_features};
use guest::{BLOCK, Descriptor, Guest, INDIRECT, NEXT, SIZE, SLOTS, WRITE, ready};
use iofair_serve::Server;
use rig::{Directory, Rig, parse};
use virtio_driver::{VirtioBlkFeatureFlags, VirtioFeatureFlags};

const BACKS: [&str; 3] = ["memory:64MiB", "file", "emulated:samsung-970-pro"];

fn rig(back: &str) -> (Rig, String) {
    let rig = Rig::start_with(back, |directory| format!("vhost = '{}'\n", directory.path("disk")));
    let path = rig.directory.path("disk");
    (rig, path)
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(6_364_136_223_846_793_005) | 1;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Goal: bytes that go in come out, through every back end, also in pieces that no drive likes; zeroes and
/// discards leave zeroes, flushes are answered, what is outside of the volume is an error. Method: the driver,
/// one request after the other.
#[test]
fn a_guest_disk_works_on_every_back_end() {
    for back in BACKS {
        let (rig, path) = rig(back);
        let mut disk = Disk::connect(&path, 1, 128);
        assert_eq!(u64::from(disk.config().capacity), (64 << 20) / 512);
        let data = pattern(1, 1 << 20);
        assert_eq!(disk.write(8192, &data), 0);
        assert_eq!(disk.read(8192, 1 << 20), Ok(data.clone()), "{back}");
        // Pieces on odd borders.
        let pieces = disk.pieces(513, &[1000, 24, 4096, 3000, 72]);
        let odd = pattern(2, 8192);
        disk.bytes(513, 8192).copy_from_slice(&odd);
        // SAFETY: the pieces lie in memory that the disk keeps.
        unsafe { disk.queues[0].writev(512, pieces.as_ptr(), pieces.len(), 0).unwrap() };
        assert_eq!(disk.answer(), 0);
        disk.bytes(513, 8192).fill(0);
        let pieces = disk.pieces(513, &[72, 3000, 4096, 24, 1000]);
        // SAFETY: as above.
        unsafe { disk.queues[0].readv(512, pieces.as_ptr(), pieces.len(), 0).unwrap() };
        assert_eq!(disk.answer(), 0);
        assert!(disk.bytes(513, 8192) == odd, "{back}: odd pieces");
        assert_eq!(disk.read(8192 + 512, 4096), Ok(data[512..][..4096].to_vec()));
        disk.queues[0].flush(0).unwrap();
        assert_eq!(disk.answer(), 0);
        for (operation, at) in [(0, 64 << 10), (1, 256 << 10), (2, 512 << 10)] {
            let length = 128 << 10;
            match operation {
                0 => disk.queues[0].discard(at, length, 0).unwrap(),
                kind => disk.queues[0].write_zeroes(at, length, kind == 2, 0).unwrap(),
            }
            assert_eq!(disk.answer(), 0);
            assert_eq!(disk.read(at, length as usize), Ok(vec![0; length as usize]), "{back}");
        }
        assert_eq!(disk.read((64 << 20) - 512, 1024), Err(-libc::EIO));
        assert_eq!(disk.write(64 << 20, &[1; 512]), -libc::EIO);
        disk.queues[0].discard((64 << 20) - 4096, 8192, 0).unwrap();
        assert_eq!(disk.answer(), -libc::EIO);
        drop(disk);
        rig.server.stop().unwrap();
        assert!(!std::path::Path::new(&path).exists(), "the socket goes with the server");
    }
}

/// Goal: several queues at once, full of requests of all sizes, with and without event index, each answered
/// with its own data. Method: four queues on every back end; every write is read back.
#[test]
fn many_queues_at_once() {
    let event_idx = VirtioFeatureFlags::RING_EVENT_IDX.bits();
    for (back, features) in [
        (BACKS[0], all_features()),
        (BACKS[1], all_features()),
        (BACKS[1], all_features() & !event_idx),
        (BACKS[2], all_features()),
        (BACKS[1], all_features() & !VirtioBlkFeatureFlags::FLUSH.bits()),
    ] {
        let (_rig, path) = rig(back);
        let mut disk = Disk::with(&path, 4, 64, features);
        for reads in [false, true] {
            for queue in 0..4 {
                for number in 0..16usize {
                    let (at, length) = place(queue, number);
                    let bytes = disk.bytes(at as usize, length);
                    let (name, queue) = (number as u64, &mut disk.queues[queue]);
                    if reads {
                        bytes.fill(0);
                        queue.read(at, bytes, name).unwrap();
                    } else {
                        bytes.copy_from_slice(&pattern(at, length));
                        queue.write(at, bytes, name).unwrap();
                    }
                }
                disk.kick(queue);
            }
            for queue in 0..4 {
                let mut answered = Vec::new();
                while answered.len() < 16 {
                    answered.extend(disk.answers(queue));
                }
                answered.sort_unstable();
                let expected: Vec<_> = (0..16).map(|number| (number, 0)).collect();
                assert_eq!(answered, expected, "{back}");
                for number in 0..16usize {
                    let (at, length) = place(queue, number);
                    let found = &*disk.bytes(at as usize, length);
                    assert!(found == pattern(at, length), "{back}: queue {queue}, {number}");
                }
            }
        }
    }
}

/// Where a request goes, and how long it is; none overlaps another.
fn place(queue: usize, number: usize) -> (u64, usize) {
    (((queue * 16 + number) * (256 << 10)) as u64, 512 << (number % 9))
}

/// Goal: the driver is told the volume's name, a read-only volume refuses to change, its socket is its
/// owner's, and a second client is let in when the first has gone. Method: one after the other.
#[test]
fn names_modes_and_turns() {
    let rig = Rig::start_with("memory:64MiB", |directory| {
        format!("read_only = true\nvhost = '{}'\n", directory.path("disk"))
    });
    let path = rig.directory.path("disk");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut first = Guest::connected(&path, 1);
    assert_eq!(first.do_one(0, 0, Some(&[1; BLOCK])), 1, "a write is an error");
    assert_eq!((first.do_one(0, 0, None), first.data(0, 0)), (0, vec![0; BLOCK]));
    let head = first.prepare(0, 1, 0, None);
    let (address, next) = (Guest::address(0, 0x3000 + 16), head + 1);
    // SAFETY: the header lies in the guest's memory, and nobody uses it now.
    unsafe { first.memory.as_ptr().add(0x3000 + 16).cast::<u32>().write(8) };
    first.descriptor(0, head, Descriptor { address, length: 16, flags: NEXT, next });
    first.publish(0, head);
    first.kick(0);
    assert_eq!(first.used(0), (head, 21));
    assert_eq!(
        (first.status(0, 1), &first.data(0, 1)[..20]),
        (0, &b"v\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..])
    );
    let second = std::thread::spawn(move || Guest::connected(&path, 1).do_one(0, 1, None));
    assert_eq!(first.do_one(0, 0, None), 0, "the first one has it");
    drop(first);
    assert_eq!(second.join().unwrap(), 0, "then the second");
}

/// Goal: hostile rings stop their queue and nothing else, and the next client finds a good disk. Method: one
/// fault a queue, on one server; another queue goes on, and so does another client.
#[test]
fn hostile_rings_stop_their_queue() {
    let (rig, path) = rig("memory:64MiB");
    type Fault = fn(&mut Guest);
    let faults: [Fault; 7] = [
        // A chain that bites its tail.
        |guest| {
            let head = guest.prepare(1, 0, 0, None);
            let (address, flags, next) = (Guest::address(1, 0x4000), NEXT | WRITE, head + 2);
            guest.descriptor(1, next, Descriptor { address, length: 1, flags, next });
            guest.publish(1, head);
        },
        // A head outside of the table.
        |guest| guest.publish(1, SIZE),
        // More than the queue holds.
        |guest| guest.show(1, SIZE * 3),
        // No place for the status.
        |guest| {
            let head = guest.prepare(1, 0, 0, None);
            let status = Descriptor { address: 1 << 50, length: 1, flags: WRITE, next: 0 };
            guest.descriptor(1, head + 2, status);
            guest.publish(1, head);
        },
        // An indirect table of a bad length.
        |guest| {
            let (address, flags) = (Guest::address(1, 0x3000), INDIRECT);
            guest.descriptor(1, 0, Descriptor { address, length: 15, flags, next: 0 });
            guest.publish(1, 0);
        },
        // A table that is no memory.
        |guest| {
            let (address, flags) = (u64::MAX - 15, INDIRECT);
            guest.descriptor(1, 0, Descriptor { address, length: 64, flags, next: 0 });
            guest.publish(1, 0);
        },
        // A descriptor that leads out of the table.
        |guest| {
            let head = guest.prepare(1, 0, 0, None);
            let (address, flags) = (Guest::address(1, 0x8000), NEXT);
            let data = Descriptor { address, length: 4096, flags, next: SIZE };
            guest.descriptor(1, head + 1, data);
            guest.publish(1, head);
        },
    ];
    for (number, fault) in faults.iter().enumerate() {
        let mut guest = Guest::connected(&path, 2);
        assert_eq!(guest.do_one(1, 7, Some(&[number as u8; BLOCK])), 0);
        fault(&mut guest);
        guest.kick(1);
        assert!(ready(&guest.queues[1].trouble), "fault {number} is noticed");
        assert_eq!((guest.do_one(0, 7, None), guest.data(0, 0)[0]), (0, number as u8));
        assert_eq!(guest.take_used(1), None, "fault {number} is not answered");
    }
    // Data outside of the memory, and absurd lengths, are errors of the request alone.
    let mut guest = Guest::connected(&path, 1);
    for (address, length) in
        [(1 << 50, 4096), (Guest::address(0, 0x8000), u32::MAX), (u64::MAX, 512)]
    {
        let head = guest.prepare(0, 0, 0, None);
        let (flags, next) = (NEXT | WRITE, head + 2);
        guest.descriptor(0, head + 1, Descriptor { address, length, flags, next });
        guest.publish(0, head);
        guest.kick(0);
        assert_eq!((guest.used(0).0, guest.status(0, 0)), (head, 1));
    }
    assert_eq!(guest.do_one(0, 0, None), 0);
    let stats = rig.server.stats(false).unwrap();
    assert_eq!(stats.volumes[0].stats.failed, faults.len() as u64 + 3, "each of them counts");
}

/// Goal: a head that is made available again before it was answered stops the queue; what is inside is
/// answered once. Method: a slow drive.
#[test]
fn a_repeated_descriptor_head_stops_the_queue() {
    let (_rig, path) = rig("emulated:samsung-970-pro");
    let mut guest = Guest::connected(&path, 1);
    let head = guest.prepare(0, 0, 0, None);
    guest.publish(0, head);
    guest.publish(0, head);
    guest.kick(0);
    assert!(ready(&guest.queues[0].trouble));
    assert_eq!((guest.used(0).0, guest.status(0, 0)), (head, 0));
    assert_eq!(guest.take_used(0), None);
}

/// Goal: a client that sets a queue up badly is sent away, and the next one is served. Method: absurd sizes,
/// addresses that were never shared, a kick that is no eventfd, queues that are not there.
#[test]
fn bad_set_ups_are_refused() {
    let (_rig, path) = rig("memory:64MiB");
    for number in 0..4 {
        let mut guest = Guest::new(1);
        guest.connect(&path);
        let refused = match number {
            0 => guest.set_up(0, 63),
            1 => guest.set_up(0, 2048),
            2 => guest.set_up(0, 0),
            _ => {
                // A queue that is longer than its in-flight region says.
                guest.set_up(0, 1024)
            }
        };
        assert!(refused.is_err(), "set-up {number}");
    }
    let mut guest = Guest::connected(&path, 1);
    assert_eq!(guest.do_one(0, 0, None), 0);
    let mut garbage = std::os::unix::net::UnixStream::connect(&path).unwrap();
    drop(guest);
    garbage.write_all(&[0xff; 4096]).unwrap();
    let mut rest = Vec::new();
    // An end or a reset: either way it was sent away.
    let _ = garbage.read_to_end(&mut rest);
    assert!(rest.is_empty());
    assert_eq!(Guest::connected(&path, 1).do_one(0, 0, None), 0);
}

/// Goal: a new size reaches the driver while it runs. Method: the contracts change; the channel tells, the
/// configuration shows it, and the new part can be used.
#[test]
fn a_new_size_reaches_the_driver() {
    let directory = Directory::new();
    let text = rig::contracts(&directory, "directory", "none-none", "")
        .replace("'directory'", &format!("'directory:{}'", directory.path("pool")))
        + &format!("vhost = '{}'\n", directory.path("disk"));
    std::fs::create_dir(directory.path("pool")).unwrap();
    let mut server = Server::start(parse(&text)).unwrap();
    let mut guest = Guest::connected(&directory.path("disk"), 1);
    let mut channel = guest.channel();
    let block = (64 << 20) / BLOCK as u64;
    assert_eq!(guest.do_one(0, block, None), 1, "beyond the end");
    server.reload(parse(&text.replace("64MiB", "65MiB"))).unwrap();
    let mut message = [0; 12];
    channel.read_exact(&mut message).unwrap();
    assert_eq!(message[0], 2, "the configuration has changed");
    assert_eq!(guest.capacity(), (65 << 20) / 512);
    assert_eq!(guest.do_one(0, block, Some(&[3; BLOCK])), 0);
    drop(guest);
    server.stop().unwrap();
}

/// The contracts of the server that is killed: a file, and few requests a second, so that many are inside.
fn slow(directory: &Directory) -> String {
    let back = format!("file:{}", directory.path("pool.img"));
    let limit = "max = { read_iops = 3000, write_iops = 3000 }";
    rig::contracts(directory, &back, "max-none", limit)
        + &format!("vhost = '{}'\n", directory.path("disk"))
}

/// Not a test: the process that [`a_killed_server_neither_loses_nor_repeats_requests`] kills.
#[test]
fn server_to_be_killed() {
    process::serve_if_asked();
}

/// What a guest has outstanding: by queue and head, the block and what is written there.
type Outstanding = BTreeMap<(usize, u16), (u64, Option<u64>)>;

/// Fills both queues with writes and reads of blocks that nothing else outstanding touches.
fn fill(guest: &mut Guest, outstanding: &mut Outstanding, next: &mut u64) {
    for queue in 0..2 {
        for slot in 0..SLOTS {
            if outstanding.contains_key(&(queue, slot * 3)) {
                continue;
            }
            *next += 1;
            // Blocks come again only after all slots have come round several times.
            let block = *next % 1024;
            let version = (!next.is_multiple_of(3)).then_some(*next);
            let data = version.map(|version| pattern(version, BLOCK));
            let head = guest.prepare(queue, slot, block, data.as_deref());
            outstanding.insert((queue, head), (block, version));
            guest.publish(queue, head);
        }
        guest.kick(queue);
    }
}

/// Goal: whenever the server dies, each request is answered once after the next one has come, and the data is
/// right. Method: two queues full of reads and writes held by a ceiling; `kill -9` after some answers, again
/// and again; every answer must be outstanding, every read must see the last write.
#[test]
fn a_killed_server_neither_loses_nor_repeats_requests() {
    let directory = Directory::new();
    let contracts = directory.path("contracts.toml");
    std::fs::write(&contracts, slow(&directory)).unwrap();
    let path = directory.path("disk");
    let mut guest = Guest::new(2);
    let (mut outstanding, mut next) = (Outstanding::new(), 0);
    let mut written: BTreeMap<u64, u64> = BTreeMap::new();
    let lives = std::env::var("IOFAIR_KILLS").map_or(8, |kills| kills.parse().expect("a number"));
    for life in 0..lives {
        let server = process::start(&contracts);
        guest.connect(&path);
        guest.start();
        let last = life + 1 == lives;
        let mut answers = 0;
        while answers < 30 + life % 8 * 17 || (last && !outstanding.is_empty()) {
            if !last || answers < 30 {
                fill(&mut guest, &mut outstanding, &mut next);
            }
            let queue = usize::from(!outstanding.keys().any(|(queue, _)| *queue == 0));
            let (head, _) = guest.used(queue);
            settle(&guest, queue, head, &mut outstanding, &mut written);
            while let Some((head, _)) = guest.take_used(1 - queue) {
                settle(&guest, 1 - queue, head, &mut outstanding, &mut written);
                answers += 1;
            }
            answers += 1;
            if last && outstanding.is_empty() {
                break;
            }
        }
        drop(server);
        guest.front = None;
        assert!(last || !outstanding.is_empty(), "nothing was inside when the server died");
    }
    assert!(outstanding.is_empty() && written.len() > 100);
}

/// An answer came: it must be outstanding, and a read must see what was written last.
fn settle(
    guest: &Guest,
    queue: usize,
    head: u16,
    outstanding: &mut Outstanding,
    written: &mut BTreeMap<u64, u64>,
) {
    let (block, version) =
        outstanding.remove(&(queue, head)).expect("answered twice, or never asked");
    assert_eq!(guest.status(queue, head / 3), 0);
    match version {
        Some(version) => drop(written.insert(block, version)),
        None => {
            let expected = written.get(&block).map_or(vec![0; BLOCK], |v| pattern(*v, BLOCK));
            assert!(guest.data(queue, head / 3) == expected, "block {block} is wrong");
        }
    }
}

/// Goal: a server that ends lets no virtual machine in and drops it; it is refused from the beginning (QEMU before 9.1
/// does not come again otherwise). Method: a guest's writes are held by a limit while the server ends; meanwhile
/// the socket is gone, and the guest is still there.
#[test]
fn a_server_that_ends_refuses_newcomers_at_once() {
    let directory = Directory::new();
    let path = directory.path("disk");
    let limit = "max = { write_iops = 1 }";
    let text = rig::contracts(&directory, "memory:64MiB", "max-none", limit)
        .replace("stack =", "drain = '2s'\nstack =");
    let server = Server::start(parse(&(text + &format!("vhost = '{path}'\n")))).unwrap();
    let mut guest = Guest::connected(&path, 1);
    for slot in 0..16 {
        // Apart from each other, so that they stay apart.
        let head = guest.prepare(0, slot, u64::from(slot) * 2, Some(&[1; BLOCK]));
        guest.publish(0, head);
    }
    guest.kick(0);
    // The first is answered, so the others are inside.
    guest.used(0);
    let ending = std::thread::spawn(move || server.stop());
    while std::fs::exists(&path).unwrap() {
        std::thread::yield_now();
    }
    assert!(std::os::unix::net::UnixStream::connect(&path).is_err());
    // There is still somebody to ask.
    assert_eq!(guest.capacity(), (64 << 20) / 512);
    // What a limit holds for longer than the drain may take is not answered; that is not this test's matter.
    let _ = ending.join().unwrap();
}

/// Goal: a guest that writes to its rings and buffers while they are read does not affect other clients: what is read is read once.
/// Method: threads that change descriptors, headers and data all the time, beside requests; another guest goes on.
#[test]
fn a_guest_may_write_while_it_is_read() {
    const ROUNDS: u64 = 20;
    let rig = Rig::start_with("memory:80MiB", |directory| {
        let [first, second] = ["disk", "other"].map(|name| directory.path(name));
        let other = "[[volume]]\nname = 'w'\ngroup = 'g'\nsize = '1MiB'";
        format!("vhost = '{first}'\n{other}\nvhost = '{second}'\n")
    });
    let mut good = Guest::connected(&rig.directory.path("other"), 1);
    for round in 0..ROUNDS {
        let mut wild = Guest::connected(&rig.directory.path("disk"), 1);
        let heads: Vec<_> = (0..SLOTS)
            .map(|slot| wild.prepare(0, slot, slot.into(), (slot % 2 == 0).then_some(&[7; BLOCK])))
            .collect();
        let (memory, stop) = (wild.memory.as_ptr() as usize, AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seed = round;
                while !stop.load(Ordering::Relaxed) {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Table, headers, or data. Rarely: else the first chain ends the queue.
                    let base = [0x8000, 0x8000, 0x3000, 0][(seed >> 40) as usize % 4];
                    let at = memory + base + (seed >> 45) as usize % 0x400;
                    // SAFETY: inside the guest's memory, which is there until the thread has ended; shared, hence
                    // atomic.
                    let byte =
                        unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
                    byte.store((seed >> 33) as u8, Ordering::Relaxed);
                }
            });
            for head in heads {
                wild.publish(0, head);
                wild.kick(0);
                let block = [round as u8 ^ head as u8; BLOCK];
                assert_eq!(good.do_one(0, u64::from(head), Some(&block)), 0);
                assert_eq!(
                    (good.do_one(0, u64::from(head), None), &good.data(0, 0)[..]),
                    (0, &block[..])
                );
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
