//! How many commands a second of processor time the models simulate.
//!
//! `cargo bench -p iofair-drive` prints a table: commands a second for each load, and a hash of all
//! completions, which is the same on every machine. Without `--bench` (as `cargo test` calls it) each load
//! runs small.

use cpu_time::ThreadTime;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;
use iofair_drive::{Command, profile};
use iofair_testkit::page;

struct Load {
    drive: &'static str,
    name: &'static str,
    operation: Operation,
    kib: u64,
    depth: u32,
}

const fn load(
    drive: &'static str,
    name: &'static str,
    operation: Operation,
    kib: u64,
    depth: u32,
) -> Load {
    Load { drive, name, operation, kib, depth }
}

/// A drive with flash translation, which collects.
const STEADY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/steady.toml");

const LOADS: &[Load] = &[
    load("plextor-px256m5s", "4k random reads, depth 1", Operation::Read, 4, 1),
    load("plextor-px256m5s", "4k random reads, depth 32", Operation::Read, 4, 32),
    load("plextor-px256m5s", "4k random writes, depth 32", Operation::Write, 4, 32),
    load("plextor-px256m5s", "256k reads, depth 8", Operation::Read, 256, 8),
    load("samsung-970-pro", "4k random reads, depth 32", Operation::Read, 4, 32),
    load("samsung-970-pro", "4k random reads, depth 1000", Operation::Read, 4, 1000),
    load("samsung-970-pro", "4k random writes, depth 32", Operation::Write, 4, 32),
    load("samsung-970-pro", "256k reads, depth 14", Operation::Read, 256, 14),
    load(STEADY, "4k random writes, depth 32", Operation::Write, 4, 32),
    load(STEADY, "4k random writes, depth 1000", Operation::Write, 4, 1000),
];

/// Runs `count` commands; returns seconds and a hash of the completions.
fn measure(load: &Load, count: u64) -> (f64, u64) {
    let mut drive = profile::load(load.drive, 1).expect("an embedded profile");
    let mut random = Random::new(1, 1);
    let length = Sectors::from_kib(load.kib);
    let mut submit = |drive: &mut dyn iofair_drive::Drive, now, id| {
        let start = Sectors(random.below(1 << 20) * length.0 % (1 << 28));
        let command = Command { id, operation: load.operation, flags: Flags::NONE, start, length };
        drive.submit(now, command);
    };
    let began = ThreadTime::now();
    let (mut done, mut hash) = (Vec::new(), 0u64);
    for id in 0..load.depth {
        submit(&mut *drive, Instant::ZERO, id);
    }
    let mut completed = 0;
    while completed < count {
        let now = drive.next_event().expect("commands are in the drive");
        drive.advance(now, &mut done);
        for completion in done.drain(..) {
            completed += 1;
            hash = (hash ^ completion.at.0).wrapping_mul(0x100_0000_01B3).rotate_left(7);
            submit(&mut *drive, now, completion.id);
        }
    }
    (began.elapsed().as_secs_f64(), hash)
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let (mut combined, mut rows) = (0u64, Vec::new());
    for load in LOADS {
        let pages = load.kib.div_ceil(8);
        let count = if full { 4_000_000 / pages } else { 2_000 / pages };
        let mut seconds: Vec<f64> = Vec::new();
        for _ in 0..if full { 3 } else { 1 } {
            let (time, hash) = measure(load, count);
            seconds.push(time);
            combined = combined.rotate_left(1) ^ hash;
        }
        seconds.sort_by(f64::total_cmp);
        let median = seconds[seconds.len() / 2];
        rows.push(vec![
            format!("{}, {}", load.drive.rsplit('/').next().expect("a part"), load.name),
            format!("{:.2}", count as f64 / median / 1e6),
            format!("{:.0}", median * 1e9 / count as f64),
            format!("{:.0}", count as f64 * load.kib as f64 / median / f64::from(1 << 20)),
        ]);
    }
    let head = ["drive, load", "million commands/s", "ns a command", "GiB simulated/s"];
    let table = page::table(&head, &rows);
    page::publish("drives", &format!("{table}\nHash of all completions: {combined:016x}.\n"));
}
