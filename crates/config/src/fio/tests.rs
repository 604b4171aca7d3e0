//! Job files: what sections, includes, variables and units mean, and what is refused.

use std::fs;
use std::path::PathBuf;

use iofair_core::time::Nanos;

use super::options::DEPTH_MAX;
use super::problems::PROBLEMS_MAX;
use super::*;

mod odd;

fn variables() -> Variables {
    let environment = vec![("SIZE".to_owned(), "64m".to_owned())];
    Variables { environment, processors: 4, memory_mib: 1000, page_bytes: 4096 }
}

fn read_text(text: &str) -> Result<JobFile, ConfigError> {
    parse("job.fio", text, &variables(), &[])?.checked()
}

/// The settings of a job with these options.
fn job(options: &str) -> Settings {
    let text = format!("[a]\n{}", options.replace(" / ", "\n"));
    read_text(&text).unwrap_or_else(|error| panic!("{error}")).jobs.remove(0).settings
}

fn refused(options: &str) -> String {
    let text = format!("[a]\n{}", options.replace(" / ", "\n"));
    read_text(&text).expect_err(options).to_string()
}

/// Goal: a global section is for what follows it, a job's own options go first, comments and blanks do not count. Method: the
/// example of fio's manual with a second global section.
#[test]
fn globals_are_for_what_follows() {
    let text = "; a comment\n[global]\nrw=randread\nsize = 128m\n\n# another\n[job1]\n[job2]\nbs=64k\n\
        [global]\nbs=8k\nstonewall\n[job3]\nname=third\n";
    let file = read_text(text).expect("a good file");
    let told =
        |job: &Job| (job.name.clone(), job.settings.blocks[0].most(), job.settings.stonewall);
    let told: Vec<_> = file.jobs.iter().map(told).collect();
    let wanted = [("job1", 4096, false), ("job2", 65_536, false), ("third", 8192, true)];
    assert_eq!(told, wanted.map(|(name, block, wall)| (name.to_owned(), block, wall)));
    assert!(file.jobs.iter().all(|job| job.settings.random));
    assert_eq!(file.jobs[1].options, [("bs".to_owned(), "64k".to_owned())]);
    assert_eq!(file.global.len(), 4);
}

/// Goal: jobs have the names of their sections or their own `name`, and are waited for by these. Method: names in global and other
/// sections; fio 3.33 calls these jobs so, and refuses the other names (`waitee job NAME unknown`).
#[test]
fn names_are_of_sections_or_their_own() {
    let text = "[global]\nname=all\n[one]\n[two]\nwait_for=one\n[three]\nname=third\n[four]\nwait_for=third\n";
    let file = read_text(text).expect("fio accepts it");
    let names: Vec<&str> = file.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["one", "two", "third", "four"]);
    let file = read_text("[/dev/sda]\nname=disk\n[b]\nname=/dev/sdb\n").expect("fio accepts it");
    let files: Vec<_> = file.jobs.iter().map(|job| job.settings.file.as_deref()).collect();
    assert_eq!(files, [Some("/dev/sda"), None], "files have the names of sections");
    for name in ["all", "three"] {
        let error = read_text(&text.replace("wait_for=third", &format!("wait_for={name}")));
        let error = error.expect_err(name).to_string();
        assert!(error.contains(&format!("no job above is called `{name}`")), "{error}");
    }
}

