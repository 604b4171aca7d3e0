//! The disk as a machine: worked times, and what holds for any list of commands.

use std::collections::BTreeMap;

use super::*;
use crate::profile::{Model, read};
use crate::random::Random;

const STREAMS_FIRST: &str = "hitachi-hts727550a9e364:streams-first";
const ALL: [&str; 4] =
    ["sata-7200-2009", "hitachi-hts727550a9e364", "hitachi-hts727550a9e364:h2", STREAMS_FIRST];

fn disk(name: &str) -> Hdd {
    match read(name).expect("an embedded profile").model {
        Model::Hdd(parameters) => Hdd::new(parameters),
        Model::Ssd(_) => panic!("{name} is no hard disk"),
    }
}

fn command(id: u32, operation: Operation, start: u64, length: u64) -> Command {
    let (start, length) = (Sectors(start), Sectors(length));
    Command { id, operation, flags: Flags::NONE, start, length }
}

/// Turns the disk until it rests; completions as (id, microseconds).
fn rest(disk: &mut Hdd) -> Vec<(u32, u64)> {
    let mut done = Vec::new();
    while let Some(at) = disk.next_event() {
        disk.advance(at, &mut done);
    }
    done.iter().map(|done| (done.id, done.at.0 / 1_000)).collect()
}

/// Goal: a single read costs what the profile says. Method: from rest at block 0 at angle 0 read block
/// 0: electronics 64 us are lost, so nearly a revolution of 8333 us, one block of 1/162 revolution,
/// and one block over the bus.
#[test]
fn a_read_that_comes_too_late_waits_a_revolution() {
    let mut disk = disk("sata-7200-2009");
    disk.submit(Instant(0), command(1, Operation::Read, 0, 8));
    assert_eq!(rest(&mut disk), [(1, 8_333 + 52 + 16)]);
}

/// Goal: the head reads on only for a stream, and then reads come from its memory. Method: six blocks in a
/// row, each 33 us after the last completion.
#[test]
fn read_ahead_needs_a_stream() {
    let mut disk = disk("sata-7200-2009");
    let mut at = 0;
    let mut times = Vec::new();
    for id in 0..6 {
        let begun = at;
        disk.submit(Instant(at * 1_000), command(id, Operation::Read, u64::from(id) * 8, 8));
        at = rest(&mut disk)[0].1;
        times.push(at - begun);
        at += 33;
    }
    let lost = |time: u64| (8_000..8_500).contains(&time);
    assert!(times[..4].iter().all(|time| lost(*time)), "{times:?}");
    assert!(times[4..].iter().all(|time| *time < 150), "{times:?}");
}

/// Goal: nearest first, but no request waits for ever. Method: one far read among a stream of near ones.
#[test]
fn the_oldest_is_not_forgotten() {
    let mut disk = disk("sata-7200-2009");
    let mut random = Random::new(5, 1);
    disk.submit(Instant(0), command(0, Operation::Read, 8, 8));
    disk.submit(Instant(1), command(1, Operation::Read, 100_000_000, 8));
    disk.submit(Instant(2), command(2, Operation::Read, 4_000, 8));
    let (mut id, mut done, mut far) = (3, Vec::new(), None);
    while far.is_none() {
        let at = disk.next_event().expect("always something to do");
        disk.advance(at, &mut done);
        for completion in std::mem::take(&mut done) {
            if completion.id == 1 {
                far = Some(completion.at.0 / 1_000_000);
            } else {
                let near = random.below(2_000) * 8;
                disk.submit(completion.at, command(id, Operation::Read, near, 8));
                id += 1;
            }
        }
    }
    let far = far.expect("the loop ends with it");
    assert!((2_200..2_300).contains(&far), "age 2200 ms, completed after {far} ms");
}

