//! Clients that were refused: counted by reason, and logged from time to time.

use std::fmt::Write as _;

use iofair_core::time::{Instant, Nanos};

use crate::log;

/// Least time between two lines.
const TELL_INTERVAL: Nanos = Nanos::from_secs(10);

/// Why a client, or a caller of control or metrics, was refused or cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// There are as many connections as there may be.
    Connections,
    /// It was silent in its handshake while others waited for its place.
    Handshakes,
    /// It did not choose a volume in time.
    Timeout,
    /// The descriptors that are left are for control.
    Descriptors,
    /// Its TLS handshake failed, or it began none although it must.
    Tls,
    /// There are as many callers of its kind as there may be.
    Control,
    /// A caller did not send a whole call in time, or before others needed its place.
    Unfinished,
    /// A caller makes too many calls, or too many are in progress.
    Calls,
    /// A call that a web page may have made, or whose host name is not the server's.
    Origin,
    /// A caller that may not do this.
    Role,
    /// Its volume, or a group above it, has as many connections as it may have.
    Group,
    /// The volume is not there, as far as this client may know.
    Unknown,
    /// It does not speak the protocol.
    Protocol,
    /// It held memory that others of its group waited for, and took no replies.
    Memory,
    /// The monitor of a virtual machine, or a message of it.
    Vhost,
}

impl Refusal {
    /// All of them in the order of their numbers, with their names in metrics and in the log, and why.
    const ROWS: [(Self, &'static str, &'static str); 15] = [
        (Self::Connections, "connections", "as many are connected as may be (connections)"),
        (Self::Handshakes, "handshakes", "silent while others waited for a handshake (handshakes)"),
        (Self::Timeout, "timeout", "no volume chosen in time (handshake)"),
        (Self::Descriptors, "descriptors", "no file descriptors left (RLIMIT_NOFILE)"),
        (Self::Tls, "tls", "TLS handshake failed, or no TLS although it is required"),
        (Self::Control, "control", "as many callers of control or metrics as may be"),
        (
            Self::Unfinished,
            "unfinished",
            "calls of control or metrics not sent in time, or while others needed the place",
        ),
        (Self::Calls, "calls", "too many calls of control or metrics"),
        (Self::Origin, "origin", "calls from web pages, or under another host name (hosts)"),
        (Self::Role, "role", "calls without permission (admins, viewers, operators)"),
        (
            Self::Group,
            "group",
            "their volume or its group has all connections that it may have (connections)",
        ),
        (Self::Unknown, "unknown", "no such volume, or not for this client (clients, listen)"),
        (Self::Protocol, "protocol", "not the protocol of NBD"),
        (Self::Memory, "memory", "took no replies while their group waited for memory (memory)"),
        (Self::Vhost, "vhost", "monitors of virtual machines (vhost-user)"),
    ];
    /// How many there are.
    pub(crate) const COUNT: usize = Self::ROWS.len();

    /// All of them, in the order of their numbers.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::ROWS.into_iter().map(|(refusal, ..)| refusal)
    }
    /// Its name in metrics and in the log.
    pub(crate) const fn name(self) -> &'static str {
        Self::ROWS[self as usize].1
    }
    const fn why(self) -> &'static str {
        Self::ROWS[self as usize].2
    }
}

/// Numbers of refused clients.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: [u64; Refusal::COUNT],
    told: [u64; Refusal::COUNT],
    next: Option<Instant>,
}

impl Refusals {
    pub(crate) fn count(&mut self, refusal: Refusal) {
        self.counts[refusal as usize] += 1;
    }
    /// By [`Refusal`].
    pub(crate) fn counts(&self) -> [u64; Refusal::COUNT] {
        self.counts
    }
    /// Tells of those who were refused since the last line, unless that was a moment ago. `source`: who they are.
    pub(crate) fn tell(&mut self, now: Instant, source: &str) {
        if self.counts == self.told || self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + TELL_INTERVAL);
        self.tell_rest(source);
    }
    /// Tells of those who were refused since the last line, if there are any: the server ends.
    pub(crate) fn tell_rest(&mut self, source: &str) {
        if self.counts != self.told {
            log::tell(source, &self.line());
            self.told = self.counts;
        }
    }
    fn line(&self) -> String {
        let mut line = String::from("refused:");
        for refusal in Refusal::all() {
            let count = self.counts[refusal as usize] - self.told[refusal as usize];
            if count > 0 {
                let comma = if line.ends_with(':') { "" } else { ";" };
                let (name, why) = (refusal.name(), refusal.why());
                write!(line, "{comma} {count} {name}: {why}").expect("writing to a string");
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line has what was refused since the last one, by the reasons of metrics. Method: some of two reasons, then more of one.
    #[test]
    fn a_line_tells_what_was_refused() {
        let mut refusals = Refusals::default();
        (0..3).for_each(|_| refusals.count(Refusal::Handshakes));
        refusals.count(Refusal::Tls);
        let wanted = "refused: 3 handshakes: silent while others waited for a handshake (handshakes); 1 tls: TLS handshake failed, or no TLS although it is required";
        assert_eq!(refusals.line(), wanted);
        refusals.tell(Instant::ZERO, "clients");
        refusals.count(Refusal::Tls);
        refusals.tell(Instant::ZERO, "clients");
        assert_eq!(
            refusals.line(),
            "refused: 1 tls: TLS handshake failed, or no TLS although it is required",
            "not told yet"
        );
        for (number, refusal) in Refusal::all().enumerate() {
            assert_eq!(refusal as usize, number);
        }
    }
}
