//! What needs another kernel than this machine's: volumes as block devices of the server's own host, the kernel's NBD
//! client, and `iofair host` with cgroup v2. `iofair` runs in a virtual machine. `scripts/guest` makes what boots.

use std::fs;
use std::path::Path;
use std::process::Command;

use iofair_testkit::directory::Directory;
use iofair_testkit::machine::{self, Kernel, Machine};
use iofair_testkit::script;

/// What every script begins with: contracts, and a function that starts a server and waits until it serves.
const BEGIN: &str = "
    cp /contracts.toml .
    # The console has no size of its own.
    stty cols 120 </dev/console
    serve() {
        rm -f said; mkfifo said; exec 3<>said
        iofair serve contracts.toml >said 3>&- & server=$!
        read -r line <&3
    }
    # Does the kernel complain of nothing?
    sound() { if dmesg | grep -E 'WARNING|BUG|Oops|hung task|EXT4-fs error|I/O error'; then return 1; fi; }
    # What a shell does not take for an end by itself.
    not() { if \"$@\"; then echo \"it should have failed: $*\"; exit 1; fi; }
";

/// Runs a script in a machine with `iofair` and these contracts.
fn run(contracts: &str, script: &str) -> String {
    run_with(contracts, script, |_| String::new())
}
/// The same with more arguments for QEMU, given the test's directory on this machine.
fn run_with(contracts: &str, script: &str, more: impl Fn(&Path) -> String) -> String {
    let place = Directory::new();
    fs::create_dir_all(place.0.join("root/tmp")).unwrap();
    machine::bring(&place.0, Path::new(env!("CARGO_BIN_EXE_iofair")));
    fs::write(place.0.join("root/contracts.toml"), contracts).unwrap();
    let arguments = format!("-machine q35 -cpu max -smp 2 -m 512M {}", more(&place.0));
    let arguments = arguments.split_whitespace().map(String::from).collect();
    Machine::boot(&place.0, arguments, &format!("{BEGIN}{script}")).passes()
}

/// Goal: every command of the page does what is said around it. Method: all of them in a virtual machine, with the
/// page's own contracts; at the end the kernel has nothing to complain of.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest)"]
fn needs_guest_the_page_about_ublk_is_true() {
    let page = fs::read_to_string("../../docs/ublk.md").unwrap();
    let (lines, commands) = script::commands_of(&page);
    assert!(commands > 18, "the page has lost its commands");
    let script = format!("{lines}kill -TERM $(pidof iofair); wait $!; sound");
    let seen = run(&script::contracts(&page), &script);
    assert!(seen.contains("/dev/ublkb1"), "the list names the device\n{seen}");
}

const CONTRACTS: &str = r#"
[drive]
back = "directory:pool"
stack = "prop-bfq"
[listen]
unix = "nbd.sock"
tcp = "127.0.0.1:10809"
insecure = true
[control]
unix = "control.sock"
[[group]]
name = "g"
[[volume]]
name = "v"
group = "g"
size = "64MiB"
ublk = 0
[[volume]]
name = "w"
group = "g"
size = "64MiB"
ublk = true
[[volume]]
name = "n"
group = "g"
size = "64MiB"
"#;

/// Writers and readers on two devices without a pause, kills in the middle, and a stop with a mounted file system.
const KILLED: &str = "
    serve
    test $(cat /sys/block/ublkb0/size) = 131072
    test $(cat /sys/block/ublkb0/queue/logical_block_size) = 512
    test $(cat /sys/block/ublkb0/queue/physical_block_size) = 4096
    test $(cat /sys/block/ublkb0/queue/fua) = 1
    test $(ls /sys/block/ublkb0/mq | wc -l) = 2
    dd if=/dev/urandom of=/raw bs=1M count=4 2>/dev/null
    for round in 1 2; do
        dd if=/raw of=/dev/ublkb0 bs=4k oflag=direct conv=fsync 2>/dev/null & a=$!
        dd if=/raw of=/dev/ublkb0 bs=16k seek=2048 oflag=direct 2>/dev/null & b=$!
        dd if=/dev/ublkb1 of=/dev/null bs=4k count=1500 iflag=direct 2>/dev/null & c=$!
        # Somewhere in the middle, when a quarter is written.
        while ! dd if=/dev/ublkb0 bs=4k skip=$((round * 128)) count=1 iflag=direct 2>/dev/null |
            cmp -s -n 4096 - /raw $((0)) $((round * 524288)); do sleep 0.1; done
        kill -KILL $server
        serve
        wait $a; wait $b; wait $c
        cmp -n 4194304 /raw /dev/ublkb0
        dd if=/dev/ublkb0 bs=16k skip=2048 count=256 iflag=direct 2>/dev/null | cmp - /raw
        blkdiscard /dev/ublkb0
        dd if=/dev/ublkb0 bs=1M skip=31 count=6 iflag=direct 2>/dev/null | cmp -n 6291456 - /dev/zero
    done
    # A file system, and a file that is only in the page cache when its server is told to end.
    mkfs.ext4 -q /dev/ublkb0
    mount -t ext4 /dev/ublkb0 /mnt
    cp /raw /mnt/a
    sound
    kill -TERM $server; wait $server
    not test -e /dev/ublkb0; not test -e /dev/ublkb1; not test -e /dev/ublkc1
    umount /mnt
    serve
    mount -t ext4 /dev/ublkb0 /mnt; cmp /raw /mnt/a; umount /mnt
    fsck.ext4 -f -n /dev/ublkb0
";

/// What is taken over, and what is not.
const TAKEN_OVER: &str = "
    # A volume left the contracts while nobody served it: its device goes with the next server.
    kill -KILL $server
    sed -i s/ublk.=.true// contracts.toml
    serve
    test -e /dev/ublkb0; not test -e /dev/ublkb1
    # Read-only; and another number for what a killed server left.
    kill -KILL $server
    sed -i 's/ublk = 0/ublk = 5/' contracts.toml
    serve
    test -e /dev/ublkb5; not test -e /dev/ublkb0
    mount -t ext4 /dev/ublkb5 /mnt; cmp /raw /mnt/a; umount /mnt
    kill -TERM $server; wait $server
    sed -i 's/ublk = 5/ublk = 5\\nread_only = true/' contracts.toml
    serve
    test $(cat /sys/block/ublkb5/ro) = 1
    not dd if=/raw of=/dev/ublkb5 bs=4k count=1
    mount -t ext4 -o ro /dev/ublkb5 /mnt; cmp /raw /mnt/a; umount /mnt
    kill -TERM $server; wait $server
    # What lay in memory is not taken over.
    sed -i 's/directory:pool/memory:256MiB/; s/read_only = true//' contracts.toml
    serve
    dd if=/raw of=/dev/ublkb5 bs=4k count=8 oflag=direct 2>/dev/null
    kill -KILL $server
    serve
    dd if=/dev/ublkb5 bs=4k count=8 iflag=direct 2>/dev/null | cmp -n 32768 - /dev/zero
    kill -TERM $server; wait $server
    # Somebody else's device, and no driver at all.
    serve
    sed 's/name = \"v\"/name = \"other\"/; s/nbd.sock/n2.sock/; s/control.sock/c2.sock/; s/10809/10810/' \\
        contracts.toml >other.toml
    not iofair serve other.toml 2>said.txt
    cat said.txt
    grep -q 'other.toml:17:.*ublkb5 is there already, and is not this volume' said.txt
    kill -TERM $server; wait $server
    rmmod ublk_drv
    not iofair serve contracts.toml 2>said.txt
    cat said.txt
    grep -q 'contracts.toml:17:.*there is no /dev/ublk-control here.*modprobe ublk_drv' said.txt
";

/// Goal: readers and writers of block devices survive killed servers, and their data are right; nothing is taken over
/// for other data; a stop with a mounted file system loses nothing and leaves nothing. Method: writers and readers
/// on two devices without a pause, kills in the middle, then each of the rest.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest)"]
fn needs_guest_block_devices_survive_killed_servers() {
    run(CONTRACTS, &format!("{KILLED}{TAKEN_OVER}"));
}

/// Contracts with faults; `RULES` stands where they come.
const FAULTY: &str = r#"
[drive]
back = "faulty:directory:pool"
stack = "prop-bfq"
timeout = "3s"
RULES
[control]
unix = "control.sock"
[[group]]
name = "g"
[[group]]
name = "h"
[[volume]]
name = "v"
group = "g"
size = "16MiB"
ublk = 0
[[volume]]
name = "w"
group = "h"
size = "16MiB"
ublk = 1
"#;

/// Each fault in turn, on the first device, while the second one is written and read again and again.
const FAULTS: &str = r#"
    # What the first MiB of v meets from now on; without an argument: nothing.
    meets() {
        rule=; if [ $# -gt 0 ]; then
            rule="[[drive.faults.rule]]\nvolume = \"v\"\nrange = { from = \"0\", to = \"1MiB\" }\n$1"; fi
        sed "s/^RULES/$rule/" rules.toml >contracts.toml
        iofair ctl reload
    }
    try() { dd bs=32k count=1 seek=${seek:-0} if=/raw of=/dev/ublkb0 oflag=direct 2>said.txt; }
    back() { dd bs=32k count=1 skip=${seek:-0} if=/dev/ublkb0 iflag=direct 2>said.txt | cmp - /part; }
    cp contracts.toml rules.toml
    sed -i /^RULES/d contracts.toml
    dd if=/dev/urandom of=/raw bs=1M count=4 2>/dev/null
    dd if=/raw of=/part bs=32k count=1 2>/dev/null
    serve
    (
        while ! test -e over; do
            dd if=/raw of=/dev/ublkb1 bs=64k oflag=direct 2>/dev/null || exit 1
            dd if=/dev/ublkb1 bs=64k count=64 iflag=direct 2>/dev/null | cmp - /raw || exit 1
            sleep 0.2
        done
    ) & neighbour=$!
    for fault in 'fault = "eio"' 'fault = "never"' 'fault = "delay"\ndelay = "5s"'; do
        # Bytes whose write is never completed cannot be written again.
        case "$fault" in *never*) at=8;; *) at=0;; esac
        meets "$fault"
        seek=$at not try; grep 'I/O error\|Input/output error' said.txt
        # Elsewhere on the same device all is well.
        seek=64 try; seek=64 back
        meets
        # What is late comes now, and nobody asks for it any more.
        sleep 3
        try; back
    done
    seek=8 not try
    meets 'fault = "enospc"\noperation = "write"'
    not try; grep 'No space left' said.txt
    back
    # A part of a command, and a drive that is slow, are nobody's error.
    meets 'fault = "short"'; try; back
    meets 'fault = "delay"\ndelay = "100ms"'; try; back
    # Killed while commands are at a drive that never answers: the next server asks a drive that does.
    meets 'fault = "never"'
    try & stuck=$!
    sleep 1
    kill -KILL $server
    meets || sed /^RULES/d rules.toml >contracts.toml
    serve
    wait $stuck; back
    # The file of a volume is cut short below its server: what was there is lost, and nothing takes its place.
    truncate -s 0 pool/v.img
    not back; grep 'I/O error\|Input/output error' said.txt
    not try; grep 'I/O error\|Input/output error' said.txt
    touch over
    wait $neighbour
    kill -TERM $server; wait $server
    not test -e /dev/ublkb0
