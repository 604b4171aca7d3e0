//! New clients: accepted, admitted a few at a time, and disconnected if they do not choose a volume.
//!
//! Bounded: the contracts limit how many clients at once may be without a volume. Further accepted clients wait, and
//! the rest waits in the kernel, so ten thousand clients that reconnect at once are served one after the other.
//! Silent clients cannot keep others out for long: when a client waits, another one is disconnected, after [`GRACE`]
//! at the earliest; [`deferred`](super::deferred) decides which one, so that one host keeps out no other. All of this
//! is charged to one account of a small weight. While groups are busy, it gets at most a fifth of the thread's time
//! in short slices ([`Throttle`](super::handshakes::Throttle)), so it does not delay the requests of groups.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use iofair_core::time::{Instant, Nanos};

use super::deferred::Origin;
use super::endpoint::Accept;
use super::refusals::Refusal;
use super::ring::{Event, Target};
use super::{CHECK_INTERVAL, DEFERRED, ENDPOINTS_MAX, Reactor};
use crate::port::Account;
use crate::{descriptors, socket};

/// Time that a client has in any case for its first step: some round trips of a slow network.
const GRACE: Nanos = Nanos::from_millis(250);
/// Time that it has for each further one, since many programs that begin at once are slow; clients of other origins wait no
/// longer than this for all its steps.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// Accepted clients that wait: no more are accepted from the first number on, and again from the second on.
const WAITING_MAX: usize = 256;
const WAITING_FEW: usize = 64;
/// Clients that are let in at one visit; each costs some system calls.
const VISIT: usize = 2;
impl Reactor {
    /// A listener has a new client, or an error.
    pub(super) fn on_accept(&mut self, index: usize, event: Event) -> io::Result<()> {
        // Cancelled, but no longer to be paused: the cancellation was overtaken.
        const TRANSIENT: [i32; 3] = [libc::EINTR, libc::ECONNABORTED, libc::ECANCELED];
        let again = event.result >= 0 || TRANSIENT.contains(&-event.result);
        if !event.more && self.draining.is_none() {
            match again && !self.handshakes.is_pausing {
                true => self.accept_on(index)?,
                // Out of descriptors, or paused: accepting resumes when a connection is closed.
                false => self.handshakes.paused_listeners.push(index),
            }
            self.next_check.get_or_insert(self.meter.since() + CHECK_INTERVAL);
        }
        if self.handshakes.deferred.waiting_count() >= WAITING_MAX && !self.handshakes.is_pausing {
            self.handshakes.is_pausing = true;
            for index in 0..self.listeners.len() {
                self.ring.cancel(Target::Accept(index as u32), Target::Nobody)?;
            }
        }
        Ok(())
    }
    /// Somebody was accepted on a listener.
    pub(super) fn accepted(&mut self, index: usize, socket: OwnedFd) {
        if !descriptors::has_room(&socket) {
            self.handshakes.refusals.count(Refusal::Descriptors);
            return;
        }
        let (origin, accept) = (socket::origin(&socket), self.listeners[index].accept);
        self.handshakes.deferred.wait(origin, (accept, socket));
        self.fair.push(Account::HANDSHAKE, DEFERRED);
    }
    /// Accepts again, if that was paused because too many waited.
    pub(super) fn end_pause(&mut self) -> io::Result<()> {
        if self.handshakes.is_pausing { self.accept_again() } else { Ok(()) }
    }
    /// Accepts on listeners that were paused, if there is room again.
    pub(super) fn accept_again(&mut self) -> io::Result<()> {
        if self.draining.is_some() || self.handshakes.deferred.waiting_count() > WAITING_FEW {
            return Ok(());
        }
        self.handshakes.is_pausing = false;
        while let Some(index) = self.handshakes.paused_listeners.pop() {
            self.accept_on(index)?;
        }
        Ok(())
    }
    /// Drops the connections that wait for a handshake; the server ends.
    pub(super) fn turn_away(&mut self) {
        self.handshakes.deferred.clear_waiting();
    }
    /// Somebody may be let in now.
    pub(super) fn wake_deferred(&mut self) {
        self.handshakes.next = None;
        if self.handshakes.deferred.waiting_count() > 0 {
            self.fair.push(Account::HANDSHAKE, DEFERRED);
        }
    }
    /// Lets some of those in who wait.
    pub(super) fn visit_deferred(&mut self, now: Instant) {
        // Those who come while requests are not taken in wait until they are.
        if self.parts.port.is_paused() {
            return;
        }
        for _ in 0..VISIT {
            let Some(next) = self.handshakes.deferred.next_origin() else { return };
            if !self.make_place(now, next) {
                return;
            }
            let (origin, (accept, socket)) =
                self.handshakes.deferred.call().expect("somebody waits");
            self.admit(now, origin, accept, socket);
        }
        self.wake_deferred();
    }
    /// Whether there is a place for one more client without a volume from this origin.
    fn make_place(&mut self, now: Instant, newcomer: Origin) -> bool {
        let most = self.parts.security.limits.handshakes as usize;
        let deferred = &mut self.handshakes.deferred;
        if deferred.handshaking() < most {
            return true;
        }
        let Some((number, evicted)) = deferred.eviction_candidate(newcomer) else { return true };
        let key = evicted.key;
        let slot = &self.endpoints[key];
        let mut until = match slot.handshake_steps {
            _ if slot.endpoint.is_shaking() => now + GRACE,
            0 => evicted.since + GRACE,
            _ => evicted.since + PATIENCE,
        };
        if evicted.origin != newcomer {
            until = until.min(evicted.entered + PATIENCE);
        }
        if now < until {
            self.handshakes.next = Some(until);
            return false;
        }
        deferred.leave(number);
        self.handshakes.refusals.count(Refusal::Handshakes);
        self.endpoints[key].handshake = None;
        let (endpoint, mut cx) = self.look(now, key);
        endpoint.cut(&mut cx);
        self.settle_later(key);
        true
    }
    fn admit(&mut self, now: Instant, origin: Origin, accept: Accept, socket: OwnedFd) {
        let limits = self.parts.security.limits;
        let full = self.clients >= limits.connections as usize;
        if self.draining.is_some() || full || self.endpoints.len() >= ENDPOINTS_MAX {
            self.handshakes.refusals.count(Refusal::Connections);
            return;
        }
        socket::prepare(socket.as_raw_fd());
        let key = self.insert((accept(now, socket, &self.parts.security), None));
        self.endpoints[key].handshake = Some(self.handshakes.deferred.enter(now, origin, key));
    }
    /// An endpoint that was without a volume has one now, or is gone.
    fn end_handshake(&mut self, key: usize) {
        if let Some(number) = self.endpoints[key].handshake.take() {
            self.handshakes.deferred.leave(number);
            self.wake_deferred();
        }
    }
    /// If a client has just chosen its volume, it is counted as a connection; if it has come further, it is not the first to
    /// give way to others.
    pub(super) fn note_choice(&mut self, now: Instant, key: usize) {
        let slot = &mut self.endpoints[key];
        let steps = slot.endpoint.handshake_steps();
        if let Some(number) = slot.handshake.filter(|_| steps != slot.handshake_steps) {
            slot.handshake_steps = steps;
            slot.handshake = Some(self.handshakes.deferred.renew(now, number));
        }
        let slot = &mut self.endpoints[key];
        if slot.handshake.is_some() && slot.client.volume.is_some() {
            slot.is_client = true;
            self.clients += 1;
            self.end_handshake(key);
        }
    }
    /// Forgets an endpoint that is over.
    pub(super) fn forget(&mut self, key: usize) {
        self.end_handshake(key);
        self.fair.remove(super::waiter(key));
        self.to_reply.remove(key);
        let mut slot = self.endpoints.remove(key);
        self.zeroings -= usize::from(slot.is_own);
        if let Some((change, _)) = slot.ejected {
            self.ejections.leave(change);
        }
        if slot.is_client {
            self.clients -= 1;
            if let Some(volume) = slot.client.volume {
                self.parts.port.exports.leave(volume as u32);
            }
        }
        self.parts.port.detach(&mut slot.client);
    }
}
