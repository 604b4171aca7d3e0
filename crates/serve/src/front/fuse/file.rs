//! An open file of the mounted directory as an endpoint: the kernel's calls become requests of the engine.
//!
//! The kernel bounds the number of requests in flight: it sends no more than it has room for.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use slab::Slab;

use crate::port::Cancel;
use crate::reactor::endpoint::{Endpoint, Life, Progress, Quantum, ReactorContext, RingEvent};
use crate::request::buffer::{Buffer, Pool};
use crate::request::data::Data;
use crate::request::entry::Entry;
use crate::request::export::Export;
use crate::request::op::{Hints, NewOp, Op};
use crate::wake;

/// Longest piece of a range of zeroes: a request counts its bytes in 32 bits.
const ZEROES_MAX: u64 = 1 << 30;

/// The slot of the entry that watches for calls.
const CALLS: u8 = 0;

/// What an open file is asked.
#[derive(Debug)]
pub(super) enum Call {
    /// Bytes, for a process.
    Read { offset: u64, length: u32, process: u32, reply: ReplyData },
    /// To keep bytes, durably if so asked.
    Write { offset: u64, buffer: Buffer, length: u32, durable: bool, reply: ReplyWrite },
    /// To make what was written durable.
    Sync { reply: ReplyEmpty },
    /// To make a range zero; with a hole if it may be one.
    Zero { offset: u64, length: u64, hole: bool, reply: ReplyEmpty },
    /// Nothing any more.
    Close,
}

