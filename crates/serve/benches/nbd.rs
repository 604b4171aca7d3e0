//! NBD throughput and the server's own cost beside other servers, in one run with one client.
//!
//! `cargo bench -p iofair-serve --bench nbd` prints tables, `-- --json` JSON. Every server keeps its data in
//! memory, and fio's nbd engine drives each in turn. Costs are user and system time and resident size from
//! `/proc`. The last server only answers: it looks at nothing, decides nothing and reads from nowhere, so
//! that what a socket alone costs is in the table too. Then two of ours share an emulated drive between
//! four groups, one with a policy and one without. Under `cargo test` it does nothing but say so: it needs
//! those servers and three minutes.
#![allow(clippy::unwrap_used)]

mod bare;
mod peers;

use std::fs;
use std::path::Path;
use std::process::Command;

use iofair_config::contracts::Contracts;
use iofair_policies::DEFAULT_STACK;
use iofair_serve::client::Client;
use iofair_serve::{Server, Signals};
use iofair_testkit::page;
use peers::{Contender, Sample, own};
use serde_json::{Value, json};

/// Size of the volume: fits any test machine, does not fit any cache.
const MEBIBYTES: u64 = 256;
/// Rounds of alternation; medians of odd numbers are values that were measured.
const ROUNDS: usize = 3;
/// Seconds a measurement.
const SECONDS: u32 = 1;
/// Clients that are connected and idle, for the resident size, and reads that each did before.
const IDLE_CLIENTS: usize = 16;
const IDLE_READS: u64 = 64;
/// Aims: IOPS and processor time beside the faster peer, resident size with idle clients in MiB.
const IOPS_AIM: f64 = 1.0;
const CPU_AIM: f64 = 0.5;
const RESIDENT_AIM: f64 = 64.0;
/// The server that only answers is no peer: it keeps nothing.
const BARE: &str = "(bare socket)";
/// Where the drive is the limit: groups, each with a client, the drive, the stacks, and the part of the
/// one's throughput that the other must reach.
const GROUPS: usize = 4;
const DRIVE: &str = "plextor-px256m5s";
const STACKS: [&str; 2] = [DEFAULT_STACK, "none-none"];
const STACK_AIM: f64 = 0.97;

