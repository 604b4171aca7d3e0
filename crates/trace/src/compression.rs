//! Compressed input: gzip, zstd, xz and bzip2, each with as many members (frames, streams) as there are. All decoders check
//! the checksums of their formats, and end with an error where a file was cut off.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Memory for what has been decompressed before, which a file may ask for (`xz -9` asks for 64 MiB). That of zstd is limited
/// to 100 MiB by its library, and the other two formats need less than 8 MiB.
const XZ_KIB_MAX: u32 = 128 << 10;

/// Tells the formats apart.
pub(crate) const MAGIC_BYTES: usize = 6;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The first byte of a frame that a decoder skips, and the other three.
const SKIPPED: (u8, [u8; 3]) = (0x50, [0x2a, 0x4d, 0x18]);
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const BZIP2: &[u8] = b"BZh";

/// Files that are no traces, though traces may be in them; and what to do with them.
const CONTAINERS: &[(usize, &[u8], &str)] = &[
    (
        257,
        b"ustar",
        "a tar archive; extract its files (tar -xf), or one of them: tar -xOf ARCHIVE NAME | iofair-lab replay -",
    ),
    (
        0,
        b"PK\x03\x04",
        "a zip archive; extract its files (unzip), or one of them: unzip -p ARCHIVE NAME | iofair-lab replay -",
    ),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive; extract its files first"),
    (
        0,
        b"\x04\x22\x4d\x18",
        "compressed with lz4; decompress it first: lz4 -dc FILE | iofair-lab replay -",
    ),
    (0, b"LZIP", "compressed with lzip; decompress it first: lzip -dc FILE | iofair-lab replay -"),
    (
        0,
        b"\x5d\x00\x00",
        "compressed with lzma; decompress it first: xz -dc FILE | iofair-lab replay -",
    ),
    (
        0,
        b"\x1f\x9d",
        "compressed with compress; decompress it first: zcat FILE | iofair-lab replay -",
    ),
    (
        0,
        b"\xff\xfe",
        "text in UTF-16; convert it first: iconv -f UTF-16 -t UTF-8 FILE | iofair-lab replay -",
    ),
    (
        0,
        b"\xfe\xff",
        "text in UTF-16; convert it first: iconv -f UTF-16 -t UTF-8 FILE | iofair-lab replay -",
    ),
];

/// What a file is that has to be unpacked by another program first.
pub(crate) fn container(head: &[u8]) -> Option<&'static str> {
    let is = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    CONTAINERS.iter().find(|(at, magic, _)| is(*at, magic)).map(|(_, _, what)| *what)
}

/// A part of a compressed file that can be read without the others.
trait Member: Read + Send {
    /// The file behind it, when all of it was read.
    fn end(self: Box<Self>) -> io::Result<Raw>;
}

/// Opens the next member of a file.
type Open = fn(Raw) -> io::Result<Box<dyn Member>>;

/// A format of compressed files.
pub(crate) struct Compression {
    name: &'static str,
    open: Open,
}

/// How a file is compressed that begins like this; `None` if it is not. Files that were cut off may have a part of the first
/// bytes.
pub(crate) fn compression(start: &[u8]) -> Option<Compression> {
    let begins =
        |magic: &[u8]| start.starts_with(magic) || (start.len() > 1 && magic.starts_with(start));
    let (name, open): (_, Open) = if begins(GZIP) {
        ("gzip", |raw| Ok(Box::new(GzDecoder::new(raw))))
    } else if is_skipped(start) {
        ("zstd", |raw| Ok(Box::new(Skipped(raw))))
    } else if begins(&ZSTD) {
        ("zstd", |raw| Ok(Box::new(Frame::new(raw).map_err(io::Error::other)?)))
    } else if begins(XZ) {
        ("xz", |raw| Ok(Box::new(XzReader::new_mem_limit(raw, false, XZ_KIB_MAX))))
    } else if begins(BZIP2) {
        ("bzip2", |raw| Ok(Box::new(BzDecoder::new(raw))))
    } else {
        return None;
    };
    Some(Compression { name, open })
}

impl Compression {
    /// Decompresses a file from its first byte.
    pub(crate) fn open(self, file: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
        let taken = Arc::new(AtomicU64::new(0));
        let raw = Raw { file: BufReader::new(file), ahead: Vec::new(), taken: taken.clone() };
        Box::new(Decompressed { name: self.name, member: None, raw: Some(raw), taken, read: 0 })
    }
}

/// A file as it is on the disk; it counts the bytes that a decoder takes.
struct Raw {
    file: BufReader<Box<dyn Read + Send>>,
    /// Bytes that were looked at and are still to be read.
    ahead: Vec<u8>,
    taken: Arc<AtomicU64>,
}

