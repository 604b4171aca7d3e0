//! What one run is made of: a drive, a stack, a host, groups and clients. Plain data; nothing here
//! knows how it was written down or how it is run.

use std::sync::Arc;

use iofair_core::contract::Contract;
use iofair_core::controller::{FlushRule, Stack};
use iofair_core::priority::Priority;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::behind::Path;
use iofair_drive::paced::Pace;
use iofair_drive::stripe::Geometry;
use serde::Deserialize;

use crate::recording::Recording;

mod calls;
mod program;

pub use calls::{
    Batches, Calls, DepthSearch, Direction, Distribution, Exit, Files, Gap, Hits, LeastRate, Mix,
    Passes, Sizes, Step, Turn, Urgent,
};
pub use program::{Action, Program, Script, Seat, SharedProgram};

/// One run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of a drive profile, variant included (`plextor-px256m5s`, `plextor-px256m5s:b`).
    pub drive: String,
    /// The policies, with their parameters.
    pub stack: Stack,
    /// Requests that scheduler and drive may have together; `None` is the kernel's rule.
    pub tags: Option<u32>,
    /// How flushes are scheduled; in the experiments of the sources they bypass the stack.
    pub flushes: FlushRule,
    /// A stripe over several of these drives; `None` is one drive.
    pub stripe: Option<StripeSpec>,
    /// The machine between clients and engine.
    pub host: Host,
    /// Groups with their contracts, parents first or made with defaults.
    pub groups: Vec<GroupSpec>,
    /// Clients in order of their start.
    pub clients: Vec<ClientSpec>,
    /// What changes meanwhile, in order of time.
    pub changes: Vec<Change>,
    /// Time before measuring begins.
    pub ramp: Nanos,
    /// Time measured.
    pub time: Nanos,
    /// Seed of every random stream of the run.
    pub seed: u64,
    /// Also record the latencies of calls in each interval of this length.
    pub interval: Option<Nanos>,
}

impl Scenario {
    /// The speeds of the drive.
    pub fn paces(&self) -> Vec<Pace> {
        let pace = |change: &Change| match change.what {
            What::Speed(percent) => Some(Pace { from: Instant::ZERO + change.at, percent }),
            What::Contract { .. } => None,
        };
        self.changes.iter().filter_map(pace).collect()
    }
}

/// Something that changes during a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// When, from the beginning of the run, as clients start.
    pub at: Nanos,
    /// What.
    pub what: What,
}

/// What changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The drive's speed, in percent of its profile's.
    Speed(u32),
    /// A group's contract.
    Contract {
        /// Path of the group.
        group: String,
        /// From now on.
        contract: Box<Contract>,
    },
}

/// A stripe over equal drives, and where its I/O is controlled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeSpec {
    /// How they are put together.
    pub geometry: Geometry,
    /// Where the stack is.
    pub control: Control,
}

/// Where a stripe is controlled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Control {
    /// One stack above the whole; the drives below take what comes.
    Logical,
    /// A stack above each drive, with the same groups and contracts.
    Leaf,
}

/// A group.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// Its path.
    pub name: String,
    /// What it was promised.
    pub contract: Contract,
}

