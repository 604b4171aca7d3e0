//! Many connections of one thread, for the clients of an experiment. Only [`Crowd::wait`] blocks.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use iofair_core::time::{Instant, Nanos};

use super::pipe::{CommandType, Flying, Pipe};
use super::protocol::dial;
use crate::clock::{self, Clock};
use crate::socket;

/// Bytes taken from a socket at once.
const SCRATCH: usize = 1 << 20;
/// A sleeping thread comes back some 50 us late on a virtual machine, so nobody sleeps while events follow each other
/// as fast as this: an SSD's do, a disk's do not.
const QUIET: Nanos = Nanos::from_millis(2);
/// And who sleeps wakes up so much earlier than it must.
const EARLY: Nanos = Nanos::from_micros(100);

/// A request of one of the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The index of the client.
    pub client: usize,
    /// Returned with the completion.
    pub tag: u64,
    /// The operation.
    pub command_type: CommandType,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The request's tag.
    pub tag: u64,
    /// The request's length.
    pub length: u32,
    /// 0, or the protocol's error number.
    pub error: u32,
}

/// The connections of a thread.
#[derive(Debug)]
pub struct Crowd {
    pipes: Vec<Pipe<UnixStream>>,
    polls: Vec<libc::pollfd>,
    scratch: Vec<u8>,
    replies: Vec<Reply>,
    clock: Clock,
    last_event: Instant,
}

impl Crowd {
    /// Connects a client to each of these exports of the server behind a Unix socket.
    pub fn connect(socket: &Path, exports: &[String], clock: Clock) -> io::Result<Self> {
        clock::sharpen_timers();
        let connect = |export: &String| {
            let (stream, _) = dial(socket, export)?;
            stream.set_nonblocking(true)?;
            socket::prepare(stream.as_raw_fd());
            Ok(Pipe::new(stream))
        };
        let pipes = exports.iter().map(connect).collect::<io::Result<Vec<_>>>()?;
        let poll = |pipe: &Pipe<UnixStream>| libc::pollfd {
            fd: pipe.stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        Ok(Self {
            polls: pipes.iter().map(poll).collect(),
            pipes,
            scratch: vec![0; SCRATCH],
            replies: Vec::new(),
            last_event: clock.now(),
            clock,
        })
    }
    /// Sets the epoch of its clock to now.
    pub fn restart(&mut self) {
        self.clock = Clock::start();
        self.last_event = Instant::ZERO;
    }
    /// Queues a request for sending.
    pub fn push(&mut self, request: Request) {
        let Request { client, tag, command_type, offset, length } = request;
        self.pipes[client].push(Flying { tag, command_type, length }, offset);
    }
    /// Number of a client's requests in flight.
    pub fn in_flight(&self, client: usize) -> usize {
        self.pipes[client].in_flight()
    }
    /// Sends as much as the sockets accept.
    pub fn send(&mut self) -> io::Result<()> {
        for (pipe, poll) in self.pipes.iter_mut().zip(&mut self.polls) {
            if pipe.wants_to_send() {
                pipe.send()?;
                poll.events = libc::POLLIN;
                if pipe.wants_to_send() {
                    poll.events |= libc::POLLOUT;
                }
            }
        }
        Ok(())
    }
    /// Waits for a completion, or until `until`; returns the time.
    pub fn wait(&mut self, until: Instant) -> io::Result<Instant> {
        loop {
            self.send()?;
            let now = self.clock.now();
            let rest = until.since(now).saturating_sub(EARLY);
            let quiet = now.since(self.last_event) > QUIET;
            self.poll(if quiet { rest } else { Nanos::ZERO })?;
            let now = self.clock.now();
            if !self.replies.is_empty() {
                self.last_event = now;
                return Ok(now);
            }
            if now >= until {
                return Ok(now);
            }
        }
    }
    /// Completions since the last call.
    pub fn take_replies(&mut self) -> std::vec::Drain<'_, Reply> {
        self.replies.drain(..)
    }

    /// Waits for sockets, and takes what they have.
    fn poll(&mut self, limit: Nanos) -> io::Result<()> {
        let limit = libc::timespec {
            tv_sec: (limit.0 / 1_000_000_000) as i64,
            tv_nsec: (limit.0 % 1_000_000_000) as i64,
        };
        let (polls, count) = (self.polls.as_mut_ptr(), self.polls.len() as libc::nfds_t);
        // SAFETY: the array has `count` entries and is only written to during the call; the time is a local.
        let ready = unsafe { libc::ppoll(polls, count, &raw const limit, std::ptr::null()) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            return if interrupted { Ok(()) } else { Err(error) };
        }
        if ready == 0 {
            return Ok(());
        }
        let Self { pipes, polls, scratch, replies, .. } = self;
        for (pipe, poll) in pipes.iter_mut().zip(polls) {
            if poll.revents & !libc::POLLOUT != 0 {
                pipe.receive(scratch, |flying, error| {
                    let Flying { tag, length, .. } = flying;
                    replies.push(Reply { tag, length, error });
                })?;
            }
        }
        Ok(())
    }
}
