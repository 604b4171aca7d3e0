//! Small worlds on a drive whose every completion takes the same time, with times computed by hand; then
//! the measured rows on real profiles.

use iofair_core::contract::{Burst, Contract, Limits, Total};
use iofair_core::controller::{Dispatch, Submission};
use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;
use iofair_drive::stripe::Geometry;

use super::build::build;
use super::*;
use crate::error::RunError;
use crate::host;
use crate::observe::{Nobody, Observer, Recorder, Step};
use crate::run::{simulate, simulate_on, simulate_with};
use crate::scenario::{
    ClientSpec, Control, GroupSpec, Host, Job, JournalSpec, Layout, Pattern, StripeSpec, Writeback,
};
use crate::testing::{Fixed, client, job, kib, plain_host, scenario, us};

mod changes;
mod groups;
mod processors;
mod scheduling;

fn run_fixed(scenario: &Scenario, latency: Nanos) -> Outcome {
    simulate_on(scenario, Box::new(Fixed::new(latency, None)), &mut Nobody).unwrap()
}

/// Goal: a direct random reader's calls take turnaround plus drive, one after the other. Method: 110
/// us a call in 1.1 ms.
#[test]
fn a_direct_reader_by_hand() {
    let run = scenario(vec![client("a", job(Pattern::RandomRead, 4, false))], us(1_100));
    let outcome = run_fixed(&run, us(100));
    let reader = &outcome.clients[0];
    assert_eq!((reader.calls, reader.bytes), (10, 40_960));
    assert_eq!(reader.drive_bytes, Some(40_960));
    assert_eq!((reader.latency.min(), reader.latency.max()), (110_000, 110_000));
    assert_eq!(outcome.drive.read_bytes, 40_960);
    assert_eq!(outcome.drive.busy, us(1_000));
}

/// Goal: where the ramp hides it clients start one after the other, by chance, the same for the same seed; else when
/// they say, and so does what runs only in front of the others. Method: four readers 2 ms apart and one that stops;
/// when each first sends, under two seeds, with a ramp longer and one shorter.
#[test]
fn starts_are_apart_behind_the_ramp() {
    let starts = |ramp_ms, seed| {
        let mut clients: Vec<_> = (0..5).map(|_| reader(4)).collect();
        clients[4].stop = Some(us(1));
        let mut run = scenario(clients, us(1_000));
        (run.seed, run.ramp) = (seed, Nanos::from_millis(ramp_ms));
        run.host.start_apart = us(2_000);
        let mut recorder = Recorder::default();
        simulate_on(&run, Box::new(Fixed::new(us(100), None)), &mut recorder).unwrap();
        let mut starts = [u64::MAX; 5];
        for step in &recorder.steps {
            if let Step::Submit(at, submission) = step {
                let start = &mut starts[submission.client.index()];
                *start = at.0.min(*start);
            }
        }
        starts
    };
    let [first, second] = [1, 2].map(|seed| starts(20, seed));
    for (actor, start) in (0..4).zip(first) {
        let from = 2_000_000 * actor;
        assert!((from..from + 2_100_000).contains(&start), "{first:?}");
    }
    assert!(first[4] < 100_000, "the one in front: {first:?}");
    assert_ne!(first, second);
    assert_eq!(first, starts(20, 1));
    assert!(starts(1, 1).iter().all(|at| *at < 100_000));
}

/// Goal: think time lies between calls and not in their latency. Method: 90 us of it.
#[test]
fn think_time_by_hand() {
    let thinking = Job { think: us(90), ..job(Pattern::RandomRead, 4, false) };
    let outcome = run_fixed(&scenario(vec![client("a", thinking)], us(1_999)), us(100));
    assert_eq!(outcome.clients[0].calls, 10, "the tenth ends at 9 * 200 + 110");
    assert_eq!(outcome.clients[0].latency.max(), 110_000);
}

/// Goal: depth keeps calls in flight, the processor takes them up one by one. Method: depth 4.
#[test]
fn depth_by_hand() {
    let deep = Job { depth: 4, ..job(Pattern::RandomRead, 4, false) };
    let outcome = run_fixed(&scenario(vec![client("a", deep)], us(250)), us(100));
    // Sent at 10, 20, 30, 40; completed at 110 to 140, sent again 10 us later, completed at 220 to 250.
    assert_eq!(outcome.clients[0].calls, 8);
}

