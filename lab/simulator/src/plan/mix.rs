//! Mixes: the loads of all clients at one time, and the promises that such a mix tests.
//!
//! In a worst mix one client does the slowest that its contract covers, or what it is expected to do, and all others do the same
//! as one of [`super::load::NEIGHBOURS`]. The expected mix has the expected load of every client. Of equal clients, one
//! is tested for all.

use iofair_core::time::Nanos;
use serde::Serialize;

use super::alone::Alone;
use super::bench::{Bench, Ran, Run};
use super::load::{Load, Neighbours, PROBES};
use super::meter::Measured;
use super::question::PlanError;
use super::set::{Client, Set, is_within};
use crate::scenario::GroupSpec;

/// Pause between two reads of a client that asks for little, at least, and in latencies that it was promised.
const PAUSE: Nanos = Nanos::from_millis(5);
const PAUSE_LATENCIES: u64 = 4;
/// The load of the client that a mix tests.
#[derive(Clone)]
pub(super) struct Own {
    /// Its place among the clients.
    pub(super) client: usize,
    pub(super) load: Load,
    pub(super) kind: Kind,
}

/// Why a client does what it does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is the slowest that its minimum covers.
    Slowest,
    /// A light load, as a latency of reads (0), writes (1) or flushes (2) requires.
    Probe(usize),
    /// It is expected.
    Expected,
}

/// The loads of all clients at one time.
#[derive(Clone)]
pub(super) struct Mix {
    /// `None` in the expected mix.
    pub(super) own: Option<Own>,
    /// `None` if there are none.
    neighbours: Option<Neighbours>,
    pub(super) name: String,
    /// Which minimums it puts to the test, and which latencies, by group.
    minimums: Vec<String>,
    latencies: Vec<String>,
}

/// All mixes of a set, the expected one first.
pub(super) fn mixes(set: &Set, alone: &Alone) -> Vec<Mix> {
    let mut mixes = vec![expected(set)];
    let mut seen: Vec<String> = Vec::new();
    for (index, client) in set.clients.iter().enumerate() {
        let class = set.class(client);
        if seen.contains(&class) {
            continue;
        }
        seen.push(class);
        for own in own_loads(set, alone, index, client) {
            let others = set.clients.len() - 1;
            if others == 0 {
                mixes.push(worst(set, alone, own, None));
                continue;
            }
            for (place, neighbours) in alone.tried.iter().enumerate() {
                if neighbours.second.is_none() || others > 1 {
                    mixes.push(worst(set, alone, own.clone(), Some(place)));
                }
            }
        }
    }
    mixes
}

/// Loads of a client in worst mixes.
fn own_loads(set: &Set, alone: &Alone, index: usize, client: &Client) -> Vec<Own> {
    let contract = set.contract(&client.group);
    let slowest = alone.slowest(contract.alone);
    let own = |load, kind| Own { client: index, load, kind };
    let mut owns = Vec::new();
    if client.expected.text != slowest.text {
        owns.push(own(client.expected.clone(), Kind::Expected));
    }
    let minimum = |group: &GroupSpec| {
        is_within(&client.group, &group.name) && group.contract.minimum().is_some()
    };
    if owns.is_empty() || set.groups.iter().any(minimum) {
        owns.push(own(slowest, Kind::Slowest));
    }
    for (place, latency) in contract.latency.times().into_iter().enumerate() {
        let Some(latency) = latency else { continue };
        let mut load = Load::from_keys(PROBES[place]);
        let pause = PAUSE.max(latency * PAUSE_LATENCIES);
        load.set_think(pause);
        owns.push(own(load, Kind::Probe(place)));
    }
    owns
}

fn expected(set: &Set) -> Mix {
    let all = |keep: &dyn Fn(&GroupSpec) -> bool| -> Vec<String> {
        set.groups.iter().filter(|group| keep(group)).map(|group| group.name.clone()).collect()
    };
    let is_paced = |group: &GroupSpec| {
        let own = set.clients.iter().filter(|client| client.group == group.name);
        own.clone().count() > 0 && own.clone().all(|client| client.expected.is_paced())
    };
    Mix {
        own: None,
        neighbours: None,
        name: "expected".to_owned(),
        minimums: all(&|group| group.contract.minimum().is_some()),
        latencies: all(&|group| group.contract.latency.is_some() && is_paced(group)),
    }
}

