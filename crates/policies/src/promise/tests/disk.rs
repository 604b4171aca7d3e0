//! The policy as a whole on a disk.

use super::super::head::Head;
use super::super::shares::{EntityId, Side};
use super::{MS, RATE, at};
use iofair_core::contract::Contract;
use iofair_core::controller::Submission;
use iofair_core::id::ClientId;
use iofair_core::request::{Flags, Operation};
use iofair_core::testing::Rig;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

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

/// Goal: a flash drive that is reported as rotational is detected within 250 ms while clients only read in order. Method: two clients with
/// two reads of 256 KiB each queued; a read takes 250 us, and on a disk 6 ms more at another place than the one before. The
/// disk reads ahead: the first 8 MiB after what a client read last are cached.
#[test]
fn flash_is_detected_by_reads_in_order() {
    const LENGTH: u64 = (256 << 10) / 512;
    const FAR: u64 = 100_000_000;
    let longest_waits = |seek: Nanos| {
        let mut rig =
            Rig::with(&crate::TABLE, "prop-promise", &[], |setup| setup.facts.rotational = true);
        let clients = [rig.client(), rig.client()];
        let (mut next, mut ahead, mut head) = ([0, FAR], [0; 2], usize::MAX);
        let mut waits = [(Nanos::ZERO, rig.now); 2];
        let mut last = [0, FAR];
        while rig.now < at(6000) {
            for client in 0..2 {
                while next[client] <= last[client] + 2 * LENGTH {
                    let (start, length) = (Sectors(next[client]), Sectors(LENGTH));
                    let (operation, flags) = (Operation::Read, Flags::NONE);
                    let (tag, client_id) = (next[client], clients[client]);
                    let read =
                        Submission { tag, client: client_id, operation, flags, start, length };
                    rig.controller.submit(rig.now, read).expect("within the limit");
                    next[client] += LENGTH;
                }
            }
            let Some((id, start)) = rig.dispatch() else {
                rig.now += Nanos(MS / 4);
                continue;
            };
            let client = usize::from(start >= FAR);
            last[client] = start;
            if head != client && start >= ahead[client] {
                (head, rig.now) = (client, rig.now + seek);
            }
            rig.now += Nanos(MS / 4);
            rig.complete(id);
            if head == client {
                ahead[client] = start + LENGTH + (8 << 20) / 512;
            }
            let (longest, before) = &mut waits[client];
            if rig.now > at(250) {
                *longest = (*longest).max(rig.now.since(*before));
            }
            *before = rig.now;
        }
        waits.map(|(longest, _)| longest)
    };
    let (flash, disk) = (longest_waits(Nanos::ZERO), longest_waits(Nanos::from_millis(6)));
    assert!(flash.iter().all(|wait| *wait < Nanos::from_millis(5)), "{flash:?}");
    assert!(disk.iter().all(|wait| *wait > Nanos::from_millis(150)), "{disk:?}");
}

/// Goal: turns that show nothing are not short for ever. Method: two clients in turn write, or read near each other.
#[test]
fn turns_that_show_nothing_become_longer() {
    for side in [Side::Read, Side::Write] {
        let mut head = Head::new(true);
        let mut short = 0;
        for turn in 0..100u64 {
            let place = [Sectors(turn * 1000), Sectors(turn * 1000 + 8)];
            head.begin_turn(at(turn * 200), EntityId::from_bits(turn as u32 % 2));
            head.on_dispatch_alone(at(turn * 200), false);
            head.on_dispatch(side, place);
            short += u32::from(head.on_complete(at(turn * 200 + 11), true, 4096));
        }
        assert_eq!(short, 32, "{side:?}");
    }
}
