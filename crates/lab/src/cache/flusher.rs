//! The flusher: writes dirty pages back in chunks of 4 MiB or more, the longest dirty file first.
//!
//! It works while more than the background limit is dirty, or a file has been dirty for 30 s (looked at
//! each 5 s). It stops where the kernel's flusher sleeps: when a request of it waits for a tag, or in a
//! throttle that makes its submitters wait. A throttle that puts requests aside takes them without end, so
//! that only the dirty limits bound what is piled up there. The threads of a virtual machine sleep each on
//! its own: its flusher only has this many requests in flight.
//!
//! A request's pages are collected before it is sent, which takes the flusher's time. A flusher that waited for a tag
//! begins with them when it has one.

use std::collections::VecDeque;

use iofair_core::group::ClientId;
use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use super::Cache;
use crate::client::read_ahead::COST_WINDOW;
use crate::sim::Token;
use crate::world::engine::{Engine, FileRange};

/// The kernel's `dirty_writeback_centisecs`.
pub(crate) const PERIOD: Nanos = Nanos::from_secs(5);
/// The kernel's `dirty_expire_centisecs`.
const EXPIRE: Nanos = Nanos::from_secs(30);

/// Slots of a flusher's timers.
pub(super) const LOOK: u32 = 0;
const COLLECTED: u32 = 1;

/// One flusher.
#[derive(Debug)]
pub(crate) struct Flusher {
    /// Requests in flight at most, of who has a thread for each; others sleep.
    threads: Option<u32>,
    /// In whose name it last sent something.
    sender: Option<ClientId>,
    /// It stopped because it sleeps.
    pub(super) is_asleep: bool,
    /// Dirty files, the next one first.
    pub(super) queue: VecDeque<usize>,
    /// What is left of the present turn.
    chunk_left: Sectors,
    under_way: u32,
    /// The request whose pages it is collecting.
    collecting: Option<FileRange>,
}

impl Flusher {
    pub(super) fn new(threads: Option<u32>) -> Self {
        let queue = VecDeque::new();
        Self {
            threads,
            sender: None,
            is_asleep: false,
            queue,
            chunk_left: Sectors::ZERO,
            under_way: 0,
            collecting: None,
        }
    }
    fn has_thread(&self) -> bool {
        self.threads.is_none_or(|threads| self.under_way < threads)
    }
    /// Time for the pages of a request, if those of 256 KiB take this long. That of a virtual machine is not known.
    fn time_to_collect(&self, window: Nanos, length: Sectors) -> Nanos {
        match self.threads {
            Some(_) => Nanos::ZERO,
            None => Nanos(window.0 * length.bytes() / COST_WINDOW),
        }
    }
    fn send(&mut self, request: FileRange, engine: &mut Engine<'_>) {
        self.sender = Some(request.client);
        self.under_way += engine.send(request);
        if self.threads.is_none() {
            engine.pump();
        }
    }
}

impl Cache {
    /// A flusher looks whether something is to be done. Call after pages became dirty.
    pub(crate) fn write_back(&mut self, file: usize, engine: &mut Engine<'_>) {
        self.flush_domain(self.files[file].setup.domain, engine);
    }
    /// A flusher's periodic look, or the pages of a request are collected.
    pub(crate) fn on_timer(&mut self, Token { actor, slot }: Token, engine: &mut Engine<'_>) {
        let domain = (actor - self.setup.first_actor) as usize;
        if slot == COLLECTED {
            let flusher = &mut self.domains[domain].flusher;
            if let Some(request) = flusher.collecting.take() {
                flusher.send(request, engine);
            }
            return self.flush_domain(domain, engine);
        }
        self.flush_domain(domain, engine);
        engine.wake(engine.now + PERIOD, self.token(domain));
    }
    /// One of a flusher's requests is completed.
    pub(crate) fn on_done(&mut self, actor: u32, length: Sectors, engine: &mut Engine<'_>) {
        let domain = (actor - self.setup.first_actor) as usize;
        let state = &mut self.domains[domain];
        state.throttle.written(length);
        state.flusher.under_way -= 1;
        self.flush_domain(domain, engine);
    }

    /// Sleeping flushers look whether they can go on.
    pub(crate) fn go_on(&mut self, engine: &mut Engine<'_>) {
        for domain in 0..self.domains.len() {
            if core::mem::take(&mut self.domains[domain].flusher.is_asleep) {
                self.flush_domain(domain, engine);
            }
        }
    }

    fn flush_domain(&mut self, index: usize, engine: &mut Engine<'_>) {
        let token = self.token(index);
        let domain = &mut self.domains[index];
        let (throttle, flusher) = (&mut domain.throttle, &mut domain.flusher);
        while flusher.has_thread() && flusher.collecting.is_none() {
            let Some(file) = flusher.queue.front() else { return };
            let file = &mut self.files[*file];
            flusher.is_asleep =
                flusher.threads.is_none() && flusher.sender.is_some_and(|it| engine.is_asleep(it));
            if flusher.is_asleep {
                return;
            }
            let expired = file.dirty_since + EXPIRE <= engine.now;
            if !expired && !throttle.is_above_background() {
                return;
            }
            if flusher.chunk_left == Sectors::ZERO {
                flusher.chunk_left = Sectors::from_bytes_ceil(throttle.chunk());
            }
            let run = file.pages.take(self.setup.longest.min(flusher.chunk_left));
            if let Some((offset, length)) = run {
                throttle.sent(length);
                flusher.chunk_left = Sectors(flusher.chunk_left.0.saturating_sub(length.0));
                let range = FileRange {
                    // Whose bytes they are, for the count of what reached the drive.
                    token: Token { slot: file.setup.owner, ..token },
                    client: file.setup.client,
                    operation: Operation::Write,
                    flags: file.setup.flags,
                    file: file.setup.file,
                    offset,
                    length,
                    longest: self.setup.longest,
                };
                match flusher.time_to_collect(self.setup.collect_window, length) {
                    Nanos::ZERO => flusher.send(range, engine),
                    time => {
                        flusher.collecting = Some(range);
                        let token = Token { slot: COLLECTED, ..token };
                        engine.wake_after(engine.now + time, time, token);
                    }
                }
            }
            let turn_over = flusher.chunk_left == Sectors::ZERO || file.pages.count() == 0;
            if turn_over {
                flusher.chunk_left = Sectors::ZERO;
                let front = flusher.queue.pop_front().expect("just looked at");
                file.queued = file.pages.count() > 0;
                if file.queued {
                    // What is dirty now is younger than what was just written.
                    file.dirty_since = engine.now;
                    flusher.queue.push_back(front);
                }
            }
        }
    }
}
