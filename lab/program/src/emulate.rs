//! `iofair-lab emulate`: a drive model in real time, as a block device for any software.
//!
//! A server in this process has the emulated drive; its volume is a file through FUSE, and a loop device is on the file
//! (with ublk, the volume is a block device itself). [`path`] measures what lies between the device and the model, and
//! the drive completes requests that much earlier. [`place`] makes the device and removes it, in the right order.

mod path;
mod place;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use iofair_baselines::TABLE;
use iofair_config::ConfigError;
use iofair_config::contracts::Contracts;
use iofair_core::unit::parse_bytes;
use iofair_drive::profile::{self, Profile};
use iofair_serve::{Server, Signal, Signals, Timing, in_real_time};
use iofair_simulator::machine::drive_error;
use iofair_simulator::text_table::counted;
use serde::Serialize;

use self::path::{Fidelity, Verdict};
use self::place::{Kind, Place};
use iofair_cli::failure::Usage;
use iofair_cli::output::{Output, say};

/// The smallest device: what the path is measured with needs room.
const SIZE_MIN: u64 = 16 << 20;

/// Arguments of `iofair-lab emulate`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair-lab emulate plextor-px256m5s --at /tmp/drive       until SIGTERM or Ctrl-C; prints the block device
  iofair-lab emulate sata-7200-2009 --at /tmp/disk --size 20GiB --data /srv/disk.img
  iofair-lab emulate ./PROFILE.toml --at /tmp/drive         a profile that iofair calibrate has written
  iofair-lab list drives                                    profiles by name

The directory gets a file `drive`, and a loop device is on it; this needs root. With --device file there is only the
file. At the start the path from the device to the drive model is measured, and requests complete earlier by what it
takes. If the machine cannot keep the model's pace, it says by how much, at the start and at the end.")]
pub(crate) struct Args {
    /// A drive profile: a name, NAME:VARIANT, or the path of a .toml file.
    profile: String,
    /// The directory in which the drive appears as a file; it is made if it is not there.
    #[arg(long, value_name = "DIRECTORY")]
    at: PathBuf,
    /// Size of the device; the profile's capacity unless given.
    #[arg(long, value_name = "BYTES")]
    size: Option<String>,
    /// Keep the data in this sparse file, instead of memory that is lost at the end.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The kind of device; `auto` is ublk where the kernel has it, else loop.
    #[arg(long, value_enum, default_value = "auto")]
    device: Kind,
    /// Complete no request earlier than the model, whatever the path takes.
    #[arg(long)]
    no_compensation: bool,
}

/// The report when the device can be used, and again at the end.
#[derive(Serialize)]
struct Report<'a> {
    ready: bool,
    profile: &'a str,
    device: &'a Path,
    bytes: u64,
    data: String,
    real_time_priority: bool,
    keeps_pace: bool,
    #[serde(flatten)]
    fidelity: &'a Fidelity,
    /// At the end: how late requests completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness: Option<Late>,
}

/// How late the drive completed requests, beside its model and the lead.
#[derive(Clone, Copy, Serialize)]
struct Late {
    requests: u64,
    /// Requests that took more than 5 % longer than they should.
    late: u64,
    late_max_ns: u64,
}

impl Late {
    /// More than one request of a hundred is too many.
    fn keeps_pace(self) -> bool {
        self.late <= self.requests / 100
    }
    fn text(self) -> String {
        let Self { requests, late, late_max_ns } = self;
        let percent = late as f64 * 100.0 / requests.max(1) as f64;
        let worst = late_max_ns as f64 / 1e6;
        format!(
            "{}, {percent:.1} % of them more than 5 % later than the model (worst: {worst:.1} ms)",
            counted(requests, "request")
        )
    }
}

/// A running emulation.
struct Emulation<'a> {
    args: &'a Args,
    profile: Profile,
    bytes: u64,
    real_time: bool,
    timing: Arc<Timing>,
    /// Before the server: dropped first, since the server is what the device needs.
    place: Place,
    server: Server,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let at = || ConfigError::whole_file("PROFILE", "");
    let profile = profile::read(&args.profile).map_err(|error| drive_error(at(), &error))?;
    let bytes = size(args, &profile)?;
    let kind = place::check(args.device)?;
    // Before any thread is started.
    let signals = Signals::block().context("signals cannot be blocked")?;
    let mut emulation = Emulation::start(args, profile, bytes, kind)?;
    let fidelity = emulation.measure()?;
    emulation.timing.take_lateness();
    let report = emulation.report(&fidelity, None);
    output.announce(&report, || emulation.text(&fidelity))?;
    emulation.wait(&signals)?;
    let late = emulation.timing.take_lateness();
    let (requests, late_max_ns) = (late.completed, late.max.0);
    let late = Late { requests, late: late.late, late_max_ns };
    let report = emulation.report(&fidelity, Some(late));
    output.announce(&report, || {
        let mark = mark(report.keeps_pace);
        format!("{}\n{mark}", late.text())
    })?;
    emulation.stop()?;
    Ok(ExitCode::SUCCESS)
}

