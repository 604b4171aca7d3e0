//! What a set of requests shows only from near: the number of writes, exits, and leaving and entering.

use super::*;
use iofair_core::group::Change;
use iofair_core::id::ClientId;
use iofair_core::request::{Operation, Request};

const RULES: AnticipatoryRules = AnticipatoryRules {
    fifo_expire: [Nanos::from_secs(10); 2],
    batch_expire: [Nanos::from_millis(500), Nanos::from_millis(125)],
    antic_expire: Nanos::from_millis(6),
    merges: MergeRules { front: true, max: Sectors(1024) },
};

struct World {
    requests: Requests,
    shared: Shared,
    queue: AnticipatoryQueue,
    now: Instant,
    made: u64,
    clients: u32,
}

const fn ms(n: u64) -> Instant {
    Instant(n * 1_000_000)
}

impl World {
    fn new(rules: AnticipatoryRules) -> Self {
        Self {
            requests: Requests::new(),
            shared: Shared::default(),
            queue: AnticipatoryQueue::new(rules),
            now: ms(1000),
            made: 0,
            clients: 0,
        }
    }
    fn client(&mut self) -> ClientId {
        let client = ClientId::from_bits(self.clients.into());
        self.clients += 1;
        self.shared.processes.change(Change::ClientAdded(client));
        client
    }
    fn submit(&mut self, client: ClientId, operation: Operation, start: u64) {
        self.made += 1;
        let mut request = Request::of(client, operation, start, 8);
        (request.tag, request.sequence, request.submitted) = (self.made, self.made, self.now);
        let id = self.requests.insert(request);
        let entry = Entry { id, arrived: self.now };
        self.queue.insert(&mut self.shared, &mut self.requests, entry);
    }
    fn read(&mut self, client: ClientId, start: u64) {
        self.submit(client, Operation::Read, start);
    }
    fn dispatch(&mut self) -> Option<RequestId> {
        self.queue.dispatch(&mut self.shared, &mut self.requests, self.now)
    }
    fn complete(&mut self, id: RequestId) {
        self.queue.complete(&mut self.shared, &self.requests, id, self.now);
        self.requests.end(id, |_, _| {});
    }
    /// Sends and completes this many; the first sector of the last.
    fn serve(&mut self, count: usize) -> u64 {
        let mut last = 0;
        for _ in 0..count {
            let id = self.dispatch().expect("something goes out");
            last = self.requests[id].start.0;
            self.complete(id);
        }
        last
    }
    fn exits(&self) -> [u64; 2] {
        self.shared.processes.exits()
    }
}

/// A batch of reads was over, and one of writes began at 1600 ms; it is to end at 1725 ms. `queued` writes wait.
fn batch_of_writes(queued: u64) -> (World, ClientId) {
    let mut w = World::new(AnticipatoryRules { antic_expire: Nanos::ZERO, ..RULES });
    let a = w.client();
    w.read(a, 0);
    w.serve(1);
    assert_eq!(w.queue.write_count(), 12, "nothing to learn from");
    w.now = ms(1600);
    (0..queued).for_each(|i| w.submit(a, Operation::Write, 5000 + 100 * i));
    (w, a)
}

/// Goal: the next batch of writes gets more if this one was short and full, fewer if it was long: one, or twice
/// and half if three times too short or too long. Method: twelve writes at once, a read completed this long after.
#[test]
fn the_number_of_writes_is_tuned() {
    for (took, count) in
        [(41, 24), (42, 13), (124, 13), (125, 12), (126, 11), (375, 11), (376, 6), (3000, 6)]
    {
        let (mut w, a) = batch_of_writes(20);
        w.read(a, 0);
        assert_eq!(w.serve(12), 5000 + 1100);
        let read = w.dispatch().expect("the read");
        assert_eq!(w.requests[read].start.0, 0);
        w.now += Nanos::from_millis(took);
        w.complete(read);
        assert_eq!(w.queue.write_count(), count, "{took} ms");
    }
}

/// Goal: a batch without contention, or with writes to spare, changes nothing. Method: five writes and a read
/// long after; then a read that comes when twelve were not yet used.
#[test]
fn an_idle_batch_tells_nothing() {
    let (mut w, a) = batch_of_writes(5);
    w.serve(5);
    assert_eq!(w.dispatch(), None);
    w.now = ms(2600);
    w.read(a, 0);
    w.serve(1);
    assert_eq!(w.queue.write_count(), 12, "idle for a second");
    let (mut w, a) = batch_of_writes(5);
    w.read(a, 0);
    w.serve(6);
    assert_eq!(w.queue.write_count(), 12, "seven to spare");
}

/// Goal: the source's oddity: if the drive had to be drained, the batch seems 500 ms shorter. Method: the last
/// write is completed when the read waits already; the read takes 400 ms.
#[test]
fn a_drained_batch_seems_short() {
    let (mut w, a) = batch_of_writes(12);
    w.read(a, 0);
    w.serve(11);
    let last = w.dispatch().expect("the twelfth");
    assert_eq!(w.dispatch(), None);
    assert!(w.queue.is_draining());
    w.complete(last);
    let read = w.dispatch().expect("the read");
    w.now = ms(2000);
    w.complete(read);
    // Took 400 - 500 + 125 ms: less than a third.
    assert_eq!(w.queue.write_count(), 24);
}

