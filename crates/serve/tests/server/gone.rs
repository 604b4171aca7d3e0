//! Clients that are gone, and volumes that are removed, while their requests wait for a ceiling: what is queued ends, the
//! places are free, and no bandwidth is spent for them. The ceilings here would take an hour or more for it.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::guest::Guest;
use crate::rig::controlled::Controlled;
use crate::rig::pki::{self, Pki};
use crate::rig::wire::{Options, READ, REPLY_ACK, Stream, TIMEOUT, WRITE, Wire};
use crate::rig::{Directory, Rig, parse};
use iofair_serve::control::client::Call;
use iofair_serve::{Server, Snapshot};
use serde_json::{Value as Json, json};

const MIB: u32 = 1 << 20;
/// A ceiling of 1 kB/s, without and with a token bucket.
const CEILINGS: [&str; 2] =
    ["max = { read = '1kB/s', write = '1kB/s' }", "max = { total = '1kB/s', burst = '4KiB' }"];
const STACKS: [&str; 4] = ["promise", "max-none", "max+prop-bfq", "max-mq-deadline"];
/// NBD_CMD_DISC.
const DISCONNECT: u16 = 2;
/// `ESHUTDOWN`, as NBD has it.
const SHUT_DOWN: u32 = 108;

/// Waits until the server is as described.
fn until(server: &Server, what: &str, is_so: impl Fn(&Snapshot) -> bool) {
    let began = Instant::now();
    while !is_so(&server.stats(false).unwrap()) {
        assert!(began.elapsed() < TIMEOUT, "{what}: {:?}", server.stats(false).unwrap());
        thread::yield_now();
    }
}

/// Goal: queued reads of a client that was killed end at once and cost nothing: its place is free, and another client has the
/// ceiling. Method: twenty reads of 1 MiB, of which 5 hours are queued; then the connection is closed, without a word. Two other
/// connections, one that stays with a read in the same queue and a new one, read. Each stack and kind of ceiling.
#[test]
fn reads_of_a_client_that_is_gone_end() {
    for (stack, ceiling) in STACKS.iter().flat_map(|stack| CEILINGS.map(|max| (*stack, max))) {
        let rig = Rig::with("memory:64MiB", stack, ceiling);
        let socket = rig.directory.path("socket");
        let mut wire = Wire::connect(&socket);
        for at in 0..20 {
            wire.send_read(u64::from(at * MIB), MIB).unwrap();
        }
        until(&rig.server, "queued", |seen| seen.pending >= 20 || ceiling == CEILINGS[1]);
        let mut stays = Wire::connect(&socket);
        stays.send_read(0, 512).unwrap();
        drop(wire);
        until(&rig.server, stack, |seen| seen.connections == 1 && seen.pending <= 1);
        if ceiling == CEILINGS[0] {
            assert_eq!(stays.receive().unwrap().error, 0);
            assert_eq!(Wire::connect(&socket).read(0, 512).error, 0);
        }
        let volumes = rig.server.stats(false).unwrap().volumes;
        assert_eq!(volumes[0].stats.failed, 0, "nobody waited for them");
    }
}

/// Goal: the same over TCP, where a client that closes cannot be told from one that reads on, and for a client that had asked
/// for more than it may have in flight, so that nothing is received. Method: the socket is closed with an answer unread.
#[test]
fn reads_of_a_client_over_tcp_end() {
    let rig = Rig::with("memory:64MiB", "promise", CEILINGS[0]);
    let stream = TcpStream::connect(rig.server.tcp().unwrap()).unwrap();
    let mut options = Options::greet(stream).unwrap();
    options.send(crate::rig::wire::OPTION_EXPORT_NAME, b"v").unwrap();
    let mut wire = Wire::chosen(Box::new(options.stream)).unwrap();
    for at in 0..100 {
        wire.send_read(u64::from(at % 60 * MIB), MIB).unwrap();
    }
    until(&rig.server, "queued", |seen| seen.pending >= 60);
    drop(wire);
    until(&rig.server, "gone", |seen| seen.connections == 0 && seen.pending == 0);
}

