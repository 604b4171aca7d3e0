//! Policies: the contract that each keeps, and the table that a stack's name is read with.
//!
//! A *stack* is any number of throttles, each of which may hold a request back, and then one scheduler,
//! which orders what was let through. Both are a [`Policy`]. The controller hands a request to the
//! first stage, moves what a throttle lets go to the next stage, and pulls from the scheduler whenever
//! the drive has a free slot.
//!
//! The law, checked for every policy of this project over many seeds: no request lost, doubled or
//! invented; held work with nothing in flight implies a future wake-up; early, late and double wake-ups
//! change nothing; same calls, same answers; no allocation per request once warm.
//!
//! Policies live in crates of their own: `iofair-policies` has those that a server runs, `iofair-historical` those of the
//! literature. One of yours is a type that implements [`Policy`], a [`Row`], and a [`Table`] with it.

use alloc::boxed::Box;

use crate::group::{Change, ClientId, GroupId, Groups};
use crate::params::{Parameter, Values};
use crate::request::{RequestId, Requests};
use crate::time::Instant;
use crate::trace::{EventKind, Subject, Trace};
use crate::unit::Sectors;

/// What the engine knows of the drive behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveFacts {
    /// Does a head move?
    pub rotational: bool,
    /// Commands that the drive takes at once (NCQ 32, NVMe 1023); 1 means no queueing.
    pub depth: u32,
    /// Longest command.
    pub max_request: Sectors,
    /// Size of the drive.
    pub capacity: Sectors,
}

/// What a policy may see and touch during a call.
pub struct Context<'a> {
    /// The present.
    pub now: Instant,
    /// All live requests.
    pub requests: &'a mut Requests,
    /// Groups and clients.
    pub groups: &'a Groups,
    /// Where decisions are explained.
    pub trace: &'a mut Trace,
    /// The drive.
    pub facts: &'a DriveFacts,
    /// Commands that the drive has now.
    pub in_flight: u32,
}

impl Context<'_> {
    /// Records a decision for those who ask why; costs one branch when nobody does.
    pub fn decide(&mut self, subject: Subject, rule: &'static str, values: [u64; 2]) {
        self.trace.push(self.now, subject, EventKind::Decision { rule, values });
    }
}

/// A source of numbers to watch, as a policy lists them.
pub trait Gauges {
    /// One number: a name and its value, in the unit that the name ends with.
    fn gauge(&mut self, name: &'static str, value: u64);
}

/// What a policy knows about a request that it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Standing {
    /// When it is worth asking for it again.
    pub until: Option<Instant>,
    /// Whose turn it is, where there are turns.
    pub serves: Option<Subject>,
    /// Until when the drive is kept free for their next request.
    pub idles_until: Option<Instant>,
    /// The group that is furthest behind its minimum, and up to when that is kept: others are held from then on.
    pub holder: Option<(GroupId, Instant)>,
}

/// Which part of the tags a request draws on; the scheduler may limit each ([`Policy::tag_limit`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagClass {
    /// Reads.
    SyncRead,
    /// Writes that somebody waits for.
    SyncWrite,
    /// Buffered writes.
    Async,
}

impl TagClass {
    /// All of them; `class as usize` indexes an array of three.
    pub const ALL: [Self; 3] = [Self::SyncRead, Self::SyncWrite, Self::Async];

    /// [`Policy::tag_limit`] of kernels with a single queue. They have as many requests for buffered writes
    /// as for all others; here buffered writes may use half of the tags.
    pub fn single_queue_limit(self, tags: u32) -> u32 {
        if self == Self::Async { (tags / 2).max(1) } else { tags }
    }
}

/// One stage of a stack.
pub trait Policy {
    /// Takes a request in. The policy holds it until `dispatch` returns it.
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId);

    /// Schedulers: tries to merge an incoming request into one that the policy holds
    /// ([`Requests::merge_back`], [`Requests::merge_front`]), keeping the policy's own order right.
    /// `true`: merged, and `id` is now a part of another request.
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let _ = (cx, id);
        false
    }

    /// Gives one request on: a throttle to the next stage, a scheduler to the drive. `None` holds,
    /// on purpose or because there is nothing. Called until it returns `None`.
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId>;

    /// The drive answered; the request is still in the pool.
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let _ = (cx, id);
    }

    /// Schedulers, right after `complete`: does that answer bring about a dispatch by itself? A driver that has its
    /// queue run after every answer (SCSI) dispatches in any case; where none does (NVMe), only what the scheduler
    /// itself schedules, and the next request that comes, lead to one. Who asks always asks too often at worst.
    fn schedules_dispatch(&self) -> bool {
        true
    }

    /// When the policy wants to be asked again though nothing else happens. The caller then calls
    /// `dispatch`; there is no separate timer call.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// Groups or clients changed. A new policy is told of all that exist, the root group first.
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        let _ = (cx, change);
    }

    /// For those who ask why: what the policy knows now about a request that it holds.
    fn standing(&self, requests: &Requests, id: RequestId) -> Standing {
        let _ = (requests, id);
        Standing::default()
    }

    /// Schedulers: how many of `tags` may be in use for a request of this class to still get one.
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        let _ = class;
        tags
    }

    /// Throttles: does the process sleep that sends in this client's name, of which `held` requests are in here?
    /// So it is where the kernel makes submitters wait. Where it puts requests aside and a worker of its own
    /// sends them, nobody sleeps.
    fn is_asleep(&self, client: ClientId, held: u32) -> bool {
        let _ = client;
        held > 0
    }

    /// Numbers to watch.
    fn observe(&self, gauges: &mut dyn Gauges) {
        let _ = gauges;
    }
}

