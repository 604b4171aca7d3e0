//! A file or block device, opened once for direct and once for buffered I/O.
//!
//! The kernel reports an error of write-back once to each of the two: to `direct` at the next flush, whose error all
//! clients are told ([`Loss`](crate::back::Loss)), and to both at the next durable write. A durable write that fails is
//! therefore followed by a sync of the other descriptor, which tells whether older writes were lost, too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::claim::{
    claim, identity_of, is_below_dev, lock, lock_around, lock_below, refuse_looped, share,
};
use super::queue::Queue;
use crate::request::extent::Extent;
use crate::trial::{Mode, Trial};

/// Borders of direct I/O where the kernel does not tell them: every drive's blocks divide a page.
const BLOCK_UNKNOWN: u64 = 4096;

/// An opened file or block device. The reactor reads and writes it; its opener may change its length meanwhile, and
/// then informs the engine.
#[derive(Debug)]
pub struct Storage {
    path: PathBuf,
    buffered: File,
    /// For direct I/O, if its file system allows that.
    direct: File,
    is_direct: bool,
    /// A block device is this server's alone.
    claim: Option<File>,
    /// So is the file of a loop device; the directory around a file is nobody's pool.
    locks: Vec<Arc<File>>,
    block: u64,
    sector: u64,
    bytes: u64,
    /// Bytes that volumes need of it; unknown at first.
    needed: AtomicU64,
    /// The least bytes that it was found cut to. What was behind them is lost: requests for it fail, since zeroes in its place
    /// would be taken for data, and would hide the loss from the next start.
    cut: AtomicU64,
    device: bool,
    identity: (u64, u64),
}

