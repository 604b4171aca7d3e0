//! Tests of the planner: contracts on fake machines.

use iofair_config::contracts::host::HostContracts;

use super::*;
use crate::testing::Tree;

/// Every key of a group once, on a volume of two disks.
pub(crate) const FULL: &str = "[drive]\nback = '/dev/mapper/vg-pool'\nworst_case = '100MB/s'\n\
    [[group]]\nname = 'db.service'\nmin = '60MB/s'\nlatency = '10ms'\n\
    [[group]]\nname = 'user.slice'\nweight = 300\nmax = { read = '50MB/s', write_iops = 500 }\nclass = 'idle'\n\
    [[group]]\nname = 'batch'\nmax = '20MB/s'\n";

fn made(tree: &Tree, text: &str) -> Plan {
    let kernel = tree.kernel();
    let contracts = HostContracts::parse("host.toml", text).unwrap_or_else(|why| panic!("{why}"));
    let facts = Facts::gather(&kernel, &contracts).unwrap_or_else(|why| panic!("{why}"));
    plan(&kernel, &contracts, &facts).unwrap_or_else(|why| panic!("{why}"))
}
fn refused(tree: &Tree, text: &str) -> String {
    let kernel = tree.kernel();
    let contracts = HostContracts::parse("host.toml", text).unwrap();
    let facts = Facts::gather(&kernel, &contracts);
    facts.and_then(|facts| plan(&kernel, &contracts, &facts)).unwrap_err().to_string()
}
fn lines(plan: &Plan) -> Vec<String> {
    let short = plan.writes.iter().filter(|write| write.slot != Slot::Document);
    let before = |write: &Write| write.before.clone().unwrap_or_else(|| "-".to_owned());
    short.map(|write| format!("{}: {} -> {}", write.place(), before(write), write.after)).collect()
}
fn document(plan: &Plan, end: &str) -> String {
    let found = plan.writes.iter().find(|write| write.file.ends_with(end));
    found.unwrap_or_else(|| panic!("no {end}")).after.clone()
}

