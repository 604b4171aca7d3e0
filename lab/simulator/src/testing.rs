//! Small scenarios, and a drive whose every completion takes the same time. Used by tests of this crate and of those above.

use std::collections::VecDeque;

use iofair_core::controller::FlushRule;
use iofair_core::policy::DriveFacts;
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;
use iofair_drive::{Command, Done, Drive};
use iofair_policies::TABLE;

use crate::host;
use crate::scenario::{ClientSpec, Host, Job, Pattern, Scenario, Scheduling};

/// Completes every command a fixed time after it was given; bytes can cost time too, one command after
/// the other.
pub struct Fixed {
    latency: Nanos,
    bytes_per_s: Option<u64>,
    free: Instant,
    queue: VecDeque<Done>,
    busy: Nanos,
    busy_since: Instant,
    /// What it says of itself.
    pub facts: DriveFacts,
}

impl Fixed {
    /// With this latency, and this rate.
    pub fn new(latency: Nanos, bytes_per_s: Option<u64>) -> Self {
        let facts = DriveFacts {
            rotational: false,
            depth: 32,
            max_request: Sectors::from_kib(512),
            capacity: Sectors::from_kib(64 << 20),
        };
        let (free, busy_since) = (Instant::ZERO, Instant::ZERO);
        let (queue, busy) = (VecDeque::new(), Nanos::ZERO);
        Self { latency, bytes_per_s, free, queue, busy, busy_since, facts }
    }
}

impl Drive for Fixed {
    fn submit(&mut self, now: Instant, command: Command) {
        if self.queue.is_empty() {
            self.busy_since = now;
        }
        let bytes = command.length.bytes();
        let time = self.bytes_per_s.map_or(Nanos::ZERO, |rate| Nanos::for_units_ceil(bytes, rate));
        self.free = self.free.max(now) + time;
        let at = (now + self.latency).max(self.free);
        self.queue.push_back(Done { id: command.id, at, status: 0 });
    }
    fn next_event(&self) -> Option<Instant> {
        self.queue.front().map(|done| done.at)
    }
    fn advance(&mut self, now: Instant, done: &mut Vec<Done>) {
        while self.queue.front().is_some_and(|front| front.at <= now) {
            let done_one = self.queue.pop_front().expect("just looked at");
            done.push(done_one);
            if self.queue.is_empty() {
                self.busy += done_one.at.since(self.busy_since);
            }
        }
    }
    fn facts(&self) -> DriveFacts {
        self.facts
    }
    fn busy(&self) -> Nanos {
        self.busy
    }
    fn worst_case_rate(&self) -> u64 {
        1_000_000
    }
}

/// Microseconds.
pub fn us(n: u64) -> Nanos {
    Nanos::from_micros(n)
}
/// Kibibytes.
pub fn kib(n: u64) -> Sectors {
    Sectors::from_kib(n)
}

/// One call at a time, without a pause.
pub fn job(pattern: Pattern, block_kib: u64, buffered: bool) -> Job {
    Job::new(pattern, kib(block_kib), buffered)
}

/// A client with this job, in the root.
pub fn client(name: &str, job: Job) -> ClientSpec {
    ClientSpec::new(name, job)
}

/// A host without chance: 10 us a call, 640 us for 256 KiB from the cache, 320 us into it.
pub fn plain_host() -> Host {
    Host {
        turnaround: us(10),
        turnaround_write: us(10),
        process_wakeup: us(0),
        turnaround_spread: 0,
        scheduling: Scheduling::FREE,
        consume_window: us(640),
        consume_copy: us(640),
        produce_window: us(320),
        ..host::host_2018()
    }
}

/// These clients on [`plain_host`], without a policy.
pub fn scenario(clients: Vec<ClientSpec>, time: Nanos) -> Scenario {
    Scenario {
        drive: "plextor-px256m5s".to_owned(),
        stack: TABLE.stack("none-none").expect("in the table"),
        tags: None,
        flushes: FlushRule::Bypass,
        stripe: None,
        host: plain_host(),
        groups: Vec::new(),
        clients,
        changes: Vec::new(),
        ramp: Nanos::ZERO,
        time,
        seed: 1,
        interval: None,
    }
}
