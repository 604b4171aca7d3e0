//! Values that are none.

use super::*;

/// Goal: an error has the value as it was written, and what is allowed; none quotes nothing. Method: every option with odd values,
/// and values that fio 3.33 refuses.
#[test]
fn errors_have_values_and_what_is_allowed() {
    let odd = [
        "",
        "-1",
        "1.5",
        "50%",
        "101%",
        "99999999999999999999",
        "abc",
        "1,2,3,4",
        ",,",
        "1-2",
        "2:1",
        "4k/60:8k/60",
        "-3s",
        "0z",
        "zipf:1",
        "pareto:2",
        "roundrobin:0",
        "read:-1",
        "1 2",
        "\"4k\"",
        "\u{e9}",
        "4k+",
        "(4k",
        "4k)",
        "(1)2",
        "4k-",
        "-4k",
        "4k-8k-",
        "1.2/0.5",
        "zipf:1.2/0.5",
        "normal:10/0.5",
        "8/0",
        "2^70",
        "20000",
        "18446744073709551615",
    ];
    for option in SUPPORTED {
        for value in odd {
            let text = format!("[a]\nsize=1m\n{option}={value}\n");
            let file =
                parse("job.fio", &text, &variables(), &[]).expect("problems are in the file");
            // What is not modelled, and what needs another option, is not about the value.
            let Some(problem) = file.problems.first() else { continue };
            if problem.unsupported.is_some() || problem.error.message.contains(" needs ") {
                continue;
            }
            let error = problem.error.to_string();
            let head = error.lines().next().unwrap_or_default();
            let has = head.contains(&format!("`{value}`")) || head.contains(&format!("{value}`"));
            assert!(has && !head.contains("``") && error.contains("allowed: "), "{text}{error}");
        }
    }
    for wrong in [
        "bs=,,",
        "rate=,,",
        "bsrange=4k",
        "verify_pattern=abc",
        "file_service_type=zipf:1",
        "file_service_type=pareto:2",
        "size=-1",
        "zonesize=50%",
        "numjobs=0x",
        "size=(1)2",
    ] {
        let (option, value) = wrong.split_once('=').expect("an option");
        let error = refused(wrong);
        assert!(error.contains(option) && error.contains(&format!("{value}`")), "{error}");
    }
    assert!(refused("numjobs=20000").contains("option `numjobs=20000`: 20000 is out of range"));
}

/// Goal: what an error allows is allowed. Method: `bs` with a range, and with what is no range in `bsrange`, either.
#[test]
fn what_is_suggested_is_accepted() {
    for range in ["4k-64k", "4k-8k,16k", "4k-8k,,1k-2k", "8k-4k"] {
        let error = refused(&format!("bs={range}"));
        assert!(error.contains("one size of it for reads, and one for writes"), "{error}");
        assert!(error.contains(&format!("allowed: bsrange={range}")), "{error}");
        let file = parse("job.fio", &format!("[a]\nsize=1m\nbsrange={range}\n"), &variables(), &[]);
        assert_eq!(file.expect("a file").problems, []);
    }
    for none in ["4k-", "-4k", "-", "4k-8k-16k", "4k-8q", "4k-100"] {
        let error = refused(&format!("bs={none}"));
        assert!(
            error.contains(&format!("`{none}`")) && !error.contains(&format!("bsrange={none}"))
        );
        assert!(error.contains("allowed: a size, such as 4k, or bsrange=LOW-HIGH"), "{error}");
    }
    assert!(refused("bsrange=4k-").contains("option `bsrange=4k-`: a number is missing"));
}

/// Goal: a parameter with something behind it is not called out of range. Method: fio 3.33 reads `zipf:1.2/0.5` as `zipf:1.2`,
/// and a center only behind a colon.
#[test]
fn a_center_is_not_supported() {
    for kind in ["zipf", "pareto", "normal"] {
        let error = refused(&format!("random_distribution={kind}:0.5/0.5"));
        assert!(error.contains("`0.5/0.5` is not a number"), "{error}");
        assert!(error.contains("allowed: a number alone; a center is not supported"), "{error}");
        let error = refused(&format!("random_distribution={kind}:0.5:0.5"));
        assert!(error.contains("a center of the distribution is not supported"), "{error}");
    }
}

