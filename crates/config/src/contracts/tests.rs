//! One bad file a rule: the line that is blamed and the words that say what is allowed.

mod errors;

use std::path::PathBuf;

use super::*;
use iofair_core::contract::{Burst, Contract, Latency, Limits, Total};
use iofair_core::priority::Class;
use iofair_core::time::Nanos;

const GOOD: &str = r#"
[drive]
back = "memory:1GiB"
stack = "lat+max+prop-bfq"
worst_case = "160MB/s"

[listen]
unix = "pool.sock"
tcp = "127.0.0.1:10809"
insecure = true
[[group]]
name = "tenants/alice"
min = "10MB/s"
weight = 300
max = { read = "50MB/s", write = "40MB/s", read_iops = 5000, total = "30MB/s", burst = "1MiB" }
latency = "2ms"
class = "realtime"

[[group]]
name = "batch"
max = "15MB/s"

[[volume]]
name = "alice-root"
group = "tenants/alice"
size = "512MiB"
ublk = true

[[volume]]
name = "scratch"
group = "batch"
size = "512MiB"
read_only = true
vhost = "scratch.sock"
ublk = 3
"#;

/// With the policies of the laboratory, whose throttles enforce other keys.
fn parse(path: &str, text: &str) -> Result<Contracts, ConfigError> {
    Contracts::parse_with(&iofair_baselines::TABLE, path, text)
}

/// Goal: a good file means what it says. Method: every key once.
#[test]
fn a_good_file_is_read() {
    let contracts = parse("good.toml", GOOD).expect("a good file");
    assert_eq!(contracts.drive.back, Back::Memory(1 << 30));
    assert_eq!(contracts.drive.stack.name(), "lat+max+prop-bfq");
    assert_eq!(contracts.drive.worst_case, Some(160_000_000));
    assert_eq!(contracts.listen.unix, Some(PathBuf::from("pool.sock")));
    let alice = &contracts.groups[0].contract;
    assert_eq!((alice.min, alice.weight), (Some(10_000_000), 300));
    assert_eq!(alice.max.bytes_per_s, [Some(50_000_000), Some(40_000_000)]);
    assert_eq!(alice.max.iops, [Some(5000), None]);
    assert_eq!(alice.max.total, Total { bytes_per_s: Some(30_000_000), iops: None });
    assert_eq!(alice.max.burst, Burst { bytes: Some(1 << 20), requests: None });
    assert_eq!(
        (alice.latency, alice.class),
        (Latency::of_reads(Nanos::from_millis(2)), Class::RealTime)
    );
    assert_eq!(contracts.groups[1].contract.max, Limits::both(15_000_000));
    assert!(contracts.volumes[1].read_only && !contracts.volumes[0].read_only);
    assert_eq!(contracts.volumes[0].size_bytes, 512 << 20);
    let vhost = contracts.volumes.iter().map(|volume| volume.vhost.clone()).collect::<Vec<_>>();
    assert_eq!(vhost, [None, Some(PathBuf::from("scratch.sock"))]);
    let ublk = contracts.volumes.iter().map(|volume| volume.ublk.as_ref().unwrap().number);
    assert_eq!(ublk.collect::<Vec<_>>(), [None, Some(3)]);
    let told = contracts.ublk_error(&contracts.volumes[1], "no").to_string();
    assert!(told.starts_with("good.toml:35:"), "{told}");
}

/// Goal: a file without a stack has the one that keeps minimums, and its policy can be given parameters. Method: the good file
/// without that line, and a parameter that there is not.
#[test]
fn a_file_without_a_stack_keeps_minimums() {
    let file = GOOD.replace("stack = \"lat+max+prop-bfq\"\n", "");
    assert_ne!(file, GOOD);
    let contracts = parse("good.toml", &file).expect("the stack may be left out");
    assert_eq!(contracts.drive.stack.name(), "promise");
    let file = format!("{file}\n[drive.policy.bfq]\nslice_idle = \"4ms\"\n");
    let error = parse("good.toml", &file).expect_err("no such policy in it");
    assert!(error.to_string().contains("\"promise\" has no policy `bfq`"), "{error}");
}

