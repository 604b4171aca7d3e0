//! Memory as a drive: every command completes at once, and reads refer to the data without copying it.

use std::io;

use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::unit::Sectors;

use super::store::Store;
use super::{Back, Completed, Job};
use crate::request::data::Data;
use crate::request::op::{Ops, Question};

/// Commands at once: nothing ever waits here, so this only bounds a batch.
const DEPTH: u32 = 1024;
/// Longest command; longer requests are split, so that they cannot hold up the others.
const REQUEST_MAX: Sectors = Sectors::from_kib(1024);

/// Memory as a drive.
#[derive(Debug)]
pub struct Memory {
    store: Store,
}

impl Memory {
    /// A drive of this many zero bytes.
    pub fn new(bytes: u64) -> io::Result<Self> {
        Ok(Self { store: Store::anonymous(bytes)? })
    }
}

/// Carries a command out on a store. Reads get a span of the store, unless they said where they want their bytes, or
/// the store may be lost before they are sent.
pub(super) fn apply(store: &mut Store, job: &Job<'_>, ops: &mut Ops) {
    if let Some(Question { op, offset, length, limit }) = ops.question(job.parts) {
        ops[op].data = Data::Extents(store.extents(offset, length, limit));
        return;
    }
    for part in job.parts {
        let piece = ops.piece(part);
        let op = &mut ops[piece.op];
        let wants = op.operation == Operation::Read && !matches!(op.data, Data::Scattered(_));
        if wants
            && store.backing().is_none()
            && let Some(offset) = op.drive
        {
            op.data = Data::Stored(store.stored(offset, u64::from(op.length)));
            continue;
        }
        if wants && matches!(op.data, Data::None) {
            let length = op.length as usize;
            ops[piece.op].data = Data::Owned(ops.pool.take(length));
        }
        let op = &mut ops[piece.op];
        let mut at = piece.offset;
        match op.operation {
            Operation::Read => {
                op.places_mut(piece).for_each(|mut place| at = store.read(at, &mut place));
            }
            Operation::Write => {
                let written = store.write_all(at, piece.length.into(), op.places(piece));
                fail(ops, part.tag, written);
            }
            Operation::Discard | Operation::WriteZeroes => {
                let zeroed = store.zero(at, piece.length.into());
                fail(ops, part.tag, zeroed);
            }
            Operation::Flush => {}
        }
    }
}

/// A piece for which the store has no space fails, and nothing else.
fn fail(ops: &mut Ops, tag: u64, done: io::Result<()>) {
    if let Err(error) = done {
        ops.fail_piece(tag, error.raw_os_error().unwrap_or(libc::EIO));
    }
}

impl Back for Memory {
    fn facts(&self) -> DriveFacts {
        DriveFacts {
            rotational: false,
            depth: DEPTH,
            max_request: REQUEST_MAX,
            capacity: Sectors(self.store.bytes() / 512),
        }
    }
    fn start(&mut self, job: &Job<'_>, ops: &mut Ops, completed: &mut Vec<Completed>) {
        apply(&mut self.store, job, ops);
        completed.push(Completed { id: job.dispatch.id, status: 0 });
    }
    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn describe(&self) -> String {
        format!("{} MiB of memory", self.store.bytes() >> 20)
    }
}
