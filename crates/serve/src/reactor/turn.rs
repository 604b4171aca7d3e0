//! One turn: input is processed in fair order, the engine decides, and finished requests complete.
//!
//! Bounded: a visit takes in at most a [`Quantum`](super::endpoint::Quantum), and a turn starts no visit after
//! [`TURN_MAX`]; the rest waits for the next turn, after the ring was checked. Replies are also sent in fair order
//! and with the same time limit. So a client whose request arrives while others keep the thread busy waits for one
//! turn, and not for everything that they have sent. Clients that have not chosen a volume get their replies at once,
//! because all of their work fits into one of their slices.

use std::io;

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

use super::endpoint::{Life, Progress};
use super::meter::Payer;
use super::ring::Target;
use super::workers::{Done, Outcome};
use super::{CHECK_INTERVAL, Reactor, Slot, waiter};
use crate::port::{Account, Lookup};

/// Time after which a turn begins no visit, and the time for replies after that. A request of a client that waits for
/// each one goes through two turns; the system call between them takes a microsecond or two.
const TURN_MAX: Nanos = Nanos::from_micros(50);
/// Replies with at least this much data take longer to send than a system call: commands go to the drive before them.
const LONG_REPLIES: u64 = 32 << 10;

impl Reactor {
    /// Who pays for what an endpoint makes the thread do.
    pub(super) fn account(&self, key: usize) -> Account {
        self.parts.port.account(&self.endpoints[key].client)
    }
    /// From now on the thread works for `payer`.
    pub(super) fn work_for(&mut self, payer: Payer) {
        if self.meter.payer() != payer {
            self.read_clock(payer);
        }
    }
    fn read_clock(&mut self, next: Payer) -> Instant {
        let now = self.parts.clock.now();
        if let Some((account, time)) = self.meter.switch(now, next) {
            self.charge(account, time);
            if account == Account::HANDSHAKE {
                self.handshakes.throttle.spend(time);
            }
        }
        now
    }
    fn charge(&mut self, account: Account, time: Nanos) {
        if time == Nanos::ZERO {
            return;
        }
        self.fair.charge(account, time);
        self.to_reply.charge(account, time);
        self.parts.port.charge_time(account, time);
    }

    /// The ring brought something for an endpoint.
    pub(super) fn has_input(&mut self, key: usize) {
        self.fair.push(self.account(key), waiter(key));
        self.touch(key);
    }
    /// Other threads have done what they were given.
    pub(super) fn take_outcomes(&mut self) {
        while let Some(Done { account, time, outcome }) = self.workers.next_done() {
            self.charge(account, time);
            match outcome {
                Outcome::Endpoint { key } => {
                    self.endpoints[key].endpoint.on_work_done();
                    self.has_input(key);
                    self.fair.wake(account);
                }
                Outcome::Found { command, op, extents } => {
                    self.parts.port.on_found(command, op, extents);
                }
            }
        }
    }
    /// Gives what the ring cannot do to other threads.
    fn begin_tasks(&mut self) {
        let port = &mut self.parts.port;
        port.take_closing().for_each(|storage| self.workers.close(storage));
        for (account, lookup) in port.take_lookups() {
            let Lookup { command, op, .. } = lookup;
            if !self.workers.look_up(account, lookup) {
                port.on_found(command, op, Vec::new());
            }
        }
    }
    /// Something happened to an endpoint: its completions are sent in this turn, and it is checked some time later.
    pub(super) fn touch(&mut self, key: usize) {
        self.to_reply.push(self.account(key), key);
        self.settle_later(key);
        self.check_again(key);
        if self.next_check.is_none() && self.checking.is_empty() {
            self.next_check = Some(self.meter.since() + CHECK_INTERVAL);
        }
    }
    /// An endpoint is settled before the turn ends.
    pub(super) fn settle_later(&mut self, key: usize) {
        if !std::mem::replace(&mut self.endpoints[key].is_touched, true) {
            self.touched.push(key);
        }
    }

