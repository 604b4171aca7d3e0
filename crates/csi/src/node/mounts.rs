//! Mounts of this process's namespace.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tonic::Status;

use super::command::run;

/// A line of `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mounted {
    /// Device number of the file system: major, minor.
    pub(super) device: (u32, u32),
    /// Which part of the file system is mounted.
    root: String,
    pub(super) target: PathBuf,
    /// Type of the file system.
    pub(super) kind: String,
}

impl Mounted {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (major, minor) = words.nth(2)?.split_once(':')?;
        let (root, target) = (plain(words.next()?), plain(words.next()?).into());
        let kind = line.split_once(" - ")?.1.split(' ').next()?.to_string();
        Some(Self { device: (major.parse().ok()?, minor.parse().ok()?), root, target, kind })
    }
    /// Whether a file system is mounted here; otherwise a device's file.
    pub(super) fn is_file_system(&self) -> bool {
        self.kind != "devtmpfs" && self.kind != "tmpfs"
    }
}

/// Octal escapes of spaces and the like.
fn plain(word: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let [first, others @ ..] = rest {
        let octal = others.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All mounts, in the order in which they were made.
fn all() -> Result<Vec<Mounted>, Status> {
    let table = fs::read_to_string("/proc/self/mountinfo");
    let table =
        table.map_err(|error| Status::internal(format!("/proc/self/mountinfo: {error}")))?;
    Ok(table.lines().filter_map(Mounted::read).collect())
}

/// What is mounted at a path, last.
pub(super) fn at(path: &Path) -> Result<Option<Mounted>, Status> {
    // The kernel shows paths without links.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    Ok(all()?.into_iter().rev().find(|mounted| mounted.target == path))
}

/// Number of a block device: major, minor.
fn number(device: &Path) -> Result<(u32, u32), Status> {
    let failed = |message: String| Status::internal(format!("{}: {message}", device.display()));
    let known = fs::metadata(device).map_err(|error| failed(error.to_string()))?;
    if !known.file_type().is_block_device() {
        return Err(failed("it is not a block device".into()));
    }
    let number = known.st_rdev();
    let (major, minor) = ((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xf_ff00));
    Ok((u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0)))
}

/// Checks that what is mounted is this device: a repeated call succeeds.
///
/// # Errors
/// `ALREADY_EXISTS`: something else is mounted there.
pub(super) fn same(mounted: &Mounted, device: &Path, target: &Path) -> Result<(), Status> {
    if mounted.device == number(device)? {
        return Ok(());
    }
    Err(Status::already_exists(format!("another file system is mounted at {}", target.display())))
}

/// Checks that what is mounted is part of a staged file system.
///
/// # Errors
/// `ALREADY_EXISTS`: something else is mounted there.
pub(super) fn same_file_system(
    mounted: &Mounted,
    staged: &Mounted,
    target: &Path,
) -> Result<(), Status> {
    if (mounted.device, &mounted.root) == (staged.device, &staged.root) {
        return Ok(());
    }
    Err(Status::already_exists(format!("another file system is mounted at {}", target.display())))
}

/// Checks that a device, or a file system on it, is mounted at none but these places.
///
/// # Errors
/// `FAILED_PRECONDITION`: it is mounted elsewhere.
pub(super) fn nowhere_else(device: &Path, but: &[&Path]) -> Result<(), Status> {
    let number = number(device)?;
    let node =
        device.strip_prefix("/dev").map(|name| Path::new("/").join(name)).unwrap_or_default();
    let is_device = |other: &Mounted| !other.is_file_system() && Path::new(&other.root) == node;
    let canonical = |path: &&Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let but: Vec<PathBuf> = but.iter().map(canonical).collect();
    let other = all()?
        .into_iter()
        .find(|other| (other.device == number || is_device(other)) && !but.contains(&other.target));
    match other {
        Some(other) => {
            let message = format!(
                "the volume is in use at {}, and a single Pod may use it",
                other.target.display()
            );
            Err(Status::failed_precondition(message))
        }
        None => Ok(()),
    }
}

/// Mounts a device.
pub(super) async fn mount(
    device: &Path,
    target: &Path,
    kind: Option<&str>,
    options: &[String],
) -> Result<(), Status> {
    let mut arguments: Vec<String> = Vec::new();
    arguments.extend(kind.into_iter().flat_map(|kind| ["-t".to_string(), kind.to_string()]));
    if !options.is_empty() {
        arguments.extend(["-o".to_string(), options.join(",")]);
    }
    let places = [device, target].map(|place| place.display().to_string());
    arguments.extend(["--".to_string()].into_iter().chain(places));
    run("mount", &arguments).await.map(drop)
}

/// Mounts a directory or a device's file a second time.
pub(super) async fn bind(source: &Path, target: &Path, read_only: bool) -> Result<(), Status> {
    mount(source, target, None, &["bind".to_string()]).await?;
    if read_only {
        let options = ["remount", "bind", "ro"].map(str::to_string);
        if let Err(error) = mount(source, target, None, &options).await {
            // Never leave a writable mount where a read-only one was asked for.
            unmount(target).await?;
            return Err(error);
        }
    }
    Ok(())
}

/// Unmounts what is at a path.
pub(super) async fn unmount(target: &Path) -> Result<(), Status> {
    run("umount", &["--".as_ref(), target.as_os_str()]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines of the kernel's table are read, with escapes and optional fields.
    #[test]
    fn lines_of_the_kernel_are_read() {
        let line =
            r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mounted = Mounted::read(line).expect("the example of the manual");
        let wanted = ((98, 0), "/mnt1", Path::new("/mnt 2"), "ext3");
        assert_eq!(
            (
                mounted.device,
                mounted.root.as_str(),
                mounted.target.as_path(),
                mounted.kind.as_str()
            ),
            wanted
        );
        assert_eq!(Mounted::read("36 35 98:0 /"), None);
    }
}
