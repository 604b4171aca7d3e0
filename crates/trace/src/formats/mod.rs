//! The formats of others. [`TABLE`] has a row for each; a reader is one file and its row.

mod alibaba;
mod biosnoop;
mod blkparse;
mod blktrace;
mod columns;
mod disksim;
mod events;
mod fields;
mod fiu;
mod head;
mod iolog;
mod lines;
mod msr;
mod spc;
mod systor;
mod table;
mod tencent;
mod tracepoints;

use crate::block::MAGIC;
use crate::compression;
use crate::error::{Place, Result, TraceError};
use crate::input::{CUT_LINE, Input};
use crate::read::Reader;
use crate::source::Source;
use blkparse::EventLines;
use head::{Head, is_same, is_words};
use lines::LineSource;

pub use columns::Columns;

/// A source of requests that owns what it needs.
pub(crate) type Boxed = Box<dyn Source + Send>;

/// A format.
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// The field that distinguishes its streams.
    pub streams: &'static str,
    recognises: Recognises,
    /// Opens the files of one trace. Only `blktrace` takes several.
    open: fn(Vec<Input>) -> Result<Boxed>,
    /// Whether several files are one trace, rather than a trace each.
    pub together: bool,
}

/// How a file is recognised.
enum Recognises {
    /// By its first bytes.
    Bytes(fn(&[u8]) -> bool),
    /// By its first line of content, or by one of the lines of words before the requests.
    FirstLine(fn(&str) -> bool),
    /// By the names in its header, which are those of the collection; or by its first line that is a request of any format.
    Line {
        /// Empty for a format that has none.
        header: &'static str,
        accepts: fn(&str) -> bool,
    },
    /// By a header with names that say what the columns are.
    Header(fn(&str) -> bool),
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Format {
    /// Opens a trace of this format.
    pub fn open(&self, inputs: Vec<Input>) -> Result<Boxed> {
        (self.open)(inputs)
    }
}

fn only(inputs: Vec<Input>) -> Input {
    inputs.into_iter().next().expect("a trace has a file")
}

/// Longest line of which one field is looked for that is none of a format.
const LINE_MAX: usize = 256;
/// The columns of a collection that has no header and nothing of its own. Its times are Unix times with a fraction.
const K5CLOUD: &str = "volume=1,time:s=2,op=3,offset=4,size=5";

/// All formats, ours first.
pub const TABLE: &[Format] = &[
    Format {
        name: "iofair",
        summary: "what `iofair record` writes",
        streams: "volume",
        recognises: Recognises::Bytes(|head| {
            head.starts_with(&MAGIC) || (head.len() > 1 && MAGIC.starts_with(head))
        }),
        open: |inputs| {
            let input = only(inputs);
            let file = input.file.clone();
            Ok(Box::new(Reader::new(input, &file)?.alone()))
        },
        together: false,
    },
    Format {
        name: "msr",
        summary: "MSR Cambridge, CSV: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
        streams: "host.disk",
        recognises: Recognises::Line {
            header: "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
            accepts: |line| lines::accepts(&mut msr::Msr, line),
        },
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), msr::Msr))),
        together: false,
    },
    Format {
        name: "alibaba",
        summary: "Alibaba block traces of 2020, CSV: device_id,opcode,offset,length,timestamp",
        streams: "device",
        recognises: Recognises::Line {
            header: "device_id,opcode,offset,length,timestamp",
            accepts: |line| lines::accepts(&mut alibaba::Alibaba, line),
        },
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), alibaba::Alibaba))),
        together: false,
    },
    Format {
        name: "tencent",
        summary: "Tencent block storage, CSV: Timestamp,Offset,Size,IOType,VolumeID",
        streams: "volume",
        recognises: Recognises::Line {
            header: "Timestamp,Offset,Size,IOType,VolumeID",
            accepts: |line| lines::accepts(&mut tencent::Tencent, line),
        },
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), tencent::Tencent))),
        together: false,
    },
    Format {
        name: "fiu",
        summary: "FIU: time, pid, process, block, blocks, W or R, major, minor, md5",
        streams: "process.pid",
        recognises: Recognises::Line {
            header: "",
            accepts: |line| lines::accepts(&mut fiu::Fiu, line),
        },
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), fiu::Fiu))),
        together: false,
    },
    Format {
        name: "spc",
        summary: "SPC (UMass Financial, WebSearch), CSV: ASU,LBA,Size,Opcode,Timestamp",
        streams: "application storage unit",
        recognises: Recognises::Line {
            header: "ASU,LBA,Size,Opcode,Timestamp",
            accepts: |line| lines::accepts(&mut spc::Spc, line),
        },
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), spc::Spc))),
        together: false,
    },
    Format {
        name: "systor",
        summary: "SYSTOR '17, CSV: Timestamp,Response,IOType,LUN,Offset,Size",
        streams: "LUN",
        recognises: Recognises::Line {
            header: "Timestamp,Response,IOType,LUN,Offset,Size",
            accepts: |line| lines::accepts(&mut systor::Systor, line),
        },
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), systor::Systor))),
        together: false,
    },
    Format {
        name: "k5cloud",
        summary: "Fujitsu K5, CSV: ID,Timestamp,Type,Offset,Length",
        streams: "volume",
        recognises: Recognises::Line {
            header: "ID,Timestamp,Type,Offset,Length",
            accepts: |line| {
                line.matches(',').count() == 4
                    && lines::accepts(&mut table::Table::numbered(K5CLOUD), line)
            },
        },
        open: |inputs| {
            let table = table::Table::numbered(K5CLOUD);
            Ok(Box::new(LineSource::new(only(inputs), table)))
        },
        together: false,
    },
    Format {
        name: "iolog",
        summary: "fio's iolog, versions 2 and 3",
        streams: "file",
        recognises: Recognises::FirstLine(|line| line.starts_with("fio version ")),
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), iolog::Iolog::default()))),
        together: false,
    },
    Format {
        name: "blkparse",
        summary: "the text of blkparse, in its default layout",
        streams: "process.pid",
        recognises: Recognises::Line { header: "", accepts: blkparse::accepts },
        open: |inputs| Ok(Box::new(EventLines::new(only(inputs), blkparse::LAYOUT))),
        together: false,
    },
    Format {
        name: "tracepoints",
        summary: "the kernel's block tracepoints as text: trace_pipe, trace-cmd report, perf script",
        streams: "process.pid",
        recognises: Recognises::Line { header: "", accepts: tracepoints::LAYOUT.is_event },
        open: |inputs| Ok(Box::new(EventLines::new(only(inputs), tracepoints::LAYOUT))),
        together: false,
    },
    Format {
        name: "blktrace",
        summary: "blktrace's binary files, all of a device (DEVICE.blktrace.0 and so on) together",
        streams: "process.pid",
        recognises: Recognises::Bytes(blktrace::recognises),
        open: |inputs| Ok(Box::new(blktrace::Blktrace::new(inputs)?)),
        together: true,
    },
    Format {
        name: "biosnoop",
        summary: "the output of biosnoop (BCC), with its header",
        streams: "process.pid",
        recognises: Recognises::FirstLine(biosnoop::is_header),
        open: |inputs| Ok(Box::new(biosnoop::Biosnoop::new(only(inputs)))),
        together: false,
    },
    Format {
        name: "disksim",
        summary: "DiskSim's ASCII traces: time in ms, device, sector, sectors, flags",
        streams: "device",
        recognises: Recognises::Line { header: "", accepts: disksim::is_disksim },
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), disksim::DiskSim))),
        together: false,
    },
    Format {
        name: "mqsim",
        summary: "MQSim's traces: time in ns, device, sector, sectors, 0 for a write or 1 for a read",
        streams: "device",
        recognises: Recognises::Line {
            header: "",
            accepts: |line| lines::accepts(&mut disksim::MqSim, line),
        },
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), disksim::MqSim))),
        together: false,
    },
    Format {
        name: "csv",
        summary: "a table with a header: time, operation, offset, size; latency, volume, process if it has them",
        streams: "process or volume",
        recognises: Recognises::Header(table::is_header),
        open: |inputs| Ok(Box::new(LineSource::new(only(inputs), table::Table::default()))),
        together: false,
    },
];

