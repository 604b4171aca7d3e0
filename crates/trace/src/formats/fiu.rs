//! FIU (Koller and Rangaswami, FAST 2010): `time pid process block blocks W|R major minor md5`, in nanoseconds and blocks of
//! 512 bytes, with white space between the fields. The hash of the content has no use here.

use iofair_core::time::Nanos;

use super::fields::{Fault, Fields};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

pub(super) struct Fiu;

impl LineFormat for Fiu {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::spaces(line);
        let at = Nanos(fields.number("time")?);
        let pid = fields.number("pid")?;
        let process = fields.text("process")?;
        let (offset, length) = (fields.sectors("block")?, fields.sectors("number of blocks")?);
        let operation = fields.direction("direction")?;
        let (major, minor) = (fields.number("major number")?, fields.number("minor number")?);
        let volume = names.volume(&format!("{major},{minor}"));
        let stream = names.stream(&format!("{process}.{pid}"), volume);
        Ok(Plain { at, stream, operation, offset, length, latency: None }.request())
    }
}
