//! Logging loses lines, never the server: standard error and standard output that fail or that nobody reads, and an
//! audit log whose disk is full or whose file was moved away.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Output, Stdio};

use iofair_testkit::directory::Directory;
use iofair_testkit::wire::Wire;

const PROGRAM: &str = env!("CARGO_BIN_EXE_iofair");
const CONTRACTS: &str = "[drive]\nback = 'memory:64MiB'\nstack = 'prop-bfq'\n[listen]\nunix = 'pool.sock'\n\
    [control]\nunix = 'control.sock'\n[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n";
/// Signals until one must have had its effect.
const SIGNALS_MAX: usize = 5_000;
/// Bytes that a pipe of Linux holds.
const PIPE_BYTES: usize = 64 << 10;

/// A server, killed when it is dropped.
struct Served<'a> {
    child: Child,
    directory: &'a Directory,
}

impl<'a> Served<'a> {
    fn start(directory: &'a Directory, contracts: &str, output: Stdio, error: Stdio) -> Self {
        fs::write(directory.path("contracts.toml"), contracts).unwrap();
        let mut program = Command::new(PROGRAM);
        program.args(["serve", "contracts.toml"]).current_dir(&directory.0);
        let manager = directory.path("manager");
        if fs::exists(&manager).unwrap() {
            program.env("NOTIFY_SOCKET", manager);
        }
        let child = program.stdout(output).stderr(error).spawn().unwrap();
        Self { child, directory }
    }
    /// Starts it and waits until it serves.
    fn ready(directory: &'a Directory, contracts: &str, error: Stdio) -> Self {
        let mut this = Self::start(directory, contracts, Stdio::piped(), error);
        let mut line = String::new();
        BufReader::new(this.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving"), "{line}");
        this
    }
    fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(killed.unwrap().success());
    }
    /// What `iofair ctl` says.
    fn ctl(&self, words: &str) -> Output {
        let mut program = Command::new(PROGRAM);
        program.args(["ctl", "--socket", "control.sock"]).args(words.split(' '));
        program.current_dir(&self.directory.0).output().unwrap()
    }
    fn does(&self, words: &str) -> String {
        let output = self.ctl(words);
        assert!(output.status.success(), "{words}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }
    /// Ends it as a service manager does.
    fn ends_well(mut self) {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// The number of lost lines that a server with metrics at `metrics.sock` tells.
fn lost(directory: &Directory) -> u64 {
    let mut socket = UnixStream::connect(directory.path("metrics.sock")).unwrap();
    socket
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    socket.read_to_string(&mut page).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("iofair_log_lines_lost_total "));
    line.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

/// Goal: every refused client is in the log when the server has ended, also those of the last seconds. Method: clients that do not
/// speak the protocol, one after the other, and an end at once.
#[test]
fn the_last_refusals_are_logged() {
    let directory = Directory::new();
    let log = File::create(directory.path("log")).unwrap();
    let served = Served::ready(&directory, CONTRACTS, log.into());
    for _ in 0..3 {
        let mut client = UnixStream::connect(directory.path("pool.sock")).unwrap();
        client.write_all(&[0xff; 64]).unwrap();
        // It may be closed with bytes that were not read.
        let _ = client.read_to_end(&mut Vec::new());
    }
    served.ends_well();
    let log = fs::read_to_string(directory.path("log")).unwrap();
    let counts = log.lines().filter_map(|line| line.split_once("refused: ")?.1.split(' ').next());
    assert_eq!(counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), 3, "{log}");
}

/// Goal: the operator learns at once what the end of a server waits for, and of writes that it leaves. Method: writes that a ceiling holds, and an end with little
/// time; the reply to a read says that they were received.
#[test]
fn writes_that_an_end_leaves_are_logged() {
    let directory = Directory::new();
    let log = File::create(directory.path("log")).unwrap();
    let contracts = CONTRACTS
        .replace("stack = 'prop-bfq'", "stack = 'max-none'\ndrain = '100ms'")
        .replace("name = 'g'\n[[", "name = 'g'\nmax = { write = '1B/s' }\n[[");
    let served = Served::ready(&directory, &contracts, log.into());
    let mut wire = Wire::connect(&directory.path("pool.sock"));
    for number in 0..3 {
        wire.send_write(0, number * 4096, &[7; 4096]).unwrap();
    }
    wire.send_read(0, 4096).unwrap();
    assert_eq!(wire.receive().unwrap().error, 0);
    served.ends_well();
    let log = fs::read_to_string(directory.path("log")).unwrap();
    let told = "server: 3 writes not carried out, or only in part, within the time `drain`: 3 of volume \"v\"\n";
    assert!(log.ends_with(told), "{log}");
    let (told, _) = log.split_once("server: 3 writes").unwrap();
    assert!(
        told.ends_with(
            "server: ending: 3 requests in flight, for which 100ms are left (`drain`)\n"
        ),
        "{log}"
    );
}

/// Goal: a client that reads no replies is named at the end, which it does not delay for longer than `drain`. Method: more replies than the
/// socket holds; that they are finished is seen in the usage of its group.
#[test]
fn clients_that_read_nothing_are_logged_at_the_end() {
    let directory = Directory::new();
    let log = File::create(directory.path("log")).unwrap();
    let contracts = CONTRACTS.replace("'prop-bfq'", "'none-none'\ndrain = '100ms'");
    let served = Served::ready(&directory, &contracts, log.into());
    let mut wire = Wire::connect(&directory.path("pool.sock"));
    for _ in 0..16 {
        wire.send_read(0, 1 << 20).unwrap();
    }
    let is_waiting =
        |usage: String| usage.contains("read 0,") || !usage.contains(" 0 requests in flight");
    while is_waiting(served.does("group usage g")) {}
    served.ends_well();
    let log = fs::read_to_string(directory.path("log")).unwrap();
    let told = "server: ending: replies that 1 client did not read yet, for which 100ms are left (`drain`): 1 of volume \"v\"\n";
    assert!(log.contains(told), "{log}");
}

/// Goal: a server whose standard error fails reloads, changes and ends as if it worked, and counts what it lost. Method:
/// /dev/full, a reload that fails and one that works, changes.
#[test]
fn a_full_standard_error_ends_nothing() {
    let directory = Directory::new();
    let contracts = format!("{CONTRACTS}[metrics]\nunix = 'metrics.sock'\n");
    let served = Served::ready(&directory, &contracts, full());
    fs::write(directory.path("contracts.toml"), "nothing").unwrap();
    served.signal("-HUP");
    // A change is refused until the reload is over and the file is right again, whichever comes first.
    served.ctl("group set g weight=7");
    fs::write(directory.path("contracts.toml"), &contracts).unwrap();
    served.signal("-HUP");
    served.does("reload");
    served.does("group set g weight=7");
    assert!(served.does("status").contains("serving"));
    assert!(lost(&directory) > 0);
    served.ends_well();
}

/// Goal: a standard error that nobody reads blocks neither signals nor changes, and what was written meanwhile appears
/// once somebody reads. Method: a pipe that is full from the beginning; audited changes, reloads, the end; then it is read.
#[test]
fn an_unread_standard_error_blocks_nothing() {
    let directory = Directory::new();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'x'; PIPE_BYTES]).unwrap();
    let served = Served::ready(&directory, CONTRACTS, writer.into());
    served.does("group set g weight=7");
    served.signal("-HUP");
    served.does("volume create w g 1MiB");
    let mut filler = vec![0; PIPE_BYTES];
    reader.read_exact(&mut filler).unwrap();
    let mut lines = BufReader::new(reader).lines();
    let mut said = |what: &str| lines.any(|line| line.unwrap().contains(what));
    assert!(said("\"edit\":{\"weight\":7}"), "the audit log");
    served.ends_well();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'x'; PIPE_BYTES]).unwrap();
    Served::ready(&directory, CONTRACTS, writer.into()).ends_well();
}

