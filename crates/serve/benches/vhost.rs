//! vhost-user-blk throughput and the server's own cost beside qemu-storage-daemon, in one run with one client.
//!
//! `cargo bench -p iofair-serve --bench vhost` prints tables, `-- --json` JSON. A driver without a virtual
//! machine (the `virtio-driver` crate, one thread that sleeps until it is called) drives each server in turn,
//! again and again in alternation, and the medians count, because machines are shared. Servers run as
//! processes of their own, so that what they cost is theirs alone: user and system time from `/proc`. The
//! peer is measured with a file in memory, as an operator would use it, and with a drive that moves no
//! data at all, which is the least that it can cost. Under `cargo test` it does nothing but say so.
#![allow(unsafe_code, clippy::unwrap_used)]

#[path = "../tests/rig/disk.rs"]
mod disk;
#[path = "../../core/tests/support/page.rs"]
mod page;

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use disk::Disk;
use iofair_config::contracts::Contracts;
use iofair_serve::{Server, Signals};
use serde_json::{Value, json};

/// Size of the volume: fits any test machine, does not fit any cache.
const MEBIBYTES: u64 = 256;
/// Rounds of alternation; medians of odd numbers are values that were measured.
const ROUNDS: usize = 5;
/// How long a measurement takes, and how long before it counts.
const TIME: Duration = Duration::from_millis(1000);
const RAMP: Duration = Duration::from_millis(100);
/// Aims: IOPS at one request outstanding and at more, and processor time, beside the faster peer.
const IOPS_AIM: f64 = 1.0;
const CPU_AIM: f64 = 0.5;

/// What the client does.
struct Load {
    name: &'static str,
    writes: bool,
    depth: usize,
    queues: usize,
    bytes: usize,
    /// One block after the other, instead of anywhere.
    sequential: bool,
}

const fn random(name: &'static str, writes: bool, depth: usize, queues: usize) -> Load {
    Load { name, writes, depth, queues, bytes: 4096, sequential: false }
}
const fn stream(name: &'static str, writes: bool) -> Load {
    Load { name, writes, depth: 4, queues: 1, bytes: 1 << 20, sequential: true }
}

const LOADS: [Load; 8] = [
    random("QD1 read", false, 1, 1),
    random("QD1 write", true, 1, 1),
    random("QD32 read", false, 32, 1),
    random("QD32 write", true, 32, 1),
    random("4 x QD32 read", false, 32, 4),
    random("4 x QD32 write", true, 32, 4),
    stream("1 MiB read", false),
    stream("1 MiB write", true),
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
    socket: String,
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
        return serve(socket);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("vhost: run it with cargo bench; it needs qemu-storage-daemon and two minutes");
        return;
    }
    let directory = std::env::temp_dir().join(format!("iofair-vhost-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let contenders = contenders(&directory);
    let results = measure(&contenders);
    fs::remove_dir_all(directory).unwrap();
    if arguments.iter().any(|argument| argument == "--json") {
        print_json(&contenders, &results);
    } else {
        page::publish("vhost", &report(&contenders, &results));
    }
}

/// Our server, as the program runs it, until it is killed.
fn serve(socket: &str) {
    let text = format!(
        "[drive]\nback = 'memory:{MEBIBYTES}MiB'\nstack = 'none-none'\n[[group]]\nname = 'g'\n\
         [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '{MEBIBYTES}MiB'\nvhost = '{socket}'\n"
    );
    let signals = Signals::block().unwrap();
    let _server = Server::start(Contracts::parse("bench", &text).unwrap()).unwrap();
    while signals.wait().unwrap().is_none() {}
}

fn contenders(directory: &Path) -> Vec<Contender> {
    let image = Path::new("/dev/shm").join(format!("iofair-vhost-{}", std::process::id()));
    fs::File::create(&image).unwrap().set_len(MEBIBYTES << 20).unwrap();
    let own = std::env::current_exe().unwrap().display().to_string();
    let file = format!("driver=file,node-name=d,filename={},aio=io_uring", image.display());
    let nothing = format!("driver=null-co,node-name=d,size={}", MEBIBYTES << 20);
    let export = "type=vhost-user-blk,id=e,node-name=d,writable=on,num-queues=4,\
                  addr.type=unix,addr.path=SOCKET";
    let daemon = |drive: String| {
        ["qemu-storage-daemon", "--blockdev", &drive, "--export", export].map(String::from).to_vec()
    };
    let commands = [
        ("iofair", vec![own, "--serve".into(), "SOCKET".into()]),
        ("qsd, file in memory", daemon(file)),
        ("qsd, no data", daemon(nothing)),
    ];
    let mut started = Vec::new();
    for (name, command) in commands {
        let socket = directory.join(started.len().to_string()).display().to_string();
        let words = command.iter().map(|word| word.replace("SOCKET", &socket));
        let child = Command::new(&command[0])
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
        while UnixStream::connect(&contender.socket).is_err() {
            let ended = contender.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} does not serve: {ended:?}", contender.name);
            std::thread::yield_now();
        }
    }
    // Who has opened it keeps it.
    fs::remove_file(image).unwrap();
    started
}

