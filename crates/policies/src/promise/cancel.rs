//! Requests that are cancelled while they are queued.

use iofair_core::id::RequestId;
use iofair_core::minimum::Amount;
use iofair_core::policy::Context;
use iofair_core::time::Nanos;

use super::Promise;
use super::client::side;
use super::shares::{EntityId, Side};

impl Promise {
    /// Takes a queued request of which nothing was dispatched out. For counters and clocks, it was dispatched and completed
    /// at no cost; shares, window and measurements of the drive do not know of it.
    pub(super) fn take_out(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let (index, side) = (cx.requests[id].client.index(), side(&cx.requests[id]));
        let (client, now) = (EntityId::client(cx.requests[id].client), cx.now);
        let (ends, nothing) = ((true, self.sent[id.0 as usize].kind), Amount::default());
        let kind = ends.1;
        let own = &mut self.clients[index];
        own.queues[side as usize].remove(cx.requests, id);
        own.requests.dispatch(nothing, ends);
        own.requests.complete(nothing, kind);
        let is_idle = own.requests.are_none();
        self.shares.pop(client, side);
        self.queued -= 1;
        if side == Side::Read && self.latencies {
            self.set_deadline(cx, client);
        }
        if self.counts {
            self.each_clock(client, |clocks, group| {
                clocks.dispatch(now, group, nothing, ends);
                clocks.complete(now, group, nothing, (kind, Nanos::ZERO));
            });
        }
        if is_idle {
            self.window.on_leave(now);
        }
    }
}
