//! The kernel's generic netlink family "nbd". See `linux/nbd-netlink.h`, and netlink(7) for messages and attributes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use iofair_serve::client::Export;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};

/// The family `nlctrl`, which looks up other families by name: its command, and attributes of the command and of its reply.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FAMILY_GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

/// Commands of the family.
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
const LINK_DEAD: u8 = 4;

/// Attributes of its commands.
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONN_TIMEOUT: u16 = 8;
const BACKEND_IDENTIFIER: u16 = 10;
const SOCKET_ITEM: u16 = 1;
const SOCKET_FD: u16 = 1;

/// Messages: an error or an acknowledgement, and flags of requests.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const NESTED: u16 = 1 << 15;
/// Sizes of headers.
const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
/// Logical blocks of devices, as of volumes behind other doors.
const BLOCK: u64 = 512;
const MESSAGE_BYTES_MAX: usize = 8 << 10;
const GROUP: &str = "nbd_mc_group";

/// A socket, and the number of the family.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    family: u16,
    groups: Vec<u8>,
}

/// Attributes of a message.
#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn add(mut self, kind: u16, value: &[u8]) -> Self {
        // Attributes here are shorter than a message.
        let length = (4 + value.len()) as u16;
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
    fn u32(self, kind: u16, value: u32) -> Self {
        self.add(kind, &value.to_ne_bytes())
    }
    fn u64(self, kind: u16, value: u64) -> Self {
        self.add(kind, &value.to_ne_bytes())
    }
    fn nest(self, kind: u16, inner: Self) -> Self {
        self.add(kind | NESTED, &inner.0)
    }
    fn text(self, kind: u16, value: &str) -> Self {
        self.add(kind, &[value.as_bytes(), &[0]].concat())
    }
    /// One socket in the list of a device's sockets.
    fn socket(self, stream: &impl AsFd) -> Self {
        let number = u32::try_from(stream.as_fd().as_raw_fd()).unwrap_or(u32::MAX);
        let item = Self::default().nest(SOCKET_ITEM, Self::default().u32(SOCKET_FD, number));
        self.nest(SOCKETS, item)
    }
}

/// Reads attributes; stops at one that is malformed.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & !NESTED;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

