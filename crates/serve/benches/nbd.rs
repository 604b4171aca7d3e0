//! NBD throughput and the server's own cost beside other servers, in one run with one client.
//!
//! `cargo bench -p iofair-serve` prints a table, `-- --json` JSON. Every server keeps its data in memory;
//! fio's nbd engine drives each in turn, again and again in alternation, and the medians count, because
//! machines are shared. Servers run as processes of their own, so that what they cost is theirs alone:
//! user and system time from `/proc`. A server that is not installed is left out, and named. Under
//! `cargo test` it does nothing but say so: it needs those servers and half a minute.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use iofair_config::contracts::Contracts;
use iofair_serve::{Server, Signals};
use serde_json::{Value, json};

/// Size of the volume: fits any test machine, does not fit any cache.
const MEBIBYTES: u64 = 256;
/// Rounds of alternation; medians of odd numbers are values that were measured.
const ROUNDS: usize = 3;
/// Seconds a measurement.
const SECONDS: u32 = 2;
/// Clock ticks a second in `/proc`, on every Linux that we know.
const TICKS: f64 = 100.0;

/// What the client does: name, direction, depth, connections.
const LOADS: [(&str, &str, u32, u32); 6] = [
    ("QD1 read", "randread", 1, 1),
    ("QD1 write", "randwrite", 1, 1),
    ("QD32 read", "randread", 32, 1),
    ("QD32 write", "randwrite", 32, 1),
    ("4 x QD32 read", "randread", 32, 4),
    ("4 x QD32 write", "randwrite", 32, 4),
];

/// One measurement.
#[derive(Clone, Copy)]
struct Sample {
    iops: f64,
    p50_us: f64,
    p99_us: f64,
    /// The server's processor time.
    cpu_us: f64,
}