/// Goal: a service manager that reads no notifications blocks neither reloads nor the end. Method: a socket whose queue is
/// full.
#[test]
fn an_unread_manager_blocks_nothing() {
    let directory = Directory::new();
    let _manager = UnixDatagram::bind(directory.path("manager")).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.connect(directory.path("manager")).unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send(b"STATUS=x").is_ok() {}
    let mut served = Served::ready(&directory, CONTRACTS, Stdio::piped());
    served.signal("-HUP");
    let mut lines = BufReader::new(served.child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("contracts reloaded")));
    served.ends_well();
}

/// Goal: a server goes on without a standard output, and says why nobody reads that it is ready. Method: /dev/full, and a
/// pipe whose reader is gone.
#[test]
fn a_lost_standard_output_ends_nothing() {
    let directory = Directory::new();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for (output, why) in [(full(), "No space left on device"), (closed.into(), "Broken pipe")] {
        let mut served = Served::start(&directory, CONTRACTS, output, Stdio::piped());
        let mut lines = BufReader::new(served.child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with("standard output: ") && line.contains(why), "{line}");
        assert!(served.does("status").contains("serving"));
        served.ends_well();
    }
}

/// Goal: a command that only prints fails with the name of what is full, and ends quietly when its reader has gone,
/// whatever it prints: results, help, an error. Method: /dev/full and closed pipes.
#[test]
fn commands_name_a_full_standard_output() {
    for words in [&["list", "policies"][..], &["--help"], &["completions", "bash"], &["man"]] {
        let output = Command::new(PROGRAM).args(words).stdout(full()).output().unwrap();
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.contains("standard output") && told.contains("No space left"), "{told}");
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(PROGRAM).args(words).stdout(closed).output().unwrap();
        assert_eq!((output.status.code(), text(&output).as_str()), (Some(0), ""), "{words:?}");
    }
    for (words, code) in [(&["list", "nothing"][..], 2), (&["serve", "nowhere.toml"], 2)] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        for error in [full(), closed.into()] {
            let output = Command::new(PROGRAM).args(words).stderr(error).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{words:?}");
        }
    }
}

