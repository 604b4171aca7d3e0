//! Front ends as a load sees them: requests go in with a tag, answers come out.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use virtio_driver::VirtioBlkFeatureFlags;

use crate::disk::{Disk, all_features};
use crate::rig::wire::{FLUSH, FUA, READ, WRITE, Wire};

const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
/// Zeroes keep their room.
const NO_HOLE: u16 = 2;

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CommandType {
    Read,
    Write { data: Vec<u8>, durable: bool },
    Zeroes { durable: bool, hole: bool },
    Trim,
    Flush,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) command_type: CommandType,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// An answer: the request's tag, and a read's data or an error.
pub(crate) type Reply = (u64, Result<Vec<u8>, i32>);

/// What a front end can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Durable writes.
    pub(crate) durable: bool,
    /// Durable zeroes.
    pub(crate) durable_zeroes: bool,
    /// Every write is durable with its answer.
    pub(crate) write_through: bool,
    /// Offsets and lengths are multiples of this.
    pub(crate) block: usize,
}

pub(crate) trait Link {
    fn abilities(&self) -> Abilities;
    fn send(&mut self, tag: u64, request: &Request) -> io::Result<()>;
    /// Sends what is held back.
    fn push(&mut self) -> io::Result<()>;
    fn receive(&mut self) -> io::Result<Reply>;
    fn in_flight(&self) -> usize;
}

/// A connection over NBD.
pub(crate) struct Nbd {
    wire: Wire,
    held: Vec<u8>,
    tags: BTreeMap<u64, u64>,
}

impl Nbd {
    pub(crate) fn connect(socket: &str, volume: &str) -> Self {
        let wire = Wire::dial(socket, volume).unwrap();
        Self { wire, held: Vec::new(), tags: BTreeMap::new() }
    }
}

impl Link for Nbd {
    fn abilities(&self) -> Abilities {
        Abilities { durable: true, durable_zeroes: true, write_through: false, block: 1 }
    }
    fn send(&mut self, tag: u64, request: &Request) -> io::Result<()> {
        let fua = |durable| if durable { FUA } else { 0 };
        let (kind, flags, data) = match &request.command_type {
            CommandType::Read => (READ, 0, &[][..]),
            CommandType::Write { data, durable } => (WRITE, fua(*durable), &data[..]),
            CommandType::Zeroes { durable, hole } => {
                (WRITE_ZEROES, fua(*durable) | if *hole { 0 } else { NO_HOLE }, &[][..])
            }
            CommandType::Trim => (TRIM, 0, &[][..]),
            CommandType::Flush => (FLUSH, 0, &[][..]),
        };
        let head = self.wire.request(kind, flags, request.offset, request.length as u32);
        let cookie = u64::from_be_bytes(head[8..16].try_into().unwrap());
        self.tags.insert(cookie, tag);
        self.held.extend(head);
        self.held.extend(data);
        Ok(())
    }
    fn push(&mut self) -> io::Result<()> {
        let result = self.wire.stream.write_all(&self.held);
        self.held.clear();
        result
    }
    fn receive(&mut self) -> io::Result<Reply> {
        let answer = self.wire.receive()?;
        let tag = self.tags.remove(&answer.cookie).unwrap();
        Ok((tag, if answer.error == 0 { Ok(answer.data) } else { Err(answer.error as i32) }))
    }
    fn in_flight(&self) -> usize {
        self.tags.len()
    }
}

/// Places for payloads of a virtual machine.
const SLOTS: usize = 24;
const SLOT: usize = 128 << 10;

/// One queue of a virtual machine's disk.
pub(crate) struct Vhost {
    disk: Disk,
    free: Vec<usize>,
    /// Tag and length of what is read, by slot.
    flying: BTreeMap<usize, (u64, Option<usize>)>,
    answers: Vec<(u64, i32)>,
    flush: bool,
}

impl Vhost {
    /// Without `flush` the driver never flushes, so that every write has to be durable.
    pub(crate) fn connect(path: &str, flush: bool) -> Self {
        let lacks = if flush { 0 } else { VirtioBlkFeatureFlags::FLUSH.bits() };
        let disk = Disk::with(path, 1, 128, all_features() & !lacks);
        let (free, flying, answers) = ((0..SLOTS).collect(), BTreeMap::new(), Vec::new());
        Self { disk, free, flying, answers, flush }
    }
}