/// A server under test.
struct Contender {
    name: &'static str,
    child: Child,
    uri: String,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, socket] = &arguments[..]
        && role == "--serve"
    {
        return serve(Path::new(socket));
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("nbd: run it with cargo bench; it needs fio and half a minute");
        return;
    }
    let directory = std::env::temp_dir().join(format!("iofair-bench-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut contenders = contenders(&directory);
    let results = measure(&contenders);
    for contender in &mut contenders {
        contender.child.kill().unwrap();
        contender.child.wait().unwrap();
    }
    fs::remove_dir_all(directory).unwrap();
    report(&contenders, &results, arguments.iter().any(|argument| argument == "--json"));
}

/// Our server, as the program runs it, until it is killed.
fn serve(socket: &Path) {
    let text = format!(
        "[drive]\nback = 'memory:{MEBIBYTES}MiB'\nstack = 'none-none'\n\
         [listen]\nunix = '{}'\n[[group]]\nname = 'g'\n\
         [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '{MEBIBYTES}MiB'\n",
        socket.display()
    );
    let signals = Signals::block().unwrap();
    let _server = Server::start(Contracts::parse("bench", &text).unwrap()).unwrap();
    while signals.wait().unwrap().is_none() {}
}

fn contenders(directory: &Path) -> Vec<Contender> {
    let socket = |name: &str| directory.join(name);
    let uri = |path: &PathBuf| format!("nbd+unix:///?socket={}", path.display());
    let image = Path::new("/dev/shm").join(format!("iofair-bench-{}", std::process::id()));
    fs::File::create(&image).unwrap().set_len(MEBIBYTES << 20).unwrap();
    let size = format!("{MEBIBYTES}M");
    let text = |path: &Path| path.display().to_string();
    let own = text(&std::env::current_exe().unwrap());
    let (ours, nbdkit, qemu) = (socket("ours"), socket("nbdkit"), socket("qemu"));
    let commands: [(&'static str, &PathBuf, Vec<String>); 3] = [
        ("iofair", &ours, vec![own, "--serve".into(), text(&ours)]),
        (
            "nbdkit memory",
            &nbdkit,
            ["nbdkit", "-f", "-U", &text(&nbdkit), "memory", &size].map(String::from).to_vec(),
        ),
        (
            "qemu-nbd",
            &qemu,
            ["qemu-nbd", "-t", "-e", "16", "-f", "raw", "--aio=io_uring", "-k", &text(&qemu)]
                .map(String::from)
                .into_iter()
                .chain([text(&image)])
                .collect(),
        ),
    ];
    let mut started = Vec::new();
    for (name, path, command) in commands {
        let child = Command::new(&command[0])
            .args(&command[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => {
                while !path.exists() {
                    std::thread::yield_now();
                }
                started.push(Contender { name, child, uri: uri(path) });
            }
            Err(error) => eprintln!("left out: {name} ({}: {error})", command[0]),
        }
    }
    // Who has opened it keeps it.
    fs::remove_file(image).unwrap();
    started
}

/// Medians, by load and contender.
fn measure(contenders: &[Contender]) -> Vec<Vec<Sample>> {
    let fill = ["--rw=write", "--bs=1m", "--iodepth=4"];
    for contender in contenders {
        fio(contender, &fill.map(String::from));
    }
    let by_load = LOADS.iter().map(|(name, rw, depth, connections)| {
        let arguments = [
            format!("--rw={rw}"),
            "--bs=4k".into(),
            format!("--iodepth={depth}"),
            format!("--numjobs={connections}"),
            "--time_based".into(),
            format!("--runtime={SECONDS}"),
            "--norandommap".into(),
            "--randrepeat=0".into(),
        ];
        let mut samples = vec![Vec::new(); contenders.len()];
        for round in 0..ROUNDS {
            for (of, contender) in contenders.iter().enumerate() {
                eprintln!("{name}, round {} of {ROUNDS}: {}", round + 1, contender.name);
                samples[of].push(sample(contender, &arguments));
            }
        }
        samples.iter().map(|samples| median(samples)).collect()
    });
    by_load.collect()
}

fn median(samples: &[Sample]) -> Sample {
    let of = |value: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Sample {
        iops: of(|s| s.iops),
        p50_us: of(|s| s.p50_us),
        p99_us: of(|s| s.p99_us),
        cpu_us: of(|s| s.cpu_us),
    }
}

fn sample(contender: &Contender, arguments: &[String]) -> Sample {
    let before = ticks(&contender.child);
    let report = fio(contender, arguments);
    let cpu_us = (ticks(&contender.child) - before) as f64 / TICKS * 1e6;
    let job = &report["jobs"][0];
    let side = if job["read"]["total_ios"] == 0 { &job["write"] } else { &job["read"] };
    let percentile = |name: &str| side["lat_ns"]["percentile"][name].as_f64().unwrap() / 1e3;
    Sample {
        iops: side["iops"].as_f64().unwrap(),
        p50_us: percentile("50.000000"),
        p99_us: percentile("99.000000"),
        cpu_us: cpu_us / side["total_ios"].as_f64().unwrap(),
    }
}

fn fio(contender: &Contender, arguments: &[String]) -> Value {
    let output = Command::new("fio")
        .args(["--name=x", "--ioengine=nbd", "--thread", "--group_reporting"])
        .args(["--output-format=json", "--lat_percentiles=1", &format!("--size={MEBIBYTES}m")])
        .arg(format!("--uri={}", contender.uri))
        .args(arguments)
        .output();
    let output = output.expect("fio is what measures: install it");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", contender.name);
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

/// User and system time of a process so far.
fn ticks(child: &Child) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    // The name of the program stands in brackets and may hold spaces; numbers follow it.
    let numbers: Vec<&str> = text[text.rfind(')').unwrap()..].split(' ').collect();
    numbers[12].parse::<u64>().unwrap() + numbers[13].parse::<u64>().unwrap()
}

fn report(contenders: &[Contender], results: &[Vec<Sample>], as_json: bool) {
    if as_json {
        let rows = LOADS.iter().zip(results).flat_map(|((load, ..), samples)| {
            contenders.iter().zip(samples).map(move |(contender, sample)| {
                json!({
                    "load": load, "server": contender.name, "iops": sample.iops.round(),
                    "p50_us": sample.p50_us, "p99_us": sample.p99_us,
                    "cpu_us_per_request": sample.cpu_us,
                })
            })
        });
        let rows: Vec<Value> = rows.collect();
        println!("{}", serde_json::to_string_pretty(&json!({ "nbd": rows })).unwrap());
        return;
    }
    println!("| load (4 KiB) | server | IOPS | p50 us | p99 us | server CPU us a request |");
    println!("|---|---|---|---|---|---|");
    for ((load, ..), samples) in LOADS.iter().zip(results) {
        for (contender, sample) in contenders.iter().zip(samples) {
            let Sample { iops, p50_us, p99_us, cpu_us } = sample;
            let name = contender.name;
            println!("| {load} | {name} | {iops:.0} | {p50_us:.0} | {p99_us:.0} | {cpu_us:.2} |");
        }
    }
    println!("\niofair against the better of the others, at each load:");
    for ((load, ..), samples) in LOADS.iter().zip(results) {
        let Some((ours, others)) = samples.split_first().filter(|(_, o)| !o.is_empty()) else {
            continue;
        };
        let fastest = others.iter().map(|s| s.iops).fold(0.0, f64::max);
        let cheapest = others.iter().map(|s| s.cpu_us).fold(f64::INFINITY, f64::min);
        let (speed, cost) = (ours.iops / fastest, ours.cpu_us / cheapest);
        println!("  {load}: IOPS x {speed:.2}, CPU a request x {cost:.2}");
    }
}
