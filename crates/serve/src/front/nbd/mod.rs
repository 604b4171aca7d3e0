//! NBD, the network block device protocol, as a server speaks it: fixed newstyle handshake, simple and
//! structured replies, one meta context (`base:allocation`).
//!
//! Pure: bytes in, actions out, no socket. [`wire`] is the layout of messages, [`session`] is one
//! connection's state, `options` its handshake half. Written after the protocol's public
//! specification (doc/proto.md of the NetworkBlockDevice project).

mod options;
pub mod session;
#[cfg(test)]
mod tests;
pub mod wire;
