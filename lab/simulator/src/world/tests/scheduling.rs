//! What schedulers cost: time under their lock, and a dispatcher that has to be woken.

use super::*;
use crate::scenario::Scheduling;
use iofair_baselines::TABLE;

const TIMES: &[(&str, Nanos)] = &[("mq-deadline", Nanos(25_000)), ("none", Nanos(25_000))];

/// Direct random readers, as many as asked for, beside this cost.
fn readers(stack: &str, processes: u32, scheduling: Scheduling) -> Outcome {
    let mut reader = client("reader", job(Pattern::RandomRead, 4, false));
    reader.processes = processes;
    let mut run = scenario(vec![reader], Nanos::from_secs(1));
    run.stack = TABLE.stack(stack).unwrap();
    run.host.scheduling = scheduling;
    run_fixed(&run, us(90))
}
fn calls(outcome: &Outcome) -> u64 {
    outcome.clients.iter().map(|client| client.calls).sum()
}

/// Goal: a request takes its scheduler's time, by the scheduler's name; without a scheduler it takes none.
/// Method: a reader whose call takes 100 us, and 25 us more.
#[test]
fn a_request_takes_its_time_in_the_scheduler() {
    let costly = Scheduling { times: TIMES, ..Scheduling::FREE };
    assert_eq!(calls(&readers("none-kyber", 1, costly)), 10_000);
    assert_eq!(calls(&readers("none-mq-deadline", 1, costly)), 8_000);
    assert_eq!(calls(&readers("none-none", 1, costly)), 10_000);
    let all = Scheduling { time: Some(us(100)), ..costly };
    assert_eq!(calls(&readers("none-mq-deadline", 1, all)), 5_000);
    assert_eq!(calls(&readers("none-none", 1, all)), 10_000);
}

/// Goal: the lock lets one request through at a time. Method: 16 readers that could make 160,000 calls
/// in the second that is measured, 20 us a request.
#[test]
fn requests_pass_the_lock_one_by_one() {
    let costly = Scheduling { time: Some(us(20)), ..Scheduling::FREE };
    let made = calls(&readers("none-mq-deadline", 16, costly));
    assert!((49_900..=50_001).contains(&made), "{made}");
}

/// Goal: no request is longer than the kernel's limit, split or merged. Method: reads of 512 KiB one after the other, and
/// 64 reads of 4 KiB that follow each other, of which a drive takes 4 and a scheduler merges the rest.
#[test]
fn the_kernels_limit_bounds_what_is_split_and_merged() {
    let mean_kib = |block: u64, depth: u32, max_request: Sectors| {
        let job = Job { depth, ..job(Pattern::SequentialRead, block, false) };
        let mut run = scenario(vec![client("reader", job)], Nanos::from_secs(1));
        run.stack = TABLE.stack("none-mq-deadline").unwrap();
        (run.tags, run.host.max_request) = (Some(128), max_request);
        let mut drive = Fixed::new(us(100), Some(40 << 20));
        drive.facts.depth = 4;
        let drive = simulate_on(&run, Box::new(drive), &mut Nobody).unwrap().drive;
        (drive.read_bytes / drive.commands) >> 10
    };
    let free = Sectors(u64::MAX);
    assert_eq!((mean_kib(512, 1, free), mean_kib(512, 1, kib(128))), (512, 128));
    assert!(mean_kib(4, 64, free) > 16 && mean_kib(4, 64, kib(16)) <= 16);
}

/// Goal: where completions do not cause a dispatch by themselves, nothing is lost and only BFQ, which holds requests on
/// purpose, does other things. Method: five random readers, and buffered writers who fill the drive.
#[test]
fn only_schedulers_that_request_a_dispatch_get_one() {
    let quiet = Scheduling { on_completion: false, ..Scheduling::FREE };
    let written = |stack: &str, scheduling: Scheduling| {
        let mut writer = client("writer", job(Pattern::SequentialWrite, 4, true));
        writer.processes = 3;
        let mut run = scenario(vec![writer], Nanos::from_secs(1));
        run.stack = TABLE.stack(stack).unwrap();
        run.host = Host { scheduling, memory: 256 << 20, writeback_request: kib(128), ..run.host };
        run_fixed(&run, us(2_000)).drive.written_bytes
    };
    for stack in ["none-none", "none-mq-deadline", "none-kyber", "none-bfq", "none-bfq-4.18"] {
        assert_eq!(written(stack, quiet), written(stack, Scheduling::FREE), "{stack}");
        let read = |scheduling| calls(&readers(stack, 5, scheduling));
        assert!(read(quiet) > 40_000, "{stack}");
    }
    // One class before the other: the first is waited for, and the others are injected meanwhile, or not.
    let held = |scheduling| {
        let reader = |name| client(name, job(Pattern::RandomRead, 4, false));
        let (mut first, mut other) = (reader("first"), reader("other"));
        first.priority.class = iofair_core::priority::Class::RealTime;
        other.processes = 3;
        let mut run = scenario(vec![first, other], Nanos::from_secs(1));
        run.stack = TABLE.stack("none-bfq-5.3").unwrap();
        run.host.scheduling = scheduling;
        let outcome = run_fixed(&run, us(90));
        outcome.clients.iter().map(|client| client.calls).collect::<Vec<_>>()
    };
    let (all, few) = (held(Scheduling::FREE), held(quiet));
    assert!(all[1] > few[1], "{all:?} {few:?}");
}

