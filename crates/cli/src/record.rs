//! `iofair record`: the requests of a running server, as a trace.
//!
//! The server keeps a few megabytes; this program takes them a few times a second, decodes them, and writes the file. So
//! the server needs no access to files, and the bound on the disk is here. With `--device`, it records the requests of a block
//! device instead ([`device`]).

mod device;

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::{BinarySize, Count, parse_bytes, parse_time};
use iofair_serve::Clock;
use iofair_serve::control::client::{Address, Call};
use iofair_trace::anonymise::Anonymiser;
use iofair_trace::formats;
use iofair_trace::input::Input;
use iofair_trace::read::{DROPPED, Reader};
use iofair_trace::write::Writer;
use iofair_trace::{Metadata, Source};
use serde::Serialize;

use crate::ctl::address::{Place, object, respond};
use crate::failure::{Usage, check_places};
use crate::interrupt;
use crate::output::Output;
use device::{Device, Lines, Readable};

/// Between two calls that found little.
const PAUSE: Duration = Duration::from_millis(100);
/// A piece of this length means that more is waiting.
const FULL: usize = 256 << 10;

/// Arguments of `iofair record`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair record monday.trace                            until Ctrl-C
  iofair record monday.trace --duration 60s
  iofair record monday.trace --size 10GiB               the recording ends when the file has this size
  iofair record shared.trace --anonymise --duration 1h  for others: without names and places
  iofair record monday.trace --socket /run/iofair/control.sock
  iofair record disk.trace --device /dev/nvme0n1         the requests of a block device of this machine, as root
  iofair-lab replay monday.trace                            how well the simulator agrees with it

The trace has the time, group, volume, operation, place on the drive, length, flags and latency of each request, and the
contracts; never data. See docs/record.md.")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// File to write. An existing file is refused.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Record for this long, such as 60s; by default until Ctrl-C.
    #[arg(long, value_parser = parse_time)]
    duration: Option<Nanos>,
    /// End when the file has this size.
    #[arg(long, default_value = "1GiB", value_parser = parse_bytes)]
    size: u64,
    /// Hide which parts of the drive were used, by a permutation of its extents of 16 MiB under a random key that is not kept,
    /// and replace names by numbers. Order and distance inside an extent stay.
    #[arg(long)]
    anonymise: bool,
    /// Record the requests of this block device instead of a server's, by the kernel's tracepoints; needs root. Processes
    /// take the place of volumes.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["socket", "contracts"])]
    device: Option<PathBuf>,
}

/// What was recorded.
#[derive(Serialize)]
struct Recorded {
    file: PathBuf,
    requests: u64,
    dropped: u64,
    /// Lines of the kernel that could not be read.
    unreadable: u64,
    streams: usize,
    bytes: u64,
    seconds: f64,
    ended: &'static str,
}

/// The trace as the server gives it, piece by piece.
struct Live {
    address: Address,
    path: String,
    buffer: Vec<u8>,
    at: usize,
    /// Bytes so far.
    taken: u64,
    ended: Option<&'static str>,
    clock: Clock,
    until: Option<Instant>,
    interrupted: Arc<AtomicBool>,
}

