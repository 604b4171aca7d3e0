//! Block status, which clients may ask as often as they like, is a request like others.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use crate::rig::Directory;
use crate::rig::controlled::Controlled;
use crate::rig::wire::{Options, REPLY_ACK};
use iofair_serve::control::client::Call;
use serde_json::json;

const BLOCK_STATUS: u16 = 7;

/// A client that may ask for block status of a volume with a name of one letter.
struct Asker(UnixStream);

impl Asker {
    fn new(socket: &str, volume: &str) -> Self {
        let mut client = Options::greet(UnixStream::connect(socket).unwrap()).unwrap();
        assert_eq!(client.ask(8, &[]).unwrap(), REPLY_ACK, "structured replies");
        let context =
            [b"\0\0\0\x01", volume.as_bytes(), b"\0\0\0\x01\0\0\0\x0fbase:allocation"].concat();
        assert_eq!(client.ask(10, &context).unwrap(), REPLY_ACK, "a context");
        assert_eq!(client.go(volume).unwrap(), REPLY_ACK);
        Self(client.stream)
    }
    fn ask(&mut self) {
        let head = [0x2560_9513u32.to_be_bytes(), u32::from(BLOCK_STATUS).to_be_bytes()].concat();
        self.0.write_all(&[&head[..], &[0; 16], &65_536u32.to_be_bytes()].concat()).unwrap();
    }
    /// The answer's length and state of the first extent.
    fn answer(&mut self) -> (u32, u32) {
        let mut reply = [0; 20 + 4 + 8];
        self.0.read_exact(&mut reply).unwrap();
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), reply[7], word(16)), (0x668e_33ef, 5, 12));
        (word(24), word(28))
    }
}

/// Goal: throttles hold block status back like a read, in its group alone. Method: one client's group may read a byte
/// a second, so its question is held as long as the contract says so; another group's client is answered meanwhile.
#[test]
fn throttles_hold_block_status() {
    for back in ["memory:64MiB", "file", "emulated:samsung-970-pro"] {
        let directory = Directory::new();
        let at = match back {
            "file" => format!("file:{}", directory.path("pool")),
            back => back.to_string(),
        };
        let text = crate::rig::controlled::file(&directory, &at).replace("min = '10MB/s'\n", "");
        std::fs::write(directory.path("contracts.toml"), text).unwrap();
        let rig = Controlled::over(directory);
        let group = "/v1/groups/tenants%2Falice";
        let limit = |max| {
            let reply = rig.ask(&Call::new("PATCH", group).body(json!({ "max": max })));
            assert!(reply.is_good(), "{}", String::from_utf8_lossy(&reply.body));
        };
        let usage = |key: &str| rig.get(group)["group"]["usage"][key].as_u64().unwrap();
        limit(json!({ "read": "1B/s" }));
        let socket = rig.directory.path("socket");
        let (mut held, mut free) = (Asker::new(&socket, "v"), Asker::new(&socket, "w"));
        held.ask();
        while usage("request_slots") == 0 {
            assert_eq!(usage("block_statuses"), 0, "{back}: nothing held it back");
            thread::yield_now();
        }
        for _ in 0..10 {
            free.ask();
            assert_eq!(free.answer(), (65_536, 3), "{back}: a hole that reads as zeroes");
        }
        assert_eq!((usage("request_slots"), usage("block_statuses")), (1, 0), "{back}");
        limit(json!(null));
        assert_eq!(held.answer(), (65_536, 3), "{back}");
        assert_eq!((usage("request_slots"), usage("block_statuses")), (0, 1), "{back}");
    }
}