/// The machine between clients and engine: processor costs, page cache, file system.
#[derive(Clone, Debug)]
pub struct Host {
    /// From a completion to the same process' next direct or random request ("h" of
    /// lab/docs/drives.md, the host rows).
    pub turnaround: Nanos,
    /// The same for writes ("hostw").
    pub turnaround_write: Nanos,
    /// From a completion until a process runs that slept; it counts as latency. Direct clients only.
    pub process_wakeup: Nanos,
    /// Random spread of the turnarounds, in percent either way.
    pub turnaround_spread: u32,
    /// Programs start one after the other: this long after the one before, by chance up to twice that, where the ramp
    /// hides their starts.
    pub start_apart: Nanos,
    /// Each plain client starts by chance up to this much later than it would.
    pub start_spread: Nanos,
    /// Processor time of schedulers.
    pub scheduling: Scheduling,
    /// Time a reader spends on 256 KiB that it finds in the page cache, in calls of 4 KiB ("H").
    pub consume_window: Nanos,
    /// What of that does not depend on the number of calls.
    pub consume_copy: Nanos,
    /// Time a buffered writer spends on 256 KiB that go into the page cache.
    pub produce_window: Nanos,
    /// Time the flusher takes to collect 256 KiB of dirty pages.
    pub collect_window: Nanos,
    /// Read-ahead window of a sequential reader.
    pub read_ahead: Sectors,
    /// Longest single read request that read-ahead sends (a window may take several).
    pub read_ahead_request: Sectors,
    /// Memory that dirty limits are fractions of, in bytes.
    pub memory: u64,
    /// Percent of `memory` that may be dirty before the flusher starts.
    pub dirty_background_percent: u32,
    /// Percent of `memory` that may be dirty before writers wait.
    pub dirty_percent: u32,
    /// Longest single request that the flusher and `fdatasync` send.
    pub writeback_request: Sectors,
    /// Longest request that the kernel sends to the drive, split or merged: `max_sectors_kb`, or as many pages as
    /// `max_segments` if that is less (Documentation/ABI/stable/sysfs-block). The drive's own limit counts as well.
    pub max_request: Sectors,
    /// Who writes dirty pages, and which group is charged.
    pub writeback: Writeback,
    /// How files lie on the drive.
    pub layout: Layout,
    /// The file system's journal, if `fdatasync` waits for one.
    pub journal: Option<JournalSpec>,
    /// What lies between schedulers and drive, if anything.
    pub path: Option<Path>,
    /// Processors that the clients' processes and the path share; `None`: nothing waits for a processor.
    pub processors: Option<Processors>,
}

/// Processors shared by the clients' processes, a worker that takes requests from the scheduler to a server (that of a loop
/// device), and the server that has the drive. What each takes is processor time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors {
    /// Their number.
    pub count: u32,
    /// Until one that was idle works.
    pub idle_exit: Nanos,
    /// Of a client's process, for each completion and the next request together.
    pub client: Work,
    /// Of the worker.
    pub worker: Work,
    /// Of the server. It runs before the others. A command is in the drive from the beginning of the turn in which the server
    /// takes it, since that is the time that the server tells the drive; half of the request's work passes meanwhile, and half of
    /// it follows when the drive is done. What it completes in a turn reaches the scheduler together: the kernel's thread for
    /// completions (`ksoftirqd`) runs on the same processor, after it.
    pub server: Work,
    /// The part of the server's work for each MiB that also passes while the command is in the drive.
    pub overlap: Nanos,
    /// The server's work for each MiB in addition if it is read into the page cache: pages are new, a client's buffer is not.
    pub new_pages: Nanos,
    /// The part of each turn's time that follows the work of the turn.
    pub after_percent: u32,
}

/// Processor time of a thread.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Work {
    /// For each turn, in which it does all work that was there when the turn began.
    pub turn: Nanos,
    /// For each request.
    pub request: Nanos,
    /// In addition for each MiB.
    pub per_mib: Nanos,
}

impl Work {
    /// For a request of this length.
    pub fn time_for(&self, length: Sectors) -> Nanos {
        let bytes = u128::from(self.per_mib.0) * u128::from(length.bytes());
        self.request + Nanos(u64::try_from(bytes >> 20).unwrap_or(u64::MAX))
    }
}

impl Host {
    /// Time a reader that makes calls of this size spends on 256 KiB that it finds in the page cache.
    pub fn consume_in_calls_of(&self, block: Sectors) -> Nanos {
        let calls = self.consume_window.saturating_sub(self.consume_copy);
        self.consume_copy + Nanos(calls.0 * Sectors::from_kib(4).0 / block.0.max(1))
    }
}

