//! A drive model as a device, in simulated time.

use std::collections::VecDeque;
use std::io;

use iofair_core::policy::DriveFacts;
use iofair_core::request::Flags;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;

use super::{Completion, Device, Request};
use crate::{Command, Done, Drive};

/// A drive whose host has no costs: a request is submitted in the instant in which it is sent.
pub struct Simulated {
    drive: Box<dyn Drive + Send>,
    now: Instant,
    /// Requests in the drive, and requests for which it has no slot.
    in_drive: u32,
    queued: VecDeque<Command>,
    done: Vec<Done>,
}

impl Simulated {
    /// A drive at rest.
    pub fn new(drive: Box<dyn Drive + Send>) -> Self {
        let (queued, done) = (VecDeque::new(), Vec::new());
        Self { drive, now: Instant::ZERO, in_drive: 0, queued, done }
    }
    fn fill(&mut self) {
        while self.in_drive < self.drive.facts().depth {
            let Some(command) = self.queued.pop_front() else { return };
            self.in_drive += 1;
            self.drive.submit(self.now, command);
        }
    }
}

impl Device for Simulated {
    fn facts(&self) -> DriveFacts {
        self.drive.facts()
    }
    fn now(&mut self) -> Instant {
        self.now
    }
    fn submit(&mut self, request: Request) -> io::Result<()> {
        let Request { tag, operation, durable, offset, bytes } = request;
        let flags = if durable { Flags::FUA } else { Flags::NONE };
        let (start, length) = (Sectors(offset / 512), Sectors(bytes / 512));
        self.queued.push_back(Command { id: tag, operation, flags, start, length });
        self.fill();
        Ok(())
    }
    fn wait(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        while self.done.is_empty() {
            let Some(at) = self.drive.next_event().filter(|at| *at <= until) else {
                self.now = self.now.max(until);
                return Ok(());
            };
            self.drive.advance(at, &mut self.done);
            self.now = self.now.max(at);
        }
        for completion in self.done.drain(..) {
            self.in_drive -= 1;
            if completion.status != 0 {
                return Err(io::Error::from_raw_os_error(completion.status));
            }
            done.push(Completion { tag: completion.id, at: completion.at });
        }
        self.fill();
        Ok(())
    }
}
