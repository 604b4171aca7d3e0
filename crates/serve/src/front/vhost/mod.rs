//! vhost-user-blk: a volume as the disk of a virtual machine, whose memory this process maps.
//!
//! `control` speaks the protocol with the virtual machine monitor on a thread of its own, one a socket,
//! and sends [`command`]s to the device in the reactor (`reactor/device.rs`), which turns the rings.
//! Pure, over any memory: [`chain`] (descriptors to a request), [`ring`] (one virtqueue) and [`inflight`]
//! (what survives this process); [`config`] is what a driver is told.
//!
//! Written after the OASIS Virtual I/O Device specification 1.2 (sections 2.7 and 5.2) and QEMU's
//! "Vhost-user Protocol" (docs/interop/vhost-user.rst). Everything in guest memory is hostile and may
//! change at any time: it is read once, checked, and what was read is used. It may also go away at any time
//! ([`memory`]): then the client is sent away.

pub(crate) mod allowance;
pub(crate) mod chain;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod hostile;
pub(crate) mod inflight;
mod memory;
pub(crate) mod ring;

pub(crate) use memory::Memory;