/// Processor time of schedulers. A scheduler's lock lets one processor at a time into it, so requests pass
/// it one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheduling {
    /// Time of a request, for each scheduler by its name; others take none.
    pub times: &'static [(&'static str, Nanos)],
    /// In place of them, if anything.
    pub time: Option<Nanos>,
    /// From a completion to the dispatcher's run, which is work for another thread; a client's own request is
    /// dispatched by the client itself, at once.
    pub wakeup: Nanos,
    /// Random spread of it, in percent either way.
    pub wakeup_spread: u32,
    /// Whether the driver runs the queue after every completion. Otherwise it runs after flushes, when the drive was full, for
    /// what waits outside of the scheduler, and where the scheduler runs it: BFQ only with an empty drive and nobody to idle for.
    pub on_completion: bool,
    /// The kernel's tick. When the scheduler holds back requests, it is asked again at the second one; zero: it is not.
    pub again: Nanos,
}

impl Scheduling {
    /// Schedulers cost nothing.
    pub const FREE: Self = Self {
        times: &[],
        time: None,
        wakeup: Nanos::ZERO,
        wakeup_spread: 0,
        on_completion: true,
        again: Nanos::ZERO,
    };

    /// Time of a request in the scheduler of this name; `none` is none.
    pub fn time_of(&self, scheduler: &str) -> Nanos {
        if scheduler == "none" {
            return Nanos::ZERO;
        }
        let stated = || self.times.iter().find(|(name, _)| *name == scheduler);
        self.time.or_else(|| stated().map(|(_, time)| *time)).unwrap_or(Nanos::ZERO)
    }
}

/// A journal that every `fdatasync` waits for, because files grow or change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSpec {
    /// Group of its process; empty is the root.
    pub group: String,
    /// Whether it sends flushes around its commit record.
    pub barrier: bool,
}

/// Who writes the dirty pages of buffered writers to the drive, and which group is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writeback {
    /// One flusher in its own name, in the root group, as with cgroup v1: neither limits nor weights of
    /// the writers' groups act on buffered writes.
    Root,
    /// One flusher that takes file after file, a chunk of each, whoever made them dirty; only the
    /// requests are charged to the writer's group (the page tracking of 2009, cgroup v2). A group
    /// whose requests are held up holds up the flusher, and with it everybody's pages.
    Owner,
    /// The writers start the writeback themselves (`FADV_DONTNEED`): each group's pages go out by
    /// themselves, beside the others'.
    Writer,
}

/// How files lie on the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One after the other, each in one piece; `base_permille` of the drive lies before the first.
    Contiguous {
        /// Thousandths of the drive before the first file.
        base_permille: u32,
    },
    /// ext3 of 2009: cold indirect blocks cost a read of their own; direct writes into holes are
    /// allocated in the order of writing, the first touch of each 4 MiB piece costs one synchronous
    /// random access, and only one is in flight a process (lab/docs/drives.md, the host rows).
    Ext3 {
        /// Thousandths of the drive before the first file.
        base_permille: u32,
        /// Percent of files whose indirect blocks are not in memory.
        cold_percent: u32,
        /// Whether files that are written start as holes.
        sparse_writes: bool,
    },
}

/// One or several equal clients.
#[derive(Clone, Debug)]
pub struct ClientSpec {
    /// Name; two processes or more get `name.0`, `name.1`, ...
    pub name: String,
    /// Processes that do the same, each with its own file and its own line in the outcome.
    pub processes: u32,
    /// Path of the group; empty is the root.
    pub group: String,
    /// Class and level.
    pub priority: Priority,
    /// Whether each process runs in its own virtual machine. What it writes then goes through the
    /// guest's page cache and comes from there as direct writes of the machine's one process.
    pub guest: bool,
    /// Its files lie on this drive of a stripe; `None`: wherever the next place is.
    pub on_drive: Option<u32>,
    /// What it does.
    pub job: Job,
    /// How it makes its calls.
    pub manner: Manner,
    /// Size of its private file.
    pub file_size: Sectors,
    /// When it starts.
    pub start: Nanos,
    /// When it makes no further call; `None`: never.
    pub stop: Option<Nanos>,
    /// Its step; `None`: it starts and stops as above. If a client of a run has a step, all of them do, and the run ends when
    /// all of them have ended.
    pub step: Option<Step>,
    /// Where its file begins on the drive; `None`: at the next free place.
    pub place: Option<Sectors>,
}

