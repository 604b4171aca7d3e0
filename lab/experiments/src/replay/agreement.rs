//! How far a replay under the recorded stack is from the recording.

use serde::Serialize;

use super::tally::{GroupResult, Played};

/// Errors of a replay in per cent of what was recorded; positive: the replay has more.
#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// The stack.
    pub stack: String,
    /// Of everything together.
    pub all: Errors,
    /// By group.
    pub groups: Vec<Errors>,
}

/// The errors of one group.
#[derive(Clone, Debug, Serialize)]
pub struct Errors {
    /// The group.
    pub name: String,
    /// Of the mean latency.
    pub mean_percent: f64,
    /// Of the median.
    pub p50_percent: f64,
    /// Of the 99th percentile.
    pub p99_percent: f64,
    /// Of the bytes a second.
    pub total_percent: f64,
}

fn percent(replayed: f64, recorded: f64) -> f64 {
    match recorded {
        0.0 if replayed == 0.0 => 0.0,
        _ => (replayed - recorded) / recorded * 100.0,
    }
}

fn errors(replayed: &GroupResult, recorded: &GroupResult) -> Errors {
    let error =
        |what: fn(&GroupResult) -> u64| percent(what(replayed) as f64, what(recorded) as f64);
    Errors {
        name: recorded.name.clone(),
        mean_percent: error(|group| group.latency.mean),
        p50_percent: error(|group| group.latency.p50),
        p99_percent: error(|group| group.latency.p99),
        total_percent: percent(replayed.bytes_per_second, recorded.bytes_per_second),
    }
}

/// Compares a replay under the recorded stack with the recording.
pub fn agreement(replayed: &Played, recorded: &Played) -> Agreement {
    let found = |name: &str| replayed.groups.iter().find(|group| group.name == name);
    let pairs = recorded.groups.iter().filter(|group| group.requests > 0);
    let groups = pairs.filter_map(|group| Some(errors(found(&group.name)?, group)));
    Agreement {
        stack: replayed.stack.clone(),
        all: errors(&replayed.all, &recorded.all),
        groups: groups.collect(),
    }
}
