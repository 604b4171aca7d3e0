//! Tables: one request on a line, in columns that a header names ([`columns`](super::columns)). Columns are separated by
//! commas, tabs, semicolons, vertical bars or white space, whichever the header has first in this order; fields may be quoted.
//!
//! - *Time* and *latency*: numbers with or without a fraction. Without a unit in the name, numbers with a fraction are seconds,
//!   and whole numbers have the unit in which they are a Unix time (10 digits: s, 13: ms, 16: us, 19: ns) or a Windows file
//!   time (17 and 18 digits). Other whole numbers are refused: a wrong guess would be wrong by a factor of 1000. Latencies have
//!   the unit of the times, unless only one of the two has a fraction: then the first is refused.
//! - *Operation*: a word or its letters (`read`, `R`, `RA`, `WS`, `discard`, `flush`), or a SCSI operation (`0x2a`).
//! - *Offset* and *size*: bytes, or sectors of 512 bytes where the name says so (`lba`, `sector`).

use std::borrow::Cow;

use iofair_core::request::{Flags, Operation};
use iofair_core::time::Nanos;

use super::columns::{Columns, Layout, Unit};
use super::events::letters;
use super::fields::{Fault, decimal, decimal_of};
use super::lines::{LineFormat, Parsed, Plain};
use crate::names::Names;

/// Separators, in the order in which they are looked for; without any of them, fields are between white space.
const SEPARATORS: [char; 4] = [',', '\t', ';', '|'];
/// What programs write for a latency that is not known.
const UNKNOWN: [&str; 6] = ["", "-", "-1", "na", "nan", "null"];
/// Parts of a byte that are looked for in numbers with a fraction.
const PARTS: u64 = 1_000_000;
/// Operations as words.
const WORDS: &[(&str, Operation)] = &[
    ("read", Operation::Read),
    ("rd", Operation::Read),
    ("reada", Operation::Read),
    ("write", Operation::Write),
    ("wr", Operation::Write),
    ("trim", Operation::Discard),
    ("discard", Operation::Discard),
    ("unmap", Operation::Discard),
    ("deallocate", Operation::Discard),
    ("erase", Operation::Discard),
    ("de", Operation::Discard),
    ("flush", Operation::Flush),
    ("sync", Operation::Flush),
    ("fsync", Operation::Flush),
    ("fdatasync", Operation::Flush),
    ("datasync", Operation::Flush),
    ("zero", Operation::WriteZeroes),
    ("zeroes", Operation::WriteZeroes),
    ("write_zeroes", Operation::WriteZeroes),
    ("writezeroes", Operation::WriteZeroes),
    // SCSI: 6, 10, 12 and 16 bytes.
    ("0x08", Operation::Read),
    ("0x8", Operation::Read),
    ("0x28", Operation::Read),
    ("0xa8", Operation::Read),
    ("0x88", Operation::Read),
    ("0x0a", Operation::Write),
    ("0xa", Operation::Write),
    ("0x2a", Operation::Write),
    ("0xaa", Operation::Write),
    ("0x8a", Operation::Write),
    ("0x42", Operation::Discard),
    ("0x35", Operation::Flush),
    ("0x91", Operation::Flush),
    ("0x41", Operation::WriteZeroes),
    ("0x93", Operation::WriteZeroes),
];

/// A table whose header is read first.
#[derive(Default)]
pub(super) struct Table {
    columns: Option<Columns>,
    separator: Option<char>,
    layout: Option<Layout>,
    /// Why a column that is used cannot be told from another one.
    ambiguous: Option<Fault>,
    /// Of the times, once it is known.
    unit: Option<u64>,
    /// Whether a latency was seen that may have this unit.
    has_latency: bool,
}

/// Whether a line is the header of a table that needs no further explanation.
pub(super) fn is_header(line: &str) -> bool {
    Layout::new(&split(line, separator(line)), None).is_ok()
}

fn separator(line: &str) -> Option<char> {
    SEPARATORS.into_iter().find(|separator| line.contains(*separator))
}

/// The fields of a line, without quotes.
fn split(line: &str, separator: Option<char>) -> Vec<&str> {
    let Some(separator) = separator else { return line.split_whitespace().collect() };
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let quoted = rest.trim_start().strip_prefix('"');
        let quoted = quoted.and_then(|inside| inside.split_once('"'));
        let (field, after) = match quoted {
            Some((inside, after)) => (inside, after.split_once(separator).map(|(_, after)| after)),
            None => match rest.split_once(separator) {
                Some((field, after)) => (field.trim(), Some(after)),
                None => (rest.trim(), None),
            },
        };
        fields.push(field);
        match after {
            Some(after) => rest = after,
            None => return fields,
        }
    }
}

/// A number with a decimal comma, as tables with semicolons have it, with a point.
fn with_point(text: &str, separator: Option<char>) -> Cow<'_, str> {
    match separator == Some(';') && text.matches(',').count() == 1 && !text.contains('.') {
        true => text.replace(',', ".").into(),
        false => text.into(),
    }
}

