//! Runs a load on a device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use iofair_core::request::Operation;
use iofair_core::time::{Instant, Nanos};

use super::place::Places;
use super::{Completion, Counted, Device, Load, Outcome, Request, Stream};
use crate::random::Random;

/// Longest wait at once, so that an interruption is noticed.
const LOOK: Nanos = Nanos::from_millis(100);
/// Entries of a series at most.
const SERIES_MAX: usize = 16_384;
/// The stream of random numbers for the arrivals of the first stream of requests.
const ARRIVALS: u64 = 1 << 32;
/// A device that completes nothing for this long will not complete anything.
const SILENT_MAX: Nanos = Nanos::from_secs(60);

struct Running {
    stream: Stream,
    places: Places,
    counted: Counted,
    /// Requests sent, and completed writes since the last flush.
    sent: u64,
    unflushed: u32,
    /// Bytes completed since the start.
    total: u64,
    /// When the next request of an offered rate is due.
    due: Instant,
    arrivals: Random,
}

#[derive(Clone, Copy)]
struct Sent {
    stream: usize,
    request: Request,
    at: Instant,
}

struct Bench<'a> {
    device: &'a mut dyn Device,
    running: Vec<Running>,
    /// By tag.
    sent: Vec<Sent>,
    free: Vec<u32>,
    /// Pauses that end: when, in which order, of which stream.
    pauses: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    order: u64,
    begun: Instant,
    counts: bool,
    series: Vec<(u64, Nanos)>,
    window: u64,
}

