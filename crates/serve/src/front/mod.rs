//! Front ends: the protocols through which clients reach volumes. A front end contains only the protocol; the reactor
//! moves its bytes.

pub(crate) mod fuse;
pub mod nbd;
pub mod tls;
pub(crate) mod ublk;
pub(crate) mod vhost;
