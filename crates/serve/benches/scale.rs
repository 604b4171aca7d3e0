//! What ten, a hundred, a thousand and ten thousand volumes cost, each in a group of its own and with a connection of
//! its own: the start, memory, a request of one client beside all others, a changed group, a page of metrics.
//!
//! `cargo bench -p iofair-serve --bench scale` writes the table of docs/performance.md; under `cargo test` it runs
//! small. Times of the reactor are processor time of its thread, so other work on the machine disturbs them little.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use iofair_config::contracts::Contracts;
use iofair_core::time::Nanos;
use iofair_serve::Clock;
use iofair_serve::client::Client;
use iofair_serve::control::Control;
use iofair_serve::control::client::{Address, Call, call};
use iofair_testkit::page;

/// Requests of the one client that is busy.
const REQUESTS: usize = 2_000;
/// Changes of one group, and pages of metrics; the median is told.
const CHANGES: usize = 5;
/// What this program does when it is called with this and a socket: be all clients, in a process of its own, since the
/// descriptors of both ends together are too many for one.
const CLIENTS: &str = "--clients";

/// The present, from one clock.
struct Watch(Clock);

impl Watch {
    fn millis<T>(&self, run: impl FnOnce() -> T) -> (f64, T) {
        let before = self.0.now();
        let result = run();
        let Nanos(nanos) = self.0.now().since(before);
        (nanos as f64 / 1e6, result)
    }
}

/// Processor time of the reactor's thread so far, in microseconds.
fn reactor_us() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it");
    let is_reactor = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "reactor")
    };
    let task = tasks.flatten().map(|task| task.path()).find(is_reactor).expect("it runs");
    let stat = fs::read_to_string(task.join("schedstat")).expect("the kernel counts");
    let nanos: f64 = stat.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    nanos / 1e3
}

