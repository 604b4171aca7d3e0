//! A device for this server alone, and who has it otherwise.
//!
//! `O_EXCL` on a block device is the kernel's own claim: a mount, a swap area, RAID, device mapper and another
//! exclusive opener have one each, and one on a partition keeps others off the whole device.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// A killed server's claim goes with its descriptors: moments to wait for that.
const MOMENTS_MAX: u32 = 40;
const MOMENT: Duration = Duration::from_millis(50);

/// Claims a block device, which is free again when the result is dropped. Opened for reading only, so that a check
/// can claim for a moment what it may not write.
pub(crate) fn claim(path: &Path, patient: bool) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
    let busy = |result: &io::Result<File>| {
        result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
    };
    let (_nobody, never) = mpsc::channel::<()>();
    let mut claimed = open();
    for _ in 0..MOMENTS_MAX {
        // Who has mounted it does not leave by waiting.
        if !busy(&claimed) || !patient || why_busy(path).is_some() {
            break;
        }
        // Nothing tells when the kernel has let go.
        let _ = never.recv_timeout(MOMENT);
        claimed = open();
    }
    match busy(&claimed) {
        true => {
            let why = why_busy(path).unwrap_or_else(|| "another program has claimed it".into());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("in use: {why}")))
        }
        false => claimed,
    }
}

/// Is this below /dev, where no file is ever made? Shared memory there is an ordinary file system.
pub(crate) fn is_below_dev(path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let path = parent.as_deref().unwrap_or(path);
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// What has a device, or a partition of it.
fn why_busy(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.rdev();
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    let system = format!("/sys/dev/block/{number}");
    let mut numbers = vec![number];
    for entry in fs::read_dir(&system).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            let number = fs::read_to_string(entry.path().join("dev")).unwrap_or_default();
            numbers.push(number.trim().to_string());
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let [_, _, number, _, place, ..] = words[..]
            && numbers.iter().any(|known| known == number)
        {
            return Some(format!("it, or a partition of it, is mounted at {place}"));
        }
    }
    let holders = fs::read_dir(format!("{system}/holders")).into_iter().flatten().flatten();
    let names: Vec<String> =
        holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if !names.is_empty() {
        return Some(format!("{} is on top of it", names.join(", ")));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let whole = fs::canonicalize(path).ok()?;
    let swap = swaps.lines().any(|line| line.split(' ').next() == whole.to_str());
    swap.then(|| "it is a swap area".to_string())
}
