//! Which processes a scenario has, and when they start.

use iofair_core::time::{Instant, Nanos};
use iofair_drive::random::Random;

use crate::scenario::{ClientSpec, Direction, Manner, Scenario};

/// Streams of random numbers of the starts, one a process, counted from here.
const STREAM_STARTS: u64 = 1 << 32;

/// One process of a client.
pub(super) struct Spec<'a> {
    pub(super) client: &'a ClientSpec,
    pub(super) name: String,
}

pub(super) fn expand(scenario: &Scenario) -> Vec<Spec<'_>> {
    let mut specs = Vec::new();
    for client in &scenario.clients {
        for number in 0..client.processes {
            let name = match client.processes {
                1 => client.name.clone(),
                _ => format!("{}.{number}", client.name),
            };
            specs.push(Spec { client, name });
        }
    }
    specs
}

/// Whether a client writes through the page cache.
pub(super) fn writes_buffered(client: &ClientSpec) -> bool {
    let job = &client.job;
    let writes = job.calls.directions(job.pattern.writes())[Direction::Write.index()];
    client.manner == Manner::Copy || (job.buffered && writes)
}

/// Name, client and start of each process.
pub(crate) fn processes(scenario: &Scenario) -> Vec<(String, usize, Instant)> {
    let numbers = scenario.clients.iter().zip(0..);
    let clients = numbers.flat_map(|(client, number)| (0..client.processes).map(move |_| number));
    let specs = expand(scenario);
    let all = specs.iter().zip(clients).zip(0..);
    all.map(|((spec, client), actor)| (spec.name.clone(), client, start(scenario, spec, actor)))
        .collect()
}

/// When a process starts. Where the ramp hides it this is one after the other and by chance, as for programs that a
/// shell starts; what runs only in front of the others starts when it says.
pub(super) fn start(scenario: &Scenario, spec: &Spec<'_>, actor: u32) -> Instant {
    let (begin, apart) = (Instant::ZERO + spec.client.start, scenario.host.start_apart);
    let (first, after) = (begin + apart * u64::from(actor), Instant::ZERO + scenario.ramp);
    let plain = spec.client.manner == Manner::Plain && spec.client.stop.is_none();
    let mut random = Random::new(scenario.seed, STREAM_STARTS + u64::from(actor));
    let mut start = begin;
    if apart > Nanos::ZERO && plain && first + apart <= after {
        start = first + Nanos(random.below(apart.0));
    }
    let spread = scenario.host.start_spread;
    match plain && spread > Nanos::ZERO {
        true => start + Nanos(random.below(spread.0)),
        false => start,
    }
}
