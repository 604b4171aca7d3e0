//! Attackers that speak NBD.

use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use iofair_drive::random::Random;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::attack::Attack;
use crate::peer::{Peer, Raw, Transport, wait};
use crate::place::{HOSTILE_BYTES, Shared, volume};
use crate::rig::wire::{FLUSH, OPTION_LIST, OPTION_STARTTLS, Options, READ, REPLY_ACK, WRITE};

const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;
const OPTION_STRUCTURED: u32 = 8;
const OPTION_META: u32 = 10;
const SIMPLE: u32 = 0x6744_6698;
const CHUNK: u32 = 0x668e_33ef;
/// Bytes that are sent before an attacker looks whether something came.
const AHEAD: usize = 256 << 10;
/// Half-open connections of one attacker.
const HALF_OPEN: usize = 16;
/// Before the next try of what was refused.
const PAUSE: Duration = Duration::from_millis(5);

/// One attacker, until the run is over.
pub(crate) fn attack(attack: Attack, transport: &Transport, number: usize, shared: &Shared) {
    let mut random = Random::new(number as u64, 0x6e62_6461);
    while !shared.over.load(Ordering::Relaxed) {
        // Whatever the server does to an attacker, it comes back.
        let _ = session(attack, transport, number, &mut random, shared);
        thread::park_timeout(PAUSE);
    }
}

fn session(
    attack: Attack,
    transport: &Transport,
    number: usize,
    random: &mut Random,
    shared: &Shared,
) -> io::Result<()> {
    let name = volume(number);
    match attack {
        Attack::Slow => slow(&mut transport.connect(&name)?, shared),
        Attack::HalfOpen => half_open(transport, shared),
        Attack::Options => options(transport, shared),
        Attack::TlsFlood => tls_flood(transport, shared),
        Attack::Churn => {
            shared.operations.fetch_add(1, Ordering::Relaxed);
            transport.connect(&name).map(drop)
        }
        Attack::Malformed => malformed(transport, &name, random, shared),
        Attack::Status => {
            let mut options = transport.options()?;
            let context = b"base:allocation";
            let length = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes();
            let query = [&length(name.as_bytes())[..], name.as_bytes(), &1u32.to_be_bytes()];
            let query = [&query.concat()[..], &length(context), context].concat();
            for (option, data) in [(OPTION_STRUCTURED, &[][..]), (OPTION_META, &query)] {
                if options.ask(option, data)? != REPLY_ACK {
                    return Err(io::ErrorKind::Unsupported.into());
                }
            }
            options.go(&name)?;
            Pump::new(options.stream).run(64, shared, |_| (BLOCK_STATUS, 0, HOSTILE_BYTES as u32))
        }
        _ => {
            let peer = transport.connect(&name)?;
            let mut at = |unit: u64| random.below(HOSTILE_BYTES / unit) * unit;
            let pump = Pump::new(peer);
            match attack {
                Attack::Honest => pump.run(8, shared, |n| match n % 100 {
                    99 => (FLUSH, 0, 0),
                    n if n % 10 < 7 => (READ, at(64 << 10), 64 << 10),
                    _ => (WRITE, at(64 << 10), 64 << 10),
                }),
                Attack::Flush => pump.run(64, shared, |_| (FLUSH, 0, 0)),
                Attack::Zeroes => {
                    pump.run(250, shared, |_| (WRITE_ZEROES, 0, HOSTILE_BYTES as u32))
                }
                Attack::Trims => pump.run(250, shared, |_| (TRIM, 0, HOSTILE_BYTES as u32)),
                Attack::Tiny => pump.run(256, shared, |n| {
                    (if n % 2 == 0 { READ } else { WRITE }, at(1024) + 1, 511)
                }),
                Attack::Huge => pump.run(16, shared, |_| (READ, at(32 << 20), 32 << 20)),
                Attack::Deep => pump.run(4096, shared, |_| (READ, at(4096), 4096)),
                other => panic!("{other:?} is no attack over NBD"),
            }
        }
    }
}

