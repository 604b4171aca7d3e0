//! Probes of the drive's latency.

use alloc::collections::BTreeMap;

use super::{MS, at};
use iofair_core::controller::Submission;
use iofair_core::id::ClientId;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::{Rig, gauge};
use iofair_core::time::{Instant, Nanos};
use iofair_core::unit::Sectors;

const SMALL: u64 = 8;
const LARGE: u64 = 128;

fn read(rig: &mut Rig, client: ClientId, length: u64) {
    let (start, length) = (Sectors(1_000_000 * client.to_bits()), Sectors(length));
    let (operation, flags) = (Operation::Read, Flags::NONE);
    let read = Submission { tag: 1, client, operation, flags, start, length };
    rig.controller.submit(rig.now, read).expect("within the limit");
}

/// Goal: the latency is measured, and small reads do not go one by one until a large read comes that can be a probe. Method:
/// eight clients that send 4 KiB at each completion, and one that reads 64 KiB every 7 ms; a piece takes 300 us, a small
/// read 200 us, whatever else is in flight.
#[test]
fn small_reads_do_not_wait_for_a_large_one() {
    let mut rig =
        Rig::with(&crate::TABLE, "prop-promise", &[], |setup| setup.facts.rotational = false);
    let small: [ClientId; 8] = core::array::from_fn(|_| rig.client());
    let large = rig.client();
    small.iter().for_each(|client| read(&mut rig, *client, SMALL));
    let mut in_drive = BTreeMap::new();
    let (mut sent, mut alone, mut next) = (0, 0, Instant::ZERO);
    while rig.now < at(2_000) {
        if rig.now >= next && rig.controller.pending_of(large) == 0 {
            read(&mut rig, large, LARGE);
            next = rig.now + Nanos(7 * MS);
        }
        while let Some((id, start)) = rig.dispatch() {
            sent += 1;
            let client = start / 1_000_000;
            let took = if client == large.to_bits() { 300_000 } else { 200_000 };
            in_drive.insert((rig.now.0 + took, sent), (id, client));
        }
        alone += u32::from(in_drive.len() == 1);
        rig.now = Instant(rig.now.0 + MS / 20);
        while let Some(first) = in_drive.first_entry()
            && first.key().0 <= rig.now.0
        {
            let (id, client) = first.remove();
            rig.complete(id);
            if client != large.to_bits() {
                read(
                    &mut rig,
                    *small.iter().find(|reader| reader.to_bits() == client).expect("its own"),
                    SMALL,
                );
            }
        }
    }
    let latency = gauge(&rig.controller, "promise_latency_alone_nanoseconds");
    assert!((300_000..=350_000).contains(&latency), "{latency} ns");
    assert!(alone < 400, "one request in the drive at {alone} of 40000 times");
}
