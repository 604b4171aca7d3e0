//! The policy trait, and the table from which policy stacks are built.
//!
//! A *stack* is any number of throttles, each of which may hold a request back, and then one scheduler,
//! which decides the dispatch order. Both implement [`Policy`]. The controller passes a request to the
//! first stage, moves it to the next stage when a throttle releases it, and calls the scheduler whenever
//! the drive has a free slot.
//!
//! Every policy must keep these rules, which a suite checks over many seeds: no request is lost, duplicated or
//! invented; if requests are held while nothing is in flight, there is a future wake-up; early, late and repeated
//! wake-ups change nothing; the same calls give the same results; no allocation per request once warm.
//!
//! `iofair-policies` has the policies for servers, `iofair-baselines` those of the literature. A policy of your own is a type that
//! implements [`Policy`], a [`Row`] that describes it, and a [`Table`] that contains the row; `examples/own_policy.rs` is one.

use alloc::boxed::Box;

use crate::group::{Change, Groups};
use crate::id::{ClientId, GroupId, RequestId};
use crate::key::Key;
use crate::params::{Parameter, Values};
use crate::request::Requests;
use crate::time::Instant;
use crate::trace::{EventKind, Subject, Trace};
use crate::unit::Sectors;

/// Facts about the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveFacts {
    /// Is it a hard disk?
    pub rotational: bool,
    /// Queue depth (NCQ 32, NVMe 1023); 1 means no queueing.
    pub depth: u32,
    /// Longest command.
    pub max_request: Sectors,
    /// Size of the drive.
    pub capacity: Sectors,
}

/// What a policy can access during a call.
#[non_exhaustive]
pub struct Context<'a> {
    /// The current time.
    pub now: Instant,
    /// All live requests.
    pub requests: &'a mut Requests,
    /// Groups and clients.
    pub groups: &'a Groups,
    /// Trace for decisions.
    pub trace: &'a mut Trace,
    /// The drive.
    pub facts: &'a DriveFacts,
    /// Number of commands in the drive.
    pub in_flight: u32,
}

impl Context<'_> {
    /// Records a decision and its rule, for `explain` and `why`. Costs one branch if the trace is off.
    pub fn decide(&mut self, subject: Subject, rule: &'static str, values: [u64; 2]) {
        self.trace.push(self.now, subject, EventKind::Decision { rule, values });
    }
}

/// A source of numbers to watch, as a policy lists them.
pub trait Gauges {
    /// One number: a name and its value, in the unit that the name ends with.
    fn gauge(&mut self, name: &'static str, value: u64);
}

/// Why a policy holds a request ([`Policy::hold_info`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HoldInfo {
    /// The time until which the policy holds it; `None` if that depends on other events.
    pub until: Option<Instant>,
    /// The client, group or request that the policy serves now, if it serves one at a time.
    pub serves: Option<Subject>,
    /// The time until which the policy idles for the next request of the one it serves.
    pub idles_until: Option<Instant>,
    /// The group that is furthest behind its minimum, and the time up to which the minimum is kept. The policy holds
    /// requests of other groups from that time on.
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
    #[must_use]
    pub fn single_queue_limit(self, tags: u32) -> u32 {
        if self == Self::Async { (tags / 2).max(1) } else { tags }
    }
}

/// A stage of a policy stack: a throttle or a scheduler.
pub trait Policy {
    /// Accepts a request. The policy holds it until `dispatch` returns it.
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId);

    /// Schedulers: tries to merge an incoming request into one that the policy holds
    /// ([`Requests::merge_back`], [`Requests::merge_front`]), keeping the policy's own order right.
    /// `true`: merged, and `id` is now a part of another request.
    #[must_use = "a request that was not merged still wants a place"]
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let _ = (cx, id);
        false
    }

    /// Returns the next request: from a throttle to the next stage, from a scheduler to the drive. Called until it returns
    /// `None`, which means that the policy has no requests or holds them on purpose.
    #[must_use = "the request has left the policy"]
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId>;

    /// The drive completed the request, which is still in the pool.
    fn complete(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let _ = (cx, id);
    }

    /// A request that the policy holds was cancelled ([`Request::is_cancelled`](crate::request::Request::is_cancelled)).
    /// `true`: the policy has let go of it. `false`: `dispatch` returns it in its turn, and it ends there; a limit should
    /// neither hold nor charge it.
    fn cancel(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let _ = (cx, id);
        false
    }

    /// The time at which the caller should call `dispatch` even if nothing else happens; `None`: never. There is no
    /// separate timer call.
    #[must_use]
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// A group or client changed. A new policy is told of each one that exists, the root group first.
    fn change(&mut self, cx: &mut Context<'_>, change: Change) {
        let _ = (cx, change);
    }

    /// Throttles: the stack is replaced by one that has the same policy with the same parameters, and all requests are taken away.
    /// `true`: the policy has forgotten them, and stays with what it knows of groups and has charged to them. `false`: a new
    /// one takes its place.
    #[must_use]
    fn hand_over(&mut self) -> bool {
        false
    }

    /// Why the policy holds a request now, for `why`.
    fn hold_info(&self, groups: &Groups, requests: &Requests, id: RequestId) -> HoldInfo {
        let _ = (groups, requests, id);
        HoldInfo::default()
    }

    /// Schedulers: a request of this class gets a tag only while fewer than this many of `tags` are in use.
    #[must_use]
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        let _ = class;
        tags
    }

    /// Throttles: does a worker of the policy pass on what it has held of this client? Then it waits for a tag in one line
    /// with what was held of others, and the client may send more. Otherwise it waits in its client's line.
    #[must_use]
    fn has_worker(&self, client: ClientId) -> bool {
        let _ = client;
        false
    }

    /// Reports the policy's gauges.
    fn observe(&self, gauges: &mut dyn Gauges) {
        let _ = gauges;
    }
}

