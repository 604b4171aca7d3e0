//! The binary files of `blktrace`, one a processor. Records have 48 bytes and data behind them:
//!
//! ```text
//! magic u32 (0x65617400 + version 7), sequence u32, time u64 (ns), sector u64, bytes u32, action u32, pid u32,
//! device u32 (major << 20 | minor), processor u32, error u16, length of the data u16
//! ```
//!
//! in the byte order of the machine that wrote them. The lower half of the action is its kind, the upper half are bits
//! for the operation. The names of processes are in notifications.

use std::collections::BTreeMap;
use std::io::Read;

use iofair_core::request::{Flags, Operation};
use iofair_core::time::Instant;

use super::events::{Action, Event, Requests};
use crate::error::{Place, Result, TraceError};
use crate::input::Input;
use crate::names::Names;
use crate::record::{Record, Stream};
use crate::source::{Notes, STREAMS_MAX, Source};

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD: usize = 48;

const KIND: u32 = 0xffff;
const QUEUED: u32 = 1;
const ISSUED: u32 = 7;
const COMPLETED: u32 = 8;
const INSERTED: u32 = 12;
/// A notification of this kind has a process' name.
const PROCESS: u32 = 0;

const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const SYNC: u32 = 1 << 19;
const NOTIFY: u32 = 1 << 26;
const AHEAD: u32 = 1 << 27;
const METADATA: u32 = 1 << 28;
const DISCARD: u32 = 1 << 29;
const FUA: u32 = 1 << 31;

pub(super) fn recognises(head: &[u8]) -> bool {
    let Some(first) = head.first_chunk::<4>() else { return false };
    let words = [u32::from_le_bytes(*first), u32::from_be_bytes(*first)];
    words.iter().any(|word| word & !0xff == MAGIC)
}

/// A record as it is in the file.
#[derive(Clone, Copy)]
struct Raw {
    at: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    pid: u32,
    device: u32,
    error: u16,
}

/// One of the files, with its next record of interest.
struct File {
    input: Input,
    position: u64,
    big_endian: bool,
    next: Option<Raw>,
    torn: bool,
}

impl File {
    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::content(&self.input.file, Place::Byte(self.position), what)
    }
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut length = 0;
        while length < into.len() {
            let more = self.input.read(&mut into[length..]);
            match more.map_err(TraceError::io(&self.input.file))? {
                0 => break,
                more => length += more,
            }
        }
        Ok(length)
    }
    /// Goes on to the next record that is about a request.
    fn advance(&mut self, processes: &mut BTreeMap<u32, String>) -> Result<()> {
        loop {
            self.next = None;
            let mut bytes = [0; RECORD];
            match self.read(&mut bytes)? {
                0 => return Ok(()),
                RECORD => {}
                _ => {
                    self.torn = true;
                    return Ok(());
                }
            }
            let magic = self.word(&bytes, 0);
            if magic & !0xff != MAGIC {
                return Err(self.wrong(format!("a record begins with {magic:#x}, not {MAGIC:#x}")));
            }
            if magic & 0xff != VERSION {
                let version = magic & 0xff;
                return Err(self.wrong(format!("version {version}; {VERSION} is supported")));
            }
            let last = self.word(&bytes, 44);
            // Two halves, in the order of the machine.
            let (error, data) = match self.big_endian {
                false => (last as u16, (last >> 16) as u16),
                true => ((last >> 16) as u16, last as u16),
            };
            let raw = Raw {
                at: self.double(&bytes, 8),
                sector: self.double(&bytes, 16),
                bytes: self.word(&bytes, 24),
                action: self.word(&bytes, 28),
                pid: self.word(&bytes, 32),
                device: self.word(&bytes, 36),
                error,
            };
            let mut payload = vec![0; usize::from(data)];
            if self.read(&mut payload)? < payload.len() {
                self.torn = true;
                return Ok(());
            }
            self.position += (RECORD + payload.len()) as u64;
            if raw.action & NOTIFY != 0 {
                if raw.action & KIND == PROCESS && processes.len() < STREAMS_MAX {
                    let name = payload.split(|byte| *byte == 0).next().unwrap_or_default();
                    processes.insert(raw.pid, String::from_utf8_lossy(name).into_owned());
                }
                continue;
            }
            if matches!(raw.action & KIND, QUEUED | ISSUED | COMPLETED | INSERTED) {
                self.next = Some(raw);
                return Ok(());
            }
        }
    }
    fn word(&self, bytes: &[u8; RECORD], at: usize) -> u32 {
        let four = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    }
    fn double(&self, bytes: &[u8; RECORD], at: usize) -> u64 {
        let halves = [self.word(bytes, at), self.word(bytes, at + 4)].map(u64::from);
        let [low, high] = if self.big_endian { [halves[1], halves[0]] } else { halves };
        high << 32 | low
    }
}

