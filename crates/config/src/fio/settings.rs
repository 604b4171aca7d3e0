//! What a job does: the values of its options.

use iofair_core::time::Nanos;

use super::{Blocks, Distribution, Size};

/// Bytes of a page of the cache.
const PAGE: u64 = 4096;

/// What calls do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// `read`, `randread`
    Read,
    /// `write`, `randwrite`
    Write,
    /// `trim`, `randtrim`
    Trim,
    /// `rw`, `randrw`
    Mixed,
    /// `trimwrite`, `randtrimwrite`: each block is trimmed, then written.
    TrimWrite,
}

/// How calls are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// One at a time.
    Synchronous,
    /// As many as `iodepth` says.
    Asynchronous,
    /// The engine does something else than I/O on a drive.
    Elsewhere,
}

/// How many calls an asynchronous engine submits and completes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batches {
    /// `iodepth_batch`
    pub submit: u32,
    /// `iodepth_batch_complete_min`
    pub complete: u32,
    /// `iodepth_low`: when `iodepth` calls are in flight, no further one is made until no more than these are.
    pub low: Option<u32>,
}

impl Default for Batches {
    fn default() -> Self {
        Self { submit: 1, complete: 1, low: None }
    }
}

/// `zonemode=strided`: a part of each zone is used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Zones {
    /// It was given.
    pub strided: bool,
    /// `zonesize`: bytes of calls before the next zone.
    pub size: u64,
    /// `zonerange`: bytes of a zone, if it is not `zonesize`.
    pub range: u64,
    /// `zoneskip`: bytes between zones.
    pub skip: u64,
}

impl Zones {
    /// Bytes from the last call of a zone to the first one of the next.
    fn gap(&self) -> u64 {
        (self.range.max(self.size) - self.size).saturating_add(self.skip)
    }
}

/// Which of several files a call goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// `roundrobin:N`: N calls to each file in turn.
    RoundRobin(u32),
    /// `sequential`: one file after the other.
    Sequential,
    /// `random`
    Random,
    /// `zipf`, `pareto`, `normal`
    Skewed,
}

/// Which jobs end with one of `exitall`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Exit {
    /// Those of its group.
    #[default]
    Group,
    /// Those that no `stonewall` separates from it.
    Stonewall,
    /// All, also those that have not begun.
    All,
}

/// Calls of another priority among those of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Urgent {
    /// Percent of the calls: `cmdprio_percentage`.
    pub percent: u32,
    /// `cmdprio_class`: 1 real time, 2 best effort, 3 idle.
    pub class: u8,
    /// `cmdprio`
    pub level: u8,
}

impl Default for Urgent {
    fn default() -> Self {
        Self { percent: 0, class: 1, level: 0 }
    }
}

/// What ends a job that gets less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeastRate {
    /// `rate_min`, bytes a second.
    pub bytes: [Option<u64>; 3],
    /// `rate_iops_min`
    pub calls: [Option<u64>; 3],
    /// `rate_cycle`: the time over which they are averages.
    pub cycle: Nanos,
}

impl Default for LeastRate {
    fn default() -> Self {
        Self { bytes: [None; 3], calls: [None; 3], cycle: Nanos::from_millis(1000) }
    }
}

/// How calls use the page cache and the threads of a job.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hints {
    /// `atomic`, which needs `direct`.
    pub atomic: bool,
    /// `uncached`: what was read or written does not stay in the page cache.
    pub drop_behind: bool,
    /// `fadvise_hint=random`
    pub random: bool,
    /// `bs_unaligned`
    pub unaligned: bool,
    /// `io_submit_mode=offload`: threads of the job make its calls.
    pub offload: bool,
}

/// How what was written is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verify {
    /// `verify`, as it was written.
    pub how: Option<&'static str>,
    /// `verify_pattern` was given.
    pub pattern: bool,
    /// `do_verify`: when a job has written.
    pub at_end: bool,
    /// `verify_backlog`: while it writes.
    pub between: bool,
    /// `verify_only`: it does nothing else.
    pub only: bool,
}

impl Default for Verify {
    fn default() -> Self {
        Self { how: None, pattern: false, at_end: true, between: false, only: false }
    }
}

