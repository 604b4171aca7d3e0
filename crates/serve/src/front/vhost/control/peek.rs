//! The back end's own channel to the client, which reports changes of the configuration.
//!
//! The `vhost` crate (0.18) takes the channel's socket but does not have that message. So this file inspects the
//! message that carries the socket before the crate reads it, and the kernel gives us a second descriptor.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Bytes of a message's header: request, flags, size.
const HEADER: usize = 12;
/// "Here is the back end's channel", and "the configuration has changed", with version 1.
const SET_BACKEND_REQ_FD: u32 = 21;
const CONFIG_CHANGE: [u32; 3] = [2, 1, 0];

/// The channel, if the message that is there brings one.
pub(super) fn channel(socket: &UnixStream) -> Option<OwnedFd> {
    let mut header = [0; HEADER];
    // Without room for descriptors none is made.
    let got = peek(socket, &mut header, &mut [])?;
    let request = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
    if got < HEADER || request != SET_BACKEND_REQ_FD {
        return None;
    }
    #[repr(align(8))]
    struct Room([u8; 64]);
    let mut room = Room([0; 64]);
    let mut message = [0; HEADER];
    let (_, file) = peek_file(socket, &mut message, &mut room.0)?;
    file
}

/// Whether there is a message, or the end of the client. Does not wait.
pub(super) fn is_ready(socket: &UnixStream) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: writes at most one byte, into a local.
    let got = unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
    // Any other error is the conversation's end, which handling a message finds out.
    got >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
}

fn peek(socket: &UnixStream, bytes: &mut [u8], room: &mut [u8]) -> Option<usize> {
    receive(socket, bytes, room).map(|(got, _)| got)
}

fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
    room: &mut [u8],
) -> Option<(usize, libc::msghdr)> {
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes is a valid, empty message header.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = room.len() as _;
    let flags = libc::MSG_PEEK | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header leads to the caller's bytes and room, which are there until it returns.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    message.msg_iov = std::ptr::null_mut();
    usize::try_from(got).ok().map(|got| (got, message))
}

fn peek_file(
    socket: &UnixStream,
    bytes: &mut [u8],
    room: &mut [u8],
) -> Option<(usize, Option<OwnedFd>)> {
    let (got, message) = receive(socket, bytes, room)?;
    let mut first = None;
    // SAFETY: the header is as the kernel filled it, its control messages lie in `room`, and each
    // descriptor in them was made for us alone.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(&raw const message);
        while !control.is_null() {
            let rights = (*control).cmsg_level == libc::SOL_SOCKET
                && (*control).cmsg_type == libc::SCM_RIGHTS;
            let head = libc::CMSG_LEN(0) as usize;
            let count = ((*control).cmsg_len as usize - head) / size_of::<RawFd>();
            for at in (0..count).filter(|_| rights) {
                let file = libc::CMSG_DATA(control).cast::<RawFd>().add(at).read_unaligned();
                let file = OwnedFd::from_raw_fd(file);
                first.get_or_insert(file);
            }
            control = libc::CMSG_NXTHDR(&raw const message, control);
        }
    }
    Some((got, first))
}

/// Tells the client that the configuration has changed, if its socket takes it now.
pub(crate) fn tell_of_change(channel: &OwnedFd) {
    let message = CONFIG_CHANGE;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: sends twelve bytes of a local. A client that does not listen looks again when it starts.
    unsafe {
        let bytes = message.as_ptr().cast();
        libc::send(channel.as_raw_fd(), bytes, size_of_val(&message), flags)
    };
}
