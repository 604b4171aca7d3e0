//! Numbers of few bytes, and one request as such numbers. The layout is documented in [`block`](crate::block).

use iofair_core::request::{Flags, Operation};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::SECTOR_BYTES;

use crate::record::{Completion, Record};
use crate::source::STREAMS_MAX;

/// Most bytes of a number of 64 bits.
const VARINT_MAX: u32 = 10;

const OPERATIONS: [Operation; 5] = [
    Operation::Read,
    Operation::Write,
    Operation::Flush,
    Operation::Discard,
    Operation::WriteZeroes,
];
/// The flags that are kept, in the order of their bits.
const FLAGS: [Flags; 4] = [Flags::FUA, Flags::SYNC, Flags::METADATA, Flags::READ_AHEAD];

const OPERATION: u8 = 7;
const SAME_STREAM: u8 = 1 << 3;
const SEQUENTIAL: u8 = 1 << 4;
const SAME_LENGTH: u8 = 1 << 5;
const COMPLETE: u8 = 1 << 6;
const MORE: u8 = 1 << 7;

const MORE_FLAGS: u8 = 15;
const MORE_EARLIER: u8 = 1 << 4;
const MORE_FAILED: u8 = 1 << 5;
const MORE_BYTES: u8 = 1 << 6;

/// Appends a number, 7 bits a byte, lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a text after its length.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}
const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A cursor over the payload of a block. The errors say what is wrong with it.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pub(crate) at: usize,
}

type Result<T> = std::result::Result<T, &'static str>;

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self::resume(bytes, 0)
    }
    pub(crate) fn resume(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }
    pub(crate) fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }
    fn byte(&mut self) -> Result<u8> {
        let byte = self.bytes.get(self.at).ok_or("the block ends within a request")?;
        self.at += 1;
        Ok(*byte)
    }
    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut value = 0;
        for index in 0..VARINT_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 127);
            if index == VARINT_MAX - 1 && bits > 1 {
                return Err("a number has more than 64 bits");
            }
            value |= bits << (7 * index);
            if byte < 128 {
                return Ok(value);
            }
        }
        Err("a number has more than 10 bytes")
    }
    pub(crate) fn text(&mut self, longest: usize) -> Result<String> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if length > longest {
            return Err("a text is too long");
        }
        let bytes = self.bytes.get(self.at..self.at + length).ok_or("the block ends in a text")?;
        self.at += length;
        Ok(std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8")?.to_owned())
    }
}

/// The base of the delta encoding within a block.
#[derive(Debug, Default)]
pub(crate) struct Context {
    at: u64,
    stream: u32,
    /// Number of the block, from 1.
    block: u64,
    /// By stream: the block of its last request, and that request's end and length.
    last: Vec<(u64, u64, u64)>,
}

