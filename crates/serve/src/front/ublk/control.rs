//! `/dev/ublk-control`: synchronous commands for the driver, through a small separate ring.
//!
//! These commands need ring entries of 128 bytes, which the reactor's ring does not have, and may take long: the
//! driver starts a device only when the reactor is ready for it, and reads its partitions through the reactor. So the
//! thread that changes the contracts sends them, never the reactor.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::takeover::Driver;
use super::wire::{Facts, Info, Order, feature, op};

/// The driver.
pub(crate) const PATH: &str = "/dev/ublk-control";
/// Where the system lists devices.
const LIST: &str = "/sys/class/ublk-char";
/// Time for an order that may wait for the drive.
const LONG: Duration = Duration::from_secs(30);
/// Time for the number of a deleted device to be free.
const DELETE: Duration = Duration::from_secs(2);
/// One moment.
const MOMENT: Duration = Duration::from_millis(10);
/// Moments that a device is waited for whose last server is not gone yet.
const BUSY_MAX: u32 = 1000;

/// The way to the driver.
pub(crate) struct Control {
    /// None after an order that was not completed: what it still does goes with its ring.
    ring: Option<Ring>,
    file: File,
    features: u64,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("features", &self.features).finish_non_exhaustive()
    }
}

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

fn ring() -> io::Result<Ring> {
    IoUring::builder().build(4)
}

/// What there must be.
const NEEDS: &str = "block devices need Linux 6.5 or newer with the driver ublk_drv \
                     (CONFIG_BLK_DEV_UBLK), and root; `modprobe ublk_drv` loads it";

/// How an order ended.
enum Ended {
    /// The driver has completed it.
    Completed(io::Result<()>),
    /// Perhaps it goes on; [`io::ErrorKind::TimedOut`] if it took too long.
    Unknown(io::Error),
}

/// Waits for the only order on a ring.
fn wait(ring: &mut Ring, limit: Duration) -> Ended {
    let timespec = types::Timespec::from(limit);
    let arguments = types::SubmitArgs::new().timespec(&timespec);
    loop {
        let waited = ring.submitter().submit_with_args(1, &arguments);
        if let Some(completed) = ring.completion().next() {
            return Ended::Completed(match completed.result() {
                0.. => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            });
        }
        match waited {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                return Ended::Unknown(io::ErrorKind::TimedOut.into());
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Ended::Unknown(error);
            }
            _ => {}
        }
    }
}

