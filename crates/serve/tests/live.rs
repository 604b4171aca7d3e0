//! A live server and clients that see every byte: stopping under load, clients that do not read, storage
//! that fails, emulated drives.
// Sealing a file takes system calls that the standard library has not.
#![allow(clippy::unwrap_used, unsafe_code)]

mod rig;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::symlink;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread;

use iofair_policies::DEFAULT_STACK;
use iofair_serve::Server;
use iofair_serve::pool::admin::Creation;
use iofair_testkit::page;
use rig::wire::{BLOCK, FUA, READ, Wire, Workload};
use rig::{Directory, Rig, contracts, parse};

const MIB: usize = 1 << 20;
/// Errors as the protocol numbers them.
const EPERM: u32 = 1;
const EIO: u32 = 5;

/// Held by tests that may run beside each other; for writing by one that looks at the memory of the process.
static PROCESS: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    PROCESS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a server's numbers are as wanted.
fn until(server: &Server, done: impl Fn(&iofair_serve::Snapshot) -> bool) {
    while !done(&server.stats(false).unwrap()) {
        thread::yield_now();
    }
}

/// Everything that volume `v` holds.
fn everything(socket: &str) -> Vec<u8> {
    let mut wire = Wire::connect(socket);
    let parts = (0..64).map(|at| wire.read(at * MIB as u64, MIB as u32).data);
    parts.collect::<Vec<_>>().concat()
}

/// Goal: stopping under load answers what came in, keeps every byte that was answered, and leaves no
/// socket. Method: four clients overwrite blocks again and again, some durably, until the server is
/// stopped in the middle; every block must then hold its last answered version, or the one in flight:
/// in the file itself, and as a second server over it tells.
#[test]
fn stopping_under_load_keeps_what_was_answered() {
    let _beside = beside_others();
    for stack in ["none-none", "prop-bfq", DEFAULT_STACK] {
        let rig = Rig::with("file", stack, "");
        let socket = rig.directory.path("socket");
        let work = |number: u64| {
            let mut workload = Workload::new(&socket, number * 512, 512);
            move || {
                while workload.step(8).is_ok() {}
                workload.drain();
                workload
            }
        };
        let threads: Vec<_> = (0..4).map(|number| thread::spawn(work(number))).collect();
        until(&rig.server, |told| told.volumes[0].stats.requests[1] >= 3_000);
        let Rig { server, directory } = rig;
        server.stop().unwrap();
        let ended: Vec<Workload> = threads.into_iter().map(|one| one.join().unwrap()).collect();
        assert!(!fs::exists(&socket).unwrap(), "the socket is gone");
        let pool = directory.path("pool.img");
        let stored = rig::stored(&pool, "v");
        let text = contracts(&directory, &format!("file:{pool}"), stack, "");
        let second = Server::start(parse(&text)).unwrap();
        let told = everything(&socket);
        for workload in &ended {
            assert!(workload.written() > 100, "only {} blocks", workload.written());
            workload.verify(&stored);
            workload.verify(&told);
        }
        second.stop().unwrap();
    }
}

/// Goal: a client that asks for much and reads nothing costs bounded memory and affects no other client, gets
/// every answer once it reads, and leaves nothing behind when it goes without. Method: it asks for 256 MiB
/// of a file; meanwhile a neighbour works; the process must hold the 64 MiB of one connection and
/// not four times that.
#[test]
fn a_client_that_does_not_read_affects_no_other() {
    const PIECE: usize = 4 * MIB;
    const PIECES: usize = 64;
    let _alone = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::start("file");
    let socket = rig.directory.path("socket");
    let mut silent = Wire::connect(&socket);
    let marks: Vec<u8> = (0..16 * PIECE).map(|i| (i >> 12) as u8).collect();
    for (number, piece) in marks.chunks(PIECE).enumerate().take(15) {
        assert_eq!(silent.write(0, (number * PIECE) as u64, piece), 0);
    }
    let before = page::resident_kib("self")[1];
    let ask = |client: &mut Wire| {
        let offset = |number: usize| (number % 15 * PIECE) as u64;
        let requests = (0..PIECES).map(|i| client.request(READ, 0, offset(i), PIECE as u32));
        let requests = requests.collect::<Vec<_>>().concat();
        client.stream.write_all(&requests).unwrap();
    };
    ask(&mut silent);
    until(&rig.server, |told| told.volumes[0].stats.bytes[0] >= 40 << 20);
    let mut neighbour = Workload::new(&socket, (15 * PIECE / BLOCK) as u64, 256);
    neighbour.run(2_000, 8);
    until(&rig.server, |told| told.pending == 0);
    let grown = page::resident_kib("self")[1].saturating_sub(before) / 1024;
    assert!(grown < 160, "{grown} MiB held for a client that does not read");
    assert!(silent.in_flight() == PIECES && rig.server.stats(false).unwrap().connections == 2);
    for _ in 0..PIECES {
        let answer = silent.receive().unwrap();
        let at = (answer.cookie as usize - 15) % PIECES % 15 * PIECE;
        assert!(answer.error == 0 && answer.data == marks[at..at + PIECE], "the piece at {at}");
    }
    ask(&mut silent);
    drop(silent);
    until(&rig.server, |told| told.connections == 1 && told.pending == 0);
    neighbour.run(500, 8);
    rig.server.stop().unwrap();
}

