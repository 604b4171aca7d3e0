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
fn two() -> Processors {
    let work = work(6, 4);
    let (client, worker, server) = (work, work, work);
    Processors {
        count: 2,
        idle_exit: us(10),
        client,
        worker,
        server,
        overlap: Nanos::ZERO,
        after_percent: 0,
    }
}

/// Goal: a lone request passes worker, server, drive, server and process, each of which wakes up on an idle processor. Method: 10
/// us of idleness and 6 of waking up, four times; 4 us of work, three times, of which half of the server's passes while the command
/// is in the drive; 90 us of the drive.
#[test]
fn a_lone_request_wakes_everyone() {
    let outcome = readers(1, 1, Some(two()));
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
    let server = Work { per_mib: us(400), ..two().server };
    run.host.turnaround = Nanos::ZERO;
    run.host.processors = Some(Processors { server, ..two() });
    assert_eq!(run_fixed(&run, us(90)).clients[0].latency.max(), 264_000);
    // What overlaps the drive's time costs a lone reader nothing, up to that time.
    run.host.processors = Some(Processors { server, overlap: us(320), ..two() });
    assert_eq!(run_fixed(&run, us(90)).clients[0].latency.max(), 184_000);
}

/// Goal: clients that are woken for each request get less than one client with as many requests in flight, because the latter
/// works in batches, and neither gets more than the processors have time for. Method: 64 clients, and one with 64 in flight.
#[test]
fn batches_save_processor_time() {
    let (many, deep) = (calls(&readers(64, 1, Some(two()))), calls(&readers(1, 64, Some(two()))));
    // A request takes at least 12 us of two processors.
    assert!(deep > many && deep <= 2_000_000 / 12, "{deep} {many}");
    assert!(many > 50_000, "{many}");
    let one = Processors { count: 1, ..two() };
    let alone = calls(&readers(1, 64, Some(one)));
    assert!(alone <= 1_000_000 / 12 && alone * 3 < deep * 2, "{alone} {deep}");
}

/// Goal: without time, processors change nothing. Method: all times zero, with and without.
#[test]
fn processors_without_costs_change_nothing() {
    let nothing = work(0, 0);
    let free = Processors {
        count: 1,
        idle_exit: Nanos::ZERO,
        client: nothing,
        worker: nothing,
        server: nothing,
        overlap: Nanos::ZERO,
        after_percent: 0,
    };
    for (count, depth) in [(1, 1), (5, 3)] {
        let (with, without) = (readers(count, depth, Some(free)), readers(count, depth, None));
        assert_eq!(calls(&with), calls(&without));
    }
}
