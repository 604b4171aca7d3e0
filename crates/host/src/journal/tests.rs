//! Tests of the journal: crashes, values of others, vanished groups.

use std::fs;
use std::path::PathBuf;

use iofair_config::contracts::host::HostContracts;

use super::*;
use crate::facts::Facts;
use crate::plan::plan;
use crate::testing::{Kernel, Tree};

const FULL: &str = "[drive]\nback = '/dev/mapper/vg-pool'\nworst_case = '100MB/s'\n\
    [[group]]\nname = 'db.service'\nmin = '60MB/s'\nlatency = '10ms'\n\
    [[group]]\nname = 'user.slice'\nweight = 300\nmax = { read = '50MB/s', write_iops = 500 }\nclass = 'idle'\n\
    [[group]]\nname = 'batch'\nmax = '20MB/s'\n";
/// Another version of the file, with a group less.
const LESS: &str =
    "[drive]\nback = '/dev/mapper/vg-pool'\n[[group]]\nname = 'user.slice'\nweight = 200\n";
const ONE: &str =
    "[drive]\nback = '/dev/sda'\n[[group]]\nname = 'batch'\nweight = 300\nmax = '5MB/s'\n";

fn run(kernel: &Kernel, text: &str, force: bool) -> Result<Done, HostError> {
    let contracts = HostContracts::parse("host.toml", text)?;
    let facts = Facts::gather(kernel, &contracts)?;
    let plan = plan(kernel, &contracts, &facts)?;
    apply(kernel, &plan.writes, Owner::Apply, force)
}
/// Every file is as before.
fn same(tree: &Tree, before: &BTreeMap<PathBuf, String>, what: &str) {
    let now = tree.snapshot();
    for file in before.keys().chain(now.keys()) {
        assert_eq!(now.get(file), before.get(file), "{}: {what}", file.display());
    }
}
fn revert_all(kernel: &Kernel) -> Done {
    revert(kernel, None, false).unwrap()
}
/// Values that another program or an administrator has set before.
fn prepared(tree: &Tree) {
    tree.put(
        "/sys/fs/cgroup/user.slice/io.max",
        "8:16 rbps=7 wbps=max riops=max wiops=max\n253:0 rbps=9 wbps=max riops=max wiops=max\n",
    );
    tree.put("/sys/fs/cgroup/user.slice/io.bfq.weight", "default 50\n8:0 70\n");
    tree.put("/etc/systemd/system/batch.service.d/other.conf", "[Service]\n");
}

/// Goal: a revert restores exactly what was there, also values that an administrator had set before. Method: the whole tree
/// before and after; a second apply changes nothing.
#[test]
fn a_revert_restores_everything() {
    for (tree, text) in [(Tree::v2(), FULL), (Tree::v1(), ONE)] {
        prepared(&tree);
        let (before, kernel) = (tree.snapshot(), tree.kernel());
        let done = run(&kernel, text, false).unwrap();
        assert!(done.written.len() > 3 && done.gone.is_empty());
        assert_ne!(tree.snapshot(), before);
        let again = run(&kernel, text, false).unwrap();
        assert_eq!(again, Done::default());
        let done = revert_all(&kernel);
        assert!(done.changed.is_empty() && done.gone.is_empty(), "{done:?}");
        same(&tree, &before, "");
        assert_eq!(revert_all(&kernel), Done::default());
    }
}

/// Goal: a crash at any write loses nothing. Method: kill after each write of an apply, of a second apply over the
/// half-done one with other contracts, and of the revert; then revert.
#[test]
fn a_crash_at_any_write_is_reverted() {
    for kill in 0..60 {
        let tree = Tree::v2();
        prepared(&tree);
        let (before, kernel) = (tree.snapshot(), tree.kernel());
        kernel.left.set(kill);
        let first = run(&kernel, FULL, false);
        kernel.left.set(kill / 2);
        let second = run(&kernel, LESS, false);
        kernel.left.set(kill / 3);
        let third = revert(&kernel, None, false);
        kernel.left.set(usize::MAX);
        let done = revert_all(&kernel);
        assert!(done.changed.is_empty(), "{kill}: {done:?}");
        same(&tree, &before, &format!("killed after {kill}: {first:?} {second:?} {third:?}"));
    }
    let tree = Tree::v2();
    tree.kernel().left.set(60);
    assert!(
        run(&tree.kernel(), FULL, false).is_ok(),
        "the canary: 60 writes are more than it takes"
    );
}

