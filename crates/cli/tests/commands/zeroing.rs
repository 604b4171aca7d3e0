//! `iofair serve` killed while it zeroes what a deleted volume left, again and again, at every stage.

// Its file has more than is used here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use iofair_serve::control::client::{Address, Call, call};
use iofair_serve::pool::admin;
use iofair_testkit::directory::Directory;
use iofair_testkit::wire::{BLOCK, FUA, Wire, Workload};

const MIB: u64 = 1 << 20;
/// What the deleted volume leaves: more than a batch, so that a part of it is recorded before the rest is zeroed.
const LEFT: u64 = 320;
/// Blocks of the client of the volume that stays.
const BLOCKS: usize = 256;
/// After this time a server records what it has zeroed, whatever that is.
const RECORDED: Duration = Duration::from_secs(5);
/// Between two looks.
const MOMENT: Duration = Duration::from_millis(10);

struct Scene {
    place: Directory,
    child: Option<Child>,
    load: Workload,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Contracts with these volumes over a drive that takes this long for each MiB of zeroes that a test can see them come.
fn contracts(place: &Directory, volumes: &[(&str, u64)]) {
    let volume = |(name, mib): &(&str, u64)| {
        format!("[[volume]]\nname = '{name}'\ngroup = 'g'\nsize = '{mib}MiB'\n")
    };
    let text = format!(
        "[drive]\nback = 'faulty:file:{}'\nstack = 'prop-bfq'\n\
         [[drive.faults.rule]]\nfault = 'delay'\ndelay = '20ms'\noperation = 'discard'\n\
         [listen]\nunix = '{}'\n[control]\nunix = '{}'\n[[group]]\nname = 'g'\n{}",
        place.path("pool.img"),
        place.path("socket"),
        place.path("control.sock"),
        volumes.iter().map(volume).collect::<String>(),
    );
    fs::write(place.path("contracts.toml"), text).unwrap();
}

fn serve(place: &Directory) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair"));
    command.arg("serve").arg(place.path("contracts.toml")).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn connect(place: &Directory, volume: &str) -> Wire {
    loop {
        match Wire::dial(&place.path("socket"), volume) {
            Ok(wire) => return wire,
            Err(_) => thread::park_timeout(MOMENT),
        }
    }
}

impl Scene {
    /// A server whose volume `gone` is deleted, with bytes in each of its MiB; the client of `keep` is connected.
    fn new() -> Self {
        let place = Directory::new();
        contracts(&place, &[("keep", 2 * BLOCKS as u64 * BLOCK as u64 / MIB), ("gone", LEFT)]);
        let child = Some(serve(&place));
        let mut gone = connect(&place, "gone");
        for at in 0..LEFT {
            for offset in [0, 412 << 10, MIB - 4096] {
                assert_eq!(gone.write(0, at * MIB + offset, &[0xaa; 4096]), 0);
            }
        }
        assert_eq!(gone.write(FUA, 0, &[0xaa; 4096]), 0);
        drop(gone);
        let load = Workload::over(connect(&place, "keep"), 0, BLOCKS);
        let this = Self { place, child, load };
        this.call(&Call::new("DELETE", "/v1/volumes/gone?data=delete"));
        this
    }
    fn call(&self, ask: &Call) -> Vec<u8> {
        let address = Address::Unix(self.place.path("control.sock").into());
        let reply = call(&address, ask).unwrap();
        assert!(reply.is_good(), "{}", String::from_utf8_lossy(&reply.body));
        reply.body
    }
    /// Bytes that this server has zeroed.
    fn zeroed(&self) -> u64 {
        let page = String::from_utf8(self.call(&Call::new("GET", "/metrics"))).unwrap();
        let line = page.lines().find(|line| line.starts_with("iofair_pool_zeroed_bytes_total "));
        line.unwrap().split(' ').nth(1).unwrap().parse::<f64>().unwrap() as u64
    }
    /// What is dirty in the table that is on the disk.
    fn dirty(&self) -> u64 {
        admin::show(self.place.path("pool.img").as_ref()).unwrap().dirty_bytes
    }
    fn until(&self, what: impl Fn(&Self) -> bool) {
        while !what(self) {
            thread::park_timeout(MOMENT);
        }
    }
    /// Some requests of the client, all answered.
    fn work(&mut self) {
        (0..100).for_each(|_| self.load.step(16).unwrap());
        self.load.drain();
    }
    /// Kills the server under requests of its client.
    fn kill(&mut self) {
        (0..20).for_each(|_| self.load.step(16).unwrap());
        self.kill_at_once();
        // What was answered before the end came counts.
        while self.load.step(16).is_ok() {}
        self.load.drain();
    }
    fn kill_at_once(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
    /// Starts the next one; its client comes back.
    fn start(&mut self) {
        self.child = Some(serve(&self.place));
        while self.load.reconnect(connect(&self.place, "keep")).is_err() {}
        self.work();
    }
    fn is_zero(&self, volume: &str) -> bool {
        let mut wire = connect(&self.place, volume);
        (0..wire.size / MIB)
            .all(|at| wire.read(at * MIB, MIB as u32).data.iter().all(|byte| *byte == 0))
    }
}

/// Goal: whenever a server that zeroes is killed, the next one goes on; nothing leaves the list of what is dirty before it
/// reads as zeroes; whoever gets the room sees nothing else; nobody else's data is touched. Method: kills in the
/// background's first request, in its first batch, after a part was recorded, and while a new volume's room is zeroed at a
/// start; a client of another volume that knows what it has written; new volumes over all of the room.
#[test]
fn killed_servers_zero_what_is_left() {
    let mut begin = Instant::now();
    let mut scene = Scene::new();
    let all = scene.dirty();
    assert!(all >= LEFT * MIB);
    for mark in [1, 30, 100] {
        scene.until(|scene| scene.zeroed() >= mark * MIB);
        scene.kill();
        assert!(scene.dirty() == all || begin.elapsed() > RECORDED, "nothing was durable yet");
        begin = Instant::now();
        scene.start();
    }
    scene.until(|scene| scene.dirty() < all);
    scene.kill();
    let rest = scene.dirty();
    assert!(rest > 0, "a part of it was recorded");
    // Room for a volume that has all of what was zeroed and some of what was not.
    let (keep, size) = (("keep", 2), (all - rest) / MIB + 16);
    contracts(&scene.place, &[keep, ("new", size)]);
    let blocks = |scene: &Scene| fs::metadata(scene.place.path("pool.img")).unwrap().blocks();
    for _ in 0..2 {
        let before = blocks(&scene);
        scene.child = Some(serve(&scene.place));
        scene.until(|scene| blocks(scene) < before || scene.dirty() < rest);
        scene.kill_at_once();
    }
    scene.start();
    assert!(scene.is_zero("new"));
    scene.until(|scene| scene.dirty() == 0);
    let free = admin::show(scene.place.path("pool.img").as_ref()).unwrap().free_bytes / MIB;
    contracts(&scene.place, &[keep, ("new", size), ("last", free)]);
    scene.kill();
    scene.start();
    assert!(scene.is_zero("new") && scene.is_zero("last"));
    let kept = connect(&scene.place, "keep").read(0, 2 * (BLOCKS * BLOCK) as u32).data;
    scene.load.verify(&kept);
}
