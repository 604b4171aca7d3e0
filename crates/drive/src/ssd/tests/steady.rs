//! The steady state: knee, tails, batches of collection, states.

use iofair_core::time::Nanos;

use crate::fit::beside_writers;
use crate::measure::{Amount, Device, Load, Simulated, run};
use crate::profile::{self, Profile};

/// Sustained random writes a second of `steady.toml`, of 4 KiB: four take one program and the copying of 3.18 pages, each 524 us,
/// on 64 units. The 1 % that reads take is left out.
const SUSTAINED: u64 = 64 * 4 * 1_000_000_000 / (524_000 * 418 / 100);

/// The drive of the benches, with some numbers changed.
fn steady(changes: &str) -> Profile {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/steady.toml");
    profile::read(&format!("{path}{changes}")).unwrap()
}
/// What was measured under a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    writes_per_s: u64,
    /// Percentiles in nanoseconds: 50, 90, 99, 99.9 and 99.99.
    read: [u64; 5],
    write: [u64; 5],
}

/// Measures SSD-iq's load, with this part of the writes that the drive sustains.
fn measure(profile: &Profile, percent: u64) -> Seen {
    let amount = |time| Amount { requests: u64::MAX, time };
    let mut drive = Simulated::new(profile.build(1));
    let capacity = drive.facts().capacity.bytes();
    let mut streams = beside_writers((SUSTAINED * percent / 100) as f64);
    streams.iter_mut().for_each(|stream| stream.area = (0, capacity / stream.block * stream.block));
    let (warm_up, measured) = (amount(Nanos::from_millis(200)), amount(Nanos::from_secs(2)));
    let load = Load { streams, warm_up, measured, window: 0 };
    let seen = run(&mut drive, &load, 1, &|| false).unwrap();
    let percentiles = |stream: usize| {
        [500_000, 900_000, 990_000, 999_000, 999_900]
            .map(|part| seen.streams[stream].latency.quantile(part) + profile.host.turnaround.0)
    };
    let writes_per_s = (seen.iops(1) + seen.iops(2)) as u64;
    Seen { writes_per_s, read: percentiles(0), write: percentiles(1) }
}

/// Goal: below what the flash sustains, writes take the time of the cache and reads little more than alone; above it, writes
/// wait by Little's law and reads suffer. Method: SSD-iq's load at 20, 90 and 130 % of what the numbers say.
#[test]
fn there_is_a_knee() {
    let drive = steady("");
    let [low, below, above] = [20, 90, 130].map(|percent| measure(&drive, percent));
    for (seen, percent) in [(low, 20), (below, 90)] {
        let offered = SUSTAINED * percent / 100;
        assert!(seen.writes_per_s.abs_diff(offered) < offered / 50, "{seen:?}");
        assert!(seen.write[1] < 10_000 && seen.read[0] < 150_000, "{seen:?}");
    }
    // A unit is at work for a fifth of the time, or for nine tenths.
    assert!(low.read[0] < 75_000 && below.read[0] > 90_000, "{low:?} {below:?}");
    assert!(above.writes_per_s.abs_diff(SUSTAINED) < SUSTAINED / 30, "{above:?}");
    // As many commands are in flight.
    let waited = 6 * 64 * 1_000_000_000 / SUSTAINED;
    assert!(above.write[0].abs_diff(waited) < waited / 4, "{above:?}");
    assert!(above.read[0] > 2 * below.read[0] && above.read[2] > 2 * below.read[2], "{above:?}");
    assert_eq!(measure(&drive, 130), above);
}

/// Goal: a read waits for the work of its unit until it is suspended, or for all of it; and in a drive that works in order
/// also for the writes before it. Method: tails of reads below the knee with other times, medians of reads above it.
#[test]
fn reads_wait_for_suspension() {
    let tail = |least: &str, mean: &str| {
        let keys = "model.ssd.ftl.suspend";
        measure(&steady(&format!("?{keys}.least={least}&{keys}.mean={mean}")), 80).read[2]
    };
    let [short, long, none] = [tail("0us", "40us"), tail("0us", "160us"), tail("1s", "40us")];
    assert!(3 * short < long + 60_000 * 2 && long < none, "{short} {long} {none}");
    let median = |in_order: bool| {
        let seen = measure(&steady(&format!("?model.ssd.ftl.in-order={in_order}")), 130);
        (seen.read[0], seen.write[0])
    };
    assert!(2 * median(false).0 < median(false).1, "{:?}", median(false));
    assert!(median(true).0 > median(true).1 * 9 / 10, "{:?}", median(true));
}

/// Goal: collection that works in batches stalls writes below the knee, for as long as the cache does not absorb it. Method:
/// the longest writes at 70 %.
#[test]
fn batches_stall_writes() {
    let slowest =
        |batch: &str| measure(&steady(&format!("?model.ssd.ftl.batch={batch}")), 70).write[4];
    assert!(slowest("0us") < 20_000);
    assert!((15_000_000..20_000_000).contains(&slowest("30ms")), "{}", slowest("30ms"));
}

/// Goal: a drive in another state writes at the rate of its flash until its erased blocks are used. Method: twice the sustained
/// rate on each state.
#[test]
fn states_differ() {
    let writes =
        |state: &str| measure(&steady(&format!(":{state}")), 200).writes_per_s * 100 / SUSTAINED;
    let seen = ["fresh", "filled", "idle", "overwritten"].map(writes);
    assert!(seen[0] > 195 && seen[3] < 105, "{seen:?}");
    assert!(seen[3] < seen[2] && seen[2] < seen[1] && seen[1] <= seen[0], "{seen:?}");
}
