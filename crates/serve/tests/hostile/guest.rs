//! Attackers that are virtual machines: drivers that want everything, and rings that no driver would write.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use iofair_drive::random::Random;

use crate::attack::Attack;
use crate::disk::Disk;
use crate::guest::{DATA, Descriptor, Guest, NEXT, SLOTS};
use crate::peer::wait;
use crate::place::{HOSTILE_BYTES, Shared};

/// Descriptors of a queue: a request has three.
const QUEUE: u16 = 128;
const DEPTH: usize = 40;
/// Longest trim or zeroes of one request that the device takes.
const EMPTY_MAX: u64 = 1 << 30;

/// One attacker, until the run is over.
pub(crate) fn attack(attack: Attack, path: &str, number: usize, shared: &Shared) {
    let mut random = Random::new(number as u64, 0x6775_6573);
    while !shared.over.load(Ordering::Relaxed) {
        match attack {
            Attack::Kicks => kicks(path, shared),
            Attack::Loops | Attack::Malformed => bad_rings(attack, path, &mut random, shared),
            Attack::Removed => removed(path, shared),
            Attack::Churn => drop(connect(path, shared)),
            _ => greedy(attack, path, &mut random, shared),
        }
        shared.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// A guest with one queue, unless the run is over.
fn connect(path: &str, shared: &Shared) -> Option<Guest> {
    let mut guest = Guest::new(1);
    let connected = guest.connect_unless(path, || shared.over.load(Ordering::Relaxed));
    connected.then(|| {
        guest.start();
        guest
    })
}

/// Waits until a queue has answers; false when the run is over.
pub(crate) fn is_answered(disk: &Disk, over: impl Fn() -> bool) -> bool {
    let fd = disk.transport.get_completion_fd(0);
    loop {
        if wait(fd.as_fd().as_raw_fd(), libc::POLLIN, 20) {
            return fd.read().is_ok();
        }
        if over() {
            return false;
        }
    }
}

/// A driver that keeps its queue full.
fn greedy(attack: Attack, path: &str, random: &mut Random, shared: &Shared) {
    let mut disk = Disk::connect(path, 1, QUEUE);
    let depth = if attack == Attack::Honest { 8 } else { DEPTH };
    let (mut in_flight, mut number) = (0, 0u64);
    let over = || shared.over.load(Ordering::Relaxed);
    while !over() {
        while in_flight < depth {
            let mut at = |unit: u64| random.below(HOSTILE_BYTES / unit) * unit;
            let length = match attack {
                Attack::Tiny => 512,
                Attack::Deep => 4096,
                Attack::Huge => 4 << 20,
                _ => 64 << 10,
            };
            let place = (number % 3) as usize * length;
            let (offset, bytes) = (at(length as u64), disk.bytes(place, length));
            let queue = &mut disk.queues[0];
            match attack {
                Attack::Flush => queue.flush(0),
                Attack::Zeroes => queue.write_zeroes(0, EMPTY_MAX, false, 0),
                Attack::Trims => queue.discard(0, EMPTY_MAX, 0),
                Attack::Honest if number % 100 == 99 => queue.flush(0),
                Attack::Honest if number % 10 > 6 => queue.write(offset, bytes, 0),
                Attack::Tiny if number % 2 == 1 => queue.write(offset, bytes, 0),
                _ => queue.read(offset, bytes, 0),
            }
            .unwrap();
            (in_flight, number) = (in_flight + 1, number + 1);
        }
        disk.kick(0);
        let done = disk.queues[0].completions().count();
        shared.operations.fetch_add(done as u64, Ordering::Relaxed);
        in_flight -= done;
        if done == 0 && !is_answered(&disk, over) {
            return;
        }
    }
}

/// Kicks without anything to tell.
fn kicks(path: &str, shared: &Shared) {
    let Some(guest) = connect(path, shared) else { return };
    while !shared.over.load(Ordering::Relaxed) {
        // A counter that is full is kicked enough.
        let _ = guest.queues[0].kick.write(1);
        shared.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Chains without an end, and rings that lie about themselves; each device once.
fn bad_rings(attack: Attack, path: &str, random: &mut Random, shared: &Shared) {
    let Some(mut guest) = connect(path, shared) else { return };
    match if attack == Attack::Loops { 0 } else { random.between(1, 4) } {
        0 => {
            for slot in 0..SLOTS {
                let head = guest.prepare(0, slot, 0, None);
                let (address, next) = (Guest::address(0, DATA), head + 1);
                let loops = Descriptor { address, length: 4096, flags: NEXT, next };
                guest.descriptor(0, head + 2, loops);
                guest.publish(0, head);
            }
        }
        1 => guest.publish(0, u16::MAX),
        2 => guest.show(0, 40_000),
        3 => {
            let head = guest.prepare(0, 0, 0, None);
            let (address, next) = (u64::MAX - 100, head + 2);
            let outside = Descriptor { address, length: 4096, flags: NEXT, next };
            guest.descriptor(0, head + 1, outside);
            guest.publish(0, head);
        }
        _ => {
            let head = guest.prepare(0, 0, u64::MAX >> 12, None);
            guest.publish(0, head);
        }
    }
    guest.kick(0);
    // The device says that the ring is bad, or answers.
    let [trouble, call] =
        [&guest.queues[0].trouble, &guest.queues[0].call].map(|file| file.as_raw_fd());
    while !shared.over.load(Ordering::Relaxed) {
        if wait(trouble, libc::POLLIN, 1) || wait(call, libc::POLLIN, 1) {
            return;
        }
    }
}

/// Takes its memory away under requests.
fn removed(path: &str, shared: &Shared) {
    let Some(mut guest) = connect(path, shared) else { return };
    for slot in 0..SLOTS {
        let head = guest.prepare(0, slot, u64::from(slot), None);
        guest.publish(0, head);
    }
    guest.cut(0);
    guest.kick(0);
    let fd = guest.front.as_ref().unwrap().as_raw_fd();
    loop {
        let sent_away = wait(fd, libc::POLLRDHUP, 20);
        if sent_away || shared.over.load(Ordering::Relaxed) {
            return;
        }
    }
}
