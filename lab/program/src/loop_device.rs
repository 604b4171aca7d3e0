//! Loop devices on files, and what the kernel keeps about them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use iofair_core::policy::DriveFacts;

/// Requests of a FUSE file that the kernel sends at once; by default 12, less than a drive takes.
const FUSE_BACKGROUND: &str = "512";

/// Runs a program and returns what it printed; what it says is wrong is the error.
pub(crate) fn command(name: &str, arguments: &[&str]) -> Result<String> {
    let told = Command::new(name).args(arguments).output();
    let told = told.with_context(|| format!("{name} cannot be started"))?;
    if !told.status.success() {
        bail!("{name} {}: {}", arguments.join(" "), String::from_utf8_lossy(&told.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// Writes a value to a file of the kernel's.
pub(crate) fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).with_context(|| format!("cannot write `{value}` to {}", file.display()))
}

/// Makes a loop device with direct I/O on a file.
pub(crate) fn attach(file: &Path) -> Result<PathBuf> {
    let arguments = ["-f", "--show", "--direct-io=on", &file.to_string_lossy()];
    Ok(command("losetup", &arguments)?.into())
}

/// Removes a loop device. If a program has it open, the kernel does so when that closes it.
pub(crate) fn detach(device: &Path) -> Result<()> {
    command("losetup", &["-d", &device.to_string_lossy()]).map(drop)
}

/// The directory of a whole block device in sysfs.
pub(crate) fn queue_of(device: &Path) -> Result<PathBuf> {
    let name = device.file_name().ok_or_else(|| anyhow!("a device without a name"))?;
    let sys = Path::new("/sys/block").join(name);
    if !sys.exists() {
        bail!("{} has no queue of its own: name the whole device", device.display());
    }
    Ok(sys)
}

/// Gives a loop device the properties of the drive below.
pub(crate) fn resemble(sys: &Path, facts: &DriveFacts) -> Result<()> {
    write(&sys.join("queue/rotational"), if facts.rotational { "1" } else { "0" })?;
    let longest = sys.join("queue/max_hw_sectors_kb");
    let longest: u64 = fs::read_to_string(longest)?.trim().parse()?;
    let kib = (facts.max_request.bytes() >> 10).min(longest).to_string();
    write(&sys.join("queue/max_sectors_kb"), &kib)
}

/// Lets the kernel send many requests at once to a FUSE file system.
pub(crate) fn allow_background(mount: &Path) -> Result<()> {
    let minor = fs::metadata(mount)?.dev() & 0xff;
    let background = format!("/sys/fs/fuse/connections/{minor}/max_background");
    match Path::new(&background).exists() {
        true => write(background.as_ref(), FUSE_BACKGROUND),
        false => Ok(()),
    }
}

/// The loop devices on files below a directory, whether or not these files are still there.
pub(crate) fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        if Path::new(backing.trim_end()).starts_with(directory) {
            found.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    found.sort_unstable();
    found
}

/// Where a block device, or a partition of it, is mounted; the most recent mount first.
pub(crate) fn mounts_of(device: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let device = device.to_string_lossy();
    let mounted = |line: &str| {
        let mut words = line.split(' ');
        let (from, at) = (words.next()?, words.next()?);
        let rest = from.strip_prefix(&*device)?;
        let partition = rest.strip_prefix('p').unwrap_or("-");
        let ours = rest.is_empty() || partition.bytes().all(|digit| digit.is_ascii_digit());
        // The kernel writes a space in a path as \040.
        ours.then(|| at.replace("\\040", " "))
    };
    mounts.lines().rev().filter_map(mounted).collect()
}
