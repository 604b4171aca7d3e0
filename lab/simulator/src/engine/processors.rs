//! Processors that the clients' processes and the path to the drive share.
//!
//! Work belongs to a thread. A thread without work sleeps; when work arrives it becomes ready and waits for a
//! processor. It works in turns: a turn has a fixed time, plus the time of each piece of work that was queued when it
//! began. So a thread that is behind works in batches, with less time for each piece. A part of the fixed time follows
//! the work (going to sleep): it occupies the processor but delays no result. Results may be reported only at the end
//! of the turn, since the thread that passes them on waits for this processor. A processor that was idle takes a while
//! to start. Urgent threads (of real-time priority) run before others, and take their processor away.

use std::collections::VecDeque;

use iofair_core::time::{Instant, Nanos};

/// A thread works at most this long while others wait: the kernel's default slice, on two processors
/// (`base_slice_ns` of debugfs).
const SLICE: Nanos = Nanos::from_millis(3);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Asleep,
    /// It waits for a processor.
    Ready,
    Running,
}

/// A piece of work.
#[derive(Debug)]
struct Piece<W> {
    time: Nanos,
    /// `None` if its end is not reported.
    work: Option<W>,
    /// Whether it is reported with the last such piece of its turn.
    together: bool,
}

#[derive(Debug)]
struct Thread<W> {
    state: State,
    urgent: bool,
    /// Time of each turn, before its work and after it.
    turn: [Nanos; 2],
    work: VecDeque<Piece<W>>,
    /// Pieces of work left in the present turn, and how many of them are reported together.
    left: usize,
    together: usize,
    /// Work of this turn that is done and not reported yet.
    untold: Vec<W>,
    /// When it last ran out of work, on which processor, and until when its slice would have lasted.
    ended: Option<(Instant, usize, Instant)>,
}

impl<W> Thread<W> {
    /// The time of the next piece of work, which may begin a turn.
    fn next(&mut self) -> Option<Nanos> {
        let cost = self.work.front()?.time;
        if self.left > 0 {
            return Some(cost);
        }
        let [before, after] = self.turn;
        if after > Nanos::ZERO {
            self.work.push_back(Piece { time: after, work: None, together: false });
        }
        self.begin_turn();
        Some(before + cost)
    }
    /// The present turn is for all work that is there.
    fn begin_turn(&mut self) {
        self.left = self.work.len();
        self.together = self.work.iter().filter(|work| work.together).count();
    }
    /// The first piece of work is done: appends what is reported now.
    fn finish(&mut self, done: &mut Vec<W>) {
        let Some(piece) = self.work.pop_front() else { return };
        self.left -= 1;
        if !piece.together {
            return done.extend(piece.work);
        }
        self.together -= 1;
        self.untold.extend(piece.work);
        if self.together == 0 {
            done.append(&mut self.untold);
        }
    }
}

/// What a processor does.
#[derive(Clone, Copy, Debug)]
struct Running {
    thread: usize,
    /// When its present piece of work is done.
    until: Instant,
    /// When its slice is over.
    slice: Instant,
}

/// Processors, and threads with work of type `W`.
#[derive(Debug)]
pub(crate) struct Processors<W> {
    processors: Vec<Option<Running>>,
    /// Time until an idle processor works.
    idle_exit: Nanos,
    threads: Vec<Thread<W>>,
    urgent: VecDeque<usize>,
    ready: VecDeque<usize>,
}

/// Processor time of a piece of work.
pub(crate) struct Cost {
    pub(crate) until_done: Nanos,
    /// How long the thread stays busy afterwards.
    pub(crate) rest: Nanos,
}

