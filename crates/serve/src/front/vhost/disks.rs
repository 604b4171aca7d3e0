//! The volumes that are virtual machine disks: a socket for each, created and removed with the contracts.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use iofair_config::contracts::{GuestMemory, Volume};

use crate::error::ServeError;
use crate::front::vhost::allowance::Allowance;
use crate::front::vhost::command::DeviceHandle;
use crate::front::vhost::control::{Control, Hub};
use crate::front::vhost::device::Device;
use crate::reactor::endpoint::Endpoint;
use crate::reactor::handle::ReactorHandle;
use crate::socket::SocketFile;
use crate::wake;

/// A socket that is there but that nobody serves yet; goes with its owner.
struct Bound {
    volume: String,
    path: PathBuf,
    listener: UnixListener,
    /// None if it is only tried.
    file: Option<SocketFile>,
}

/// Sockets for volumes that had none.
pub(crate) struct Fresh(Vec<Bound>);

#[derive(Debug)]
struct Disk {
    volume: String,
    path: PathBuf,
    /// Gone once no client may come any more.
    file: Option<SocketFile>,
    control: Control,
}

impl Disk {
    fn identity(&self) -> (&str, &Path) {
        (&self.volume, &self.path)
    }
}

/// The sockets in service.
#[derive(Debug)]
pub(crate) struct Disks {
    disks: Vec<Disk>,
    /// Of the memory that machines may share.
    allowance: Arc<Allowance>,
    /// The thread that waits for all of them, once there is one.
    hub: Option<Hub>,
}

impl Disks {
    /// None yet, of machines that may share this much memory.
    pub(crate) fn new(limits: GuestMemory) -> Self {
        Self { disks: Vec::new(), allowance: Allowance::new(limits), hub: None }
    }
    /// Machines may share this much memory from now on.
    pub(crate) fn set_limits(&self, limits: GuestMemory) {
        self.allowance.set_limits(limits);
    }
    /// Makes the sockets that these volumes want and that are not there yet.
    pub(crate) fn prepare(
        &self,
        volumes: &[Volume],
        bind: impl Fn(&Path) -> Result<(OwnedFd, Option<SocketFile>), ServeError>,
    ) -> Result<Fresh, ServeError> {
        let served: HashSet<(&str, &Path)> = self.disks.iter().map(Disk::identity).collect();
        let mut fresh = Vec::new();
        for volume in volumes {
            let Some(path) = &volume.vhost else { continue };
            if served.contains(&(volume.name.as_str(), path.as_path())) {
                continue;
            }
            let (socket, file) = bind(path)?;
            let (volume, path) = (volume.name.clone(), path.clone());
            fresh.push(Bound { volume, path, listener: socket.into(), file });
        }
        Ok(Fresh(fresh))
    }
    /// Sockets that no volume wants any more let no further client come. The present ones stay as long as
    /// they like, unless their volume is closed.
    pub(crate) fn leave(&mut self, volumes: &[Volume], closed: &[String]) {
        let socket = |volume: &'_ Volume| Some((volume.name.clone(), volume.vhost.clone()?));
        let wanted: HashSet<(String, PathBuf)> = volumes.iter().filter_map(socket).collect();
        let stays = |disk: &Disk| wanted.contains(&(disk.volume.clone(), disk.path.clone()));
        let (kept, gone) = std::mem::take(&mut self.disks).into_iter().partition(stays);
        self.disks = kept;
        for Disk { volume, file, mut control, .. } in gone {
            drop(file);
            control.close(closed.contains(&volume));
        }
    }
    /// Lets no further client come; the present ones stay.
    pub(crate) fn admit_nobody(&mut self) {
        for disk in &mut self.disks {
            disk.file = None;
            disk.control.admit_nobody();
        }
    }
    /// Whether these sockets could be served.
    pub(crate) fn check(fresh: &Fresh) -> Result<(), ServeError> {
        if fresh.0.is_empty() {
            return Ok(());
        }
        Hub::start().map(drop).map_err(ServeError::system("a thread"))
    }
    /// Serves new sockets.
    pub(crate) fn serve(&mut self, fresh: Fresh, line: &ReactorHandle) -> Result<(), ServeError> {
        if self.hub.is_none() && !fresh.0.is_empty() {
            self.hub = Some(Hub::start().map_err(ServeError::system("a thread"))?);
        }
        let Some(hub) = &self.hub else { return Ok(()) };
        for Bound { volume, path, listener, file } in fresh.0 {
            let (commands, inbox) = mpsc::channel();
            let watched = wake::new().map_err(ServeError::system("an eventfd"))?;
            let wake = watched.try_clone().map_err(ServeError::system("an eventfd"))?;
            let name = volume.clone();
            line.open(&volume, |export| {
                export.map(|_| Box::new(Device::new(name, inbox, watched)) as Box<dyn Endpoint>)
            })?;
            let allowance = self.allowance.clone();
            let device = DeviceHandle { volume: volume.clone(), commands, wake, allowance };
            let control = hub.open(listener, device);
            let control = control.map_err(ServeError::system(path.display().to_string()))?;
            self.disks.push(Disk { volume, path, file, control });
        }
        Ok(())
    }
}
