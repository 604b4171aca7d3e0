//! Health checks: whether the server is alive, and whether it serves.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde_json::json;

use super::app::{App, State};
use super::response::ApiResponse;
use super::turns::lock;
use crate::reactor::Message;

/// A reactor that does not look up for this long hangs: its longest turn is a small part of that.
const ALIVE_MAX: Duration = Duration::from_secs(2);

impl App {
    /// Whether the reactor runs, and whether clients are served.
    pub(super) fn health(&self, query: &str) -> ApiResponse {
        let reply = self.alive();
        let (alive, state) = (reply.is_some(), self.state(reply == Some(true)));
        let good = alive && (query != "ready" || state == State::Serving);
        let mut body = json!({ "alive": alive, "state": state.word() });
        // Those who would restart the server for that would lose the data.
        match self.files.seen().removed.len() {
            0 => {}
            removed => body["removed_files"] = removed.into(),
        }
        ApiResponse::json(if good { 200 } else { 503 }, None, &body)
    }
    /// Whether the drive fails; nothing if the reactor does not reply. Asks the reactor one question at a time, however many ask here:
    /// one that hangs gathers none.
    fn alive(&self) -> Option<bool> {
        let mut asked = lock(&self.alive);
        let replied = asked.take().or_else(|| {
            let (reply, replied) = mpsc::channel();
            let look = Message::Look(Box::new(move |seen| {
                // Nobody may wait for it any more.
                let _ = reply.send(seen.engine.failures().drive.is_some());
            }));
            self.reactor.send(look).is_ok().then_some(replied)
        });
        let replied = replied?;
        match replied.recv_timeout(ALIVE_MAX) {
            Ok(fails) => Some(fails),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                *asked = Some(replied);
                None
            }
        }
    }
}
