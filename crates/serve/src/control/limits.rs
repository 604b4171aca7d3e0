//! Every bound of the control and metrics sockets, with its reason.

use std::time::Duration;

use iofair_core::time::Nanos;

use super::rate::Rate;

/// A handshake of TLS; the slowest network does it in a second or two.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);
/// A head, from the connection's begin.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// A body, from the head's end.
pub(super) const BODY: Duration = Duration::from_secs(10);
/// Taking a response. A page of metrics of 10,000 groups has some megabytes.
pub(super) const RESPONSE: Duration = Duration::from_secs(30);
/// Waiting for another change to end.
pub(super) const CHANGE_WAIT: Duration = Duration::from_secs(10);
/// A change that waits for storage or for clients; then its caller is told so. Callers wait for three minutes.
pub(super) const CHANGE: Duration = Duration::from_secs(150);
/// Waiting for the last lines of the audit log: those who only read must not wait for a file system that does not respond.
pub(super) const AUDIT_WAIT: Duration = Duration::from_secs(1);
/// Waiting for a change to end when the server ends; then for a look at the files.
pub(super) const STOP_WAIT: Duration = Duration::from_secs(5);
pub(super) const LOOK_MAX: Duration = Duration::from_secs(1);
/// Waiting for a thread that carries a call out.
pub(super) const THREAD_WAIT: Duration = Duration::from_secs(10);
/// Taking an event of a live page, which has a few hundred kilobytes at most.
pub(super) const EVENT: Duration = Duration::from_secs(10);
/// Events on one connection; a page then connects again.
pub(super) const EVENTS: Duration = Duration::from_secs(60 * 60);
/// Calls in progress when the server ends.
pub(super) const END: Duration = Duration::from_secs(10);
/// After an accept that failed, so that a lack of descriptors does not keep a processor busy.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of a head; also what is buffered of a connection.
pub(super) const HEAD_BYTES: usize = 16 << 10;
/// Headers in it; Prometheus and curl send fewer than ten.
pub(super) const HEADERS: usize = 32;
/// Bytes of a body: a group with every key and 256 clients is far below.
pub(super) const BODY_BYTES: usize = 64 << 10;

/// Live pages that are open at once, and of one caller. Fewer than connections of any class, so that metrics can be read.
pub(super) const LIVE_PAGES: usize = 12;
pub(super) const LIVE_PAGES_OF_ONE: usize = 4;

/// Handshakes at once over TCP, and of one host.
pub(super) const HANDSHAKES: usize = 32;
pub(super) const HANDSHAKES_OF_ONE: usize = 8;

/// Changes of one caller: each is checked, synced twice and taken over by the reactor.
pub(super) const CHANGES: Rate =
    Rate { interval: Nanos::from_millis(50), burst: 100, wait_max: Nanos::from_secs(5) };
/// Looks of one caller.
pub(super) const LOOKS: Rate =
    Rate { interval: Nanos::from_millis(10), burst: 200, wait_max: Nanos::from_secs(5) };
/// Pages of metrics and checks of health of one host.
pub(super) const SCRAPES: Rate =
    Rate { interval: Nanos::from_millis(100), burst: 50, wait_max: Nanos::from_secs(5) };
/// Refused changes of one caller that the audit log tells of: a flood must not wash out what others did.
pub(super) const REFUSALS: Rate =
    Rate { interval: Nanos::from_secs(10), burst: 10, wait_max: Nanos::ZERO };

/// Kinds of callers, each with connections and threads of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    UnixOperator,
    UnixViewer,
    TlsOperator,
    TlsViewer,
    MetricsUnix,
    MetricsTcp,
    /// Checks of health, whoever asks.
    Health,
}

/// Threads of all classes: for calls that only read, for changes, and for removals.
pub(super) const THREADS: usize = (4 + 2 + 2 + 2 + 1 + 1 + 1) + (4 + 2) + (16 + 4);
/// The thread that copies counters for live pages.
pub(super) const SAMPLER: usize = 1;
/// The thread that finds the names of callers who were refused.
pub(super) const NAMER: usize = 1;

impl Class {
    pub(super) const COUNT: usize = 7;
    /// All, in the order of their numbers.
    pub(super) const ALL: [Self; Self::COUNT] = [
        Self::UnixOperator,
        Self::UnixViewer,
        Self::TlsOperator,
        Self::TlsViewer,
        Self::MetricsUnix,
        Self::MetricsTcp,
        Self::Health,
    ];
    /// Connections at once.
    pub(super) const fn slots(self) -> usize {
        match self {
            Self::UnixOperator => 64,
            Self::UnixViewer | Self::MetricsTcp => 32,
            Self::TlsOperator | Self::TlsViewer | Self::MetricsUnix => 16,
            Self::Health => 0,
        }
    }
    /// Connections at once of one user, host or certificate.
    pub(super) const fn slots_of_one(self) -> usize {
        match self {
            Self::UnixOperator => 64,
            _ => 8,
        }
    }
    /// Changes that are carried out at once, or wait for each other: they may wait for storage, and take no thread from calls
    /// that only read.
    pub(super) const fn change_threads(self) -> usize {
        match self {
            Self::UnixOperator => 4,
            Self::TlsOperator => 2,
            _ => 0,
        }
    }
    /// Removals at once: each may wait for clients as long as a drain, and takes no thread from other changes.
    pub(super) const fn removal_threads(self) -> usize {
        match self {
            Self::UnixOperator => 16,
            Self::TlsOperator => 4,
            _ => 0,
        }
    }
    /// Calls that only read which are carried out at once; each may wait for the reactor.
    pub(super) const fn threads(self) -> usize {
        match self {
            Self::UnixOperator => 4,
            Self::UnixViewer | Self::TlsOperator | Self::TlsViewer => 2,
            Self::MetricsUnix | Self::MetricsTcp | Self::Health => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the table of classes is whole, and there is a thread for every call that may be carried out. Method: its
    /// rows.
    #[test]
    fn every_class_has_threads() {
        let threads =
            |class: Class| class.threads() + class.change_threads() + class.removal_threads();
        assert_eq!(Class::ALL.into_iter().map(threads).sum::<usize>(), THREADS);
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
        }
    }
}