/// Goal: several files are used as their order says, or refused. Method: orders of sequential and random jobs, as settings and as
/// what is left out.
#[test]
fn orders_of_files_are_kept_or_refused() {
    for (options, turns) in [
        ("rw=read / nrfiles=4 / direct=1", true),
        ("rw=write / filename=a:b / file_service_type=roundrobin:8", true),
        ("rw=read / nrfiles=4 / direct=1 / openfiles=4", true),
        ("rw=read / nrfiles=4 / openfiles=1", false),
        ("rw=read / nrfiles=4 / file_service_type=sequential", false),
        ("rw=trimwrite / nrfiles=4 / direct=1", true),
        ("rw=randtrimwrite / nrfiles=4", true),
        ("rw=randread / nrfiles=4", false),
        ("rw=randrw / nrfiles=4 / file_service_type=random:3", false),
        ("rw=read / file_service_type=zipf:1.2", false),
    ] {
        assert_eq!(job(options).takes_turns(), turns, "{options}");
    }
    for options in [
        "rw=rw / nrfiles=4 / direct=1",
        "rw=trimwrite / nrfiles=4 / direct=1 / bs=4k,4k,8k",
        "rw=read / nrfiles=4 / direct=1 / openfiles=2",
        "rw=randread / nrfiles=4 / openfiles=1",
        "rw=read / nrfiles=4 / direct=1 / bsrange=4k-8k",
        "rw=read / nrfiles=4 / file_service_type=random",
        "rw=randread / nrfiles=4 / file_service_type=sequential",
        "rw=randread / nrfiles=4 / file_service_type=zipf:1.2",
    ] {
        let error = refused(options);
        assert!(error.contains("`nrfiles`: this order of several files"), "{error}");
    }
    assert!(refused("rw=read / nrfiles=4").contains("no model of read-ahead"));
    assert!(refused("file_service_type=roundrobin:0").contains("0 is out of range"));
}

/// Goal: zones of sequential calls are kept, others refused and left out by their names. Method: zones of each kind.
#[test]
fn zones_are_kept_or_refused() {
    let zones = "direct=1 / zonemode=strided / zonesize=16k";
    for (options, gap) in [
        ("rw=read / zoneskip=32k", 32),
        ("rw=write / zonerange=32k / zoneskip=16k", 32),
        ("rw=trim", 0),
    ] {
        assert_eq!(job(&format!("{zones} / {options}")).zone_gap(), gap << 10, "{options}");
    }
    for options in ["rw=randread", "rw=rw", "rw=read / bs=12k", "rw=read / zonerange=8k"] {
        let error = refused(&format!("{zones} / {options}"));
        assert!(error.contains("option `zonemode`: these zones are not modelled"), "{error}");
    }
    let error = refused("zonesize=16k / zoneskip=16k");
    assert!(error.contains("option `zonesize`: zones need `zonemode=strided`"), "{error}");
}

/// Goal: what fio would do and the model does not is never left out in silence. Method: one option of each kind, alone.
#[test]
fn what_is_left_out_is_named() {
    for option in [
        "flow=1",
        "cmdprio_bssplit=4k/10",
        "zonemode=zbd",
        "zonesize=16k",
        "file_service_type=sequential / rw=randread / nrfiles=2",
        "verify=crc32c / rw=write",
        "percentage_random=50 / rw=randread",
        "percentage_random=100,0 / rw=randrw",
        "rw=randtrimwrite / offset=16k",
        "rw=randtrimwrite / offset_increment=25% / numjobs=2",
        "trim_percentage=10 / rw=write",
    ] {
        let text = format!("[a]\nsize=1m\n{}", option.replace(" / ", "\n"));
        let file = parse("job.fio", &text, &variables(), &[]).expect(option);
        let left_out = file.problems.iter().map(|problem| problem.unsupported.clone());
        let left_out: Vec<_> = left_out.collect();
        assert!(matches!(&left_out[..], [Some(_)]), "{option}: {left_out:?}");
    }
}

