//! Room for small files on a full file system: what is removed to make room must be written down first.
//!
//! The room is in files beside those that it is for, so that a server that starts on a full file system has it, too.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::layout::create_private;

/// Least bytes of such a file; the files that it is for grow.
const BYTES_MIN: u64 = 16 << 10;

/// The room that a new version may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// What the file system has.
    Free,
    /// Also what is reserved: for changes that make room, and to undo changes.
    Reserved,
}

impl Room {
    /// That of a change by amounts (of volumes, groups, bytes): it makes room if it lowers one and raises none.
    pub(crate) fn for_change<const N: usize>(after: [u64; N], before: [u64; N]) -> Self {
        let raises = after.iter().zip(&before).any(|(after, before)| after > before);
        if raises || after == before { Self::Free } else { Self::Reserved }
    }
}

/// Room for new versions of a file. A change writes two, or one and its undoing.
#[derive(Debug)]
pub(crate) struct Reserve([PathBuf; 2]);

impl Reserve {
    /// For this file, in `.NAME.room1` and `.NAME.room2` beside it.
    pub(crate) fn beside(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let dot = if name.starts_with(b".") { "" } else { "." };
        Self([1, 2].map(|number| {
            let mut room = OsString::from(dot);
            room.push(path.file_name().unwrap_or_default());
            room.push(format!(".room{number}"));
            path.with_file_name(room)
        }))
    }
    /// The files with the room.
    pub(crate) fn files(self) -> [PathBuf; 2] {
        self.0
    }
    /// Creates a file that only its owner may read, durably. What is in its place is removed.
    pub(crate) fn create(&self, path: &Path, bytes: &[u8], room: Room) -> io::Result<File> {
        let made = create_private(path).and_then(|file| fill(file, bytes));
        let Err(error) = made else { return made };
        if room == Room::Free || !is_full(&error) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        let renamed = |room: &PathBuf| {
            let file = fill(open(room, false).ok()?, bytes).ok()?;
            fs::rename(room, path).ok().map(|()| file)
        };
        self.0.iter().find_map(renamed).ok_or(error)
    }
    /// Reserves room for files somewhat longer than this, if there is any.
    pub(crate) fn hold(&self, length: u64) {
        for room in &self.0 {
            let Ok(file) = open(room, true) else { continue };
            let held = file.metadata().map_or(0, |file| file.blocks() * 512);
            if held < length + length / 4 || held == 0 {
                allocate(&file, 0, 0, (2 * length).max(BYTES_MIN));
            }
        }
    }
}

/// Opens a file with room, which is this server's alone.
pub(crate) fn open(path: &Path, make: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(make).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    match file.metadata()? {
        found if found.is_file() && found.nlink() == 1 => Ok(file),
        _ => Err(io::Error::other("somebody else's file")),
    }
}

fn fill(file: File, bytes: &[u8]) -> io::Result<File> {
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()?;
    Ok(file)
}

/// Reserves room behind the end of a file to which lines are appended, if there is any.
pub(crate) fn hold_behind(file: &File, bytes: u64) {
    let Ok(metadata) = file.metadata() else { return };
    if metadata.blocks() * 512 < metadata.len() + bytes / 2 {
        allocate(file, libc::FALLOC_FL_KEEP_SIZE, metadata.len(), bytes);
    }
}

/// Nothing changes if there is no room, or if the file system cannot reserve any.
fn allocate(file: &File, mode: i32, from: u64, bytes: u64) {
    // SAFETY: a plain system call on a descriptor that is open.
    unsafe {
        libc::fallocate(file.as_raw_fd(), mode, from as libc::off_t, bytes as libc::off_t);
    }
}

/// Whether it is for want of room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