impl ClientSpec {
    /// One process in the root, with a file of 500 MiB, from the beginning to the end.
    pub fn new(name: impl Into<String>, job: Job) -> Self {
        Self {
            name: name.into(),
            processes: 1,
            group: String::new(),
            priority: Priority::default(),
            guest: false,
            on_drive: None,
            job,
            manner: Manner::Plain,
            file_size: Sectors::from_kib(500 << 10),
            start: Nanos::ZERO,
            stop: None,
            step: None,
            place: None,
        }
    }
}

/// How a client makes its calls.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Manner {
    /// As the job says.
    #[default]
    Plain,
    /// Strided reads or writes of a file that several processes share: the file is that of the process `index` places
    /// before.
    Interleaved {
        /// Its place among them.
        index: u32,
        /// How many they are.
        of: u32,
    },
    /// Copies its file to another one, through the page cache.
    Copy,
    /// The recorded reads of a program's start-up; a call is a start-up.
    Startup(Arc<Recording>),
    /// As a program of the caller decides, with direct calls.
    Program(SharedProgram),
}

/// Read or write, in order or anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// `read`
    SequentialRead,
    /// `write`
    SequentialWrite,
    /// `randread`
    RandomRead,
    /// `randwrite`
    RandomWrite,
}

/// The calls that a client repeats.
#[derive(Clone, Debug)]
pub struct Job {
    /// Read or write, in order or anywhere.
    pub pattern: Pattern,
    /// Size of one read or write call.
    pub block: Sectors,
    /// Through the page cache?
    pub buffered: bool,
    /// Calls in flight at once (asynchronous when above 1; direct only).
    pub depth: u32,
    /// Most bytes a second; blocks of more than a second's worth make it on/off, as fio paces.
    pub rate: Option<u64>,
    /// `fdatasync` after this many writes; 0 never.
    pub fdatasync_every: u32,
    /// On/off: how long it works and how long it rests, both drawn between 0 and twice the mean.
    pub on_off: Option<(Nanos, Nanos)>,
    /// Time between a completion and the next call, on top of the host's turnaround.
    pub think: Nanos,
    /// Whether direct writes count as synchronous. (They do since 2.6.30.)
    pub sync_writes: bool,
    /// Whether its files are the file system's own.
    pub metadata: bool,
    /// What differs from call to call.
    pub calls: Calls,
}

impl Job {
    /// One call at a time, without a pause.
    pub fn new(pattern: Pattern, block: Sectors, buffered: bool) -> Self {
        Self {
            pattern,
            block,
            buffered,
            depth: 1,
            rate: None,
            fdatasync_every: 0,
            on_off: None,
            think: Nanos::ZERO,
            sync_writes: true,
            metadata: false,
            calls: Calls::default(),
        }
    }
    /// Whether a sync may stand between so many writes and the next one.
    pub(crate) fn is_sync_due(&self, begun: u64) -> bool {
        let every = [self.fdatasync_every, self.calls.sync_every].map(u64::from);
        every.into_iter().any(|every| every > 0 && begun.is_multiple_of(every))
    }
    /// How many writes after so many come before the next sync; `None` without syncs.
    pub(crate) fn writes_to_sync(&self, written: u64) -> Option<u64> {
        let every = [self.fdatasync_every, self.calls.sync_every].map(u64::from);
        let every = every.into_iter().filter(|every| *every > 0);
        let is_first = written < every.clone().min()?;
        let gap = if is_first { 0 } else { u64::from(self.calls.sync_gap).saturating_sub(1) };
        let from = written.max(gap);
        every.map(|every| from - written + every - from % every).min()
    }
}
