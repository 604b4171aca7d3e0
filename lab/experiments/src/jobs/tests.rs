//! Job files end to end: what jobs do is what fio's manual says, counted in the simulator.

mod options;

use iofair_simulator::outcome::{ClientOutcome, Outcome};

use super::*;
use crate::experiment::{Results, Runner};

fn experiment(text: &str, overrides: &Overrides) -> Experiment {
    parse("job.fio", text, overrides).unwrap_or_else(|error| panic!("{error}"))
}

fn run_with(text: &str, overrides: &Overrides) -> Outcome {
    let experiment = experiment(text, overrides);
    iofair_simulator::simulate(&experiment.scenario(0, 0, 0)).expect("it can be run")
}

fn run(text: &str) -> Outcome {
    run_with(text, &Overrides { stacks: Some(vec!["none-none".into()]), ..Overrides::default() })
}

/// The results of a run under the stack `none-none`.
fn results(text: &str) -> Results {
    let overrides = Overrides { stacks: Some(vec!["none-none".into()]), ..Overrides::default() };
    let simulate =
        |scenario: &_| iofair_simulator::simulate(scenario).map_err(|error| error.to_string());
    let runner = Runner { jobs: 1, simulate: &simulate, finished: &|_| {} };
    let all = crate::experiment::run(vec![experiment(text, &overrides)], &runner);
    all.expect("it can be run").remove(0)
}

fn refused(text: &str) -> String {
    parse("job.fio", text, &Overrides::default()).expect_err(text).to_string()
}

/// Calls and bytes of reads, writes and trims.
fn counts(client: &ClientOutcome) -> [(u64, u64); 3] {
    client.directions.each_ref().map(|direction| (direction.calls, direction.bytes))
}

/// Goal: without `runtime` a job does as many bytes as its `size`, in all forms of `rw`, direct and buffered, whatever the sizes
/// of its calls. Method: one job each; the counts that fio 3.33 gives.
#[test]
fn size_ends_a_job() {
    let mib = 1 << 20;
    for (options, wanted) in [
        ("rw=read\n", [256, 0, 0]),
        ("rw=write\n", [0, 256, 0]),
        ("rw=randread\n", [256, 0, 0]),
        ("rw=randwrite\n", [0, 256, 0]),
        ("rw=trim\n", [0, 0, 256]),
        ("rw=randtrim\n", [0, 0, 256]),
        ("rw=trimwrite\ndirect=1\n", [0, 256, 256]),
        ("rw=randread\ndirect=1\niodepth=8\nioengine=libaio\n", [256, 0, 0]),
        ("rw=read:4k\ndirect=1\n", [256, 0, 0]),
        ("rw=randread:8\n", [256, 0, 0]),
        ("rw=read\nnumber_ios=10\n", [10, 0, 0]),
        ("rw=read\nio_size=3m\n", [768, 0, 0]),
        ("rw=write\nloops=2\n", [0, 512, 0]),
        ("rw=randread\nthinktime=10\nthinktime_blocks=7\n", [256, 0, 0]),
        ("rw=read\nthinktime=10\nthinktime_blocks=7\n", [256, 0, 0]),
        ("rw=write\nthinktime=10\nthinktime_blocks=7\n", [0, 256, 0]),
    ] {
        let outcome = run(&format!("[a]\nsize=1m\n{options}"));
        let got = counts(&outcome.clients[0]);
        assert_eq!(got.map(|(calls, _)| calls), wanted, "{options}");
        assert_eq!(got.map(|(_, bytes)| bytes), wanted.map(|calls| calls * 4096), "{options}");
    }
    // etcd's test of a disk; fio 3.33 makes 10,029 calls of it.
    let etcd = run("[a]\nrw=write\nioengine=sync\nfdatasync=1\nsize=22m\nbs=2300\n");
    assert_eq!(counts(&etcd.clients[0]).map(|(calls, _)| calls), [0, 10_029, 0]);
    let etcd = "[b]\nsize=1m\n[a]\nrw=write\nnumjobs=2\nsize=1m\nbs=2300\n";
    let etcd = results(etcd).outcomes.remove(0);
    assert_eq!(etcd.clients[0].bytes, 1 << 20);
    for client in &etcd.clients[1..] {
        let wanted = [0, 455 * 2300, 0];
        assert_eq!((counts(client).map(|(_, bytes)| bytes), client.bytes), (wanted, wanted[1]));
        let series = client.series.iter().map(|part| part.bytes).sum::<u64>();
        assert_eq!(series, client.bytes, "pages of the drive are not bytes of calls");
    }
    for options in
        ["rw=randrw\n", "rw=randrw\ndirect=1\nioengine=libaio\niodepth=16\n", "rw=rw\ndirect=1\n"]
    {
        let outcome = run(&format!("[a]\nsize=4m\nrwmixread=70\n{options}"));
        let [(reads, _), (writes, _), (0, 0)] = counts(&outcome.clients[0]) else {
            panic!("{options}")
        };
        assert_eq!(reads + writes, 1024, "{options}");
        assert!((660..=775).contains(&reads), "{options}: {reads}");
    }
    for options in [
        "rw=randread\nbssplit=4k/50:16k/:64k/\n",
        "rw=read\nbsrange=4k-12k\n",
        "rw=write\nbssplit=4k/50:64k/50\n",
        "rw=randrw\nbs=4k,16k\n",
        "rw=randwrite\nbsrange=4k-16k\ndirect=1\n",
        "rw=randwrite\nrandom_distribution=zipf:1.2\n",
    ] {
        let outcome = run(&format!("[a]\nsize=1m\n{options}"));
        let bytes: u64 = counts(&outcome.clients[0]).iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(bytes, mib, "{options}");
    }
    let odd = run("[a]\nsize=10k\n");
    assert_eq!(counts(&odd.clients[0])[0], (2, 8192), "no part of a block");
}