/// Goal: on a server no client's weight is raised above its contract unless the file asks for it; the lab has the policies as they
/// were published. Method: bfq as it is, as a file asks for it, and as the lab has it.
#[test]
fn weights_are_raised_only_if_asked_for() {
    let raises = |more: &str| {
        let file = format!("[drive]\nback = 'memory:1GiB'\nstack = 'prop-bfq'\n{more}");
        let contracts = parse("bfq.toml", &file).expect("a good file");
        contracts.drive.stack.scheduler.values.bool("low_latency")
    };
    assert!(!raises(""));
    assert!(raises("policy.bfq.low_latency = true"));
    let published = iofair_policies::TABLE.stack("prop-bfq").expect("a stack");
    assert!(published.scheduler.values.bool("low_latency"));
}

/// Every back end that may be written.
#[test]
fn back_ends_are_read() {
    let back = |text: &str| {
        let file = format!("[drive]\nback = \"{text}\"\nstack = \"none-none\"");
        parse("back.toml", &file).expect("a good back end").drive.back
    };
    let (profile, file) = ("plextor-px256m5s:b".to_string(), None);
    assert_eq!(back("emulated:plextor-px256m5s:b"), Back::Emulated { profile, file });
    assert_eq!(back("file:pool.img"), Back::File("pool.img".into()));
    assert_eq!(back("/dev/nvme0n1"), Back::File("/dev/nvme0n1".into()));
    assert_eq!(back("faulty:file:pool.img"), Back::File("pool.img".into()));
    assert_eq!(back("directory:/srv/pool"), Back::Directory("/srv/pool".into()));
}

/// Goal: whether a drive is rotational can be stated where the server would have to find out. Method: each kind of back end.
#[test]
fn rotational_is_for_files_and_devices() {
    let read = |back: &str, key: &str| {
        let text = format!("[drive]\nback = '{back}'\nstack = 'none-none'\n{key}");
        parse("a.toml", &text).map(|contracts| contracts.drive.rotational)
    };
    for back in ["file:p.img", "/dev/nvme0n1", "directory:/srv/pool", "faulty:file:p.img"] {
        assert_eq!(read(back, "rotational = false"), Ok(Some(false)), "{back}");
        assert_eq!(read(back, ""), Ok(None), "{back}");
    }
    for back in ["memory:1GiB", "emulated:plextor-px256m5s"] {
        let error = read(back, "rotational = true").expect_err(back).to_string();
        assert!(error.contains("`rotational` for files and devices"), "{error}");
    }
}

/// Goal: every path is relative to the file's directory. Method: a file elsewhere with each key that names one.
#[test]
fn paths_are_relative_to_the_file() {
    let read = |back: &str| {
        let text = format!(
            "[drive]\nback = '{back}'\n[listen]\nunix = 'pool.sock'\n\
             tls = {{ certificate = 'a.pem', key = '/k.pem', clients = 'ca.pem' }}\n\
             [control]\nunix = 'c.sock'\naudit = 'audit'\n[metrics]\nunix = 'm.sock'\n\
             [[group]]\nname = 'g'\n\
             [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\nvhost = 'v.sock'\n\
             [fuse]\nmount = 'mnt'\n"
        );
        parse("/etc/iofair/c.toml", &text).unwrap_or_else(|error| panic!("{error}"))
    };
    let found = read("directory:pool");
    let own = |path: &str| Some(PathBuf::from("/etc/iofair").join(path));
    assert_eq!(found.drive.back, Back::Directory("/etc/iofair/pool".into()));
    assert_eq!((&found.listen.unix, &found.mount), (&own("pool.sock"), &own("mnt")));
    assert_eq!((&found.control.unix, &found.control.audit), (&own("c.sock"), &own("audit")));
    assert_eq!((&found.metrics.unix, &found.volumes[0].vhost), (&own("m.sock"), &own("v.sock")));
    let tls = found.listen.tls.expect("it was written");
    assert_eq!((Some(tls.certificate), tls.clients), (own("a.pem"), own("ca.pem")));
    assert_eq!(tls.key, PathBuf::from("/k.pem"));
    assert_eq!(read("faulty:file:p.img").drive.back, Back::File("/etc/iofair/p.img".into()));
    for (back, profile, file) in [
        ("emulated:x:b@p", "x:b", own("p")),
        ("emulated:x:b", "x:b", None),
        ("emulated:d.toml@p", "/etc/iofair/d.toml", own("p")),
        ("emulated:d.toml:b", "/etc/iofair/d.toml:b", None),
        ("emulated:/srv/d.toml", "/srv/d.toml", None),
    ] {
        let profile = profile.to_string();
        assert_eq!(read(back).drive.back, Back::Emulated { profile, file }, "{back}");
    }
}