/// Whether a file is a whole drive, by its name: on Windows such as `\\.\PhysicalDrive0`.
pub fn is_device(name: &str) -> bool {
    name.starts_with("/dev/") || name.starts_with(r"\\.\")
}

/// What a job does. Defaults are fio's.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// `name`
    pub name: Option<String>,
    /// `description`
    pub description: Option<String>,
    /// `rw`: what calls do, whether anywhere, and the number behind the colon.
    pub direction: Direction,
    /// See above.
    pub random: bool,
    /// See above.
    pub modifier: Option<i64>,
    /// `rw_sequencer=identical`
    pub identical: bool,
    /// `bs`, `bsrange`, `bssplit`, of reads, writes, trims.
    pub blocks: [Blocks; 3],
    /// `bsrange` and `bssplit`, which go before `bs`, wherever they stand.
    pub spread: [Option<Blocks>; 3],
    /// `blockalign`: what places of calls are multiples of.
    pub align: Option<u64>,
    /// `iodepth`
    pub depth: u32,
    /// `iodepth_batch` and the options like it.
    pub batches: Batches,
    /// `ioengine`
    pub engine: Engine,
    /// The engine is `libaio`, whose syncs return at once, and to which fio looks for completed calls only when all are in flight.
    pub is_libaio: bool,
    /// The engine's syncs are calls in flight like others: `io_uring` and `posixaio`.
    pub syncs_in_flight: bool,
    /// An engine that another one stands for: its name, and what it stands for.
    pub engine_note: Option<(&'static str, &'static str)>,
    /// The engine's files are whole drives, whatever their names.
    pub names_drives: bool,
    /// The engine does not use the page cache.
    pub uncached: bool,
    /// How calls use the page cache and the threads of a job.
    pub hints: Hints,
    /// `direct`, and the opposite of `buffered`.
    pub direct: bool,
    /// `rate`, bytes a second.
    pub rate: [Option<u64>; 3],
    /// `rate_iops`
    pub rate_iops: [Option<u64>; 3],
    /// `rate_process=poisson`
    pub poisson: bool,
    /// `rate_min` and the options like it: the job ends when it gets less.
    pub least_rate: LeastRate,
    /// `thinktime`
    pub think: Nanos,
    /// `thinktime_blocks`
    pub think_blocks: u32,
    /// `numjobs`
    pub clones: u32,
    /// `size`
    pub size: Option<Size>,
    /// `filesize`
    pub file_size: Option<u64>,
    /// `nrfiles`, or the number of names in `filename`; devices are one drive.
    pub nr_files: u64,
    /// `openfiles`, if not all files are open at once.
    pub open_files: Option<u64>,
    /// `file_service_type`
    pub service: Service,
    /// `zonemode` and the options like it.
    pub zones: Zones,
    /// `fill_device`
    pub fill_device: bool,
    /// `io_size`
    pub io_size: Option<Size>,
    /// `number_ios`
    pub number_ios: Option<u64>,
    /// `loops`
    pub loops: u64,
    /// `offset`
    pub offset: Size,
    /// `offset_increment`
    pub offset_increment: Size,
    /// `runtime`
    pub runtime: Option<Nanos>,
    /// `time_based`
    pub time_based: bool,
    /// `ramp_time`
    pub ramp: Nanos,
    /// `startdelay`: from, to.
    pub start_delay: (Nanos, Nanos),
    /// `fsync`
    pub fsync: u32,
    /// `fdatasync`
    pub fdatasync: u32,
    /// `end_fsync`, `fsync_on_close`
    pub end_syncs: [bool; 2],
    /// `sync`: writes return when they are on the drive.
    pub sync: bool,
    /// `invalidate`: what the page cache has of the file is dropped when it is opened.
    pub invalidate: bool,
    /// `rwmixread`, percent.
    pub reads: u32,
    /// `random_distribution`
    pub distribution: Distribution,
    /// `percentage_random`, of reads, writes, trims.
    pub random_percent: [u32; 3],
    /// The opposite of `norandommap`.
    pub random_map: bool,
    /// `stonewall`
    pub stonewall: bool,
    /// `wait_for`: the job begins when all clones of that job have ended.
    pub wait_for: Option<String>,
    /// `exitall`
    pub exit_all: bool,
    /// `exit_what`
    pub exit_what: Exit,
    /// `new_group`
    pub new_group: bool,
    /// `group_reporting`
    pub group_reporting: bool,
    /// `prio`
    pub prio: Option<u8>,
    /// `prioclass`: 1 real time, 2 best effort, 3 idle.
    pub prio_class: Option<u8>,
    /// `cmdprio_percentage` and the options like it, of reads and of writes.
    pub urgent: [Urgent; 2],
    /// `cgroup`
    pub cgroup: Option<String>,
    /// `cgroup_weight`
    pub cgroup_weight: Option<u32>,
    /// `latency_target`
    pub latency_target: Option<Nanos>,
    /// `latency_window`
    pub latency_window: Option<Nanos>,
    /// `latency_percentile`, in millionths.
    pub latency_per_million: u32,
    /// `latency_run`
    pub latency_run: bool,
    /// `filename`, else a job's name that is a device, else `filename_format`.
    pub file: Option<String>,
    /// `filename_format`
    pub file_format: Option<String>,
    /// `directory`
    pub directory: Option<String>,
    /// `randseed`
    pub seed: Option<u64>,
    /// `log_avg_msec`
    pub log_window: Option<Nanos>,
    /// `kb_base`
    pub kb_base: u64,
    /// The bytes of its blocks, if they run as whole pages.
    pub odd_block: Option<u64>,
    /// `verify` and the options like it.
    pub verify: Verify,
}

