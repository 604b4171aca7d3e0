//! What clients may take up: connections, requests, time (and memory in `memory.rs`). And clients that mean no good: none of
//! them may end the server, take another client's turn, or grow memory beyond what `docs/nbd.md` states.
#![allow(clippy::unwrap_used)]

mod rig;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rig::scene::Scene;
use rig::wire::{BLOCK, OPTION_LIST, Options, READ, REPLY_ACK, WRITE, Wire, Workload};

/// Connections of the large tests.
const MANY: usize = 1_000;

/// The end of a connection that the server cut, whatever it said before.
fn is_cut(stream: &mut impl Read) {
    // A reset is an end too; only silence would be wrong, and fails by itself.
    let error = stream.read_to_end(&mut Vec::new()).err();
    assert!(error.is_none_or(|error| error.kind() != std::io::ErrorKind::WouldBlock));
}

/// Goal: a client that has not chosen a volume in time is disconnected, others stay. Method: clients that stop at every
/// stage of the handshake, one that sends a byte now and then, one with a volume.
#[test]
fn handshakes_have_an_end() {
    let scene = Scene::start("handshake = '1s'", "");
    let mut chosen = scene.wire();
    let silent = scene.raw();
    let mut half = scene.raw();
    half.write_all(&[0, 0]).unwrap();
    let mut option = Options::greet(scene.raw()).unwrap();
    option.stream.write_all(b"IHAVEOPT\0\0\0\x07\0\0\x10\0abc").unwrap();
    let listing = Options::greet(scene.raw()).unwrap();
    let mut drip = scene.raw();
    let dripping = thread::spawn(move || {
        let bytes = [&3u32.to_be_bytes()[..], &b"IHAVEOPT\0\0\0\x07\0\0\x20\0".repeat(1_000)];
        for byte in bytes.concat() {
            if drip.write_all(&[byte]).is_err() {
                break;
            }
            // The greeting at first; later nothing, or the end.
            drip.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let _ = drip.read(&mut [0; 64]);
        }
    });
    for mut stream in [silent, half, option.stream, listing.stream] {
        is_cut(&mut stream);
    }
    dripping.join().unwrap();
    scene.until(|told| told.connections == 1);
    assert_eq!(chosen.write(0, 0, &[1; 4096]), 0);
}

/// Goal: clients that hold connections without choosing a volume do not block others, and are cut off when others come.
/// Method: more silent ones than there are places and connections, then clients that work; the silent ones had a
/// minute.
#[test]
fn silent_clients_do_not_block_others() {
    let scene = Scene::start("connections = 64\nhandshakes = 8\nhandshake = '1m'", "");
    let silent: Vec<_> = (0..300).map(|_| scene.raw()).collect();
    let mut open: Vec<Wire> = (0..20).map(|_| scene.wire()).collect();
    for wire in &mut open {
        assert_eq!(wire.write(0, 0, &[1; 4096]), 0);
    }
    assert!(scene.server.stats(false).unwrap().connections <= 20 + 8 + 8);
    for mut stream in silent.into_iter().take(250) {
        is_cut(&mut stream);
    }
}

/// A connection from one of this host's addresses.
#[allow(unsafe_code)]
fn dial(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let address = |ip: [u8; 4], port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip) },
        sin_zero: [0; 8],
    };
    let (from, to) = (address(from, 0), address([127, 0, 0, 1], to.port()));
    let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: plain system calls on a new descriptor and on addresses of this function.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let stream = TcpStream::from_raw_fd(socket);
        assert_eq!(libc::bind(socket, (&raw const from).cast(), length), 0);
        assert_eq!(libc::connect(socket, (&raw const to).cast(), length), 0);
        stream
    }
}

