//! Messages from other threads to a reactor, handled between two turns.

use std::io;
use std::os::fd::AsRawFd;

use iofair_core::time::Instant;

use super::refusals::Refusal;
use super::ring::Target;
use super::zeroing::{ZeroJob, Zeroing};
use super::{ENDPOINTS_MAX, MakeEndpoint, Message, Reactor, Seen, Slot};
use crate::error::ServeError;
use crate::port::{Cancel, Change, Changed};
use crate::security::Security;

impl Reactor {
    pub(super) fn on_message(&mut self, now: Instant, message: Message) -> io::Result<()> {
        // The thread that asked may have ended; then the reply is not needed.
        match message {
            Message::Apply(change, security, reply) => {
                let _ = reply.send(self.apply(now, &change, security));
            }
            Message::Stats { reset, reply } => {
                let mut snapshot = self.parts.port.stats(now, reset);
                snapshot.connections = self.endpoints.len() - self.zeroings;
                let _ = reply.send(snapshot);
            }
            Message::Look(look) => {
                let connections = self.endpoints.len() - self.zeroings;
                let handshake_cpu = self.meter.handshakes();
                let (engine, budget) = self.parts.port.look(now);
                let refused = self.handshakes.refusals.counts();
                look(&Seen { now, engine, connections, handshake_cpu, refused, budget });
            }
            Message::Engine(work) => work(now, self.parts.port.engine()),
            Message::Listen(listener) => self.listen(listener)?,
            Message::Open(volume, make) => self.open(&volume, make),
            Message::Refused(refusal) => self.handshakes.refusals.count(refusal),
            Message::Pause(reply) => {
                self.parts.port.pause(true);
                self.pausing.push(reply);
            }
            Message::Resume => self.resume(),
            Message::Zero(job) if self.draining.is_none() => self.begin_zeroing(now, job),
            Message::Zero(_) => {}
            Message::Ejected(reply) => self.ejections.wait(reply),
            Message::Stop => {
                self.resume();
                self.drain(now)?;
            }
        }
        Ok(())
    }
    fn open(&mut self, volume: &str, make: MakeEndpoint) {
        let full = self.draining.is_some() || self.endpoints.len() >= ENDPOINTS_MAX;
        let export = self.parts.port.exports.find(volume).filter(|_| !full);
        let refusal = match export {
            Some(_) => None,
            None if full => Some(Refusal::Connections),
            None => Some(Refusal::Unknown),
        };
        if let Some(opened) = make(export) {
            self.insert(opened);
        }
        if let Some(refusal) = refusal {
            self.handshakes.refusals.count(refusal);
        }
    }
    fn begin_zeroing(&mut self, now: Instant, job: ZeroJob) {
        let volume = self.parts.port.open_drive(now, job.group.as_deref());
        let key = self.insert((Box::new(Zeroing::new(job)), Some(volume as u32)));
        self.endpoints[key].is_own = true;
        self.zeroings += 1;
        self.has_input(key);
    }
    /// Accepts the clients that came during the pause, and lets stalled endpoints try again.
    fn resume(&mut self) {
        self.parts.port.pause(false);
        self.pausing.clear();
        self.fair.wake_all();
        self.wake_deferred();
    }
    /// Takes over new contracts. Endpoints of volumes with a new size are told; those of volumes that are closed, and
    /// those whose clients may not use their volume any more, take nothing in from now on.
    fn apply(
        &mut self,
        now: Instant,
        change: &Change,
        security: Security,
    ) -> Result<(), ServeError> {
        let changed_volumes = self.parts.port.apply(now, change, &security.limits)?;
        self.ejections.begin();
        self.parts.drain = change.timeouts.drain;
        let groups = self.parts.port.groups();
        self.fair.set_groups(groups, &changed_volumes.groups);
        self.to_reply.set_groups(groups, &changed_volumes.groups);
        let same_security = self.parts.security.admits_as(&security);
        self.parts.security = security;
        if same_security && changed_volumes.exports.is_empty() {
            // Endpoints know of nothing that has changed.
            self.fair.wake_all();
            return Ok(());
        }
        self.tell_endpoints(now, &changed_volumes, same_security);
        self.fair.wake_all();
        Ok(())
    }
    /// Tells endpoints what has changed for them. The clients of closed volumes are disconnected.
    fn tell_endpoints(&mut self, now: Instant, changed_volumes: &Changed, same_security: bool) {
        let port = &mut self.parts.port;
        let mut ejected_keys = Vec::new();
        for (key, Slot { endpoint, client, is_touched, account, ejected, .. }) in
            &mut self.endpoints
        {
            let volume = client.volume;
            let is_theirs =
                volume.is_some_and(|key| changed_volumes.exports.binary_search(&key).is_ok());
            if same_security && !is_theirs {
                continue;
            }
            // A volume that is no export any more keeps the clients that it may have.
            let removed = volume.and_then(|volume| port.removed(volume));
            let removed = removed.map(|(export, group)| self.parts.security.admit(export, group));
            let export = volume.and_then(|volume| port.exports.get(volume as u32));
            let export = export.or(removed.as_ref());
            let mut changed = !endpoint.is_allowed(export, &self.parts.security);
            if changed {
                endpoint.close();
            }
            if let Some(volume) = volume {
                if changed_volumes.resized.contains(&volume) {
                    endpoint.resized(port.size(volume));
                    changed = true;
                }
                if changed_volumes.closed.binary_search(&volume).is_ok() {
                    port.cancel(now, client, Cancel::All);
                    endpoint.close();
                    if ejected.is_none() {
                        *ejected = Some((self.ejections.add(), 0));
                        ejected_keys.push(key);
                    }
                    changed = true;
                }
                // The memory that it holds is charged to its new group.
                let now = port.account(client);
                changed |= std::mem::replace(account, now) != now;
            }
            if changed && !std::mem::replace(is_touched, true) {
                self.touched.push(key);
            }
        }
        ejected_keys.into_iter().for_each(|key| self.touch(key));
    }
    /// Tells those who wait that the clients of volumes that they removed are gone, once they are.
    pub(super) fn end_ejection(&mut self, now: Instant) {
        let done = self.ejections.take_done();
        if !done.is_empty() {
            // Their volumes are removed before the reply.
            self.parts.port.settle(now);
        }
        for reply in done {
            // The thread that asked may have ended.
            let _ = reply.send(());
        }
    }
    /// Stops receiving; requests in flight are completed.
    fn drain(&mut self, now: Instant) -> io::Result<()> {
        self.draining.get_or_insert(now + self.parts.drain);
        self.tell_unread();
        self.turn_away();
        for (index, listener) in self.listeners.iter().enumerate() {
            if listener.stays {
                // The next server accepts the clients that connect from now on.
                self.ring.cancel(Target::Accept(index as u32), Target::Nobody)?;
                continue;
            }
            // The entry on the ring would keep the socket listening for a while after we are gone.
            // SAFETY: a plain system call on a descriptor of ours.
            unsafe { libc::shutdown(listener.file.as_raw_fd(), libc::SHUT_RDWR) };
        }
        let keys: Vec<usize> = self.endpoints.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.endpoints[key].endpoint.close();
            self.touch(key);
        }
        Ok(())
    }
}
