//! Live servers and their clients, one file a topic. Tests that look at a whole process (its memory, allocations, threads) or that
//! a sanitizer runs alone have programs of their own.
#![allow(clippy::unwrap_used)]

mod access;
mod admission;
mod bare;
mod changed;
mod changes;
mod charged;
mod clients;
mod control;
#[path = "../rig/crash.rs"]
mod crash;
mod directory;
#[path = "../rig/disk.rs"]
mod disk;
mod doors;
mod dry_runs;
mod failing;
mod faults;
#[path = "../rig/faulty.rs"]
mod faulty;
mod fuse;
mod gone;
#[path = "../rig/guest.rs"]
mod guest;
mod kept;
mod killed;
mod live_page;
mod long;
mod observed;
mod owned;
mod pools;
#[path = "../rig/prometheus.rs"]
mod prometheus;
mod recording;
mod renamed;
mod revoked;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../rig/slow.rs"]
mod slow;
mod statuses;
mod storage;
#[path = "../rig/stored.rs"]
mod stored;
mod unaligned;
