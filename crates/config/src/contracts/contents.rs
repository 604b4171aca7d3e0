//! What a contract file says, after the checks of `check`.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use iofair_core::contract::Contract;
use iofair_core::controller::Stack;
use iofair_core::time::Nanos;
use iofair_core::unit::BinarySize;
use uuid::Uuid;

use super::access::{Access, HOST_GROUPS};
use super::control::{ADMINS, Admin, Control, Metrics};
use super::faults::Faults;
use super::guests::GuestMemory;
use super::keys::Keys;
use super::listen::{ANY_CLIENT, Entry, Listen};
use super::reaches::Reaches;
use crate::name::ancestors;
use crate::{ConfigError, Source};

/// Bytes that volumes have together at most, far beyond every drive: sums of their places, of which removed volumes keep some, fit
/// into 64 bits.
pub(super) const DRIVE_BYTES_MAX: u64 = 1 << 62;

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
    pub(super) source: Source,
}

/// The drive that is shared.
#[derive(Clone, Debug)]
pub struct Drive {
    /// What holds the data.
    pub back: Back,
    /// Whether a missing file may be created: only one that was written as `file:PATH`, without the UUID that it must
    /// have.
    pub may_create: bool,
    /// The UUID that the pool on a device or file must have.
    pub pool: Option<Uuid>,
    /// Whether the drive is rotational; `None`: the server finds out.
    pub rotational: Option<bool>,
    /// The policies with their parameters.
    pub stack: Stack,
    /// The rate that admission counts on, bytes a second; `None`: the one that the back end knows.
    pub worst_case: Option<u64>,
    /// The rates and latencies that the file states for the drive.
    pub reaches: Reaches,
    /// How long a command may take.
    pub timeout: Nanos,
    /// How long the server may take to end.
    pub drain: Nanos,
    /// Whether the back end fails on purpose.
    pub faulty: bool,
    /// Which requests it fails.
    pub faults: Faults,
    /// Directories below which volumes with a path of their own lie.
    pub paths: Vec<PathBuf>,
    pub(super) back_span: Range<usize>,
}

/// What holds the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Back {
    /// A drive model, paced in real time.
    Emulated {
        /// The name of its profile, perhaps with a variant.
        profile: String,
        /// The file with its data, or else memory.
        file: Option<PathBuf>,
    },
    /// A file or a block device.
    File(PathBuf),
    /// Memory of this many bytes.
    Memory(u64),
    /// A directory with a sparse file a volume.
    Directory(PathBuf),
}

impl Back {
    /// The kind, as the contract file names it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Emulated { .. } => "emulated",
            Self::File(_) => "file",
            Self::Memory(_) => "memory",
            Self::Directory(_) => "directory",
        }
    }
    /// The profile of an emulated drive.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::Emulated { profile, .. } => Some(profile),
            _ => None,
        }
    }
    /// Where the data is, if it outlives the server.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::Directory(path) => Some(path),
            Self::Emulated { file, .. } => file.as_deref(),
            Self::Memory(_) => None,
        }
    }
    /// The directory with a file for each volume.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) => Some(path),
            _ => None,
        }
    }
}

/// One group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its path.
    pub name: String,
    /// Its contract, with the weight as written.
    pub contract: Contract,
    /// Who may open the volumes of this group and below.
    pub clients: Vec<String>,
    /// NBD connections at once to the volumes of this group and below, if that is limited.
    pub connections: Option<u32>,
    pub(super) span: Range<usize>,
    pub(super) keys: Keys,
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
    /// Whether writes are refused.
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
    pub(super) span: Range<usize>,
}

/// A block device of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ublk {
    /// The N of `/dev/ublkbN`; `None`: any.
    pub number: Option<u32>,
    pub(super) span: Range<usize>,
}

impl Contracts {
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
    /// Whether the volumes fit on a drive of this size.
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
                let has = if capacity_bytes == DRIVE_BYTES_MAX {
                    "a drive has at most"
                } else {
                    "the drive has"
                };
                let message =
                    format!("volume \"{name}\" needs {needs}, but {has} {capacity}{others}");
                let left = format!("at most {}B ({left})", left.0);
                return Err(self.source.error(volume.span.clone(), message).allowed(left));
            }
            used = end;
        }
        Ok(())
    }
    /// An error about a socket's group, for the code that knows the groups of this host.
    pub fn group_error(&self, access: &Access, message: impl Into<String>) -> ConfigError {
        let error = self.source.error(access.span.clone(), message);
        error.allowed(HOST_GROUPS)
    }
    /// An error about a user in `admins`, for the code that knows the users of this host.
    pub fn admin_error(&self, admin: &Admin, message: impl Into<String>) -> ConfigError {
        self.source.error(admin.span.clone(), message).allowed(ADMINS)
    }
    /// Gives every volume the limits of its groups, and the names that open it.
    pub(super) fn set_entries(&mut self) {
        let Self { groups, volumes, .. } = self;
        let limited =
            groups.iter().filter_map(|group| Some((group.name.as_str(), group.connections?)));
        let limits: HashMap<&str, u32> = limited.collect();
        for volume in volumes.iter_mut().filter(|_| !limits.is_empty()) {
            let path = ancestors(&volume.group).chain([volume.group.as_str()]);
            let found = path.filter_map(|group| Some((group.to_string(), *limits.get(group)?)));
            volume.entry.groups = found.collect();
        }
        if groups.iter().all(|group| group.clients.is_empty()) {
            return;
        }
        let clients: HashMap<&str, &[String]> =
            groups.iter().map(|group| (group.name.as_str(), group.clients.as_slice())).collect();
        for volume in volumes {
            volume.entry.names = client_names(&volume.group, |group| clients.get(group).copied());
        }
    }
}

/// Names of clients that a group and those above it admit; `None`: all that may connect.
pub fn client_names<'a>(
    group: &'a str,
    clients: impl Fn(&'a str) -> Option<&'a [String]>,
) -> Option<Vec<String>> {
    let path = ancestors(group).chain([group]);
    let mut names: Vec<String> = path.filter_map(clients).flatten().cloned().collect();
    names.sort_unstable();
    names.dedup();
    let everybody = names.iter().any(|name| name == ANY_CLIENT);
    (!everybody).then_some(names)
}