impl Control {
    /// Opens the driver and asks what it can do. The error says what is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let told = |what: String| format!("{what}: {NEEDS}");
        let place = path.display();
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => told(format!("there is no {place} here")),
            _ => told(format!("{place}: {error}")),
        })?;
        let ring = ring().map_err(|error| format!("a ring with long entries: {error}"))?;
        let mut this = Self { ring: Some(ring), file, features: 0 };
        let known = this.with_bytes([0; 8], op::GET_FEATURES, u32::MAX);
        this.features = match known {
            Ok(bytes) => u64::from_ne_bytes(bytes),
            Err(error) => {
                return Err(told(format!("the driver behind {place} is too old ({error})")));
            }
        };
        if this.features & feature::NEEDED != feature::NEEDED {
            return Err(told(format!(
                "the driver behind {place} has the features {:#x}, without {:#x}",
                this.features,
                feature::NEEDED & !this.features
            )));
        }
        Ok(this)
    }
    /// What the driver can do.
    pub(crate) fn features(&self) -> u64 {
        self.features
    }
    /// Gives an order and waits for its end.
    ///
    /// # Safety
    /// What the order points to stays in place until the driver has completed it: if this returns anything but
    /// [`Ended::Completed`], for ever.
    unsafe fn give(&mut self, number: u32, order: Order, limit: Duration) -> Ended {
        match self.ring.take().map_or_else(ring, Ok) {
            Ok(mut ring) => {
                let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), number);
                let entry = entry.cmd(order.encode()).build();
                // SAFETY: the caller's promise.
                let pushed = unsafe { ring.submission().push(&entry) };
                pushed.expect("one order at a time");
                let ended = wait(&mut ring, limit);
                if matches!(ended, Ended::Completed(_)) {
                    self.ring = Some(ring);
                }
                ended
            }
            Err(error) => Ended::Unknown(error),
        }
    }
    /// Gives an order with some bytes to read or write, which come back.
    fn with_bytes<const N: usize>(
        &mut self,
        bytes: [u8; N],
        number: u32,
        device: u32,
    ) -> io::Result<[u8; N]> {
        let place = Box::into_raw(Box::new(bytes));
        let address = place.expose_provenance() as u64;
        let order = Order { device, address, bytes: N as u16, value: 0 };
        // SAFETY: the place is only taken back below, when the order is completed; else it is leaked.
        match unsafe { self.give(number, order, LONG) } {
            Ended::Completed(result) => {
                // SAFETY: made above, and the driver does not use it any more.
                let place = unsafe { Box::from_raw(place) };
                result.map(|()| *place)
            }
            Ended::Unknown(error) => Err(error),
        }
    }
    fn plain(&mut self, number: u32, device: u32, value: u64, limit: Duration) -> io::Result<()> {
        let order = Order { device, address: 0, bytes: 0, value };
        // SAFETY: it points to nothing.
        match unsafe { self.give(number, order, limit) } {
            Ended::Completed(result) => result,
            Ended::Unknown(error) => Err(error),
        }
    }
    /// Begins service, once the reactor waits for requests; the block device appears, or its users go on.
    pub(crate) fn start(&mut self, device: u32, again: bool) -> io::Result<()> {
        let number = if again { op::END_USER_RECOVERY } else { op::START_DEV };
        self.plain(number, device, u64::from(std::process::id()), LONG)
    }
    /// Makes a device ready for another server.
    pub(crate) fn start_recovery(&mut self, device: u32) -> io::Result<()> {
        for _ in 0..BUSY_MAX {
            match self.plain(op::START_USER_RECOVERY, device, 0, LONG) {
                // The last server's ring is not gone yet.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => self.wait(),
                // A server before this one did it, and was killed before it asked for requests.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
                result => return result,
            }
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }
    /// Removes the block device after its requests have completed.
    pub(crate) fn stop(&mut self, device: u32, limit: Duration) -> io::Result<()> {
        self.plain(op::STOP_DEV, device, 0, limit)
    }
    /// Another size, if the driver can.
    pub(crate) fn resize(&mut self, device: u32, bytes: u64) -> io::Result<()> {
        self.plain(op::UPDATE_SIZE, device, bytes / 512, LONG)
    }
}

impl Driver for Control {
    fn devices(&mut self) -> io::Result<Vec<u32>> {
        let list = match fs::read_dir(LIST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            list => list?,
        };
        let mut devices = Vec::new();
        for entry in list {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("ublkc"));
            devices.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        devices.sort_unstable();
        Ok(devices)
    }
    fn info(&mut self, device: u32) -> io::Result<Option<Info>> {
        match self.with_bytes([0; Info::BYTES], op::GET_DEV_INFO, device) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            result => Ok(Some(Info::decode(&result?))),
        }
    }
    fn add(&mut self, info: &Info) -> io::Result<Info> {
        Ok(Info::decode(&self.with_bytes(info.encode(), op::ADD_DEV, info.device)?))
    }
    fn set_parameters(&mut self, device: u32, facts: Facts) -> io::Result<()> {
        self.with_bytes(facts.parameters(), op::SET_PARAMS, device).map(drop)
    }
    fn delete(&mut self, device: u32) -> io::Result<()> {
        match self.plain(op::DEL_DEV, device, 0, DELETE) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            result => result,
        }
    }
    fn wait(&mut self) {
        // Nothing is in flight that could be completed; woken early, or without a ring, is as good.
        if let Some(ring) = &mut self.ring {
            let _ = wait(ring, MOMENT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: where there is no driver, or something else in its place, the error says what is needed. Method: a path
    /// that is not there, a directory, a file that knows no orders.
    #[test]
    fn a_missing_driver_is_told() {
        for (path, said) in [
            ("/dev/no-such-driver", "there is no /dev/no-such-driver here: "),
            ("/dev", "/dev: "),
            ("/dev/null", "the driver behind /dev/null "),
        ] {
            let error = Control::open(Path::new(path)).unwrap_err();
            assert!(error.contains(said) && error.contains("modprobe ublk_drv"), "{error}");
        }
    }
}
