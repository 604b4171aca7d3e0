//! A model of a drive paced in real time over a store: what the lab runs in virtual time, as a drive
//! that clients can use.
//!
//! Data moves when a command starts, the answer waits for the model. Answers are never early; how late
//! they are is up to the reactor, which spins through the last microseconds before
//! [`Back::next_event`].

use std::io;

use iofair_core::controller::Dispatch;
use iofair_core::policy::DriveFacts;
use iofair_core::request::RequestId;
use iofair_core::time::{Instant, Nanos};
use iofair_drive::{Command, Done, Drive};

use super::store::Store;
use super::{Answer, Back, Extent, Job, memory};
use crate::engine::op::Ops;

/// A model over a store.
pub struct Emulated {
    drive: Box<dyn Drive + Send>,
    store: Store,
    name: String,
    done: Vec<Done>,
}

impl Emulated {
    /// Puts a model in front of a store of (at least) the drive's size.
    pub fn new(name: &str, drive: Box<dyn Drive + Send>, store: Store) -> Self {
        assert!(store.bytes() >= drive.facts().capacity.bytes(), "a store smaller than its drive");
        Self { drive, store, name: name.to_string(), done: Vec::new() }
    }
}

impl Back for Emulated {
    fn facts(&self) -> DriveFacts {
        self.drive.facts()
    }
    fn worst_case_rate(&self) -> Option<u64> {
        Some(self.drive.worst_case_rate())
    }
    fn start(&mut self, job: &Job<'_>, ops: &mut Ops, _: &mut Vec<Answer>) {
        memory::apply(&mut self.store, job, ops);
        let Dispatch { id, operation, flags, start, length } = job.dispatch;
        self.drive.submit(job.now, Command { id: id.0, operation, flags, start, length });
    }
    fn next_event(&self) -> Option<Instant> {
        self.drive.next_event()
    }
    fn advance(&mut self, now: Instant, answers: &mut Vec<Answer>) {
        self.drive.advance(now, &mut self.done);
        let answer = |done: Done| Answer { id: RequestId(done.id), status: done.status };
        answers.extend(self.done.drain(..).map(answer));
    }
    fn extents(&mut self, offset: u64, length: u64, limit: usize) -> Vec<Extent> {
        self.store.extents(offset, length, limit)
    }
    fn grow(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= self.store.bytes() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::StorageFull, "an emulated drive keeps its size"))
    }
    fn busy(&self) -> Option<Nanos> {
        Some(self.drive.busy())
    }
    fn close(&mut self) -> io::Result<()> {
        self.store.sync()
    }
    fn describe(&self) -> String {
        format!("an emulated {} over memory", self.name)
    }
}
