//! The power goes in the middle of everything, again and again, under every front end: a disk with a volatile cache
//! loses, tears and reorders what was not flushed, and clients know what has to be there.
//!
//! IOFAIR_CUTS says how many cuts there are (`make soak`: 10,000). A scene's seed is printed first; IOFAIR_CUT_SEED
//! replays that scene: its pool, its load, the place of each cut and what is lost. What arrives at the server at the
//! same time still depends on the machine.
#![allow(clippy::unwrap_used, unsafe_code)]

#[path = "rig/disk.rs"]
mod disk;
#[path = "power/link.rs"]
mod link;
#[path = "power/load.rs"]
mod load;
#[path = "power/model.rs"]
mod model;
mod rig;
#[path = "power/volatile.rs"]
mod volatile;

use std::env;

use iofair_drive::random::Random;
use iofair_serve::supervisor::Passed;
use iofair_serve::{Consent, Server};
use iofair_testkit::machine;

use link::{CommandType, Link, Mounted, Nbd, Request, Vhost};
use load::Load;
use model::Volume;
use rig::{Directory, fio, parse, report};
use volatile::{Defect, Disk, Tally, Volatile};

/// Bytes of the volumes.
const SIZES: [usize; 2] = [1 << 20, 256 << 10];
const NAMES: [&str; 2] = ["v", "w"];
/// Cuts of one pool.
const CUTS: u64 = 8;
/// What a verification reads at once.
const CHUNK: usize = 64 << 10;

/// What clients use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Front {
    Nbd,
    /// A virtual machine's disk that flushes.
    Vhost,
    /// One that never flushes.
    VhostWriteThrough,
    Fuse,
    /// Block devices of this host.
    Ublk,
    /// NBD with several connections to a volume.
    Nbds,
}

/// Sums over many scenes.
#[derive(Default, Debug)]
struct Sums {
    cuts: u64,
    answered: u64,
    flushes: u64,
    lost: u64,
    torn: u64,
    /// Sectors that clients found older than the last write.
    older: u64,
}

/// A pool whose power goes several times.
struct Scene {
    front: Front,
    directory: Directory,
    text: String,
    defect: Defect,
    random: Random,
    volumes: Vec<Volume>,
}

