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
mod peers;

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use disk::Disk;
use iofair_config::contracts::Contracts;
use iofair_serve::{Server, Signals};
use iofair_testkit::page;
use peers::{Contender, Sample, own};
use serde_json::json;

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
    let loads = LOADS.each_ref().map(|load| load.name);
    let run = |contender: &Contender, load: usize| sample(contender, &LOADS[load]);
    let results = peers::alternate(&contenders, &loads, ROUNDS, run);
    fs::remove_dir_all(directory).unwrap();
    if arguments.iter().any(|argument| argument == "--json") {
        let rows = peers::rows_json(&contenders, &loads, &results);
        println!("{}", serde_json::to_string_pretty(&json!({ "vhost": rows })).unwrap());
    } else {
        page::publish("vhost", &report(&contenders, &loads, &results));
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
    let file = format!("driver=file,node-name=d,filename={},aio=io_uring", image.display());
    let nothing = format!("driver=null-co,node-name=d,size={}", MEBIBYTES << 20);
    let export = "type=vhost-user-blk,id=e,node-name=d,writable=on,num-queues=4,\
                  addr.type=unix,addr.path=SOCKET";
    let daemon = |drive: String| {
        ["qemu-storage-daemon", "--blockdev", &drive, "--export", export].map(String::from).to_vec()
    };
    let commands = vec![
        ("iofair", own(&["--serve", "SOCKET"])),
        ("qsd, file in memory", daemon(file)),
        ("qsd, no data", daemon(nothing)),
    ];
    let answers = |socket: &Path| UnixStream::connect(socket).is_ok();
    let started = peers::start(directory, commands, answers);
    // Who has opened it keeps it.
    fs::remove_file(image).unwrap();
    started
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
    let disk = Disk::connect(&contender.socket.display().to_string(), load.queues, 128);
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
    let (begun, before) = (Instant::now(), contender.processor_us());
    while begun.elapsed() < TIME {
        run.turn(Some(&mut latencies));
    }
    let (time, cpu) = (begun.elapsed(), contender.processor_us() - before);
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

/// The section of the page: what was measured at each load, then the aims.
fn report(contenders: &[Contender], loads: &[&str], results: &[Vec<Sample>]) -> String {
    // The second one moves data, as ours does.
    let beside = loads.iter().zip(results).filter(|(_, samples)| samples.len() > 1);
    let aims: Vec<_> = beside
        .flat_map(|(load, samples)| peers::aims(load, samples[0], samples[1], [IOPS_AIM, CPU_AIM]))
        .collect();
    let table = peers::table(contenders, loads, results);
    format!("{table}\n{}", page::table(page::AIMS, &aims))
}
