//! What was promised, what the kernel made of it, and what each group gets.

use serde::Serialize;

use crate::facts::Facts;
use crate::plan::{Plan, Planned, Weights};
use crate::{Files, Hierarchy, Version};

/// Bytes in a sector of the kernel's counters.
const SECTOR: u64 = 512;

/// Counters since boot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// Requests.
    pub requests: u64,
    /// Microseconds in which some process of the group waited for I/O; `None`: no pressure information.
    pub waited_us: Option<u64>,
}

impl Counters {
    /// Both directions.
    pub fn total(&self) -> u64 {
        self.bytes[0].saturating_add(self.bytes[1])
    }
    /// What came after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let waited = self.waited_us.zip(earlier.waited_us);
        Self {
            bytes: [0, 1].map(|side| self.bytes[side].saturating_sub(earlier.bytes[side])),
            requests: self.requests.saturating_sub(earlier.requests),
            waited_us: waited.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// The counters of a group and all below it on the device; zero where there are none yet.
pub fn counters(files: &dyn Files, facts: &Facts, path: &str) -> Counters {
    let directory = facts.hierarchy.path(path);
    let of = |number: &str| match facts.hierarchy.version {
        Version::Two => io_stat(files, &directory, number),
        Version::One => throttle_stat(files, &directory, number),
    };
    let mut found = of(&facts.device.number).unwrap_or_else(|| {
        // What is counted below the device.
        let mut sum = Counters::default();
        for part in facts.device.queues.iter().filter_map(|queue| of(&queue.number)) {
            sum.bytes = [0, 1].map(|side| sum.bytes[side] + part.bytes[side]);
            sum.requests += part.requests;
        }
        sum
    });
    let pressure = files.read(&format!("{directory}/io.pressure")).ok();
    found.waited_us = pressure.and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("some "))?.to_owned();
        line.split("total=").nth(1)?.trim().parse().ok()
    });
    found
}

/// `8:0 rbytes=1 wbytes=2 rios=3 wios=4 ...` in `io.stat`.
fn io_stat(files: &dyn Files, directory: &str, number: &str) -> Option<Counters> {
    let text = files.read(&format!("{directory}/io.stat")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{number} ")))?;
    let value = |key: &str| {
        let found = line.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        found.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
    };
    let bytes = [value("rbytes"), value("wbytes")];
    Some(Counters { bytes, requests: value("rios") + value("wios"), waited_us: None })
}

/// `8:0 Read 1` in the files of blk-throttle, which count with every scheduler.
fn throttle_stat(files: &dyn Files, directory: &str, number: &str) -> Option<Counters> {
    let read = |file: &str| {
        let path = format!("{directory}/blkio.throttle.{file}_recursive");
        files.read(&path).or_else(|_| files.read(&format!("{directory}/blkio.throttle.{file}")))
    };
    let text = read("io_service_bytes").ok()?;
    let served = read("io_serviced").unwrap_or_default();
    let value = |text: &str, kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{number} {kind} ")));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let bytes = [value(&text, "Read")?, value(&text, "Write").unwrap_or(0)];
    Some(Counters { bytes, requests: value(&served, "Total").unwrap_or(0), waited_us: None })
}

/// Bytes that the device itself has read and written (`Documentation/block/stat.rst`).
pub fn device_bytes(files: &dyn Files, facts: &Facts) -> u64 {
    let path = format!("/sys/dev/block/{}/stat", facts.device.number);
    let text = files.read(&path).unwrap_or_default();
    let field = |n: usize| text.split_whitespace().nth(n)?.parse::<u64>().ok();
    field(2).unwrap_or(0).saturating_add(field(6).unwrap_or(0)).saturating_mul(SECTOR)
}

/// One group.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Row {
    /// Its name in the file.
    pub name: String,
    /// Its path below the root of the hierarchy.
    pub path: String,
    /// Guaranteed bytes a second.
    pub min_bytes_per_s: Option<u64>,
    /// The weight that it was to have.
    pub weight: u32,
    /// The weight that the kernel uses; `None`: none.
    pub effective_weight: Option<u32>,
    /// What this weight is among all siblings, also those that the file does not name.
    pub effective_share: Option<f64>,
    /// Bytes a second over the interval.
    pub bytes_per_s: f64,
    /// Requests a second.
    pub iops: f64,
    /// Of all that the device did.
    pub actual_share: f64,
    /// Part of the interval in which some process of the group waited for I/O.
    pub waiting: Option<f64>,
    /// Whether the minimum is kept; `None`: there is none, or the group asked for less than it.
    pub kept: Option<bool>,
}