/// Goal: steps follow one another, and what happened before them does not count. Method: two clones, then a wall, then a job that
/// reads for half a second after a ramp; the times of the run and of each client.
#[test]
fn steps_follow_one_another() {
    let outcome =
        run("[first]\nrw=write\ndirect=1\nsize=8m\nnumjobs=2\n[second]\nstonewall\nrw=randread\n\
        size=8m\nramp_time=100ms\ntime_based\nruntime=500ms\nstartdelay=50ms\n");
    let names: Vec<&str> = outcome.clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!(names, ["first.0", "first.1", "second"]);
    let [first, other, second] = [0, 1, 2].map(|at| &outcome.clients[at]);
    assert_eq!((first.bytes, other.bytes), (8 << 20, 8 << 20));
    let late = second.time.saturating_sub(Nanos::from_millis(500));
    assert!(second.time >= Nanos::from_millis(500) && late < Nanos::from_millis(5));
    let all = first.time.max(other.time) + Nanos::from_millis(150) + second.time;
    assert_eq!(outcome.time, all);
}

/// Goal: rates of each direction are reached and not passed, also where the mix asks for others, and `rate_iops` counts the
/// smallest block. Method: two seconds of a drive that is much faster.
#[test]
fn rates_are_kept() {
    let rates = |options: &str| {
        let text = format!("[a]\ndirect=1\nsize=64m\ntime_based\nruntime=2\n{options}");
        let outcome = run(&text);
        let seconds = outcome.clients[0].time.0 as f64 / 1e9;
        counts(&outcome.clients[0])
            .map(|(calls, bytes)| (calls as f64 / seconds, bytes as f64 / seconds))
    };
    let near = |got: f64, wanted: f64| assert!((got / wanted - 1.0).abs() < 0.02, "{got} {wanted}");
    let mixed = rates("rw=randrw\nrwmixread=20\nrate_iops=2000,500\n");
    near(mixed[0].0, 2000.0);
    near(mixed[1].0, 500.0);
    let mixed = rates("rw=randrw\nrwmixread=80\nrate=1m,4m\n");
    near(mixed[0].1, f64::from(1 << 20));
    near(mixed[1].1, f64::from(4 << 20));
    near(rates("rw=randread\nrate=1m\n")[0].1, f64::from(1 << 20));
    near(rates("rw=randread\nbssplit=4k/50:8k/50\nrate_iops=100\n")[0].1, 409_600.0);
    near(rates("rw=read\nbuffered=1\nrate_iops=100\n")[0].0, 100.0);
    // Eight calls, then 20 ms: 400 calls a second and a little less for their own time.
    let bursts =
        rates("rw=randread\nioengine=libaio\niodepth=4\nthinktime=20ms\nthinktime_blocks=8\n");
    assert!((360.0..=400.0).contains(&bursts[0].0), "{bursts:?}");
    let single = rates("rw=randread\nioengine=libaio\niodepth=4\nthinktime=20ms\n");
    assert!((45.0..=50.0).contains(&single[0].0), "one call at a time: {single:?}");
}

