//! Real guests: Debian's kernel under QEMU without hardware help, on a disk over vhost-user-blk. Function only;
//! nothing here is fast. `scripts/guest` makes what they boot.

#![allow(clippy::unwrap_used)]

#[path = "rig/machine.rs"]
mod machine;
#[path = "rig/process.rs"]
mod process;
mod rig;

use std::fs;

use machine::Machine;
use rig::Directory;

/// What `docs/vhost.md` says, so that it stays true.
const PAGE: &str = include_str!("../../../docs/vhost.md");

/// The arguments that the page gives QEMU.
fn page_arguments() -> Vec<String> {
    let (_, rest) = PAGE.split_once("$ qemu-system-x86_64 ").unwrap();
    let (command, _) = rest.split_once("```").unwrap();
    // A machine may have KVM and not let it be used.
    let command = command.replace("\\\n", " ").replace("accel=kvm:tcg", "accel=tcg");
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

/// Goal: a guest outlives its server: what was on its way when the server was killed is done when the next one
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
