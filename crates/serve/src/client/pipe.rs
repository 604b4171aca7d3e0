//! One connection of a crowd: unsent requests, requests in flight, and completions as they arrive, in any pieces.
//! Write payloads are zeroes, and read payloads are discarded.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};

use slab::Slab;

use super::protocol::{
    COMMAND_FLUSH, COMMAND_READ, COMMAND_TRIM, COMMAND_WRITE, REPLY_MAGIC, broken, command,
};

/// What a payload is made of.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
/// Slices of one call.
const SLICES: usize = 32;
/// Bytes of a reply's head.
const HEAD: usize = 16;

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandType {
    /// Bytes from the volume.
    Read,
    /// Bytes to the volume.
    Write,
    /// Makes completed writes durable.
    Flush,
    /// Discards bytes of the volume.
    Trim,
}

/// A request in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flying {
    pub(super) tag: u64,
    pub(super) command_type: CommandType,
    pub(super) length: u32,
}

/// Heads of requests, and the payload after the last of them.
#[derive(Default, Debug)]
struct Piece {
    heads: Vec<u8>,
    payload: usize,
}

impl Piece {
    fn len(&self) -> usize {
        self.heads.len() + self.payload
    }
    /// Its slices from a place in it on.
    fn slices<'a>(&'a self, from: usize, into: &mut Vec<IoSlice<'a>>) {
        if from < self.heads.len() {
            into.push(IoSlice::new(&self.heads[from..]));
        }
        let mut left = self.len() - from.max(self.heads.len());
        while left > 0 && into.len() < SLICES {
            let part = left.min(ZEROES.len());
            into.push(IoSlice::new(&ZEROES[..part]));
            left -= part;
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Pipe<S> {
    pub(super) stream: S,
    queue: VecDeque<Piece>,
    /// Bytes of the first piece that are sent.
    sent: usize,
    flying: Slab<Flying>,
    head: [u8; HEAD],
    /// Bytes of the head that are there.
    heads: usize,
    /// Payload still to come of the reply whose head is there.
    payload: usize,
    current: Option<(Flying, u32)>,
}

impl<S: Read + Write> Pipe<S> {
    /// A stream that never blocks, after its export was chosen.
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            queue: VecDeque::new(),
            sent: 0,
            flying: Slab::new(),
            head: [0; HEAD],
            heads: 0,
            payload: 0,
            current: None,
        }
    }
    /// Requests that have no reply yet.
    pub(super) fn in_flight(&self) -> usize {
        self.flying.len()
    }
    pub(super) fn wants_to_send(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Puts a request behind those that wait to be sent.
    pub(super) fn push(&mut self, flying: Flying, offset: u64) {
        let Flying { command_type, length, .. } = flying;
        let cookie = self.flying.insert(flying) as u64;
        let (kind, payload) = match command_type {
            CommandType::Read => (COMMAND_READ, 0),
            CommandType::Write => (COMMAND_WRITE, length as usize),
            CommandType::Flush => (COMMAND_FLUSH, 0),
            CommandType::Trim => (COMMAND_TRIM, 0),
        };
        let head = command(kind, cookie, offset, length);
        match self.queue.back_mut().filter(|last| last.payload == 0) {
            Some(last) => {
                last.heads.extend(head);
                last.payload = payload;
            }
            None => self.queue.push_back(Piece { heads: head.to_vec(), payload }),
        }
    }
    /// Sends what the socket takes.
    pub(super) fn send(&mut self) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut slices = Vec::with_capacity(SLICES);
            let mut from = self.sent;
            for piece in &self.queue {
                if slices.len() >= SLICES {
                    break;
                }
                piece.slices(from, &mut slices);
                from = 0;
            }
            match self.stream.write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            while let Some(first) = self.queue.front().filter(|first| first.len() <= self.sent) {
                self.sent -= first.len();
                self.queue.pop_front();
            }
        }
        Ok(())
    }

    /// Takes what the socket has; tells of each reply with its error.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        mut told: impl FnMut(Flying, u32),
    ) -> io::Result<()> {
        loop {
            let got = match self.stream.read(scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.parse(&scratch[..got], &mut told)?;
            if got < scratch.len() {
                return Ok(());
            }
        }
    }
    fn parse(&mut self, mut bytes: &[u8], told: &mut impl FnMut(Flying, u32)) -> io::Result<()> {
        loop {
            let skipped = self.payload.min(bytes.len());
            self.payload -= skipped;
            bytes = &bytes[skipped..];
            if self.payload > 0 {
                return Ok(());
            }
            if let Some((flying, error)) = self.current.take() {
                told(flying, error);
            }
            let more = bytes.len().min(HEAD - self.heads);
            self.head[self.heads..self.heads + more].copy_from_slice(&bytes[..more]);
            self.heads += more;
            bytes = &bytes[more..];
            if self.heads < HEAD {
                return Ok(());
            }
            self.heads = 0;
            self.begin()?;
        }
    }
    /// A head is complete.
    fn begin(&mut self) -> io::Result<()> {
        let word = |at: usize| {
            let bytes = self.head[at..at + 4].try_into().expect("four bytes of sixteen");
            u32::from_be_bytes(bytes)
        };
        if word(0) != REPLY_MAGIC {
            return Err(broken("a reply without its magic number"));
        }
        let (error, cookie) = (word(4), u64::from(word(8)) << 32 | u64::from(word(12)));
        let key = usize::try_from(cookie).unwrap_or(usize::MAX);
        let Some(flying) = self.flying.try_remove(key) else {
            return Err(broken(format!("a reply to no request: {cookie}")));
        };
        if flying.command_type == CommandType::Read && error == 0 {
            self.payload = flying.length as usize;
        }
        self.current = Some((flying, error));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes and gives a few bytes at a time.
    #[derive(Default)]
    struct Slow {
        taken: Vec<u8>,
        given: VecDeque<u8>,
        at_once: usize,
        turn: usize,
    }
    impl Slow {
        fn blocks(&mut self) -> bool {
            self.turn += 1;
            self.turn.is_multiple_of(3)
        }
    }
    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.blocks() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let some = bytes.len().min(self.at_once);
            self.taken.extend(&bytes[..some]);
            Ok(some)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let some = into.len().min(self.at_once).min(self.given.len());
            if some == 0 || self.blocks() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.given.drain(..some).zip(into).for_each(|(byte, to)| *to = byte);
            Ok(some)
        }
    }

    fn reply(cookie: u64, error: u32, payload: usize) -> Vec<u8> {
        let mut bytes = REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.resize(HEAD + payload, 7);
        bytes
    }

    /// Goal: requests and replies survive any pieces that a socket makes of them. Method: reads, writes and a flush
    /// through a stream of 1 to 100 bytes at once; replies in another order, one of them an error.
    #[test]
    fn pieces_make_a_whole() {
        for at_once in [1, 7, 28, 100] {
            let mut pipe = Pipe::new(Slow { at_once, ..Slow::default() });
            let asks = [
                (CommandType::Read, 512),
                (CommandType::Write, 1024),
                (CommandType::Flush, 0),
                (CommandType::Read, 4096),
            ];
            for (tag, (command_type, length)) in asks.into_iter().enumerate() {
                pipe.push(Flying { tag: tag as u64, command_type, length }, 4096 * tag as u64);
            }
            while pipe.wants_to_send() {
                pipe.send().expect("it only blocks");
            }
            let sent = &pipe.stream.taken;
            assert_eq!(sent.len(), 4 * 28 + 1024);
            assert_eq!(sent[28..56], command(COMMAND_WRITE, 1, 4096, 1024));
            assert_eq!(sent[56 + 1024..][..28], command(COMMAND_FLUSH, 2, 8192, 0));
            let replies = [reply(3, 0, 4096), reply(1, 5, 0), reply(0, 0, 512), reply(2, 0, 0)];
            pipe.stream.given = replies.concat().into();
            let mut seen = Vec::new();
            while pipe.in_flight() > 0 || pipe.current.is_some() {
                let reply = |request: Flying, error| seen.push((request.tag, error));
                pipe.receive(&mut [0; 64], reply).expect("good");
            }
            assert_eq!(seen, [(3, 0), (1, 5), (0, 0), (2, 0)]);
        }
    }

    /// Goal: an invalid message ends a connection. Method: a wrong magic number, a reply to nothing.
    #[test]
    fn invalid_input_is_refused() {
        for bytes in [vec![1; HEAD], reply(9, 0, 0)] {
            let mut pipe = Pipe::new(Slow { at_once: 100, ..Slow::default() });
            pipe.stream.given = bytes.into();
            assert!(pipe.receive(&mut [0; 64], |_, _| ()).is_err());
        }
    }
}
