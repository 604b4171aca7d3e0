//! ublk: a volume as a block device `/dev/ublkbN` of this host.
//!
//! [`wire`] is what goes between this process and the driver, [`takeover`] what to do with a device that is there
//! already; both are pure. [`control`] gives the driver its orders through a small ring of its own, and
//! [`channel`] is the way of one device's requests. The requests themselves run on the reactor's ring
//! (`reactor/block.rs`), and `blocks.rs` says which devices there are.
//!
//! Payloads go by `UBLK_F_USER_COPY`: the kernel copies them when we ask, from or into a buffer of the request
//! itself. The other way, a buffer lent to the driver for each tag, would save a system call, but a tag is used
//! again as soon as it is answered, also when that was a late command whose memory a drive still writes; and
//! every tag would keep memory for the longest request. libublk was looked at: it brings threads, an
//! executor and a build with libclang for what is 300 lines here.
//!
//! Written after the kernel's `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst` (Linux 6.12). The
//! driver is the kernel's own, but what it says is checked all the same: a device may have been made by another
//! version of this program, and be longer than its volume is now.

pub(crate) mod channel;
pub(crate) mod control;
pub(crate) mod takeover;
pub(crate) mod wire;
