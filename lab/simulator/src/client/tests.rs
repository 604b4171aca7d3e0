//! Copies, start-ups and processes that share a file, on a drive whose every completion takes the same time,
//! with times computed by hand.

use std::sync::Arc;

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

use crate::host;
use crate::observe::{Recorder, Step};
use crate::outcome::Outcome;
use crate::recording;
use crate::run::simulate_on;
use crate::scenario::{
    Action, ClientSpec, Host, Manner, Pattern, Program, Scenario, Script, Seat, SharedProgram,
};
use crate::testing::{Fixed, client, job, kib, scenario, us};

/// 10 us a call, 640 us for 256 KiB from the cache, 320 us into it.
fn run(clients: Vec<ClientSpec>, time: Nanos, rate: Option<u64>) -> (Outcome, Vec<Step>) {
    let host = Host {
        turnaround: us(10),
        turnaround_spread: 0,
        consume_window: us(640),
        consume_copy: us(640),
        produce_window: us(320),
        memory: 32 << 20,
        ..host::host_2018()
    };
    let scenario = Scenario { host, ..scenario(clients, time) };
    let mut recorder = Recorder::default();
    let drive = Box::new(Fixed::new(us(100), rate));
    let outcome = simulate_on(&scenario, drive, &mut recorder).expect("it runs");
    (outcome, recorder.steps)
}

/// Times, clients and KiB from the drive's beginning of what was sent.
fn sent(steps: &[Step], operation: Operation) -> Vec<(u64, u32, u64)> {
    let submitted = |step: &Step| match step {
        Step::Submit(at, request) if request.operation == operation => {
            Some((at.0 / 1_000, request.client.index() as u32, request.start.bytes() >> 10))
        }
        _ => None,
    };
    steps.iter().filter_map(submitted).collect()
}

/// Goal: a start-up waits where the recording waits, and nowhere else. Method: four reads of two threads. The
/// first is completed at 110 us; two reads ahead follow at 120 and 130; the last, at 140, finds one of its thread's
/// in flight until 220, goes at 230 and ends the start-up at 330.
#[test]
fn a_start_up_waits_as_recorded() {
    let text = "title = ''\nsource = ''\nsteps = '0r8w 0s8a 1r8a 0s8w'";
    let recording = recording::parse("x", text).expect("a good recording");
    let mut spec = client("start", job(Pattern::RandomRead, 4, true));
    spec.file_size = recording.file_size();
    spec.job.think = us(70);
    spec.manner = Manner::Startup(Arc::new(recording));
    let (outcome, steps) = run(vec![spec], us(1_200), None);
    let started = &outcome.clients[0];
    assert_eq!((started.calls, started.bytes), (3, 3 * 4 * 4096));
    assert_eq!((started.latency.mean(), started.latency.max()), (330_000, 330_000));
    let reads = sent(&steps, Operation::Read);
    let times: Vec<_> = reads.iter().map(|read| read.0).collect();
    assert_eq!(times[..8], [10, 120, 130, 230, 410, 520, 530, 630]);
    let threads: Vec<_> = reads.iter().map(|read| read.1).collect();
    assert!(threads[0] == threads[1] && threads[1] == threads[3] && threads[2] != threads[0]);
    assert_eq!((reads[1].2, reads[3].2), (reads[0].2 + 4, reads[0].2 + 8), "behind each other");
    assert!(reads[2].2 >= 20_000_000 >> 10, "the second thread has a file of its own");
}

/// Goal: the program's own time passes where it was recorded, and counts once. Method: three reads of one thread. The
/// first is completed at 110 us; one ahead follows at 120; the last waits for that one until 220, takes 10 us of the
/// host's and 50 of the program's, and ends the start-up at 380.
#[test]
fn a_start_up_pauses_as_recorded() {
    let text = "title = ''\nsource = ''\nsteps = '0r8w 0s8a 0s8w@50'";
    let recording = recording::parse("x", text).expect("a good recording");
    let mut spec = client("start", job(Pattern::RandomRead, 4, true));
    spec.file_size = recording.file_size();
    spec.job.think = us(1_000);
    spec.manner = Manner::Startup(Arc::new(recording));
    let (outcome, steps) = run(vec![spec], us(1_000), None);
    let times: Vec<_> = sent(&steps, Operation::Read).iter().map(|read| read.0).collect();
    assert_eq!(times, [10, 120, 280]);
    assert_eq!(outcome.clients[0].latency.max(), 380_000);
}

