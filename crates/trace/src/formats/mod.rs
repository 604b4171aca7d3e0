//! The formats of others. [`TABLE`] has a row for each; a reader is one file and its row.

mod alibaba;
mod blkparse;
mod blktrace;
mod events;
mod fields;
mod fiu;
mod iolog;
mod lines;
mod msr;
mod spc;
mod systor;
mod tencent;

use crate::error::{Place, Result, TraceError};
use crate::input::Input;
use crate::read::Reader;
use crate::source::Source;

/// A source of requests that owns what it needs.
pub type Boxed = Box<dyn Source + Send>;

/// A format.
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// What tells its streams apart.
    pub streams: &'static str,
    /// Whether a file that begins like this has the format.
    recognises: fn(&[u8]) -> bool,
    /// Opens the files of one trace. Only `blktrace` takes several.
    open: fn(Vec<Input>) -> Result<Boxed>,
    /// Whether several files are one trace, rather than a trace each.
    pub together: bool,
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

fn one(inputs: Vec<Input>) -> Input {
    inputs.into_iter().next().expect("a trace has a file")
}

/// The first line of a text; empty if the beginning of the file is no text.
fn first_line(head: &[u8]) -> &str {
    let line = head.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    std::str::from_utf8(line.unwrap_or_default()).unwrap_or_default().trim()
}

/// All formats, ours first.
pub const TABLE: &[Format] = &[
    Format {
        name: "iofair",
        summary: "what `iofair record` writes",
        streams: "volume",
        recognises: |head| head.starts_with(&crate::block::MAGIC),
        open: |inputs| {
            let input = one(inputs);
            let file = input.file.clone();
            Ok(Box::new(Reader::new(input, &file)?))
        },
        together: false,
    },
    Format {
        name: "msr",
        summary: "MSR Cambridge, CSV: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
        streams: "host.disk",
        recognises: |head| lines::accepts(&mut msr::Msr, first_line(head)),
        open: |inputs| Ok(Box::new(lines::LineSource::new(one(inputs), msr::Msr))),
        together: false,
    },
    Format {
        name: "alibaba",
        summary: "Alibaba block traces of 2020, CSV: device_id,opcode,offset,length,timestamp",
        streams: "device",
        recognises: |head| lines::accepts(&mut alibaba::Alibaba, first_line(head)),
        open: |inputs| Ok(Box::new(lines::LineSource::new(one(inputs), alibaba::Alibaba))),
        together: false,
    },
    Format {
        name: "tencent",
        summary: "Tencent block storage, CSV: Timestamp,Offset,Size,IOType,VolumeID",
        streams: "volume",
        recognises: |head| lines::accepts(&mut tencent::Tencent, first_line(head)),
        open: |inputs| Ok(Box::new(lines::LineSource::new(one(inputs), tencent::Tencent))),
        together: false,
    },
    Format {
        name: "fiu",
        summary: "FIU: time, pid, process, block, blocks, W or R, major, minor, md5",
        streams: "process.pid",
        recognises: |head| lines::accepts(&mut fiu::Fiu, first_line(head)),
        open: |inputs| Ok(Box::new(lines::LineSource::new(one(inputs), fiu::Fiu))),
        together: false,
    },
    Format {
        name: "spc",
        summary: "SPC (UMass Financial, WebSearch), CSV: ASU,LBA,Size,Opcode,Timestamp",
        streams: "application storage unit",
        recognises: |head| lines::accepts(&mut spc::Spc, first_line(head)),
        open: |inputs| Ok(Box::new(lines::LineSource::new(one(inputs), spc::Spc))),
        together: false,
    },
    Format {
        name: "systor",
        summary: "SYSTOR '17, CSV: Timestamp,Response,IOType,LUN,Offset,Size",
        streams: "LUN",
        recognises: systor::recognises,
        open: |inputs| Ok(Box::new(lines::LineSource::new(one(inputs), systor::Systor))),
        together: false,
    },
    Format {
        name: "iolog",
        summary: "fio's iolog, versions 2 and 3",
        streams: "file",
        recognises: |head| first_line(head).starts_with("fio version "),
        open: |inputs| Ok(Box::new(lines::LineSource::new(one(inputs), iolog::Iolog::default()))),
        together: false,
    },
    Format {
        name: "blkparse",
        summary: "the text of blkparse, in its default layout",
        streams: "process.pid",
        recognises: |head| blkparse::recognises(first_line(head)),
        open: |inputs| Ok(Box::new(blkparse::Blkparse::new(one(inputs)))),
        together: false,
    },
    Format {
        name: "blktrace",
        summary: "blktrace's binary files, all of a device (DEVICE.blktrace.0 and so on) together",
        streams: "process.pid",
        recognises: blktrace::recognises,
        open: |inputs| Ok(Box::new(blktrace::Blktrace::new(inputs)?)),
        together: true,
    },
];

/// The format of this name.
pub fn find(name: &str) -> Option<&'static Format> {
    TABLE.iter().find(|format| format.name == name)
}

/// The format of a file, by its beginning.
pub fn recognise(input: &Input) -> Result<&'static Format> {
    let mut fits = TABLE.iter().filter(|format| (format.recognises)(input.head()));
    let place = Place::Whole;
    let names: Vec<&str> = TABLE.iter().map(|format| format.name).collect();
    let names = names.join(", ");
    let Some(first) = fits.next() else {
        let what = match input.head() {
            [] => "the file is empty".to_owned(),
            _ => format!("the format was not recognised; name it: {names}"),
        };
        return Err(TraceError::content(&input.file, place, what));
    };
    match fits.next() {
        None => Ok(first),
        Some(second) => {
            let what = format!("this may be {} or {}; name it", first.name, second.name);
            Err(TraceError::content(&input.file, place, what))
        }
    }
}
