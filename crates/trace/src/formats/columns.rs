//! What the columns of a table are: by their names, or as `--columns` says.
//!
//! A name is compared without case and punctuation. It may end with a unit: `time_us`, `TIME(s)`, `Latency [ms]`,
//! `offset_sectors`.

use std::fmt;

use super::fields::Fault;

/// What a column has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    Time,
    Operation,
    Offset,
    Size,
    Latency,
    /// The volume, or a part of its name.
    Volume,
    /// The process, or a part of its name.
    Stream,
}

/// What a number in a column counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// The unit of the field's numbers if the header does not name it. A time then has to show it.
    Usual,
    /// Nanoseconds.
    Time(u64),
    /// Bytes.
    Length(u64),
    /// Of operations: the number of a read; the other one of 0 and 1 is a write.
    Read(u8),
}

const SECOND: u64 = 1_000_000_000;
const SECTOR: u64 = 512;

/// Fields by the names that files, programs and collections give them.
const NAMES: &[(&str, Field, Unit)] = &[
    ("time", Field::Time, Unit::Usual),
    ("timestamp", Field::Time, Unit::Usual),
    ("ts", Field::Time, Unit::Usual),
    ("arrival", Field::Time, Unit::Usual),
    ("arrivaltime", Field::Time, Unit::Usual),
    ("arrivetime", Field::Time, Unit::Usual),
    ("starttime", Field::Time, Unit::Usual),
    ("issuetime", Field::Time, Unit::Usual),
    ("submittime", Field::Time, Unit::Usual),
    ("requesttime", Field::Time, Unit::Usual),
    ("unixtime", Field::Time, Unit::Usual),
    ("op", Field::Operation, Unit::Usual),
    ("operation", Field::Operation, Unit::Usual),
    ("opcode", Field::Operation, Unit::Usual),
    ("optype", Field::Operation, Unit::Usual),
    ("type", Field::Operation, Unit::Usual),
    ("iotype", Field::Operation, Unit::Usual),
    ("requesttype", Field::Operation, Unit::Usual),
    ("rw", Field::Operation, Unit::Usual),
    ("rwbs", Field::Operation, Unit::Usual),
    ("readwrite", Field::Operation, Unit::Usual),
    ("direction", Field::Operation, Unit::Usual),
    ("cmd", Field::Operation, Unit::Usual),
    ("command", Field::Operation, Unit::Usual),
    ("t", Field::Operation, Unit::Usual),
    ("isread", Field::Operation, Unit::Read(1)),
    ("iswrite", Field::Operation, Unit::Read(0)),
    ("offset", Field::Offset, Unit::Length(1)),
    ("byteoffset", Field::Offset, Unit::Length(1)),
    ("fileoffset", Field::Offset, Unit::Length(1)),
    ("address", Field::Offset, Unit::Length(1)),
    ("addr", Field::Offset, Unit::Length(1)),
    ("lba", Field::Offset, Unit::Length(SECTOR)),
    ("lbn", Field::Offset, Unit::Length(SECTOR)),
    ("slba", Field::Offset, Unit::Length(SECTOR)),
    ("startlba", Field::Offset, Unit::Length(SECTOR)),
    ("sector", Field::Offset, Unit::Length(SECTOR)),
    ("startsector", Field::Offset, Unit::Length(SECTOR)),
    ("size", Field::Size, Unit::Length(1)),
    ("iosize", Field::Size, Unit::Length(1)),
    ("requestiosize", Field::Size, Unit::Length(1)),
    ("requestsize", Field::Size, Unit::Length(1)),
    ("length", Field::Size, Unit::Length(1)),
    ("len", Field::Size, Unit::Length(1)),
    ("bytes", Field::Size, Unit::Length(1)),
    ("nbytes", Field::Size, Unit::Length(1)),
    ("sectors", Field::Size, Unit::Length(SECTOR)),
    ("nsectors", Field::Size, Unit::Length(SECTOR)),
    ("nrsector", Field::Size, Unit::Length(SECTOR)),
    ("nrsectors", Field::Size, Unit::Length(SECTOR)),
    ("numsectors", Field::Size, Unit::Length(SECTOR)),
    ("sectorcount", Field::Size, Unit::Length(SECTOR)),
    ("latency", Field::Latency, Unit::Usual),
    ("lat", Field::Latency, Unit::Usual),
    ("response", Field::Latency, Unit::Usual),
    ("responsetime", Field::Latency, Unit::Usual),
    ("servicetime", Field::Latency, Unit::Usual),
    ("elapsed", Field::Latency, Unit::Usual),
    ("elapsedtime", Field::Latency, Unit::Usual),
    ("duration", Field::Latency, Unit::Usual),
    ("host", Field::Volume, Unit::Usual),
    ("hostname", Field::Volume, Unit::Usual),
    ("vm", Field::Volume, Unit::Usual),
    ("vmid", Field::Volume, Unit::Usual),
    ("device", Field::Volume, Unit::Usual),
    ("deviceid", Field::Volume, Unit::Usual),
    ("dev", Field::Volume, Unit::Usual),
    ("disk", Field::Volume, Unit::Usual),
    ("diskid", Field::Volume, Unit::Usual),
    ("disknumber", Field::Volume, Unit::Usual),
    ("disknum", Field::Volume, Unit::Usual),
    ("volume", Field::Volume, Unit::Usual),
    ("volumeid", Field::Volume, Unit::Usual),
    ("lun", Field::Volume, Unit::Usual),
    ("asu", Field::Volume, Unit::Usual),
    ("process", Field::Stream, Unit::Usual),
    ("processname", Field::Stream, Unit::Usual),
    ("comm", Field::Stream, Unit::Usual),
    ("pid", Field::Stream, Unit::Usual),
    ("client", Field::Stream, Unit::Usual),
    ("tenant", Field::Stream, Unit::Usual),
    ("stream", Field::Stream, Unit::Usual),
];

