//! `iofair-lab run --on linux`: experiments on the kernel of this machine, and the page that compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use iofair_testkit::directory::Directory;

const READERS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../reproduction/experiments/truth/random-weights.toml"
);
const CEILINGS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../reproduction/experiments/truth/ceilings.toml");
const BUFFERED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../reproduction/experiments/truth/buffered.toml");

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    command.args(["run", "--on", "linux"]);
    command
}
fn run(args: &[&str]) -> Output {
    program().args(args).output().unwrap()
}

/// Groups, loop devices and mounts of a program with this process id.
fn left(id: u32) -> Vec<String> {
    let mut left = Vec::new();
    for root in ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"] {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        left.extend(names.filter(|name| name.starts_with(&format!("iofair-{id}-"))));
    }
    let ours = format!("iofair-live-{id}/");
    let loops = Command::new("losetup").arg("-a").output().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let lines = String::from_utf8_lossy(&loops.stdout) + mounts.as_str();
    left.extend(lines.lines().filter(|line| line.contains(&ours)).map(str::to_owned));
    left
}

/// Goal: direct readers run under the kernel's bfq, and the comparison with simulator and live server becomes a page.
/// Method: two readers for half a second; the numbers are only checked to be there, since nobody knows how busy this
/// machine is; nothing is left behind.
#[test]
#[ignore = "needs root and clients: loop devices, FUSE, groups, and fio"]
fn needs_root_needs_clients_readers_run_under_bfq() {
    let directory = Directory::new();
    fs::create_dir_all(directory.join("images")).unwrap();
    let (evidence, page) = (directory.join("truth.json"), directory.join("truth.md"));
    let (evidence, page) = (evidence.to_str().unwrap(), page.to_str().unwrap());
    let short = [
        "--variant",
        "depth 1",
        "--stack",
        "prop-bfq",
        "--repeats",
        "1",
        "--time",
        "300ms",
        "--ramp",
        "200ms",
    ];
    let args = [&[READERS, "--json"], &short[..]].concat();
    let child =
        program().args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let told = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{errors}");
    assert_eq!(left(id), Vec::<String>::new());
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let clients =
        told["runs"][0]["clients"].as_array().or_else(|| told[0]["runs"][0]["clients"].as_array());
    let clients = clients.unwrap_or_else(|| panic!("{told}"));
    assert_eq!(clients.len(), 2);
    assert!(clients.iter().all(|client| client["bytes_per_s"].as_f64().unwrap() > 0.0), "{told}");
    // First the kernel, then live, then the page.
    let steps = [
        &["--on", "serve", "--evidence", evidence][..],
        &["--on", "linux", "--evidence", evidence],
        &["--on", "serve", "--evidence", evidence],
        &["--truth", evidence, "--markdown", page],
    ];
    let succeeded = steps.map(|step| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
        command.args(["run", READERS, "--quiet"]).args(step).args(short);
        command.status().unwrap().success()
    });
    assert_eq!(succeeded, [false, true, true, true], "live numbers need the kernel's");
    let text = fs::read_to_string(page).unwrap();
    assert!(text.contains("## random-weights") && text.contains("with fio-"), "{text}");
    assert!(text.contains("| live server | "), "{text}");
    assert!(Path::new(page).with_file_name("images/truth-random-weights.svg").exists());
}

/// Goal: clients are in their groups. Method: a client with a ceiling of 20 MB/s that alone would read ten times as much
/// stays below twice the ceiling.
#[test]
#[ignore = "needs root and clients: loop devices, FUSE, groups, and fio"]
fn needs_root_needs_clients_a_ceiling_holds() {
    let short = ["--variant", "20 MB/s", "--stack", "max-none", "--repeats", "1"];
    let told =
        run(&[&[CEILINGS, "--json", "--quiet", "--time", "1s", "--ramp", "300ms"], &short[..]]
            .concat());
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let run = if told.is_array() { &told[0]["runs"][0] } else { &told["runs"][0] };
    let rate = run["clients"][0]["bytes_per_s"].as_f64().unwrap();
    assert!((1e6..40e6).contains(&rate), "{run}");
}

/// Goal: Ctrl-C leaves nothing behind. Method: SIGINT while clients run under blk-throttle.
#[test]
#[ignore = "needs root and clients: loop devices, FUSE, groups, and fio"]
fn needs_root_needs_clients_an_interrupted_run_restores_everything() {
    let args = [
        CEILINGS,
        "--variant",
        "20 MB/s",
        "--stack",
        "max-none",
        "--repeats",
        "1",
        "--time",
        "60s",
    ];
    let mut child =
        program().args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = child.id();
    let group = PathBuf::from(format!("/sys/fs/cgroup/blkio/iofair-{id}-capped"));
    let version_2 = PathBuf::from(format!("/sys/fs/cgroup/iofair-{id}-capped"));
    let mut ended = None;
    while ended.is_none() && !group.exists() && !version_2.exists() {
        ended = child.try_wait().unwrap();
        std::thread::yield_now();
    }
    assert!(ended.is_none(), "it ended by itself: {ended:?}");
    assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success());
    assert!(!child.wait().unwrap().success());
    assert_eq!(left(id), Vec::<String>::new());
}

/// Goal: the machine has its own dirty limits again after Ctrl-C, and other ones while buffered clients write. Method: SIGINT as soon
/// as the limits are others.
#[test]
#[ignore = "needs root and clients: loop devices, FUSE, groups, and fio"]
fn needs_root_needs_clients_dirty_limits_come_back() {
    let limits = || {
        ["background_bytes", "background_ratio", "bytes", "ratio"]
            .map(|name| fs::read_to_string(format!("/proc/sys/vm/dirty_{name}")).unwrap())
    };
    let before = limits();
    let args = [BUFFERED, "--variant", "beside writers", "--stack", "none-none", "--time", "60s"];
    let mut child =
        program().args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut ended = None;
    while ended.is_none() && limits() == before {
        ended = child.try_wait().unwrap();
        std::thread::yield_now();
    }
    assert!(ended.is_none(), "it ended by itself: {ended:?}");
    let id = child.id();
    assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success());
    assert!(!child.wait().unwrap().success());
    assert_eq!(limits(), before);
    assert_eq!(left(id), Vec::<String>::new());
}

/// Goal: what Linux does not have is refused before anything is touched, with the key. Method: a stack of ours, and a
/// writer on a real file without `--write`.
#[test]
fn what_linux_lacks_is_refused() {
    let refused = |args: &[&str], part: &str| {
        let told = run(args);
        let errors = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.code(), Some(2), "{errors}");
        assert!(errors.contains(part), "{errors}");
    };
    refused(&[READERS, "--stack", "promise"], "`stacks`: Linux has no");
    let file = ["--target", "/dev/null", "--variant", "writes, 20 MB/s", "--stack", "max-none"];
    refused(&[&[CEILINGS], &file[..]].concat(), "--write allows that");
}
