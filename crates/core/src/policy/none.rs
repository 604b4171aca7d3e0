//! `none`: first come, first served.
//!
//! No scheduler at all: requests go to the drive in the order of their submission, as many as it
//! takes, and the drive picks its own order among them (policies.md A1; the kernel's `none`). Merging
//! happens only in the plug.

use alloc::boxed::Box;

use super::{Build, Context, Policy, Role, Row};
use crate::parts::fifo::Fifo;
use crate::request::RequestId;

/// Its row in the table.
pub static ROW: Row = Row {
    name: "none",
    short: "none",
    role: Role::Scheduler { groups: false },
    summary: "first come, first served; the drive orders",
    file: "none.rs",
    parameters: &[],
    overrides: &[],
    build,
};

fn build(_: &Build<'_>) -> Box<dyn Policy + Send> {
    Box::new(Fcfs { queue: Fifo::new() })
}

struct Fcfs {
    queue: Fifo,
}

impl Policy for Fcfs {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        self.queue.push_back(cx.requests, id);
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        self.queue.pop_front(cx.requests)
    }
}
