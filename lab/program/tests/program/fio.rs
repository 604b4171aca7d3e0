//! `iofair-lab run JOB.fio`: the page `lab/docs/fio.md` with its commands, agreement with the real fio, output that fio's scripts read,
//! and errors.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use iofair_drive::random::Random;
use iofair_experiments::experiment::Overrides;
use iofair_testkit::directory::Directory;
use iofair_testkit::script;
use serde_json::Value as Json;

fn iofair(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    command.arg("run").args(arguments).current_dir(directory).output().unwrap()
}

fn json(path: &Path) -> Json {
    let text = fs::read_to_string(path).unwrap();
    // fio may print warnings first.
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

const JOBS: &str = "[global]\ndirect=1\nioengine=libaio\nsize=8m\nlog_avg_msec=5\n\
    [mixed]\nrw=randrw\nrwmixread=70\niodepth=8\nnumjobs=2\ngroup_reporting\n\
    [writer]\nstonewall\nrw=write\nfdatasync=16\ndescription=a writer\n";

/// Goal: every command of the page works, and the real fio over the server and the simulator agree in what does not depend on
/// time. Method: the page; then the two results of its last part, job by job.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_the_page_works_and_fio_agrees() {
    let page = fs::read_to_string("../../lab/docs/fio.md").unwrap();
    let kept = Directory::new();
    let kept_text = kept.display();
    let keep = format!("```console\n$ cp -r real.json simulated {kept_text}\n```\n");
    assert!(script::run("fio", &(page + &keep)) >= 10, "the page has lost its commands");
    let real = json(&kept.join("real.json"));
    let simulated = json(&kept.join("simulated/promise/fio.json"));
    let jobs = |told: &Json| told["jobs"].as_array().unwrap().clone();
    let (real, simulated) = (jobs(&real), jobs(&simulated));
    let names: Vec<&Json> = real.iter().map(|job| &job["jobname"]).collect();
    assert_eq!(names, simulated.iter().map(|job| &job["jobname"]).collect::<Vec<_>>());
    assert_eq!(names, ["mixed", "split", "synced", "synced"]);
    let count = |job: &Json, side: &str, of: &str| job[side][of].as_u64().unwrap();
    for (real, simulated) in real.iter().zip(&simulated) {
        assert_eq!(real["groupid"], simulated["groupid"]);
        let all = |job: &Json, of: &str| count(job, "read", of) + count(job, "write", of);
        // Without a random map, the last call may reach beyond what is asked.
        let beyond = if real["jobname"] == "split" { 12 << 10 } else { 0 };
        for job in [real, simulated] {
            assert!((4 << 20..=(4 << 20) + beyond).contains(&all(job, "io_bytes")), "{job}");
        }
        let (calls, ours) = (all(real, "total_ios") as f64, all(simulated, "total_ios") as f64);
        // Sizes are drawn by both: of 1 MiB of calls, a tenth more or less.
        let tolerance = if real["jobname"] == "split" { 0.15 } else { 0.0 };
        assert!((ours / calls - 1.0).abs() <= tolerance, "{calls} {ours}");
        let part =
            |job: &Json| count(job, "read", "total_ios") as f64 / all(job, "total_ios") as f64;
        assert!((part(real) - part(simulated)).abs() < 0.06, "{} {}", part(real), part(simulated));
    }
    // Of 512 writes, one after each sixteenth but the last.
    assert_eq!(simulated[2]["sync"]["lat_ns"]["N"], 31);
    assert_eq!(real[2]["sync"]["lat_ns"]["N"], 31);
    assert_eq!(simulated[2]["sync"]["total_ios"], real[2]["sync"]["total_ios"]);
}

