//! Do the promises fit? All mixes of a set, and what each group got at worst, as expected, and with the drive to itself.

use serde::Serialize;

use super::bench::{Bench, Ran, Run};
use super::meter::Measured;
use super::mix::{Breach, Kind, Mix, iops, rate, time};
use super::question::PlanError;
use super::set::{Client, Set, is_within, promises};
use crate::scenario::GroupSpec;

/// A group with clients, or with a promise.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its path.
    pub group: String,
    /// What it was promised, in words: minimum and latency.
    pub promised: Vec<String>,
    /// Its minimum in bytes a second, if it has one in bytes.
    pub minimum_bytes: Option<u64>,
    /// What its clients are expected to do; `None` for a group without clients of its own.
    pub load: Option<String>,
    /// Did a person say so? Otherwise nothing is known, and the slowest is assumed.
    pub load_is_stated: bool,
    /// Its lowest rate with that load.
    pub guaranteed: Option<Found>,
    /// Its lowest rate with the slowest load that its minimum covers, if that is another one.
    pub slowest: Option<Found>,
    /// What 99 of 100 of its reads take at worst while it asks for little, in nanoseconds, if it has a latency of reads.
    pub latency: Option<Found>,
    /// The same of writes.
    pub write_latency: Option<Found>,
    /// The same of flushes.
    pub sync_latency: Option<Found>,
    /// Bytes a second in the expected mix.
    pub expected: u64,
    /// What 99 of 100 of its reads take in the expected mix, in nanoseconds.
    pub expected_p99_ns: Option<u64>,
    /// Bytes a second with the drive to itself.
    pub maximum: Option<u64>,
    /// Its promise in its worst mix, if it is broken there.
    pub breach: Option<Breach>,
}

/// The worst that was found for one load of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// The load.
    pub load: String,
    /// Bytes a second; nanoseconds for a latency.
    pub value: u64,
    /// Load of the neighbours.
    pub mix: String,
}

/// Whether promises are kept in some mixes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// Broken promises, the least kept first; one breach a group.
    pub breaches: Vec<Breach>,
}

impl Verdict {
    /// Is nothing broken?
    pub fn is_kept(&self) -> bool {
        self.breaches.is_empty()
    }
    /// A breach for one client is one for each client that is equal to it.
    fn with_equals(self, set: &Set) -> Self {
        let equals = |breach: &Breach| -> Vec<Breach> {
            let names = set.equals(&breach.group).into_iter();
            names.map(|name| Breach { group: name.to_owned(), ..breach.clone() }).collect()
        };
        let more: Vec<Breach> = self.breaches.iter().flat_map(equals).collect();
        Self::from_breaches(self.breaches.into_iter().chain(more))
    }
    pub(super) fn from_breaches(breaches: impl IntoIterator<Item = Breach>) -> Self {
        let mut worst: Vec<Breach> = Vec::new();
        for breach in breaches {
            match worst.iter_mut().find(|known| known.group == breach.group) {
                Some(known) if known.kept <= breach.kept => {}
                Some(known) => *known = breach,
                None => worst.push(breach),
            }
        }
        worst.sort_by(|a, b| a.kept.total_cmp(&b.kept).then_with(|| a.group.cmp(&b.group)));
        Self { breaches: worst }
    }
}

/// Results of [`fit`].
pub(super) struct Fit {
    pub(super) rows: Vec<Row>,
    pub(super) worst: Verdict,
    pub(super) expected: Verdict,
}

/// A mix with what its runs gave.
type Tried<'a> = (&'a Mix, Vec<Ran>);

pub(super) fn fit(set: &Set, bench: &Bench<'_>, mixes: &[Mix]) -> Result<Fit, PlanError> {
    bench.stage(&format!("{} mixes, and each client alone", mixes.len()));
    let runs: Vec<Run> = mixes.iter().map(|mix| mix.run(set)).collect();
    let tried: Vec<Tried<'_>> = mixes.iter().zip(bench.run(&runs)?).collect();
    let maxima = maxima(set, bench)?;
    let (expected, worst): (Vec<_>, Vec<_>) = tried.iter().partition(|(mix, _)| mix.own.is_none());
    let verdict = |tried: &[&Tried<'_>]| {
        let breaches = |(mix, ran): &&Tried<'_>| -> Vec<Breach> {
            ran.iter().flat_map(|ran| mix.breaches(set, ran)).collect()
        };
        Verdict::from_breaches(tried.iter().flat_map(breaches))
    };
    let (worst, expected) = (verdict(&worst).with_equals(set), verdict(&expected));
    let is_shown = |group: &&GroupSpec| {
        promises(&group.contract) || set.clients.iter().any(|client| client.group == group.name)
    };
    let row = |group: &GroupSpec| {
        let mut row = row(set, group, &tried, &maxima);
        let all = worst.breaches.iter().chain(&expected.breaches);
        let own = all.filter(|breach| breach.group == group.name);
        row.breach = own.min_by(|a, b| a.kept.total_cmp(&b.kept)).cloned();
        row
    };
    let mut rows: Vec<Row> = set.groups.iter().filter(is_shown).map(row).collect();
    // In the order of the file, outer groups before those inside.
    let place =
        |row: &Row| set.clients.iter().position(|client| is_within(&client.group, &row.group));
    rows.sort_by_key(|row| (place(row), row.group.len()));
    Ok(Fit { rows, worst, expected })
}