impl Live {
    fn start(args: &Args) -> Result<Self> {
        let interrupted = interrupt::flag()?;
        let address = args.place.find()?;
        let body = serde_json::json!({});
        let call = Call::new("POST", "/v1/recordings").body(body);
        let begun = object(&address, &call, "recording")?;
        let name = begun["recording"].as_str().unwrap_or_default().to_owned();
        let clock = Clock::start();
        let until = args.duration.map(|time| clock.now() + time);
        let path = format!("/v1/recordings/{name}");
        let buffer = Vec::new();
        Ok(Self { address, path, buffer, at: 0, taken: 0, ended: None, clock, until, interrupted })
    }
    /// Takes the next piece; the last one when it is time.
    fn refill(&mut self) -> Result<()> {
        self.at = 0;
        loop {
            let why = match self.until {
                _ if self.interrupted.load(Relaxed) => Some("by a signal"),
                Some(until) if self.clock.now() >= until => Some("after the duration"),
                _ => None,
            };
            let method = if why.is_some() { "DELETE" } else { "GET" };
            let path = format!("{}?from={}", self.path, self.taken);
            self.buffer = respond(&self.address, &Call::new(method, &path))?.body;
            self.taken += self.buffer.len() as u64;
            self.ended = self.ended.or(why);
            if why.is_some() || !self.buffer.is_empty() {
                if why.is_none() && self.buffer.len() < FULL {
                    std::thread::sleep(PAUSE);
                }
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// A recording that cannot be written, on a full disk for example, does not wait for the server's 60 s.
impl Drop for Live {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let path = format!("{}?from={}", self.path, self.taken);
            let _ = respond(&self.address, &Call::new("DELETE", &path));
        }
    }
}

impl Read for Live {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.buffer.len() {
            if self.ended.is_some() {
                return Ok(0);
            }
            self.refill().map_err(|error| io::Error::other(format!("{error:#}")))?;
        }
        let length = (&self.buffer[self.at..]).read(into)?;
        self.at += length;
        Ok(length)
    }
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    check_places([&args.file], [])?;
    let name = args.file.display().to_string();
    if args.file.as_os_str() == "-" {
        let message = "a trace goes to a file, not to standard output; ./- is a file of that name";
        return Err(Usage(message.into()).into());
    }
    // It tells who did what and when, so it is for its owner unless the owner says otherwise.
    let file = File::options().write(true).create_new(true).mode(0o600).open(&args.file);
    let file =
        file.with_context(|| format!("cannot create {name}; allowed: the name of a new file"))?;
    let result = match &args.device {
        Some(path) => record_device(args, file, &name, path),
        None => record_server(args, file, &name),
    };
    let Ok(recorded) = result else {
        if !holds_requests(&args.file) {
            // Nothing was recorded, so the name stays free.
            let _ = std::fs::remove_file(&args.file);
        }
        return result.map(|_| ExitCode::SUCCESS);
    };
    output.print(&recorded, || {
        let Recorded { requests, dropped, unreadable, streams, bytes, seconds, ended, .. } =
            &recorded;
        let each = *bytes as f64 / (*requests).max(1) as f64;
        let unreadable = match unreadable {
            0 => String::new(),
            lines => format!("{} of the kernel unreadable, ", Count(*lines, "line")),
        };
        format!(
            "{name}: {} of {} in {seconds:.1} s, {dropped} dropped, {unreadable}{} ({each:.1} bytes \
             a request); ended {ended}\n",
            Count(*requests, "request"),
            match args.device {
                Some(_) if *streams == 1 => "1 process".to_string(),
                Some(_) => format!("{streams} processes"),
                None => Count(*streams, "volume").to_string(),
            },
            BinarySize(*bytes)
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a trace has a request that can be read.
fn holds_requests(path: &Path) -> bool {
    let reader = File::open(path).ok().and_then(|file| Reader::new(file, "").ok());
    reader.is_some_and(|mut reader| matches!(reader.next_record(), Ok(Some(_))))
}

/// The file of a trace, and what messages call it.
struct Target<'a> {
    file: File,
    name: &'a str,
}

/// How a recording ended.
struct End {
    streams: usize,
    dropped: u64,
    /// Why.
    ended: &'static str,
}

/// Copies a trace, without names and places if that is wanted. `full`: called once when the file has its size.
fn copy<S: Source>(
    args: &Args,
    mut metadata: Metadata,
    source: &mut S,
    target: Target<'_>,
    full: impl Fn(&mut S),
) -> Result<(Writer<BufWriter<File>>, Option<&'static str>)> {
    let Target { file, name } = target;
    let mut anonymiser = match args.anonymise {
        true => Some(anonymiser(&mut metadata)?),
        false => None,
    };
    let mut writer = Writer::new(BufWriter::new(file), name, &metadata)?;
    let mut streams = 0;
    let mut ended = None;
    while let Some(record) = source.next_record()? {
        for stream in &source.streams()[streams..] {
            let stream = match &mut anonymiser {
                Some(anonymiser) => anonymiser.stream(stream),
                None => stream.clone(),
            };
            let added = writer.add_stream(&stream);
            added.ok_or_else(|| anyhow!("{name}: too many volumes"))?;
        }
        streams = source.streams().len();
        let record = anonymiser.as_ref().map_or(record, |anonymiser| anonymiser.record(record));
        writer.push(&record)?;
        if ended.is_none() && writer.bytes() >= args.size {
            full(source);
            ended = Some("at the size limit");
        }
    }
    Ok((writer, ended))
}
/// Ends a trace.
fn finish(
    args: &Args,
    writer: Writer<BufWriter<File>>,
    clock: &Clock,
    end: End,
) -> Result<Recorded> {
    let End { streams, dropped, ended } = end;
    let mut writer = writer;
    writer.drop_requests(dropped);
    let (requests, _) = writer.counts();
    writer.finish()?;
    let bytes = std::fs::metadata(&args.file)?.len();
    let (file, seconds) = (args.file.clone(), clock.now().0 as f64 / 1e9);
    Ok(Recorded { file, requests, dropped, unreadable: 0, streams, bytes, seconds, ended })
}

fn record_server(args: &Args, file: File, name: &str) -> Result<Recorded> {
    let clock = Clock::start();
    let mut reader = Reader::new(Live::start(args)?, "the server's recording")?;
    let metadata = reader.metadata();
    // The rest of what the server has is read, so that the trace is whole up to here.
    let full = |reader: &mut Reader<Live>| reader.get_mut().until = Some(Instant::ZERO);
    let (writer, ended) = copy(args, metadata, &mut reader, Target { file, name }, full)?;
    let ended = ended.or(reader.get_mut().ended).unwrap_or("by the server");
    let dropped = reader.notes().count_of(DROPPED);
    finish(args, writer, &clock, End { streams: reader.streams().len(), dropped, ended })
}

fn record_device(args: &Args, file: File, name: &str, path: &Path) -> Result<Recorded> {
    let clock = Clock::start();
    let device = Device::open(path)?;
    let (lines, end) = Lines::start(&device, args.duration)?;
    let format = formats::TABLE.iter().find(|format| format.name == device::FORMAT);
    let format = format.expect("the table has it");
    let shown = device.path.display().to_string();
    let source = format.open(vec![Input::new(Box::new(lines), &shown)?])?;
    let mut events = Readable { source, unreadable: 0 };
    let (writer, full) =
        copy(args, device.metadata(), &mut events, Target { file, name }, |_| end.request())?;
    let ended = full.unwrap_or_else(|| end.why());
    let end = End { streams: events.streams().len(), dropped: end.lost(), ended };
    let recorded = finish(args, writer, &clock, end)?;
    Ok(Recorded { unreadable: events.unreadable, ..recorded })
}

/// Takes names out of the metadata, and prepares to do so with the rest.
fn anonymiser(metadata: &mut Metadata) -> Result<Anonymiser> {
    let mut bytes = [0; 32];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    random.context("/dev/urandom")?;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let key = [word(0), word(8), word(16), word(24)];
    let capacity = metadata.value(Metadata::CAPACITY).and_then(|text| text.parse().ok());
    let mut anonymiser = Anonymiser::new(key, capacity.unwrap_or(u64::MAX));
    if let Some(text) = metadata.value(Metadata::CONTRACTS) {
        let mut contracts: toml::Table = text.parse().context("the recorded contracts")?;
        let groups = contracts.get_mut("group").and_then(toml::Value::as_array_mut);
        for group in groups.into_iter().flatten() {
            if let Some(toml::Value::String(name)) = group.get_mut("name") {
                *name = anonymiser.group(name);
            }
        }
        metadata.set(Metadata::CONTRACTS, toml::to_string(&contracts)?);
    }
    metadata.set(Metadata::ANONYMOUS, "yes");
    Ok(anonymiser)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iofair_core::request::{Flags, Operation};
    use iofair_trace::{Record, Stream};

    /// Goal: a recording that ended before its first request leaves the name free, and one with requests stays. Method: the file
    /// of a writer before and after a request.
    #[test]
    fn a_trace_without_requests_holds_none() {
        let path = std::env::temp_dir().join(format!("iofair-holds-{}", std::process::id()));
        let writer = || Writer::new(File::create(&path).unwrap(), "t", &Metadata::default());
        drop(writer().unwrap());
        assert!(path.metadata().unwrap().len() > 0 && !holds_requests(&path));
        let mut writer = writer().unwrap();
        writer.add_stream(&Stream::default()).unwrap();
        let (at, operation, flags) = (Instant::ZERO, Operation::Read, Flags::NONE);
        let (stream, offset, length, completion) = (0, 0, 4096, None);
        writer.push(&Record { at, stream, operation, flags, offset, length, completion }).unwrap();
        writer.finish().unwrap();
        assert!(holds_requests(&path));
        std::fs::remove_file(path).unwrap();
    }
}