/// Runs a load. `seed` determines the places; `is_over` is asked now and then, and ends the load early with what was
/// measured until then.
///
/// # Errors
/// If a request fails, or the device stops completing requests.
pub fn run(
    device: &mut dyn Device,
    load: &Load,
    seed: u64,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Outcome> {
    let begun = device.now();
    let running = load.streams.iter().enumerate().map(|(index, stream)| Running {
        stream: *stream,
        places: Places::new(
            stream.order,
            stream.area,
            stream.block,
            Random::new(seed, index as u64 + 1),
        ),
        counted: Counted::default(),
        sent: 0,
        unflushed: 0,
        total: 0,
        due: begun,
        arrivals: Random::new(seed, ARRIVALS + index as u64),
    });
    let mut bench = Bench {
        device,
        running: running.collect(),
        sent: Vec::new(),
        free: Vec::new(),
        pauses: BinaryHeap::new(),
        order: 0,
        begun,
        counts: false,
        series: Vec::new(),
        window: load.window,
    };
    for index in 0..bench.running.len() {
        for _ in 0..bench.running[index].stream.depth {
            bench.next(index)?;
        }
    }
    let from = bench.until(load.warm_up.requests, load.warm_up.time, is_over)?;
    bench.running.iter_mut().for_each(|stream| stream.counted = Counted::default());
    bench.counts = true;
    let to = bench.until(load.measured.requests, load.measured.time, is_over)?;
    bench.counts = false;
    bench.drain()?;
    let streams = bench.running.into_iter().map(|stream| stream.counted).collect();
    Ok(Outcome { time: to.since(from), streams, series: bench.series })
}

impl Bench<'_> {
    /// Sends the next request of a stream, or begins the pause before it.
    fn next(&mut self, index: usize) -> io::Result<()> {
        let (now, running) = (self.device.now(), &mut self.running[index]);
        if running.stream.interval > Nanos::ZERO {
            let due = running.due;
            running.due = due + running.arrivals.exponential(running.stream.interval);
            if due > now {
                self.order += 1;
                self.pauses.push(Reverse((due, self.order, index)));
                return Ok(());
            }
        }
        let every = u64::from(running.stream.pause_every.max(1));
        if running.stream.pause > Nanos::ZERO && running.sent.is_multiple_of(every) {
            let at = now + running.stream.pause;
            self.order += 1;
            self.pauses.push(Reverse((at, self.order, index)));
            return Ok(());
        }
        self.send(index)
    }
    fn send(&mut self, index: usize) -> io::Result<()> {
        let running = &mut self.running[index];
        let flush = running.stream.operation == Operation::Flush
            || (running.stream.flush_every > 0 && running.unflushed >= running.stream.flush_every);
        running.sent += 1;
        let (operation, offset, bytes) = match flush {
            true => {
                running.unflushed = 0;
                (Operation::Flush, 0, 0)
            }
            false => (running.stream.operation, running.places.next(), running.stream.block),
        };
        let durable = running.stream.durable && operation == Operation::Write;
        let tag = self.free.pop().unwrap_or(self.sent.len() as u32);
        let request = Request { tag, operation, durable, offset, bytes };
        let sent = Sent { stream: index, request, at: self.device.now() };
        match self.sent.get_mut(tag as usize) {
            Some(place) => *place = sent,
            None => self.sent.push(sent),
        }
        self.device.submit(request)
    }
    fn in_flight(&self) -> usize {
        self.sent.len() - self.free.len()
    }
    /// Goes on until the first stream has completed this many requests more, or this much time has passed.
    fn until(
        &mut self,
        requests: u64,
        time: Nanos,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Instant> {
        let (from, mut done) = (self.device.now(), Vec::new());
        let (mut last, mut heard, mut left) = (from, from, requests);
        let mut looked = from;
        while left > 0 && last < from + time {
            let pause = self.pauses.peek().map_or(from + time, |Reverse(pause)| pause.0);
            let until = pause.min(from + time).min(last + LOOK);
            self.device.wait(until, &mut done)?;
            last = self.device.now();
            if !done.is_empty() {
                heard = last;
            } else if self.in_flight() > 0 && last.since(heard) > SILENT_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for completion in done.drain(..) {
                let index = self.completed(completion);
                left -= u64::from(index == 0 && left > 0);
                last = last.max(completion.at);
                self.next(index)?;
            }
            while let Some(Reverse((_, _, index))) =
                self.pauses.peek().copied().filter(|pause| pause.0.0 <= last)
            {
                self.pauses.pop();
                self.send(index)?;
            }
            if last.since(looked) >= LOOK {
                looked = last;
                if is_over() {
                    break;
                }
            }
        }
        Ok(last)
    }
    fn completed(&mut self, done: Completion) -> usize {
        let Sent { stream, request, at } = self.sent[done.tag as usize];
        self.free.push(done.tag);
        let running = &mut self.running[stream];
        let took = done.at.since(at).0;
        match request.operation {
            Operation::Flush => running.counted.flush.record(took),
            _ => {
                running.counted.latency.record(took);
                running.counted.bytes += request.bytes;
                running.unflushed += u32::from(request.operation == Operation::Write);
            }
        }
        running.total += request.bytes;
        let total = running.total;
        if stream == 0 && self.window > 0 {
            self.enter(total, done.at);
        }
        stream
    }
    /// Adds an entry to the series if its time has come. A series that is full loses every other entry.
    fn enter(&mut self, total: u64, at: Instant) {
        if self.series.len() == SERIES_MAX {
            self.window *= 2;
            let mut index = 0;
            self.series.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
        if total >= self.window * (self.series.len() as u64 + 1) {
            self.series.push((total, at.since(self.begun)));
        }
    }
    /// Waits for what is in flight.
    fn drain(&mut self) -> io::Result<()> {
        let (begun, mut done) = (self.device.now(), Vec::new());
        while self.in_flight() > 0 {
            let now = self.device.now();
            if now.since(begun) > SILENT_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.device.wait(now + LOOK, &mut done)?;
            self.free.extend(done.drain(..).map(|completion| completion.tag));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, Order, Simulated};
    use super::*;
    use crate::profile;

    fn load(streams: Vec<Stream>, requests: u64) -> Load {
        let time = Nanos::from_secs(100);
        let warm_up = Amount { requests: 10, time };
        Load { streams, warm_up, measured: Amount { requests, time }, window: 0 }
    }
    fn outcome(streams: Vec<Stream>, requests: u64) -> Outcome {
        let mut device = Simulated::new(profile::load("plextor-px256m5s", 1).unwrap());
        run(&mut device, &load(streams, requests), 1, &|| false).unwrap()
    }
    fn stream(operation: Operation, depth: u32, order: Order) -> Stream {
        Stream { area: (0, 1 << 30), ..Stream::new(operation, 4096, depth, order) }
    }

    /// Goal: a closed loop keeps its depth, so latency times rate is the depth; a lone read takes what the profile
    /// says. Method: two depths.
    #[test]
    fn latency_times_rate_is_the_depth() {
        for depth in [1, 16] {
            let found = outcome(vec![stream(Operation::Read, depth, Order::Random)], 2000);
            let product = found.latency(0) * found.iops(0) / 1e9;
            assert!((product / f64::from(depth) - 1.0).abs() < 0.02, "{product}");
        }
        let alone = outcome(vec![stream(Operation::Read, 1, Order::Random)], 2000).latency(0);
        assert!((alone / 162_957.0 - 1.0).abs() < 0.01, "{alone}");
    }

    /// Goal: flushes come after the writes that they cover, pauses take their time, and the first stream ends the
    /// load. Method: counts of three streams.
    #[test]
    fn flushes_and_pauses() {
        let flushing = Stream { flush_every: 4, ..stream(Operation::Write, 1, Order::Random) };
        let found = outcome(vec![flushing], 100);
        let counted = &found.streams[0];
        assert_eq!((counted.latency.count(), counted.flush.count()), (80, 20));
        assert!(counted.flush.mean() > 2_000_000, "{}", counted.flush.mean());
        let pause = Nanos::from_millis(1);
        let slow = Stream { pause, ..stream(Operation::Read, 1, Order::Random) };
        let found = outcome(vec![slow], 100);
        assert!((100_000_000..130_000_000).contains(&found.time.0), "{}", found.time);
        let rare = Stream { pause_every: 10, ..slow };
        let found = outcome(vec![rare], 100);
        assert!(found.time.0 < 40_000_000, "{}", found.time);
    }

    /// Goal: an offered rate is reached where the drive can, and the depth bounds what is in flight otherwise. Method: a rate that
    /// is a fifteenth of what the drive does, and one that is far above it.
    #[test]
    fn an_offered_rate_is_bounded_by_the_depth() {
        let offered = |nanos| {
            let reads = stream(Operation::Read, 32, Order::Random);
            outcome(vec![Stream { interval: Nanos(nanos), ..reads }], 4000)
        };
        let (light, heavy) = (offered(200_000), offered(1_000));
        assert!((light.iops(0) / 5000.0 - 1.0).abs() < 0.05, "{}", light.iops(0));
        assert!((heavy.iops(0) / 73_500.0 - 1.0).abs() < 0.05, "{}", heavy.iops(0));
        assert!(heavy.latency(0) > 2.0 * light.latency(0), "{}", light.latency(0));
    }

    /// Goal: a long series becomes coarser instead of ending. Method: more windows than it has entries.
    #[test]
    fn a_long_series_becomes_coarser() {
        let mut device = Simulated::new(profile::load("samsung-970-pro", 1).unwrap());
        let mut load = load(vec![stream(Operation::Read, 32, Order::Random)], 40_000);
        load.window = 4096;
        let series = run(&mut device, &load, 1, &|| false).unwrap().series;
        assert!((SERIES_MAX / 2..=SERIES_MAX).contains(&series.len()), "{}", series.len());
        assert!(series.last().unwrap().0 > 39_000 * 4096 && series[0].0 < 64 * 4096);
        assert!(series.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    }

    /// Goal: an interruption ends a load early, with what is there. Method: one after a tenth of a second.
    #[test]
    fn interruptions_end_early() {
        let mut device = Simulated::new(profile::load("plextor-px256m5s", 1).unwrap());
        let load = load(vec![stream(Operation::Read, 1, Order::Random)], 1_000_000);
        let found = run(&mut device, &load, 1, &|| true).unwrap();
        assert!(found.time < Nanos::from_millis(300) && found.streams[0].latency.count() > 100);
    }
}
