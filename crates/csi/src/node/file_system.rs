//! File systems on volumes.

use std::path::Path;

use tonic::Status;

use super::command::{output, run};
use super::mounts::Mounted;

/// Exit status of blkid if it finds nothing on a device.
const NOTHING: i32 = 2;

/// What is on a device, as blkid finds it by the data alone: its type, or `None` for nothing.
async fn found(device: &Path) -> Result<Option<String>, Status> {
    let arguments = ["-p", "-u", "filesystem,raid,crypto,other", "-s", "TYPE", "-o", "value", "--"];
    let arguments = arguments.map(AsRef::as_ref).into_iter().chain([device.as_os_str()]);
    let done = output("blkid", &arguments.collect::<Vec<_>>()).await?;
    match done.code {
        Some(0) => Ok(Some(done.stdout)),
        Some(NOTHING) => Ok(None),
        _ => Err(Status::internal(format!(
            "blkid cannot say what is on {}: {}",
            device.display(),
            done.stderr
        ))),
    }
}

/// Creates a file system on a device on which blkid finds nothing. A device with another one is left alone.
///
/// # Errors
/// `FAILED_PRECONDITION`: the device has something else on it.
pub(super) async fn create_if_empty(device: &Path, kind: &str) -> Result<(), Status> {
    match found(device).await? {
        Some(known) if known == kind => Ok(()),
        Some(known) => {
            let message = format!(
                "{} has {known} on it, and {kind} was asked for; its data is left alone",
                device.display()
            );
            Err(Status::failed_precondition(message))
        }
        None => {
            // A new volume reads as zeroes, so nothing needs to be discarded. Tables are written at once: background work of
            // the kernel would use up the volume's contract later.
            let options: &[&str] = match kind {
                "ext4" => &["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
                _ => &["-q", "-K"],
            };
            let arguments = options.iter().map(AsRef::as_ref).chain([device.as_os_str()]);
            run(&format!("mkfs.{kind}"), &arguments.collect::<Vec<_>>()).await.map(drop)
        }
    }
}

/// Grows a mounted file system to the size of its device.
pub(super) async fn grow(device: &Path, mounted: &Mounted) -> Result<(), Status> {
    match mounted.kind.as_str() {
        "xfs" => run("xfs_growfs", &[mounted.target.as_os_str()]).await.map(drop),
        _ => run("resize2fs", &[device.as_os_str()]).await.map(drop),
    }
}
