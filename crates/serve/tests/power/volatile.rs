//! A simulated kernel with a volatile disk in front of the back end over io_uring, for tests with power cuts.
//!
//! The back end, engine, reactor and front ends above it are the real ones. Ring entries of the back end are executed
//! on a [`Disk`] instead of the file that they name, early or late and in any order. Only timeouts and no-ops go to
//! the real ring, to deliver completions. After the power cut every entry fails, so the server ends. The files then
//! contain what survived, and the next server is started on them.

#[path = "volatile/disk.rs"]
mod disk;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::slice;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};
use iofair_config::contracts::faults::Faults;
use iofair_core::id::RequestId;
use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::SECTOR_BYTES;
use iofair_drive::random::Random;
use iofair_serve::back::volume::PlannedVolume;
use iofair_serve::back::{Back, Completed, Job, Loss, Storage};
use iofair_serve::request::data::Data;
use iofair_serve::request::entry::Entry;
use iofair_serve::request::extent::Extent;
use iofair_serve::request::op::{Ops, Question};
use iofair_serve::request::shared::Span;

use disk::Write;
pub(crate) use disk::{CommandId, Defect, Disk, Tally};

/// Longest delay of a completion: long enough for the next requests to come in meanwhile.
const DELAYS_US: [u32; 4] = [20, 50, 120, 300];
/// The kernel's numbers for READV, WRITEV, FSYNC and FALLOCATE.
const READV: u8 = 1;
const WRITEV: u8 = 2;
const FSYNC: u8 = 3;
const FALLOCATE: u8 = 17;
/// Most a trim or zeroes put into the cache at once.
const ZEROES: usize = 64 << 10;

/// What an entry asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Read,
    Write {
        durable: bool,
    },
    Sync,
    /// Zeroes in the whole range, or nothing but room for it.
    Allocate {
        zeroes: bool,
        length: u64,
    },
}

/// An entry that is carried out or will be.
#[derive(Debug)]
struct Started {
    slot: u32,
    call: Call,
    medium: usize,
    offset: u64,
    /// Where its bytes are: the back end keeps them until its completion.
    pieces: Vec<Span>,
    command: CommandId,
    /// Completions that a flush covers.
    covered: u64,
    /// What the kernel says, once it is carried out.
    result: Option<i32>,
}

/// A back end over io_uring with its files on a volatile disk.
pub(crate) struct Volatile {
    inner: Box<dyn Back>,
    disk: Disk,
    random: Random,
    /// Numbers of the disk's files, by device and inode.
    media: Vec<((u64, u64), usize)>,
    running: Vec<Started>,
    entries: Vec<Entry>,
    delays: Box<[types::Timespec]>,
}

impl Volatile {
    /// Puts a disk below a back end that does everything through the ring.
    pub(crate) fn new(inner: Box<dyn Back>, disk: Disk, seed: u64) -> Self {
        let delay = |microseconds: &u32| types::Timespec::new().nsec(microseconds * 1000);
        Self {
            inner,
            disk,
            random: Random::new(seed, 0x6b65_726e),
            media: Vec::new(),
            running: Vec::new(),
            entries: Vec::new(),
            delays: DELAYS_US.iter().map(delay).collect(),
        }
    }
    /// The number of the file behind a descriptor.
    fn medium(&mut self, descriptor: i32) -> usize {
        let path = format!("/proc/self/fd/{descriptor}");
        // Opened anew: the descriptor may be for direct I/O, which wants aligned memory.
        let file = File::options().read(true).write(true).open(path);
        let file = file.expect("the back end's file is open");
        let metadata = file.metadata().expect("a file has an inode");
        let identity = (metadata.dev(), metadata.ino());
        if let Some((_, medium)) = self.media.iter().find(|(known, _)| *known == identity) {
            return *medium;
        }
        let medium = self.disk.add(file);
        self.media.push((identity, medium));
        medium
    }
    /// Takes an entry from the back end, carries it out now or later, and puts on the ring what brings its completion.
    fn accept(&mut self, entry: &Entry) {
        let raw = Raw::new(entry.as_raw());
        let medium = self.medium(raw.descriptor);
        let (command, covered) = self.disk.begin();
        let (slot, call, offset) = (entry.get_user_data() as u32, raw.call(), raw.offset);
        let pieces = raw.pieces(call);
        let mut started =
            Started { slot, call, medium, offset, pieces, command, covered, result: None };
        if self.random.chance(50) {
            started.carry_out(&self.disk, &mut self.random);
        }
        self.running.push(started);
        let wake = if self.random.chance(50) {
            let delay = self.random.below(self.delays.len() as u64) as usize;
            let timeout = opcode::Timeout::new(&raw const self.delays[delay]).build();
            // SAFETY: the delays stay where they are and as they are; the kernel copies them when it takes the entry.
            unsafe { Entry::new(timeout) }
        } else {
            Entry::nop()
        };
        self.entries.push(wake.user_data(u64::from(slot)));
    }
}