impl Table {
    pub(super) fn new(columns: Option<Columns>) -> Self {
        Self { columns, ..Self::default() }
    }
    /// A table without a header, whose columns have these numbers.
    pub(super) fn numbered(columns: &str) -> Self {
        Self::new(Some(Columns::parse(columns).expect("columns of a format")))
    }
    /// Finds the layout in the first line; `false` if that line is a request, because there is no header.
    fn take_header(&mut self, line: &str) -> Result<bool, Fault> {
        self.separator = separator(line);
        self.layout = self.columns.as_ref().and_then(Layout::without_header);
        if self.layout.is_some() {
            return Ok(false);
        }
        let header = split(line, self.separator);
        let layout = Layout::new(&header, self.columns.as_ref())?;
        self.ambiguous = layout.check_names(&header, self.columns.as_ref()).err();
        self.layout = Some(layout);
        Ok(true)
    }
}

/// Nanoseconds of the unit of a time whose column does not name one.
fn shown_unit(text: &str) -> Result<u64, Fault> {
    match text.len() {
        _ if text.contains(['.', 'e', 'E']) => Ok(1_000_000_000),
        10 => Ok(1_000_000_000),
        13 => Ok(1_000_000),
        16 => Ok(1_000),
        17 | 18 => Ok(100),
        19 => Ok(1),
        _ => Err(format!(
            "time `{text}`: its unit is not known; put it into the name of the column, as in time_us, or name it: \
             --columns time:us=COLUMN"
        )),
    }
}

/// Refuses a latency that has a fraction where the time has none, or the other way round: a program that writes both in one
/// unit writes them alike.
fn check_latency(text: &str, time: &str) -> Result<(), Fault> {
    let has_fraction = |text: &str| text.contains(['.', 'e', 'E']);
    if has_fraction(text) == has_fraction(time) {
        return Ok(());
    }
    Err(format!(
        "latency `{text}`: its unit is not known, since it is not written like the time `{time}`; put it into the name of the \
         column, as in latency_us, or name it: --columns latency:us=COLUMN"
    ))
}

/// Reads or writes, and so on; `None` for a request whose operation is not known.
fn operation(text: &str, unit: Unit) -> Result<Option<(Operation, Flags)>, Fault> {
    if let (Unit::Read(read), "0" | "1") = (unit, text) {
        let is_read = text == read.to_string();
        let operation = if is_read { Operation::Read } else { Operation::Write };
        return Ok(Some((operation, Flags::NONE)));
    }
    let lower = text.to_ascii_lowercase();
    if let Unit::Read(read) = unit
        && let Some(is_one) = [("true", 1), ("false", 0)].iter().find(|(word, _)| *word == lower)
    {
        let operation = if is_one.1 == read { Operation::Read } else { Operation::Write };
        return Ok(Some((operation, Flags::NONE)));
    }
    if lower.is_empty() {
        return Ok(None);
    }
    if let Some((_, operation)) = WORDS.iter().find(|(word, _)| *word == lower) {
        return Ok(Some((*operation, Flags::NONE)));
    }
    let is_letters = text.len() <= 6
        && lower.bytes().all(|letter| b"rwdfnsmaz".contains(&letter))
        && lower.bytes().filter(|letter| b"rwd".contains(letter)).count() <= 1;
    if let Some(known) = Some(text.to_ascii_uppercase()).filter(|_| is_letters)
        && let Some(found) = letters(&known)
    {
        return Ok(Some(found));
    }
    let hint = match text {
        "0" | "1" => "; say which number is a read: --columns op:read0=COLUMN or op:read1=COLUMN",
        _ => ": allowed are read, write, trim, flush, zeroes, or R, W, D, F",
    };
    Err(format!("operation `{text}`{hint}"))
}

/// A number of bytes, from one of blocks; hexadecimal with `0x`.
fn bytes(name: &str, text: &str, unit: u64) -> Result<u64, Fault> {
    let hexadecimal = text.strip_prefix("0x").filter(|digits| {
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    });
    let Some(digits) = hexadecimal else {
        let bytes = decimal_of(name, text, unit, "number of bytes or sectors")?;
        let is_whole = |parts: u64| parts.is_multiple_of(PARTS);
        let parts = unit.checked_mul(PARTS).and_then(|parts| decimal(text, parts));
        let has_parts = text.contains(['.', 'e', 'E']) && !parts.is_none_or(is_whole);
        return match has_parts {
            true => Err(format!("{name} `{text}`: not a whole number of bytes")),
            false => Ok(bytes),
        };
    };
    let number = u64::from_str_radix(digits, 16).ok().and_then(|count| count.checked_mul(unit));
    number.ok_or_else(|| format!("{name} `{text}`: too large"))
}