/// Goal: asynchronous writes into holes are not: the call waits. Method: depth 4 into a file that is
/// there, and into one that starts as a hole.
#[test]
fn writes_into_holes_wait() {
    let under_way = |sparse_writes| {
        let deep = Job { depth: 4, ..job(Pattern::RandomWrite, 64, false) };
        let mut run = scenario(vec![client("a", deep)], us(5_000));
        run.host.layout = Layout::Ext3 { base_permille: 20, cold_percent: 0, sparse_writes };
        let mut recorder = Recorder::default();
        simulate_on(&run, Box::new(Fixed::new(us(500), None)), &mut recorder).unwrap();
        let change = |step: &Step| match step {
            Step::Submit(..) => 1,
            Step::Completion(..) => -1,
            Step::Dispatch(..) => 0,
        };
        let counts = recorder.steps.iter().scan(0, |sum, step| {
            *sum += change(step);
            Some(*sum)
        });
        counts.max().expect("something was sent")
    };
    assert_eq!((under_way(false), under_way(true)), (4, 1));
}

/// Goal: read-ahead as described: two windows in flight while waiting, one while copying. Method:
/// 1 ms a request, 640 us a window; every window but the first is waited for 360 us.
#[test]
fn read_ahead_by_hand() {
    let run = Scenario { time: us(4_000), ..scenario(vec![reader(4)], us(0)) };
    let mut recorder = Recorder::default();
    let mut run = run;
    run.host.consume_window = us(640);
    let drive = Box::new(Fixed::new(us(1_000), None));
    let outcome = simulate_on(&run, drive, &mut recorder).unwrap();
    let sent: Vec<(u64, u64)> = recorder.steps.iter().filter_map(submitted).collect();
    // Windows 0 and 1 at once. At 1000 both are there; 0 is copied until about 1640, then 1 is touched
    // (2 sent) and copied until 2280; 2 is touched (3 sent), waited for until 2640, and so on.
    assert_eq!(sent[0], (0, 0));
    assert_eq!(sent[1], (0, 512));
    let near = |at: u64, wanted: u64| at.abs_diff(wanted * 1_000) <= 64_000;
    assert!(near(sent[2].0, 1_640) && sent[2].1 == 1_024, "{sent:?}");
    assert!(near(sent[3].0, 2_280) && sent[3].1 == 1_536, "{sent:?}");
    assert!(near(sent[4].0, 3_280) && sent[4].1 == 2_048, "{sent:?}");
    let latency = &outcome.clients[0].latency;
    assert!(near(latency.max(), 1_010), "the first call waits for its window: {}", latency.max());
    assert!((9_000..=11_000).contains(&latency.quantile(500_000)));
    let calls = outcome.clients[0].calls;
    assert!((64 * 3..=64 * 4).contains(&calls), "{calls}");
}

fn reader(block_kib: u64) -> ClientSpec {
    client("reader", job(Pattern::SequentialRead, block_kib, true))
}

fn submitted(step: &Step) -> Option<(u64, u64)> {
    match step {
        Step::Submit(at, submission) => Some((at.0, submission.start.0)),
        _ => None,
    }
}

/// Goal: blocks larger or odder than a window read the same bytes at the same speed, and the file's end
/// is passed. Method: several sizes over a small file.
#[test]
fn any_block_reads_the_file_round() {
    let bytes = |block_kib| {
        let mut reader = reader(block_kib);
        reader.file_size = kib(3_000);
        let run = scenario(vec![reader], Nanos::from_millis(200));
        run_fixed(&run, us(300)).clients[0].bytes
    };
    let small = bytes(4);
    assert!(small > 40_000_000);
    for block_kib in [1, 96, 256, 300, 1_000] {
        let other = bytes(block_kib);
        assert!(small.abs_diff(other) < small / 20, "{block_kib} KiB: {other}, not {small}");
    }
}

