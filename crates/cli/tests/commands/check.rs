//! `iofair serve --check` says what `iofair serve` would say, and changes nothing.

mod cases;

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cases::{BACKS, PATHS, SOCKETS};

/// A user without rights, if this test is root: permissions mean nothing to root.
const NOBODY: u32 = 65_534;

/// A directory for one case, and what is open in it.
struct Scene {
    directory: PathBuf,
    held: Vec<Box<dyn std::any::Any>>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let name = format!("iofair-check-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        Self { directory, held: Vec::new() }
    }
    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
    fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
        fs::set_permissions(self.at(name), Permissions::from_mode(0o666)).unwrap();
    }
    fn directory(&self, name: &str, mode: u32) {
        fs::create_dir(self.at(name)).unwrap();
        fs::set_permissions(self.at(name), Permissions::from_mode(mode)).unwrap();
    }
    fn contracts(&self, text: &str) -> PathBuf {
        let here = self.directory.to_str().unwrap();
        self.write("contracts.toml", &text.replace("DIR", here));
        self.at("contracts.toml")
    }
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iofair"));
        command.args(arguments).arg(self.at("contracts.toml")).current_dir("/");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("MAINPID");
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
    /// Its exit code, and what it said; a server that starts is told to end.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line.starts_with("serving") {
            let stopped = Command::new("kill").arg(child.id().to_string()).status().unwrap();
            assert!(stopped.success());
        }
        output.read_to_string(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), if error.is_empty() { line } else { error })
    }
    fn check(&self) -> (i32, String) {
        self.run(&["serve", "--check"])
    }
    fn serve(&self) -> (i32, String) {
        self.run(&["serve"])
    }
    /// Every file: kind, size, mode, owner, contents and time of the last change.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let (mut files, mut walk) = (BTreeMap::new(), vec![self.directory.clone()]);
        while let Some(path) = walk.pop() {
            let file = fs::symlink_metadata(&path).unwrap();
            let small = file.is_file() && file.len() <= 1 << 20;
            let contents = if small { fs::read(&path).unwrap() } else { Vec::new() };
            if file.is_dir() {
                walk.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            let owner = (file.mode(), file.uid(), file.gid());
            let facts = (owner, file.len(), file.mtime(), file.mtime_nsec());
            files.insert(path, format!("{facts:?} {contents:?}"));
        }
        files
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A good file, to which a case adds what is wrong.
const DRIVE: &str = "[drive]\nback = 'memory:64MiB'\n";
const LISTEN: &str = "[listen]\nunix = 'DIR/nbd.sock'\n";
const VOLUME: &str = "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\n";
const DIRECTORY: &str = "[drive]\nback = 'directory:DIR/pool'\n";
const POOL: &str = "[drive]\nback = 'file:DIR/pool.img'\n";
const EMULATED: &str = "[drive]\nback = 'emulated:plextor-px256m5s@DIR/store'\n";
const TLS: &str = "tls = { certificate = 'DIR/cert', key = 'DIR/key', clients = 'DIR/cert' }\n";

/// A name, a contract file, what is done before, and a part of the message.
type Case = (&'static str, &'static [&'static str], fn(&mut Scene), &'static str);

const NOTHING: fn(&mut Scene) = |_| {};

/// Goal: what a server refuses, a check refuses with the same words and exit code, and changes nothing. Method: a table of
/// broken set-ups, each run both ways, as a user to whom permissions apply.
#[test]
fn a_check_refuses_what_a_server_refuses() {
    let mut wrong = String::new();
    for (name, text, prepare, told) in BACKS.iter().chain(PATHS).chain(SOCKETS) {
        let mut scene = Scene::new(name);
        prepare(&mut scene);
        scene.contracts(&text.concat());
        let before = scene.files();
        let checked = scene.check();
        if scene.files() != before {
            wrong += &format!("{name}: the check changed a file\n");
        }
        let served = scene.serve();
        if checked != served || served.0 == 0 || !served.1.contains(told) {
            wrong += &format!("{name}: wanted {told}\n  check {checked:?}\n  serve {served:?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Goal: a check makes no connection, which would start a stopped server whose sockets systemd holds. Method: listeners of this
/// test in the places of the server's sockets, on which nobody accepts; one at a time, since the first one ends the check.
#[test]
fn a_check_makes_no_connection() {
    let names = ["nbd.sock", "control.sock", "metrics.sock", "v.sock"];
    let sockets = LISTEN.to_owned()
        + "[control]\nunix = 'DIR/control.sock'\n[metrics]\nunix = 'DIR/metrics.sock'\n"
        + VOLUME
        + "vhost = 'DIR/v.sock'\n";
    let in_use = |(code, said): (i32, String)| {
        assert!(code != 0 && said.contains("Address already in use"), "{said}");
    };
    for name in names {
        let scene = Scene::new("connects");
        scene.contracts(&(DRIVE.to_owned() + &sockets));
        let listener = UnixListener::bind(scene.at(name)).unwrap();
        fs::set_permissions(scene.at(name), Permissions::from_mode(0o777)).unwrap();
        listener.set_nonblocking(true).unwrap();
        in_use(scene.check());
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{name}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let scene = Scene::new("connects-tcp");
    scene.contracts(&format!("{DRIVE}[listen]\ninsecure = true\ntcp = '{at}'\n{VOLUME}"));
    in_use(scene.check());
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Goal: the same of TCP ports, which only live processes have. Method: a port of this test, for NBD and for metrics.
#[test]
fn a_check_refuses_ports_in_use() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = port.local_addr().unwrap();
    for table in ["[listen]\ninsecure = true\n", "[listen]\nunix = 'DIR/nbd.sock'\n[metrics]\n"] {
        let scene = Scene::new("port");
        scene.contracts(&format!("{DRIVE}{table}tcp = '{at}'\n{VOLUME}"));
        let (checked, served) = (scene.check(), scene.serve());
        assert_eq!(checked, served);
        assert!(checked.1.contains("Address already in use"), "{checked:?}");
    }
}

/// Goal: a pool that begins anew although the contract file had another one is told, since its volumes are empty. Method: all kinds of
/// pools, with a typo in the path; the right path, and a first start, are told nothing.
#[test]
fn another_pool_is_told() {
    for (kind, back) in [("directory", DIRECTORY), ("pool", POOL), ("store", EMULATED)] {
        let scene = Scene::new(&format!("other-{kind}"));
        let write = |back: &str| scene.contracts(&format!("{back}{LISTEN}{VOLUME}"));
        write(back);
        assert_eq!((scene.check().0, scene.serve().0), (0, 0), "{kind}");
        assert!(!scene.check().1.contains("new pool"), "{kind}: {}", scene.check().1);
        write(&back.replace("DIR/", "DIR/x"));
        let (code, told) = scene.check();
        assert!(code == 0 && told.contains("is a new pool"), "{kind}: {told}");
        let (code, told) = scene.serve();
        assert!(code == 0 && told.contains("its data is still there"), "{kind}: {told}");
    }
}

/// Goal: a check of what is good says so and changes nothing, before a first start, after it, and beside a running server, whose
/// own sockets and files count as free; a second server with the same file is refused. Method: every kind of back end.
#[test]
fn a_check_changes_nothing() {
    for (name, drive) in
        [("memory", DRIVE), ("directory", DIRECTORY), ("file", POOL), ("emulated", EMULATED)]
    {
        let scene = Scene::new(name);
        let control = "[control]\nunix = 'DIR/control.sock'\naudit = 'DIR/audit'\n";
        let vhost = "vhost = 'DIR/v.sock'\n";
        scene.contracts(&[drive, LISTEN, control, VOLUME, vhost].concat());
        let valid = (0, "the file is valid\n".to_string());
        for _ in 0..2 {
            let before = scene.files();
            assert_eq!(scene.check(), valid, "{name}");
            assert_eq!(scene.files(), before, "{name}");
            let mut server = scene.command(&["serve"]).spawn().unwrap();
            let mut line = String::new();
            let mut output = BufReader::new(server.stdout.take().unwrap());
            output.read_line(&mut line).unwrap();
            assert!(line.starts_with("serving"), "{name}: {line}");
            let before = scene.files();
            let (code, said) = scene.check();
            assert!(code == 0 && said.contains("note: a server runs with this file"), "{said}");
            assert_eq!(scene.files(), before, "{name}");
            let (code, said) = scene.serve();
            let told = ["already in use", "another server uses it"];
            assert!(code != 0 && told.iter().any(|told| said.contains(told)), "{name}: {said}");
            other_file_is_refused(&scene);
            let stopped = Command::new("kill").arg(server.id().to_string()).status().unwrap();
            assert!(stopped.success() && server.wait().unwrap().success(), "{name}");
        }
    }
}

/// A server with another contract file that runs is no excuse.
fn other_file_is_refused(scene: &Scene) {
    let text = fs::read_to_string(scene.at("contracts.toml")).unwrap();
    let other: &Path = &scene.at("other");
    fs::create_dir_all(other).unwrap();
    fs::write(other.join("contracts.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair"));
    let output = command.args(["serve", "--check"]).arg(other.join("contracts.toml")).output();
    assert!(!output.unwrap().status.success());
    fs::remove_dir_all(other).unwrap();
}
