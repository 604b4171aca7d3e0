//! MSR Cambridge (Narayanan et al., FAST 2008; SNIA block I/O traces 387):
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. Times are Windows file times, in units of 100 ns; offset
//! and size are in bytes.

use super::fields::{Fault, Fields};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

const TICK: u64 = 100;

pub(super) struct Msr;

impl LineFormat for Msr {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::commas(line);
        let at = fields.time("timestamp", TICK)?;
        let host = fields.text("host name")?;
        let disk = fields.number("disk number")?;
        let operation = fields.direction("type")?;
        let (offset, length) = (fields.number("offset")?, fields.number("size")?);
        let latency = Some(fields.time("response time", TICK)?);
        fields.end()?;
        let stream = names.volume_stream(&format!("{host}.{disk}"));
        Ok(Plain { at, stream, operation, offset, length, latency }.request())
    }
}
