//! A client inside the server: writes zeroes over extents of deleted volumes, as requests of the engine.
//!
//! A job has one request in the engine at a time, of at most [`PIECE`]: no longer than the longest command of a
//! client, so that clients do not wait longer for it than for each other. Its requests belong to the group that needs
//! the extents, or else to the root, in the idle class. A job in the idle class ends early if clients have requests
//! in the engine. With most schedulers the class alone keeps it out of the way; with those that know no classes,
//! pauses of the other thread do.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use iofair_core::request::Operation;

use super::endpoint::{Endpoint, Life, Progress, ReactorContext, RingEvent};
use crate::request::buffer::Pool;
use crate::request::op::{Hints, NewOp, Op};

/// Bytes of one request.
const PIECE: u64 = 1 << 20;

/// Extents to zero.
#[derive(Debug)]
pub(crate) struct ZeroJob {
    /// Path of the group that is charged; `None`: the root, in the idle class.
    pub(crate) group: Option<String>,
    /// Bytes of the drive, in this order.
    pub(crate) extents: Vec<Range<u64>>,
    /// The space may be given back.
    pub(crate) hole: bool,
    /// Make the zeroes durable at the end.
    pub(crate) flush: bool,
    /// End after the request that is in the engine, and make durable what there is.
    pub(crate) stop: Arc<AtomicBool>,
    /// Counts zeroed bytes.
    pub(crate) counter: Arc<AtomicU64>,
    /// Receives the reply. Dropped without one if the server ends first.
    pub(crate) reply: Sender<Zeroed>,
}

/// The result of a job.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Zeroed {
    /// This many bytes of the extents, from the first one on, are zeroes.
    pub(crate) bytes: u64,
    /// They are durable, and everything that was completed before.
    pub(crate) is_durable: bool,
    /// Clients had requests in the engine meanwhile.
    pub(crate) contended: bool,
    /// 0, or the error number of the request that failed.
    pub(crate) status: i32,
}

/// The endpoint of a job.
pub(super) struct Zeroing {
    job: ZeroJob,
    zeroed: Zeroed,
    /// The extent with the next byte, and the offset of the byte in it.
    extent: usize,
    into: u64,
    /// The engine had no room.
    is_stalled: bool,
    closing: bool,
    replied: bool,
}

impl Zeroing {
    /// A job on a volume that is the whole drive.
    pub(super) fn new(job: ZeroJob) -> Self {
        Self {
            job,
            zeroed: Zeroed::default(),
            extent: 0,
            into: 0,
            is_stalled: false,
            closing: false,
            replied: false,
        }
    }
    /// The next request, unless the job is at its end.
    fn next(&self, cx: &ReactorContext<'_>) -> Option<NewOp> {
        if self.zeroed.status != 0 {
            return None;
        }
        let stops = self.closing || self.job.stop.load(Ordering::Relaxed);
        let yields = self.job.group.is_none() && self.zeroed.contended && self.zeroed.bytes > 0;
        let extent = self.job.extents.get(self.extent).filter(|_| !stops && !yields);
        let (operation, offset, length) = match extent {
            Some(extent) => {
                let offset = extent.start + self.into;
                (Operation::WriteZeroes, offset, PIECE.min(extent.end - offset) as u32)
            }
            None if (self.job.flush || stops) && !self.zeroed.is_durable => {
                (Operation::Flush, 0, 0)
            }
            None => return None,
        };
        let hints = Hints { hole: self.job.hole, ..Hints::default() };
        Some(NewOp { hints, offset, length, ..cx.request(0, operation) })
    }
    fn reply_once(&mut self) {
        if !std::mem::replace(&mut self.replied, true) {
            // The caller may be gone.
            let _ = self.job.reply.send(self.zeroed);
        }
    }
}

impl Endpoint for Zeroing {
    fn on_ring(&mut self, _: RingEvent, _: &mut ReactorContext<'_>) -> io::Result<()> {
        unreachable!("it has no entries on the ring");
    }
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress {
        if cx.client.in_flight > 0 {
            return Progress::OwnLimit;
        }
        // It has no request in the engine itself now.
        self.zeroed.contended |= cx.port.is_busy();
        let Some(new) = self.next(cx) else {
            self.reply_once();
            return Progress::Done;
        };
        self.is_stalled = cx.submit(new).is_err();
        if self.is_stalled { Progress::NoRoom } else { Progress::OwnLimit }
    }
    fn deliver(&mut self, op: Op, buffers: &mut Pool) {
        self.zeroed.status = op.status;
        match op.operation {
            _ if op.status != 0 => {}
            Operation::Flush => self.zeroed.is_durable = true,
            _ => {
                let bytes = u64::from(op.length);
                self.zeroed.bytes += bytes;
                self.job.counter.fetch_add(bytes, Ordering::Relaxed);
                self.into += bytes;
                let extent = &self.job.extents[self.extent];
                if self.into == extent.end - extent.start {
                    (self.extent, self.into) = (self.extent + 1, 0);
                }
            }
        }
        buffers.release(op.data);
    }
    fn reply(&mut self, _: &mut ReactorContext<'_>) -> io::Result<bool> {
        Ok(false)
    }
    fn settle(&mut self, _: &mut ReactorContext<'_>) -> io::Result<Life> {
        if self.closing && self.is_stalled {
            self.reply_once();
        }
        Ok(if self.replied { Life::Closed } else { Life::Open })
    }
    fn close(&mut self) {
        self.closing = true;
    }
}