/// Goal: writes are completed from memory until it is full, and a flush waits for the platters.
/// Method: 12 MiB of writes into 8 MiB of cache, then a flush and a late read.
#[test]
fn the_cache_fills_and_a_flush_empties_it() {
    let mut disk = disk("sata-7200-2009");
    for id in 0..24 {
        disk.submit(Instant(0), command(id, Operation::Write, u64::from(id) * 500_000, 1_024));
    }
    disk.submit(Instant(0), command(24, Operation::Flush, 0, 0));
    disk.submit(Instant(0), command(25, Operation::Read, 0, 8));
    let times: BTreeMap<u32, u64> = rest(&mut disk).into_iter().collect();
    assert!((0..15).all(|id| times[&id] < 5_000), "nine tenths of 8 MiB: {times:?}");
    assert!(times[&15] > 8_000, "then the platters come first: {times:?}");
    assert!(times[&23] > 30_000, "the last write waits for room: {times:?}");
    assert!(times[&24] > 24 * 6_550, "12 MiB at 80 MB/s: {times:?}");
    assert!(times[&25] > times[&24], "nothing passes a flush: {times:?}");
}

/// Goal: dirty blocks stay in memory while the host is not silent, are then written, and a write that comes
/// meanwhile waits, for there is one processor. Method: one write; writes 15 ms and 21 ms later.
#[test]
fn a_silent_host_lets_the_disk_write() {
    for (later, waits) in [(15_000, false), (21_000, true)] {
        let mut disk = disk("sata-7200-2009");
        disk.submit(Instant(0), command(1, Operation::Write, 1_000, 8));
        let mut done = Vec::new();
        let at = Instant(later * 1_000);
        disk.advance(at, &mut done);
        disk.submit(at, command(2, Operation::Write, 9_000_000, 8));
        let completed = rest(&mut disk)[0].1;
        assert_eq!(completed - later > 1_000, waits, "{later}: {completed}");
    }
}

/// Goal: when the cache is nearly full it is emptied by half before anything is read, and a write that does
/// not fit is no dead end. Method: 15 writes of 512 KiB in a row and a read; then 24 of them at once.
#[test]
fn a_full_cache_comes_before_reads() {
    let mut disk = disk("sata-7200-2009");
    for id in 0..15 {
        disk.submit(Instant(0), command(id, Operation::Write, u64::from(id) * 1_024, 1_024));
    }
    disk.submit(Instant(0), command(15, Operation::Read, 9_000_000, 8));
    let times: BTreeMap<u32, u64> = rest(&mut disk).into_iter().collect();
    assert!(times[&15] > 4 * 13_100, "3.5 MiB at 80 MB/s come first: {times:?}");
}

/// Goal: a host that never stops writing keeps the cache full, and a read still waits no longer than
/// `age`. Method: 30 writes at once, each followed by the next one, and a read among them, on both disks.
#[test]
fn a_flood_of_writes_lets_an_old_read_through() {
    for (name, age) in
        [("sata-7200-2009", 2_200), ("hitachi-hts727550a9e364", 2_400), (STREAMS_FIRST, 4_500)]
    {
        let mut disk = disk(name);
        let write = |id: u32| command(id, Operation::Write, u64::from(id) * 1_024, 1_024);
        (1..=30).for_each(|id| disk.submit(Instant(0), write(id)));
        disk.submit(Instant(0), command(0, Operation::Read, 90_000_000, 8));
        let (mut done, mut next, mut read) = (Vec::new(), 31, None);
        while read.is_none() {
            disk.advance(disk.next_event().expect("never idle"), &mut done);
            for completion in std::mem::take(&mut done) {
                if completion.id == 0 {
                    read = Some(completion.at.0 / 1_000_000);
                } else {
                    disk.submit(completion.at, write(next));
                    next += 1;
                }
            }
        }
        let read = read.expect("the loop ends with it");
        assert!((age..age + 100).contains(&read), "{name}: the read after {read} ms");
    }
}