/// Goal: low limits are read in all their forms, stand back for nothing but themselves, and bad ones are
/// refused. Method: one group a form.
#[test]
fn low_limits_are_read() {
    let group = |keys: &str| {
        let file =
            "[drive]\nback = \"memory:1GiB\"\nstack = \"none-none\"\n[[group]]\nname = \"a\"\n";
        let source = Source::new("low.toml", &format!("{file}{keys}"));
        // No stack of this table enforces them, which is another matter.
        let (contracts, _) = check::contracts(source, &iofair_policies::TABLE)?;
        Ok::<_, ConfigError>(contracts.groups[0].contract.clone())
    };
    let minimum = group("min = \"10MB/s\"").expect("a minimum");
    assert_eq!(minimum.low_limits(), Limits::both(10_000_000), "without low limits the minimum");
    assert!(minimum.min_iops.is_none());
    let both = group("min = \"10MB/s\"\nlow = \"5MB/s\"").expect("one rate");
    assert_eq!(both.low_limits(), Limits::both(5_000_000));
    let table = r#"low = { read = "20MB/s", write_iops = 30, latency = "200us", idle = "3ms" }"#;
    let table = group(table).expect("a table");
    assert_eq!(table.low_limits().bytes_per_s, [Some(20_000_000), None]);
    assert_eq!(table.low_limits().iops, [None, Some(30)]);
    let thresholds = [200, 3000].map(|us| Some(Nanos::from_micros(us)));
    assert_eq!([table.low.latency, table.low.idle], thresholds);
    for (keys, allowed) in [
        ("low = {}", "or a min beside it"),
        ("low = \"5\"", "read_iops"),
        ("low = { read_iops = 0 }", "more than 0"),
        ("low = { read_iops = 1, idle = \"0ms\" }", "more than 0us"),
    ] {
        let error = group(keys).expect_err(keys);
        assert_eq!(error.line(), 6, "{error}");
        assert!(error.allowed.as_deref().unwrap_or_default().contains(allowed), "{error}");
    }
}

const COUNTS: &str = "a whole number such as 300, at most 9223372036854775807";

/// A line of `GOOD` replaced by a bad one; the line number blamed (0: that of the replaced line), words
/// of the message, words of what is allowed.
struct Bad(&'static str, &'static str, usize, &'static str, &'static str);