/// Medians, by load and contender.
fn measure(contenders: &[Contender]) -> Vec<Vec<Sample>> {
    let by_load = LOADS.iter().map(|load| {
        let mut samples = vec![Vec::new(); contenders.len()];
        for round in 0..ROUNDS {
            for (of, contender) in contenders.iter().enumerate() {
                eprintln!("{}, round {} of {ROUNDS}: {}", load.name, round + 1, contender.name);
                samples[of].push(sample(contender, load));
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

/// One client's run.
struct Run<'a> {
    load: &'a Load,
    disk: Disk,
    /// When each outstanding request began.
    begun: Vec<Instant>,
    seed: u64,
    next: u64,
}

impl Run<'_> {
    fn submit(&mut self, name: usize) {
        let Load { bytes, depth, .. } = *self.load;
        let blocks = (MEBIBYTES << 20) / bytes as u64;
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.next += 1;
        let block = if self.load.sequential { self.next } else { self.seed >> 20 } % blocks;
        let (at, buffer) = (block * bytes as u64, self.disk.bytes(name * bytes, bytes));
        let queue = &mut self.disk.queues[name / depth];
        self.begun[name] = Instant::now();
        let submitted = match self.load.writes {
            true => queue.write(at, buffer, name as u64),
            false => queue.read(at, buffer, name as u64),
        };
        submitted.unwrap();
    }
    /// Waits for what is outstanding: the peer does not always outlive a client that leaves before.
    fn drain(&mut self) {
        let mut left = self.begun.len();
        while left > 0 {
            let queues = self.disk.queues.iter_mut();
            let done: usize = queues.map(|queue| queue.completions().count()).sum();
            left -= done;
            if done == 0 {
                self.sleep();
            }
        }
    }
    fn turn(&mut self, latencies: Option<&mut Vec<u32>>) {
        let mut done = Vec::new();
        for queue in &mut self.disk.queues {
            done.extend(queue.completions().map(|one| (one.context as usize, one.ret)));
        }
        if done.is_empty() {
            return self.sleep();
        }
        let now = Instant::now();
        if let Some(latencies) = latencies {
            let nanos = |name: usize| (now - self.begun[name]).as_nanos() as u32;
            latencies.extend(done.iter().map(|(name, _)| nanos(*name)));
        }
        for (name, result) in done {
            assert_eq!(result, 0);
            self.submit(name);
        }
        (0..self.load.queues).for_each(|queue| self.disk.kick(queue));
    }
    /// Until some queue is called about.
    fn sleep(&self) {
        let transport = &self.disk.transport;
        let files: Vec<_> =
            (0..self.load.queues).map(|queue| transport.get_completion_fd(queue)).collect();
        let poll = |file| libc::pollfd { fd: file, events: libc::POLLIN, revents: 0 };
        let mut polls: Vec<_> = files.iter().map(|file| poll(file.as_raw_fd())).collect();
        // SAFETY: as many entries as it says, which are there.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as u64, 1000) };
        for (file, poll) in files.iter().zip(polls) {
            if poll.revents != 0 {
                file.read().unwrap();
            }
        }
    }
}

fn sample(contender: &Contender, load: &Load) -> Sample {
    let disk = Disk::connect(&contender.socket, load.queues, 128);
    for queue in 0..load.queues {
        // As virtual machine monitors make them.
        let file = disk.transport.get_completion_fd(queue).as_raw_fd();
        // SAFETY: a plain system call on a descriptor that is there.
        assert_eq!(unsafe { libc::fcntl(file, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }
    let count = load.depth * load.queues;
    let mut run = Run { load, disk, begun: vec![Instant::now(); count], seed: 1, next: 0 };
    (0..count).for_each(|name| run.submit(name));
    (0..load.queues).for_each(|queue| run.disk.kick(queue));
    let mut latencies = Vec::with_capacity(1 << 20);
    let ramp = Instant::now();
    while ramp.elapsed() < RAMP {
        run.turn(None);
    }
    let process = contender.child.id().to_string();
    let (begun, before) = (Instant::now(), page::processor_us(&process));
    while begun.elapsed() < TIME {
        run.turn(Some(&mut latencies));
    }
    let (time, cpu) = (begun.elapsed(), page::processor_us(&process) - before);
    run.drain();
    latencies.sort_unstable();
    let at = |share: usize| f64::from(latencies[latencies.len() * share / 100]) / 1e3;
    Sample {
        iops: latencies.len() as f64 / time.as_secs_f64(),
        p50_us: at(50),
        p99_us: at(99),
        cpu_us: cpu / latencies.len() as f64,
    }
}

fn print_json(contenders: &[Contender], results: &[Vec<Sample>]) {
    let rows = LOADS.iter().zip(results).flat_map(|(load, samples)| {
        contenders.iter().zip(samples).map(move |(contender, sample)| {
            json!({
                "load": load.name, "server": contender.name, "iops": sample.iops.round(),
                "p50_us": sample.p50_us, "p99_us": sample.p99_us,
                "cpu_us_per_request": sample.cpu_us,
            })
        })
    });
    let rows: Vec<Value> = rows.collect();
    println!("{}", serde_json::to_string_pretty(&json!({ "vhost": rows })).unwrap());
}

/// The section of the page: what was measured at each load, then the aims.
fn report(contenders: &[Contender], results: &[Vec<Sample>]) -> String {
    let (mut rows, mut aims) = (Vec::new(), Vec::new());
    for (Load { name, .. }, samples) in LOADS.iter().zip(results) {
        let ours = samples[0];
        for (contender, sample) in contenders.iter().zip(samples) {
            let Sample { iops, p50_us, p99_us, cpu_us } = sample;
            rows.push(vec![
                format!("{name}, {}", contender.name),
                format!("{iops:.0}"),
                format!("{:.2}", ours.iops / iops),
                format!("{p50_us:.0}"),
                format!("{p99_us:.0}"),
                format!("{cpu_us:.2}"),
                format!("{:.2}", ours.cpu_us / cpu_us),
            ]);
        }
        // The one that moves data, as ours does.
        let Some(peer) = samples.get(1) else { continue };
        let (iops, cpu) = (ours.iops / peer.iops, ours.cpu_us / peer.cpu_us);
        aims.push(page::aim(
            format!("{name}: IOPS at least {IOPS_AIM} of the peer's"),
            format!("{iops:.2}"),
            iops >= IOPS_AIM,
        ));
        aims.push(page::aim(
            format!("{name}: the server's CPU a request at most {CPU_AIM} of the peer's"),
            format!("{cpu:.2}"),
            cpu <= CPU_AIM,
        ));
    }
    let head = ["server", "IOPS", "ours is x", "p50 us", "p99 us", "CPU us", "ours is x"];
    format!("{}\n{}", page::table(&head, &rows), page::table(page::AIMS, &aims))
}
