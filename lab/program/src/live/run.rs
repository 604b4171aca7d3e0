//! One run: a server over the emulated drive, and the lab's clients on its sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use iofair_core::controller::Submission;
use iofair_core::id::ClientId;
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};
use iofair_serve::back::emulated::Emulated;
use iofair_serve::back::store::Store;
use iofair_serve::back::volume::{Map, PlannedVolume, Stamp, VolumeId};
use iofair_serve::client::{CommandType, Crowd, Request};
use iofair_serve::engine::{Engine, Plan, Timeouts};
use iofair_serve::{Bare, Clock};
use iofair_simulator::outcome::{DriveOutcome, Outcome};
use iofair_simulator::outside::{Outside, Reply, Roster, run_outside};
use iofair_simulator::scenario::Scenario;

use super::watch::Watch;

/// Requests that a flusher has in flight before it sleeps. In the simulator it sleeps when there is no free tag, which
/// is not visible from outside, so here the queue is practically unlimited. The choice matters: beside four writers
/// under `prop-bfq` the random reader of figure 1 gets 5.1, 4.8, 1.9 and 0.9 MB/s with 16, 64, 128 and 4,096, and
/// 0.9 in the simulator.
const FLUSHER_MAX: usize = 4096;
/// Time between two checks for other work.
const SLICE: Nanos = Nanos::from_millis(100);

/// Runs a scenario live. `path` of the host's turnaround passes on the way.
pub(super) fn simulate(scenario: &Scenario, path: Nanos, watch: &Watch) -> Result<Outcome, String> {
    if watch.is_over() {
        return Err("interrupted".into());
    }
    let mut scenario = scenario.clone();
    let host = &mut scenario.host;
    let woken = std::mem::take(&mut host.process_wakeup);
    host.turnaround = (host.turnaround + woken).saturating_sub(path);
    host.turnaround_write = (host.turnaround_write + woken).saturating_sub(path);
    let drive = || iofair_simulator::load_drive(&scenario).map_err(|e| e.to_string());
    let mut live = Live::new(&scenario, watch);
    let outcome = run_outside(&scenario, drive()?, &mut live).map_err(|e| e.to_string())?;
    live.end()?;
    outcome.ok_or_else(|| "interrupted".to_owned())
}

/// What went to the drive.
#[derive(Default)]
struct Counts {
    commands: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// A server and its clients.
struct Live<'a> {
    scenario: &'a Scenario,
    watch: &'a Watch,
    counts: Arc<Counts>,
    running: Option<(Bare, Crowd)>,
    error: Option<String>,
    now: Instant,
}

impl<'a> Live<'a> {
    fn new(scenario: &'a Scenario, watch: &'a Watch) -> Self {
        let (counts, now) = (Arc::default(), Instant::ZERO);
        Self { scenario, watch, counts, running: None, error: None, now }
    }
    fn running(&mut self) -> &mut (Bare, Crowd) {
        self.running.as_mut().expect("it was opened")
    }
    fn crowd(&mut self) -> &mut Crowd {
        &mut self.running().1
    }
    fn start(&mut self, roster: Roster) -> anyhow::Result<(Bare, Crowd)> {
        let drive = iofair_simulator::load_drive(self.scenario)?;
        let bytes = drive.facts().capacity.bytes();
        let back = Emulated::new(&self.scenario.drive, drive, Store::forgetful(bytes)?);
        let mut engine = Engine::with_tags(Box::new(back), roster.stack.clone(), roster.tags);
        self.count(&mut engine);
        let names: Vec<String> = (0..roster.members.len()).map(|n| format!("client-{n}")).collect();
        let members = names.iter().zip(roster.members).zip(0..);
        let volumes = members.map(|((name, member), number)| PlannedVolume {
            id: VolumeId(number),
            name: name.clone(),
            group: member.group,
            // All of the drive: the lab's files say where they lie on it.
            map: Map::linear(0, bytes).into(),
            size: bytes,
            read_only: false,
            storage: None,
            entry: Default::default(),
            stamp: Stamp { priority: member.priority, reads: member.reads, writes: member.writes },
        });
        let plan = Plan {
            stack: roster.stack,
            groups: roster.groups,
            volumes: volumes.collect(),
            closed: Vec::new(),
            timeouts: Timeouts { drain: Nanos::from_secs(5), ..Timeouts::default() },
            faults: Default::default(),
        };
        let socket = self.watch.socket("run");
        let server = Bare::start(engine, &plan, &socket)?;
        let crowd = Crowd::connect(&socket, &names, Clock::start())?;
        Ok((server, crowd))
    }
    /// Counts what goes to the drive, as the lab does.
    fn count(&mut self, engine: &mut Engine) {
        self.counts = Arc::default();
        let counts = Arc::clone(&self.counts);
        engine.observe_dispatches(Box::new(move |_, dispatch| {
            counts.commands.fetch_add(1, Relaxed);
            let bytes = dispatch.length.bytes();
            match dispatch.operation {
                Operation::Read => {
                    counts.reads.fetch_add(1, Relaxed);
                    counts.read_bytes.fetch_add(bytes, Relaxed);
                }
                Operation::Write => {
                    counts.writes.fetch_add(1, Relaxed);
                    counts.written_bytes.fetch_add(bytes, Relaxed);
                }
                _ => {}
            }
        }));
    }
    /// Disconnects; returns the first error, if any.
    fn end(mut self) -> Result<(), String> {
        if let Some((server, crowd)) = self.running.take() {
            drop(crowd);
            server.stop().map_err(|error| error.to_string())?;
        }
        self.error.take().map_or(Ok(()), Err)
    }
}

