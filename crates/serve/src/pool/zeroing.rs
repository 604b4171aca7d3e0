//! Zeroing of free extents of a pool in service.
//!
//! Extents of deleted volumes are dirty in the table. A thread zeroes them in the background: it sends them to the
//! reactor in batches, as requests of the idle class ([`ZeroJob`]). From time to time, after a flush through the
//! engine, it removes zeroed extents from the list of dirty ones. So an extent leaves the list only when its zeroes
//! are durable, and after a kill at most [`RECORD_EVERY`] is zeroed again.
//!
//! Volumes get only clean extents. A change that needs dirty ones waits for a [`Demand`]: the same requests, but with
//! the class and group of the volume, so that its contract limits them.
//!
//! An extent is *busy* from the time when a batch or a demand takes it until it leaves the list, or zeroing failed.
//! Busy extents are dirty, so no volume gets them, and no second job zeroes what a volume has got meanwhile.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::format::{BLOCK, Extent, Table};
use super::medium::FileMedium;
use super::table::{Free, common, joined, split, total, without};
use super::{Pool, admin};
use crate::back::volume::VolumeId;
use crate::clock::{Moment, moment};
use crate::error::ServeError;
use crate::log;
use crate::reactor::Message;
use crate::reactor::handle::ReactorHandle;
use crate::reactor::zeroing::{ZeroJob, Zeroed};

/// Blocks of a batch in the background.
const BATCH: u64 = (256 << 20) / BLOCK;
/// Blocks that a demand zeroes before it is asked again what is needed.
const DEMAND: u64 = (4 << 30) / BLOCK;
/// Time between two records of progress, each of which syncs the pool.
const RECORD_EVERY: Duration = Duration::from_secs(5);
/// After a batch that met other requests the thread waits this many times as long as the batch took: what schedulers
/// without classes let through beside clients is a tenth of the time at most.
const PAUSE: u32 = 9;
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// After an error.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// With nothing to do it waits for a notification.
const IDLE: Duration = Duration::from_secs(3600);
/// How often somebody looks whether the engine has let go of extents, and whether the reactor is still there.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A pool in service, and what is done with its free extents.
#[derive(Debug)]
pub(crate) struct Shared {
    room: Mutex<Room>,
    /// Something of the room has changed, or the thread shall end.
    change: Condvar,
    progress: Arc<Progress>,
    path: PathBuf,
    device: bool,
    /// The server ends.
    stops: AtomicBool,
    /// The reactor has ended.
    is_over: AtomicBool,
    /// The batch shall end.
    interrupt: Arc<AtomicBool>,
}

/// The pool and its free extents.
#[derive(Debug)]
pub(crate) struct Room {
    pub(super) pool: Pool<FileMedium>,
    /// What deleted and cut volumes left, until the engine has let go of them.
    quarantine: Vec<(VolumeId, Extent)>,
    /// What a job zeroes or has zeroed; dirty in the table.
    busy: Vec<Extent>,
    /// What of it the background thread has zeroed since it recorded its progress.
    zeroed: Vec<Extent>,
    /// Demands that wait for busy extents.
    waiting: u32,
}

/// How far zeroing is, for everybody who wants to know.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    dirty: AtomicU64,
    zeroed: Arc<AtomicU64>,
}

impl Progress {
    /// Bytes that are dirty and not zeroed yet.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }
    /// Bytes that were zeroed since the start.
    pub(crate) fn zeroed_bytes(&self) -> u64 {
        self.zeroed.load(Ordering::Relaxed)
    }
}

