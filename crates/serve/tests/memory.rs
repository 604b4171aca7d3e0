//! What a thousand connections cost, idle and at their worst. One test, because it looks at the whole
//! process.
#![allow(clippy::unwrap_used)]

mod rig;

use std::io::Write;
use std::thread;

use iofair_testkit::page;
use rig::scene::Scene;
use rig::wire::{Options, READ, TIMEOUT, WRITE, Wire, Workload};

const MIB: usize = 1 << 20;
const MANY: usize = 1_000;

/// Megabytes that this process, clients and server, has in memory.
fn resident() -> usize {
    page::resident_kib("self")[1] as usize / 1024
}

/// Goal: memory stays within what `docs/nbd.md` states, with a thousand connections. Method: idle ones, then
/// ones that read nothing of what they ask for.
#[test]
fn a_thousand_connections_stay_within_bounds() {
    idle_connections_cost_little();
    clients_that_do_not_read_are_bounded();
    clients_in_the_way_are_cut_off();
    unread_lists_are_bounded();
}

/// A thousand idle connections cost little, and what they took while they were busy comes back: each writes 1 MiB at once, then says nothing; resident size before, after, and once quiet.
fn idle_connections_cost_little() {
    let scene = Scene::start("connections = 2000", "");
    let mut warm = scene.wire();
    warm.write(0, 0, &vec![1; 8 * MIB]);
    let before = resident();
    let mut idle: Vec<Wire> = (0..MANY).map(|_| scene.wire()).collect();
    assert_eq!(scene.server.stats(false).unwrap().connections, MANY + 1);
    let connected = resident().saturating_sub(before);
    assert!(connected <= 24, "{connected} MiB for {MANY} connections");
    let block = vec![7; 4096];
    for wire in &mut idle {
        let writes =
            (0..32).map(|at| [wire.request(WRITE, 0, at << 12, 4096), block.clone()].concat());
        let writes = writes.collect::<Vec<_>>().concat();
        wire.stream.write_all(&writes).unwrap();
        (0..32).for_each(|_| assert_eq!(wire.receive().unwrap().error, 0));
    }
    let busy = resident().saturating_sub(before);
    let since = std::time::Instant::now();
    while resident().saturating_sub(before) > 40 {
        assert!(since.elapsed() < TIMEOUT, "{busy} MiB, and {} later", resident() - before);
        thread::yield_now();
    }
    assert_eq!(idle[500].read(0, 4096).data, block);
    drop(idle);
    scene.until(|told| told.connections == 1);
}

/// A thousand clients that ask for much and read nothing hold no more memory than is stated, and the clients of other
/// groups feel nothing: they ask for 16 GiB; a neighbour's requests, small and large, go on at once.
fn clients_that_do_not_read_are_bounded() {
    const BUDGET: usize = 64;
    const NEIGHBOUR: &str = "[[group]]\nname = 'h'\n\
                             [[volume]]\nname = 'w'\ngroup = 'h'\nsize = '64MiB'\n";
    let scene = Scene::start(&format!("connections = 4000\nmemory = '{BUDGET}MiB'"), NEIGHBOUR);
    let neighbour = Wire::connect_to(&scene.socket(), "w").unwrap();
    let mut good = Workload::over(neighbour, 0, 256);
    good.run(500, 8);
    let before = resident();
    let mut silent = silent(&scene, MANY);
    good.run(2_000, 8);
    let mut same_group = Workload::new(&scene.socket(), 8_192, 256);
    same_group.run(500, 8);
    let grown = resident().saturating_sub(before);
    // 128 KiB of payload and as much around it for each, and freed buffers that are kept.
    let bound = BUDGET + MANY / 4 + 32;
    assert!(grown < bound, "{grown} MiB held, {bound} stated");
    let large = good.wire.read(32 << 20, 16 * MIB as u32);
    assert_eq!((large.error, large.data.len()), (0, 16 * MIB));
    let grown = resident().saturating_sub(before);
    assert!(grown < bound + 32, "{grown} MiB held, {bound} stated");
    silent.clear();
    drop(same_group);
    scene.until(|told| told.connections == 1 && told.pending == 0);
    good.run(500, 8);
}

/// Clients that each asked for 16 MiB and read nothing.
fn silent(scene: &Scene, count: usize) -> Vec<Wire> {
    let mut silent: Vec<Wire> = (0..count).map(|_| scene.wire()).collect();
    for wire in &mut silent {
        let reads: Vec<u8> =
            (0..16).flat_map(|i| wire.request(READ, 0, i << 20, MIB as u32)).collect();
        wire.stream.write_all(&reads).unwrap();
    }
    silent
}

/// Clients that do not read are cut off once their own group needs their memory.
fn clients_in_the_way_are_cut_off() {
    let scene = Scene::start("memory = '64MiB'", "");
    let silent = silent(&scene, 36);
    let mut good = scene.wire();
    let large = good.read(0, 24 * MIB as u32);
    assert_eq!((large.error, large.data.len()), (0, 24 * MIB));
    assert!(scene.server.stats(false).unwrap().connections < silent.len());
}

/// A client that asks a hundred times which volumes there are, and reads no answer, holds one small piece of them.
fn unread_lists_are_bounded() {
    let volume =
        |number| format!("[[volume]]\nname = 'volume-{number:060}'\ngroup = 'g'\nsize = '4096'\n");
    let volumes: String = (0..3_000).map(volume).collect();
    let scene = Scene::start("", &volumes);
    let before = resident();
    let mut clients: Vec<_> = (0..4).map(|_| Options::greet(scene.raw()).unwrap()).collect();
    for client in &mut clients {
        client.stream.write_all(&b"IHAVEOPT\0\0\0\x03\0\0\0\0".repeat(200)).unwrap();
    }
    let mut other = Options::greet(scene.raw()).unwrap();
    assert_eq!(other.list().unwrap().len(), 3_001);
    let grown = resident().saturating_sub(before);
    assert!(grown < 16, "{grown} MiB for lists that nobody reads");
}