impl Storage {
    /// Opens a file or device and makes it at least this long; a file that is not there is made, but never below /dev.
    pub(crate) fn open(path: &Path, bytes: u64, mode: &Mode) -> io::Result<Self> {
        let around = lock_around(path, mode)?;
        Ok(Self::within(path, bytes, mode)?.keeping(around.map(Arc::new)))
    }
    /// The same while it keeps this lock, too.
    pub(crate) fn keeping(mut self, lock: Option<Arc<File>>) -> Self {
        self.locks.extend(lock);
        self
    }
    /// [`Self::open`] in a directory that is locked already.
    pub(crate) fn within(path: &Path, bytes: u64, mode: &Mode) -> io::Result<Self> {
        let make = !is_below_dev(path);
        if let Some(trial) = mode.trial() {
            if make && !fs::exists(path)? {
                let file = trial.stand_in(path)?;
                return Self::open_or_make(&Trial::name(&file), bytes, false, &Mode::Serve);
            }
            let this = Self::open_or_make(path, 0, false, mode)?;
            match this.device {
                true => this.lengthen(bytes)?,
                false if bytes > this.bytes => set_length(&trial.growth(path)?, bytes)?,
                false => {}
            }
            return Ok(this);
        }
        Self::open_or_make(path, bytes, make, mode)
    }
    /// Opens what is there.
    pub(crate) fn existing(path: &Path, mode: &Mode) -> io::Result<Self> {
        let around = lock_around(path, mode)?;
        Ok(Self::open_or_make(path, 0, false, mode)?.keeping(around.map(Arc::new)))
    }
    fn open_or_make(path: &Path, bytes: u64, make: bool, mode: &Mode) -> io::Result<Self> {
        let kind = fs::metadata(path).map(|file| file.file_type());
        // Opening a pipe would block or succeed, and nothing can be stored in one.
        if kind.as_ref().is_ok_and(|is| !is.is_file() && !is.is_block_device() && !is.is_dir()) {
            return Err(io::Error::other("neither a regular file nor a block device"));
        }
        let device = kind.is_ok_and(|kind| kind.is_block_device());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(make && !device).truncate(false).mode(0o600);
        let buffered = mode.open(path, &options)?;
        let direct = mode.open(path, options.create(false).custom_flags(libc::O_DIRECT));
        let is_direct = direct.is_ok();
        let direct = direct.or_else(|_| mode.open(path, options.custom_flags(0)))?;
        let block = if is_direct { direct_border(&direct) } else { 1 };
        let sector = if device { sector_of(&buffered)? } else { 1 };
        let metadata = buffered.metadata()?;
        let mut this = Self {
            path: path.to_path_buf(),
            bytes: 0,
            needed: AtomicU64::new(u64::MAX),
            cut: AtomicU64::new(u64::MAX),
            buffered,
            direct,
            is_direct,
            claim: None,
            locks: Vec::new(),
            block,
            sector,
            device,
            identity: identity_of(&metadata),
        };
        let locked = this.lock(mode)?;
        refuse_looped(this.identity, mode)?;
        if device && locked {
            this.claim = Some(claim(path, mode)?);
            this.locks.extend(lock_below(&this.buffered, mode)?.map(Arc::new));
        }
        this.lengthen(bytes)?;
        this.bytes = this.length()?;
        Ok(this)
    }
    /// Takes it for this server alone; `false`: the server that a check is about has it.
    fn lock(&self, mode: &Mode) -> io::Result<bool> {
        if !lock(&self.buffered, mode)? {
            return Ok(false);
        }
        // Shared from now on, since both descriptors keep the next server out.
        [&self.buffered, &self.direct].into_iter().try_for_each(|file| match share(file) {
            // Its file system knows no locks.
            Err(error) if error.raw_os_error() != Some(libc::EWOULDBLOCK) => Ok(()),
            shared => shared,
        })?;
        Ok(true)
    }
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    pub(crate) fn file(&self) -> &File {
        &self.buffered
    }
    /// The descriptor for a command that is aligned or not.
    pub(super) fn descriptor(&self, aligned: bool) -> RawFd {
        if aligned { self.direct.as_raw_fd() } else { self.buffered.as_raw_fd() }
    }
    /// The descriptor for trims and zeroes. On a device with a claim, no other can discard cached pages: a range that has
    /// some would be busy (`truncate_bdev_range` in block/bdev.c).
    pub(super) fn allocator(&self) -> RawFd {
        self.claim.as_ref().unwrap_or(&self.buffered).as_raw_fd()
    }
    /// Makes everything durable that was written so far.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.direct.sync_data()
    }
    pub(super) fn is_direct(&self) -> bool {
        self.is_direct
    }
    /// What somebody has done to it, which should have at least this many bytes.
    pub(crate) fn damage(&self, bytes: u64) -> Option<Damage> {
        match damage(&self.buffered, &self.path, bytes) {
            None | Some(Damage::Cut(_)) => self.cut(bytes).ok().flatten().map(Damage::Cut),
            other => other,
        }
    }
    /// To how many bytes somebody has cut it since it was opened, if it should have at least these.
    pub(crate) fn cut(&self, bytes: u64) -> io::Result<Option<u64>> {
        let length = self.length()?;
        Ok(Some(self.note_length(length, bytes)).filter(|cut| *cut < bytes))
    }
    /// It was found this long, and should have at least so many bytes. Returns the least bytes that it was cut to.
    fn note_length(&self, length: u64, bytes: u64) -> u64 {
        if !self.device && length < bytes {
            self.cut.fetch_min(length, Ordering::Relaxed);
        }
        self.cut.load(Ordering::Relaxed)
    }
    /// Volumes need this many bytes of it, which it has.
    pub(crate) fn need(&self, bytes: u64) {
        self.needed.store(bytes, Ordering::Relaxed);
    }
    /// Finds out whether somebody has cut the file. The reactor calls this, and does not wait for
    /// the server of a network file system: what the kernel knows of the length is enough, or a later look finds it.
    pub(super) fn on_end(&self) {
        let known = (!self.device)
            .then(|| statx(&self.buffered, libc::AT_STATX_DONT_SYNC, libc::STATX_SIZE));
        if let Some(found) = known.flatten() {
            self.note_length(found.stx_size, self.needed.load(Ordering::Relaxed));
        }
    }
    /// Whether a command that ends here would use what was cut off. A write there would make the file longer, with zeroes for what
    /// was lost, so the file is looked at first.
    pub(super) fn lacks(&self, end: u64, modifies: bool) -> bool {
        if modifies && self.is_whole() {
            self.on_end();
        }
        end > self.cut.load(Ordering::Relaxed)
    }
    /// Whether nobody is known to have cut it.
    pub(super) fn is_whole(&self) -> bool {
        self.cut.load(Ordering::Relaxed) == u64::MAX
    }
    /// A write ended here that began while the file was whole. If the file ends here too, and should be longer, somebody has cut it
    /// in between, and the write has made it longer again: nobody knows what is left, so all of it counts as lost.
    pub(super) fn on_written(&self, end: u64) {
        self.on_end();
        if self.cut.load(Ordering::Relaxed) == end {
            self.cut.store(0, Ordering::Relaxed);
        }
    }
    /// Borders that a command must keep to go past the page cache.
    pub(super) fn block(&self) -> u64 {
        self.block
    }
    /// Borders that trims and zeroes must keep: a file has none, a device those of its sectors.
    pub(super) fn sector(&self) -> u64 {
        self.sector
    }
    /// Whether it is a block device.
    pub(crate) fn is_device(&self) -> bool {
        self.device
    }
    /// Its length when it was opened.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
    /// The drive that it is on; `told`: whether that is rotational, if this was stated.
    pub(super) fn queue(&self, told: Option<bool>) -> Queue {
        Queue::probe(self.identity.0, &self.path, told)
    }
    /// Which file or device it is.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }
    /// Its length now.
    pub(crate) fn length(&self) -> io::Result<u64> {
        if self.device {
            return (&self.buffered).seek(SeekFrom::End(0));
        }
        Ok(self.buffered.metadata()?.len())
    }
    /// Makes a file at least this long, with zeroes at its end, which are its data from now on; a device must be this long.
    pub(crate) fn lengthen(&self, bytes: u64) -> io::Result<()> {
        self.cut.store(u64::MAX, Ordering::Relaxed);
        let length = self.length()?;
        if bytes <= length {
            return Ok(());
        }
        if self.device {
            let message = format!("{bytes} bytes asked of a device of {length}");
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        set_length(&self.buffered, bytes)?;
        self.buffered.sync_all()
    }
    /// Makes a file at most this long; a device stays as it is.
    pub(crate) fn shorten(&self, bytes: u64) -> io::Result<()> {
        if self.device || self.length()? <= bytes {
            return Ok(());
        }
        self.buffered.set_len(bytes)?;
        self.buffered.sync_all()
    }
    /// What of a range is stored.
    pub(crate) fn extents(&self, offset: u64, length: u64, limit: usize) -> Vec<Extent> {
        extents(&self.buffered, offset, length, limit)
    }
    pub(super) fn describe(&self) -> String {
        let kind = if self.device { "device" } else { "file" };
        let how = match self.is_direct {
            true => "direct I/O",
            false => "through the page cache (its file system refuses direct I/O)",
        };
        format!("{kind} {}, {how}", self.path.display())
    }
}

