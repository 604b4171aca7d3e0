//! The ring: one io_uring for sockets, the back end's I/O, and the wake-ups of a reactor.

use std::io;

use io_uring::{IoUring, cqueue, types};
use iofair_core::time::{Instant, Nanos};

use super::busy_poll::{BusyPoll, POLL_MAX};
use crate::clock::Clock;
use crate::request::entry::Entry;

/// Entries that may be queued before they are handed to the kernel.
const ENTRIES: u32 = 512;
/// Completions that fit into the queue before the kernel must buffer them.
const COMPLETIONS: u32 = 4096;

/// Kinds from here on are slots of endpoints.
const ENDPOINT: u16 = 16;

/// The recipient of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// A listener has a new connection.
    Accept(u32),
    /// An entry of an endpoint; slot and part tell the endpoint which.
    Endpoint { key: u32, slot: u8, part: u16 },
    /// The back end's entry.
    Back(u32),
    /// Another thread has a message.
    Wake,
    /// None: the completion is ignored.
    Nobody,
}

impl Target {
    fn encode(self) -> u64 {
        let (part, kind, index) = match self {
            Self::Accept(index) => (0, 0u64, index),
            Self::Back(index) => (0, 1, index),
            Self::Wake => (0, 2, 0),
            Self::Nobody => (0, 3, 0),
            Self::Endpoint { key, slot, part } => {
                (part, u64::from(ENDPOINT) + u64::from(slot), key)
            }
        };
        u64::from(part) << 48 | kind << 32 | u64::from(index)
    }
    fn decode(data: u64) -> Self {
        let (index, part) = (data as u32, (data >> 48) as u16);
        match (data >> 32) as u16 {
            0 => Self::Accept(index),
            1 => Self::Back(index),
            2 => Self::Wake,
            3 => Self::Nobody,
            kind => Self::Endpoint { key: index, slot: (kind - ENDPOINT) as u8, part },
        }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) target: Target,
    pub(super) result: i32,
    /// Whether the same entry will complete again.
    pub(super) more: bool,
}

/// How long to wait for a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Not at all.
    Poll,
    /// At most this long.
    For(Nanos),
    /// Until something happens.
    Forever,
}

pub(crate) struct Ring {
    ring: IoUring,
    busy_poll: BusyPoll,
}

impl Ring {
    /// A ring for the calling thread. Newer flags are left out where the kernel does not know them.
    pub(super) fn new() -> io::Result<Self> {
        let mut best = IoUring::builder();
        best.setup_cqsize(COMPLETIONS).setup_clamp().setup_single_issuer().setup_submit_all();
        best.setup_coop_taskrun().setup_taskrun_flag().setup_defer_taskrun();
        let mut newest = best.clone();
        newest.setup_no_sqarray();
        let mut plain = IoUring::builder();
        plain.setup_cqsize(COMPLETIONS).setup_clamp();
        let tried = newest.build(ENTRIES).or_else(|_| best.build(ENTRIES));
        let ring = tried.or_else(|_| plain.build(ENTRIES));
        Ok(Self { ring: ring?, busy_poll: BusyPoll::default() })
    }
    /// Queues an entry.
    pub(super) fn push(&mut self, entry: Entry, target: Target) -> io::Result<()> {
        let entry = entry.user_data(target.encode());
        loop {
            // SAFETY: the entry's maker vouches for the memory that it names (see `Entry::new`), and it is used up here.
            if unsafe { self.ring.submission().push(entry.as_raw()) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }
    /// Queues an entry that ends the one of a target, whatever it waits for.
    pub(super) fn cancel(&mut self, target: Target, notify: Target) -> io::Result<()> {
        self.push(Entry::cancel(target.encode()), notify)
    }
    /// Hands queued entries to the kernel.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
    /// Polls for a moment if a completion is expected soon.
    fn busy_poll(&mut self, wait: Wait) -> io::Result<()> {
        let limit = match wait {
            Wait::Poll => return Ok(()),
            Wait::For(time) => POLL_MAX.min(time),
            Wait::Forever => POLL_MAX,
        };
        if !self.busy_poll.is_promising() {
            return Ok(());
        }
        self.submit()?;
        let clock = Clock::start();
        let mut seen = self.has_completion();
        while !seen && clock.now().since(Instant::ZERO) < limit {
            std::hint::spin_loop();
            seen = self.has_completion();
        }
        self.busy_poll.ended(seen);
        Ok(())
    }
    /// Whether there is a completion, or there will be one after a system call.
    fn has_completion(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }
    /// Submits queued entries to the kernel, waits, and appends the completions that are there.
    pub(super) fn turn(&mut self, wait: Wait, events: &mut Vec<Event>) -> io::Result<()> {
        self.busy_poll(wait)?;
        let result = match wait {
            Wait::Poll => self.ring.submit(),
            Wait::Forever => self.ring.submit_and_wait(1),
            Wait::For(time) => {
                let (seconds, nanos) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
                let timespec = types::Timespec::new().sec(seconds).nsec(nanos as u32);
                let arguments = types::SubmitArgs::new().timespec(&timespec);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
        };
        match result {
            Err(error) if !is_transient(&error) => return Err(error),
            _ => {}
        }
        let before = events.len();
        events.extend(self.ring.completion().map(|entry| Event {
            target: Target::decode(entry.user_data()),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        }));
        self.busy_poll.turned(events.len() - before);
        Ok(())
    }
}

/// A timeout, a signal, or a full completion queue: in each case, completions are collected next.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}