const BAD: &[Bad] = &[
    Bad("weight = 300", "weight = 5000", 0, "weight 5000", "1 to 1000"),
    Bad("weight = 300", "weight = -1", 0, "weight -1", "1 to 1000"),
    Bad(
        "weight = 300",
        "weigth = 300",
        0,
        "unknown key `weigth`",
        "name, min, min_iops, alone, weight",
    ),
    Bad("weight = 300", "weight = \"300\"", 0, "string \"300\"", "a whole number such as 300"),
    Bad("min = \"10MB/s\"", "min = \"10MB\"", 0, "\"10MB\"", "followed by /s"),
    Bad("min = \"10MB/s\"", "min = \"0B/s\"", 0, "guarantee of nothing", "no min"),
    Bad("weight = 300", "alone = \"0B/s\"", 0, "rate of nothing", "more than 0B/s"),
    Bad("weight = 300", "alone = \"9MB/s\"", 0, "min 10.00 MB/s is more", "least 10.00 MB/s"),
    Bad("max = \"15MB/s\"", "alone = \"9MB/s\"", 0, "there is none", "a min beside it"),
    Bad("weight = 300", "min_iops = 9223372036854775808", 0, "`9223372036854775808`", COUNTS),
    Bad("max = \"15MB/s\"", "max = { read_iops = 1e3 }", 0, "floating point", COUNTS),
    Bad("max = \"15MB/s\"", "max = { burst_requests = -1 }", 0, "integer `-1`", COUNTS),
    Bad("min = \"10MB/s\"", "min_iops = 0", 0, "guarantee of 0", "1 or more"),
    Bad("min = \"10MB/s\"", "min_iops = 9", 0, "does not enforce `min_iops`", "promise"),
    Bad("min = \"10MB/s\"", "min = 10", 0, "integer `10`", "10MB/s"),
    Bad("min = \"10MB/s\"", "min = \"45MB/s\"", 15, "max 30.00 MB/s is below", "45.00 MB/s"),
    Bad("max = \"15MB/s\"", "max = \"15\"", 0, "\"15\"", "read_iops"),
    Bad("max = \"15MB/s\"", "max = 15", 0, "integer `15`", "read_iops"),
    Bad("max = \"15MB/s\"", "max = {}", 0, "no limit", "read_iops"),
    Bad("max = \"15MB/s\"", "max = { read = \"0B/s\" }", 0, "ceiling of 0", "more than 0"),
    Bad("max = \"15MB/s\"", "max = { reed = \"1B/s\" }", 0, "`reed`", "read, write"),
    Bad("max = \"15MB/s\"", "max = { total = \"0B/s\" }", 0, "ceiling of 0", "more than 0"),
    Bad("max = \"15MB/s\"", "max = { total = 5 }", 0, "integer `5`", "10MB/s"),
    Bad("max = \"15MB/s\"", "max = { total_iops = \"5\" }", 0, "string \"5\"", "number such as"),
    Bad("max = \"15MB/s\"", "max = { burst = \"1MB\" }", 0, "there is none", "write or total"),
    Bad(
        "max = \"15MB/s\"",
        "max = { read = \"1MB/s\", burst = \"1MB/s\" }",
        0,
        "\"1MB/s\"",
        "a size such as",
    ),
    Bad(
        "max = \"15MB/s\"",
        "max = { total = \"1MB/s\", burst_requests = 1 }",
        0,
        "requests a second, and there is none",
        "total_iops beside it",
    ),
    Bad(
        "max = \"15MB/s\"",
        "max = { total_iops = 9, burst_requests = 0 }",
        0,
        "burst of nothing",
        "spaces requests evenly",
    ),
    Bad(
        "latency = \"2ms\"",
        "latency = \"2\"",
        0,
        "\"2\"",
        "\"2ms\", or a table { read, write, sync }",
    ),
    Bad("latency = \"2ms\"", "latency = {}", 0, "no latency in it", "read, write, sync"),
    Bad("latency = \"2ms\"", "latency = { sync = \"0ms\" }", 0, "latency of nothing", "more than"),
    Bad("latency = \"2ms\"", "latency = \"0s\"", 0, "latency of nothing", "more than"),
    Bad("class = \"realtime\"", "class = \"real\"", 0, "`real`", "realtime, best-effort, idle"),
    Bad("name = \"batch\"", "name = \"tenants/alice\"", 0, "in line 12", "one [[group]]"),
    Bad("name = \"batch\"", "name = \"a//b\"", 0, "not a valid group name", "single slashes"),
    Bad("name = \"batch\"", "name = \"a/../b\"", 0, "not a valid group name", "a word has letters"),
    Bad(
        "name = \"batch\"",
        "name = \"-rf\"",
        0,
        "not a valid group name",
        "beginning with a letter",
    ),
    Bad("name = \"batch\"", "name = \"a\\u202eb\"", 0, "\"a\\u{202e}b\" is not", "255 bytes"),
    Bad("name = \"batch\"", "", 19, "`name` is missing", ""),
    Bad("group = \"batch\"", "group = \"bath\"", 0, "no group \"bath\"", "tenants/alice, batch"),
    Bad("name = \"scratch\"", "name = \"alice-root\"", 0, "in line 24", "one [[volume]]"),
    Bad("name = \"scratch\"", "name = \"a b\"", 0, "not a valid volume name", "letters"),
    Bad("name = \"scratch\"", "name = \"..\"", 0, "not a valid volume name", "beginning with"),
    Bad("name = \"scratch\"", "name = \"-rf\"", 0, "not a valid volume name", "1 to 255"),
    Bad("size = \"512MiB\"", "size = \"1000B\"", 0, "whole sectors", "multiple of 512"),
    Bad(
        "size = \"512MiB\"",
        "size = \"2GiB\"",
        24,
        "needs 2 GiB, but the drive has 1 GiB",
        "1073741824B",
    ),
    Bad(
        "stack = \"lat+max+prop-bfq\"",
        "stack = \"none\"",
        0,
        "there is no stack",
        "POLICY-SCHEDULER",
    ),
    Bad(
        "stack = \"lat+max+prop-bfq\"",
        "stack = \"mux-none\"",
        0,
        "no policy \"mux\"",
        "none, prop",
    ),
    Bad(
        "stack = \"lat+max+prop-bfq\"",
        "stack = \"none-nine\"",
        0,
        "no scheduler \"nine\"",
        "none",
    ),
    Bad("stack = \"lat+max+prop-bfq\"", "stack = \"prop-none\"", 0, "cannot share", "none"),
    Bad("back = \"memory:1GiB\"", "back = \"ram:1GiB\"", 0, "no back end", "memory:SIZE"),
    Bad("back = \"memory:1GiB\"", "back = \"memory:big\"", 0, "\"big\"", "4KiB"),
    Bad("back = \"memory:1GiB\"", "back = \"memory:1B\"", 0, "less than a sector", "memory:"),
    Bad("back = \"memory:1GiB\"", "back = \"emulated:\"", 0, "names nothing", "emulated:PROFILE"),
    Bad("back = \"memory:1GiB\"", "back = \"directory:\"", 0, "names nothing", "directory:PATH"),
    Bad("read_only = true", "path = \"/dev/sdb1\"", 0, "of its own", "directory"),
    Bad("worst_case = \"160MB/s\"", "worst_case = \"0B/s\"", 0, "worst case", "more than 0"),
    Bad("worst_case = \"160MB/s\"", "timeout = \"0s\"", 0, "no time", "more than 0ms"),
    Bad("worst_case = \"160MB/s\"", "policy.mux.x = 1", 0, "no policy `mux`", "bfq"),
    Bad("worst_case = \"160MB/s\"", "policy.bfq.x = 1", 0, "no parameter `x`", "slice_idle"),
    Bad("tcp = \"127.0.0.1:10809\"", "tcp = \"localhost\"", 0, "is not an address", "IP:PORT"),
    Bad(
        "tcp = \"127.0.0.1:10809\"",
        "tcp = \"::1:10809\"",
        0,
        "brackets, \"[::1]:10809\"",
        "[::1]",
    ),
    Bad("[listen]", "[fuse]\nmount = \"\"\n[listen]", 8, "empty path", "a directory"),
    Bad("unix = \"pool.sock\"", "unix = \"\"", 0, "empty path", "socket"),
    Bad("vhost = \"scratch.sock\"", "vhost = \"\"", 0, "empty path", "socket"),
    Bad("vhost = \"scratch.sock\"", "vhost = \"pool.sock\"", 0, "in line 8 too", "one path"),
    Bad("ublk = 3", "ublk = -1", 0, "no /dev/ublkb-1", "true for any number, or 0 to 1048575"),
    Bad("ublk = 3", "ublk = 1048576", 0, "no /dev/ublkb1048576", "0 to 1048575"),
    Bad("ublk = true", "ublk = 3", 35, "\"alice-root\" is this block device", "one volume"),
];

