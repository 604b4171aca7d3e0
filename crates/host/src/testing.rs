//! A kernel on a directory: the files of `/sys`, `/proc` and `/etc` with the behaviour that the documentation gives
//! them. It can be killed after any number of writes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Files, Machine};

/// Directories of tests in this process.
static TREES: AtomicUsize = AtomicUsize::new(0);

/// A directory with a machine's files; removed at the end.
pub(crate) struct Tree {
    root: PathBuf,
    version: u8,
}

/// The kernel of that machine.
pub(crate) struct Kernel {
    machine: Machine,
    /// Writes until it is killed.
    pub(crate) left: Cell<usize>,
    pub(crate) read_only: Cell<bool>,
}

const NO_LIMIT: &str = "rbps=max wbps=max riops=max wiops=max";

impl Tree {
    /// cgroup v2, systemd, udev, two disks, a volume and an array on both, a loop device.
    pub(crate) fn v2() -> Self {
        let tree = Self::new(2);
        tree.put("/proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n");
        tree.put("/sys/fs/cgroup/cgroup.controllers", "cpu io memory\n");
        tree.put("/sys/fs/cgroup/cgroup.subtree_control", "cpu memory\n");
        tree.put("/sys/fs/cgroup/io.cost.qos", "");
        tree.put("/sys/fs/cgroup/io.cost.model", "");
        fs::create_dir_all(tree.path("/run/systemd/system")).unwrap();
        fs::create_dir_all(tree.path("/run/udev")).unwrap();
        tree.common();
        tree
    }
    /// blkio of cgroup v1, without systemd.
    pub(crate) fn v1() -> Self {
        let tree = Self::new(1);
        let mounts = "cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n";
        tree.put("/proc/self/mounts", mounts);
        tree.common();
        tree
    }
    fn new(version: u8) -> Self {
        let number = TREES.fetch_add(1, Ordering::Relaxed);
        let name = format!("iofair-host-{}-{number}", std::process::id());
        Self { root: std::env::temp_dir().join(name), version }
    }
    fn common(&self) {
        self.put("/etc/os-release", "NAME=test\n");
        self.put("/proc/sys/kernel/osrelease", "6.12.1\n");
        self.put("/proc/sys/kernel/random/boot_id", "first\n");
        for (name, number) in [("sda", "8:0"), ("sdb", "8:16"), ("loop0", "7:0")] {
            self.disk(name, number, "none [mq-deadline] kyber bfq");
        }
        self.put("/sys/devices/loop0/loop/backing_file", "/srv/image\n");
        self.put("/sys/devices/sda/wwid", "naa.5000c500a\n");
        self.partition("sda", "sda1", "8:1");
        self.partition("sdb", "sdb1", "8:17");
        self.put("/sys/devices/dm-0/queue/rotational", "0\n");
        self.stacked("dm-0", "253:0", &["sda1", "sdb1"]);
        // An array, its partition, and a volume on that.
        self.stacked("md0", "9:0", &["sda1", "sdb1"]);
        self.partition("md0", "md0p1", "259:0");
        self.stacked("dm-1", "253:1", &["md0p1"]);
        self.partition("loop0", "loop0p1", "259:1");
        self.link("/dev/mapper/vg-pool", "/dev/dm-0");
        self.link("/dev/disk/by-id/wwn-1", "/dev/sda");
        for group in ["system.slice/db.service", "user.slice", "batch"] {
            self.group(group);
        }
    }
    fn disk(&self, name: &str, number: &str, schedulers: &str) {
        let sys = format!("/sys/devices/{name}");
        self.put(&format!("{sys}/queue/scheduler"), &format!("{schedulers}\n"));
        self.device(name, number, &sys);
    }
    fn partition(&self, disk: &str, name: &str, number: &str) {
        let sys = format!("/sys/devices/{disk}/{name}");
        self.put(&format!("{sys}/partition"), "1\n");
        self.device(name, number, &sys);
    }
    fn stacked(&self, name: &str, number: &str, below: &[&str]) {
        let sys = format!("/sys/devices/{name}");
        self.device(name, number, &sys);
        for part in below {
            self.link(&format!("{sys}/slaves/{part}"), &format!("/sys/class/block/{part}"));
        }
    }
    fn device(&self, name: &str, number: &str, sys: &str) {
        self.put(&format!("{sys}/dev"), &format!("{number}\n"));
        self.put(&format!("/dev/{name}"), "");
        self.link(&format!("/sys/class/block/{name}"), sys);
        self.link(&format!("/sys/dev/block/{number}"), sys);
    }
    /// Makes a group with its files, and those above it.
    pub(crate) fn group(&self, path: &str) {
        let root = if self.version == 2 { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/blkio" };
        let mut here = root.to_owned();
        for part in path.split('/') {
            here = format!("{here}/{part}");
            if self.path(&here).is_dir() {
                continue;
            }
            let empty = match self.version {
                2 => &["io.max", "io.latency", "io.stat", "cgroup.subtree_control"][..],
                _ => &[
                    "blkio.throttle.read_bps_device",
                    "blkio.throttle.write_bps_device",
                    "blkio.throttle.read_iops_device",
                    "blkio.throttle.write_iops_device",
                ],
            };
            for name in empty {
                self.put(&format!("{here}/{name}"), "");
            }
            let filled = match self.version {
                2 => &[
                    ("io.weight", "default 100\n"),
                    ("io.bfq.weight", "default 100\n"),
                    ("io.prio.class", "no-change\n"),
                ][..],
                _ => &[("blkio.bfq.weight", "100\n"), ("blkio.bfq.weight_device", "default 100\n")],
            };
            for (name, text) in filled {
                self.put(&format!("{here}/{name}"), text);
            }
        }
    }
    /// Removes a group, as the kernel does when its unit ends.
    pub(crate) fn remove(&self, path: &str) {
        fs::remove_dir_all(self.path(path)).unwrap();
    }
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        Machine::below(&self.root).path(path)
    }
    /// Writes a file as it is, with its directory.
    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }
    fn link(&self, path: &str, to: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(self.path(to), path).unwrap();
    }
    pub(crate) fn kernel(&self) -> Kernel {
        Kernel {
            machine: Machine::below(&self.root),
            left: Cell::new(usize::MAX),
            read_only: Cell::new(false),
        }
    }
    /// Every file and its text, without the journal's directory.
    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).unwrap().flatten() {
                let kind = entry.file_type().unwrap();
                match kind.is_dir() {
                    true => directories.push(entry.path()),
                    false if kind.is_file() => {
                        files.insert(entry.path(), fs::read_to_string(entry.path()).unwrap());
                    }
                    false => {}
                }
            }
        }
        files
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(22)
}

