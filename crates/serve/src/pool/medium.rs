//! The medium of a pool's metadata: a file or a block device, or, in tests, a drive that loses power.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::back::uring::set_length;

/// The kernel zeroes pieces of this many bytes, so that progress can be reported.
pub(crate) const ZERO_PIECE: u64 = 64 << 20;
/// Where it cannot zero a range, zeroes are written in pieces of this many bytes.
const ZERO_WRITE: usize = 1 << 20;

/// What a pool is on. Writes may be lost, torn and reordered until [`Medium::sync`] has returned.
pub(crate) trait Medium {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads all of `into`.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes`.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all writes before it durable, and the length.
    fn sync(&mut self) -> io::Result<()>;
    /// Makes a range read as zeroes, as a write does.
    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()>;
    /// Whether it may become longer.
    fn grows(&self) -> bool;
    /// Makes it at least this long; what is added reads as zeroes.
    fn lengthen(&mut self, bytes: u64) -> io::Result<()>;
}

/// A regular file or a block device.
#[derive(Debug)]
pub(crate) struct FileMedium {
    file: File,
    device: bool,
    /// If nothing is written: the file that is lengthened in its place.
    growth: Option<File>,
}

impl FileMedium {
    /// The caller holds the lock on the file: see `claim`.
    pub(crate) fn new(file: File, device: bool) -> Self {
        Self { file, device, growth: None }
    }
    /// One to which nothing is written, for a check: changes are made in memory only, and `growth` gets longer.
    pub(crate) fn unchanged(self, growth: File) -> Self {
        Self { growth: Some(growth), ..self }
    }
    /// Zeroes a range without sending data, if its file system or driver can.
    fn allocate_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        // A file gives the room back; a device keeps its blocks, which reads as zeroes on every driver.
        let mode = match self.device {
            true => libc::FALLOC_FL_ZERO_RANGE,
            false => libc::FALLOC_FL_PUNCH_HOLE,
        } | libc::FALLOC_FL_KEEP_SIZE;
        let (offset, length) = (offset as libc::off_t, length as libc::off_t);
        // SAFETY: a plain system call on a descriptor that is open.
        match unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, length) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Medium for FileMedium {
    fn length(&self) -> io::Result<u64> {
        match self.device {
            true => (&self.file).seek(SeekFrom::End(0)),
            false => Ok(self.file.metadata()?.len()),
        }
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.growth {
            None => self.file.write_all_at(bytes, offset),
            Some(_) => Ok(()),
        }
    }
    fn sync(&mut self) -> io::Result<()> {
        match self.growth {
            None => self.file.sync_all(),
            Some(_) => Ok(()),
        }
    }
    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        if self.growth.is_some() {
            return Ok(());
        }
        let zeroes = vec![0; (length as usize).min(ZERO_WRITE)];
        let made = match self.allocate_zeroes(offset, length) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => false,
            made => made.map(|()| true)?,
        };
        let mut at = if made { offset + length } else { offset };
        while at < offset + length {
            let piece = zeroes.len().min((offset + length - at) as usize);
            self.file.write_all_at(&zeroes[..piece], at)?;
            at += piece as u64;
        }
        Ok(())
    }
    fn grows(&self) -> bool {
        !self.device
    }
    fn lengthen(&mut self, bytes: u64) -> io::Result<()> {
        let length = self.length()?;
        match self.device {
            _ if length >= bytes => Ok(()),
            false => set_length(self.growth.as_ref().unwrap_or(&self.file), bytes),
            true => {
                let message = format!("{bytes} bytes asked of a device of {length}");
                Err(io::Error::new(io::ErrorKind::StorageFull, message))
            }
        }
    }
}