/// Goal: results in fio's formats have all of a run, and the same run writes the same bytes. Method: two stacks, clones that
/// report together, walls; sums, percentiles, bins and logs compared.
#[test]
fn results_are_written_as_fio_does() {
    let directory = Directory::new();
    fs::write(directory.join("a.fio"), JOBS).unwrap();
    let arguments = ["a.fio", "--stack", "none-none,promise", "--fio", "out"];
    let told = iofair(&directory, &arguments);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(
        text.contains("promise") && text.contains("writer") && text.contains("mixed"),
        "{text}"
    );
    let file = directory.join("out/promise/fio.json");
    let told = json(&file);
    assert_eq!(told["global options"]["size"], "8m");
    let jobs = told["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2, "two clones report together");
    let (mixed, writer) = (&jobs[0], &jobs[1]);
    assert_eq!((&mixed["job options"]["rwmixread"], &writer["groupid"]), (&"70".into(), &1.into()));
    assert_eq!(writer["desc"], "a writer");
    let sum = |side: &str| mixed[side]["io_bytes"].as_u64().unwrap();
    assert_eq!(sum("read") + sum("write"), 16 << 20);
    assert_eq!(writer["write"]["total_ios"], 2048);
    let sync = &writer["sync"];
    assert_eq!((&sync["total_ios"], &sync["lat_ns"]["N"]), (&0.into(), &127.into()));
    let bins = writer["write"]["clat_ns"]["bins"].as_object().unwrap();
    assert_eq!(bins.values().map(|bin| bin.as_u64().unwrap()).sum::<u64>(), 2048);
    let shares = ["latency_ns", "latency_us", "latency_ms"].map(|unit| {
        writer[unit].as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum::<f64>()
    });
    assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{shares:?}");
    let p99 = writer["write"]["clat_ns"]["percentile"]["99.000000"].as_u64().unwrap();
    assert!(p99 > 0 && p99 <= writer["write"]["clat_ns"]["max"].as_u64().unwrap());
    let samples = &writer["write"]["bw_samples"];
    assert!(samples.as_u64().unwrap() > 1 && writer["write"]["bw_mean"].as_f64().unwrap() > 0.0);
    assert!(told["disk_util"][0]["write_ios"].as_u64().unwrap() > 0);
    let log = fs::read_to_string(directory.join("out/promise/mixed.1_bw.2.log")).unwrap();
    let fields: Vec<&str> = log.lines().next().unwrap().split(", ").collect();
    assert!(fields.len() == 5 && fields[0] == "5", "{log}");
    for name in ["mixed.0_iops.1.log", "writer_lat.3.log"] {
        assert!(directory.join("out/none-none").join(name).exists(), "{name}");
    }
    let before = fs::read(&file).unwrap();
    assert!(iofair(&directory, &arguments).status.success());
    assert_eq!(fs::read(&file).unwrap(), before);
}

/// Goal: fio's own scripts read what is written. Method: fio2gnuplot makes the data of plots from the logs of bandwidth and I/Os,
/// fio_jsonplus_clat2csv a CSV of latencies that it validates itself.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_fios_scripts_read_the_results() {
    let directory = Directory::new();
    fs::write(directory.join("a.fio"), JOBS).unwrap();
    assert!(iofair(&directory, &["a.fio", "--fio", "out"]).status.success());
    let place = directory.join("out/promise");
    let run = |program: &str, arguments: &[&str]| {
        let told = Command::new(program).args(arguments).current_dir(&place).output().unwrap();
        let text = String::from_utf8_lossy(&told.stdout) + String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success(), "{program}: {text}");
        text.into_owned()
    };
    for (kind, log) in [("-b", "bw"), ("-i", "iops")] {
        let told = run("fio2gnuplot", &[kind, "-d", log, "-k"]);
        assert!(!told.contains("Traceback"), "{told}");
        let made: Vec<_> = fs::read_dir(place.join(log)).unwrap().flatten().collect();
        assert!(!made.is_empty(), "{told}");
    }
    run("fio_jsonplus_clat2csv", &["fio.json", "latencies.csv"]);
    let told = run("fio_jsonplus_clat2csv", &["--validate", "fio.json", "latencies.csv"]);
    assert!(told.contains("latencies_job0.csv validated"), "{told}");
    let csv = fs::read_to_string(place.join("latencies_job0.csv")).unwrap();
    assert!(csv.lines().count() > 10, "{csv}");
}

