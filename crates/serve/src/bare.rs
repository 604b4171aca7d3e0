//! A server without contracts, from a plan that a program makes, which may contain things that contract files cannot.
//! Volumes may overlap, so that several clients can share a drive whose layout they know, and requests have the
//! properties from the plan. The data plane (sockets, NBD, reactor, engine) is that of every server.

use std::io;
use std::path::Path;
use std::thread::JoinHandle;

use iofair_config::contracts::{Limits, Listen};

use crate::clock::Clock;
use crate::descriptors;
use crate::engine::stats::Snapshot;
use crate::engine::{Engine, Plan};
use crate::error::ServeError;
use crate::front::nbd::listening::listener;
use crate::reactor::Message;
use crate::reactor::handle::ReactorHandle;
use crate::security::Security;
use crate::server::{Launch, ask};
use crate::socket::{self, Allowed, PathLock, SocketFile};

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Bare {
    /// Gone once stopped.
    socket: Option<SocketFile>,
    line: ReactorHandle,
    reactor: Option<JoinHandle<io::Result<()>>>,
}

impl Bare {
    /// Listens on a Unix socket for clients of the plan's volumes, with any number of requests in flight each.
    pub fn start(mut engine: Engine, plan: &Plan, socket: &Path) -> Result<Self, ServeError> {
        descriptors::raise_limit();
        let clock = Clock::start();
        engine.apply(clock.now(), plan);
        let (connections, handshakes, in_flight) = (u32::MAX, u32::MAX, u32::MAX);
        let limits = Limits { connections, handshakes, in_flight, ..Limits::default() };
        let limits = Limits { memory_bytes: u64::MAX, ..limits };
        let security = Security::load(&Listen { limits, ..Listen::default() }, &[])?;
        let lock = PathLock::take(socket);
        let bound = lock.and_then(|lock| socket::listen_locked(socket, Allowed::OWNER, lock));
        let (file, socket) = bound.map_err(ServeError::system(socket.display().to_string()))?;
        let drain = plan.timeouts.drain;
        let (line, reactor, _) =
            Launch { engine, clock, drain, security, watchdog: None }.reactor()?;
        line.send(Message::Listen(listener(file, false)))?;
        Ok(Self { socket: Some(socket), line, reactor: Some(reactor) })
    }
    /// The counters since the start, or since the last call with `reset`.
    pub fn stats(&self, reset: bool) -> Result<Snapshot, ServeError> {
        ask(&self.line, reset)
    }
    /// Completes the requests in flight and ends.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end()
    }
    fn end(&mut self) -> Result<(), ServeError> {
        let Some(reactor) = self.reactor.take() else { return Ok(()) };
        self.socket = None;
        // If the reactor ended by itself, joining it says why.
        let _ = self.line.send(Message::Stop);
        let ended = reactor.join();
        ended.expect("a reactor that panics is a bug").map_err(ServeError::system("the reactor"))
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // Who wants to know calls `stop`.
        let _ = self.end();
    }
}
