//! Messages from other threads to a reactor, handled between two turns.

use std::io;
use std::os::fd::AsRawFd;

use iofair_core::time::Instant;

use super::block::Block;
use super::device::Device;
use super::fair::Account;
use super::file::File;
use super::refusals::Refusal;
use super::ring::Target;
use super::zeroing::{ZeroJob, Zeroing};
use super::{ENDPOINTS_MAX, Message, Reactor, Seen, Slot};
use crate::engine::cancel::Cancel;
use crate::engine::{Change, Changed};
use crate::error::ServeError;
use crate::front::fuse::Opening;
use crate::front::ublk::channel::Channel;
use crate::request::export::Peer;
use crate::security::Security;

impl Reactor {
    pub(super) fn on_message(&mut self, now: Instant, message: Message) -> io::Result<()> {
        // The thread that asked may have ended; then the reply is not needed.
        match message {
            Message::Apply(change, security, reply) => {
                let _ = reply.send(self.apply(now, &change, security));
            }
            Message::Stats { reset, reply } => {
                let engine = &mut self.parts.engine;
                let mut snapshot = engine.snapshot(now, self.stats_since, self.busy_before);
                snapshot.connections = self.endpoints.len() - self.zeroings;
                let _ = reply.send(snapshot);
                if reset {
                    engine.reset_stats();
                    self.stats_since = now;
                    self.busy_before = engine.busy_time(now);
                }
            }
            Message::Look(look) => {
                let connections = self.endpoints.len() - self.zeroings;
                let handshake_cpu = self.meter.handshakes();
                let engine = &mut self.parts.engine;
                engine.turn_second(now);
                let (refused, budget) = (self.handshakes.refusals.counts(), &self.budget);
                look(&Seen { now, engine, connections, handshake_cpu, refused, budget });
            }
            Message::Engine(work) => work(now, &mut self.parts.engine),
            Message::Called(group) => self.parts.engine.called(&group),
            Message::File(opening) => self.open_file(now, opening),
            Message::Refused => self.handshakes.refusals.count(Refusal::Descriptors),
            Message::Pause(reply) => {
                self.parts.engine.pause(true);
                self.pausing.push(reply);
            }
            Message::Resume => self.resume(),
            Message::Device { volume, commands, wake } if self.draining.is_none() => {
                self.insert(Box::new(Device::new(volume, commands, wake)));
            }
            Message::Device { .. } => {}
            Message::Block { volume, channel, reply } => {
                let _ = reply.send(self.open_block(now, &volume, channel));
            }
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
    fn open_file(&mut self, now: Instant, opening: Opening) {
        let export = self.exports.find(&opening.volume);
        let full = self.draining.is_some() || self.endpoints.len() >= ENDPOINTS_MAX;
        let Some(export) = export.filter(|_| !full) else {
            let refusal = if full { Refusal::Connections } else { Refusal::Unknown };
            self.handshakes.refusals.count(refusal);
            opening.reply(Err(libc::ESTALE));
            return;
        };
        let (calls, wake) = opening.reply(Ok(()));
        let (id, file) = (export.id, File::new(export, calls, wake));
        let key = self.insert(Box::new(file));
        self.look(now, key).1.attach(id);
    }
    fn open_block(
        &mut self,
        now: Instant,
        volume: &str,
        channel: Channel,
    ) -> Result<(), ServeError> {
        let export = self.exports.find(volume);
        let full = self.draining.is_some() || self.endpoints.len() >= ENDPOINTS_MAX;
        let Some(export) = export.filter(|_| !full) else { return Err(ServeError::Gone) };
        let block = Block::new(export, channel);
        let id = export.id;
        let key = self.insert(Box::new(block));
        self.look(now, key).1.attach(id);
        Ok(())
    }
    fn begin_zeroing(&mut self, now: Instant, job: ZeroJob) {
        let volume = self.parts.engine.open_drive(now, job.group.as_deref());
        let key = self.insert(Box::new(Zeroing::new(volume, job)));
        self.endpoints[key].is_own = true;
        self.zeroings += 1;
        self.look(now, key).1.attach(volume as u32);
        self.has_input(key);
    }
    /// Who came meanwhile is let in, and who stalled may try again.
    fn resume(&mut self) {
        self.parts.engine.pause(false);
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
        let engine = &mut self.parts.engine;
        if let Some(name) = engine.cuts(change) {
            let message = "clients have it open; only a volume without clients can shrink";
            return Err(ServeError::volume(name, message));
        }
        self.ejections.begin();
        let mut changed_volumes = engine.change(now, change);
        changed_volumes.exports.sort_unstable();
        self.parts.drain = change.timeouts.drain;
        let connections = security.limits.connections;
        if !changed_volumes.exports.is_empty()
            || connections != self.parts.security.limits.connections
        {
            let (offered, groups) = (engine.exports(), engine.controller().groups());
            self.exports.set(connections, offered, groups);
        }
        let groups = engine.controller().groups();
        self.fair.set_groups(groups, &changed_volumes.groups);
        self.to_reply.set_groups(groups, &changed_volumes.groups);
        self.budget.resize(security.limits.memory_bytes);
        let offers =
            |security: &Security| [Peer::Tcp, Peer::Unix(0)].map(|peer| security.offer(peer));
        let same_offers = offers(&self.parts.security) == offers(&security);
        self.parts.security = security;
        if same_offers && changed_volumes.exports.is_empty() {
            // Nothing that endpoints know of.
            self.fair.wake_all();
            return Ok(());
        }
        self.tell_endpoints(now, &changed_volumes, same_offers);
        self.fair.wake_all();
        Ok(())
    }
    /// Tells endpoints what has changed for them. The clients of removed volumes are disconnected.
    fn tell_endpoints(&mut self, now: Instant, changed_volumes: &Changed, same_offers: bool) {
        let engine = &mut self.parts.engine;
        let mut ejected_keys = Vec::new();
        for (key, Slot { endpoint, is_touched, account, ejected, .. }) in &mut self.endpoints {
            let volume = endpoint.volume();
            let is_theirs =
                volume.is_some_and(|key| changed_volumes.exports.binary_search(&key).is_ok());
            if same_offers && !is_theirs {
                continue;
            }
            // A volume that is no export any more keeps the clients that it has.
            let export = volume.and_then(|volume| self.exports.get(volume as u32));
            let mut changed = !endpoint.is_allowed(export, &self.parts.security);
            if changed {
                endpoint.close();
            }
            if let Some(volume) = volume {
                if changed_volumes.resized.contains(&volume) {
                    endpoint.resized(engine.size(volume));
                    changed = true;
                }
                if engine.is_closed(volume) {
                    engine.cancel(now, key as u64, Cancel::All);
                    endpoint.close();
                    if ejected.is_none() {
                        *ejected = Some((self.ejections.add(), 0));
                        ejected_keys.push(key);
                    }
                    changed = true;
                }
                // What it holds is its new group's.
                let now = Account::in_group(engine.group(volume));
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
            self.parts.engine.settle(now);
        }
        for reply in done {
            // The thread that asked may have ended.
            let _ = reply.send(());
        }
    }
    /// Stops receiving; requests in flight are completed.
    fn drain(&mut self, now: Instant) -> io::Result<()> {
        self.draining.get_or_insert(now + self.parts.drain);
        self.turn_away();
        for (index, listener) in self.parts.listeners.iter().enumerate() {
            if listener.stays {
                // Who connects from now on is the next server's.
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