/// What of a range of a file is stored.
pub(crate) fn extents(file: &File, offset: u64, length: u64, limit: usize) -> Vec<Extent> {
    let end = offset + length;
    let seek = |from: u64, whence: i32| -> io::Result<u64> {
        // SAFETY: a plain system call; nobody uses this descriptor's position.
        match unsafe { libc::lseek(file.as_raw_fd(), from as i64, whence) } {
            at if at >= 0 => Ok(at as u64),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let (mut extents, mut at) = (Vec::new(), offset);
    while at < end && extents.len() < limit {
        let data = match seek(at, libc::SEEK_DATA) {
            Ok(data) => data.min(end),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => end,
            // It cannot tell (a device): everything counts as stored.
            Err(_) => at,
        };
        if data > at {
            extents.push(Extent { length: data - at, hole: true });
            at = data;
            continue;
        }
        let hole = seek(at, libc::SEEK_HOLE).unwrap_or(end).clamp(at + 1, end);
        extents.push(Extent { length: hole - at, hole: false });
        at = hole;
    }
    extents
}

/// Makes a file longer, or says that no file may have this length.
pub(crate) fn set_length(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => {
            let message = format!(
                "its file system, or the limit of the server (RLIMIT_FSIZE), has no files of {bytes} bytes"
            );
            io::Error::new(io::ErrorKind::FileTooLarge, message)
        }
        _ => error,
    })
}