/// Goal: units are those of fio's manual. Method: its examples for both bases, times, percentages, expressions and keywords.
#[test]
fn units_are_fios() {
    let bytes = |text: &str| match job(text).size {
        Some(Size::Bytes(bytes)) => bytes,
        other => panic!("{text}: {other:?}"),
    };
    for (text, wanted) in [
        ("4096", 4096),
        ("4096b", 4096),
        ("4k", 4096),
        ("4KB", 4096),
        ("1Mi", 1 << 20),
        ("4KI", 4096),
        ("1000kib", 1_000_000),
        ("0x1000", 4096),
        ("1t", 1 << 40),
        ("${SIZE}", 64 << 20),
        ("8*$mb_memory", 8_000),
        ("2*$pagesize", 8192),
        ("(1+1)*4k", 8192),
        ("2^10", 1024),
    ] {
        assert_eq!(bytes(&format!("size={text}")), wanted, "{text}");
    }
    for (text, wanted) in
        [("4kib", 4096), ("4ki", 4000), ("1Mi", 1_000_000), ("1m", 1_000_000), ("1024gib", 1 << 40)]
    {
        assert_eq!(bytes(&format!("size={text} / kb_base=1000")), wanted, "{text}");
    }
    assert_eq!(job("size=20%").size, Some(Size::Percent(20)));
    assert_eq!(job("numjobs=$ncpus").clones, 4);
    let times = job("runtime=90 / thinktime=20 / ramp_time=1500ms / startdelay=2m-1m");
    assert_eq!(times.runtime, Some(Nanos::from_secs(90)));
    assert_eq!((times.think, times.ramp), (Nanos::from_micros(20), Nanos::from_millis(1_500)));
    assert_eq!(times.start_delay, (Nanos::from_secs(60), Nanos::from_secs(120)));
    assert_eq!(job("thinktime=(20)").think, Nanos::from_micros(20));
}

/// Goal: values for reads, writes and trims are shared as fio's manual says. Method: its examples.
#[test]
fn directions_share_values() {
    let blocks = |text: &str| job(text).blocks.map(|length| length.most() >> 10);
    for (text, wanted) in [
        ("bs=256k", [256; 3]),
        ("bs=8k,32k", [8, 32, 32]),
        ("bs=8k,32k,", [8, 32, 4]),
        ("bs=,8k", [4, 8, 8]),
        ("bs=,8k,", [4, 8, 4]),
        ("bsrange=1k-4k,2k:8k", [4, 8, 8]),
    ] {
        assert_eq!(blocks(text), wanted, "{text}");
    }
    assert_eq!(job("rate=1m,500k").rate, [Some(1 << 20), Some(500 << 10), Some(500 << 10)]);
    assert_eq!(job("rate=,500k").rate, [None, Some(500 << 10), Some(500 << 10)]);
    assert_eq!(job("rate_iops=500,").rate_iops, [Some(500), None, None]);
    let split = |text: &str| job(text).blocks[0].clone();
    let wanted = Blocks::Split(vec![(4096, 50), (1024, 25), (32 << 10, 25)]);
    assert_eq!(split("bssplit=4k/50:1k/:32k/"), wanted);
    let both = job("bssplit=2k/50:4k/50,4k/90:8k/10").blocks;
    assert_eq!(both[1], Blocks::Split(vec![(4096, 90), (8192, 10)]));
    assert_eq!(
        both,
        job("bssplit=2k/50:4k/50,4k/90:8k/10 / bs=64k").blocks,
        "bs is for directions without sizes"
    );
    assert_eq!(blocks("bsrange=,4k-8k, / bs=64k"), [64, 8, 64]);
    assert_eq!(job("rwmixread=10 / rwmixwrite=30").reads, 70, "the latter counts");
    assert_eq!(job("rw=randrw:8").modifier, Some(8));
    let zones = vec![(60, 10), (30, 20), (8, 30), (2, 40)];
    assert_eq!(
        job("rw=randread / random_distribution=zoned:60/10:30/20:8/30:2/40").distribution,
        Distribution::Zoned(zones)
    );
}

/// Goal: comments are what fio takes for them: all from the first `;` or `#` of a line on, also behind a value and a head.
/// Method: lines as people write them; the values that `fio --showcmd` prints of the same file.
#[test]
fn comments_end_lines() {
    let file = read_text(
        "[global] ; defaults\ndirect=1 # no page cache\nbs=8k;blocks\n  # a comment\nsize=1m\t; x # y\n\
        [a job] # the first\nfilename=/data#1/file ; z\nrw=randread#\n\u{b}; c\nstonewall ; wait\n",
    );
    let file = file.expect("a good file");
    let job = &file.jobs[0];
    assert_eq!((job.name.as_str(), job.settings.file.as_deref()), ("a job", Some("/data")));
    let settings = &job.settings;
    assert!(settings.direct && settings.random && settings.stonewall);
    assert_eq!((settings.blocks[0].most(), settings.size), (8192, Some(Size::Bytes(1 << 20))));
    assert_eq!(file.global[0], ("direct".to_owned(), "1".to_owned()));
}

