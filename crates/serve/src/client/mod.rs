//! Small NBD clients: [`Client`], one blocking connection, reads only; [`Crowd`], many connections of one thread, for
//! experiments; and [`dial`], a connection for somebody else, such as the kernel.
//!
//! They are written from the protocol's description and share no code with [`crate::front`], so they test the server
//! like any independent client.

mod crowd;
mod pipe;
mod protocol;

pub use crowd::{Crowd, Reply, Request};
pub use pipe::CommandType;
pub use protocol::{Export, dial};

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use protocol::{
    COMMAND_DISCONNECT, COMMAND_READ, REPLY_MAGIC, TIMEOUT, broken, command, read_u32, read_u64,
};

/// One connection to one export.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Size of the export in bytes.
    pub size: u64,
    /// Reads in flight: cookie and length, in the order of sending.
    outstanding: Vec<(u64, u32)>,
    next_cookie: u64,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to an export of the server behind a Unix socket.
    pub fn connect(socket: &Path, export: &str) -> io::Result<Self> {
        let (stream, Export { size, .. }) = dial(socket, export)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, size, outstanding: Vec::new(), next_cookie: 0, buffer: Vec::new() })
    }
    /// Sends a read without waiting; returns its cookie.
    pub fn send_read(&mut self, offset: u64, length: u32) -> io::Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.stream.write_all(&command(COMMAND_READ, cookie, offset, length))?;
        self.outstanding.push((cookie, length));
        Ok(cookie)
    }
    /// Waits for the next completion, of any read; returns its cookie and its data.
    pub fn receive(&mut self) -> io::Result<(u64, &[u8])> {
        if read_u32(&mut self.stream)? != REPLY_MAGIC {
            return Err(broken("a reply without its magic number"));
        }
        let error = read_u32(&mut self.stream)?;
        let cookie = read_u64(&mut self.stream)?;
        let place = self.outstanding.iter().position(|(sent, _)| *sent == cookie);
        let place = place.ok_or_else(|| broken(format!("a reply to no request: {cookie}")))?;
        let (_, length) = self.outstanding.remove(place);
        if error != 0 {
            return Err(io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(i32::MAX)));
        }
        self.buffer.resize(length as usize, 0);
        self.stream.read_exact(&mut self.buffer)?;
        Ok((cookie, &self.buffer))
    }
    /// Number of reads in flight.
    pub fn in_flight(&self) -> usize {
        self.outstanding.len()
    }
    /// Disconnects; no read may be in flight.
    pub fn disconnect(mut self) -> io::Result<()> {
        let cookie = self.next_cookie;
        self.stream.write_all(&command(COMMAND_DISCONNECT, cookie, 0, 0))
    }
}
