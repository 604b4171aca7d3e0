//! Nobody is locked out: servers of their sockets, clients of the list of volumes and of TLS, operators of a server that clients or
//! slow storage keep busy.
#![allow(clippy::unwrap_used, unsafe_code)]

mod rig;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use iofair_config::contracts::Contracts;
use iofair_serve::control::Control;
use iofair_serve::control::client::{Address, Call, call};
use iofair_serve::{Server, Signals};
use rig::controlled::{Controlled, file};
use rig::pki::{self, Pki, config, secure};
use rig::wire::{Options, REPLY_ACK, TIMEOUT, Wire};
use rig::{Directory, parse, run};
use serde_json::json;

const OPTION_INFO: u32 = 6;
/// Volumes of a large server.
const MANY: usize = 10_000;
/// The role of this program as a server with few descriptors.
const ROLE: &str = "server_with_few_descriptors";
const CONTRACTS: &str = "IOFAIR_LOCKOUT_CONTRACTS";

/// Goal: a server keeps its sockets although another one with the same paths starts, and removes none that is not its own.
/// Method: a server that is at its limit, which closes further connections at once, and second ones for each kind of socket;
/// then another file is in the place of the socket when the first server ends.
#[test]
fn sockets_stay_with_their_server() {
    let directory = Directory::new();
    let path = |name: &str| directory.path(name);
    let text = |listen: &str, more: &str, volume: &str| {
        format!(
            "[drive]\nback = 'memory:1MiB'\nstack = 'none-none'\n[listen]\nunix = '{listen}'\n\
             connections = 1\n{more}\n[[group]]\nname = 'g'\n\
             [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n{volume}\n"
        )
    };
    let more = format!(
        "[control]\nunix = '{}'\n[metrics]\nunix = '{}'\n",
        path("control.sock"),
        path("metrics.sock")
    );
    let disk = format!("vhost = '{}'", path("disk"));
    let start = |name: &str, text: &str| {
        fs::write(path(name), text).unwrap();
        Control::start(Path::new(&path(name)), parse(text))
    };
    let first = start("first.toml", &text(&path("socket"), &more, &disk)).unwrap();
    let mut wire = Wire::connect(&path("socket"));
    let metrics = format!("[metrics]\nunix = '{}'\n", path("metrics.sock"));
    let control = format!("[control]\nunix = '{}'\n", path("control.sock"));
    for (listen, more, volume) in [
        (path("socket"), "", ""),
        (path("second"), "", disk.as_str()),
        (path("second"), control.as_str(), ""),
        (path("second"), metrics.as_str(), ""),
    ] {
        let error = start("second.toml", &text(&listen, more, volume)).unwrap_err().to_string();
        assert!(error.contains("Address already in use"), "{error}");
    }
    assert_eq!(wire.read(0, 512).error, 0);
    drop(wire);
    let address = Address::Unix(path("control.sock").into());
    assert_eq!(call(&address, &Call::new("GET", "/v1/status")).unwrap().status, 200);
    while Wire::connect_to(&path("socket"), "v").is_none() {}
    fs::rename(path("socket"), path("moved")).unwrap();
    let other = UnixListener::bind(path("socket")).unwrap();
    first.stop().unwrap();
    UnixStream::connect(path("socket")).unwrap();
    drop(other);
    for name in ["control.sock", "metrics.sock", "disk", "socket.lock", "control.sock.lock"] {
        assert!(!Path::new(&path(name)).exists(), "{name} is left");
    }
    start("first.toml", &text(&path("socket"), &more, &disk)).unwrap().stop().unwrap();
}

fn many(directory: &Directory) -> Server {
    let mut text = format!(
        "[drive]\nback = 'memory:64MiB'\nstack = 'none-none'\n[listen]\nunix = '{}'\n\
         [[group]]\nname = 'g'\n",
        directory.path("socket")
    );
    for number in 0..MANY {
        text += &format!("[[volume]]\nname = 'v{number}'\ngroup = 'g'\nsize = '4KiB'\n");
    }
    Server::start(parse(&text)).unwrap()
}

