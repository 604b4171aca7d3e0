//! The volumes that are block devices of this host: the list of devices, and their creation and
//! removal.
//!
//! A device is removed with its volume, with the volume's `ublk` key, and when the server is told to end. Cached data
//! of its users is written first; then the device is removed, even if it is open. If the server is killed, the
//! devices stay, their users wait, and the next server takes the devices over.
//!
//! All of this is done by the thread that changes the contracts, while the reactor serves: creating a device, and
//! removing it properly, needs a reactor that completes requests.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use iofair_config::contracts::{Back, Contracts, Ublk, Volume};

use crate::error::ServeError;
use crate::front::life::{FrontEnd, Reload};
use crate::front::ublk::block::Block;
use crate::front::ublk::channel::Channel;
use crate::front::ublk::control::{self, Control};
use crate::front::ublk::takeover::{self, Driver, Taken, Wish};
use crate::front::ublk::wire::{Facts, QUEUES_MAX, feature};
use crate::log;
use crate::reactor::handle::ReactorHandle;
use crate::trial::Mode;

/// Moments that a new device's channel may take to appear; two seconds.
const APPEARS_MAX: u32 = 200;

/// A device in service.
#[derive(Debug)]
struct Live {
    volume: String,
    asked: Option<u32>,
    device: u32,
    bytes: u64,
    read_only: bool,
    features: u64,
    /// It was there before this server.
    again: bool,
}

impl Live {
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.device))
    }
    fn is(&self, volume: &Volume) -> bool {
        volume.name == self.volume && volume.ublk.is_some()
    }
}

/// A device that is made or found, and not served yet.
#[derive(Debug)]
struct Ready {
    volume: Volume,
    taken: Taken,
}

/// The devices.
#[derive(Debug)]
pub(crate) struct Blocks {
    control: Option<Control>,
    live: Vec<Live>,
    /// Those that are not served yet.
    fresh: Vec<Ready>,
    rotational: bool,
}

impl Blocks {
    /// No devices yet; the drive turns or not.
    pub(crate) fn new(rotational: bool) -> Self {
        Self { control: None, live: Vec::new(), fresh: Vec::new(), rotational }
    }
    /// Makes or finds the devices that these contracts want and that are not there yet.
    fn make_all(&mut self, contracts: &Contracts) -> Result<(), ServeError> {
        let first = self.control.is_none();
        for volume in &contracts.volumes {
            let Some(ublk) = &volume.ublk else { continue };
            let told = |message: String| ServeError::from(contracts.ublk_error(volume, message));
            if let Some(live) = self.live.iter().find(|live| live.is(volume)) {
                if (live.asked, live.read_only) != (ublk.number, volume.read_only) {
                    let message = "the number of a block device cannot change: remove `ublk` first";
                    return Err(told(message.into()));
                }
                continue;
            }
            let taken = self.make(contracts, volume, ublk).map_err(told)?;
            self.fresh.push(Ready { volume: volume.clone(), taken });
        }
        if let (true, Some(control)) = (first, &mut self.control) {
            let marks: Vec<u64> = self.fresh.iter().map(|ready| ready.taken.info.mark).collect();
            let cleared = takeover::clear_others(control, mark(contracts, ""), &marks);
            let what = ServeError::system("clearing away block devices of a killed server");
            cleared.map_err(what)?;
        }
        Ok(())
    }
    /// Whether the devices of these contracts can be created or found. `own`: those of a running server with the same file count as free.
    fn look(&mut self, contracts: &Contracts, own: bool) -> Result<(), ServeError> {
        for volume in &contracts.volumes {
            let Some(ublk) = &volume.ublk else { continue };
            let looked = self.wish(contracts, volume, ublk).and_then(|(control, wish)| {
                // SAFETY: asks for a number.
                match unsafe { libc::geteuid() } {
                    0 => takeover::look(control, &wish, own),
                    _ => Err(takeover::ROOT.to_string()),
                }
            });
            looked.map_err(|message| contracts.ublk_error(volume, message))?;
        }
        Ok(())
    }
    fn make(
        &mut self,
        contracts: &Contracts,
        volume: &Volume,
        ublk: &Ublk,
    ) -> Result<Taken, String> {
        let (control, wish) = self.wish(contracts, volume, ublk)?;
        takeover::take(control, &wish)
    }
    fn wish(
        &mut self,
        contracts: &Contracts,
        volume: &Volume,
        ublk: &Ublk,
    ) -> Result<(&mut Control, Wish), String> {
        if self.control.is_none() {
            self.control = Some(Control::open(Path::new(control::PATH))?);
        }
        let control = self.control.as_mut().expect("just opened");
        let Volume { size_bytes: bytes, read_only, .. } = *volume;
        let queues = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let wish = Wish {
            number: ublk.number,
            mark: mark(contracts, &data(&contracts.drive.back, volume)),
            facts: Facts { bytes, read_only, rotational: self.rotational },
            queues: queues.min(u64::from(QUEUES_MAX)) as u16,
            features: control.features(),
            keeps: contracts.drive.back.path().is_some(),
        };
        Ok((control, wish))
    }
    fn end(&mut self, live: &Live, flush: bool, limit: Duration) {
        let control = self.control.as_mut().expect("it made the device");
        if flush && let Err(error) = write_caches(&live.path(), limit) {
            tell(live, &format!("what is cached above it could not be written: {error}"));
        }
        let stopped = control.stop(live.device, limit);
        match stopped.and_then(|()| control.delete(live.device)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                tell(
                    live,
                    "is removed, but its number stays in use until all users have closed it",
                );
            }
            Err(error) => tell(live, &format!("could not be deleted: {error}")),
        }
    }
}

