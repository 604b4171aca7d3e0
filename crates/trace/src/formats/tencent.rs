//! Tencent cloud block storage (SNIA parallel traces 28064): `Timestamp,Offset,Size,IOType,VolumeID`, in seconds since 1970
//! and sectors of 512 bytes; type 0 is a read, 1 a write. Times are whole seconds, so requests of a second arrive together.

use iofair_core::request::Operation;

use super::fields::{Fault, Fields};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

pub(super) struct Tencent;

impl LineFormat for Tencent {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::commas(line);
        let at = fields.seconds("timestamp")?;
        let (offset, length) = (fields.sectors("offset")?, fields.sectors("size")?);
        let operation = match fields.text("type")? {
            "0" => Operation::Read,
            "1" => Operation::Write,
            other => return Err(format!("type `{other}`: 0 is a read and 1 a write")),
        };
        let volume = fields.text("volume id")?;
        fields.end()?;
        let stream = names.volume_stream(volume);
        Ok(Plain { at, stream, operation, offset, length, latency: None }.request())
    }
}