/// The format of this name.
pub fn find(name: &str) -> Option<&'static Format> {
    TABLE.iter().find(|format| format.name == name)
}

/// The format of tables.
pub(crate) fn table() -> &'static Format {
    find("csv").expect("the table has it")
}

/// Opens a table whose columns are known.
pub(crate) fn open_table(inputs: Vec<Input>, columns: &Columns) -> Boxed {
    Box::new(LineSource::new(only(inputs), table::Table::new(Some(columns.clone()))))
}

/// Refuses a file by its first bytes, as they are before it is decompressed.
pub(crate) fn check_head(head: &[u8], file: &str) -> Result<()> {
    if compression::compression(head).is_some() {
        return Ok(());
    }
    recognise(&Input::new(Box::new(std::io::Cursor::new(head.to_vec())), file)?).map(|_| ())
}

/// The format of a file, by its beginning.
pub fn recognise(input: &Input) -> Result<&'static Format> {
    if let Some(container) = compression::container(input.head()) {
        let what = format!("this is {container}");
        return Err(TraceError::content(&input.file, Place::Whole, what));
    }
    let head = Head::new(input.head());
    let fits = fitting(&head);
    if let [format] = fits[..] {
        return Ok(format);
    }
    let nearest = if fits.is_empty() { nearest(&head) } else { Vec::new() };
    let names =
        |formats: &[&Format]| -> Vec<&str> { formats.iter().map(|format| format.name).collect() };
    let all: Vec<&Format> = TABLE.iter().collect();
    let what = match &fits[..] {
        [] if input.head().is_empty() => "the file is empty".to_owned(),
        [] if !nearest.is_empty() => format!("{}; --format names it", nearest.join("; ")),
        [] => format!(
            "the format was not recognised; --format names it: {}. --columns names the columns of a table",
            names(&all).join(", ")
        ),
        several => {
            format!("this may be {}; --format names it", names(several).join(" or "))
        }
    };
    let (place, what) = match head.shown().filter(|_| !input.head().contains(&0)) {
        Some((number, line)) => {
            let cut = if head.is_cut() { CUT_LINE } else { "" };
            (Place::Line(number), format!("{what}; the line is {line}{cut}"))
        }
        None => (Place::Whole, what),
    };
    Err(TraceError::content(&input.file, place, what))
}

