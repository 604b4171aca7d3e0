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

use super::budget::Share;
use super::endpoint::{Endpoint, Life, Progress, Quantum, ReactorContext};
use super::ring::Event;
use crate::engine::Engine;
use crate::engine::cancel::Cancel;
use crate::front::fuse::{Call, Sent, is_killed};
use crate::request::data::Data;
use crate::request::entry::Entry;
use crate::request::export::Export;
use crate::request::op::{Hints, NewOp, Op, Ops};
use crate::wake;

/// Longest piece of a range of zeroes: a request counts its bytes in 32 bits.
const ZEROES_MAX: u64 = 1 << 30;

/// The slot of the entry that watches for calls.
const CALLS: u8 = 0;

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

/// One open file.
pub(super) struct File {
    volume: usize,
    size: u64,
    calls: Receiver<Sent>,
    wake: OwnedFd,
    watching: bool,
    inside: Slab<Inside>,
    /// Requests that there was no room for.
    waiting: VecDeque<NewOp>,
    /// Completed requests whose replies the kernel has not got yet.
    finished: VecDeque<(Reply, i32, Data, usize)>,
    /// Bytes of requests that are inside, and what the budget knows of them.
    held: usize,
    share: Share,
    closing: bool,
}

impl File {
    /// A file on this volume.
    pub(super) fn new(export: &Export, calls: Receiver<Sent>, wake: OwnedFd) -> Self {
        Self {
            volume: export.id as usize,
            size: export.size,
            calls,
            wake,
            watching: false,
            inside: Slab::new(),
            waiting: VecDeque::new(),
            finished: VecDeque::new(),
            held: 0,
            share: Share::default(),
            closing: false,
        }
    }
    /// One of the requests of a call has ended. `bytes`: what it holds.
    fn end(&mut self, cookie: u64, status: i32, (data, bytes): (Data, usize), ops: &mut Ops) {
        let inside = &mut self.inside[cookie as usize];
        inside.left -= 1;
        if inside.status == 0 {
            inside.status = status;
        }
        if inside.left == 0 {
            let Inside { reply, status, .. } = self.inside.remove(cookie as usize);
            self.finished.push_back((reply, status, data, bytes));
        } else {
            ops.release(data);
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
    fn refuse_waiting(&mut self, ops: &mut Ops) {
        while let Some(new) = self.waiting.pop_front() {
            self.end(new.cookie, libc::ESHUTDOWN, (new.data, 0), ops);
        }
    }
    fn begin(&mut self, call: Call, engine: &mut Engine) {
        match call {
            Call::Read { offset, length, process, reply } => {
                let length = u64::from(length).min(self.size.saturating_sub(offset)) as u32;
                if length == 0 {
                    return reply.data(&[]);
                }
                let ask = (Operation::Read, Hints::default());
                let reply = Reply::Read(reply, process);
                self.ask(ask, offset..offset + u64::from(length), Data::None, reply);
            }
            Call::Write { offset, buffer, length, durable, reply } => {
                let length = u64::from(length).min(self.size.saturating_sub(offset));
                if length == 0 {
                    engine.refused(self.volume);
                    return reply.error(Errno::ENOSPC);
                }
                let ask = (Operation::Write, Hints { fua: durable, ..Hints::default() });
                let reply = Reply::Write(reply, length as u32);
                self.ask(ask, offset..offset + length, Data::Owned(buffer), reply);
            }
            Call::Sync { reply } => {
                let ask = (Operation::Flush, Hints::default());
                self.ask(ask, 0..0, Data::None, Reply::Empty(reply));
            }
            Call::Zero { offset, length, hole, reply } => {
                let end = offset.saturating_add(length).min(self.size);
                if offset >= end {
                    return reply.ok();
                }
                let ask = (Operation::WriteZeroes, Hints { hole, ..Hints::default() });
                self.ask(ask, offset..end, Data::None, Reply::Empty(reply));
            }
            Call::Close => self.closing = true,
        }
    }
    /// Cuts a call into requests; only zeroes are so long that there are several.
    fn ask(
        &mut self,
        (operation, mut hints): (Operation, Hints),
        range: std::ops::Range<u64>,
        mut data: Data,
        reply: Reply,
    ) {
        let pieces = (range.end - range.start).div_ceil(ZEROES_MAX).max(1) as u32;
        let cookie =
            self.inside.insert(Inside { reply, left: pieces, status: 0, is_old: false }) as u64;
        let volume = self.volume;
        for piece in 0..u64::from(pieces) {
            hints.continues = piece > 0;
            let offset = range.start + piece * ZEROES_MAX;
            let length = (range.end - offset).min(ZEROES_MAX) as u32;
            let data = std::mem::take(&mut data);
            // Whose it is is known when it is submitted.
            let owner = 0;
            let new = NewOp { owner, cookie, volume, operation, hints, offset, length, data };
            self.waiting.push_back(new);
        }
    }
}

impl Endpoint for File {
    fn on_ring(&mut self, _: u8, _: Event, _: &mut ReactorContext<'_>) -> io::Result<()> {
        self.watching = false;
        wake::take(&self.wake);
        Ok(())
    }
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress {
        if self.closing {
            self.refuse_waiting(cx.engine.ops());
        }
        loop {
            while let Some(mut new) = self.waiting.pop_front() {
                new.owner = cx.key as u64;
                let (volume, bytes) = (Some(self.volume), held(new.operation, new.length));
                let room = bytes == 0 || cx.has_memory(volume, &mut self.share, self.held, bytes);
                let refused = if room { cx.engine.submit(cx.now, new).err() } else { Some(new) };
                if let Some(new) = refused {
                    self.waiting.push_front(new);
                    return Progress::NoRoom;
                }
                self.held += bytes;
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
            self.begin(call, cx.engine);
        }
    }
    fn deliver(&mut self, op: Op, ops: &mut Ops) {
        let bytes = held(op.operation, op.length);
        self.end(op.cookie, op.status, (op.data, bytes), ops);
    }
    /// Tells the kernel of one request: it copies what was read.
    fn reply(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        let Some((reply, status, mut data, bytes)) = self.finished.pop_front() else {
            return Ok(false);
        };
        match reply {
            reply if status != 0 => reply.error(status),
            Reply::Read(reply, _) => {
                data = cx.engine.ops().own(data, bytes);
                reply.data(data.bytes(bytes).unwrap_or_default());
            }
            Reply::Write(reply, length) => reply.written(length),
            Reply::Empty(reply) => reply.ok(),
        }
        self.held -= bytes;
        cx.engine.ops().release(data);
        Ok(true)
    }
    fn has_replies(&self) -> bool {
        !self.finished.is_empty()
    }
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life> {
        cx.charge(Some(self.volume), &mut self.share, self.held);
        if !self.closing && !self.watching {
            self.watching = true;
            return cx.push(Entry::poll(self.wake.as_raw_fd()), CALLS).map(|()| Life::Open);
        }
        let idle = self.inside.is_empty() && self.finished.is_empty() && !self.watching;
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
    fn volume(&self) -> Option<usize> {
        Some(self.volume)
    }
    fn resized(&mut self, size: u64) {
        self.size = size;
    }
}

/// Bytes of memory that a request holds.
fn held(operation: Operation, length: u32) -> usize {
    if matches!(operation, Operation::Read | Operation::Write) { length as usize } else { 0 }
}
