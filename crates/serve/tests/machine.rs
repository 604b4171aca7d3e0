//! Real guests: Debian's kernel under QEMU without hardware help, on a disk over vhost-user-blk. Function only;
//! nothing here is fast. `scripts/guest` makes what they boot.

#![allow(clippy::unwrap_used)]

#[path = "rig/process.rs"]
mod process;
mod rig;
#[path = "rig/slow.rs"]
mod slow;

use std::fs;

use iofair_config::contracts::Contracts;
use iofair_serve::{Server, Snapshot};
use iofair_testkit::judged::judged;
use iofair_testkit::machine::Machine;
use rig::Directory;
use slow::{changed, slow_flash};

/// What `docs/vhost.md` says, so that it stays true.
const PAGE: &str = include_str!("../../../docs/vhost.md");

/// The arguments that the page gives QEMU.
fn page_arguments() -> Vec<String> {
    let (_, rest) = PAGE.split_once("$ qemu-system-x86_64 ").unwrap();
    let (command, _) = rest.split_once("```").unwrap();
    // A machine may have KVM and not let it be used.
    let command = command.replace("\\\n", " ").replace("accel=kvm:tcg,", "");
    command.split_whitespace().map(String::from).collect()
}

/// Boots a guest with a disk on this socket.
fn boot(directory: &Directory, socket: &str, script: &str) -> Machine {
    let arguments = page_arguments().into_iter().map(|word| word.replace("alice.sock", socket));
    Machine::boot(&directory.0, arguments.collect(), script)
}

/// Not a test: the server of the tests below.
#[test]
fn server_to_be_killed() {
    process::serve_if_asked();
}