/// Goal: contracts become the files of version 2, ceilings on the named volume, weights and latencies on the disks
/// below. Method: the whole list.
#[test]
fn contracts_become_files_of_version_2() {
    let tree = Tree::v2();
    let plan = made(&tree, FULL);
    let group = "/sys/fs/cgroup/user.slice/";
    let lines = lines(&plan);
    for line in [
        "/sys/fs/cgroup/cgroup.subtree_control: - -> io".to_owned(),
        "/sys/fs/cgroup/system.slice/cgroup.subtree_control: - -> io".to_owned(),
        "/sys/devices/sda/queue/scheduler: mq-deadline -> bfq".to_owned(),
        "/sys/devices/sdb/queue/iosched/low_latency: - -> 0".to_owned(),
        format!("{group}io.bfq.weight [8:0]: - -> 500"),
        format!("{group}io.bfq.weight [8:16]: - -> 500"),
        format!("{group}io.max [253:0]: - -> rbps=50000000 wbps=max riops=max wiops=500"),
        format!("{group}io.prio.class: no-change -> idle"),
        "/sys/fs/cgroup/system.slice/db.service/io.latency [8:0]: - -> target=10000".to_owned(),
    ] {
        assert!(lines.contains(&line), "{line} is missing in {lines:#?}");
    }
    // system.slice has db.service's minimum, and more than its 100 beside 300 and 100.
    let weight = "/sys/fs/cgroup/system.slice/io.bfq.weight";
    let above = lines.iter().any(|line| line.starts_with(weight));
    assert!(above, "{lines:#?}");
    assert!(plan.writes.iter().all(|write| write.why.ends_with('.') && !write.why.contains("  ")));
    for part in [
        "min of db.service",
        "of several targets",
        "dm-0: ceilings hold on dm-0",
        "reboot: neither systemd nor udev sets batch here",
    ] {
        assert!(plan.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", plan.notes);
    }
}

/// Goal: what survives a reboot has systemd's and udev's syntax. Method: the files for the same contracts.
#[test]
fn drop_ins_and_a_rule_survive_a_reboot() {
    let tree = Tree::v2();
    let plan = made(&tree, FULL);
    let user = document(&plan, "/etc/systemd/system/user.slice.d/50-iofair.conf");
    for line in [
        "[Slice]",
        "IOWeight=4500",
        "IOReadBandwidthMax=/dev/dm-0 50000000",
        "IOWriteIOPSMax=/dev/dm-0 500",
    ] {
        assert!(user.lines().any(|rule| rule == line), "{line}: {user}");
    }
    let db = document(&plan, "/db.service.d/50-iofair.conf");
    assert!(
        db.contains("[Service]") && db.contains("IODeviceLatencyTargetSec=/dev/sda 10000us"),
        "{db}"
    );
    assert!(document(&plan, "/system.slice.d/50-iofair.conf").contains("IOWeight="));
    let rule = document(&plan, "65-iofair-host.rules");
    let sda = "ACTION==\"add|change\", SUBSYSTEM==\"block\", ATTRS{wwid}==\"naa.5000c500a\", \
        ENV{DEVTYPE}==\"disk\", ATTR{queue/scheduler}=\"bfq\", ATTR{queue/iosched/low_latency}=\"0\"\n";
    assert!(rule.contains(sda) && rule.contains("KERNEL==\"sdb\""), "{rule}");
}

/// Goal: version 1 gets blkio files, never the one that erases others, and the notes say what it lacks. Method: a plain
/// group with a weight and ceilings.
#[test]
fn contracts_become_files_of_version_1() {
    let tree = Tree::v1();
    let text = "[drive]\nback = '/dev/sda1'\n[[group]]\nname = 'batch'\nweight = 300\nlatency = '1ms'\n\
                max = { read = '5MB/s', read_iops = 7 }\nclass = 'idle'\n";
    let plan = made(&tree, text);
    assert_eq!(
        lines(&plan),
        [
            "/sys/devices/sda/queue/scheduler: mq-deadline -> bfq",
            "/sys/devices/sda/queue/iosched/low_latency: - -> 0",
            "/sys/fs/cgroup/blkio/batch/blkio.bfq.weight_device [8:0]: - -> 300",
            "/sys/fs/cgroup/blkio/batch/blkio.throttle.read_bps_device [8:0]: - -> 5000000",
            "/sys/fs/cgroup/blkio/batch/blkio.throttle.read_iops_device [8:0]: - -> 7",
        ]
    );
    for part in [
        "buffered writes",
        "has no latency targets",
        "whole disks",
        "no io.prio.class",
        "the scheduler of sda",
    ] {
        assert!(plan.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", plan.notes);
    }
}

/// Goal: io.cost is used where the file says so, or where bfq is missing. Method: both.
#[test]
fn io_cost_enforces_weights() {
    let tree = Tree::v2();
    let group = "[[group]]\nname = 'batch'\nweight = 300\n";
    let cost = format!(
        "[drive]\nback = '/dev/sda'\ncost = {{ model = 'rbps=1000 rseqiops=1', qos = 'rpct=95 rlat=2500' }}\n{group}"
    );
    let plan = made(&tree, &cost);
    let expected = [
        "/sys/fs/cgroup/io.cost.model [8:0]: - -> ctrl=user rbps=1000 rseqiops=1",
        "/sys/fs/cgroup/io.cost.qos [8:0]: - -> enable=1 ctrl=user rpct=95 rlat=2500",
        "/sys/fs/cgroup/batch/io.weight [8:0]: - -> 300",
    ];
    assert_eq!(lines(&plan)[1..], expected);
    tree.put("/sys/devices/sda/queue/scheduler", "[none] mq-deadline\n");
    let plan = made(&tree, &format!("[drive]\nback = '/dev/sda'\n{group}"));
    assert_eq!(plan.weights, Weights::Cost);
    assert!(plan.notes.iter().any(|note| note.contains("no model of this drive")));
}

/// Goal: each thing that is missing is one error with its place, or one note. Method: unknown device, group, scheduler; a
/// scheduler without weights; minimums that do not fit; a machine without controllers.
#[test]
fn what_is_missing_is_told() {
    let tree = Tree::v2();
    let of = |drive: &str, group: &str| format!("[drive]\n{drive}\n[[group]]\n{group}\n");
    let error = refused(&tree, &of("back = '/dev/sdx'", "name = 'batch'"));
    assert!(error.starts_with("host.toml:2:8: /dev/sdx: No such file"), "{error}");
    let error = refused(&tree, &of("back = '/dev/sda'", "name = 'bathc'"));
    assert!(error.contains("host.toml:4:8") && error.contains("did you mean `batch`"), "{error}");
    let twice =
        of("back = '/dev/sda'", "name = 'db.service'\n[[group]]\nname = 'system.slice/db.service'");
    assert!(refused(&tree, &twice).contains("the same group as"));
    tree.put("/sys/devices/sdb/queue/scheduler", "[none] mq-deadline\n");
    let error = refused(&tree, &of("back = '/dev/sdb'\nscheduler = 'bfq'", "name = 'batch'"));
    assert!(
        error.contains("no scheduler bfq for sdb") && error.contains("none, mq-deadline"),
        "{error}"
    );
    let error = refused(&tree, &FULL.replace("'60MB/s'", "'160MB/s'"));
    assert!(error.contains("host.toml:2:8"), "{error}");
    let plan =
        made(&tree, &of("back = '/dev/sdb'\nscheduler = 'none'", "name = 'batch'\nmin = '1MB/s'"));
    assert!(
        plan.notes.iter().any(|note| note.starts_with("weights and minimums: nothing")),
        "{:#?}",
        plan.notes
    );
    tree.put("/proc/self/mounts", "proc /proc proc rw 0 0\n");
    let error = refused(&tree, &of("back = '/dev/sda'", "name = 'batch'"));
    assert_eq!(error, "neither `io` of cgroup v2 nor `blkio` of v1 is mounted");
}

/// Goal: a unit that does not run gets its drop-in, nothing else. Method: a service without a cgroup.
#[test]
fn a_unit_that_does_not_run_gets_a_drop_in() {
    let tree = Tree::v2();
    let plan = made(
        &tree,
        "[drive]\nback = '/dev/sda'\n[[group]]\nname = 'later.service'\nmax = '1MB/s'\n",
    );
    let files: Vec<&str> = plan.writes.iter().map(|write| write.file.as_str()).collect();
    assert_eq!(files, ["/etc/systemd/system/later.service.d/50-iofair.conf"]);
    assert!(plan.notes.iter().any(|note| note.contains("from its next start")));
}