/// Goal: storage that ends too early is an error for the request that meets it and for no other.
/// Method: the file is cut short beneath the server; reads before, across and behind the end.
#[test]
fn a_file_cut_short_is_an_error() {
    let _beside = beside_others();
    let rig = Rig::start("file");
    let mut wire = Wire::connect(&rig.directory.path("socket"));
    let data = vec![0xa5; MIB];
    assert_eq!(wire.write(FUA, 0, &data), 0);
    let path = rig.directory.path("pool.img");
    let first = iofair_serve::pool::admin::show(path.as_ref()).unwrap().volumes[0].extents[0].0;
    let pool = fs::OpenOptions::new().write(true).open(path).unwrap();
    pool.set_len(first + MIB as u64 / 2).unwrap();
    assert_eq!(wire.read(0, MIB as u32 / 2).data, data[..MIB / 2]);
    for (offset, length) in [(MIB / 4, MIB / 2), (MIB, 4096), (MIB + 1, 1000)] {
        assert_eq!(wire.read(offset as u64, length as u32).error, EIO, "{length} at {offset}");
    }
    assert_eq!(rig.server.stats(false).unwrap().volumes[0].stats.failed, 3);
    assert_eq!(wire.write(0, MIB as u64, &data), EIO, "the file stays short");
    assert_eq!(wire.read(0, MIB as u32 / 2).data, data[..MIB / 2]);
}

/// Goal: writes that the storage refuses are refused, plain and durable, aligned and not; reads go on.
/// Method: a file in memory that the kernel seals against writing while it is served.
#[test]
fn refused_writes_are_told() {
    let _beside = beside_others();
    // SAFETY: makes a descriptor from a constant name.
    let file = unsafe { libc::memfd_create(c"pool".as_ptr(), libc::MFD_ALLOW_SEALING) };
    assert!(file >= 0);
    // SAFETY: just made, and nobody else's.
    let file = unsafe { File::from_raw_fd(file) };
    let directory = Directory::new();
    let pool = directory.path("pool.img");
    symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), &pool).unwrap();
    iofair_serve::pool::admin::create(pool.as_ref(), &Creation::default()).unwrap();
    let text = contracts(&directory, &format!("file:{pool}"), "none-none", "");
    let server = Server::start(parse(&text)).unwrap();
    let mut wire = Wire::connect(&directory.path("socket"));
    assert_eq!(wire.write(FUA, 8192, &[7; 4096]), 0);
    // SAFETY: a plain system call on our own descriptor.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
    assert_eq!(sealed, 0);
    for (flags, offset, length) in [(0, 0, 4096), (FUA, 4096, 8192), (0, 8193, 1000), (FUA, 1, 1)] {
        assert_eq!(wire.write(flags, offset, &vec![9; length]), EPERM, "{length} at {offset}");
    }
    assert_eq!(wire.read(8192, 4096).data, [7; 4096]);
    wire.send_flush().unwrap();
    assert_eq!(wire.receive().unwrap().error, 0);
    assert_eq!(server.stats(false).unwrap().volumes[0].stats.failed, 4);
    server.stop().unwrap();
    let start = &rig::stored(&format!("/proc/self/fd/{}", file.as_raw_fd()), "v")[..4096];
    assert_eq!(start, [0; 4096]);
}