/// The role of a policy in a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Holds requests; a stack has any number of throttles above the scheduler.
    Throttle,
    /// Decides the dispatch order; a stack has one scheduler.
    Scheduler {
        /// Can it share between groups by weight? `prop` in the name of a stack enables this.
        groups: bool,
        /// The limit on requests in the scheduler and the drive together.
        tags: Tags,
        /// Does it get flushes in experiments, too? In the kernel, flushes bypass schedulers.
        flushes: bool,
    },
}

impl Role {
    /// A scheduler like those in the kernel.
    pub const SCHEDULER: Self =
        Self::Scheduler { groups: false, tags: Tags::Kernel, flushes: false };
    /// The same, with sharing between groups.
    pub const SHARING_SCHEDULER: Self =
        Self::Scheduler { groups: true, tags: Tags::Kernel, flushes: false };
}

/// The default limit on requests in the scheduler and the drive together (`nr_requests`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Tags {
    /// The queue depth of the drive: the kernel's value without a scheduler.
    Depth,
    /// Twice the queue depth of the drive, which counts as at most 128: the kernel's value with a scheduler.
    Kernel,
    /// No limit except the request slots, so that the scheduler sees the full backlog. Requests that wait for a tag wait in
    /// order of arrival, without regard to shares or minimums.
    Unlimited,
}

impl Tags {
    /// The number of tags for a drive.
    #[must_use]
    pub fn number(self, facts: &DriveFacts) -> u32 {
        match self {
            Self::Depth => facts.depth,
            Self::Kernel => 2 * facts.depth.min(128),
            Self::Unlimited => u32::MAX,
        }
    }
}

/// Arguments of [`Row::build`].
pub struct Build<'a> {
    /// The parameters.
    pub values: &'a Values,
    /// The drive.
    pub facts: &'a DriveFacts,
    /// Whether to share between groups (`prop`), or to treat all clients alike.
    pub groups: bool,
}

/// What a user should know before choosing a policy. Its cost is measured instead (lab/docs/performance.md).
pub struct Judgement {
    /// What it promises.
    pub promises: &'static [Claim],
    /// What it needs in order to keep its promises.
    pub needs: &'static str,
    /// Where it fails.
    pub fails: &'static [Claim],
}

impl Judgement {
    /// For a policy outside this project.
    pub const NONE: Self = Self { promises: &[], needs: "", fails: &[] };

    /// What it promises, then where it fails.
    pub fn claims(&self) -> impl Iterator<Item = &'static Claim> + use<> {
        self.promises.iter().chain(self.fails)
    }
}

/// A statement about a policy, and the experiment that shows it.
pub struct Claim {
    /// The statement. Measured numbers are not typed but referred to in braces, with the names of
    /// reproduction/reproduction.md: `{target of none-none [15 readers]}`, `{total: prop-bfq / none-none}`; with
    /// ` in EXPERIMENT` at the end, a number of another experiment. `make measured` writes their current values.
    pub says: &'static str,
    /// An experiment (its file below `reproduction/experiments/`, without `.toml`), followed by ` --stack NAME,NAME` if
    /// the file does not run all stacks of the statement. Empty: the statement follows from the policy's rules.
    pub shown_by: &'static str,
}

/// Describes a policy, as a row of the table of policies.
pub struct Row {
    /// Its name, as in the literature.
    pub name: &'static str,
    /// Its name in the name of a stack (`max` in `max-none`); for a throttle, without a dash.
    pub short: &'static str,
    /// The role of a policy in a stack.
    pub role: Role,
    /// Whether it enforces a key of contracts with these parameters; a scheduler: where it shares between groups.
    pub enforces: fn(Key, &Values) -> bool,
    /// One line for lists.
    pub summary: &'static str,
    /// Its source file, under `src/` of its crate. The `//!` comment of that file is its manual page.
    pub file: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Defaults in which a variant differs from `parameters`.
    pub overrides: &'static [(&'static str, u64)],
    /// What it promises and needs, and where it fails.
    pub judgement: Judgement,
    /// Creates the policy.
    pub build: fn(&Build<'_>) -> Box<dyn Policy + Send>,
}

/// A stack with a name of its own, such as a complete solution from a source.
pub struct Named {
    /// The name.
    pub name: &'static str,
    /// The stack.
    pub stack: &'static str,
    /// Does the server translate minimums into weights, and refuse those that do not fit?
    pub admits: bool,
    /// Parameters that differ from their defaults: stage, parameter, value.
    pub settings: &'static [(&'static str, &'static str, &'static str)],
    /// One line for lists.
    pub summary: &'static str,
}

/// The policies from which stacks are built.
pub struct Table {
    /// Throttles and schedulers.
    pub policies: &'static [&'static Row],
    /// Stacks with names of their own.
    pub stacks: &'static [Named],
}

impl Table {
    /// The row of this name or short name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&'static Row> {
        self.policies.iter().copied().find(|row| row.name == name || row.short == name)
    }
}