/// Goal: the source's other oddity: it starts in a batch of writes that is used up. Method: a read at the start.
#[test]
fn the_first_read_doubles_the_number() {
    let mut w = World::new(RULES);
    w.now = Instant::ZERO;
    let a = w.client();
    w.read(a, 0);
    w.serve(1);
    assert_eq!(w.queue.write_count(), 24);
}

/// One more process that exits while it is waited for; `false`: nobody waits.
fn exits_in_vain(w: &mut World) -> bool {
    w.now += Nanos::from_millis(100);
    let (one, other) = (w.client(), w.client());
    w.read(one, 1000);
    w.serve(1);
    w.read(other, 1 << 30);
    let waits = match w.dispatch() {
        Some(id) => {
            w.complete(id);
            false
        }
        None => {
            w.shared.processes.change(Change::ClientRemoved(one));
            w.now = w.queue.next_wakeup().expect("it is completed");
            w.serve(1);
            true
        }
    };
    w.now += Nanos::from_millis(100);
    waits
}

/// Goal: both probabilities rise by an eighth a time, and once their product is above a half new processes
/// are not waited for. Method: by the recurrence: 32, 60, 84, 105, 123, 139, 153, 165, 176, 186.
#[test]
fn processes_that_exit_teach_not_to_wait() {
    let mut w = World::new(RULES);
    for expected in [32, 60, 84, 105, 123, 139, 153, 165, 176, 186] {
        assert!(exits_in_vain(&mut w));
        assert_eq!(w.exits(), [expected; 2]);
    }
    assert!(!exits_in_vain(&mut w));
    // One that comes back lowers the first by an eighth.
    let back = w.client();
    w.read(back, 1000);
    w.serve(1);
    w.read(back, 1008);
    w.serve(1);
    assert_eq!(w.exits(), [7 * 186 / 8, 186]);
}

/// Goal: once exited processes mostly have no successor, an exited one is not waited for. Method: six exits; then
/// one that exits before its wait begins, and one before that was known.
#[test]
fn exited_processes_are_not_waited_for() {
    for (before, waits) in [(5, true), (6, false)] {
        let mut w = World::new(RULES);
        (0..before).for_each(|_| assert!(exits_in_vain(&mut w)));
        let (one, other) = (w.client(), w.client());
        w.read(one, 1000);
        w.serve(1);
        w.shared.processes.change(Change::ClientRemoved(one));
        w.read(other, 1 << 30);
        assert_eq!(w.dispatch().is_none(), waits);
    }
}

/// Goal: a close request of another process in place of an exited one's speaks for successors. Method: by hand
/// after three exits.
#[test]
fn successors_are_evidence_for_waiting() {
    let mut w = World::new(RULES);
    (0..3).for_each(|_| assert!(exits_in_vain(&mut w)));
    let (one, other, successor) = (w.client(), w.client(), w.client());
    w.read(one, 1000);
    w.serve(1);
    w.read(other, 1 << 30);
    assert_eq!(w.dispatch(), None);
    w.shared.processes.change(Change::ClientRemoved(one));
    w.read(successor, 1008);
    assert_eq!(w.serve(1), 1008);
    // The first goes up for the exit, and down for what now counts as its coming back.
    assert_eq!(w.exits(), [7 * 105 / 8, 7 * 84 / 8]);
}

/// Goal: a process with a reused number is another process. Method: the watched process goes and its number comes back far
/// away: no reason to stop waiting.
#[test]
fn a_reused_number_is_another_process() {
    let mut w = World::new(RULES);
    let (one, other) = (w.client(), w.client());
    w.read(one, 1000);
    w.serve(1);
    w.read(other, 1 << 30);
    assert_eq!(w.dispatch(), None);
    w.shared.processes.change(Change::ClientRemoved(one));
    w.shared.processes.change(Change::ClientAdded(one));
    w.read(one, 1 << 29);
    assert!(w.queue.is_anticipating());
    w.now = ms(1006);
    assert_eq!(w.serve(1), 1 << 29);
}

/// Goal: a set that is left waits for nobody and keeps what is left of its batch. Method: reads' batch of 500 ms
/// left after 200, entered a second later, asked on both sides of its end.
#[test]
fn a_set_that_is_left_keeps_its_time() {
    for (after, first) in [(300, 2000), (301, 9000)] {
        let mut w = World::new(RULES);
        let (a, b) = (w.client(), w.client());
        w.read(a, 1000);
        w.serve(1);
        w.read(b, 1 << 30);
        assert_eq!(w.dispatch(), None);
        w.now = ms(1200);
        w.queue.leave(w.now);
        assert!(!w.queue.is_anticipating() && w.queue.next_wakeup().is_none());
        w.now = ms(2200);
        w.queue.enter(w.now);
        w.submit(b, Operation::Write, 9000);
        w.read(b, 2000);
        w.now += Nanos::from_millis(after);
        assert_eq!(w.serve(1), first);
    }
}