/// Goal: a job file runs live, and does there what it does in the simulator. Method: a mix, trims and a wall for a part of a second;
/// the bytes of each.
#[test]
fn a_job_file_runs_live() {
    let directory = Directory::new();
    let jobs = "[global]\ndirect=1\nioengine=libaio\nsize=1m\n[mixed]\nrw=randrw\niodepth=4\n[trim]\nstonewall\nrw=trim\n";
    fs::write(directory.join("a.fio"), jobs).unwrap();
    let told = iofair(
        &directory,
        &["a.fio", "--on", "serve", "--json", "--quiet", "--stack", "none-none"],
    );
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: Json = serde_json::from_slice(&told.stdout).unwrap();
    assert!(told["experiments"].as_array().is_some_and(|all| all.len() == 1), "{told}");
}

/// Goal: a job file runs on the kernel with fio, which does the bytes that it says. Method: a mix with two sizes, a wall, a reader of
/// the same file for a while.
#[test]
#[ignore = "needs root and clients: loop devices, FUSE, groups, and fio"]
fn needs_root_needs_clients_a_job_file_runs_on_linux() {
    let directory = Directory::new();
    let jobs = "[global]\ndirect=1\nioengine=libaio\nfilename=data\nsize=4m\n[mixed]\nrw=randrw\nrwmixread=70\niodepth=4\n\
        [reader]\nstonewall\nrw=randread\ntime_based\nruntime=300ms\n";
    fs::write(directory.join("a.fio"), jobs).unwrap();
    let arguments =
        ["a.fio", "--on", "linux", "--quiet", "--stack", "none-mq-deadline", "--fio", "out"];
    let told = iofair(&directory, &arguments);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told = json(&directory.join("out/none-mq-deadline/fio.json"));
    let bytes = |side: &str| told["jobs"][0][side]["io_bytes"].as_u64().unwrap();
    assert_eq!(bytes("read") + bytes("write"), 4 << 20, "{told}");
    assert!(bytes("read") > bytes("write"), "{told}");
    assert!(told["jobs"][1]["read"]["total_ios"].as_u64().unwrap() > 0, "{told}");
}

/// Goal: what is wrong with a file is said with its place, and the exit code is that of wrong usage. Method: an option that is
/// misspelt, a variable that is not set, `--set` of a group that is not there.
#[test]
fn errors_name_their_place() {
    let directory = Directory::new();
    let refuse = |text: &str, arguments: &[&str]| {
        fs::write(directory.join("a.fio"), text).unwrap();
        let told = iofair(&directory, &[&["a.fio"], arguments].concat());
        assert_eq!(told.status.code(), Some(2), "{text}");
        String::from_utf8_lossy(&told.stderr).into_owned()
    };
    let error = refuse("[a]\nsize=1m\niodeph=4\n", &[]);
    assert!(
        error.contains("a.fio:3:1: unsupported option `iodeph`") && error.contains("`iodepth`")
    );
    assert!(refuse("[a]\nsize=${IOFAIR_NO_SUCH}\n", &[]).contains("no variable `IOFAIR_NO_SUCH`"));
    let error = refuse("[a]\nsize=1m\ncgroup=x\n", &["--set", "group.y.min=1MB/s"]);
    assert!(error.contains("no `group` is called `y`"), "{error}");
    let error = refuse("[a]\nsize=1m\n", &["--drive", "floppy"]);
    assert!(error.contains("floppy"), "{error}");
}