impl Started {
    fn carry_out(&mut self, disk: &Disk, random: &mut Random) {
        let result = self.try_to(disk, random);
        self.result = Some(result.unwrap_or(-libc::EIO));
    }
    /// Does what is asked, or for data now and then a part of it, as kernels may.
    fn try_to(&mut self, disk: &Disk, random: &mut Random) -> io::Result<i32> {
        let (medium, command) = (self.medium, self.command);
        match self.call {
            Call::Sync => disk.flush(medium, self.covered).map(|()| 0),
            Call::Allocate { zeroes: false, .. } => Ok(0),
            Call::Allocate { length, .. } => {
                let (mut at, end) = (self.offset, self.offset + length);
                while at < end {
                    let part = (end - at).min(ZEROES as u64) as usize;
                    let bytes = &[0; ZEROES][..part];
                    let write = Write { command, offset: at, bytes, durable: false };
                    disk.write(medium, &write)?;
                    at += part as u64;
                }
                Ok(0)
            }
            Call::Read => {
                let mut bytes = vec![0; self.length(random)];
                disk.read(medium, self.offset, &mut bytes)?;
                self.copy(&mut bytes, true);
                Ok(bytes.len() as i32)
            }
            Call::Write { durable } => {
                let mut bytes = vec![0; self.length(random)];
                self.copy(&mut bytes, false);
                let write = Write { command, offset: self.offset, bytes: &bytes, durable };
                disk.write(medium, &write)?;
                Ok(bytes.len() as i32)
            }
        }
    }
    /// All of its bytes, or one time in fifty a part of them that ends on a page.
    fn length(&self, random: &mut Random) -> usize {
        let all: usize = self.pieces.iter().map(Span::len).sum();
        let part = (self.offset + all as u64 / 2) / 4096 * 4096;
        match random.chance(2) && part > self.offset {
            true => (part - self.offset) as usize,
            false => all,
        }
    }
    /// Copies between bytes and the entry's memory, from its first byte on.
    fn copy(&self, bytes: &mut [u8], into_memory: bool) {
        let mut at = 0;
        for piece in &self.pieces {
            let length = piece.len().min(bytes.len() - at);
            let (piece, part) = (piece.part(0, length), &mut bytes[at..at + length]);
            // SAFETY: as the kernel demands, the back end keeps the memory of an entry until its completion, and no
            // reference to it is used meanwhile; it may be a guest's, who writes there when it likes.
            unsafe {
                match into_memory {
                    true => piece.write(part),
                    false => piece.read(part),
                }
            }
            at += length;
        }
    }
}

/// An entry of the ring as the kernel sees it.
struct Raw {
    operation: u8,
    descriptor: i32,
    offset: u64,
    address: u64,
    length: u32,
    flags: u32,
}

