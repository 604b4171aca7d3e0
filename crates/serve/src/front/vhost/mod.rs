//! vhost-user-blk: a volume as the disk of a virtual machine, whose memory this process maps.
//!
//! `control` speaks the protocol with virtual machine monitors on a separate thread, and sends [`command`]s to the
//! [`device`], the endpoint, which processes the rings. [`disks`] has the sockets. Pure, over any memory: [`chain`]
//! (descriptors to a request), [`ring`] (one virtqueue) and [`inflight`] (the record that survives this process);
//! [`config`] describes the device.
//!
//! Written from the OASIS Virtual I/O Device specification 1.2 (sections 2.7 and 5.2) and QEMU's "Vhost-user
//! Protocol" (docs/interop/vhost-user.rst). Everything in guest memory is untrusted and may change at any time: it is
//! read once and checked, and only the copy is used. It may also disappear at any time ([`memory`]); the client is
//! then disconnected.

pub(crate) mod allowance;
pub(crate) mod chain;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod control;
mod device;
pub(crate) mod disks;
pub(crate) mod hostile;
pub(crate) mod inflight;
mod memory;
pub(crate) mod ring;

pub(crate) use memory::Memory;
