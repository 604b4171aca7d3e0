//! What `diff` and `status` print, on the files of a machine in a directory.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde::Serialize;

use super::*;

/// A partition with a group that has a minimum and a latency beside one with weight and ceiling.
const CONTRACTS: &str = "[drive]\nback = '/dev/sda1'\nscheduler = 'bfq'\n\
    [[group]]\nname = 'tenants/db'\nmin = '10MB/s'\nalone = '40MB/s'\nlatency = '10ms'\nweight = 300\n\
    [[group]]\nname = 'tenants/backup'\nweight = 100\nmax = { read = '20MB/s', write_iops = 500 }\n";
/// Files of a group of version 2.
const GROUP: &[(&str, &str)] = &[
    ("cgroup.subtree_control", ""),
    ("io.bfq.weight", "default 100\n"),
    ("io.latency", ""),
    ("io.max", ""),
    ("io.stat", ""),
];

/// The directory; removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let name = format!("iofair-host-{name}-{}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        tree.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        tree.put("proc/sys/kernel/osrelease", "6.12.1\n");
        tree.put("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n");
        tree.put("sys/fs/cgroup/cgroup.subtree_control", "cpu memory\n");
        tree.put("sys/devices/sda/dev", "8:0\n");
        tree.put("sys/devices/sda/queue/scheduler", "none [mq-deadline] bfq\n");
        tree.put("sys/devices/sda/sda1/dev", "8:1\n");
        tree.put("sys/devices/sda/sda1/partition", "1\n");
        tree.put("dev/sda1", "");
        for (link, to) in [
            ("sys/class/block/sda1", "sys/devices/sda/sda1"),
            ("sys/dev/block/8:0", "sys/devices/sda"),
            ("sys/dev/block/8:1", "sys/devices/sda/sda1"),
        ] {
            let link = tree.0.join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(tree.0.join(to), link).unwrap();
        }
        for group in ["tenants", "tenants/db", "tenants/backup", "tenants/other"] {
            for (file, text) in GROUP {
                tree.put(&format!("sys/fs/cgroup/{group}/{file}"), text);
            }
        }
        tree
    }
    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn planned(&self) -> (Machine, Facts, Plan) {
        let machine = Machine::below(&self.0);
        let contracts = HostContracts::parse("host.toml", CONTRACTS).unwrap();
        let facts = Facts::gather(&machine, &contracts).unwrap();
        let plan = plan(&machine, &contracts, &facts).unwrap();
        (machine, facts, plan)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compares with files beside this one; `IOFAIR_BLESS=1` writes them anew.
fn golden<T: Serialize>(name: &str, value: &T, text: &str) {
    let json = serde_json::to_string_pretty(value).unwrap() + "\n";
    for (end, found) in [("txt", text), ("json", &json)] {
        let path = format!("{}/src/host/golden/{name}.{end}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("IOFAIR_BLESS").is_some() {
            fs::write(&path, found).unwrap();
        }
        let known = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, known, "{name}.{end} differs; IOFAIR_BLESS=1 accepts it");
    }
}

/// Goal: `diff` names every file with its value before and after and the reason, and what the kernel cannot guarantee.
/// Method: text and JSON beside this file.
#[test]
fn diff_is_golden() {
    let tree = Tree::new("diff");
    let (_, _, plan) = tree.planned();
    let diff = show::Diff::new(&plan);
    golden("diff", &diff, &diff.text());
}

/// Goal: `status` compares the promised weight with the kernel's, counts groups that the file does not name, and tells
/// which minimum is broken. Method: two readings 2 s apart, the heavier group with systemd's remapped weight; text and
/// JSON beside this file.
#[test]
fn status_is_golden() {
    let tree = Tree::new("status");
    tree.put("sys/devices/sda/queue/scheduler", "none mq-deadline [bfq]\n");
    tree.put("sys/fs/cgroup/tenants/db/io.bfq.weight", "default 118\n");
    tree.put("sys/fs/cgroup/tenants/backup/io.bfq.weight", "default 100\n8:0 50\n");
    let (machine, facts, plan) = tree.planned();
    let mut readings = Vec::new();
    for seconds in [1, 3] {
        for (group, rate, waited_us) in [("db", 8_000_000, 900_000), ("backup", 20_000_000, 0)] {
            let (bytes, requests) = (rate * seconds, rate * seconds / 4096);
            let stat = format!("8:0 rbytes={bytes} wbytes=0 rios={requests} wios=0\n");
            tree.put(&format!("sys/fs/cgroup/tenants/{group}/io.stat"), &stat);
            let waited = waited_us * seconds;
            let pressure = format!("some avg10=0.00 total={waited}\nfull avg10=0.00 total=0\n");
            tree.put(&format!("sys/fs/cgroup/tenants/{group}/io.pressure"), &pressure);
        }
        let counters = |path: &_| status::counters(&machine, &facts, path);
        readings.push(plan.groups.iter().map(|group| counters(&group.path)).collect::<Vec<_>>());
    }
    let (before, after) = (&readings[0], &readings[1]);
    let interval = Interval { before, after, device_bytes: 80_000_000, seconds: 2.0 };
    let rows = status::rows(&machine, &facts, &plan, &interval);
    golden("status", &rows, &show::status(&rows));
}
