//! Worked timings, and the rules of the cache and of flushes.

mod laws;
mod steady;

use super::*;
use crate::profile::{Model, read};
use crate::random::Random;
use iofair_core::request::Flags;

const PLEXTOR: &str = "plextor-px256m5s";
const PROTECTED: &str = "nvme-2021";
/// As [`PROTECTED`], with flash translation.
const COLLECTING: &str = "collecting";
const ALL: [&str; 7] = [
    PLEXTOR,
    "plextor-px256m5s:a-fifo",
    "plextor-px256m5s:b",
    "samsung-970-pro",
    "nvme-2015",
    PROTECTED,
    COLLECTING,
];

fn parameters(name: &str) -> Parameters {
    if name == COLLECTING {
        let least = Nanos::from_micros(20);
        let suspend = Suspend { least, mean: least * 4, mean_full: least * 16 };
        let ftl = Ftl {
            state: State::Overwritten,
            filled_percent: 100,
            over_provisioning: 64 << 30,
            idle_reserve: 1 << 30,
            copy: Nanos::from_millis(1),
            batch: Nanos::from_millis(2),
            suspend: Some(suspend),
            in_order: true,
        };
        return Parameters { capacity: 1 << 39, ftl: Some(ftl), ..parameters(PROTECTED) };
    }
    match read(name).unwrap().model {
        Model::Ssd(parameters) => parameters,
        Model::Hdd(_) => panic!("{name} is no solid-state drive"),
    }
}
/// A drive whose page reads all take the mean time, so that instants can be worked out by hand.
fn exact(name: &str) -> Ssd {
    Ssd::new(Parameters { page_read_spread: 0, ..parameters(name) }, 1)
}

fn command(id: u32, operation: Operation, kib: (u64, u64)) -> Command {
    let (start, length) = (Sectors::from_kib(kib.0), Sectors::from_kib(kib.1));
    Command { id, operation, flags: Flags::NONE, start, length }
}
/// Runs until the drive rests.
fn drain(drive: &mut Ssd) -> Vec<Done> {
    let mut done = Vec::new();
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut done);
    }
    done
}
fn micros(done: &Done) -> u64 {
    done.at.0 / 1_000
}

/// Goal: a lone 4 KiB read takes what was measured less the host's 11 us. Method: worked by hand:
/// 13.6 us firmware, 141.7 us page, 4096 B at 535 MB/s = 7.7 us.
#[test]
fn one_small_read() {
    let mut drive = exact(PLEXTOR);
    drive.submit(Instant::ZERO, command(1, Operation::Read, (4, 4)));
    let done = drain(&mut drive);
    assert_eq!(done, [Done { id: 1, at: Instant(13_600 + 141_700 + 7_657), status: 0 }]);
    assert_eq!(drive.busy(), Nanos(162_957));
}

/// Goal: a lone 256 KiB read is bound by the link after its first pages. Method: worked by hand: 32
/// pages of 15.3 us. The read buffer holds 16, so page 17 is sent when the first has crossed and is
/// ready in time for none to wait: 13.6 + 141.7 + 32 x 15.3 = 645 us.
#[test]
fn one_large_read() {
    let mut drive = exact(PLEXTOR);
    drive.submit(Instant::ZERO, command(1, Operation::Read, (0, 256)));
    let done = drain(&mut drive);
    assert_eq!(done[0].at.0, 13_600 + 141_700 + 32 * 15_313);

    let mut other = exact("plextor-px256m5s:b");
    other.submit(Instant::ZERO, command(1, Operation::Read, (0, 256)));
    assert_eq!(drain(&mut other)[0].at.0, done[0].at.0 + 280_000);
}

/// Goal: a read that covers parts of pages moves only what was asked. Method: 4 KiB across the border
/// of two pages costs two page reads side by side and 2 x 2 KiB on the link.
#[test]
fn pages_cut_by_a_command() {
    let mut drive = exact(PLEXTOR);
    drive.submit(Instant::ZERO, command(1, Operation::Read, (6, 4)));
    assert_eq!(drain(&mut drive)[0].at.0, 13_600 + 141_700 + 2 * 3_829);
}

