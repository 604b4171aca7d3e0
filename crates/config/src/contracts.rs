//! The contract file: a drive, who may share it, and what each was promised.
//!
//! ```toml
//! [drive]
//! back = "emulated:plextor-px256m5s"  # or "file:/srv/pool.img", "/dev/nvme0n1", "memory:4GiB",
//!                                     # or "directory:/srv/pool": a sparse file a volume
//! pool = "0e9c1f6a-..."               # optional: the UUID that a pool on a device or file must have
//! stack = "max+prop-bfq"              # policies and scheduler; "promise" unless written; iofair list policies
//! worst_case = "160MB/s"              # optional: what admission counts on, instead of the profile's
//! reaches = { read = "535MB/s", write = "383MB/s", random = "23.6MB/s" }  # optional: what minimums and latencies are
//!                                     # checked against by the stack `promise`: see `reaches`
//! timeout = "30s"                     # a command that takes longer is an error for its client
//! drain = "30s"                       # at the end, a client that does not read is waited for so long
//! paths = ["/dev/disk/by-id"]         # every `path` of a volume lies below one of them: see `paths`
//! [drive.policy.bfq]
//! slice_idle = "4ms"                  # any parameter of a policy in the stack
//!
//! [listen]                            # TLS, limits and who may open what: see `listen`
//! unix = "/run/iofair/pool.sock"
//! tcp = "127.0.0.1:10809"
//! insecure = true                     # without TLS; needed for that, on every address
//!
//! [control]                           # iofair ctl: who may look and who may change, see `control`
//! unix = "/run/iofair/control.sock"   # for its owner only, unless `mode` or `group` says else
//!
//! [metrics]                           # Prometheus and health, read-only: see `control`
//! tcp = "127.0.0.1:9090"
//!
//! [vhost]                             # the sockets of virtual machines' disks: see `access`
//! group = "kvm"                       # who may connect beside the server's own user
//!
//! [fuse]
//! mount = "/run/iofair/volumes"       # a directory with a file a volume
//!
//! [[group]]
//! name = "tenants/alice"              # a path: groups nest
//! min = "10MB/s"                      # guaranteed; admitted only if the drive can keep it
//! alone = "23MB/s"                    # optional: what the group reaches with the drive to itself
//! weight = 300                        # 1 to 1000: share of what is left
//! # Or one rate, for reads and writes each; a flush is one write. Total: both together. At once: what the rates give in
//! # 100 ms, or a burst.
//! max = { read = "50MB/s", write = "50MB/s", total = "80MB/s", total_iops = 5000, burst = "64MB", burst_requests = 500 }
//! low = { read = "10MB/s", latency = "100us", idle = "1ms" } # for throttle-low, instead of min
//! latency = "2ms"
//! class = "best-effort"               # realtime, best-effort, idle
//!
//! [[volume]]
//! name = "alice-root"
//! group = "tenants/alice"
//! size = "10GiB"
//! read_only = false
//! uuid = "7c1d..."                    # optional: which volume of the pool it is, whatever its name
//! path = "/dev/disk/by-id/wwn-0x1"    # only with a directory: a file or device of its own
//! vhost = "/run/iofair/alice.sock"    # optional: a vhost-user-blk socket, a disk for a virtual machine
//! ublk = 0                            # optional: a block device /dev/ublkb0 of this host; true: any number
//! ```
//!
//! Paths are relative to the file's directory.
//!
//! `raw` is the file as serde sees it, `check` turns it into what is below, `enforced` refuses keys of groups that the stack
//! does not enforce, `access` says who may connect to a
//! Unix socket, `listen` who may open what, [`admission`] says which minimums can be kept and turns them into weights
//! where a stack has only weights, and [`edit`] changes a file as a person would. [`host`]
//! is the file of `iofair host`, for groups of the kernel.

mod access;
pub mod admission;
mod bare;
mod check;
mod control;
pub mod edit;
pub mod effects;
mod enforced;
pub mod faults;
mod guests;
pub mod host;
mod inside;
mod listen;
mod paths;
mod raw;
mod reaches;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};

use iofair_core::contract::Contract;
use iofair_core::controller::Stack;
use iofair_core::policy::Table;
use iofair_core::time::Nanos;
use iofair_core::unit::BinarySize;
use uuid::Uuid;

use crate::{ConfigError, Source};

pub use access::Access;
pub use check::{check_alone, check_burst};
pub use control::{Admin, Control, ControlTls, Detail, Metrics, Who};
pub use enforced::Key;
pub use guests::GuestMemory;
pub use listen::{Entry, Limits, Listen, Required, Tls, is_reserved, user};
// Experiments spell classes and ceilings the same way.
pub use raw::{ClassName, Low, Max};
pub use reaches::Reaches;

/// A contract file that passed every check which needs no drive.
#[derive(Clone, Debug)]
pub struct Contracts {
    /// The drive that is shared.
    pub drive: Drive,
    /// Where clients connect.
    pub listen: Listen,
    /// Where the running server is controlled.
    pub control: Control,
    /// Where metrics and health are read.
    pub metrics: Metrics,
    /// Who may connect to the disks of virtual machines.
    pub vhost: Access,
    /// How much memory these machines may share.
    pub guests: GuestMemory,
    /// Directories in which callers of the control API may have their sockets made.
    pub vhost_paths: Vec<PathBuf>,
    /// The directory that is mounted with a file a volume, if there is one.
    pub mount: Option<PathBuf>,
    /// Groups in the order of the file.
    pub groups: Vec<Group>,
    /// Volumes in the order of the file; they lie on the drive one after the other.
    pub volumes: Vec<Volume>,
    source: Source,
}

