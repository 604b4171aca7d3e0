//! The output of `biosnoop` (BCC), with or without the time in the queue (`-Q`):
//!
//! ```text
//! TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  QUE(ms) LAT(ms)
//! 0.003368    AioMgr0-N      2618   nvme0n1 R 395545056  4096      0.01    4.95
//! ```
//!
//! The time is that of the completion, and lines come in this order; a request was issued when both latencies had not passed
//! yet. A process may have spaces in its name, and a request no disk, so fields are counted from the end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use iofair_core::time::{Instant, Nanos};

use super::events::letters;
use super::fields::{Fault, NO_SECTOR, bytes_of, decimal_of, number};
use super::lines::{LineFormat, LineSource, Parsed, Plain};
use crate::error::Result;
use crate::input::Input;
use crate::names::Names;
use crate::record::{Record, Stream};
use crate::source::{Notes, Source};

/// Requests that are held until no earlier one can follow.
const WINDOW: usize = 1 << 14;
/// The first requests began before the first completion, from which times count.
const BEFORE: u64 = 3_600 * 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// Whether a line is the header.
pub(super) fn is_header(line: &str) -> bool {
    let mut names = line.split_whitespace();
    names.next() == Some("TIME(s)") && names.next() == Some("COMM") && line.ends_with("LAT(ms)")
}

/// The lines, in their order.
#[derive(Default)]
struct BiosnoopLine {
    has_queue: bool,
}

impl LineFormat for BiosnoopLine {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        if is_header(line) {
            // Again for every file that was put behind the first one.
            self.has_queue = line.contains("QUE(ms)");
            return Ok(Parsed::Nothing);
        }
        parse(line, self.has_queue, names)
    }
}

/// The requests, in the order of their submission.
pub(super) struct Biosnoop {
    lines: LineSource<BiosnoopLine>,
    /// By submission, and number.
    held: BinaryHeap<Reverse<(Instant, u64)>>,
    records: BTreeMap<u64, Record>,
    number: u64,
    over: bool,
}

impl Biosnoop {
    pub(super) fn new(input: Input) -> Self {
        let lines = LineSource::new(input, BiosnoopLine::default());
        let (held, records) = (BinaryHeap::new(), BTreeMap::new());
        Self { lines, held, records, number: 0, over: false }
    }
    fn fill(&mut self) -> Result<()> {
        while !self.over && self.held.len() < WINDOW {
            let Some(record) = self.lines.next_record()? else {
                self.over = true;
                break;
            };
            self.held.push(Reverse((record.at, self.number)));
            self.records.insert(self.number, record);
            self.number += 1;
        }
        Ok(())
    }
}

fn parse(line: &str, has_queue: bool, names: &mut Names) -> Result<Parsed, Fault> {
    let mut fields: Vec<&str> = line.split_whitespace().collect();
    let mut last = |name: &str| fields.pop().ok_or_else(|| format!("the {name} is missing"));
    let millis = |name: &str, text: &str| decimal_of(name, text, MILLISECOND, "number of ms");
    let latency = millis("latency", last("latency")?)?;
    let queue =
        if has_queue { millis("time in the queue", last("time in the queue")?)? } else { 0 };
    let length = number("number of bytes", last("number of bytes")?)?;
    let sector = last("sector")?;
    let kind = last("type")?;
    // In front of it: time, process, pid, and the disk unless there is none.
    let [time, process @ .., _] = &fields[..] else { return Err("the process is missing".into()) };
    let at = decimal_of("time", time, 1_000_000_000, "number")?;
    let is_pid = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let ends_with_pid = fields.last().is_some_and(|text| is_pid(text));
    let (process, disk) = match ends_with_pid {
        true => (&fields[1..], ""),
        false => (process, fields[fields.len() - 1]),
    };
    let Some((operation, flags)) = letters(kind).filter(|_| sector != NO_SECTOR) else {
        return Ok(Parsed::Unknown);
    };
    let offset = bytes_of("sector", sector)?;
    let volume = names.volume(disk);
    let stream = names.stream(&process.join("."), volume);
    let whole = Nanos(latency.saturating_add(queue));
    let at = Nanos(at.saturating_add(BEFORE).saturating_sub(whole.0));
    let latency = Some(whole);
    Ok(Plain { at, stream, operation, offset, length, latency }.with(flags))
}

impl Source for Biosnoop {
    fn next_record(&mut self) -> Result<Option<Record>> {
        self.fill()?;
        let next = self.held.pop().and_then(|Reverse((_, number))| self.records.remove(&number));
        Ok(next)
    }
    fn streams(&self) -> &[Stream] {
        self.lines.streams()
    }
    fn notes(&self) -> Notes {
        self.lines.notes()
    }
}
