//! What the kernel and the reads of a drive tell.

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::Instant;
use iofair_drive::measure::{Device as _, Request, Simulated};
use iofair_drive::profile;
use iofair_testkit::directory::Directory;

use super::*;

/// Goal: the depth is the drive's own. Method: what a SATA drive, an NVMe drive with and without a scheduler of
/// the kernel, and a file system without a device tell.
#[test]
fn queues_tell_their_depth() {
    let told = |files: &[(&str, &str)]| {
        let find = |path: &str| files.iter().find(|(name, _)| *name == path);
        Queue::from_attributes(|path| find(path).map(|(_, text)| (*text).to_string()))
    };
    let queue = |rotational, depth| Queue { rotational, depth, found: None };
    let (requests, scheduler) = ("queue/nr_requests", "queue/scheduler");
    let sata = [("queue/rotational", "1\n"), (requests, "64\n"), ("device/queue_depth", "32\n")];
    assert_eq!(told(&sata), queue(true, Some(32)));
    let nvme = [(requests, "1023\n"), (scheduler, "[none] mq-deadline\n")];
    assert_eq!(told(&nvme), queue(false, Some(1023)));
    let scheduled = [(requests, "256\n"), (scheduler, "none [mq-deadline]\n")];
    assert_eq!(told(&scheduled), queue(false, Some(128)));
    assert_eq!(told(&[]), queue(false, None));
}

/// Goal: a drive is flash if its reads are quicker than those of any disk, and what does not tell decides nothing. Method: slow
/// reads first; holes, errors, a file in which reads are near each other, and reads that take too long.
#[test]
fn a_drive_is_flash_if_most_of_its_reads_are_quick() {
    let (quick, slow) = (Nanos::from_micros(300), Nanos::from_millis(3));
    let big = 64 << 30;
    let with_slow = |count: u32| {
        let mut reads = 0;
        seeks(big, 7, |offset| {
            assert!(offset % BLOCK == 0 && offset < big);
            reads += 1;
            Ok((if reads <= count { slow } else { quick }, true))
        })
    };
    assert_eq!([0, 4, 5].map(with_slow), [Some(false), Some(false), Some(true)]);
    assert_eq!(seeks(big, 7, |_| Ok((quick, false))), None, "holes");
    assert_eq!(seeks(big, 7, |_| Err(io::ErrorKind::Other.into())), None, "errors");
    assert_eq!(seeks(128 << 20, 7, |_| Ok((quick, true))), None, "near each other");
    assert_eq!(seeks(0, 7, |_| Ok((quick, true))), None, "empty");
    assert_eq!(seeks(big, 7, |_| Ok((TIME / 3, true))), Some(true), "too long");
}

/// Goal: the reads tell disks from flash. Method: all models of drives, at rest, with several seeds.
#[test]
fn models_of_drives_are_told_apart() {
    for listed in profile::list() {
        for seed in 1..5 {
            let mut drive = Simulated::new(profile::load(&listed.name, seed).unwrap());
            let DriveFacts { rotational, capacity, .. } = drive.facts();
            let found = seeks(capacity.bytes(), seed, |offset| {
                let (sent, operation) = (drive.now(), Operation::Read);
                let (tag, durable, bytes) = (0, false, BLOCK);
                drive.submit(Request { tag, operation, durable, offset, bytes })?;
                let mut done = Vec::new();
                drive.wait(Instant::MAX, &mut done)?;
                Ok((done[0].at.since(sent), true))
            });
            assert_eq!(found, Some(rotational), "{}", listed.name);
        }
    }
}

/// Goal: what cannot be read decides nothing, and nobody waits for a read that does not end. Method: nothing, a directory, and a
/// file that is too small to tell; a read that waits for the end of the test.
#[test]
fn what_cannot_be_read_tells_nothing() {
    let directory = Directory::new();
    let [file, missing] = ["file", "missing"].map(|name| directory.0.join(name));
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    assert_eq!([&file, &missing, &directory.0].map(|path| is_disk(path, 1)), [None; 3]);
    let device = fs::metadata(&file).unwrap().dev();
    assert_eq!(readable(device, &directory.0)[0], file, "the largest file in it");
    for told in [true, false] {
        assert_eq!(Queue::probe(device, &file, Some(told)).rotational, told, "as stated");
    }
    let (end, waits) = mpsc::channel::<bool>();
    assert_eq!(within(Nanos(1), move || waits.recv().ok()), None, "a disk");
    drop(end);
    assert_eq!(
        within(Nanos::from_secs(100), || None::<bool>),
        Some(None),
        "flash until the next start"
    );
}