impl Room {
    /// What volumes may get, some of it after zeroing.
    pub(super) fn free(&self) -> Free {
        let pool = &self.pool;
        Free::new(pool.table(), pool.superblock(), pool.grows(), &self.quarantined())
    }
    /// Nobody gets what volumes had in this table and have no more, until the engine has let go of them.
    pub(super) fn quarantine(&mut self, before: &Table) {
        let left = without(&before.assigned(), &self.pool.table().assigned());
        for volume in before.volumes.iter().filter(|_| !left.is_empty()) {
            let id = VolumeId(volume.id.as_u128());
            let left = common(&joined(volume.extents.clone()), &left);
            self.quarantine.extend(left.into_iter().map(|extent| (id, extent)));
        }
    }
    fn quarantined(&self) -> Vec<Extent> {
        joined(self.quarantine.iter().map(|(_, extent)| *extent).collect())
    }
    /// What the background thread zeroes next.
    fn batch(&self) -> Vec<Extent> {
        if self.waiting > 0 {
            return Vec::new();
        }
        let free = without(&self.pool.table().dirty, &self.quarantined());
        split(&without(&free, &self.busy), BATCH).0
    }
    /// A job is over that had these extents.
    fn give_back(&mut self, extents: &[Extent]) {
        self.busy = without(&self.busy, extents);
    }
    /// Takes what the background thread has zeroed off the list; it is durable.
    fn record(&mut self) -> Result<(), super::PoolError> {
        let zeroed = std::mem::take(&mut self.zeroed);
        let result = self.pool.cleaned(&zeroed);
        self.give_back(&zeroed);
        result
    }
}

impl Shared {
    pub(super) fn new(pool: Pool<FileMedium>, path: &Path, device: bool) -> Self {
        let (quarantine, busy, zeroed) = (Vec::new(), Vec::new(), Vec::new());
        let room = Room { pool, quarantine, busy, zeroed, waiting: 0 };
        let this = Self {
            room: Mutex::new(room),
            change: Condvar::new(),
            progress: Arc::default(),
            path: path.to_path_buf(),
            device,
            stops: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            interrupt: Arc::default(),
        };
        this.changed(&this.lock());
        this
    }
    pub(super) fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Tells everybody of the room as it is now.
    pub(super) fn changed(&self, room: &Room) {
        let dirty = total(&room.pool.table().dirty) - total(&room.zeroed);
        self.progress.dirty.store(dirty * BLOCK, Ordering::Relaxed);
        self.change.notify_all();
    }
    fn wait<'a>(&self, room: MutexGuard<'a, Room>, time: Duration) -> MutexGuard<'a, Room> {
        let waited = self.change.wait_timeout(room, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
    /// Waits that long, unless the server ends or a demand waits.
    fn pause(&self, time: Duration) {
        let until = moment() + time;
        let mut room = self.lock();
        while room.waiting == 0 && !self.stops.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(moment());
            if left.is_zero() {
                return;
            }
            room = self.wait(room, left);
        }
    }
    /// Has the reactor zero extents.
    fn zero(
        &self,
        line: &ReactorHandle,
        extents: &[Extent],
        account: Account<'_>,
        flush: bool,
    ) -> Result<Zeroed, ServeError> {
        let bytes = |extent: &Extent| extent.start * BLOCK..extent.end() * BLOCK;
        let (reply, replied) = mpsc::channel();
        let (group, stop, until) = match account {
            Account::Nobody => (None, Arc::clone(&self.interrupt), None),
            Account::Group(path, until) => (Some(path), Arc::default(), until),
        };
        let job = ZeroJob {
            group: group.map(str::to_string),
            extents: extents.iter().map(bytes).collect::<Vec<Range<u64>>>(),
            // A file gives the room back; a device keeps its blocks.
            hole: !self.device,
            flush,
            stop: Arc::clone(&stop),
            counter: Arc::clone(&self.progress.zeroed),
            reply,
        };
        line.send(Message::Zero(job))?;
        loop {
            match replied.recv_timeout(LOOK_EVERY) {
                Ok(zeroed) => return Ok(zeroed),
                Err(RecvTimeoutError::Timeout) if until.is_some_and(is_past) => {
                    stop.store(true, Ordering::Relaxed);
                }
                // A reactor whose drive never completes a command ends without a reply.
                Err(RecvTimeoutError::Timeout) if !self.is_over.load(Ordering::Relaxed) => {}
                Err(_) => return Err(ServeError::Gone),
            }
        }
    }
    /// Whether a demand waits for busy extents.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.lock().waiting > 0
    }
    /// Whether a job has been given extents, which is not over.
    #[cfg(test)]
    pub(crate) fn is_busy(&self) -> bool {
        !self.lock().busy.is_empty()
    }
    fn failed(&self, status: i32) -> ServeError {
        let what = format!("zeroing free extents of {}", self.path.display());
        ServeError::system(what)(io::Error::from_raw_os_error(status))
    }
    /// Gives extents free that no command can reach any more.
    pub(crate) fn release(&self, line: &ReactorHandle) -> Result<(), ServeError> {
        let waiting = self.lock().quarantine.clone();
        if waiting.is_empty() {
            return Ok(());
        }
        let gone = line.look(move |seen| {
            let bytes = |extent: &Extent| extent.start * BLOCK..extent.end() * BLOCK;
            let gone = |(id, one): &(VolumeId, Extent)| seen.engine.lets_go(*id, &bytes(one));
            waiting.into_iter().filter(gone).collect::<Vec<_>>()
        })?;
        self.lock().quarantine.retain(|one| !gone.contains(one));
        Ok(())
    }
}

