//! `none`: first come, first served.
//!
//! No scheduler: requests go to the drive in the order of submission, as many as the drive accepts, and the drive
//! chooses its own order among them. Requests are merged only in the plug. All of this is stated by the source: the
//! kernel's `none` (Linux 7.0, `block/blk-mq.c`).

use alloc::boxed::Box;

use iofair_core::id::RequestId;
use iofair_core::parts::fifo::Fifo;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row, Tags};

/// The row of the table.
pub static ROW: Row = Row {
    name: "none",
    short: "none",
    role: Role::Scheduler { groups: false, tags: Tags::Depth, flushes: false },
    enforces: |_, _| false,
    summary: "first come, first served; the drive chooses the order",
    file: "none.rs",
    parameters: &[],
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Nothing: every request goes to the drive at once, and the drive does what it \
                can.",
            shown_by: "survey-2019/no-control",
        }],
        needs: "A drive that is fair by itself, or clients that are not busy at the same time.",
        fails: &[Claim {
            says: "A random reader beside 15 sequential readers gets {target of none-none [15 \
                readers]}, and {target of none-none [0 readers]} alone.",
            shown_by: "survey-2019/no-control",
        }],
    },
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
    fn cancel(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        self.queue.remove(cx.requests, id);
        true
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("none_queued_requests", self.queue.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::priority::Class;
    use iofair_core::testing::Rig;
    use std::vec;

    /// Goal: first come, first served, whatever the sector, direction, class or client. Method: six
    /// requests that every other policy would serve in another order.
    #[test]
    fn order_of_submission() {
        let mut rig = Rig::new(&crate::TABLE, "none-none", &[]);
        let (idle, urgent) = (rig.client_of(Class::Idle), rig.client_of(Class::RealTime));
        let sent = [(idle, 500, true), (urgent, 900, false), (idle, 100, false)];
        for (client, start, write) in sent.into_iter().chain([(urgent, 300, true)]) {
            rig.send(client, start, write);
        }
        assert_eq!(rig.served(), [500, 900, 100, 300]);
    }

    /// Goal: neighbours stay apart outside a plug. Method: three that touch.
    #[test]
    fn neighbours_do_not_merge() {
        let mut rig = Rig::new(&crate::TABLE, "none-none", &[]);
        let a = rig.client();
        rig.reads(a, &[100, 108, 92]);
        assert_eq!(rig.served_parts(), [vec![100], vec![108], vec![92]]);
    }

    /// Goal: as many go out as the drive takes, held by nothing else. Method: a drive of depth 2, no
    /// completion, then one.
    #[test]
    fn the_drive_is_kept_full() {
        let mut rig = Rig::with(&crate::TABLE, "none-none", &[], |setup| setup.facts.depth = 2);
        let a = rig.client();
        (0..5).for_each(|i| rig.read(a, 100 * i));
        let first = rig.dispatch().expect("the drive is free");
        assert_eq!(rig.dispatch().map(|(_, start)| start), Some(100));
        assert_eq!((rig.dispatch(), rig.controller.next_wakeup()), (None, None));
        rig.complete(first.0);
        assert_eq!(rig.dispatch().map(|(_, start)| start), Some(200));
        assert_eq!(rig.dispatch(), None);
    }
}
