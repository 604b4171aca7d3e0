//! The client's side of the protocol: the handshake, and the heads of requests.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, and no padding of zeroes.
const CLIENT_FLAGS: u32 = 3;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
pub(super) const COMMAND_READ: u16 = 0;
pub(super) const COMMAND_WRITE: u16 = 1;
pub(super) const COMMAND_DISCONNECT: u16 = 2;
pub(super) const COMMAND_FLUSH: u16 = 3;
pub(super) const COMMAND_TRIM: u16 = 4;
/// A reply that takes longer than this will not come: the slowest drive completes within seconds.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest reply to an option that is read: longer ones are a server gone wrong.
const OPTION_REPLY_MAX: usize = 4096;

pub(super) fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn read_array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
fn read_u16(stream: &mut impl Read) -> io::Result<u16> {
    Ok(u16::from_be_bytes(read_array(stream)?))
}
pub(super) fn read_u32(stream: &mut impl Read) -> io::Result<u32> {
    Ok(u32::from_be_bytes(read_array(stream)?))
}
pub(super) fn read_u64(stream: &mut impl Read) -> io::Result<u64> {
    Ok(u64::from_be_bytes(read_array(stream)?))
}

/// What a server says of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its size in bytes.
    pub size: u64,
    /// Its transmission flags.
    pub flags: u16,
}

/// A connection in the transmission phase, without timeouts, and its export.
///
/// # Errors
/// The server refuses, does not respond, or does not speak the protocol.
pub fn dial(socket: &Path, export: &str) -> io::Result<(UnixStream, Export)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    if read_u64(&mut stream)? != GREETING_MAGIC || read_u64(&mut stream)? != OPTION_MAGIC {
        return Err(broken("not a newstyle NBD server"));
    }
    read_u16(&mut stream)?;
    stream.write_all(&go(export))?;
    let export = reply_to_go(&mut stream)?;
    stream.set_read_timeout(None)?;
    Ok((stream, export))
}

/// Our flags and "go to this export".
fn go(export: &str) -> Vec<u8> {
    let name = export.as_bytes();
    let name_length = u32::try_from(name.len()).expect("export names are short");
    let mut bytes = CLIENT_FLAGS.to_be_bytes().to_vec();
    bytes.extend(OPTION_MAGIC.to_be_bytes());
    bytes.extend(OPTION_GO.to_be_bytes());
    bytes.extend((name_length + 6).to_be_bytes());
    bytes.extend(name_length.to_be_bytes());
    bytes.extend(name);
    // No particular information asked for.
    bytes.extend(0u16.to_be_bytes());
    bytes
}

/// The export, once the server agrees.
fn reply_to_go(stream: &mut impl Read) -> io::Result<Export> {
    let mut export = None;
    loop {
        if read_u64(stream)? != OPTION_REPLY_MAGIC || read_u32(stream)? != OPTION_GO {
            return Err(broken("a reply to an option that was not sent"));
        }
        let kind = read_u32(stream)?;
        let length = read_u32(stream)? as usize;
        if length > OPTION_REPLY_MAX {
            return Err(broken(format!("an option reply of {length} bytes")));
        }
        let mut data = vec![0; length];
        stream.read_exact(&mut data)?;
        match kind {
            REPLY_ACK => return export.ok_or_else(|| broken("an export without a size")),
            REPLY_INFO if data.len() >= 12 && data[..2] == INFO_EXPORT.to_be_bytes() => {
                let mut rest = &data[2..];
                export = Some(Export { size: read_u64(&mut rest)?, flags: read_u16(&mut rest)? });
            }
            REPLY_INFO => {}
            kind if kind & REPLY_ERROR != 0 => {
                let why = String::from_utf8_lossy(&data).into_owned();
                return Err(broken(format!("the server refused ({kind:#x}): {why}")));
            }
            kind => return Err(broken(format!("an unknown option reply: {kind}"))),
        }
    }
}

pub(super) fn command(kind: u16, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the bytes are the protocol's. Method: a read and a GO taken apart by hand.
    #[test]
    fn bytes_follow_the_protocol() {
        let read = command(COMMAND_READ, 7, 0x1000, 4096);
        assert_eq!(read[..8], [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0]);
        assert_eq!((read[15], read[22], read[26]), (7, 0x10, 0x10));
        let go = go("ab");
        assert_eq!(&go[4..12], b"IHAVEOPT");
        assert_eq!(go[12..], [0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 2, b'a', b'b', 0, 0]);
    }

    fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(OPTION_GO.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    /// Goal: a server's replies are understood and nonsense is refused. Method: made-up replies.
    #[test]
    fn replies_are_understood() {
        let mut export = vec![0, 0];
        export.extend(123_456u64.to_be_bytes());
        export.extend([0, 1]);
        let name = [0, 1, b'x'];
        let good = [reply(REPLY_INFO, &name), reply(REPLY_INFO, &export), reply(REPLY_ACK, &[])];
        let wanted = Export { size: 123_456, flags: 1 };
        assert_eq!(reply_to_go(&mut &good.concat()[..]).expect("a good reply"), wanted);
        let refused = reply(REPLY_ERROR | 6, b"no such export");
        let error = reply_to_go(&mut &refused[..]).expect_err("refused").to_string();
        assert!(error.contains("no such export"), "{error}");
        assert!(reply_to_go(&mut &reply(REPLY_ACK, &[])[..]).is_err());
        assert!(reply_to_go(&mut &reply(99, &[])[..]).is_err());
        assert!(reply_to_go(&mut &b"HTTP/1.1 400 Bad Request"[..]).is_err());
    }
}