/// Goal: a client may ask for as many volumes as there are. Method: ten thousand, each asked about twice on one connection.
#[test]
fn all_volumes_are_described_on_one_connection() {
    let directory = Directory::new();
    let _server = many(&directory);
    let stream = UnixStream::connect(directory.path("socket")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut options = Options::greet(stream).unwrap();
    let names = options.list().unwrap();
    assert_eq!(names.len(), MANY);
    for name in names.iter().chain(&names) {
        let length = (name.len() as u32).to_be_bytes();
        let data = [&length[..], name.as_bytes(), &[0; 2]].concat();
        assert_eq!(options.ask(OPTION_INFO, &data).unwrap(), REPLY_ACK, "{name}");
    }
}

/// Goal: programs of others list all volumes. Method: nbdinfo and qemu-nbd, ten thousand volumes.
#[test]
#[ignore = "needs clients: nbdinfo and qemu-nbd"]
fn needs_clients_all_volumes_are_listed() {
    let directory = Directory::new();
    let _server = many(&directory);
    let socket = directory.path("socket");
    let listed = run("nbdinfo", &["--list", "--json", &format!("nbd+unix:///?socket={socket}")]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let names = listed["exports"].as_array().unwrap().iter();
    let names: BTreeSet<_> = names.map(|export| export["export-name"].to_string()).collect();
    assert_eq!(names.len(), MANY);
    let listed = run("qemu-nbd", &["--list", "-k", &socket]);
    assert!(listed.contains(&format!("exports available: {MANY}")), "{}", &listed[..80]);
}

/// Goal: of many clients that begin TLS at once, later ones wait, and none is cut off; who is, because it says nothing, is counted.
/// Method: eighty clients, four places; then silent ones.
#[test]
fn clients_with_tls_wait_for_each_other() {
    let directory = Directory::new();
    Pki::write(&directory);
    let path = |name: &str| directory.path(name);
    let text = file(&directory, "memory:64MiB").replace(
        "[listen]\n",
        &format!(
            "[listen]\nhandshakes = 4\ntcp = '127.0.0.1:0'\n\
             tls = {{ certificate = '{}', key = '{}', clients = '{}', required = true }}\n",
            path("server.pem"),
            path("server-key.pem"),
            path("ca.pem")
        ),
    );
    let text = text.replace("weight = 300", "clients = ['alice.example']\nweight = 300");
    fs::write(path("contracts.toml"), text).unwrap();
    let scene = Controlled::over(directory);
    let tcp = scene.control.server(|server| server.tcp().unwrap()).unwrap();
    let refused = || refused(&scene, "handshakes");
    thread::scope(|scope| {
        for _ in 0..80 {
            scope.spawn(|| {
                let mut options = secure(pki::tcp(tcp), config(&scene.directory, "alice")).unwrap();
                assert_eq!(options.list().unwrap(), ["v"]);
            });
        }
    });
    assert_eq!(refused(), 0);
    let silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(tcp).unwrap()).collect();
    assert!(secure(pki::tcp(tcp), config(&scene.directory, "alice")).is_ok());
    assert!(refused() >= 4, "{}", refused());
    drop(silent);
}

/// The number of refusals for a reason.
fn refused(scene: &Controlled, reason: &str) -> u64 {
    let page = scene.ask(&Call::new("GET", "/metrics")).body;
    let page = String::from_utf8(page.to_vec()).unwrap();
    let name = format!("iofair_connections_refused_total{{reason=\"{reason}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&*name)).unwrap().parse().unwrap()
}

/// Goal: callers who are refused are counted. Method: control over TCP; one who speaks no TLS, and more who say nothing than a
/// host may have.
#[test]
fn refused_callers_are_counted() {
    let directory = Directory::new();
    Pki::write(&directory);
    let path = |name: &str| directory.path(name);
    let tls = format!(
        "[control]\ntcp = '127.0.0.1:0'\ntls = {{ certificate = '{}', key = '{}', clients = '{}', \
         operators = ['alice'] }}\n",
        path("server.pem"),
        path("server-key.pem"),
        path("ca.pem")
    );
    let text = file(&directory, "memory:64MiB").replace("[control]\n", &tls);
    fs::write(path("contracts.toml"), text).unwrap();
    let scene = Controlled::over(directory);
    let connect = || TcpStream::connect(scene.control.tcp().unwrap()).unwrap();
    let mut plain = connect();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = plain.read_to_end(&mut Vec::new());
    assert_eq!(refused(&scene, "tls"), 1);
    let silent: Vec<TcpStream> = (0..9).map(|_| connect()).collect();
    while refused(&scene, "unfinished") == 0 {
        thread::yield_now();
    }
    assert_eq!(refused(&scene, "handshakes") + refused(&scene, "timeout"), 0, "of no NBD client");
    drop(silent);
}

/// Goal: callers who say nothing do not keep others from metrics, and count. Method: as many idle connections as a host may have.
#[test]
fn idle_callers_give_way() {
    let directory = Directory::new();
    let text = file(&directory, "memory:64MiB") + "[metrics]\ntcp = '127.0.0.1:0'\n";
    fs::write(directory.path("contracts.toml"), text).unwrap();
    let scene = Controlled::over(directory);
    let connect = || TcpStream::connect(scene.control.metrics().unwrap()).unwrap();
    let idle: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
    let mut caller = connect();
    caller.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    caller.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(refused(&scene, "unfinished") > 0);
    drop(idle);
}

/// Goal: changes that wait for storage keep nobody from looking, and not the server from ending. Method: a file that cannot be
/// opened is in the place of the contract file; more changes than there are threads, a reload; then the status, groups and
/// volumes, and the end.
#[test]
fn changes_that_hang_block_nobody() {
    let scene = Controlled::start();
    let path = scene.directory.path("contracts.toml");
    fs::remove_file(&path).unwrap();
    let stuck = stuck(&path);
    let change = Call::new("PATCH", "/v1/groups/batch").body(json!({ "weight": 7 }));
    let address = scene.address();
    thread::scope(|scope| {
        let changes: Vec<_> = (0..6).map(|_| scope.spawn(|| call(&address, &change))).collect();
        scene.control.reload_then(|_| {});
        for what in ["/v1/status", "/v1/groups", "/v1/volumes/v", "/v1/groups/batch", "/v1/stack"] {
            assert!(scene.get(what).is_object(), "{what}");
        }
        // One waits for the file, and the others for it.
        let busy = call(&address, &change).unwrap();
        assert_eq!(busy.status, 503, "{}", String::from_utf8_lossy(&busy.body));
        let Controlled { control, directory } = scene;
        control.stop().unwrap();
        assert!(!Path::new(&directory.path("control.sock")).exists());
        // The change that waits for the file ends.
        drop(stuck);
        changes.into_iter().for_each(|change| drop(change.join().unwrap()));
    });
}

/// Goal: what is no file in the place of the contract file is refused at once, and holds up nothing. Method: a pipe that nobody writes,
/// a device without an end, a directory; then the file again.
#[test]
fn contracts_are_read_from_files_only() {
    let scene = Controlled::start();
    let path = scene.directory.path("contracts.toml");
    let kept = scene.directory.path("kept");
    fs::rename(&path, &kept).unwrap();
    let change = Call::new("PATCH", "/v1/groups/batch").body(json!({ "weight": 7 }));
    for (program, arguments) in [("mkfifo", &[][..]), ("ln", &["-s", "/dev/zero"]), ("mkdir", &[])]
    {
        run(program, &[arguments, &[&path]].concat());
        for call in [&change, &Call::new("POST", "/v1/reload")] {
            let told = scene.ask(call);
            let text = String::from_utf8_lossy(&told.body).into_owned();
            assert!(told.status == 500 && text.contains("not a regular file"), "{program}: {text}");
        }
        run("rm", &["-r", &path]);
    }
    fs::rename(&kept, &path).unwrap();
    assert_eq!(scene.status(&change), 200);
}

/// Makes a file that nobody can open until the result is dropped, or for 45 s (`/proc/sys/fs/lease-break-time`), as if its
/// storage did not respond.
fn stuck(path: &str) -> File {
    let file = File::options().create_new(true).write(true).open(path).unwrap();
    // SAFETY: two plain system calls, on a signal and on a descriptor of ours. The signal says that somebody waits.
    let leased = unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    assert_eq!(leased, 0, "{}", std::io::Error::last_os_error());
    file
}

/// Goal: an audit log whose storage does not respond keeps nobody from looking, whoever causes a line of it; a change waits for
/// it and is refused then, and the log says so later. Method: the log was renamed, and a file that cannot be opened is in its
/// place; a change by somebody who may make it and by somebody who may not, and more readers of the log than threads.
#[test]
fn an_audit_log_that_hangs_blocks_nobody() {
    for (admins, status) in [("", 503), ("admins = ['uid:4000000']\n", 403)] {
        let directory = Directory::new();
        let (audit, moved) = (directory.path("audit"), directory.path("audit.old"));
        let more = format!("[control]\naudit = '{audit}'\n{admins}");
        let text = file(&directory, "memory:64MiB").replace("[control]\n", &more);
        fs::write(directory.path("contracts.toml"), &text).unwrap();
        let scene = Controlled::over(directory);
        fs::rename(&audit, moved).unwrap();
        let stuck = stuck(&audit);
        let change = Call::new("PATCH", "/v1/groups/batch").body(json!({ "weight": 7 }));
        thread::scope(|scope| {
            let changed = scope.spawn(|| scene.ask(&change));
            if status == 403 {
                assert_eq!(scene.status(&change), status);
            }
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(scene.status(&Call::new("GET", "/v1/audit")), 503));
            }
            for what in ["/v1/status", "/v1/groups", "/v1/volumes/v", "/v1/groups/batch"] {
                assert!(scene.get(what).is_object(), "{what}");
            }
            let changed = changed.join().unwrap();
            assert_eq!(changed.status, status, "{}", String::from_utf8_lossy(&changed.body));
        });
        assert_eq!(scene.text(), text, "nothing was changed");
        drop(stuck);
        let log = scene.get("/v1/audit")["changes"].to_string();
        assert!(log.contains(&format!("\"status\":{status}")), "{log}");
    }
}

