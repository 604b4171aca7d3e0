//! Control groups: `io` of version 2 where it is enabled, else `blkio` of version 1.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use iofair_host::{Hierarchy, Machine, Version};

use super::plan::Group;
use crate::loop_device::write;
use iofair_cli::output::say;

/// Tries to remove a group whose processes have just ended, 5 ms apart: a process that was killed leaves its group only when
/// it is reaped, which may take seconds on a busy machine.
const TRIES: usize = 2_000;

fn find() -> Result<Hierarchy> {
    Hierarchy::find(&Machine::local()).context("a run on Linux needs groups")
}

/// The groups of a run.
#[derive(Debug)]
pub(super) struct Groups {
    hierarchy: Hierarchy,
    prefix: String,
    /// In the order in which they were made.
    made: Vec<PathBuf>,
    /// Files in which `io` was enabled for them.
    enabled: Vec<PathBuf>,
}

impl Groups {
    /// Whether there can be groups.
    pub(super) fn check() -> Result<()> {
        find().map(|_| ())
    }
    pub(super) fn new() -> Result<Self> {
        let prefix = format!("iofair-{}-", std::process::id());
        Ok(Self { hierarchy: find()?, prefix, made: Vec::new(), enabled: Vec::new() })
    }
    /// `cgroup v2` or `blkio of cgroup v1`.
    pub(super) fn kind(&self) -> &'static str {
        self.hierarchy.kind()
    }
    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.hierarchy.root).join(format!("{}{name}", self.prefix))
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
                .take_while(|path| *path != Path::new(&self.hierarchy.root) && !path.exists())
                .collect();
            missing.reverse();
            for path in missing.iter().map(|path| path.to_path_buf()) {
                if let (Version::Two, Some(parent)) = (self.hierarchy.version, path.parent()) {
                    self.enable(parent.join("cgroup.subtree_control"))?;
                }
                fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
                self.made.push(path);
            }
            self.set(&path, group, device)?;
        }
        Ok(())
    }
    /// Enables `io` for the groups below, unless it is already.
    fn enable(&mut self, file: PathBuf) -> Result<()> {
        let now = fs::read_to_string(&file).unwrap_or_default();
        if !now.split_whitespace().any(|controller| controller == "io") {
            write(&file, "+io")?;
            self.enabled.push(file);
        }
        Ok(())
    }
    fn set(&self, path: &Path, group: &Group, device: &str) -> Result<()> {
        let two = self.hierarchy.version == Version::Two;
        if let Some(weight) = group.weight {
            let file = if two { "io.bfq.weight" } else { "blkio.bfq.weight" };
            write(&path.join(file), &weight.to_string())?;
        }
        let values = group.max.bytes_per_s.into_iter().chain(group.max.iops);
        for (name, value) in self.hierarchy.ceilings().into_iter().zip(values) {
            let Some(value) = value else { continue };
            match two {
                true => write(&path.join("io.max"), &format!("{device} {name}={value}"))?,
                false => {
                    write(&path.join(name), &format!("{device} {value}"))?;
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
                say(format_args!("could not be removed: {}", path.display()));
            }
        }
        // Files of removed groups are gone with them.
        for file in self.enabled.drain(..).filter(|file| file.exists()) {
            if let Err(error) = write(&file, "-io") {
                say(format_args!("could not be restored: {error:#}"));
            }
        }
    }
}
