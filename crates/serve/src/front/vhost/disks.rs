//! The volumes that are virtual machine disks: a socket for each, created and removed with the contracts.

use std::collections::HashSet;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use iofair_config::contracts::{Contracts, GuestMemory, Volume};

use crate::error::ServeError;
use crate::front::bind::bind_unix;
use crate::front::life::{FrontEnd, Reload};
use crate::front::vhost::allowance::Allowance;
use crate::front::vhost::command::DeviceHandle;
use crate::front::vhost::control::{Control, Hub};
use crate::front::vhost::device::Device;
use crate::reactor::handle::ReactorHandle;
use crate::socket::{Allowed, SocketFile, SocketPlace};
use crate::trial::Mode;
use crate::wake;

/// A socket that is there but that nobody serves yet; goes with its owner.
#[derive(Debug)]
struct Bound {
    volume: String,
    path: PathBuf,
    listener: UnixListener,
    /// None if it is only tried.
    file: Option<SocketFile>,
}

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

/// The sockets.
#[derive(Debug)]
pub(crate) struct Disks {
    disks: Vec<Disk>,
    fresh: Vec<Bound>,
    /// Of the memory that machines may share.
    allowance: Arc<Allowance>,
    /// The thread that waits for all of them, once there is one.
    hub: Option<Hub>,
}

impl Disks {
    /// None yet, of machines that may share this much memory.
    pub(crate) fn new(limits: GuestMemory) -> Self {
        Self { disks: Vec::new(), fresh: Vec::new(), allowance: Allowance::new(limits), hub: None }
    }
}

impl FrontEnd for Disks {
    fn validate(&self, reload: &Reload<'_>, _: bool) -> Result<(), ServeError> {
        if reload.before.vhost != reload.after.vhost {
            return Err(ServeError::Fixed("who may connect to virtual machines' disks".into()));
        }
        Allowed::new(reload.after, &reload.after.vhost).map(drop)
    }
    fn prepare(&mut self, contracts: &Contracts, mode: &Mode) -> Result<(), ServeError> {
        let allowed = Allowed::new(contracts, &contracts.vhost)?;
        let served: HashSet<(&str, &Path)> = self.disks.iter().map(Disk::identity).collect();
        for volume in &contracts.volumes {
            let Some(path) = &volume.vhost else { continue };
            if served.contains(&(volume.name.as_str(), path.as_path())) {
                continue;
            }
            let (socket, file) = bind_unix(path, allowed, mode)?;
            let (volume, path) = (volume.name.clone(), path.clone());
            self.fresh.push(Bound { volume, path, listener: socket.into(), file });
        }
        Ok(())
    }
    fn undo(&mut self) {
        self.fresh.clear();
    }
    fn check(&self, _: &Contracts, _: &Mode) -> Result<(), ServeError> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        Hub::start().map(drop).map_err(ServeError::system("a thread"))
    }
    fn start(&mut self, _: &Contracts, line: &ReactorHandle) -> Result<(), ServeError> {
        if self.hub.is_none() && !self.fresh.is_empty() {
            self.hub = Some(Hub::start().map_err(ServeError::system("a thread"))?);
        }
        let Some(hub) = &self.hub else { return Ok(()) };
        for Bound { volume, path, listener, file } in std::mem::take(&mut self.fresh) {
            let (commands, inbox) = mpsc::channel();
            let watched = wake::new().map_err(ServeError::system("an eventfd"))?;
            let wake = watched.try_clone().map_err(ServeError::system("an eventfd"))?;
            let name = volume.clone();
            line.open(&volume, |export| {
                // Its clients attach.
                export.map(|_| (Box::new(Device::new(name, inbox, watched)) as _, None))
            })?;
            let allowance = self.allowance.clone();
            let device = DeviceHandle { volume: volume.clone(), commands, wake, allowance };
            let control = hub.open(listener, device);
            let control = control.map_err(ServeError::system(path.display().to_string()))?;
            self.disks.push(Disk { volume, path, file, control });
        }
        Ok(())
    }
    /// Sockets that no volume asks for any more let no further client come. The present ones stay as long as they like,
    /// unless their volume is deleted or goes to another group.
    fn reconcile(&mut self, reload: &Reload<'_>) {
        self.allowance.set_limits(reload.after.guests);
        let socket = |volume: &'_ Volume| Some((volume.name.clone(), volume.vhost.clone()?));
        let wanted: HashSet<(String, PathBuf)> =
            reload.after.volumes.iter().filter_map(socket).collect();
        let stays = |disk: &Disk| wanted.contains(&(disk.volume.clone(), disk.path.clone()));
        let (kept, gone) = std::mem::take(&mut self.disks).into_iter().partition(stays);
        self.disks = kept;
        for Disk { volume, file, mut control, .. } in gone {
            drop(file);
            let group = |contracts: &'_ Contracts| {
                let found = contracts.volumes.iter().find(|found| found.name == volume);
                found.map(|found| found.group.clone())
            };
            let is_given = group(reload.after).is_some_and(|new| group(reload.before) != Some(new));
            control.close(is_given || reload.removed.contains(&volume));
        }
    }
    fn sockets(&self) -> Vec<SocketPlace> {
        self.disks.iter().filter_map(|disk| Some(disk.file.as_ref()?.place().clone())).collect()
    }
    fn stop(&mut self, _: Option<&ReactorHandle>, _: Duration) {
        for disk in &mut self.disks {
            disk.file = None;
            disk.control.admit_nobody();
        }
    }
}