/// Goal: an emulated drive keeps bytes and order however its model paces them, and over a file they
/// outlive the server. Method: many requests at once through models of an SSD and of a disk with its own
/// order, every read compared; flushes between; then the file itself, and a second server over it.
#[test]
fn emulated_drives_keep_bytes_and_order() {
    let _beside = beside_others();
    for (profile, requests) in [("samsung-970-pro", 4_000), ("hitachi-hts727550a9e364", 150)] {
        let directory = Directory::new();
        let pool = directory.path("pool.img");
        let text = |stack| contracts(&directory, &format!("emulated:{profile}@{pool}"), stack, "");
        let server = Server::start(parse(&text("none-mq-deadline"))).unwrap();
        let told = server.description().to_owned();
        assert!(told.contains(profile) && told.contains(&pool), "{told}");
        let socket = directory.path("socket");
        let mut workloads = [0, 64].map(|first| Workload::new(&socket, first, 64));
        for _ in 0..2 {
            for workload in &mut workloads {
                workload.run(requests / 4, 16);
                workload.wire.send_flush().unwrap();
                assert_eq!(workload.wire.receive().unwrap().error, 0);
            }
        }
        server.stop().unwrap();
        let mut stored = vec![0; 128 * BLOCK];
        File::open(&pool).unwrap().read_exact(&mut stored).unwrap();
        let second = Server::start(parse(&text("none-none"))).unwrap();
        let told = Wire::connect(&socket).read(0, 128 * BLOCK as u32).data;
        assert!(told == stored);
        workloads.iter().for_each(|workload| workload.verify(&stored));
        second.stop().unwrap();
    }
}

/// A file system of 16 MiB in a file; goes with its owner.
struct Small(String);

impl Small {
    fn mount(directory: &Directory) -> Self {
        let (image, place) = (directory.path("disk"), directory.path("small"));
        fs::create_dir(&place).unwrap();
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        rig::run("mkfs.ext4", &["-q", "-m", "0", &image]);
        rig::run("mount", &["-o", "loop", &image, &place]);
        Self(place)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        rig::run("umount", &[&self.0]);
    }
}

/// Goal: if there is no space for the file of an emulated drive, only what needs some fails, and only as long as there is none. Method:
/// a full file system; writes and zeroes to where nothing is, beside writes to what is there, in the same server and in the next one.
#[test]
#[ignore = "needs root: mount"]
fn needs_root_a_full_disk_below_an_emulated_drive() {
    const ENOSPC: u32 = 28;
    let _beside = beside_others();
    let directory = Directory::new();
    let small = Small::mount(&directory);
    let back = format!("emulated:samsung-970-pro@{}/drive", small.0);
    let text = contracts(&directory, &back, "none-none", "");
    let (socket, fill) = (directory.path("socket"), format!("{}/fill", small.0));
    let page = [5; 4096];
    let server = Server::start(parse(&text)).unwrap();
    let mut wire = Wire::connect(&socket);
    assert_eq!(wire.write(FUA, 0, &page), 0);
    let mut filling = File::create(&fill).unwrap();
    while filling.write_all(&[1; 4096]).is_ok() {}
    filling.sync_all().unwrap();
    drop(filling);
    let full = |wire: &mut Wire| {
        assert_eq!(wire.write(0, 1 << 20, &[6; MIB]), ENOSPC);
        let zeroes = wire.request(6, 0, (3 << 20) + 1, 100);
        wire.stream.write_all(&zeroes).unwrap();
        assert!([0, ENOSPC].contains(&wire.receive().unwrap().error));
        assert_eq!(wire.write(FUA, 0, &page), 0, "what is there can be written");
        assert_eq!(wire.read(0, 4096).data, page);
    };
    full(&mut wire);
    drop(wire);
    server.stop().unwrap();
    let server = Server::start(parse(&text)).unwrap();
    let mut wire = Wire::connect(&socket);
    full(&mut wire);
    fs::remove_file(&fill).unwrap();
    assert_eq!(wire.write(FUA, 1 << 20, &[6; MIB]), 0, "there is space again");
    assert_eq!(wire.read(1 << 20, 1 << 20).data, [6; MIB]);
    drop(wire);
    server.stop().unwrap();
}