/// What somebody has done to a file while it was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    /// It has no name any more: its data is lost when it is closed.
    Removed,
    /// It is not at its path any more.
    Moved,
    /// It has only this many bytes.
    Cut(u64),
}

/// What somebody has done to a file that was opened at this path and should have at least this many bytes.
pub(crate) fn damage(file: &File, path: &Path, bytes: u64) -> Option<Damage> {
    let ours = file.metadata().ok().filter(fs::Metadata::is_file)?;
    if ours.nlink() == 0 {
        return Some(Damage::Removed);
    }
    let is_there = match fs::metadata(path) {
        Ok(there) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    match is_there {
        false => Some(Damage::Moved),
        true => (ours.len() < bytes).then_some(Damage::Cut(ours.len())),
    }
}

/// The bytes of a block device's logical sectors.
fn sector_of(device: &File) -> io::Result<u64> {
    /// `_IO(0x12, 104)`.
    const BLKSSZGET: libc::Ioctl = 0x1268;
    let mut bytes: libc::c_int = 0;
    // SAFETY: an order for a descriptor of ours, which fills a local integer.
    match unsafe { libc::ioctl(device.as_raw_fd(), BLKSSZGET, &raw mut bytes) } {
        0 => Ok(u64::try_from(bytes).unwrap_or(0).max(1)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the kernel says of a file, if it says all of this.
fn statx(file: &File, flags: libc::c_int, mask: libc::c_uint) -> Option<libc::statx> {
    // SAFETY: an all-zero statx is valid, and the kernel fills it through a pointer to a local.
    let (result, found) = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let (empty, flags) = (c"".as_ptr(), flags | libc::AT_EMPTY_PATH);
        (libc::statx(file.as_raw_fd(), empty, flags, mask, &raw mut found), found)
    };
    (result == 0 && found.stx_mask & mask == mask).then_some(found)
}

/// The borders that direct I/O on this file keeps.
fn direct_border(file: &File) -> u64 {
    match statx(file, 0, libc::STATX_DIOALIGN) {
        Some(found) if found.stx_dio_offset_align > 0 => {
            u64::from(found.stx_dio_offset_align.max(found.stx_dio_mem_align))
        }
        _ => BLOCK_UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a write that began before the file was cut, and has made it longer again, hides nothing. Method: a write behind the cut
    /// and one before it, each told of when it has ended.
    #[test]
    fn writes_that_a_cut_overtook_hide_nothing() {
        let path = std::env::temp_dir().join(format!("iofair-cut-{}", std::process::id()));
        for (offset, left) in [(8192, 0), (0, 4096)] {
            let storage = Storage::open(&path, 65536, &Mode::Serve).unwrap();
            storage.need(65536);
            storage.on_written(65536);
            assert!(storage.is_whole());
            storage.file().set_len(4096).unwrap();
            std::os::unix::fs::FileExt::write_all_at(storage.file(), &[7; 512], offset).unwrap();
            storage.on_written(offset + 512);
            assert_eq!(storage.cut(65536).unwrap(), Some(left));
            fs::remove_file(&path).unwrap();
        }
    }
}