/// Goal: values that fio 3.33 refuses (`fio --parse-only`) are refused where they have no effect, too, and others are not. Method: both, of
/// yes or no, numbers, times and words; options that need a value, and those that do not.
#[test]
fn values_without_effect_are_looked_at() {
    for good in [
        "disable_lat=1",
        "thread=32",
        "thread",
        "hipri",
        "stonewall=2",
        "group_reporting=7",
        "nice=-5",
        "mem=mmap:/dev/shm/x",
        "fallocate=0",
        "lockmem=1g",
        "ss_dur=10s",
        "cpumask=0xff",
        "write_bw_log",
        "cpus_allowed=0-3",
        "iomem_align=4k",
        "log_entries=2048",
        "nice=-1.5",
        "gid=-1",
        "iomem_align=1.5",
        "disable_lat=-1",
        "disable_lat=1.5",
        "thread=-1",
        "ss_dur=1.5s",
        "thinktime_spin=-1",
        "rwmixread=65%",
        "rwmixwrite=0%",
    ] {
        let read = read_text(&format!("[a]\nsize=1m\n{good}\n"));
        assert!(read.is_ok(), "{good}: {}", read.unwrap_err());
    }
    for (bad, wanted) in [
        ("disable_lat=2", "option `disable_lat=2`: 2 is out of range"),
        ("disable_lat=yes", "`yes` is not a number"),
        ("disable_lat", "a value is missing"),
        ("direct", "a value is missing"),
        ("stonewall=x", "`x` is not a number"),
        ("thread=x", "`x` is not a number"),
        ("nice=20", "allowed: -20 to 19"),
        ("mem=x", "allowed: malloc, shm, shmhuge, mmap"),
        ("fallocate=yes", "allowed: none, native"),
        ("ss_dur=x", "`x` is not a time"),
        ("log_entries=5", "allowed: 1024 to 1048576"),
        ("log_entries=1.5k", "1 is out of range"),
        ("log_compression=-1", "-1 is out of range"),
        ("iomem_align=.5", "`.5` is not a number"),
        ("rwmixread=101%", "101 is out of range"),
        ("buffer_compress_percentage=101", "allowed: 0 to 100"),
    ] {
        let error = refused(bad);
        assert!(error.contains(wanted), "{bad}: {error}");
    }
}

/// Goal: the lists of options are in order and do not overlap, and each supported option is known to `apply`. Method: all names
/// with a value that nothing takes are refused for their value, not for their name.
#[test]
fn lists_of_options_are_right() {
    assert!(SUPPORTED.is_sorted());
    for name in SUPPORTED {
        assert!(ignored().all(|other| other != *name), "{name}");
        if let Err(error) = read_text(&format!("[a]\n{name}=%%")) {
            assert!(!error.to_string().contains("unsupported"), "{error}");
        }
    }
    for name in ignored() {
        if let Err(error) = read_text(&format!("[a]\n{name}=1")) {
            assert!(error.to_string().contains("allowed"), "{error}");
        }
    }
}