impl<W> Processors<W> {
    /// `count` idle processors without threads.
    pub(crate) fn new(count: u32, idle_exit: Nanos) -> Self {
        Self {
            processors: (0..count.max(1)).map(|_| None).collect(),
            idle_exit,
            threads: Vec::new(),
            urgent: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }
    /// Adds a thread whose turns take this time, before their work and after it; its number.
    pub(crate) fn add_thread(&mut self, turn: [Nanos; 2], urgent: bool) -> usize {
        let (state, work, untold) = (State::Asleep, VecDeque::new(), Vec::new());
        let (left, together, ended) = (0, 0, None);
        self.threads.push(Thread { state, urgent, turn, work, left, together, untold, ended });
        self.threads.len() - 1
    }
    /// Gives a thread work that takes this much processor time.
    pub(crate) fn add(&mut self, now: Instant, thread: usize, cost: Nanos, work: W) {
        self.add_with_rest(now, thread, Cost { until_done: cost, rest: Nanos::ZERO }, work);
    }
    /// Gives a thread work that is reported when all such work of its turn is done.
    pub(crate) fn add_together(&mut self, now: Instant, thread: usize, cost: Nanos, work: W) {
        self.threads[thread].work.push_back(Piece { time: cost, work: Some(work), together: true });
        self.wake(now, thread);
    }
    /// Gives a thread work after which the thread stays busy for a while.
    pub(crate) fn add_with_rest(&mut self, now: Instant, thread: usize, cost: Cost, work: W) {
        let queue = &mut self.threads[thread].work;
        queue.push_back(Piece { time: cost.until_done, work: Some(work), together: false });
        if cost.rest > Nanos::ZERO {
            queue.push_back(Piece { time: cost.rest, work: None, together: false });
        }
        self.wake(now, thread);
    }
    /// A thread has work.
    fn wake(&mut self, now: Instant, thread: usize) {
        let woken = &mut self.threads[thread];
        if woken.state != State::Asleep {
            return;
        }
        woken.state = State::Ready;
        match woken.urgent {
            true => self.urgent.push_back(thread),
            false => self.ready.push_back(thread),
        }
        self.place(now);
    }
    /// Gives a thread work, which it goes on with if it ran out of work at this very time: in the same turn, and on its processor
    /// unless its slice is over and others wait.
    pub(crate) fn continue_turn(&mut self, now: Instant, thread: usize, cost: Nanos, work: W) {
        let ended = self.threads[thread].ended.filter(|(at, ..)| *at == now);
        let Some((_, processor, slice)) = ended else { return self.add(now, thread, cost, work) };
        let current = &mut self.threads[thread];
        current.ended = None;
        current.work.push_back(Piece { time: cost, work: Some(work), together: false });
        if current.state != State::Asleep {
            return;
        }
        current.begin_turn();
        let other = self.processors[processor].map(|running| running.thread);
        let is_over = slice <= now && other.is_some();
        let urgent = other.is_some_and(|other| self.threads[other].urgent);
        if is_over || urgent {
            self.threads[thread].state = State::Ready;
            match is_over {
                true => self.ready.push_back(thread),
                false => self.ready.push_front(thread),
            }
            return self.place(now);
        }
        if other.is_some() {
            self.put_aside(processor, now);
        }
        self.threads[thread].state = State::Running;
        self.processors[processor] = Some(Running { thread, until: now + cost, slice });
        self.place(now);
    }
    /// Whether a thread has nothing to do.
    pub(crate) fn is_asleep(&self, thread: usize) -> bool {
        self.threads[thread].state == State::Asleep
    }
    /// When the next piece of work is done.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        self.processors.iter().flatten().map(|running| running.until).min()
    }
    /// Appends the work that is done by now, in order of time.
    pub(crate) fn advance(&mut self, now: Instant, done: &mut Vec<W>) {
        loop {
            let due = self
                .processors
                .iter()
                .enumerate()
                .filter_map(|(n, running)| Some((running.as_ref()?.until, n)));
            let Some((at, processor)) = due.min().filter(|(at, _)| *at <= now) else { return };
            let Some(running) = self.processors[processor] else { return };
            let thread = &mut self.threads[running.thread];
            thread.finish(done);
            let others = !self.urgent.is_empty() || !self.ready.is_empty();
            let preempted =
                !thread.urgent && (!self.urgent.is_empty() || others && at >= running.slice);
            if thread.work.is_empty() {
                thread.state = State::Asleep;
                thread.ended = Some((at, processor, running.slice));
            } else if preempted {
                thread.state = State::Ready;
                self.ready.push_back(running.thread);
            } else if let Some(cost) = thread.next() {
                self.processors[processor] = Some(Running { until: at + cost, ..running });
                continue;
            }
            self.processors[processor] = None;
            self.run_next(processor, at, Nanos::ZERO);
        }
    }
    /// Gives ready threads processors, idle ones first.
    fn place(&mut self, now: Instant) {
        while !(self.urgent.is_empty() && self.ready.is_empty()) {
            if let Some(idle) = self.processors.iter().position(Option::is_none) {
                self.run_next(idle, now, self.idle_exit);
                continue;
            }
            if self.urgent.is_empty() || !self.preempt(now) {
                return;
            }
        }
    }
    /// Takes a processor away from a thread that is not urgent, if there is one.
    fn preempt(&mut self, now: Instant) -> bool {
        let threads = &self.threads;
        let ordinary = |running: &Running| !threads[running.thread].urgent;
        let mut processors = self.processors.iter();
        let ordinary = processors.position(|running| running.as_ref().is_some_and(ordinary));
        let Some(processor) = ordinary else { return false };
        self.put_aside(processor, now);
        self.run_next(processor, now, Nanos::ZERO);
        true
    }
    /// The thread on this processor becomes the first one that waits.
    fn put_aside(&mut self, processor: usize, now: Instant) {
        if let Some(Running { thread, until, .. }) = self.processors[processor].take() {
            let preempted = &mut self.threads[thread];
            preempted.state = State::Ready;
            if let Some(piece) = preempted.work.front_mut() {
                piece.time = until.since(now);
            }
            self.ready.push_front(thread);
        }
    }
    /// Starts the next ready thread on a processor that is free.
    fn run_next(&mut self, processor: usize, now: Instant, late: Nanos) {
        let Some(thread) = self.urgent.pop_front().or_else(|| self.ready.pop_front()) else {
            return;
        };
        let started = &mut self.threads[thread];
        started.state = State::Running;
        let from = now + late;
        let until = from + started.next().unwrap_or(Nanos::ZERO);
        self.processors[processor] = Some(Running { thread, until, slice: from + SLICE });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> Nanos {
        Nanos::from_micros(micros)
    }
    fn at(micros: u64) -> Instant {
        Instant::ZERO + us(micros)
    }
    /// Runs to the end; what is done when, in microseconds.
    fn run(processors: &mut Processors<u32>) -> Vec<(u32, u64)> {
        let (mut all, mut done) = (Vec::new(), Vec::new());
        while let Some(next) = processors.next_event() {
            processors.advance(next, &mut done);
            all.extend(done.drain(..).map(|work| (work, next.0 / 1000)));
        }
        all
    }

    /// Goal: an idle processor starts late, a turn takes its time once for all work that was there, and two threads on two
    /// processors do not delay each other. Method: by hand; the second piece of work comes after the first turn has begun.
    #[test]
    fn turns_are_batches() {
        let mut two = Processors::new(2, us(30));
        let (a, b) = (two.add_thread([us(5), us(0)], false), two.add_thread([us(7), us(0)], false));
        two.add(at(0), a, us(10), 1);
        two.add(at(0), a, us(10), 2);
        two.add(at(0), b, us(10), 3);
        assert_eq!(run(&mut two), [(1, 45), (3, 47), (2, 60)]);
        two.add(at(100), a, us(10), 4);
        assert_eq!(run(&mut two), [(4, 145)], "it slept");
    }

    /// Goal: with one processor threads run one after the other, and the later one meanwhile collects a batch. Method: by hand.
    #[test]
    fn threads_wait_for_a_processor() {
        let mut one = Processors::new(1, us(30));
        let (a, b) = (one.add_thread([us(5), us(0)], false), one.add_thread([us(5), us(0)], false));
        one.add(at(0), a, us(100), 1);
        one.add(at(10), b, us(10), 2);
        one.add(at(20), b, us(10), 3);
        assert_eq!(run(&mut one), [(1, 135), (2, 150), (3, 160)]);
    }

    /// Goal: what follows a piece of work is the thread's work of the same turn, and the piece is done before. Method: by hand, with
    /// another piece behind it.
    #[test]
    fn the_rest_follows() {
        let mut two = Processors::new(2, us(30));
        let a = two.add_thread([us(5), us(0)], false);
        two.add_with_rest(at(0), a, Cost { until_done: us(10), rest: us(100) }, 1);
        two.add(at(1), a, us(10), 2);
        assert_eq!(run(&mut two), [(1, 45), (2, 160)]);
    }

    /// Goal: what a turn takes after its work delays the next turn and another thread, but not the turn's own work. Method: by
    /// hand, with one processor.
    #[test]
    fn a_turn_ends_after_its_work() {
        let mut one = Processors::new(1, us(30));
        let a = one.add_thread([us(5), us(20)], false);
        let b = one.add_thread([us(5), us(0)], false);
        one.add(at(0), a, us(10), 1);
        one.add(at(1), b, us(10), 2);
        one.add(at(2), a, us(10), 3);
        assert_eq!(run(&mut one), [(1, 45), (3, 80), (2, 115)]);
    }

    /// Goal: work that is told together is told when the last of its turn is done, and other work at once. Method: by hand, with
    /// work of both kinds, of which the first piece has a turn of its own.
    #[test]
    fn a_turn_tells_together() {
        let mut two = Processors::new(2, us(30));
        let a = two.add_thread([us(5), us(20)], false);
        two.add_together(at(0), a, us(10), 1);
        two.add(at(1), a, us(10), 2);
        two.add_together(at(2), a, us(10), 3);
        two.add_together(at(36), a, us(10), 4);
        assert_eq!(run(&mut two), [(1, 45), (2, 80), (3, 100), (4, 100)]);
    }

    /// Goal: an urgent thread takes a processor away, and the other goes on where it was. Method: by hand.
    #[test]
    fn urgent_threads_preempt() {
        let mut one = Processors::new(1, us(0));
        let (a, b) = (one.add_thread([us(0), us(0)], false), one.add_thread([us(2), us(0)], true));
        one.add(at(0), a, us(100), 1);
        one.add(at(40), b, us(10), 2);
        assert_eq!(run(&mut one), [(2, 52), (1, 112)]);
    }

    /// Goal: a thread that gets its next work when it is done with the last keeps its processor for its slice, without another turn,
    /// and then lets others run. Method: pieces of 1 ms, each given when the one before is done, beside a thread that waits.
    #[test]
    fn a_thread_goes_on_for_its_slice() {
        let mut one = Processors::new(1, us(30));
        let (a, b) = (one.add_thread([us(5), us(0)], false), one.add_thread([us(5), us(0)], false));
        one.continue_turn(at(0), a, us(1_000), 0);
        one.add(at(1), b, us(10), 100);
        let (mut all, mut done) = (Vec::new(), Vec::new());
        while let Some(next) = one.next_event().filter(|_| all.len() < 6) {
            one.advance(next, &mut done);
            for number in done.drain(..) {
                all.push((number, next.0 / 1000));
                if number < 100 {
                    one.continue_turn(next, a, us(1_000), number + 1);
                }
            }
        }
        let expected = [(0, 1_035), (1, 2_035), (2, 3_035), (100, 3_050), (3, 4_050), (4, 5_050)];
        assert_eq!(all, expected);
    }

    /// Goal: a thread with much work lets others run after its slice. Method: 10 ms of work beside a short piece.
    #[test]
    fn slices_end() {
        let mut one = Processors::new(1, us(0));
        let (a, b) = (one.add_thread([us(0), us(0)], false), one.add_thread([us(0), us(0)], false));
        for number in 0..10 {
            one.add(at(0), a, us(1_000), number);
        }
        one.add(at(1), b, us(10), 100);
        let all = run(&mut one);
        assert_eq!(all.iter().position(|(number, _)| *number == 100), Some(3));
        assert_eq!(all.last(), Some(&(9, 10_010)));
    }
}
