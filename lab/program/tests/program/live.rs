//! `iofair-lab run --on serve`: experiments live, beside the lab.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use iofair_testkit::directory::Directory;

const FIGURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../reproduction/experiments/article-2018/figure-1.toml"
);
const STRIPE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../reproduction/experiments/io-controller-2009/stripe.toml"
);
const JOURNAL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../reproduction/experiments/mails-2019/journal.toml");

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    command.args(["run", "--on", "serve"]);
    command
}
fn run(args: &[&str]) -> Output {
    program().args(args).output().unwrap()
}
fn json(args: &[&str]) -> serde_json::Value {
    let output = run(&[args, &["--json", "--repeats", "1"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Goal: readers, writers through the page cache, limits and shares run live, and every number stands beside the
/// lab's. Method: half a second of two variants of a figure; ratios only have to be in a wide band, since nobody knows
/// how busy this machine is.
#[test]
fn a_figure_runs_live() {
    let directory = Directory::new();
    let page = directory.join("live.md");
    let short = ["--time", "400ms", "--ramp", "200ms", "--set", "history=100ms"];
    let of = ["--variant", "random target, readers", "--variant", "sequential target, writers"];
    let stacks = ["--stack", "none-none,max-none,prop-bfq", "--markdown", page.to_str().unwrap()];
    let clients = |run: &serde_json::Value| run["clients"].as_array().unwrap().clone();
    let is_served = |run: &serde_json::Value| {
        (0.001..100.0).contains(&run["total"]["ratio"].as_f64().unwrap())
            && clients(run).iter().all(|client| client["rate"]["live"].as_f64().unwrap() > 0.0)
    };
    // A machine that does something else for half a second gives nothing to a run; then all are made again.
    let mut told = serde_json::Value::Null;
    for _ in 0..3 {
        told = json(&[&[FIGURE], &short[..], &of, &stacks].concat());
        if told["experiments"][0]["runs"].as_array().unwrap().iter().all(is_served) {
            break;
        }
    }
    let experiment = &told["experiments"][0];
    let runs = experiment["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    for run in runs {
        assert!(is_served(run), "{run}");
        assert_eq!(clients(run).len(), 2);
        for client in clients(run) {
            assert!(client["mean_ms"]["lab"].as_f64().unwrap() > 0.0, "{client}");
        }
    }
    assert_eq!(experiment["shares"]["of"], 12);
    assert_eq!(experiment["latencies"]["of"], 24);
    let claims = experiment["claims"].as_array().unwrap();
    assert!(!claims.is_empty() && claims.iter().all(|claim| claim["live"].is_string()));
    assert!(told["path_ns"].as_u64().unwrap() > 0);
    let text = fs::read_to_string(&page).unwrap();
    assert!(
        text.starts_with("# Live runs beside the simulator") && text.contains("| prop-bfq |"),
        "{text}"
    );
}

/// Goal: direct writers, `fdatasync` and a journal run live. Method: a moment of the experiment that has them.
#[test]
fn a_journal_runs_live() {
    let short = ["--time", "300ms", "--ramp", "0s"];
    let told = json(&[&[JOURNAL], &short[..]].concat());
    let runs = told["experiments"][0]["runs"].as_array().unwrap();
    assert!(runs.iter().all(|run| run["total"]["live"].as_f64().unwrap() > 0.0));
}

/// Goal: what cannot run live is refused before anything runs, with the key and the reason. Method: one of each.
#[test]
fn what_cannot_run_live_is_refused() {
    let mistakes: [(&[&str], &str); 5] = [
        (&[STRIPE], "cannot run live: `stripe`, because a server has one drive"),
        (&[FIGURE, "--set", "client.interferer.count=1000"], "each has a connection of its own"),
        (
            &[FIGURE, "--time", "60m"],
            "live runs would take 200 h 26 min; at most 2 h 0 min is allowed",
        ),
        (
            &[FIGURE, "--csv", "/dev/null"],
            "--csv, --series, --frontier and --html need the simulator",
        ),
        (
            &[FIGURE, "--variant", "none"],
            "no variant \"none\"\n  allowed: \"random target, readers\"",
        ),
    ];
    for (args, says) in mistakes {
        let output = run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
}

/// Goal: Ctrl-C ends a run at once and leaves nothing behind. Method: an interrupt in a run of minutes.
#[test]
fn an_interrupt_ends_it() {
    let time = ["--time", "100s", "--repeats", "1", "--stack", "none-none"];
    let mut child = program()
        .args([FIGURE, "--variant", "random target, readers"])
        .args(time)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("[1/1]") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    let directory = std::env::temp_dir().join(format!("iofair-live-{}", child.id()));
    assert!(directory.exists());
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    errors.read_to_string(&mut line).unwrap();
    assert!(line.contains("interrupted after 0 of 1 runs"), "{line}");
    assert!(!directory.exists());
}