/// Goal: a file that leaves sizes to the command line, and asks for what the simulator does not have, runs with arguments; what was
/// left out is said in the table and in the JSON. Method: such a file, first without them.
#[test]
fn arguments_complete_a_file() {
    let directory = Directory::new();
    let text = "[global]\nhipri ; polling\n[a]\nrw=randwrite # anywhere\nverify=md5\n[b]\nioengine=cpuio\n";
    fs::write(directory.join("a.fio"), text).unwrap();
    let told = iofair(&directory, &["a.fio"]);
    let error = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(2));
    for part in ["a.fio:5:8: option `verify`", "a.fio:7:10: option `ioengine`", "no `size`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let arguments = ["a.fio", "--set", "size=1m", "--ignore-unsupported", "--stack", "none-none"];
    let told = iofair(&directory, &arguments);
    let table = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let note = "Without effect here: hipri. LEFT OUT, although fio would do it: ioengine=cpuio, verify=md5.";
    assert!(table.contains(note), "{table}");
    let told = iofair(&directory, &[&arguments[..], &["--json"]].concat());
    let json: Json = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(json["note"], note);
    assert_eq!(json["runs"][0]["clients"][0]["directions"]["write"]["calls"], 256);
    // `explain` watches the same run.
    let explain = |arguments: &[&str]| {
        let arguments = [&["explain"], arguments].concat();
        Command::new(env!("CARGO_BIN_EXE_iofair-lab"))
            .args(arguments)
            .current_dir(&directory)
            .output()
            .unwrap()
    };
    assert_eq!(explain(&["a.fio"]).status.code(), Some(2));
    let drive = ["--drive", "samsung-970-pro", "--seed", "7", "--json"];
    let told = explain(&[&arguments[..], &drive].concat());
    let json: Json = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(
        (&json["run"]["drive"], &json["run"]["seed"]),
        (&"samsung-970-pro".into(), &7.into())
    );
}

/// Goal: `explain` has the times of the jobs. Method: a job with a warm-up, which ends another one that has calls in flight: the title, the
/// requests that count beside the calls of `run`, and the longest waits.
#[test]
fn explain_has_the_times_of_jobs() {
    let directory = Directory::new();
    let text = "[global]\ndirect=1\nioengine=libaio\nrw=randread\nsize=16m\ntime_based\nexitall\n\
        [a]\nruntime=30ms\nramp_time=20ms\n[b]\niodepth=32\nruntime=10\n";
    fs::write(directory.join("a.fio"), text).unwrap();
    let told = iofair(&directory, &["a.fio", "--json"]);
    let ran: Json = serde_json::from_slice(&told.stdout).unwrap();
    let calls = ran["runs"][0]["clients"][0]["directions"]["read"]["calls"].as_u64().unwrap();
    let explain = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
        command.args(["explain", "a.fio"]).args(more).current_dir(&directory).output().unwrap()
    };
    let title = String::from_utf8(explain(&[]).stdout).unwrap();
    assert!(title.contains(", seed 1, ended after 50"), "{title}");
    let told: Json = serde_json::from_slice(&explain(&["--json"]).stdout).unwrap();
    let time = told["run"]["time_ns"].as_u64().unwrap();
    assert!((50_000_000..60_000_000).contains(&time), "{time}");
    let waits = told["summary"]["waits"].as_array().unwrap();
    let of_a = waits.iter().find(|wait| wait["client"] == "a").unwrap();
    assert!(of_a["requests"].as_u64().unwrap().abs_diff(calls) <= 1, "{of_a} {calls}");
    assert!(told["summary"]["unfinished"].as_u64().unwrap() > 0, "{told}");
    assert!(waits.iter().all(|wait| wait["max_ns"].as_u64().unwrap() < time), "{told}");
}

/// Goal: a job file is read from standard input, and known without an extension and without `rw`. Method: the same file in each way; two
/// of standard input.
#[test]
fn job_files_come_in_every_way() {
    let directory = Directory::new();
    let text = "[a]\nsize=64k\nbs=4k\n";
    for name in ["a.fio", "a", "a.conf"] {
        fs::write(directory.join(name), text).unwrap();
        let told = iofair(&directory, &[name, "--json"]);
        assert!(told.status.success(), "{name}: {}", String::from_utf8_lossy(&told.stderr));
    }
    let piped = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
        command.arg("run").args(arguments).current_dir(&directory);
        command.stdin(fs::File::open(directory.join("a")).unwrap()).output().unwrap()
    };
    let told = piped(&["-", "--json"]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let json: Json = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(json["runs"][0]["clients"][0]["directions"]["read"]["calls"], 16);
    let told = piped(&["-", "-"]);
    let error = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.code() == Some(2) && error.contains("standard input"), "{error}");
}

