//! The layout of NBD messages: numbers, headers, and replies. Everything is big-endian.

use crate::request::extent::Extent;

/// First word of a server's greeting.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of the greeting and first of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of every command.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Bytes of an option before its data.
pub const OPTION_HEADER: usize = 16;
/// Bytes of a command before a write's payload.
pub const REQUEST_HEADER: usize = 28;
/// Largest payload of a read or write (the minimum that QEMU and libnbd expect).
pub use crate::request::buffer::PAYLOAD_MAX;
/// Longest string of the protocol (names, queries).
pub const STRING_MAX: usize = 4096;
/// Longest option data that is processed; options with longer data are refused and skipped.
pub const OPTION_DATA_MAX: usize = 16 << 10;

/// Handshake flags of server and client.
pub mod handshake {
    /// Options may be refused one by one.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zeroes after the reply to EXPORT_NAME.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of the handshake.
pub mod option {
    /// Choose an export; the old form, which cannot be refused.
    pub const EXPORT_NAME: u32 = 1;
    /// Abort.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Switch to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and choose it.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List meta contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose meta contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of replies to options.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export.
    pub const SERVER: u32 = 2;
    /// One piece of information on an export.
    pub const INFO: u32 = 3;
    /// One meta context.
    pub const META_CONTEXT: u32 = 4;
    /// Not supported.
    pub const ERR_UNSUP: u32 = 0x8000_0001;
    /// Forbidden.
    pub const ERR_POLICY: u32 = 0x8000_0002;
    /// Malformed or out of order.
    pub const ERR_INVALID: u32 = 0x8000_0003;
    /// TLS is required.
    pub const ERR_TLS_REQD: u32 = 0x8000_0005;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = 0x8000_0006;
    /// Too long.
    pub const ERR_TOO_BIG: u32 = 0x8000_0009;
}

/// Kinds of information on an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Its name.
    pub const NAME: u16 = 1;
    /// Smallest, preferred and largest block.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Capabilities of an export.
pub mod transmission {
    /// The flags are valid.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The drive is rotational: sequential access is faster.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES works.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// "Do not fragment" works.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush covers all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE works.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// FAST_ZERO works.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows.
    pub const WRITE: u16 = 1;
    /// End of the connection.
    pub const DISC: u16 = 2;
    /// Make completed writes durable.
    pub const FLUSH: u16 = 3;
    /// The range is not needed any more.
    pub const TRIM: u16 = 4;
    /// The range will be read soon.
    pub const CACHE: u16 = 5;
    /// Make the range zero.
    pub const WRITE_ZEROES: u16 = 6;
    /// Report which parts of the range hold data.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1;
    /// WRITE_ZEROES: keep the space allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ: the reply in one chunk.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS: one extent suffices.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES: refuse instead of writing zeroes slowly.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Error numbers of the protocol.
pub mod errno {
    /// Not allowed (a write to a read-only export).
    pub const EPERM: u32 = 1;
    /// The storage failed.
    pub const EIO: u32 = 5;
    /// Malformed request.
    pub const EINVAL: u32 = 22;
    /// Past the end, or no space left.
    pub const ENOSPC: u32 = 28;
    /// Too long for this server.
    pub const EOVERFLOW: u32 = 75;
    /// Not supported (fast).
    pub const ENOTSUP: u32 = 95;
    /// The server is shutting down.
    pub const ESHUTDOWN: u32 = 108;

    /// The protocol's number for an error of the operating system.
    pub const fn from_system(errno: i32) -> u32 {
        match errno {
            0 => 0,
            1 | 13 | 30 => EPERM,
            12 => 12,
            22 => EINVAL,
            // ENOSPC, EFBIG and EDQUOT all mean that no room is left.
            28 | 27 | 122 => ENOSPC,
            95 => ENOTSUP,
            108 => ESHUTDOWN,
            _ => EIO,
        }
    }
}

/// Chunks of structured replies.
pub mod chunk {
    /// The last chunk of its reply.
    pub const DONE: u16 = 1;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents of a meta context.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error.
    pub const ERROR: u16 = 0x8001;
}

/// State of an extent in `base:allocation`.
pub mod state {
    /// Nothing allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// The meta context that this server knows, and its number in replies.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// See [`BASE_ALLOCATION`].
pub const BASE_ALLOCATION_ID: u32 = 1;

/// Whether the last of these bytes are NBD_CMD_DISC.
pub(crate) fn ends_with_disconnect(bytes: &[u8]) -> bool {
    let magic = REQUEST_MAGIC.to_be_bytes();
    let kind = command::DISC.to_be_bytes();
    let request = bytes.last_chunk::<REQUEST_HEADER>();
    request.is_some_and(|request| request.starts_with(&magic) && request[6..8] == kind)
}

/// Reads a big-endian number at `at`; the caller has checked the length.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
/// As [`u16_at`].
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
/// As [`u16_at`].
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Appends a reply to an option to `out`.
pub fn option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// A simple reply without data.
pub fn simple_reply(out: &mut Vec<u8>, cookie: u64, error: u32) {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&bytes);
}

fn chunk_header(out: &mut Vec<u8>, kind: u16, cookie: u64, length: u32) {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&chunk::DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// Appends the header before the data of a successful read.
pub fn read_header(out: &mut Vec<u8>, structured: bool, cookie: u64, offset: u64, length: u32) {
    if structured {
        chunk_header(out, chunk::OFFSET_DATA, cookie, length + 8);
        out.extend_from_slice(&offset.to_be_bytes());
    } else {
        simple_reply(out, cookie, 0);
    }
}

/// An error as a structured reply; required for reads and block status once structured replies are negotiated.
pub fn error_chunk(out: &mut Vec<u8>, cookie: u64, error: u32) {
    chunk_header(out, chunk::ERROR, cookie, 6);
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&0u16.to_be_bytes());
}

/// Extents `(length, state)` of `base:allocation`.
pub fn block_status(out: &mut Vec<u8>, cookie: u64, extents: &[Extent]) {
    chunk_header(out, chunk::BLOCK_STATUS, cookie, 4 + 8 * extents.len() as u32);
    out.extend_from_slice(&BASE_ALLOCATION_ID.to_be_bytes());
    for Extent { length, hole } in extents {
        let state = if *hole { state::HOLE | state::ZERO } else { 0 };
        out.extend_from_slice(&(*length as u32).to_be_bytes());
        out.extend_from_slice(&state.to_be_bytes());
    }
}