"#;

/// Goal: what fails at the drive is an error of the request that met it and of no other, also through block devices:
/// elsewhere on the device and on other devices all is well, and when the fault is over it is over. Method: each fault
/// in a part of one device, around it reads and writes that are compared; a kill with commands that never return.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest)"]
fn needs_guest_faults_fail_only_the_affected_requests() {
    run(FAULTY, FAULTS);
}

/// Goal: the kernel's own NBD client likes the server, over both kinds of socket, and finds everything again after
/// the server was started anew. Method: a file system, unmounted and mounted around a restart.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest)"]
fn needs_guest_the_kernel_connects_over_nbd() {
    let script = "
        serve
        dd if=/dev/urandom of=/raw bs=1M count=8 2>/dev/null
        nbd-client -N n -unix nbd.sock /dev/nbd0
        test $(cat /sys/block/nbd0/size) = 131072
        mkfs.ext4 -q /dev/nbd0
        mount -t ext4 /dev/nbd0 /mnt
        cp /raw /mnt/a
        umount /mnt
        nbd-client -d /dev/nbd0
        kill -TERM $server; wait $server
        serve
        nbd-client -N n 127.0.0.1 /dev/nbd1
        fsck.ext4 -f -n /dev/nbd1
        mount -t ext4 /dev/nbd1 /mnt
        cmp /raw /mnt/a
        rm /mnt/a
        umount /mnt
        blkdiscard /dev/nbd1
        dd if=/dev/nbd1 bs=1M iflag=direct count=12 2>/dev/null | cmp -n 12582912 - /dev/zero
        nbd-client -d /dev/nbd1
        sound
        kill -TERM $server; wait $server
    ";
    run(CONTRACTS, script);
}

