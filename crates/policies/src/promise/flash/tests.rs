//! Worked examples of its parts.

use super::clock::{Clocks, Command, Gate, Kind, Reservation};
use super::cost::Costs;
use super::pace::{Late, Pace};
use super::shares::{EntityId, Shares, Side};
use super::window::{Adaptive, Window};
use iofair_core::bounds::WEIGHT_DEFAULT;
use iofair_core::id::{ClientId, GroupId};
use iofair_core::minimum::{Amount, Minimum};
use iofair_core::priority::Class;
use iofair_core::time::{Instant, Nanos};

const US: fn(u64) -> Nanos = Nanos::from_micros;

/// Goal: the costs of commands and of bytes are told apart. Method: a drive that takes 10 us for a command and 1 us for 4 KiB, reads
/// of 4 KiB and of 64 KiB in turns of 40 ms.
#[test]
fn costs_are_learned() {
    let (mut costs, mut now) = (Costs::default(), Instant::ZERO);
    let cost = |length: u64| US(10 + length / 4096);
    (0..8).for_each(|_| costs.on_dispatch(now, Side::Read));
    for round in 0..400 {
        let length = if round % 2 == 0 { 4096 } else { 65536 };
        let until = now + Nanos::from_millis(40);
        while now < until {
            now += cost(length);
            costs.on_complete(now, Side::Read, (length, true), cost(length) * 8);
            costs.on_dispatch(now, Side::Read);
        }
    }
    for length in [4096, 65536] {
        let (found, real) = (costs.cost(Side::Read, length).0, cost(length).0);
        assert!(found.abs_diff(real) < real / 8, "{length}: {found} of {real} ns");
    }
}

/// Goal: the window is the smallest one that loses nothing. Method: a drive that does all that it can with 200 us in flight, and
/// half of that with half; 128 reads of 10 us are always waiting.
#[test]
fn the_window_is_as_small_as_it_can_be() {
    let (mut costs, mut window) = (Costs::default(), Adaptive::new());
    let (mut now, full) = (Instant::ZERO, US(200).0);
    (0..128).for_each(|_| costs.on_dispatch(now, Side::Read));
    for _ in 0..3_000_000 {
        let in_flight = window.limit().min(US(1280));
        window.on_dispatch(now, &costs, in_flight, true);
        now += Nanos(10_000 * full / in_flight.0.min(full));
        if let Some([before, after]) = costs.on_complete(now, Side::Read, (4096, true), in_flight) {
            window.on_prices(before, after);
        }
        costs.on_dispatch(now, Side::Read);
        window.on_complete(in_flight < US(1280));
    }
    let found = window.limit();
    assert!((US(150)..US(450)).contains(&found), "{found}");
}

/// Goal: a window with which reads take longer than their latency is not taken, whatever its total. Method: a drive that does
/// more and more with more reads in flight; they are late if there are more than 30.
#[test]
fn the_window_keeps_latencies() {
    let (mut costs, mut window) = (Costs::default(), Adaptive::new());
    let mut now = Instant::ZERO;
    let in_flight = |window: &Adaptive, costs: &Costs| {
        (window.limit().0 / costs.cost(Side::Read, 4096).0).clamp(1, 128)
    };
    // The first read has the drive to itself.
    costs.on_dispatch(now, Side::Read);
    now += US(110);
    costs.on_complete(now, Side::Read, (4096, true), US(110));
    (0..128).for_each(|_| costs.on_dispatch(now, Side::Read));
    let mut late = 0;
    for turn in 0..500_000 {
        let reads = in_flight(&window, &costs);
        late += u32::from(turn >= 400_000 && reads > 30);
        window.on_dispatch(now, &costs, costs.cost(Side::Read, 4096) * reads, true);
        let each = Nanos(10_000 + 100_000 / reads);
        now += each;
        if let Some([before, after]) =
            costs.on_complete(now, Side::Read, (4096, true), each * reads)
        {
            window.on_prices(before, after);
        }
        costs.on_dispatch(now, Side::Read);
        window.on_latency(reads > 30);
        window.on_complete(reads < 128);
    }
    // Larger sizes are still tried.
    assert!(late < 10_000, "{late} of 100,000 are late");
}

