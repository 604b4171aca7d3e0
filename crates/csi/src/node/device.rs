//! How a volume becomes a block device: through ublk, the kernel's NBD client, or a loop device on the server's FUSE mount.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use serde_json::json;
use tonic::Status;

use super::command::run;
use super::nbd;
use crate::args::Devices;
use crate::server::{Server, Volume};

/// Directory of the kernel's block devices.
const BLOCK: &str = "/sys/block";

/// Whether a method works on this node.
fn works(devices: Devices) -> Result<()> {
    let exists = |path: &str| Path::new(path).exists();
    match devices {
        Devices::Ublk => ensure!(
            exists("/dev/ublk-control"),
            "there is no /dev/ublk-control (modprobe ublk_drv)"
        ),
        Devices::Nbd => ensure!(nbd::is_here(), "the kernel has no NBD client (modprobe nbd)"),
        Devices::Loop => {
            ensure!(exists("/dev/loop-control"), "there is no /dev/loop-control");
            ensure!(is_program("losetup"), "the program losetup is missing");
        }
    }
    Ok(())
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).any(|directory| directory.join(name).is_file())
}

/// The wanted method, or the first one that works.
///
/// # Errors
/// It does not work, or none does; says why.
pub(super) fn choose(wanted: Option<Devices>) -> Result<Devices> {
    if let Some(devices) = wanted {
        return works(devices).map(|()| devices);
    }
    let mut reasons = Vec::new();
    for devices in [Devices::Ublk, Devices::Nbd, Devices::Loop] {
        match works(devices) {
            Ok(()) => return Ok(devices),
            Err(error) => reasons.push(format!("{}: {error}", devices.word())),
        }
    }
    bail!("volumes cannot become block devices on this node: {}", reasons.join("; "))
}

fn status(server: &Server) -> impl Fn(crate::failure::Failure) -> Status + '_ {
    move |error| error.status(&server.node)
}

/// The file of a volume in the server's FUSE mount.
async fn file(server: &Server, volume: &Volume) -> Result<PathBuf, Status> {
    let known = server.status().await.map_err(status(server))?;
    let none = || {
        Status::failed_precondition(format!(
            "the server on node {} has no [fuse] mount, which loop devices need",
            server.node
        ))
    };
    let mount = known.mount.ok_or_else(none)?;
    // The kernel shows the files of loop devices without links.
    let mount = fs::canonicalize(&mount);
    let gone = |error| Status::failed_precondition(format!("the server's [fuse] mount: {error}"));
    Ok(mount.map_err(gone)?.join(&volume.name))
}

/// A block device of the kernel for which a file below its directory has this content.
fn device_with(prefix: &str, attribute: &str, content: &str) -> Option<PathBuf> {
    let mut devices: Vec<_> = fs::read_dir(BLOCK).ok()?.filter_map(Result::ok).collect();
    devices.sort_by_key(fs::DirEntry::file_name);
    devices.into_iter().find_map(|device| {
        let name = device.file_name().into_string().ok()?;
        let text = name
            .starts_with(prefix)
            .then(|| fs::read_to_string(device.path().join(attribute)).ok())??;
        (text.trim_end() == content).then(|| Path::new("/dev").join(name))
    })
}

/// Where the server listens for NBD clients.
async fn socket(server: &Server) -> Result<PathBuf, Status> {
    let known = server.status().await.map_err(status(server))?;
    let none = || Status::failed_precondition("the server has no Unix socket for NBD clients");
    known.listen_unix.map(PathBuf::from).ok_or_else(none)
}

/// Work that waits for the server or the kernel.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(io::Error::other).and_then(|result| result);
    done.map_err(|error| Status::internal(error.to_string()))
}

/// The block device of a volume, if it has one.
pub(super) async fn find(
    devices: Devices,
    server: &Server,
    volume: &Volume,
) -> Result<Option<PathBuf>, Status> {
    Ok(match devices {
        Devices::Ublk => volume.block_device.clone().map(PathBuf::from),
        Devices::Nbd => nbd::find(&volume.name),
        Devices::Loop => {
            let file = file(server, volume).await?;
            device_with("loop", "loop/backing_file", &file.display().to_string())
        }
    })
}

/// Creates the block device of a volume, unless it has one.
pub(super) async fn attach(
    devices: Devices,
    server: &Server,
    volume: &Volume,
) -> Result<PathBuf, Status> {
    if let Some(device) = find(devices, server, volume).await? {
        return Ok(device);
    }
    match devices {
        Devices::Ublk => {
            let keys = json!({ "ublk": true });
            server.change_volume(&volume.name, keys).await.map_err(status(server))?;
            let now = server.volume(&volume.name).await.map_err(status(server))?;
            let device = now.and_then(|volume| volume.block_device);
            device
                .map(PathBuf::from)
                .ok_or_else(|| Status::internal("the volume has no block device"))
        }
        Devices::Nbd => {
            let (socket, name) = (socket(server).await?, volume.name.clone());
            blocking(move || nbd::attach(&socket, &name)).await
        }
        Devices::Loop => {
            let file = file(server, volume).await?;
            let arguments = ["--find", "--show", "--direct-io=on", "--"].map(AsRef::as_ref);
            let arguments = arguments.into_iter().chain([file.as_os_str()]).collect::<Vec<_>>();
            run("losetup", &arguments).await.map(PathBuf::from)
        }
    }
}

/// Removes the block device of a volume, if it has one.
pub(super) async fn detach(
    devices: Devices,
    server: &Server,
    volume: &Volume,
) -> Result<(), Status> {
    let Some(device) = find(devices, server, volume).await? else { return Ok(()) };
    match devices {
        Devices::Ublk => {
            let keys = json!({ "ublk": null });
            server.change_volume(&volume.name, keys).await.map_err(status(server))
        }
        Devices::Nbd => {
            let name = volume.name.clone();
            blocking(move || nbd::detach(&name)).await
        }
        Devices::Loop => run("losetup", &["-d".as_ref(), device.as_os_str()]).await.map(drop),
    }
}

/// Lets a device have the size that its volume has now.
///
/// # Errors
/// `FAILED_PRECONDITION`: this kernel cannot change the size of a ublk device that is in use.
pub(super) async fn refresh(
    devices: Devices,
    server: &Server,
    volume: &Volume,
    device: &Path,
) -> Result<(), Status> {
    match devices {
        // The server tells the kernel.
        Devices::Ublk => {}
        Devices::Nbd => {
            let (socket, name) = (socket(server).await?, volume.name.clone());
            blocking(move || nbd::resize(&socket, &name)).await?;
        }
        Devices::Loop => run("losetup", &["-c".as_ref(), device.as_os_str()]).await.map(drop)?,
    }
    if size(device).is_some_and(|bytes| bytes < volume.size) {
        return Err(Status::failed_precondition(format!(
            "{} gets its new size when no Pod uses it: Linux 6.16 and newer changes it at once",
            device.display()
        )));
    }
    Ok(())
}

/// The size of a block device, as the kernel says.
fn size(device: &Path) -> Option<u64> {
    let sectors = Path::new(BLOCK).join(device.file_name()?).join("size");
    Some(fs::read_to_string(sectors).ok()?.trim().parse::<u64>().ok()? * 512)
}
