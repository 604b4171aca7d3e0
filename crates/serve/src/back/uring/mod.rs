//! Files and block devices through io_uring.
//!
//! I/O bypasses the page cache (`O_DIRECT`) if the file system allows it. Requests without the alignment that direct
//! I/O needs go through the page cache, and never at the same time as others on the same pages ([`order`]). A merged
//! command is one vectored read or write. A flush is `fdatasync`; a durable write is `RWF_DSYNC`; a trim punches a
//! hole; zeroes are created by the file system, or written if it cannot.
//!
//! It serves one file (or device) that volumes share, or one file per volume ([`files`]).

pub(crate) mod claim;
mod file;
pub(crate) mod files;
mod order;
mod queue;
mod running;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use io_uring::{opcode, types};
use iofair_core::id::RequestId;
use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::unit::Sectors;
use slab::Slab;

use super::{Back, Completed, Job, Lookup, Loss};
use crate::back::volume::PlannedVolume;
use crate::request::data::Data;
use crate::request::entry::Entry;
use crate::request::op::{Op, Ops, Question};
pub use file::Storage;
pub(crate) use file::{Damage, damage, extents, set_length};
use files::Files;
use order::Order;
pub(crate) use queue::Queue;
use running::{Next, Running, Step};

/// Commands at once where the kernel does not tell how many the drive takes.
const DEPTH: u32 = 128;
/// And in any case at most: NVMe drives tell 1023.
const DEPTH_MAX: u32 = 1024;
/// Longest command (the kernel's usual `max_sectors_kb` of 1280, rounded down).
const REQUEST_MAX: Sectors = Sectors::from_kib(1024);

/// Files and block devices.
pub(crate) struct Uring {
    files: Files,
    /// The directory of the volumes' files, unless it is one file.
    directory: Option<PathBuf>,
    queue: Queue,
    bytes: u64,
    running: Slab<Running>,
    order: Order,
    entries: Vec<Entry>,
    lookups: Vec<Lookup>,
    losses: Vec<Loss>,
    /// Finished commands, kept for the memory of their pieces.
    spare: Vec<Running>,
    /// Zeroes to write where the file system cannot make them.
    zeroes: Box<running::Zeroes>,
}

impl Uring {
    /// A file or device that is open, which volumes share. `told`: whether its drive is rotational, if this was stated.
    pub(crate) fn shared(storage: &Arc<Storage>, told: Option<bool>) -> Self {
        let (queue, bytes) = (storage.queue(told), storage.bytes());
        // A file may grow with its volumes, a device may be made longer.
        let bytes =
            if storage.is_device() { bytes } else { files::SLOTS_MAX * files::VOLUME_BYTES_MAX };
        Self { queue, bytes, ..Self::over(Files::pool(Arc::clone(storage))) }
    }
    /// Volumes with their own files, which are added with [`Back::place`]; most of them are in this directory.
    pub(crate) fn directory(path: &Path, told: Option<bool>) -> io::Result<Self> {
        let queue = Queue::probe(std::fs::metadata(path)?.dev(), path, told);
        let directory = Some(path.to_path_buf());
        Ok(Self { directory, queue, ..Self::over(Files::many()) })
    }
    fn over(files: Files) -> Self {
        Self {
            files,
            directory: None,
            queue: Queue { rotational: false, depth: None, found: None },
            bytes: files::SLOTS_MAX * files::VOLUME_BYTES_MAX,
            running: Slab::new(),
            order: Order::default(),
            entries: Vec::new(),
            lookups: Vec::new(),
            losses: Vec::new(),
            spare: Vec::new(),
            zeroes: Box::default(),
        }
    }
    /// Commands at once: as many as the drive takes.
    fn depth(&self) -> u32 {
        self.queue.depth.unwrap_or(DEPTH).min(DEPTH_MAX)
    }
    /// Describes a command without starting it.
    fn prepare(&mut self, job: &Job<'_>, ops: &mut Ops) -> Running {
        let mut running = self.spare.pop().unwrap_or_default();
        running.reset(job.dispatch.id, job.dispatch.operation);
        for part in job.parts {
            let piece = ops.piece(part);
            let key = piece.op;
            let (file, _) = self.files.find(piece.offset);
            running.file = file;
            let block = self.files.storage(file).block();
            if self.files.storage(file).is_direct()
                && let Data::Scattered(scattered) = &ops[key].data
                && !scattered.is_aligned(block as usize)
            {
                ops.bounce(key);
            }
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
            running.add(op, piece, block);
        }
        if running.operation == Operation::Discard && running.is_hole() {
            // It is charged as a trim, which writes nothing.
            (running.operation, running.fast) = (Operation::WriteZeroes, true);
        }
        if running.operation == Operation::Discard {
            running.trim_to(self.files.storage(running.file).sector());
        }
        running
    }
    /// The ring cannot ask a file system what is stored.
    fn look_up(&mut self, command: RequestId, question: Question) {
        let Question { op, offset, length, limit } = question;
        let (file, offset) = self.files.find(offset);
        let storage = self.files.shared(file);
        let find = Box::new(move || storage.extents(offset, length, limit));
        self.lookups.push(Lookup { command, op, find });
    }
    fn begin(&mut self, slot: usize) {
        let running = &mut self.running[slot];
        match running.operation {
            Operation::Read | Operation::Write => running.step = Step::Data,
            Operation::Flush => running.step = Step::Sync,
            Operation::Discard | Operation::WriteZeroes => {
                running.allocate(self.files.storage(running.file).sector(), &self.zeroes);
            }
        }
        self.issue(slot);
    }
    /// Queues the entry for the present step of a command.
    fn issue(&mut self, slot: usize) {
        let running = &mut self.running[slot];
        let storage = self.files.storage(running.file);
        let file = match running.step {
            Step::Sync => storage.descriptor(true),
            Step::SyncOthers => storage.descriptor(!running.aligned),
            Step::Allocate => storage.allocator(),
            _ => storage.descriptor(running.aligned),
        };
        let (_, offset) = self.files.find(running.offset);
        let is_sync = running.is_sync();
        if !is_sync && storage.lacks(offset + running.left, running.operation.modifies()) {
            // It fails as a read behind the end does.
            running.step = Step::Data;
            return self.entries.push(Entry::nop().user_data(slot as u64));
        }
        let entry = match running.step {
            Step::Data | Step::Zeroes => {
                running.whole = running.operation.modifies() && storage.is_whole();
                let (pieces, count) = running.rest();
                let durable = if running.fua { libc::RWF_DSYNC } else { 0 };
                let entry = match running.operation {
                    Operation::Read => {
                        opcode::Readv::new(types::Fd(file), pieces, count).offset(offset).build()
                    }
                    _ => opcode::Writev::new(types::Fd(file), pieces, count)
                        .offset(offset)
                        .rw_flags(durable)
                        .build(),
                };
                // SAFETY: the command keeps its list of pieces as it is until the entry is completed, and the engine
                // the memory in them until the command is over (`Ops`); a reactor that ends earlier forgets both. So
                // does this back end the zeroes.
                unsafe { Entry::new(entry) }
            }
            Step::Allocate => {
                Entry::allocate(file, offset, running.left, running.allocation_mode())
            }
            Step::Sync | Step::SyncOthers => Entry::sync_data(file),
        };
        self.entries.push(entry.user_data(slot as u64));
    }
    fn finish(&mut self, slot: usize, status: i32, completed: &mut Vec<Completed>) {
        let running = self.running.remove(slot);
        self.files.end(running.file);
        completed.push(Completed { id: running.id, status });
        self.spare.push(running);
        for free in self.order.finish(slot) {
            self.begin(free);
        }
    }
}