impl Scene {
    fn new(front: Front, seed: u64, defect: Defect) -> Self {
        println!("IOFAIR_CUT_SEED={seed} ({front:?}, {defect:?})");
        let mut random = Random::new(seed, 0);
        let directory = Directory::new();
        let back = match random.below(2) {
            0 => format!("file:{}", directory.path("pool.img")),
            _ => format!("directory:{}", directory.path("pool")),
        };
        let stacks =
            ["none-none", "prop-bfq", "max+prop-bfq", "none-mq-deadline", "none-kyber", "promise"];
        let stack = stacks[random.below(stacks.len() as u64) as usize];
        let mut text = format!(
            "[drive]\nback = '{back}'\nstack = '{stack}'\n[listen]\nunix = '{}'\n",
            directory.path("socket")
        );
        if front == Front::Fuse {
            text += &format!("[fuse]\nmount = '{}'\n", directory.path("mnt"));
        }
        for (number, (name, size)) in NAMES.iter().zip(SIZES).enumerate() {
            let ublk =
                if front == Front::Ublk { format!("ublk = {number}\n") } else { String::new() };
            text += &(format!(
                "[[group]]\nname = 'g{name}'\n[[volume]]\nname = '{name}'\ngroup = 'g{name}'\n\
                 size = '{}KiB'\nvhost = '{}'\n",
                size >> 10,
                directory.path(&format!("disk-{name}"))
            ) + &ublk);
        }
        let volumes = SIZES.iter().map(|bytes| Volume::new(*bytes)).collect();
        Self { front, directory, text, defect, random, volumes }
    }
    fn server(&self, disk: &Disk, seed: u64) -> Server {
        let around = |back| Box::new(Volatile::new(back, disk.clone(), seed)) as Box<_>;
        let server =
            Server::start_around(parse(&self.text), Passed::default(), &Consent::default(), around);
        server.unwrap_or_else(|error| panic!("{error}"))
    }
    fn link(&self, volume: usize) -> Box<dyn Link> {
        let name = NAMES[volume];
        let place = |kind: &str| self.directory.path(&format!("{kind}{name}"));
        match self.front {
            Front::Nbd | Front::Nbds => {
                Box::new(Nbd::connect(&self.directory.path("socket"), name))
            }
            Front::Vhost => Box::new(Vhost::connect(&place("disk-"), true)),
            Front::VhostWriteThrough => Box::new(Vhost::connect(&place("disk-"), false)),
            Front::Fuse => Box::new(Mounted::open(&place("mnt/"))),
            Front::Ublk => Box::new(Mounted::device(&format!("/dev/ublkb{volume}"))),
        }
    }
    /// One connection a volume, or several.
    fn links(&self) -> Vec<(usize, Box<dyn Link>)> {
        let volumes = if self.front == Front::Nbds { &[0, 0, 0, 1, 1][..] } else { &[0, 1][..] };
        volumes.iter().map(|volume| (*volume, self.link(*volume))).collect()
    }
    /// A life of the server, and what its end left.
    fn cut(&mut self, sums: &mut Sums) -> Result<(), String> {
        let seed = self.random.bits();
        let disk = Disk::new(seed, self.defect);
        let server = self.server(&disk, seed);
        let links = self.links();
        let most = [12, 60, 250][self.random.below(3) as usize];
        disk.cut_after(self.random.between(1, most));
        let random = Random::new(seed, 1);
        let mut load = Load::new(&mut self.volumes, links, random);
        let ended = load.run();
        sums.answered += load.answered;
        drop(load);
        // It cannot make anything durable any more, and may say so.
        let _ = server.stop();
        ended?;
        assert!(disk.is_off(), "only the cut ends a load");
        let Tally { flushes, lost, torn, .. } = disk.tally();
        sums.cuts += 1;
        (sums.flushes, sums.lost, sums.torn) =
            (sums.flushes + flushes, sums.lost + lost, sums.torn + torn);
        self.verify(sums)
    }
    /// Starts a server again and reads everything.
    fn verify(&mut self, sums: &mut Sums) -> Result<(), String> {
        let server = self.server(&Disk::new(0, Defect::None), 0);
        for number in 0..self.volumes.len() {
            let mut link = self.link(number);
            let mut image = Vec::new();
            for offset in (0..SIZES[number]).step_by(CHUNK) {
                let length = CHUNK.min(SIZES[number] - offset);
                let request =
                    Request { command_type: CommandType::Read, offset: offset as u64, length };
                link.send(0, &request).unwrap();
                link.push().unwrap();
                image.extend(link.receive().unwrap().1.unwrap());
            }
            let checked = self.volumes[number].check_image(&image);
            sums.older += checked.map_err(|why| format!("volume {}: {why}", NAMES[number]))? as u64;
        }
        server.stop().map_err(|error| error.to_string())
    }
}

/// As many cuts as are wished for, in scenes of some cuts each; the first thing that is wrong.
fn cuts(front: Front, cuts: u64, defect: Defect) -> Result<Sums, String> {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let replay = number("IOFAIR_CUT_SEED");
    let seeds = replay.map_or(1..cuts.div_ceil(CUTS) + 1, |seed| seed..seed + 1);
    let mut sums = Sums::default();
    for seed in seeds {
        let mut scene = Scene::new(front, seed, defect);
        for cut in 1..=CUTS {
            let done = scene.cut(&mut sums);
            done.map_err(|why| format!("IOFAIR_CUT_SEED={seed} {front:?}, cut {cut}: {why}"))?;
        }
    }
    println!("{front:?}: {sums:?}");
    Ok(sums)
}

/// A part of IOFAIR_CUTS, in percent; in the tests 400 cuts.
fn wished(percent: u64) -> u64 {
    let all = env::var("IOFAIR_CUTS").map_or(400, |text| text.parse().unwrap());
    (all * percent).div_ceil(100)
}

/// What holds for every front end, and that the cuts were real ones.
fn holds(front: Front, percent: u64) {
    let sums = cuts(front, wished(percent), Defect::None).unwrap_or_else(|why| panic!("{why}"));
    assert!(sums.lost > 0 && sums.torn > 0 && sums.older > 0, "{sums:?}");
    assert!(sums.flushes > sums.cuts / 2 && sums.answered > sums.cuts * 5, "{sums:?}");
}

/// Goal: what NBD clients were told is durable survives every cut, and what was not is old or new, sector by sector.
/// Method: a random load on two volumes, cut after a random number of the disk's commands; everything is read again
/// through the next server.
#[test]
fn nbd_keeps_what_is_durable() {
    holds(Front::Nbd, 30);
}

