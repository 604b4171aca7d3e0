//! DiskSim's ASCII traces (DiskSim 4.0 reference manual, section 3.5), and those of MQSim, which look the same: arrival time,
//! device, first sector, sectors, flags. DiskSim's times are milliseconds, and bit 0 of its flags, in hexadecimal, is a read;
//! MQSim's times are nanoseconds unless its workload file says otherwise, and its last number is 1 for a read, 0 for a write.
//! Times with a fraction are DiskSim's; a file with whole numbers only may be of either.

use iofair_core::request::Operation;
use iofair_core::time::Nanos;

use super::fields::{Fault, Fields, decimal_of};
use super::lines::{self, LineFormat, Parsed, Plain};
use crate::names::Names;

/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;

pub(super) struct DiskSim;
pub(super) struct MqSim;

/// The last field of a format.
struct LastField {
    /// Whether it says that the request is a read.
    is_read: fn(&str) -> Option<bool>,
    /// What is allowed there, in words.
    allowed: &'static str,
}

fn request(
    at: Nanos,
    fields: &mut Fields,
    names: &mut Names,
    last: &LastField,
) -> Result<Parsed, Fault> {
    let device = fields.number("device number")?.to_string();
    let offset = fields.sectors("first sector")?;
    let length = fields.sectors("number of sectors")?;
    let text = fields.text("flags")?;
    let wrong = || format!("flags `{text}`: allowed are {}", last.allowed);
    let is_read = (last.is_read)(text).ok_or_else(wrong)?;
    fields.end()?;
    let operation = if is_read { Operation::Read } else { Operation::Write };
    let stream = names.volume_stream(&device);
    Ok(Plain { at, stream, operation, offset, length, latency: None }.request())
}

/// Whether a line looks like one of DiskSim's: of whole numbers only, it looks like one of MQSim's, too, or it is something else.
pub(super) fn is_disksim(line: &str) -> bool {
    let time = line.split_whitespace().next().unwrap_or_default();
    lines::accepts(&mut DiskSim, line) && (time.contains('.') || lines::accepts(&mut MqSim, line))
}

impl LineFormat for DiskSim {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::spaces(line);
        let text = fields.text("arrival time")?;
        let at = decimal_of("arrival time", text, MILLISECOND, "number of ms")?;
        let is_read = |text: &str| {
            let digits = Some(text).filter(|text| !text.starts_with('+'))?;
            u32::from_str_radix(digits, 16).ok().map(|flags| flags & 1 == 1)
        };
        let allowed = "hexadecimal numbers, with bit 0 for a read";
        request(Nanos(at), &mut fields, names, &LastField { is_read, allowed })
    }
}

impl LineFormat for MqSim {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        let mut fields = Fields::spaces(line);
        let at = fields.time("arrival time", 1)?;
        let is_read = |text: &str| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        let allowed = "0 for a write, 1 for a read";
        request(at, &mut fields, names, &LastField { is_read, allowed })
    }
}