/// Goal: a start-up that takes longer than the run is no fast one. Method: a run that ends 200 us after its start; no
/// call ended, and the latency is at least that.
#[test]
fn an_unfinished_start_up_took_until_the_end() {
    let text = "title = ''\nsource = ''\nsteps = '0r8w 0s8w 0r8w'";
    let recording = recording::parse("x", text).expect("a good recording");
    let mut spec = client("start", job(Pattern::RandomRead, 4, true));
    spec.file_size = recording.file_size();
    spec.manner = Manner::Startup(Arc::new(recording));
    let (outcome, _) = run(vec![spec], us(200), None);
    let started = &outcome.clients[0];
    assert_eq!((started.calls, started.bytes), (0, 0));
    assert_eq!((started.latency.count(), started.latency.max()), (1, 200_000));
}

/// Goal: a copy reads ahead, takes its processor time, and what it read is written elsewhere. Method: windows of
/// 256 KiB that take 960 us, after the first 100 us of waiting; then a drive of 100 MB/s that has to carry both.
#[test]
fn a_copy_reads_and_writes() {
    let copy = || {
        let mut spec = client("copy", job(Pattern::SequentialRead, 64, true));
        spec.manner = Manner::Copy;
        spec
    };
    let (outcome, steps) = run(vec![copy()], us(100 + 960 * 4), None);
    assert_eq!(outcome.clients[0].calls, 4);
    assert_eq!(outcome.clients[0].latency.max(), 1_060_000);
    let reads = sent(&steps, Operation::Read);
    let read = |(at, window): (u64, u64)| (at, reads[0].1, 256 * window);
    assert_eq!(reads, [(0, 0), (0, 1), (1_060, 2), (2_020, 3), (2_980, 4), (3_940, 5)].map(read));
    let second = Nanos::from_secs(1);
    let (outcome, steps) = run(vec![copy(), copy()], second, Some(100_000_000));
    let copied: u64 = outcome.clients.iter().map(|client| client.bytes).sum();
    assert!((45_000_000..57_000_000).contains(&copied), "{copied}");
    let written = outcome.drive.written_bytes;
    assert!(written <= copied && copied - written <= (32 << 20) / 5, "{copied} {written}");
    let writes = sent(&steps, Operation::Write);
    assert!(!writes.is_empty() && writes.iter().all(|write| write.2 >= 1_000 << 10));
}

/// Goal: processes that share a file take its blocks in turn, and begin anew at its end. Method: two of them over a
/// file of five blocks.
#[test]
fn interleaved_processes_share_a_file() {
    let process = |index| {
        let mut spec = client("reader", job(Pattern::SequentialRead, 16, false));
        spec.manner = Manner::Interleaved { index, of: 2 };
        spec.file_size = kib(80);
        spec
    };
    let (outcome, steps) = run(vec![process(0), process(1)], us(550), None);
    assert_eq!(outcome.clients[0].calls, 5);
    let places = |client: u32| {
        let reads = sent(&steps, Operation::Read);
        let mine = reads.iter().filter(|read| read.1 == client).map(|read| read.2);
        mine.take(4).collect::<Vec<_>>()
    };
    let first = sent(&steps, Operation::Read)[0].1;
    assert_eq!(places(first), [0, 32, 64, 0]);
    assert_eq!(places(first + 1), [16, 48, 16, 48]);
}

/// Goal: buffered readers that share a file read it as one, window by window, whoever comes to the mark asking for the
/// next. Method: two of them. The first asks for 32 KiB, twice its block, at the beginning; the second comes to the
/// mark there at once and asks for 64 more; at 140 us the first comes to that window, where its own last one ended: it
/// asks for 192 KiB, of which 64 are there, and at 220 it comes to their mark and asks for a window of full size.
#[test]
fn readers_of_one_file_share_their_read_ahead() {
    let process = |index| {
        let mut spec = client("reader", job(Pattern::SequentialRead, 16, true));
        spec.manner = Manner::Interleaved { index, of: 2 };
        spec.file_size = kib(1 << 20);
        spec
    };
    let (outcome, steps) = run(vec![process(0), process(1)], us(40_000), None);
    let reads = sent(&steps, Operation::Read);
    let first = reads[0].1;
    assert_eq!(
        reads[..4],
        [(0, first, 0), (0, first + 1, 32), (140, first, 96), (220, first, 224)]
    );
    let mut end = 0;
    for step in &steps {
        if let Step::Submit(_, request) = step {
            assert_eq!(request.start.bytes(), end, "each page once, in order");
            end += request.length.bytes();
        }
    }
    // Both copy all the time: 40 us for each 16 KiB, once the first are there.
    let expected = 39_900 / 40 * 16 * 1024;
    assert!(outcome.clients.iter().all(|reader| reader.bytes == expected));
}

