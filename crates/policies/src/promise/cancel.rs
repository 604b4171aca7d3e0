//! Requests that are cancelled while they are queued.

use iofair_core::id::RequestId;
use iofair_core::minimum::Amount;
use iofair_core::policy::Context;
use iofair_core::time::Nanos;

use super::Promise;
use super::requests::Command;
use super::shares::{EntityId, Side};

impl Promise {
    /// Takes a queued request of which nothing was dispatched out. For counters and clocks, it was dispatched and completed
    /// at no cost; shares, window and measurements of the drive do not know of it.
    pub(super) fn take_out(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let (index, side) = (cx.requests[id].client.index(), Side::of_request(&cx.requests[id]));
        let (client, now) = (EntityId::client(cx.requests[id].client), cx.now);
        let kind = self.sent[id.0 as usize].kind;
        let nothing = Command { amount: Amount::default(), kind };
        let own = &mut self.clients[index];
        own.queues[side as usize].remove(cx.requests, id);
        own.requests.dispatch(nothing, true);
        own.requests.complete(nothing);
        let is_idle = own.requests.are_none();
        self.shares.pop(client, side);
        self.queued -= 1;
        if side == Side::Read && self.latencies {
            self.set_deadline(cx, client);
        }
        if self.counts {
            self.each_clock(client, |clocks, group| {
                clocks.dispatch(now, group, nothing, true);
                clocks.complete(now, group, nothing, Nanos::ZERO);
            });
        }
        if is_idle {
            self.window.on_leave(now);
        }
    }
}