impl Netlink {
    /// A socket for requests.
    ///
    /// # Errors
    /// The kernel has no such family: its module nbd is missing.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        let mut netlink = Self { socket, family: CONTROL, groups: Vec::new() };
        let reply = netlink
            .request(GET_FAMILY, Attributes::default().text(FAMILY_NAME, "nbd"))
            .map_err(|error| io::Error::new(error.kind(), format!("NBD over netlink: {error}")))?;
        for (kind, value) in attributes(&reply) {
            match (kind, value.first_chunk()) {
                (FAMILY_ID, Some(id)) => netlink.family = u16::from_ne_bytes(*id),
                (FAMILY_GROUPS, _) => netlink.groups = value.to_vec(),
                _ => {}
            }
        }
        Ok(netlink)
    }
    /// A socket that hears of lost connections.
    ///
    /// # Errors
    /// As [`Netlink::open`].
    pub(super) fn of_lost_connections() -> io::Result<Self> {
        let mut netlink = Self::open()?;
        let named = attributes(&netlink.groups).find_map(|(_, group)| {
            let is_it = attributes(group)
                .any(|(kind, name)| kind == GROUP_NAME && name.starts_with(GROUP.as_bytes()));
            let id = attributes(group).find(|(kind, _)| *kind == GROUP_ID);
            is_it.then(|| number(id?.1))?
        });
        let group = named.ok_or_else(|| io::Error::other("NBD over netlink has no such group"))?;
        let flags = SocketFlags::CLOEXEC;
        netlink.socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        // Room for a message of each of some hundred devices.
        set_socket_recv_buffer_size(&netlink.socket, 1 << 20)?;
        bind(&netlink.socket, &SocketAddrNetlink::new(0, 1 << (group - 1)))?;
        Ok(netlink)
    }
    /// Makes a device of a connection; returns its number.
    pub(super) fn connect(
        &self,
        stream: &impl AsFd,
        export: Export,
        identifier: &str,
        dead: Duration,
    ) -> io::Result<u32> {
        let attributes = Attributes::default()
            .u64(SIZE_BYTES, export.size)
            .u64(BLOCK_SIZE_BYTES, BLOCK)
            .u64(SERVER_FLAGS, export.flags.into())
            .u64(DEAD_CONN_TIMEOUT, dead.as_secs())
            .socket(stream)
            .text(BACKEND_IDENTIFIER, identifier);
        let reply = self.request(CONNECT, attributes)?;
        let index = self::attributes(&reply).find(|(kind, _)| *kind == INDEX);
        index.and_then(|(_, value)| number(value)).ok_or_else(|| io::Error::other("no number"))
    }
    /// Ends a device.
    pub(super) fn disconnect(&self, device: u32) -> io::Result<()> {
        self.request(DISCONNECT, Attributes::default().u32(INDEX, device)).map(drop)
    }
    /// Gives a device a connection instead of its lost one. It is not used if none was lost.
    pub(super) fn reconnect(
        &self,
        device: u32,
        identifier: &str,
        stream: &impl AsFd,
    ) -> io::Result<()> {
        let attributes = Attributes::default()
            .u32(INDEX, device)
            .socket(stream)
            .text(BACKEND_IDENTIFIER, identifier);
        match self.request(RECONFIGURE, attributes) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error()) => {
                Ok(())
            }
            done => done.map(drop),
        }
    }
    /// Gives a device another size.
    pub(super) fn resize(&self, device: u32, identifier: &str, bytes: u64) -> io::Result<()> {
        let attributes = Attributes::default()
            .u32(INDEX, device)
            .u64(SIZE_BYTES, bytes)
            .text(BACKEND_IDENTIFIER, identifier);
        self.request(RECONFIGURE, attributes).map(drop)
    }
    /// Devices that have lost a connection; waits for one, at most for this time.
    pub(super) fn lost(&self, patience: Option<Duration>) -> io::Result<Vec<u32>> {
        set_socket_timeout(&self.socket, Timeout::Recv, patience)?;
        let mut lost = Vec::new();
        let mut flags = RecvFlags::empty();
        loop {
            let mut bytes = vec![0; MESSAGE_BYTES_MAX];
            match recv(&self.socket, bytes.as_mut_slice(), flags) {
                Ok((read, _)) => bytes.truncate(read),
                Err(rustix::io::Errno::AGAIN) => return Ok(lost),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            flags = RecvFlags::DONTWAIT;
            if bytes.get(HEADER) == Some(&LINK_DEAD) {
                let inner = bytes.get(HEADER + GENERIC_HEADER..).unwrap_or_default();
                let index = attributes(inner).find(|(kind, _)| *kind == INDEX);
                lost.extend(index.and_then(|(_, value)| number(value)));
            }
        }
    }
    /// Sends a request and waits for its reply: the attributes of the kernel's message, if it sends one.
    fn request(&self, command: u8, attributes: Attributes) -> io::Result<Vec<u8>> {
        let length = HEADER + GENERIC_HEADER + attributes.0.len();
        let mut message = u32::try_from(length).map_err(io::Error::other)?.to_ne_bytes().to_vec();
        message.extend(self.family.to_ne_bytes());
        message.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
        // Sequence number and port: one request at a time, and the kernel fills in the port.
        message.extend([0; 8]);
        message.extend([command, 1, 0, 0]);
        message.extend(attributes.0);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        let mut reply = Vec::new();
        loop {
            let mut bytes = vec![0; MESSAGE_BYTES_MAX];
            let (read, _) = match recv(&self.socket, bytes.as_mut_slice(), RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            bytes.truncate(read);
            while let Some((length, kind)) = header(&bytes) {
                let body = &bytes[HEADER..length];
                if kind == ERROR {
                    return match number(body).map(u32::cast_signed) {
                        Some(0) => Ok(reply),
                        Some(code) => Err(io::Error::from_raw_os_error(-code)),
                        None => Err(io::Error::other("a message is too short")),
                    };
                }
                reply = body.get(GENERIC_HEADER..).unwrap_or_default().to_vec();
                bytes.drain(..length.next_multiple_of(4).min(bytes.len()));
            }
        }
    }
}

/// Length and kind of the message at the start, if it is complete.
fn header(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = number(bytes)? as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    (HEADER..=bytes.len()).contains(&length).then_some((length, kind))
}