/// Goal: a latency is one time for reads, or a table, which only `promise` keeps. Method: both, and stacks that keep nothing or only
/// reads.
#[test]
fn latencies_are_read() {
    let read = |stack: &str, latency: &str| {
        let text = format!(
            "[drive]\nback = 'memory:1GiB'\nstack = '{stack}'\n[listen]\nunix = 's'\n[[group]]\nname = 'a'\nlatency = {latency}\n"
        );
        parse("c.toml", &text).map(|contracts| contracts.groups[0].contract.latency.times())
    };
    let [two, five, twenty] = [2, 5, 20].map(|ms| Some(Nanos::from_millis(ms)));
    assert_eq!(read("promise", "'2ms'").expect("reads"), [two, None, None]);
    let all = "{ read = '2ms', write = '5ms', sync = '20ms' }";
    assert_eq!(read("promise", all).expect("a table"), [two, five, twenty]);
    assert!(read("lat-none", "'2ms'").is_ok());
    let error = read("lat-none", all).expect_err("reads only").message;
    assert!(error.contains("`latency.write`") && error.contains("`latency.sync`"), "{error}");
}

/// Goal: each rule blames the right line and says what is allowed. Method: one bad file a rule.
#[test]
fn bad_files_are_refused_with_line_and_what_is_allowed() {
    for Bad(good, bad, line, message, allowed) in BAD {
        assert!(GOOD.contains(good), "{good}");
        let text = GOOD.replacen(good, bad, 1);
        let error = parse("bad.toml", &text).expect_err(bad);
        let before = GOOD.split(good).next().unwrap_or_default();
        let line = if *line == 0 { before.matches('\n').count() + 1 } else { *line };
        assert_eq!(error.line(), line, "{bad}\n{error}");
        assert!(error.message.contains(message), "{bad}\n{error}");
        assert!(error.allowed.as_deref().unwrap_or_default().contains(allowed), "{bad}\n{error}");
        assert!(error.to_string().starts_with(&format!("bad.toml:{line}:")), "{error}");
    }
}