impl FrontEnd for Blocks {
    /// A device that is mounted cannot be removed, unless its volume is deleted. While requests are held back no device
    /// can come or go: the kernel would wait for replies.
    fn validate(&self, reload: &Reload<'_>, is_paused: bool) -> Result<(), ServeError> {
        let volumes = &reload.after.volumes;
        let stays = |live: &Live| volumes.iter().any(|volume| live.is(volume));
        let is_new = |volume: &&Volume| {
            volume.ublk.is_some() && !self.live.iter().any(|live| live.is(volume))
        };
        let comes = volumes.iter().find(is_new).map(|volume| &volume.name);
        let goes = self.live.iter().find(|live| !stays(live)).map(|live| &live.volume);
        if let Some(name) = comes.or(goes).filter(|_| is_paused) {
            let message = "block devices cannot be added or removed while the server is drained";
            return Err(ServeError::volume(name, message));
        }
        let is_deleted = |live: &Live| reload.removed.contains(&live.volume);
        for live in self.live.iter().filter(|live| !stays(live) && !is_deleted(live)) {
            if is_claimed(&live.path()) {
                let message = format!("{} is in use (mounted?)", live.path().display());
                return Err(ServeError::volume(&live.volume, message));
            }
        }
        Ok(())
    }
    fn prepare(&mut self, contracts: &Contracts, mode: &Mode) -> Result<(), ServeError> {
        match mode.is_check() {
            true => self.look(contracts, mode.server().is_some()),
            false => self.make_all(contracts),
        }
    }
    /// Devices that were made are removed; those that were there wait for the next server.
    fn undo(&mut self) {
        for Ready { taken, .. } in self.fresh.drain(..).filter(|ready| !ready.taken.again) {
            if let Some(control) = &mut self.control {
                // What was wrong first is what matters.
                let _ = control.delete(taken.info.device);
            }
        }
    }
    /// On an error, devices that were there before are left for the next server.
    fn start(&mut self, _: &Contracts, line: &ReactorHandle) -> Result<(), ServeError> {
        while let Some(Ready { volume, taken }) = self.fresh.first() {
            let control = self.control.as_mut().expect("it made the device");
            if let Err(error) = begin(control, &volume.name, taken, line) {
                self.live.retain(|live| !live.again);
                return Err(error);
            }
            let Ready { volume, taken } = self.fresh.remove(0);
            let Volume { name, size_bytes: bytes, read_only, ublk, .. } = volume;
            let asked = ublk.and_then(|ublk| ublk.number);
            let (device, features, again) = (taken.info.device, taken.info.flags, taken.again);
            self.live.push(Live { volume: name, asked, device, bytes, read_only, features, again });
        }
        Ok(())
    }
    /// Devices that no volume asks for any more are removed, and those of volumes with a new size get it.
    fn reconcile(&mut self, reload: &Reload<'_>) {
        let volumes = &reload.after.volumes;
        let limit = Duration::from_nanos(reload.after.drive.drain.0);
        let stays = |live: &Live| volumes.iter().any(|volume| live.is(volume));
        let (kept, gone) = std::mem::take(&mut self.live).into_iter().partition(stays);
        self.live = kept;
        for live in gone {
            let flush = !reload.removed.contains(&live.volume);
            self.end(&live, flush, limit);
        }
        for live in &mut self.live {
            let volume = volumes.iter().find(|volume| live.is(volume));
            let bytes = volume.map_or(live.bytes, |volume| volume.size_bytes);
            let control = self.control.as_mut().filter(|_| bytes != live.bytes);
            let Some(control) = control else { continue };
            let resized = match live.features & feature::UPDATE_SIZE {
                0 => Err(io::ErrorKind::Unsupported.into()),
                _ => control.resize(live.device, bytes),
            };
            match resized {
                Ok(()) => live.bytes = bytes,
                Err(error) => {
                    tell(live, &format!("keeps its size of {} bytes: {error}", live.bytes))
                }
            }
        }
    }
    /// Removes all devices while the reactor still completes requests.
    fn stop(&mut self, reactor: Option<&ReactorHandle>, limit: Duration) {
        if self.live.is_empty() || reactor.is_none_or(|reactor| reactor.resume().is_err()) {
            return;
        }
        for live in std::mem::take(&mut self.live) {
            self.end(&live, true, limit);
        }
    }
    fn blocks(&self) -> Vec<(String, PathBuf)> {
        self.live.iter().map(|live| (live.volume.clone(), live.path())).collect()
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Gives a device to the reactor and lets it appear, or go on.
fn begin(
    control: &mut Control,
    volume: &str,
    taken: &Taken,
    line: &ReactorHandle,
) -> Result<(), ServeError> {
    let device = taken.info.device;
    let what = |doing: &str| ServeError::system(format!("{doing} /dev/ublkb{device}"));
    if taken.again {
        control.start_recovery(device).map_err(what("taking over"))?;
    }
    let mut channel = Channel::open(&taken.info);
    for _ in 0..APPEARS_MAX {
        if !channel.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            break;
        }
        control.wait();
        channel = Channel::open(&taken.info);
    }
    let channel = channel.map_err(what("opening the channel of"))?;
    let (reply, replied) = mpsc::channel();
    line.open(volume, move |export| {
        let opened = |export| (Box::new(Block::new(export, channel)) as _, Some(export.id));
        // The thread that asked waits for it.
        let _ = reply.send(export.is_some());
        export.map(opened)
    })?;
    if replied.recv() != Ok(true) {
        return Err(ServeError::Gone);
    }
    control.start(device, taken.again).map_err(what("starting"))
}

fn tell(live: &Live, message: &str) {
    let path = live.path();
    log::tell(&format!("volume \"{}\"", live.volume), &format!("{} {message}", path.display()));
}

/// Whose device it is, and of which data; of no volume: whose.
fn mark(contracts: &Contracts, data: &str) -> u64 {
    let path = whole(Path::new(contracts.path()));
    takeover::mark(&path, data)
}

fn whole(path: &Path) -> String {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    whole.display().to_string()
}

/// What holds a volume's data.
fn data(back: &Back, volume: &Volume) -> String {
    let place = back.path().map_or_else(|| "memory".into(), whole);
    let own = volume.path.as_deref().map(whole).unwrap_or_default();
    format!("{place}\n{own}\n{}", volume.name)
}

/// Whether a block device is claimed, for example by a mount.
fn is_claimed(path: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// Has what is cached above a block device written to it, that of a mounted file system, too.
fn write_caches(path: &Path, limit: Duration) -> io::Result<()> {
    /// `_IO(0x12, 97)`.
    const BLKFLSBUF: libc::Ioctl = 0x1261;
    let (done, waited) = mpsc::channel();
    let path = path.to_path_buf();
    let write = move || {
        let written = File::open(path).and_then(|file| {
            // SAFETY: an order without arguments for a descriptor of ours.
            match unsafe { libc::ioctl(file.as_raw_fd(), BLKFLSBUF, 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        // Who waited may have given up.
        let _ = done.send(written);
    };
    thread::Builder::new().name("writing caches".into()).spawn(write)?;
    waited.recv_timeout(limit).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contracts(back: &str, ublk: &str) -> Contracts {
        let text = format!(
            "[drive]\nback = '{back}'\nstack = 'none-none'\n[[group]]\nname = 'g'\n\
             [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\nublk = {ublk}\n"
        );
        Contracts::parse("no-such-place/contracts.toml", &text).unwrap()
    }

    /// Goal: a device is known again for the same data only. Method: marks of contracts that differ in one thing.
    #[test]
    fn marks_tell_data_apart() {
        let mark = |back: &str, ublk: &str| {
            let contracts = contracts(back, ublk);
            mark(&contracts, &data(&contracts.drive.back, &contracts.volumes[0]))
        };
        let first = mark("file:/no/pool.img", "true");
        assert_eq!(first, mark("file:/no/pool.img", "5"), "its number does not matter");
        for other in ["file:/no/other.img", "directory:/no/pool", "emulated:x@/no/other.img"] {
            assert_ne!(first, mark(other, "true"), "{other}");
        }
    }

    /// Goal: only what outlives a server is taken over after it. Method: every back end.
    #[test]
    fn memory_is_not_taken_over() {
        let keeps = |back: &str| contracts(back, "true").drive.back.path().is_some();
        assert!(keeps("file:/no/pool.img") && keeps("directory:/no/pool"));
        assert!(keeps("emulated:samsung-970-pro@/no/pool.img"));
        assert!(!keeps("memory:1MiB") && !keeps("emulated:samsung-970-pro"));
    }
}
