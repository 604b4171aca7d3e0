//! When requests are sent, on a drive that takes the same time for each.

use iofair_core::request::{Flags, Operation};
use iofair_core::unit::Sectors;
use iofair_trace::record::{Completion, Record, Stream};

use super::*;

/// A trace in memory.
struct Listed(VecDeque<Record>, Vec<Stream>);

impl Source for Listed {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        Ok(self.0.pop_front())
    }
    fn streams(&self) -> &[Stream] {
        &self.1
    }
}

/// Requests by stream, time, and latency, in microseconds.
fn order(requests: &[(u32, u64, Option<u64>)], mode: Mode, speed: u64) -> Order<Listed> {
    let record = |(stream, at, latency): &(u32, u64, Option<u64>)| {
        let completed = |us: u64| Completion { latency: Nanos::from_micros(us), failed: false };
        Record {
            at: Instant::ZERO + Nanos::from_micros(*at),
            stream: *stream,
            operation: Operation::Read,
            flags: Flags::NONE,
            offset: 0,
            length: 4096,
            completion: latency.map(completed),
        }
    };
    let records = requests.iter().map(record).collect();
    let streams = vec![Stream::default(); 1 << 10];
    let clean = Clean::new(Listed(records, streams), Sectors(1 << 20));
    Order::new(clean, mode, speed, None)
}

/// When each request is sent on a drive that takes `latency` microseconds for each, however many it has.
fn sent(mut order: Order<Listed>, latency: u64) -> Vec<u64> {
    let mut flying: BTreeSet<(Instant, u64)> = BTreeSet::new();
    let mut times = BTreeMap::new();
    loop {
        order.fill().unwrap();
        let next = order.next_due().into_iter().chain(flying.first().map(|flying| flying.0)).min();
        let Some(now) = next else { break };
        while flying.first().is_some_and(|flying| flying.0 <= now) {
            let (_, number) = flying.pop_first().unwrap();
            order.on_completed(number, now);
        }
        while let Some(due) = order.take_due(now) {
            assert_eq!(due.at, now);
            times.insert(due.number, now.0 / 1000);
            flying.insert((now + Nanos::from_micros(latency), due.number));
            order.fill().unwrap();
        }
    }
    assert!(order.held.is_empty() && order.followers.is_empty(), "nothing is left");
    let open: usize = order.histories.values().map(|history| history.open.len() + 2).sum();
    assert!(order.progress.len() <= open, "{} of {open}", order.progress.len());
    times.into_values().collect()
}

/// A client with one request at a time: 100 us each, and a pause of 50 us after each second one.
const ALONE: &[(u32, u64, Option<u64>)] =
    &[(0, 0, Some(100)), (0, 100, Some(100)), (0, 250, Some(100)), (0, 350, Some(100))];

/// Goal: each mode sends as it says. Method: one client, on a drive as fast as recorded, and on one half as fast.
#[test]
fn modes_send_as_they_say() {
    for (mode, same, slower) in [
        (Mode::Open, [0, 100, 250, 350], [0, 100, 250, 350]),
        (Mode::Think, [0, 100, 250, 350], [0, 200, 450, 650]),
        (Mode::Closed, [0, 100, 200, 300], [0, 200, 400, 600]),
    ] {
        assert_eq!(sent(order(ALONE, mode, 1000), 100), same, "{mode:?}");
        assert_eq!(sent(order(ALONE, mode, 1000), 200), slower, "{mode:?}");
    }
}

/// Goal: requests in flight together stay together. Method: two at a time, each pair after the completion of the first of
/// the pair before it; and another stream that is alone.
#[test]
fn dependencies_are_preserved() {
    let pairs = [
        (0, 0, Some(100)),
        (0, 10, Some(300)),
        (1, 20, Some(10)),
        (0, 100, Some(100)),
        (0, 120, Some(400)),
        (0, 200, Some(100)),
    ];
    // The drive takes 1 ms: the third and the fourth follow the first, the last follows the third.
    assert_eq!(sent(order(&pairs, Mode::Think, 1000), 1000), [0, 10, 20, 1000, 1020, 2000]);
}

/// Goal: without completions a client waits for its request before, and keeps its pace. Method: three requests.
#[test]
fn without_completions_a_client_has_one_request() {
    let bare = [(0, 0, None), (0, 100, None), (0, 5000, None)];
    assert_eq!(sent(order(&bare, Mode::Think, 1000), 1000), [0, 1000, 5900]);
    assert_eq!(sent(order(&bare, Mode::Closed, 1000), 1000), [0, 1000, 2000]);
    assert_eq!(sent(order(&bare, Mode::Open, 1000), 1000), [0, 100, 5000]);
}

/// Goal: speed divides times and pauses. Method: twice as fast, and a thousandth.
#[test]
fn speed_divides_times() {
    assert_eq!(sent(order(ALONE, Mode::Open, 2000), 1), [0, 50, 125, 175]);
    assert_eq!(sent(order(ALONE, Mode::Think, 2000), 100), [0, 100, 225, 325]);
    assert_eq!(sent(order(ALONE, Mode::Open, 1), 1)[3], 350_000);
}

/// Goal: memory is bounded, and whatever is recorded is sent once. Method: more requests than are held, of random streams,
/// times and latencies, in each mode.
#[test]
fn everything_is_sent_once() {
    let mut state = 1u64;
    let mut chance = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    let mut at = 0;
    let mut request = |_| {
        at += chance(30);
        (chance(9) as u32, at, (chance(4) > 0).then(|| chance(5000)))
    };
    let requests: Vec<_> = (0..80_000).map(&mut request).collect();
    for mode in [Mode::Open, Mode::Think, Mode::Closed] {
        let times = sent(order(&requests, mode, 1000), 40);
        assert_eq!(times.len(), requests.len(), "{mode:?}");
    }
}