/// Goal: writes slow down while a minimum is late, and are quickly as fast again as is known to be good. Method: a late request of
/// 100 ms, then requests in time each millisecond.
#[test]
fn the_pace_falls_and_regains() {
    let (mut pace, mut now) = (Pace::new(), Instant(1_000_000_000));
    pace.on_write(now, 1 << 20, Nanos::from_millis(1));
    let full = 1_048_576_000;
    pace.on_late(now, Late::Minimum(Nanos::from_millis(100)));
    assert_eq!(pace.limit(), full / 32);
    now += Nanos::from_millis(50);
    pace.on_late(now, Late::Latency);
    assert_eq!(pace.limit(), full / 32, "no latency lowers it below 1/16");
    for _ in 0..60 {
        now += Nanos::from_millis(1);
        pace.on_time(now);
    }
    let limit = pace.limit();
    assert!((full / 2..full / 10 * 6).contains(&limit), "{limit}");
}

/// A read of 4 KiB.
const READ: Command =
    Command { amount: Amount::of(4096), kind: Kind::Read, worth: Nanos::ZERO, is_last: true };

fn at(micros: u64) -> Instant {
    Instant(1_000_000_000 + micros * 1000)
}
/// The clock of a group with a minimum in bytes a second.
fn with_minimum(rate: u64) -> (Clocks, EntityId) {
    let (mut clocks, id) = (Clocks::default(), EntityId::group(GroupId::from_bits(1)));
    let minimum = Minimum { bytes_per_s: Some(rate), ios_per_s: None };
    clocks.set(at(0), id, Reservation::Minimum(minimum, Class::BestEffort));
    (clocks, id)
}

/// Goal: the gate is closed while a minimum is behind: for its requests, for what is in flight, and for the pause of a client that
/// sends one request at a time. Method: reads of 4 KiB at 4.096 MB/s, each worth 1 ms.
#[test]
fn the_gate_waits_for_the_next_request() {
    let (mut clocks, id) = with_minimum(4_096_000);
    let gates = [0, 2750].map(|begin| {
        clocks.arrive(at(begin), id, Kind::Read);
        let due = clocks.gate(at(begin));
        clocks.dispatch(at(begin), id, READ);
        let sent = clocks.gate(at(begin));
        clocks.complete(at(begin + 2500), id, READ, US(2500));
        (due, sent, clocks.gate(at(begin + 2600)))
    });
    // The first read takes longer than it is worth, and the clock is behind after it; the pause ends after a quarter of the worth.
    assert_eq!(gates[0].0, Gate::Due(id, Nanos::ZERO));
    assert_eq!(gates[0].1, Gate::Open, "its clock is 1 ms ahead");
    assert_eq!(gates[0].2, Gate::Closed(US(1600), Some(at(2750))));
    // The second one arrives when the pause ends.
    assert_eq!(gates[1].0, Gate::Due(id, US(1750)));
    assert_eq!(gates[1].1, Gate::Closed(US(750), None), "behind, and in flight");
}

/// Goal: a client whose own pauses keep it from its minimum does not close the gate in them, and has no claim from them. Method: each read is
/// worth 1 ms and takes 0.5 ms, and pauses take 0.8 ms.
#[test]
fn no_claim_arises_from_pauses_that_are_too_long() {
    let (mut clocks, id) = with_minimum(4_096_000);
    let mut lag = Nanos::ZERO;
    for begin in (0..200).map(|read| read * 1300) {
        clocks.arrive(at(begin), id, Kind::Read);
        lag = clocks.lag(at(begin), id).expect("it has a minimum");
        clocks.dispatch(at(begin), id, READ);
        clocks.complete(at(begin + 500), id, READ, US(500));
        if begin > 50_000 {
            assert_eq!(clocks.gate(at(begin + 501)), Gate::Open, "in the pause at {begin} us");
        }
    }
    assert!(lag < US(1000), "{lag:?}");
}

/// Goal: a minimum above what its client reaches alone is cut to that, and its client is still waited for. Method: each read is worth
/// 137 us and takes 160 us, or is worth 165 us; pauses take 20 us.
#[test]
fn a_minimum_that_is_too_high_is_not_lost() {
    for rate in [30_000_000, 24_800_000] {
        let (mut clocks, id) = with_minimum(rate);
        let (mut begin, mut waited) = (0, 0);
        for _ in 0..10_000 {
            clocks.arrive(at(begin), id, Kind::Read);
            clocks.dispatch(at(begin), id, READ);
            clocks.complete(at(begin + 160), id, READ, US(160));
            waited += u32::from(matches!(clocks.gate(at(begin + 170)), Gate::Closed(..)));
            begin += 180;
        }
        let lag = clocks.lag(at(begin), id).expect("it has a minimum");
        assert!(waited > 1000 && waited < 9000, "{rate}: waited for {waited} times");
        assert!(lag < US(100_000), "{rate}: {lag}");
    }
}

