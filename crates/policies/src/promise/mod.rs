//! `promise`: keeps every feasible minimum, and keeps the drive busy.
//!
//! A group with a minimum has a clock: the time up to which its minimum has been served. While a group is behind, only requests for
//! minimums are dispatched. At all other times, groups and clients share the drive by weight, in drive time. What a request costs is
//! measured while the drive works.
//!
//! Flash serves many requests at once ([`flash`]), and a disk one client at a time ([`disk`]). A server finds out when it starts which of
//! them its drive is. What they share is in `parts/`.
//!
//! Service for a minimum also counts towards the group's share: a group gets the larger of the two, not their sum. A minimum
//! covers all clients and groups inside the group.
//!
//! **Stated by the source**: nothing. The combination is our own; each file names the published algorithms that it uses.

mod disk;
mod flash;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use iofair_core::key::Key;
use iofair_core::params::Parameter;
use iofair_core::policy::{Build, Claim, Judgement, Policy, Role, Row, Tags};
use iofair_core::time::Nanos;

/// The row of this policy in the table.
pub static ROW: Row = Row {
    name: "promise",
    short: "promise",
    role: Role::Scheduler { groups: true, tags: Tags::Unlimited, flushes: true },
    enforces: |key, _| match key {
        Key::Min | Key::MinIops | Key::Weight | Key::Class => true,
        Key::Latency | Key::LatencyWrite | Key::LatencySync => true,
        Key::Max | Key::MaxTotal | Key::MaxBurst | Key::Low => false,
    },
    summary: "keeps every feasible minimum, shares spare bandwidth by weight, keeps the drive busy",
    file: "promise/mod.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[
            Claim {
                says: "A minimum in bytes or I/Os a second, kept beside any number of readers and writers, while \
                    the drive stays as busy as without control.",
                shown_by: "promise/plextor",
            },
            Claim {
                says: "Spare bandwidth by weight, in drive time; a client that is alone is not held back.",
                shown_by: "promise/shares",
            },
            Claim {
                says: "A latency of reads, also beside writers, which are slowed down as far as necessary.",
                shown_by: "isolation/latency",
            },
            Claim {
                says: "A latency of writes and of flushes: commits (fsync) stay short beside others' writes.",
                shown_by: "isolation/commits",
            },
        ],
        needs: "Minimums that the drive can keep; an infeasible one is lowered to what its group reaches.",
        fails: &[
            Claim {
                says: "A minimum near what its client reaches alone costs the others more than its size, since the \
                    drive waits for one request at a time.",
                shown_by: "promise/plextor",
            },
            Claim {
                says: "On a disk a single second may get less than the minimum of a client whose own scattered writes fill the \
                    disk's cache.",
                shown_by: "search/case-0707",
            },
            Claim {
                says: "On a volume that serves nothing for the rest of each tenth of a second once its limit is reached, a client that \
                    sends one request at a time may get some percent less than its minimum.",
                shown_by: "search/case-1000090",
            },
            Claim {
                says: "A latency on a disk is missed beside writes that the disk's cache completes before they are \
                    written.",
                shown_by: "",
            },
        ],
    },
    build,
};

static PARAMETERS: &[Parameter] = &[Parameter::time(
    "window",
    Nanos::ZERO,
    "flash: drive time in flight without a reservation; zero: as little as gives the best total",
)];

/// Facts about a drive never change while an engine runs, so the choice is made once.
fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    if build.facts.rotational { disk::build(build) } else { flash::build(build) }
}