impl Context {
    /// Begins a block whose times count from `at`.
    pub(crate) fn begin(&mut self, at: u64) {
        self.block += 1;
        (self.at, self.stream) = (at, 0);
    }
    fn last(&mut self, stream: u32) -> &mut (u64, u64, u64) {
        let index = stream as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, (0, 0, 0));
        }
        let last = &mut self.last[index];
        if last.0 != self.block {
            *last = (self.block, 0, 0);
        }
        last
    }

    /// Appends a request. Its stream must be below [`STREAMS_MAX`].
    pub(crate) fn encode(&mut self, record: &Record, out: &mut Vec<u8>) {
        let Record { at, stream, operation, flags, offset, length, completion } = *record;
        let same_stream = stream == self.stream;
        let (_, end, before) = *self.last(stream);
        let position = OPERATIONS.iter().position(|known| *known == operation);
        let mut head = position.expect("all operations are listed") as u8;
        let mut more = 0;
        for (bit, flag) in FLAGS.iter().enumerate() {
            more |= u8::from(flags.has(*flag)) << bit;
        }
        let aligned = (offset | length | end).is_multiple_of(SECTOR_BYTES);
        let unit = if aligned { SECTOR_BYTES } else { 1 };
        more |= if aligned { 0 } else { MORE_BYTES };
        more |= if at.0 < self.at { MORE_EARLIER } else { 0 };
        more |= if completion.is_some_and(|end| end.failed) { MORE_FAILED } else { 0 };
        head |= if same_stream { SAME_STREAM } else { 0 };
        head |= if offset == end { SEQUENTIAL } else { 0 };
        head |= if length == before { SAME_LENGTH } else { 0 };
        head |= if completion.is_some() { COMPLETE } else { 0 };
        head |= if more != 0 { MORE } else { 0 };
        out.push(head);
        if more != 0 {
            out.push(more);
        }
        put(out, at.0.abs_diff(self.at));
        if !same_stream {
            put(out, u64::from(stream));
        }
        if offset != end {
            // The difference of two offsets has 65 bits; it wraps, and is added back wrapping.
            let difference = (offset / unit).wrapping_sub(end / unit);
            put(out, zigzag(difference.cast_signed()));
        }
        if length != before {
            put(out, length / unit);
        }
        if let Some(completion) = completion {
            put(out, completion.latency.0);
        }
        self.remember(record);
    }
    fn remember(&mut self, record: &Record) {
        (self.at, self.stream) = (record.at.0, record.stream);
        let end = record.offset.wrapping_add(record.length);
        let last = self.last(record.stream);
        (last.1, last.2) = (end, record.length);
    }

    /// Takes a request.
    pub(crate) fn decode(&mut self, from: &mut Cursor<'_>, streams: usize) -> Result<Record> {
        let head = from.byte()?;
        let more = if head & MORE != 0 { from.byte()? } else { 0 };
        let operation = *OPERATIONS
            .get(usize::from(head & OPERATION))
            .ok_or("a request has an unknown operation")?;
        let apart = from.number()?;
        let at = match more & MORE_EARLIER {
            0 => self.at.checked_add(apart),
            _ => self.at.checked_sub(apart),
        };
        let at = at.ok_or("a time is out of range")?;
        let stream = match head & SAME_STREAM {
            0 => from.number()?,
            _ => u64::from(self.stream),
        };
        if stream >= streams.min(STREAMS_MAX) as u64 {
            return Err("a request belongs to a stream that was not introduced");
        }
        let stream = stream as u32;
        let (_, end, before) = *self.last(stream);
        let unit = if more & MORE_BYTES == 0 { SECTOR_BYTES } else { 1 };
        let offset = match head & SEQUENTIAL {
            0 => {
                let difference = unzigzag(from.number()?).cast_unsigned();
                let units = (end / unit).wrapping_add(difference);
                units.checked_mul(unit).ok_or("an offset is out of range")?
            }
            _ => end,
        };
        let length = match head & SAME_LENGTH {
            0 => from.number()?.checked_mul(unit).ok_or("a length is out of range")?,
            _ => before,
        };
        let failed = more & MORE_FAILED != 0;
        let completion = match head & COMPLETE {
            0 => None,
            _ => Some(Completion { latency: Nanos(from.number()?), failed }),
        };
        let mut flags = Flags::NONE;
        for (bit, flag) in FLAGS.iter().enumerate() {
            if more & MORE_FLAGS & 1 << bit != 0 {
                flags = flags.with(*flag);
            }
        }
        let at = Instant(at);
        let record = Record { at, stream, operation, flags, offset, length, completion };
        self.remember(&record);
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: numbers survive, and longer ones than 64 bits are refused. Method: edges, and eleven bytes.
    #[test]
    fn numbers_survive() {
        for value in [0, 1, 127, 128, 1 << 32, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(Cursor::new(&out).number(), Ok(value));
            assert_eq!(unzigzag(zigzag(value.cast_signed())).cast_unsigned(), value);
        }
        assert!(Cursor::new(&[255; 11]).number().is_err());
        assert!(Cursor::new(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 2]).number().is_err());
        assert!(Cursor::new(&[128]).number().is_err());
    }
}