impl Settings {
    /// What follows from several options together, in whatever order they stand; those without effect.
    pub(super) fn finish(&mut self, job: &str) -> Vec<&'static str> {
        self.direct |= self.hints.atomic;
        for (blocks, spread) in self.blocks.iter_mut().zip(&mut self.spread) {
            *blocks = spread.take().unwrap_or_else(|| blocks.clone());
        }
        if self.hints.offload && self.engine == Engine::Synchronous {
            self.engine = Engine::Asynchronous;
        }
        let device = is_device(job).then(|| job.replace(':', "\\:"));
        self.file = self.file.take().or(device);
        self.fill_device &= matches!(self.size, None | Some(Size::Bytes(0)));
        let names = self.files();
        if self.names_drives || (!names.is_empty() && names.iter().all(|name| is_device(name))) {
            self.nr_files = 1;
        } else if !names.is_empty() {
            self.nr_files = names.len() as u64;
        }
        self.file = self.file.take().or(self.file_format.take());
        self.open_files = self.open_files.filter(|count| *count < self.nr_files);
        if self.open_files == Some(1) && !self.random {
            (self.service, self.open_files) = (Service::Sequential, None);
        }
        self.random_map &= self.align.is_none();
        self.fill_pages();
        let mut without_effect = Vec::new();
        if self.time_based && self.runtime.is_none() {
            self.time_based = false;
            without_effect.push("time_based without runtime");
        }
        if self.distribution != Distribution::Random && !self.random {
            self.distribution = Distribution::Random;
            without_effect.push("random_distribution of sequential jobs");
        }
        if self.random_percent != [100; 3] && !self.random {
            self.random_percent = [100; 3];
            without_effect.push("percentage_random of sequential jobs");
        }
        without_effect
    }
    /// Makes whole pages of the blocks of a job in the page cache that are neither sectors nor parts of a page, and scales its
    /// sizes, so that it has as many calls.
    fn fill_pages(&mut self) {
        let Some(block) = self.fixed_block() else { return };
        let alike = self.blocks.iter().all(|blocks| *blocks == Blocks::Fixed(block));
        let fits = block.is_multiple_of(PAGE) || PAGE.is_multiple_of(block) || !self.writes();
        if !self.is_buffered() || !alike || (block.is_multiple_of(512) && fits) {
            return;
        }
        let whole = block.next_multiple_of(PAGE);
        let scaled =
            |bytes: u64| (bytes / block).saturating_mul(whole).saturating_add(bytes % block);
        for size in [&mut self.size, &mut self.io_size].into_iter().flatten() {
            if let Size::Bytes(bytes) = size {
                *bytes = scaled(*bytes);
            }
        }
        self.file_size = self.file_size.map(scaled);
        self.rate = self.rate.map(|rate| rate.map(scaled));
        self.blocks = [whole; 3].map(Blocks::Fixed);
        self.odd_block = Some(block);
    }
    /// Whether some of its calls are sequential, although it is a random job.
    pub(super) fn is_random_in_part(&self) -> bool {
        let used = match self.direction {
            Direction::Read => 0..1,
            Direction::Write => 1..2,
            Direction::Trim => 2..3,
            Direction::Mixed => 0..2,
            Direction::TrimWrite => 1..3,
        };
        self.random_percent[used].iter().any(|percent| *percent < 100)
    }
    /// Whether its calls go through the page cache.
    pub fn is_buffered(&self) -> bool {
        !self.direct && !self.uncached && self.direction != Direction::Trim
    }
    /// Whether the kernel would read ahead for it in a way that is not modelled.
    pub fn lacks_read_ahead(&self) -> bool {
        let jumps = self.modifier.is_some() || self.takes_turns() || self.zone_gap() > 0;
        let with_gaps = self.direction == Direction::Read && jumps;
        self.is_buffered() && !self.random && (with_gaps || self.direction == Direction::Mixed)
    }
    /// Whether each of its calls, or pairs of them, follows the one before without a gap.
    fn is_in_order(&self) -> bool {
        !self.random && self.direction != Direction::Mixed && self.modifier.is_none()
    }
    /// Whether its calls are sequential, have one direction, and no gaps.
    fn is_one_sequence(&self) -> bool {
        self.is_in_order() && self.direction != Direction::TrimWrite
    }
    /// The size of calls of a job that has one direction, if all have one.
    fn fixed_block(&self) -> Option<u64> {
        let blocks = &self.blocks[match self.direction {
            Direction::Read => 0,
            Direction::Trim => 2,
            _ => 1,
        }];
        if let Blocks::Fixed(size) = blocks { Some(*size) } else { None }
    }
    /// Whether calls go to several files in turn: sequential ones of one size, and pairs of a trim and a write.
    pub fn takes_turns(&self) -> bool {
        let in_turn = self.nr_files > 1 && matches!(self.service, Service::RoundRobin(_));
        let is_paired = self.direction == Direction::TrimWrite;
        let is_alike = !is_paired || self.blocks[1] == self.blocks[2];
        let is_one = self.is_in_order() && self.fixed_block().is_some() && is_alike;
        in_turn && (is_one || (self.random && is_paired)) && self.open_files.is_none()
    }
    /// Whether its zones are modelled: sequential calls that end with a part of a zone.
    pub(super) fn has_zones(&self) -> bool {
        let Zones { size, range, .. } = self.zones;
        let whole = self.fixed_block().is_some_and(|block| size.is_multiple_of(block));
        let fits =
            size > 0 && (range == 0 || range >= size) && self.zones.gap().is_multiple_of(512);
        self.zones.strided && self.is_one_sequence() && whole && fits && self.nr_files == 1
    }
    /// Bytes between its calls in a zone and those in the next one; 0 without zones.
    pub fn zone_gap(&self) -> u64 {
        if self.has_zones() { self.zones.gap() } else { 0 }
    }
    /// Whether its calls are sequential, with gaps between them or in two directions that go on separately.
    pub fn has_gaps(&self) -> bool {
        let differ = self.modifier.is_some() || self.direction == Direction::Mixed;
        // Where a zone follows another directly, only the end of the file is one of zones; reads ahead go beyond it.
        let has_zones = self.has_zones() && !self.is_buffered();
        (differ && !self.random) || has_zones || self.zone_gap() > 0
    }
    /// Whether fio has counted a call when the engine has it, and not when it is complete.
    pub fn counts_calls_in_flight(&self) -> bool {
        let is_null = self.engine_note.is_some_and(|(name, _)| name == "null");
        let at_once = self.hints.offload || (is_null && self.depth == 1);
        self.engine == Engine::Asynchronous && !at_once
    }
    /// Writes before the second sync, as fio makes none before it has seen a call complete since the last one; 0: any.
    pub fn sync_gap(&self) -> u32 {
        if self.is_libaio && !self.hints.offload { self.depth } else { 0 }
    }
    /// Whether the order in which it uses several files is modelled.
    pub(super) fn orders_files(&self) -> bool {
        match self.service {
            _ if self.nr_files == 1 => true,
            Service::Sequential => self.is_in_order(),
            _ if self.open_files.is_some() => false,
            Service::RoundRobin(_) | Service::Random if self.random => true,
            Service::RoundRobin(_) => self.takes_turns(),
            _ => false,
        }
    }
    /// Whether a random call may go where one went before, although others have not been made yet.
    pub fn may_repeat_places(&self) -> bool {
        let has_map = self.random_map && self.distribution == Distribution::Random;
        self.random && (!has_map || self.modifier.is_some())
    }
    /// The names in `filename`.
    pub fn files(&self) -> Vec<String> {
        match &self.file {
            None => Vec::new(),
            Some(file) if self.names_drives => vec![file.clone()],
            Some(file) => {
                // No name has a character of this kind.
                let escaped = file.replace("\\:", "\0");
                let names = escaped.split(':').filter(|name| !name.is_empty());
                names.map(|name| name.replace('\0', ":")).collect()
            }
        }
    }
    /// How what was written is checked, if it is.
    pub fn verified(&self) -> Option<&'static str> {
        let pattern = || self.verify.pattern.then_some("pattern");
        self.verify.how.or_else(pattern).filter(|how| *how != "0")
    }
    /// Whether the check makes calls: of jobs that write, between their calls or after the last one, unless their time ends them.
    pub fn verify_reads(&self) -> bool {
        let reads = self.verify.at_end && (self.verify.between || !self.time_based);
        reads && self.writes() && self.verified().is_some()
    }
    /// Whether it makes calls that write.
    pub fn writes(&self) -> bool {
        !matches!(self.direction, Direction::Read | Direction::Trim)
    }
}