/// A group that waits less than this part of the time gets what it asks for.
const IDLE: f64 = 0.05;

/// The weight that the kernel uses for a group on the device's first queue.
pub fn effective_weight(files: &dyn Files, facts: &Facts, path: &str, by: Weights) -> Option<u32> {
    let queue = facts.device.queues.first()?;
    let two = facts.hierarchy.version == Version::Two;
    let name = match by {
        Weights::Nothing => return None,
        Weights::Bfq if queue.scheduler != "bfq" => return None,
        Weights::Cost => "io.weight",
        Weights::Bfq if two => "io.bfq.weight",
        Weights::Bfq if facts.device_weights => "blkio.bfq.weight_device",
        Weights::Bfq => "blkio.bfq.weight",
    };
    let text = files.read(&format!("{}/{name}", facts.hierarchy.path(path))).ok()?;
    let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{key} ")));
    let found = line(&queue.number).or_else(|| line("default")).unwrap_or(&text);
    found.trim().parse().ok()
}

/// A group's weight among all siblings.
fn share(files: &dyn Files, facts: &Facts, path: &str, by: Weights) -> Option<f64> {
    let own = effective_weight(files, facts, path, by)?;
    let above = path.rsplit_once('/').map_or("", |parts| parts.0);
    let directory = facts.hierarchy.path(above);
    let siblings = files
        .list(&directory)
        .into_iter()
        .filter(|name| files.is_directory(&format!("{directory}/{name}")));
    let sibling = |name: String| match above {
        "" => name,
        above => format!("{above}/{name}"),
    };
    let weights = siblings.filter_map(|name| effective_weight(files, facts, &sibling(name), by));
    Some(f64::from(own) / weights.sum::<u32>().max(1) as f64)
}

/// Two readings of the counters: of each group in the plan's order, and of the device.
#[derive(Debug)]
pub struct Interval<'a> {
    /// Of the groups at its beginning.
    pub before: &'a [Counters],
    /// Of the groups at its end.
    pub after: &'a [Counters],
    /// Bytes that the device moved.
    pub device_bytes: u64,
    /// Its length.
    pub seconds: f64,
}

/// The row of each group in the plan's order.
pub fn rows(files: &dyn Files, facts: &Facts, plan: &Plan, interval: &Interval<'_>) -> Vec<Row> {
    let Interval { before, after, device_bytes, seconds } = *interval;
    let row = |(n, group): (usize, &Planned)| {
        let passed = after[n].since(&before[n]);
        let bytes_per_s = passed.total() as f64 / seconds;
        let waiting = passed.waited_us.map(|us| us as f64 / 1e6 / seconds);
        let min = group.contract.min;
        let kept = min.and_then(|min| {
            let kept = bytes_per_s >= 0.95 * min as f64;
            let asks = waiting.map_or(passed.requests > 0, |part| part > IDLE);
            (kept || asks).then_some(kept)
        });
        Row {
            name: group.name.clone(),
            path: group.path.clone(),
            min_bytes_per_s: min,
            weight: group.contract.weight,
            effective_weight: effective_weight(files, facts, &group.path, plan.weights),
            effective_share: share(files, facts, &group.path, plan.weights),
            bytes_per_s,
            iops: passed.requests as f64 / seconds,
            actual_share: passed.total() as f64 / device_bytes.max(1) as f64,
            waiting,
            kept,
        }
    };
    plan.groups.iter().enumerate().map(row).collect()
}

