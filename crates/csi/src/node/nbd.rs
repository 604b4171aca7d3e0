//! Block devices of the kernel's NBD client, connected through its netlink interface.
//!
//! The kernel keeps a device whose server has gone, and holds its requests, until a connection to the next server replaces the
//! lost one ([`keep`]). A device bears the name of its volume, so that any process finds it again.

mod netlink;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use iofair_serve::client::dial;
use iofair_serve::log;

use self::netlink::Netlink;

/// For so long the kernel holds requests of a device whose server has gone: an upgrade or a restart.
const RECONNECT: Duration = Duration::from_secs(600);
/// Between two tries to connect to a server that has gone.
const PAUSE: Duration = Duration::from_millis(200);
/// What the identifier of a device begins with; the volume's name follows.
const PREFIX: &str = "iofair:";

/// Whether the kernel has an NBD client.
pub(super) fn is_here() -> bool {
    Path::new("/sys/module/nbd").exists()
}

/// The numbers and volumes of all devices of volumes.
fn devices() -> Vec<(u32, String)> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
    all.filter_map(|device| {
        let number = device.file_name().to_str()?.strip_prefix("nbd")?.parse().ok()?;
        let identifier = fs::read_to_string(device.path().join("backend")).ok()?;
        Some((number, identifier.trim_end().strip_prefix(PREFIX)?.to_string()))
    })
    .collect()
}

fn identifier(volume: &str) -> String {
    format!("{PREFIX}{volume}")
}

fn path(number: u32) -> PathBuf {
    format!("/dev/nbd{number}").into()
}

fn number_of(volume: &str) -> Option<u32> {
    devices().into_iter().find_map(|(number, name)| (name == volume).then_some(number))
}

/// The device of a volume, if it has one.
pub(super) fn find(volume: &str) -> Option<PathBuf> {
    number_of(volume).map(path)
}

/// Connects a device to a volume of the server at this socket.
///
/// # Errors
/// The server or the kernel refuses.
pub(super) fn attach(socket: &Path, volume: &str) -> io::Result<PathBuf> {
    let (stream, export) = dial(socket, volume)?;
    Netlink::open()?.connect(&stream, export, &identifier(volume), RECONNECT).map(path)
}

/// Disconnects the device of a volume, if it has one.
///
/// # Errors
/// The kernel refuses.
pub(super) fn detach(volume: &str) -> io::Result<()> {
    number_of(volume).map_or(Ok(()), |number| Netlink::open()?.disconnect(number))
}

/// Gives the device of a volume the size that the server says.
///
/// # Errors
/// The server or the kernel refuses.
pub(super) fn resize(socket: &Path, volume: &str) -> io::Result<()> {
    let (_, export) = dial(socket, volume)?;
    number_of(volume)
        .map_or(Ok(()), |number| Netlink::open()?.resize(number, &identifier(volume), export.size))
}

/// Connects devices again whose server has gone, in a thread. `socket` says where the server listens now, if it runs.
///
/// # Errors
/// The kernel does not tell of lost connections.
pub(super) fn keep(
    socket: impl Fn() -> io::Result<PathBuf> + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    let (netlink, told) = (Netlink::open()?, Netlink::of_lost_connections()?);
    // A connection may have been lost before the subscription, so all devices are checked.
    let mut lost: BTreeSet<u32> = devices().into_iter().map(|(number, _)| number).collect();
    let mut waits = BTreeSet::new();
    thread::Builder::new().name("nbd".into()).spawn(move || {
        loop {
            match told.lost((!lost.is_empty()).then_some(PAUSE)) {
                Ok(numbers) => lost.extend(numbers),
                // Messages may have been dropped, so any device may have lost its connection.
                Err(error) => {
                    log::line(&format!("lost connections of NBD devices: {error}"));
                    lost.extend(devices().into_iter().map(|(number, _)| number));
                }
            }
            let volumes = devices();
            let again = |number: u32, volume: &str| {
                let (stream, _) = dial(&socket()?, volume)?;
                netlink.reconnect(number, &identifier(volume), &stream)
            };
            lost.retain(|number| {
                let Some((_, volume)) = volumes.iter().find(|(known, _)| known == number) else {
                    return false;
                };
                let done = again(*number, volume);
                match &done {
                    Ok(()) => waits.remove(volume),
                    // Once for each device, not five times a second.
                    Err(error) => waits
                        .insert(volume.clone())
                        .then(|| {
                            log::line(&format!(
                                "volume {volume}: /dev/nbd{number} waits for its server: {error}"
                            ));
                        })
                        .is_some(),
                };
                done.is_err()
            });
        }
    })
}