/// Goal: with many commands at once, one that goes on where the head is goes before all others, until the
/// oldest is too old; with few all go in order, and without the rule always. Method: a stream two commands deep beside 14
/// and 20 far ones.
#[test]
fn streams_starve_others_only_in_a_deep_queue() {
    let in_order = "hitachi-hts727550a9e364";
    for (name, others, starved) in
        [(STREAMS_FIRST, 14, false), (STREAMS_FIRST, 20, true), (in_order, 20, false)]
    {
        let mut disk = disk(name);
        let stream = |id: u32, n: u64| command(id, Operation::Read, n * 256, 256);
        disk.submit(Instant(0), stream(0, 0));
        disk.submit(Instant(0), stream(1, 1));
        for far in 0..others {
            disk.submit(
                Instant(0),
                command(2 + far, Operation::Read, 1_000_000 * u64::from(far + 1), 8),
            );
        }
        let (mut done, mut next, mut first) = (Vec::new(), 2, None);
        while first.is_none() {
            disk.advance(disk.next_event().expect("never idle"), &mut done);
            for completion in std::mem::take(&mut done) {
                if completion.id >= 2 && completion.id < 2 + others {
                    first = first.or(Some(completion.at.0 / 1_000_000));
                } else {
                    disk.submit(completion.at, stream(1_000 + next as u32, next));
                    next += 1;
                }
            }
        }
        let first = first.expect("the loop ends with it");
        assert_eq!(first >= 4_500, starved, "{name}, {others} others: the first after {first} ms");
    }
}

/// Goal: what lies beyond the end is refused. Method: the last block, and one further.
#[test]
fn beyond_the_end_is_an_error() {
    let mut disk = disk("sata-7200-2009");
    let end = disk.facts().capacity.0;
    disk.submit(Instant(0), command(1, Operation::Read, end - 8, 8));
    disk.submit(Instant(0), command(2, Operation::Write, end - 4, 8));
    let mut done = Vec::new();
    while let Some(at) = disk.next_event() {
        disk.advance(at, &mut done);
    }
    done.sort_by_key(|done| done.id);
    assert_eq!(done.iter().map(|done| done.status).collect::<Vec<_>>(), [0, 5]);
}

/// Goal: each command is completed once, in order of time, and waking early or late changes nothing.
/// Method: random commands on every profile, turned exactly, and again with extra and late turns
/// between submissions.
#[test]
fn any_list_of_commands_is_completed_once() {
    for name in ALL {
        for seed in 0..20 {
            let exact = run(name, seed, 0);
            assert_eq!(exact.len(), 300, "{name}, seed {seed}");
            let once: std::collections::BTreeSet<_> = exact.iter().map(|(id, _)| id).collect();
            assert_eq!(once.len(), 300, "{name}, seed {seed}");
            assert!(exact.is_sorted_by_key(|(_, at)| *at), "{name}, seed {seed}");
            assert_eq!(run(name, seed, 7), exact, "{name}, seed {seed}: turned too often");
        }
    }
}

fn run(name: &str, seed: u64, extra: u64) -> Vec<(u32, u64)> {
    let mut disk = disk(name);
    let capacity = disk.facts().capacity.0;
    let mut random = Random::new(seed, 1);
    let (mut done, mut completions, mut now) = (Vec::new(), Vec::new(), 0);
    for id in 0..300 {
        now += random.below(12_000_000);
        // A full drive takes no more: wait for a completion first.
        while id as usize - completions.len() >= 31 {
            let at = disk.next_event().expect("a full drive works");
            now = now.max(at.0);
            disk.advance(at, &mut done);
            completions.append(&mut done);
        }
        for early in 0..extra {
            disk.advance(Instant(now / (early + 2)), &mut done);
        }
        disk.advance(Instant(now), &mut done);
        completions.append(&mut done);
        let operation = match random.below(10) {
            0..5 => Operation::Read,
            5..9 => Operation::Write,
            _ => Operation::Flush,
        };
        let length = if operation == Operation::Flush { 0 } else { random.between(1, 1_024) };
        let near = random.below(3) > 0;
        let start = random.below(if near { 100_000 } else { capacity - 2_048 });
        let mut command = command(id, operation, start, length);
        if random.below(20) == 0 {
            command.flags = Flags::FUA;
        }
        disk.submit(Instant(now), command);
    }
    while let Some(at) = disk.next_event() {
        disk.advance(at, &mut done);
    }
    completions.extend(done);
    assert!(disk.busy() <= completions.last().expect("300 completions").at.since(Instant::ZERO));
    completions.iter().map(|done| (done.id, done.at.0)).collect()
}
