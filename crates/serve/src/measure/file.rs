//! A file or block device, through io_uring and direct I/O.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use io_uring::{IoUring, opcode, types};
use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use iofair_drive::measure::{Completion, Device, Request};
use iofair_drive::random::Random;

use crate::back::uring::Queue;
use crate::back::uring::claim::{identity_of, lock, lock_around, lock_below, refuse_looped};
use crate::clock::Clock;
use crate::trial::Mode;

/// Longest request; all reads go to one buffer of this length, and all writes come from one.
const BYTES_MAX: usize = 1 << 20;
/// Borders of memory and requests of direct I/O.
const PAGE: usize = 4096;
/// Requests in flight at most.
const DEPTH_MAX: u32 = 1024;
/// Where the kernel does not tell the depth of a drive.
const DEPTH_UNKNOWN: u32 = 64;

/// What may be done to a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It is only read.
    Read,
    /// It is also overwritten.
    Write,
}

/// Memory that the kernel reads and writes, and nobody else while requests are in flight.
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// A file or block device that is measured.
pub struct FileDevice {
    file: File,
    /// What nobody else uses while it is overwritten.
    _locks: [Option<File>; 2],
    ring: IoUring,
    clock: Clock,
    facts: DriveFacts,
    is_device: bool,
    /// `MAJOR:MINOR` of the drive.
    number: String,
    scheduler: Option<String>,
    read: Vec<Page>,
    written: Vec<Page>,
    in_flight: u32,
    queued: u32,
    lengths: Vec<u64>,
}

