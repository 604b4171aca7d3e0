//! The measured rows of the solid-state drives.
//!
//! Units are the sources': a target's rate is fio's KiB/s over 1000, a total is iostat's MiB/s, rows of
//! one drive alone are 10^6 B/s. "N readers" are buffered sequential ones beside one 4 KiB random
//! reader, the target. Sources: mails on the block list of August and September 2019 (N = 4, 7, 15,
//! BFQ), the 2019 survey (15 clients), the 2018 article (alone, totals), reviews and data sheets of
//! the drives (queue depth 32, writes), slides of 2016 on blk-throttle (`nvme-2015`).

use iofair_core::request::Operation;
use iofair_core::time::Nanos;

use super::host::{Counted, Job, Run, WINDOW, run};
use super::row::{Measured, Row};
use iofair_drive::profile::{Profile, read};

use Measured::{AtLeast, AtMost, Nothing, Range, Value};

const PLEXTOR: &str = "plextor-px256m5s";
const PLEXTOR_FIFO: &str = "plextor-px256m5s:a-fifo";
const PLEXTOR_B: &str = "plextor-px256m5s:b";
const SAMSUNG: &str = "samsung-970-pro";
const NVME_2015: &str = "nvme-2015";
const NVME_2021: &str = "nvme-2021";
const NVME_2021_FRAGMENTED: &str = "nvme-2021:fragmented";

const RAMP: Nanos = Nanos::from_millis(500);

/// Rows of all drives.
pub(super) fn rows(seed: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    plextor_alone(&mut Bench::new(PLEXTOR, seed, &mut rows));
    plextor_readers(&mut Bench::new(PLEXTOR, seed, &mut rows));
    plextor_others(&mut Bench::new(PLEXTOR, seed, &mut rows));
    plextor_variants(seed, &mut rows);
    samsung(&mut Bench::new(SAMSUNG, seed, &mut rows));
    nvme_2015(&mut Bench::new(NVME_2015, seed, &mut rows));
    nvme_2021(seed, &mut rows);
    sliced(seed, &mut rows);
    limited(seed, &mut rows);
    rows
}

/// The rows of one drive, while they are being made.
struct Bench<'a> {
    drive: &'static str,
    profile: Profile,
    seed: u64,
    rows: &'a mut Vec<Row>,
}

/// The result of a run, in the source's units.
struct Outcome {
    counted: Vec<Counted>,
    seconds: f64,
}

impl Outcome {
    /// The first client's rate in KiB/s over 1000, as fio prints it.
    fn target(&self) -> f64 {
        self.counted[0].bytes as f64 / 1024.0 / 1000.0 / self.seconds
    }
    fn target_micros(&self) -> f64 {
        self.counted[0].latency_micros()
    }
    fn total_bytes(&self) -> f64 {
        self.counted.iter().map(|counted| counted.bytes as f64).sum::<f64>() / self.seconds
    }
    /// The drive's rate in MiB/s, as iostat prints it.
    fn total(&self) -> f64 {
        self.total_bytes() / f64::from(1 << 20)
    }
    fn total_mb(&self) -> f64 {
        self.total_bytes() / 1e6
    }
    fn total_kiops(&self) -> f64 {
        self.counted.iter().map(|counted| counted.requests as f64).sum::<f64>() / self.seconds / 1e3
    }
}

