//! Processor time of the threads that take part in a run (`/proc/*/task/*/schedstat`).

use std::collections::BTreeMap;
use std::fs;

/// The role of a thread in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Client,
    Worker,
    Server,
}

/// The kind of the threads with this name. A worker of the kernel bears the name of the queue that it last worked for.
fn kind(name: &str) -> Option<Kind> {
    let starts = |with: &[&str]| with.iter().any(|start| name.starts_with(start));
    match name {
        "reactor" => Some(Kind::Server),
        _ if starts(&["fio"]) => Some(Kind::Client),
        _ if starts(&["fuser", "ksoftirqd"]) => Some(Kind::Worker),
        _ if starts(&["kworker"]) && (name.contains("loop") || name.contains("kblockd")) => {
            Some(Kind::Worker)
        }
        _ => None,
    }
}

/// Processor time of all threads since they started, in nanoseconds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Snapshot(BTreeMap<u32, (String, u64)>);

/// Processor time between two snapshots, in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Usage {
    /// fio.
    pub(super) client: u64,
    /// What takes requests from the block layer to the server: workers of the kernel, the threads that read FUSE's requests.
    pub(super) worker: u64,
    /// The server with the drive.
    pub(super) server: u64,
}

impl Snapshot {
    /// Processor time of all threads up to now; none where the kernel does not count it (`CONFIG_SCHED_INFO`).
    pub(super) fn now() -> Self {
        let mut all = BTreeMap::new();
        for process in entries("/proc") {
            if !process.bytes().all(|digit| digit.is_ascii_digit()) {
                continue;
            }
            let tasks = format!("/proc/{process}/task");
            for task in entries(&tasks) {
                // A thread that has ended meanwhile does not count.
                let read = |end: &str| fs::read_to_string(format!("{tasks}/{task}/{end}")).ok();
                let (Some(name), Some(time)) = (read("comm"), read("schedstat")) else { continue };
                if let (Ok(task), Some(time)) = (task.parse(), nanos(&time)) {
                    all.insert(task, (name.trim().to_owned(), time));
                }
            }
        }
        Self(all)
    }
    /// The time since `before`, of threads that were there then.
    pub(super) fn since(&self, before: &Self) -> Usage {
        let mut usage = Usage::default();
        for (task, (name, now)) in &self.0 {
            let (Some(kind), Some((_, then))) = (kind(name), before.0.get(task)) else { continue };
            let to = match kind {
                Kind::Client => &mut usage.client,
                Kind::Worker => &mut usage.worker,
                Kind::Server => &mut usage.server,
            };
            *to += now.saturating_sub(*then);
        }
        usage
    }
}

fn entries(directory: &str) -> Vec<String> {
    let list = fs::read_dir(directory).into_iter().flatten().flatten();
    list.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Time on a processor, the first of the line's numbers (`Documentation/scheduler/sched-stats.rst`).
fn nanos(line: &str) -> Option<u64> {
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: threads count by what they do, and others do not. Method: two snapshots with one of each kind, a worker of another
    /// queue, a shell, and a thread that came in between.
    #[test]
    fn threads_count_by_name() {
        let names = [
            "fio",
            "kworker/u8:1-loop0",
            "kworker/0:1H-kblockd",
            "fuser-2",
            "ksoftirqd/1",
            "reactor",
            "kworker/u8:2-writeback",
            "bash",
        ];
        let snapshot = |count: usize, time: u64| {
            let all = names.iter().take(count).zip(1..);
            Snapshot(all.map(|(name, task)| (task, ((*name).to_owned(), time))).collect())
        };
        let usage = snapshot(8, 110).since(&snapshot(8, 100));
        assert_eq!(usage, Usage { client: 10, worker: 40, server: 10 });
        let usage = snapshot(8, 110).since(&snapshot(5, 100));
        assert_eq!(usage, Usage { client: 10, worker: 40, server: 0 });
    }

    /// Goal: the kernel's line is read, and a broken one is not. Method: both, and this process.
    #[test]
    fn times_are_read() {
        assert_eq!((nanos("1200 77 3\n"), nanos("none")), (Some(1200), None));
        assert!(Snapshot::now().0.contains_key(&std::process::id()));
    }
}
