//! Measures the processor time of the reactor's thread for each account.
//!
//! The clock is read when the account changes, and once per visit, never twice for two consecutive steps of the same
//! endpoint. It is the monotonic clock: reading the thread's processor time is a system call on most machines.

use iofair_core::time::{Instant, Nanos};

use crate::port::Account;

/// For whom the thread works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Payer {
    /// The reactor itself and its owner.
    Nobody,
    /// Shared by the clients whose requests are completed next: the engine and the back end work for all of them.
    Engine,
    /// The endpoints of a group.
    Account(Account),
}

/// What is being measured.
#[derive(Debug)]
pub(super) struct Meter {
    payer: Payer,
    since: Instant,
    engine: Nanos,
    handshakes: Nanos,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self { payer: Payer::Nobody, since: now, engine: Nanos::ZERO, handshakes: Nanos::ZERO }
    }
    /// The thread was asleep until now.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.payer, self.since) = (Payer::Nobody, now);
    }
    /// When the clock was read last.
    pub(super) fn since(&self) -> Instant {
        self.since
    }
    pub(super) fn payer(&self) -> Payer {
        self.payer
    }
    /// From now on it works for `next`; returns whom the time since the last call is charged to.
    pub(super) fn switch(&mut self, now: Instant, next: Payer) -> Option<(Account, Nanos)> {
        let time = now.since(self.since);
        self.since = now;
        match std::mem::replace(&mut self.payer, next) {
            Payer::Nobody => None,
            Payer::Engine => {
                self.engine += time;
                None
            }
            Payer::Account(account) => {
                if account == Account::HANDSHAKE {
                    self.handshakes += time;
                }
                Some((account, time))
            }
        }
    }
    /// Takes each one's part of the engine's time, if this many requests were finished.
    pub(super) fn take_engine_time(&mut self, requests: usize) -> Nanos {
        if requests == 0 {
            return Nanos::ZERO;
        }
        Nanos(std::mem::take(&mut self.engine).0 / requests as u64)
    }
    /// Processor time of clients that have not chosen a volume, since the start.
    pub(super) fn handshakes(&self) -> Nanos {
        self.handshakes
    }
}