/// Goal: in a directory a volume may have a path of its own, once, and names must suit a file. Method: one
/// good and three bad files.
#[test]
fn volumes_of_a_directory() {
    let read = |volumes: &str| {
        let text = "[drive]\nback = \"directory:pool\"\nstack = \"none-none\"\npaths = [\"/dev\", \"/srv/\"]\n[[group]]\nname = \"g\"\n";
        parse("directory.toml", &format!("{text}{volumes}"))
    };
    let volume = |name: &str, more: &str| {
        format!("[[volume]]\nname = \"{name}\"\ngroup = \"g\"\nsize = \"1MiB\"\n{more}\n")
    };
    let (own, long) = ("path = \"/dev/sdb1\"", "n".repeat(252));
    let good = read(&(volume("a", "") + &volume("b", own))).expect("a good file");
    assert_eq!((&good.volumes[0].path, &good.volumes[1].path), (&None, &Some("/dev/sdb1".into())));
    read(&volume(&long, own)).expect("no file of this name is made");
    for (bad, message) in [
        (volume("a", own) + &volume("b", own), "another volume has this path"),
        (volume("a", "path = \"\""), "an empty path"),
        (volume("a", "path = \"/etc/shadow\""), "below no directory in `paths`"),
        (volume("a", "path = \"/dev/../etc/shadow\""), "below no directory in `paths`"),
        (volume("a", "path = \"/device\""), "below no directory in `paths`"),
        (volume("a", "path = \"/srv\""), "below no directory in `paths`"),
        (volume("a", "path = \"dev/sdb1\""), "below no directory in `paths`"),
        (volume(&long, ""), "252 bytes as a file name"),
    ] {
        let error = read(&bad).expect_err(message);
        assert!(error.message.contains(message), "{error}");
    }
}