/// Goal: a floor that holds nothing, since nobody writes, is not cut as one that cannot be kept. Method: reads of 60 ms for two seconds
/// without writes; then with writes, the worth of the floor counts as a whole.
#[test]
fn floors_are_not_judged_without_writes() {
    let (mut clocks, id) = (Clocks::default(), EntityId::client(ClientId::from_bits(0)));
    let at = |millis: u64| Instant(1_000_000_000 + millis * 1_000_000);
    clocks.set(at(0), id, Reservation::Floor);
    let worth = Nanos::from_millis(2);
    let amount = Amount::of(4096);
    let command = Command { amount, kind: Kind::Read, worth, is_last: true };
    let read = |clocks: &mut Clocks, begin: u64| {
        clocks.arrive(at(begin), id, Kind::Read);
        clocks.dispatch(at(begin), id, command);
        let due = clocks.next_due(at(begin));
        clocks.complete(at(begin + 60), id, command, Nanos::from_millis(60));
        due
    };
    (0..34).for_each(|count| _ = read(&mut clocks, count * 60));
    clocks.floors = true;
    read(&mut clocks, 34 * 60);
    clocks.arrive(at(35 * 60), id, Kind::Read);
    assert!(matches!(clocks.gate_of_floors(at(35 * 60)), Gate::Due(..)), "2 ms later, not never");
}

/// Goal: clients get drive time by weight, whatever their requests cost. Method: weights 1 and 3, costs of 4 and 1 us.
#[test]
fn shares_are_drive_time() {
    let mut shares = Shares::default();
    let clients = [0, 1].map(|bits| EntityId::client(ClientId::from_bits(bits)));
    shares.set(EntityId::ROOT, EntityId::ROOT, WEIGHT_DEFAULT, Class::BestEffort);
    for (client, weight) in clients.into_iter().zip([100, 300]) {
        shares.set(client, EntityId::ROOT, weight, Class::BestEffort);
        assert!(shares.arrive(client, Side::Read));
    }
    let mut times = [Nanos::ZERO; 2];
    for _ in 0..10_000 {
        let (_, client) = shares.pick(EntityId::ROOT, Side::Read).expect("both are queued");
        let index = client.member();
        let cost = [US(4), US(1)][index];
        times[index] += cost;
        shares.charge(client, cost, true);
    }
    assert!(times[1].0.abs_diff(times[0].0 * 3) < US(20).0, "{times:?}");
}

/// Goal: a floor is a quarter of an equal share and all of what a weight gives beyond it. Method: five clients, one of weight 3, a read
/// of 1 ms; then equal weights.
#[test]
fn floors_have_what_a_weight_gives_beyond_an_equal_share() {
    let mut shares = Shares::default();
    let clients = [0, 1, 2, 3, 4].map(|bits| EntityId::client(ClientId::from_bits(bits)));
    shares.set(EntityId::ROOT, EntityId::ROOT, WEIGHT_DEFAULT, Class::BestEffort);
    for (client, weight) in clients.into_iter().zip([300, 100, 100, 100, 100]) {
        shares.set(client, EntityId::ROOT, weight, Class::BestEffort);
        assert!(shares.arrive(client, Side::Read));
    }
    let [first, second, ..] = clients;
    // 3/7 - 3/4 * 1/5, and a quarter of 1/7.
    let floor = shares.floor_time(first, US(1000));
    assert!(floor.0.abs_diff(1_000_000 * 140 / 39) < 1000, "{floor}");
    let floor = shares.floor_time(second, US(1000));
    assert!(floor.0.abs_diff(28_000_000) < 1000, "{floor}");
    shares.set(first, EntityId::ROOT, 100, Class::BestEffort);
    let floor = shares.floor_time(first, US(1000));
    assert!(floor.0.abs_diff(20_000_000) < 1000, "{floor}");
}
