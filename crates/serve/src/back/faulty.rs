//! Fault injection: a back end that fails on purpose, in front of a real one.
//!
//! Rules decide which command gets which fault (`iofair_drive::fault`). A command that fails or never completes does
//! not reach the real back end. A delayed one does, and its completion waits. A late one reaches it only after the
//! delay, like a command of a drive that hangs and recovers. A short one reaches a file, and the result is halved to
//! whole pages, so that the file back end requests the rest; if there is no half, or no file, the command fails.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use iofair_config::contracts::faults::{Fault as Wanted, FaultRule, Faults, FaultyOperation};
use iofair_core::controller::Dispatch;
use iofair_core::id::RequestId;
use iofair_core::policy::DriveFacts;
use iofair_core::request::{Operation, Part};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::{SECTOR_BYTES, Sectors};
use iofair_drive::Command;
use iofair_drive::fault::{self, Fault, Rule};

use super::{Back, Completed, Job, Lookup, Loss};
use crate::back::uring::Storage;
use crate::back::volume::PlannedVolume;
use crate::request::entry::Entry;
use crate::request::op::Ops;

/// A half of a command is whole pages.
const PAGE: i32 = 4096;

/// A back end that fails on purpose.
pub struct Faulty {
    inner: Box<dyn Back>,
    wanted: Faults,
    faults: fault::Faults,
    volumes: Vec<PlannedVolume>,
    /// Commands whose completions wait, with the instant that they wait for.
    delayed: Vec<(RequestId, Instant)>,
    /// Completions that wait, the next one on top: instant, command, status.
    waiting: BinaryHeap<Reverse<(Instant, u32, i32)>>,
    /// The inner back end's entries on the ring whose completions are halved.
    halved: Vec<u32>,
    /// Commands that are carried out later, in the order of when. The engine keeps their memory until they are completed.
    late: Vec<Late>,
    completed: Vec<Completed>,
}

/// A command that is carried out later.
struct Late {
    due: Instant,
    dispatch: Dispatch,
    parts: Vec<Part>,
}

impl Faulty {
    /// Wraps a back end, without any rules yet.
    pub fn new(inner: Box<dyn Back>) -> Self {
        Self {
            inner,
            wanted: Faults::default(),
            faults: fault::Faults::new(0),
            volumes: Vec::new(),
            delayed: Vec::new(),
            waiting: BinaryHeap::new(),
            halved: Vec::new(),
            late: Vec::new(),
            completed: Vec::new(),
        }
    }
    fn set_rules(&mut self) {
        let rules = self.wanted.rules.iter();
        self.faults.set_rules(rules.flat_map(|wanted| self.rules(wanted)).collect());
    }
    /// One rule a piece of a volume that it is about.
    fn rules(&self, wanted: &FaultRule) -> Vec<Rule> {
        let operations: &[Operation] = match wanted.operation {
            None => &[],
            Some(FaultyOperation::Read) => &[Operation::Read],
            Some(FaultyOperation::Write) => &[Operation::Write],
            Some(FaultyOperation::Flush) => &[Operation::Flush],
            Some(FaultyOperation::Discard) => &[Operation::Discard, Operation::WriteZeroes],
        };
        let fault = match wanted.fault {
            Wanted::Eio => Fault::Status(libc::EIO),
            Wanted::Enospc => Fault::Status(libc::ENOSPC),
            Wanted::Short => Fault::Short,
            Wanted::Never => Fault::Never,
            Wanted::Delay(delay) => Fault::Delay(delay),
            Wanted::Late(delay) => Fault::Late(delay),
        };
        let chances = wanted.per_million;
        let rule = |range: Range<u64>| {
            let end = Sectors(range.end.div_ceil(SECTOR_BYTES));
            let range = Sectors(range.start / SECTOR_BYTES)..end;
            Rule { fault, operations, range, chances }
        };
        if wanted.volume.is_none() && wanted.range.is_none() {
            return vec![rule(0..u64::MAX)];
        }
        let about = self
            .volumes
            .iter()
            .filter(|volume| wanted.volume.as_ref().is_none_or(|name| *name == volume.name));
        let within = wanted.range.clone().unwrap_or(0..u64::MAX);
        let part = |size: u64| within.start.min(size)..within.end.min(size);
        let ranges = about.flat_map(|volume| volume.map.places(part(volume.size)));
        ranges.filter(|range| !range.is_empty()).map(rule).collect()
    }
    /// Passes completions of the inner back end on, or delays them.
    fn pass(&mut self, completed: &mut Vec<Completed>) {
        for done in self.completed.drain(..) {
            let delayed = self.delayed.iter().position(|(id, _)| *id == done.id);
            match delayed.map(|index| self.delayed.swap_remove(index)) {
                Some((id, due)) => self.waiting.push(Reverse((due, id.0, done.status))),
                None => completed.push(done),
            }
        }
    }
    /// Starts a command that the kernel completes with half of its length, or fails it.
    fn start_short(&mut self, job: &Job<'_>, ops: &mut Ops, completed: &mut Vec<Completed>) {
        let data = matches!(job.dispatch.operation, Operation::Read | Operation::Write);
        let before = self.inner.take_entries().filter(|_| data).map(|entries| entries.len());
        let Some(before) = before else {
            return completed.push(Completed { id: job.dispatch.id, status: libc::EIO });
        };
        self.inner.start(job, ops, &mut self.completed);
        if let Some(entries) = self.inner.take_entries() {
            let fresh = entries[before..].iter().map(|entry| entry.get_user_data() as u32);
            self.halved.extend(fresh);
        }
    }
}

