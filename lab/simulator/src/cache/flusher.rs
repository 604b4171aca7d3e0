//! The flusher: writes dirty pages back in chunks of 4 MiB or more, the longest dirty file first.
//!
//! It works while more than the background limit is dirty, or a file has been dirty for 30 s (looked at
//! each 5 s). It stops where the kernel's flusher sleeps: when a request of it waits for a tag, or in a
//! throttle that makes its submitters wait. A throttle that queues requests accepts any number, so that only the dirty
//! limits bound its queue. The threads of a virtual machine sleep independently: its flusher only has a limited number
//! of requests in flight.
//!
//! A request's pages are collected before it is sent, which takes the flusher's time. A flusher that waited for a tag
//! begins with them when it has one.

use std::collections::VecDeque;

use iofair_core::id::ClientId;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use super::pages::COST_WINDOW;
use crate::engine::{Engine, FileRange};

/// The kernel's `dirty_writeback_centisecs`.
pub(crate) const PERIOD: Nanos = Nanos::from_secs(5);
/// The kernel's `dirty_expire_centisecs`.
pub(super) const EXPIRE: Nanos = Nanos::from_secs(30);

/// Slots of a flusher's timers.
pub(super) const LOOK: u32 = 0;
pub(super) const COLLECTED: u32 = 1;

/// One flusher.
#[derive(Debug)]
pub(crate) struct Flusher {
    /// Most requests in flight of a flusher with one thread for each request; other flushers sleep.
    pub(super) threads: Option<u32>,
    /// The client of its last request.
    pub(super) sender: Option<ClientId>,
    /// It stopped because it sleeps.
    pub(super) is_asleep: bool,
    /// Dirty files, the next one first.
    pub(super) queue: VecDeque<usize>,
    /// What is left of the present turn.
    pub(super) chunk_left: Sectors,
    pub(super) under_way: u32,
    /// The request whose pages it is collecting.
    pub(super) collecting: Option<FileRange>,
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
    pub(super) fn has_thread(&self) -> bool {
        self.threads.is_none_or(|threads| self.under_way < threads)
    }
    /// Time for the pages of a request, if those of 256 KiB take this long. That of a virtual machine is not known.
    pub(super) fn time_to_collect(&self, window: Nanos, length: Sectors) -> Nanos {
        match self.threads {
            Some(_) => Nanos::ZERO,
            None => Nanos(window.0 * length.bytes() / COST_WINDOW),
        }
    }
    pub(super) fn send(&mut self, request: FileRange, engine: &mut Engine<'_>) {
        self.sender = Some(request.client);
        self.under_way += engine.send(request);
        if self.threads.is_none() {
            engine.pump();
        }
    }
}
