//! The program from outside: exit codes and JSON.

use std::process::{Command, Output};

fn iofair(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iofair-lab")).args(args).output().expect("the program starts")
}

fn json(args: &[&str]) -> serde_json::Value {
    let output = iofair(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("--json prints JSON")
}

/// Goal: what the user wrote wrong is exit code 2 with what is allowed. Method: one of each kind.
#[test]
fn mistakes_are_told_from_failures() {
    let null = "/dev/null";
    let figure = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../reproduction/experiments/article-2018/figure-1.toml"
    );
    let short = ["--time", "10ms", "--ramp", "0s"];
    let explain = |more: &[&'static str]| [&["explain", figure], &short[..], more].concat();
    let explained = [
        explain(&["--variant", "none"]),
        explain(&["--stack", "none-nine"]),
        explain(&["--client", "nobody"]),
        explain(&["--request", "0"]),
    ];
    let [variant, stack, client, request] = &explained;
    let mistakes: [(&[&str], &str); 7] = [
        (variant, "no variant \"none\"\n  allowed: \"random target, readers\", "),
        (stack, "there is no scheduler \"nine\"\n  allowed: "),
        (client, "no client \"nobody\"\n  allowed: "),
        (request, "no request 0; there were "),
        (&["run", "no-such-file.toml"], "no-such-file.toml"),
        (&["run", "--measured", null, "--stack", "none-none"], "cannot be used with"),
        (&["run"], "<PATHS>..."),
    ];
    for (args, says) in mistakes {
        let output = iofair(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
}

/// Goal: a name that is misspelt is answered with the one that was meant, wherever names are written. Method: slips in each place.
#[test]
fn slips_are_recognised() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reproduction/experiments");
    let file = |name: &str| format!("{folder}/article-2018/{name}");
    let (figure, missing) = (file("figure-1.toml"), file("figure-1.tml"));
    let (figure, trace) = (figure.as_str(), "no-trace.csv");
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/trace/tests/data/table.csv");
    for (args, meant) in [
        (&["run", figure, "--drive", "plextor-px256m5"][..], "plextor-px256m5s"),
        (&["run", figure, "--drive", "samsung-970-pro:scl"], "slc"),
        (&["run", figure, "--stack", "promisse"], "promise"),
        (&["run", figure, "--stack", "none-bqf"], "bfq"),
        (&["run", figure, "--stack", "mx-none"], "max"),
        (&["run", figure, "--set", "policy.bfq.slice_idel=0s"], "slice_idle"),
        (&["run", figure, "--set", "policy.bfk.slice_idle=0s"], "bfq"),
        (&["run", figure, "--set", "repeets=2"], "repeats"),
        (&["run", figure, "--variant", "random target, reader"], "random target, readers"),
        (&["run", missing.as_str()], figure),
        (&["explain", figure, "--variant", "random target, reader"], "random target, readers"),
        (&["explain", figure, "--client", "targt"], "target"),
        (&["explain", figure, "--drive", "plextor-px256m5"], "plextor-px256m5s"),
        (&["compare", "promisse"], "promise"),
        (&["compare", "--drive", "class:dsk"], "class:disk"),
        (&["emulate", "samsung-970-prp", "--at", "x"], "samsung-970-pro"),
        (&["fit", "drives/nvme-2105"], "drives/nvme-2015"),
        (&["replay", trace, "--format", "blkprase"], "blkparse"),
        (&["replay", table, "--contracts", missing.as_str()], figure),
        (&["replay", table, "--drive", "nvme-2015", "--stack", "promisse"], "promise"),
        (&["replay", table, "--drive", "nvme-2105"], "nvme-2015"),
    ] {
        let output = iofair(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(&format!("did you mean `{meant}`?")), "{args:?}: {errors}");
    }
}

/// Goal: every list is JSON for scripts. Method: one key of each.
#[test]
fn lists_are_json() {
    assert!(json(&["list", "policies", "--json"])[0]["name"].is_string());
    assert!(json(&["list", "clients", "--json"])["jobs"][0].is_string());
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reproduction/experiments");
    assert!(json(&["list", "experiments", directory, "--json"])[0]["title"].is_string());
}

/// Goal: what is said of a policy has its numbers. Method: every page, as text; one number that is there.
#[test]
fn sentences_have_their_numbers() {
    let names = json(&["list", "policies", "--json"]);
    let names = names.as_array().expect("a list").iter().filter_map(|row| row["name"].as_str());
    let output = iofair(&["list", "policies"].into_iter().chain(names).collect::<Vec<_>>());
    let pages = String::from_utf8_lossy(&output.stdout);
    assert!(pages.contains("of its 10 MB/s") && pages.contains("Fails:"), "{pages}");
    assert!(!pages.contains(['{', '}']) && !pages.contains("not measured"), "{pages}");
}

/// Goal: what is explained is JSON too: a summary, or stories. Method: a short run, both ways.
#[test]
fn explanations_are_json() {
    let figure = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../reproduction/experiments/article-2018/figure-1.toml"
    );
    let short = ["explain", figure, "--time", "100ms", "--ramp", "0s", "--json"];
    let summary = json(&short);
    assert!(summary["summary"]["waits"][0]["mean_ns"].is_u64(), "{summary}");
    let slowest = &summary["summary"]["slowest"][0];
    let told = json(&[&short[..], &["--slowest"]].concat());
    let story = &told["stories"][0];
    assert_eq!(
        (&story["request"], &story["total_ns"]),
        (&slowest["request"], &slowest["total_ns"])
    );
    assert!(story["why"].is_string() && story["lines"][0]["after_ns"].is_u64());
}