/// Goal: a client that disconnects in the way of the protocol gets its answers, and one that says so and is gone does not keep its
/// place. Method: reads, NBD_CMD_DISC, and then: all answers; or the end of the connection.
#[test]
fn a_disconnect_ends_only_with_the_client() {
    let disconnect = |wire: &mut Wire| {
        let bytes = wire.request(2, 0, 0, 0);
        wire.stream.write_all(&bytes).unwrap();
    };
    let rig = Rig::with("memory:64MiB", "promise", "max = { read = '20MB/s' }");
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    for at in 0..8 {
        wire.send_read(u64::from(at * MIB), MIB).unwrap();
    }
    disconnect(&mut wire);
    (0..8).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
    assert!(wire.receive().is_err());
    until(&rig.server, "disconnected", |seen| seen.connections == 0);

    let rig = Rig::with("memory:64MiB", "promise", CEILINGS[0]);
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    for at in 0..8 {
        wire.send_read(u64::from(at * MIB), MIB).unwrap();
    }
    disconnect(&mut wire);
    until(&rig.server, "queued", |seen| seen.pending >= 8);
    drop(wire);
    until(&rig.server, "gone", |seen| seen.connections == 0 && seen.pending == 0);
}

/// Goal: a client that has sent everything, NBD_CMD_DISC last, and sends no more gets all its answers, though it asked for more
/// than may be in flight; one that does not disconnect is gone. Method: 200 writes behind a ceiling, over each kind of socket.
#[test]
fn a_client_that_sends_no_more_gets_its_answers() {
    fn chosen<S: Stream + 'static>(stream: S) -> Wire {
        let mut options = Options::greet(stream).unwrap();
        options.send(crate::rig::wire::OPTION_EXPORT_NAME, b"v").unwrap();
        Wire::chosen(Box::new(options.stream)).unwrap()
    }
    for (over_tcp, disconnects) in [(false, true), (true, true), (false, false), (true, false)] {
        let rig =
            Rig::with("memory:64MiB", "promise", "max = { write_iops = 400, read = '1kB/s' }");
        let (mut wire, end): (_, Box<dyn Fn()>) = if over_tcp {
            let stream = TcpStream::connect(rig.server.tcp().unwrap()).unwrap();
            let other = stream.try_clone().unwrap();
            (chosen(stream), Box::new(move || other.shutdown(Shutdown::Write).unwrap()))
        } else {
            let stream = UnixStream::connect(rig.directory.path("socket")).unwrap();
            let other = stream.try_clone().unwrap();
            (chosen(stream), Box::new(move || other.shutdown(Shutdown::Write).unwrap()))
        };
        for at in 0..200 {
            match disconnects {
                true => wire.send_write(0, at * 4096, &[1; 4096]).unwrap(),
                false => wire.send_read(at * 4096, MIB).unwrap(),
            };
        }
        if disconnects {
            let bytes = wire.request(2, 0, 0, 0);
            wire.stream.write_all(&bytes).unwrap();
        }
        end();
        for _ in 0..if disconnects { 200 } else { 0 } {
            assert_eq!(wire.receive().unwrap().error, 0);
        }
        until(&rig.server, "gone", |seen| seen.connections == 0 && seen.pending == 0);
    }
}

/// Goal: a client that has disconnected in the way of the protocol, sends no more, waits for its answers at its limit of requests
/// in flight and is then killed does not keep its place. Method: over each kind of socket; TCP tells of the end with a reset.
#[test]
fn a_client_that_sends_no_more_and_is_killed_ends() {
    fn filled<S: Stream>(stream: S) -> S {
        let mut options = Options::greet(stream).unwrap();
        assert_eq!(options.go("v").unwrap(), REPLY_ACK);
        let mut wire = Wire::after_go(Box::new(io::empty()));
        let reads = (0..100).flat_map(|at| wire.request(READ, 0, at % 60 * u64::from(MIB), MIB));
        let mut bytes: Vec<u8> = reads.collect();
        bytes.extend(wire.request(DISCONNECT, 0, 0, 0));
        options.stream.write_all(&bytes).unwrap();
        options.stream
    }
    let rig = Rig::with("memory:64MiB", "promise", CEILINGS[0]);
    let ends = |end: &dyn Fn()| {
        until(&rig.server, "queued", |seen| seen.pending >= 60);
        end();
        // The server sees that before the client is gone.
        (0..100).for_each(|_| drop(rig.server.stats(false).unwrap()));
    };
    let gone = || until(&rig.server, "gone", |seen| seen.connections == 0 && seen.pending == 0);
    let stream = filled(UnixStream::connect(rig.directory.path("socket")).unwrap());
    ends(&|| stream.shutdown(Shutdown::Write).unwrap());
    drop(stream);
    gone();
    let stream = filled(TcpStream::connect(rig.server.tcp().unwrap()).unwrap());
    ends(&|| stream.shutdown(Shutdown::Write).unwrap());
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let bytes = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: reads the option that it is given, and sets it for a socket of ours.
    let set = unsafe {
        let (socket, value) = (stream.as_raw_fd(), (&raw const linger).cast());
        libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, value, bytes)
    };
    assert_eq!(set, 0);
    drop(stream);
    gone();
}