/// Fields by their names in `--columns`.
const FIELDS: &[(&str, Field)] = &[
    ("time", Field::Time),
    ("op", Field::Operation),
    ("offset", Field::Offset),
    ("size", Field::Size),
    ("latency", Field::Latency),
    ("volume", Field::Volume),
    ("stream", Field::Stream),
];

/// Units by their names, longer ones first where one ends with another.
const UNITS: &[(&str, Unit)] = &[
    ("nsec", Unit::Time(1)),
    ("usec", Unit::Time(1_000)),
    ("msec", Unit::Time(1_000_000)),
    ("seconds", Unit::Time(SECOND)),
    ("secs", Unit::Time(SECOND)),
    ("sec", Unit::Time(SECOND)),
    ("ns", Unit::Time(1)),
    ("us", Unit::Time(1_000)),
    ("µs", Unit::Time(1_000)),
    ("ms", Unit::Time(1_000_000)),
    ("s", Unit::Time(SECOND)),
    ("filetime", Unit::Time(100)),
    ("bytes", Unit::Length(1)),
    ("byte", Unit::Length(1)),
    ("b", Unit::Length(1)),
    ("kib", Unit::Length(1024)),
    ("kb", Unit::Length(1024)),
    ("sectors", Unit::Length(SECTOR)),
    ("sector", Unit::Length(SECTOR)),
    ("read0", Unit::Read(0)),
    ("read1", Unit::Read(1)),
];
/// Longest block that offsets and sizes may count.
const BLOCK_MAX: u64 = 1 << 20;

/// A column of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// By its name in the header.
    Name(String),
    /// By its number, from 0.
    Number(usize),
}

/// What columns are, as a user writes it: `time:us=ts,op=kind,offset:sectors=3`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    written: String,
    list: Vec<(Field, Unit, Place)>,
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// Whether numbers of a field can have a unit.
fn fits(field: Field, unit: Unit) -> bool {
    match unit {
        Unit::Usual => true,
        Unit::Time(_) => matches!(field, Field::Time | Field::Latency),
        Unit::Length(_) => matches!(field, Field::Offset | Field::Size),
        Unit::Read(_) => field == Field::Operation,
    }
}

impl Columns {
    /// Reads `FIELD[:UNIT]=COLUMN,...`, where a column is a name or a number from 1.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut list = Vec::new();
        for part in text.split(',') {
            let (field, column) = part.split_once('=').ok_or_else(|| {
                format!("`{part}`: write FIELD[:UNIT]=COLUMN, as in time:us=timestamp,op=3")
            })?;
            let (name, unit) = field.split_once(':').unwrap_or((field, ""));
            let field = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
            let field = field.ok_or_else(|| {
                let known: Vec<&str> = FIELDS.iter().map(|(known, _)| *known).collect();
                format!("no field `{name}`; there are: {}", known.join(", "))
            })?;
            let unit = match unit {
                "" => Unit::Usual,
                unit => parse_unit(field, unit)?,
            };
            let place = match column.parse::<usize>() {
                Ok(0) => return Err("columns count from 1".into()),
                Ok(number) => Place::Number(number - 1),
                Err(_) => Place::Name(column.to_owned()),
            };
            list.push((field, unit, place));
        }
        Ok(Self { written: text.to_owned(), list })
    }
    fn by_number(&self) -> bool {
        self.list.iter().all(|(_, _, place)| matches!(place, Place::Number(_)))
    }
}

