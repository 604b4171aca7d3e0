//! The server side of NBD, the network block device protocol: fixed newstyle handshake, simple and structured
//! replies, one meta context (`base:allocation`).
//!
//! It is pure: bytes come in, actions go out, and there is no socket. [`wire`] is the layout of messages, [`session`]
//! is the state of one connection, and `options` its handshake. Written from the protocol's public specification
//! (doc/proto.md of the NetworkBlockDevice project).

mod options;
pub mod session;
#[cfg(test)]
mod tests;
pub mod wire;