/// Goal: a process that sleeps is woken, which counts as latency, and one that has something to do is not. Method: a reader
/// with one and with two calls in flight, 90 us in the drive, 10 us between calls and 100 us to wake up.
#[test]
fn sleepers_are_woken() {
    let read = |depth: u32| {
        let mut reader = client("reader", job(Pattern::RandomRead, 4, false));
        reader.job.depth = depth;
        let mut run = scenario(vec![reader], Nanos::from_secs(1));
        run.host.process_wakeup = us(100);
        run_fixed(&run, us(90))
    };
    let alone = read(1);
    assert_eq!(calls(&alone), 5_000);
    assert!(alone.clients[0].latency.mean().abs_diff(200_000) < 2_000, "{:?}", alone.clients[0]);
    let two = calls(&read(2));
    assert!((9_500..=10_001).contains(&two), "{two}");
}

/// Goal: a queue that holds something back runs again at the second tick after it sent something, and no earlier. Method: two
/// readers under BFQ without injection, the first of them of a higher class and so waited for until it stops; the times without
/// a request or a completion at which the engine was asked.
#[test]
fn a_queue_runs_again_at_the_second_tick() {
    let reader = |name| client(name, job(Pattern::RandomRead, 4, false));
    let (mut first, other) = (reader("first"), reader("other"));
    first.priority.class = iofair_core::priority::Class::RealTime;
    first.stop = Some(Nanos::from_millis(41));
    let mut run = scenario(vec![first, other], Nanos::from_millis(100));
    run.stack = TABLE.stack("none-bfq").unwrap();
    run.stack.scheduler.values.set("injection", "false").unwrap();
    // Longer than two ticks.
    run.stack.scheduler.values.set("slice_idle", "30ms").unwrap();
    let tick = Nanos(4_000_333);
    run.host.scheduling = Scheduling { on_completion: false, again: tick, ..Scheduling::FREE };
    let mut recorder = Recorder::default();
    simulate_on(&run, Box::new(Fixed::new(us(90), None)), &mut recorder).unwrap();
    let ticks = recorder.steps.iter().filter_map(|step| match step {
        Step::Dispatch(now, None) if now.0.is_multiple_of(tick.0) => Some(now.0 / tick.0),
        _ => None,
    });
    // The last request goes out just before 41 ms, in the tenth tick; 30 ms later the other reader is served.
    assert_eq!(ticks.collect::<Vec<_>>(), [12, 14, 16]);
}

/// Goal: what waits for room in the drive waits for the dispatcher's thread too, with the schedulers of
/// blk-mq only. Method: a buffered writer whose flusher has more requests than the drive takes, and a
/// thread that comes 20 ms late.
#[test]
fn the_dispatcher_is_woken() {
    let late = Scheduling { wakeup: Nanos::from_millis(20), ..Scheduling::FREE };
    let written = |stack: &str, scheduling: Scheduling| {
        let writer = client("writer", job(Pattern::SequentialWrite, 4, true));
        let mut run = scenario(vec![writer], Nanos::from_secs(2));
        run.stack = TABLE.stack(stack).unwrap();
        run.host = Host { scheduling, memory: 256 << 20, writeback_request: kib(128), ..run.host };
        run_fixed(&run, us(20_000)).drive.written_bytes
    };
    for stack in ["none-none", "none-deadline"] {
        assert_eq!(written(stack, late), written(stack, Scheduling::FREE), "{stack}");
    }
    let (soon, slow) =
        (written("none-mq-deadline", Scheduling::FREE), written("none-mq-deadline", late));
    assert!(soon * 5 > slow * 6, "{soon} {slow}");
}