fn parse_unit(field: Field, text: &str) -> Result<Unit, String> {
    let known = UNITS.iter().find(|(name, unit)| *name == text && fits(field, *unit));
    let block = || text.parse().ok().filter(|bytes| (1..=BLOCK_MAX).contains(bytes));
    let block = block().map(Unit::Length).filter(|unit| fits(field, *unit));
    known.map(|(_, unit)| *unit).or(block).ok_or_else(|| {
        let allowed = match field {
            Field::Time | Field::Latency => "s, ms, us, ns, filetime (100 ns)",
            Field::Offset | Field::Size => "bytes, sectors, kib, or a number of bytes",
            Field::Operation => "read0 (0 is a read, 1 a write), read1 (1 is a read, 0 a write)",
            Field::Volume | Field::Stream => "none",
        };
        format!("unit `{text}`: allowed are {allowed}")
    })
}

/// Where each field of a line is, and what its numbers count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) time: (usize, Unit),
    pub(super) operation: (usize, Unit),
    /// With bytes a unit.
    pub(super) offset: (usize, u64),
    pub(super) size: (usize, u64),
    pub(super) latency: Option<(usize, Unit)>,
    pub(super) volume: Vec<usize>,
    pub(super) stream: Vec<usize>,
    /// Columns of the header; `None` without one.
    pub(super) count: Option<usize>,
}

impl Layout {
    /// The layout of a table without a header, where all columns were given by their numbers.
    pub(super) fn without_header(columns: &Columns) -> Option<Self> {
        let columns = Some(columns).filter(|columns| columns.by_number())?;
        Self::new(&[], Some(columns)).ok()
    }
    /// The layout of a table by its header, where `columns` has precedence.
    pub(super) fn new(header: &[&str], columns: Option<&Columns>) -> Result<Self, Fault> {
        let mut found: Vec<(Field, Unit, usize)> = Vec::new();
        for (field, unit, place) in columns.iter().flat_map(|columns| &columns.list) {
            let index = match place {
                Place::Number(index) => *index,
                Place::Name(name) => {
                    let index = header.iter().position(|known| known == name);
                    let known = || header.join(", ");
                    index.ok_or_else(|| format!("no column `{name}`; there are: {}", known()))?
                }
            };
            // The unit in the column's name counts if none is written.
            let named = header.get(index).and_then(|name| meaning(name));
            let unit = match (unit, named) {
                (Unit::Usual, Some((_, unit))) if fits(*field, unit) => unit,
                (unit, _) => *unit,
            };
            found.push((*field, unit, index));
        }
        let written: Vec<Field> = found.iter().map(|(field, _, _)| *field).collect();
        for (index, name) in header.iter().enumerate() {
            let Some((field, unit)) = meaning(name) else { continue };
            let is_name = matches!(field, Field::Volume | Field::Stream);
            let has = |(known, _, place): &(Field, Unit, usize)| {
                *place == index || (*known == field && !is_name)
            };
            if !written.contains(&field) && !found.iter().any(has) {
                found.push((field, unit, index));
            }
        }
        let one = |wanted: Field| found.iter().find(|(field, _, _)| *field == wanted);
        let must = |field: Field, name: &str| {
            let missing = || format!("no column has the {name}; name it with --columns");
            one(field).map(|(_, unit, index)| (*index, *unit)).ok_or_else(missing)
        };
        let names = |wanted: Field| {
            let wanted = found.iter().filter(|column| column.0 == wanted);
            wanted.map(|column| column.2).collect::<Vec<usize>>()
        };
        let bytes = |(index, unit)| match unit {
            Unit::Length(bytes) => (index, bytes),
            _ => (index, 1),
        };
        Ok(Self {
            time: must(Field::Time, "time")?,
            operation: must(Field::Operation, "operation")?,
            offset: bytes(must(Field::Offset, "offset")?),
            size: bytes(must(Field::Size, "size")?),
            latency: one(Field::Latency).map(|(_, unit, index)| (*index, *unit)),
            volume: names(Field::Volume),
            stream: names(Field::Stream),
            count: (!header.is_empty()).then_some(header.len()),
        })
    }
    /// Refuses a column that is used and has the name of another one, unless `columns` chose it.
    pub(super) fn check_names(
        &self,
        header: &[&str],
        columns: Option<&Columns>,
    ) -> Result<(), Fault> {
        let used = [
            ("time", self.time.0),
            ("op", self.operation.0),
            ("offset", self.offset.0),
            ("size", self.size.0),
        ];
        let latency = self.latency.map(|(index, _)| ("latency", index));
        let volumes = self.volume.iter().map(|index| ("volume", *index));
        let streams = self.stream.iter().map(|index| ("stream", *index));
        for (field, index) in used.into_iter().chain(latency).chain(volumes).chain(streams) {
            let Some(name) = header.get(index) else { continue };
            let is_chosen = |place: &Place| match place {
                Place::Number(number) => *number == index,
                Place::Name(chosen) => {
                    chosen == name && header.iter().filter(|other| *other == name).count() == 1
                }
            };
            let same = header.iter().filter(|other| plain(other) == plain(name)).count();
            let mut places = columns.iter().flat_map(|columns| &columns.list);
            if same > 1 && !places.any(|(_, _, place)| is_chosen(place)) {
                return Err(format!(
                    "{same} columns are called `{name}`: choose one by its number, as in --columns {field}={}",
                    index + 1
                ));
            }
        }
        Ok(())
    }
}

