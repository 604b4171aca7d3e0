//! Measures the path between a block device and the emulated drive behind it, and how faithful the drive is.
//!
//! The same loads run on the device and on the model in simulated time. What a lone read takes more on the device is the
//! path; the drive completes requests that much earlier from then on. Then the loads run again, and the differences that
//! remain are reported.

use std::io;
use std::path::Path;

use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_drive::measure::{Amount, Device, Load, Order, Outcome, Simulated, Stream, run};
use iofair_drive::profile::Profile;
use iofair_serve::Timing;
use iofair_serve::measure::{Access, FileDevice};
use serde::Serialize;

/// Within this, wall clock and model agree.
const CLOSE_PERCENT: f64 = 5.0;
const SMALL: u64 = 4 << 10;
const LARGE: u64 = 256 << 10;
/// Depth of the loads for IOPS and for streaming.
const DEEP: u32 = 32;
const STREAMING: u32 = 8;
/// Times that the lead is corrected by what remains.
const CORRECTIONS: usize = 2;
/// A latency is the median of this many short runs, since something else may use the machine during one of them.
const REPEATS: usize = 5;
const SEED: u64 = 7;

/// Whether a row is close enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Close,
    Deviates,
}

/// A load on model and device.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    unit: &'static str,
    model: f64,
    here: f64,
    pub(super) deviation_percent: f64,
}

/// How faithful an emulated drive is.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fidelity {
    /// What the path adds to a request of 4 KiB and of 256 KiB, before compensation.
    path_ns: [u64; 2],
    /// By what requests complete earlier, and what is added to that for each MiB.
    lead_ns: u64,
    lead_ns_per_mib: u64,
    pub(super) rows: Vec<Row>,
}

impl Row {
    pub(super) fn verdict(&self) -> Verdict {
        match self.deviation_percent.abs() <= CLOSE_PERCENT {
            true => Verdict::Close,
            false => Verdict::Deviates,
        }
    }
}

impl Fidelity {
    /// Whether all rows are close.
    pub(super) fn keeps_pace(&self) -> bool {
        self.rows.iter().all(|row| row.verdict() == Verdict::Close)
    }
    /// A table.
    pub(super) fn text(&self) -> String {
        let us = |nanos: u64| nanos as f64 / 1e3;
        let mut text = format!(
            "The path to the model takes {:.0} us (256 KiB: {:.0} us); requests complete {:.0} us earlier{}.\n",
            us(self.path_ns[0]),
            us(self.path_ns[1]),
            us(self.lead_ns),
            match self.lead_ns_per_mib {
                0 => String::new(),
                more => format!(", and {:.0} us more for each MiB", us(more)),
            }
        );
        for Row { name, unit, model, here, deviation_percent } in &self.rows {
            text += &format!(
                "  {name:<26} model {model:>9.1} {unit:<5} here {here:>9.1} {unit:<5} {deviation_percent:>+6.1} %\n"
            );
        }
        text
    }
}

/// One load and how it is judged.
struct Probe {
    stream: Stream,
    time: Nanos,
    requests: u64,
}

/// Reads of a lone client, whose latencies show the path. On a disk they go to one place, so that they come from its
/// memory and take the same time each.
fn lone(rotational: bool, block: u64, capacity: u64) -> Probe {
    let order = if rotational { Order::Same } else { Order::Random };
    let stream = Stream { area: (0, capacity), ..Stream::new(Operation::Read, block, 1, order) };
    Probe { stream, time: Nanos::from_millis(200), requests: 1000 }
}

