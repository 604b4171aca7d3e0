//! NBD as bytes on a socket, written from the protocol's description: for tests that must see every
//! answer by itself. And a workload that knows what has to be stored.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const FLUSH: u16 = 3;
/// Durable before the answer.
pub const FUA: u16 = 1;
/// A server that says nothing for this long hangs, and the test fails.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// What a workload reads and writes at once.
pub const BLOCK: usize = 4096;

/// An answer; no data unless it was a read that went well.
#[derive(Debug)]
pub struct Reply {
    pub cookie: u64,
    pub error: u32,
    pub read: bool,
    pub data: Vec<u8>,
}

/// Both ways of a connection, plain or encrypted.
pub trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// One connection, with simple replies.
pub struct Wire {
    pub stream: Box<dyn Stream>,
    /// The volume's size, as the server told it.
    pub size: u64,
    /// Bytes that the answers bring, by cookie.
    expected: BTreeMap<u64, usize>,
    next: u64,
}

impl Wire {
    /// Chooses volume `v` behind a socket.
    pub fn connect(socket: &str) -> Self {
        Self::connect_to(socket, "v").unwrap()
    }
    /// Chooses a volume behind a socket, if there is one.
    pub fn connect_to(socket: &str, volume: &str) -> Option<Self> {
        Self::dial(socket, volume).ok()
    }
    /// The same, with the reason if it fails.
    pub fn dial(socket: &str, volume: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut options = Options::greet(stream)?;
        options.send(OPTION_EXPORT_NAME, volume.as_bytes())?;
        Self::chosen(Box::new(options.stream))
    }
    /// Takes the answer to EXPORT_NAME.
    pub fn chosen(mut stream: Box<dyn Stream>) -> io::Result<Self> {
        let mut told = [0; 10];
        stream.read_exact(&mut told)?;
        let size = u64::from_be_bytes(told[..8].try_into().unwrap());
        Ok(Self { size, ..Self::after_go(stream) })
    }
    /// A connection that has chosen its volume.
    pub fn after_go(stream: Box<dyn Stream>) -> Self {
        Self { stream, size: 0, expected: BTreeMap::new(), next: 0 }
    }
    /// A request as it is sent; its cookie is the number of requests before it.
    pub fn request(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
        let cookie = self.next;
        self.next += 1;
        self.expected.insert(cookie, if kind == READ { length as usize } else { 0 });
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    }
    pub fn send_read(&mut self, offset: u64, length: u32) -> io::Result<u64> {
        let bytes = self.request(READ, 0, offset, length);
        self.stream.write_all(&bytes)?;
        Ok(self.next - 1)
    }
    pub fn send_write(&mut self, flags: u16, offset: u64, data: &[u8]) -> io::Result<u64> {
        let mut bytes = self.request(WRITE, flags, offset, data.len() as u32);
        bytes.extend(data);
        self.stream.write_all(&bytes)?;
        Ok(self.next - 1)
    }
    pub fn send_flush(&mut self) -> io::Result<u64> {
        let bytes = self.request(FLUSH, 0, 0, 0);
        self.stream.write_all(&bytes)?;
        Ok(self.next - 1)
    }
    /// The next answer, whichever request it belongs to; an error when the server is gone.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!(word(0), 0x6744_6698, "an answer begins with its magic number");
        let cookie = u64::from(word(8)) << 32 | u64::from(word(12));
        let length = self.expected.remove(&cookie).expect("every request is answered once");
        let mut data = vec![0; if word(4) == 0 { length } else { 0 }];
        self.stream.read_exact(&mut data)?;
        Ok(Reply { cookie, error: word(4), read: length > 0, data })
    }
    /// Requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.expected.len()
    }
    /// One read and its answer.
    pub fn read(&mut self, offset: u64, length: u32) -> Reply {
        let cookie = self.send_read(offset, length).unwrap();
        let answer = self.receive().unwrap();
        assert_eq!(answer.cookie, cookie);
        answer
    }
    /// One write and the error that it was answered with.
    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        let cookie = self.send_write(flags, offset, data).unwrap();
        let answer = self.receive().unwrap();
        assert_eq!(answer.cookie, cookie);
        answer.error
    }
}

pub const OPTION_EXPORT_NAME: u32 = 1;
pub const OPTION_LIST: u32 = 3;
pub const OPTION_STARTTLS: u32 = 5;
pub const OPTION_GO: u32 = 7;
pub const REPLY_ACK: u32 = 1;

