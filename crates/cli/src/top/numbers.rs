//! What the server says, and what two looks say together.

use serde::{Deserialize, Serialize};

/// One look: `/v1/live`.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) uptime_seconds: f64,
    pub(crate) stack: String,
    pub(crate) connections: usize,
    pub(crate) requests_in_flight: usize,
    pub(crate) drive_commands: u32,
    pub(crate) drive_depth: u32,
    pub(crate) drive_busy_seconds: f64,
    pub(crate) reactor_busy_seconds: f64,
    pub(crate) bucket_bounds_seconds: Vec<f64>,
    /// What fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) failures: Vec<Failure>,
    /// Parents before children.
    pub(crate) groups: Vec<Group>,
}

/// A drive or volume that fails.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) text: String,
}

#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) min_bytes_per_second: Option<u64>,
    #[serde(default)]
    pub(crate) min_ios_per_second: Option<u64>,
    /// Nothing if the stack does not share by weight.
    pub(crate) share_promised: Option<f64>,
    pub(crate) share_got: f64,
    pub(crate) bytes_per_second: u64,
    /// Of one core, in the last second.
    pub(crate) cpu_percent: f64,
    pub(crate) requests_in_flight: u64,
    pub(crate) request_slots: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) broken_promise_seconds: u64,
    pub(crate) steps: Vec<Step>,
    pub(crate) why: Option<String>,
}

#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) step: String,
    pub(crate) seconds: f64,
    pub(crate) counts: Vec<u64>,
}

/// A group as a row shows it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) group: Group,
    /// 0 for the outermost.
    pub(crate) depth: usize,
    pub(crate) has_children: bool,
    /// 99 of 100 requests since the look before took no longer in each step; `None`: there were none.
    pub(crate) p99: [Option<f64>; 3],
}

impl Group {
    pub(crate) fn parent(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(above, _)| above)
    }
    pub(crate) fn own_name(&self) -> &str {
        self.name.rsplit_once('/').map_or(&self.name, |(_, own)| own)
    }
}

impl Look {
    /// A row of every group; times are of what passed since `before`.
    pub(crate) fn rows(&self, before: Option<&Self>) -> Vec<Row> {
        let row = |group: &Group| {
            let old = before.and_then(|look| look.groups.iter().find(|g| g.name == group.name));
            let p99 = [0, 1, 2].map(|index| {
                let old = old.and_then(|old| old.steps.get(index));
                self.p99(group.steps.get(index)?, old)
            });
            let inside = format!("{}/", group.name);
            Row {
                group: group.clone(),
                depth: group.name.matches('/').count(),
                has_children: self.groups.iter().any(|other| other.name.starts_with(&inside)),
                p99,
            }
        };
        self.groups.iter().map(row).collect()
    }
    fn p99(&self, now: &Step, before: Option<&Step>) -> Option<f64> {
        let old = |index: usize| before.and_then(|step| step.counts.get(index)).unwrap_or(&0);
        let passed = now.counts.iter().enumerate().map(|(i, count)| count.saturating_sub(*old(i)));
        let passed: Vec<u64> = passed.collect();
        let total: u64 = passed.iter().sum();
        let rank = (total * 99).div_ceil(100);
        let mut seen = 0;
        for (index, count) in passed.iter().enumerate() {
            seen += count;
            if seen >= rank && total > 0 {
                let last = self.bucket_bounds_seconds.last();
                return self.bucket_bounds_seconds.get(index).or(last).copied();
            }
        }
        None
    }
    /// Part of the time since `before` in which the drive and the reactor's thread were busy; `None`: there was no look before.
    pub(crate) fn busy(&self, before: Option<&Self>) -> Option<[f64; 2]> {
        let of = |look: &Self| [look.drive_busy_seconds, look.reactor_busy_seconds];
        let (now, old) = (of(self), of(before?));
        let time = self.uptime_seconds - before?.uptime_seconds;
        (time > 0.0).then(|| [0, 1].map(|i| ((now[i] - old[i]) / time).clamp(0.0, 1.0)))
    }
}
