//! The layout of our own format, version 1. All fixed numbers are little-endian.
//!
//! ```text
//! file    = magic "IOFTRACE", version u16, 6 bytes zero, blocks
//! block   = kind u8, 3 bytes zero, payload length u32, requests u32, CRC-32C u32, payload
//! ```
//!
//! The checksum covers the twelve bytes before it and the payload. Each block can be read without the ones before it,
//! except that streams are introduced before their first request. Kinds:
//!
//! - `M`: metadata, once and first. Pairs of texts (length, UTF-8): key and value.
//! - `S`: streams, numbered from 0 in the order of the file: name, group (texts), volume (number).
//! - `R`: requests. A number, the time in nanoseconds that the first time counts from; then the requests.
//! - `D`: requests that were dropped: a time, and how many since the last such block.
//! - `E`: the end: number of requests, and number of dropped ones. A file without it was cut off.
//!
//! Numbers are LEB128: 7 bits a byte, lowest first. A request is
//!
//! ```text
//! head u8       bits 0-2 operation: read, write, flush, discard, write zeroes
//!               bit 3 same stream as the request before it       (first: stream 0)
//!               bit 4 starts where the stream's last request ended       (first: 0)
//!               bit 5 as long as the stream's last request                (first: 0)
//!               bit 6 a completion follows      bit 7 a byte of details follows
//! details u8    bits 0-3 FUA, SYNC, METADATA, READ_AHEAD; bit 4 earlier than the request before it;
//!               bit 5 failed; bit 6 offset and length are in bytes, otherwise in sectors of 512
//! time          since the request before it, in nanoseconds
//! stream        unless bit 3
//! offset        unless bit 4: difference to the end of the stream's last request, zigzag
//! length        unless bit 5
//! latency       if bit 6: from submission to completion, in nanoseconds
//! ```
//!
//! where "last" and "before" mean within the block.

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"IOFTRACE";
/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;
/// Bytes of the header of a file, and of a block.
pub const HEADER: usize = 16;
/// Longest payload: a reader never needs more memory for a block.
pub const PAYLOAD_MAX: usize = 1 << 20;
/// A writer ends a block of requests at this length. What a crash can lose.
pub(crate) const PAYLOAD_TARGET: usize = 32 << 10;
/// Longest name of a stream or group.
pub(crate) const NAME_MAX: usize = 4096;

/// The kinds of blocks.
pub(crate) const METADATA: u8 = b'M';
pub(crate) const STREAMS: u8 = b'S';
pub(crate) const REQUESTS: u8 = b'R';
pub(crate) const DROPPED: u8 = b'D';
pub(crate) const END: u8 = b'E';

/// The header of a file.
pub(crate) fn file_header() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// The header of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHeader {
    pub(crate) kind: u8,
    pub(crate) length: u32,
    pub(crate) requests: u32,
    pub(crate) checksum: u32,
}

impl BlockHeader {
    pub(crate) fn write(kind: u8, requests: u32, payload: &[u8], out: &mut Vec<u8>) {
        let mut bytes = [0; HEADER];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&requests.to_le_bytes());
        let checksum = checksum(&bytes, payload);
        bytes[12..].copy_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&bytes);
        out.extend_from_slice(payload);
    }
    pub(crate) fn read(bytes: &[u8; HEADER]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self { kind: bytes[0], length: word(4), requests: word(8), checksum: word(12) }
    }
}

/// The checksum of a block.
pub(crate) fn checksum(header: &[u8; HEADER], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), payload)
}