/// Goal: the same with several connections to a volume: a flush covers what any of them was answered. Method: the
/// same, three connections to one volume and two to the other.
#[test]
fn several_connections_keep_what_is_durable() {
    holds(Front::Nbds, 30);
}

/// Goal: the same for disks of virtual machines. Method: the same, with a driver's flushes.
#[test]
fn disks_of_virtual_machines_keep_what_is_durable() {
    holds(Front::Vhost, 20);
}

/// Goal: a driver that cannot flush loses nothing that was answered. Method: the same without the feature.
#[test]
fn disks_without_flushes_keep_everything() {
    holds(Front::VhostWriteThrough, 10);
}

/// Goal: the same for files of the mounted directory: fdatasync and O_DSYNC. Method: six threads on each of two
/// files.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_files_keep_what_is_durable() {
    holds(Front::Fuse, 10);
}

/// Goal: the same for block devices of this host. Method: six threads on each of two devices, past the page cache.
#[test]
#[ignore = "needs ublk: /dev/ublk-control"]
fn needs_ublk_devices_keep_what_is_durable() {
    let cuts = cuts(Front::Ublk, wished(4), Defect::None).unwrap_or_else(|why| panic!("{why}"));
    assert!(cuts.lost > 0 && cuts.torn > 0, "{cuts:?}");
}

/// Goal: the same where the host has no driver for them. Method: the test above, in a virtual machine.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest)"]
fn needs_guest_devices_keep_what_is_durable() {
    let place = Directory::new();
    std::fs::create_dir_all(place.0.join("root/tmp")).unwrap();
    let program = env::current_exe().unwrap();
    machine::bring(&place.0, &program);
    let name = program.file_name().unwrap().to_str().unwrap();
    let cuts = env::var("IOFAIR_CUTS").unwrap_or_else(|_| "100".into());
    let test = "needs_ublk_devices_keep_what_is_durable --exact --ignored --nocapture";
    let script = format!("IOFAIR_CUTS={cuts} {name} {test}\n");
    let arguments = "-machine q35 -cpu max -smp 2 -m 768M";
    let arguments = arguments.split(' ').map(String::from).collect();
    let seen = machine::Machine::boot(&place.0, arguments, &script).passes();
    assert!(seen.contains("Ublk: Sums"), "{seen}");
    println!("{}", seen.lines().filter(|line| line.contains("Sums")).collect::<String>());
}

/// Goal: the checker sees what is to be seen: a disk whose flush does nothing, a server that answers flushes itself,
/// and one that forgets FUA. Method: each of them under each front end that can meet it, until it is caught.
#[test]
fn broken_promises_are_caught() {
    for (front, defect) in [
        (Front::Nbd, Defect::FlushIgnored),
        (Front::Nbd, Defect::FlushSkipped),
        (Front::Nbd, Defect::FuaIgnored),
        (Front::Vhost, Defect::FlushIgnored),
        (Front::Vhost, Defect::FlushSkipped),
        (Front::VhostWriteThrough, Defect::FuaIgnored),
    ] {
        let caught = cuts(front, 200, defect).expect_err("a broken promise goes unnoticed");
        assert!(caught.contains("neither what was durable"), "{front:?} {defect:?}: {caught}");
    }
}

/// Goal: what a client not written by us has flushed is there after a cut. Method: fio writes and flushes at its end,
/// the power goes, and fio verifies through the next server.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_fio_finds_what_it_flushed() {
    let scene = Scene::new(Front::Nbd, 1, Defect::None);
    let uri = format!("nbd+unix:///v?socket={}", scene.directory.path("socket"));
    let job = [
        "--rw=randwrite",
        "--bsrange=512-32k",
        "--size=1m",
        "--iodepth=16",
        "--randseed=7",
        "--verify=crc32c",
        "--verify_state_save=0",
    ];
    let disk = Disk::new(1, Defect::None);
    let server = scene.server(&disk, 1);
    report(fio(&uri, &[&job[..], &["--do_verify=0", "--end_fsync=1"]].concat()));
    disk.cut();
    let _ = server.stop();
    let server = scene.server(&Disk::new(2, Defect::None), 2);
    report(fio(&uri, &[&job[..], &["--verify_only=1", "--verify_fatal=1"]].concat()));
    server.stop().unwrap();
}
