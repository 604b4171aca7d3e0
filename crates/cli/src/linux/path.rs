//! Measures what lies above the kernel's scheduler (fio's and the system calls' time between two requests) and below
//! it (loop device and FUSE), so that the simulator's numbers can be compared with the kernel's.
//!
//! Three lone clients run on the emulated drive with `none`, and in the simulator without a path: reads of 4 KiB and of
//! 256 KiB one after the other, and reads of 4 KiB with 32 in flight. The differences are the path.

use anyhow::{Context, Result, anyhow};
use iofair_core::time::Nanos;
use iofair_drive::behind::Path;
use iofair_lab::experiment::{Experiment, Overrides, parse};
use iofair_lab::outcome::Outcome;

use super::plan::plan;
use super::{Target, execute};
use crate::live::Watch;

/// Requests that a loop device has in flight (its `hw_queue_depth`).
const LOOP_DEPTH: u32 = 128;
/// Requests in flight of the third client.
const DEEP: u64 = 32;

const PROBES: &str = r#"
title = "The path"
source = "a probe"
drive = "DRIVE"
time = "1s"
ramp = "300ms"
stacks = ["none-none"]
[[client]]
name = "probe"
job = "randread"
buffered = false
[[variant]]
name = "4 KiB"
[[variant]]
name = "256 KiB"
client.probe.block = "256KiB"
[[variant]]
name = "deep"
client.probe.depth = 32
"#;

/// The path of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Above: from a completion to the next request.
    pub(crate) turnaround: Nanos,
    /// Below.
    pub(crate) path: Path,
    /// What the third client got on Linux and in the simulator, in IOPS.
    deep: [f64; 2],
}

impl Measured {
    /// In words.
    pub(crate) fn text(&self) -> String {
        let us = |time: Nanos| time.0 as f64 / 1e3;
        let Self { turnaround, path, deep } = self;
        format!(
            "Above the scheduler, {:.0} us pass between two requests of a process; below it, a request takes {:.0} us more \
             than in the drive model, and {:.0} us in addition for each MiB. With 32 in flight the path passes {:.0} requests a \
             second where the model alone gives {:.0}.",
            us(*turnaround),
            us(path.fixed + path.serial),
            us(path.per_mib),
            deep[0],
            deep[1]
        )
    }
}

/// Measures it, over the drive with this profile.
pub(super) fn measure(drive: &str, watch: &Watch) -> Result<Measured> {
    let text = PROBES.replace("DRIVE", drive);
    let mut probes = parse("path.toml", &text, &Overrides::default())?;
    let turnaround_of = |outcome: &Outcome, period: f64| {
        Nanos((period as u64).saturating_sub(outcome.clients[0].latency.mean()))
    };
    let kernel = |probes: &Experiment, variant: usize| -> Result<(Outcome, f64)> {
        let scenario = probes.scenario(variant, 0, 0);
        let plan = plan(&scenario).map_err(|error| anyhow!(error))?;
        let (outcome, periods) = execute(&plan, &scenario, &Target::Emulated, watch)?;
        Ok((outcome, *periods.first().context("one client")?))
    };
    let here = (0..3).map(|it| kernel(&probes, it)).collect::<Result<Vec<_>>>()?;
    let turnaround = turnaround_of(&here[0].0, here[0].1);
    for variant in &mut probes.variants {
        variant.host.turnaround = turnaround;
    }
    let lab = |variant: usize| iofair_lab::simulate(&probes.scenario(variant, 0, 0));
    let lab = (0..3).map(lab).collect::<Result<Vec<_>, _>>()?;
    let mean = |outcome: &Outcome| outcome.clients[0].latency.mean();
    let more = |n: usize| mean(&here[n].0).saturating_sub(mean(&lab[n]));
    let iops = |outcome: &Outcome| outcome.clients[0].calls as f64 * 1e9 / outcome.time.0 as f64;
    let deep = [1e9 / here[2].1.max(1.0), iops(&lab[2])];
    // Where the drive is the limit, the path's own is not seen; it is shorter than a request's turn then.
    let serial = match deep[0] < 0.97 * deep[1] {
        true => (1e9 / deep[0]) as u64,
        false => 0,
    };
    let serial = serial.min(more(0)).min(DEEP * 1_000_000);
    let per_mib = Nanos(more(1).saturating_sub(more(0)) * 1024 / 252);
    let fixed = Nanos(more(0).saturating_sub(serial + per_mib.0 / 256));
    let path = Path { fixed, serial: Nanos(serial), per_mib, depth: LOOP_DEPTH };
    Ok(Measured { turnaround, path, deep })
}
