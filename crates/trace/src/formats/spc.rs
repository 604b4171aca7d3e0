//! SPC trace format, revision 1.0.1 (UMass Financial and WebSearch): `ASU,LBA,Size,Opcode,Timestamp`, with the address in
//! blocks of 512 bytes, the size in bytes, and the time in seconds since the start. Further fields are allowed.

use super::fields::{Fault, Fields};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

pub(super) struct Spc;

impl LineFormat for Spc {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::commas(line);
        let unit = fields.number("application storage unit")?;
        let offset = fields.sectors("address")?;
        let length = fields.number("size")?;
        let operation = fields.direction("opcode")?;
        let at = fields.seconds("timestamp")?;
        let stream = names.volume_stream(&unit.to_string());
        Ok(Plain { at, stream, operation, offset, length, latency: None }.request())
    }
}