/// Goal: at depth 32 the firmware is what limits. Method: 10,000 reads, one completion every 13.6 us.
#[test]
fn deep_queue_rate() {
    let mut drive = Ssd::new(parameters(PLEXTOR), 1);
    let mut random = Random::new(1, 1);
    let mut submit = |drive: &mut Ssd, now, id| {
        drive.submit(now, command(id, Operation::Read, (random.below(1 << 20) * 4, 4)));
    };
    for id in 0..32 {
        submit(&mut drive, Instant::ZERO, id);
    }
    let (mut completions, mut done, mut last) = (0, Vec::new(), Instant::ZERO);
    while completions < 10_000 {
        let now = drive.next_event().unwrap();
        drive.advance(now, &mut done);
        for completion in done.drain(..) {
            completions += 1;
            last = completion.at;
            submit(&mut drive, now, completion.id);
        }
    }
    let each = last.0 / 10_000;
    assert!((13_600..13_700).contains(&each), "{each} ns a read");
}

/// Goal: fast flash is used until it is full, and then never. Method: writes of 1 MiB, one after the other, for four
/// times its room on a drive that halves its rate then; the rate of the first and of the last quarter, less the caches.
#[test]
fn fast_flash_fills() {
    let base = parameters("samsung-970-pro:slc");
    let slc = base.slc.map(|slc| Slc { size: 512 << 20, ..slc }).expect("the variant has it");
    let mut drive = Ssd::new(Parameters { slc: Some(slc), ..base.clone() }, 1);
    let (mut done, mut ends) = (Vec::new(), Vec::new());
    for id in 0..2048 {
        let now = ends.last().copied().unwrap_or(Instant::ZERO);
        drive.submit(now, command(id, Operation::Write, (u64::from(id) * 1024, 1024)));
        while done.is_empty() {
            let at = drive.next_event().expect("a write is under way");
            drive.advance(at, &mut done);
        }
        ends.extend(done.drain(..).map(|done: Done| done.at));
    }
    let rate = |from: usize, to: usize| {
        (((to - from) as u64) << 20) * 1_000_000 / ends[to].since(ends[from]).as_micros()
    };
    let (first, last) = (rate(300, 500), rate(1500, 2000));
    assert!(first.abs_diff(slc.drain) < slc.drain / 50, "{first}");
    assert!(last.abs_diff(base.drain) < base.drain / 50, "{last}");
}

/// Goal: with flash translation, fast flash is full when the drive is, and is freed in idle time. Method: a long write before
/// and after a second of rest, and without fast flash.
#[test]
fn rest_frees_fast_flash() {
    let slc = Some(Slc { size: 1 << 30, drain: 8_000_000_000 });
    let times = [slc, None].map(|slc| {
        let mut drive = Ssd::new(Parameters { slc, ..parameters(COLLECTING) }, 1);
        [0, 2_000_000_000].map(|start| {
            for id in 0..256 {
                drive.submit(
                    Instant(start),
                    command(id, Operation::Write, (u64::from(id) * 512, 512)),
                );
            }
            drain(&mut drive).last().unwrap().at.0 - start
        })
    });
    assert_eq!(times[0][0], times[1][0]);
    // 128 MiB at the link's 6.8 GB/s, without collection.
    assert!((19_000_000..21_000_000).contains(&times[0][1]), "{times:?}");
}

/// Goal: large reads take turns on the link, or not in the FIFO variant. Method: a small read after
/// a large one; its page is ready while the large one crosses.
#[test]
fn order_on_the_link() {
    let places = [LinkOrder::RoundRobin, LinkOrder::Fifo].map(|link_order| {
        let exact = exact(PLEXTOR).parameters.clone();
        let mut drive = Ssd::new(Parameters { link_order, read_buffer: 1 << 20, ..exact }, 1);
        drive.submit(Instant::ZERO, command(1, Operation::Read, (0, 256)));
        drive.submit(Instant::ZERO, command(2, Operation::Read, (256, 4)));
        let small = drain(&mut drive).iter().position(|done| done.id == 2).unwrap();
        (link_order, small)
    });
    assert_eq!(places, [(LinkOrder::RoundRobin, 0), (LinkOrder::Fifo, 1)]);
}

/// Goal: head of line: a small read waits until all pages of the large one in front were sent.
/// Method: with a buffer of 16 pages the last page goes out when page 16 has crossed.
#[test]
fn small_reads_wait_for_admission() {
    let mut drive = exact(PLEXTOR);
    drive.submit(Instant::ZERO, command(1, Operation::Read, (0, 256)));
    drive.submit(Instant::ZERO, command(2, Operation::Read, (256, 4)));
    let small = drain(&mut drive).iter().find(|done| done.id == 2).unwrap().at.0;
    let sent = 13_600 + 141_700 + 17 * 15_313;
    assert!(small >= sent + 141_700, "{small}");
}