/// Goal: `fdatasync` waits for the write and the flush; flushes of several writers share a command.
/// Method: 100 us each for write and flush, one writer and four.
#[test]
fn fdatasync_by_hand() {
    let syncing = Job { fdatasync_every: 1, ..job(Pattern::SequentialWrite, 4, true) };
    let one = run_fixed(&scenario(vec![client("a", syncing.clone())], us(2_150)), us(100));
    // 10 us turnaround, 5 us to copy, 100 + 100 on the drive: 215 us a round.
    assert_eq!(one.clients[0].calls, 10);
    let sync = &one.clients[0].sync_latency;
    assert_eq!((sync.count(), sync.min(), sync.max()), (10, 200_000, 200_000));
    assert_eq!(one.drive.commands, 20);
    let four = vec![ClientSpec { processes: 4, ..client("a", syncing) }];
    let four = run_fixed(&scenario(four, us(2_150)), us(100));
    assert_eq!(four.clients.len(), 4);
    assert_eq!(four.clients[3].name, "a.3");
    assert_eq!(four.drive.commands, 50, "ten rounds of four writes and one flush");
}

/// Goal: `fdatasync` waits for its data, then for the journal's blocks and record, with flushes around the
/// record if there are barriers; who asks during a commit shares the next one. Method: 100 us each,
/// buffered and direct, one process and four, blocks of a page and less.
#[test]
fn journals_by_hand() {
    let run = |buffered, barrier, processes, block: u64| {
        let mut syncing = Job { fdatasync_every: 1, ..job(Pattern::SequentialWrite, 4, buffered) };
        syncing.block = Sectors(block);
        let writers = ClientSpec { processes, ..client("a", syncing) };
        let mut run = scenario(vec![writers], us(3_199));
        run.host.produce_window = Nanos::ZERO;
        run.host.journal = Some(JournalSpec { group: String::new(), barrier });
        run_fixed(&run, us(100))
    };
    // 10 us turnaround, data, blocks, record: 310 us a round.
    let one = run(true, false, 1, 8);
    let sync = &one.clients[0].sync_latency;
    assert_eq!((sync.count(), sync.min(), sync.max()), (10, 300_000, 300_000));
    // A page of data, a descriptor, the file's metadata, the record.
    assert_eq!(one.drive.written_bytes, 10 * 4 * 4096);
    assert_eq!(one.clients[0].drive_bytes, Some(10 * 4096), "the journal's blocks are nobody's");
    let small = run(true, false, 1, 1);
    assert_eq!((small.clients[0].bytes, small.drive.written_bytes), (11 * 512, 10 * 4 * 4096));
    let flushed = run(true, true, 1, 8);
    assert_eq!(flushed.clients[0].sync_latency.max(), 500_000);
    let direct = run(false, false, 1, 8);
    assert_eq!(direct.clients[0].sync_latency.max(), 200_000);
    let four = run(true, false, 4, 8);
    assert!(four.clients.iter().all(|client| client.sync_latency.count() >= 6), "{four:?}");
    assert!(four.clients.iter().all(|client| client.sync_latency.max() <= 500_000));
}

/// Goal: the same for direct writes, every third one. Method: count flushes.
#[test]
fn direct_fdatasync_by_hand() {
    let syncing = Job { fdatasync_every: 3, ..job(Pattern::RandomWrite, 4, false) };
    let outcome = run_fixed(&scenario(vec![client("a", syncing)], us(860)), us(100));
    // Three writes of 110 us and a flush of 100: 430 us.
    assert_eq!((outcome.clients[0].calls, outcome.clients[0].sync_latency.count()), (6, 2));
    assert_eq!(outcome.drive.commands, 8);
    assert_eq!(outcome.drive.written_bytes, 6 * 4096);
}

/// Goal: a rate is kept to the byte, direct and buffered, small blocks and large. Method: 10 MB/s for
/// 10 s after a ramp.
#[test]
fn rates_are_kept() {
    for (pattern, buffered, block_kib) in [
        (Pattern::RandomRead, false, 4),
        (Pattern::SequentialRead, true, 4),
        (Pattern::SequentialRead, true, 10_000),
        (Pattern::SequentialWrite, true, 4),
    ] {
        let paced = Job { rate: Some(10_000_000), ..job(pattern, block_kib, buffered) };
        let mut run = scenario(vec![client("a", paced)], Nanos::from_secs(10));
        run.ramp = Nanos::from_secs(2);
        let outcome = run_fixed(&run, us(100));
        let (bytes, block) = (outcome.clients[0].bytes, block_kib * 1024);
        assert!(bytes.abs_diff(100_000_000) <= block, "{pattern:?} {block_kib}: {bytes}");
    }
}