/// Goal: an apply after a crash finishes the work. Method: kill after each write, apply again, compare with an apply
/// that was not killed.
#[test]
fn an_apply_over_a_half_done_one_finishes_it() {
    let whole = Tree::v2();
    run(&whole.kernel(), FULL, false).unwrap();
    let texts = |tree: &Tree| tree.snapshot().into_values().collect::<Vec<_>>().len();
    for kill in 0..40 {
        let tree = Tree::v2();
        let kernel = tree.kernel();
        kernel.left.set(kill);
        let _ = run(&kernel, FULL, false);
        kernel.left.set(usize::MAX);
        run(&kernel, FULL, false).unwrap();
        assert_eq!(texts(&tree), texts(&whole), "killed after {kill}");
        for file in [
            "/sys/fs/cgroup/user.slice/io.max",
            "/sys/devices/sdb/queue/scheduler",
            "/etc/udev/rules.d/65-iofair-host.rules",
        ] {
            assert_eq!(tree.text(file), whole.text(file), "{file}, killed after {kill}");
        }
    }
}

/// Goal: contracts that changed are applied, and what they no longer ask for goes back. Method: two versions of a file.
#[test]
fn what_is_no_longer_asked_goes_back() {
    let tree = Tree::v2();
    let kernel = tree.kernel();
    run(&kernel, FULL, false).unwrap();
    run(&kernel, LESS, false).unwrap();
    assert_eq!(tree.text("/sys/fs/cgroup/batch/io.max"), "");
    assert_eq!(tree.text("/sys/fs/cgroup/user.slice/io.prio.class"), "no-change\n");
    assert!(tree.text("/sys/fs/cgroup/user.slice/io.bfq.weight").contains("8:0 200"));
}

/// Goal: values that others changed are reported and stay. Method: an administrator changes a ceiling and a drop-in after
/// an apply; apply and revert leave both; `force` does not.
#[test]
fn values_of_others_are_not_overwritten() {
    let tree = Tree::v2();
    let (before, kernel) = (tree.snapshot(), tree.kernel());
    run(&kernel, FULL, false).unwrap();
    let (max, conf) =
        ("/sys/fs/cgroup/user.slice/io.max", "/etc/systemd/system/user.slice.d/50-iofair.conf");
    let theirs = "253:0 rbps=1 wbps=max riops=max wiops=max\n";
    tree.put(max, theirs);
    tree.put(conf, "[Slice]\nIOWeight=5\n");
    let error = run(&kernel, FULL, false).unwrap_err().to_string();
    assert!(
        error.contains("user.slice/io.max [253:0]: rbps=1") && error.contains("--force"),
        "{error}"
    );
    assert_eq!(tree.text(max), theirs);
    let done = revert_all(&kernel);
    assert_eq!(done.changed.len(), 2, "{done:?}");
    assert_eq!(tree.text(max), theirs);
    assert_eq!(revert_all(&kernel).changed.len(), 2, "they stay in the journal");
    revert(&kernel, None, true).unwrap();
    same(&tree, &before, "");
}

/// Goal: a group that ended is no obstacle. Method: it vanishes between plan and apply, and between apply and revert.
#[test]
fn a_vanished_group_is_no_obstacle() {
    let tree = Tree::v2();
    let kernel = tree.kernel();
    let contracts = HostContracts::parse("host.toml", FULL).unwrap();
    let facts = Facts::gather(&kernel, &contracts).unwrap();
    let plan = plan(&kernel, &contracts, &facts).unwrap();
    tree.remove("/sys/fs/cgroup/batch");
    let done = apply(&kernel, &plan.writes, Owner::Apply, false).unwrap();
    assert!(done.gone.iter().any(|place| place.contains("batch/io.max")), "{done:?}");
    tree.remove("/sys/fs/cgroup/user.slice");
    let done = revert_all(&kernel);
    assert!(done.changed.is_empty(), "{done:?}");
    assert!(tree.text("/sys/devices/sda/queue/scheduler").contains("[mq-deadline]"));
}

/// Goal: what `watch` wrote goes back to what `apply` wrote, also after a kill. Method: both owners at one place.
#[test]
fn the_controllers_values_lie_above_the_applied_ones() {
    let tree = Tree::v2();
    let (before, kernel) = (tree.snapshot(), tree.kernel());
    run(&kernel, FULL, false).unwrap();
    let max = "/sys/fs/cgroup/batch/io.max";
    let applied = tree.text(max);
    let absent = crate::plan::NO_CEILING.to_owned();
    let slot = Slot::Keyed { key: "253:0".to_owned(), absent };
    let write =
        Write::new(&kernel, max.to_owned(), slot.clone(), "rbps=5 wbps=5 riops=max wiops=max", "")
            .unwrap();
    apply(&kernel, &[write], Owner::Watch, false).unwrap();
    set(&kernel, max, &slot, Some("rbps=6 wbps=5 riops=max wiops=max")).unwrap();
    let done = revert(&kernel, Some(Owner::Watch), false).unwrap();
    assert_eq!((done.written.len(), tree.text(max)), (1, applied.clone()));
    // Killed: an apply puts it right.
    set(&kernel, max, &slot, Some("rbps=6 wbps=5 riops=max wiops=max")).unwrap();
    let write = Write {
        file: max.to_owned(),
        slot,
        before: Some(applied.trim()[6..].to_owned()),
        after: "rbps=6".to_owned(),
        why: String::new(),
    };
    apply(&kernel, &[write], Owner::Watch, false).unwrap();
    run(&kernel, FULL, false).unwrap();
    assert_eq!(tree.text(max), applied);
    revert_all(&kernel);
    same(&tree, &before, "");
}

