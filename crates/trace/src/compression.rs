//! Compressed input: gzip, zstd, xz and bzip2, each with as many members (frames, streams) as there are. All decoders check
//! the checksums of their formats, and end with an error where a file was cut off.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
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

/// Opens a compressed file.
type Decoder = fn(Raw) -> Box<dyn Read + Send>;

/// A format of compressed files.
pub(crate) struct Compression {
    name: &'static str,
    decoder: Decoder,
}

/// How a file is compressed that begins like this; `None` if it is not. Files that were cut off may have a part of the first
/// bytes.
pub(crate) fn compression(start: &[u8]) -> Option<Compression> {
    let begins =
        |magic: &[u8]| start.starts_with(magic) || (start.len() > 1 && magic.starts_with(start));
    let (name, decoder): (_, Decoder) = if begins(GZIP) {
        ("gzip", |raw| Box::new(MultiGzDecoder::new(raw)))
    } else if begins(&ZSTD) || is_skipped(start) {
        ("zstd", |raw| Box::new(Zstd { raw: Some(raw), frame: None }))
    } else if begins(XZ) {
        ("xz", |raw| Box::new(XzReader::new_mem_limit(raw, true, XZ_KIB_MAX)))
    } else if begins(BZIP2) {
        ("bzip2", |raw| Box::new(MultiBzDecoder::new(raw)))
    } else {
        return None;
    };
    Some(Compression { name, decoder })
}

impl Compression {
    /// Decompresses a file from its first byte.
    pub(crate) fn open(self, raw: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
        let taken = Arc::new(AtomicU64::new(0));
        let counted: Box<dyn Read + Send> = Box::new(Counted { raw, taken: taken.clone() });
        let decoder = (self.decoder)(BufReader::new(counted));
        Box::new(Decompressed { name: self.name, decoder, taken, read: 0 })
    }
}

/// Counts the bytes of a file that were read.
struct Counted {
    raw: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.raw.read(into)?;
        self.taken.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// What a compressed file has, whose errors say what is wrong with the file, and where.
struct Decompressed {
    name: &'static str,
    decoder: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
    read: u64,
}

impl Read for Decompressed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.decoder.read(into).map_err(|error| self.explain(&error))?;
        self.read += length as u64;
        Ok(length)
    }
}

impl Decompressed {
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
                    "the {name} data cannot be decompressed, at byte {taken} of the file or before it, behind {read} bytes: {error}"
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

/// A file as it is on the disk, from its first byte.
type Raw = BufReader<Box<dyn Read + Send>>;

fn is_skipped(start: &[u8]) -> bool {
    start.len() >= 4 && start[0] & 0xf0 == SKIPPED.0 && start[1..4] == SKIPPED.1
}

/// A frame of zstd, whose first bytes were taken to look at them.
type Frame<R> = StreamingDecoder<Chain<Cursor<[u8; 4]>, R>, FrameDecoder>;

/// Frames of zstd, one after the other.
struct Zstd<R: Read> {
    raw: Option<R>,
    frame: Option<Box<Frame<R>>>,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; `false` at the end of the file.
    fn begin(&mut self, mut raw: R) -> io::Result<bool> {
        loop {
            if raw.fill_buf()?.is_empty() {
                self.raw = Some(raw);
                return Ok(false);
            }
            let mut magic = [0; 4];
            raw.read_exact(&mut magic)?;
            if !is_skipped(&magic) {
                let frame = StreamingDecoder::new(Cursor::new(magic).chain(raw));
                self.frame = Some(Box::new(frame.map_err(io::Error::other)?));
                return Ok(true);
            }
            let mut length = [0; 4];
            raw.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            if io::copy(&mut (&mut raw).take(length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    /// Ends a frame whose data were read.
    fn end(&mut self, frame: Frame<R>) -> io::Result<()> {
        let written = frame.decoder.get_checksum_from_data();
        if written.is_some() && written != frame.decoder.get_calculated_checksum() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the checksum of a zstd frame is wrong",
            ));
        }
        self.raw = Some(frame.into_inner().into_inner().1);
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let length = frame.read(into)?;
                if length > 0 || into.is_empty() {
                    return Ok(length);
                }
            }
            if let Some(frame) = self.frame.take() {
                self.end(*frame)?;
            }
            let Some(raw) = self.raw.take() else { return Ok(0) };
            if !self.begin(raw)? {
                return Ok(0);
            }
        }
    }
}
