//! A file or a block device through io_uring.
//!
//! Data goes past the page cache (`O_DIRECT`) where the file system allows it. Requests that do not
//! begin and end on the borders that direct I/O wants go through the page cache, alone among those
//! that touch the same pages ([`order`]). A merged command is one vectored read or write. A flush is
//! `fdatasync`; a durable write is `RWF_DSYNC`; a trim punches a hole, and zeroes are made by the file
//! system, or written where it cannot.

mod file;
mod order;
mod running;

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use io_uring::{opcode, squeue, types};
use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::unit::Sectors;
use slab::Slab;

use super::{Answer, Back, Extent, Job};
use crate::buffer::Data;
use crate::engine::op::{Op, Ops};
use file::Pool;
use order::Order;
use running::{Next, Running, Step};

/// Commands at once: enough for any drive to be full, and few enough that the engine still decides.
const DEPTH: u32 = 128;
/// Longest command (the kernel's usual `max_sectors_kb` of 1280, rounded down).
const REQUEST_MAX: Sectors = Sectors::from_kib(1024);

/// A file or a block device.
#[derive(Debug)]
pub struct Uring {
    pool: Pool,
    running: Slab<Running>,
    order: Order,
    entries: Vec<squeue::Entry>,
    /// Finished commands, kept for the memory of their pieces.
    spare: Vec<Running>,
    /// Zeroes to write where the file system cannot make them.
    zeroes: Box<running::Zeroes>,
}

impl Uring {
    /// Opens a pool and makes it at least so long; a file that is not there is made.
    pub fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        Ok(Self {
            pool: Pool::open(path, bytes)?,
            running: Slab::new(),
            order: Order::default(),
            entries: Vec::new(),
            spare: Vec::new(),
            zeroes: Box::default(),
        })
    }
    /// Describes a command without starting it.
    fn prepare(&mut self, job: &Job<'_>, ops: &mut Ops) -> Running {
        let mut running = self.spare.pop().unwrap_or_default();
        running.reset(job.dispatch.id, job.dispatch.operation);
        let block = self.pool.block();
        for part in job.parts {
            let key = part.tag as usize;
            match ops[key].operation {
                // Direct I/O wants payloads on page borders, which receive buffers know nothing of.
                Operation::Write => ops.keep(key),
                Operation::Read if matches!(ops[key].data, Data::None) => {
                    let buffer = ops.pool.take(ops[key].length as usize);
                    ops[key].data = Data::Owned(buffer);
                }
                _ => {}
            }
            let op: &Op = &ops[key];
            running.add(op, part, block);
        }
        running
    }
    fn begin(&mut self, slot: usize) {
        let running = &mut self.running[slot];
        running.step = match running.operation {
            Operation::Read | Operation::Write => Step::Data,
            Operation::Flush => Step::Sync,
            Operation::Discard | Operation::WriteZeroes => Step::Allocate,
        };
        self.issue(slot);
    }
    /// Queues the entry for the present step of a command.
    fn issue(&mut self, slot: usize) {
        let running = &mut self.running[slot];
        let file = types::Fd(self.pool.descriptor(running.aligned));
        let entry = match running.step {
            Step::Data | Step::Zeroes => {
                let (pieces, count) = running.rest();
                let durable = if running.fua { libc::RWF_DSYNC } else { 0 };
                match running.operation {
                    Operation::Read => {
                        opcode::Readv::new(file, pieces, count).offset(running.offset).build()
                    }
                    _ => opcode::Writev::new(file, pieces, count)
                        .offset(running.offset)
                        .rw_flags(durable)
                        .build(),
                }
            }
            Step::Allocate => opcode::Fallocate::new(file, running.left)
                .offset(running.offset)
                .mode(running.allocation_mode())
                .build(),
            Step::Sync => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        };
        self.entries.push(entry.user_data(slot as u64));
    }
    fn finish(&mut self, slot: usize, status: i32, answers: &mut Vec<Answer>) {
        let running = self.running.remove(slot);
        answers.push(Answer { id: running.id, status });
        self.spare.push(running);
        for free in self.order.finish(slot) {
            self.begin(free);
        }
    }
}

impl Back for Uring {
    fn facts(&self) -> DriveFacts {
        DriveFacts {
            rotational: self.pool.rotational(),
            depth: DEPTH,
            max_request: REQUEST_MAX,
            capacity: Sectors(self.pool.bytes() / 512),
        }
    }
    fn start(&mut self, job: &Job<'_>, ops: &mut Ops, answers: &mut Vec<Answer>) {
        let running = self.prepare(job, ops);
        let (operation, aligned) = (running.operation, running.aligned);
        let (offset, length) = (running.offset, running.left);
        let nothing = length == 0 && operation != Operation::Flush;
        let slot = self.running.insert(running);
        if nothing {
            return self.finish(slot, 0, answers);
        }
        let alone = !aligned && self.pool.is_direct();
        if operation == Operation::Flush || self.order.start(slot, offset, length, alone) {
            self.begin(slot);
        }
    }
    fn take_entries(&mut self) -> Option<&mut Vec<squeue::Entry>> {
        Some(&mut self.entries)
    }
    fn on_ring(&mut self, user_data: u32, result: i32, _: &mut Ops, answers: &mut Vec<Answer>) {
        let slot = user_data as usize;
        match self.running[slot].on_result(result, &self.zeroes) {
            Next::Again => self.issue(slot),
            Next::Done(status) => self.finish(slot, status, answers),
        }
    }
    fn extents(&mut self, offset: u64, length: u64, limit: usize) -> Vec<Extent> {
        self.pool.extents(offset, length, limit)
    }
    fn grow(&mut self, bytes: u64) -> io::Result<()> {
        self.pool.grow(bytes)
    }
    fn close(&mut self) -> io::Result<()> {
        // SAFETY: a plain system call on a descriptor of ours.
        match unsafe { libc::fdatasync(self.pool.file().as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    fn describe(&self) -> String {
        self.pool.describe()
    }
}

#[cfg(test)]
mod tests;