/// Goal: sections whose names begin with `global` are global ones. Method: as fio has it.
#[test]
fn names_of_global_sections_may_go_on() {
    let file = read_text("[global-defaults]\nbs=16k\n[a]\n").expect("one job");
    assert_eq!((file.jobs.len(), file.jobs[0].settings.blocks[0].most()), (1, 16_384));
}

/// Goal: what changes nothing is accepted, whatever fio calls it, and told. Method: values that are fio's defaults, options about
/// placement, logs and registration, other names of options, engines that others stand for.
#[test]
fn what_changes_nothing_is_accepted() {
    for options in [
        "thinktime=5 / thinktime_spin=5 / sync=0 / sync=none / nrfiles=1 / nr_files=1 / size=0 / zonemode=none / zonesize=0",
        "cpus_allowed=0-3 / numa_cpu_nodes=0 / numa_mem_policy=bind:0 / mem=mmap / iomem=shm / nice=1",
        "write_bw_log=x / bwavgtime=100 / log_entries=1024 / log_offset=1 / disable_bw=1 / stats=0",
        "hipri / fixedbufs / registerfiles=1 / sqthread_poll=1 / nonvectored=1 / lockfile=none",
        "verify_fatal=1 / verify_state_save=0 / experimental_verify=0",
        "exec_prerun=x / unified_rw_reporting=1 / continue_on_error=io / file_service_type=random",
        "max_latency=0 / rate_ignore_thinktime=0 / threads=1 / flow=0 / percentage_random=100 / create_only=0 / pre_read=0",
        "percentage_random=50 / rw=read",
        "percentage_random=100,0 / rw=randread",
        "percentage_random=100,100 / rw=randrw",
        "blockalign=4k / ba=4k / iodepth_batch_complete_max=8 / rate_process=linear",
    ] {
        job(options);
    }
    let file = read_text("[global]\nhipri\n[a]\nnice=1\nhipri=1\nflow=0\n").expect("good");
    assert_eq!(file.ignored, ["hipri", "nice", "flow"]);
    let got = job("timeout=7 / fileoffset=1m / nr_files=1 / fill_fs=0 / ratemin=1k / ratecycle=5");
    assert_eq!((got.runtime, got.offset), (Some(Nanos::from_secs(7)), Size::Bytes(1 << 20)));
    for (engine, depth, uncached) in [
        ("null", Engine::Asynchronous, true),
        ("io_uring_cmd", Engine::Asynchronous, true),
        ("spdk_bdev", Engine::Asynchronous, true),
        ("/opt/spdk/build/fio/spdk_bdev", Engine::Asynchronous, true),
        ("external:/usr/lib/fio/sg.so", Engine::Asynchronous, true),
        ("nbd", Engine::Asynchronous, true),
        ("libblkio", Engine::Asynchronous, true),
        ("rados", Engine::Asynchronous, true),
        ("gfapi", Engine::Synchronous, true),
        ("nfs", Engine::Asynchronous, true),
        ("mmap", Engine::Synchronous, false),
        ("libaio", Engine::Asynchronous, false),
        ("linuxaio", Engine::Asynchronous, false),
        ("aio", Engine::Asynchronous, false),
    ] {
        let got = job(&format!("ioengine={engine}"));
        assert_eq!((got.engine, got.uncached), (depth, uncached), "{engine}");
        assert_eq!(got.engine_note.is_some(), !engine.ends_with("aio"), "{engine}");
    }
}