/// Goal: who comes round to the beginning finds nothing of the file. Method: two readers of a file of five blocks: the
/// second one, with two blocks, is round first, and everything is read again.
#[test]
fn readers_of_one_file_begin_anew() {
    let process = |index| {
        let mut spec = client("reader", job(Pattern::SequentialRead, 16, true));
        spec.manner = Manner::Interleaved { index, of: 2 };
        spec.file_size = kib(80);
        spec
    };
    let (outcome, steps) = run(vec![process(0), process(1)], us(2_000), None);
    let starts = sent(&steps, Operation::Read).iter().filter(|read| read.2 <= 16).count();
    assert!(starts > 3, "{starts}");
    assert!(outcome.clients.iter().all(|reader| reader.calls > 10));
}

/// Reads 8 KiB, pauses for 50 us, writes 4 KiB, flushes, and ends. Keeps what it was told.
struct Told(std::sync::Mutex<Vec<(u64, Option<u64>)>>);

struct Four {
    told: Arc<Told>,
    next: usize,
}

struct Starts(Arc<Told>);

impl Program for Starts {
    fn start(&self, seat: Seat) -> Box<dyn Script + Send> {
        assert_eq!((seat.process, seat.block, seat.seed), (0, kib(4), 1));
        Box::new(Four { told: self.0.clone(), next: 0 })
    }
}

impl Script for Four {
    fn next(&mut self, now: Instant, latency: Option<Nanos>) -> Action {
        self.told.0.lock().unwrap().push((now.0 / 1000, latency.map(|latency| latency.0 / 1000)));
        self.next += 1;
        let call = |operation, offset, length| {
            let (offset, length) = (kib(offset), kib(length));
            Action::Call { operation, offset, length }
        };
        match self.next {
            1 => call(Operation::Read, 64, 8),
            2 => Action::Wait(us(50)),
            3 => call(Operation::Write, 0, 4),
            4 => call(Operation::Flush, 0, 0),
            _ => Action::End,
        }
    }
}

/// Goal: a program of the caller decides what is done and when, and is told how long its calls took. Method: a read
/// from 10 us on, completed at 110; a pause until 160; a write, for which
/// the processor takes 11 us, that is completed at 271; a flush.
#[test]
fn a_program_decides() {
    let told = Arc::new(Told(std::sync::Mutex::default()));
    let mut spec = client("mine", job(Pattern::RandomRead, 4, false));
    spec.manner = Manner::Program(SharedProgram(Arc::new(Starts(told.clone()))));
    let (outcome, steps) = run(vec![spec.clone()], us(1_000), None);
    assert_eq!(sent(&steps, Operation::Read), [(10, 0, 64)]);
    assert_eq!(sent(&steps, Operation::Write), [(171, 0, 0)]);
    assert_eq!(sent(&steps, Operation::Flush).len(), 1);
    let told = told.0.lock().unwrap();
    assert_eq!(told[..4], [(0, None), (110, Some(110)), (160, None), (271, Some(111))]);
    assert_eq!((told.len(), told[4].1), (5, Some(told[4].0 - 271)));
    let mine = &outcome.clients[0];
    assert_eq!((mine.calls, mine.bytes, mine.sync_latency.count()), (2, 12 << 10, 1));
    spec.job.buffered = true;
    let buffered = Scenario { clients: vec![spec], ..scenario(Vec::new(), us(10)) };
    let refused =
        simulate_on(&buffered, Box::new(Fixed::new(us(1), None)), &mut Recorder::default());
    assert!(refused.unwrap_err().to_string().contains("direct calls"));
}