/// Goal: with a deep queue a small read is overtaken, but only this often. Method: two large reads
/// before it and 29 after; the rule's count bounds how many pass, and so does its depth.
#[test]
fn deep_queue_overtaking() {
    let place = |overtakes| {
        let deep_queue = Some(DeepQueue { above: 24, overtakes });
        let mut drive = Ssd::new(Parameters { deep_queue, ..exact(PLEXTOR).parameters }, 1);
        for id in 0..32 {
            let kib = if id == 2 { 4 } else { 256 };
            drive.submit(Instant::ZERO, command(id, Operation::Read, (u64::from(id) * 512, kib)));
        }
        drain(&mut drive).iter().position(|done| done.id == 2).unwrap()
    };
    assert_eq!([0, 2, 100].map(place), [1, 3, 8]);
}

/// Goal: writes are completed at the link's rate until the cache is full, then at the drain's.
/// Method: 4 MB against a cache of 1 MB.
#[test]
fn cache_holds_back_writers() {
    let write_cache = 1_000_000;
    let mut drive = Ssd::new(Parameters { write_cache, ..exact(PLEXTOR).parameters }, 1);
    for id in 0..16 {
        drive.submit(Instant::ZERO, command(id, Operation::Write, (u64::from(id) * 256, 256)));
    }
    let done = drain(&mut drive);
    let at: Vec<u64> = done.iter().map(micros).collect();
    assert!(done.iter().map(|done| done.id).eq(0..16), "writes are completed in order");
    // Three fit: 490 us each on the link.
    assert_eq!((at[0], at[1], at[2]), (503, 993, 1483));
    // From then on two and two, for 64 units program two commands of 32 pages in 1357 us each time.
    for pair in at[3..].windows(2) {
        assert!((490..=867).contains(&(pair[1] - pair[0])), "{at:?}");
    }
    let rate = 12 * 262_144 / (at[15] - at[3]);
    assert!((385..=388).contains(&rate), "{rate} MB/s");
}

/// Goal: a cache that holds less than a page and a write, or less than the write, still makes
/// progress. Method: tiny caches, random writes.
#[test]
fn tiny_caches_do_not_hang() {
    for write_cache in [512, 4096, 8192, 12_288] {
        let mut drive = Ssd::new(Parameters { write_cache, ..parameters(PLEXTOR) }, 1);
        for id in 0..32 {
            let kib = 4 * (1 + u64::from(id % 5));
            drive.submit(Instant::ZERO, command(id, Operation::Write, (64 * u64::from(id), kib)));
        }
        assert_eq!(drain(&mut drive).len(), 32);
    }
}

/// Goal: a flush waits for all before it, makes it durable, and holds back all after it. Method:
/// write, flush, read, worked by hand: one padded page program and then the flush's own time.
#[test]
fn flush_orders_and_empties() {
    let mut drive = exact(PLEXTOR);
    drive.submit(Instant::ZERO, command(1, Operation::Write, (0, 4)));
    drive.submit(Instant::ZERO, command(2, Operation::Flush, (0, 0)));
    drive.submit(Instant::ZERO, command(3, Operation::Read, (512, 4)));
    let done = drain(&mut drive);
    let written = 13_600 + 7_657;
    let program = drive.parameters.page_program().0;
    let flushed = written + program + 2_100_000;
    let expected = [(1, written), (2, flushed), (3, flushed + 13_600 + 141_700 + 7_657)];
    assert_eq!(done.iter().map(|done| (done.id, done.at.0)).collect::<Vec<_>>(), expected);

    drive.submit(Instant(10_000_000), command(4, Operation::Flush, (0, 0)));
    assert_eq!(drain(&mut drive)[0].at.0, 12_100_000, "nothing to program: only its own time");
}

/// Goal: with a cache that is protected against loss of power neither a flush nor a durable write waits for flash.
/// Method: worked by hand beside a read: 2 us of firmware each, 4096 B at 6.8 GB/s, a flush's own 5 us.
#[test]
fn a_protected_cache_is_durable() {
    let mut drive = exact(PROTECTED);
    drive.submit(Instant::ZERO, command(1, Operation::Read, (512, 4)));
    let mut durable = command(2, Operation::Write, (0, 4));
    durable.flags = Flags::FUA;
    drive.submit(Instant::ZERO, durable);
    drive.submit(Instant::ZERO, command(3, Operation::Flush, (0, 0)));
    let done = drain(&mut drive);
    let expected = [(2, 3_000 + 603), (3, 5_000 + 5_000), (1, 1_000 + 68_000 + 603)];
    assert_eq!(done.iter().map(|done| (done.id, done.at.0)).collect::<Vec<_>>(), expected);
}