/// Goal: results do not replace what they are made of. Method: a job file and a link to it as the page of its run.
#[test]
fn results_replace_no_job_file() {
    let directory = Directory::new();
    fs::write(directory.join("a.fio"), "[a]\nsize=64k\n").unwrap();
    std::os::unix::fs::symlink("a.fio", directory.join("b.html")).unwrap();
    for page in ["a.fio", "./a.fio", "b.html"] {
        let told = iofair(&directory, &["a.fio", "--html", page]);
        let error = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(told.status.code() == Some(2) && error.contains("is read by this"), "{error}");
    }
    assert_eq!(fs::read_to_string(directory.join("a.fio")).unwrap(), "[a]\nsize=64k\n");
}

/// Goal: nothing in a job file reaches the terminal as a command. Method: escape sequences in a name and in a description; what is
/// printed has line breaks as its only control characters.
#[test]
fn names_are_no_commands() {
    let directory = Directory::new();
    let text = "[a\u{1b}[2J]\ndescription=x\u{1b}]0;y\u{7}\nsize=64k\n";
    fs::write(directory.join("a.fio"), text).unwrap();
    let told = iofair(&directory, &["a.fio", "--stack", "none-none"]);
    let table = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success() && table.contains("a\\u{1b}[2J"), "{table}");
    assert!(table.split('\n').all(|line| !line.contains(char::is_control)), "{table:?}");
}

/// Goal: what is a comment, how many calls and how many syncs a job makes are as with the real fio. Method: a file of jobs that ask
/// for parts of files and for syncs, run by both; calls, bytes and syncs job by job.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_calls_are_those_of_fio() {
    let directory = Directory::new();
    let text = "[global] ; as people write it\nioengine=psync # one at a time\nsize=1m\nfallocate=none\n\
        create_only=0\nverify=0\nnrfiles=1 ; one\n\
        [half]\nfilename=half#1\nio_size=50%\n[part]\nio_size=10k\nrw=randread\n[twelve]\nbs=12k\nio_size=50%\nloops=3\n\
        [more]\nrw=write\nio_size=1500k\n[synced]\nrw=write\nfsync=16\n[each]\nrw=randwrite\nfsync=1\nend_fsync=1\n\
        [few]\nrw=write\nfsync=16\nnumber_ios=32\n[back]\nrw=read:-8k\ndirect=1\n[durable]\nrw=write\nsync=1\n\
        [after]\nwait_for=each\nfilesize=2m\nsize=1m\nrw=randread\n\
        [gap]\nrw=write:8k\ndirect=1\n[round]\nrw=write:12k\ndirect=1\nsize=66k\n[again]\nrw=randwrite\nbs=12k\nnorandommap\nloops=2\n\
        [aligned]\nrw=randread\nbs=12k\nba=4k\n[plain]\nrw=write\nrandom_distribution=zipf:1.2\ntime_based\n\
        [section]\nname=named\nrw=read\n[zones]\nwait_for=named\ndirect=1\nsize=250k\nzonemode=strided\nzonesize=16k\nzoneskip=32k\n\
        [turns]\nrw=write\nsize=1000k\nnrfiles=3\nfile_service_type=roundrobin:4\n\
        [rest]\nrw=write:8k\ndirect=1\nsize=128k\noffset=64k\nfsync=4\nloops=2\n";
    fs::write(directory.join("a.fio"), text).unwrap();
    let fio = ["--output-format=json", "--output=real.json", "a.fio"];
    let status = Command::new("fio").args(fio).current_dir(&directory).status().unwrap();
    assert!(status.success());
    let told = iofair(&directory, &["a.fio", "--stack", "none-none", "--fio", "out"]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let real = json(&directory.join("real.json"));
    let ours = json(&directory.join("out/none-none/fio.json"));
    let jobs = |told: &Json| told["jobs"].as_array().unwrap().clone();
    let (real, ours) = (jobs(&real), jobs(&ours));
    assert_eq!((real.len(), ours.len()), (19, 19));
    for (real, ours) in real.iter().zip(&ours) {
        let name = &real["jobname"];
        assert_eq!(*name, ours["jobname"]);
        for side in ["read", "write"] {
            for of in ["total_ios", "io_bytes"] {
                assert_eq!(real[side][of], ours[side][of], "{name} {side} {of}");
            }
        }
        assert_eq!(real["sync"]["total_ios"], ours["sync"]["total_ios"], "{name}");
    }
}

