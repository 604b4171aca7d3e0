//! A file server that embeds the engine: one thread, one io_uring, and clients that read blocks of a file under contracts.
//!
//! A client connects to a Unix socket and sends the name of its group, padded with zeroes to 8 bytes, then block numbers of 8
//! bytes, little endian, each after the reply to the one before: the 64 KiB of that block. Bad input closes the connection.
//!
//! `cargo run -p iofair-serve --example file_server -- SOCKET FILE CONTRACTS`
#![allow(unsafe_code)]

use std::error::Error;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use iofair_config::contracts::{Contracts, admission::Known};
use iofair_core::controller::{Completion, Controller, FlushRule, Setup, Submission};
use iofair_core::id::{ClientId, CommandId};
use iofair_core::policy::DriveFacts;
use iofair_core::priority::Priority;
use iofair_core::request::{Flags, Operation};
use iofair_core::time::Instant;
use iofair_core::unit::Sectors;
use slab::Slab;

type Failure = Box<dyn Error + Send + Sync>;

const BLOCK: u64 = 64 << 10;
/// Commands in flight at once, and the most connections; those beyond are closed.
const DEPTH: u32 = 16;
const CONNECTIONS: usize = 64;
/// What an entry of the ring is for, in the upper half of its user data. The lower half is an index.
#[derive(Clone, Copy)]
enum Kind {
    Accept,
    Receive,
    Send,
    Read,
}
const KINDS: [Kind; 4] = [Kind::Accept, Kind::Receive, Kind::Send, Kind::Read];

struct Connection {
    socket: OwnedFd,
    /// Known once it has sent the name of its group.
    client: Option<ClientId>,
    /// Stays where it is while the ring has an entry for this connection.
    buffer: Box<[u8]>,
}

struct Server {
    file: File,
    engine: Controller,
    ring: IoUring,
    start: std::time::Instant,
    connections: Slab<Connection>,
    /// Commands that the ring has, and the length of each.
    commands: Slab<(CommandId, u64)>,
}

fn fd(file: &impl AsRawFd) -> types::Fd {
    types::Fd(file.as_raw_fd())
}

impl Server {
    fn now(&self) -> Instant {
        Instant(self.start.elapsed().as_nanos() as u64)
    }
    fn push(&mut self, entry: squeue::Entry, kind: Kind, index: usize) {
        let entry = entry.user_data((kind as u64) << 32 | index as u64);
        // SAFETY: entries name no memory but buffers of connections, which live until the ring has no entry for them:
        // a connection has one entry, or reads into different parts of its buffer, and is closed when it has none.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("an entry for each connection and command fits");
    }
    fn receive(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let entry = opcode::Recv::new(fd(&connection.socket), connection.buffer.as_mut_ptr(), 8);
        self.push(entry.flags(libc::MSG_WAITALL).build(), Kind::Receive, index);
    }
    fn close(&mut self, index: usize) {
        if let Some(client) = self.connections.remove(index).client {
            let removed = self.engine.remove_client(self.now(), client);
            removed.expect("a connection is closed when its request is completed");
        }
    }
    /// A client has sent 8 bytes: the name of its group, or the block that it wants.
    fn on_received(&mut self, index: usize) -> Result<(), Failure> {
        let (now, connection) = (self.now(), &mut self.connections[index]);
        let word: [u8; 8] = connection.buffer[..8].try_into()?;
        let Some(client) = connection.client else {
            let name = String::from_utf8(word.to_vec())?;
            let group = self.engine.groups().find(name.trim_end_matches('\0')).ok_or("no group")?;
            connection.client = Some(self.engine.add_client(now, group, Priority::default())?);
            self.receive(index);
            return Ok(());
        };
        let length = Sectors::from_bytes_ceil(BLOCK);
        let start = Sectors(u64::from_le_bytes(word).saturating_mul(length.0));
        let (tag, operation, flags) = (index as u64, Operation::Read, Flags::NO_MERGE);
        self.engine.submit(now, Submission { tag, client, operation, flags, start, length })?;
        Ok(())
    }
    /// Gives the ring all that the engine lets go. The scheduler may cut a request into pieces.
    fn dispatch(&mut self) {
        while let Some(command) = self.engine.dispatch(self.now()) {
            let part = self.engine.parts(command.command).next().expect("it is in flight");
            let (offset, length) = (part.start.bytes(), part.length.bytes());
            let buffer = &mut self.connections[part.tag as usize].buffer;
            let piece = &mut buffer[(offset % BLOCK) as usize..][..length as usize];
            let entry = opcode::Read::new(fd(&self.file), piece.as_mut_ptr(), length as u32);
            let index = self.commands.insert((command.command, length));
            self.push(entry.offset(offset).build(), Kind::Read, index);
        }
    }
    fn on_read(&mut self, index: usize, result: i32) -> Result<(), Failure> {
        let (command, length) = self.commands.remove(index);
        let (status, mut done) = (i32::from(result as u64 != length), Vec::new());
        self.engine.complete(self.now(), command, status, &mut done)?;
        for Completion { part, status, .. } in done {
            let index = part.tag as usize;
            if status != 0 {
                self.close(index);
                continue;
            }
            let Connection { socket, buffer, .. } = &self.connections[index];
            let entry = opcode::Send::new(fd(socket), buffer.as_ptr(), BLOCK as u32);
            let entry = entry.flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL).build();
            self.push(entry, Kind::Send, index);
        }
        Ok(())
    }
    fn on_event(&mut self, kind: Kind, index: usize, result: i32) -> Result<(), Failure> {
        match kind {
            Kind::Accept if result < 0 => return Err(format!("accept: error {}", -result).into()),
            Kind::Accept => {
                // SAFETY: the kernel has just made it for us.
                let socket = unsafe { OwnedFd::from_raw_fd(result) };
                if self.connections.len() < CONNECTIONS {
                    let buffer = vec![0; BLOCK as usize].into();
                    let connection = Connection { socket, client: None, buffer };
                    let index = self.connections.insert(connection);
                    self.receive(index);
                }
            }
            Kind::Receive if result == 8 && self.on_received(index).is_ok() => {}
            Kind::Send if result as u64 == BLOCK => self.receive(index),
            Kind::Read => self.on_read(index, result)?,
            Kind::Receive | Kind::Send => self.close(index),
        }
        Ok(())
    }
}