/// Goal: a host that holds all places for clients without a volume, and comes again for each that it loses, keeps out no
/// other host, however slow that one is. Method: one address has eight places and forty connections that wait, always;
/// a client of another address takes as long as several generations of them for its handshake.
#[test]
fn one_host_keeps_no_other_out() {
    let scene =
        Scene::start("tcp = '127.0.0.1:0'\ninsecure = true\nhandshakes = 8\nhandshake = '1m'", "");
    let address = scene.server.tcp().unwrap();
    let over = &AtomicBool::new(false);
    let (generation, generations) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..48 {
            let generation = generation.clone();
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut silent = dial([127, 0, 0, 1], address);
                    silent.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                    let mut greeting = [0; 64];
                    // Cut off, or told to end.
                    while !over.load(Ordering::Relaxed)
                        && !matches!(silent.read(&mut greeting), Ok(0))
                    {}
                    // Nobody listens at the end.
                    let _ = generation.send(());
                }
            });
        }
        let wait = |more: usize| {
            generations.try_iter().for_each(drop);
            (0..more).for_each(|_| generations.recv().unwrap());
        };
        wait(16);
        let mut slow = Options::greet(dial([127, 0, 0, 2], address)).unwrap();
        wait(32);
        let listed = slow.list().map_err(|error| error.kind());
        wait(32);
        let chosen = slow.go("v").map_err(|error| error.kind());
        over.store(true, Ordering::Relaxed);
        assert_eq!((listed, chosen), (Ok(vec!["v".to_string()]), Ok(REPLY_ACK)));
    });
}

/// Goal: as many clients as like to come at once are all let in. Method: fifteen hundred clients, each on a thread
/// of its own.
#[test]
fn simultaneous_connections_are_accepted() {
    let scene = Scene::start("connections = 2000\nhandshakes = 8", "");
    let clients: Vec<_> = (0..1_500)
        .map(|_| {
            let socket = scene.socket();
            thread::spawn(move || Wire::connect_to(&socket, "v").is_some())
        })
        .collect();
    let let_in = clients.into_iter().map(|client| client.join().unwrap());
    assert!(let_in.filter(|let_in| *let_in).count() > 1_450, "a few may be slower than the grace");
}

/// Goal: connections have a bound, and one that goes makes room. Method: one more than allowed.
#[test]
fn connections_have_a_bound() {
    let scene = Scene::start("connections = 8", "");
    let mut open: Vec<Wire> = (0..8).map(|_| scene.wire()).collect();
    for _ in 0..20 {
        assert_eq!(scene.raw().read(&mut [0]).unwrap_or(0), 0, "closed without a word");
    }
    assert_eq!(open[7].write(0, 0, &[1; 4096]), 0);
    open.truncate(7);
    scene.until(|told| told.connections == 7);
    assert_eq!(scene.wire().write(0, 0, &[1; 4096]), 0);
}

/// Goal: a group's connections have a bound, and leave room for others. Method: one group opens as many as it may,
/// by its own limit and then by its part of all; a client of another group comes all the same.
#[test]
fn groups_have_connections_of_their_own() {
    const OTHER: &str =
        "[[group]]\nname = 'h'\n[[volume]]\nname = 'w'\ngroup = 'h'\nsize = '1MiB'\n";
    const REFUSED: u32 = 0x8000_0002;
    for (limit, listen) in [("connections = 3\n", ""), ("", "connections = 12")] {
        let scene = Scene::start(listen, &format!("{limit}{OTHER}"));
        let mut open = Vec::new();
        let refused = loop {
            let mut options = Options::greet(scene.raw()).unwrap();
            match options.go("v").unwrap() {
                REPLY_ACK => open.push(options),
                refused => break refused,
            }
        };
        assert_eq!(refused, REFUSED);
        assert!((3..=9).contains(&open.len()), "{}", open.len());
        let other = Options::greet(scene.raw()).unwrap().go("w").unwrap();
        assert_eq!(other, REPLY_ACK);
        open.pop();
        scene.until(|told| told.connections <= open.len() + 1);
        assert_eq!(Options::greet(scene.raw()).unwrap().go("v").unwrap(), REPLY_ACK);
    }
}

/// Goal: requests inside have a bound, and all are answered all the same. Method: a throttle holds them,
/// while many more are sent than one connection may have inside.
#[test]
fn requests_in_flight_have_a_bound() {
    let scene = Scene::start("in_flight = 4", "max = { read_iops = 400 }");
    let mut wire = scene.wire();
    for number in 0..200 {
        wire.send_read(number * 4096, 4096).unwrap();
    }
    for _ in 0..200 {
        assert!(scene.server.stats(false).unwrap().pending <= 4);
        assert_eq!(wire.receive().unwrap().data.len(), 4096);
    }
}

