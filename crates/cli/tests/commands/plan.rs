//! `iofair plan` from outside: errors, JSON, files, Ctrl-C, its verdict beside that of `iofair serve --check`, and
//! `docs/plan.md`, whose commands print what it says. `make docs` (IOFAIR_BLESS=1) writes what they print anew.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use iofair_simulator::plan::load::NEIGHBOURS;

/// Short runs beside some of the neighbours, and no search for the number of drives.
const SHORT: &[&str] = &[
    "--time",
    "500ms",
    "--ramp",
    "300ms",
    "--one-drive",
    "--without",
    "slow reads,buffered reads,buffered writes,bursts",
];

/// A directory that is gone when this is.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("iofair-plan-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn contracts(&self, back: &str, groups: &str) {
        let text = format!("[drive]\nback = \"{back}\"\n[listen]\nunix = \"s.sock\"\n{groups}");
        fs::write(self.0.join("contracts.toml"), text).unwrap();
    }
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iofair"));
        command.args(args).current_dir(&self.0);
        command
    }
    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
    fn plan(&self, args: &[&str]) -> Output {
        self.run(&[&["plan", "contracts.toml"], args].concat())
    }
    /// The message of a command that must fail with this code.
    fn error(&self, args: &[&str], code: i32) -> String {
        let output = self.plan(args);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        told
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plan.md");
const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images/plan.svg");

/// The page with what each of its commands prints now, in this directory.
fn with_answers(page: &str, directory: &Directory) -> String {
    let mut pieces = page.split("```console\n$ iofair ");
    let mut fresh = pieces.next().unwrap().to_owned();
    for piece in pieces {
        let (command, rest) = piece.split_once('\n').unwrap();
        let (_, after) = rest.split_once("\n```").unwrap();
        let output = directory.run(&command.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer = String::from_utf8(output.stdout).unwrap();
        fresh += &format!("```console\n$ iofair {command}\n{}\n```{after}", answer.trim_end());
    }
    fresh
}

/// Goal: the page shows what its commands print, with the neighbours that there are, and its picture is theirs. Method: run them
/// on the page's own contracts and loads, compare; IOFAIR_BLESS=1 writes them.
#[test]
fn the_page_shows_what_its_commands_print() {
    let page = fs::read_to_string(PAGE).unwrap();
    let directory = Directory::new("page");
    let mut files = page.split("```toml\n").skip(1);
    for name in ["contracts.toml", "loads.toml"] {
        let (text, _) = files.next().and_then(|rest| rest.split_once("```")).unwrap();
        fs::write(directory.0.join(name), text).unwrap();
    }
    let fresh = with_answers(&page, &directory);
    let picture = fs::read_to_string(directory.0.join("plan.svg")).unwrap();
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        fs::write(PAGE, &fresh).unwrap();
        fs::write(PICTURE, &picture).unwrap();
        return;
    }
    assert!(fresh.matches("$ iofair plan").count() >= 2, "the page has lost its commands");
    assert!(page == fresh, "docs/plan.md is stale; run make docs\n{fresh}");
    assert!(fs::read_to_string(PICTURE).unwrap() == picture, "docs/images/plan.svg is stale");
    for neighbours in NEIGHBOURS {
        let row = format!("| `{}` |", neighbours.name);
        assert!(page.contains(&row), "docs/plan.md lacks the neighbours {}", neighbours.name);
    }
}

const GROUPS: &str = "[[group]]\nname = \"db\"\nmin = \"10MB/s\"\n[[group]]\nname = \"vm\"\n";

/// Goal: each mistake gets an error that names its place, what was wrong and what is allowed, with exit code 2. Method: one of
/// each kind.
#[test]
fn mistakes_are_told() {
    let here = Directory::new("mistakes");
    here.contracts("emulated:plextor-px256m5s", GROUPS);
    let broken = "[[load]]\ngroup = \"db\"\njob = \"reed\"\n";
    fs::write(here.0.join("loads.toml"), broken).unwrap();
    for (args, told) in [
        (
            &["--drive", "plextor"][..],
            &["--drive: there is no drive profile \"plextor\"", "path of a .toml file"][..],
        ),
        (&["--drive", "no.toml"], &["--drive: drive profile no.toml", "No such file"]),
        (&["--load", "no.toml"], &["no.toml: No such file"]),
        (&["--load", "loads.toml"], &["loads.toml:3:7", "`reed`", "did you mean `read`"]),
        (&["--expect", "web=read"], &["--expect web=read", "no group \"web\"", "allowed: db, vm"]),
        (&["--expect", "db"], &["no `=` in it", "GROUP=JOB"]),
        (&["--expect", "db=read,min=1MB/s"], &["`min` is no key of a load"]),
        (&["--without", "reeds"], &["no neighbours \"reeds\"", "fdatasync"]),
        (&["--time", "0s"], &["allowed: more than 0s"]),
        (&["--time", "soon"], &["--time"]),
    ] {
        let error = here.error(args, 2);
        told.iter().for_each(|told| assert!(error.contains(told), "{args:?}: {told}: {error}"));
    }
    for (back, told) in [
        ("memory:1GiB", "memory has none here"),
        ("/dev/no-such-drive", "/dev/no-such-drive has none here"),
        ("directory:pool", "the drive below pool has none here"),
        ("emulated:plextor", "no drive profile \"plextor\""),
    ] {
        here.contracts(back, GROUPS);
        let error = here.error(&[], 2);
        assert!(error.contains("contracts.toml:2:8") && error.contains(told), "{error}");
        assert!(back == "emulated:plextor" || error.contains("allowed: --drive NAME"), "{error}");
    }
    let output = here.run(&["plan", "nothing.toml"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Goal: where both judge the same, a small reader with a minimum beside neighbours without one, the simulator agrees with
/// `serve --check`. Method: minimums well inside and well outside what the drive can keep, on flash of two kinds; a real device's
/// contracts with `--drive`.
#[test]
fn long_run_plan_agrees_with_admission() {
    let here = Directory::new("admission");
    for (drive, good, bad) in
        [("plextor-px256m5s", "21MB/s", "27MB/s"), ("nvme-2015", "36MB/s", "48MB/s")]
    {
        for (min, fits) in [(good, true), (bad, false)] {
            let groups = GROUPS.replace("10MB/s", min);
            here.contracts(&format!("emulated:{drive}"), &groups);
            let check = here.run(&["serve", "--check", "contracts.toml"]);
            assert_eq!(check.status.success(), fits, "{}", String::from_utf8_lossy(&check.stderr));
            let of_serve = String::from_utf8(check.stderr).unwrap();
            let output = here.plan(&[&["--json", "--quiet", "--strict"], SHORT].concat());
            assert_eq!(output.status.code(), Some(i32::from(!fits)), "{drive} {min}");
            let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(plan["admission"]["admitted"], fits, "{plan}");
            if let Some(refusal) = plan["admission"]["refusal"].as_str() {
                let (says, allowed) = refusal.split_once("; allowed: ").unwrap();
                assert!(of_serve.contains(says) && of_serve.contains(allowed), "{of_serve}");
            }
        }
    }
    here.contracts("/dev/no-such-drive", GROUPS);
    let output = here.plan(&[&["--drive", "plextor-px256m5s"], SHORT].concat());
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && told.contains("admission: admitted"), "{told}");
}

/// Goal: a drive with flash translation is planned with what it sustains, whatever its state is, and the plan says so. Method: a
/// minimum that a fresh drive keeps alone and an overwritten one does not, and a drive without flash translation.
#[test]
fn the_steady_state_is_what_can_be_promised() {
    let here = Directory::new("steady");
    let others: Vec<&str> = NEIGHBOURS.iter().map(|others| others.name).collect();
    let without = others[1..].join(",");
    let short = ["--time", "100ms", "--ramp", "100ms", "--one-drive", "--without", &without];
    here.contracts("emulated:samsung-mzul2512:fresh", &GROUPS.replace("10MB/s", "44MB/s"));
    let output = here.plan(&short);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("admission: refused: group \"db\": 44.00 MB/s cannot be kept"), "{told}");
    let (_, says) = told.split_once("steady state: ").unwrap_or_else(|| panic!("{told}"));
    assert!(says.contains("what the drive sustains after random overwriting"), "{told}");
    let output = here.plan(&[&["--drive", "plextor-px256m5s"], &short[..]].concat());
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("admission: refused") && !told.contains("steady state"), "{told}");
}

/// Goal: the picture and the page are written, nothing is printed with --quiet, and stages are told otherwise. Method: both ways.
#[test]
fn files_are_written() {
    let here = Directory::new("files");
    here.contracts("emulated:plextor-px256m5s", GROUPS);
    let files = ["--picture", "p.svg", "--html", "p.html", "--quiet"];
    let output = here.plan(&[&files, SHORT].concat());
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    let [svg, html] =
        ["p.svg", "p.html"].map(|name| fs::read_to_string(here.0.join(name)).unwrap());
    assert!(svg.contains("promised minimum") && svg.contains(">db<"), "{svg}");
    assert!(html.contains("the promises fit") && html.contains("<svg"), "{html}");
    let output = here.plan(SHORT);
    let stages = String::from_utf8(output.stderr).unwrap();
    assert!(stages.contains("plan: which promise breaks first"), "{stages}");
    // Before the plan is made, which may take minutes.
    let error = here.error(&[&["--picture", "no/p.svg"], SHORT].concat(), 2);
    assert!(error.contains("cannot write no/p.svg: there is no directory no"), "{error}");
    assert!(!error.contains("plan: what each load"), "{error}");
    let error = here.error(&["--html", "."], 2);
    assert!(error.contains("cannot write .: it is a directory"), "{error}");
}

/// Goal: Ctrl-C ends a long plan soon, and nothing is written. Method: a plan with a thousand seeds,
/// interrupted once it has said what it does.
#[test]
fn ctrl_c_ends_it() {
    let here = Directory::new("interrupted");
    here.contracts("emulated:plextor-px256m5s", GROUPS);
    let args = ["plan", "contracts.toml", "--picture", "p.svg", "--repeats", "1000"];
    let mut command = here.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut told, &mut line).unwrap();
    assert!(line.starts_with("plan: what each load"), "{line}");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    std::io::Read::read_to_string(&mut told, &mut line).unwrap();
    assert!(line.contains("interrupted after") && line.contains("nothing was written"), "{line}");
    assert!(!here.0.join("p.svg").exists());
}
