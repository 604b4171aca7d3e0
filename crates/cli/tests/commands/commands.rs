//! The program from outside: exit codes, JSON, the demo in miniature.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn iofair(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iofair")).args(args).output().expect("the program starts")
}

fn json(args: &[&str]) -> serde_json::Value {
    let output = iofair(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("--json prints JSON")
}

/// Goal: the demo runs end to end and its JSON has the documented core. Method: a tenth of a second on
/// two stacks; only shapes are looked at, never speeds.
#[test]
fn the_demo_runs_in_miniature() {
    let page = std::env::temp_dir().join(format!("iofair-demo-{}.html", std::process::id()));
    let name = page.to_str().expect("a plain path");
    let mut args = vec!["demo", "--json", "--seconds", "0.2", "--ramp", "0.1", "--html", name];
    args.extend([
        "--history",
        "0.1",
        "--stack",
        "none-none",
        "--stack",
        "promise",
        "--clients",
        "3",
    ]);
    let picture = page.with_extension("svg");
    args.extend(["--picture", picture.to_str().expect("a plain path")]);
    let result = json(&args);
    let stacks = result["stacks"].as_array().expect("a list of stacks");
    assert_eq!(stacks.len(), 2);
    for stack in stacks {
        assert!(stack["stack"].is_string() && stack["promise_kept"].is_boolean());
        let target = stack["target"]["bytes_per_s"].as_u64().expect("a rate");
        assert!(stack["total"]["bytes_per_s"].as_u64().expect("a rate") >= target);
        let latency = |name: &str| stack["target"]["latency_ns"][name].as_u64().expect("a time");
        assert!(latency("p99") <= latency("max"));
        assert_eq!(stack["readers"].as_array().expect("a list of readers").len(), 2);
    }
    let html = fs::read_to_string(&page).expect("the page is there");
    assert!(html.contains("none-none") && html.ends_with("</html>\n"));
    assert!(!html.contains("http://") && !html.contains("https://"), "pages work offline");
    let svg = fs::read_to_string(&picture).expect("the picture is there");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("promise"));
    assert_eq!(svg.matches("<g ").count(), 3, "three charts");
    [page, picture].into_iter().for_each(|path| fs::remove_file(path).expect("it can be removed"));
}

/// A directory of a test on the disk that this was built on.
fn directory(name: &str) -> PathBuf {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a directory");
    path
}

