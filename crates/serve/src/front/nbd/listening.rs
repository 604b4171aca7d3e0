//! The sockets on which a server listens for NBD clients.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use iofair_config::contracts::{Contracts, Listen};

use crate::error::ServeError;
use crate::front::bind::{bind_tcp, bind_unix};
use crate::front::life::{FrontEnd, Reload};
use crate::front::nbd::connection::Connection;
use crate::log;
use crate::reactor::handle::ReactorHandle;
use crate::reactor::{Listener, Message};
use crate::socket::{Allowed, SocketFile, SocketPlace};
use crate::supervisor;
use crate::trial::Mode;

/// All of them.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// Those of a service manager, until they are prepared.
    passed: Vec<supervisor::Socket>,
    is_prepared: bool,
    /// Those that the reactor does not have yet.
    fresh: Vec<Listener>,
    tcp: Option<SocketAddr>,
    /// The file of a socket that is our own.
    bound: Option<SocketFile>,
}

/// A socket on which NBD clients are accepted.
pub(crate) fn listener(file: OwnedFd, stays: bool) -> Listener {
    Listener { file, stays, accept: Connection::accept }
}

impl Sockets {
    /// None yet but those that were passed.
    pub(crate) fn new(passed: Vec<supervisor::Socket>) -> Self {
        Self { passed, is_prepared: false, fresh: Vec::new(), tcp: None, bound: None }
    }
    fn add(&mut self, file: OwnedFd, stays: bool) {
        self.fresh.push(listener(file, stays));
    }
}

impl FrontEnd for Sockets {
    fn validate(&self, reload: &Reload<'_>, _: bool) -> Result<(), ServeError> {
        let place = |listen: &Listen| (listen.unix.clone(), listen.access.clone(), listen.tcp);
        if place(&reload.before.listen) != place(&reload.after.listen) {
            return Err(ServeError::Fixed("where the server listens".into()));
        }
        Allowed::new(reload.after, &reload.after.listen.access).map(drop)
    }
    /// Listens where the contracts say, on a socket that was passed if it is bound there, and on all others that were
    /// passed.
    fn prepare(&mut self, contracts: &Contracts, mode: &Mode) -> Result<(), ServeError> {
        if std::mem::replace(&mut self.is_prepared, true) {
            return Ok(());
        }
        let (listen, mut passed) = (&contracts.listen, std::mem::take(&mut self.passed));
        let allowed = Allowed::new(contracts, &listen.access)?;
        if let Some(path) = &listen.unix {
            match supervisor::take_unix(&mut passed, path) {
                Some(socket) => self.add(socket.file, true),
                None => {
                    let (socket, file) = bind_unix(path, allowed, mode)?;
                    self.add(socket, false);
                    self.bound = file;
                }
            }
        }
        if let Some(address) = listen.tcp {
            match supervisor::take_tcp(&mut passed, address) {
                Some(socket) => {
                    self.tcp = socket.tcp();
                    self.add(socket.file, true);
                }
                None => {
                    let listener = bind_tcp(address, mode)?;
                    self.tcp = listener.local_addr().ok();
                    self.add(listener.into(), false);
                }
            }
        }
        for socket in passed {
            if let (Some(address), Some(message)) = (socket.tcp(), listen.refuses_tcp()) {
                let what = format!("the socket at {address} that was passed");
                return Err(ServeError::system(what)(io::Error::other(message)));
            }
            self.tcp = self.tcp.or(socket.tcp());
            self.add(socket.file, true);
        }
        if let Some(address) = self.tcp.filter(|_| listen.plain_tcp()) {
            log::line(&format!(
                "warning: NBD over TCP without TLS at {address} (insecure = true): anyone who reaches the port \
                 can read and write every volume that is open to \"*\""
            ));
        }
        Ok(())
    }
    fn undo(&mut self) {
        self.fresh.clear();
    }
    fn start(&mut self, _: &Contracts, line: &ReactorHandle) -> Result<(), ServeError> {
        self.fresh.drain(..).try_for_each(|listener| line.send(Message::Listen(listener)))
    }
    fn stop(&mut self, _: Option<&ReactorHandle>, _: Duration) {
        self.bound = None;
    }
    fn sockets(&self) -> Vec<SocketPlace> {
        self.bound.iter().map(|file| file.place().clone()).collect()
    }
    fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }
}
