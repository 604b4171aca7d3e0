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
//! low = { read = "10MB/s", latency = "100us", idle = "1ms" } # throttle-low of the laboratory, instead of min
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
//! `raw` is the file as serde sees it, [`keys`] reads the keys of a contract, `check` turns it into `contents`, `enforced` refuses keys of groups that the stack
//! does not enforce, `access` says who may connect to a
//! Unix socket, `listen` who may open what, [`admission`] says which minimums can be kept and turns them into weights
//! where a stack has only weights, and [`edit`] changes a file as a person would. [`host`]
//! is the file of `iofair host`, for groups of the kernel.

mod access;
pub mod admission;
mod bare;
mod check;
mod contents;
mod control;
pub mod edit;
pub mod effects;
mod enforced;
pub mod faults;
mod guests;
pub mod host;
mod inside;
pub mod keys;
mod listen;
mod paths;
mod raw;
mod reaches;
mod table;

#[cfg(test)]
mod tests;

use std::path::Path;

use iofair_core::policy::Table;

use crate::{ConfigError, Source};

pub use access::Access;
pub use check::{Refused, check_alone, check_burst};
pub use contents::{Back, Contracts, Drive, Group, Ublk, Volume, client_names};
pub use control::{Admin, Control, ControlTls, Detail, Metrics, Who};
pub use guests::GuestMemory;
pub use listen::{Entry, Limits, Listen, Required, Tls, is_reserved, user};
pub use reaches::Reaches;

impl Contracts {
    /// Reads and checks a contract file.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        Self::open_with(&iofair_policies::TABLE, path)
    }
    /// The same with other policies.
    pub fn open_with(policies: &'static Table, path: &Path) -> Result<Self, ConfigError> {
        Self::strict(Source::open_regular(path)?, policies)
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
}
