//! `iofair host watch`: the controller in real time.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use iofair_core::contract::Rate;
use iofair_core::unit::Count;
use iofair_host::Machine;
use iofair_host::facts::Facts;
use iofair_host::plan::Plan;
use iofair_host::watch::{Step, Watch};
use iofair_serve::{Clock, log};

use crate::failure::Usage;
use crate::interrupt;
use crate::output::say;

/// Runs until a signal, and restores everything.
pub(super) fn run(
    machine: &Machine,
    facts: &Facts,
    plan: &Plan,
    interval: Duration,
    quiet: bool,
) -> Result<()> {
    let interrupted = interrupt::flag()?;
    let mut watch = Watch::start(machine, facts, plan)?;
    let (promised, others) = watch.groups();
    if promised.is_empty() || others.is_empty() {
        let what = if promised.is_empty() {
            "with a min or a latency"
        } else {
            "without one that could be limited"
        };
        return Err(
            Usage(format!("there is no running group {what}; `watch` needs both kinds")).into()
        );
    }
    // On standard output and first: the caller may wait for this line before it continues.
    let (promised, others) = (promised.join(", "), others.join(", "));
    log::print(&format!("watching {promised}; limiting {others} when needed"));
    let clock = Clock::start();
    let mut last = clock.now();
    // The end comes first also when a step fails.
    let result = loop {
        if interrupted.load(Relaxed) {
            break Ok(());
        }
        let now = clock.now();
        let passed_us = now.since(last).0 / 1000;
        last = now;
        match watch.step(machine, facts, passed_us) {
            Ok(Some(step)) if !quiet => say(format_args!("{}", text(&step))),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
        std::thread::sleep(interval);
    };
    let done = watch.end(machine)?;
    let count = done.written.len();
    say(format_args!("restored {}", Count(count, "value")));
    Ok(result?)
}

fn text(step: &Step) -> String {
    let groups = step.promised.iter().map(|(name, min, rate)| match min {
        0 => format!("{name} {}", Rate(*rate)),
        min => format!("{name} {} of {}", Rate(*rate), Rate(*min)),
    });
    let ceiling =
        step.ceiling.map_or("no ceiling".to_owned(), |rate| format!("ceiling {}", Rate(rate)));
    let groups = groups.collect::<Vec<_>>().join(", ");
    format!("{groups}; others {}, {ceiling}", Rate(step.others))
}