/// A name without case and punctuation.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// What a column with this name has, and its unit.
fn meaning(name: &str) -> Option<(Field, Unit)> {
    let known = |base: &str| NAMES.iter().find(|(known, _, _)| *known == base);
    let whole = plain(name);
    if let Some((_, field, unit)) = known(&whole) {
        return Some((*field, *unit));
    }
    let (base, unit) = match name.trim_end().strip_suffix([')', ']']) {
        Some(inside) => inside.rsplit_once(['(', '['])?,
        None => name.trim_end().rsplit_once(['_', ' ', '-', '.', '/'])?,
    };
    let unit = plain(unit);
    let (_, unit) = UNITS.iter().find(|(known, _)| *known == unit)?;
    let (_, field, _) = known(&plain(base))?;
    fits(*field, *unit).then_some((*field, *unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names that collections and programs use are understood, with their units, and others are not. Method: a list.
    #[test]
    fn names_have_meanings() {
        for (name, field, unit) in [
            ("Timestamp", Field::Time, Unit::Usual),
            ("time_us", Field::Time, Unit::Time(1_000)),
            ("TIME(s)", Field::Time, Unit::Time(SECOND)),
            ("start_time_ns", Field::Time, Unit::Time(1)),
            ("arrival time [ms]", Field::Time, Unit::Time(1_000_000)),
            ("IOType", Field::Operation, Unit::Usual),
            ("is_write", Field::Operation, Unit::Read(0)),
            ("T", Field::Operation, Unit::Usual),
            ("SECTOR", Field::Offset, Unit::Length(512)),
            ("offset_bytes", Field::Offset, Unit::Length(1)),
            ("offset (sectors)", Field::Offset, Unit::Length(512)),
            ("BYTES", Field::Size, Unit::Length(1)),
            ("size_kb", Field::Size, Unit::Length(1024)),
            ("LAT(ms)", Field::Latency, Unit::Time(1_000_000)),
            ("ResponseTime", Field::Latency, Unit::Usual),
            ("disk_number", Field::Volume, Unit::Usual),
            ("COMM", Field::Stream, Unit::Usual),
        ] {
            assert_eq!(meaning(name), Some((field, unit)), "{name}");
        }
        for name in ["", "md5", "time_bytes", "priority", "offset_ms", "op_s", "(s)"] {
            assert_eq!(meaning(name), None, "{name}");
        }
    }

    /// Goal: columns can be named, and errors say what is allowed. Method: names, numbers and units; one error of each kind.
    #[test]
    fn columns_are_named() {
        let columns = Columns::parse("time:us=when,op:read0=2,offset:4096=at").unwrap();
        let header = ["when", "dir", "at", "len_sectors", "tenant"];
        let layout = Layout::new(&header, Some(&columns)).unwrap();
        assert_eq!((layout.time, layout.operation), ((0, Unit::Time(1_000)), (1, Unit::Read(0))));
        assert_eq!((layout.offset, layout.size), ((2, 4096), (3, 512)));
        assert_eq!((layout.stream, layout.count), (vec![4], Some(5)));
        let missing = Layout::new(&["time", "rw", "lba"], None).unwrap_err();
        assert_eq!(missing, "no column has the size; name it with --columns");
        let missing = Layout::new(&["time"], Some(&columns)).unwrap_err();
        assert_eq!(missing, "no column `when`; there are: time");
        for (text, wanted) in [
            ("time", "`time`: write FIELD[:UNIT]=COLUMN"),
            ("when=1", "no field `when`; there are: time, op"),
            ("time:sectors=1", "unit `sectors`: allowed are s, ms, us"),
            ("offset:0=1", "unit `0`: allowed are bytes"),
            ("op=0", "columns count from 1"),
        ] {
            let error = Columns::parse(text).unwrap_err();
            assert!(error.starts_with(wanted), "{text}: {error}");
        }
    }
}