fn contracts(directory: &Path, volumes: usize, weight_of_first: u32) -> String {
    let mut text = format!(
        "[drive]\nback = \"memory:{}MiB\"\n[listen]\nunix = \"{}\"\n\
         connections = 65536\n[control]\nunix = \"{}\"\n",
        volumes.div_ceil(16),
        directory.join("nbd").display(),
        directory.join("control").display()
    );
    for number in 0..volumes {
        let weight = if number == 0 { weight_of_first } else { 100 };
        let _ = write!(
            text,
            "[[group]]\nname = \"tenants/{number}\"\nweight = {weight}\nmax = \"1GB/s\"\n\
             [[volume]]\nname = \"v{number}\"\ngroup = \"tenants/{number}\"\nsize = \"64KiB\"\n"
        );
    }
    text
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The process that is all clients.
struct Clients {
    process: Child,
    told: BufReader<ChildStdout>,
}

impl Clients {
    /// Connects all of them.
    fn start(socket: &Path, volumes: usize) -> Self {
        let program = std::env::current_exe().expect("it runs");
        let mut command = Command::new(program);
        command.arg(CLIENTS).arg(socket).arg(volumes.to_string());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it is this program");
        let told = BufReader::new(process.stdout.take().expect("piped"));
        let mut this = Self { process, told };
        this.wait();
        this
    }
    fn wait(&mut self) {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("it says when it is done");
        assert_eq!(line, "done\n");
    }
    /// One client sends its requests.
    fn step(&mut self) {
        let stdin = self.process.stdin.as_mut().expect("piped");
        stdin.write_all(b"go\n").expect("it reads");
        self.wait();
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The other side of [`Clients`].
fn be_clients(socket: &Path, volumes: usize) {
    let connect = |number| Client::connect(socket, &format!("v{number}"));
    let mut clients: Vec<Client> =
        (0..volumes).map(|number| connect(number).expect("let in")).collect();
    println!("done");
    for _ in std::io::stdin().lines() {
        let client = clients.last_mut().expect("at least one volume");
        for number in 0..REQUESTS {
            client.send_read((number % 16) as u64 * 4096, 4096).expect("sent");
            client.receive().expect("answered");
        }
        println!("done");
    }
}

/// One row: this many volumes.
struct Row {
    volumes: usize,
    parse_ms: f64,
    start_ms: f64,
    volume_kib: f64,
    connect_us: f64,
    connection_kib: f64,
    request_us: f64,
    change_ms: f64,
    change_reactor_us: f64,
    metrics_ms: f64,
    metrics_reactor_us: f64,
}

fn row(volumes: usize) -> Row {
    let watch = Watch(Clock::start());
    let name = format!("iofair-scale-{}-{volumes}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).expect("a place for sockets");
    let file = directory.join("contracts.toml");
    fs::write(&file, contracts(&directory, volumes, 100)).expect("room for a file");
    let resident = || page::resident_kib("self")[1] as f64;
    let empty = resident();
    let (parse_ms, parsed) = watch.millis(|| Contracts::open(&file));
    let parsed = parsed.expect("a good file");
    let (start_ms, control) = watch.millis(|| Control::start(&file, parsed));
    let control = control.expect("it starts");
    let idle = resident();
    let socket = directory.join("nbd");
    let (connect_ms, mut clients) = watch.millis(|| Clients::start(&socket, volumes));
    let connected = resident();
    let before = reactor_us();
    clients.step();
    let request_us = (reactor_us() - before) / REQUESTS as f64;
    let mut change = |number: usize| {
        fs::write(&file, contracts(&directory, volumes, 101 + number as u32)).expect("room");
        let before = reactor_us();
        let (millis, changed) = watch.millis(|| control.reload());
        changed.expect("a good file");
        (millis, reactor_us() - before)
    };
    let changes: Vec<(f64, f64)> = (0..CHANGES).map(&mut change).collect();
    let address = Address::Unix(directory.join("control"));
    let page = |_| {
        let before = reactor_us();
        let asked = Call::new("GET", "/metrics");
        let (millis, page) = watch.millis(|| call(&address, &asked));
        assert!(page.is_ok_and(|page| page.is_good()), "a page of metrics");
        (millis, reactor_us() - before)
    };
    let pages: Vec<(f64, f64)> = (0..CHANGES).map(page).collect();
    drop(clients);
    control.stop().expect("it ends");
    fs::remove_dir_all(&directory).expect("it is ours");
    let each = volumes as f64;
    Row {
        volumes,
        parse_ms,
        start_ms,
        volume_kib: (idle - empty) / each,
        connect_us: connect_ms * 1e3 / each,
        connection_kib: (connected - idle) / each,
        request_us,
        change_ms: median(changes.iter().map(|(millis, _)| *millis).collect()),
        change_reactor_us: median(changes.iter().map(|(_, reactor)| *reactor).collect()),
        metrics_ms: median(pages.iter().map(|(millis, _)| *millis).collect()),
        metrics_reactor_us: median(pages.iter().map(|(_, reactor)| *reactor).collect()),
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        vec![
            self.volumes.to_string(),
            format!("{:.0}", self.parse_ms),
            format!("{:.0}", self.start_ms),
            format!("{:.1}", self.volume_kib),
            format!("{:.0}", self.connect_us),
            format!("{:.1}", self.connection_kib),
            format!("{:.1}", self.request_us),
            format!("{:.1}", self.change_ms),
            format!("{:.0}", self.change_reactor_us),
            format!("{:.1}", self.metrics_ms),
            format!("{:.0}", self.metrics_reactor_us),
        ]
    }
}

const HEAD: &[&str] = &[
    "volumes",
    "file ms",
    "start ms",
    "KiB a volume",
    "us a connection",
    "KiB a connection",
    "reactor us a request",
    "change ms",
    "reactor us a change",
    "metrics ms",
    "reactor us a page",
];

fn main() {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(CLIENTS) {
        let (socket, volumes) = (words.next(), words.next().and_then(|count| count.parse().ok()));
        return be_clients(Path::new(&socket.expect("a path")), volumes.expect("a number"));
    }
    let (full, _) = page::arguments();
    if !full {
        row(10);
        return;
    }
    let rows: Vec<Row> = [10, 100, 1_000, 10_000].into_iter().map(row).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let mut text = page::table(HEAD, &cells);
    if let Some(last) = rows.last() {
        let aims = [
            page::aim(
                "10,000 volumes start in 3 s, their file included",
                format!("{:.1} s", (last.parse_ms + last.start_ms) / 1e3),
                last.parse_ms + last.start_ms < 3_000.0,
            ),
            page::aim(
                "changing one group of 10,000 costs the reactor 1 ms",
                format!("{:.2} ms", last.change_reactor_us / 1e3),
                last.change_reactor_us < 1_000.0,
            ),
        ];
        text += "\n";
        text += &page::table(page::AIMS, &aims);
    }
    page::publish("scale", &text);
}
