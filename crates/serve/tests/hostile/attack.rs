//! The attacks, and which front end each can come through.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iofair_serve::control::client::{Address, Call, call};
use serde_json::json;

use crate::peer::{self, Transport};
use crate::place::{Front, Place, Shared, volume};
use crate::{attackers_guest, file, nbd};

/// What a neighbour does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attack {
    /// Reads, writes and flushes as a program would: what the attacks are compared with.
    Honest,
    Flush,
    Zeroes,
    Trims,
    Status,
    Tiny,
    Huge,
    Deep,
    Slow,
    HalfOpen,
    Options,
    TlsFlood,
    Churn,
    Malformed,
    Kicks,
    Loops,
    Removed,
    Metrics,
    Changes,
}

use Attack::{
    Changes, Churn, Deep, Flush, HalfOpen, Huge, Kicks, Loops, Malformed, Metrics, Options,
    Removed, Slow, Status, Tiny, TlsFlood, Trims, Zeroes,
};

/// All that come through NBD; the last only with TLS.
const NBD: [Attack; 15] = [
    Flush, Zeroes, Trims, Status, Tiny, Huge, Deep, Slow, HalfOpen, Options, Churn, Malformed,
    Metrics, Changes, TlsFlood,
];

impl Attack {
    /// The attacks through a front end.
    pub(crate) fn through(front: Front) -> &'static [Self] {
        match front {
            Front::Unix => &NBD[..14],
            Front::Tls => &NBD,
            Front::Vhost => {
                &[Flush, Zeroes, Trims, Tiny, Huge, Deep, Churn, Malformed, Kicks, Loops, Removed]
            }
            Front::Fuse => &[Flush, Zeroes, Trims, Tiny, Huge, Deep, Churn, Status],
        }
    }
    /// What each attacker does, for the page.
    pub(crate) fn describe(self, front: Front) -> &'static str {
        match (self, front) {
            (Self::Honest, Front::Fuse) => {
                "honest: 64 KiB, 7 reads to 3 writes, `fdatasync`, 8 threads"
            }
            (Self::Honest, _) => {
                "honest: 64 KiB, 7 reads to 3 writes, a flush every 100, 8 in flight"
            }
            (Flush, Front::Fuse) => "`fdatasync` in a loop",
            (Flush, _) => "flushes, 40 or 64 in flight",
            (Zeroes, Front::Fuse) => "`fallocate` of 2 GiB of zeroes in a loop",
            (Zeroes, Front::Vhost) => "write-zeroes of 1 GiB, 40 in flight",
            (Zeroes, _) => "write-zeroes of 2 GiB, 250 in flight",
            (Trims, Front::Fuse) => "punching holes of 2 GiB in a loop",
            (Trims, Front::Vhost) => "discards of 1 GiB, 40 in flight",
            (Trims, _) => "trims of 2 GiB, 250 in flight",
            (Status, Front::Fuse) => "`stat` and directory listings in a loop",
            (Status, _) => "block status of the whole volume, 64 in flight",
            (Tiny, Front::Vhost) => "reads and writes of 512 bytes, 40 in flight",
            (Tiny, Front::Fuse) => "unaligned reads and writes of 511 bytes",
            (Tiny, _) => "unaligned reads and writes of 511 bytes, 256 in flight",
            (Huge, Front::Vhost) => "reads of 4 MiB, 40 in flight",
            (Huge, Front::Fuse) => "reads of 32 MiB",
            (Huge, _) => "reads of 32 MiB, 16 in flight",
            (Deep, Front::Vhost) => "4 KiB random reads, 40 in flight",
            (Deep, Front::Fuse) => "4 KiB random reads, 8 threads",
            (Deep, _) => "4 KiB random reads, 4,096 in flight",
            (Slow, _) => "requests 64 MiB and reads one byte a second",
            (HalfOpen, _) => "16 connections that never choose a volume",
            (Options, _) => "256 pipelined LIST options, in a loop",
            (TlsFlood, _) => "TLS handshakes that stop after the server's reply",
            (Churn, Front::Fuse) => "open and close in a loop",
            (Churn, _) => "connect, choose the volume, disconnect, in a loop",
            (Malformed, Front::Vhost) => "rings with invalid indices, heads and addresses",
            (Malformed, _) => "random bytes, invalid options, invalid requests",
            (Kicks, _) => "kicks without requests",
            (Loops, _) => "descriptors that form a loop",
            (Removed, _) => "memory truncated under 21 requests",
            (Metrics, _) => "reads of `/metrics` in a loop",
            (Changes, _) => "changes of the group's weight in a loop, by an operator",
        }
    }
}

/// Starts attackers, each on a thread that gets the processor last.
pub(crate) fn start(
    attack: Attack,
    count: usize,
    place: &Place,
    shared: &Arc<Shared>,
) -> Vec<JoinHandle<()>> {
    let transport =
        (place.front != Front::Vhost && place.front != Front::Fuse).then(|| Transport::to(place));
    let attacker = |number: usize| {
        let (transport, front, shared) = (transport.clone(), place.front, Arc::clone(shared));
        let [disk, file] =
            ["disk-", "mnt/"].map(|kind| place.path(&(kind.to_string() + &volume(number))));
        let socket = if attack == Metrics { "metrics.sock" } else { "control.sock" };
        let control = Address::Unix(PathBuf::from(place.path(socket)));
        let run = move || {
            peer::be_nice();
            match (attack, &transport) {
                (Metrics | Changes, _) => talk(attack, &control, number, &shared),
                (_, Some(transport)) => nbd::attack(attack, transport, number, &shared),
                (_, None) if front == Front::Vhost => {
                    // The rig gives up by a panic, as a driver by a reset.
                    while !shared.over.load(Ordering::Relaxed) {
                        let attack = || attackers_guest::attack(attack, &disk, number, &shared);
                        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attack));
                    }
                }
                (_, None) => file::attack(attack, &file, number, &shared),
            }
        };
        thread::Builder::new().name("attacker".into()).spawn(run).unwrap()
    };
    (0..count).map(attacker).collect()
}

/// Asks the control socket in a loop.
fn talk(attack: Attack, control: &Address, number: usize, shared: &Shared) {
    let mut weight = 100 + number as u64;
    while !shared.over.load(Ordering::Relaxed) {
        weight = 100 + (weight + 1) % 100;
        let ask = match attack {
            Metrics => Call::new("GET", "/metrics"),
            _ => Call::new("PATCH", "/v1/groups/hostile").body(json!({ "weight": weight })),
        };
        match call(control, &ask) {
            Ok(_) => drop(shared.operations.fetch_add(1, Ordering::Relaxed)),
            Err(_) => thread::park_timeout(Duration::from_millis(5)),
        }
    }
}