/// Goal: syncs come after so many writes, and wait for what is in the page cache. Method: 256 writes, one sync for eight; and a
/// mix of both kinds of access.
#[test]
fn syncs_are_counted() {
    for options in [
        "rw=write",
        "rw=write\ndirect=1",
        "rw=write\nbssplit=4k/100",
        "rw=write\nfsync=8\nfdatasync=0",
    ] {
        let outcome = run(&format!("[a]\nsize=1m\nfdatasync=8\n{options}\n"));
        // As in fio, none follows the last write.
        assert_eq!(outcome.clients[0].sync_latency.count(), 31, "{options}");
        let synced = 31 * 8 * 4096;
        assert!(outcome.drive.written_bytes >= synced, "{options}: what is synced was written");
    }
    for direct in [0, 1] {
        let text = format!("[a]\nsize=4m\nfdatasync=8\nrw=randrw\ndirect={direct}\n");
        let client = &run(&text).clients[0];
        let writes = client.directions[1].calls;
        assert!([writes / 8, (writes - 1) / 8].contains(&client.sync_latency.count()));
    }
}

/// Goal: `latency_target` finds a depth and ends the job, or none if the drive is too slow. Method: a target that a few calls
/// keep, one that none keeps.
#[test]
fn a_latency_target_finds_a_depth() {
    let depth = |target: &str| {
        let outcome = run(&format!(
            "[a]\ndirect=1\nrw=randread\nsize=256m\nioengine=libaio\niodepth=64\ntime_based\nruntime=30\n\
             latency_target={target}\nlatency_window=100ms\nlatency_percentile=99\n"
        ));
        (outcome.clients[0].depth.expect("it searched"), outcome.time)
    };
    let (found, time) = depth("600us");
    assert!((2..64).contains(&found) && time < Nanos::from_secs(5), "{found} {time}");
    assert_eq!(depth("1us").0, 0);
    assert_eq!(depth("1s").0, 64);
}

/// Goal: jobs of a cgroup are clients of one group with its weight; others are in the root. Method: two groups that fill the
/// drive under bfq, shares of three to one.
#[test]
fn cgroups_have_weights() {
    let text = "[global]\ndirect=1\nrw=randread\nioengine=libaio\niodepth=16\nsize=64m\ntime_based\nruntime=2\n\
        [a]\ncgroup=tenants/a\ncgroup_weight=100\nnumjobs=2\n[b]\ncgroup=tenants/b\ncgroup_weight=300\nnumjobs=2\n";
    let stacks = Some(vec!["prop-bfq".to_owned()]);
    let settings = vec!["policy.bfq.low_latency=false".to_owned()];
    let outcome = run_with(text, &Overrides { stacks, settings, ..Overrides::default() });
    let bytes = |group: &str| {
        let mine = outcome.clients.iter().filter(|client| client.group == group);
        mine.map(|client| client.bytes).sum::<u64>() as f64
    };
    let share = bytes("tenants/b") / bytes("tenants/a");
    assert!((2.0..4.0).contains(&share), "{share}");
    let plain = experiment("[a]\nsize=1m\n", &Overrides::default());
    assert_eq!(plain.variants[0].clients[0].group, "");
    let error = refused(
        "[a]\nsize=1m\ncgroup=x\ncgroup_weight=100\n[b]\nsize=1m\ncgroup=x\ncgroup_weight=200\n",
    );
    assert!(error.contains("job.fio:8:15: group `x` has the weight 100 above"), "{error}");
}

