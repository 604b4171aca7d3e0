//! `iofair serve` under a service manager: sockets that are there before it, what it tells, its watchdog.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const CONTRACTS: &str = "[drive]\nback = 'memory:1MiB'\nstack = 'prop-bfq'\n\
    [listen]\nunix = 'nbd.sock'\n[control]\nunix = 'control.sock'\n\
    [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n";

/// What a manager is: sockets, and an ear.
struct Manager {
    directory: PathBuf,
    nbd: UnixListener,
    control: UnixListener,
    ear: UnixDatagram,
}

impl Manager {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("iofair-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("contracts.toml"), CONTRACTS).unwrap();
        let bind = |name: &str| UnixListener::bind(directory.join(name)).unwrap();
        let ear = UnixDatagram::bind(directory.join("notify.sock")).unwrap();
        Self { nbd: bind("nbd.sock"), control: bind("control.sock"), ear, directory }
    }
    /// Starts the program with the sockets as descriptors 3 and 4 under these names.
    fn start(&self, names: &str, watchdog: &str) -> Child {
        self.start_with(names, watchdog, "")
    }
    /// [`Self::start`] with a change of what it passes.
    fn start_with(&self, names: &str, watchdog: &str, change: &str) -> Child {
        let give = |socket: &UnixListener| Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
        let script = format!(
            "exec 3<&0 4>&1 </dev/null >/dev/null; \
            LISTEN_PID=$$ LISTEN_FDS=2 WATCHDOG_PID=$$ {change} exec \"$0\" serve contracts.toml"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_iofair")]).current_dir(&self.directory);
        command.env("LISTEN_FDNAMES", names).env("WATCHDOG_USEC", watchdog);
        command.env("NOTIFY_SOCKET", self.directory.join("notify.sock"));
        command.stdin(give(&self.nbd)).stdout(give(&self.control)).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
    /// The next word that is not about the watchdog.
    fn hears(&self) -> String {
        loop {
            let word = self.any_word();
            if word != "WATCHDOG=1\n" {
                return word;
            }
        }
    }
    fn any_word(&self) -> String {
        let mut word = [0; 4096];
        let bytes = self.ear.recv(&mut word).unwrap();
        String::from_utf8(word[..bytes].to_vec()).unwrap()
    }
    fn connect(&self, name: &str) -> UnixStream {
        UnixStream::connect(self.directory.join(name)).unwrap()
    }
    fn end(&self, mut child: Child) {
        signal(&child, "-TERM");
        assert_eq!(self.hears(), "STOPPING=1\nSTATUS=completing requests in flight\n");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

fn greeting(mut client: UnixStream) -> [u8; 8] {
    let mut bytes = [0; 8];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

/// Goal: passed sockets are served and outlive the server, a client that connects between two servers is served by the next
/// one. Method: connect before there is a server and after the first has gone; ask the control socket.
#[test]
fn sockets_that_were_passed_are_served_and_stay() {
    let manager = Manager::new("passed");
    for _ in 0..2 {
        let early = manager.connect("nbd.sock");
        let server = manager.start("nbd:control", "60000000");
        assert_eq!(
            manager.hears(),
            "READY=1\nSTATUS=serving 1 MiB of memory with prop-bfq; volumes: 1\n"
        );
        assert_eq!(&greeting(early), b"NBDMAGIC");
        assert_eq!(&greeting(manager.connect("nbd.sock")), b"NBDMAGIC");
        let mut control = manager.connect("control.sock");
        let call = "GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        control.write_all(call.as_bytes()).unwrap();
        let mut answer = String::new();
        control.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        manager.end(server);
        assert!(manager.directory.join("nbd.sock").exists(), "the manager's socket is gone");
        assert!(manager.directory.join("control.sock").exists(), "the manager's socket is gone");
    }
}

/// Goal: the manager hears of a reload from its begin to its end, with the outcome, and is fed meanwhile. Method: a
/// watchdog of 50 ms; HUP with a good file and with a bad one.
#[test]
fn the_manager_hears_of_reloads_and_is_fed() {
    let manager = Manager::new("told");
    let server = manager.start("nbd:control", "50000");
    manager.hears();
    for _ in 0..3 {
        assert_eq!(manager.any_word(), "WATCHDOG=1\n");
    }
    let contracts = manager.directory.join("contracts.toml");
    for (text, outcome) in [
        (CONTRACTS.replace("'g'\n[[v", "'g'\nweight = 7\n[[v"), "contracts reloaded from"),
        (
            CONTRACTS.replace("prop-bfq", "none-nun"),
            "reload failed, contracts unchanged: contracts.toml",
        ),
    ] {
        fs::write(&contracts, text).unwrap();
        signal(&server, "-HUP");
        let begun = manager.hears();
        assert!(begun.starts_with("RELOADING=1\nSTATUS=reading the contracts\nMONOTONIC_USEC="));
        let ended = manager.hears();
        assert!(ended.starts_with(&format!("READY=1\nSTATUS={outcome}")), "{ended}");
    }
    manager.end(server);
}

/// Goal: sockets that cannot be served are refused with the variable, its value and what is allowed. Method: a wrong name, a name too
/// few, no number, more sockets than there are, and a process that is none.
#[test]
fn wrong_sockets_are_refused() {
    let manager = Manager::new("named");
    for (names, change, told) in [
        (
            "nbd:meter",
            "",
            "LISTEN_FDNAMES=\"nbd:meter\": one is named \"meter\"; allowed: nbd, control, metrics",
        ),
        ("nbd", "", "LISTEN_FDNAMES=\"nbd\": invalid LISTEN_FDNAMES; allowed: as many names"),
        (
            "nbd:control",
            "LISTEN_FDS=two",
            "LISTEN_FDS=\"two\": invalid LISTEN_FDS; allowed: the number",
        ),
        (
            "nbd:control",
            "LISTEN_FDS=99",
            "LISTEN_FDS=\"99\": Bad file descriptor (os error 9); allowed: the number",
        ),
        (
            "nbd:control",
            "LISTEN_PID=me",
            "LISTEN_PID=\"me\": invalid LISTEN_PID; allowed: the number",
        ),
        ("nbd:control", "LISTEN_FDS=2 4</dev/null", "descriptor 4 of LISTEN_FDS: "),
    ] {
        let child = manager.start_with(names, "0", change);
        let ended = child.wait_with_output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{error}");
        assert!(error.contains(told), "{error}");
    }
}

/// Goal: a socket without a name is for NBD, and one with a name is still what it says. Method: the name that systemd's library gives
/// to it, and the empty one.
#[test]
fn a_socket_without_a_name_is_for_nbd() {
    for name in ["unknown", ""] {
        let manager = Manager::new("unnamed");
        let server = manager.start(&format!("{name}:control"), "0");
        assert!(manager.hears().starts_with("READY=1"));
        assert_eq!(&greeting(manager.connect("nbd.sock")), b"NBDMAGIC");
        manager.end(server);
    }
}

/// Goal: programs of libnbd start the server by themselves. Method: nbdinfo, and nbdcopy to and from a volume, with contracts that
/// name no socket.
#[test]
#[ignore = "needs clients: nbdinfo and nbdcopy"]
fn needs_clients_libnbd_starts_the_server() {
    let manager = Manager::new("libnbd");
    let path = |name: &str| manager.directory.join(name).to_str().unwrap().to_owned();
    let pool = format!("file:{}", path("pool.img"));
    let contracts = CONTRACTS.replace("[listen]\nunix = 'nbd.sock'\n", "");
    let contracts = contracts.replace("[control]\nunix = 'control.sock'\n", "");
    fs::write(path("contracts.toml"), contracts.replace("memory:1MiB", &pool)).unwrap();
    let image: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 999) as u8).collect();
    fs::write(path("image"), &image).unwrap();
    let server = ["[", env!("CARGO_BIN_EXE_iofair"), "serve", &path("contracts.toml"), "]"];
    let run = |program: &str, before: &[&str], after: &[&str]| {
        let arguments = [before, &["--"], &server, after].concat();
        let arguments =
            if program == "nbdinfo" { [before, &server, after].concat() } else { arguments };
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert_eq!(run("nbdinfo", &["--size", "--"], &[]), b"1048576\n");
    run("nbdcopy", &[&path("image")], &[]);
    run("nbdcopy", &[], &[&path("back")]);
    assert_eq!(fs::read(path("back")).unwrap(), image);
    assert!(run("nbdcopy", &[], &["-"]) == image, "the server's own words are not in the copy");
}