impl Raw {
    fn new(entry: &squeue::Entry) -> Self {
        // struct io_uring_sqe: opcode 0, fd 4, off 8, addr 16, len 24, flags of the operation 28.
        const { assert!(size_of::<squeue::Entry>() == 64) };
        // SAFETY: an entry is the kernel's plain structure of 64 bytes (`repr(C)`, just checked).
        let bytes = unsafe { std::ptr::from_ref(entry).cast::<[u8; 64]>().read() };
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Self {
            operation: bytes[0],
            descriptor: word(4) as i32,
            offset: long(8),
            address: long(16),
            length: word(24),
            flags: word(28),
        }
    }
    fn call(&self) -> Call {
        match self.operation {
            READV => Call::Read,
            WRITEV => Call::Write { durable: self.flags & libc::RWF_DSYNC as u32 != 0 },
            FSYNC => Call::Sync,
            FALLOCATE => Call::Allocate {
                zeroes: self.length as i32 & !libc::FALLOC_FL_KEEP_SIZE != 0,
                length: self.address,
            },
            other => panic!("the back end asks the kernel for operation {other}, unknown here"),
        }
    }
    fn pieces(&self, call: Call) -> Vec<Span> {
        if !matches!(call, Call::Read | Call::Write { .. }) {
            return Vec::new();
        }
        let vectors = self.address as *const libc::iovec;
        // SAFETY: the back end gives an array of this many vectors, which stays until its completion.
        let vectors = unsafe { slice::from_raw_parts(vectors, self.length as usize) };
        vectors.iter().map(|vector| Span::new(vector.iov_base.cast(), vector.iov_len)).collect()
    }
}

impl Back for Volatile {
    fn facts(&self) -> DriveFacts {
        self.inner.facts()
    }
    fn worst_case_rate(&self) -> Option<u64> {
        self.inner.worst_case_rate()
    }
    fn start(&mut self, job: &Job<'_>, ops: &mut Ops, completed: &mut Vec<Completed>) {
        if let Some(Question { op, length, .. }) = ops.question(job.parts) {
            // The file knows nothing of the cache.
            ops[op].data = Data::Extents(vec![Extent { length, hole: false }]);
            return completed.push(Completed { id: job.dispatch.id, status: 0 });
        }
        let flush = job.dispatch.operation == Operation::Flush;
        if flush && self.disk.defect() == Defect::FlushSkipped {
            return completed.push(Completed { id: RequestId(job.dispatch.id.0), status: 0 });
        }
        self.inner.start(job, ops, completed);
    }
    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }
    fn advance(&mut self, now: Instant, ops: &mut Ops, completed: &mut Vec<Completed>) {
        self.inner.advance(now, ops, completed);
    }
    fn take_entries(&mut self) -> Option<&mut Vec<Entry>> {
        let mut taken = std::mem::take(self.inner.take_entries()?);
        // The kernel may begin them in any order.
        while !taken.is_empty() {
            let next = self.random.below(taken.len() as u64) as usize;
            let entry = taken.swap_remove(next);
            self.accept(&entry);
        }
        Some(&mut self.entries)
    }
    fn on_ring(&mut self, user_data: u32, _: i32, ops: &mut Ops, completed: &mut Vec<Completed>) {
        let place = self.running.iter().position(|entry| entry.slot == user_data);
        let mut entry = self.running.swap_remove(place.expect("one completion for each entry"));
        if entry.result.is_none() {
            entry.carry_out(&self.disk, &mut self.random);
        }
        let alive = self.disk.complete(entry.command);
        let result = entry.result.filter(|_| alive).unwrap_or(-libc::EIO);
        self.inner.on_ring(user_data, result, ops, completed);
    }
    fn take_closing(&mut self) -> Option<&mut Vec<Arc<Storage>>> {
        self.inner.take_closing()
    }
    fn take_losses(&mut self) -> Option<&mut Vec<Loss>> {
        self.inner.take_losses()
    }
    fn separate_flushes(&self) -> bool {
        self.inner.separate_flushes()
    }
    fn place(&mut self, volume: &PlannedVolume) {
        self.inner.place(volume);
    }
    fn set_faults(&mut self, faults: &Faults) {
        self.inner.set_faults(faults);
    }
    fn forget(&mut self, volume: &PlannedVolume) {
        self.inner.forget(volume);
    }
    fn busy(&self) -> Option<Nanos> {
        self.inner.busy()
    }
    fn close(&mut self) -> io::Result<()> {
        self.inner.close()
    }
    fn describe(&self) -> String {
        format!("{}, until the power goes", self.inner.describe())
    }
}

// A sector of the disk is one of the engine's.
const _: () = assert!(SECTOR_BYTES == 512);