impl Back for Faulty {
    fn facts(&self) -> DriveFacts {
        self.inner.facts()
    }
    fn worst_case_rate(&self) -> Option<u64> {
        self.inner.worst_case_rate()
    }
    fn start(&mut self, job: &Job<'_>, ops: &mut Ops, completed: &mut Vec<Completed>) {
        let Dispatch { id, operation, flags, mut start, length, .. } = job.dispatch;
        if operation == Operation::Flush
            && let Some(part) = job.parts.first()
        {
            start = Sectors(ops.piece(part).offset / SECTOR_BYTES);
        }
        match self.faults.draw(&Command { id: id.0, operation, flags, start, length }) {
            Some(Fault::Status(status)) => return completed.push(Completed { id, status }),
            Some(Fault::Never) => return,
            Some(Fault::Late(delay)) => {
                let due = job.now + delay;
                let place = self.late.partition_point(|late| late.due <= due);
                let (dispatch, parts) = (job.dispatch, job.parts.to_vec());
                return self.late.insert(place, Late { due, dispatch, parts });
            }
            Some(Fault::Short) => self.start_short(job, ops, completed),
            Some(Fault::Delay(delay)) => {
                self.delayed.push((id, job.now + delay));
                self.inner.start(job, ops, &mut self.completed);
            }
            None => self.inner.start(job, ops, &mut self.completed),
        }
        self.pass(completed);
    }
    fn next_event(&self) -> Option<Instant> {
        let waiting = self.waiting.peek().map(|Reverse((due, _, _))| *due);
        let late = self.late.first().map(|late| late.due);
        self.inner.next_event().into_iter().chain(waiting).chain(late).min()
    }
    fn advance(&mut self, now: Instant, ops: &mut Ops, completed: &mut Vec<Completed>) {
        while self.late.first().is_some_and(|late| late.due <= now) {
            let Late { dispatch, parts, .. } = self.late.remove(0);
            self.inner.start(&Job { now, dispatch, parts: &parts }, ops, &mut self.completed);
        }
        self.inner.advance(now, ops, &mut self.completed);
        self.pass(completed);
        while let Some(Reverse((due, id, status))) = self.waiting.peek().copied() {
            if due > now {
                break;
            }
            self.waiting.pop();
            completed.push(Completed { id: RequestId(id), status });
        }
    }
    fn take_entries(&mut self) -> Option<&mut Vec<Entry>> {
        self.inner.take_entries()
    }
    fn on_ring(
        &mut self,
        user_data: u32,
        result: i32,
        ops: &mut Ops,
        completed: &mut Vec<Completed>,
    ) {
        let halved = self.halved.iter().position(|other| *other == user_data);
        let result = match halved.map(|index| self.halved.swap_remove(index)) {
            Some(_) if result > 0 => result / 2 / PAGE * PAGE,
            _ => result,
        };
        self.inner.on_ring(user_data, result, ops, &mut self.completed);
        self.pass(completed);
    }
    fn take_lookups(&mut self) -> Option<&mut Vec<Lookup>> {
        self.inner.take_lookups()
    }
    fn on_found(&mut self, id: RequestId, status: i32, completed: &mut Vec<Completed>) {
        self.inner.on_found(id, status, &mut self.completed);
        self.pass(completed);
    }
    fn take_closing(&mut self) -> Option<&mut Vec<Arc<Storage>>> {
        self.inner.take_closing()
    }
    fn take_losses(&mut self) -> Option<&mut Vec<Loss>> {
        self.inner.take_losses()
    }
    fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }
    fn separate_flushes(&self) -> bool {
        self.inner.separate_flushes()
    }
    fn place(&mut self, volume: &PlannedVolume) {
        self.volumes.retain(|known| known.id != volume.id);
        self.volumes.push(volume.clone());
        self.set_rules();
        self.inner.place(volume);
    }
    fn set_faults(&mut self, faults: &Faults) {
        if self.wanted != *faults {
            self.wanted = faults.clone();
            self.faults = fault::Faults::new(faults.seed);
            self.set_rules();
        }
    }
    fn forget(&mut self, volume: &PlannedVolume) {
        self.volumes.retain(|known| known.id != volume.id);
        self.set_rules();
        self.inner.forget(volume);
    }
    fn busy(&self) -> Option<Nanos> {
        self.inner.busy()
    }
    fn close(&mut self) -> std::io::Result<()> {
        self.inner.close()
    }
    fn describe(&self) -> String {
        format!("{}, with faults on purpose", self.inner.describe())
    }
}