/// Goal: blocks of 10,000 KiB at 50 MB/s make a reader on/off. Method: count what the drive is busy.
#[test]
fn large_blocks_at_a_rate_are_on_off() {
    let paced = Job { rate: Some(50_000_000), ..job(Pattern::SequentialRead, 10_000, true) };
    let outcome = run_fixed(&scenario(vec![client("a", paced)], Nanos::from_secs(10)), us(100));
    let got = outcome.clients[0].bytes / 10;
    assert!(got.abs_diff(50_000_000) < 1_100_000, "{got}");
    // 40 windows of 640 us in each 205 ms.
    let latency = outcome.clients[0].latency.mean();
    assert!((24_000_000..28_000_000).contains(&latency), "{latency}");
}

/// Goal: on/off clients work their share of the time. Method: 30 ms on, 70 ms off, direct reads.
#[test]
fn on_off_clients_have_their_mean() {
    let on_off = Some((Nanos::from_millis(30), Nanos::from_millis(70)));
    let sporadic = Job { on_off, ..job(Pattern::RandomRead, 4, false) };
    let outcome = run_fixed(&scenario(vec![client("a", sporadic)], Nanos::from_secs(100)), us(90));
    let share = outcome.clients[0].calls * 100 / 1_000_000;
    assert!((28..=32).contains(&share), "{share} %");
}

/// Goal: dirty pages never pass their limit, and writers get the drive's rate between them. Method:
/// four writers on 100 MB/s with 64 MiB allowed; look after every step.
#[test]
fn dirty_pages_stay_below_the_limit() {
    let writer = client("w", job(Pattern::SequentialWrite, 4, true));
    let mut run = scenario(vec![ClientSpec { processes: 4, ..writer }], Nanos::from_secs(10));
    run.ramp = Nanos::from_secs(5);
    run.host.memory = 320 << 20;
    let drive = Box::new(Fixed::new(us(100), Some(100_000_000)));
    let mut nobody = Nobody;
    let mut world = build(&run, vec![drive], &mut nobody).unwrap();
    let mut peak = 0;
    while world.step() {
        peak = peak.max(world.cache.load());
        assert!(peak <= 64 << 20, "{peak} bytes dirty at {:?}", world.engine.now);
    }
    assert!(peak > 40 << 20);
    let outcome = world.finish();
    let written = outcome.drive.written_bytes / 10;
    assert!(written > 98_000_000, "{written}");
    let each: Vec<u64> = outcome.clients.iter().map(|c| c.bytes / 10).collect();
    assert!(each.iter().all(|rate| (20_000_000..30_000_000).contains(rate)), "{each:?}");
    let at_the_drive: Option<u64> = outcome.clients.iter().map(|client| client.drive_bytes).sum();
    assert_eq!(
        at_the_drive,
        Some(outcome.drive.written_bytes),
        "each writer's pages are counted as its own"
    );
}

/// Goal: what a writer leaves in the page cache is not counted at the drive. Method: less than the background limit, and no
/// time for pages to expire.
#[test]
fn pages_in_memory_do_not_count_at_the_drive() {
    let writer = client("a", Job { rate: Some(1 << 20), ..job(Pattern::SequentialWrite, 4, true) });
    let outcome = run_fixed(&scenario(vec![writer], Nanos::from_secs(2)), us(100));
    assert!(outcome.clients[0].bytes > 1 << 20);
    assert_eq!((outcome.clients[0].drive_bytes, outcome.drive.written_bytes), (Some(0), 0));
}

/// Goal: dirty pages below the background limit are written after 30 s. Method: one early burst.
#[test]
fn old_dirty_pages_are_written() {
    let once = Job { rate: Some(4096), ..job(Pattern::SequentialWrite, 4, true) };
    let outcome = run_fixed(&scenario(vec![client("a", once)], Nanos::from_secs(36)), us(100));
    assert!(outcome.drive.written_bytes >= 30 * 4096, "{:?}", outcome.drive);
}

/// Goal: same seed, same run to the last byte; another seed, another run with the same rates. Method:
/// one random reader beside four sequential ones on a real profile.
#[test]
fn a_run_depends_on_its_seed_only() {
    let mut run = published(4);
    run.time = Nanos::from_secs(2);
    let (first, again) = (simulate(&run).unwrap(), simulate(&run).unwrap());
    assert_eq!(first, again);
    run.seed = 2;
    let other = simulate(&run).unwrap();
    assert_ne!(first.trace_hash, other.trace_hash);
    for (a, b) in first.clients.iter().zip(&other.clients) {
        assert!(a.bytes.abs_diff(b.bytes) <= a.bytes / 50 + 65_536, "{} {}", a.bytes, b.bytes);
    }
}