fn worst(set: &Set, alone: &Alone, own: Own, neighbours: Option<usize>) -> Mix {
    let does =
        |index: usize| (index != own.client).then(|| rate_of(alone, neighbours, index, own.client));
    // A group is tested if a client inside does what its contract covers.
    let tested = |group: &&GroupSpec| {
        let clients = set.clients.iter().enumerate();
        let mut inside = clients.filter(|(_, client)| is_within(&client.group, &group.name));
        inside.any(|(index, _)| match does(index) {
            None => !matches!(own.kind, Kind::Probe(_)),
            Some(rate) => alone.covers(group.contract.alone, rate),
        })
    };
    let minimums = set.groups.iter().filter(|group| group.contract.minimum().is_some());
    let minimums = minimums.filter(tested).map(|group| group.name.clone()).collect();
    let group = &set.clients[own.client].group;
    let paced = match own.kind {
        Kind::Probe(_) => true,
        Kind::Expected => own.load.is_paced(),
        Kind::Slowest => false,
    };
    let wanted = paced && set.contract(group).latency.is_some();
    let latencies = wanted.then(|| group.clone()).into_iter().collect();
    let name = match neighbours {
        None => format!("{}, alone", own.load.text),
        Some(place) => alone.tried[place].name.to_owned(),
    };
    let neighbours = neighbours.map(|place| alone.tried[place]);
    Mix { own: Some(own), neighbours, name, minimums, latencies }
}

/// Whether the neighbour at `index` has the second load.
fn is_second(neighbours: &Neighbours, index: usize, own: usize) -> bool {
    let place = if index > own { index - 1 } else { index };
    neighbours.second.is_some() && place % 2 == 1
}

fn rate_of(alone: &Alone, neighbours: Option<usize>, index: usize, own: usize) -> u64 {
    let place = neighbours.expect("there are others");
    alone.neighbours[place][usize::from(is_second(&alone.tried[place], index, own))]
}

impl Mix {
    /// The run of this mix.
    pub(super) fn run(&self, set: &Set) -> Run {
        let mut clients = Vec::new();
        for (index, client) in set.clients.iter().enumerate() {
            let load = match (&self.own, &self.neighbours) {
                (None, _) => client.expected.clone(),
                (Some(own), _) if own.client == index => own.load.clone(),
                (Some(own), neighbours) => {
                    let neighbours = neighbours.as_ref().expect("there are others");
                    match neighbours.second {
                        Some(second) if is_second(neighbours, index, own.client) => {
                            Load::from_keys(second)
                        }
                        _ => Load::from_keys(neighbours.keys),
                    }
                }
            };
            clients.extend(load.in_group(&client.group, client.space));
        }
        Run { stack: set.stack.clone(), groups: set.groups.clone(), clients }
    }
    /// Whether it tests a promise.
    pub(super) fn tests(&self) -> bool {
        !self.minimums.is_empty() || !self.latencies.is_empty()
    }
    /// Promises broken in a run of it.
    pub(super) fn breaches(&self, set: &Set, ran: &Ran) -> Vec<Breach> {
        let measured = match ran {
            Ok(measured) => measured,
            Err(refusal) => return vec![Breach::refused(&self.name, refusal)],
        };
        let mut found = Vec::new();
        for group in set.promised() {
            let got = measured.iter().find(|measured| measured.group == group.name);
            let Some(got) = got else { continue };
            if got.broken > 0 && self.minimums.contains(&group.name) {
                found.push(Breach::minimum(self, group, got));
            }
            let times = group.contract.latency.times().into_iter().zip(got.p99);
            let missed = times.filter_map(|(wanted, p99)| wanted.zip(p99));
            for (wanted, p99) in missed.filter(|(wanted, p99)| p99 > wanted) {
                if self.latencies.contains(&group.name) {
                    found.push(Breach::latency(self, &group.name, wanted, p99));
                }
            }
        }
        found
    }
    fn own_text(&self) -> String {
        self.own.as_ref().map_or_else(String::new, |own| own.load.text.clone())
    }
}