/// The page's contracts, in a directory of the test's.
fn contracts(directory: &Directory) -> String {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let place = |name: &str| format!("{name}\"");
    let text = text
        .replace(&place("directory:pool"), &place(&format!("directory:{}", directory.path("pool"))))
        .replace(&place("alice.sock"), &place(&directory.path("disk")));
    fs::create_dir(directory.path("pool")).unwrap();
    let path = directory.path("contracts.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Goal: a real kernel's driver likes the disk: its size and name, a file system with files that are right after
/// it was mounted anew, a raw copy, and discards. Method: a script in the guest.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, target/guest (scripts/guest)"]
fn needs_guest_a_file_system_on_the_disk() {
    let directory = Directory::new();
    let _server = process::start(&contracts(&directory));
    let script = "
        test $(cat /sys/block/vda/size) = 131072
        test $(cat /sys/block/vda/serial) = alice-root
        test $(cat /sys/block/vda/queue/logical_block_size) = 512
        test $(cat /sys/block/vda/queue/physical_block_size) = 4096
        test $(ls /sys/block/vda/mq | wc -l) = 2
        mke2fs -F /dev/vda >/dev/null
        mount -t ext4 /dev/vda /mnt
        dd if=/dev/urandom of=/mnt/a bs=1M count=16 2>/dev/null
        for n in 1 2 3 4; do cp /bin/busybox /mnt/b$n & done; wait
        md5sum /mnt/a > /sum
        umount /mnt
        echo 3 > /proc/sys/vm/drop_caches
        mount -t ext4 /dev/vda /mnt
        md5sum -c /sum
        for n in 1 2 3 4; do cmp /bin/busybox /mnt/b$n; done
        umount /mnt
        dd if=/dev/urandom of=/raw bs=1M count=8 2>/dev/null
        dd if=/raw of=/dev/vda bs=64k seek=16 oflag=direct 2>/dev/null
        dd if=/dev/vda of=/back bs=64k skip=16 count=128 iflag=direct 2>/dev/null
        cmp /raw /back
        blkdiscard /dev/vda
        dd if=/dev/vda bs=1M count=64 iflag=direct 2>/dev/null | cmp -n 67108864 - /dev/zero
    ";
    boot(&directory, &directory.path("disk"), script).passes();
}

/// Goal: a guest outlives its server: what was in flight when the server was killed is done when the next one
/// comes, and the data is right. Method: the guest writes and reads without a pause; the server is killed in
/// the middle, three times.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, target/guest (scripts/guest)"]
fn needs_guest_a_killed_server_comes_back() {
    let directory = Directory::new();
    let contracts = contracts(&directory);
    let mut server = process::start(&contracts);
    let script = "
        dd if=/dev/urandom of=/raw bs=1M count=4 2>/dev/null
        for round in 1 2 3 4; do
            echo ROUND $round
            dd if=/raw of=/dev/vda bs=4k oflag=direct conv=fsync 2>/dev/null &
            dd if=/raw of=/dev/vda bs=16k seek=2048 oflag=direct 2>/dev/null &
            wait
            cmp -n 4194304 /raw /dev/vda
            dd if=/dev/vda bs=16k skip=2048 count=256 iflag=direct 2>/dev/null | cmp - /raw
        done
    ";
    let mut machine = boot(&directory, &directory.path("disk"), script);
    for round in 1..=3 {
        machine.wait_for(&format!("ROUND {round}"));
        drop(server);
        server = process::start(&contracts);
    }
    machine.passes();
}

/// Goal: a guest has its minimum while another one reads and writes as much as it can, and the drive is full. Method: a
/// drive that guests in software emulation can fill; requests of 4 KiB one after the other beside four streams of 1 MiB, for
/// eight seconds of the first guest; what each moves is counted by the server.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, target/guest (scripts/guest)"]
fn needs_guest_real_time_a_minimum_is_kept_beside_another_guest() {
    let directory = Directory::new();
    let mut text = format!("[drive]\nback = 'emulated:{}'\n", slow_flash(&directory));
    let guests = [("promised", "min = '1MB/s'"), ("greedy", "")];
    for (name, min) in guests {
        text += &format!(
            "[[group]]\nname = '{name}'\n{min}\n[[volume]]\nname = '{name}'\n\
             group = '{name}'\nsize = '1GiB'\nvhost = '{}'\n",
            directory.path(name)
        );
    }
    let server = Server::start(Contracts::parse("test.toml", &text).unwrap()).unwrap();
    let streams = "
        for n in 0 256; do
            while true; do dd if=/dev/vda of=/dev/null bs=1M skip=$n count=256 iflag=direct; done 2>/dev/null &
        done
        for n in 512 768; do
            while true; do dd if=/dev/zero of=/dev/vda bs=1M seek=$n count=256 oflag=direct; done 2>/dev/null &
        done
        echo STREAMS
        wait
    ";
    let requests = "
        while true; do dd if=/dev/vda of=/dev/null bs=4k iflag=direct 2>/dev/null; done &
        n=0
        while true; do sleep 1; n=$((n + 1)); echo SECOND $n.; done
    ";
    let places = guests.map(|_| Directory::new());
    let mut greedy = boot(&places[1], &directory.path("greedy"), streams);
    greedy.wait_for("STREAMS");
    let mut promised = boot(&places[0], &directory.path("promised"), requests);
    promised.wait_for("SECOND 3.");
    server.stats(true).unwrap();
    let mut begin = 4;
    judged("a minimum of 1 MB/s is kept and the drive is full", || {
        let rates: Vec<[f64; 2]> = (begin..begin + 8)
            .map(|second| {
                promised.wait_for(&format!("SECOND {second}."));
                let snapshot = server.stats(true).unwrap();
                let rate = |name| bytes(&snapshot, name) as f64 * 1e3 / snapshot.time.0 as f64;
                ["promised", "greedy"].map(rate)
            })
            .collect();
        begin = promised.seen().matches("SECOND").count() + 1;
        let mean =
            |which: usize| rates.iter().map(|rates| rates[which]).sum::<f64>() / rates.len() as f64;
        println!("promised {:.2} MB/s; greedy {:.1} MB/s", mean(0), mean(1));
        (mean(0) > 0.97 && mean(1) > 15.0).then_some(()).ok_or(format!("{rates:?}"))
    });
}

/// A disk so slow that guests in software emulation are faster: the one of 2009 at a fifth of its rate.
fn slow_disk(directory: &Directory) -> String {
    let known = include_str!("../../../profiles/drives/sata-7200-2009.toml");
    let slow = [("outer", "80MB/s", "16MB/s"), ("inner", "40MB/s", "16MB/s")];
    changed(directory, known, &slow)
}

/// Bytes that a volume has moved, of those of a snapshot.
fn bytes(snapshot: &Snapshot, volume: &str) -> u64 {
    let found = snapshot.volumes.iter().find(|one| one.name == volume);
    found.unwrap().stats.bytes.iter().sum()
}

/// Goal: the fourth test of the IO controller's text (V10, 2009), live: of two guests that write through their page
/// caches, the one with twice the weight gets twice the drive. Method: the text's own scheduler, as in
/// `reproduction/experiments/io-controller-2009/test-4.toml`; both write without end; once both caches are full and write back,
/// what each moves in twelve of the heavier's seconds is counted by the server.
#[test]
#[ignore = "needs guest and time: qemu-system-x86_64, busybox, target/guest (scripts/guest); a minute"]
fn needs_time_needs_guest_real_time_twice_the_weight_is_twice_the_drive() {
    let directory = Directory::new();
    let mut text = format!(
        "[drive]\nback = 'emulated:{}'\nstack = 'prop-fair-deadline'\n\
         [drive.policy.fair-deadline]\nfairness = true\n",
        slow_disk(&directory)
    );
    let guests = [("heavy", 1000), ("light", 500)];
    for (name, weight) in guests {
        text += &format!(
            "[[group]]\nname = '{name}'\nweight = {weight}\n[[volume]]\nname = '{name}'\n\
             group = '{name}'\nsize = '1GiB'\nvhost = '{}'\n",
            directory.path(name)
        );
    }
    let server = Server::start(rig::parse(&text)).unwrap();
    // A small cache is full soon, and all of it is on the way to the drive, which the kernel's own throttle of
    // writeback would prevent. Both together have no more requests out than the server has tags, and these have
    // the size of 2009.
    let script = "
        echo 67108864 > /proc/sys/vm/dirty_bytes
        echo 1048576 > /proc/sys/vm/dirty_background_bytes
        cd /sys/block/vda/queue
        echo 0 > wbt_lat_usec; echo 15 > nr_requests; echo 256 > max_sectors_kb
        while true; do dd if=/dev/zero of=/dev/vda bs=1M count=1000 2>/dev/null; done &
        dirty() { awk '/^(Dirty|Writeback):/ { sum += $2 } END { print sum }' /proc/meminfo; }
        while test $(dirty) -lt 32768; do sleep 1; done
        echo CACHE FULL
        n=0
        while true; do sleep 1; n=$((n + 1)); echo SECOND $n.; done
    ";
    let places = guests.map(|_| Directory::new());
    let mut machines = [0, 1].map(|one| boot(&places[one], &directory.path(guests[one].0), script));
    machines.iter_mut().for_each(|machine| machine.wait_for("CACHE FULL"));
    judged("twice the weight is twice the drive", || {
        // Begin on a second, after the first rush.
        let begin = machines[0].seen().matches("SECOND").count() + 4;
        machines[0].wait_for(&format!("SECOND {begin}."));
        server.stats(true).unwrap();
        machines[0].wait_for(&format!("SECOND {}.", begin + 12));
        let snapshot = server.stats(false).unwrap();
        let [heavy, light] = guests.map(|(name, _)| bytes(&snapshot, name));
        let ratio = heavy as f64 / light.max(1) as f64;
        let busy = snapshot.utilisation_ppm();
        let found = format!("{heavy} and {light} bytes, {ratio:.2} to 1; drive busy {busy} ppm");
        println!("{found}");
        ((1.6..2.4).contains(&ratio) && busy > 900_000).then_some(()).ok_or(found)
    });
}
