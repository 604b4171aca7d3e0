//! `iofair-lab compare` from outside: errors, JSON and the page.

use std::process::{Command, Output};

use iofair_testkit::directory::Directory;

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
    command.arg("compare").args(args).output().unwrap()
}

/// Goal: what is wrong is named, with what is allowed. Method: a stack, a drive and a time that cannot be.
#[test]
fn errors_name_what_is_wrong() {
    for (args, named) in [
        (&["none-nothing"][..], "nothing"),
        (&["--drive", "no-such-drive"], "plextor-px256m5s"),
        (&["--time", "0s"], "more than 0s"),
        (&["--repeats", "0"], "1..=1000"),
    ] {
        let output = run(args);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(named), "{told}");
    }
}

/// Goal: the scorecard tells who keeps a minimum, the same with any number of threads, and the page is whole. Method: two
/// stacks on a SATA SSD, twice.
#[test]
fn a_scorecard_tells_who_keeps_a_minimum() {
    let directory = Directory::new();
    let page = directory.join("compare.html");
    let path = page.display().to_string();
    let args = ["none-none", "promise", "--drive", "plextor-px256m5s", "--time", "100ms", "--json"];
    let first = run(&[&args[..], &["--jobs", "1", "--html", &path]].concat());
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    assert_eq!(first.stdout, run(&args).stdout);
    let cards: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    let scores = cards[0]["scores"].as_array().unwrap();
    let lowest = |score: &serde_json::Value| {
        let kept = score["kept"].as_array().unwrap();
        assert_eq!(kept.len(), 4);
        kept.iter().map(|group| group["part"].as_f64().unwrap()).fold(f64::INFINITY, f64::min)
    };
    let parts: Vec<f64> = scores.iter().map(lowest).collect();
    assert!(parts[0] < 0.5 && parts[1] > 0.9, "{parts:?}");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("random writers") && text.ends_with("</html>\n"));
    assert!(!text.contains("http://") || text.contains("http://www.w3.org/2000/svg"));
}