/// The drive that is shared.
#[derive(Clone, Debug)]
pub struct Drive {
    /// What holds the data.
    pub back: Back,
    /// May a file that is not there be made? Only one that was written as `file:PATH`, without the UUID that it must
    /// have.
    pub may_create: bool,
    /// The UUID that the pool on a device or file must have.
    pub pool: Option<Uuid>,
    /// The policies with their parameters.
    pub stack: Stack,
    /// What admission counts on, bytes a second; `None`: what the back end knows of itself.
    pub worst_case: Option<u64>,
    /// What is written of what it reaches.
    pub reaches: Reaches,
    /// How long a command may take.
    pub timeout: Nanos,
    /// How long the end may take.
    pub drain: Nanos,
    /// Does the back end fail on purpose?
    pub faulty: bool,
    /// How it does.
    pub faults: faults::Faults,
    /// Directories below which volumes with a path of their own lie.
    pub paths: Vec<PathBuf>,
    back_span: Range<usize>,
}

/// What holds the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Back {
    /// A drive model, by the name of its profile, paced in real time.
    Emulated(String),
    /// A file or a block device.
    File(PathBuf),
    /// Memory of so many bytes.
    Memory(u64),
    /// A directory with a sparse file a volume.
    Directory(PathBuf),
}

/// One group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its path.
    pub name: String,
    /// What it was promised, with the weight as written.
    pub contract: Contract,
    /// Who may open the volumes of this group and below.
    pub clients: Vec<String>,
    /// NBD connections at once to the volumes of this group and below, if that is limited.
    pub connections: Option<u32>,
    span: Range<usize>,
    min_span: Option<Range<usize>>,
    min_iops_span: Option<Range<usize>>,
    latency_span: Option<Range<usize>>,
}

/// One volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Name of the export.
    pub name: String,
    /// Path of its group.
    pub group: String,
    /// Size in bytes, whole sectors.
    pub size_bytes: u64,
    /// Are writes refused?
    pub read_only: bool,
    /// Which volume of the pool it is, whatever its name; `None`: the one with its name.
    pub uuid: Option<Uuid>,
    /// The file or block device that it has to itself; `None`: a place in what the drive's `back` names.
    pub path: Option<PathBuf>,
    /// Who may open it.
    pub entry: Entry,
    /// Path of its vhost-user-blk socket.
    pub vhost: Option<PathBuf>,
    /// The block device of this host that it is.
    pub ublk: Option<Ublk>,
    span: Range<usize>,
}

/// A block device of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ublk {
    /// The N of `/dev/ublkbN`; `None`: any.
    pub number: Option<u32>,
    span: Range<usize>,
}

impl Contracts {
    /// Reads and checks a contract file.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        Self::open_with(&iofair_policies::TABLE, path)
    }
    /// The same with other policies.
    pub fn open_with(policies: &'static Table, path: &Path) -> Result<Self, ConfigError> {
        Self::strict(Source::open(path)?, policies)
    }
    /// Reads and checks contracts that are already in memory. `path` names them in error messages, and paths in them are
    /// relative to its directory.
    pub fn parse(path: &str, text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(&iofair_policies::TABLE, path, text)
    }
    /// The same with other policies.
    pub fn parse_with(
        policies: &'static Table,
        path: &str,
        text: &str,
    ) -> Result<Self, ConfigError> {
        Self::strict(Source::new(path, text), policies)
    }
    /// Contracts that say nothing which their stack does not enforce.
    fn strict(source: Source, policies: &'static Table) -> Result<Self, ConfigError> {
        let (contracts, unenforced) = check::contracts(source, policies)?;
        match enforced::error(&contracts, &unenforced) {
            Some(error) => Err(error),
            None => Ok(contracts),
        }
    }
    /// The text that they were read from.
    pub fn text(&self) -> &str {
        self.source.text()
    }
    /// The file's name as it was given.
    pub fn path(&self) -> &str {
        self.source.path()
    }
    /// An error about the drive's `back`, for the code that opens it.
    pub fn back_error(&self, message: impl Into<String>) -> ConfigError {
        self.source.error(self.drive.back_span.clone(), message)
    }
    /// An error about a volume's `path`, for the code that opens it.
    pub fn path_error(&self, volume: &Volume, message: impl Into<String>) -> ConfigError {
        let error = self.source.error(volume.span.clone(), message);
        let listed = self.drive.paths.iter().map(|path| path.display().to_string());
        error.allowed(format!("a path below {}", listed.collect::<Vec<_>>().join(", ")))
    }
    /// An error about a volume's `ublk`, for the code that makes block devices.
    pub fn ublk_error(&self, volume: &Volume, message: impl Into<String>) -> ConfigError {
        let span = volume.ublk.as_ref().map_or(&volume.span, |ublk| &ublk.span);
        self.source.error(span.clone(), message)
    }
    /// Do the volumes fit on a drive of this size?
    pub fn check_capacity(&self, capacity_bytes: u64) -> Result<(), ConfigError> {
        let mut used: u64 = 0;
        for volume in &self.volumes {
            let end = used.saturating_add(volume.size_bytes);
            if end > capacity_bytes {
                let [needs, taken, left, capacity] =
                    [volume.size_bytes, used, capacity_bytes - used, capacity_bytes]
                        .map(BinarySize);
                let others = match used {
                    0 => String::new(),
                    _ => format!(", and other volumes take {taken} of it"),
                };
                let name = &volume.name;
                let message = format!(
                    "volume \"{name}\" needs {needs}, but the drive has {capacity}{others}"
                );
                let left = format!("at most {}B ({left})", left.0);
                return Err(self.source.error(volume.span.clone(), message).allowed(left));
            }
            used = end;
        }
        Ok(())
    }
}
