//! What takes too long for the reactor's own thread: TLS handshakes, which cost up to a millisecond of processor time,
//! and block status, for which a file system may have to read from the drive.
//!
//! Each kind has a thread of its own, made when it is first needed, that does one task after the other. Bounded: a
//! connection has one task of each kind at most, a group one block status; how many handshakes there are is bounded
//! with the clients that have not chosen a volume. The time that a task took is charged to whoever asked for it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use iofair_core::time::Nanos;

use super::fair::Account;
use crate::back::{Extent, ExtentsTask};
use crate::clock::thread_time;
use crate::front::tls::{Channel, Stage};
use crate::wake;

/// How much less than others a thread with handshakes gets of a busy processor.
const NICE: libc::c_int = 5;

/// What there is to do.
pub(super) enum Task {
    Handshake(Box<Channel>),
    Extents(ExtentsTask),
}

/// What came of it.
pub(super) enum Outcome {
    Handshake(Handshake),
    Extents(Vec<Extent>),
}

/// A channel after one step of its handshake.
pub(super) struct Handshake {
    pub(super) channel: Box<Channel>,
    pub(super) stage: Result<Stage, rustls::Error>,
    /// What the client said after it was over.
    pub(super) plain: Vec<u8>,
    /// What TLS itself has to say.
    pub(super) sealed: Vec<u8>,
}

/// A task that is done.
pub(super) struct Done {
    pub(super) key: usize,
    pub(super) account: Account,
    pub(super) time: Nanos,
    pub(super) outcome: Outcome,
}

type Ordered = (usize, Account, Task);

/// The threads. They end with it.
pub(super) struct Workers {
    handshakes: Option<Sender<Ordered>>,
    extents: Option<Sender<Ordered>>,
    done: Receiver<Done>,
    report: Sender<Done>,
    wake: Arc<OwnedFd>,
    /// Accounts with a block status under way.
    asking: Vec<Account>,
}

impl Workers {
    /// None yet; `wake` is written when a task is done.
    pub(super) fn new(wake: &OwnedFd) -> io::Result<Self> {
        let (report, done) = mpsc::channel();
        let wake = Arc::new(wake.try_clone()?);
        Ok(Self { handshakes: None, extents: None, done, report, wake, asking: Vec::new() })
    }
    /// Begins a task for an endpoint, or gives it back: the group has one already, or there is no thread.
    pub(super) fn begin(&mut self, key: usize, account: Account, task: Task) -> Result<(), Task> {
        let (is_extents, sender) = match task {
            Task::Extents(_) if self.asking.contains(&account) => return Err(task),
            Task::Extents(_) => (true, &mut self.extents),
            Task::Handshake(_) => (false, &mut self.handshakes),
        };
        if sender.is_none() {
            let name = if is_extents { "block status" } else { "handshakes" };
            *sender = spawn(name, self.report.clone(), self.wake.clone());
        }
        let Some(thread) = sender else { return Err(task) };
        thread.send((key, account, task)).map_err(|refused| refused.0.2)?;
        if is_extents {
            self.asking.push(account);
        }
        Ok(())
    }
    /// A task that is done, if there is one.
    pub(super) fn next_done(&mut self) -> Option<Done> {
        let done = self.done.try_recv().ok()?;
        if matches!(done.outcome, Outcome::Extents(_)) {
            self.asking.retain(|account| *account != done.account);
        }
        Some(done)
    }
}

fn spawn(name: &str, report: Sender<Done>, wake: Arc<OwnedFd>) -> Option<Sender<Ordered>> {
    let (tasks, inbox) = mpsc::channel::<Ordered>();
    let work = move || {
        // SAFETY: sets one number of the calling thread; a refusal leaves it as it is.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        while let Ok((key, account, task)) = inbox.recv() {
            let before = thread_time();
            let outcome = carry_out(task);
            let time = thread_time().saturating_sub(before);
            if report.send(Done { key, account, time, outcome }).is_err() {
                return;
            }
            wake::signal(&wake);
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(work).ok()?;
    Some(tasks)
}

fn carry_out(task: Task) -> Outcome {
    match task {
        Task::Handshake(mut channel) => {
            let (mut plain, mut sealed) = (Vec::new(), Vec::new());
            let stage = channel.open(|bytes| plain.extend_from_slice(bytes), &mut sealed);
            Outcome::Handshake(Handshake { channel, stage, plain, sealed })
        }
        Task::Extents(task) => Outcome::Extents(task()),
    }
}
