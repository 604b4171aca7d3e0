//! Which hierarchy of cgroups controls I/O: `io` of version 2 where it is attached, else `blkio` of version 1.

use crate::{Files, HostError};

/// The version of cgroups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// `blkio`.
    One,
    /// `io`.
    Two,
}

/// A mounted hierarchy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub root: String,
    /// Its version.
    pub version: Version,
}

impl Hierarchy {
    /// Looks it up in `/proc/self/mounts`.
    ///
    /// # Errors
    ///
    /// [`HostError::NoController`] if none controls I/O.
    pub fn find(files: &dyn Files) -> Result<Self, HostError> {
        let path = "/proc/self/mounts";
        let mounts = files.read(path).map_err(|error| HostError::io("read", path, error))?;
        let mounts: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
        let of = |kind: &str| {
            let kind = kind.to_owned();
            mounts.iter().filter(move |mount| mount.len() > 3 && mount[2] == kind)
        };
        for mount in of("cgroup2") {
            let controllers = files.read(&format!("{}/cgroup.controllers", mount[1]));
            if controllers.unwrap_or_default().split_whitespace().any(|name| name == "io") {
                return Ok(Self { root: mount[1].to_owned(), version: Version::Two });
            }
        }
        let blkio = of("cgroup").find(|mount| mount[3].split(',').any(|name| name == "blkio"));
        let mount = blkio.ok_or(HostError::NoController)?;
        Ok(Self { root: mount[1].to_owned(), version: Version::One })
    }
    /// `io of cgroup v2` or `blkio of cgroup v1`.
    pub fn kind(&self) -> &'static str {
        match self.version {
            Version::Two => "io of cgroup v2",
            Version::One => "blkio of cgroup v1",
        }
    }
    /// The directory of a group; the root for an empty name.
    pub fn path(&self, group: &str) -> String {
        match group {
            "" => self.root.clone(),
            group => format!("{}/{group}", self.root),
        }
    }
    /// Names of ceilings in bytes and requests a second, reads and writes each: keys of `io.max`, or files of `blkio`.
    pub fn ceilings(&self) -> [&'static str; 4] {
        match self.version {
            Version::Two => ["rbps", "wbps", "riops", "wiops"],
            Version::One => [
                "blkio.throttle.read_bps_device",
                "blkio.throttle.write_bps_device",
                "blkio.throttle.read_iops_device",
                "blkio.throttle.write_iops_device",
            ],
        }
    }
}
