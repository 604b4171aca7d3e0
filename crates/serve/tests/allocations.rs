//! No allocation a request once warm: through NBD and vhost-user-blk, over every kind of back end.
//!
//! One test, because it counts for the whole process; what the client's own thread allocates is left out.
#![allow(unsafe_code, clippy::unwrap_used)]

#[path = "rig/disk.rs"]
mod disk;
mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::Disk;
use rig::Rig;
use rig::wire::Wire;

thread_local! {
    static CLIENT: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

fn count() {
    if !CLIENT.get() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is the system's allocator; counting touches no memory of anybody's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(old, layout, size) }
    }
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DEPTH: u64 = 16;
/// Requests a round, and rounds in one of which nothing may be allocated.
const REQUESTS: u64 = 2_000;
const ROUNDS: usize = 10;

/// Reads and writes of 4 KiB in turn, anywhere, and one of 64 KiB now and then.
fn request(number: u64) -> (bool, u64, usize) {
    let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    (number.is_multiple_of(2), place << 12, if number % 64 < 2 { 64 << 10 } else { 4096 })
}

/// Keeps requests outstanding through NBD until this many were answered.
fn nbd(wire: &mut Wire, requests: u64) {
    let data = vec![5; 64 << 10];
    let send = |wire: &mut Wire, number| {
        let (writes, at, length) = request(number);
        match writes {
            true => wire.send_write(0, at, &data[..length]).unwrap(),
            false => wire.send_read(at, length as u32).unwrap(),
        };
    };
    (0..DEPTH).for_each(|number| send(wire, number));
    for number in DEPTH..requests + DEPTH {
        assert_eq!(wire.receive().unwrap().error, 0);
        if number < requests {
            send(wire, number);
        }
    }
}

/// The same through vhost-user-blk.
fn vhost(disk: &mut Disk, requests: u64) {
    let submit = |disk: &mut Disk, number: u64, slot: u64| {
        let (writes, at, length) = request(number);
        let bytes = disk.bytes((slot as usize) << 16, length);
        match writes {
            true => disk.queues[0].write(at, bytes, slot).unwrap(),
            false => disk.queues[0].read(at, bytes, slot).unwrap(),
        }
    };
    (0..DEPTH).for_each(|number| submit(disk, number, number));
    let (mut next, mut left) = (DEPTH, requests);
    while left > 0 {
        disk.kick(0);
        for (slot, result) in disk.answers(0) {
            assert_eq!(result, 0);
            left -= 1;
            if next < requests {
                submit(disk, next, slot);
                next += 1;
            }
        }
    }
}

/// Buffers grow to the longest batch that a busy machine makes, whenever that comes; what is allocated for each
/// request, or each this many, never stops.
fn counted(what: &str, mut run: impl FnMut(u64)) {
    let rounds = (0..ROUNDS).map(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run(REQUESTS);
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    let counts: Vec<u64> = rounds.take_while(|found| *found > 0).collect();
    assert!(counts.len() < ROUNDS, "{what}: {counts:?} allocations in {REQUESTS} requests each");
}

/// Goal: a warm server allocates nothing a request. Method: count what every thread but the client's allocates,
/// until some thousand requests in a row need nothing.
#[test]
fn requests_allocate_nothing() {
    CLIENT.set(true);
    // A server's threads are not marked: what counts is what they do.
    for back in ["memory:64MiB", "file", "emulated:samsung-970-pro"] {
        let rig =
            Rig::start_with(back, |directory| format!("vhost = '{}'\n", directory.path("disk")));
        let mut wire = Wire::connect(&rig.directory.path("socket"));
        counted(&format!("NBD, {back}"), |requests| nbd(&mut wire, requests));
        let mut disk = Disk::connect(&rig.directory.path("disk"), 1, 128);
        counted(&format!("vhost-user-blk, {back}"), |requests| vhost(&mut disk, requests));
    }
}