/// A row's name and unit, the measured number, the hand fit's error, and a note.
type Facts = (&'static str, &'static str, Measured, f64, &'static str);

impl<'a> Bench<'a> {
    fn new(drive: &'static str, seed: u64, rows: &'a mut Vec<Row>) -> Self {
        let profile = read(drive).expect("the rows name embedded profiles");
        Self { drive, profile, seed, rows }
    }
    fn run(&self, seconds: u64, jobs: &[Job]) -> Outcome {
        self.run_with(seconds, jobs, |_| ())
    }
    fn run_with(&self, seconds: u64, jobs: &[Job], change: impl FnOnce(&mut Run)) -> Outcome {
        let time = Nanos::from_secs(seconds);
        let mut setting = Run {
            ramp: RAMP,
            time,
            gate: None,
            limit: None,
            slice: (Nanos::from_millis(20), u64::MAX),
            seed: self.seed,
        };
        change(&mut setting);
        Outcome { counted: run(&self.profile, jobs, &setting), seconds: seconds as f64 }
    }
    fn row(&mut self, ours: f64, (name, unit, measured, reference, note): Facts) {
        self.rows.push(Row { drive: self.drive, name, unit, measured, ours, reference, note });
    }

    fn think(&self) -> Nanos {
        self.profile.host.turnaround
    }
    fn target(&self) -> Job {
        Job::random_reader(self.think())
    }
    fn buffered(&self) -> Job {
        Job::Buffered { consume: self.profile.host.consume_window }
    }
    fn direct_reader(&self) -> Job {
        let think = self.think();
        Job::Direct { operation: Operation::Read, block: 4096, depth: 1, random: true, think }
    }
    /// The target and `n` clients of one kind.
    fn beside(&self, n: usize, job: Job) -> Vec<Job> {
        [self.target()].into_iter().chain(std::iter::repeat_n(job, n)).collect()
    }
}

/// Requests without a pause.
const fn pressing(operation: Operation, block: u64, depth: u32, random: bool) -> Job {
    Job::Direct { operation, block, depth, random, think: Nanos::ZERO }
}

fn plextor_alone(bench: &mut Bench<'_>) {
    let alone = bench.run(2, &[bench.target()]);
    let note = "KiB/s / 1000, as the suite prints a client";
    bench.row(alone.target(), ("4k random reader alone", "MB/s", Value(23.0), 0.0, note));
    bench.row(alone.target_micros(), ("the same: latency", "us", Value(174.0), 0.0, "page-read"));
    let five = bench.run(2, &[bench.target(); 5]);
    bench.row(five.total(), ("five 4k random readers", "MiB/s", Value(110.0), 1.0, "units"));
    let reads = bench.run(1, &[pressing(Operation::Read, 4096, 32, true)]);
    let facts = ("4k random reads, depth 32", "kIOPS", Range(72.8, 73.9), 0.0, "firmware-read");
    bench.row(reads.total_kiops(), facts);
    let writes = bench.run(1, &[pressing(Operation::Write, 4096, 32, true)]);
    let facts = ("4k random writes, depth 32", "kIOPS", Range(69.3, 73.2), 0.4, "firmware-write");
    bench.row(writes.total_kiops(), facts);
    let one = bench.run(2, &[bench.buffered()]);
    let note = "consume-window";
    bench.row(one.total(), ("1 buffered reader alone", "MiB/s", Value(400.0), -1.0, note));
    for (n, name) in
        [(2, "2 buffered readers"), (4, "4 buffered readers"), (7, "7 buffered readers")]
    {
        let several = bench.run(2, &vec![bench.buffered(); n]);
        bench.row(several.total(), (name, "MiB/s", Value(515.0), -1.0, "link"));
    }
    let writer = bench.run(2, &[pressing(Operation::Write, WINDOW, 4, false)]);
    bench.row(writer.total_mb(), ("sequential writes", "MB/s", Value(386.0), 0.0, "drain"));
}

fn plextor_readers(bench: &mut Bench<'_>) {
    let run = |bench: &Bench<'_>, n: usize| bench.run(5, &bench.beside(n, bench.buffered()));
    let one = run(bench, 1);
    bench.row(one.total(), ("N=1: total", "MiB/s", AtLeast(329.0), 0.0, "from \"less than 7 %\""));
    let three = run(bench, 3);
    bench.row(three.target(), ("N=3: target", "MB/s", AtMost(2.3), 0.0, "\"at most 10 %\" of 23"));
    let four = run(bench, 4);
    let note =
        "any in-order model gives N=4 to N=7 as 1.9 to 2, measured 1.44: other days and kernels";
    bench.row(four.target(), ("N=4: target", "MB/s", Value(1.15), 18.0, note));
    bench.row(four.total(), ("N=4: total", "MiB/s", Range(490.0, 515.0), 0.0, ""));
    let seven = run(bench, 7);
    bench.row(seven.target(), ("N=7: target", "MB/s", Value(0.8), -15.0, "see N=4"));
    bench.row(seven.total(), ("N=7: total", "MiB/s", Value(506.0), 1.0, ""));
    let fifteen = run(bench, 15);
    let note = "20 and 39 ms were measured of nearly one set-up; one parameter (overtakes) gives what lies between";
    bench.row(fifteen.target(), ("N=15: target", "MB/s", Value(0.2), -25.0, note));
    let micros = fifteen.target_micros();
    bench.row(micros / 1e3, ("N=15: target's latency", "ms", Range(20.0, 39.0), 0.0, note));
}

fn plextor_others(bench: &mut Bench<'_>) {
    let direct = bench.run(2, &bench.beside(15, bench.direct_reader()));
    let millis = direct.target_micros() / 1e3;
    let facts =
        ("15 direct readers: target's latency", "ms", Value(0.2), 10.0, "one printed digit");
    bench.row(millis, facts);
    let fsync = bench.run(5, &bench.beside(15, Job::Fsync { think: bench.think() }));
    let facts = ("15 writers with fdatasync: target's latency", "ms", Value(3.0), -1.0, "flush");
    bench.row(fsync.target_micros() / 1e3, facts);

    let note = "extrapolation";
    for (n, block, name) in [
        (1, 128 << 10, "1 random reader of 128 KiB"),
        (4, 128 << 10, "4 random readers of 128 KiB"),
        (1, 1 << 20, "1 random reader of 1 MiB"),
        (4, 1 << 20, "4 random readers of 1 MiB"),
    ] {
        let think = bench.think();
        let job = Job::Direct { operation: Operation::Read, block, depth: 1, random: true, think };
        let ours = bench.run(1, &vec![job; n]).total_mb();
        bench.row(ours, (name, "MB/s", Nothing, 0.0, note));
    }
    let writer = pressing(Operation::Write, WINDOW, 8, false);
    let writers = bench.run(5, &bench.beside(4, writer));
    let note = "extrapolation: write-cache decides and no row fixes it";
    let facts = ("4 buffered writers, 8 x 256 KiB each: target", "MB/s", Nothing, 0.0, note);
    bench.row(writers.target(), facts);
    let facts = ("the same: total", "MiB/s", Nothing, 0.0, note);
    bench.row(writers.total(), facts);
}

fn plextor_variants(seed: u64, rows: &mut Vec<Row>) {
    let fifteen_fifo =
        "nothing in order waits longer than 31 commands: only the deep-queue rule of A does";
    let fifo = [
        (4, ("N=4: target", "MB/s", Value(1.15), 10.0, "")),
        (7, ("N=7: target", "MB/s", Value(0.8), -18.0, "see A")),
        (15, ("N=15: target", "MB/s", Value(0.2), 45.0, fifteen_fifo)),
    ];
    let b = [
        (4, ("N=4: target", "MB/s", Value(1.15), 18.0, "see A")),
        (7, ("N=7: target", "MB/s", Value(0.8), -15.0, "see A")),
        (15, ("N=15: target", "MB/s", Value(0.2), -25.0, "see A")),
    ];
    for (drive, facts) in [(PLEXTOR_FIFO, fifo), (PLEXTOR_B, b)] {
        let mut bench = Bench::new(drive, seed, rows);
        let one = bench.run(2, &[bench.buffered()]);
        bench.row(one.total(), ("1 buffered reader alone", "MiB/s", Value(400.0), 1.0, ""));
        for (n, facts) in facts {
            let ours = bench.run(5, &bench.beside(n, bench.buffered()));
            bench.row(ours.target(), facts);
        }
    }
}

fn samsung(bench: &mut Bench<'_>) {
    let alone = bench.run(1, &[bench.target()]);
    let facts = ("4k random reader alone: latency", "us", Value(67.0), 0.0, "page-read");
    bench.row(alone.target_micros(), facts);
    let seven = bench.run(2, &bench.beside(7, bench.buffered()));
    let note = "read-buffer: this row and N=15 pull it apart";
    bench.row(seven.target(), ("N=7: target", "MB/s", Value(11.37), -9.0, note));
    bench.row(seven.total(), ("N=7: total", "MiB/s", Value(3295.5), 1.0, "link"));
    let fifteen = bench.run(2, &bench.beside(15, bench.buffered()));
    let millis = fifteen.target_micros() / 1e3;
    bench.row(millis, ("N=15: target's latency", "ms", Value(1.9), -16.0, note));
    let direct = bench.run(1, &bench.beside(15, bench.direct_reader()));
    let facts =
        ("15 direct readers: target's latency", "ms", Value(0.08), -11.0, "one printed digit");
    bench.row(direct.target_micros() / 1e3, facts);
    let fsync = bench.run(5, &bench.beside(15, Job::Fsync { think: bench.think() }));
    let facts = ("15 writers with fdatasync: target's latency", "ms", Value(3.0), -1.0, "flush");
    bench.row(fsync.target_micros() / 1e3, facts);
}

fn nvme_2015(bench: &mut Bench<'_>) {
    let threads = |bench: &Bench<'_>, operation, n: usize| {
        let think = bench.think();
        let job = Job::Direct { operation, block: 4096, depth: 1, random: true, think };
        bench.run(1, &vec![job; n])
    };
    let eight = threads(bench, Operation::Read, 8);
    let facts = ("8 reading threads", "MB/s", Value(330.0), -1.0, "page-read");
    bench.row(eight.total_mb(), facts);
    let facts = ("the same: latency", "us", Range(95.0, 99.0), 1.4, "");
    bench.row(eight.target_micros(), facts);
    let sixteen = threads(bench, Operation::Read, 16);
    bench.row(sixteen.total_mb(), ("16 reading threads", "MB/s", Value(619.0), 0.0, "units"));
    bench.row(sixteen.target_micros(), ("the same: latency", "us", Value(106.0), 0.0, ""));
    let eight = threads(bench, Operation::Write, 8);
    bench.row(eight.total_mb(), ("8 writing threads", "MB/s", Value(1400.0), 0.0, "drain"));
    bench.row(eight.target_micros(), ("the same: latency", "us", Value(23.0), 2.0, ""));
    let sixteen = threads(bench, Operation::Write, 16);
    bench.row(sixteen.total_mb(), ("16 writing threads", "MB/s", Value(1400.0), 0.0, ""));
    for (rate, reads, micros) in [
        (172_000_000, "8 readers beside writes of 172 MB/s", Value(111.0)),
        (1_183_000_000, "8 readers beside writes of 1183 MB/s", Value(405.0)),
    ] {
        let mut jobs = vec![bench.target(); 8];
        jobs.extend([Job::Sliced { think: bench.think() }; 8]);
        let slice = Nanos::from_millis(20);
        let outcome = bench.run_with(4, &jobs, |run| {
            run.slice = (slice, slice.units_floor(rate));
        });
        let readers: f64 = outcome.counted[..8].iter().map(|counted| counted.bytes as f64).sum();
        let (measured, note) = if rate < 1_000_000_000 {
            (Value(295.0), "")
        } else {
            (
                Value(81.0),
                "write-cache; needs the writers' slices: paced evenly the drive gives 196 us",
            )
        };
        bench.row(readers / outcome.seconds / 1e6, (reads, "MB/s", measured, -1.0, note));
        bench.row(outcome.target_micros(), ("the same: latency", "us", micros, -1.5, ""));
    }
}