    /// Receives input, dispatches, and sends replies, until there is no input that finds
    /// room, or the turn has taken long enough.
    pub(super) fn work(&mut self, now: Instant) -> io::Result<()> {
        let until = now + TURN_MAX;
        loop {
            self.take_in_all(now, until)?;
            self.work_for(Payer::Engine);
            self.parts.port.turn(now);
            self.begin_tasks();
            if self.deliver_all() >= LONG_REPLIES {
                self.submit_commands()?;
            }
            self.reply_all(now)?;
            if self.fair.is_empty() || self.read_clock(Payer::Nobody) >= until {
                break;
            }
        }
        self.finish_turn(now)
    }
    /// Takes input in, in fair order. Whoever is next is visited even if the time is up, or nobody might ever be.
    fn take_in_all(&mut self, now: Instant, until: Instant) -> io::Result<()> {
        while let Some((account, next)) = self.fair.pop() {
            let is_handshake = account == Account::HANDSHAKE;
            self.work_for(Payer::Account(account));
            match next.checked_sub(waiter(0)) {
                None => self.visit_deferred(now),
                Some(key) => {
                    let (endpoint, mut cx) = self.look(now, key);
                    let progress = endpoint.take_in(&mut cx);
                    let spent = cx.spent;
                    self.charge(self.account(key), spent);
                    self.note_choice(now, key);
                    self.place(key, progress);
                    if is_handshake {
                        self.reply(now, key)?;
                    }
                }
            }
            let after = self.read_clock(Payer::Nobody);
            self.throttle(after, is_handshake);
            if after >= until {
                break;
            }
        }
        Ok(())
    }
    /// After a visit: clients without a volume rest when they have had their slice.
    fn throttle(&mut self, now: Instant, is_handshake: bool) {
        let pending = self.parts.port.is_busy();
        let throttle = &mut self.handshakes.throttle;
        if !is_handshake {
            throttle.visit(now);
        } else if throttle.rests(now, pending) {
            self.fair.park(Account::HANDSHAKE);
        }
    }
    /// Where an endpoint waits after a visit.
    fn place(&mut self, key: usize, progress: Progress) {
        self.touch(key);
        // It may have chosen its volume just now.
        let account = self.account(key);
        let slot = &mut self.endpoints[key];
        slot.account = account;
        slot.is_at_own_limit = progress == Progress::OwnLimit;
        let had_stalled = std::mem::replace(&mut slot.has_stalled, progress == Progress::NoRoom);
        match progress {
            Progress::Done | Progress::OwnLimit => {}
            Progress::More => self.fair.push(account, waiter(key)),
            Progress::NoRoom => {
                if !had_stalled {
                    self.parts.port.count_stalled(account);
                }
                return self.fair.stall(account, waiter(key));
            }
        }
        // Where it found room there may be more.
        self.fair.wake(account);
        if had_stalled {
            self.fair.wake_next();
        }
    }
    /// Something of an endpoint was completed or sent: if it held as much as it may, it goes on.
    fn holds_less(&mut self, key: usize) {
        if std::mem::take(&mut self.endpoints[key].is_at_own_limit) {
            self.fair.push(self.account(key), waiter(key));
        }
    }
    /// Hands completed requests to their endpoints; returns the bytes that were read.
    fn deliver_all(&mut self) -> u64 {
        let mut read = 0;
        while let Some(op) = self.parts.port.next_completion() {
            let (key, account) = (op.owner as usize, Account::in_group(op.group));
            read += if op.operation == Operation::Read { u64::from(op.length) } else { 0 };
            self.work_for(Payer::Account(account));
            self.finished.push(account);
            let Slot { endpoint, client, .. } = &mut self.endpoints[key];
            client.completed(&op);
            endpoint.deliver(op, self.parts.port.buffers());
            self.touch(key);
            self.holds_less(key);
            self.fair.wake(account);
            self.fair.wake_next();
        }
        let mut finished = std::mem::take(&mut self.finished);
        let each = self.meter.take_engine_time(finished.len());
        finished.drain(..).for_each(|account| self.charge(account, each));
        self.finished = finished;
        read
    }
    /// Gives the back end's new commands to the kernel now, so that the drive does not wait for replies to be sent.
    fn submit_commands(&mut self) -> io::Result<()> {
        if self.queue_commands()? { self.ring.submit() } else { Ok(()) }
    }
    /// Queues the back end's entries on the ring; returns whether there were any.
    fn queue_commands(&mut self) -> io::Result<bool> {
        let Some(entries) = self.parts.port.take_entries() else { return Ok(false) };
        let any = !entries.is_empty();
        for entry in entries.drain(..) {
            let data = entry.get_user_data() as u32;
            self.ring.push(entry, Target::Back(data))?;
        }
        Ok(any)
    }
    fn reply_all(&mut self, now: Instant) -> io::Result<()> {
        let until = self.meter.since() + TURN_MAX;
        while let Some((account, key)) = self.to_reply.pop() {
            self.work_for(Payer::Account(account));
            self.reply(now, key)?;
            if self.read_clock(Payer::Nobody) >= until {
                break;
            }
        }
        Ok(())
    }
    fn reply(&mut self, now: Instant, key: usize) -> io::Result<()> {
        let (endpoint, mut cx) = self.look(now, key);
        let holds_less = endpoint.reply(&mut cx)?;
        let spent = cx.spent;
        if !endpoint.has_unsent() {
            cx.port.replied(cx.client);
        }
        let has_replies = endpoint.has_replies();
        self.charge(self.account(key), spent);
        if has_replies {
            self.to_reply.push(self.account(key), key);
        } else {
            self.to_reply.remove(key);
        }
        self.settle_later(key);
        if holds_less {
            self.holds_less(key);
        }
        Ok(())
    }
    /// Forgets endpoints that are over, lets the others ask for more, and queues the back end's entries.
    fn finish_turn(&mut self, now: Instant) -> io::Result<()> {
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            self.endpoints[key].is_touched = false;
            let account = self.account(key);
            self.work_for(Payer::Account(account));
            let (endpoint, mut cx) = self.look(now, key);
            let life = endpoint.settle(&mut cx)?;
            let is_gone = life == Life::Closed && cx.client.is_idle();
            cx.port.charge_memory(cx.client, endpoint.holds());
            if cx.port.budget.take_released() {
                self.fair.wake(account);
                self.fair.wake_next();
            }
            if is_gone {
                self.forget(key);
                self.accept_again()?;
            }
        }
        self.touched = touched;
        self.end_pause()?;
        self.work_for(Payer::Nobody);
        self.queue_commands()?;
        Ok(())
    }
}