impl Link for Vhost {
    fn abilities(&self) -> Abilities {
        Abilities { durable: false, durable_zeroes: false, write_through: !self.flush, block: 512 }
    }
    fn send(&mut self, tag: u64, request: &Request) -> io::Result<()> {
        let slot = self.free.pop().expect("fewer requests than slots");
        let Request { command_type, offset, length } = request;
        let bytes = self.disk.bytes(slot * SLOT, *length);
        let (queue, name, length) = (&mut self.disk.queues[0], slot as u64, *length);
        match command_type {
            CommandType::Read => queue.read(*offset, bytes, name),
            CommandType::Write { data, .. } => {
                bytes.copy_from_slice(data);
                queue.write(*offset, bytes, name)
            }
            CommandType::Zeroes { hole, .. } => {
                queue.write_zeroes(*offset, length as u64, *hole, name)
            }
            CommandType::Trim => queue.discard(*offset, length as u64, name),
            CommandType::Flush => queue.flush(name),
        }
        .unwrap();
        self.flying.insert(slot, (tag, (*command_type == CommandType::Read).then_some(length)));
        Ok(())
    }
    fn push(&mut self) -> io::Result<()> {
        self.disk.kick(0);
        Ok(())
    }
    fn receive(&mut self) -> io::Result<Reply> {
        if self.answers.is_empty() {
            self.answers = self.disk.answers(0);
        }
        let (slot, result) = self.answers.pop().expect("at least one answer");
        let slot = slot as usize;
        let (tag, read) = self.flying.remove(&slot).unwrap();
        self.free.push(slot);
        if result != 0 {
            return Ok((tag, Err(-result)));
        }
        Ok((
            tag,
            Ok(read.map_or(Vec::new(), |length| self.disk.bytes(slot * SLOT, length).to_vec())),
        ))
    }
    fn in_flight(&self) -> usize {
        self.flying.len()
    }
}

/// Threads that use a file, so that it has several requests at once.
const WORKERS: usize = 6;

/// Borders of direct I/O.
const PAGE: usize = 4096;

/// A file of the mounted directory, or a block device past its page cache.
pub(crate) struct Mounted {
    jobs: mpsc::Sender<(u64, Request)>,
    answers: mpsc::Receiver<Reply>,
    in_flight: usize,
    block: usize,
}

impl Mounted {
    pub(crate) fn open(path: &str) -> Self {
        Self::with(path, 0, 1)
    }
    pub(crate) fn device(path: &str) -> Self {
        Self::with(path, libc::O_DIRECT, 512)
    }
    fn with(path: &str, direct: i32, block: usize) -> Self {
        let open = |flags: i32| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(flags | direct).open(path).unwrap()
        };
        let files = Arc::new([open(0), open(libc::O_DSYNC)]);
        let (jobs, taken) = mpsc::channel::<(u64, Request)>();
        let (done, answers) = mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..WORKERS {
            let (files, taken, done) = (Arc::clone(&files), Arc::clone(&taken), done.clone());
            thread::spawn(move || {
                loop {
                    let Ok((tag, request)) = taken.lock().unwrap().recv() else { return };
                    let result = carry_out(&files, &request);
                    let result = result.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
                    if done.send((tag, result)).is_err() {
                        return;
                    }
                }
            });
        }
        Self { jobs, answers, in_flight: 0, block }
    }
}

/// A part of the bytes that begins on a page.
fn aligned(bytes: &mut [u8], length: usize) -> &mut [u8] {
    let from = bytes.as_ptr().align_offset(PAGE);
    &mut bytes[from..from + length]
}

fn carry_out(files: &[File; 2], request: &Request) -> io::Result<Vec<u8>> {
    let Request { command_type, offset, length } = request;
    let allocate = |mode| {
        let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a plain system call on a descriptor of ours.
        let done =
            unsafe { libc::fallocate(files[0].as_raw_fd(), mode, *offset as i64, *length as i64) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    match command_type {
        CommandType::Read => {
            let mut data = vec![0; *length + PAGE];
            let place = aligned(&mut data, *length);
            files[0].read_exact_at(place, *offset)?;
            return Ok(place.to_vec());
        }
        CommandType::Write { data, durable } => {
            let mut copy = vec![0; *length + PAGE];
            let place = aligned(&mut copy, *length);
            place.copy_from_slice(data);
            files[usize::from(*durable)].write_all_at(place, *offset)?;
        }
        CommandType::Zeroes { hole: false, .. } => allocate(libc::FALLOC_FL_ZERO_RANGE)?,
        CommandType::Zeroes { .. } | CommandType::Trim => allocate(libc::FALLOC_FL_PUNCH_HOLE)?,
        CommandType::Flush => files[0].sync_data()?,
    }
    Ok(Vec::new())
}

impl Link for Mounted {
    fn abilities(&self) -> Abilities {
        let block = self.block;
        Abilities { durable: true, durable_zeroes: false, write_through: false, block }
    }
    fn send(&mut self, tag: u64, request: &Request) -> io::Result<()> {
        self.in_flight += 1;
        self.jobs.send((tag, request.clone())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
    fn push(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn receive(&mut self) -> io::Result<Reply> {
        let answer = self.answers.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.in_flight -= 1;
        Ok(answer)
    }
    fn in_flight(&self) -> usize {
        self.in_flight
    }
}