/// A connection that has chosen nothing yet.
pub struct Options<S> {
    pub stream: S,
}

impl<S: Read + Write> Options<S> {
    /// Takes the greeting; fixed newstyle without zeroes.
    pub fn greet(mut stream: S) -> io::Result<Self> {
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(&3u32.to_be_bytes())?;
        Ok(Self { stream })
    }
    pub fn send(&mut self, kind: u32, data: &[u8]) -> io::Result<()> {
        let length = (data.len() as u32).to_be_bytes();
        self.stream.write_all(&[b"IHAVEOPT", &kind.to_be_bytes()[..], &length, data].concat())
    }
    /// The next answer: its kind and data.
    pub fn receive(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let mut head = [0; 20];
        self.stream.read_exact(&mut head)?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; word(16) as usize];
        self.stream.read_exact(&mut data)?;
        Ok((word(12), data))
    }
    /// Sends an option and takes answers up to the one that ends it, which is returned.
    pub fn ask(&mut self, kind: u32, data: &[u8]) -> io::Result<u32> {
        self.send(kind, data)?;
        loop {
            let (kind, _) = self.receive()?;
            if kind == REPLY_ACK || kind >> 31 == 1 {
                return Ok(kind);
            }
        }
    }
    /// The answer to GO.
    pub fn go(&mut self, name: &str) -> io::Result<u32> {
        let length = (name.len() as u32).to_be_bytes();
        self.ask(OPTION_GO, &[&length[..], name.as_bytes(), &[0; 2]].concat())
    }
    /// The names that are listed.
    pub fn list(&mut self) -> io::Result<Vec<String>> {
        self.send(OPTION_LIST, &[])?;
        let mut names = Vec::new();
        loop {
            match self.receive()? {
                (REPLY_ACK, _) => return Ok(names),
                (kind, data) => {
                    assert_eq!(kind, 2, "an export");
                    names.push(String::from_utf8(data[4..].to_vec()).unwrap());
                }
            }
        }
    }
}

/// In the place of a block: a flush.
const FLUSH_BLOCK: usize = usize::MAX;

/// Versions of a block that were sent and answered; version 0 is zeroes.
#[derive(Clone, Copy, Default)]
struct Block {
    sent: u32,
    answered: u32,
    busy: bool,
    /// A write of it failed: it holds anything until the next one.
    unknown: bool,
}

/// Random reads and writes, at most one at a time a block, so that it is known what each read has to
/// find, and what must be there if everything stops.
pub struct Workload {
    pub wire: Wire,
    first: u64,
    blocks: Vec<Block>,
    /// The block and the version of each request in flight.
    flying: BTreeMap<u64, (usize, u32)>,
    random: u64,
    /// Whether a block may be half old and half new if the server was killed in the middle of writing it.
    pub torn: bool,
    /// Whether requests may fail with this error. How many did.
    pub forgiven: Option<u32>,
    pub failed: usize,
    answers: u64,
}