/// The files of a trace.
pub(super) struct Blktrace {
    files: Vec<File>,
    processes: BTreeMap<u32, String>,
    names: Names,
    requests: Requests,
}

impl Blktrace {
    pub(super) fn new(inputs: Vec<Input>) -> Result<Self> {
        let mut processes = BTreeMap::new();
        let mut files = Vec::new();
        for input in inputs {
            let big_endian = input.head().starts_with(&[0x65, 0x61, 0x74]);
            let mut file = File { input, position: 0, big_endian, next: None, torn: false };
            file.advance(&mut processes)?;
            if file.torn && file.next.is_none() && file.position == 0 {
                let what = "the file was cut off in its first record; it is needed whole";
                return Err(file.wrong(format!("{what}: a record has {RECORD} bytes or more")));
            }
            files.push(file);
        }
        let (names, requests) = (Names::default(), Requests::new());
        Ok(Self { files, processes, names, requests })
    }
    /// The next event of all files; `None` at the end of all.
    fn next_event(&mut self) -> Result<Option<Event>> {
        loop {
            let ahead = self.files.iter_mut().filter(|file| file.next.is_some());
            let first = ahead.min_by_key(|file| file.next.map(|raw| raw.at));
            let Some(file) = first else { return Ok(None) };
            let raw = file.next.expect("it was filtered");
            file.advance(&mut self.processes)?;
            if let Some(event) = self.event(raw) {
                return Ok(Some(event));
            }
        }
    }
    fn event(&mut self, raw: Raw) -> Option<Event> {
        let Raw { at, sector, bytes, action, pid, device, error } = raw;
        let has = |bit| action & bit != 0;
        let operation = if has(DISCARD) {
            Operation::Discard
        } else if has(FLUSH) && bytes == 0 {
            Operation::Flush
        } else if has(WRITE) {
            Operation::Write
        } else if has(READ) {
            Operation::Read
        } else {
            return None;
        };
        let mut flags = Flags::NONE;
        let bits = [(FUA, Flags::FUA), (SYNC, Flags::SYNC), (METADATA, Flags::METADATA)];
        for (bit, flag) in bits.into_iter().chain([(AHEAD, Flags::READ_AHEAD)]) {
            flags = if has(bit) { flags.with(flag) } else { flags };
        }
        let action = match action & KIND {
            QUEUED => Action::Queued,
            INSERTED => Action::Inserted,
            ISSUED => Action::Issued,
            _ => Action::Completed { failed: error != 0 },
        };
        let volume = self.names.volume(&format!("{},{}", device >> 20, device & 0xf_ffff));
        let stream = match action {
            Action::Completed { .. } => 0,
            _ => {
                let process = self.processes.get(&pid).map_or("", String::as_str);
                self.names.stream(&format!("{process}.{pid}"), volume)
            }
        };
        let (at, offset, length) = (Instant(at), sector.saturating_mul(512), u64::from(bytes));
        Some(Event { at, action, operation, flags, offset, length, volume, stream })
    }
}

impl Source for Blktrace {
    fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(record) = self.requests.pop() {
                return Ok(Some(record));
            }
            match self.next_event()? {
                Some(event) => self.requests.take(&event),
                None => return Ok(self.requests.pop_anyway()),
            }
        }
    }
    fn streams(&self) -> &[Stream] {
        &self.names.streams
    }
    fn notes(&self) -> Notes {
        let mut notes = self.requests.notes().clone();
        self.names.note(&mut notes);
        let torn = self.files.iter().filter(|file| file.torn).count();
        notes.add("files that end in the middle of a record", torn as u64);
        notes
    }
}