/// A server as a process.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Serves until it is killed, if this is that process.
#[test]
fn server_with_few_descriptors() {
    let Ok(path) = std::env::var(CONTRACTS) else { return };
    let signals = Signals::block().unwrap();
    let contracts = Contracts::open(path.as_ref()).unwrap();
    let _control = Control::start(path.as_ref(), contracts).unwrap();
    while signals.wait().unwrap().is_none() {}
}

/// Goal: clients cannot use up the descriptors that operators need. Method: a server that may open 400 files, more clients than
/// that, and a volume that is added then.
#[test]
fn descriptors_are_kept_for_control() {
    let directory = Directory::new();
    let path = |name: &str| directory.path(name);
    let text = file(&directory, &format!("directory:{}", path("pool")));
    fs::write(path("contracts.toml"), text).unwrap();
    let script = "ulimit -n 400; exec \"$0\" --exact \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap()).arg(ROLE);
    command.env(CONTRACTS, path("contracts.toml"));
    let log = File::create(path("log")).unwrap();
    let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    let _server = Process(server.unwrap());
    let address = Address::Unix(path("control.sock").into());
    while call(&address, &Call::new("GET", "/v1/status")).is_err() {
        thread::yield_now();
    }
    let mut open = Vec::new();
    for _ in 0..400 {
        // Those that find no room are cut off.
        open.extend(Wire::connect_to(&path("socket"), "v"));
    }
    assert!(open.len() >= 100, "{}", open.len());
    let volume = json!({ "group": "batch", "size": "1MiB" });
    let call_of = |call_: &Call| call(&address, call_).unwrap();
    for number in 0..8 {
        let add = Call::new("PUT", &format!("/v1/volumes/new{number}")).body(volume.clone());
        let added = call_of(&add);
        assert!(added.is_good(), "{}", String::from_utf8_lossy(&added.body));
    }
    let page = call_of(&Call::new("GET", "/metrics")).body;
    let page = String::from_utf8(page.to_vec()).unwrap();
    assert!(!page.contains("refused_total{reason=\"descriptors\"} 0\n"), "{page}");
    while !fs::read_to_string(path("log")).unwrap().contains("no file descriptors left") {
        thread::yield_now();
    }
    // Changes do not use up those of control either.
    let text = || fs::read_to_string(path("contracts.toml")).unwrap();
    let files = || {
        let names = fs::read_dir(path("pool")).unwrap().map(|file| file.unwrap().file_name());
        names.filter(|name| name.as_encoded_bytes().ends_with(b".img")).count()
    };
    let add = |number: usize| {
        call_of(&Call::new("PUT", &format!("/v1/volumes/more{number}")).body(volume.clone()))
    };
    let (more, refused) =
        (0..400).map(|more| (more, add(more))).find(|(_, one)| !one.is_good()).unwrap();
    let refused = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.contains("kept for control") && refused.contains("RLIMIT_NOFILE"), "{refused}");
    let volumes = 2 + 8 + more;
    let count = |text: &str| text.matches("[[volume]]").count();
    assert_eq!((count(&text()), files()), (volumes, volumes), "nothing is left of it");
    let idle: Vec<_> =
        (0..40).map(|_| UnixStream::connect(path("control.sock")).unwrap()).collect();
    let before = text();
    let many = (0..30).map(|number| {
        format!("[[volume]]\nname = 'many{number}'\ngroup = 'batch'\nsize = '1MiB'\n")
    });
    fs::write(path("contracts.toml"), before.clone() + &many.collect::<String>()).unwrap();
    let refused = call_of(&Call::new("POST", "/v1/reload"));
    let refused = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.contains("kept for control"), "{refused}");
    assert_eq!((count(&text()), files()), (volumes + 30, volumes), "the edit stays");
    fs::write(path("contracts.toml"), before).unwrap();
    assert!(call_of(&Call::new("POST", "/v1/reload")).is_good());
    assert!(call_of(&Call::new("DELETE", "/v1/volumes/more0")).is_good());
    drop(idle);
}
