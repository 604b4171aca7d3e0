//! `noop`: one queue with merging, and a one-way sort in front of the drive.
//!
//! Requests wait in the order of their arrival; a request that is adjacent to a waiting one is merged into it. Before
//! the drive, they pass a *dispatch list*, which is sorted for a head that sweeps in one direction: first the
//! requests at or after the boundary (the end of the last request that went to the drive), in ascending order, then
//! those before it, in ascending order. A read never passes a write, nor a write a read (stated by Linux 2.6.32,
//! `block/noop-iosched.c` and the dispatch sort of `block/elevator.c`).
//!
//! In Linux, a driver that takes one request at a time finds one request in the list, so the sort only matters when a
//! driver leaves requests in it. `dispatch_batch` is the number of requests that move to the list at once; 1 is the
//! usual case and means first come, first served. Our choice in two places: we also try front merges (the original
//! only with the request merged last), and plugging is left to the submitter.

use alloc::boxed::Box;

use crate::parts::noop_queue::NoopQueue;
use iofair_core::id::RequestId;
use iofair_core::params::Parameter;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row};
use iofair_core::unit::Sectors;
use iofair_policies::parts::sorted_fifo::{Entry, MergeRules, Sorted};

/// The row of the table.
pub static ROW: Row = Row {
    name: "noop",
    short: "noop",
    role: Role::SCHEDULER,
    enforces: |_, _| false,
    summary: "first come, first served, with merging",
    file: "noop.rs",
    parameters: PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "First come, first served, with adjacent requests merged. The drive is never left \
                idle.",
            shown_by: "mails-2019/journal",
        }],
        needs: "Clients with equal demand.",
        fails: &[Claim {
            says: "A random reader beside eight sequential readers on a hard disk waits {target \
                mean of none-noop} for each completion and gets {target of none-noop}.",
            shown_by: "io-controller-2009/every-scheduler",
        }],
    },
    build,
};

const PARAMETERS: &[Parameter] = &[Parameter::count(
    "dispatch_batch",
    1,
    (1, 128),
    "requests that move to the dispatch list at once; the list is sorted one way",
)];

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let queue = NoopQueue::new(build.values.count("dispatch_batch") as usize);
    Box::new(Noop { sorted: Sorted::new(), queue, boundary: Sectors::ZERO })
}

struct Noop {
    sorted: Sorted,
    queue: NoopQueue,
    /// The assumed position of the drive's head.
    boundary: Sectors,
}

impl Policy for Noop {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let entry = Entry { id, arrived: cx.now };
        self.queue.insert(&mut self.sorted, cx.requests, entry);
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let rules = MergeRules { front: true, max: cx.facts.max_request };
        self.queue.try_merge(&mut self.sorted, cx.requests, id, rules)
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let id = self.queue.dispatch(&mut self.sorted, cx.requests, self.boundary)?;
        self.boundary = cx.requests[id].end();
        Some(id)
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("noop_queued_requests", self.queue.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::testing::Rig;
    use std::vec;

    /// Goal: first come, first served, whatever the sectors, directions and clients. Method: a
    /// handful out of order.
    #[test]
    fn order_of_arrival() {
        let mut rig = Rig::new(&crate::TABLE, "none-noop", &[]);
        let (a, b) = (rig.client(), rig.client());
        rig.read(a, 500);
        rig.write(b, 100);
        rig.read(b, 300);
        rig.read(a, 200);
        assert_eq!(rig.served(), [500, 100, 300, 200]);
    }

    /// Goal: neighbours merge while they wait, in front and behind, and into one when a gap closes;
    /// other directions and groups do not. Method: four reads that make one, a write that touches it.
    #[test]
    fn neighbours_merge() {
        let mut rig = Rig::new(&crate::TABLE, "none-noop", &[]);
        let (a, b) = (rig.client(), rig.client());
        for start in [100, 108, 124, 116] {
            rig.read(a, start);
        }
        rig.write(a, 132);
        rig.read(b, 132);
        rig.read(a, 92);
        assert_eq!(rig.served_parts(), [vec![92, 100, 108, 116, 124], vec![132], vec![132]]);
    }

    /// Goal: the dispatch list sweeps one way from the end of the last request and never mixes
    /// directions. Method: batches of four, worked by hand.
    #[test]
    fn the_dispatch_list_sweeps_one_way() {
        let mut rig = Rig::new(&crate::TABLE, "none-noop", &[("noop", "dispatch_batch", "4")]);
        let a = rig.client();
        for start in [500, 100, 300, 700, 200] {
            rig.read(a, start);
        }
        // Four move first; the fifth waits for the next batch and starts behind the boundary 708.
        rig.read(a, 900);
        assert_eq!(rig.served(), [100, 300, 500, 700, 900, 200]);
        for (start, write) in [(500, false), (300, false), (100, true), (50, false)] {
            rig.send(a, start, write);
        }
        // The boundary is 208: 300 goes in front of 500; the write stands, and 50 cannot pass it.
        assert_eq!(rig.served(), [300, 500, 100, 50]);
    }
}
