//! What contracts meet on this machine.

use iofair_config::ConfigError;
use iofair_config::contracts::host::HostContracts;

use crate::device::{self, Device};
use crate::groups::{self, Place};
use crate::{Files, Hierarchy, HostError};

/// First kernel whose bfq has weights for each device.
const DEVICE_WEIGHTS: (u32, u32) = (5, 4);

/// The machine, as far as contracts need it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What controls I/O.
    pub hierarchy: Hierarchy,
    /// The device of `back`.
    pub device: Device,
    /// Where the groups are, in the order of the file.
    pub places: Vec<Place>,
    /// Whether systemd manages the machine.
    pub systemd: bool,
    /// Whether udev sets up devices.
    pub udev: bool,
    /// Whether bfq has weights for each device.
    pub device_weights: bool,
    /// Schedulers that can be loaded as modules.
    pub modules: Vec<String>,
}

impl Facts {
    /// Looks at the machine.
    ///
    /// # Errors
    ///
    /// No hierarchy controls I/O; the device or a group does not exist.
    pub fn gather(files: &dyn Files, contracts: &HostContracts) -> Result<Self, HostError> {
        let hierarchy = Hierarchy::find(files)?;
        let device = device::resolve(files, &contracts.back);
        let device = device.map_err(|why| {
            let allowed = "a block device of this machine, or a file or directory on one";
            HostError::Config(contracts.back_error(why).allowed(allowed))
        })?;
        let systemd = files.is_directory("/run/systemd/system");
        let mut places: Vec<Place> = Vec::new();
        for group in &contracts.groups {
            let found = groups::find(files, &hierarchy, &group.name, systemd);
            let place = found.map_err(|unknown| {
                let known = unknown.known.iter().map(String::as_str);
                let allowed = "a systemd unit, machine:NAME, container:ID, or the path of a cgroup that exists";
                let error: ConfigError = contracts.group_error(group, unknown.message);
                error.allowed(allowed).near(&group.name, known)
            })?;
            if let Some(twin) = places.iter().position(|known| known.path == place.path) {
                let other = &contracts.groups[twin].name;
                let message = format!("\"{}\" is the same group as \"{other}\"", group.name);
                let error = contracts.group_error(group, message);
                return Err(error.allowed("one [[group]] for a group").into());
            }
            places.push(place);
        }
        let release = files.read("/proc/sys/kernel/osrelease").unwrap_or_default();
        let modules = files.list(&format!("/lib/modules/{}/kernel/block", release.trim()));
        let names =
            [("bfq.ko", "bfq"), ("kyber-iosched.ko", "kyber"), ("mq-deadline.ko", "mq-deadline")];
        let has = |file: &str| modules.iter().any(|module| module.starts_with(file));
        let modules = names.iter().filter(|(file, _)| has(file));
        let modules = modules.map(|(_, name)| (*name).to_owned()).collect();
        Ok(Self {
            hierarchy,
            device,
            places,
            systemd,
            udev: files.is_directory("/run/udev"),
            device_weights: version(&release) >= DEVICE_WEIGHTS,
            modules,
        })
    }
    /// Whether every queue of the device can have this scheduler.
    pub(crate) fn has_scheduler(&self, name: &str) -> bool {
        let is_name = |known: &String| known == name;
        self.modules.iter().any(is_name)
            || self.device.queues.iter().all(|queue| queue.schedulers.iter().any(is_name))
    }
}

/// `6.18.5-amd64` as (6, 18).
fn version(release: &str) -> (u32, u32) {
    let parts = release.split(|letter: char| !letter.is_ascii_digit());
    let mut numbers = parts.map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
