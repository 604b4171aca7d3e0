//! Shares in the long run.

use super::world::{Drive, Job, World};
use iofair_core::time::Nanos;

const QUIET: &[(&str, &str)] = &[("low_latency", "false")];

/// Goal: groups of weight 300 and 100 share a drive 3:1. Method: two sequential readers on flash and on
/// a disk, for all rows but that of 4.18, whose slots may end while the drive has a queue's last requests.
#[test]
fn sequential_readers_share_by_weight() {
    for stack in ["prop-bfq", "prop-bfq-5.3", "prop-bfq-4.20"] {
        for drive in [Drive::flash(), Drive::disk()] {
            let mut world = World::new(stack, drive, QUIET);
            let heavy = world.add(300, Job::sequential_read(0));
            let light = world.add(100, Job::sequential_read(1 << 27));
            world.run(Nanos::from_secs(2));
            world.take_all();
            world.run(Nanos::from_secs(8));
            let (heavy, light) = (world.take(heavy), world.take(light));
            assert!((285..=315).contains(&(heavy * 100 / light)), "{stack} {heavy} {light}");
        }
    }
}

/// Goal: injection gives random readers of different weights back what waiting for each would cost.
/// Method: five readers of weights 100 to 500 on flash, stock and both improved ones.
#[test]
fn injection_recovers_random_throughput() {
    let total = |stack: &str| {
        let mut world = World::new(stack, Drive::flash(), QUIET);
        for i in 1..=5 {
            world.add(100 * i, Job::random_read());
        }
        world.run(Nanos::from_secs(2));
        world.take_all();
        world.run(Nanos::from_secs(5));
        let all = world.take_all();
        all.iter().sum::<u64>() / 5
    };
    let (none, stock) = (total("none-none"), total("prop-bfq-4.18"));
    assert!(stock * 4 < none, "{none} {stock}");
    for improved in [total("prop-bfq-4.20"), total("prop-bfq")] {
        assert!(improved >= 3 * stock, "{none} {stock} {improved}");
    }
}
