//! What the kernel says of a drive, and whether it is a disk.
//!
//! Virtual disks on flash are often reported as rotational. So a drive that is reported as rotational is read at random:
//!
//! ```text
//! flash     12 of 16 reads of 4 KiB took at most 2 ms each: a disk moves its head, and waits for half of a revolution; and if there
//!           is too little data to tell, since more virtual disks on flash than disks are served before they have any
//! a disk    otherwise, and if it takes longer than 0.3 s
//! ```
//!
//! Two kinds of reads do not count: those of zeroes, since a hole, or a block that a hypervisor does not store, is read at once from
//! any drive, and those near an earlier one, which a disk may have read ahead.

use std::fs::{self, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use iofair_core::attainable::FLASH_READ_MAX;
use iofair_core::time::Nanos;
use iofair_drive::random::Random;

use crate::clock::{self, Clock};

/// Reads that count, and how many of them may be slow on flash: others may use the drive.
const READS: usize = 16;
const SLOW_MAX: usize = READS / 4;
const BLOCK: u64 = 4096;
/// A disk reads less than this ahead.
const NEAR: u64 = 16 << 20;
/// Places that are tried: on a drive of which a twentieth has data, three times as many as needed.
const PLACES: u32 = 1024;
/// How long all reads may take: a disk needs 0.2 s.
const TIME: Nanos = Nanos::from_millis(300);

/// A file of sysfs about a device.
fn attribute(device: u64, path: &str) -> Option<String> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let base = format!("/sys/dev/block/{major}:{minor}");
    let read = |path: String| fs::read_to_string(path).ok();
    // A partition has its queue one level up.
    read(format!("{base}/{path}")).or_else(|| read(format!("{base}/../{path}")))
}

/// What the kernel knows of a block device, or of the one under a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queue {
    /// Whether the drive is rotational.
    pub(crate) rotational: bool,
    /// Commands that it takes at once; `None` where the kernel does not tell (a network file system).
    pub(crate) depth: Option<u32>,
    /// What its reads have shown, if it is reported as rotational.
    pub(crate) found: Option<&'static str>,
}

impl Queue {
    /// That of a device number, from sysfs and from reads of `place`, which is on it: a file, a directory with files, or the device.
    /// `told`: whether it is rotational, if this was stated.
    pub(crate) fn probe(device: u64, place: &Path, told: Option<bool>) -> Self {
        let mut queue = Self::from_attributes(|path: &str| attribute(device, path));
        if let Some(rotational) = told {
            queue.rotational = rotational;
        } else if queue.rotational {
            let (readable, seed) = (readable(device, place), clock::unix_millis());
            let is_disk = move || readable.iter().find_map(|path| is_disk(path, seed));
            let (rotational, found) = match within(TIME, is_disk) {
                None | Some(Some(true)) => (true, "reported as rotational, and served as a disk"),
                Some(Some(false)) => {
                    (false, "reported as rotational, but its reads are as quick as those of flash")
                }
                Some(None) => (
                    false,
                    "reported as rotational; served as flash until the next start, since it has too little data to \
                    tell; rotational = true in [drive] says that it is a disk",
                ),
            };
            (queue.rotational, queue.found) = (rotational, Some(found));
        }
        queue
    }
    /// The kernel's scheduler of a device, unless it is `none`.
    pub(crate) fn scheduler(device: u64) -> Option<String> {
        let choice = attribute(device, "queue/scheduler")?;
        let chosen = choice.split(['[', ']']).nth(1)?;
        (chosen != "none").then(|| chosen.to_owned())
    }
    /// From what `read` finds under a name of the device's directory.
    fn from_attributes(read: impl Fn(&str) -> Option<String>) -> Self {
        let number = |path| read(path)?.trim().parse::<u32>().ok();
        let rotational = number("queue/rotational") == Some(1);
        // SCSI and SATA drives tell their own depth. Elsewhere `nr_requests` is it, except that a scheduler of the
        // kernel has twice the depth.
        let scheduled = read("queue/scheduler").is_some_and(|text| !text.contains("[none]"));
        let requests = || Some(number("queue/nr_requests")? / if scheduled { 2 } else { 1 });
        let depth = number("device/queue_depth").or_else(requests);
        Self { rotational, depth: depth.filter(|depth| *depth > 0), found: None }
    }
}

/// What `work` returns within this time: a read of a failing drive takes longer.
fn within<T: Send + 'static>(time: Nanos, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (found, answer) = mpsc::channel();
    let work = move || _ = found.send(work());
    thread::Builder::new().name("probe".into()).spawn(work).ok()?;
    answer.recv_timeout(Duration::from_nanos(time.0)).ok()
}

/// What may be read of a drive: the file or device at `place`, or the largest file in that directory; and the device.
fn readable(device: u64, place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| Some((entry.metadata().ok()?, entry.path())));
    let largest = files.filter(|(data, _)| data.is_file()).max_by_key(|(data, _)| data.blocks());
    let first = largest.map_or_else(|| place.to_path_buf(), |(_, path)| path);
    let told = attribute(device, "uevent").unwrap_or_default();
    let name = told.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    [first].into_iter().chain(name.map(|name| Path::new("/dev").join(name))).collect()
}

/// Whether reads of a file or device show a disk.
fn is_disk(path: &Path, seed: u64) -> Option<bool> {
    #[repr(align(4096))]
    struct Block([u8; BLOCK as usize]);
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).ok()?;
    let bytes = file.seek(SeekFrom::End(0)).ok()?;
    let (clock, mut block) = (Clock::start(), Block([0; BLOCK as usize]));
    seeks(bytes, seed, |offset| {
        let before = clock.now();
        file.read_exact_at(&mut block.0, offset)?;
        Ok((clock.now().since(before), block.0.iter().any(|byte| *byte > 0)))
    })
}

/// The same if `read` reads a block, and returns how long that took and whether the block has data. `seed`: another one at each start,
/// since a disk has cached what the last one read.
fn seeks(
    bytes: u64,
    seed: u64,
    mut read: impl FnMut(u64) -> io::Result<(Nanos, bool)>,
) -> Option<bool> {
    let mut random = Random::new(seed, 1);
    let (mut counted, mut slow, mut time) = (Vec::<u64>::new(), 0, Nanos::ZERO);
    for _ in 0..PLACES {
        let offset = random.below((bytes / BLOCK).max(1)) * BLOCK;
        if counted.iter().any(|other| other.abs_diff(offset) < NEAR) {
            continue;
        }
        let (took, has_data) = read(offset).ok()?;
        time += took;
        if has_data {
            counted.push(offset);
            slow += usize::from(took > FLASH_READ_MAX);
        }
        if time > TIME {
            // A single slow read may have waited for anything.
            return (slow > 1).then_some(true);
        }
        if slow > SLOW_MAX {
            return Some(true);
        }
        if counted.len() - slow == READS - SLOW_MAX {
            return Some(false);
        }
    }
    None
}

#[cfg(test)]
mod tests;