/// The rows as text for Prometheus.
pub fn metrics(rows: &[Row], hierarchy: &Hierarchy) -> String {
    let mut text = format!("# {}\n", hierarchy.kind());
    let mut family = |name: &str, help: &str, value: &dyn Fn(&Row) -> Option<f64>| {
        text += &format!("# HELP iofair_host_{name} {help}\n# TYPE iofair_host_{name} gauge\n");
        for row in rows {
            let label = row.name.replace('\\', "\\\\").replace('"', "\\\"");
            if let Some(value) = value(row) {
                text += &format!("iofair_host_{name}{{group=\"{label}\"}} {value}\n");
            }
        }
    };
    family("min_bytes_per_second", "Guaranteed minimum.", &|row| {
        row.min_bytes_per_s.map(|rate| rate as f64)
    });
    family("weight", "Weight that the group was to have.", &|row| Some(f64::from(row.weight)));
    family("effective_weight", "Weight that the kernel uses.", &|row| {
        row.effective_weight.map(f64::from)
    });
    let help = "Weight of the kernel among all siblings.";
    family("effective_share", help, &|row| row.effective_share);
    family("bytes_per_second", "Rate over the interval.", &|row| Some(row.bytes_per_s));
    family("iops", "Requests a second over the interval.", &|row| Some(row.iops));
    family("actual_share", "Part of what the device did.", &|row| Some(row.actual_share));
    family("waiting", "Part of the interval in which a process waited.", &|row| row.waiting);
    family("min_kept", "1 if the minimum is kept.", &|row| {
        row.kept.map(|kept| f64::from(u8::from(kept)))
    });
    text
}

#[cfg(test)]
mod tests {
    use iofair_config::contracts::host::HostContracts;

    use super::*;
    use crate::testing::Tree;

    const TEXT: &str = "[drive]\nback = '/dev/sda'\nscheduler = 'bfq'\n[[group]]\nname = 'batch'\nweight = 300\nmin = '1MB/s'\n";

    /// Goal: the weight that the kernel uses is shown, not the promised one, and the share counts siblings that the file
    /// does not name. Method: systemd's remapping of 300 to 118 beside two siblings with 100.
    #[test]
    fn a_remapped_weight_is_seen() {
        let tree = Tree::v2();
        tree.put("/sys/devices/sda/queue/scheduler", "none [bfq]\n");
        tree.put("/sys/fs/cgroup/batch/io.bfq.weight", "default 118\n");
        let stat = |bytes: u64| {
            format!(
                "8:16 rbytes=5\n8:0 rbytes={bytes} wbytes=500000 rios=10 wios=5 dbytes=0 dios=0\n"
            )
        };
        let kernel = tree.kernel();
        let contracts = HostContracts::parse("host.toml", TEXT).unwrap();
        let facts = Facts::gather(&kernel, &contracts).unwrap();
        let plan = crate::plan::plan(&kernel, &contracts, &facts).unwrap();
        let mut readings = Vec::new();
        for (bytes, waited) in [(0, 100), (2_000_000, 1_000_100)] {
            tree.put("/sys/fs/cgroup/batch/io.stat", &stat(bytes));
            let pressure = format!("some avg10=0.00 total={waited}\nfull avg10=0.00 total=1\n");
            tree.put("/sys/fs/cgroup/batch/io.pressure", &pressure);
            readings.push([counters(&kernel, &facts, "batch")]);
        }
        let (before, after) = (&readings[0][..], &readings[1][..]);
        let interval = Interval { before, after, device_bytes: 4_000_000, seconds: 2.0 };
        let rows = rows(&kernel, &facts, &plan, &interval);
        let row = &rows[0];
        assert_eq!((row.weight, row.effective_weight), (300, Some(118)));
        assert!((row.effective_share.unwrap() - 118.0 / 318.0).abs() < 1e-9);
        assert_eq!((row.bytes_per_s, row.actual_share, row.waiting), (1e6, 0.5, Some(0.5)));
        assert_eq!(row.kept, Some(true));
        let text = metrics(&rows, &facts.hierarchy);
        assert!(text.contains("iofair_host_effective_weight{group=\"batch\"} 118\n"), "{text}");
    }

    /// Goal: version 1 is counted. Method: its files as this kernel writes them.
    #[test]
    fn version_1_is_counted() {
        let tree = Tree::v1();
        let group = "/sys/fs/cgroup/blkio/batch/blkio.throttle";
        tree.put(
            &format!("{group}.io_service_bytes_recursive"),
            "8:0 Read 4096\n8:0 Write 10\n8:0 Total 4106\nTotal 4106\n",
        );
        tree.put(&format!("{group}.io_serviced_recursive"), "8:0 Read 1\n8:0 Total 2\nTotal 2\n");
        let kernel = tree.kernel();
        let contracts = HostContracts::parse("host.toml", TEXT).unwrap();
        let facts = Facts::gather(&kernel, &contracts).unwrap();
        let found = counters(&kernel, &facts, "batch");
        assert_eq!(found, Counters { bytes: [4096, 10], requests: 2, waited_us: None });
    }
}
