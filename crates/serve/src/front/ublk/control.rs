//! `/dev/ublk-control`: orders for the driver, each waited for, through a small ring of its own.
//!
//! Orders take an entry of 128 bytes, which the reactor's ring has not, and may take long: the driver starts a
//! device only when the reactor is ready for it, and reads its partitions through the reactor. So they
//! are given by whoever changes the contracts, never by the reactor.

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
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    features: u64,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("features", &self.features).finish_non_exhaustive()
    }
}

fn ring() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    IoUring::builder().build(4)
}

/// What there must be.
const NEEDS: &str = "block devices need Linux 6.5 or newer with the driver ublk_drv \
                     (CONFIG_BLK_DEV_UBLK), and root; `modprobe ublk_drv` loads it";

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
        let mut this = Self { ring, file, features: 0 };
        let order = |address| Order { device: u32::MAX, address, bytes: 8, value: 0 };
        let known = this.with_bytes([0; 8], op::GET_FEATURES, order);
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
    fn give(&mut self, number: u32, order: Order, limit: Duration) -> io::Result<()> {
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), number);
        let entry = entry.cmd(order.encode()).build();
        // SAFETY: what the order points to is there until the answer is seen (see `with_bytes`).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("one order at a time");
        let timespec = types::Timespec::from(limit);
        let arguments = types::SubmitArgs::new().timespec(&timespec);
        loop {
            let waited = self.ring.submitter().submit_with_args(1, &arguments);
            if let Some(answer) = self.ring.completion().next() {
                return match answer.result() {
                    0.. => Ok(()),
                    error => Err(io::Error::from_raw_os_error(-error)),
                };
            }
            match waited {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                    // What the order still does goes with the old ring.
                    self.ring = ring()?;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
    /// Gives an order with some bytes to read or write.
    fn with_bytes<const N: usize>(
        &mut self,
        bytes: [u8; N],
        number: u32,
        order: impl FnOnce(u64) -> Order,
    ) -> io::Result<[u8; N]> {
        let mut place = Box::new(bytes);
        let result = self.give(number, order(place.as_mut_ptr() as u64), LONG);
        match result {
            Ok(()) => Ok(*place),
            Err(error) => {
                if error.kind() == io::ErrorKind::TimedOut {
                    // The order is not over, and the kernel may still use the place.
                    Box::leak(place);
                }
                Err(error)
            }
        }
    }
    fn plain(&mut self, number: u32, device: u32, value: u64, limit: Duration) -> io::Result<()> {
        self.give(number, Order { device, address: 0, bytes: 0, value }, limit)
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
    /// The block device goes; what it has inside is answered first.
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
        let order = |address| Order { device, address, bytes: Info::BYTES as u16, value: 0 };
        match self.with_bytes([0; Info::BYTES], op::GET_DEV_INFO, order) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            result => Ok(Some(Info::decode(&result?))),
        }
    }
    fn add(&mut self, info: &Info) -> io::Result<Info> {
        let device = info.device;
        let order = |address| Order { device, address, bytes: Info::BYTES as u16, value: 0 };
        Ok(Info::decode(&self.with_bytes(info.encode(), op::ADD_DEV, order)?))
    }
    fn set_parameters(&mut self, device: u32, facts: Facts) -> io::Result<()> {
        let parameters = facts.parameters();
        let bytes = parameters.len() as u16;
        let order = |address| Order { device, address, bytes, value: 0 };
        self.with_bytes(parameters, op::SET_PARAMS, order).map(drop)
    }
    fn delete(&mut self, device: u32) -> io::Result<()> {
        match self.plain(op::DEL_DEV, device, 0, DELETE) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            result => result,
        }
    }
    fn wait(&mut self) {
        let timespec = types::Timespec::from(MOMENT);
        let arguments = types::SubmitArgs::new().timespec(&timespec);
        // Nothing is under way that could be answered; woken early is as good.
        let _ = self.ring.submitter().submit_with_args(1, &arguments);
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
