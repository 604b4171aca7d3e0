//! DiskSim's ASCII traces (DiskSim 4.0 reference manual, section 3.5), and those of MQSim, which look the same: arrival time,
//! device, first sector, sectors, flags. DiskSim's times are milliseconds, and bit 0 of its flags, in hexadecimal_of, is a read;
//! MQSim's times are nanoseconds unless its workload file says otherwise, and its last number is 1 for a read, 0 for a write.
//! Times with a fraction are DiskSim's; a file with whole numbers only may be of either.

use iofair_core::request::Operation;
use iofair_core::time::Nanos;

use super::fields::{Fault, Fields, decimal_of};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;

pub(super) struct DiskSim;
pub(super) struct MqSim;

fn request(
    at: Nanos,
    fields: &mut Fields,
    names: &mut Names,
    is_read: impl Fn(&str) -> Option<bool>,
) -> Result<Parsed, Fault> {
    let device = fields.number("device number")?.to_string();
    let offset = fields.sectors("first sector")?;
    let length = fields.sectors("number of sectors")?;
    let text = fields.text("flags")?;
    let is_read = is_read(text).ok_or_else(|| format!("flags `{text}`: bit 0 is a read"))?;
    fields.end()?;
    let operation = if is_read { Operation::Read } else { Operation::Write };
    let stream = names.volume_stream(&device);
    Ok(Plain { at, stream, operation, offset, length, latency: None }.request())
}

impl LineFormat for DiskSim {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::spaces(line);
        let text = fields.text("arrival time")?;
        let at = decimal_of("arrival time", text, MILLISECOND, "number of ms")?;
        let flags = |text: &str| u32::from_str_radix(text, 16).ok().map(|flags| flags & 1 == 1);
        request(Nanos(at), &mut fields, names, flags)
    }
}

impl LineFormat for MqSim {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::spaces(line);
        let at = fields.time("arrival time", 1)?;
        let kind = |text: &str| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        request(at, &mut fields, names, kind)
    }
}
