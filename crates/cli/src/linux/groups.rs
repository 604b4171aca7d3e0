//! Control groups: `io` of version 2 where it is enabled, else `blkio` of version 1.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::plan::Group;

/// Tries to remove a group whose processes have just ended, 5 ms apart: a process that was killed leaves its group only when
/// it is reaped, which may take seconds on a busy machine.
const TRIES: usize = 2_000;

/// Writes a value to a file of the kernel's.
pub(super) fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).with_context(|| format!("cannot write `{value}` to {}", file.display()))
}

/// The hierarchy in which groups control I/O.
#[derive(Clone, Debug)]
struct Hierarchy {
    root: PathBuf,
    version: u8,
}

/// The groups of a run.
#[derive(Debug)]
pub(super) struct Groups {
    hierarchy: Hierarchy,
    prefix: String,
    /// In the order in which they were made.
    made: Vec<PathBuf>,
}

impl Hierarchy {
    fn find() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
        let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mounts: Vec<Vec<String>> =
            mounts.lines().map(fields).filter(|it| it.len() > 3).collect();
        for mount in mounts.iter().filter(|it| it[2] == "cgroup2") {
            let root = PathBuf::from(&mount[1]);
            let controllers =
                fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            if controllers.split_whitespace().any(|it| it == "io") {
                return Ok(Self { root, version: 2 });
            }
        }
        let blkio =
            |it: &&Vec<String>| it[2] == "cgroup" && it[3].split(',').any(|it| it == "blkio");
        match mounts.iter().find(blkio) {
            Some(mount) => Ok(Self { root: PathBuf::from(&mount[1]), version: 1 }),
            None => bail!(
                "neither `io` of cgroup v2 nor `blkio` of v1 is mounted, which a run on Linux needs"
            ),
        }
    }
}

impl Groups {
    /// Whether there can be groups.
    pub(super) fn check() -> Result<()> {
        Hierarchy::find().map(|_| ())
    }
    pub(super) fn new() -> Result<Self> {
        let prefix = format!("iofair-{}-", std::process::id());
        Ok(Self { hierarchy: Hierarchy::find()?, prefix, made: Vec::new() })
    }
    /// `cgroup v2` or `blkio of cgroup v1`.
    pub(super) fn kind(&self) -> &'static str {
        if self.hierarchy.version == 2 { "io of cgroup v2" } else { "blkio of cgroup v1" }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.hierarchy.root.join(format!("{}{name}", self.prefix))
    }
    /// The file that takes a process into a group; `None`: it stays where it is.
    pub(super) fn procs(&self, name: &str) -> Option<PathBuf> {
        (!name.is_empty()).then(|| self.path(name).join("cgroup.procs"))
    }
    /// Makes groups, parents first, for the device with this number.
    pub(super) fn make(&mut self, groups: &[Group], device: &str) -> Result<()> {
        for group in groups {
            let path = self.path(&group.name);
            let mut missing: Vec<&Path> = path
                .ancestors()
                .take_while(|it| *it != self.hierarchy.root && !it.exists())
                .collect();
            missing.reverse();
            for path in missing.iter().map(|it| it.to_path_buf()) {
                if let (2, Some(parent)) = (self.hierarchy.version, path.parent()) {
                    write(&parent.join("cgroup.subtree_control"), "+io")?;
                }
                fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
                self.made.push(path);
            }
            self.set(&path, group, device)?;
        }
        Ok(())
    }
    fn set(&self, path: &Path, group: &Group, device: &str) -> Result<()> {
        let two = self.hierarchy.version == 2;
        if let Some(weight) = group.weight {
            let file = if two { "io.bfq.weight" } else { "blkio.bfq.weight" };
            write(&path.join(file), &weight.to_string())?;
        }
        let names = [
            ("rbps", "read_bps"),
            ("wbps", "write_bps"),
            ("riops", "read_iops"),
            ("wiops", "write_iops"),
        ];
        let values = group.max.bytes_per_s.into_iter().chain(group.max.iops);
        for ((new, old), value) in names.into_iter().zip(values) {
            let Some(value) = value else { continue };
            match two {
                true => write(&path.join("io.max"), &format!("{device} {new}={value}"))?,
                false => {
                    let file = path.join(format!("blkio.throttle.{old}_device"));
                    write(&file, &format!("{device} {value}"))?;
                }
            }
        }
        Ok(())
    }
    /// Removes them, the last one first. Their processes have ended.
    pub(super) fn remove(&mut self) {
        for path in self.made.drain(..).rev() {
            let gone = (0..TRIES).any(|turn| {
                if turn > 0 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                fs::remove_dir(&path).is_ok()
            });
            if !gone {
                eprintln!("could not be removed: {}", path.display());
            }
        }
    }
}