/// Goal: files and devices are places on the drive. Method: own files, a shared file, a device with percentages, clones apart.
#[test]
fn files_are_places() {
    let text = "[own]\nsize=1m\n[shared]\nfilename=data\nsize=2m\n[again]\nfilename=data\nsize=1m\noffset=1m\n\
        [device]\nfilename=/dev/sdx\nsize=10%\noffset_increment=20%\nnumjobs=2\n[all]\nfilename=/dev/sdx\n\
        [large]\nfilename=\\\\.\\PhysicalDrive1\nsize=20t\n\
        [clones]\nfilename_format=f.$jobnum\nsize=1m\nnumjobs=2\n";
    let experiment = experiment(text, &Overrides::default());
    let capacity = profile::load(DRIVE, 0).unwrap().facts().capacity.bytes();
    let clients = &experiment.variants[0].clients;
    let told: Vec<(Option<u64>, u64)> = clients
        .iter()
        .map(|client| (client.place.map(|place| place.bytes()), client.file_size.bytes()))
        .collect();
    assert_eq!(told[0], (None, 1 << 20));
    let shared = told[1].0.expect("a place");
    assert_eq!((told[1].1, told[2]), (2 << 20, (Some(shared + (1 << 20)), 1 << 20)));
    assert_eq!((told[3].0, told[3].1 / 512), (Some(0), capacity / 10 / 4096 * 8));
    let apart = told[4].0.expect("a place");
    assert!(apart.abs_diff(capacity / 5) <= 4096, "{apart}");
    assert_eq!([told[5], told[6]], [(Some(0), capacity); 2]);
    assert_ne!(told[7].0, told[8].0);
    // fio 3.33 takes an offset in percent of a file that it makes itself as 0.
    let text = "[a]\nfilename=x\nsize=64k\noffset=50%\n[b]\nfilename=x\nsize=128k\n";
    let shared = self::experiment(text, &Overrides::default());
    let clients = &shared.variants[0].clients;
    let [half, whole] = [0, 1].map(|at| clients[at].place.expect("a place"));
    assert_eq!(half, whole);
    assert_eq!(clients[0].file_size.bytes(), 64 << 10);
    assert_eq!(shared.note, "a: percentages of `offset` are 0, as with fio and a new file.");
    for (text, part) in [
        ("[a]\nrw=read\n", "job `a` has no `size`"),
        ("[a]\nsize=10%\n", "a percentage of a file that is not there"),
        ("[a]\nsize=1000t\n", "more than the drive has"),
        ("[a]\nfilesize=1000t\n", "--set filesize=1g"),
        ("[a]\nsize=4k\nbs=8k\n", "smaller than a block"),
        ("[a]\nsize=1m\nrw=rw\n", "allowed: direct=1"),
        ("[a]\nsize=1m\nrw=write\nbsrange=6k-12k\n", "whole pages"),
        ("[a]\nsize=1m\nnumjobs=10000\n", ""),
    ] {
        if part.is_empty() {
            assert_eq!(
                parse("a", text, &Overrides::default()).unwrap().variants[0].clients.len(),
                10_000
            );
        } else {
            assert!(refused(text).contains(part), "{}", refused(text));
        }
    }
    let crowd: String = (0..11)
        .map(|n| format!("[j{n}]\nfilename_format=f{n}.$jobnum\nsize=1m\nnumjobs=10000\n"))
        .collect();
    assert!(refused(&crowd).contains("100000 together"));
}