fn size(args: &Args, profile: &Profile) -> Result<u64> {
    let capacity = profile.build(1).facts().capacity.bytes();
    let Some(size) = &args.size else { return Ok(capacity) };
    let bytes = parse_bytes(size).map_err(|error| Usage(format!("--size: {error}")))? / 4096 * 4096;
    if !(SIZE_MIN..=capacity).contains(&bytes) {
        let message =
            format!("--size {size}: allowed are 16MiB to {capacity}B, the profile's capacity");
        return Err(Usage(message).into());
    }
    Ok(bytes)
}

/// As a string of TOML, in which JSON's strings are valid.
fn quoted(text: &str) -> Result<String> {
    Ok(serde_json::to_string(text)?)
}

fn mark(keeps_pace: bool) -> &'static str {
    match keeps_pace {
        true => "This run kept the pace of the model.\n",
        false => {
            "NOT FAITHFUL: this machine did not keep the pace of the model; see above by how much.\n"
        }
    }
}

impl<'a> Emulation<'a> {
    fn start(args: &'a Args, profile: Profile, bytes: u64, kind: Kind) -> Result<Self> {
        let at = place::prepare(&args.at)?;
        let back = match &args.data {
            None => format!("emulated:{}", args.profile),
            Some(data) => {
                let data = std::path::absolute(data)?;
                format!("emulated:{}@{}", args.profile, data.display())
            }
        };
        let device = match kind {
            Kind::Ublk => "ublk = true\n",
            _ => "",
        };
        let mount = at.to_str().ok_or_else(|| anyhow!("{} is not UTF-8", at.display()))?;
        let text = format!(
            "[drive]\nback = {}\nstack = \"none-none\"\n[fuse]\nmount = {}\n[[group]]\nname = \"all\"\n\
             [[volume]]\nname = \"drive\"\ngroup = \"all\"\nsize = \"{bytes}B\"\n{device}",
            quoted(&back)?,
            quoted(mount)?
        );
        let contracts = Contracts::parse_with(&TABLE, "emulate.toml", &text)?;
        let timing = Arc::new(Timing::default());
        let (server, real_time) = in_real_time(|| Server::start_timed(contracts, &timing));
        let server = server.map_err(|error| anyhow!(error))?;
        let ublk = server.blocks().into_iter().next().map(|(_, path)| path);
        let place = Place::new(&at, kind, ublk, &profile)?;
        Ok(Self { args, profile, bytes, real_time, timing, place, server })
    }
    /// Measures the path, and compensates it.
    fn measure(&self) -> Result<Fidelity> {
        let lead = (!self.args.no_compensation).then_some(&*self.timing);
        path::measure(&self.place.device, &self.profile, lead)
            .with_context(|| format!("measuring {}", self.place.device.display()))
    }
    fn report(&self, fidelity: &'a Fidelity, lateness: Option<Late>) -> Report<'_> {
        let keeps_pace = fidelity.keeps_pace() && lateness.is_none_or(Late::keeps_pace);
        Report {
            ready: lateness.is_none(),
            profile: &self.args.profile,
            device: &self.place.device,
            bytes: self.bytes,
            data: self.data(),
            real_time_priority: self.real_time,
            keeps_pace,
            fidelity,
            lateness,
        }
    }
    fn data(&self) -> String {
        self.args.data.as_ref().map_or("memory".into(), |path| path.display().to_string())
    }
    fn text(&self, fidelity: &Fidelity) -> String {
        let (device, title) = (self.place.device.display(), &self.profile.title);
        let mut text = format!("{device} is a {title}; its data is in {}\n", self.data());
        if !self.real_time {
            text += "Without real-time priority (CAP_SYS_NICE) other programs delay completions.\n";
        }
        text += &fidelity.text();
        if !fidelity.keeps_pace() {
            let worst = fidelity.rows.iter().filter(|row| row.verdict() == Verdict::Deviates);
            let worst = worst.map(|row| format!("{} by {:+.0} %", row.name, row.deviation_percent));
            let worst = worst.collect::<Vec<_>>().join(", ");
            text +=
                &format!("NOT FAITHFUL: this machine cannot keep the pace of the model: {worst}\n");
        }
        text
    }
    /// Until a signal or the server ends it.
    fn wait(&mut self, signals: &Signals) -> Result<()> {
        let mut asked = 0;
        loop {
            let signal = signals.wait().context("waiting for signals")?;
            if self.server.is_over() {
                return Err(anyhow!("the server with the emulated drive has ended"));
            }
            if signal != Some(Signal::Stop) {
                continue;
            }
            asked += 1;
            match self.place.unmount_all(asked > 1) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    say(format_args!(
                        "{error:#}; end what uses it, or signal again to detach it all the same"
                    ));
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }
    fn stop(self) -> Result<()> {
        let Self { place, server, .. } = self;
        let directory = place.remove()?;
        server.stop().map_err(|error| anyhow!(error))?;
        place::remove_directory(directory);
        Ok(())
    }
}