/// Goal: options of job files that people have are read. Method: one of each, and what it sets.
#[test]
fn more_options_are_read() {
    let got = job(
        "rw=read:-8k / direct=1 / sync=dsync / end_fsync=1 / filesize=2m / fill_device=0 / exitall / exit_what=all",
    );
    assert_eq!((got.modifier, got.sync, got.end_syncs), (Some(-8192), true, [true, false]));
    assert_eq!((got.file_size, got.exit_all, got.exit_what), (Some(2 << 20), true, Exit::All));
    let got = job("iodepth=32 / iodepth_batch=8 / iodepth_batch_complete=4 / iodepth_low=16");
    assert_eq!(got.batches, Batches { submit: 8, complete: 4, low: Some(16) });
    let got = job("rate_process=poisson / rate_min=1m,2m / rate_cycle=500");
    assert_eq!((got.poisson, got.least_rate.bytes[1]), (true, Some(2 << 20)));
    assert_eq!(job("rate_iops_min=10").least_rate.calls[2], Some(10));
    assert_eq!(job("blockalign=8k").align, Some(8192));
    assert_eq!(got.least_rate.cycle, Nanos::from_millis(500));
    let got = job("cmdprio_percentage=20,30 / cmdprio_class=1 / cmdprio=3");
    assert_eq!(got.urgent[1], Urgent { percent: 30, class: 1, level: 3 });
    let zones = vec![(50, 5), (30, 48), (20, 47)];
    let read = job("rw=randread / random_distribution=zoned:50/5:30/:20/").distribution;
    assert_eq!(read, Distribution::Zoned(zones));
    let file = read_text("[a]\n[b]\nwait_for=a\n").expect("a is above");
    assert_eq!(file.jobs[1].settings.wait_for.as_deref(), Some("a"));
}

/// Goal: options act on one another as in fio, whatever their order. Method: pairs of options in both orders.
#[test]
fn options_act_together() {
    assert!(job("atomic=1 / direct=0").direct && !job("atomic=0").direct);
    assert_eq!(job("io_submit_mode=offload / ioengine=psync").engine, Engine::Asynchronous);
    let settings = job("end_fsync=1 / fsync_on_close=1 / end_fsync=0");
    assert_eq!(settings.end_syncs, [false, true]);
    assert_eq!((job("loops=0").loops, job("thinktime_blocks=0").think_blocks), (1, 1));
    assert_eq!(job("iodepth_batch=0").batches.submit, DEPTH_MAX as u32);
    assert!(job("allrandrepeat=0 / uncached=1").hints.drop_behind);
    for options in ["filename=a / filename_format=b", "filename_format=b / filename=a"] {
        assert_eq!(job(options).files(), ["a"], "{options}");
    }
    for options in ["filename=a:b / ioengine=rbd", "ioengine=rbd / filename=a:b"] {
        assert_eq!(job(options).files(), ["a:b"], "{options}");
    }
    assert_eq!(
        job("rw=randread / filename=a::b:").files(),
        ["a", "b"],
        "no file is without a name"
    );
    assert!(!job("fill_fs=1 / size=1m").fill_device && job("fill_device=1").fill_device);
    assert_eq!(job("filename=/dev/a:/dev/b\\:1").files(), ["/dev/a", "/dev/b:1"]);
    let file =
        read_text("[/dev/sdb:1]\nfilename_format=x\n[/dev/sdc]\nfilename=y\n").expect("good");
    let names: Vec<_> = file.jobs.iter().flat_map(|job| job.settings.files()).collect();
    assert_eq!(names, ["/dev/sdb:1", "y"]);
    let number = |options: &str| job(&format!("rw=randread / {options}")).nr_files;
    assert_eq!([number("nrfiles=4"), number("filename=a:b / nr_files=9")], [4, 2]);
    assert_eq!([number("filename=a / nrfiles=4"), number("filename=/dev/a:/dev/b")], [1, 1]);
    assert_eq!(number("nrfiles=4 / filename_format=a.$filenum"), 4);
}