/// Goal: what jobs above have made of a file is its size for those below, in whatever step they run. Method: calls of fio 3.33 for a job
/// after one that makes 1 MiB of the file; one before it, which fio refuses.
#[test]
fn files_of_jobs_above_are_there() {
    let calls = |above: &str, options: &str| {
        let above = above.replace(" / ", "\n");
        let options = options.replace(" / ", "\n");
        let text = format!(
            "[global]\nfilename=x\nbs=4k\ndirect=1\n[a]\nrw=write\n{above}\n[b]\nstonewall\n{options}\n"
        );
        run(&text).clients.last().expect("a client").calls
    };
    for (options, wanted) in [
        ("rw=read / size=50%", 128),
        ("rw=read / offset=25% / size=50%", 128),
        ("rw=read / offset=25%", 192),
        ("rw=read", 256),
        ("rw=read / io_size=25%", 64),
        ("rw=read / size=100% / io_size=25%", 64),
        ("rw=randread / size=33%", 84),
        ("rw=read / size=50% / offset_increment=50% / numjobs=2", 128),
        (
            "rw=read / size=50% / [c] / stonewall / rw=write / size=4m / [d] / stonewall / rw=read / size=50%",
            512,
        ),
        ("rw=read / filesize=256k / size=50%", 32),
        ("rw=write / offset=50% / size=3m / [c] / stonewall / rw=read", 896),
        ("rw=randread / bs=64k / size=33% / offset=33%", 5),
        ("rw=read / size=0 / number_ios=10", 10),
        ("rw=read / loops=2", 512),
        ("rw=read / size=512k / offset=768k", 128),
        ("rw=read / size=50% / offset=75%", 64),
        ("rw=write / bs=64k / offset_increment=10% / numjobs=2", 14),
    ] {
        assert_eq!(calls("size=1m", options), wanted, "{options}");
    }
    for (above, options, wanted) in [
        ("filename=x:y / size=1m", "filename=x:y / size=50%", 128),
        ("filename=x:y / size=1m", "filename=x:y / offset=25%", 192),
        ("filename=x:y / size=1m", "filename=x:y", 256),
        ("size=1m / numjobs=2 / offset_increment=1m", "size=75%", 384),
        ("size=1m / offset=1m", "size=50%", 256),
        ("size=1m / filesize=2m", "size=50%", 256),
    ] {
        assert_eq!(calls(above, options), wanted, "{above}: {options}");
    }
    let late = "[b]\nfilename=x\nsize=50%\n[a]\nstonewall\nfilename=x\nsize=1m\n";
    assert!(
        refused(late).contains("job.fio:3:6: a percentage of a file that is not there"),
        "{}",
        refused(late)
    );
    let behind = "[a]\nfilename=x\nsize=1m\n[b]\nfilename=x\noffset=1m\n";
    assert!(refused(behind).contains("the offset lies behind the end"), "{}", refused(behind));
}

/// Goal: settings from the command line change drive, stacks, times and contracts, as for experiments. Method: one each.
#[test]
fn settings_change_the_setting() {
    let text = "[a]\nsize=8m\nrw=randread\ncgroup=x\n";
    let settings = ["drive=samsung-970-pro", "group.x.min=1MB/s", "repeats=2", "history=10ms"];
    let overrides = Overrides {
        settings: settings.map(str::to_owned).to_vec(),
        time: Some(Nanos::from_millis(20)),
        stacks: Some(vec!["none-none".to_owned(), "promise".to_owned()]),
        ..Overrides::default()
    };
    let experiment = experiment(text, &overrides);
    let variant = &experiment.variants[0];
    assert_eq!((variant.drive.as_str(), experiment.repeats), ("samsung-970-pro", 2));
    assert_eq!(variant.groups[0].contract.min, Some(1_000_000));
    assert_eq!(experiment.stacks.len(), 2);
    let outcome = iofair_simulator::simulate(&experiment.scenario(0, 1, 0)).unwrap();
    let time = outcome.clients[0].time;
    assert!((20..22).contains(&(time.0 / 1_000_000)), "{time}");
    assert_eq!(outcome.clients[1].name, "history");
}

