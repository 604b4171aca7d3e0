//! Back ends, which store data: they take dispatched commands and return completions.
//!
//! A back end implements [`Back`] here, and has a row in `places.rs`, where its volumes are stored. It does not choose an
//! order: it executes commands as soon as it can. What the engine relies on:
//!
//! - **Volumes.** A volume is *placed* before its first command and whenever it changes, and *forgotten* once all its
//!   requests are completed.
//! - **Start.** [`Back::start`] takes every command: the engine has at most [`DriveFacts::depth`] of them in flight. The
//!   memory of a command belongs to its requests in [`Ops`], and stays until the command is completed, however late.
//! - **Completions.** Each command is completed exactly once, with 0 or an error number: at once, when its time has come
//!   ([`Back::next_event`], [`Back::advance`]), when the ring has finished its entries ([`Back::take_entries`],
//!   [`Back::on_ring`]), or when another thread has a result ([`Back::take_lookups`], [`Back::on_found`]).
//! - **Durability.** What was written before a flush is durable when the flush is completed with 0; writes that are lost
//!   are reported ([`Back::take_losses`]). [`Back::close`] makes everything durable at the end.
//!
//! A back end has no thread, no clock and no ring of its own: the time is an argument, and its entries and lookups are
//! values that the engine passes on.

pub mod emulated;
pub mod faulty;
pub mod memory;
pub mod store;
#[cfg(test)]
mod testing;
pub(crate) mod uring;
pub mod volume;

use std::ops::Range;
use std::sync::Arc;

use iofair_config::contracts::faults::Faults;
use iofair_core::controller::Dispatch;
use iofair_core::id::RequestId;
use iofair_core::policy::DriveFacts;
use iofair_core::request::Part;
use iofair_core::time::{Instant, Nanos};

pub use crate::back::uring::Storage;
use crate::back::volume::PlannedVolume;
use crate::request::entry::Entry;
use crate::request::extent::Extent;
use crate::request::op::Ops;

/// A command that a back end has finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// The command, as its dispatch named it.
    pub id: RequestId,
    /// 0, or an error number of the operating system.
    pub status: i32,
}

/// A command for a back end.
pub struct Job<'a> {
    /// The present.
    pub now: Instant,
    /// What the engine asks. The name in it is the engine's for this command: the name that the controller
    /// gave may be used again while a late command is still in flight.
    pub dispatch: Dispatch,
    /// The submissions that it stands for, in sector order; [`Ops::piece`] knows what they are.
    pub parts: &'a [Part],
}

/// A command that another thread completes, since the file system may have to wait for the drive: what is stored of
/// a range.
pub struct Lookup {
    /// The command, as its dispatch named it.
    pub command: RequestId,
    /// The request's key in [`Ops`].
    pub op: usize,
    /// Finds it; nothing after an error.
    pub find: Box<dyn FnOnce() -> Vec<Extent> + Send>,
}

/// Writes that were completed before may be lost: making them durable failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Where on the drive.
    pub range: Range<u64>,
    /// The error number.
    pub status: i32,
}

/// What holds the data.
pub trait Back: Send {
    /// The facts that the engine gets.
    fn facts(&self) -> DriveFacts;
    /// The rate in bytes a second that it keeps at its worst, if it knows.
    fn worst_case_rate(&self) -> Option<u64> {
        None
    }
    /// Starts a command. If it completes at once, it is appended to `completed`.
    fn start(&mut self, job: &Job<'_>, ops: &mut Ops, completed: &mut Vec<Completed>);
    /// When something happens next by itself.
    fn next_event(&self) -> Option<Instant> {
        None
    }
    /// Lets everything up to `now` happen.
    fn advance(&mut self, now: Instant, ops: &mut Ops, completed: &mut Vec<Completed>) {
        let _ = (now, ops, completed);
    }
    /// Entries for the reactor's ring since the last call; their `user_data` is a number of the
    /// back end's own, below 2^32.
    fn take_entries(&mut self) -> Option<&mut Vec<Entry>> {
        None
    }
    /// The ring finished an entry.
    fn on_ring(
        &mut self,
        user_data: u32,
        result: i32,
        ops: &mut Ops,
        completed: &mut Vec<Completed>,
    ) {
        let _ = (user_data, result, ops, completed);
    }
    /// Commands for another thread since the last call.
    fn take_lookups(&mut self) -> Option<&mut Vec<Lookup>> {
        None
    }
    /// Another thread has carried a command out, and its request has what was found.
    fn on_found(&mut self, id: RequestId, status: i32, completed: &mut Vec<Completed>) {
        completed.push(Completed { id, status });
    }
    /// Files of volumes that are gone, to be closed by another thread: the kernel may take long to free their blocks.
    fn take_closing(&mut self) -> Option<&mut Vec<Arc<Storage>>> {
        None
    }
    /// Losses since the last call, each once. The operating system reports each only once, to whichever flush comes first.
    fn take_losses(&mut self) -> Option<&mut Vec<Loss>> {
        None
    }
    /// Whether it cannot carry out any request any more.
    fn is_lost(&self) -> bool {
        false
    }
    /// Whether each volume must be made durable separately. Flushes of two volumes are then two commands.
    fn separate_flushes(&self) -> bool {
        false
    }
    /// A volume came, or has a new size.
    fn place(&mut self, volume: &PlannedVolume) {
        let _ = volume;
    }
    /// Faults to make from now on, if it makes any.
    fn set_faults(&mut self, faults: &Faults) {
        let _ = faults;
    }
    /// From now on it uses this timing, if it is an emulated drive.
    fn share_timing(&mut self, timing: &Arc<emulated::Timing>) {
        let _ = timing;
    }
    /// Whether requests that arrive together and follow each other may become one command. A drive gets each as its owner sent it.
    fn merges(&self) -> bool {
        true
    }
    /// Whether to poll for the last microseconds before [`Self::next_event`].
    fn polls(&self) -> bool {
        true
    }
    /// A volume is gone, and all its requests are completed. Late commands may still be in flight.
    fn forget(&mut self, volume: &PlannedVolume) {
        let _ = volume;
    }
    /// Time in which it had a command, where it keeps count itself.
    fn busy(&self) -> Option<Nanos> {
        None
    }
    /// Makes everything durable before the server leaves.
    fn close(&mut self) -> std::io::Result<()>;
    /// What was found out about the drive at the start, for the log.
    fn found(&self) -> Option<&'static str> {
        None
    }
    /// One line on what it is, for people.
    fn describe(&self) -> String;
}
