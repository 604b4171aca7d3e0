//! `deadline`: batches by sector, reads before writes, and a deadline for each request.
//!
//! Reads and writes are queued separately, each by sector and by arrival. A *batch* consists of up to `fifo_batch`
//! requests of one direction, in ascending order of sectors. It ends early if no request has a higher sector. The
//! next batch is one of reads, if there are any; but after `writes_starved` batches of reads while writes wait, it is
//! one of writes. A batch continues where the last one stopped, if that was of the same direction. It starts with the
//! oldest request of its direction if the last batch was of the other direction, if no request has a higher sector,
//! or if the oldest request has waited longer than `read_expire` or `write_expire`. A deadline is therefore no
//! guarantee: it is only checked between batches.
//!
//! The scheduler never holds requests: it has no idling, no classes, and does not know clients. Everything except
//! reads counts as a write. As in all single-queue kernels, buffered writes may have as many requests as all others
//! together; here this is half of the tags.
//!
//! *Source*: Linux 2.6.32, `block/deadline-iosched.c` and `Documentation/block/deadline-iosched.txt`. Stated there:
//! all of the above and the defaults. A difference from `mq-deadline`: when a request is dispatched, its successor by
//! sector is remembered, so a request that arrives between the two is passed over. A batch of the other direction
//! makes the scheduler forget the successor.
//!
//! *Our choice*, where we differ: two requests of the same direction and first sector both wait (the original
//! dispatches the first one when the second arrives); dispatched requests are not kept in a list before the drive
//! takes them; a flush, where it is scheduled, is a synchronous write.

use alloc::boxed::Box;

use iofair_core::id::RequestId;
use iofair_core::policy::{Build, Claim, Context, Gauges, Judgement, Policy, Role, Row, TagClass};
use iofair_core::request::Direction;
use iofair_core::trace::Subject;
use iofair_policies::parts::deadline_queue::{DeadlineQueue, DeadlineRules, PARAMETERS};
use iofair_policies::parts::sorted_fifo::{Entry, Sorted};

/// The row of the table.
pub static ROW: Row = Row {
    name: "deadline",
    short: "deadline",
    role: Role::SCHEDULER,
    enforces: |_, _| false,
    summary: "batches by sector, reads first, deadlines for both (single queue, Linux 2.6.32)",
    file: "deadline.rs",
    parameters: &PARAMETERS,
    overrides: &[],
    judgement: Judgement {
        promises: &[Claim {
            says: "Reads go before writes; expired requests start a batch, so that no request \
                starves.",
            shown_by: "article-2018/figure-1 --stack none-deadline",
        }],
        needs: "A drive with a short queue, because the scheduler has no control over requests in \
            the drive.",
        fails: &[Claim {
            says: "It checks deadlines only between batches, and they do not cover the time in the \
                drive: reads with a deadline of 500 ms wait {target mean of none-deadline} beside \
                eight sequential readers on a hard disk.",
            shown_by: "io-controller-2009/every-scheduler",
        }],
    },
    build,
};

fn build(build: &Build<'_>) -> Box<dyn Policy + Send> {
    let queue = DeadlineQueue::new(DeadlineRules::new(build));
    Box::new(Deadline { sorted: Sorted::new(), queue })
}

struct Deadline {
    sorted: Sorted,
    queue: DeadlineQueue,
}

impl Policy for Deadline {
    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let entry = Entry { id, arrived: cx.now };
        self.queue.insert(&mut self.sorted, cx.requests, entry);
    }
    fn try_merge(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        self.queue.try_merge(&mut self.sorted, cx.requests, id)
    }
    fn dispatch(&mut self, cx: &mut Context<'_>) -> Option<RequestId> {
        let before = self.queue.starved();
        let id = self.queue.dispatch(&mut self.sorted, cx.requests, cx.now);
        if self.queue.starved() > before {
            let rule = "a batch of reads goes first; writes were passed over {} times";
            cx.decide(Subject::Drive, rule, [self.queue.starved().into(), 0]);
        }
        id
    }
    fn tag_limit(&self, class: TagClass, tags: u32) -> u32 {
        class.single_queue_limit(tags)
    }
    fn observe(&self, gauges: &mut dyn Gauges) {
        gauges.gauge("deadline_queued_reads", self.queue.queued(Direction::Read) as u64);
        gauges.gauge("deadline_queued_writes", self.queue.queued(Direction::Write) as u64);
        gauges.gauge("deadline_starved_batches", u64::from(self.queue.starved()));
    }
}

#[cfg(test)]
mod tests {
    use iofair_core::priority::Class;
    use iofair_core::testing::Rig;
    use iofair_core::time::Instant;
    use std::vec;

    fn rig(set: &[(&str, &str)]) -> Rig {
        let set: vec::Vec<_> = set.iter().map(|(name, text)| ("deadline", *name, *text)).collect();
        Rig::new(&crate::TABLE, "none-deadline", &set)
    }

    const fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    /// Goal: the first batch starts with the oldest, goes upwards, and the last sector ends it; the next
    /// starts with the oldest again. Method: seven reads, classes mixed to no effect.
    #[test]
    fn a_batch_goes_upwards_from_the_oldest() {
        let mut rig = rig(&[]);
        let (idle, usual) = (rig.client_of(Class::Idle), rig.client());
        rig.reads(idle, &[500, 100, 700]);
        rig.reads(usual, &[300, 900, 600, 200]);
        assert_eq!(rig.served(), [500, 600, 700, 900, 100, 200, 300]);
    }

