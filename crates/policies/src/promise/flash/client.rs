//! A client's queues, and how its requests are counted.

use iofair_core::parts::fifo::Fifo;
use iofair_core::request::{Operation, Request};

use super::clock::Kind;
use super::shares::SIDES;
use super::start::Start;
use crate::parts::counted::Counted;

/// Queues of a client, in order of arrival.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Client {
    pub(super) queues: [Fifo; SIDES],
    /// How its commands count for minimums.
    pub(super) counted: Counted,
    pub(super) start: Start,
}

/// How clocks count a request.
pub(super) fn kind(request: &Request) -> Kind {
    match request.operation {
        Operation::Read => Kind::Read,
        Operation::Flush => Kind::Flush,
        _ if request.is_sync() => Kind::Urgent,
        _ => Kind::Buffered,
    }
}
