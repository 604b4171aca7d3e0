//! Requests of a block device of this machine, from the kernel's tracepoints.
//!
//! A tracing instance of its own, with its own buffers, has only events of this device, so other tracing is not disturbed. The
//! reader of the format `tracepoints` makes requests of what the kernel prints. A line that it cannot read is counted and does
//! not end the recording: a process may have any name, also one with a line break.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use iofair_core::time::{Instant, Nanos};
use iofair_serve::Clock;
use iofair_trace::error::TraceError;
use iofair_trace::{Metadata, Record, Source, Stream};

use crate::failure::Usage;
use crate::interrupt;

/// Between two looks at an empty buffer.
const PAUSE: Duration = Duration::from_millis(50);
/// Buffer of each processor. An event has some 60 bytes, so this holds a second of 100,000 requests.
const BUFFER_KB: &str = "16384";
/// `O_NONBLOCK` on Linux, which the standard library has no name for.
const NONBLOCK: i32 = 0o4000;
/// Where the kernel's tracing may be mounted.
const TRACING: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The format of what the kernel prints.
pub(super) const FORMAT: &str = "tracepoints";
/// Event of a request's begin.
const QUEUED: &str = "block_bio_queue";
/// Event of its end on devices with request queues, and on others, such as device-mapper and md.
const COMPLETED: [&str; 2] = ["block_rq_complete", "block_bio_complete"];

/// A device that can be recorded.
pub(super) struct Device {
    pub(super) path: PathBuf,
    major: u64,
    minor: u64,
    bytes: u64,
    /// Whether it has a request queue.
    has_queue: bool,
}

impl Device {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let meta = fs::metadata(path).with_context(|| format!("cannot look at {shown}"))?;
        if !meta.file_type().is_block_device() {
            let message =
                format!("{shown} is not a block device; allowed: a device such as /dev/nvme0n1");
            return Err(Usage(message).into());
        }
        // Linux's encoding of device numbers for programs.
        let id = meta.rdev();
        let (major, minor) =
            ((id >> 8 & 0xfff) | (id >> 32 & !0xfff), (id & 0xff) | (id >> 12 & !0xff));
        let about = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
            .with_context(|| format!("cannot find {shown} under /sys/dev/block"))?;
        if about.join("partition").exists() {
            let disk = about.parent().and_then(Path::file_name).unwrap_or_default();
            let disk = disk.to_string_lossy();
            let message = format!(
                "{shown} is a partition, whose requests the kernel counts for /dev/{disk}; record that"
            );
            return Err(Usage(message).into());
        }
        let size = fs::read_to_string(about.join("size")).unwrap_or_default();
        let bytes = size.trim().parse::<u64>().unwrap_or(0) * 512;
        let has_queue = about.join("mq").exists();
        Ok(Self { path: path.to_path_buf(), major, minor, bytes, has_queue })
    }
    /// What the trace says of it.
    pub(super) fn metadata(&self) -> Metadata {
        let program = format!("iofair {}", env!("CARGO_PKG_VERSION"));
        Metadata::default()
            .with(Metadata::PROGRAM, program)
            .with(Metadata::BACK, format!("device:{}", self.path.display()))
            .with(Metadata::CAPACITY, self.bytes.to_string())
    }
}

/// A tracing instance, removed when it is dropped.
struct Instance {
    folder: PathBuf,
}

