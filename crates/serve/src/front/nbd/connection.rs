//! One NBD connection: the bytes from its socket become requests of the engine, and finished requests become replies.
//!
//! Bounded: a connection has at most as many requests in flight as the contracts allow, and 64 MiB in
//! flight or unsent (64 KiB before it has chosen a volume); `port/budget.rs` limits what a whole group may hold. Beyond that,
//! and when the engine has no room, the connection *stalls*: nothing more is received until a reply has been sent. A
//! client that does not choose a volume in time is disconnected, and buffers that an idle client does not need are
//! freed.
//!
//! Once the client has requested TLS, its bytes pass through a [`Channel`] in both directions. Another thread
//! (`reactor/workers.rs`) does the handshake, which takes up to a millisecond.

mod commands;
mod handshake;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use io_uring::{opcode, types};
use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

use rustls::server::ServerConfig;

use super::input::Input;
use super::outbox::{Outbox, Sent};
use crate::front::nbd::session::{Command, CommandType, Session, Tls};
use crate::front::nbd::wire::{self, errno};
use crate::front::tls::{self, Channel, Stage};
use crate::port::Cancel;
use crate::reactor::endpoint::{Endpoint, Life, Progress, ReactorContext, RingEvent};
use crate::reactor::refusals::Refusal;
use crate::request::buffer::{Buffer, Pool};
use crate::request::data::Data;
use crate::request::entry::Entry;
use crate::request::export::Export;
use crate::request::op::Op;
use crate::security::Security;
use crate::socket;

/// A client that holds much memory while others of its group wait for some is disconnected if it transferred nothing at
/// this many consecutive checks (ten seconds).
const STUCK_CHECKS: u32 = 10;

/// Time by which an option of the handshake extends it, about a round trip of a slow network: a program that lists ten
/// thousand volumes asks for each. Clients that take long give way to others (`reactor/handshakes.rs`).
const OPTION_TIME: Nanos = Nanos::from_millis(100);
/// Options for each volume that extend it; programs send two or three.
const OPTIONS_OF_ONE: u64 = 8;

/// Slots of a connection's io_uring entries.
const RECEIVE: u8 = 0;
const SEND: u8 = 1;
const CANCEL: u8 = 2;
const HANGUP: u8 = 3;

/// A channel after one step of its handshake.
struct Handshake {
    channel: Box<Channel>,
    stage: Result<Stage, rustls::Error>,
    /// What the client said after it was over.
    plain: Vec<u8>,
    /// What TLS itself has to say.
    sealed: Vec<u8>,
}

/// A long write whose payload has not been received completely.
struct Payload {
    command: Command,
    buffer: Buffer,
    got: usize,
}

/// One connection.
pub(crate) struct Connection {
    socket: OwnedFd,
    session: Session,
    /// TLS configuration, in case the client requests TLS.
    tls: Option<Arc<ServerConfig>>,
    channel: Option<Box<Channel>>,
    /// While the channel is with the thread that does its handshake.
    shaking: Option<Receiver<Handshake>>,
    /// Steps of that handshake, and whether one failed.
    tls_steps: u32,
    tls_failed: bool,
    input: Input,
    out: Outbox,
    /// A command that waits for its payload or for room.
    waiting: Option<Command>,
    payload: Option<Payload>,
    in_flight_max: u32,
    /// By when the client must choose a volume.
    deadline: Instant,
    /// Whether anything was received or sent since the last check, and the number of consecutive checks without that.
    moved: bool,
    idle_checks: u32,
    /// A receive into `input` (and `payload`) is in flight.
    receiving: bool,
    /// A ring entry completes when the client hangs up, or sends no more.
    watching: bool,
    sends_no_more: bool,
    /// The data received last has not been processed.
    unseen: bool,
    /// How far the last visit came. Nothing is received while unprocessed input is left.
    progress: Progress,
    /// The peer has sent close_notify: no more data follows.
    ended: bool,
    /// Nothing more is read; closes when all replies are sent.
    closing: bool,
    /// The socket failed; closes when all requests are completed.
    broken: bool,
    /// We have sent close_notify.
    close_notify_sent: bool,
    pieces: Box<[libc::iovec; 2]>,
    header: Box<libc::msghdr>,
}