/// Whether a process was killed and waits for its calls: the kernel lets it end only then. (The session's library answers no
/// `FUSE_INTERRUPT`, which would tell.) One that is not there may be a thread of the kernel.
fn is_killed(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let pending = |line: &str| {
        let signals = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(signals.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|signals| signals & 1 << (libc::SIGKILL - 1) != 0)
}

/// A call, and the processor time that the thread which read it has spent on it.
pub(super) type Sent = (Call, Nanos);

/// How replies reach the kernel; of reads, for which process.
#[derive(Debug)]
enum Reply {
    Read(ReplyData, u32),
    Write(ReplyWrite, u32),
    Empty(ReplyEmpty),
}

impl Reply {
    fn error(self, status: i32) {
        let error = Errno::from_i32(status);
        match self {
            Self::Read(reply, _) => reply.error(error),
            Self::Write(reply, _) => reply.error(error),
            Self::Empty(reply) => reply.error(error),
        }
    }
}

/// A call that is inside.
#[derive(Debug)]
struct Inside {
    reply: Reply,
    /// Requests that it became and that are not finished.
    left: u32,
    status: i32,
    /// It was inside at the last check.
    is_old: bool,
}

/// A request that has ended.
struct Ended {
    cookie: u64,
    status: i32,
    data: Data,
    /// What it holds.
    bytes: usize,
}

/// One open file.
pub(super) struct File {
    size: u64,
    calls: Receiver<Sent>,
    wake: OwnedFd,
    watching: bool,
    inside: Slab<Inside>,
    /// Requests that there was no room for.
    waiting: VecDeque<NewOp>,
    /// Completed requests whose replies the kernel has not got yet.
    finished: VecDeque<(Reply, i32, Data, usize)>,
    /// Their bytes.
    unsent: usize,
    closing: bool,
}

impl File {
    /// A file on this volume.
    pub(super) fn new(export: &Export, calls: Receiver<Sent>, wake: OwnedFd) -> Self {
        Self {
            size: export.size,
            calls,
            wake,
            watching: false,
            inside: Slab::new(),
            waiting: VecDeque::new(),
            finished: VecDeque::new(),
            unsent: 0,
            closing: false,
        }
    }
    /// One of the requests of a call has ended.
    fn end(&mut self, ended: Ended, buffers: &mut Pool) {
        let Ended { cookie, status, data, bytes } = ended;
        let inside = &mut self.inside[cookie as usize];
        inside.left -= 1;
        if inside.status == 0 {
            inside.status = status;
        }
        if inside.left == 0 {
            let Inside { reply, status, .. } = self.inside.remove(cookie as usize);
            self.unsent += bytes;
            self.finished.push_back((reply, status, data, bytes));
        } else {
            buffers.release(data);
        }
    }
    /// Processes that wait for reads, and whether they did at the last check.
    fn readers(&mut self) -> BTreeMap<u32, bool> {
        let mut readers = BTreeMap::new();
        for (_, inside) in &mut self.inside {
            if let Reply::Read(_, process) = inside.reply {
                *readers.entry(process).or_default() |= std::mem::replace(&mut inside.is_old, true);
            }
        }
        readers
    }
    /// Ends requests that there was no room for: the volume is removed.
    fn refuse_waiting(&mut self, buffers: &mut Pool) {
        while let Some(new) = self.waiting.pop_front() {
            let NewOp { cookie, data, .. } = new;
            self.end(Ended { cookie, status: libc::ESHUTDOWN, data, bytes: 0 }, buffers);
        }
    }
    fn begin(&mut self, call: Call, cx: &mut ReactorContext<'_>) {
        match call {
            Call::Read { offset, length, process, reply } => {
                let length = u64::from(length).min(self.size.saturating_sub(offset)) as u32;
                if length == 0 {
                    return reply.data(&[]);
                }
                let request = NewOp { offset, ..cx.request(0, Operation::Read) };
                self.ask(request, u64::from(length), Reply::Read(reply, process));
            }
            Call::Write { offset, buffer, length, durable, reply } => {
                let length = u64::from(length).min(self.size.saturating_sub(offset));
                if length == 0 {
                    cx.port.count_refused(cx.client);
                    return reply.error(Errno::ENOSPC);
                }
                let hints = Hints { fua: durable, ..Hints::default() };
                let data = Data::Owned(buffer);
                let request = NewOp { hints, offset, data, ..cx.request(0, Operation::Write) };
                self.ask(request, length, Reply::Write(reply, length as u32));
            }
            Call::Sync { reply } => {
                self.ask(cx.request(0, Operation::Flush), 0, Reply::Empty(reply));
            }
            Call::Zero { offset, length, hole, reply } => {
                let end = offset.saturating_add(length).min(self.size);
                if offset >= end {
                    return reply.ok();
                }
                let hints = Hints { hole, ..Hints::default() };
                let operation = if hole { Operation::Discard } else { Operation::WriteZeroes };
                let request = NewOp { hints, offset, ..cx.request(0, operation) };
                self.ask(request, end - offset, Reply::Empty(reply));
            }
            Call::Close => self.closing = true,
        }
    }
    /// Cuts a request of this length into pieces; only zeroes are so long that there are several.
    fn ask(&mut self, request: NewOp, length: u64, reply: Reply) {
        let left = length.div_ceil(ZEROES_MAX).max(1) as u32;
        let inside = Inside { reply, left, status: 0, is_old: false };
        let cookie = self.inside.insert(inside) as u64;
        let NewOp { owner, volume, operation, mut hints, offset: first, mut data, .. } = request;
        for before in (0..u64::from(left)).map(|piece| piece * ZEROES_MAX) {
            hints.continues = before > 0;
            let (offset, length) = (first + before, (length - before).min(ZEROES_MAX) as u32);
            let data = std::mem::take(&mut data);
            let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
            self.waiting.push_back(new);
        }
    }
}

impl Endpoint for File {
    fn on_ring(&mut self, _: RingEvent, _: &mut ReactorContext<'_>) -> io::Result<()> {
        self.watching = false;
        wake::take(&self.wake);
        Ok(())
    }
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress {
        if self.closing {
            self.refuse_waiting(cx.port.buffers());
        }
        loop {
            while let Some(new) = self.waiting.pop_front() {
                let bytes = new.payload();
                let room = bytes == 0 || cx.port.has_memory(cx.client, self.unsent, bytes);
                let refused = if room { cx.submit(new).err() } else { Some(new) };
                if let Some(new) = refused {
                    self.waiting.push_front(new);
                    return Progress::NoRoom;
                }
            }
            if self.closing {
                return Progress::Done;
            }
            if !cx.quantum.spend(0) {
                return Progress::More;
            }
            let (call, spent) = match self.calls.try_recv() {
                Ok(sent) => sent,
                Err(TryRecvError::Empty) => return Progress::Done,
                // The directory is not mounted any more.
                Err(TryRecvError::Disconnected) => {
                    cx.cancel_requests(Cancel::Reads);
                    (Call::Close, Nanos::ZERO)
                }
            };
            cx.spent += spent;
            self.begin(call, cx);
        }
    }
    fn deliver(&mut self, op: Op, buffers: &mut Pool) {
        let bytes = op.payload();
        let Op { cookie, status, data, .. } = op;
        self.end(Ended { cookie, status, data, bytes }, buffers);
    }
    /// Tells the kernel of one request: it copies what was read.
    fn reply(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        let Some((reply, status, mut data, bytes)) = self.finished.pop_front() else {
            return Ok(false);
        };
        match reply {
            reply if status != 0 => reply.error(status),
            Reply::Read(reply, _) => {
                data = cx.port.buffers().own(data, bytes);
                reply.data(data.bytes(bytes).unwrap_or_default());
            }
            Reply::Write(reply, length) => reply.written(length),
            Reply::Empty(reply) => reply.ok(),
        }
        self.unsent -= bytes;
        cx.port.buffers().release(data);
        Ok(true)
    }
    fn has_replies(&self) -> bool {
        !self.finished.is_empty()
    }
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life> {
        if !self.closing && !self.watching {
            self.watching = true;
            return cx.push(Entry::poll(self.wake.as_raw_fd()), CALLS).map(|()| Life::Open);
        }
        let idle = self.inside.is_empty() && self.finished.is_empty();
        Ok(if self.closing && idle { Life::Closed } else { Life::Open })
    }
    fn close(&mut self) {
        self.closing = true;
        // Ends the poll of the eventfd, which is not started again.
        wake::signal(&self.wake);
    }
    fn periodic_check(&mut self, _: bool, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        let readers = self.readers();
        // A look at a process takes tens of microseconds, so busy ones, whose reads end sooner, are left alone, and of the others
        // only one file is looked at in a turn.
        if !readers.is_empty() && readers.values().all(|is_old| *is_old) {
            cx.quantum = Quantum::NONE;
            if readers.keys().all(|process| is_killed(*process)) {
                cx.cancel_requests(Cancel::Reads);
            }
        }
        Ok(!readers.is_empty())
    }
    fn holds(&self) -> usize {
        self.unsent
    }
    fn resized(&mut self, size: u64) {
        self.size = size;
    }
}
