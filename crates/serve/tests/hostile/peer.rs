//! NBD connections that do not block, plain or encrypted, and what is common to all who use them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::place::{Front, Place};
use crate::rig::pki;
use crate::rig::wire::{OPTION_STARTTLS, Options, REPLY_ACK};

/// A handshake that takes longer has failed.
const HANDSHAKE: Duration = Duration::from_millis(2000);

/// How NBD clients reach the server.
#[derive(Clone)]
pub(crate) enum Transport {
    Unix(String),
    Tls(u16, Arc<ClientConfig>),
}

impl Transport {
    pub(crate) fn to(place: &Place) -> Self {
        match place.front {
            Front::Tls => Self::Tls(place.port, pki::config(&place.directory, "nobody")),
            _ => Self::Unix(place.path("socket")),
        }
    }
    /// A connection that has said nothing, without TLS.
    pub(crate) fn raw(&self) -> io::Result<Raw> {
        let raw = match self {
            Self::Unix(socket) => Raw::Unix(UnixStream::connect(socket)?),
            Self::Tls(port, _) => Raw::Tcp(TcpStream::connect(("127.0.0.1", *port))?),
        };
        raw.limit(Some(HANDSHAKE))?;
        Ok(raw)
    }
    /// A connection that has shaken hands as far as TLS goes.
    pub(crate) fn options(&self) -> io::Result<Options<Peer>> {
        let mut options = Options::greet(self.raw()?)?;
        let Self::Tls(_, config) = self else {
            return Ok(Options { stream: Peer::Plain(options.stream) });
        };
        if options.ask(OPTION_STARTTLS, &[])? != REPLY_ACK {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let name = ServerName::try_from("localhost").unwrap();
        let connection =
            ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, options.stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Options { stream: Peer::Tls(Box::new(stream)) })
    }
    /// A connection to a volume.
    pub(crate) fn connect(&self, volume: &str) -> io::Result<Peer> {
        let mut options = self.options()?;
        match options.go(volume)? {
            REPLY_ACK => Ok(options.stream),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

/// A socket.
pub(crate) enum Raw {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Raw {
    pub(crate) fn limit(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time))
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time))
            }
        }
    }
    pub(crate) fn never_blocks(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => {
                stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true))
            }
        }
    }
    pub(crate) fn fd(&self) -> RawFd {
        match self {
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

impl Read for Raw {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}
impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection, plain or encrypted.
pub(crate) enum Peer {
    Plain(Raw),
    Tls(Box<StreamOwned<ClientConnection, Raw>>),
}

impl Peer {
    pub(crate) fn raw(&self) -> &Raw {
        match self {
            Self::Plain(raw) => raw,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Peer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(raw) => raw.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}
impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(raw) => raw.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(raw) => raw.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Waits for a descriptor, at most this many milliseconds.
pub(crate) fn wait(fd: RawFd, events: i16, limit_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry, a local.
    unsafe { libc::poll(&raw mut poll, 1, limit_ms) == 1 }
}

/// This thread gets the processor when nobody else wants it: an attacker must not take it from the server.
pub(crate) fn be_nice() {
    // SAFETY: plain numbers; on Linux it concerns the calling thread alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// Real-time priority for a thread (0: the calling one), where that is allowed. Attackers run on the same machine, and a
/// kernel that lets a thread finish its tick would otherwise be what is measured.
pub(crate) fn be_prompt(thread: i32) {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter lives through the call; a refusal changes nothing.
    unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &parameter) };
}