/// Goal: garbage, floods and absurd lengths end a connection or are refused, and affect no other client. Method: one
/// client a kind, many times, beside a workload that must get all its bytes.
#[test]
fn hostile_clients_do_not_affect_others() {
    let scene = Scene::start("handshake = '2s'", "");
    let socket = scene.socket();
    let good = thread::spawn(move || {
        let mut workload = Workload::new(&socket, 0, 512);
        workload.run(20_000, 8);
        workload
    });
    let mut seed = 1u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    for round in 0..30 {
        // Noise from the first byte on, and after the greeting.
        let mut stream = scene.raw();
        let _ = stream.write_all(&noise(10_000));
        is_cut(&mut stream);
        let mut options = Options::greet(scene.raw()).unwrap();
        let _ = options.stream.write_all(&[&b"IHAVEOPT"[..], &noise(50_000)].concat());
        drop(options);
        // More options than anybody needs, none of whose answers is read.
        let mut options = Options::greet(scene.raw()).unwrap();
        let _ = options.stream.write_all(&b"IHAVEOPT\0\0\0\x03\0\0\0\0".repeat(5_000));
        is_cut(&mut options.stream);
        // An option longer than everything.
        let mut options = Options::greet(scene.raw()).unwrap();
        options.stream.write_all(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff").unwrap();
        assert_eq!(options.receive().unwrap().0, 0x8000_0009, "too big");
        drop(options);
        // Commands: noise, and lengths and places beyond all bounds.
        let mut wire = scene.wire();
        let _ = wire.stream.write_all(&noise(5_000));
        is_cut(&mut wire.stream);
        let mut wire = scene.wire();
        for (offset, length) in
            [(u64::MAX, u32::MAX), (0, u32::MAX), (u64::MAX - 1, 4), (1 << 63, 0)]
        {
            let read = wire.send_read(offset, length).unwrap();
            let answer = wire.receive().unwrap();
            assert!(answer.cookie == read && answer.error != 0, "{answer:?}");
        }
        // A write that says more than it brings, and ends in the middle.
        let half = wire.request(WRITE, 0, 32 << 20, 16 << 20);
        wire.stream.write_all(&[half, noise(round * 20_000)].concat()).unwrap();
        drop(wire);
        // Requests whose answers nobody will read.
        let mut wire = scene.wire();
        let reads: Vec<u8> =
            (0..64).flat_map(|i| wire.request(READ, 0, i << 16, 1 << 16)).collect();
        wire.stream.write_all(&reads).unwrap();
        drop(wire);
    }
    let good = good.join().unwrap();
    assert!(good.written() > 100);
    drop(good);
    scene.until(|told| told.connections == 0 && told.pending == 0);
    let mut last = Options::greet(scene.raw()).unwrap();
    assert_eq!(last.list().unwrap(), ["v"]);
    assert_eq!(last.ask(OPTION_LIST, b"x").unwrap() >> 31, 1);
    assert_eq!(last.go("v").unwrap(), REPLY_ACK);
    scene.server.stop().unwrap();
}

/// Goal: what a good client gets does not depend on how many others there are. Method: bytes that it
/// moves while a thousand others hold connections, half of them in the middle of a request.
#[test]
fn half_open_connections_do_not_affect_others() {
    let scene = Scene::start("connections = 2000", "");
    let mut half: Vec<Wire> = (0..MANY).map(|_| scene.wire()).collect();
    for wire in half.iter_mut().step_by(2) {
        let request = wire.request(WRITE, 0, 48 << 20, 1 << 16);
        wire.stream.write_all(&[&request[..], &[1; 100]].concat()).unwrap();
    }
    let before = scene.server.stats(true).unwrap().volumes[0].stats.bytes;
    let mut good = Workload::new(&scene.socket(), 0, 512);
    good.run(10_000, 16);
    let after = scene.server.stats(false).unwrap().volumes[0].stats.bytes;
    assert!(before.iter().sum::<u64>() == 0 && after.iter().sum::<u64>() > 4_000 * BLOCK as u64);
}