/// Goal: a job whose checks of what it wrote would make calls is refused, others are not. Method: jobs that read, that do not
/// check, that their time ends; the same with checks between the calls.
#[test]
fn checks_without_calls_are_accepted() {
    for options in [
        "verify=md5",
        "verify=crc32c / rw=write / do_verify=0",
        "verify=meta / rw=randrw / time_based / runtime=5",
        "verify=0 / rw=write / verify_pattern=0xff",
    ] {
        job(options);
    }
    assert_eq!(job("verify_pattern=0xff").verified(), Some("pattern"));
    for (options, option) in [
        ("rw=write / verify=md5", "verify"),
        ("rw=write / verify_pattern=0xff", "verify_pattern"),
        ("rw=write / time_based / runtime=5 / verify=md5 / verify_backlog=8", "verify"),
    ] {
        let wanted = format!("option `{option}`: the reads that check what was written are not");
        assert!(refused(options).contains(&wanted), "{}", refused(options));
    }
}

/// Goal: problems are as many as somebody reads, and one of the command line is told once. Method: 500 different slips; the same
/// option that is left out 500 times; a slip for two jobs.
#[test]
fn problems_are_bounded() {
    let slips: String = (0..500).map(|n| format!("slip{n}=1\n")).collect();
    let values = "size=${NOWHERE}\n".repeat(500);
    for text in [format!("[a]\n{slips}"), format!("[a]\n{values}")] {
        let error = parse("job.fio", &text, &variables(), &[]).expect_err("500 problems");
        let told = error.to_string();
        assert_eq!(told.matches("job.fio:").count(), PROBLEMS_MAX + 1);
        assert!(told.contains("job.fio:102:") && told.contains("too many problems"), "{told}");
    }
    let text = format!("[a]\n{}", "flow=8\n".repeat(500));
    let file = parse("job.fio", &text, &variables(), &[]).expect("it can be left out");
    assert_eq!(file.problems.len(), PROBLEMS_MAX);
    let options = ["size=much".to_owned()];
    let file = parse("job.fio", "[a]\n[b]\n", &variables(), &options).expect("two jobs");
    assert_eq!(file.problems.len(), 1);
    let environment = vec![("LONG".to_owned(), "x".repeat(1 << 10))];
    let long = format!("[a]\nsize={}\n", "${LONG}".repeat(100_000));
    let file = parse("job.fio", &long, &Variables { environment, ..variables() }, &[]);
    assert!(file.expect("a job").problems[0].error.message.contains("too long"));
}