impl Probe {
    fn load(&self) -> Load {
        let Self { stream, time, requests } = *self;
        Load {
            streams: vec![stream],
            warm_up: Amount { requests: 20, time: Nanos::from_millis(100) },
            measured: Amount { requests, time },
            window: 0,
        }
    }
    fn run_on(&self, device: &mut dyn Device) -> io::Result<Outcome> {
        run(device, &self.load(), SEED, &|| false)
    }
    /// The median of a quantity over several runs.
    fn median(&self, device: &mut dyn Device, of: impl Fn(&Outcome) -> f64) -> io::Result<f64> {
        let runs = (0..REPEATS).map(|_| self.run_on(device).map(|outcome| of(&outcome)));
        let mut runs = runs.collect::<io::Result<Vec<_>>>()?;
        runs.sort_by(f64::total_cmp);
        Ok(runs[REPEATS / 2])
    }
    fn model(&self, profile: &Profile) -> io::Result<Outcome> {
        self.run_on(&mut Simulated::new(profile.build(SEED)))
    }
}

/// Measures the path from a device to the drive with this profile, compensates it through `timing` if there is one, and
/// measures how faithful the drive then is.
pub(super) fn measure(
    device: &Path,
    profile: &Profile,
    timing: Option<&Timing>,
) -> anyhow::Result<Fidelity> {
    let mut device = FileDevice::open(device, Access::Read)?;
    let capacity = device.facts().capacity.bytes();
    let rotational = profile.build(SEED).facts().rotational;
    let probes = [SMALL, LARGE].map(|block| lone(rotational, block, capacity));
    let mut model = [0.0; 2];
    for (model, probe) in model.iter_mut().zip(&probes) {
        *model = probe.model(profile)?.latency(0);
    }
    let mut more = || -> io::Result<[f64; 2]> {
        let mut more = [0.0; 2];
        for ((more, probe), model) in more.iter_mut().zip(&probes).zip(model) {
            *more = probe.median(&mut device, |outcome| outcome.latency(0))? - model;
        }
        Ok(more)
    };
    let path = more()?;
    let mut lead = [0.0; 2];
    if let Some(timing) = timing {
        let mut rest = path;
        for correction in 0..=CORRECTIONS {
            // For each byte, from the difference of the two lengths.
            let per_byte = (rest[1] - rest[0]) / (LARGE - SMALL) as f64;
            lead[1] = (lead[1] + per_byte * (1 << 20) as f64).max(0.0);
            lead[0] = (lead[0] + rest[0] - per_byte * SMALL as f64).max(0.0);
            timing.set_lead(Nanos(lead[0] as u64), Nanos(lead[1] as u64));
            if correction < CORRECTIONS {
                rest = more()?;
            }
        }
    }
    let rows = rows(&mut device, profile, capacity)?;
    let whole = |nanos: f64| nanos.max(0.0) as u64;
    Ok(Fidelity {
        path_ns: path.map(whole),
        lead_ns: whole(lead[0]),
        lead_ns_per_mib: whole(lead[1]),
        rows,
    })
}

fn rows(device: &mut FileDevice, profile: &Profile, capacity: u64) -> io::Result<Vec<Row>> {
    let rotational = profile.build(SEED).facts().rotational;
    let (time, requests) = match rotational {
        true => (Nanos::from_secs(1), 200),
        false => (Nanos::from_millis(200), 20_000),
    };
    let probe = |block, depth, order| {
        let area = (0, capacity);
        Probe {
            stream: Stream { area, ..Stream::new(Operation::Read, block, depth, order) },
            time,
            requests,
        }
    };
    type Quantity = fn(&Outcome) -> f64;
    let micros: Quantity = |outcome| outcome.latency(0) / 1e3;
    let iops: Quantity = |outcome| outcome.iops(0) / 1e3;
    let rate: Quantity = |outcome| outcome.rate(0) / 1e6;
    let all = [
        ("4 KiB random, QD1", "us", probe(SMALL, 1, Order::Random), micros),
        ("4 KiB random, QD32", "kIOPS", probe(SMALL, DEEP, Order::Random), iops),
        ("256 KiB sequential, QD8", "MB/s", probe(LARGE, STREAMING, Order::Sequential), rate),
    ];
    let mut rows = Vec::new();
    for (name, unit, probe, of) in all {
        let (model, here) = (of(&probe.model(profile)?), probe.median(device, of)?);
        let deviation_percent = (here / model - 1.0) * 100.0;
        rows.push(Row { name, unit, model, here, deviation_percent });
    }
    Ok(rows)
}
