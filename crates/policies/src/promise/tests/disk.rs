//! The policy as a whole on a disk.

use super::{MS, RATE, at};
use iofair_core::contract::Contract;
use iofair_core::group::ClientId;
use iofair_core::testing::Rig;
use iofair_core::time::Nanos;

/// A disk with a client that has a minimum, one that has a latency contract of 30 ms, and one without either.
fn disk() -> (Rig, [ClientId; 3]) {
    let mut rig =
        Rig::with(&crate::TABLE, "prop-promise", &[], |setup| setup.facts.rotational = true);
    let clients = [rig.client(), rig.client(), rig.client()];
    let minimum = Contract { min: Some(RATE / 4), ..Contract::default() };
    let latency = Contract { latency: Some(Nanos::from_millis(30)), ..Contract::default() };
    for (client, contract) in clients.into_iter().zip([minimum, latency]) {
        let group = rig.controller.groups().client(client).group;
        rig.controller.update_group(rig.now, group, contract).expect("it is there");
    }
    rig.now = at(10);
    (rig, clients)
}

/// Goal: reads with a near deadline are served while the disk is kept idle to write out its cache, also if they came after
/// a write of the same client. Method: a client fills the cache with scattered writes beside a minimum. In each step of
/// 20 ms, the client with the latency contract sends a read, or a write and a read.
#[test]
fn near_deadlines_do_not_wait_for_the_cache() {
    for writes in [false, true] {
        let (mut rig, [promised, urgent, writer]) = disk();
        let (mut place, mut served, mut longest) = (0u64, 0u32, Nanos::ZERO);
        let mut sent = None;
        for step in 0..500u64 {
            let step_end = at(10 + 20 * (step + 1));
            place += 100_000;
            if rig.controller.pending() < 64 {
                rig.read(promised, step * 8);
                (0..8).for_each(|n| rig.write(writer, 700_000_000 + place + 10_000 * n));
            }
            if sent.is_none() {
                sent = Some(rig.now);
                if writes {
                    rig.write(urgent, 300_000_000 + place);
                }
                rig.read(urgent, 500_000_000 + place);
            }
            while rig.now < step_end {
                let Some((id, start)) = rig.dispatch() else {
                    rig.now += Nanos(MS / 2);
                    continue;
                };
                let is_cached = start >= 700_000_000 || (300_000_000..500_000_000).contains(&start);
                rig.now += if is_cached { Nanos(MS / 10) } else { Nanos::from_millis(6) };
                rig.complete(id);
                if (500_000_000..700_000_000).contains(&start) {
                    served += 1;
                    longest = longest.max(rig.now.since(sent.take().expect("one is queued")));
                }
            }
        }
        assert!(served > 50 && longest < Nanos::from_millis(500), "{served} served, {longest:?}");
    }
}
