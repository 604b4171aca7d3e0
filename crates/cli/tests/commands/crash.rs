//! `iofair serve` killed in the middle of everything, again and again, under clients that know what has to be
//! there and come back.
//!
//! A few times in the tests; `make soak` (IOFAIR_KILLS=300) many times.

// Its file has more than is used here.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use iofair_testkit::directory::Directory;
use iofair_testkit::wire::{BLOCK, Wire, Workload};

/// Blocks of a client.
const BLOCKS: usize = 256;

fn serve(place: &Directory) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair"));
    command.arg("serve").arg(place.path("contracts.toml")).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until a server says that it serves.
fn until_ready(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("serving"), "{line}");
}

fn signal(name: &str, child: &Child) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// What clients and the one who kills share.
#[derive(Default)]
struct Shared {
    answers: AtomicU64,
    connects: AtomicU64,
    over: AtomicBool,
}

/// A client that comes back whenever its server has gone.
fn client(
    socket: String,
    volume: &'static str,
    first: u64,
    torn: bool,
    shared: Arc<Shared>,
) -> Workload {
    let connect = || loop {
        match Wire::dial(&socket, volume) {
            Ok(wire) => return wire,
            Err(_) => thread::yield_now(),
        }
    };
    let mut load = Workload::over(connect(), first, BLOCKS);
    load.torn = torn;
    loop {
        shared.connects.fetch_add(1, Ordering::Relaxed);
        let mut counted = load.answers();
        while load.step(16).is_ok() {
            shared.answers.fetch_add(load.answers() - counted, Ordering::Relaxed);
            counted = load.answers();
            if shared.over.load(Ordering::Relaxed) {
                load.drain();
                return load;
            }
        }
        // What was answered before the end came counts.
        load.drain();
        while load.reconnect(connect()).is_err() {}
    }
}

fn contracts(place: &Directory, back: &str, more: &str) -> String {
    let volume = |name: &str| format!("[[volume]]\nname = '{name}'\ngroup = 'g'\nsize = '4MiB'\n");
    format!(
        "[drive]\nback = '{back}'\nstack = 'prop-bfq'\n[listen]\nunix = '{}'\n[[group]]\nname = 'g'\n{}{}{more}",
        place.path("socket"),
        volume("v"),
        volume("w")
    )
}

/// Kills and starts a server this many times under load, then compares everything.
fn soak(back: &str, kills: u64) {
    let place = Directory::new();
    // It copies to mapped memory, and a kill may come in the middle of a copy.
    let torn = back.starts_with("emulated");
    let back = back.replace("DIR", place.0.to_str().unwrap());
    let file = place.path("contracts.toml");
    let plain = contracts(&place, &back, "");
    let extra = "[[volume]]\nname = 'x'\ngroup = 'g'\nsize = '1MiB'\n";
    let other = contracts(&place, &back, extra);
    fs::write(&file, &plain).unwrap();
    let shared = Arc::new(Shared::default());
    let clients: Vec<JoinHandle<Workload>> = [("v", 0), ("v", BLOCKS as u64), ("w", 0)]
        .into_iter()
        .map(|(volume, first)| {
            let (socket, shared) = (place.path("socket"), Arc::clone(&shared));
            thread::spawn(move || client(socket, volume, first, torn, shared))
        })
        .collect();
    let mut random = 0x1234_5678_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut child = serve(&place);
    for kill in 0..kills {
        let goal = shared.answers.load(Ordering::Relaxed) + 20 + draw(2000);
        while shared.answers.load(Ordering::Relaxed) < goal {
            assert!(clients.iter().all(|client| !client.is_finished()), "a client has failed");
            assert!(child.try_wait().unwrap().is_none(), "the server has ended by itself");
            thread::yield_now();
        }
        if kill % 3 == 1 {
            // In the middle of a change, too: a volume comes, or goes.
            fs::write(&file, if kill % 2 == 0 { &plain } else { &other }).unwrap();
            signal("-HUP", &child);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        child = serve(&place);
        if kill % 5 == 2 {
            // In the middle of its start.
            child.kill().unwrap();
            child.wait().unwrap();
            child = serve(&place);
        }
    }
    let last = shared.answers.load(Ordering::Relaxed) + 500;
    while shared.answers.load(Ordering::Relaxed) < last {
        assert!(clients.iter().all(|client| !client.is_finished()), "a client has failed");
        thread::yield_now();
    }
    shared.over.store(true, Ordering::Relaxed);
    let loads: Vec<Workload> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    assert!(shared.connects.load(Ordering::Relaxed) > kills, "they came back");
    let volumes = ["v", "v", "w"].map(|volume| {
        let mut wire = Wire::dial(&place.path("socket"), volume).unwrap();
        wire.read(0, 2 * (BLOCKS * BLOCK) as u32).data
    });
    loads.iter().zip(&volumes).for_each(|(load, volume)| load.verify(volume));
    signal("-TERM", &child);
    assert!(child.wait().unwrap().success());
    println!("{kills} kills, {} answers compared", shared.answers.load(Ordering::Relaxed));
}

fn kills(few: u64) -> u64 {
    std::env::var("IOFAIR_KILLS").map_or(few, |kills| kills.parse().expect("a number"))
}

/// Goal: a server that is killed loses nothing that it answered, its clients come back, and nobody is answered
/// twice. Method: random moments under load, one of them in the middle of a change or of a start.
#[test]
fn killed_servers_lose_nothing() {
    for back in ["file:DIR/pool.img", "directory:DIR/pool"] {
        soak(back, kills(6));
    }
}

/// Goal: the same of an emulated drive over a file. Method: the same.
#[test]
fn killed_emulated_drives_lose_nothing() {
    soak("emulated:samsung-970-pro@DIR/pool.img", kills(3));
}

fn is_mounted(path: &str) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().contains(path)
}

/// Goal: a mount that a killed server left is no obstacle for the next, and one that is told to end leaves none.
/// Method: write through the mounted file, kill, look, start, read, TERM.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_a_stale_mount_is_cleared() {
    let place = Directory::new();
    let (mount, file) = (place.path("mnt"), place.path("mnt/v"));
    let more = format!("[fuse]\nmount = '{mount}'\n");
    let back = format!("directory:{}", place.path("pool"));
    fs::write(place.path("contracts.toml"), contracts(&place, &back, &more)).unwrap();
    let mut child = serve(&place);
    until_ready(&mut child);
    let written: Vec<u8> = (0..4 << 20).map(|i: u32| (i >> 10) as u8).collect();
    fs::write(&file, &written).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_mounted(&mount) && fs::metadata(&file).is_err(), "what it left answers nobody");
    let mut child = serve(&place);
    until_ready(&mut child);
    assert!(fs::read(&file).unwrap() == written);
    let second = Command::new(env!("CARGO_BIN_EXE_iofair"))
        .arg("serve")
        .arg(place.path("contracts.toml"))
        .output()
        .unwrap();
    assert!(!second.status.success(), "a second server does not take it away");
    assert!(fs::read(&file).unwrap() == written);
    signal("-TERM", &child);
    assert!(child.wait().unwrap().success() && !is_mounted(&mount));
    assert!(!Path::new(&file).exists());
}
