//! Work that takes too long for the reactor's thread: TLS handshakes, which take up to a millisecond of processor
//! time; block status, for which a file system may have to read from the drive; and closing files of removed volumes,
//! whose blocks the kernel may free then.
//!
//! Each kind of work has its own thread, started when first needed, that does one task after the other. Bounded: a
//! connection has at most one handshake, and the number of clients that have not chosen a volume is limited; a block
//! status is a dispatched command, of which a group has at most one in flight. The time of a task is charged to the
//! account that requested it; time for removals by the operator is charged to none.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use iofair_core::id::RequestId;
use iofair_core::time::Nanos;

use crate::clock::thread_time;
use crate::port::{Account, Lookup, Storage};
use crate::request::extent::Extent;
use crate::wake;

/// How much less than others a thread with handshakes gets of a busy processor.
const NICE: libc::c_int = 5;

/// Work of an endpoint. It sends its result to the endpoint itself.
pub(crate) type Work = Box<dyn FnOnce() + Send>;
type Task = Box<dyn FnOnce() -> Outcome + Send>;

/// What came of a task.
pub(super) enum Outcome {
    /// This endpoint's work is done.
    Endpoint { key: usize },
    /// For this command, by the names in its [`Lookup`].
    Found { command: RequestId, op: usize, extents: Vec<Extent> },
}

/// A task that is done.
pub(super) struct Done {
    pub(super) account: Account,
    pub(super) time: Nanos,
    pub(super) outcome: Outcome,
}

/// The threads. They end with it.
pub(crate) struct Workers {
    handshakes: Option<Sender<(Account, Task)>>,
    lookups: Option<Sender<(Account, Task)>>,
    closing: Option<Sender<Arc<Storage>>>,
    done: Receiver<Done>,
    report: Sender<Done>,
    wake: Arc<OwnedFd>,
}

impl Workers {
    /// None yet; `wake` is written when a task is done.
    pub(super) fn new(wake: &OwnedFd) -> io::Result<Self> {
        let (report, done) = mpsc::channel();
        let wake = Arc::new(wake.try_clone()?);
        Ok(Self { handshakes: None, lookups: None, closing: None, done, report, wake })
    }
    /// Begins work of an endpoint, unless there is no thread for it.
    pub(super) fn begin(&mut self, key: usize, account: Account, work: Work) -> bool {
        let task = Box::new(move || {
            work();
            Outcome::Endpoint { key }
        });
        let thread = thread(&mut self.handshakes, "handshakes", &self.report, &self.wake);
        thread.is_some_and(|thread| thread.send((account, task)).is_ok())
    }
    /// Begins a block status, unless there is no thread for it.
    pub(super) fn look_up(&mut self, account: Account, lookup: Lookup) -> bool {
        let Lookup { command, op, find } = lookup;
        let task = Box::new(move || Outcome::Found { command, op, extents: find() });
        let thread = thread(&mut self.lookups, "block status", &self.report, &self.wake);
        thread.is_some_and(|thread| thread.send((account, task)).is_ok())
    }
    /// Lets go of a file; without a thread for it, here.
    pub(super) fn close(&mut self, storage: Arc<Storage>) {
        if self.closing.is_none() {
            let (files, inbox) = mpsc::channel();
            let work = move || inbox.into_iter().for_each(drop);
            let thread = std::thread::Builder::new().name("closing".into()).spawn(work);
            self.closing = thread.is_ok().then_some(files);
        }
        if let Some(thread) = &self.closing {
            // A refusal drops it as well.
            let _ = thread.send(storage);
        }
    }
    /// A task that is done, if there is one.
    pub(super) fn next_done(&mut self) -> Option<Done> {
        self.done.try_recv().ok()
    }
}

/// A thread that is there, or is made now.
fn thread<'a>(
    thread: &'a mut Option<Sender<(Account, Task)>>,
    name: &str,
    report: &Sender<Done>,
    wake: &Arc<OwnedFd>,
) -> Option<&'a Sender<(Account, Task)>> {
    if thread.is_none() {
        *thread = spawn(name, report.clone(), wake.clone());
    }
    thread.as_ref()
}

fn spawn(name: &str, report: Sender<Done>, wake: Arc<OwnedFd>) -> Option<Sender<(Account, Task)>> {
    let (tasks, inbox) = mpsc::channel::<(Account, Task)>();
    let work = move || {
        // SAFETY: sets one number of the calling thread; a refusal leaves it as it is.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
        while let Ok((account, task)) = inbox.recv() {
            let before = thread_time();
            let outcome = task();
            let time = thread_time().saturating_sub(before);
            if report.send(Done { account, time, outcome }).is_err() {
                return;
            }
            wake::signal(&wake);
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(work).ok()?;
    Some(tasks)
}