/// A request without its payload. The cookie says how long a good answer is.
fn frame(into: &mut Vec<u8>, kind: u16, offset: u64, length: u32) {
    let reads = if kind == READ { length } else { 0 };
    into.extend(0x2560_9513u32.to_be_bytes());
    into.extend([0, 0]);
    into.extend(kind.to_be_bytes());
    into.extend(u64::from(reads).to_be_bytes());
    into.extend(offset.to_be_bytes());
    into.extend(length.to_be_bytes());
    if kind == WRITE {
        into.resize(into.len() + length as usize, 7);
    }
}

/// Sends requests as fast as they are answered, and forgets the answers.
struct Pump {
    peer: Peer,
    out: Vec<u8>,
    sent: usize,
    in_flight: usize,
    /// The beginning of an answer, and bytes of one that are skipped.
    head: Vec<u8>,
    skip: usize,
}

impl Pump {
    fn new(peer: Peer) -> Self {
        Self { peer, out: Vec::new(), sent: 0, in_flight: 0, head: Vec::new(), skip: 0 }
    }
    fn run(
        mut self,
        depth: usize,
        shared: &Shared,
        mut next: impl FnMut(u64) -> (u16, u64, u32),
    ) -> io::Result<()> {
        self.peer.raw().never_blocks()?;
        let (mut number, mut scratch) = (0, vec![0; 256 << 10]);
        while !shared.over.load(Ordering::Relaxed) {
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
            }
            while self.in_flight < depth && self.out.len() < AHEAD {
                let (kind, offset, length) = next(number);
                frame(&mut self.out, kind, offset, length);
                (self.in_flight, number) = (self.in_flight + 1, number + 1);
            }
            let mut idle = true;
            if self.sent < self.out.len() {
                match self.peer.write(&self.out[self.sent..]) {
                    Ok(bytes) => (self.sent, idle) = (self.sent + bytes, false),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            match self.peer.read(&mut scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    idle = false;
                    let done = self.feed(&scratch[..bytes])?;
                    shared.operations.fetch_add(done, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if idle {
                let wants_to_send = if self.sent < self.out.len() { libc::POLLOUT } else { 0 };
                wait(self.peer.raw().fd(), libc::POLLIN | wants_to_send, 20);
            }
        }
        Ok(())
    }
    /// Takes a piece of the answers; returns how many end in it.
    fn feed(&mut self, mut bytes: &[u8]) -> io::Result<u64> {
        let mut done = 0;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            (self.skip, bytes) = (self.skip - skipped, &bytes[skipped..]);
            let word = |head: &[u8], at: usize| {
                u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"))
            };
            let wanted = match self.head.len() {
                0..4 => 4,
                _ if word(&self.head, 0) == SIMPLE => 16,
                _ => 20,
            };
            let part = (wanted - self.head.len()).min(bytes.len());
            self.head.extend(&bytes[..part]);
            bytes = &bytes[part..];
            if self.head.len() < wanted || wanted == 4 {
                continue;
            }
            let head = std::mem::take(&mut self.head);
            let is_last = match word(&head, 0) {
                SIMPLE => {
                    self.skip = if word(&head, 4) == 0 { word(&head, 12) as usize } else { 0 };
                    true
                }
                CHUNK => {
                    self.skip = word(&head, 16) as usize;
                    head[5] & 1 != 0
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
            if is_last {
                done += 1;
                self.in_flight -= 1;
            }
        }
        Ok(done)
    }
}

/// Asks for 64 MiB and takes one byte a second.
fn slow(peer: &mut Peer, shared: &Shared) -> io::Result<()> {
    let mut out = Vec::new();
    (0..64).for_each(|number| frame(&mut out, READ, number << 20, 1 << 20));
    peer.write_all(&out)?;
    let mut last = Instant::now();
    while !shared.over.load(Ordering::Relaxed) {
        thread::park_timeout(Duration::from_millis(20));
        if last.elapsed() > Duration::from_secs(1) {
            peer.read_exact(&mut [0])?;
            shared.operations.fetch_add(1, Ordering::Relaxed);
            last = Instant::now();
        }
    }
    Ok(())
}

/// Keeps connections that have said nothing, or half a word.
fn half_open(transport: &Transport, shared: &Shared) -> io::Result<()> {
    let mut all: Vec<Raw> = Vec::new();
    while !shared.over.load(Ordering::Relaxed) {
        if all.len() < HALF_OPEN {
            let mut raw = transport.raw()?;
            if all.len().is_multiple_of(2) {
                raw.write_all(&[0, 0, 0, 3, b'I', b'H', b'A'])?;
            }
            all.push(raw);
            shared.operations.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        // Those that were sent away come again.
        all.retain_mut(|raw| {
            let closed = wait(raw.fd(), libc::POLLRDHUP, 0);
            !closed
        });
        thread::park_timeout(Duration::from_millis(20));
    }
    Ok(())
}

/// Asks for the list of volumes 256 times at once, again and again.
fn options(transport: &Transport, shared: &Shared) -> io::Result<()> {
    let mut options = transport.options()?;
    let mut scratch = vec![0; 64 << 10];
    options.stream.raw().never_blocks()?;
    let length = 0u32.to_be_bytes();
    let ask = [b"IHAVEOPT", &OPTION_LIST.to_be_bytes()[..], &length].concat().repeat(256);
    let mut sent = 0;
    while !shared.over.load(Ordering::Relaxed) {
        match options.stream.write(&ask[sent..]) {
            Ok(bytes) => {
                sent = (sent + bytes) % ask.len();
                shared.operations.fetch_add(bytes as u64 / 16, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(options.stream.raw().fd(), libc::POLLIN | libc::POLLOUT, 20);
            }
            Err(error) => return Err(error),
        }
        match options.stream.read(&mut scratch) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Begins TLS, says hello, and leaves.
fn tls_flood(transport: &Transport, shared: &Shared) -> io::Result<()> {
    let Transport::Tls(_, config) = transport else { panic!("there is no TLS here") };
    let mut options = Options::greet(transport.raw()?)?;
    options.ask(OPTION_STARTTLS, &[])?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    connection.write_tls(&mut options.stream)?;
    // The server's part of the work is done when it answers.
    options.stream.read_exact(&mut [0; 5])?;
    shared.operations.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Says what no client may say, each time something else.
fn malformed(
    transport: &Transport,
    name: &str,
    random: &mut Random,
    shared: &Shared,
) -> io::Result<()> {
    shared.operations.fetch_add(1, Ordering::Relaxed);
    let mut noise: Vec<u8> = (0..512).flat_map(|_| random.bits().to_ne_bytes()).collect();
    if random.chance(30) {
        transport.raw()?.write_all(&noise)?;
        return Ok(());
    }
    if random.chance(30) {
        let mut options = transport.options()?;
        let kind = random.below(20) as u32;
        noise.truncate(random.below(4096) as usize);
        options.send(kind, &noise)?;
        return options.ask(99, &noise).map(drop);
    }
    let mut peer = transport.connect(name)?;
    let mut out = Vec::new();
    for _ in 0..64 {
        let (kind, offset, length) = match random.below(5) {
            0 => (READ, HOSTILE_BYTES - 1, 4096),
            1 => (77, 0, 4096),
            2 => (READ, u64::MAX - 10, 4096),
            3 => (READ, 0, u32::MAX),
            _ => (WRITE_ZEROES, HOSTILE_BYTES, 1),
        };
        frame(&mut out, kind, offset, length);
    }
    out.extend(&noise);
    peer.write_all(&out)?;
    peer.read_exact(&mut [0; 16])
}
