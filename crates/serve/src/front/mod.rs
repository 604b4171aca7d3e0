//! Front ends: how clients reach a volume. A front end is pure protocol; the reactor moves its bytes.

pub(crate) mod fuse;
pub mod nbd;
pub mod tls;
pub(crate) mod ublk;
pub(crate) mod vhost;
