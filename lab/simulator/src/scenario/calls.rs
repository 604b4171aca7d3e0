//! Calls that differ from one another: directions, sizes and places drawn by chance, and jobs that end.

use iofair_core::priority::Priority;
use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

/// The direction of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Trim,
}

impl Direction {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];
    /// Its place in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
    /// As a request.
    pub(crate) const fn operation(self) -> Operation {
        match self {
            Self::Read => Operation::Read,
            Self::Write => Operation::Write,
            Self::Trim => Operation::Discard,
        }
    }
}

/// Directions of the calls of a job.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mix {
    /// As the pattern says.
    #[default]
    Pattern,
    /// Reads and writes by chance.
    ReadsAndWrites {
        /// Percent of the calls that read.
        reads: u32,
    },
    /// Trims in place of writes.
    Trims,
    /// Each block is trimmed and then written.
    TrimsThenWrites,
}

impl Mix {
    /// How many calls each block gets.
    pub(crate) const fn calls_of_block(self) -> u64 {
        if matches!(self, Self::TrimsThenWrites) { 2 } else { 1 }
    }
}

/// Sizes of calls and how often each comes, of 100. Empty: the job's `block`.
pub type Sizes = Vec<(Sectors, u32)>;

/// Where random calls go. Parts of a file are in thousandths of it.
#[derive(Clone, PartialEq, Default, Debug)]
pub enum Distribution {
    /// Each block is as likely as the others.
    #[default]
    Uniform,
    /// Each block once, in random order, and then again: fio's random map. Only of calls of one size.
    Once,
    /// The block of rank k (from 1) has a probability of k to the power of minus theta. Ranks are spread over the file.
    Zipf {
        /// Theta.
        theta: f64,
    },
    /// Self-similar: the part `h` of the blocks has the part 1 - `h` of the calls, and so on in each part. Ranks are spread over
    /// the file. (Gray and others, "Quickly generating billion-record synthetic databases", 1994.)
    Pareto {
        /// Between 0 and 1.
        h: f64,
    },
    /// Around the middle of the file.
    Normal {
        /// Standard deviation, in percent of the file.
        deviation_percent: f64,
    },
    /// Percent of the calls, and percent of the file that they go to, from its beginning on.
    Zoned(Vec<(u32, u32)>),
}

/// How calls follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Turn {
    /// Each call has a place of its own.
    #[default]
    Each,
    /// This many calls follow one another from a random place on.
    Run(u64),
    /// This many calls go to the same place.
    Same(u64),
    /// Sequential calls do not follow one another directly.
    Gap(Gap),
}

/// Several files, which are equal parts of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files {
    /// How many.
    pub number: u64,
    /// Calls that go to a file before it is the next one's turn.
    pub calls: u64,
    /// Calls of all files after which they begin anew, even if something was trimmed that is not written yet.
    pub pass: u64,
}

/// What is between sequential calls of a direction, and what follows the last one. As with fio, where calls begin in a file
/// decides where they go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// From the end of a call to the next one.
    pub sectors: i64,
    /// Contiguous sectors before a gap; 0: those of one call.
    pub zone: u64,
    /// Bytes of the file before the first call.
    pub start: u64,
    /// Bytes from there in which calls begin.
    pub reach: u64,
    /// Bytes from there to the end of the file.
    pub room: u64,
    /// The end of the job; `None`: it goes on, and a direction whose last call reached the end starts again on its own.
    pub passes: Option<Passes>,
}

/// Passes through a file. One ends with a call that cannot be made, and then all directions start again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passes {
    /// How many there are at least.
    pub number: u64,
    /// A pass also ends after this number of bytes.
    pub bytes: u64,
    /// Bytes of a job that makes one pass.
    pub wanted: u64,
    /// Whether further passes are made to reach them, as long as a call of `most` bytes is left.
    pub goes_on: bool,
    /// See above.
    pub most: u64,
}

impl Passes {
    /// A pass with the first number of bytes ends, the second one with those before it: whether a further one begins.
    pub(crate) fn end(&mut self, pass: u64, done: u64) -> bool {
        self.number = self.number.saturating_sub(1);
        let left = self.wanted.saturating_sub(done);
        pass > 0 && (self.number > 0 || (self.goes_on && left >= self.most))
    }
}

/// The search for the largest number of calls in flight at which latencies stay low.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DepthSearch {
    /// Latency of a call.
    pub target: Nanos,
    /// How long each number is tried.
    pub window: Nanos,
    /// Calls that must keep the target, in millionths.
    pub per_million: u32,
    /// Whether the job goes on when the number is found.
    pub goes_on: bool,
}