impl Kernel {
    fn spend(&self) -> io::Result<()> {
        if self.read_only.get() {
            return Err(io::Error::from_raw_os_error(30));
        }
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| io::Error::other("killed"))?);
        Ok(())
    }
    /// `none [bfq]`; bfq comes with its settings.
    fn schedule(&self, file: &Path, words: &str, value: &str) -> io::Result<String> {
        let mut words: Vec<&str> = words.split(['[', ']', ' ', '\n']).collect();
        words.retain(|word| !word.is_empty());
        if !words.contains(&value) {
            return Err(invalid());
        }
        let settings = file.parent().unwrap().join("iosched");
        let _ = fs::remove_dir_all(&settings);
        if value == "bfq" {
            fs::create_dir_all(&settings)?;
            fs::write(settings.join("low_latency"), "1\n")?;
        }
        let shown = |word: &str| if word == value { format!("[{word}]") } else { word.to_owned() };
        Ok(words.into_iter().map(shown).collect::<Vec<_>>().join(" ") + "\n")
    }
}

/// The lines of a file after `KEY VALUE` was written.
fn keyed(name: &str, text: &str, value: &str) -> io::Result<String> {
    let (key, value) = value.split_once(' ').ok_or_else(invalid)?;
    let old = text.lines().filter_map(|line| line.split_once(' ')).find(|entry| entry.0 == key);
    let old = old.map_or("", |entry| entry.1);
    let value = match name {
        "io.max" => {
            let start = if old.is_empty() { NO_LIMIT } else { old };
            let mut pairs: Vec<(&str, &str)> =
                start.split(' ').filter_map(|pair| pair.split_once('=')).collect();
            for (key, value) in value.split(' ').filter_map(|pair| pair.split_once('=')) {
                pairs.iter_mut().find(|pair| pair.0 == key).ok_or_else(invalid)?.1 = value;
            }
            pairs.iter().map(|pair| format!("{}={}", pair.0, pair.1)).collect::<Vec<_>>().join(" ")
        }
        _ => value.to_owned(),
    };
    let gone = ["default", "0", "target=0", "enable=0", "ctrl=auto", NO_LIMIT];
    let kept = text.lines().filter(|line| !line.starts_with(&format!("{key} ")));
    let mut lines: Vec<String> = kept.map(str::to_owned).collect();
    if !gone.contains(&value.as_str()) {
        lines.push(format!("{key} {value}"));
    }
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

impl Files for Kernel {
    fn read(&self, path: &str) -> io::Result<String> {
        self.machine.read(path)
    }
    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let file = self.machine.path(path);
        let text = fs::read_to_string(&file)?;
        self.spend()?;
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let new = match name.as_str() {
            "scheduler" => self.schedule(&file, &text, value)?,
            "cgroup.subtree_control" => {
                let mut words: Vec<&str> = text.split_whitespace().collect();
                words.retain(|word| *word != &value[1..]);
                if let Some(word) = value.strip_prefix('+') {
                    words.push(word);
                }
                if words.is_empty() { String::new() } else { words.join(" ") + "\n" }
            }
            "blkio.bfq.weight" => {
                fs::write(
                    file.with_file_name("blkio.bfq.weight_device"),
                    format!("default {value}\n"),
                )?;
                format!("{value}\n")
            }
            "low_latency" | "io.prio.class" => format!("{value}\n"),
            _ => keyed(&name, &text, value)?,
        };
        fs::write(file, new)
    }
    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        self.spend()?;
        self.machine.replace(path, text)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.spend()?;
        self.machine.remove(path)
    }
    fn list(&self, path: &str) -> Vec<String> {
        self.machine.list(path)
    }
    fn is_directory(&self, path: &str) -> bool {
        self.machine.is_directory(path)
    }
    fn canonical(&self, path: &str) -> io::Result<String> {
        self.machine.canonical(path)
    }
    fn device_number(&self, path: &str) -> io::Result<String> {
        self.machine.device_number(path)
    }
}
