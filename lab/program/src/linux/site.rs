//! The machine during a run: a server with an emulated drive and a loop device on its file, or a device of the
//! machine's; the scheduler of the device; groups. All of it is undone when it is dropped, in the opposite order.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use iofair_baselines::TABLE;
use iofair_config::contracts::Contracts;
use iofair_serve::{Server, Timing, in_real_time};

use super::groups::Groups;
use super::plan::{PageCache, Queue};
use crate::loop_device::{self, command, write};
use iofair_cli::output::say;

/// Bytes beside the clients' files on an emulated volume.
const SLACK: u64 = 1 << 20;

/// The device with the clients' files.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A drive profile, emulated.
    Emulated,
    /// A file or block device of the machine.
    Real(PathBuf),
}

/// An emulated drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct EmulatedDrive<'a> {
    pub(super) profile: &'a str,
    /// Bytes that the clients' files take.
    pub(super) bytes: u64,
}

/// The device of a run.
pub(super) struct Site {
    /// The block device.
    pub(super) device: PathBuf,
    /// Its directory in sysfs.
    sys: PathBuf,
    /// Files with the values to restore: of a device that was there before, and the machine's dirty limits.
    before: Vec<(PathBuf, String)>,
    is_loop: bool,
    server: Option<Server>,
    directory: PathBuf,
    pub(super) groups: Groups,
}

/// Refuses a run on this target if something that it needs is missing.
pub(super) fn check(target: &Target) -> Result<()> {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !root {
        bail!("a run on Linux needs root, for loop devices, schedulers and groups");
    }
    let needed = match target {
        Target::Emulated => &["/dev/fuse", "/dev/loop-control"][..],
        Target::Real(path) if is_block_device(path) => &[],
        Target::Real(_) => &["/dev/loop-control"],
    };
    for path in needed {
        if !Path::new(path).exists() {
            bail!("there is no {path}, which a run on Linux needs");
        }
    }
    Groups::check()
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|device| device.file_type().is_block_device())
}