/// What differs from call to call, and when a job ends. The default changes nothing.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Calls {
    /// Directions of calls.
    pub mix: Mix,
    /// Sizes of reads, writes and trims.
    pub sizes: [Sizes; 3],
    /// Most bytes a second of reads, writes and trims, besides the job's own.
    pub rates: [Option<u64>; 3],
    /// Where random calls go.
    pub distribution: Distribution,
    /// Places of random calls are multiples of this; `None`: of the smallest call.
    pub align: Option<Sectors>,
    /// How calls follow one another in a file.
    pub turn: Turn,
    /// Sequential calls of one size, or pairs of a trim and a write, go to several files in turn.
    pub files: Option<Files>,
    /// The job ends after this number of bytes; of pairs, only what is written counts.
    pub bytes_max: Option<u64>,
    /// The job ends after this number of calls.
    pub calls_max: Option<u64>,
    /// The job pauses only after this number of calls, when all of them are complete.
    pub think_every: Option<u32>,
    /// Searches for the depth at which a latency is kept.
    pub search: Option<DepthSearch>,
    /// Whether the last call may go beyond `bytes_max`; otherwise it is cut.
    pub last_is_whole: bool,
    /// Rates are means: the times between calls are exponentially distributed.
    pub poisson: bool,
    /// Calls are submitted and completed in groups.
    pub batches: Option<Batches>,
    /// Writes return when they are on the drive (`O_SYNC`).
    pub durable: bool,
    /// Another number of writes after which there is a sync, beside [`Job::fdatasync_every`](super::Job::fdatasync_every); 0: none.
    /// Where both are due, there is one.
    pub sync_every: u32,
    /// After the first sync, none comes before this number of writes.
    pub sync_gap: u32,
    /// While a sync is under way, no other call or sync begins.
    pub syncs_hold: bool,
    /// Syncs are calls in flight beside others: where so many writes have begun, each call that completes before the next one begins
    /// is followed by a sync.
    pub syncs_in_flight: bool,
    /// The job ends with an `fsync`.
    pub end_sync: bool,
    /// A regular sync may follow the last call.
    pub last_sync: bool,
    /// The job ends when it gets less than this.
    pub least_rate: Option<LeastRate>,
    /// Calls of another priority.
    pub urgent: Option<Urgent>,
    /// Reads through the page cache find what is there.
    pub hits: Option<Hits>,
}

/// How many calls are submitted and completed together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batches {
    /// Calls that are sent together.
    pub submit: u32,
    /// Calls that are complete before further ones are made.
    pub complete: u32,
}

/// The least rate of a job; a slower job ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeastRate {
    /// Bytes a second of reads, writes and trims.
    pub bytes: [Option<u64>; 3],
    /// Calls a second.
    pub calls: [Option<u64>; 3],
    /// The time over which they are means.
    pub cycle: Nanos,
}

/// Calls of another priority than the client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Urgent {
    /// Percent of the reads and of the writes.
    pub percent: [u32; 2],
    /// Their priority.
    pub priority: Priority,
}

/// Page cache hits of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hits {
    /// Opening the file, or beginning it anew, drops what is cached of it.
    pub invalidate: bool,
}

impl Calls {
    /// Whether each call is like the others in direction and size, and goes where the pattern says.
    pub fn are_plain(&self) -> bool {
        self.mix == Mix::Pattern
            && self.sizes.iter().all(Vec::is_empty)
            && self.distribution == Distribution::Uniform
            && self.align.is_none()
            && self.turn == Turn::Each
            && self.files.is_none()
    }
    /// The directions in which there are calls, for a pattern that writes or does not.
    pub fn directions(&self, writes: bool) -> [bool; 3] {
        match self.mix {
            Mix::Pattern => [!writes, writes, false],
            Mix::ReadsAndWrites { reads } => [reads > 0, reads < 100, false],
            Mix::Trims => [false, false, true],
            Mix::TrimsThenWrites => [false, true, true],
        }
    }
}

/// When a client that belongs to a step starts and ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Step {
    /// Its step, from 0: it starts when all clients of the steps before have ended.
    pub number: u32,
    /// How long after that.
    pub delay: Nanos,
    /// Its warm-up.
    pub ramp: Nanos,
    /// Time after its warm-up in which it makes calls; `None`: only its last call ends it.
    pub time: Option<Nanos>,
    /// It also waits for the end of these clients: the first, and their number.
    pub after: Option<(u32, u32)>,
    /// Its group of jobs.
    pub group: u32,
    /// The other clients that end with it.
    pub exit: Option<Exit>,
}

/// The clients that end with one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Those of its step and its group.
    Group,
    /// Those of its step.
    Step,
    /// All, and those of later steps do not begin.
    All,
}