impl Instance {
    fn new(device: &Device) -> Result<Self> {
        let found = TRACING.iter().map(Path::new).find(|path| path.join("instances").is_dir());
        let root = found.ok_or_else(|| {
            anyhow!("the kernel's tracing is not mounted, or this user may not see it; as root: mount -t tracefs nodev {}", TRACING[0])
        })?;
        let folder = root.join(format!("instances/iofair-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let this = Self { folder };
        this.set("trace_clock", "mono")?;
        this.set("buffer_size_kb", BUFFER_KB)?;
        // The kernel's own encoding.
        let only = format!("dev == {}", device.major << 20 | device.minor);
        for event in [QUEUED, COMPLETED[usize::from(!device.has_queue)]] {
            this.set(&format!("events/block/{event}/filter"), &only)?;
            this.set(&format!("events/block/{event}/enable"), "1")?;
        }
        Ok(this)
    }
    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))
    }
    /// Events that were overwritten before they were read.
    fn lost(&self) -> u64 {
        let all = fs::read_dir(self.folder.join("per_cpu")).into_iter().flatten().flatten();
        let lost = |folder: PathBuf| {
            let text = fs::read_to_string(folder.join("stats")).ok()?;
            text.lines().find_map(|line| line.strip_prefix("overrun: ")?.trim().parse::<u64>().ok())
        };
        all.filter_map(|entry| lost(entry.path())).sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.set("tracing_on", "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Why a recording ended, and how many events were lost: known after its last line.
#[derive(Default)]
pub(super) struct End {
    over: AtomicBool,
    lost: std::sync::atomic::AtomicU64,
    by_signal: AtomicBool,
}

impl End {
    /// Ends the recording at the next line.
    pub(super) fn request(&self) {
        self.over.store(true, Relaxed);
    }
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
    pub(super) fn why(&self) -> &'static str {
        if self.by_signal.load(Relaxed) { "by a signal" } else { "after the duration" }
    }
}

/// The events as the kernel prints them.
pub(super) struct Lines {
    /// Before the instance, which cannot be removed while this is open.
    pipe: File,
    instance: Instance,
    /// What the kernel gave and was not cut into lines yet.
    raw: Vec<u8>,
    /// Lines that are ready.
    ready: Vec<u8>,
    at: usize,
    clock: Clock,
    until: Option<Instant>,
    interrupted: Arc<AtomicBool>,
    end: Arc<End>,
    ended: bool,
}

impl Lines {
    pub(super) fn start(device: &Device, duration: Option<Nanos>) -> Result<(Self, Arc<End>)> {
        let interrupted = interrupt::flag()?;
        let instance = Instance::new(device)?;
        let path = instance.folder.join("trace_pipe");
        let pipe = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path);
        let pipe = pipe.with_context(|| format!("cannot open {}", path.display()))?;
        let (clock, end) = (Clock::start(), Arc::new(End::default()));
        let until = duration.map(|time| clock.now() + time);
        let (raw, ready) = (Vec::new(), Vec::new());
        let at = 0;
        let this = Self {
            pipe,
            instance,
            raw,
            ready,
            at,
            clock,
            until,
            interrupted,
            end: end.clone(),
            ended: false,
        };
        Ok((this, end))
    }
    /// Takes what the kernel has. Without more lines, the recording has ended.
    fn refill(&mut self) -> io::Result<()> {
        (self.at, self.ready) = (0, Vec::new());
        while self.ready.is_empty() && !self.ended {
            let signal = self.interrupted.load(Relaxed);
            let over = signal || self.until.is_some_and(|until| self.clock.now() >= until);
            if over || self.end.over.load(Relaxed) {
                self.end.by_signal.store(signal, Relaxed);
                self.end.lost.store(self.instance.lost(), Relaxed);
                // What is in the buffers is read, and nothing new.
                let _ = self.instance.set("tracing_on", "0");
                self.ended = true;
            }
            let mut piece = [0; 64 << 10];
            loop {
                match self.pipe.read(&mut piece) {
                    Ok(0) => break,
                    Ok(length) => self.raw.extend_from_slice(&piece[..length]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                if self.raw.len() >= 1 << 20 && !self.ended {
                    break;
                }
            }
            let whole = self.raw.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines = String::from_utf8_lossy(&self.raw[..whole]);
            self.ready.extend_from_slice(lines.as_bytes());
            self.raw.drain(..whole);
            if self.ready.is_empty() && !self.ended {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

impl Read for Lines {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.ready.len() {
            self.refill()?;
        }
        let length = (&self.ready[self.at..]).read(into)?;
        self.at += length;
        Ok(length)
    }
}

/// The requests of lines of which some may be unreadable.
pub(super) struct Readable<S> {
    pub(super) source: S,
    /// Lines that could not be read.
    pub(super) unreadable: u64,
}

impl<S: Source> Source for Readable<S> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            match self.source.next_record() {
                Err(TraceError::Content { .. }) => self.unreadable += 1,
                other => return other,
            }
        }
    }
    fn streams(&self) -> &[Stream] {
        self.source.streams()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_trace::formats;
    use iofair_trace::input::Input;

    /// Goal: a line that is no event does not end a recording. Method: lines of a kernel, among them the completion of a flush, which
    /// has no sector, a name with a line break, and a name that is not UTF-8.
    #[test]
    fn unreadable_lines_are_counted() {
        let lines = b"dd-7 [000] d..2. 1.0: block_bio_queue: 254,0 WS 2048 + 8 [my prog]\n\
            CPU:0 [LOST 12 EVENTS]\n\
            dd-7 [000] d..2. 1.1: block_bio_queue: 254,0 FWS 0 + 0 [two\nlines]\n\
            dd-7 [000] d..2. 1.1: block_bio_queue: 254,0 WS many + 8 [dd]\n\
            \xff-7 [000] d..2. 1.2: block_rq_complete: 254,0 FF () 18446744073709551615 + 0 [0]\n\
            dd-7 [000] d..2. 1.3: block_rq_complete: 254,0 WS () 2048 + 8 be,0,4 [0]\n";
        let text = String::from_utf8_lossy(lines).into_owned();
        let input = Input::new(Box::new(io::Cursor::new(text.into_bytes())), "lines").unwrap();
        let format = formats::TABLE.iter().find(|format| format.name == FORMAT).unwrap();
        let source = format.open(vec![input]).unwrap();
        let mut requests = Readable { source, unreadable: 0 };
        let mut records = Vec::new();
        while let Some(record) = requests.next_record().unwrap() {
            records.push((record.length, record.completion.is_some()));
        }
        assert_eq!((records, requests.unreadable), (vec![(4096, true)], 3));
        assert_eq!(requests.streams().len(), 1);
    }
}
