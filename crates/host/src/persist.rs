//! What makes contracts survive a reboot: drop-ins of systemd for its units, a rule of udev for the scheduler. What
//! neither can express (plain cgroups, io.cost, classes of slices) is applied again by `iofair-host.service`.

use std::collections::BTreeMap;

use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::priority::Class;

use crate::facts::Facts;
use crate::groups::unit;
use crate::planned::{Plan, Planned, Weights};
use crate::{Files, HostError, Slot, Write};

/// Where drop-ins of the administrator are.
const UNITS: &str = "/etc/systemd/system";
/// The name of ours; later names override earlier ones.
const DROP_IN: &str = "50-iofair.conf";
/// After the rules that a distribution sets schedulers with (60-...).
const RULE: &str = "/etc/udev/rules.d/65-iofair-host.rules";

/// Adds the files that are to be written below `/etc`.
pub(crate) fn plan(
    files: &dyn Files,
    facts: &Facts,
    weights: &BTreeMap<String, u32>,
    plan: &mut Plan,
) -> Result<(), HostError> {
    let mut lost: Vec<String> = Vec::new();
    let mut paths: Vec<&String> = weights.keys().collect();
    paths.retain(|path| facts.systemd || plan.groups.iter().any(|group| group.path == **path));
    for path in paths {
        let group = plan.groups.iter().find(|group| group.path == *path);
        let Some(unit) = unit(path).filter(|_| facts.systemd) else {
            lost.extend(group.map(|group| group.name.clone()));
            continue;
        };
        let text = drop_in(facts, plan.weights, unit, weights[path], group);
        let why = format!("systemd sets these values whenever it starts {unit}.");
        let file = format!("{UNITS}/{unit}.d/{DROP_IN}");
        plan.writes.push(Write::new(files, file, Slot::Document, text, why)?);
    }
    let scheduled = plan.writes.iter().any(|write| write.slot == Slot::Choice);
    if scheduled && facts.udev {
        let why = "udev sets scheduler and settings whenever the device appears.";
        let write = Write::new(files, RULE.to_owned(), Slot::Document, rule(facts, plan), why)?;
        plan.writes.push(write);
    } else if scheduled {
        lost.push(format!("the scheduler of {}", facts.device.name));
    }
    if plan.weights == Weights::Cost {
        lost.push("io.cost".to_owned());
    }
    if !lost.is_empty() {
        plan.notes.push(format!(
            "reboot: neither systemd nor udev sets {} here; enable iofair-host.service, or run `iofair host apply` at boot",
            lost.join(", ")
        ));
    }
    Ok(())
}

/// The `IOWeight=` that becomes this weight of bfq: systemd and the kernel map 1..100..10000 to 1..100..1000 in two
/// straight lines, so that 200 would become 109.
pub(crate) fn io_weight(bfq: u32) -> u32 {
    match bfq {
        0..=WEIGHT_DEFAULT => bfq,
        _ => WEIGHT_DEFAULT + (bfq - WEIGHT_DEFAULT) * 11,
    }
}

fn drop_in(
    facts: &Facts,
    weights: Weights,
    unit: &str,
    weight: u32,
    group: Option<&Planned>,
) -> String {
    let section = match unit.rsplit_once('.').map(|parts| parts.1) {
        Some("slice") => "Slice",
        Some("scope") => "Scope",
        _ => "Service",
    };
    let mut lines = vec![
        "# Written by `iofair host apply`; `iofair host revert` removes it.".to_owned(),
        format!("[{section}]"),
        "IOAccounting=yes".to_owned(),
    ];
    match weights {
        Weights::Bfq => {
            lines.push(format!("# Becomes {weight} in bfq: systemd maps 100..10000 to 100..1000."));
            lines.push(format!("IOWeight={}", io_weight(weight)));
        }
        Weights::Cost => lines.push(format!("IOWeight={weight}")),
        Weights::Nothing => {}
    }
    let Some(Planned { contract, .. }) = group else { return lines.join("\n") + "\n" };
    let device = format!("/dev/{}", facts.device.name.replace('!', "/"));
    let names = ["IOReadBandwidthMax", "IOWriteBandwidthMax", "IOReadIOPSMax", "IOWriteIOPSMax"];
    let limits = contract.max.bytes_per_s.into_iter().chain(contract.max.iops);
    for (name, limit) in names.into_iter().zip(limits) {
        lines.extend(limit.map(|limit| format!("{name}={device} {limit}")));
    }
    if let Some(latency) = contract.latency.read {
        for queue in &facts.device.queues {
            let us = latency.0.div_ceil(1000);
            lines.push(format!("IODeviceLatencyTargetSec=/dev/{} {us}us", queue.name));
        }
    }
    if section == "Service" {
        let class = match contract.class {
            Class::BestEffort => None,
            Class::RealTime => Some("realtime"),
            Class::Idle => Some("idle"),
        };
        lines.extend(class.map(|class| format!("IOSchedulingClass={class}")));
    }
    lines.join("\n") + "\n"
}

fn rule(facts: &Facts, plan: &Plan) -> String {
    let mut text =
        String::from("# Written by `iofair host apply`; `iofair host revert` removes it.\n");
    for queue in &facts.device.queues {
        let found = match &queue.identity {
            // In the device or, for SCSI, in its parent.
            Some((name, value)) => {
                format!("ATTRS{{{name}}}==\"{value}\", ENV{{DEVTYPE}}==\"disk\"")
            }
            None => format!("KERNEL==\"{}\"", queue.name),
        };
        let start = format!("{}/queue/", queue.sys);
        let writes = plan.writes.iter();
        let ours = writes.filter_map(|write| Some((write.file.strip_prefix(&start)?, write)));
        let values: Vec<String> =
            ours.map(|(file, write)| format!("ATTR{{queue/{file}}}=\"{}\"", write.after)).collect();
        let values = values.join(", ");
        text += &format!("ACTION==\"add|change\", SUBSYSTEM==\"block\", {found}, {values}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: weights survive systemd's mapping. Method: the mapping as systemd#27622 reports it (200 becomes 109, 300
    /// becomes 118, 666 becomes 151) over the inverse, for every weight.
    #[test]
    fn weights_survive_the_mapping_of_systemd() {
        let mapped = |weight: u32| match weight {
            0..=100 => weight,
            _ => 100 + (weight - 100) * 900 / 9900,
        };
        assert_eq!([200, 300, 666].map(mapped), [109, 118, 151]);
        assert!((1..=1000).all(|weight| mapped(io_weight(weight)) == weight));
        assert_eq!(io_weight(1000), 10_000);
    }
}
