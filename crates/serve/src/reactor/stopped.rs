//! Time in which the server itself does not run: SIGSTOP, a virtual machine that is paused. It is nobody's fault, so it moves
//! the deadlines of clients that have not chosen a volume, and that of a drain. What a drain leaves is told.

use std::collections::BTreeMap;
use std::time::Duration;

use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Count;

use super::Reactor;
use super::ring::Wait;
use crate::log;

/// A turn that takes longer, or comes later, is no matter of a busy machine.
const STOP_MIN: Nanos = Nanos::from_millis(500);
/// Volumes that one line names.
const NAMED_MAX: usize = 16;

impl Reactor {
    /// Tells the log of clients that the drain waits for although they have all that they asked for: they do not read it.
    pub(super) fn tell_unread(&self) {
        let (port, mut counts) = (&self.parts.port, BTreeMap::new());
        for (_, slot) in self.endpoints.iter().filter(|(_, slot)| slot.endpoint.has_unsent()) {
            let volume = slot.client.volume.and_then(|volume| port.exports.get(volume as u32));
            *counts.entry(volume.map_or("", |volume| volume.name.as_str())).or_default() += 1;
        }
        if let Some((total, parts)) = listed(&counts) {
            let (clients, limit) =
                (Count(total, "client"), Duration::from_nanos(self.parts.drain.0));
            let message = format!(
                "ending: replies that {clients} did not read yet, for which {limit:?} are left (`drain`): {parts}"
            );
            log::tell("server", &message);
        }
    }
    /// Tells the log of writes that the end of the drain leaves. Their clients get no reply.
    pub(super) fn tell_unfinished(&mut self) {
        if let Some((total, parts)) = listed(&self.parts.port.unfinished_writes()) {
            let writes = Count(total, "write");
            let message = format!(
                "{writes} not carried out, or only in part, within the time `drain`: {parts}"
            );
            log::tell("server", &message);
        }
    }
    /// Moves deadlines if the turn that begins comes long after the one before it and this wait.
    pub(super) fn forgive_stop(&mut self, now: Instant, wait: Wait) {
        let stopped = now.since(std::mem::replace(&mut self.turned, now));
        let wanted = match wait {
            // Nothing has a deadline.
            Wait::Forever => return,
            Wait::Poll => Nanos::ZERO,
            Wait::For(rest) => rest,
        };
        if stopped < wanted + STOP_MIN {
            return;
        }
        for (_, slot) in &mut self.endpoints {
            if slot.handshake.is_some() {
                slot.endpoint.forgive(stopped);
            }
        }
        self.handshakes.deferred.forgive(stopped);
        self.handshakes.next = self.handshakes.next.map(|next| next + stopped);
        self.draining = self.draining.map(|until| until + stopped);
    }
}

/// How many there are, and of which volumes; `None` if there are none.
fn listed(counts: &BTreeMap<&str, u64>) -> Option<(u64, String)> {
    let of = |(volume, count): (&&str, &u64)| format!("{count} of volume \"{volume}\"");
    let mut parts: Vec<String> = counts.iter().take(NAMED_MAX).map(of).collect();
    if counts.len() > NAMED_MAX {
        let more = counts.values().skip(NAMED_MAX).sum::<u64>();
        parts.push(format!("{more} of {}", Count(counts.len() - NAMED_MAX, "other volume")));
    }
    (!parts.is_empty()).then(|| (counts.values().sum(), parts.join(", ")))
}