/// Options of drawn jobs, how many percent of the jobs have each, and its values.
const DRAWN: &[(&str, u64, &[&str])] = &[
    (
        "rw",
        100,
        &[
            "read",
            "write",
            "randread",
            "randwrite",
            "rw",
            "randrw",
            "trim",
            "randtrim",
            "trimwrite",
            "randtrimwrite",
            "read:-8k",
            "write:-4k",
            "read:8k",
            "write:12k",
            "read:2k",
            "trim:4k",
            "randread:4",
            "randwrite:3",
            "read",
            "write",
        ],
    ),
    ("bs", 100, &["4k", "8k", "12k", "16k", "512", ",8k", ",,8k", "4k,,8k", "4k,16k", "16k,4k"]),
    ("size", 100, &["48k", "64k", "66k", "100000", "128k", "250k", "1m"]),
    ("filesize", 25, &["96k", "128k", "200000", "300k", "1m"]),
    ("offset", 30, &["1k", "4k", "16k", "20k", "32k", "64k"]),
    ("io_size", 30, &["10k", "33%", "50%", "96k", "100k", "200000", "300k", "1m"]),
    ("loops", 25, &["2", "3"]),
    ("norandommap", 15, &["1"]),
    ("zonesize", 15, &["16k", "32k", "48k"]),
    ("zoneskip", 60, &["8k", "16k", "32k"]),
    ("zonerange", 20, &["48k", "64k"]),
    ("nrfiles", 20, &["2", "3", "5"]),
    ("file_service_type", 80, &["sequential", "roundrobin:2", "roundrobin:4", "random"]),
    ("offset_increment", 15, &["16k", "20k", "32k", "64k"]),
    ("fsync", 30, &["1", "3", "4"]),
    ("fdatasync", 15, &["2", "6"]),
    ("end_fsync", 20, &["1"]),
    ("number_ios", 8, &["3", "5", "40"]),
];

/// The lines of a job; `None` if the number of its calls depends on fio's own random numbers or faults.
fn drawn_job(random: &mut Random, engine: &str) -> Option<String> {
    let mut all = Vec::new();
    for (name, percent, values) in DRAWN {
        if random.below(100) < *percent {
            all.push((*name, values[random.below(values.len() as u64) as usize]));
        }
    }
    let get = |name: &str| all.iter().find(|option| option.0 == name).map(|option| option.1);
    let has = |name: &str| get(name).is_some();
    let (rw, bs) = (get("rw")?, get("bs")?);
    let bytes = |text: &str| match text.strip_suffix(['k', 'm']) {
        Some(digits) => digits.parse::<u64>().unwrap() << if text.ends_with('k') { 10 } else { 20 },
        None => text.parse().unwrap(),
    };
    let [size, file] = [Some(get("size")?), get("filesize")].map(|size| size.map_or(0, bytes));
    let block = if bs.contains(',') { 1 } else { bytes(bs) };
    let is_random = rw.starts_with("rand");
    let is_mixed = ["rw", "randrw"].contains(&rw);
    let again = has("loops") || get("io_size").is_some_and(|size| !size.ends_with('%'));
    let syncs = has("fsync") || has("fdatasync");
    let at_once = engine.contains("iodepth");
    let by_chance = [
        // Its map of random blocks has too many for calls that are longer than others.
        is_random && bs.contains(','),
        // Random calls that go on at a part of a block end the pass.
        is_random && rw.contains(':') && (again || size % block > 0 || file % block > 0),
        // A direction of a mix may reach the end first.
        is_mixed && (again || file > 0 || size < 128 << 10 || bs.contains(',')),
        // It takes a file that it did not make for as long as `size`.
        file > 0 && file < size,
        // Pairs: it counts them anew in each pass, and writes elsewhere than it trims.
        rw.contains("trimwrite")
            && (has("number_ios") || again || has("offset") || bs.contains(',')),
        rw.contains("trimwrite") && has("offset_increment"),
        // Which of several files it writes next.
        rw.contains("trimwrite") && get("file_service_type") == Some("random"),
        // It syncs once more where a pass begins; between zones, syncs count as calls; of several calls in flight, those that
        // happen to be complete.
        syncs && (again || has("zonesize") || at_once),
    ];
    if by_chance.contains(&true) {
        return None;
    }
    let left_out = |name: &str| match name {
        "zoneskip" | "zonerange" => !has("zonesize"),
        "file_service_type" => !has("nrfiles"),
        _ => false,
    };
    let shown = all.iter().filter(|(name, _)| !left_out(name));
    let mut lines: Vec<String> = shown.map(|(name, value)| format!("{name}={value}")).collect();
    if has("zonesize") {
        lines.push("zonemode=strided".into());
    }
    if has("offset_increment") {
        lines.push("numjobs=3".into());
    }
    let engine = if rw.contains("trim") { engine.replace("psync", "null") } else { engine.into() };
    Some(format!("{}\nioengine={engine}\n", lines.join("\n")))
}

