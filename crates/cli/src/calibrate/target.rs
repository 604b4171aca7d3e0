//! What is measured: a drive model in simulated time, a file, a block device, or a volume of an NBD server.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use iofair_core::policy::DriveFacts;
use iofair_core::request::Operation;
use iofair_core::time::Nanos;
use iofair_drive::fit::{Row, SEED, Scope};
use iofair_drive::measure::{Amount, Device, Load, Order, Outcome, Simulated, Stream, run};
use iofair_drive::profile::{self, Profile};
use iofair_serve::measure::{Access, FileDevice, NbdDevice};
use iofair_simulator::calibration::simulated_scope;

use crate::failure::Usage;
use crate::machine;
use crate::output::say;

/// Most bytes that fill caches, and how long that may take.
const FILL: u64 = 32 << 30;
const FILL_TIME: Nanos = Nanos::from_secs(60);
/// What may be wrong with a volume of zeros.
const EMPTY: &str = "if nothing was written there yet, reads do not reach the drive and these numbers are not the drive's; \
    --write fills it first";
/// A target below this says nothing about a drive.
const SIZE_MIN: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// A target.
pub(super) enum Target {
    Simulated(Box<Profile>),
    File { device: Box<FileDevice>, name: String },
    Volume { device: Box<NbdDevice>, name: String },
}

impl Target {
    /// Opens it. A file is made `size` bytes long and filled if it may be written.
    pub(super) fn open(
        name: &str,
        size: Option<u64>,
        write: bool,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self> {
        if let Some(profile) = name.strip_prefix("emulated:") {
            let profile = profile::read(profile).map_err(|error| Usage(error.to_string()))?;
            return Ok(Self::Simulated(Box::new(profile)));
        }
        if name.starts_with("nbd") {
            let (export, socket) = volume(name)?;
            let mut device = NbdDevice::connect(Path::new(&socket), &export)
                .with_context(|| format!("cannot connect to {name}"))?;
            area(size, device.facts().capacity.bytes())?;
            if device.reads_zeros() {
                match write {
                    true => fill(&mut device, size, is_over)
                        .with_context(|| format!("filling {name}"))?,
                    false => say(format_args!("{name} reads as zeros: {EMPTY}")),
                }
            }
            return Ok(Self::Volume { device: Box::new(device), name: name.to_owned() });
        }
        let path = Path::new(name);
        let access = if write { Access::Write } else { Access::Read };
        let kind = std::fs::metadata(path).map(|file| file.file_type());
        let is_device = kind.is_ok_and(|kind| kind.is_block_device());
        if let (false, Some(size)) = (is_device, size) {
            check_area(size)?;
            lengthen(path, size, write)?;
        }
        let open = || {
            FileDevice::open(path, access).with_context(|| {
                let how = if write { ", for writing, with direct I/O" } else { " with direct I/O" };
                format!("cannot open {name}{how}")
            })
        };
        let mut device = open()?;
        // Writes to it would only fail one by one.
        let flag = format!("/sys/dev/block/{}/ro", device.number());
        if write && std::fs::read_to_string(flag).is_ok_and(|flag| flag.trim() == "1") {
            return Err(Usage(format!("{name} is read-only")).into());
        }
        area(size, device.facts().capacity.bytes())?;
        let holes = device.holes()?;
        if holes > 0 {
            if !write {
                let message = format!(
                    "{name}: {} MiB are holes, which never reach the drive; --write fills them",
                    holes / MIB
                );
                return Err(Usage(message).into());
            }
            fill(&mut device, None, is_over).with_context(|| format!("filling {name}"))?;
        }
        if let Some(scheduler) = device.scheduler() {
            say(format_args!(
                "{name}: requests also wait in the kernel's scheduler {scheduler}; set it to none to measure the drive alone"
            ));
        }
        Ok(Self::File { device: Box::new(device), name: name.to_owned() })
    }
    fn device(&mut self) -> Option<&mut dyn Device> {
        match self {
            Self::Simulated(_) => None,
            Self::File { device, .. } => Some(&mut **device),
            Self::Volume { device, .. } => Some(&mut **device),
        }
    }
    /// What is measured of it.
    pub(super) fn scope(
        &mut self,
        writes: bool,
        size: Option<u64>,
        row_time: Nanos,
    ) -> Result<Scope> {
        let simulated = match self {
            Self::Simulated(profile) => Some(profile.build(SEED).facts()),
            _ => None,
        };
        let facts: DriveFacts = match (&simulated, self.device()) {
            (Some(facts), _) => *facts,
            (None, Some(device)) => device.facts(),
            (None, None) => return Err(anyhow!("a target without a device")),
        };
        let scope = simulated_scope(facts, area(size, facts.capacity.bytes())?);
        // Nothing is lost by writing to a model.
        Ok(match (facts.rotational, simulated.is_some()) {
            (_, true) => scope,
            (true, false) => Scope { writes, row_time, is_simulated: false, ..scope },
            (false, false) => {
                let fill = (FILL, FILL_TIME);
                Scope { writes, row_time, fill, is_simulated: false, ..scope }
            }
        })
    }
    /// Waits, so that the limits of a volume allow a burst again. A model is at rest before each row.
    pub(super) fn rest(&mut self, time: Nanos, is_over: &dyn Fn() -> bool) -> io::Result<()> {
        let Some(device) = self.device() else { return Ok(()) };
        let read = Stream {
            area: (0, MIB),
            pause: time,
            ..Stream::new(Operation::Read, 4096, 1, Order::Same)
        };
        let nothing = Amount { requests: 0, time: Nanos::ZERO };
        let measured = Amount { requests: 1, time: time + Nanos::from_secs(60) };
        let load = Load { streams: vec![read], warm_up: nothing, measured, window: 0 };
        run(device, &load, SEED, is_over).map(|_| ())
    }
    /// Runs a row. A model is at rest before each; another target gets a moment in which its cache empties.
    pub(super) fn run(&mut self, row: &Row, is_over: &dyn Fn() -> bool) -> io::Result<Outcome> {
        let Some(device) = self.device() else {
            let Self::Simulated(profile) = self else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            return row.run(&mut Simulated::new(profile.build(SEED + 1)), is_over);
        };
        let outcome = row.run(device, is_over)?;
        if row.writes() {
            let flush = Stream {
                area: (0, MIB),
                pause: Nanos::from_millis(500),
                ..Stream::new(Operation::Flush, 4096, 1, Order::Same)
            };
            let nothing = Amount { requests: 0, time: Nanos::ZERO };
            let measured = Amount { requests: 2, time: Nanos::from_secs(20) };
            let rest = Load { streams: vec![flush], warm_up: nothing, measured, window: 0 };
            run(device, &rest, SEED, is_over)?;
        }
        Ok(outcome)
    }
    /// A title for its profile.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Simulated(profile) => format!("calibrated in simulated time: {}", profile.name),
            Self::File { name, .. } | Self::Volume { name, .. } => {
                format!("calibrated: {name}, on {}", machine::name())
            }
        }
    }
    /// `MAJOR:MINOR`, or a place for it.
    pub(super) fn number(&self) -> String {
        match self {
            Self::File { device, .. } => device.number().to_owned(),
            _ => "MAJOR:MINOR".to_owned(),
        }
    }
}