impl FileDevice {
    /// Opens it for direct I/O. A block device that is to be written is opened exclusively, which fails if it is mounted.
    pub fn open(path: &Path, access: Access) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device && !metadata.is_file() {
            return Err(io::Error::other("neither a file nor a block device"));
        }
        let writes = access == Access::Write;
        let exclusive = if writes && is_device { libc::O_EXCL } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(writes).custom_flags(libc::O_DIRECT | exclusive);
        let mut file = options.open(path)?;
        let mut locks = [None, None];
        if writes {
            lock(&file, &Mode::Serve)?;
            refuse_looped(identity_of(&metadata), &Mode::Serve)?;
            let below = if is_device { lock_below(&file, &Mode::Serve)? } else { None };
            locks = [lock_around(path, &Mode::Serve)?, below];
        }
        let capacity = file.seek(SeekFrom::End(0))?;
        let number = if is_device { metadata.rdev() } else { metadata.dev() };
        let queue = Queue::probe(number, path, None);
        let facts = DriveFacts {
            rotational: queue.rotational,
            depth: queue.depth.unwrap_or(DEPTH_UNKNOWN).min(DEPTH_MAX),
            max_request: Sectors(BYTES_MAX as u64 / 512),
            capacity: Sectors(capacity / 512),
        };
        let mut random = Random::new(1, 1);
        let page = |random: &mut Random| {
            let mut page = Page([0; PAGE]);
            let words = page.0.chunks_mut(8);
            words.for_each(|word| word.copy_from_slice(&random.bits().to_ne_bytes()));
            page
        };
        let pages = BYTES_MAX / PAGE;
        Ok(Self {
            file,
            _locks: locks,
            ring: IoUring::new(DEPTH_MAX)?,
            clock: Clock::start(),
            facts,
            is_device,
            scheduler: Queue::scheduler(number),
            number: format!("{}:{}", libc::major(number), libc::minor(number)),
            read: (0..pages).map(|_| Page([0; PAGE])).collect(),
            // Drives and file systems may treat zeroes and repetitions differently.
            written: (0..pages).map(|_| page(&mut random)).collect(),
            in_flight: 0,
            queued: 0,
            lengths: Vec::new(),
        })
    }
    /// `MAJOR:MINOR` of the device, or of the one under the file.
    pub fn number(&self) -> &str {
        &self.number
    }
    /// The kernel's scheduler of that device, unless it is `none`.
    pub fn scheduler(&self) -> Option<&str> {
        self.scheduler.as_deref()
    }
    /// Bytes of a file that are not allocated: reads of them never reach a drive.
    pub fn holes(&self) -> io::Result<u64> {
        let metadata = self.file.metadata()?;
        let stored = metadata.blocks() * 512;
        Ok(if self.is_device { 0 } else { metadata.len().saturating_sub(stored) })
    }
    fn take(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let at = self.clock.now();
        let mut failed = None;
        for entry in self.ring.completion() {
            self.in_flight -= 1;
            let (tag, result) = (entry.user_data() as u32, entry.result());
            let expected = self.lengths[tag as usize];
            if result < 0 {
                failed = Some(io::Error::from_raw_os_error(-result));
            } else if result as u64 != expected {
                let message = format!("{result} of {expected} bytes were transferred");
                failed = Some(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
            done.push(Completion { tag, at });
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Device for FileDevice {
    fn facts(&self) -> DriveFacts {
        self.facts
    }
    fn now(&mut self) -> Instant {
        self.clock.now()
    }
    fn submit(&mut self, request: Request) -> io::Result<()> {
        let Request { tag, operation, durable, offset, bytes } = request;
        let file = types::Fd(self.file.as_raw_fd());
        let length = u32::try_from(bytes).ok().filter(|length| *length as usize <= BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::other("a request longer than 1 MiB"))?;
        let entry = match operation {
            Operation::Read => {
                let into = self.read.as_mut_ptr().cast::<u8>();
                opcode::Read::new(file, into, length).offset(offset).build()
            }
            Operation::Write => {
                let from = self.written.as_ptr().cast::<u8>();
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(file, from, length).offset(offset).rw_flags(flags).build()
            }
            Operation::Flush => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        if self.in_flight >= DEPTH_MAX {
            return Err(io::Error::other("more than 1024 requests in flight"));
        }
        let place = tag as usize;
        self.lengths.resize(self.lengths.len().max(place + 1), 0);
        self.lengths[place] = bytes;
        // SAFETY: the buffers live as long as the ring, which `drop` empties first; they have `BYTES_MAX` bytes, and no
        // reference to their contents is made.
        unsafe { self.ring.submission().push(&entry.user_data(u64::from(tag))) }
            .map_err(|_| io::Error::other("the ring is full"))?;
        self.in_flight += 1;
        self.queued += 1;
        Ok(())
    }
    fn wait(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        self.queued = 0;
        let rest = until.since(self.clock.now());
        let time = types::Timespec::new().sec(rest.0 / 1_000_000_000);
        let time = time.nsec((rest.0 % 1_000_000_000) as u32);
        let arguments = types::SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => {
                return Err(error);
            }
            _ => {}
        }
        self.take(done)
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // The kernel must not use the buffers any more when they are freed.
        while self.in_flight > 0 && self.ring.submit_and_wait(1).is_ok() {
            let _ = self.take(&mut Vec::new());
        }
        if self.in_flight > 0 {
            std::mem::forget((std::mem::take(&mut self.read), std::mem::take(&mut self.written)));
        }
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::time::Nanos;
    use iofair_drive::measure::{Amount, Load, Order, Stream, run};

    use super::*;

    /// Goal: reads, writes and flushes of a file are carried out and counted; nothing writes without permission; a hole
    /// is noticed. Method: a file of 1 MiB in the target directory.
    #[test]
    fn a_file_is_measured() {
        let path = std::env::temp_dir().join(format!("iofair-measure-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let Ok(mut device) = FileDevice::open(&path, Access::Write) else {
            // A file system without direct I/O.
            std::fs::remove_file(path).unwrap();
            return;
        };
        assert_eq!(device.holes().unwrap(), 1 << 20);
        let stream = |operation, flush_every| {
            let area = (0, 1 << 20);
            Stream { area, flush_every, ..Stream::new(operation, 4096, 4, Order::Sequential) }
        };
        let time = Nanos::from_secs(10);
        let load = |stream| Load {
            streams: vec![stream],
            warm_up: Amount { requests: 0, time },
            measured: Amount { requests: 300, time },
            window: 0,
        };
        let found = run(&mut device, &load(stream(Operation::Write, 10)), 1, &|| false).unwrap();
        assert!(found.streams[0].flush.count() > 20 && found.time > Nanos::ZERO);
        assert_eq!(device.holes().unwrap(), 0);
        let mut device = FileDevice::open(&path, Access::Read).unwrap();
        run(&mut device, &load(stream(Operation::Read, 0)), 1, &|| false).unwrap();
        assert!(run(&mut device, &load(stream(Operation::Write, 0)), 1, &|| false).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
