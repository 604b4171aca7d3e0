//! File systems on volumes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use tonic::Status;

use super::command::{output, run};
use super::mounts::Mounted;

/// Exit status of blkid if it finds nothing on a device.
const NOTHING: i32 = 2;

/// What is on a device, as blkid finds it by the data alone: the type of its file system or of its partition table, or `None`
/// for nothing.
async fn found(device: &Path) -> Result<Option<String>, Status> {
    // blkid has the same exit status for a device that it cannot read.
    let read = File::open(device).and_then(|mut opened| opened.read_exact(&mut [0; 4096]));
    read.map_err(|error| Status::internal(format!("{}: {error}", device.display())))?;
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "value", "--"].map(AsRef::as_ref);
    let arguments = arguments.into_iter().chain([device.as_os_str()]);
    let done = output("blkid", &arguments.collect::<Vec<_>>()).await?;
    match done.code {
        Some(0) => Ok(Some(done.stdout.replace('\n', ", "))),
        Some(NOTHING) => Ok(None),
        _ => {
            let message =
                format!("blkid cannot say what is on {}: {}", device.display(), done.stderr);
            Err(Status::internal(message))
        }
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