/// Goal: a durable write is completed after its program and a flush's time; others pass it. Method:
/// a durable and a plain write together.
#[test]
fn durable_writes() {
    let mut drive = exact(PLEXTOR);
    let mut durable = command(1, Operation::Write, (0, 4));
    durable.flags = Flags::FUA;
    drive.submit(Instant::ZERO, durable);
    drive.submit(Instant::ZERO, command(2, Operation::Write, (8, 4)));
    let done = drain(&mut drive);
    let program = drive.parameters.page_program().0;
    let at = 13_600 + 7_657 + program + 2_100_000;
    assert_eq!(done.iter().map(|done| (done.id, done.at.0)).collect::<Vec<_>>()[1], (1, at));
}

/// Goal: discards cost firmware time only; a command beyond the end is completed with an error.
/// Method: one of each.
#[test]
fn cheap_and_refused_commands() {
    let mut drive = exact(PLEXTOR);
    let end = drive.facts().capacity;
    drive.submit(Instant::ZERO, command(1, Operation::Discard, (0, 1 << 20)));
    drive.submit(Instant::ZERO, command(2, Operation::WriteZeroes, (0, 1 << 20)));
    let mut beyond = command(3, Operation::Read, (0, 4));
    beyond.start = end;
    drive.submit(Instant::ZERO, beyond);
    let done = drain(&mut drive);
    let seen: Vec<_> = done.iter().map(|done| (done.id, done.at.0, done.status)).collect();
    assert_eq!(seen, [(1, 13_600, 0), (2, 27_200, 0), (3, 40_800, EIO)]);
}

/// Goal: sectors that are given back need not be copied. Method: a burst of writes to a drive that was overwritten, after its
/// other half was discarded, written with zeroes, or read.
#[test]
fn discards_make_room() {
    let half = parameters(COLLECTING).capacity / 2048;
    let lasts = [Operation::Discard, Operation::WriteZeroes, Operation::Read].map(|operation| {
        let mut drive = Ssd::new(parameters(COLLECTING), 1);
        let length = if operation == Operation::Read { 4 } else { half };
        drive.submit(Instant::ZERO, command(0, operation, (half, length)));
        for id in 1..256 {
            drive.submit(
                Instant(1_000_000),
                command(id, Operation::Write, (u64::from(id) * 512, 512)),
            );
        }
        let done = drain(&mut drive);
        done.iter().filter(|done| done.id > 0).map(|done| done.at.0).max().unwrap()
    });
    assert!(lasts[0] == lasts[1] && lasts[0] * 4 < lasts[2] * 3, "{lasts:?}");
}

/// Goal: SATA's one link alternates, PCI Express carries both directions at once. Method: reads and
/// writes together against each alone.
#[test]
fn shared_and_separate_links() {
    for (duplex, together) in [(Duplex::Half, true), (Duplex::Full, false)] {
        let base = exact(PLEXTOR).parameters.clone();
        let mut drive =
            Ssd::new(Parameters { duplex, write_cache: 64 << 20, drain: 1 << 40, ..base }, 1);
        for id in 0..16 {
            let place = (u64::from(id) * 256, 256);
            let operation = if id % 2 == 0 { Operation::Read } else { Operation::Write };
            drive.submit(Instant::ZERO, command(id, operation, place));
        }
        let last = drain(&mut drive).last().unwrap().at.0;
        assert_eq!(last > 16 * 32 * 15_313, together, "{last}");
    }
}

/// Goal: nothing is allocated once warm. Method: the room of every queue before and after many
/// commands at full depth.
#[test]
fn memory_does_not_grow() {
    for name in ALL {
        let mut drive = Ssd::new(parameters(name), 1);
        let depth = drive.facts().depth;
        let mut random = Random::new(2, 2);
        let mut rooms = Vec::new();
        for round in 0..30 {
            for id in 0..depth {
                let operation = if id % 3 == 0 { Operation::Write } else { Operation::Read };
                let place = (random.below(1 << 20) * 4, 4 << random.below(5));
                let now = drive.now;
                drive.submit(Instant(now), command(id, operation, place));
            }
            drain(&mut drive);
            let own = [
                drive.waiting.capacity(),
                drive.firmware.capacity(),
                drive.setup.capacity(),
                drive.timers.capacity(),
                drive.completed.capacity(),
            ];
            let rest = [
                drive.slots.rooms(),
                drive.reads.rooms(),
                drive.writes.rooms(),
                drive.flash.rooms(),
            ];
            if round >= 10 {
                rooms.push((own, rest));
            }
        }
        assert!(rooms.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {rooms:?}");
    }
}