/// Goal: jobs make as many calls, bytes and syncs as with the real fio. Method: 400 jobs, drawn from options and values that decide
/// about that, by an engine that completes calls at once and by one that does not; what the simulator refuses is left out.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_drawn_jobs_are_those_of_fio() {
    let directory = Directory::new();
    let overrides = Overrides { settings: vec!["direct=1".into()], ..Overrides::default() };
    for (seed, engine) in [(1, "psync"), (2, "null\niodepth=4")] {
        let mut random = Random::new(seed, 0);
        let (mut jobs, mut refused) = (Vec::new(), 0);
        while jobs.len() < 200 {
            let Some(job) = drawn_job(&mut random, engine) else { continue };
            match iofair_experiments::jobs::parse("a.fio", &format!("[a]\n{job}"), &overrides) {
                Ok(_) => jobs.push(job),
                Err(_) => refused += 1,
            }
        }
        assert!(refused < 100, "{refused} refused");
        let mut text = "[global]\ngroup_reporting\nfallocate=none\nthread\n".to_owned();
        for (number, job) in jobs.iter().enumerate() {
            text += &format!("[{number}]\nnew_group\n{job}");
        }
        fs::write(directory.join("a.fio"), text).unwrap();
        let fio = ["--output-format=json", "--output=real.json", "a.fio"];
        assert!(Command::new("fio").args(fio).current_dir(&directory).status().unwrap().success());
        let arguments = ["a.fio", "--set", "direct=1", "--stack", "none-none", "--fio", "out"];
        let told = iofair(&directory, &arguments);
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let counts = |path: &str| -> Vec<[u64; 7]> {
            let told = json(&directory.join(path));
            let count = |job: &Json| {
                let side = |side: &str| {
                    ["total_ios", "io_bytes"].map(|of| job[side][of].as_u64().unwrap())
                };
                let [reads, writes, trims] = ["read", "write", "trim"].map(side);
                let syncs = job["sync"]["lat_ns"]["N"].as_u64().unwrap_or(0);
                // Directions of a mix are drawn.
                match reads[0] > 0 && writes[0] > 0 {
                    true => [reads[0] + writes[0], reads[1] + writes[1], 0, 0, 0, 0, 0],
                    false => [reads[0], reads[1], writes[0], writes[1], trims[0], trims[1], syncs],
                }
            };
            told["jobs"].as_array().unwrap().iter().map(count).collect()
        };
        let (real, ours) = (counts("real.json"), counts("out/none-none/fio.json"));
        assert_eq!((real.len(), ours.len()), (jobs.len(), jobs.len()));
        let pairs = jobs.iter().zip(real.iter().zip(&ours));
        let differ = pairs.filter(|(_, (real, ours))| real != ours);
        let differ: Vec<String> = differ
            .map(|(job, (real, ours))| format!("{job}fio {real:?}\nnot {ours:?}\n"))
            .collect();
        assert!(differ.is_empty(), "{} jobs:\n{}", differ.len(), differ.join("\n"));
    }
}

/// Goal: the page lists the options that there are. Method: every name of both lists stands on it.
#[test]
fn the_page_lists_all_options() {
    let page = fs::read_to_string("../../lab/docs/fio.md").unwrap();
    for name in iofair_config::fio::SUPPORTED.iter().copied().chain(iofair_config::fio::ignored()) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}