/// Goal: the demo runs on a disk of the user's, promises what it can know there, and leaves nothing behind. Method: a small
/// file and a tenth of a second each, on the disk that this was built on; and one that is larger than the disk.
#[test]
fn the_demo_runs_on_a_disk() {
    let at = directory("demo-at");
    let path = at.to_str().expect("a plain path");
    let quick = ["--seconds", "0.2", "--ramp", "0.1", "--history", "0.1", "--html", "/dev/null"];
    let small = ["--json", "--size", "2MiB", "--clients", "2", "--stack", "promise"];
    let args = [&["demo", "--at", path], &quick[..], &small].concat();
    let result = json(&args);
    assert_eq!((result["drive"].as_str(), result["is_real"].as_bool()), (Some(path), Some(true)));
    assert!(result["promised_bytes_per_s"].as_u64().expect("a rate") > 0);
    assert!(result["stacks"][0]["total"]["bytes_per_s"].as_u64().expect("a rate") > 0);
    assert_eq!(fs::read_dir(&at).expect("it is there").count(), 0, "nothing is left");
    let output = iofair(&[&["demo", "--at", path, "--size", "1000000GiB"], &quick[..]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && errors.contains("free and the demo needs"),
        "{errors}"
    );
    fs::remove_dir(&at).expect("it is empty");
}

/// Goal: nothing is left behind when the demo is interrupted while it runs. Method: Ctrl-C once its first file
/// is there.
#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let (at, temporary) = (directory("demo-interrupted"), directory("demo-temporary"));
    let mut demo = Command::new(env!("CARGO_BIN_EXE_iofair"));
    let page = temporary.join("demo.html");
    demo.args(["demo", "--size", "2MiB", "--seconds", "60", "--html"])
        .arg(page)
        .arg("--at")
        .arg(&at);
    let mut demo = demo.env("TMPDIR", &temporary).stderr(Stdio::null()).spawn().expect("it starts");
    let entries =
        |path: &Path| fs::read_dir(path).expect("it is there").flatten().collect::<Vec<_>>();
    while !entries(&at).iter().any(|made| made.path().join("pool/target.img").exists()) {
        assert!(demo.try_wait().expect("it can be asked").is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    let id = demo.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().expect("kill runs");
    assert!(killed.success());
    assert_eq!(demo.wait().expect("it ends").code(), Some(130));
    for left in [&at, &temporary] {
        assert_eq!(entries(left).len(), 0, "{left:?}");
        fs::remove_dir(left).expect("it is empty");
    }
}

/// Goal: what the user wrote wrong is exit code 2 with what is allowed. Method: one of each kind.
#[test]
fn mistakes_are_told_from_failures() {
    let null = "/dev/null";
    let mistakes: [(&[&str], &str); 13] = [
        (&["ctl", "--dry-run", "--socket", "s", "status"], "--dry-run is for changes"),
        (&["ctl", "--dry-run", "--socket", "s", "group", "list"], "--dry-run is for changes"),
        (&["ctl", "--dry-run", "--socket", "s", "stack"], "--dry-run is for changes"),
        (&["demo", "--drive", "nothing", "--html", null], "plextor-px256m5s"),
        (&["demo", "--stack", "none-nine"], "no scheduler \"nine\""),
        (&["demo", "--clients", "0"], "1..=64"),
        (&["demo", "--promise", "10MB"], "followed by /s"),
        (&["demo", "--at", "/dev", "--html", null], "/dev is in memory"),
        (&["demo", "--at", "/", "--size", "1KiB", "--html", null], "at least 1MiB"),
        (&["demo", "--size", "1MiB"], "--at <DIRECTORY>"),
        (&["demo", "--html", "/no/such/directory/demo.html"], "there is no directory"),
        (&["list", "policies", "nothing"], "there are: none"),
        (&["list", "drives", "nothing"], "plextor-px256m5s"),
    ];
    for (args, says) in mistakes {
        let output = iofair(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
    let failed = iofair(&["demo", "--html", "/proc/demo.html"]);
    assert_eq!(failed.status.code(), Some(1));
    for args in [&["record", "-"][..], &["demo", "--html", "-"]] {
        let told = iofair(args);
        let errors = String::from_utf8_lossy(&told.stderr);
        assert!(errors.contains("`-` is no file: name one") && !told.status.success(), "{errors}");
    }
}

/// Goal: every list is JSON for scripts. Method: one key of each.
#[test]
fn lists_are_json() {
    assert!(json(&["list", "policies", "--json"])[0]["name"].is_string());
    assert!(json(&["list", "drives", "--json"])[0]["name"].is_string());
    let numbers = json(&["list", "drives", "plextor-px256m5s", "--json"]);
    assert!(numbers[0]["numbers"][0]["source"].is_string());
}

/// Goal: what is said of a policy has its numbers. Method: every page, as text; one number that is there.
#[test]
fn sentences_have_their_numbers() {
    let names = json(&["list", "policies", "--json"]);
    let names = names.as_array().expect("a list");
    let names = names.iter().filter_map(|policy| policy["name"].as_str());
    let output = iofair(&["list", "policies"].into_iter().chain(names).collect::<Vec<_>>());
    let pages = String::from_utf8_lossy(&output.stdout);
    assert!(pages.contains("and 23 MB/s alone") && pages.contains("Fails:"), "{pages}");
    assert!(!pages.contains(['{', '}']) && !pages.contains("not measured"), "{pages}");
}
