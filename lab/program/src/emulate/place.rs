//! The device of an emulated drive: made, and removed in the order in which nothing waits for something that is gone.
//!
//! A killed `emulate` leaves a mount without a server and a loop device on a file that cannot be read. The next one
//! at the same place removes both, or names who uses them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use iofair_drive::profile::Profile;

use crate::loop_device::{self, command};
use iofair_cli::failure::Usage;
use iofair_cli::output::say;

/// The error number of a mount whose server has ended ("transport endpoint is not connected").
const NOT_CONNECTED: i32 = 107;

/// Kinds of devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Kind {
    /// ublk where the kernel has it, else loop.
    Auto,
    /// A loop device on the file.
    Loop,
    /// A block device of the kernel's ublk driver.
    Ublk,
    /// Only the file.
    File,
}

/// The device of an emulated drive.
#[derive(Debug)]
pub(super) struct Place {
    /// The block device, or the file.
    pub(super) device: PathBuf,
    is_loop: bool,
    directory: PathBuf,
}

/// Which kind it will be; an error names what is missing.
pub(super) fn check(kind: Kind) -> Result<Kind> {
    let ublk = Path::new("/dev/ublk-control").exists();
    let kind = match kind {
        Kind::Auto if ublk => Kind::Ublk,
        Kind::Auto => Kind::Loop,
        kind => kind,
    };
    if kind == Kind::Ublk && !ublk {
        bail!("there is no /dev/ublk-control, which --device ublk needs (modprobe ublk_drv)");
    }
    if !Path::new("/dev/fuse").exists() {
        bail!("there is no /dev/fuse, which an emulated drive needs (modprobe fuse)");
    }
    if kind == Kind::Loop {
        let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if !root {
            bail!("a loop device needs root; --device file needs only FUSE");
        }
        if !Path::new("/dev/loop-control").exists() {
            bail!("there is no /dev/loop-control, which a loop device needs (modprobe loop)");
        }
    }
    Ok(kind)
}

/// Removes what a killed `emulate` left at this directory; returns its absolute path.
pub(super) fn prepare(at: &Path) -> Result<PathBuf> {
    // Not `canonicalize`, which fails on a mount without a server.
    let at = std::path::absolute(at)?;
    let parent = at.parent().ok_or_else(|| Usage("--at cannot be the root directory".into()))?;
    let at = match (fs::canonicalize(parent), at.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => at,
    };
    let is_dead = match fs::metadata(&at) {
        Err(error) if error.raw_os_error() == Some(NOT_CONNECTED) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(|| at.display().to_string()),
        Ok(kind) if !kind.is_dir() => {
            let message =
                format!("{} is not a directory; --at names one, or nothing", at.display());
            return Err(Usage(message).into());
        }
        Ok(_) if loop_device::below(&at).is_empty() => {
            let used = fs::read_dir(&at)?.next().is_some();
            if used {
                let message =
                    format!("{} is not empty; --at names an empty directory", at.display());
                return Err(Usage(message).into());
            }
            false
        }
        Ok(_) => fs::read_dir(&at)?.next().is_none(),
    };
    let left = loop_device::below(&at);
    if !is_dead && !left.is_empty() {
        bail!("another emulated drive is at {} ({})", at.display(), names(&left));
    }
    for device in left {
        release(&device, false)?;
        loop_device::detach(&device)?;
        say(format_args!(
            "removed {}, which an emulated drive that was killed has left",
            device.display()
        ));
    }
    let left = loop_device::below(&at);
    if !left.is_empty() {
        bail!(
            "{} of an emulated drive that was killed is still in use; end the programs that have it open",
            names(&left)
        );
    }
    Ok(at)
}

fn names(devices: &[PathBuf]) -> String {
    devices.iter().map(|device| device.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Unmounts the file systems on a device.
fn release(device: &Path, by_force: bool) -> Result<()> {
    for mount in loop_device::mounts_of(device) {
        let arguments = if by_force { vec!["-l", &mount] } else { vec![&*mount] };
        command("umount", &arguments)
            .with_context(|| format!("{} is mounted at {mount} and in use", device.display()))?;
    }
    Ok(())
}

impl Place {
    /// Makes the device on the file in `directory`, where a server has mounted its volume.
    pub(super) fn new(
        directory: &Path,
        kind: Kind,
        ublk: Option<PathBuf>,
        profile: &Profile,
    ) -> Result<Self> {
        let file = directory.join("drive");
        let directory = directory.to_path_buf();
        loop_device::allow_background(&directory)?;
        match kind {
            Kind::File => Ok(Self { device: file, is_loop: false, directory }),
            Kind::Ublk => {
                let device = ublk.ok_or_else(|| anyhow!("the server made no block device"))?;
                Ok(Self { device, is_loop: false, directory })
            }
            Kind::Loop | Kind::Auto => {
                let place = Self { device: loop_device::attach(&file)?, is_loop: true, directory };
                let sys = loop_device::queue_of(&place.device)?;
                loop_device::resemble(&sys, &profile.build(1).facts())?;
                // A drive's own order, unless its user wants another one.
                loop_device::write(&sys.join("queue/scheduler"), "none")?;
                Ok(place)
            }
        }
    }
    /// Unmounts file systems on the device; by force, also those in use.
    pub(super) fn unmount_all(&self, by_force: bool) -> Result<()> {
        release(&self.device, by_force)
    }
    /// Removes the device; the directory, which the server still uses, remains.
    pub(super) fn remove(mut self) -> Result<PathBuf> {
        if std::mem::take(&mut self.is_loop) {
            loop_device::detach(&self.device)?;
        }
        Ok(std::mem::take(&mut self.directory))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_loop
            && let Err(error) = loop_device::detach(&self.device)
        {
            say(format_args!("could not be detached: {error:#}"));
        }
    }
}

/// Removes the directory if it is empty, as it was before.
pub(super) fn remove_directory(directory: PathBuf) {
    // Somebody else's files may be there by now; then it stays.
    let _ = fs::remove_dir(directory);
}