/// Serves until the listener fails.
pub fn serve(listener: &UnixListener, file: File, contracts: &Contracts) -> Result<(), Failure> {
    let (max_request, blocks) = (Sectors::from_bytes_ceil(BLOCK), file.metadata()?.len() / BLOCK);
    let capacity = Sectors(blocks * max_request.0);
    let facts = DriveFacts { rotational: false, depth: DEPTH, max_request, capacity };
    let (stack, flushes) = (contracts.drive.stack.clone(), FlushRule::Scheduled);
    let tags = stack.tags(&facts);
    let setup =
        Setup { facts, tags, queue_limit: 256, guaranteed: 8, client_limit: 64, flushes, trace: 0 };
    let mut engine = Controller::new(setup, stack);
    for (path, contract) in
        contracts.admit(&Known::default(), None).map_err(|e| format!("{e:?}"))?
    {
        engine.add_group(Instant::ZERO, &path, contract)?;
    }
    let (ring, start) = (IoUring::new(256)?, std::time::Instant::now());
    let (connections, commands) = (Slab::new(), Slab::new());
    let mut server = Server { file, engine, ring, start, connections, commands };
    server.push(opcode::AcceptMulti::new(fd(listener)).build(), Kind::Accept, 0);
    loop {
        server.dispatch();
        let wakeup = server.engine.next_wakeup().map_or(u64::MAX, |at| at.since(server.now()).0);
        let timeout = types::Timespec::from(Duration::from_nanos(wakeup));
        let until = types::SubmitArgs::new().timespec(&timeout);
        match server.ring.submitter().submit_with_args(1, &until) {
            Err(error) if error.raw_os_error() != Some(libc::ETIME) => return Err(error.into()),
            _ => {}
        }
        let events: Vec<_> = server.ring.completion().collect();
        for (data, result) in events.iter().map(|event| (event.user_data(), event.result())) {
            server.on_event(KINDS[(data >> 32) as usize], data as u32 as usize, result)?;
        }
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, file, contracts] = &arguments[..] else {
        return Err("usage: file_server SOCKET FILE CONTRACTS".into());
    };
    let contracts = Contracts::open(Path::new(contracts)).map_err(|error| error.to_string())?;
    serve(&UnixListener::bind(socket)?, File::open(file)?, &contracts)
}