impl Back for Uring {
    fn facts(&self) -> DriveFacts {
        DriveFacts {
            rotational: self.queue.rotational,
            depth: self.depth(),
            max_request: REQUEST_MAX,
            capacity: Sectors(self.bytes / 512),
        }
    }
    fn start(&mut self, job: &Job<'_>, ops: &mut Ops, completed: &mut Vec<Completed>) {
        if let Some(question) = ops.question(job.parts) {
            return self.look_up(job.dispatch.id, question);
        }
        let running = self.prepare(job, ops);
        let (operation, aligned) = (running.operation, running.aligned);
        let (offset, length) = (running.offset, running.left);
        let nothing = length == 0 && operation != Operation::Flush;
        self.files.begin(running.file);
        let direct = self.files.storage(running.file).is_direct();
        let slot = self.running.insert(running);
        if nothing {
            return self.finish(slot, 0, completed);
        }
        let alone = !aligned && direct;
        if operation == Operation::Flush || self.order.start(slot, offset, length, alone) {
            self.begin(slot);
        }
    }
    fn take_entries(&mut self) -> Option<&mut Vec<Entry>> {
        Some(&mut self.entries)
    }
    fn on_ring(
        &mut self,
        user_data: u32,
        result: i32,
        ops: &mut Ops,
        completed: &mut Vec<Completed>,
    ) {
        let slot = user_data as usize;
        let running = &mut self.running[slot];
        let (is_sync, file) = (running.is_sync(), running.file);
        if running.is_at_end(result) {
            self.files.storage(file).on_end();
        }
        if std::mem::take(&mut running.whole) && result > 0 {
            let (_, offset) = self.files.find(running.offset);
            self.files.storage(file).on_written(offset + result as u64);
        }
        let next = if result == -libc::EFAULT && running.is_shared() {
            let (key, next) = running.on_fault();
            if let Some(key) = key {
                ops[key].status = libc::EFAULT;
            }
            next
        } else {
            running.on_result(result, &self.zeroes)
        };
        if is_sync && result < 0 && next != Next::Again {
            self.losses.push(Loss { range: self.files.range(file), status: -result });
        }
        match next {
            Next::Again => self.issue(slot),
            Next::Done(status) => self.finish(slot, status, completed),
        }
    }
    fn take_lookups(&mut self) -> Option<&mut Vec<Lookup>> {
        Some(&mut self.lookups)
    }
    fn take_closing(&mut self) -> Option<&mut Vec<Arc<Storage>>> {
        Some(self.files.closing())
    }
    fn take_losses(&mut self) -> Option<&mut Vec<Loss>> {
        Some(&mut self.losses)
    }
    fn separate_flushes(&self) -> bool {
        self.directory.is_some()
    }
    fn place(&mut self, volume: &PlannedVolume) {
        if let Some(storage) = &volume.storage {
            storage.need(volume.size);
            self.files.place(volume.map.start(), storage);
        }
    }
    fn forget(&mut self, volume: &PlannedVolume) {
        if volume.storage.is_some() {
            self.files.forget(volume.map.start());
        }
    }
    fn close(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for storage in self.files.all() {
            let synced = storage.sync();
            result = result.and(synced);
        }
        result
    }
    fn found(&self) -> Option<&'static str> {
        self.queue.found
    }
    fn describe(&self) -> String {
        let place = match (&self.directory, self.files.all().next()) {
            (Some(directory), _) => {
                format!("directory {}, one file or device per volume", directory.display())
            }
            (None, only) => only.expect("it is one file").describe(),
        };
        if self.queue.rotational { place + ", rotational" } else { place }
    }
}

#[cfg(test)]
mod tests;
