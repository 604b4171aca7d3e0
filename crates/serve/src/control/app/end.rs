//! The end of the server, and reloads on signals: neither waits for a change that waits for storage.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::App;
use crate::control::limits;
use crate::error::ServeError;
use crate::log;
use crate::reactor::Message;
use crate::server::Server;

/// One reload reads the file, and one waits for it.
const RELOADS_MAX: usize = 2;

impl App {
    pub(in crate::control) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.ended.is_set()
    }
    pub(in crate::control) fn stop(&self) -> Result<(), ServeError> {
        super::lock(&self.refusals).tell_rest("control");
        let turn = self.served.take(Duration::ZERO).or_else(|| {
            let wait = limits::STOP_WAIT;
            log::tell(
                "server",
                &format!("ending: a change is being made, for which {wait:?} are left"),
            );
            self.served.take(wait)
        });
        // Taken out first, so that nobody waits for its turn while the server drains.
        let server = turn.map(|mut served| served.server.take());
        match server {
            Some(server) => server.map_or(Ok(()), Server::stop),
            None => self.stop_during_change(),
        }
    }
    /// Ends the reactor although a change waits for something, which ends with the process.
    fn stop_during_change(&self) -> Result<(), ServeError> {
        log::tell("server", "a change has not ended; stopping without it");
        log::flush();
        // A reactor that has ended gets no message.
        let _ = self.reactor.send(Message::Stop);
        let drain = Duration::from_nanos(self.view().server.contracts().drive.drain.0);
        match self.ended.wait(drain + limits::STOP_WAIT) {
            true => Ok(()),
            false => Err(ServeError::Busy(drain)),
        }
    }
    /// Whether another reload on a signal would read anything new.
    pub(in crate::control) fn begin_reload(&self) -> bool {
        let most = |reloads| (reloads < RELOADS_MAX).then_some(reloads + 1);
        self.reloads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, most).is_ok()
    }
    pub(in crate::control) fn end_reload(&self) {
        self.reloads.fetch_sub(1, Ordering::Relaxed);
    }
}
