//! Volumes as disks of virtual machines: the `virtio-driver` crate against a live server.

#![allow(unsafe_code, clippy::unwrap_used)]

#[path = "rig/disk.rs"]
mod disk;
mod rig;

use disk::Disk;
use rig::Rig;

const BACKS: [&str; 3] = ["memory:64MiB", "file", "emulated:samsung-970-pro"];

fn rig(back: &str) -> (Rig, String) {
    let rig = Rig::start_with(back, |directory| format!("vhost = '{}'\n", directory.path("disk")));
    let path = rig.directory.path("disk");
    (rig, path)
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(6_364_136_223_846_793_005) | 1;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Goal: bytes that go in come out, through every back end, also in pieces that no drive likes; zeroes and
/// discards leave zeroes, flushes are answered, what is outside of the volume is an error. Method: the driver,
/// one request after the other.
#[test]
fn a_disk_does_what_a_disk_does() {
    for back in BACKS {
        let (rig, path) = rig(back);
        let mut disk = Disk::connect(&path, 1, 128);
        assert_eq!(u64::from(disk.config().capacity), (64 << 20) / 512);
        let data = pattern(1, 1 << 20);
        assert_eq!(disk.write(8192, &data), 0);
        assert_eq!(disk.read(8192, 1 << 20), Ok(data.clone()), "{back}");
        // Pieces on odd borders.
        let pieces = disk.pieces(513, &[1000, 24, 4096, 3000, 72]);
        let odd = pattern(2, 8192);
        disk.bytes(513, 8192).copy_from_slice(&odd);
        // SAFETY: the pieces lie in memory that the disk keeps.
        unsafe { disk.queues[0].writev(512, pieces.as_ptr(), pieces.len(), 0).unwrap() };
        assert_eq!(disk.answer(), 0);
        disk.bytes(513, 8192).fill(0);
        let pieces = disk.pieces(513, &[72, 3000, 4096, 24, 1000]);
        // SAFETY: as above.
        unsafe { disk.queues[0].readv(512, pieces.as_ptr(), pieces.len(), 0).unwrap() };
        assert_eq!(disk.answer(), 0);
        assert!(disk.bytes(513, 8192) == odd, "{back}: odd pieces");
        assert_eq!(disk.read(8192 + 512, 4096), Ok(data[512..][..4096].to_vec()));
        disk.queues[0].flush(0).unwrap();
        assert_eq!(disk.answer(), 0);
        for (operation, at) in [(0, 64 << 10), (1, 256 << 10), (2, 512 << 10)] {
            let length = 128 << 10;
            match operation {
                0 => disk.queues[0].discard(at, length, 0).unwrap(),
                kind => disk.queues[0].write_zeroes(at, length, kind == 2, 0).unwrap(),
            }
            assert_eq!(disk.answer(), 0);
            assert_eq!(disk.read(at, length as usize), Ok(vec![0; length as usize]), "{back}");
        }
        assert_eq!(disk.read((64 << 20) - 512, 1024), Err(-libc::EIO));
        assert_eq!(disk.write(64 << 20, &[1; 512]), -libc::EIO);
        disk.queues[0].discard((64 << 20) - 4096, 8192, 0).unwrap();
        assert_eq!(disk.answer(), -libc::EIO);
        drop(disk);
        rig.server.stop().unwrap();
        assert!(!std::path::Path::new(&path).exists(), "the socket goes with the server");
    }
}
