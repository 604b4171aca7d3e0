//! Makes the processes of a scenario.

use iofair_core::id::ClientId;
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use iofair_drive::random::Random;

use super::spec::{Spec, start};
use super::writeback::{Flushers, Flushing};
use crate::cache::{Cache, FileSetup};
use crate::client::base::Base;
use crate::client::cached::CachedFile;
use crate::client::choose::{Chooser, least};
use crate::client::copy::{Copy, CopySetup};
use crate::client::direct::{Direct, DirectSetup};
use crate::client::least_rate::LeastRateCheck;
use crate::client::pace::{Limit, Pacer, PacerSetup};
use crate::client::program::{Programmed, ProgrammedSetup};
use crate::client::read_ahead::{ReadAhead, ReadAheadSetup};
use crate::client::startup::{Startup, StartupSetup};
use crate::client::tally::Tally;
use crate::client::together::Together;
use crate::client::write::{Write, WriteSetup};
use crate::client::{Kind, Process};
use crate::engine::layout::File;
use crate::scenario::{ClientSpec, Direction, Job, Manner, Mix, Scenario, Seat, Turn};

/// Streams of random numbers: each process has two, counted from here.
const STREAM_FIRST: u64 = 1;

/// Whether a client reads through the page cache what others read as well.
fn reads_together(client: &ClientSpec) -> bool {
    matches!(client.manner, Manner::Interleaved { .. }) && client.job.buffered
}

/// Whether a job reads its file from the beginning to the end through the page cache, whatever the length of its calls.
fn reads_ahead(job: &Job) -> bool {
    let calls = &job.calls;
    let in_order = calls.mix == Mix::Pattern && calls.turn == Turn::Each;
    job.buffered && in_order && job.pattern.is_sequential() && !job.pattern.writes()
}

/// Setup that all processes share.
pub(super) struct ProcessFactory<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) specs: &'a [Spec<'a>],
    pub(super) files: &'a [File],
    /// Longest request of writers.
    pub(super) longest: Sectors,
    /// Process by process, the client of each thread.
    pub(super) threads: &'a [Vec<ClientId>],
}

impl ProcessFactory<'_> {
    /// Makes them, and their files in the page cache.
    pub(super) fn processes(
        &self,
        longest_read: Sectors,
        flushers: &Flushers<'_>,
        cache: &mut Cache,
    ) -> Vec<Process> {
        let mut copies = self.specs.len()..self.files.len();
        let mut processes = Vec::with_capacity(self.specs.len());
        let mut shared = 0;
        for (index, spec) in self.specs.iter().enumerate() {
            let builder = Builder {
                scenario: self.scenario,
                index,
                spec,
                longest_read,
                hole: self.files[index].is_hole(),
                threads: &self.threads[index],
            };
            let file = flushers.of[index].map(|Flushing { domain, client, flags }| {
                let size = spec.client.file_size;
                let file = match spec.client.manner {
                    Manner::Copy => copies.next().expect("as many files as copies"),
                    _ => index,
                };
                let owner = index as u32;
                cache.add_file(FileSetup { file, owner, size, domain, client, flags })
            });
            let together = reads_together(spec.client).then(|| match spec.client.manner {
                Manner::Interleaved { index: 1.., .. } => shared,
                _ => cache.add_shared(),
            });
            shared = together.unwrap_or(shared);
            let place = Place { file, together, longest: self.longest };
            processes.push(builder.process(self.threads[index][0], place));
        }
        processes
    }
}

/// Where a process' file is in the page cache.
struct Place {
    /// Among those that are written.
    file: Option<usize>,
    /// Among those that several read.
    together: Option<usize>,
    /// Longest request of writers.
    longest: Sectors,
}

/// Makes one process.
struct Builder<'a> {
    scenario: &'a Scenario,
    index: usize,
    spec: &'a Spec<'a>,
    longest_read: Sectors,
    /// Whether its file starts as a hole.
    hole: bool,
    /// The client of each thread.
    threads: &'a [ClientId],
}