impl Site {
    /// Makes the device ready. `profile` and `bytes` say what an emulated drive is.
    pub(super) fn new(
        target: &Target,
        drive: &EmulatedDrive<'_>,
        directory: &Path,
    ) -> Result<Self> {
        let mut site = Self {
            device: PathBuf::new(),
            sys: PathBuf::new(),
            before: Vec::new(),
            is_loop: false,
            server: None,
            directory: directory.to_path_buf(),
            groups: Groups::new()?,
        };
        let file = match target {
            Target::Emulated => site.serve(drive)?,
            Target::Real(path) => path.clone(),
        };
        let kind = fs::metadata(&file).with_context(|| format!("{}", file.display()))?;
        let capacity;
        if is_block_device(&file) {
            site.device = fs::canonicalize(&file)?;
            capacity = command("blockdev", &["--getsize64", &file.to_string_lossy()])?.parse()?;
        } else {
            site.device = loop_device::attach(&file)?;
            site.is_loop = true;
            capacity = kind.len();
        }
        let bytes = drive.bytes;
        if capacity < bytes {
            bail!("{} has {capacity} bytes; the clients' files take {bytes}", file.display());
        }
        site.sys = loop_device::queue_of(&site.device)?;
        if matches!(target, Target::Emulated) {
            let facts = iofair_drive::profile::load(drive.profile, 1)?.facts();
            loop_device::resemble(&site.sys, &facts)?;
        }
        Ok(site)
    }
    /// Starts a server with an emulated drive; the file that is its volume.
    fn serve(&mut self, drive: &EmulatedDrive<'_>) -> Result<PathBuf> {
        let mount = self.directory.join("mount");
        let place = mount.to_str().ok_or_else(|| anyhow!("{} is not UTF-8", mount.display()))?;
        let EmulatedDrive { profile, bytes } = drive;
        let text = format!(
            "[drive]\nback = \"emulated:{profile}\"\nstack = \"none-none\"\n[fuse]\nmount = \"{place}\"\n\
             [[group]]\nname = \"all\"\n\
             [[volume]]\nname = \"drive\"\ngroup = \"all\"\nsize = \"{}MiB\"\n",
            (bytes + SLACK).div_ceil(1 << 20)
        );
        let contracts = Contracts::parse_with(&TABLE, "drive.toml", &text)?;
        let timing = Arc::new(Timing::default());
        // Polling would take a processor away from clients and kernel at all times, and the data of a lone client are many pages
        // that the server would map while it is measured.
        timing.set_polling(false);
        timing.set_forgetting(true);
        let (server, _) = in_real_time(|| Server::start_timed(contracts, &timing));
        let server = server.map_err(|error| anyhow!("the server with the drive: {error}"))?;
        self.server = Some(server);
        loop_device::allow_background(&mount)?;
        Ok(mount.join("drive"))
    }
    fn keep(&mut self, file: &Path) -> Result<()> {
        if !self.is_loop && !self.before.iter().any(|(known, _)| known == file) {
            let now = fs::read_to_string(file)?;
            // `none [bfq]`: the one in brackets.
            let now = now.split(['[', ']']).nth(1).unwrap_or(&now).trim().to_owned();
            self.before.push((file.to_path_buf(), now));
        }
        Ok(())
    }
    /// Selects the scheduler anew, so that it has learnt nothing, and sets it up.
    pub(super) fn schedule(&mut self, queue: &Queue) -> Result<()> {
        let file = self.sys.join("queue/scheduler");
        self.keep(&file)?;
        write(&file, "none")?;
        let known = fs::read_to_string(&file)?;
        if !known.split([' ', '[', ']', '\n']).any(|name| name == queue.scheduler) {
            bail!(
                "this kernel has no {} for {}: {}",
                queue.scheduler,
                file.display(),
                known.trim()
            );
        }
        write(&file, queue.scheduler)?;
        for (name, value) in &queue.settings {
            write(&self.sys.join("queue/iosched").join(name), value)?;
        }
        if let Some(requests) = queue.requests {
            self.set("queue/nr_requests", &requests.to_string())?;
        }
        Ok(())
    }
    /// Sets up the page cache; the dirty limits, which are the machine's, only for clients that write. Call after
    /// [`Self::schedule`]: a scheduler that is selected sets writeback throttling anew.
    pub(super) fn set_up(&mut self, cache: &PageCache, writes: bool) -> Result<()> {
        self.set("queue/read_ahead_kb", &cache.read_ahead_kib.to_string())?;
        // BFQ has switched it off.
        let is_bfq = fs::read_to_string(self.sys.join("queue/scheduler"))?.contains("[bfq]");
        let file = "queue/wbt_lat_usec";
        match (self.sys.join(file).exists() && !is_bfq, cache.writeback.as_str()) {
            (true, target) => self.set(file, target)?,
            (false, "0") => {}
            (false, _) => {
                bail!("this kernel has no writeback throttling for {}", self.device.display())
            }
        }
        if writes { self.limit_dirty(cache.dirty) } else { Ok(()) }
    }
    fn set(&mut self, file: &str, value: &str) -> Result<()> {
        let file = self.sys.join(file);
        self.keep(&file)?;
        write(&file, value)
    }
    /// Sets the machine's dirty limits in bytes, background first. They are set either so or in percent of its memory, and come back as
    /// they were set.
    fn limit_dirty(&mut self, limits: [u64; 2]) -> Result<()> {
        let vm = Path::new("/proc/sys/vm");
        let names = ["dirty_background", "dirty"];
        for name in names {
            for unit in ["bytes", "ratio"] {
                let file = vm.join(format!("{name}_{unit}"));
                let value = fs::read_to_string(&file)?.trim().to_owned();
                if value != "0" {
                    self.before.push((file, value));
                }
            }
        }
        for (name, limit) in names.iter().zip(limits) {
            write(&vm.join(format!("{name}_bytes")), &limit.to_string())?;
        }
        Ok(())
    }
    /// `MAJOR:MINOR`.
    pub(super) fn number(&self) -> Result<String> {
        Ok(fs::read_to_string(self.sys.join("dev"))?.trim().to_owned())
    }
    /// Reads, bytes read, writes, bytes written, milliseconds busy, and milliseconds of all requests together, so far
    /// (`Documentation/block/stat.rst`).
    pub(super) fn counters(&self) -> Result<[u64; 6]> {
        let text = fs::read_to_string(self.sys.join("stat"))?;
        let fields: Vec<u64> =
            text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let field = |n: usize| fields.get(n).copied().unwrap_or(0);
        let all = field(3) + field(7);
        Ok([field(0), field(2) * 512, field(4), field(6) * 512, field(9), all])
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.groups.remove();
        for (file, value) in self.before.drain(..) {
            if let Err(error) = write(&file, &value) {
                say(format_args!("could not be restored: {error:#}"));
            }
        }
        if self.is_loop
            && let Err(error) = loop_device::detach(&self.device)
        {
            say(format_args!("could not be detached: {error:#}"));
        }
        if let Some(server) = self.server.take()
            && let Err(error) = server.stop()
        {
            say(format_args!("the server with the drive could not be stopped: {error}"));
        }
    }
}