/// Goal: names stay distinct, groups are counted as fio counts them, and the same file gives the same run. Method: two jobs of one
/// name, walls and a new group; two runs.
#[test]
fn names_and_groups_are_fios() {
    let text = "[a b]\nsize=1m\nnumjobs=2\n[a b]\nsize=1m\nstonewall\n[c]\nsize=1m\nnew_group\n";
    let resolved = experiment(text, &Overrides::default());
    assert_eq!(resolved.variants[0].subjects, ["a b", "a b#2", "c"]);
    let groups: Vec<u32> =
        resolved.jobs.as_ref().unwrap().jobs.iter().map(|job| job.group).collect();
    assert_eq!(groups, [0, 1, 2]);
    // A name may look like the one that another job gets.
    let jobs = ["a", "${N}", "a", "a", "${N}"].map(|name| format!("[x]\nname={name}\nsize=1m\n"));
    let environment = vec![("N".to_owned(), "a#2".to_owned())];
    let variables = fio::Variables { environment, ..fio::Variables::default() };
    let resolved = experiment(&jobs.concat(), &Overrides { variables, ..Overrides::default() });
    assert_eq!(resolved.variants[0].subjects, ["a", "a#2", "a#3", "a#4", "a#2#2"]);
    let mixed =
        "[a]\nsize=2m\nrw=randrw\ndirect=1\nrandom_distribution=pareto:0.2\nstartdelay=0-1s\n";
    assert_eq!(run(mixed), run(mixed));
}

/// Goal: all directions of a run are in its outcome, and together they are the client's numbers. Method: a mix.
#[test]
fn directions_make_the_whole() {
    let client = &run("[a]\nsize=1m\nrw=randrw\ndirect=1\nlog_avg_msec=10\n").clients[0];
    let sum = |of: fn(&iofair_simulator::outcome::DirectionOutcome) -> u64| {
        client.directions.iter().map(of).sum::<u64>()
    };
    assert_eq!((sum(|side| side.bytes), sum(|side| side.calls)), (client.bytes, client.calls));
    assert_eq!(sum(|side| side.latency.count()), client.latency.count());
    let series: u64 = client.series.iter().map(|interval| interval.bytes).sum();
    assert_eq!(
        (series, sum(|side| side.series.iter().map(|part| part.bytes).sum())),
        (client.bytes, series)
    );
}

/// Goal: a job file is known by its text where its name does not tell. Method: a file without an extension and a pipe; an experiment
/// file and one that is neither.
#[test]
fn job_files_are_known_by_their_text() {
    let text = "[a]\nsize=1m\nrw = randread\n";
    let named = experiment(text, &Overrides::default());
    let path = std::env::temp_dir().join(format!("iofair-zjob-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let read = |path: &Path| crate::experiment::read(path, &Overrides::default());
    assert_eq!(read(&path).unwrap().jobs, named.jobs);
    let sweeps = Overrides { sweeps: vec!["drive=a,b".into()], ..Overrides::default() };
    let error = crate::experiment::read(&path, &sweeps).unwrap_err().to_string();
    assert!(error.contains("a job file cannot be swept"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
    drop(writer);
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&reader);
    let piped = read(Path::new(&format!("/proc/self/fd/{descriptor}")));
    assert_eq!(piped.unwrap().jobs, named.jobs);
    for text in [
        "[a]\nsize=1m\n",
        "# all\n[global]\niodepth=4\n[a]\n",
        "[a]\nrw=${RW}\n",
        "[a]\ngroup_reporting\n",
        "; -- start job file --\n[a]\n",
        "include base.fio\n",
    ] {
        assert!(is_job_text(text), "{text}");
    }
    for text in [
        "rw = 'read'\n",
        "job = \"read\"\n",
        "# no rw=read\n",
        "include = [\"a\"]\n",
        "[[client]]\nrate = 5\ndirect = true\n",
        "[machine]\nsize = \"1GiB\"\n",
    ] {
        assert!(!is_job_text(text), "{text}");
    }
}