impl Raw {
    /// The bytes by which the next member is recognised.
    fn peek(&mut self) -> io::Result<&[u8]> {
        let missing = (MAGIC_BYTES - self.ahead.len()) as u64;
        (&mut self.file).take(missing).read_to_end(&mut self.ahead)?;
        Ok(&self.ahead)
    }
}

impl Read for Raw {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(into)?;
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Raw {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.ahead.is_empty() { self.file.fill_buf() } else { Ok(&self.ahead) }
    }
    fn consume(&mut self, amount: usize) {
        self.taken.fetch_add(amount as u64, Ordering::Relaxed);
        match self.ahead.is_empty() {
            true => self.file.consume(amount),
            false => drop(self.ahead.drain(..amount)),
        }
    }
}

/// What a compressed file has, whose errors say what is wrong with the file, and where.
struct Decompressed {
    name: &'static str,
    member: Option<Box<dyn Member>>,
    /// The file between members.
    raw: Option<Raw>,
    taken: Arc<AtomicU64>,
    read: u64,
}

impl Read for Decompressed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(member) = &mut self.member {
                let length = member.read(into).map_err(|error| self.explain(&error))?;
                self.read += length as u64;
                if length > 0 || into.is_empty() {
                    return Ok(length);
                }
            }
            if let Some(member) = self.member.take() {
                self.raw = Some(member.end().map_err(|error| self.explain(&error))?);
            }
            let Some(raw) = self.raw.take() else { return Ok(0) };
            self.begin(raw)?;
        }
    }
}

impl Decompressed {
    /// Begins the next member, if there is one.
    fn begin(&mut self, mut raw: Raw) -> io::Result<()> {
        let end = self.taken.load(Ordering::Relaxed);
        loop {
            let start = raw.peek()?;
            if let Some(Compression { open, .. }) =
                compression(start).filter(|found| found.name == self.name)
            {
                self.member = Some(open(raw).map_err(|error| self.explain(&error))?);
                return Ok(());
            }
            // Streams of xz, archives and tapes are padded with zeroes.
            match start.first() {
                None => return Ok(()),
                Some(0) => raw.consume(1),
                Some(_) => {
                    let Self { name, read, .. } = self;
                    let what = format!(
                        "the {name} data end at byte {end} of the file, with {read} bytes decompressed; what is behind them is no {name} data; the file without it: head -c {end} FILE"
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
        }
    }
    fn explain(&self, error: &io::Error) -> io::Error {
        let Self { name, read, .. } = self;
        let taken = self.taken.load(Ordering::Relaxed);
        match is_cut(error) {
            true => {
                let what = format!(
                    "the file was cut off: it ends at byte {taken}, in the middle of its {name} data, of which {read} bytes can be decompressed; it is needed whole"
                );
                io::Error::new(io::ErrorKind::UnexpectedEof, what)
            }
            false => {
                let what = format!(
                    "the {name} data are damaged, at byte {taken} of the file or before it, behind {read} bytes: {error}"
                );
                io::Error::new(error.kind(), what)
            }
        }
    }
}

/// Whether the cause of an error is the end of the file.
fn is_cut(error: &io::Error) -> bool {
    let ends = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    let mut cause = error.get_ref().map(|cause| -> &(dyn Error + 'static) { cause });
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(ends) {
            return true;
        }
        cause = error.source();
    }
    ends(error)
}

fn is_skipped(start: &[u8]) -> bool {
    start.len() >= 4 && start[0] & 0xf0 == SKIPPED.0 && start[1..4] == SKIPPED.1
}

impl Member for GzDecoder<Raw> {
    fn end(self: Box<Self>) -> io::Result<Raw> {
        Ok(self.into_inner())
    }
}

impl Member for BzDecoder<Raw> {
    fn end(self: Box<Self>) -> io::Result<Raw> {
        Ok(self.into_inner())
    }
}

impl Member for XzReader<Raw> {
    fn end(self: Box<Self>) -> io::Result<Raw> {
        Ok(self.into_inner())
    }
}

/// A frame of zstd.
type Frame = StreamingDecoder<Raw, FrameDecoder>;

impl Member for Frame {
    fn end(self: Box<Self>) -> io::Result<Raw> {
        let written = self.decoder.get_checksum_from_data();
        if written.is_some() && written != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the checksum of a zstd frame is wrong",
            ));
        }
        Ok(self.into_inner())
    }
}

/// A frame of zstd that has no data.
struct Skipped(Raw);

impl Read for Skipped {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl Member for Skipped {
    fn end(mut self: Box<Self>) -> io::Result<Raw> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head)?;
        let length = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
        if io::copy(&mut (&mut self.0).take(length), &mut io::sink())? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.0)
    }
}
