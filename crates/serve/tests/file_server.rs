//! The example that embeds the engine in a file server, from the outside.
#![allow(unsafe_code, clippy::unwrap_used)]

// Its `main` is for those who run it.
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/file_server.rs"]
mod file_server;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use iofair_config::contracts::Contracts;
use iofair_testkit::directory::Directory;

const BLOCK: usize = 64 << 10;
const BLOCKS: u64 = 32;

const CONTRACTS: &str = r#"
[drive]
back = "memory:2MiB"
[[group]]
name = "fast"
[[group]]
name = "slow"
max = "1MB/s"
"#;

/// A server on a file of `BLOCKS` blocks, each filled with its number.
fn socket(directory: &Directory) -> String {
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect();
    fs::write(directory.path("file"), bytes).unwrap();
    let (path, file) = (directory.path("socket"), File::open(directory.path("file")).unwrap());
    let listener = UnixListener::bind(&path).unwrap();
    let contracts = Contracts::parse("contracts", CONTRACTS).unwrap();
    // It ends with the test.
    std::thread::spawn(move || file_server::serve(&listener, file, &contracts).unwrap());
    path
}

fn connect(socket: &str, group: &[u8; 8]) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(group).unwrap();
    stream
}

/// Reads blocks, checks them, and says how long that took.
fn read_blocks(stream: &mut UnixStream, blocks: impl Iterator<Item = u64>) -> Duration {
    let start = Instant::now();
    let mut data = vec![0; BLOCK];
    for block in blocks {
        stream.write_all(&block.to_le_bytes()).unwrap();
        stream.read_exact(&mut data).unwrap();
        assert!(data.iter().all(|byte| *byte == block as u8), "block {block}");
    }
    start.elapsed()
}

/// Goal: clients read what is in the file, and one with a ceiling no faster than that. Method: several clients at once; the time of the slow
/// one has a lower bound only.
#[test]
fn blocks_are_served_under_contracts() {
    let directory = Directory::new();
    let socket = socket(&directory);
    std::thread::scope(|scope| {
        for offset in 0..8 {
            let socket = &socket;
            scope.spawn(move || {
                let mut stream = connect(socket, b"fast\0\0\0\0");
                read_blocks(&mut stream, (0..200).map(|number| (number * 7 + offset) % BLOCKS));
            });
        }
        let mut slow = connect(&socket, b"slow\0\0\0\0");
        let time = read_blocks(&mut slow, 0..BLOCKS / 2);
        assert!(time > Duration::from_millis(700), "1 MiB at 1 MB/s in {time:?}");
    });
}

/// Goal: bad input ends a connection and nothing else. Method: an unknown group, a block past the end, half a number; then a good client.
#[test]
fn bad_clients_are_disconnected() {
    let directory = Directory::new();
    let socket = socket(&directory);
    let ends = |mut stream: UnixStream| stream.read(&mut [0]).unwrap() == 0;
    assert!(ends(connect(&socket, b"nobody\0\0")));
    for block in [BLOCKS, u64::MAX] {
        let mut stream = connect(&socket, b"fast\0\0\0\0");
        stream.write_all(&block.to_le_bytes()).unwrap();
        assert!(ends(stream), "{block}");
    }
    let mut stream = connect(&socket, b"slow\0\0\0\0");
    stream.write_all(&[1, 2, 3]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(ends(stream));
    read_blocks(&mut connect(&socket, b"fast\0\0\0\0"), 0..BLOCKS);
}