impl Builder<'_> {
    fn process(&self, client: ClientId, place: Place) -> Process {
        let Place { file, together, longest } = place;
        let base = self.base(client);
        let host = &self.scenario.host;
        let job = &self.spec.client.job;
        let consume = match self.spec.client.manner {
            Manner::Copy => host.consume_window,
            _ => host.consume_in_calls_of(job.block),
        };
        let read = ReadAheadSetup {
            window: host.read_ahead,
            longest: host.read_ahead_request.min(self.longest_read),
            consume_window: consume,
        };
        let kind = match (&self.spec.client.manner, file) {
            (Manner::Startup(recording), _) => {
                let (recording, clients) = (recording.clone(), self.threads.to_vec());
                let longest = self.longest_read;
                Kind::Startup(Startup::new(StartupSetup { recording, clients, longest }))
            }
            (Manner::Program(program), _) => {
                let seat = Seat {
                    process: self.index as u32,
                    slot: 0,
                    file_size: self.spec.client.file_size,
                    block: job.block,
                    seed: self.scenario.seed,
                };
                let (program, longest) = (program.0.as_ref(), self.longest_read);
                let depth = job.depth.max(1);
                Kind::Program(Programmed::new(ProgrammedSetup { program, seat, depth, longest }))
            }
            (Manner::Copy, Some(target)) => {
                let produce_window = host.produce_window;
                Kind::Copy(Copy::new(CopySetup { read, produce_window, target }))
            }
            (_, Some(file)) if job.calls.are_plain() && !job.calls.durable => {
                let produce_window = host.produce_window;
                Kind::Write(Write::new(WriteSetup { produce_window, longest, file }))
            }
            (_, None) if reads_ahead(job) => match together {
                Some(shared) => Kind::Together(Together::new(read, shared)),
                None => Kind::ReadAhead(ReadAhead::new(&base, read)),
            },
            (_, file) => {
                // A direct write into a hole of ext3 falls back to a buffered write with wait, so the
                // submitting call itself waits.
                let depth = if self.hole { 1 } else { job.depth.max(1) };
                let produce_window = host.produce_window;
                let cached = file.map(|file| CachedFile { file, produce_window, longest });
                let (longest, hole) = (self.longest_read, self.hole);
                let hit = job.calls.hits.filter(|_| job.buffered).map(|_| consume);
                let setup = DirectSetup { longest, depth, hole, cached, hit };
                Kind::Direct(Direct::new(&base, setup))
            }
        };
        let group = self.spec.client.group.clone();
        Process { name: self.spec.name.clone(), group, base, kind }
    }

    fn base(&self, client: ClientId) -> Base {
        let Scenario { host, seed, .. } = self.scenario;
        let spec = self.spec.client;
        let stream = STREAM_FIRST + 2 * self.index as u64;
        let ramp_end = Instant::ZERO + self.scenario.ramp;
        let (job, calls) = (&spec.job, &spec.job.calls);
        let directions = calls.directions(job.pattern.writes());
        let used = Direction::ALL.into_iter().filter(|direction| directions[direction.index()]);
        let limit = Limit {
            bytes: calls.bytes_max.unwrap_or(u64::MAX),
            calls: calls.calls_max.unwrap_or(u64::MAX),
            least: used.map(|direction| least(job, direction).bytes()).min().unwrap_or(1),
            last_is_whole: calls.last_is_whole,
            without_trims: calls.mix == Mix::TrimsThenWrites,
        };
        let mut random = Random::new(*seed, stream);
        let chooser = (!calls.are_plain()).then(|| Chooser::new(job, spec.file_size, &mut random));
        let pacer = PacerSetup {
            rate: spec.job.rate,
            rates: calls.rates,
            poisson: calls.poisson,
            limit,
            on_off: spec.job.on_off,
            start: start(self.scenario, self.spec, self.index as u32),
            stop: spec.stop.map_or(Instant::MAX, |stop| Instant::ZERO + stop),
            ramp_end,
        };
        let interleaved = match spec.manner {
            Manner::Interleaved { index, of } => (u64::from(index), u64::from(of)),
            _ => (0, 1),
        };
        Base {
            actor: self.index as u32,
            client,
            urgent: self.threads[self.threads.len() - 1],
            file: self.index - interleaved.0 as usize,
            job: spec.job.clone(),
            file_size: spec.file_size,
            pacer: Pacer::new(pacer, Random::new(*seed, stream + 1)),
            random,
            tally: Tally::new(ramp_end, ramp_end + self.scenario.time)
                .with_interval(self.scenario.interval),
            direction: job.pattern.direction(),
            chooser,
            since_thought: 0,
            step: spec.step,
            ended: None,
            is_ending: false,
            least_rate: calls.least_rate.map(LeastRateCheck::new),
            too_slow: false,
            turnaround: host.turnaround,
            turnaround_write: host.turnaround_write,
            process_wakeup: host.process_wakeup,
            turnaround_spread: host.turnaround_spread,
            position: Sectors(spec.job.block.0 * interleaved.0),
            interleaved,
        }
    }
}
