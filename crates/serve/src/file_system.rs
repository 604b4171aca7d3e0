//! Facts about a directory's file system, for programs that write large files there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Of `ramfs`; libc has no name for it.
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// The file system of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// Bytes that an unprivileged user may still write.
    pub free: u64,
    /// Whether its files are in memory.
    pub in_memory: bool,
}

impl FileSystem {
    /// Queries the kernel.
    pub fn query(directory: &Path) -> io::Result<Self> {
        Self::of(&File::open(directory)?)
    }
    /// That of an open file.
    pub(crate) fn of(opened: &File) -> io::Result<Self> {
        // SAFETY: all zeroes is a value of this struct of integers, and the call fills it.
        let (result, found) = unsafe {
            let mut found: libc::statfs = std::mem::zeroed();
            (libc::fstatfs(opened.as_raw_fd(), &raw mut found), found)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let free = found.f_bavail.saturating_mul(u64::try_from(found.f_bsize).unwrap_or(0));
        Ok(Self { free, in_memory: [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&found.f_type) })
    }
}

/// Bytes of its file system that a file takes, without its holes.
pub(crate) fn allocated(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * 512)
}

/// Bytes that the file system of a sparse file has for more than the file's first `promised` bytes.
pub(crate) fn free_beyond(file: &File, promised: u64) -> io::Result<u64> {
    let free = FileSystem::of(file)?.free;
    Ok((free + allocated(file)?).saturating_sub(promised))
}

/// Whether anything was written to a file; sparse and preallocated ones need not have any data.
pub(crate) fn has_data(path: &Path) -> io::Result<bool> {
    // Opening a pipe would block.
    match std::fs::metadata(path)? {
        there if there.file_type().is_block_device() => return Ok(true),
        there if !there.is_file() => return Ok(false),
        _ => {}
    }
    let file = File::open(path)?;
    // SAFETY: a plain system call on a descriptor that is open.
    match unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) } {
        0.. => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(false),
            error => Err(error),
        },
    }
}

/// Whether a file can be read with direct I/O.
pub fn takes_direct(path: &Path) -> bool {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: memory and disks are distinguished. Method: the one that every Linux has, and that of this source.
    #[test]
    fn memory_and_disks_are_distinguished() {
        assert!(FileSystem::query(Path::new("/dev")).is_ok_and(|found| found.in_memory));
        let here = FileSystem::query(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(!here.in_memory && here.free > 0);
    }
}