/// Throttle or scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// May hold requests back; any number of them above the scheduler.
    Throttle,
    /// Orders what goes to the drive; one a stack.
    Scheduler {
        /// Can it share by the groups' weights, which the policy half `prop` switches on?
        groups: bool,
        /// Requests that it and the drive have together.
        tags: Tags,
        /// Are flushes given to it in experiments too? Those of the sources bypass schedulers, as in the kernel.
        flushes: bool,
        /// Does it keep minimums as such, in I/Os a second too, and not by weights?
        minimums: bool,
    },
}

impl Role {
    /// A scheduler as in the kernel.
    pub const SCHEDULER: Self =
        Self::Scheduler { groups: false, tags: Tags::Kernel, flushes: false, minimums: false };
    /// The same, which can share between groups.
    pub const SHARING_SCHEDULER: Self =
        Self::Scheduler { groups: true, tags: Tags::Kernel, flushes: false, minimums: false };
}

/// How many requests a scheduler and the drive have together unless the experiment says it (`nr_requests`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// As many as the drive takes: the kernel's number without a scheduler.
    Depth,
    /// Twice the drive's depth, taken as at most 128: the kernel's number with a scheduler.
    Kernel,
    /// No limit beside the request slots: the scheduler sees the full backlog. What waits for a tag waits in order of
    /// arrival, and no share or minimum holds for it.
    Unlimited,
}

impl Tags {
    /// Their number for a drive.
    pub fn number(self, facts: &DriveFacts) -> u32 {
        match self {
            Self::Depth => facts.depth,
            Self::Kernel => 2 * facts.depth.min(128),
            Self::Unlimited => u32::MAX,
        }
    }
}

/// What a builder gets.
pub struct Build<'a> {
    /// The parameters.
    pub values: &'a Values,
    /// The drive.
    pub facts: &'a DriveFacts,
    /// Share between groups (`prop`), or treat all clients alike.
    pub groups: bool,
}

/// What is to be known of a policy before it is chosen. What it costs is measured, not written here.
pub struct Judgement {
    /// What it promises.
    pub promises: &'static [Claim],
    /// What it takes to keep that.
    pub needs: &'static str,
    /// Where it fails.
    pub fails: &'static [Claim],
}

impl Judgement {
    /// Of a policy that is in no table.
    pub const NONE: Self = Self { promises: &[], needs: "", fails: &[] };

    /// What it promises, then where it fails.
    pub fn claims(&self) -> impl Iterator<Item = &'static Claim> + use<> {
        self.promises.iter().chain(self.fails)
    }
}

/// A sentence about a policy, and how to see that it is true.
pub struct Claim {
    /// The sentence. A number that was measured is never typed but named in braces, in the words of
    /// docs/reproduction.md: `{target of none-none [15 readers]}`, `{total: prop-bfq / none-none}`, and with
    /// ` in EXPERIMENT` behind it one of another experiment. `make measured` writes what they are now.
    pub says: &'static str,
    /// An experiment (its file below `experiments/`, without `.toml`), followed by ` --stack NAME,NAME` if
    /// the file does not run all that the sentence speaks of. Empty: it follows from the rules on the manual page.
    pub shown_by: &'static str,
}

/// A row of the table of policies.
pub struct Row {
    /// Its name in the literature.
    pub name: &'static str,
    /// How a stack's name calls a throttle (`max` in `max-none`); no dash in it.
    pub short: &'static str,
    /// Throttle or scheduler.
    pub role: Role,
    /// One line for lists.
    pub summary: &'static str,
    /// The file that holds it, under `src/` of its crate; its `//!` is the manual page.
    pub file: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Defaults in which a variant differs from `parameters`.
    pub overrides: &'static [(&'static str, u64)],
    /// What to expect of it.
    pub judgement: Judgement,
    /// Makes one.
    pub build: fn(&Build<'_>) -> Box<dyn Policy + Send>,
}

/// A stack under a name of its own: a source's whole solution.
pub struct Named {
    /// The name.
    pub name: &'static str,
    /// The stack.
    pub stack: &'static str,
    /// Do minimums become weights, and are too many of them refused?
    pub admits: bool,
    /// Parameters that differ from their defaults: stage, parameter, value.
    pub settings: &'static [(&'static str, &'static str, &'static str)],
    /// One line for lists.
    pub summary: &'static str,
}

/// The policies that stacks are made of.
pub struct Table {
    /// Throttles and schedulers.
    pub policies: &'static [&'static Row],
    /// Stacks with names of their own.
    pub stacks: &'static [Named],
}

impl Table {
    /// The row of this name or short name.
    pub fn find(&self, name: &str) -> Option<&'static Row> {
        self.policies.iter().copied().find(|row| row.name == name || row.short == name)
    }
}
