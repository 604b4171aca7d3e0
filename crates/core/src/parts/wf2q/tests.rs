//! B-WF2Q+ against its sources' numbers.

use super::*;

/// Goal: the example of Bennett and Zhang (1996): one session with half the weight, ten with a
/// twentieth each, all backlogged at once with unit packets. WF2Q+ serves the big one every second
/// packet, where WFQ would let it send ten in a row. Method: the order of twenty picks.
#[test]
fn the_big_session_interleaves() {
    let mut h = Hierarchy::new();
    let now = Instant::ZERO;
    let big = h.add_queue(EntityId::ROOT, 10, Class::BestEffort);
    h.set_budget(now, big, Sectors(1));
    h.activate(now, big, Arrival::Plain);
    for _ in 0..10 {
        let small = h.add_queue(EntityId::ROOT, 1, Class::BestEffort);
        h.set_budget(now, small, Sectors(1));
        h.activate(now, small, Arrival::Plain);
    }
    for turn in 0..20 {
        let queue = h.pick(now).expect("all are backlogged");
        assert_eq!(queue == big, turn % 2 == 0, "turn {turn}: {queue:?}");
        h.served(queue, Sectors(1));
        h.requeue(now, queue);
    }
}