/// Goal: over TLS, a client that is killed at its limit of requests in flight is gone, and one that has sent everything, then
/// NBD_CMD_DISC and close_notify, gets its answers. Method: both close their side of TCP, with more sent than may be in flight.
#[test]
fn a_client_over_tls_that_says_nothing_is_gone() {
    let directory = Directory::new();
    let _pki = Pki::write(&directory);
    let path = |name: &str| directory.path(name);
    let text = format!(
        "[drive]\nback = 'memory:64MiB'\nstack = 'promise'\n[listen]\ntcp = '127.0.0.1:0'\n\
         [listen.tls]\ncertificate = '{}'\nkey = '{}'\nclients = '{}'\nrequired = true\n\
         [[group]]\nname = 'g'\nclients = ['bob']\n\
         max = {{ write_iops = 400, read = '1kB/s' }}\n\
         [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\n",
        path("server.pem"),
        path("server-key.pem"),
        path("ca.pem"),
    );
    let server = Server::start(parse(&text)).unwrap();
    for is_killed in [true, false] {
        let stream = TcpStream::connect(server.tcp().unwrap()).unwrap();
        let other = stream.try_clone().unwrap();
        let secured = pki::secure(Box::new(stream), pki::config(&directory, "bob"));
        let mut options = secured.unwrap();
        assert_eq!(options.go("v").unwrap(), REPLY_ACK);
        let mut stream = options.stream;
        let mut wire = Wire::after_go(Box::new(io::empty()));
        if is_killed {
            let reads =
                (0..100).flat_map(|at| wire.request(READ, 0, at % 60 * u64::from(MIB), MIB));
            stream.write_all(&reads.collect::<Vec<u8>>()).unwrap();
            until(&server, "queued", |seen| seen.pending >= 60);
        } else {
            for at in 0..200 {
                let request = wire.request(WRITE, 0, at * 4096, 4096);
                stream.write_all(&[&request[..], &[1; 4096]].concat()).unwrap();
            }
            stream.write_all(&wire.request(DISCONNECT, 0, 0, 0)).unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
        other.shutdown(Shutdown::Write).unwrap();
        if !is_killed {
            wire.stream = Box::new(stream);
            (0..200).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
        }
        until(&server, "gone", |seen| seen.connections == 0 && seen.pending == 0);
    }
}

/// Goal: what a client wrote is kept though it is gone, and its place is free after that, not before. Method: a volume for one
/// client; twenty writes behind a ceiling, and the end of the connection; the next client reads them.
#[test]
fn writes_of_a_client_that_is_gone_are_kept() {
    let keys = "connections = 1\nmax = { read = '1kB/s', write = '4MB/s' }";
    let rig = Rig::with("memory:64MiB", "promise", keys);
    let socket = rig.directory.path("socket");
    let mut wire = Wire::connect(&socket);
    for at in 0..20u8 {
        wire.send_write(0, u64::from(at) * 65536, &[at + 1; 65536]).unwrap();
        wire.send_read(u64::from(MIB), MIB).unwrap();
    }
    until(&rig.server, "received", |seen| seen.pending >= 20);
    drop(wire);
    let mut next = loop {
        if let Some(next) = Wire::connect_to(&socket, "v") {
            break next;
        }
    };
    until(&rig.server, "written", |seen| seen.pending == 0 && seen.connections == 1);
    for at in 0..20u8 {
        // A page each, since reads have a ceiling.
        assert_eq!(next.read(u64::from(at) * 65536, 1).data, [at + 1]);
    }
}

/// Goal: the disk of a machine that is gone is free for the next one, and nothing is told to the memory of the first. Method:
/// reads wait for the ceiling, the first client disconnects, and comes again over the region of requests in flight.
#[test]
fn disks_of_machines_that_are_gone_are_free() {
    let directory = Directory::new();
    let (disk, socket) = (directory.path("disk"), directory.path("socket"));
    let text = |ceiling: &str| {
        format!(
            "[drive]\nback = 'memory:64MiB'\nstack = 'promise'\n[listen]\nunix = '{socket}'\n\
             [[group]]\nname = 'g'\n{ceiling}\n\
             [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\nvhost = '{disk}'\n"
        )
    };
    // A page takes most of a day.
    let mut server = Server::start(parse(&text("max = { read = '1B/s' }"))).unwrap();
    let mut guest = Guest::connected(&disk, 1);
    for slot in 0..8 {
        let head = guest.prepare(0, slot, u64::from(slot), None);
        guest.publish(0, head);
    }
    guest.kick(0);
    until(&server, "queued", |seen| seen.pending >= 8);
    guest.front = None;
    until(&server, "gone", |seen| seen.volumes[0].connections == 0 && seen.pending == 0);
    assert_eq!(guest.take_used(0), None, "nothing was completed");
    let mut other = Guest::connected(&disk, 1);
    assert_eq!(other.do_one(0, 0, Some(&[7; 4096])), 0, "writes have no ceiling");
    other.front = None;
    server.reload(parse(&text(""))).unwrap();
    guest.connect(&disk);
    guest.start();
    let mut heads: Vec<u16> = (0..8).map(|_| guest.used(0).0).collect();
    heads.sort_unstable();
    assert_eq!(heads, (0..8).map(|slot| slot * 3).collect::<Vec<_>>(), "all of them again");
    assert_eq!(guest.data(0, 0), [7; 4096]);
}

/// A server with a ceiling and a mounted directory, and where that is.
fn mounted(directory: &Directory) -> (Server, String) {
    let (mount, socket) = (directory.path("mnt"), directory.path("socket"));
    let text = format!(
        "[drive]\nback = 'memory:64MiB'\nstack = 'promise'\n[fuse]\nmount = '{mount}'\n\
         [listen]\nunix = '{socket}'\n[[group]]\nname = 'g'\n{}\n\
         [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\n",
        CEILINGS[0]
    );
    let server = Server::start(parse(&text)).unwrap();
    (server, mount)
}

/// Goal: files of a directory that is not mounted any more are closed. Method: a read waits for the ceiling, and the connection to
/// the kernel is aborted.
#[test]
#[ignore = "needs root: mounts a file system"]
fn needs_root_files_of_an_aborted_mount_are_closed() {
    let directory = Directory::new();
    let (server, mount) = mounted(&directory);
    let file = File::open(directory.path("mnt/v")).unwrap();
    let reading = thread::spawn(move || file.read_at(&mut vec![0; MIB as usize], 0));
    until(&server, "queued", |seen| seen.pending >= 1);
    // It ends the connection, whether or not the directory is busy.
    Command::new("umount").args(["-f", &mount]).output().unwrap();
    reading.join().unwrap().unwrap_err();
    until(&server, "closed", |seen| seen.connections == 0 && seen.pending == 0);
}

/// Goal: a process that was killed ends, though it reads a file of the mounted directory behind a ceiling, and the ceiling is
/// not charged for it. Method: `dd`, and a second one that reads less than the ceiling gives.
#[test]
#[ignore = "needs root: mounts a file system"]
fn needs_root_reads_of_a_killed_process_end() {
    let directory = Directory::new();
    let (server, mount) = mounted(&directory);
    let read = |bytes: &str| {
        let mut program = Command::new("dd");
        program.args([&format!("if={mount}/v"), "of=/dev/null", "count=1", "iflag=direct", bytes]);
        program.stderr(Stdio::null()).spawn().unwrap()
    };
    let mut killed = read("bs=8M");
    until(&server, "queued", |seen| seen.pending >= 1);
    killed.kill().unwrap();
    until(&server, "ended", |seen| seen.pending == 0 && seen.connections == 0);
    killed.wait().unwrap();
    assert!(read("bs=512").wait().unwrap().success());
}

/// Goal: removals whose clients wait for a drive that does not complete their requests keep nobody else from changes, and the audit
/// log tells the revisions that they made. Method: writes that never end; as many removals as changes may be in progress, which wait
/// for as long as a drain; and another change meanwhile.
#[test]
fn removals_that_wait_keep_nobody_from_changes() {
    const VOLUMES: [&str; 4] = ["v", "w", "x", "y"];
    let directory = Directory::new();
    let path = |name: &str| directory.path(name);
    let mut text = format!(
        "[drive]\nback = 'faulty:directory:{}'\nstack = 'none-none'\ndrain = '12s'\n\
         [[drive.faults.rule]]\nfault = 'never'\noperation = 'write'\n\
         [listen]\nunix = '{}'\n[control]\nunix = '{}'\naudit = '{}'\n[[group]]\nname = 'g'\n",
        path("pool"),
        path("socket"),
        path("control.sock"),
        path("audit"),
    );
    for name in VOLUMES {
        text += &format!("[[volume]]\nname = '{name}'\ngroup = 'g'\nsize = '1MiB'\n");
    }
    fs::write(path("contracts.toml"), text).unwrap();
    let (socket, audit) = (path("socket"), path("audit"));
    let scene = Controlled::over(directory);
    let wires = VOLUMES.map(|name| {
        let mut wire = Wire::connect_to(&socket, name).unwrap();
        wire.send_write(0, 0, &[1; 512]).unwrap();
        wire
    });
    while scene.get("/v1/status")["in_flight"] != VOLUMES.len() {
        thread::yield_now();
    }
    let scene = &scene;
    let told = thread::scope(|scope| {
        let removals = VOLUMES.map(|name| {
            let call = Call::new("DELETE", &format!("/v1/volumes/{name}?data=delete"));
            scope.spawn(move || scene.ask(&call))
        });
        while scene.text().contains("[[volume]]") {
            thread::yield_now();
        }
        let change = Call::new("PATCH", "/v1/groups/g").body(json!({ "clients": ["*"] }));
        assert_eq!(scene.status(&change), 200);
        assert!(removals.iter().all(|removal| !removal.is_finished()), "they wait");
        removals.map(|removal| removal.join().unwrap().json().unwrap()["revision"].clone())
    });
    drop(wires);
    let log = fs::read_to_string(audit).unwrap();
    let lines: Vec<Json> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (name, revision) in VOLUMES.iter().zip(told) {
        let path = format!("/v1/volumes/{name}");
        let end = lines.iter().find(|line| line["event"] == "end" && line["path"] == path);
        assert_eq!(end.unwrap()["new_revision"], revision, "{log}");
    }
}

/// Goal: the removal of a volume ends what is queued, disconnects its clients and says so then; others go on. Method: a
/// client with reads and writes behind a ceiling, and one that does not read its answers.
#[test]
fn a_removal_ends_what_is_queued() {
    let directory = Directory::new();
    let path = |name: &str| directory.path(name);
    let text = format!(
        "[drive]\nback = 'directory:{}'\nstack = 'promise'\n[listen]\nunix = '{}'\n\
         [control]\nunix = '{}'\n[[group]]\nname = 'g'\n{}\n[[group]]\nname = 'h'\n\
         [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\n\
         [[volume]]\nname = 'w'\ngroup = 'h'\nsize = '64MiB'\n",
        path("pool"),
        path("socket"),
        path("control.sock"),
        CEILINGS[0]
    );
    fs::write(path("contracts.toml"), text).unwrap();
    let socket = path("socket");
    let scene = Controlled::over(directory);
    let mut wire = Wire::connect(&socket);
    for at in 0..10 {
        wire.send_read(u64::from(at * MIB), MIB).unwrap();
        wire.send_write(0, u64::from(at * MIB), &vec![1; MIB as usize]).unwrap();
    }
    let mut deaf = Wire::connect_to(&socket, "w").unwrap();
    let request = deaf.request(READ, 0, 0, 32 * MIB);
    deaf.stream.write_all(&request).unwrap();
    let seen = |is_so: fn(&Snapshot) -> bool| {
        let until = |server: &Server| until(server, "seen", is_so);
        scene.control.server(until).unwrap();
    };
    seen(|seen| seen.volumes[0].connections == 1 && seen.pending >= 20);
    for volume in ["v", "w"] {
        let call = Call::new("DELETE", &format!("/v1/volumes/{volume}?data=delete"));
        assert_eq!(scene.status(&call), 200);
        let left = scene.control.server(|server| server.stats(false).unwrap()).unwrap();
        assert!(left.volumes.iter().all(|left| left.name != volume), "{volume}: {left:?}");
    }
    let mut errors = 0;
    while let Ok(reply) = wire.receive() {
        assert_eq!(reply.error, SHUT_DOWN);
        errors += 1;
    }
    assert_eq!(errors, 20, "everything was answered");
    let _ = deaf.stream.read_to_end(&mut Vec::new());
}