/// Goal: a command that has done its work and waits for whoever reads the result ends with a signal. Method: a recording whose
/// standard output is a pipe that is full; it is told to end until it has.
#[test]
fn signals_end_commands_that_nobody_reads() {
    let directory = Directory::new();
    let served = Served::ready(&directory, CONTRACTS, Stdio::null());
    let (_reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'x'; PIPE_BYTES]).unwrap();
    let mut program = Command::new(PROGRAM);
    program.args(["record", "--socket", "control.sock", "--duration", "1ms", "trace"]);
    let mut recording = program.current_dir(&directory.0).stdout(writer).spawn().unwrap();
    while fs::metadata(directory.path("trace")).map_or(0, |file| file.len()) == 0 {
        std::thread::yield_now();
    }
    let id = recording.id().to_string();
    let ended = (0..SIGNALS_MAX).any(|_| {
        assert!(Command::new("kill").arg(&id).status().unwrap().success());
        recording.try_wait().unwrap().is_some()
    });
    recording.kill().unwrap();
    recording.wait().unwrap();
    assert!(ended, "it takes no signal");
    served.ends_well();
}

/// The lines of an audit log, each of which must be whole.
fn records(path: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}")))
        .collect()
}

/// Goal: an audit log whose file was renamed or removed goes on in a new file of the same mode, with every change.
/// Method: as `logrotate` does both, with and without its signal; each change is in one of the files.
#[test]
fn a_moved_audit_log_is_opened_again() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new();
    let contracts = CONTRACTS.replace("'control.sock'\n", "'control.sock'\naudit = 'audit'\n");
    let mut served = Served::ready(&directory, &contracts, Stdio::piped());
    let path = directory.path("audit");
    served.does("group set g weight=1");
    fs::rename(&path, directory.path("audit.old")).unwrap();
    served.does("group set g weight=2");
    assert_eq!(records(&directory.path("audit.old")).len(), 2);
    assert_eq!(records(&path)[0]["edit"]["weight"], 2);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&path).unwrap();
    served.signal("-HUP");
    let mut lines = BufReader::new(served.child.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("contracts reloaded"));
    served.does("group set g weight=3");
    let all = records(&path);
    assert_eq!((&all[0]["source"], &all[2]["edit"]["weight"]), (&"signal".into(), &3.into()));
    assert!(served.does("audit").lines().count() >= 4);
    served.ends_well();
}

/// A file system of its own, unmounted when it is dropped.
struct Small(String);