/// For whom extents are zeroed.
#[derive(Clone, Copy)]
enum Account<'a> {
    /// In the idle class of the root.
    Nobody,
    /// The group of this path; at most until some time.
    Group(&'a str, Option<Moment>),
}

fn is_past(time: Moment) -> bool {
    moment() >= time
}

/// Extents that a volume of a group needs, and that must be zeroed before.
#[derive(Debug)]
pub(crate) struct Demand {
    shared: Arc<Shared>,
    pub(super) group: String,
    extents: Vec<Extent>,
}

impl Demand {
    pub(super) fn new(shared: &Arc<Shared>, group: &str, extents: Vec<Extent>) -> Self {
        Self { shared: Arc::clone(shared), group: group.to_string(), extents }
    }
    pub(super) fn add(&mut self, extents: Vec<Extent>) {
        self.extents.extend(extents);
        self.extents = joined(std::mem::take(&mut self.extents));
    }
    /// Zeroes them, or as many as one demand may, in the name of the group, at most until some time. Others may have them zeroed, or got them,
    /// before: ask again what is needed.
    pub(crate) fn carry_out(
        &self,
        line: &ReactorHandle,
        until: Option<Moment>,
    ) -> Result<(), ServeError> {
        let shared = &*self.shared;
        let extents = self.claim(until)?;
        if extents.is_empty() {
            return Ok(());
        }
        let zeroed = shared.zero(line, &extents, Account::Group(&self.group, until), true);
        let mut room = shared.lock();
        room.give_back(&extents);
        let recorded = zeroed.and_then(|zeroed| match zeroed {
            Zeroed { status: 0, is_durable: true, bytes, .. } => {
                let done = split(&extents, bytes / BLOCK).0;
                let recorded = room.pool.cleaned(&done);
                recorded.map_err(|error| admin::pool_error(&shared.path, error))
            }
            Zeroed { status: 0, .. } => Err(ServeError::Gone),
            Zeroed { status, .. } => Err(shared.failed(status)),
        });
        shared.changed(&room);
        recorded?;
        self.check_time(&room, until)
    }
    /// An error when the time is over and something is left to do.
    fn check_time(&self, room: &Room, until: Option<Moment>) -> Result<(), ServeError> {
        let left = total(&common(&self.extents, &room.pool.table().dirty)) * BLOCK;
        let is_late = left > 0 && until.is_some_and(is_past);
        if is_late { Err(ServeError::Zeroing(left)) } else { Ok(()) }
    }
    /// Makes what is still dirty of the extents busy, once no other job has any of it.
    fn claim(&self, until: Option<Moment>) -> Result<Vec<Extent>, ServeError> {
        let shared = &*self.shared;
        let (mut room, mut waits) = (shared.lock(), 0);
        let claimed = loop {
            let dirty = common(&self.extents, &room.pool.table().dirty);
            let extents = split(&dirty, DEMAND).0;
            if common(&extents, &room.busy).is_empty() {
                room.busy = joined([&room.busy[..], &extents].concat());
                break Ok(extents);
            }
            if shared.is_over.load(Ordering::Relaxed) {
                break Err(ServeError::Gone);
            }
            if let Err(error) = self.check_time(&room, until) {
                break Err(error);
            }
            if waits == 0 {
                waits = 1;
                room.waiting += 1;
                shared.interrupt.store(true, Ordering::Relaxed);
                shared.changed(&room);
            }
            room = shared.wait(room, LOOK_EVERY);
        };
        room.waiting -= waits;
        shared.changed(&room);
        claimed
    }
}

