//! SYSTOR '17 (Lee et al., storage traffic of a virtual desktop service):
//! `Timestamp,Response,IOType,LUN,Offset,Size`, in seconds and bytes, after a line with these words. A response time may be
//! missing, and so may the type of a request whose response was not seen.

use super::fields::{Fault, Fields, direction, seconds_of};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

pub(super) struct Systor;

impl LineFormat for Systor {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::commas(line);
        let at = fields.seconds("timestamp")?;
        let latency = match fields.optional().unwrap_or_default() {
            "" => None,
            text => Some(seconds_of("response", text)?),
        };
        let operation = match fields.optional().unwrap_or_default() {
            "" => None,
            text => Some(direction("type", text)?),
        };
        let unit = fields.text("LUN")?;
        let (offset, length) = (fields.number("offset")?, fields.number("size")?);
        fields.end()?;
        let Some(operation) = operation else { return Ok(Parsed::Unknown) };
        let stream = names.volume_stream(unit);
        Ok(Plain { at, stream, operation, offset, length, latency }.request())
    }
}