impl Default for Settings {
    #[expect(clippy::too_many_lines, reason = "a line for each field")]
    fn default() -> Self {
        Self {
            name: None,
            description: None,
            direction: Direction::Read,
            random: false,
            modifier: None,
            identical: false,
            blocks: [const { Blocks::Fixed(4096) }; 3],
            spread: [const { None }; 3],
            align: None,
            depth: 1,
            batches: Batches::default(),
            engine: Engine::Synchronous,
            is_libaio: false,
            syncs_in_flight: false,
            engine_note: None,
            names_drives: false,
            uncached: false,
            hints: Hints::default(),
            direct: false,
            rate: [None; 3],
            rate_iops: [None; 3],
            poisson: false,
            least_rate: LeastRate::default(),
            think: Nanos::ZERO,
            think_blocks: 1,
            clones: 1,
            size: None,
            file_size: None,
            nr_files: 1,
            open_files: None,
            service: Service::RoundRobin(1),
            zones: Zones::default(),
            fill_device: false,
            io_size: None,
            number_ios: None,
            loops: 1,
            offset: Size::Bytes(0),
            offset_increment: Size::Bytes(0),
            runtime: None,
            time_based: false,
            ramp: Nanos::ZERO,
            start_delay: (Nanos::ZERO, Nanos::ZERO),
            fsync: 0,
            fdatasync: 0,
            end_syncs: [false; 2],
            sync: false,
            invalidate: true,
            reads: 50,
            distribution: Distribution::Random,
            random_percent: [100; 3],
            random_map: true,
            stonewall: false,
            wait_for: None,
            exit_all: false,
            exit_what: Exit::Group,
            new_group: false,
            group_reporting: false,
            prio: None,
            prio_class: None,
            urgent: [Urgent::default(); 2],
            cgroup: None,
            cgroup_weight: None,
            latency_target: None,
            latency_window: None,
            latency_per_million: 1_000_000,
            latency_run: false,
            file: None,
            file_format: None,
            directory: None,
            seed: None,
            log_window: None,
            kb_base: 1024,
            odd_block: None,
            verify: Verify::default(),
        }
    }
}
