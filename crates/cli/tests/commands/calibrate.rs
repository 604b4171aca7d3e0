//! `iofair calibrate`, and `docs/calibrate.md`: what the page tells its reader to type works as it is written.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use iofair_testkit::script;

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("iofair-calibrate-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

fn calibrate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iofair")).arg("calibrate").args(arguments).output().unwrap()
}

/// Goal: every command of the page does what is said around it. Method: all of them, in order, with the page's own contracts.
#[test]
#[ignore = "needs clients and time: nbdinfo, fio; two minutes"]
fn needs_time_needs_clients_the_page_about_calibration_is_true() {
    let page = fs::read_to_string("../../docs/calibrate.md").unwrap();
    assert!(script::run("calibrate", &page) > 8, "the page has lost its commands");
}

/// Goal: nothing is written without permission, holes and bad targets are refused with a reason, and no profile is left.
/// Method: a file of holes, one that is too short, an unknown profile, a remote volume.
#[test]
fn bad_targets_are_refused() {
    let directory = scratch("refused");
    let (image, out) = (directory.join("image"), directory.join("out.toml"));
    let (image, out) = (image.to_str().unwrap(), out.to_str().unwrap());
    fs::File::create(image).unwrap().set_len(128 << 20).unwrap();
    let refused = |arguments: &[&str], told: &str| {
        let output = calibrate(&[arguments, &["--out", out]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(told), "{arguments:?}: {text}");
        assert!(!Path::new(out).exists());
    };
    refused(&[image], "holes");
    refused(&[image, "--size", "1GiB"], "--write makes it");
    refused(&["emulated:nothing"], "plextor-px256m5s");
    refused(&["nbd://host/volume"], "nbd+unix:///NAME?socket=PATH");
    refused(&["/no/such/device"], "/no/such/device");
    let new = directory.join("new");
    refused(&[new.to_str().unwrap(), "--size", "1MiB", "--write"], "too few");
    assert!(!new.exists());
    let mistyped = "/dev/iofair-mistyped";
    refused(&[mistyped, "--size", "64MiB", "--write"], "no such device");
    assert!(!Path::new(mistyped).exists());
    refused(&["emulated:nvme-2015", "--resume"], "rows.json does not exist");
    refused(&["emulated:nvme-2015", "--size", "1TB"], "has only");
    refused(&[image, "--row-time", "0s"], "10 ms");
    assert_eq!(fs::metadata(image).unwrap().len(), 128 << 20);
    fs::remove_dir_all(directory).unwrap();
}

/// Goal: a table of public measurements becomes a profile that says what its rows leave open. Method: a drive with one number that is
/// refused; a table without a drive, and with one that it does not have.
#[test]
fn a_table_of_measurements_becomes_a_profile() {
    let directory = scratch("table");
    let out = directory.join("out.toml");
    let out = out.to_str().unwrap();
    let table = "../../profiles/measured/iocost-benchmarks.csv";
    for (model, told) in [(&[][..], "--model"), (&["--model", "Intel Optane"], "WD Blue SN580")] {
        let output = calibrate(&[&["--from", table, "--out", out], model].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(told), "{text}");
    }
    let output = calibrate(&["--from", table, "--model", "Fanxiang", "--out", out]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("left out: line 15: read_p95"), "{told}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("decided by no row: ") && told.contains("verifies"), "{told}");
    let profile = iofair_drive::profile::read(out).unwrap();
    let number = |key: &str| profile.numbers.iter().find(|number| number.key == key).unwrap();
    assert!(!number("model.ssd.link").free && number("model.ssd.ftl.over-provisioning").free);
    assert_eq!(number("capacity").value, "1024209543168B");
    fs::remove_dir_all(directory).unwrap();
}

/// Goal: results of resctl-bench become a profile, whether the benchmark that measures the drive is in the file or a later one repeats
/// its numbers. Method: what a public submission (iocost-benchmarks, CT1000P3PSSD8) has of both; files that have neither.
#[test]
fn results_of_resctl_bench_become_a_profile() {
    let directory = scratch("resctl");
    let at = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let model = r#"{"rbps": 4579942252, "rrandiops": 134655, "rseqiops": 391807, "wbps": 2220783051, "wrandiops": 17024, "wseqiops": 128640}"#;
    let qos =
        r#"{"max": 100.0, "min": 60.0, "rlat": 39518, "rpct": 95.0, "wlat": 287834, "wpct": 95.0}"#;
    let system =
        r#"{"sysreqs_report": {"scr_dev_model": "CT1000P3PSSD8", "scr_dev_size": 1000204886016}}"#;
    let file = |kind: &str, [numbers, waits]: [&str; 2]| {
        format!(
            r#"[{{"spec": {{"kind": "{kind}"}}, "sysinfo": {system}, "record": {{"{numbers}": {model}, "{waits}": {qos}}}}}]"#
        )
    };
    let files =
        [file("iocost-params", ["model", "qos"]), file("iocost-qos", ["base_model", "base_qos"])];
    let profiles = files.each_ref().map(|text| {
        let (from, out) = (at("result.json"), at("out.toml"));
        fs::write(&from, text).unwrap();
        let output = calibrate(&["--from", &from, "--out", &out, "--force"]);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("4579.9 MB/s"), "{told}");
        fs::read_to_string(&out).unwrap()
    });
    assert!(profiles[0] == profiles[1] && profiles[0].contains("CT1000P3PSSD8"), "{}", profiles[0]);
    for (text, told) in
        [("", "is empty"), ("[{}]", "iocost-params"), ("{}", "neither"), ("[1", "no JSON")]
    {
        fs::write(at("other.json"), text).unwrap();
        let output = calibrate(&["--from", &at("other.json"), "--out", &at("other.toml")]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(told), "{text}: {error}");
    }
    fs::remove_dir_all(directory).unwrap();
}

/// Goal: the results of any fio job become a profile, and a job that does not show the drive is named with the reason. Method: a real
/// run on a file, of jobs of all kinds; and only such that show nothing.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_results_of_any_fio_job_become_a_profile() {
    let directory = scratch("fio");
    let at = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let shown = "[alone]\nstonewall\ndirect=1\nrw=randread\n[deep]\nstonewall\ndirect=1\nrw=randread\nioengine=libaio\niodepth=16\n\
        numjobs=2\n[stream]\nstonewall\ndirect=1\nrw=read\nbs=256k\nioengine=libaio\niodepth=8\n";
    let others = "[cached]\nstonewall\nrw=randread\n[mix]\nstonewall\ndirect=1\nrw=randrw\n[slow]\nstonewall\ndirect=1\nrate_iops=50\n\
        [one]\nstonewall\ndirect=1\nrw=read\n[other]\ndirect=1\nrw=read\n";
    let run = |jobs: &str, results: &str| {
        let head =
            format!("[global]\nfilename={}\nsize=16m\nruntime=200ms\ntime_based\n", at("file"));
        fs::write(at("job.fio"), head + jobs).unwrap();
        let mut fio = Command::new("fio");
        fio.args(["--output-format=json", &format!("--output={results}"), &at("job.fio")]);
        assert!(fio.status().unwrap().success());
        calibrate(&["--from", results, "--out", &at("out.toml"), "--force"])
    };
    let output = run(&format!("{shown}{others}"), &at("all.json"));
    let (told, notes) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{notes}");
    for row in [
        "4k random reads, QD1, rate",
        "4k random reads, QD32, rate",
        "256k sequential reads, QD8, rate",
    ] {
        assert!(told.contains(row), "{told}");
    }
    let reasons = [
        ("cached", "page cache"),
        ("mix", "rw=randrw"),
        ("slow", "rate_iops limits it"),
        ("one", "beside other jobs"),
    ];
    for (job, reason) in reasons {
        let line = notes.lines().find(|line| line.contains(&format!("job \"{job}\"")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{job}: {notes}");
    }
    let output = run(others, &at("none.json"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("no job shows the drive"), "{error}");
    fs::remove_dir_all(directory).unwrap();
}

/// Goal: a profile, measurements and a page that exist are kept unless they may be overwritten. Method: files of those
/// names.
#[test]
fn existing_files_are_kept() {
    let directory = scratch("existing");
    let at = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (out, page) = (at("out.toml"), at("page.html"));
    let arguments = ["emulated:nvme-2015", "--out", &out, "--page", &page];
    for name in ["out.toml", "out.rows.json", "page.html"] {
        let path = directory.join(name);
        fs::write(&path, "mine").unwrap();
        let output = calibrate(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        let is_told = text.contains(name) && text.contains("--force");
        assert!(output.status.code() == Some(2) && is_told, "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
    }
    // Before anything is measured.
    for (page, told) in [(&out, "the same file"), (&at("missing/page.html"), "no directory")] {
        let output = calibrate(&["emulated:nvme-2015", "--out", &out, "--page", page]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(told), "{text}");
    }
    fs::remove_dir_all(directory).unwrap();
}

/// Goal: a volume in which nothing was ever written is told, since its reads do not reach the drive, and is written once
/// where that is allowed; one that is too small, and one smaller than asked, are left alone. Method: two volumes of a live server.
#[test]
fn an_empty_volume_is_told_and_filled() {
    let directory = scratch("empty");
    let contracts = "[drive]\nback = 'directory:pool'\nstack = 'none-none'\n[listen]\nunix = 'a.sock'\n\
        [[group]]\nname = 'g'\n[[volume]]\nname = 'small'\ngroup = 'g'\nsize = '32MiB'\n\
        [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '64MiB'\n";
    fs::write(directory.join("contracts.toml"), contracts).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair"));
    command.args(["serve", "contracts.toml"]).current_dir(&directory).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let uri =
        |volume| format!("nbd+unix:///{volume}?socket={}", directory.join("a.sock").display());
    let (target, out) = (uri("v"), directory.join("out.toml"));
    let out = out.to_str().unwrap();
    let refused = |arguments: &[&str], told: &str| {
        let output = calibrate(&[arguments, &["--out", out]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(told), "{arguments:?}: {text}");
    };
    let allocated = |volume| {
        let file = directory.join(format!("pool/{volume}.img"));
        fs::metadata(file).unwrap().blocks() * 512
    };
    refused(&[&uri("small")], "too few");
    refused(&[&uri("small"), "--write"], "too few");
    refused(&[&target, "--write", "--size", "1MiB"], "too few");
    refused(&[&target, "--write", "--size", "1GiB"], "has only");
    assert!(allocated("small") + allocated("v") < 1 << 20, "nothing was written");
    let read = interrupted(&[&target, "--out", out, "--row-time", "10ms"]);
    assert!(read.contains("reads as zeros") && allocated("v") < 1 << 20, "{read}");
    let written = interrupted(&[&target, "--out", out, "--row-time", "10ms", "--write", "--force"]);
    assert!(written.contains("filling 64 MiB") && allocated("v") >= 64 << 20, "{written}");
    let ended = Command::new("kill").arg(server.id().to_string()).status().unwrap();
    assert!(ended.success() && server.wait().unwrap().success());
    fs::remove_dir_all(directory).unwrap();
}

/// Starts a calibration, interrupts it after its first row, and returns what it printed on standard error.
fn interrupted(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair"));
    command.arg("calibrate").args(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let is_second = |line: &String| line.starts_with("calibrate: 2 of") || line.contains("fitting");
    let mut text = Vec::new();
    while text.last().is_none_or(|line| !is_second(line)) {
        text.push(lines.next().unwrap_or_else(|| panic!("ended early: {text:?}")));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    text.extend(lines);
    let (status, text) = (child.wait().unwrap(), text.join("\n"));
    assert!(status.code() == Some(130) && text.contains("--resume continues"), "{text}");
    text
}

fn rows(journal: &Path) -> usize {
    let kept: serde_json::Value = serde_json::from_slice(&fs::read(journal).unwrap()).unwrap();
    kept["records"].as_array().unwrap().len()
}

/// Goal: an interruption keeps what was measured and writes no profile, and a calibration that is resumed measures none of
/// it again. Method: a model in simulated time, interrupted twice.
#[test]
fn an_interruption_keeps_rows() {
    let directory = scratch("interrupted");
    let out = directory.join("out.toml");
    let journal = out.with_extension("rows.json");
    let out = out.to_str().unwrap();
    interrupted(&["emulated:nvme-2015", "--out", out]);
    let before = rows(&journal);
    assert!(before > 0 && !Path::new(out).exists());
    let text = interrupted(&["emulated:nvme-2015", "--out", out, "--resume"]);
    assert!(rows(&journal) >= before && !Path::new(out).exists());
    assert!(!text.contains(": 4 KiB random reads, QD1\n"), "measured again: {text}");
    let other = calibrate(&["emulated:nvme-2015", "--out", out, "--resume", "--size", "1GiB"]);
    let text = String::from_utf8_lossy(&other.stderr);
    assert!(other.status.code() == Some(2) && text.contains("other options"), "{text}");
    fs::remove_dir_all(directory).unwrap();
}

/// Goal: rows of a file are kept, too. Method: a file that is only read.
#[test]
#[ignore = "needs time: rows of half a second, on a file system with direct I/O"]
fn needs_time_an_interruption_keeps_rows_of_a_file() {
    let directory = scratch("interrupted-file");
    let (image, out) = (directory.join("image"), directory.join("out.toml"));
    fs::write(&image, vec![7; 80 << 20]).unwrap();
    let journal = out.with_extension("rows.json");
    let (image, out) = (image.to_str().unwrap(), out.to_str().unwrap());
    interrupted(&[image, "--out", out, "--row-time", "500ms"]);
    assert!(rows(&journal) > 0 && !Path::new(out).exists());
    assert_eq!(fs::read(image).unwrap(), vec![7; 80 << 20]);
    fs::remove_dir_all(directory).unwrap();
}
