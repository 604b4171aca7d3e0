//! NBD throughput and the server's own cost beside other servers, in one run with one client.
//!
//! `cargo bench -p iofair-serve` prints tables, `-- --json` JSON. Every server keeps its data in memory;
//! fio's nbd engine drives each in turn, again and again in alternation, and the medians count, because
//! machines are shared. Servers run as processes of their own, so that what they cost is theirs alone:
//! user and system time and resident size from `/proc`. A server that is not installed is left out, and
//! named. Under `cargo test` it does nothing but say so: it needs those servers and two minutes.
#![allow(clippy::unwrap_used)]

#[path = "../../core/tests/support/page.rs"]
mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use iofair_config::contracts::Contracts;
use iofair_serve::client::Client;
use iofair_serve::{Server, Signals};
use serde_json::{Value, json};

/// Size of the volume: fits any test machine, does not fit any cache.
const MEBIBYTES: u64 = 256;
/// Rounds of alternation; medians of odd numbers are values that were measured.
const ROUNDS: usize = 3;
/// Seconds a measurement.
const SECONDS: u32 = 2;
/// Clients that are connected and idle, for the resident size, and reads that each did before.
const IDLE_CLIENTS: usize = 16;
const IDLE_READS: u64 = 64;
/// Aims: IOPS and processor time beside the faster peer, resident size with idle clients in MiB.
const IOPS_AIM: f64 = 1.0;
const CPU_AIM: f64 = 0.6;
const RESIDENT_AIM: f64 = 64.0;

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

/// A server under test; ends with its owner.
struct Contender {
    name: &'static str,
    child: Child,
    socket: PathBuf,
}

impl Drop for Contender {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    let contenders = contenders(&directory);
    let resident: Vec<f64> = contenders.iter().map(resident).collect();
    let results = measure(&contenders);
    fs::remove_dir_all(directory).unwrap();
    if arguments.iter().any(|argument| argument == "--json") {
        print_json(&contenders, &results, &resident);
    } else {
        page::publish("nbd", &report(&contenders, &results, &resident));
    }
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
    let image = Path::new("/dev/shm").join(format!("iofair-bench-{}", std::process::id()));
    fs::File::create(&image).unwrap().set_len(MEBIBYTES << 20).unwrap();
    let (size, text) = (format!("{MEBIBYTES}M"), |path: &Path| path.display().to_string());
    let own = text(&std::env::current_exe().unwrap());
    let image_name = text(&image);
    let commands: [(&'static str, Vec<&str>); 3] = [
        ("iofair", vec![&own, "--serve", "SOCKET"]),
        ("nbdkit memory", vec!["nbdkit", "-f", "-U", "SOCKET", "memory", &size]),
        (
            "qemu-nbd",
            ["qemu-nbd", "-t", "-e", "32", "-f", "raw", "--aio=io_uring", "-k", "SOCKET"]
                .into_iter()
                .chain([image_name.as_str()])
                .collect(),
        ),
    ];
    let mut started = Vec::new();
    for (name, command) in commands {
        let socket = directory.join(started.len().to_string());
        let place = text(&socket);
        let words = command.iter().map(|word| if *word == "SOCKET" { &*place } else { *word });
        let child = Command::new(command[0])
            .args(words.skip(1))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => started.push(Contender { name, child, socket }),
            Err(error) => eprintln!("left out: {name} ({}: {error})", command[0]),
        }
    }
    for contender in &mut started {
        // A socket may be there before anybody listens.
        while Client::connect(&contender.socket, "").is_err() {
            let ended = contender.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} does not serve: {ended:?}", contender.name);
            std::thread::yield_now();
        }
    }
    // Who has opened it keeps it.
    fs::remove_file(image).unwrap();
    started
}

/// Mebibytes that a server has in memory with idle clients, before anything was written.
fn resident(contender: &Contender) -> f64 {
    let connect = |_| Client::connect(&contender.socket, "").unwrap();
    let mut clients: Vec<Client> = (0..IDLE_CLIENTS).map(connect).collect();
    for client in &mut clients {
        for number in 0..IDLE_READS {
            client.send_read(number << 12, 4096).unwrap();
        }
    }
    for client in &mut clients {
        while client.in_flight() > 0 {
            client.receive().unwrap();
        }
    }
    let [_, now] = page::resident_kib(&contender.child.id().to_string());
    clients.into_iter().for_each(|client| client.disconnect().unwrap());
    now as f64 / 1024.0
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
    let process = contender.child.id().to_string();
    let before = page::processor_us(&process);
    let report = fio(contender, arguments);
    let cpu_us = page::processor_us(&process) - before;
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
        .arg(format!("--uri=nbd+unix:///?socket={}", contender.socket.display()))
        .args(arguments)
        .output();
    let output = output.expect("fio is what measures: install it");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}{text}", contender.name);
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

fn print_json(contenders: &[Contender], results: &[Vec<Sample>], resident: &[f64]) {
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
    let idle: Vec<Value> = contenders
        .iter()
        .zip(resident)
        .map(|(contender, mib)| json!({ "server": contender.name, "resident_mib": mib }))
        .collect();
    let all = json!({ "nbd": rows, "idle_clients": IDLE_CLIENTS, "idle": idle });
    println!("{}", serde_json::to_string_pretty(&all).unwrap());
}

/// The section of the page: what was measured at each load, then the aims.
fn report(contenders: &[Contender], results: &[Vec<Sample>], resident: &[f64]) -> String {
    let (mut rows, mut aims) = (Vec::new(), Vec::new());
    for ((load, ..), samples) in LOADS.iter().zip(results) {
        let ours = samples[0];
        for (contender, sample) in contenders.iter().zip(samples) {
            let Sample { iops, p50_us, p99_us, cpu_us } = sample;
            rows.push(vec![
                format!("{load}, {}", contender.name),
                format!("{iops:.0}"),
                format!("{:.2}", ours.iops / iops),
                format!("{p50_us:.0}"),
                format!("{p99_us:.0}"),
                format!("{cpu_us:.2}"),
                format!("{:.2}", ours.cpu_us / cpu_us),
            ]);
        }
        let Some(peer) = samples[1..].iter().max_by(|a, b| a.iops.total_cmp(&b.iops)) else {
            continue;
        };
        let (iops, cpu) = (ours.iops / peer.iops, ours.cpu_us / peer.cpu_us);
        aims.push(page::aim(
            format!("{load}: IOPS at least {IOPS_AIM} of the faster peer's"),
            format!("{iops:.2}"),
            iops >= IOPS_AIM,
        ));
        aims.push(page::aim(
            format!("{load}: the server's CPU a request at most {CPU_AIM} of that peer's"),
            format!("{cpu:.2}"),
            cpu <= CPU_AIM,
        ));
    }
    let idle = contenders.iter().zip(resident);
    let idle = idle.map(|(contender, mib)| format!("{} {mib:.1} MiB", contender.name));
    let idle = idle.collect::<Vec<_>>().join(", ");
    let mib = resident[0];
    aims.push(page::aim(
        format!("{IDLE_CLIENTS} idle clients: under {RESIDENT_AIM} MiB resident"),
        format!("{mib:.1} MiB"),
        mib < RESIDENT_AIM,
    ));
    let head = ["4 KiB, server", "IOPS", "ours is x", "p50 us", "p99 us", "CPU us", "ours is x"];
    format!(
        "{}\nResident with {IDLE_CLIENTS} clients connected and idle, each after {IDLE_READS} reads: \
         {idle}.\n\n{}",
        page::table(&head, &rows),
        page::table(page::AIMS, &aims)
    )
}