impl LineFormat for Table {
    fn parse(&mut self, line: &str, names: &mut Names) -> Result<Parsed, Fault> {
        if self.layout.is_none() && self.take_header(line)? {
            return Ok(Parsed::Nothing);
        }
        if let Some(fault) = &self.ambiguous {
            return Err(fault.clone());
        }
        let layout = self.layout.as_ref().expect("it was just found");
        let mut fields = split(line, self.separator);
        if let Some(count) = layout.count {
            // A separator behind the last field.
            if fields.len() == count + 1 && fields.last() == Some(&"") {
                fields.pop();
            }
            if fields.len() != count {
                return Err(format!("{} fields; the header has {count}", fields.len()));
            }
        }
        let field = |name: &str, index: usize| {
            fields.get(index).copied().ok_or_else(|| format!("the {name} is missing"))
        };
        let time =
            |name: &str, text: &str, unit: u64| decimal_of(name, text, unit, "number").map(Nanos);
        let text = &*with_point(field("time", layout.time.0)?, self.separator);
        let unit = match (layout.time.1, self.unit) {
            (Unit::Time(nanos), _) | (_, Some(nanos)) => nanos,
            _ => *self.unit.insert(shown_unit(text)?),
        };
        let at = time("time", text, unit)?;
        let latency = match layout.latency {
            None => None,
            Some((index, unit_of)) => {
                let latency = &*with_point(field("latency", index)?, self.separator);
                let unit = if let Unit::Time(nanos) = unit_of { nanos } else { unit };
                let is_known = !UNKNOWN.contains(&latency.to_ascii_lowercase().as_str());
                let known = is_known.then(|| time("latency", latency, unit)).transpose()?;
                let is_guess = unit_of == Unit::Usual && self.unit.is_some();
                // A latency of 0 is 0 in any unit.
                let is_above_zero =
                    is_known && latency.contains(|digit| ('1'..='9').contains(&digit));
                if is_guess && is_above_zero && !self.has_latency {
                    check_latency(latency, text)?;
                    self.has_latency = true;
                }
                known
            }
        };
        let found = operation(field("operation", layout.operation.0)?, layout.operation.1)?;
        let Some((operation, flags)) = found else { return Ok(Parsed::Unknown) };
        let (offset, length) = match operation {
            Operation::Flush => (0, 0),
            _ => (
                bytes("offset", field("offset", layout.offset.0)?, layout.offset.1)?,
                bytes("size", field("size", layout.size.0)?, layout.size.1)?,
            ),
        };
        let name = |indices: &[usize]| {
            let parts = indices.iter().map(|index| field("name", *index));
            Ok::<_, Fault>(parts.collect::<Result<Vec<_>, _>>()?.join("."))
        };
        let (volume, process) = (name(&layout.volume)?, name(&layout.stream)?);
        let volume_number = names.volume(&volume);
        let stream = match (process.is_empty(), volume.is_empty()) {
            (true, true) => names.stream("table", volume_number),
            (true, false) => names.stream(&volume, volume_number),
            (false, _) => names.stream(&process, volume_number),
        };
        Ok(Plain { at, stream, operation, offset, length, latency }.with(flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: fields are those of the line, quoted or not. Method: by hand.
    #[test]
    fn lines_are_split() {
        assert_eq!(split("a, \"b,c\" ,,d", Some(',')), ["a", "b,c", "", "d"]);
        assert_eq!(split("a\t b \t", Some('\t')), ["a", "b", ""]);
        assert_eq!(split("a  b\tc", None), ["a", "b", "c"]);
        assert_eq!(split("\"open", Some(',')), ["\"open"]);
    }

    /// Goal: operations are read as what they are, and numbers only if somebody says what they are. Method: words, letters,
    /// numbers.
    #[test]
    fn operations_are_known() {
        let of = |text: &str| operation(text, Unit::Usual).map(|kind| kind.map(|(known, _)| known));
        for (text, wanted) in [
            ("R", Operation::Read),
            ("Read", Operation::Read),
            ("WS", Operation::Write),
            ("FWFS", Operation::Write),
            ("FNS", Operation::Flush),
            ("TRIM", Operation::Discard),
            ("DS", Operation::Discard),
            ("0x2A", Operation::Write),
            ("flush", Operation::Flush),
            ("WZ", Operation::WriteZeroes),
            ("READA", Operation::Read),
            ("erase", Operation::Discard),
            ("DE", Operation::Discard),
        ] {
            assert_eq!(of(text), Ok(Some(wanted)), "{text}");
        }
        assert_eq!(of(""), Ok(None));
        assert!(of("1").unwrap_err().contains("op:read0=COLUMN"));
        for text in ["open", "free", "AREAD", "SREAD", "reads", "RWF", "draw"] {
            let wanted = format!("operation `{text}`: allowed are read, write");
            assert!(of(text).unwrap_err().starts_with(&wanted), "{text}");
        }
        let read0 = |text: &str| operation(text, Unit::Read(0)).unwrap().unwrap().0;
        assert_eq!([read0("0"), read0("true")], [Operation::Read, Operation::Write]);
    }
}