// SAFETY: `pieces` and `header` lead into this connection's own input and payload, which move with it on the heap.
unsafe impl Send for Connection {}

impl Connection {
    /// The endpoint of a client that was accepted.
    pub(crate) fn accept(now: Instant, socket: OwnedFd, security: &Security) -> Box<dyn Endpoint> {
        Box::new(Self::new(now, socket, security))
    }
    fn new(now: Instant, socket: OwnedFd, security: &Security) -> Self {
        let mut out = Outbox::new();
        let peer = socket::peer(&socket);
        let session = Session::new(peer, security.offer(peer), out.text());
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            socket,
            session,
            tls: security.config(),
            channel: None,
            shaking: None,
            tls_steps: 0,
            tls_failed: false,
            input: Input::new(),
            out,
            waiting: None,
            payload: None,
            in_flight_max: security.limits.in_flight,
            deadline: now + security.limits.handshake,
            moved: false,
            idle_checks: 0,
            receiving: false,
            watching: false,
            sends_no_more: false,
            unseen: false,
            progress: Progress::Done,
            ended: false,
            closing: false,
            broken: false,
            close_notify_sent: false,
            pieces: Box::new([empty; 2]),
            // SAFETY: all zeroes is a valid, empty message header.
            header: Box::new(unsafe { std::mem::zeroed() }),
        }
    }
    /// Whether the connection can be dropped.
    fn is_over(&self, in_flight: u32) -> bool {
        let is_ending = (self.closing || self.broken) && self.shaking.is_none();
        let uses_socket = self.receiving || self.watching || self.out.is_flying();
        is_ending && self.is_idle(in_flight) && !uses_socket
    }
    /// Whether it has nothing in flight and nothing unsent.
    fn is_idle(&self, in_flight: u32) -> bool {
        in_flight == 0 && (self.broken || self.out.is_empty())
    }
    /// Whether to start a receive.
    fn wants_input(&self) -> bool {
        let is_parsed = self.progress == Progress::Done && !self.unseen;
        !self.receiving && is_parsed && self.shaking.is_none() && !self.closing && !self.broken
    }

    /// An io_uring entry that receives the next data.
    fn receive_entry(&mut self) -> Entry {
        assert!(!self.receiving, "two receives on one socket");
        self.receiving = true;
        let socket = types::Fd(self.socket.as_raw_fd());
        let (room, sealed) = match &mut self.channel {
            Some(channel) => (channel.room(), true),
            None => (self.input.room(), false),
        };
        let mut entry = opcode::Recv::new(socket, room.as_mut_ptr(), room.len() as u32).build();
        if let Some(payload) = self.payload.as_mut().filter(|_| !sealed) {
            let rest =
                &mut payload.buffer.bytes_mut()[payload.got..payload.command.length as usize];
            *self.pieces = [
                libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
                libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
            ];
            self.header.msg_iov = self.pieces.as_mut_ptr();
            self.header.msg_iovlen = 2;
            entry = opcode::RecvMsg::new(socket, &raw mut *self.header).build();
        }
        // SAFETY: header and pieces are boxed. While `receiving`, until `on_received` is called with the completion, room
        // and payload are neither moved nor looked at, and the connection is not over.
        unsafe { Entry::new(entry) }
    }
    /// A receive was completed; `take_in` processes its data.
    fn on_received(&mut self, result: i32) {
        self.receiving = false;
        self.moved |= result > 0;
        self.unseen |= result > 0;
        match result {
            0 => self.closing = true,
            result if result < 0 => {
                let again = matches!(-result, libc::EINTR | libc::EAGAIN | libc::ECANCELED);
                if result == -libc::ECANCELED {
                    self.shrink();
                }
                self.broken |= !again;
            }
            result => {
                let mut count = result as usize;
                if let Some(channel) = &mut self.channel {
                    return channel.received(count);
                }
                if let Some(payload) = &mut self.payload {
                    let direct = count.min(payload.command.length as usize - payload.got);
                    payload.got += direct;
                    count -= direct;
                }
                self.input.received(count);
            }
        }
    }

    /// Decrypts the data received.
    fn decrypt(&mut self, cx: &mut ReactorContext<'_>) {
        if let Some(channel) = self.channel.take_if(|channel| !channel.is_established()) {
            return self.shake_hands(channel, cx);
        }
        let Self { channel: Some(channel), input, payload, out, .. } = self else { return };
        let take = |mut plain: &[u8]| {
            if let Some(payload) = payload {
                let missing = payload.command.length as usize - payload.got;
                let (direct, rest) = plain.split_at(missing.min(plain.len()));
                payload.buffer.fill(payload.got, direct);
                payload.got += direct.len();
                plain = rest;
            }
            input.append(plain);
        };
        let stage = channel.open(take, out.sealed());
        self.decrypted(&stage);
    }
    fn decrypted(&mut self, stage: &Result<Stage, rustls::Error>) {
        // On an error, TLS sends an alert before the client is disconnected.
        self.closing |= stage.is_err();
        self.tls_failed |= stage.is_err() && !self.session.is_attached();
        self.ended |= *stage == Ok(Stage::Closed);
    }
    /// The client has requested TLS: from now on, all data passes through a channel.
    fn start_tls(&mut self) {
        let config = self.tls.take().expect("it is offered only with its configuration");
        match Channel::new(config) {
            Ok(channel) => {
                self.out.start_tls();
                self.channel = Some(Box::new(channel));
            }
            Err(_) => self.closing = true,
        }
    }

    /// Drops unsent data and reads in flight after the socket has failed. Writes that were received are carried out.
    fn give_up(&mut self, cx: &mut ReactorContext<'_>) {
        self.broken = true;
        if !self.out.is_flying() {
            self.out.discard(cx.port.buffers());
        }
        cx.cancel_requests(Cancel::Reads);
        // This ends ring entries for the socket, which may be closed only after that.
        // SAFETY: a plain system call on a descriptor that this connection owns.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
    /// Handles the result of a send.
    fn after_send(
        &mut self,
        sent: io::Result<Sent>,
        cx: &mut ReactorContext<'_>,
    ) -> io::Result<()> {
        match sent {
            Ok(Sent::All) => Ok(()),
            Ok(Sent::Blocked) => {
                let entry = self.out.entry(self.socket.as_raw_fd());
                cx.push(entry, SEND)
            }
            Err(_) => {
                self.out.discard(cx.port.buffers());
                self.give_up(cx);
                Ok(())
            }
        }
    }
    /// Sends pending data, unless a send is in flight.
    fn send(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<()> {
        if self.broken || self.shaking.is_some() || self.out.is_flying() || self.out.is_empty() {
            return Ok(());
        }
        let channel = self.channel.as_deref_mut();
        let sent = self.out.send(self.socket.as_raw_fd(), channel, cx.port.buffers());
        self.after_send(sent, cx)
    }
    /// Whether a client that sends no more has disconnected as the protocols have it, and gets its replies. Over TLS it says so
    /// with close_notify; one that was killed does not.
    fn disconnects(&self) -> bool {
        let socket = self.socket.as_raw_fd();
        if self.closing || self.ended {
            return true;
        }
        let most = wire::REQUEST_HEADER.max(tls::CLOSE_NOTIFY_MAX);
        let Some(last) = socket::peek_last(socket, most) else { return true };
        let with = |received: &[u8]| {
            let missing = (most - last.len()).min(received.len());
            [&received[received.len() - missing..], &last].concat()
        };
        match &self.channel {
            Some(channel) if !last.is_empty() || !channel.unread().is_empty() => {
                tls::ends_with_close_notify(&with(channel.unread()))
            }
            _ => wire::ends_with_disconnect(&with(self.input.unread())),
        }
    }
    /// Frees buffers that an idle client does not need. No receive may be in flight.
    fn shrink(&mut self) {
        self.input.shrink();
        if let Some(channel) = &mut self.channel {
            channel.shrink();
        }
    }
    fn on_sent(&mut self, result: i32, cx: &mut ReactorContext<'_>) -> io::Result<()> {
        let socket = self.socket.as_raw_fd();
        self.moved |= result > 0;
        let sent = match result {
            result if result >= 0 && !self.broken => {
                let sent = self.out.on_sent(result as usize, socket, cx.port.buffers());
                // Data that TLS has not encrypted yet is sent at the end of the turn.
                sent
            }
            result if matches!(-result, libc::EINTR | libc::EAGAIN) && !self.broken => {
                Ok(Sent::Blocked)
            }
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        };
        self.after_send(sent, cx)
    }
}

impl Endpoint for Connection {
    fn on_ring(&mut self, event: RingEvent, cx: &mut ReactorContext<'_>) -> io::Result<()> {
        match event.slot {
            SEND => return self.on_sent(event.result, cx),
            // The cancelled entry has its own completion, which says how it ended.
            CANCEL => return Ok(()),
            HANGUP => {
                self.watching = false;
                let failed = i32::from(libc::POLLHUP | libc::POLLERR);
                self.sends_no_more = true;
                if event.result < 0 || event.result & failed != 0 || !self.disconnects() {
                    self.give_up(cx);
                }
                return Ok(());
            }
            _ => {}
        }
        self.on_received(event.result);
        if self.broken {
            self.give_up(cx);
        } else if event.result == 0 {
            // A client that wants replies disconnects with NBD_CMD_DISC, after which nothing is received.
            cx.cancel_requests(Cancel::Reads);
        }
        Ok(())
    }
    fn take_in(&mut self, cx: &mut ReactorContext<'_>) -> Progress {
        if std::mem::take(&mut self.unseen) {
            self.decrypt(cx);
        }
        self.progress = if self.shaking.is_some() { Progress::Done } else { self.parse(cx) };
        self.closing |= self.ended && self.progress == Progress::Done;
        if std::mem::take(&mut self.tls_failed) {
            cx.refusals.count(Refusal::Tls);
        }
        self.progress
    }
    fn deliver(&mut self, mut op: Op, buffers: &mut Pool) {
        let length = op.length as usize;
        let data = std::mem::take(&mut op.data);
        if self.broken {
            return buffers.release(data);
        }
        let reads = op.operation == Operation::Read && !op.hints.prefetch;
        if op.status != 0 {
            // A structured error, or a simple one.
            let command_type = if reads { CommandType::Read } else { CommandType::Flush };
            let error = errno::from_system(op.status);
            self.session.fail(command_type, op.cookie, error, self.out.text());
        } else if let Data::Extents(extents) = &data {
            wire::block_status(self.out.text(), op.cookie, extents);
        } else if reads {
            let structured = self.session.structured();
            wire::read_header(self.out.text(), structured, op.cookie, op.offset, op.length);
            return self.out.push(data, length);
        } else {
            wire::simple_reply(self.out.text(), op.cookie, 0);
        }
        buffers.release(data);
    }
    fn reply(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        // Received data must be decrypted first, in the next visit, before anything can be encrypted.
        if self.shaking.is_some() || (self.unseen && self.channel.is_some()) {
            return Ok(false);
        }
        let before = self.holds();
        self.send(cx)?;
        let moved = self.holds() < before;
        if self.broken
            || !self.closing
            || !self.is_idle(cx.client.in_flight)
            || self.close_notify_sent
        {
            return Ok(moved);
        }
        let Some(channel) = self.channel.as_mut().filter(|c| c.is_established()) else {
            return Ok(moved);
        };
        self.close_notify_sent = true;
        if channel.finish(self.out.sealed()).is_err() {
            self.give_up(cx);
        }
        self.send(cx)?;
        Ok(moved)
    }
    fn has_unsent(&self) -> bool {
        self.broken || !self.out.is_empty()
    }
    fn settle(&mut self, cx: &mut ReactorContext<'_>) -> io::Result<Life> {
        let in_flight = cx.client.in_flight;
        if self.is_over(in_flight) {
            self.out.discard(cx.port.buffers());
            self.payload = None;
            return Ok(Life::Closed);
        }
        if self.wants_input() {
            let entry = self.receive_entry();
            cx.push(entry, RECEIVE)?;
        } else if self.closing && self.is_idle(in_flight) && (self.receiving || self.watching) {
            self.give_up(cx);
        } else if in_flight > 0
            && !self.receiving
            && !self.watching
            && !self.broken
            && !self.sends_no_more
        {
            // There is no receive that would report a closed connection.
            self.watching = true;
            cx.push(Entry::hangup(self.socket.as_raw_fd()), HANGUP)?;
        }
        Ok(Life::Open)
    }
    fn close(&mut self) {
        self.closing = true;
    }
    fn on_work_done(&mut self) {
        self.shaken();
    }
    fn handshake_steps(&self) -> u32 {
        self.session.options().saturating_add(self.tls_steps)
    }
    fn forgive(&mut self, stopped: Nanos) {
        self.deadline += stopped;
    }
    fn is_shaking(&self) -> bool {
        self.shaking.is_some()
    }
    fn cut(&mut self, cx: &mut ReactorContext<'_>) {
        self.give_up(cx);
    }
    fn periodic_check(&mut self, short: bool, cx: &mut ReactorContext<'_>) -> io::Result<bool> {
        if self.broken {
            return Ok(false);
        }
        self.idle_checks =
            if std::mem::take(&mut self.moved) { 0 } else { self.idle_checks.saturating_add(1) };
        let useful = OPTIONS_OF_ONE * cx.port.exports.starting_at(0).len() as u64;
        let asked = Nanos(OPTION_TIME.0 * useful.min(self.session.options().into()));
        let late = !self.session.is_attached() && cx.now >= self.deadline + asked;
        // A client that waits for the drive is not at fault.
        let waits_for_client = self.payload.is_some() || self.out.is_flying();
        let stuck = short
            && waits_for_client
            && self.idle_checks >= STUCK_CHECKS
            && cx.client.share.bytes() > 0;
        if late || stuck {
            cx.refusals.count(if late { Refusal::Timeout } else { Refusal::Memory });
            self.give_up(cx);
            return Ok(false);
        }
        // The ring reports once that the client sends no more, and does not report a close after that.
        let leaves = self.sends_no_more && cx.client.in_flight > 0;
        if leaves && socket::is_dead(self.socket.as_raw_fd()) {
            self.give_up(cx);
            return Ok(false);
        }
        let large = self.input.is_large() || self.channel.as_ref().is_some_and(|c| c.is_large());
        let quiet = self.payload.is_none() && self.idle_checks >= 2;
        if large && quiet && self.receiving {
            // The reply frees this memory again.
            cx.cancel(RECEIVE, CANCEL)?;
        }
        Ok(large || !self.session.is_attached() || waits_for_client || leaves)
    }
    fn is_allowed(&self, export: Option<&Export>, security: &Security) -> bool {
        let needs_tls = security.offer(self.session.peer()) == Tls::Required;
        let plain = !matches!(self.session.tls(), Tls::Required | Tls::Running);
        export.is_none_or(|export| self.session.may_use(export)) && !(needs_tls && plain)
    }
    fn holds(&self) -> usize {
        let coming = self.payload.as_ref().map_or(0, |payload| payload.buffer.capacity());
        self.out.unsent() + coming
    }
    fn resized(&mut self, size: u64) {
        self.session.resized(size);
    }
}