impl Small {
    fn mount(path: String) -> Self {
        Self::with_size(path, "64k")
    }
    fn with_size(path: String, size: &str) -> Self {
        fs::create_dir_all(&path).unwrap();
        let options = ["-t", "tmpfs", "-o", &format!("size={size}"), "none", &path];
        assert!(Command::new("mount").args(options).status().unwrap().success());
        Self(path)
    }
    fn filler(&self) -> String {
        format!("{}/filler", self.0)
    }
    fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        while file.write_all(&[0; 1024]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

/// Goal: a full disk refuses changes with the reason, spoils no record, and once there is room changes and log go on.
/// Method: a tmpfs of 256 KiB that is filled while the log is in the middle of a page; records until one fails.
#[test]
#[ignore = "needs root: mounts a tmpfs"]
fn needs_root_a_full_disk_tears_no_record() {
    let directory = Directory::new();
    let small = Small::with_size(directory.path("small"), "256k");
    let contracts =
        CONTRACTS.replace("'control.sock'\n", "'control.sock'\naudit = 'small/audit'\n");
    let served = Served::ready(&directory, &contracts, Stdio::null());
    served.does("group set g weight=2");
    small.fill();
    // There is no such volume, so that each try is records and nothing else.
    let refusal = loop {
        let told = text(&served.ctl(&format!("volume remove {}", "n".repeat(200))));
        if told.contains("audit log") {
            break told;
        }
        assert!(told.contains("there is no volume"), "{told}");
    };
    assert!(refusal.contains("small/audit") && refusal.contains("No space left"), "{refusal}");
    let before = records(&directory.path("small/audit")).len();
    fs::remove_file(small.filler()).unwrap();
    served.does("group set g weight=9");
    let after = records(&directory.path("small/audit"));
    assert_eq!(after.last().unwrap()["edit"]["weight"], 9);
    assert!(after.len() > before && served.does("audit").contains("weight"));
    served.ends_well();
}

/// Goal: what standard error lost is told once it works again. Method: a file on a full tmpfs.
#[test]
#[ignore = "needs root: mounts a tmpfs"]
fn needs_root_lost_lines_are_told_later() {
    let directory = Directory::new();
    let small = Small::mount(directory.path("small"));
    let log = directory.path("small/log");
    let file = File::options().create(true).append(true).open(&log).unwrap();
    small.fill();
    let served = Served::ready(&directory, CONTRACTS, file.into());
    served.does("group set g weight=4");
    served.does("reload");
    fs::remove_file(small.filler()).unwrap();
    served.does("group set g weight=5");
    served.ends_well();
    let told = fs::read_to_string(&log).unwrap();
    assert!(told.contains(" lines lost: standard error failed: No space left"), "{told}");
    assert!(told.contains("\"weight\":5"), "{told}");
}

/// Goal: the log says once that a volume of a directory found no room, the client gets the error, and the rest is written. Method: a
/// sparse file on a full tmpfs; many writes, and one after there is room.
#[test]
#[ignore = "needs root: mounts a tmpfs"]
fn needs_root_a_volume_without_room_is_told() {
    const NO_SPACE: u32 = 28;
    let directory = Directory::new();
    let small = Small::mount(directory.path("small"));
    let contracts = CONTRACTS.replace("memory:64MiB", "directory:small/pool");
    let (reader, writer) = std::io::pipe().unwrap();
    let served = Served::ready(&directory, &contracts, writer.into());
    small.fill();
    let mut wire = Wire::connect(&directory.path("pool.sock"));
    for at in 0..20 {
        assert_eq!(wire.write(0, at * 4096, &[7; 4096]), NO_SPACE);
    }
    fs::remove_file(small.filler()).unwrap();
    assert_eq!(wire.write(0, 0, &[7; 4096]), 0);
    drop(wire);
    served.ends_well();
    let told: Vec<String> = BufReader::new(reader).lines().map(Result::unwrap).collect();
    let told = told.iter().filter(|line| line.starts_with("volume \"v\": "));
    let told: Vec<_> = told.filter(|line| line.contains("no space left")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
}

/// Goal: on a full file system that has everything, volumes can be removed to make room, and the log has the change. Method: a
/// tmpfs with contract file, audit log and pool, which a volume and another file fill.
#[test]
#[ignore = "needs root: mounts a tmpfs"]
fn needs_root_a_full_disk_lets_volumes_go() {
    let directory = Directory::new();
    let small = Small::with_size(directory.0.display().to_string(), "2m");
    let contracts = CONTRACTS
        .replace("memory:64MiB", "directory:pool")
        .replace("'control.sock'\n", "'control.sock'\naudit = 'audit'\n");
    let served = Served::ready(&directory, &contracts, Stdio::null());
    assert_eq!(Wire::connect(&directory.path("pool.sock")).write(0, 0, &[7; 1 << 19]), 0);
    small.fill();
    served.does("volume remove v --delete-data");
    served.does("group set g weight=7");
    let last = records(&directory.path("audit")).pop().unwrap();
    assert_eq!((&last["edit"]["weight"], &last["status"]), (&7.into(), &200.into()));
    served.ends_well();
}

/// Goal: a start with too few descriptors says how many there are and how many it needs. Method: limits as of `ulimit -n`, a start and a
/// check.
#[test]
fn too_few_descriptors_are_told() {
    let directory = Directory::new();
    fs::write(directory.path("contracts.toml"), CONTRACTS).unwrap();
    for (limit, check) in [(5, ""), (14, ""), (63, ""), (14, "--check")] {
        let script = format!("ulimit -n {limit}; exec \"$0\" serve {check} contracts.toml");
        let output =
            Command::new("bash").args(["-c", &script, PROGRAM]).current_dir(&directory.0).output();
        let output = output.unwrap();
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{limit}: {told}");
        let has = told.contains(&format!("may open {limit} files (RLIMIT_NOFILE)"));
        assert!(has && told.contains("at least 64"), "{limit}: {told}");
    }
}

/// Goal: what a start tells of contracts, a check and a change tell too. Method: a reload by signal, a check and two changes, with
/// `clients` in one of two groups, and with more connections than files may be open.
#[test]
fn notes_of_a_start_are_notes_of_a_change() {
    let directory = Directory::new();
    let mut served = Served::ready(&directory, CONTRACTS, Stdio::piped());
    let process = served.child.id().to_string();
    let limited = Command::new("prlimit").args(["--nofile=1500", "--pid", &process]).status();
    assert!(limited.unwrap().success());
    let closed = "no client may open the volumes of g: other groups have `clients`";
    let many =
        "this process may open 1500 files (RLIMIT_NOFILE); 4000 connections and 1 volume may need";
    let other = "[[group]]\nname = 'h'\nclients = ['uid:0']\n";
    let contracts = CONTRACTS.replace("'pool.sock'\n", "'pool.sock'\nconnections = 4000\n") + other;
    fs::write(directory.path("contracts.toml"), &contracts).unwrap();
    served.signal("-HUP");
    let mut log = String::new();
    let mut lines = BufReader::new(served.child.stderr.take().unwrap());
    while !log.contains("contracts reloaded") {
        assert_ne!(lines.read_line(&mut log).unwrap(), 0, "{log}");
    }
    assert!(log.contains(&format!("contracts: {closed}")), "{log}");
    assert!(log.contains(&format!("server: {many}")), "{log}");
    let tried = served.does("--dry-run group set h weight=7");
    assert!(tried.contains(&format!("note: {closed}")), "{tried}");
    fs::write(directory.path("contracts.toml"), CONTRACTS.to_string() + other).unwrap();
    served.does("reload");
    fs::write(directory.path("contracts.toml"), contracts).unwrap();
    let told = served.does("reload");
    assert!([closed, many].iter().all(|note| told.contains(&format!("note: {note}"))), "{told}");
    let mut check = Command::new(PROGRAM);
    check.args(["serve", "--check", "contracts.toml"]).current_dir(&directory.0);
    let told = text(&check.output().unwrap());
    assert!(told.contains(&format!("note: {closed}")), "{told}");
}

/// Goal: a file that may not become as long as a volume ends no server. Method: a limit as of `ulimit -f`; a volume that is larger, one
/// that would grow beyond it, and one that fits.
#[test]
fn a_limit_of_file_sizes_ends_nothing() {
    let directory = Directory::new();
    let contracts = CONTRACTS.replace("memory:64MiB", "directory:pool");
    let served = Served::ready(&directory, &contracts, Stdio::null());
    let process = served.child.id().to_string();
    let limited = Command::new("prlimit").args(["--fsize=8388608", "--pid", &process]).status();
    assert!(limited.unwrap().success());
    for words in ["volume create w g 16MiB", "volume resize v 16MiB"] {
        let told = text(&served.ctl(words));
        assert!(told.contains("RLIMIT_FSIZE"), "{words}: {told}");
    }
    served.does("volume create w g 8MiB");
    served.ends_well();
}
