//! Alibaba block traces (2020): `device_id,opcode,offset,length,timestamp`, in bytes and microseconds.

use super::fields::{Fault, Fields};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

pub(super) struct Alibaba;

impl LineFormat for Alibaba {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::commas(line);
        let device = fields.text("device id")?;
        let operation = fields.direction("opcode")?;
        let (offset, length) = (fields.number("offset")?, fields.number("length")?);
        let at = fields.time("timestamp", 1_000)?;
        fields.end()?;
        let stream = names.volume_stream(device);
        Ok(Plain { at, stream, operation, offset, length, latency: None }.request())
    }
}