/// Rate of each client with the drive to itself, under its own ceilings.
fn maxima(set: &Set, bench: &Bench<'_>) -> Result<Vec<u64>, PlanError> {
    let run = |index: usize| {
        let part = set.part(&[index]);
        let Client { group, space, expected, .. } = &part.clients[0];
        Run {
            clients: expected.in_group(group, *space),
            stack: part.stack.clone(),
            groups: part.groups,
        }
    };
    let runs: Vec<Run> = (0..set.clients.len()).map(run).collect();
    let ran = bench.run(&runs)?;
    let rate = |(client, ran): (&Client, &Vec<Ran>)| {
        let rates = ran.iter().filter_map(|ran| group_of(ran, &client.group)).map(|got| got.rate);
        rates.max().unwrap_or(0)
    };
    Ok(set.clients.iter().zip(&ran).map(rate).collect())
}

fn group_of<'a>(ran: &'a Ran, group: &str) -> Option<&'a Measured> {
    ran.as_ref().ok()?.iter().find(|measured| measured.group == group)
}

fn row(set: &Set, group: &GroupSpec, tried: &[Tried<'_>], maxima: &[u64]) -> Row {
    let place = set.clients.iter().position(|client| client.group == group.name);
    let client = place.map(|place| &set.clients[place]);
    // Of equal clients, one was tested.
    let class = client.map(|client| set.class(client));
    let about = |mix: &Mix, kind: Option<Kind>| match (&mix.own, &class) {
        (Some(own), Some(class)) => {
            kind == Some(own.kind) && set.class(&set.clients[own.client]) == *class
        }
        (Some(_), None) => kind.is_none(),
        (None, _) => false,
    };
    // Measured is the client that the mix is about.
    let measured = |mix: &Mix, ran: &Ran| {
        let own = mix.own.as_ref().map(|own| set.clients[own.client].group.as_str());
        let name = if class.is_some() { own.unwrap_or(&group.name) } else { &group.name };
        group_of(ran, name).cloned()
    };
    let worst = |kind: Option<Kind>, value: &dyn Fn(&Measured) -> Option<u64>, least: bool| {
        let mut worst: Option<Found> = None;
        for (mix, ran) in tried.iter().filter(|(mix, _)| about(mix, kind)) {
            for value in ran.iter().filter_map(|ran| value(&measured(mix, ran)?)) {
                let is_worse =
                    |known: &Found| if least { value < known.value } else { value > known.value };
                if worst.as_ref().is_none_or(is_worse) {
                    let load =
                        mix.own.as_ref().map_or_else(String::new, |own| own.load.text.clone());
                    worst = Some(Found { load, value, mix: mix.name.clone() });
                }
            }
        }
        worst
    };
    let rate_of = |measured: &Measured| Some(measured.rate);
    let slowest = worst(Some(Kind::Slowest), &rate_of, true);
    let (guaranteed, slowest) = match (client, worst(Some(Kind::Expected), &rate_of, true)) {
        (None, _) => (worst(None, &rate_of, true), None),
        (_, None) => (slowest, None),
        (_, stated) => (stated, slowest),
    };
    let latency = |place: usize| {
        group.contract.latency.times()[place]?;
        let p99 = |measured: &Measured| measured.p99[place].map(|time| time.0);
        worst(Some(Kind::Probe(place)), &p99, false)
    };
    let expected = tried.iter().filter(|(mix, _)| mix.own.is_none()).flat_map(|(_, ran)| ran);
    let expected: Vec<&Measured> = expected.filter_map(|ran| group_of(ran, &group.name)).collect();
    let mean = expected.iter().map(|got| got.rate).sum::<u64>() / expected.len().max(1) as u64;
    Row {
        group: group.name.clone(),
        promised: promised(group),
        minimum_bytes: group.contract.min.filter(|min| *min > 0),
        load: client.map(|client| client.expected.text.clone()),
        load_is_stated: client.is_some_and(|client| client.is_stated),
        guaranteed,
        slowest,
        latency: latency(0),
        write_latency: latency(1),
        sync_latency: latency(2),
        expected: mean,
        expected_p99_ns: expected.iter().filter_map(|got| got.p99[0]).max().map(|time| time.0),
        maximum: place.map(|place| maxima[place]),
        breach: None,
    }
}

/// Promises to a group, in words.
fn promised(group: &GroupSpec) -> Vec<String> {
    let contract = &group.contract;
    let bytes = contract.min.filter(|min| *min > 0).map(rate);
    let ios = contract.min_iops.filter(|min| *min > 0).map(iops);
    let latencies = ["reads", "writes", "flushes"].into_iter().zip(contract.latency.times());
    let latencies = latencies.map(|(what, latency)| Some(format!("{what} in {}", time(latency?))));
    [bytes, ios].into_iter().chain(latencies).flatten().collect()
}