/// Goal: likely slips are recognised. Method: keys, groups, schedulers.
#[test]
fn typing_errors_in_contracts_are_recognised() {
    let slips = [
        ("weight = 300", "weigth = 300", "weight"),
        ("group = \"batch\"", "group = \"bath\"", "batch"),
        ("stack = \"lat+max+prop-bfq\"", "stack = \"none-nome\"", "none"),
    ];
    for (good, bad, meant) in slips {
        let error = parse("bad.toml", &GOOD.replacen(good, bad, 1)).expect_err(bad);
        assert_eq!(error.nearest.as_deref(), Some(meant), "{error}");
    }
    let file = "[drive]\nback = \"memory:1GiB\"\nstack = \"none-none\"\npolicy.none.x = 1\n";
    let error = parse("bad.toml", file).expect_err("no parameters");
    assert_eq!(error.allowed.as_deref(), Some("none: this policy has no parameters"), "{error}");
}

/// Goal: an opened drive that is too small is blamed on the first volume that does not fit.
/// Method: a capacity between the two.
#[test]
fn volumes_must_fit_on_the_drive() {
    let contracts = parse("good.toml", GOOD).expect("a good file");
    contracts.check_capacity(1 << 30).expect("both fit");
    let error = contracts.check_capacity(1 << 29).expect_err("only one fits");
    assert_eq!(error.line(), 30, "{error}");
}

/// Goal: sizes that no drive has together are refused, whatever the drive: sums of places stay far below what 64 bits hold. Method:
/// one volume and two.
#[test]
fn volumes_must_fit_on_some_drive() {
    for (first, second, line) in [("8EiB", "1MiB", 24), ("3EiB", "2EiB", 30), ("3EiB", "1EiB", 0)] {
        let file = GOOD.replace("memory:1GiB", "directory:pool");
        let file = file.replacen("size = \"512MiB\"", &format!("size = \"{first}\""), 1);
        let file = file.replacen("size = \"512MiB\"", &format!("size = \"{second}\""), 1);
        let found = parse("huge.toml", &file).map_or_else(|error| error.line(), |_| 0);
        assert_eq!(found, line, "{first} {second}");
    }
}

/// Goal: weights after admission keep every minimum at every level. Method: a nested set whose
/// parents have no minimum of their own.
#[test]
fn admission_goes_level_by_level() {
    let contracts = parse("good.toml", GOOD).expect("a good file");
    let admitted = contracts.admitted(Some(160_000_000)).expect("10 of 160 MB/s fits");
    let paths: Vec<&str> = admitted.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["batch", "tenants", "tenants/alice"]);
    let weight = |path: &str| {
        let found = admitted.iter().find(|(p, _)| p == path).expect("listed above");
        u64::from(found.1.weight)
    };
    let total = weight("batch") + weight("tenants");
    assert!(weight("tenants") * 160 / total >= 10, "{admitted:?}");
    assert_eq!((weight("batch"), weight("tenants")), (100, 100), "they sufficed as written");
    let tight = contracts.admitted(Some(12_000_000)).expect("10 of 12 MB/s fits");
    let tight: Vec<u64> = tight.iter().map(|(_, c)| u64::from(c.weight)).collect();
    assert!(tight[1] * 12 >= 10 * (tight[0] + tight[1]), "{tight:?}");
    let refusal = contracts.admitted(Some(9_000_000)).expect_err("10 of 9 MB/s does not fit");
    assert!(refusal.to_string().contains("tenants 10.00 MB/s"), "{refusal}");
}

