//! libiofair inside software that we did not write: nbdkit serves a file through our plugin to fio and nbdcopy.
#![allow(clippy::unwrap_used)]

mod rig;

use std::fs;
use std::process::Command;

use iofair_testkit::judged::judged;
use rig::{Installed, run, text};

const PLUGIN: &str = "nbdkit/iofair.c";
const SHARED: [&str; 2] = ["-shared", "-fPIC"];
const KIB: u64 = 1024;

/// A contract file with these groups.
fn contracts(library: &Installed, groups: &[(&str, &str)]) -> String {
    let head = "[drive]\nback = \"memory:1GiB\"\n".to_string();
    let text = groups.iter().fold(head, |text, (name, contract)| {
        format!("{text}[[group]]\nname = \"{name}\"\n{contract}\n")
    });
    let path = library.0.path("contracts.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Bytes that are not the same twice, with a hole.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    let hole = bytes / 3..bytes / 2;
    (0..bytes).map(|place| if hole.contains(&place) { 0 } else { next() }).collect()
}

/// nbdkit with the plugin, while a script runs that knows the socket as $unixsocket; what the script printed. `wrapper`: what runs nbdkit.
fn serve(library: &Installed, wrapper: &[&str], options: &[&str], script: &str) -> String {
    let words = wrapper.iter().chain(&["nbdkit", "-f", "-U", "-"]).chain(options).copied();
    let words: Vec<&str> = words.collect();
    let mut server = library.command(words[0]);
    let script = format!("set -e; unset LD_PRELOAD LD_LIBRARY_PATH; {script}");
    server.args(&words[1..]).args(["--run", &script]).current_dir(&library.0.0);
    let output = server.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    // Here valgrind and sanitizers would speak.
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(is_only_nbdkits_own(&said), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether nothing was said but that nbdkit's own program allocated what it did not free: it ends while the thread of its last
/// connection may still run.
fn is_only_nbdkits_own(said: &str) -> bool {
    let mut leaks = said.split("Direct leak of ");
    let rest =
        leaks.next().is_none_or(|head| head.is_empty() || head.contains("detected memory leaks"));
    let frame = |leak: &str| {
        leak.lines().find(|line| line.trim_start().starts_with("#1 ")).map(str::to_string)
    };
    rest && leaks.all(|leak| frame(leak).is_some_and(|line| line.contains("/nbdkit+")))
        && !said.contains("runtime error")
        && (said.is_empty() || said.contains("LeakSanitizer"))
}

/// Goal: what the plugin or the library leaks is not taken for nbdkit's own. Method: reports of each kind.
#[test]
fn only_nbdkits_own_leaks_are_tolerated() {
    let report = |frame: &str| {
        format!(
            "\n==1==ERROR: LeakSanitizer: detected memory leaks\n\nDirect leak of 280 byte(s):\n    #0 0x1 in malloc\n    #1 0x2 {frame}\n"
        )
    };
    let own = report(" (/usr/bin/nbdkit+0x9800)");
    let plugin = report("in open_ iofair.c:10 (/tmp/checked.so+0x10)");
    assert!(is_only_nbdkits_own("") && is_only_nbdkits_own(&own));
    for bad in [
        plugin.clone(),
        own.clone() + &plugin,
        "==1== Invalid read of size 8".into(),
        own + "x.c:1: runtime error: y",
    ] {
        assert!(!is_only_nbdkits_own(&bad), "{bad}");
    }
}

fn fio(group: &str, more: &str) -> String {
    format!(
        "fio --name={group} --ioengine=nbd --uri=\"nbd+unix:///{group}?socket=$unixsocket\" \
         --output-format=terse --terse-version=3 {more}"
    )
}

/// What fio read, in KiB and in ms, of the job of this name.
fn read_by(output: &str, group: &str) -> (u64, u64) {
    let of_group = |line: &&str| line.starts_with("3;") && line.split(';').nth(2) == Some(group);
    let line = output.lines().find(of_group).unwrap_or_else(|| panic!("{group}: {output}"));
    let field = |number: usize| line.split(';').nth(number).unwrap().parse::<u64>().unwrap();
    (field(5), field(8))
}

/// Clients of two groups: writes that are verified, with flushes; trims; a copy of a file with holes there and back.
fn integrity(library: &Installed, kib: u64) -> String {
    fs::write(library.0.path("original"), content((kib * KIB) as usize)).unwrap();
    let file = fs::File::create(library.0.path("disk")).unwrap();
    file.set_len(kib * KIB).unwrap();
    let verified = fio(
        "alice",
        &format!("--rw=randrw --bs=1k-24k --iodepth=8 --size={kib}k --verify=crc32c --fsync=16"),
    );
    let trims = fio("bob", &format!("--rw=randtrim --bs=8k --iodepth=8 --size={kib}k"));
    let bob = "\"nbd+unix:///bob?socket=$unixsocket\"";
    format!("{verified} >/dev/null; {trims} >/dev/null; nbdcopy original {bob}; nbdcopy {bob} copy")
}

fn integrity_was_kept(library: &Installed) {
    let read = |name: &str| fs::read(library.0.path(name)).unwrap();
    assert!(read("copy") == read("original"), "the copy differs");
    assert!(read("disk") == read("original"), "the file differs");
}

const TWO: [(&str, &str); 2] =
    [("alice", "min = \"4MB/s\"\nclass = \"realtime\""), ("bob", "max = \"500MB/s\"")];

/// Goal: all clients read what they write: in parallel, unaligned, with flushes, FUA, trims and
/// zeroes. Method: fio's own verification, nbdcopy there and back; every write durable in a second run.
#[test]
#[ignore = "needs nbdkit: the server, its headers, fio, nbdcopy"]
fn needs_nbdkit_data_survive() {
    let library = Installed::new();
    library.compile(PLUGIN, "nbdkit-iofair-plugin.so", &SHARED);
    let contracts = format!("contracts={}", contracts(&library, &TWO));
    for more in [&["--filter=fua", "fuamode=pass"], &["--filter=fua", "fuamode=force"]] {
        let plugin = ["./nbdkit-iofair-plugin.so", "file=disk", &contracts];
        let options = [&more[..1], &plugin[..], &more[1..]].concat();
        let script = integrity(&library, 6001);
        serve(&library, &[], &options, &script);
        integrity_was_kept(&library);
    }
}

/// Goal: a ceiling holds, and a minimum gives a client of small weight its share. Method: three clients at once on a
/// drive that takes a millisecond a command, with and without the minimum. Only shares are compared: how fast the drive is depends on the
/// machine.
#[test]
#[ignore = "needs nbdkit: the server, its headers, fio, nbdcopy"]
fn needs_nbdkit_real_time_contracts_are_kept() {
    let library = Installed::new();
    library.compile(PLUGIN, "nbdkit-iofair-plugin.so", &SHARED);
    fs::File::create(library.0.path("disk")).unwrap().set_len(64 << 20).unwrap();
    let share = |min: &str| {
        let groups =
            [("alice", min), ("bob", "weight = 1000"), ("carol", "max = { read = \"1MB/s\" }")];
        let contracts = format!("contracts={}", contracts(&library, &groups));
        let options =
            ["./nbdkit-iofair-plugin.so", "file=disk", &contracts, "depth=1", "delay-us=1000"];
        let load = "--rw=randread --bs=16k --size=64m --time_based --runtime=4";
        let clients = [("alice", 4), ("bob", 16), ("carol", 4)].map(|(group, depth)| {
            let job = fio(group, &format!("{load} --iodepth={depth}"));
            format!("{job} >{group}.out & {group}=$!")
        });
        let script = format!(
            "{}; wait $alice; wait $bob; wait $carol; cat alice.out bob.out carol.out",
            clients.join("; ")
        );
        let output = serve(&library, &[], &options, &script);
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|group| read_by(&output, group));
        // One request more than the rate allows may be under way.
        let (allowed_kib, slack_kib) = (1_000_000 * carol.1 / 1000 / KIB, 4 * 16);
        assert!(carol.0 <= allowed_kib + slack_kib, "carol got {} of {allowed_kib} KiB", carol.0);
        println!("{min}: alice {} KiB, bob {} KiB, carol {} KiB", alice.0, bob.0, carol.0);
        assert!(bob.0 > 0 && carol.0 > 0);
        100 * alice.0 / (alice.0 + bob.0)
    };
    judged("a minimum is kept", || {
        let (with, without) = (share("weight = 1\nmin = \"4MB/s\""), share("weight = 1"));
        let found = format!("{with} % with a minimum, {without} % without");
        (with >= 15 && without <= with / 2).then_some(()).ok_or(found)
    });
}

/// Goal: no error of memory in plugin or library, no leak. Method: the load of the first test, smaller, under valgrind and
/// AddressSanitizer.
#[test]
#[ignore = "needs nbdkit: the server, its headers, fio, nbdcopy"]
fn needs_nbdkit_memory_is_clean() {
    let library = Installed::new();
    library.compile(PLUGIN, "plain.so", &SHARED);
    library.compile(
        PLUGIN,
        "checked.so",
        &[&SHARED[..], &["-fsanitize=address,undefined"]].concat(),
    );
    let contracts = format!("contracts={}", contracts(&library, &TWO));
    let preloaded = run(Command::new("cc").arg("-print-file-name=libasan.so"));
    let preloaded = format!("LD_PRELOAD={}", preloaded.trim());
    let valgrind = ["valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    let sanitizers = ["env", &preloaded, "UBSAN_OPTIONS=print_stacktrace=1"];
    for (wrapper, plugin) in [(&valgrind[..], "./plain.so"), (&sanitizers[..], "./checked.so")] {
        let script = integrity(&library, 2001);
        serve(&library, wrapper, &[plugin, "file=disk", &contracts], &script);
        integrity_was_kept(&library);
    }
}

/// Goal: exports are named after groups: all are listed, others are refused; so are invalid contracts, with the library's message.
/// Method: list, ask for another, and start with a bad file.
#[test]
#[ignore = "needs nbdkit: the server, its headers, fio, nbdcopy"]
fn needs_nbdkit_strangers_are_refused() {
    let library = Installed::new();
    library.compile(PLUGIN, "nbdkit-iofair-plugin.so", &SHARED);
    fs::write(library.0.path("disk"), content(4096)).unwrap();
    let said = |groups: &[(&str, &str)], run: &str| {
        let contracts = format!("contracts={}", contracts(&library, groups));
        let mut server = library.command("nbdkit");
        server.args(["-f", "-U", "-", "./nbdkit-iofair-plugin.so", "file=disk", &contracts]);
        let output = server.args(["--run", run]).current_dir(&library.0.0).output().unwrap();
        assert!(!output.status.success());
        text(&output)
    };
    let plugin = ["./nbdkit-iofair-plugin.so", "file=disk"];
    let listed = format!("contracts={}", contracts(&library, &TWO));
    let list = "nbdinfo --list \"nbd+unix://?socket=$unixsocket\" | grep ^export=";
    let exports = serve(&library, &[], &[&plugin[..], &[&listed]].concat(), list);
    assert_eq!(exports, "export=\"alice\":\nexport=\"bob\":\n");
    let stranger = said(&TWO, "nbdinfo \"nbd+unix:///eve?socket=$unixsocket\"");
    assert!(stranger.contains("there is no group \"eve\""), "{stranger}");
    let bad = said(&[("alice", "wieght = 3")], "true");
    assert!(bad.contains("contracts:5:1: unknown key `wieght`"), "{bad}");
}