/// What the client does: name, direction, block, depth, connections.
const LOADS: [(&str, &str, &str, u32, u32); 8] = [
    ("QD1 read", "randread", "4k", 1, 1),
    ("QD1 write", "randwrite", "4k", 1, 1),
    ("QD32 read", "randread", "4k", 32, 1),
    ("QD32 write", "randwrite", "4k", 32, 1),
    ("4 x QD32 read", "randread", "4k", 32, 4),
    ("4 x QD32 write", "randwrite", "4k", 32, 4),
    ("1 MiB read", "read", "1m", 4, 1),
    ("1 MiB write", "write", "1m", 4, 1),
];
/// The same for the groups, a connection each.
const SHARED: [(&str, &str, &str, u32); 3] = [
    ("4 groups, QD32 read", "randread", "4k", 32),
    ("4 groups, QD8 read", "randread", "4k", 8),
    ("4 groups, 1 MiB read", "read", "1m", 4),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--serve", socket] => return serve(&in_memory(socket)),
        ["--share", socket, stack] => return serve(&shared(socket, stack)),
        ["--bare", socket] => return bare::serve(Path::new(socket), MEBIBYTES << 20),
        _ => {}
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("nbd: run it with cargo bench; it needs fio and three minutes");
        return;
    }
    let directory = std::env::temp_dir().join(format!("iofair-bench-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let contenders = contenders(&directory);
    let resident: Vec<f64> = contenders.iter().map(resident).collect();
    let loads = LOADS.map(|load| load.0);
    let results = peers::alternate(&contenders, &loads, ROUNDS, sample);
    let rows = peers::rows_json(&contenders, &loads, &results);
    let text = report(&contenders, &results, &resident);
    drop(contenders);
    let (stacks, together) = (stacks(&directory), SHARED.map(|load| load.0));
    let shares = peers::alternate(&stacks, &together, ROUNDS, sample_shared);
    fs::remove_dir_all(directory).unwrap();
    if arguments.iter().any(|argument| argument == "--json") {
        let shared = peers::rows_json(&stacks, &together, &shares);
        let all = json!({ "nbd": rows, "shared": shared, "resident_mib": resident });
        println!("{}", serde_json::to_string_pretty(&all).unwrap());
    } else {
        page::publish("nbd", &format!("{text}\n{}", report_shared(&stacks, &shares)));
    }
}

fn in_memory(socket: &str) -> String {
    format!(
        "[drive]\nback = 'memory:{MEBIBYTES}MiB'\nstack = 'none-none'\n\
         [listen]\nunix = '{socket}'\n[[group]]\nname = 'g'\n\
         [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '{MEBIBYTES}MiB'\n"
    )
}

/// A drive that is emulated in real time, shared by groups with a volume each.
fn shared(socket: &str, stack: &str) -> String {
    let groups = (0..GROUPS).map(|group| {
        format!(
            "[[group]]\nname = 'g{group}'\n\
             [[volume]]\nname = 'v{group}'\ngroup = 'g{group}'\nsize = '{MEBIBYTES}MiB'\n"
        )
    });
    let head = format!(
        "[drive]\nback = 'emulated:{DRIVE}'\nstack = '{stack}'\n\
         [listen]\nunix = '{socket}'\n"
    );
    head + &groups.collect::<String>()
}

/// Our server, as the program runs it, until it is killed.
fn serve(text: &str) {
    let signals = Signals::block().unwrap();
    let _server = Server::start(Contracts::parse("bench", text).unwrap()).unwrap();
    while signals.wait().unwrap().is_none() {}
}

fn contenders(directory: &Path) -> Vec<Contender> {
    let image = Path::new("/dev/shm").join(format!("iofair-bench-{}", std::process::id()));
    fs::File::create(&image).unwrap().set_len(MEBIBYTES << 20).unwrap();
    let words = |line: String| line.split(' ').map(String::from).collect::<Vec<_>>();
    let file = image.display();
    let commands = vec![
        ("iofair", own(&["--serve", "SOCKET"])),
        ("nbdkit memory", words(format!("nbdkit -f -U SOCKET memory {MEBIBYTES}M"))),
        ("qemu-nbd", words(format!("qemu-nbd -t -e 32 -f raw --aio=io_uring -k SOCKET {file}"))),
        (
            "qemu-storage-daemon",
            words(format!(
                "qemu-storage-daemon --blockdev driver=file,node-name=d,filename={file},\
                 aio=io_uring --nbd-server addr.type=unix,addr.path=SOCKET,max-connections=32 \
                 --export type=nbd,id=e,node-name=d,name=,writable=on"
            )),
        ),
        (BARE, own(&["--bare", "SOCKET"])),
    ];
    let started = peers::start(directory, commands, answers(""));
    // Who has opened it keeps it.
    fs::remove_file(image).unwrap();
    started
}

fn stacks(directory: &Path) -> Vec<Contender> {
    let commands = STACKS.map(|stack| (stack, own(&["--share", "SOCKET", stack])));
    peers::start(directory, commands.into(), answers("v0"))
}

fn answers(export: &str) -> impl Fn(&Path) -> bool {
    move |socket| Client::connect(socket, export).is_ok()
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

/// One measurement of a load of [`LOADS`].
fn sample(contender: &Contender, load: usize) -> Sample {
    let (_, rw, block, depth, connections) = LOADS[load];
    if load == 0 {
        let fill = ["--name=x", "--rw=write", "--bs=1m", "--iodepth=4"];
        fio(contender, &fill.map(String::from), &uri(contender, ""));
    }
    let arguments = arguments(rw, block, depth, connections);
    measured(contender, &arguments, &uri(contender, ""))
}

/// The same, of [`SHARED`]: a job a group.
fn sample_shared(contender: &Contender, load: usize) -> Sample {
    let (_, rw, block, depth) = SHARED[load];
    let mut all = arguments(rw, block, depth, 1);
    // The first job is named with the options; the others follow.
    for group in 1..GROUPS {
        all.push(uri(contender, &format!("v{}", group - 1)));
        all.extend(arguments(rw, block, depth, 1));
    }
    measured(contender, &all, &uri(contender, &format!("v{}", GROUPS - 1)))
}

fn arguments(rw: &str, block: &str, depth: u32, connections: u32) -> Vec<String> {
    vec![
        "--name=x".into(),
        format!("--rw={rw}"),
        format!("--bs={block}"),
        format!("--iodepth={depth}"),
        format!("--numjobs={connections}"),
        "--time_based".into(),
        format!("--runtime={SECONDS}"),
        "--norandommap".into(),
        "--randrepeat=0".into(),
    ]
}

fn uri(contender: &Contender, export: &str) -> String {
    format!("--uri=nbd+unix:///{export}?socket={}", contender.socket.display())
}

fn measured(contender: &Contender, arguments: &[String], last: &str) -> Sample {
    let before = contender.processor_us();
    let report = fio(contender, arguments, last);
    let cpu_us = contender.processor_us() - before;
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

fn fio(contender: &Contender, arguments: &[String], last: &str) -> Value {
    let size = format!("--size={MEBIBYTES}m");
    let jobs = arguments.iter().flat_map(|word| {
        let more = ["--ioengine=nbd", "--thread", "--group_reporting", size.as_str()];
        let more = if word == "--name=x" { more.to_vec() } else { Vec::new() };
        std::iter::once(word.as_str()).chain(more)
    });
    let output = Command::new("fio")
        .args(["--output-format=json", "--lat_percentiles=1"])
        .args(jobs)
        .arg(last)
        .output();
    let output = output.expect("fio is what measures: install it");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}{text}", contender.name);
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

/// The section of the page: what was measured at each load, then the aims.
fn report(contenders: &[Contender], results: &[Vec<Sample>], resident: &[f64]) -> String {
    let loads = LOADS.map(|load| load.0);
    let mut aims = Vec::new();
    for (load, samples) in loads.iter().zip(results) {
        let all = contenders.iter().zip(samples);
        let peers = all.skip(1).filter(|(contender, _)| contender.name != BARE);
        let best = peers.max_by(|(_, a), (_, b)| a.iops.total_cmp(&b.iops));
        let Some((_, peer)) = best else { continue };
        aims.extend(peers::aims(load, samples[0], *peer, [IOPS_AIM, CPU_AIM]));
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
    format!(
        "{}\nResident with {IDLE_CLIENTS} clients connected and idle, each after {IDLE_READS} reads: \
         {idle}.\n\n{}",
        peers::table(contenders, &loads, results),
        page::table(page::AIMS, &aims)
    )
}

fn report_shared(stacks: &[Contender], results: &[Vec<Sample>]) -> String {
    let loads = SHARED.map(|load| load.0);
    let beside = loads.iter().zip(results);
    let aims: Vec<_> = beside
        .map(|(load, samples)| {
            let part = samples[0].iops / samples[1].iops;
            let what = format!(
                "{load}: `{}` at least {STACK_AIM} of `{}`, when the drive is the limit",
                STACKS[0], STACKS[1]
            );
            page::aim(what, format!("{part:.3}"), part >= STACK_AIM)
        })
        .collect();
    format!(
        "An emulated {DRIVE}, shared by {GROUPS} groups with a client each:\n\n{}\n{}",
        peers::table(stacks, &loads, results),
        page::table(page::AIMS, &aims)
    )
}