/// Goal: groups that say what they reach alone are counted by time, inside a parent too, and need no worst case.
/// Method: a tree with two of them that fits, one that does not, and the weights of both levels.
#[test]
fn admission_by_time() {
    let read = |second: &str| {
        let text = format!(
            "[drive]\nback = \"file:pool\"\nstack = \"complete\"\n\
             [[group]]\nname = \"t/random\"\nmin = \"10MB/s\"\nalone = \"25MB/s\"\n\
             [[group]]\nname = \"t/order\"\nmin = \"{second}\"\nalone = \"400MB/s\"\n\
             [[group]]\nname = \"batch\"\n"
        );
        parse("time.toml", &text).expect("a good file")
    };
    let contracts = read("90MB/s");
    assert!(contracts.asks_worst_case().is_none(), "both say what they reach alone");
    for worst in [None, Some(160_000_000), Some(1_000_000)] {
        let admitted = contracts.admitted(worst).expect("10/22.5 and 90/360 of the time");
        let weights: Vec<_> = admitted.iter().map(|(path, c)| (path.as_str(), c.weight)).collect();
        let inside = [("t/order", 563), ("t/random", 1000)];
        assert_eq!(weights[2..], inside, "the quarter is 9/16 of four ninths: {weights:?}");
        assert_eq!(weights[..2], [("batch", 440), ("t", 1000)], "25/36 of the time");
    }
    let refusal = read("201MB/s").admitted(None).expect_err("4/9 and 5/9 leave nothing");
    assert!(refusal.to_string().contains("too much (t "), "{refusal}");
    let mut unknown = read("90MB/s");
    unknown.groups[1].contract.alone = None;
    assert_eq!(unknown.asks_worst_case().map(|group| group.name.as_str()), Some("t/order"));
}

/// Goal: who is promised something inside a group takes it from nobody who has a part: neither from its own
/// siblings, as long as the group gets more than it promised inside, nor from the group's. Method: the share of each
/// at the drive's worst, with room to spare and with less; a group that promises more than it has is refused.
#[test]
fn nested_promises_take_nothing_from_other_groups() {
    let contract = |min, weight| Contract { min, weight, ..Contract::default() };
    let shares = |groups: &[(&str, Contract)], rate: u64| {
        let admitted = admission::admitted(groups.iter().map(|(n, c)| (*n, c)), rate);
        let admitted = admitted.map_err(|refusal| refusal.to_string())?;
        let above = |path: &str| path.rsplit_once('/').map_or("", |(above, _)| above).to_string();
        let mut found: Vec<(String, u64)> = vec![(String::new(), rate)];
        for (path, own) in &admitted {
            let parent = above(path);
            let beside = admitted.iter().filter(|(other, _)| above(other) == parent);
            let total: u64 = beside.map(|(_, c)| u64::from(c.weight)).sum();
            let of = found.iter().find(|(other, _)| *other == parent).expect("parents first").1;
            found.push((path.clone(), of * u64::from(own.weight) / total));
        }
        Ok::<_, String>(found.into_iter().skip(1).map(|(_, share)| share).collect::<Vec<u64>>())
    };
    let mut groups = [
        ("batch", contract(None, 100)),
        ("sure", contract(Some(10_000_000), 100)),
        ("tenants", contract(None, 200)),
        ("tenants/alice", contract(Some(50_000_000), 100)),
        ("tenants/bob", contract(None, 100)),
    ];
    // 160: by weight, 40 + 40 + 80, and Alice's 50 are within the 80.
    let wide = shares(&groups, 160_000_000).expect("60 of 160 fits");
    assert_eq!(wide[..3], [40_000_000, 40_000_000, 80_000_000]);
    assert!(wide[3] >= 50_000_000 && wide[4] >= 29_000_000, "{wide:?}");
    // 90: tenants get the 50, of which Bob has the smallest weight, the others 20 each.
    let tight = shares(&groups, 90_000_000).expect("60 of 90 fits");
    assert!(tight[3] >= 49_900_000 && tight[3] <= 51_000_000, "{tight:?}");
    assert!(tight[0] >= 19_000_000 && tight[1] >= 19_000_000, "{tight:?}");
    groups[2].1.min = Some(40_000_000);
    let refusal = shares(&groups, 160_000_000).expect_err("50 of tenants' 40");
    assert!(refusal.contains("tenants/alice 50.00 MB/s"), "{refusal}");
}
