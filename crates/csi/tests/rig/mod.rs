//! Servers and drivers as processes, and a client of the interface.

#![allow(dead_code)]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};

/// The interface, as the driver has it.
#[allow(missing_docs, unreachable_pub, clippy::all, unused_qualifications)]
#[allow(clippy::too_many_lines, clippy::use_self)]
pub(crate) mod csi {
    include!(concat!(env!("OUT_DIR"), "/csi.v1.rs"));
}

/// A directory that is removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("iofair-csi-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A virtual machine ends with its test; a mount whose server a failed test has ended would hold it.
        if std::env::var_os(INSIDE).is_none() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A process that is ended by SIGTERM.
pub(crate) struct Process(Child);

impl Process {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = fs::File::create(log).expect("a log");
        let both = log.try_clone().expect("a second handle");
        command.stdin(Stdio::null()).stdout(log).stderr(both);
        if std::env::var_os(INSIDE).is_some() {
            // The console outlives the virtual machine.
            command.stderr(Stdio::inherit());
        }
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }
    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it has ended");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

/// Waits until somebody listens at a socket. (Its file appears a little earlier.)
fn wait_for(socket: &Path, log: &Path) {
    for _ in 0..1200 {
        if UnixStream::connect(socket).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(25));
    }
    panic!(
        "nobody listens at {}: {}",
        socket.display(),
        fs::read_to_string(log).unwrap_or_default()
    );
}

/// Set in the virtual machine in which a test runs itself.
pub(crate) const INSIDE: &str = "IOFAIR_INSIDE";

/// Names another place of the program `iofair-csi`.
pub(crate) const DRIVER: &str = "IOFAIR_CSI_PROGRAM";

/// The program `iofair-csi`.
pub(crate) fn driver_program() -> PathBuf {
    std::env::var_os(DRIVER)
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_iofair-csi")), PathBuf::from)
}

/// The program `iofair`, built beside this one.
pub(crate) fn program() -> PathBuf {
    let program = driver_program().with_file_name("iofair");
    assert!(program.exists(), "{} is missing: cargo build -p iofair", program.display());
    program
}

/// A server in a directory. `drive`: lines of its `[drive]`; `rest`: further tables.
pub(crate) fn server(directory: &Path, drive: &str, rest: &str) -> Process {
    fs::create_dir_all(directory).expect("a directory");
    let contracts = directory.join("contracts.toml");
    if !contracts.exists() {
        let text = format!(
            "[drive]\n{drive}\n[listen]\nunix = \"pool.sock\"\n[control]\nunix = \"control.sock\"\n{rest}"
        );
        fs::write(&contracts, text).expect("written");
    }
    let _ = fs::remove_file(directory.join("control.sock"));
    let log = directory.join("serve.log");
    let mut command = Command::new(program());
    let process = Process::start(command.arg("serve").arg(&contracts).current_dir(directory), &log);
    wait_for(&directory.join("control.sock"), &log);
    process
}

/// A driver in a directory.
pub(crate) fn driver(directory: &Path, arguments: &[&str]) -> Process {
    let socket = directory.join("csi.sock");
    let _ = fs::remove_file(&socket);
    let log = directory.join("csi.log");
    let mut command = Command::new(driver_program());
    command.arg("--endpoint").arg(format!("unix://{}", socket.display())).args(arguments);
    let process = Process::start(&mut command, &log);
    wait_for(&socket, &log);
    process
}

/// A connection to the driver in a directory.
pub(crate) async fn connect(directory: &Path) -> Channel {
    try_connect(&directory.join("csi.sock")).await.expect("it listens")
}

/// A connection to the driver at this socket.
pub(crate) async fn try_connect(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    let socket = socket.to_path_buf();
    let endpoint = Endpoint::from_static("http://driver");
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await
}
