//! What the anticipatory scheduler knows of processes: how long each thinks, how far it jumps, and of all
//! together how likely one is to exit while it is waited for. One of these a drive, shared by all queues.

use alloc::vec::Vec;

use iofair_core::group::{Change, ClientId};
use iofair_core::request::Request;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_policies::parts::ewma::ThinkTime;
use iofair_policies::parts::seeks::SeekDistance;

/// A pause longer than this counts as so long (`MAX_THINKTIME`, HZ/50 less one tick of a millisecond).
const THOUGHT_MAX: Nanos = Nanos::from_millis(19);
/// Certainty, on the scale of the exit probabilities.
const CERTAIN: u64 = 256;

/// A process that may have exited, and whose client number another may have by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Its number.
    pub client: ClientId,
    birth: u64,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Process {
    /// Which of all processes there ever were.
    birth: u64,
    exited: bool,
    /// It has sent a request that somebody waits for.
    started: bool,
    /// Its last answer to such a request.
    answered: Option<Instant>,
    /// Where its last such request ended.
    last_end: Sectors,
    /// Its requests that wait in some queue.
    queued: u32,
    think: ThinkTime,
    seeks: SeekDistance,
}

/// All processes of a drive.
#[derive(Clone, Default, Debug)]
pub struct Processes {
    by_client: Vec<Process>,
    births: u64,
    /// How likely a process about which nothing is known yet sends nothing more, of 256.
    exit: u64,
    /// How likely an exited process has nobody who goes on in its place, of 256.
    exit_alone: u64,
    /// Averages over the first pauses and jumps of all processes, times 256.
    first_thought: u64,
    first_jump: u64,
}

/// Moves a probability an eighth towards certain.
fn up(probability: &mut u64) {
    *probability = (7 * *probability + CERTAIN) / 8;
}
fn down(probability: &mut u64) {
    *probability = 7 * *probability / 8;
}

impl Processes {
    /// Clients came or went; a client is a process.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::ClientAdded(client) => {
                if self.by_client.len() <= client.index() {
                    self.by_client.resize_with(client.index() + 1, Process::default);
                }
                self.births += 1;
                self.by_client[client.index()] =
                    Process { birth: self.births, ..Process::default() };
            }
            Change::ClientRemoved(client) => self.by_client[client.index()].exited = true,
            _ => {}
        }
    }
    /// The process with this number now.
    pub(super) fn watch(&self, client: ClientId) -> Watched {
        Watched { client, birth: self.by_client[client.index()].birth }
    }
    /// What is known of a watched process; nothing, if it went and its number belongs to another.
    pub(super) fn known(&self, watched: Watched) -> Process {
        let process = self.by_client[watched.client.index()];
        if process.birth == watched.birth {
            return process;
        }
        Process { birth: watched.birth, exited: true, ..Process::default() }
    }
    /// A request comes in from `client`, or one that continues what `client` did.
    pub(super) fn note_request(&mut self, client: ClientId, request: &Request, now: Instant) {
        if !request.is_sync() {
            return;
        }
        let process = &mut self.by_client[client.index()];
        if process.started || process.answered.is_some() {
            let thought = match process.answered {
                Some(answered) if process.queued == 0 => now.since(answered).min(THOUGHT_MAX),
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
    /// The same for one that continues what a watched process did.
    pub(super) fn note_cooperation(&mut self, watched: Watched, request: &Request, now: Instant) {
        let known = self.known(watched);
        if known.exited {
            if known.think.samples() == 0 {
                up(&mut self.exit);
            }
            down(&mut self.exit_alone);
        }
        if self.by_client[watched.client.index()].birth == watched.birth {
            self.note_request(watched.client, request, now);
        }
    }
    pub(super) fn note_queued(&mut self, client: ClientId) {
        self.by_client[client.index()].queued += 1;
    }
    pub(super) fn note_unqueued(&mut self, client: ClientId) {
        self.by_client[client.index()].queued -= 1;
    }
    pub(super) fn note_answer(&mut self, request: &Request, now: Instant) {
        if request.is_sync() {
            self.by_client[request.client.index()].answered = Some(now);
        }
    }
    /// A process was waited for in vain.
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
    /// Would a request so far away be nearer than the process's own next one?
    pub(super) fn is_nearer_than_usual(&self, watched: Watched, distance: Sectors) -> bool {
        match self.known(watched).seeks.mean_so_far() {
            None => self.first_jump / 256 > distance.0,
            Some(mean) => mean > distance,
        }
    }
    /// Is it hopeless to wait `longest` for the process's next request?
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
    /// How likely, of 256, a new process exits while it is waited for, and an exited one has no
    /// successor.
    pub const fn exits(&self) -> [u64; 2] {
        [self.exit, self.exit_alone]
    }
    /// The mean of first pauses, and of first jumps.
    pub const fn newcomers(&self) -> (Nanos, Sectors) {
        (Nanos(self.first_thought / 256), Sectors(self.first_jump / 256))
    }
}
