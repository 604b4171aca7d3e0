//! Whether a file or device is used, or has data, before a pool is made of it. Data may be given up, use never.
//!
//! What a device was used for is written at its ends: partition tables (GPT has a copy in the last sectors), LVM, LUKS
//! (a copy of its header up to 4 MiB), md (0.90 in the last 128 KiB, 1.0 in the last 12), ZFS (two labels in each of
//! the first and last 512 KiB), VMFS (1 and 2 MiB), and nearly all file systems. `wipefs` may have erased the
//! signatures that it knows: copies farther in, and samples of what is stored, tell of the data.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iofair_config::shell;

use super::Survey;
use super::format::Defect;
use super::medium::FileMedium;
use crate::back::uring::claim::lock;
use crate::back::uring::{Storage, extents};
use crate::error::ServeError;
use crate::layout::SIDECAR;
use crate::places::owners::OWNERS;
use crate::trial::Mode;

/// Bytes at each end that are read whole.
const END: u64 = 4 << 20;
/// Copies of superblocks farther in: ext4 with blocks of 1 and 4 KiB, btrfs (two).
const COPIES: [u64; 4] = [8193 << 10, 128 << 20, 64 << 20, 256 << 30];
/// Places between the ends that are looked at, as far apart as possible, and their length.
const SAMPLES: u64 = 256;
const SAMPLE: u64 = 64 << 10;
/// Ranges of a file with holes that are looked at.
const EXTENTS: usize = 4096;

/// Locks an emulated drive of which this is the list of volumes.
pub(super) fn lock_drive(path: &Path) -> Result<Option<File>, ServeError> {
    let name = path.as_os_str().as_bytes().strip_suffix(SIDECAR.as_bytes());
    let drive = name.map(|name| Path::new(OsStr::from_bytes(name)));
    let Some(drive) = drive.filter(|drive| drive.is_file()) else { return Ok(None) };
    let locked = File::open(drive).and_then(|file| lock(&file, &Mode::Serve).map(|_| file));
    let what = format!("{}, the list of volumes of {}", path.display(), drive.display());
    locked.map(Some).map_err(ServeError::system(what))
}

/// Whether a pool is made of it with `--force` only, as far as that is seen without a lock.
pub(super) fn may_have_data(path: &Path) -> bool {
    let found = File::open(path).and_then(|file| first_data(&file));
    fs::exists(path.with_file_name(OWNERS)).unwrap_or(true) || !matches!(found, Ok(None))
}

/// Why there may be data, if there may.
pub(super) fn data(
    path: &Path,
    storage: &Storage,
    medium: &FileMedium,
) -> io::Result<Option<String>> {
    if fs::exists(path.with_file_name(OWNERS)).unwrap_or(false) {
        return Ok(Some(format!(
            "it is in a pool directory ({OWNERS} is its list) and may be a volume; --force makes a pool of it"
        )));
    }
    let survey = Survey::read(medium)?;
    if survey.superblocks.iter().any(|one| *one != Err(Defect::Absent)) {
        let path = shell::path(path);
        return Ok(Some(format!(
            "there is a pool on it already: `iofair pool check {path}` looks at it; --force makes a new one, and all \
             volumes are lost"
        )));
    }
    let found = first_data(storage.file())?;
    Ok(found.map(|at| {
        format!(
            "it contains data (byte {at} is not zero); --force makes a pool, and all of it is lost"
        )
    }))
}

/// A byte that is not zero, if one is found.
fn first_data(file: &File) -> io::Result<Option<u64>> {
    let mut end = file;
    let length = end.seek(SeekFrom::End(0))?;
    let mut places = vec![(0, END), (length.saturating_sub(END), END)];
    places.extend(COPIES.map(|at| (at, SAMPLE)));
    let between = |sample| (length / SAMPLES * sample, SAMPLE);
    places.extend((1..SAMPLES).map(between));
    let mut at = 0;
    for extent in extents(file, 0, length, EXTENTS) {
        if !extent.hole {
            places.push((at, SAMPLE));
        }
        at += extent.length;
    }
    let mut bytes = Vec::new();
    for (at, most) in places.into_iter().filter(|(at, _)| *at < length) {
        bytes.resize(most.min(length - at) as usize, 0);
        file.read_exact_at(&mut bytes, at)?;
        if let Some(found) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(at + found as u64));
        }
    }
    Ok(None)
}