/// Goal: asking all parts at any time changes nothing. Method: poke between events, at random.
#[test]
fn random_wake_ups_change_nothing() {
    let mut run = published(4);
    (run.ramp, run.time) = (Nanos::ZERO, Nanos::from_millis(300));
    let calm = simulate(&run).unwrap();
    let drive = iofair_drive::profile::load(&run.drive, run.seed).unwrap();
    let mut nobody = Nobody;
    let mut world = build(&run, vec![drive], &mut nobody).unwrap();
    let mut random = Random::new(9, 9);
    let mut pokes = 0;
    loop {
        let next = world.engine.next_event(world.end).unwrap_or(world.end);
        let idle = next.since(world.engine.now).0;
        if idle > 1 {
            for _ in 0..random.below(3) {
                let at = world.engine.now.0 + random.below(next.0 - world.engine.now.0);
                world.engine.now = Instant(at);
                world.engine.poke();
                pokes += 1;
            }
        }
        if !world.step() {
            break;
        }
    }
    assert!(pokes > 1_000);
    assert_eq!(world.finish(), calm);
}

/// The workload of the measured rows: one 4 KiB random reader beside `readers` sequential ones, on the
/// PLEXTOR.
fn published(readers: u32) -> Scenario {
    let target = client("target", job(Pattern::RandomRead, 4, true));
    let interferers = ClientSpec { processes: readers, ..reader(4) };
    let clients = if readers > 0 { vec![interferers, target] } else { vec![target] };
    let mut run = scenario(clients, Nanos::from_secs(4));
    run.ramp = Nanos::from_secs(1);
    run.host = host::host_2018();
    run
}

/// Bytes a second of the last client in kB as fio prints them, and of the drive in MiB.
fn rates(run: &Scenario) -> (u64, u64) {
    let outcome = simulate(run).unwrap();
    let seconds = outcome.time.0 / 1_000_000_000;
    let last = outcome.clients.last().expect("somebody").bytes;
    (last / 1024 / seconds, (outcome.drive.read_bytes >> 20) / seconds)
}

/// Goal: the drive profile and this host give the published rows without a scheduler. Method:
/// lab/docs/drives.md, within 20 % for the target and 5 % for the total.
#[test]
fn the_plextor_rows_come_out() {
    let (alone, _) = rates(&published(0));
    assert!((22_000..=23_500).contains(&alone), "a random reader alone: {alone} KiB/s");
    let mut lone = published(1);
    lone.clients.pop();
    let (_, total) = rates(&lone);
    assert!((388..=416).contains(&total), "a sequential reader alone: {total} MiB/s");
    for (readers, target, total) in [(4, 1_360, 510), (7, 680, 510), (15, 149, 510)] {
        let (got, all) = rates(&published(readers));
        assert!(got.abs_diff(target) <= target / 5, "{readers} readers: target {got} KiB/s");
        assert!(all.abs_diff(total) <= total / 20, "{readers} readers: total {all} MiB/s");
    }
}

/// Goal: what cannot be run is refused in words. Method: one of each.
#[test]
fn bad_scenarios_are_refused() {
    let good = scenario(vec![reader(4)], us(10));
    let refusal = |change: fn(&mut Scenario)| {
        let mut bad = good.clone();
        change(&mut bad);
        simulate(&bad).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refusal(|s| s.drive = "abacus".into()).contains("abacus"));
    assert!(refusal(|s| s.clients[0].group = "nobody".into()).contains("no group \"nobody\""));
    assert!(refusal(|s| s.clients[0].job.block = Sectors::ZERO).contains("a block is"));
    assert!(refusal(|s| s.clients[0].job.depth = 2).contains("need direct access"));
    assert!(refusal(|s| s.clients[0].job.rate = Some(0)).contains("a rate is"));
    assert!(refusal(|s| s.clients.clear()).contains("0 processes"));
    assert!(refusal(|s| s.host.read_ahead = Sectors::ZERO).contains("read-ahead"));
    assert!(refusal(|s| s.clients[0].file_size = kib(1 << 40)).contains("do not fit"));
    let none = simulate(&Scenario { clients: Vec::new(), ..good.clone() });
    assert!(matches!(none, Err(RunError::Processes { given: 0, .. })));
}
