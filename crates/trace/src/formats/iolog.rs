//! fio's iolog, versions 2 and 3 (fio's manual, "trace file format"). Each file is a volume and a stream. Version 3 has a
//! time in microseconds before each line; version 2 has `wait` lines instead, which are relative to the `wait` before, so
//! without any of them all requests have the same time.

use iofair_core::request::Operation;
use iofair_core::time::Nanos;

use super::fields::{Fault, Fields};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

const MICROSECOND: u64 = 1_000;

#[derive(Default)]
pub(super) struct Iolog {
    /// Known after the first line.
    version: Option<u8>,
    /// Of version 2: the sum of all waits.
    waited: Nanos,
}

impl LineFormat for Iolog {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        // Again at the beginning of every file that was put behind the first one.
        if line.starts_with("fio version ") || self.version.is_none() {
            self.version = Some(match line {
                "fio version 2 iolog" => 2,
                "fio version 3 iolog" => 3,
                _ => return Err("the first line must be `fio version 2 iolog`, or 3".into()),
            });
            return Ok(Parsed::Nothing);
        }
        let version = self.version.expect("it was just known");
        let mut fields = Fields::spaces(line);
        let at = match version {
            3 => fields.time("time", MICROSECOND)?,
            _ => self.waited,
        };
        let file = fields.text("file")?;
        let action = fields.text("action")?;
        let operation = match action {
            "add" | "open" | "close" => {
                fields.end()?;
                return Ok(Parsed::Nothing);
            }
            "wait" if version == 2 => {
                let wait = fields.time("time to wait", MICROSECOND)?;
                let sum = self.waited.0.checked_add(wait.0);
                self.waited = Nanos(sum.ok_or("the waits are longer than 584 years")?);
                return Ok(Parsed::Nothing);
            }
            "wait" => return Err("action `wait`: version 3 has none".into()),
            "read" => Operation::Read,
            "write" => Operation::Write,
            "trim" => Operation::Discard,
            "sync" | "datasync" | "sync_file_range" => Operation::Flush,
            other => {
                let allowed = "add, open, close, read, write, sync, datasync, trim, wait";
                return Err(format!("action `{other}`: allowed are {allowed}"));
            }
        };
        let (offset, length) = match operation {
            Operation::Flush => (0, 0),
            _ => {
                let range = (fields.number("offset")?, fields.number("length")?);
                fields.end()?;
                range
            }
        };
        let stream = names.volume_stream(file);
        Ok(Plain { at, stream, operation, offset, length, latency: None }.request())
    }
}