/// Contracts for two groups of the guest. The minimum is more than the guest can read.
const HOST: &str = r#"
[drive]
back = "/dev/vda"
scheduler = "none"
cost = { model = "rbps=200000000 rseqiops=20000 rrandiops=20000 wbps=200000000 wseqiops=20000 wrandiops=20000" }
[[group]]
name = "tenants/db"
min = "900MB/s"
alone = "1200MB/s"
weight = 300
[[group]]
name = "tenants/backup"
weight = 100
max = { read = "2MB/s", write_iops = 500 }
"#;

/// Applies them, looks at what the kernel has, reads through the ceiling, runs the controller, and restores everything.
const HOST_V2: &str = "
    mkdir -p /run
    mount -t cgroup2 none /sys/fs/cgroup
    mkdir -p /sys/fs/cgroup/tenants/db /sys/fs/cgroup/tenants/backup
    here=/sys/fs/cgroup/tenants
    state() {
        find /sys/fs/cgroup -name 'io.max' -o -name 'io.weight' -o -name 'io.cost.*' -o -name 'cgroup.subtree_control' |
            sort | while read -r file; do echo $file; cat $file; done
    }
    within() { group=$1; shift; sh -c \"echo \\$\\$ >$here/$group/cgroup.procs; exec $*\"; }
    state >before
    iofair host diff contracts.toml
    state | cmp - before
    iofair host apply contracts.toml
    state >applied; cat applied
    grep -q '^254:0 rbps=2000000 wbps=max riops=max wiops=500$' $here/backup/io.max
    grep -q '^254:0 200$' $here/backup/io.weight
    grep -q '^254:0 enable=1 ' /sys/fs/cgroup/io.cost.qos
    grep -q '^254:0 .*rbps=200000000 ' /sys/fs/cgroup/io.cost.model
    iofair host apply contracts.toml; state | cmp - applied
    # Six million bytes: 3 s at 2 MB/s.
    begin=$(cut -d. -f1 /proc/uptime)
    within backup dd if=/dev/vda of=/dev/null bs=60000 count=100 iflag=fullblock
    test $(($(cut -d. -f1 /proc/uptime) - begin)) -ge 2
    iofair host status contracts.toml --interval 500ms
    # The controller cuts the others below their own ceiling while a minimum is broken.
    watch_until_cut() {
        iofair host watch contracts.toml & watch=$!
        within db 'dd if=/dev/vda of=/dev/null bs=4k count=60000 iflag=direct' & reader=$!
        within backup 'dd if=/dev/vda of=/dev/null bs=64k count=900 iflag=direct' & other=$!
        tries=0
        while cat $here/backup/io.max; grep -q 'rbps=2000000 ' $here/backup/io.max; do
            tries=$((tries + 1)); test $tries -le 60; sleep 0.5
        done
    }
    watch_until_cut
    kill -TERM $watch; wait $watch
    kill $reader $other || true
    state | cmp - applied
    # A controller that is killed leaves its ceiling, which goes with a revert.
    watch_until_cut
    kill -KILL $watch; wait $watch || true
    kill $reader $other || true
    not grep -q 'rbps=2000000 ' $here/backup/io.max
    iofair host revert
    # The kernel keeps a line for a device that io.cost has seen: off, with its own model.
    state | grep 254:
    state | grep -v 254: | cmp - before
    grep -q '^254:0 enable=0 ' /sys/fs/cgroup/io.cost.qos
    grep -q '^254:0 ctrl=auto ' /sys/fs/cgroup/io.cost.model
";

/// Goal: a kernel with cgroup v2 takes the contracts of groups and enforces them, and has what it had before afterwards.
/// Method: Debian's kernel, a disk of QEMU's, weights by `io.cost`, a ceiling that is measured, the controller with a minimum
/// that is out of reach.
#[test]
#[ignore = "needs guest: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest)"]
fn needs_guest_the_kernel_enforces_contracts_of_groups() {
    let seen = run_with(HOST, HOST_V2, |place| {
        let disk = place.join("disk");
        fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
        format!("-drive file={},if=virtio,format=raw", disk.display())
    });
    println!("{seen}");
}

/// Two random readers, on a disk that is slower than the guest. BFQ waits for longer than by default: a guest whose processors
/// have other work sends its next request late.
const MIX: &str = r#"
title = "Two random readers"
source = "a test"
drive = "plextor-px256m5s"
time = "1500ms"
ramp = "500ms"
stacks = ["prop-bfq", "max-none"]
[policy.bfq]
low_latency = false
slice_idle = "50ms"
[[client]]
name = "light"
job = "randread"
size = "16MiB"
depth = 4
buffered = false
max = { read_iops = 50 }
[[client]]
name = "heavy"
job = "randread"
size = "16MiB"
depth = 4
buffered = false
weight = 300
"#;
/// Weights by `io.cost`.
const COST: &str = r#"
[drive]
back = "/dev/vda"
scheduler = "none"
cost = { model = "rbps=200000000 rseqiops=300 rrandiops=300 wbps=200000000 wseqiops=300 wrandiops=300", qos = "rpct=0.00 rlat=1000000 wpct=0.00 wlat=1000000 min=90.00 max=90.00" }
[[group]]
name = "tenants/heavy"
weight = 300
[[group]]
name = "tenants/light"
weight = 100
"#;
/// A latency that a queue of 32 requests exceeds twenty times.
const LATENCY: &str = r#"
[drive]
back = "/dev/vda"
scheduler = "none"
[[group]]
name = "tenants/heavy"
latency = "5ms"
[[group]]
name = "tenants/light"
"#;

/// What two groups get of that disk: as clients of an experiment, with weights by `io.cost`, with a latency under the
/// controller.
const RATES: &str = r#"
    mkdir -p /run
    mount -t cgroup2 none /sys/fs/cgroup
    cp /sys/fs/cgroup/cgroup.subtree_control before
    within() { # TRIES COMMAND...: repeats the command until it succeeds
        tries=$1; shift
        until "$@"; do tries=$((tries - 1)); test $tries -gt 0; done
    }
    weighed() { # Whether the weights had their effect under bfq: an emulated processor may send each next request too late.
        iofair-lab run --on linux --target /dev/vda /mix.toml --json --quiet >mix.json
        set -- $(tr ',{}' '\n' <mix.json | sed -n 's/^ *"iops": *\([0-9]*\).*/\1/p')
        echo "IOPS $*"
        test $(($3 * 10)) -gt $(($2 * 14)) # of the first run: the total, the light one, the heavy one
    }
    within 5 weighed
    cmp before /sys/fs/cgroup/cgroup.subtree_control
    grep -q '\[none\]' /sys/block/vda/queue/scheduler
    echo "MIX $(tr -d '\n' <mix.json)"
    here=/sys/fs/cgroup/tenants
    mkdir -p $here/heavy $here/light
    readers=
    reader() { # GROUP ARGUMENT...
        sh -c 'echo $$ >$0/cgroup.procs; exec fio --filename=/dev/vda --rw=randread --size=16m --direct=1 \
            --time_based --runtime=90 --eta=never --output=/dev/null "$@"' $here/$1 --name=$* & readers="$readers $!"
    }
    iops() { # GROUP TIME
        iofair host status /latency.toml --interval $2 --metrics | sed -n "s/^iofair_host_iops{group=.tenants.$1.} \([0-9]*\).*/\1/p"
    }
    reader heavy --ioengine=psync --bs=4k --numjobs=4
    reader light --ioengine=libaio --bs=64k --iodepth=32
    # Weights of io.cost.
    iofair host apply /cost.toml
    for group in heavy light; do
        busy() { test $(iops $group 500ms) -gt 40; }
        within 30 busy
    done
    echo "COST $(iofair host status /cost.toml --interval 2s --json | tr -d '\n')"
    iofair host revert
    # A latency that the kernel does not know, and the controller keeps.
    iofair host apply /latency.toml | tee said.txt
    if test -e $here/heavy/io.latency; then grep -q '^254:0 target=5000$' $here/heavy/io.latency
    else grep -q '^this kernel does not have: .*/tenants/heavy/io.latency .254:0.$' said.txt; fi
    without=$(iops heavy 1s)
    iofair host watch /latency.toml --quiet & watch=$!
    cut() {
        with=$(iops heavy 1s)
        echo "LATENCY $without $with"
        test $with -gt $((without * 2)) && grep '^254:0 rbps=[0-9]' $here/light/io.max
    }
    within 20 cut
    kill -TERM $watch; wait $watch
    not grep -q . $here/light/io.max
    kill $readers; wait $readers || true
    iofair host revert
    cmp before /sys/fs/cgroup/cgroup.subtree_control
"#;

/// The JSON behind a word that the guest said.
fn json_after(seen: &str, word: &str) -> serde_json::Value {
    let line = seen.lines().find_map(|line| line.strip_prefix(word));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{word}?\n{seen}"))).unwrap()
}

/// Runs all of it under this kernel.
fn shares_and_limits(kernel: Kernel) {
    let place = Directory::new();
    let root = place.0.join("root");
    fs::create_dir_all(root.join("tmp")).unwrap();
    let fio = Command::new("sh").args(["-c", "command -v fio"]).output().unwrap();
    let fio = String::from_utf8(fio.stdout).unwrap();
    let iofair = Path::new(env!("CARGO_BIN_EXE_iofair"));
    for program in [iofair, &iofair.with_file_name("iofair-lab"), Path::new(fio.trim())] {
        machine::bring(&place.0, program);
    }
    for (name, text) in [("mix", MIX), ("cost", COST), ("latency", LATENCY), ("contracts", "")] {
        fs::write(root.join(format!("{name}.toml")), text).unwrap();
    }
    let disk = place.0.join("disk");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    // With one thread for both processors bfq's shares were equal, presumably since the readers pause for longer than it waits.
    let arguments = format!(
        "-machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 1G \
         -drive file={},if=virtio,format=raw,throttling.iops-total=300",
        disk.display()
    );
    let arguments = arguments.split_whitespace().map(String::from).collect();
    let script = format!("{BEGIN}{RATES}");
    let seen = Machine::boot_kernel(kernel, &place.0, arguments, &script).passes();
    let mix = json_after(&seen, "MIX ");
    let iops = |run: usize, client: usize| mix["runs"][run]["clients"][client]["iops"].as_f64();
    let iops = |run: usize| [0, 1].map(|client| iops(run, client).unwrap());
    let [bfq, max] = [0, 1].map(iops);
    let cost = json_after(&seen, "COST ");
    let cost = [1, 0].map(|group| cost[group]["iops"].as_f64().unwrap());
    println!(
        "{kernel:?}: IOPS, light and heavy: bfq {bfq:.0?}, io.max {max:.0?}, io.cost {cost:.0?}"
    );
    let counts = |line: &&str| line.starts_with("LATENCY ") || line.contains(" rbps=");
    for line in seen.lines().filter(counts) {
        println!("{kernel:?}: {line}");
    }
    let ratio = |[light, heavy]: [f64; 2]| heavy / light;
    assert!((1.3..6.0).contains(&ratio(bfq)), "{bfq:?}");
    assert!((1.3..6.0).contains(&ratio(cost)), "{cost:?}");
    assert!((20.0..75.0).contains(&max[0]) && max[1] > 2.0 * max[0], "{max:?}");
}

/// Goal: what `iofair-lab run --on linux` and `iofair host` set has its effect on other kernels than this machine's, with cgroup
/// v2. Method: Debian 13's kernel, a disk of 300 requests a second; two random readers with the weights 100 and 300
/// under bfq and `io.cost`, one of them with a ceiling of 50 requests a second, and a latency target that the controller keeps by
/// limiting the other one: it must at least double the rate.
#[test]
#[ignore = "needs guest, clients and time: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest), fio; half a minute"]
fn needs_time_needs_guest_needs_clients_linux_6_12_shares_and_limits() {
    shares_and_limits(Kernel::Trixie);
}

/// Goal: the same on an older kernel. Method: Debian 12's.
#[test]
#[ignore = "needs guest, clients and time: qemu-system-x86_64, busybox, strip, target/guest (scripts/guest), fio; half a minute"]
fn needs_time_needs_guest_needs_clients_linux_6_1_shares_and_limits() {
    shares_and_limits(Kernel::Bookworm);
}