/// What data sheets state for this class of drives. They do not state reads beside writes, which is shown as an
/// extrapolation.
fn nvme_2021(seed: u64, rows: &mut Vec<Row>) {
    const EXTRAPOLATION: &str = "extrapolation: no data sheet has it; write-cache and drain decide";
    let writes = pressing(Operation::Write, 4096, 256, true);
    let bench = &mut Bench::new(NVME_2021, seed, rows);
    let alone = bench.run(1, &[bench.target()]);
    let facts = ("4k random reader alone: latency", "us", Value(80.0), 0.0, "page-read");
    bench.row(alone.target_micros(), facts);
    let think = bench.think();
    let operation = Operation::Write;
    let writer = Job::Direct { operation, block: 4096, depth: 1, random: true, think };
    let facts =
        ("4k random writer alone: latency", "us", Value(15.0), -16.0, "turnaround is a guess");
    bench.row(bench.run(1, &[writer]).target_micros(), facts);
    let reads = bench.run(1, &[pressing(Operation::Read, 4096, 256, true)]);
    let facts = ("4k random reads, depth 256", "kIOPS", Value(1000.0), 0.0, "firmware-read");
    bench.row(reads.total_kiops(), facts);
    let reader = bench.run(1, &[pressing(Operation::Read, 128 << 10, 32, false)]);
    bench.row(reader.total_mb(), ("sequential reads", "MB/s", Value(6800.0), 0.0, "link"));
    let writer = bench.run(1, &[pressing(Operation::Write, 128 << 10, 32, false)]);
    bench.row(writer.total_mb(), ("sequential writes", "MB/s", Value(4000.0), 0.0, "drain"));
    let beside = bench.run(1, &bench.beside(1, writes));
    let name = "random writes of depth 256: target's latency";
    bench.row(beside.target_micros(), (name, "us", Nothing, 0.0, EXTRAPOLATION));
    let fsync = bench.run(1, &bench.beside(15, Job::Fsync { think }));
    let name = "15 writers with fdatasync: target's latency";
    bench.row(fsync.target_micros(), (name, "us", Nothing, 0.0, "power-loss-protection"));
    let bench = &mut Bench::new(NVME_2021_FRAGMENTED, seed, rows);
    let outcome = bench.run(1, &[writes]);
    let facts = ("4k random writes, depth 256", "kIOPS", Value(200.0), 0.0, "drain");
    bench.row(outcome.total_kiops(), facts);
    let beside = bench.run(1, &bench.beside(1, writes));
    let name = "random writes of depth 256: target's latency";
    bench.row(beside.target_micros(), (name, "us", Nothing, 0.0, EXTRAPOLATION));
}

