//! Front ends: the protocols through which clients reach volumes, a folder each.
//!
//! A front end is the protocol, the endpoints that the reactor drives
//! ([`Endpoint`](crate::reactor::endpoint::Endpoint)), and a life cycle ([`FrontEnd`]). A new one is a
//! folder and a row in [`FrontEnds::new`]. `port.rs` says what it may expect of the engine.

mod bind;
pub(crate) mod fuse;
pub(crate) mod life;
pub mod nbd;
pub mod tls;
pub(crate) mod ublk;
pub(crate) mod vhost;

use iofair_config::contracts::Contracts;

use crate::error::ServeError;
use crate::reactor::handle::ReactorHandle;
use crate::supervisor::Socket;
use crate::trial::Mode;
use life::FrontEnd;

/// The front ends of a server, in the order in which they start.
#[derive(Debug)]
pub(crate) struct FrontEnds(pub(crate) Vec<Box<dyn FrontEnd>>);

impl FrontEnds {
    /// All of them. `passed`: sockets of a service manager for NBD; `rotational`: whether the drive turns.
    pub(crate) fn new(contracts: &Contracts, passed: Vec<Socket>, rotational: bool) -> Self {
        Self(vec![
            Box::new(nbd::listening::Sockets::new(passed)),
            Box::new(vhost::disks::Disks::new(contracts.guests)),
            Box::new(fuse::mount::Mount::default()),
            // Last: until they start, users of a server that was killed can wait for the next one.
            Box::new(ublk::devices::Blocks::new(rotational)),
        ])
    }
    /// [`FrontEnd::prepare`] of all or none.
    pub(crate) fn prepare(&mut self, contracts: &Contracts, mode: &Mode) -> Result<(), ServeError> {
        let prepared = self.0.iter_mut().try_for_each(|one| one.prepare(contracts, mode));
        prepared.inspect_err(|_| self.undo())
    }
    /// [`FrontEnd::undo`] of all.
    pub(crate) fn undo(&mut self) {
        self.0.iter_mut().for_each(|one| one.undo());
    }
    /// [`FrontEnd::start`], as far as it succeeds; what remains is undone.
    pub(crate) fn start(
        &mut self,
        contracts: &Contracts,
        line: &ReactorHandle,
    ) -> Result<(), ServeError> {
        let started = self.0.iter_mut().try_for_each(|one| one.start(contracts, line));
        started.inspect_err(|_| self.undo())
    }
}
