//! Requests that begin and end anywhere: every back end carries out what it advertises, down to a single byte.

use std::fs;
use std::io::Write;

use crate::rig::wire::{FUA, Wire};
use crate::rig::{Directory, parse, run};
use iofair_serve::Server;
use iofair_serve::pool::admin::{self, Creation};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 40 * MIB;
const TRIM: u16 = 4;
const ZEROES: u16 = 6;
const NO_HOLE: u16 = 2;

/// A loop device that goes with its owner.
struct Loop(String);

impl Loop {
    fn new(directory: &Directory, sector: u32) -> Self {
        let image = directory.path("disk");
        fs::File::create(&image).unwrap().set_len(128 * MIB).unwrap();
        let sector = sector.to_string();
        Self(run("losetup", &["-f", "--show", "-b", &sector, &image]).trim().to_string())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

/// A server with a volume `v` of 40 MiB.
fn start(directory: &Directory, back: &str, volume: &str) -> Server {
    let text = format!(
        "[drive]\nback = '{back}'\nstack = 'none-none'\npaths = ['/dev', '{}']\n[listen]\nunix = '{}'\n\
         [[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '{SIZE}B'\n{volume}\n",
        directory.0.parent().unwrap().display(),
        directory.path("socket")
    );
    Server::start(parse(&text)).unwrap_or_else(|error| panic!("{back}: {error}"))
}

fn empty(wire: &mut Wire, kind: u16, flags: u16, offset: u64, length: u64) -> u32 {
    let request = wire.request(kind, flags, offset, length as u32);
    wire.stream.write_all(&request).unwrap();
    wire.receive().unwrap().error
}

/// Compares a part of a volume with what it must contain; what was trimmed may read as zero.
fn compare(
    wire: &mut Wire,
    model: &[u8],
    trimmed: &[bool],
    range: std::ops::Range<u64>,
    what: &str,
) {
    let mut at = range.start;
    while at < range.end {
        let length = MIB.min(range.end - at);
        let read = wire.read(at, length as u32);
        assert_eq!(read.error, 0, "{what}");
        for (index, byte) in read.data.iter().enumerate() {
            let place = at as usize + index;
            let good = *byte == model[place] || (trimmed[place] && *byte == 0);
            assert!(good, "{what}: {byte} and not {} at {place}", model[place]);
        }
        at += length;
    }
}

/// Writes, zeroes and trims at every kind of border.
fn exercise(directory: &Directory, what: &str) {
    let mut wire = Wire::connect(&directory.path("socket"));
    let mut model = vec![0; SIZE as usize];
    let mut trimmed = vec![false; SIZE as usize];
    for at in 0..SIZE / MIB {
        let bytes = vec![at as u8 + 1; MIB as usize];
        assert_eq!(wire.write(0, at * MIB, &bytes), 0);
        model[(at * MIB) as usize..][..MIB as usize].copy_from_slice(&bytes);
    }
    let cases: [(u64, u64); 14] = [
        (1, 1000),
        (0, 1_000_001),
        (2 * MIB, 512),
        (2 * MIB + 1536, 1024),
        (3 * MIB + 100, 4096),
        (3 * MIB - 1, 2),
        (4 * MIB + 4095, 4098),
        (5 * MIB + 511, 514),
        (5 * MIB + 4096, 4096),
        // In several pieces.
        (4 * MIB + 513, 34 * MIB),
        (4 * MIB + 512, 34 * MIB + 512),
        (SIZE - 1, 1),
        (SIZE - 5000, 5000),
        (0, SIZE),
    ];
    for (number, (offset, length)) in cases.into_iter().enumerate() {
        for (kind, flags) in [(TRIM, 0), (TRIM, FUA), (ZEROES, 0), (ZEROES, NO_HOLE | FUA)] {
            let what = format!("{what}: request {kind} of {length} bytes at {offset}");
            assert_eq!(empty(&mut wire, kind, flags, offset, length), 0, "{what}");
            let range = offset as usize..(offset + length) as usize;
            match kind {
                ZEROES => {
                    model[range.clone()].fill(0);
                    trimmed[range].fill(false);
                }
                _ => trimmed[range].fill(true),
            }
            for border in [offset, offset + length] {
                let around = border.saturating_sub(5000)..(border + 5000).min(SIZE);
                compare(&mut wire, &model, &trimmed, around, &what);
            }
        }
        // So that the next ones have something to clear.
        let byte = 100 + number as u8;
        let (from, bytes) = (offset, vec![byte; length.min(MIB) as usize]);
        assert_eq!(wire.write(0, from, &bytes), 0);
        model[from as usize..][..bytes.len()].copy_from_slice(&bytes);
        trimmed[from as usize..][..bytes.len()].fill(false);
    }
    assert_eq!(empty(&mut wire, 3, 0, 0, 0), 0, "{what}: flush");
    compare(&mut wire, &model, &trimmed, 0..SIZE, what);
}

/// Goal: zeroes of any range read as zeroes, a trim of any range is accepted, and neither changes a byte beside it. Method: borders
/// within a sector, a page and a piece of a long request, against a model, on every back end without a device.
#[test]
fn zeroes_and_trims_may_begin_and_end_anywhere() {
    for back in ["file", "directory", "memory:64MiB", "emulated:samsung-970-pro", "emulated@"] {
        for faulty in if back == "file" { &["", "faulty:"][..] } else { &[""] } {
            let directory = Directory::new();
            let place = match back {
                "file" => format!("file:{}", directory.path("pool.img")),
                "directory" => format!("directory:{}", directory.path("pool")),
                "emulated@" => format!("emulated:samsung-970-pro@{}", directory.path("drive")),
                back => back.to_string(),
            };
            let server = start(&directory, &format!("{faulty}{place}"), "");
            exercise(&directory, back);
            server.stop().unwrap();
        }
    }
}

/// Goal: the same on block devices, with sectors of 512 and of 4,096 bytes, that hold a pool or one volume. Method: loop devices.
#[test]
#[ignore = "needs root: loop devices"]
fn needs_root_zeroes_and_trims_on_devices() {
    for sector in [512, 4096] {
        let directory = Directory::new();
        let device = Loop::new(&directory, sector);
        let blank = Creation { blank: true, ..Creation::default() };
        admin::create(device.0.as_ref(), &blank).unwrap();
        let server = start(&directory, &device.0, "");
        exercise(&directory, &format!("a pool on sectors of {sector} bytes"));
        server.stop().unwrap();
        let back = format!("directory:{}", directory.path("pool"));
        let server = start(&directory, &back, &format!("path = '{}'", device.0));
        exercise(&directory, &format!("a device with sectors of {sector} bytes"));
        server.stop().unwrap();
    }
}

/// Goal: the usual clients copy files of any length to a pool on a device. Method: `nbdcopy` of 1,000,001 bytes with holes, and
/// `qemu-img convert` that looks for zeroes of 512 bytes; both are read back.
#[test]
#[ignore = "needs root: loop devices"]
fn needs_root_clients_copy_files_of_any_length() {
    for sector in [512, 4096] {
        let directory = Directory::new();
        let device = Loop::new(&directory, sector);
        admin::create(device.0.as_ref(), &Creation { blank: true, ..Creation::default() }).unwrap();
        let server = start(&directory, &device.0, "");
        let uri = format!("nbd+unix:///v?socket={}", directory.path("socket"));
        let (file, back) = (directory.path("file"), directory.path("back"));
        // Stretches of zeroes of every length up to 4 KiB, and a hole at the end.
        let mut bytes = vec![0; 1_000_001];
        let mut at = 0;
        for number in 0.. {
            let end = at + 513;
            if end > 700_000 {
                break;
            }
            bytes[at..end].fill(7);
            at = end + number * 37 % 4096;
        }
        fs::write(&file, &bytes).unwrap();
        let fill = directory.path("fill");
        fs::write(&fill, vec![9; 2 << 20]).unwrap();
        let copies: [&[&str]; 2] = [
            &["nbdcopy", "--flush", &file, &uri],
            &["qemu-img", "convert", "-n", "-S", "512", "-f", "raw", "-O", "raw", &file, &uri],
        ];
        for copy in copies {
            run("nbdcopy", &[&fill, &uri]);
            run(copy[0], &copy[1..]);
            run("nbdcopy", &[&uri, &back]);
            let copied = fs::read(&back).unwrap();
            assert!(copied[..bytes.len()] == bytes, "{}, sectors of {sector} bytes", copy[0]);
        }
        server.stop().unwrap();
    }
}