/// The formats that a file may have.
fn fitting(head: &Head) -> Vec<&'static Format> {
    let of = |fits: &dyn Fn(&Recognises) -> bool| -> Vec<&'static Format> {
        TABLE.iter().filter(|format| fits(&format.recognises)).collect()
    };
    let found = of(&|how| match how {
        Recognises::Bytes(begins) => begins(head.bytes),
        Recognises::FirstLine(accepts) => head.lines().take(1).chain(head.words()).any(accepts),
        _ => false,
    });
    if !found.is_empty() {
        return found;
    }
    for words in head.words() {
        let own = of(&|how| match how {
            Recognises::Line { header, .. } => !header.is_empty() && is_same(header, words),
            _ => false,
        });
        // A collection's own header means its own units.
        let general = of(&|how| matches!(how, Recognises::Header(is_header) if is_header(words)));
        if let Some(found) = [own, general].into_iter().find(|found| !found.is_empty()) {
            return found;
        }
    }
    let mut lines = head.lines().map(|line| (line, by_line(line)));
    match lines.find(|(_, found)| !found.is_empty()) {
        Some((line, found)) if !has_other_header(head, line) => found,
        _ => Vec::new(),
    }
}

/// The formats that accept a line as a request.
fn by_line(line: &str) -> Vec<&'static Format> {
    let accepted =
        |how: &Recognises| matches!(how, Recognises::Line { accepts, .. } if accepts(line));
    TABLE.iter().filter(|format| accepted(&format.recognises)).collect()
}

/// What is wrong with the first line that has a number, to each format that would accept it if one field were a number or a read.
fn nearest(head: &Head) -> Vec<String> {
    let mut found: Vec<&Format> = Vec::new();
    let line = head.lines().find(|line| !is_words(line)).filter(|line| line.len() <= LINE_MAX);
    let Some(line) = line.filter(|line| !has_other_header(head, line)) else { return Vec::new() };
    let words = line.split_whitespace().collect::<Vec<&str>>();
    let is_good = |field: &str| field.bytes().all(|byte| byte.is_ascii_digit());
    for (separator, fields) in [(",", line.split(',').collect()), (" ", words)] {
        for at in (0..fields.len()).filter(|at| !is_good(fields[*at])) {
            for field in ["0", "1.5", "R"] {
                let mended = [&fields[..at], &[field], &fields[at + 1..]].concat();
                found.extend(by_line(&mended.join(separator)));
            }
        }
    }
    found.sort_by_key(|format| format.name);
    found.dedup_by_key(|format| format.name);
    found.into_iter().filter_map(|format| fault(format, line)).collect()
}

/// What a format says of a line.
fn fault(format: &Format, line: &str) -> Option<String> {
    let raw = Box::new(std::io::Cursor::new(line.to_owned()));
    let error = format.open(vec![Input::new(raw, "").ok()?]).ok()?.next_record().err()?;
    let TraceError::Content { what, .. } = error else { return None };
    let what = what.split("; the line is ").next().unwrap_or(&what);
    Some(format!("as {}, {what}", format.name))
}

/// Whether a line of names, as many as this line has fields, is above it: its columns are not those of a collection, whatever
/// their values look like. Only formats with commas between all fields have so many.
fn has_other_header(head: &Head, line: &str) -> bool {
    let commas = |line: &str| line.matches(',').count();
    let mut before = head.lines().take_while(|above| *above != line);
    commas(line) > 1 && before.any(|above| is_words(above) && commas(above) == commas(line))
}