/// Goal: bytes in any order never panic and never hang. Method: pieces of job files put together by a small generator.
#[test]
fn any_text_is_read_or_refused() {
    let pieces = [
        "[a]",
        "[global]",
        "\n",
        "=",
        "rw",
        "bs",
        "bssplit=",
        "4k/",
        ":",
        ",",
        "${",
        "}",
        "$ncpus",
        "%",
        "(",
        ")",
        "^",
        "9999999999999999999999",
        "zoned:",
        "random_distribution=",
        "0x",
        "-",
        "size=",
        "é",
        "\t",
        ";",
        "include ",
        "1",
    ];
    let mut state = 7u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..state % 13 + 2 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text += pieces[(state >> 33) as usize % pieces.len()];
        }
        if let Err(error) = read_text(&text) {
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Goal: what cannot be used is no obstacle where it is left out. Method: variables that are not set in options without a meaning, and
/// errors of a job that does no I/O; a variable in an option that counts stays an error.
#[test]
fn what_is_left_out_has_no_errors() {
    let text = "[global]\nwrite_bw_log=${LOG}\nflow=${FLOW}\n[a]\nsize=1m\n[b]\nioengine=cpuio\nsize=1q\nbs=${NONE}\nwait_for=c\n";
    let file = parse("job.fio", text, &variables(), &[]).expect("jobs");
    let left_out: Vec<_> =
        file.problems.iter().map(|problem| problem.unsupported.as_deref()).collect();
    let engine = Some("ioengine=cpuio");
    let wanted =
        [Some("write_bw_log=${LOG}"), Some("flow=${FLOW}"), engine, engine, engine, engine];
    assert_eq!(left_out, wanted);
    let file = parse("job.fio", "[a]\nsize=${NONE}\n", &variables(), &[]).expect("a job");
    assert_eq!(file.problems[0].unsupported, None);
}

/// Goal: flags that change nothing alone are accepted alone. Method: each alone, and with what makes it count.
#[test]
fn flags_without_effect_alone_are_accepted() {
    job("bs_unaligned / verify_only / ss_dur=5 / ss_ramp=1 / steadystate_duration=5");
    job("blocksize_unaligned=0 / bsrange=4k-8k / verify_only=0 / verify=md5");
    assert!(refused("bs_unaligned / bsrange=4k-8k").contains("option `bs_unaligned`: sizes that"));
    assert!(refused("verify_only / verify=md5").contains("option `verify_only`: reads that only"));
}

/// Goal: numbers that are too large or negative, and rates that fio refuses together, are told as such. Method: one of each.
#[test]
fn numbers_and_rates_are_refused() {
    for (options, parts) in [
        ("runtime=99999999d", &["`99999999d` is too long", "allowed: at most 584 years"][..]),
        ("iodepth=-1", &["option `iodepth`: `-1` is negative", "allowed: positive numbers"]),
        ("runtime=-1", &["option `runtime`: `-1` is negative", "allowed: positive numbers"]),
        ("size=1m-2m", &["1048576 - 2097152 is negative", "allowed: a number, not a range"]),
        ("size=1/0", &["1 / 0 is out of range"]),
        ("numjobs=99999", &["allowed: 1 to 10000"]),
        ("prio=9", &["allowed: 0 to 7"]),
        ("rate=1m / rate_iops=9", &["job.fio:3:11: `rate_iops` cannot stand beside `rate`"]),
        ("rate=1m,, / rate_iops=,9,", &["`rate_iops` cannot stand beside `rate`"]),
        ("rate_min=1 / rate_iops_min=1", &["`rate_iops_min` cannot stand beside `rate_min`"]),
        ("rate=1m,4m / rate_min=,5m,", &["`rate_min` is more than `rate`"]),
        ("rate_iops=1 / rate_iops_min=2", &["`rate_iops_min` is more than `rate_iops`"]),
    ] {
        let error = refused(options);
        for part in parts {
            assert!(error.contains(part), "{options}: {error}");
        }
    }
}

/// Goal: of ranges and splits, those count that do with fio 3.33. Method: both in each order, also from a global section; the calls
/// that fio made told which.
#[test]
fn ranges_and_splits_stand_beside_each_other() {
    let kib = |sizes: &[(u64, u32)]| {
        Blocks::Split(sizes.iter().map(|(size, share)| (size << 10, *share)).collect())
    };
    let range = |low: u64, high: u64| Blocks::Range(low << 10, high << 10);
    let fixed = |size: u64| Blocks::Fixed(size << 10);
    for (options, reads, writes) in [
        ("bsrange=4k-8k / bssplit=16k/100", kib(&[(16, 100)]), kib(&[(16, 100)])),
        ("bssplit=16k/100 / bsrange=4k-32k", kib(&[(16, 100)]), kib(&[(16, 100)])),
        (
            "bssplit=16k/50:64k/50 / bsrange=8k-32k",
            kib(&[(16, 50), (32, 50)]),
            kib(&[(16, 50), (32, 50)]),
        ),
        ("bssplit=16k/100 / bsrange=8k-8k", fixed(8), fixed(8)),
        ("bssplit=64k/100 / bs=8k / bsrange=8k-32k", kib(&[(32, 100)]), kib(&[(32, 100)])),
        ("bssplit=64k/100, / bsrange=8k-32k", kib(&[(32, 100)]), range(8, 32)),
        ("bssplit=64k/100 / bsrange=8k-32k,", kib(&[(32, 100)]), kib(&[(64, 100)])),
        ("bsrange=8k-32k / bssplit=,64k/100", range(8, 32), kib(&[(64, 100)])),
        ("bssplit=16k/100,32k/100 / bssplit=64k/100,", kib(&[(64, 100)]), kib(&[(32, 100)])),
    ] {
        assert_eq!(job(options).blocks[..2], [reads, writes], "{options}");
    }
    let text = "[global]\nbssplit=64k/100\n[a]\nsize=1m\nbsrange=4k-16k\n";
    let file = parse("job.fio", text, &variables(), &[]).expect("it is one");
    assert_eq!(file.jobs[0].settings.blocks[0], kib(&[(16, 100)]));
}