    /// Goal: the batch follows the finger: a newcomer between the last request and the finger is
    /// passed over, one beyond is not. Method: newcomers in the middle of a batch.
    #[test]
    fn newcomers_before_the_finger_wait() {
        let mut rig = rig(&[]);
        let a = rig.client();
        rig.reads(a, &[100, 300]);
        assert_eq!(rig.serve(), Some(vec![100]));
        rig.reads(a, &[200, 400]);
        assert_eq!(rig.served(), [300, 400, 200]);
    }

    /// Goal: batches are of 16, one that is full goes on where it stopped, writes have their turn after
    /// two batches at their cost, and reads start anew with their oldest then. Method: 40 reads from
    /// above downwards in arrival, two writes.
    #[test]
    fn batches_of_sixteen_and_starved_writes() {
        let mut rig = rig(&[]);
        let a = rig.client();
        rig.writes(a, &[3000, 2000]);
        rig.read(a, 5000);
        (0..38).for_each(|i| rig.read(a, 6000 + 10 * i));
        rig.read(a, 10);
        let served = rig.served();
        assert_eq!(served[0], 5000);
        assert_eq!(served[1..32], (0..31).map(|i| 6000 + 10 * i).collect::<vec::Vec<u64>>());
        // The writes' batch starts with their older one, and ends at once: nothing lies above it.
        assert_eq!(served[32], 3000);
        // The finger was taken away, but the oldest read is where it lay.
        assert_eq!(served[33..40], (31..38).map(|i| 6000 + 10 * i).collect::<vec::Vec<u64>>());
        assert_eq!(served[40..], [10, 2000], "the second batch since: reads once more");
    }

    /// Goal: writes get one batch after `writes_starved` batches of reads, and reads alone do not count.
    /// Method: batches of one, the writes come late.
    #[test]
    fn writes_starve_so_long() {
        let mut rig = rig(&[("fifo_batch", "1")]);
        let a = rig.client();
        (1..10).for_each(|i| rig.read(a, 100 * i));
        for start in [100, 200, 300] {
            assert_eq!(rig.serve(), Some(vec![start]));
        }
        (1..4).for_each(|i| rig.write(a, 10_000 * i));
        let served = rig.served();
        assert_eq!(served, [400, 500, 10_000, 600, 700, 20_000, 800, 900, 30_000]);
    }

    /// Goal: between batches an expired request goes before the finger, one that expires this instant
    /// does not; a running batch is not broken. Method: a read behind the head, batches of two.
    #[test]
    fn expired_requests_start_a_batch() {
        for (at, served) in [(ms(10), [300, 50]), (Instant(ms(10).0 + 1), [50, 300])] {
            let mut rig = rig(&[("fifo_batch", "2"), ("read_expire", "10ms")]);
            let a = rig.client();
            rig.read(a, 100);
            rig.read(a, 200);
            rig.read(a, 50);
            assert_eq!(rig.serve(), Some(vec![100]));
            rig.now = ms(9);
            rig.read(a, 300);
            rig.now = at;
            assert_eq!(rig.serve(), Some(vec![200]), "the batch goes on");
            assert_eq!(rig.served(), served);
        }
    }

    /// Goal: a write expires by its own time. Method: writes alone, below and above the finger.
    #[test]
    fn writes_expire_later() {
        for (at, first) in [(4999, 300), (5001, 50)] {
            let mut rig = rig(&[("fifo_batch", "1")]);
            let a = rig.client();
            rig.write(a, 100);
            rig.writes(a, &[50, 300]);
            assert_eq!(rig.serve(), Some(vec![100]));
            rig.now = ms(at);
            assert_eq!(rig.serve(), Some(vec![first]));
        }
    }

    /// Goal: neighbours merge, in front only if allowed. Method: both settings.
    #[test]
    fn neighbours_merge() {
        for (front, parts) in [
            ("true", vec![vec![92, 100, 108, 116]]),
            ("false", vec![vec![100, 108, 116], vec![92]]),
        ] {
            let mut rig = rig(&[("front_merges", front)]);
            let a = rig.client();
            rig.reads(a, &[100, 116, 108, 92]);
            assert_eq!(rig.served_parts(), parts);
        }
    }

    /// Goal: a merge that makes one of two requests leaves the finger on the one in front, and moves it
    /// past both from the one behind, whichever of the two is the older. Method: the gap closes
    /// at the finger, from both sides.
    #[test]
    fn the_finger_survives_a_merge() {
        for (arrivals, go) in [
            ([200, 216], vec![vec![100], vec![200, 208, 216], vec![400]]),
            ([216, 200], vec![vec![100], vec![200, 208, 216], vec![400]]),
        ] {
            let mut rig = rig(&[]);
            let a = rig.client();
            rig.reads(a, &[100, 400]);
            rig.reads(a, &arrivals);
            assert_eq!(rig.serve(), Some(go[0].clone()));
            rig.read(a, 208);
            assert_eq!(rig.served_parts(), go[1..]);
        }
        let mut rig = rig(&[]);
        let a = rig.client();
        rig.reads(a, &[100, 216, 400]);
        assert_eq!(rig.serve(), Some(vec![100]), "the finger is on 216");
        rig.reads(a, &[200, 208]);
        assert_eq!(rig.serve(), Some(vec![400]), "and moved on when 216 grew in front");
    }

    /// Goal: buffered writes cannot take all requests. Method: more writes than there are tags, then a read.
    #[test]
    fn reads_find_a_request() {
        let mut rig = rig(&[]);
        let (a, b) = (rig.client(), rig.client());
        (0..70).for_each(|i| rig.write(a, 1000 * i));
        rig.read(b, 500);
        assert_eq!(rig.serve(), Some(vec![500]));
    }
}