/// The background thread.
#[derive(Debug)]
pub(crate) struct Zeroing {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Zeroing {
    /// Starts it.
    pub(crate) fn start(shared: &Arc<Shared>, line: ReactorHandle) -> Result<Self, ServeError> {
        let own = Arc::clone(shared);
        let worker = move || Worker { shared: &own, line, recorded: moment() }.run();
        let thread = std::thread::Builder::new().name("zeroing".into()).spawn(worker);
        let thread = Some(thread.map_err(ServeError::system("a thread"))?);
        Ok(Self { shared: Arc::clone(shared), thread })
    }
    /// How far it is.
    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.shared.progress
    }
    /// The request that is in the engine is the last.
    pub(crate) fn end(&self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        self.shared.interrupt.store(true, Ordering::Relaxed);
        self.shared.changed(&self.shared.lock());
    }
    /// The reactor has ended; so does the thread.
    pub(crate) fn join(mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.end();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a thread that panics is a bug");
        }
    }
}

struct Worker<'a> {
    shared: &'a Shared,
    line: ReactorHandle,
    recorded: Moment,
}

impl Worker<'_> {
    /// Until the server ends, or nothing can be changed any more.
    fn run(mut self) {
        while !self.shared.stops.load(Ordering::Relaxed) {
            let Err(error) = self.step() else { continue };
            if self.shared.lock().pool.is_broken() {
                return log::tell("pool", &format!("{error}; zeroing waits for a restart"));
            }
            if !matches!(error, ServeError::Gone) {
                log::tell("pool", &format!("{error}; the next attempt is in {RETRY_AFTER:?}"));
            }
            self.shared.pause(RETRY_AFTER);
        }
    }
    /// One batch, one record, or a wait for something to do.
    fn step(&mut self) -> Result<(), ServeError> {
        self.shared.release(&self.line)?;
        let mut room = self.shared.lock();
        let batch = room.batch();
        let is_due = batch.is_empty() || self.recorded.elapsed() >= RECORD_EVERY;
        if !room.zeroed.is_empty() && is_due {
            drop(room);
            let flushed = self.shared.zero(&self.line, &[], Account::Nobody, true);
            return self.settle(flushed, &[]).map(drop);
        }
        if batch.is_empty() {
            let quarantined = !room.quarantine.is_empty();
            let time = if quarantined { LOOK_EVERY } else { IDLE };
            if !self.shared.stops.load(Ordering::Relaxed) {
                drop(self.shared.wait(room, time));
            }
            return Ok(());
        }
        room.busy = joined([&room.busy[..], &batch].concat());
        // It is set with the lock held, after `waiting` or `stops`.
        self.shared.interrupt.store(self.shared.stops.load(Ordering::Relaxed), Ordering::Relaxed);
        drop(room);
        let began = moment();
        let zeroed = self.shared.zero(&self.line, &batch, Account::Nobody, false);
        if self.settle(zeroed, &batch)? {
            self.shared.pause((began.elapsed() * PAUSE).min(PAUSE_MAX));
        }
        Ok(())
    }
    /// A job is over. Returns whether it met other requests.
    fn settle(
        &mut self,
        zeroed: Result<Zeroed, ServeError>,
        batch: &[Extent],
    ) -> Result<bool, ServeError> {
        let mut room = self.shared.lock();
        let told = zeroed.as_ref().map_or(Zeroed::default(), |zeroed| *zeroed);
        let (done, rest) = split(batch, told.bytes / BLOCK);
        room.give_back(&rest);
        room.zeroed = joined([&room.zeroed[..], &done].concat());
        let mut result = Ok(told.contended);
        if told.status != 0 || zeroed.is_err() {
            // What was completed before may not be durable, and is done again.
            let lost = std::mem::take(&mut room.zeroed);
            room.give_back(&lost);
            result = zeroed.and_then(|zeroed| Err(self.shared.failed(zeroed.status)));
        } else if told.is_durable {
            self.recorded = moment();
            let recorded =
                room.record().map_err(|error| admin::pool_error(&self.shared.path, error));
            result = recorded.map(|()| told.contended);
        }
        self.shared.changed(&room);
        result
    }
}
