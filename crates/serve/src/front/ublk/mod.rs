//! ublk: a volume as a block device `/dev/ublkbN` of this host.
//!
//! [`wire`] defines the data exchanged with the driver, and [`takeover`] decides what to do with existing devices;
//! both are pure. [`control`] sends commands to the driver through a small separate ring, and [`channel`] is the path
//! of one device's requests. The requests themselves use the reactor's ring ([`block`], the endpoint), and
//! [`devices`] is the list of devices.
//!
//! Payloads use `UBLK_F_USER_COPY`: the kernel copies them on our request, from or to a buffer of the request. The
//! alternative, a buffer lent to the driver for each tag, would save a system call. But a tag is reused as soon as
//! its request completes, also after a late command whose memory a drive may still write; and every tag would keep
//! memory for the longest request. libublk was considered: it brings threads, an executor and a build with libclang
//! for what takes 300 lines here.
//!
//! Written from the kernel's `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst` (Linux 6.12). The
//! driver is part of the kernel, but its data is still checked: a device may have been created by another version of
//! this program, and be longer than its volume is now.

mod block;
pub(crate) mod channel;
pub(crate) mod control;
pub(crate) mod devices;
pub(crate) mod takeover;
pub(crate) mod wire;
