//! A server with a victim and up to 64 hostile neighbours in another group.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use iofair_config::contracts::Contracts;
use iofair_serve::control::Control;

use crate::peer::be_prompt;
use crate::rig::Directory;
use crate::rig::pki::Pki;

/// Most attackers at once.
pub(crate) const ATTACKERS_MAX: usize = 64;
/// Bytes of the victim's volume, and of an attacker's.
pub(crate) const VICTIM_BYTES: u64 = 256 << 20;
pub(crate) const HOSTILE_BYTES: u64 = 2 << 30;
/// What the victim is promised, in bytes a second.
pub(crate) const PROMISE: u64 = 10_000_000;

/// How clients come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    /// NBD over a Unix socket.
    Unix,
    /// NBD over TCP with TLS.
    Tls,
    /// A virtual machine's disk.
    Vhost,
    /// A mounted file.
    Fuse,
}

/// What holds the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drive {
    /// A model of a SATA SSD, paced in real time.
    Emulated,
    /// A directory on this machine's disk.
    Directory,
}

/// What all threads of a run share.
#[derive(Default, Debug)]
pub(crate) struct Shared {
    pub(crate) over: AtomicBool,
    /// What attackers got done.
    pub(crate) operations: AtomicU64,
}

enum Server {
    Process(Child),
    Here(#[allow(dead_code)] Control),
}

/// A running server and where its clients find it.
pub(crate) struct Place {
    server: Option<Server>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) front: Front,
    pub(crate) port: u16,
}

/// A port that is free at this moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn text(directory: &Directory, front: Front, drive: Drive, port: u16) -> String {
    let path = |name: &str| directory.path(name);
    let back = match drive {
        Drive::Emulated => "back = 'emulated:plextor-px256m5s'".to_string(),
        Drive::Directory => {
            format!("back = 'directory:{}'\nworst_case = '40MB/s'", path("pool"))
        }
    };
    let mut text = format!(
        "[drive]\n{back}\ndrain = '1s'\n\
         [control]\nunix = '{}'\n[metrics]\nunix = '{}'\n[listen]\nunix = '{}'\n",
        path("control.sock"),
        path("metrics.sock"),
        path("socket")
    );
    if front == Front::Tls {
        text += &format!(
            "tcp = '127.0.0.1:{port}'\n[listen.tls]\ncertificate = '{}'\nkey = '{}'\n\
             required = 'tcp'\n",
            path("server.pem"),
            path("server-key.pem")
        );
    }
    if front == Front::Fuse {
        text += &format!("[fuse]\nmount = '{}'\n", path("mnt"));
    }
    text += &format!(
        "[[group]]\nname = 'victim'\nmin = '{}MB/s'\nlatency = '2ms'\n[[group]]\nname = 'hostile'\n",
        PROMISE / 1_000_000
    );
    let hostile = (0..ATTACKERS_MAX).map(|number| (volume(number), "hostile", HOSTILE_BYTES));
    for (name, group, bytes) in
        [("victim".into(), "victim", VICTIM_BYTES)].into_iter().chain(hostile)
    {
        let size = bytes >> 20;
        text += &format!("[[volume]]\nname = '{name}'\ngroup = '{group}'\nsize = '{size}MiB'\n");
        if front == Front::Vhost {
            text += &format!("vhost = '{}'\n", path(&format!("disk-{name}")));
        }
    }
    text
}

/// The threads of a server that move its clients' requests.
fn reactors(process: u32) -> impl Iterator<Item = i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let threads = threads.filter_map(|thread| Some(thread.ok()?.path()));
    let threads = threads.filter(|path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == "reactor")
    });
    threads.filter_map(|path| path.file_name()?.to_str()?.parse().ok())
}

/// The volume of an attacker.
pub(crate) fn volume(number: usize) -> String {
    format!("h{number}")
}

impl Place {
    /// Starts the program that `IOFAIR_PROGRAM` names, or a server in this process.
    pub(crate) fn start(directory: Arc<Directory>, front: Front, drive: Drive) -> Self {
        let port = free_port();
        if front == Front::Tls && !Path::new(&directory.path("ca.pem")).exists() {
            Pki::write(&directory);
        }
        let file = directory.path("contracts.toml");
        fs::write(&file, text(&directory, front, drive, port)).unwrap();
        let server = match std::env::var("IOFAIR_PROGRAM") {
            Err(_) => {
                let contracts = Contracts::open(Path::new(&file)).unwrap_or_else(|e| panic!("{e}"));
                let control = Control::start(Path::new(&file), contracts);
                Server::Here(control.unwrap_or_else(|error| panic!("{error}")))
            }
            Ok(program) => {
                let log = fs::File::create(directory.path("log")).unwrap();
                let mut command = Command::new(program);
                command.arg("serve").arg(&file).stdout(Stdio::piped()).stderr(log);
                let mut child = command.spawn().unwrap();
                let mut line = String::new();
                BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
                assert!(line.starts_with("serving"), "{line}");
                reactors(child.id()).for_each(be_prompt);
                Server::Process(child)
            }
        };
        Self { server: Some(server), directory, front, port }
    }
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path(name)
    }
    /// Whether the server is there after all that.
    pub(crate) fn is_alive(&mut self) -> bool {
        match self.server.as_mut() {
            Some(Server::Process(child)) => child.try_wait().unwrap().is_none(),
            server => server.is_some(),
        }
    }
    /// Ends the server, whatever it has to do: who waits for an answer gets none.
    pub(crate) fn kill(&mut self) {
        if let Some(Server::Process(mut child)) = self.server.take() {
            // It may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
        if self.front == Front::Fuse {
            let mount = self.path("mnt");
            // Users of the files hold a plain unmount up.
            let _ = Command::new("umount").args(["-l", &mount]).stderr(Stdio::null()).status();
        }
        for name in ["socket", "control.sock", "metrics.sock"] {
            let _ = fs::remove_file(self.path(name));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kill();
    }
}