/// Name and socket of an NBD URI.
fn volume(uri: &str) -> Result<(String, String)> {
    let rest = uri.strip_prefix("nbd+unix:///");
    let found = rest.and_then(|rest| rest.split_once("?socket="));
    let (export, socket) = found.ok_or_else(|| {
        Usage(format!("{uri}: allowed is nbd+unix:///NAME?socket=PATH (a server on this machine)"))
    })?;
    Ok((export.to_owned(), socket.to_owned()))
}

/// Makes a file at least this long, if it may be written.
fn lengthen(path: &Path, size: u64, write: bool) -> Result<()> {
    let place = || path.display().to_string();
    let length = std::fs::metadata(path).map_or(0, |file| file.len());
    if length >= size {
        return Ok(());
    }
    if !write {
        let message = format!("{} has {length} bytes; --write makes it {size} long", place());
        return Err(Usage(message).into());
    }
    // A mistyped device would become a file in memory.
    if path.starts_with("/dev") && !path.exists() {
        return Err(Usage(format!("{}: there is no such device", place())).into());
    }
    if path.exists() {
        // Refuses a file that a server uses, before it is made longer.
        drop(FileDevice::open(path, Access::Write).with_context(place)?);
    }
    let file = File::options().write(true).create(true).truncate(false).open(path);
    file.and_then(|file| file.set_len(size)).with_context(place)
}

/// Bytes that are measured of a target; refused before anything is written if it is too small.
fn area(size: Option<u64>, capacity: u64) -> Result<u64> {
    if let Some(size) = size.filter(|size| *size > capacity) {
        let message = format!("--size: {size} bytes, but the target has only {capacity}");
        return Err(Usage(message).into());
    }
    let area = size.unwrap_or(capacity) / MIB * MIB;
    check_area(area)?;
    Ok(area)
}

fn check_area(bytes: u64) -> Result<()> {
    if bytes < SIZE_MIN {
        let message = format!("{bytes} bytes are too few; allowed are 64 MiB and more");
        return Err(Usage(message).into());
    }
    Ok(())
}

/// Writes a target once, up to `size` bytes of it, so that it has no holes.
fn fill(device: &mut dyn Device, size: Option<u64>, is_over: &dyn Fn() -> bool) -> Result<()> {
    let capacity = device.facts().capacity.bytes();
    let bytes = size.map_or(capacity, |size| size.min(capacity)) / MIB * MIB;
    say(format_args!(
        "filling {} MiB once, since reads of holes never reach the drive",
        bytes / MIB
    ));
    let area = (0, bytes);
    let stream = Stream { area, ..Stream::new(Operation::Write, MIB, 4, Order::Sequential) };
    let nothing = Amount { requests: 0, time: Nanos::ZERO };
    let measured = Amount { requests: bytes / MIB, time: Nanos::from_secs(24 * 3600) };
    let load = Load { streams: vec![stream], warm_up: nothing, measured, window: 0 };
    run(device, &load, SEED, is_over)?;
    Ok(())
}