/// One client at a time, as under an idealised BFQ.
fn sliced(seed: u64, rows: &mut Vec<Row>) {
    const EXCESS: &str = "BFQ's, not the drive's: pure time shares fit all totals and miss every target by 1.35 to 1.45";
    let idealised = |bench: &Bench<'_>, n: usize, weight: u64| {
        let slice = Nanos::from_millis(100);
        let weights: Vec<u64> = [weight].into_iter().chain(std::iter::repeat_n(100, n)).collect();
        let jobs = bench.beside(n, bench.buffered());
        bench.run_with(20, &jobs, |run| run.gate = Some((slice, weights)))
    };
    let mut bench = Bench::new(PLEXTOR, seed, rows);
    let four = idealised(&bench, 4, 100);
    bench.row(four.target(), ("slices, N=4: target", "MB/s", Value(6.2), -28.0, EXCESS));
    bench.row(four.total(), ("slices, N=4: total", "MiB/s", Value(321.4), 0.0, ""));
    let seven = idealised(&bench, 7, 100);
    bench.row(seven.target(), ("slices, N=7: target", "MB/s", Range(3.6, 4.0), -26.0, EXCESS));
    bench.row(seven.total(), ("slices, N=7: total", "MiB/s", Range(344.0, 360.0), 0.0, ""));
    let weighted = idealised(&bench, 4, 300);
    bench
        .row(weighted.target(), ("slices, 300:100x4: target", "MB/s", Range(10.0, 14.0), -5.0, ""));
    bench.row(weighted.total(), ("slices, 300:100x4: total", "MiB/s", Value(235.0), 1.0, ""));
    let mut bench = Bench::new(SAMSUNG, seed, rows);
    let seven = idealised(&bench, 7, 100);
    bench.row(seven.target(), ("slices, N=7: target", "MB/s", Value(10.8), -31.0, EXCESS));
    bench
        .row(seven.total(), ("slices, N=7: total", "MiB/s", Value(1862.3), -1.0, "consume-window"));
}

