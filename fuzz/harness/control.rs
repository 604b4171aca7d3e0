//! Any bytes on the control socket of a running server: it says something or closes, never that it met a
//! bug; afterwards it answers others, and the contract file is what is in force.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs, process};

use iofair_config::contracts::Contracts;
use iofair_serve::control::Control;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory that goes with its owner, in memory where that can be had.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.into() } else { env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("iofair-fuzz-{}-{number}", process::id()));
        fs::create_dir_all(&path).expect("there is room for a directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nothing else is to be done about it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(directory: &Path) -> String {
    format!(
        "# of the fuzzer\n[drive]\nback = 'memory:4MiB'\nstack = 'max+prop-bfq'\n\
         worst_case = '100MB/s'\n[control]\nunix = '{}'\n\
         [[group]]\nname = 'a/b'\nmin = '10MB/s'  # kept\n[[group]]\nname = 'c'\n\
         [[volume]]\nname = 'v'\ngroup = 'a/b'\nsize = '1MiB'\n",
        directory.join("control.sock").display()
    )
}

/// Sends bytes and returns all that comes back.
fn say(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a minute is a time");
    // A server that has heard enough closes before everything is sent.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        let timeout = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
        assert!(!timeout.contains(&error.kind()), "no answer and no end");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn control(data: &[u8]) {
    let directory = Directory::new();
    let (file, socket) = (directory.0.join("contracts.toml"), directory.0.join("control.sock"));
    fs::write(&file, text(&directory.0)).expect("there is room for a file");
    let contracts = Contracts::open(&file).expect("the file is right");
    let control = Control::start(&file, contracts).expect("nothing stands in its way");
    let answer = say(&socket, data);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{answer}");
    assert!(!answer.contains("HTTP/1.1 500"), "{answer}");
    if !control.is_over() {
        let status = say(&socket, b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        let told = control.server(|server| server.contracts().text().to_string());
        let written = fs::read_to_string(&file).expect("the file is there");
        assert_eq!(told.expect("it is not over"), written);
        Contracts::parse("contracts.toml", &written).expect("it can be started again");
    }
    control.stop().expect("it ends well");
    let names = fs::read_dir(&directory.0).expect("it is there").flatten();
    let mut left: Vec<_> = names.map(|entry| entry.file_name()).collect();
    left.sort();
    let reserved = [".contracts.toml.room1", ".contracts.toml.room2"];
    left.retain(|name| !reserved.iter().any(|room| name == room));
    assert_eq!(left, ["contracts.toml"], "nothing is left over");
}
