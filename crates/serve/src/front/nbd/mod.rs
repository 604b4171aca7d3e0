//! The server side of NBD, the network block device protocol: fixed newstyle handshake, simple and structured
//! replies, one meta context (`base:allocation`).
//!
//! The protocol is pure: bytes come in, actions go out, and there is no socket. [`wire`] is the layout of messages,
//! [`session`] is the state of one connection, and `options` its handshake. `connection` is the endpoint, which moves
//! the bytes, and `listening` has the sockets. Written from the protocol's public specification
//! (doc/proto.md of the NetworkBlockDevice project).

pub(crate) mod connection;
mod input;
pub(crate) mod listening;
mod options;
mod outbox;
pub mod session;
#[cfg(test)]
mod tests;
pub mod wire;