/// Four readers limited to a number of bytes in the drive. This was not measured; it is where the variants differ
/// most. (The number in the note is from the simulators of the fit by hand.)
fn limited(seed: u64, rows: &mut Vec<Row>) {
    const LIMITS: [(&str, &str, (u64, u64)); 3] = [
        ("256 KiB pieces, 256 KiB: target", "the same: total", (256 << 10, 256 << 10)),
        ("64 KiB pieces, 128 KiB: target", "the same: total", (64 << 10, 128 << 10)),
        ("32 KiB pieces, 256 KiB: target", "the same: total", (32 << 10, 256 << 10)),
    ];
    for (drive, notes) in [
        (PLEXTOR, ["hand fit: 12.4 / 413", "hand fit: 20.0 / 481", "hand fit: 10.1 / 510"]),
        (PLEXTOR_FIFO, ["hand fit: 6.5 / 413", "hand fit: 15.3 / 501", "hand fit: 7.6 / 510"]),
        (PLEXTOR_B, ["hand fit: 14.6 / 291", "hand fit: 21.2 / 252", "hand fit: 19.0 / 486"]),
    ] {
        let mut bench = Bench::new(drive, seed, rows);
        for ((target, total, limit), note) in LIMITS.into_iter().zip(notes) {
            let jobs = bench.beside(4, bench.buffered());
            let outcome = bench.run_with(2, &jobs, |run| run.limit = Some(limit));
            bench.row(outcome.target(), (target, "MB/s", Nothing, 0.0, note));
            bench.row(outcome.total(), (total, "MiB/s", Nothing, 0.0, ""));
        }
    }
}
