//! A client's handshake: what the kernel wants to be done before it gets the connection. See the
//! [NBD protocol](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md), fixed newstyle negotiation.

use std::io::{self, Read, Write};

const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Fixed newstyle, without 124 bytes of zeroes at the end.
const FLAGS: u16 = 0b11;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// More than any reply of a server to this option.
const REPLY_BYTES_MAX: u32 = 64 << 10;

/// What the server says of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Export {
    pub(super) bytes: u64,
    /// Transmission flags.
    pub(super) flags: u16,
    /// The smallest block, in bytes.
    pub(super) block: u32,
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Asks for an export. Afterwards the connection is in its transmission phase.
///
/// # Errors
/// The server refuses, or does not speak the protocol.
pub(super) fn go(stream: &mut (impl Read + Write), name: &str) -> io::Result<Export> {
    let (magic, option) = (u64::from_be_bytes(take(stream)?), u64::from_be_bytes(take(stream)?));
    let flags = u16::from_be_bytes(take(stream)?);
    if magic != MAGIC || option != OPTION_MAGIC || flags & FLAGS != FLAGS {
        return Err(bad("the server does not speak NBD as of fixed newstyle"));
    }
    let length = u32::try_from(name.len()).map_err(io::Error::other)?;
    let mut ask = u32::from(FLAGS).to_be_bytes().to_vec();
    ask.extend(OPTION_MAGIC.to_be_bytes());
    ask.extend(OPTION_GO.to_be_bytes());
    ask.extend((4 + length + 2 + 2).to_be_bytes());
    ask.extend(length.to_be_bytes());
    ask.extend(name.as_bytes());
    ask.extend(1_u16.to_be_bytes());
    ask.extend(INFO_BLOCK_SIZE.to_be_bytes());
    stream.write_all(&ask)?;
    let (mut known, mut block) = (None, 512);
    loop {
        let magic = u64::from_be_bytes(take(stream)?);
        let [_option, kind, length] = [0; 3].map(|_: u32| take(stream).map(u32::from_be_bytes));
        let (kind, length) = (kind?, length?);
        if magic != REPLY_MAGIC || length > REPLY_BYTES_MAX {
            return Err(bad("a reply of the server is malformed"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match kind {
            REPLY_ACK => {
                let (bytes, flags) = known.ok_or_else(|| bad("the server tells no size"))?;
                return Ok(Export { bytes, flags, block });
            }
            REPLY_INFO => match info(&data) {
                Some((INFO_EXPORT, rest)) => known = Some(export(rest)?),
                Some((INFO_BLOCK_SIZE, rest)) => {
                    block = rest.first_chunk().map_or(block, |it| u32::from_be_bytes(*it));
                }
                _ => {}
            },
            _ => {
                let text = String::from_utf8_lossy(&data);
                return Err(io::Error::other(format!("volume \"{name}\" is refused: {text}")));
            }
        }
    }
}

fn info(data: &[u8]) -> Option<(u16, &[u8])> {
    data.split_first_chunk().map(|(kind, rest)| (u16::from_be_bytes(*kind), rest))
}

fn export(rest: &[u8]) -> io::Result<(u64, u16)> {
    let (bytes, rest) = rest.split_first_chunk().ok_or_else(|| bad("a size is too short"))?;
    let flags = rest.first_chunk().ok_or_else(|| bad("flags are too short"))?;
    Ok((u64::from_be_bytes(*bytes), u16::from_be_bytes(*flags)))
}