/// Goal: writing a weight of version 1 keeps the weights of devices. Method: an old kernel, which erases them.
#[test]
fn weights_of_devices_survive() {
    let tree = Tree::v1();
    tree.put("/proc/sys/kernel/osrelease", "5.2.0\n");
    let devices = "/sys/fs/cgroup/blkio/batch/blkio.bfq.weight_device";
    tree.put(devices, "default 100\n8:16 500\n");
    let (before, kernel) = (tree.snapshot(), tree.kernel());
    run(&kernel, ONE, false).unwrap();
    assert_eq!(tree.text(devices), "default 300\n8:16 500\n");
    revert_all(&kernel);
    same(&tree, &before, "");
}

/// Goal: after a reboot only what is still ours is taken back. Method: another boot with a disk of another number, a
/// value that the new kernel has as its default, and drop-ins of ours.
#[test]
fn a_reboot_is_understood() {
    let tree = Tree::v2();
    let kernel = tree.kernel();
    run(&kernel, FULL, false).unwrap();
    tree.put("/proc/sys/kernel/random/boot_id", "second\n");
    tree.put("/sys/devices/sda/queue/scheduler", "[none] mq-deadline bfq\n");
    fs_remove(&tree, "/sys/dev/block/8:16");
    let done = revert_all(&kernel);
    assert!(done.gone.iter().any(|place| place.contains("[8:16]: another device")), "{done:?}");
    assert!(tree.text("/sys/devices/sda/queue/scheduler").starts_with("[none]"));
    assert!(!tree.path("/etc/udev/rules.d/65-iofair-host.rules").exists());
    assert!(!tree.path("/etc/systemd/system/user.slice.d").exists());
}
fn fs_remove(tree: &Tree, path: &str) {
    fs::remove_file(tree.path(path)).unwrap();
}

/// Goal: no permission, a read-only tree and a damaged journal are one line each, and nothing is written. Method: one
/// of each.
#[test]
fn obstacles_are_one_line_each() {
    let tree = Tree::v2();
    let (before, kernel) = (tree.snapshot(), tree.kernel());
    kernel.read_only.set(true);
    let error = run(&kernel, FULL, false).unwrap_err().to_string();
    assert!(error.contains("mounted read-only") && error.lines().count() == 1, "{error}");
    kernel.read_only.set(false);
    same(&tree, &before, "");
    tree.put(JOURNAL, "{");
    let error = run(&kernel, FULL, false).unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("nothing was changed"), "{error}");
}

/// Goal: files that the kernel does not have are told apart from groups that have ended, whether or not the controller
/// was enabled before, and a revert has nothing to do for them. Method: a kernel without `io.latency` and
/// `io.prio.class`, first with the group's files, then without.
#[test]
fn what_the_kernel_lacks_is_told() {
    let text = "[drive]\nback = '/dev/sda'\nscheduler = 'none'\n[[group]]\nname = 'batch'\nlatency = '10ms'\nclass = 'idle'\n";
    let tree = Tree::v2();
    let kernel = tree.kernel();
    let file = |name: &str| tree.path(&format!("/sys/fs/cgroup/batch/{name}"));
    for name in ["io.latency", "io.prio.class"] {
        fs::remove_file(file(name)).unwrap();
    }
    let contracts = HostContracts::parse("host.toml", text).unwrap();
    let facts = Facts::gather(&kernel, &contracts).unwrap();
    let notes = plan(&kernel, &contracts, &facts).unwrap().notes.join("\n");
    assert!(notes.contains("no io.latency") && notes.contains("no io.prio.class"), "{notes}");
    fs::remove_file(file("io.max")).unwrap();
    let done = run(&kernel, text, false).unwrap();
    let missing = ["/batch/io.latency [8:0]", "/batch/io.prio.class"];
    assert!(done.gone.is_empty(), "{done:?}");
    assert_eq!(done.missing, missing.map(|path| format!("/sys/fs/cgroup{path}")));
    assert_eq!(revert_all(&kernel).gone, Vec::<String>::new());
}
