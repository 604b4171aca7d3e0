//! SYSTOR '17 (Lee et al., storage traffic of a virtual desktop service):
//! `Timestamp,Response,IOType,LUN,Offset,Size`, in seconds and bytes, after a line with these words. A response time may be
//! missing.

use super::fields::{Fault, Fields, seconds};
use super::lines::{LineFormat, Parsed, Plain, accepts};
use crate::names::Names;

pub(super) struct Systor;

pub(super) fn recognises(head: &[u8]) -> bool {
    let line = super::first_line(head);
    line.starts_with("Timestamp,Response,IOType,LUN") || accepts(&mut Systor, line)
}

impl LineFormat for Systor {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::commas(line);
        let at = fields.seconds("timestamp")?;
        let latency = match fields.optional().unwrap_or_default() {
            "" => None,
            text => match seconds(text) {
                None => return Err(format!("response `{text}`: not a number of seconds")),
                known => known,
            },
        };
        let operation = fields.direction("type")?;
        let unit = fields.text("LUN")?;
        let (offset, length) = (fields.number("offset")?, fields.number("size")?);
        fields.end()?;
        let stream = names.volume_stream(unit);
        Ok(Plain { at, stream, operation, offset, length, latency }.request())
    }
}