impl Outside for Live<'_> {
    fn open(&mut self, roster: Roster) -> Result<(), String> {
        let mut running = self.start(roster).map_err(|error| format!("{error:#}"))?;
        // The time of the run begins now.
        running.1.restart();
        self.running = Some(running);
        Ok(())
    }
    fn wait(&mut self, until: Instant) -> Option<Instant> {
        if self.watch.is_over() || self.error.is_some() {
            return None;
        }
        let slice = until.min(self.now + SLICE);
        match self.crowd().wait(slice) {
            Ok(now) => {
                self.watch.passed(now.since(self.now));
                if now >= until {
                    self.watch.record_late(now.since(until));
                }
                self.now = now;
                Some(now)
            }
            Err(error) => {
                self.error = Some(format!("a client lost its connection to the server: {error}"));
                None
            }
        }
    }
    fn submit(&mut self, submission: &Submission) {
        let Submission { tag, client, operation, start, length, .. } = *submission;
        let command_type = match operation {
            Operation::Read => CommandType::Read,
            Operation::Flush => CommandType::Flush,
            Operation::Discard => CommandType::Trim,
            _ => CommandType::Write,
        };
        let length = u32::try_from(length.bytes()).expect("calls of at most 32 MiB");
        let (client, offset) = (client.index(), start.bytes());
        self.crowd().push(Request { client, tag, command_type, offset, length });
    }
    fn send(&mut self) {
        if let Err(error) = self.crowd().send() {
            self.error
                .get_or_insert(format!("a client lost its connection to the server: {error}"));
        }
    }
    fn collect(&mut self, replies: &mut Vec<Reply>) {
        let mut failed = None;
        for reply in self.crowd().take_replies() {
            if reply.error != 0 {
                failed = Some(format!("the server replied with error {}", reply.error));
            }
            let length = iofair_core::unit::Sectors::from_bytes_ceil(reply.length.into());
            replies.push(Reply { tag: reply.tag, length });
        }
        self.error = self.error.take().or(failed);
    }
    fn is_asleep(&self, client: ClientId) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|(_, crowd)| crowd.in_flight(client.index()) >= FLUSHER_MAX)
    }
    fn end_ramp(&mut self) {
        let Counts { commands, read_bytes, written_bytes, reads, writes } = &*self.counts;
        for count in [commands, read_bytes, written_bytes, reads, writes] {
            count.store(0, Relaxed);
        }
        // If the server is gone, the next wait says so.
        let _ = self.running().0.stats(true);
    }
    fn measured(&mut self) -> DriveOutcome {
        let busy = self.running().0.stats(false).map_or(Nanos::ZERO, |stats| stats.busy);
        DriveOutcome {
            read_bytes: self.counts.read_bytes.load(Relaxed),
            written_bytes: self.counts.written_bytes.load(Relaxed),
            commands: self.counts.commands.load(Relaxed),
            reads: self.counts.reads.load(Relaxed),
            writes: self.counts.writes.load(Relaxed),
            busy,
            series: Vec::new(),
        }
    }
}
