//! What the anticipatory scheduler knows of processes: how long each thinks, how far it jumps, and of all
//! together how likely one is to exit while it is waited for. One of these a drive, shared by all queues.

use alloc::vec::Vec;

use iofair_core::group::Change;
use iofair_core::id::ClientId;
use iofair_core::request::Request;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_policies::parts::ewma::ThinkTime;
use iofair_policies::parts::seeks::SeekDistance;

/// Longer pauses count as this long (`MAX_THINKTIME`, HZ/50 minus one tick of a millisecond).
const THOUGHT_MAX: Nanos = Nanos::from_millis(19);
/// Certainty, on the scale of the exit probabilities.
const CERTAIN: u64 = 256;

/// A reference to a process that may have exited; its client number may have been reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Its number.
    pub client: ClientId,
    serial: u64,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Process {
    /// The serial number of the process among all that ever existed.
    serial: u64,
    exited: bool,
    /// Whether it has sent a synchronous request.
    started: bool,
    /// Its last completion of such a request.
    completed: Option<Instant>,
    /// The end of its last such request.
    last_end: Sectors,
    /// Number of its queued requests.
    queued: u32,
    think: ThinkTime,
    seeks: SeekDistance,
}

/// All processes of a drive.
#[derive(Clone, Default, Debug)]
pub struct Processes {
    by_client: Vec<Process>,
    created: u64,
    /// The probability, out of 256, that a process without history sends nothing more.
    exit: u64,
    /// The probability, out of 256, that no other process continues in the place of an exited one.
    exit_alone: u64,
    /// Averages over the first pauses and jumps of all processes, times 256.
    first_thought: u64,
    first_jump: u64,
}

/// Moves a probability an eighth of the way towards certainty.
fn up(probability: &mut u64) {
    *probability = (7 * *probability + CERTAIN) / 8;
}
fn down(probability: &mut u64) {
    *probability = 7 * *probability / 8;
}

impl Processes {
    /// Handles clients that were added or removed; a client is a process.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::ClientAdded(client) => {
                if self.by_client.len() <= client.index() {
                    self.by_client.resize_with(client.index() + 1, Process::default);
                }
                self.created += 1;
                self.by_client[client.index()] =
                    Process { serial: self.created, ..Process::default() };
            }
            Change::ClientRemoved(client) => self.by_client[client.index()].exited = true,
            _ => {}
        }
    }
    /// A reference to the process with this number now.
    pub(super) fn watch(&self, client: ClientId) -> Watched {
        Watched { client, serial: self.by_client[client.index()].serial }
    }
    /// The state of a watched process; empty if it exited and its number was reused.
    pub(super) fn known(&self, watched: Watched) -> Process {
        let process = self.by_client[watched.client.index()];
        if process.serial == watched.serial {
            return process;
        }
        Process { serial: watched.serial, exited: true, ..Process::default() }
    }
    /// Records a request of `client`, or one that continues the work of `client`.
    pub(super) fn note_request(&mut self, client: ClientId, request: &Request, now: Instant) {
        if !request.is_sync() {
            return;
        }
        let process = &mut self.by_client[client.index()];
        if process.started || process.completed.is_some() {
            let thought = match process.completed {
                Some(completed) if process.queued == 0 => now.since(completed).min(THOUGHT_MAX),
                _ => Nanos::ZERO,
            };
            if process.think.samples() == 0 {
                self.first_thought = (7 * self.first_thought + 256 * thought.0) / 8;
                down(&mut self.exit);
            }
            process.think.add(thought);
            let jump = process.last_end.distance(request.start);
            if process.seeks.samples() == 0 {
                self.first_jump = (7 * self.first_jump + 256 * jump.0) / 8;
            }
            process.seeks.add(jump);
        }
        process.last_end = request.end();
        process.started = true;
    }
    /// The same for a request that continues the work of a watched process.
    pub(super) fn note_cooperation(&mut self, watched: Watched, request: &Request, now: Instant) {
        let known = self.known(watched);
        if known.exited {
            if known.think.samples() == 0 {
                up(&mut self.exit);
            }
            down(&mut self.exit_alone);
        }
        if self.by_client[watched.client.index()].serial == watched.serial {
            self.note_request(watched.client, request, now);
        }
    }
    pub(super) fn note_queued(&mut self, client: ClientId) {
        self.by_client[client.index()].queued += 1;
    }
    pub(super) fn note_unqueued(&mut self, client: ClientId) {
        self.by_client[client.index()].queued -= 1;
    }
    pub(super) fn note_completion(&mut self, request: &Request, now: Instant) {
        if request.is_sync() {
            self.by_client[request.client.index()].completed = Some(now);
        }
    }
    /// Records that idling for a process was in vain.
    pub(super) fn note_in_vain(&mut self, watched: Watched) {
        let known = self.known(watched);
        if known.think.samples() == 0 {
            up(&mut self.exit);
        }
        if known.exited {
            up(&mut self.exit_alone);
        }
    }
    pub(super) fn has_queued(&self, watched: Watched) -> bool {
        self.known(watched).queued > 0
    }
    /// Whether a request at this distance is nearer than the process's next request usually is.
    pub(super) fn is_nearer_than_usual(&self, watched: Watched, distance: Sectors) -> bool {
        match self.known(watched).seeks.mean_so_far() {
            None => self.first_jump / 256 > distance.0,
            Some(mean) => mean > distance,
        }
    }
    /// Whether idling up to `longest` for the process's next request is hopeless.
    pub(super) fn is_hopeless(&mut self, watched: Watched, longest: Nanos) -> bool {
        let known = self.known(watched);
        if known.exited {
            if known.think.samples() == 0 {
                up(&mut self.exit);
            }
            if self.exit_alone > CERTAIN / 2 {
                return true;
            }
        }
        match known.think.mean_so_far() {
            Some(mean) => mean > longest,
            None => {
                let exits_alone = self.exit * self.exit_alone > CERTAIN * CERTAIN / 2;
                self.first_thought / 256 > longest.0 || exits_alone
            }
        }
    }
    /// The probabilities, out of 256, that a new process exits while the scheduler idles for it, and that an exited
    /// process has no successor.
    pub const fn exits(&self) -> [u64; 2] {
        [self.exit, self.exit_alone]
    }
    /// The mean of first pauses, and of first jumps.
    pub const fn newcomers(&self) -> (Nanos, Sectors) {
        (Nanos(self.first_thought / 256), Sectors(self.first_jump / 256))
    }
}