/// A promise that was broken in a mix.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breach {
    /// The group; empty if the stack's admission refused the set.
    pub group: String,
    /// Load of the neighbours, or `expected`.
    pub mix: String,
    /// Load of the client that the mix tests; empty in the expected mix.
    pub load: String,
    /// The promise, and what the group got, in words.
    pub promised: String,
    /// See `promised`.
    pub got: String,
    /// The part of the promise that was kept, on average over the run.
    pub kept: f64,
    /// Seconds (on a disk, runs) in which a minimum was broken, and how many were judged; 0 of 0 for a latency.
    pub broken: [u32; 2],
}

impl Breach {
    fn refused(mix: &str, refusal: &str) -> Self {
        let (promised, got) = (String::new(), refusal.to_owned());
        let (group, load) = (String::new(), String::new());
        Self { group, mix: mix.to_owned(), load, promised, got, kept: 0.0, broken: [0, 0] }
    }
    fn minimum(mix: &Mix, group: &GroupSpec, got: &Measured) -> Self {
        let minimum = group.contract.minimum();
        let part = |got: u64, wanted: u64| got as f64 / wanted.max(1) as f64;
        let bytes = minimum.bytes_per_s.filter(|rate| *rate > 0);
        let ios = minimum.ios_per_s.filter(|rate| *rate > 0);
        let by_bytes = bytes.map(|wanted| (part(got.rate, wanted), rate(wanted), rate(got.rate)));
        let by_ios = ios.map(|wanted| (part(got.ios, wanted), iops(wanted), iops(got.ios)));
        let worst = [by_bytes, by_ios].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
        let (kept, promised, got_text) = worst.expect("a minimum that is broken is there");
        Self {
            group: group.name.clone(),
            mix: mix.name.clone(),
            load: mix.own_text(),
            promised,
            got: got_text,
            kept,
            broken: [got.broken, got.intervals],
        }
    }
    fn latency(mix: &Mix, group: &str, wanted: Nanos, p99: Nanos) -> Self {
        Self {
            group: group.to_owned(),
            mix: mix.name.clone(),
            load: mix.own_text(),
            promised: time(wanted),
            got: time(p99),
            kept: wanted.0 as f64 / p99.0.max(1) as f64,
            broken: [0, 0],
        }
    }
}

/// A rate in words.
pub(super) fn rate(bytes: u64) -> String {
    let mb = bytes as f64 / 1e6;
    match bytes {
        100_000_000.. => format!("{mb:.0} MB/s"),
        10_000_000.. => format!("{mb:.1} MB/s"),
        1_000_000.. => format!("{mb:.2} MB/s"),
        _ => format!("{mb:.3} MB/s"),
    }
}

/// A number of I/Os a second in words.
pub(super) fn iops(ios: u64) -> String {
    format!("{ios} IOPS")
}

/// A time in words.
pub(super) fn time(time: Nanos) -> String {
    let ms = time.0 as f64 / 1e6;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.1} ms") }
}

/// The promises that are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tested {
    All,
    /// Only minimums.
    Minimums,
}

impl Tested {
    pub(super) fn covers(self, breach: &Breach) -> bool {
        self == Self::All || breach.group.is_empty() || breach.broken[1] > 0
    }
}

/// Whether every promise is kept in these mixes. Stops at the first mix that breaks one and moves it to the front of
/// `order`, the order of the runs.
pub(super) fn are_kept(
    bench: &Bench<'_>,
    what: Tested,
    set: &Set,
    mixes: &[Mix],
    order: &mut Vec<usize>,
) -> Result<bool, PlanError> {
    /// Mixes that run before their results are checked; independent of the number of threads.
    const AT_ONCE: usize = 4;
    let tested: Vec<usize> = order.iter().copied().filter(|index| mixes[*index].tests()).collect();
    for some in tested.chunks(AT_ONCE) {
        let runs: Vec<Run> = some.iter().map(|index| mixes[*index].run(set)).collect();
        let ran = bench.run(&runs)?;
        let broke = some.iter().zip(&ran).find(|(index, ran)| {
            ran.iter().any(|ran| {
                mixes[**index].breaches(set, ran).iter().any(|breach| what.covers(breach))
            })
        });
        if let Some((index, _)) = broke {
            let index = *index;
            order.retain(|other| *other != index);
            order.insert(0, index);
            return Ok(false);
        }
    }
    Ok(true)
}