impl Workload {
    /// This many blocks from block `first` of volume `v` on, which are zeroes.
    pub fn new(socket: &str, first: u64, blocks: usize) -> Self {
        Self::over(Wire::connect(socket), first, blocks)
    }
    /// The same through a connection that is there.
    pub fn over(wire: Wire, first: u64, blocks: usize) -> Self {
        let blocks = vec![Block::default(); blocks];
        let (flying, random) = (BTreeMap::new(), first + 1);
        Self {
            wire,
            first,
            blocks,
            flying,
            random,
            torn: false,
            forgiven: None,
            failed: 0,
            answers: 0,
        }
    }
    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % below
    }
    fn offset(&self, block: usize) -> u64 {
        (self.first + block as u64) * BLOCK as u64
    }
    /// What a version of a block holds.
    fn contents(&self, block: usize, version: u32) -> Vec<u8> {
        if version == 0 {
            return vec![0; BLOCK];
        }
        let seed = (self.first + block as u64) << 32 | u64::from(version);
        let word = |i: u64| (seed ^ i << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        (0..BLOCK as u64 / 8).flat_map(|i| word(i).to_ne_bytes()).collect()
    }
    /// Sends one more request, or waits for an answer if `depth` are in flight.
    pub fn step(&mut self, depth: usize) -> io::Result<()> {
        let block = self.random(self.blocks.len());
        if self.flying.len() >= depth || self.blocks[block].busy {
            return self.receive();
        }
        let offset = self.offset(block);
        let state = self.blocks[block];
        if self.random(64) == 0 {
            let cookie = self.wire.send_flush()?;
            self.flying.insert(cookie, (FLUSH_BLOCK, 0));
            return Ok(());
        }
        if self.random(3) == 0 {
            let cookie = self.wire.send_read(offset, BLOCK as u32)?;
            self.flying.insert(cookie, (block, state.answered));
        } else {
            let version = state.sent + 1;
            let flags = if self.random(8) == 0 { FUA } else { 0 };
            let data = self.contents(block, version);
            // Counts as sent even if the server goes in the middle of it.
            self.blocks[block].sent = version;
            let cookie = self.wire.send_write(flags, offset, &data)?;
            self.flying.insert(cookie, (block, version));
        }
        self.blocks[block].busy = true;
        Ok(())
    }
    fn receive(&mut self) -> io::Result<()> {
        let answer = self.wire.receive()?;
        let (block, version) = self.flying.remove(&answer.cookie).unwrap();
        self.answers += 1;
        if block == FLUSH_BLOCK {
            assert!(answer.error == 0 || Some(answer.error) == self.forgiven);
            return Ok(());
        }
        let is_read = answer.read;
        if answer.error != 0 {
            assert_eq!(Some(answer.error), self.forgiven);
            self.failed += 1;
            self.blocks[block].busy = false;
            self.blocks[block].unknown |= !is_read;
            return Ok(());
        }
        if is_read && !self.blocks[block].unknown {
            assert!(answer.data == self.contents(block, version), "block {block} read back");
        }
        let state = &mut self.blocks[block];
        (state.answered, state.busy) = (version, false);
        state.unknown &= is_read;
        Ok(())
    }
    /// This many requests and all their answers.
    pub fn run(&mut self, requests: usize, depth: usize) {
        for _ in 0..requests {
            self.step(depth).unwrap();
        }
        while !self.flying.is_empty() {
            self.receive().unwrap();
        }
    }
    /// Takes what answers are still to come; the server is going.
    pub fn drain(&mut self) {
        while !self.flying.is_empty() && self.receive().is_ok() {}
    }
    /// Blocks that were answered with something new in them.
    pub fn written(&self) -> usize {
        self.blocks.iter().filter(|block| block.answered > 0).count()
    }
    /// Goes on through a new connection after the server died: what was never answered happened or did not,
    /// and what was answered did. Reads everything to find out.
    pub fn reconnect(&mut self, wire: Wire) -> io::Result<()> {
        let mut wire = wire;
        let (first, bytes) = (self.offset(0), self.blocks.len() * BLOCK);
        let cookie = wire.send_read(first, bytes as u32)?;
        let answer = wire.receive()?;
        assert_eq!((answer.cookie, answer.error), (cookie, 0));
        let mut volume = vec![0; first as usize];
        volume.extend(answer.data);
        self.verify(&volume);
        for number in 0..self.blocks.len() {
            let at = self.offset(number) as usize;
            let sent = self.blocks[number].sent;
            let found = &volume[at..at + BLOCK];
            if found == self.contents(number, sent) {
                self.blocks[number].answered = sent;
            }
            self.blocks[number].unknown |=
                found != self.contents(number, self.blocks[number].answered);
            self.blocks[number].busy = false;
        }
        self.flying.clear();
        self.wire = wire;
        Ok(())
    }
    /// Requests that were answered.
    pub fn answers(&self) -> u64 {
        self.answers
    }
    /// Compares the whole volume: every block holds what was answered last, or what was sent after
    /// that and never answered.
    pub fn verify(&self, volume: &[u8]) {
        for (number, block) in self.blocks.iter().enumerate().filter(|(_, b)| !b.unknown) {
            let at = self.offset(number) as usize;
            let found = &volume[at..at + BLOCK];
            let fine = |version| found == self.contents(number, version);
            let Block { sent, answered, .. } = *block;
            let under_way = self.flying.values().any(|flying| *flying == (number, sent));
            let mixed = || {
                let (old, new) = (self.contents(number, answered), self.contents(number, sent));
                (0..BLOCK).all(|i| found[i] == old[i] || found[i] == new[i])
            };
            let good = fine(answered) || (under_way && (fine(sent) || (self.torn && mixed())));
            assert!(good, "block {number}: neither {answered} nor {sent} ({under_way})");
        }
    }
}