/// Goal: all problems of a file are told at once, and those that the file can be used without are known. Method: a file with one
/// of each kind.
#[test]
fn all_problems_are_told_at_once() {
    let text = "[global]\nverify=md6\nbs=4q\n[a]\nsize=${NOWHERE}\nzonemode=zbd\niodeph=4\n\
        [b]\ntime_based\nioengine=cpuio\nnrfiles=8\nfilename=/dev/x:y\nfile_service_type=random\nrw=write\nverify=md5\nverify_backlog=1\n";
    let file = parse("job.fio", text, &variables(), &[]).expect("jobs");
    let left_out: Vec<&str> =
        file.problems.iter().filter_map(|problem| problem.unsupported.as_deref()).collect();
    let wanted = [
        "zonemode=zbd",
        "iodeph=4",
        "ioengine=cpuio",
        "the order of files of filename=/dev/x:y",
        "verify=md5",
    ];
    assert_eq!(left_out, wanted);
    let error = file.checked().expect_err("eight problems").to_string();
    for part in [
        "job.fio:2:8: option `verify`: `md6` is not one of its values",
        "job.fio:3:4: option `bs`: `4q` is not a number",
        "job.fio:5:6: the environment has no variable `NOWHERE`",
        "job.fio:6:10: option `zonemode`: `zbd` is not supported",
        "job.fio:7:1: unsupported option `iodeph`",
        "job.fio:10:10: option `ioengine`: `cpuio` does no I/O",
        "job.fio:12:10: option `filename`: this order of several files",
        "job.fio:15:8: option `verify`: the reads that check",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Goal: options from the command line replace those of all jobs. Method: a size that the file does not have, a block that it has,
/// and a slip.
#[test]
fn options_come_from_the_command_line() {
    let parse = |options: &[&str]| {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        parse("job.fio", "[global]\nbs=4k\n[a]\n[b]\nbsrange=1k-8k\n", &variables(), &options)
    };
    let file = parse(&["size=1m", "bs=16k"]).and_then(JobFile::checked).expect("good options");
    for job in &file.jobs {
        assert_eq!(job.settings.size, Some(Size::Bytes(1 << 20)));
        assert_eq!(job.settings.blocks[0].most(), 16_384);
    }
    let error = parse(&["size=much"]).and_then(JobFile::checked).expect_err("a slip").to_string();
    assert!(error.starts_with("--set:1:6: option `size`: `much` is not a number"), "{error}");
}

/// Goal: what cannot be used is refused with file, line, option and what is allowed or near. Method: one slip a rule.
#[test]
fn slips_are_refused() {
    for (options, parts) in [
        (
            "iodeph=4",
            &["`iodeph`\n    2 | iodeph=4", "allowed: the options in", "did you mean `iodepth`?"][..],
        ),
        (
            "zonemode=zbd",
            &["`zbd` is not supported", "allowed: none, strided, or the argument --ignore"],
        ),
        ("lockfile=exclusive", &["`exclusive` is not supported", "allowed: none"]),
        ("max_latency=5ms", &["`5ms` is not supported"]),
        ("opendir=x", &["unsupported option `opendir`"]),
        ("fadvise_hint=random", &["sequential calls without read-ahead"]),
        ("size=1.5m", &["`1.5m` is not a number"]),
        ("rw=ranread", &["option `rw`: `ranread` is not", "allowed: read, write", "`randread`?"]),
        ("ioengine=cpuio", &["option `ioengine`: `cpuio` does no I/O", "libaio"]),
        ("bs=4q", &["`4q` is not a number"]),
        ("runtime=60sec", &["`60sec` is not a time", "allowed: a time such as 10s"]),
        ("direct=1 / bs=1000", &["sectors of 512 bytes"]),
        ("bs=1000,2000", &["sectors of 512 bytes", "with direct=0 also one other size"]),
        ("bs=4KiB", &["a block of 4000 bytes", "KiB is 1000 bytes in fio, unless kb_base=1000"]),
        (
            "bs=4k-64k",
            &["job.fio:2:4: option `bs`: `4k-64k` is a range", "allowed: bsrange=4k-64k"],
        ),
        ("rw=randread:-8", &["random calls have no gaps"]),
        ("rw=read:-100", &["a gap is a number of sectors"]),
        ("wait_for=b", &["job.fio:2:10: no job above is called `b`"]),
        ("blockalign=100", &["sectors of 512 bytes"]),
        ("read_iolog=x", &["`iofair-lab replay FILE`"]),
        ("random_distribution=zoned:50/5:30/:20/50:1", &["`1` is not a zone"]),
        ("bs=", &["option `bs`: a value is missing"]),
        ("size=99999999p", &["`99999999p` is too large", "allowed: at most 18446744073709551615"]),
        ("size=101%", &["0% to 100%"]),
        (
            "size=8z",
            &["job.fio:2:6: option `size`: `8z` is a number of zones", "--ignore-unsupported"],
        ),
        ("rw=rw", &["job.fio:2:4: option `rw`: the page cache has no model", "direct=1"]),
        ("runtime=5x", &["`5x` is not a time", "500ms"]),
        ("direct=2", &["neither yes nor no"]),
        ("iodepth=0", &["allowed: 1 to 65536"]),
        ("prioclass=4", &["allowed: 0 to 3"]),
        ("rwmixread=120", &["allowed: 0 to 100"]),
        ("bssplit=4k/60:8k/60", &["the percentages make 120"]),
        ("random_distribution=zipf:1.0", &["a theta of 1"]),
        ("rw=randread / random_distribution=zoned:60/10:30/20", &["90 % of the calls"]),
        ("random_distribution=zipf:1.2:0.5", &["a center"]),
        ("cgroup_weight=200", &["job.fio:2:15: `cgroup_weight` needs a `cgroup`"]),
        ("cgroup=a/../b", &["is not the path of a group"]),
        ("filename=/dev/sda:b / direct=1 / rw=rw", &["several files"]),
        ("size=${NOWHERE}", &["no variable `NOWHERE`"]),
        ("size=${SIZE", &["`${` without `}`"]),
        ("latency_target=1ms", &["needs a `latency_window`"]),
        ("include nowhere.fio", &["job.fio:2:1: nowhere.fio: No such file"]),
        ("[b", &["not the head of a section"]),
    ] {
        let error = refused(options);
        for part in parts {
            assert!(error.contains(part), "{options}: {error}");
        }
    }
    let error = read_text("rw=read\n[a]\n").expect_err("no section").to_string();
    assert!(error.contains("before the first section"), "{error}");
    let error = read_text("[global]\nrw=read\n").expect_err("no job").to_string();
    assert!(error.contains("no job in this file"), "{error}");
    let nested = format!("size={}1{}", "(".repeat(40), ")".repeat(40));
    assert!(refused(&nested).contains("too many parentheses"));
    let many: String = (0..4_097).map(|n| format!("[j{n}]\n")).collect();
    assert!(read_text(&many).expect_err("a crowd").to_string().contains("too many jobs"));
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("iofair-fio-{name}-{}", std::process::id()));
    fs::create_dir_all(path.join("sub")).expect("a directory");
    path
}

/// Goal: includes are found beside the file that names them and belong to its section; loops and what is no text file end with
/// an error. Method: the manual's example over two directories; a file that includes itself, two that include each other twice,
/// a section in an included file, bytes that are no text, a device, a file that is too long.
#[test]
fn includes_are_bounded() {
    let directory = scratch("includes");
    let write = |name: &str, text: &[u8]| fs::write(directory.join(name), text).expect("a file");
    let read = |name: &str| read(&directory.join(name), &variables(), &[])?.checked();
    let refuse = |name: &str| read(name).expect_err(name).to_string();
    write(
        "main.fio",
        b"[global]\ninclude sub/glob.fio\n[test]\nrw=randread\ninclude sub/test.fio\n[b]\n",
    );
    write("sub/glob.fio", b"thread=1\nsize=1m\ninclude more.fio\n");
    write("sub/more.fio", b"direct=1");
    write("sub/test.fio", b"ioengine=libaio\niodepth=4\n");
    let file = read("main.fio").expect("good files");
    assert_eq!(file.jobs.iter().map(|job| job.settings.depth).collect::<Vec<_>>(), [4, 1]);
    assert!(file.jobs.iter().all(|job| job.settings.direct));
    write("loop.fio", b"[a]\ninclude loop2.fio\n");
    write("loop2.fio", b"include loop2.fio\n");
    assert!(refuse("loop.fio").contains("too many includes, at `loop2.fio`"));
    for depth in 0..15 {
        let next = depth + 1;
        let text = format!("include twice{next}\ninclude twice{next}\n");
        write(&format!("twice{depth}"), text.as_bytes());
    }
    write("twice15", b"size=1m\n");
    write("tree.fio", b"[a]\ninclude twice0\n");
    assert!(refuse("tree.fio").contains("too many includes"));
    write("sections.fio", b"[a]\ninclude main.fio\n");
    assert!(refuse("sections.fio").contains("has no sections of its own"));
    write("bytes.fio", b"[a]\nrw=\xff\n");
    assert!(refuse("bytes.fio").contains("line 2 is not UTF-8"));
    write("device.fio", b"[a]\ninclude /dev/zero\n");
    assert!(refuse("device.fio").contains("not a regular file"));
    write("long.fio", &vec![b'#'; (1 << 20) + 1]);
    assert!(refuse("long.fio").contains("too long"));
    fs::remove_dir_all(&directory).expect("it was made above");
}
