//! Contracts for the I/O controllers of the Linux kernel.
//!
//! 1. [`facts`] looks at the machine: which hierarchy of cgroups controls I/O, which queues schedule a device, which
//!    groups exist.
//! 2. [`plan`] compares contracts with these facts and lists [`Write`]s, each with the value before, the value
//!    after and one sentence why, and notes what the kernel cannot guarantee. It writes nothing.
//! 3. [`journal`] keeps the values from before in a file that is on disk before the first write; it applies and
//!    reverts.
//! 4. [`status`] compares what was promised, what the kernel made of it, and what each group gets.
//! 5. [`law`] is the control law of `iofair host watch`, without machine and clock; [`watch`] connects it to the
//!    counters and limits of the kernel.
//!
//! All access to the machine goes through [`Files`], which tests replace by a kernel on a directory. Facts about the
//! kernel's files are from `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/blkio-controller.rst`,
//! `Documentation/block` and systemd.resource-control(5).
#![forbid(unsafe_code)]

pub mod device;
mod error;
pub mod facts;
mod files;
pub mod groups;
pub mod hierarchy;
pub mod journal;
pub mod law;
pub(crate) mod persist;
pub mod plan;
mod planned;
pub mod status;
#[cfg(test)]
mod testing;
pub mod watch;
mod write;

pub use error::HostError;
pub use files::{Files, Machine};
pub use hierarchy::{Hierarchy, Version};
pub use write::{Slot, Write};
