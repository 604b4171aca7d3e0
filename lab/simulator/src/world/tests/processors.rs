//! Processors that processes and path share.

use super::*;
use crate::scenario::{Processors, Work};

/// Threads that take this long for a turn, and this long for a request.
fn work(turn: u64, request: u64) -> Work {
    Work { turn: us(turn), request: us(request), per_mib: Nanos::ZERO }
}

/// Direct random readers for a second, on a drive that takes 90 us.
fn readers(count: u32, depth: u32, processors: Option<Processors>) -> Outcome {
    let mut reader = client("reader", job(Pattern::RandomRead, 4, false));
    (reader.processes, reader.job.depth) = (count, depth);
    let mut run = scenario(vec![reader], Nanos::from_secs(1));
    (run.host.turnaround, run.host.processors) = (Nanos::ZERO, processors);
    run_fixed(&run, us(90))
}
fn calls(outcome: &Outcome) -> u64 {
    outcome.clients.iter().map(|client| client.calls).sum()
}
fn two_processors() -> Processors {
    let work = work(6, 4);
    let (client, worker, server) = (work, work, work);
    Processors {
        count: 2,
        idle_exit: us(10),
        client,
        worker,
        server,
        overlap: Nanos::ZERO,
        new_pages: Nanos::ZERO,
        after_percent: 0,
    }
}

/// Goal: a lone request passes worker, server, drive, server and process, each of which wakes up on an idle processor. Method: 10
/// us of idleness and 6 of waking up, four times; 4 us of work, three times, of which half of the server's passes while the command
/// is in the drive; 90 us of the drive.
#[test]
fn a_lone_request_wakes_everyone() {
    let outcome = readers(1, 1, Some(two_processors()));
    assert_eq!(outcome.clients[0].latency.max(), 164_000);
    assert_eq!(calls(&outcome), 1_000_000 / 164);
}

/// Goal: large requests take longer, where the time of a MiB is known. Method: 256 KiB, and 400 us for a MiB in the server; the
/// same if 320 us of it pass while the command is in the drive.
#[test]
fn bytes_take_time() {
    let mut reader = client("reader", job(Pattern::RandomRead, 256, false));
    reader.job.depth = 1;
    let mut run = scenario(vec![reader], Nanos::from_secs(1));
    let server = Work { per_mib: us(400), ..two_processors().server };
    run.host.turnaround = Nanos::ZERO;
    run.host.processors = Some(Processors { server, ..two_processors() });
    assert_eq!(run_fixed(&run, us(90)).clients[0].latency.max(), 264_000);
    // What overlaps the drive's time costs a lone reader nothing, up to that time.
    run.host.processors = Some(Processors { server, overlap: us(320), ..two_processors() });
    assert_eq!(run_fixed(&run, us(90)).clients[0].latency.max(), 184_000);
}

/// Goal: clients that are woken for each request get less than one client with as many requests in flight, because the latter
/// works in batches, and neither gets more than the processors have time for. Method: 64 clients, and one with 64 in flight.
#[test]
fn batches_save_processor_time() {
    let (many, deep) = (
        calls(&readers(64, 1, Some(two_processors()))),
        calls(&readers(1, 64, Some(two_processors()))),
    );
    // A request takes at least 12 us of two processors.
    assert!(deep > many && deep <= 2_000_000 / 12, "{deep} {many}");
    assert!(many > 50_000, "{many}");
    let one = Processors { count: 1, ..two_processors() };
    let alone = calls(&readers(1, 64, Some(one)));
    assert!(alone <= 1_000_000 / 12 && alone * 3 < deep * 2, "{alone} {deep}");
}

/// Goal: without time, processors change nothing. Method: all times zero, with and without.
#[test]
fn processors_without_costs_change_nothing() {
    for (count, depth) in [(1, 1), (5, 3)] {
        let (with, without) = (readers(count, depth, Some(free(1))), readers(count, depth, None));
        assert_eq!(calls(&with), calls(&without));
    }
}

/// Threads that take no time, on this many processors.
fn free(count: u32) -> Processors {
    let (client, worker, server) = (work(0, 0), work(0, 0), work(0, 0));
    Processors { count, idle_exit: Nanos::ZERO, client, worker, server, ..two_processors() }
}

/// Goal: copies out of the page cache share the processors, and what a call waits for one is part of its time. Method: two readers
/// that copy 256 KiB in 640 us, on one processor and on two.
#[test]
fn copies_share_the_processors() {
    let windows = |count: u32| {
        let mut reader = client("reader", job(Pattern::SequentialRead, 4, true));
        reader.processes = 2;
        let mut run = scenario(vec![reader], Nanos::from_secs(1));
        run.host.processors = Some(free(count));
        let outcome = run_fixed(&run, us(90));
        for client in &outcome.clients {
            let inside = client.latency.mean() * client.calls;
            assert!((950_000_000..=1_010_000_000).contains(&inside), "{inside}");
        }
        outcome.clients.iter().map(|client| client.bytes).sum::<u64>() >> 18
    };
    let (one, both) = (windows(1), windows(2));
    assert!((1_500..=1_590).contains(&one), "{one}");
    assert!((3_000..=3_180).contains(&both), "{both}");
}

/// Goal: the flusher collects pages before it sends them, in its own time. Method: a writer that copies 256 KiB in 320 us; the flusher
/// takes no time, or 1 ms, alone and on a processor that it shares with the writer.
#[test]
fn a_flusher_takes_its_time() {
    let windows = |collect: u64, processors: Option<Processors>| {
        let writer = client("writer", job(Pattern::SequentialWrite, 4, true));
        let mut run = scenario(vec![writer], Nanos::from_secs(1));
        (run.host.memory, run.host.collect_window) = (64 << 20, us(collect));
        run.host.processors = processors;
        run_fixed(&run, us(90)).drive.written_bytes >> 18
    };
    let (free_of_time, alone) = (windows(0, None), windows(1_000, None));
    assert!(free_of_time > 2_000 && (900..=1_000).contains(&alone), "{free_of_time} {alone}");
    let shared = windows(1_000, Some(free(1)));
    // Each window takes 1,320 us of the one processor.
    assert!((600..=780).contains(&shared), "{shared}");
}

/// Goal: what is read into the page cache takes the server more time than what is read into a client's buffer. Method: 400 us a MiB.
#[test]
fn new_pages_take_time() {
    let calls_of = |buffered: bool| {
        let reader = client("reader", job(Pattern::RandomRead, 256, buffered));
        let mut run = scenario(vec![reader], Nanos::from_secs(1));
        run.host.turnaround = Nanos::ZERO;
        run.host.processors = Some(Processors { new_pages: us(400), ..two_processors() });
        run_fixed(&run, us(90)).clients[0].latency.max()
    };
    assert_eq!((calls_of(false), calls_of(true)), (164_000, 264_000));
}

/// Goal: the time of copies holds what a reader does for completions. Method: a lone reader, with and without time of a client's
/// requests.
#[test]
fn completions_are_part_of_copies() {
    let windows = |client: Work| {
        let reader = super::client("reader", job(Pattern::SequentialRead, 4, true));
        let mut run = scenario(vec![reader], Nanos::from_secs(1));
        run.host.processors = Some(Processors { client, ..free(2) });
        run_fixed(&run, us(90)).clients[0].bytes
    };
    assert_eq!(windows(work(0, 0)), windows(work(0, 300)));
}
