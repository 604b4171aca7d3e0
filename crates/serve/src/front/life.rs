//! The life cycle of a front end, the same for all of them. The server drives it.
//!
//! [`FrontEnd::prepare`] makes what the contracts ask for (sockets, devices), before the engine has them, and
//! [`FrontEnd::start`] serves it, after. Every change of the contracts goes the same way: the front ends *validate* it
//! and prepare it; once the engine has applied it, they *reconcile*, which removes what no volume asks for any more, and
//! start what is new. [`FrontEnd::stop`] lets no further client come. Then the reactor drains: it completes what is in
//! flight. Dropping a front end afterwards removes the rest of it.
//!
//! A front end reaches the reactor only through its [`ReactorHandle`]: it opens endpoints, or has the reactor accept
//! clients on a socket.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use iofair_config::contracts::Contracts;

use crate::error::ServeError;
use crate::front::fuse::place::MountPlace;
use crate::reactor::handle::ReactorHandle;
use crate::socket::SocketPlace;
use crate::trial::Mode;

/// A change of the contracts.
pub(crate) struct Reload<'a> {
    pub(crate) before: &'a Contracts,
    pub(crate) after: &'a Contracts,
    /// Volumes that are deleted, whose clients are disconnected.
    pub(crate) removed: &'a [String],
}

/// A front end.
pub(crate) trait FrontEnd: Debug + Send + Sync {
    /// Whether a running server can make this change; `is_paused`: the engine takes no requests in now.
    fn validate(&self, reload: &Reload<'_>, is_paused: bool) -> Result<(), ServeError>;
    /// Makes what these contracts ask for and is not there yet. A check only says what a start would meet.
    fn prepare(&mut self, contracts: &Contracts, mode: &Mode) -> Result<(), ServeError> {
        let _ = (contracts, mode);
        Ok(())
    }
    /// Removes what was prepared and is not served.
    fn undo(&mut self) {}
    /// Whether what was prepared in a check could be served.
    fn check(&self, contracts: &Contracts, mode: &Mode) -> Result<(), ServeError> {
        let _ = (contracts, mode);
        Ok(())
    }
    /// Serves what was prepared.
    fn start(&mut self, contracts: &Contracts, line: &ReactorHandle) -> Result<(), ServeError>;
    /// The engine has applied a change: what no volume asks for any more is removed.
    fn reconcile(&mut self, reload: &Reload<'_>) {
        let _ = reload;
    }
    /// Lets no further client come. What needs the reactor for its end ends now, within the limit; without a reactor it
    /// waits for the next server.
    fn stop(&mut self, reactor: Option<&ReactorHandle>, limit: Duration) {
        let _ = (reactor, limit);
    }
    /// The Unix sockets that it made.
    fn sockets(&self) -> Vec<SocketPlace> {
        Vec::new()
    }
    /// Where it has mounted its volumes.
    fn mount(&self) -> Option<MountPlace> {
        None
    }
    /// The TCP address at which it listens.
    fn tcp(&self) -> Option<SocketAddr> {
        None
    }
    /// The volumes that are block devices of this host, and their paths.
    fn blocks(&self) -> Vec<(String, PathBuf)> {
        Vec::new()
    }
}
