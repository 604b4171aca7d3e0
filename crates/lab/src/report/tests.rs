//! Every report of one small experiment whose numbers are known.

use super::*;
use crate::experiment::tests::{example, results};
use crate::experiment::{Overrides, Results, parse};

fn with_misses() -> Results {
    let mut experiment = example();
    experiment.variants.truncate(2);
    let claim = experiment.claims[0].clone();
    let mut miss = claim.clone();
    (miss.published, miss.low, miss.high) = (Some(20.0), Some(18.0), Some(22.0));
    miss.why = "the <test> says | so".into();
    let mut information = claim;
    (information.low, information.high, information.hard) = (None, None, false);
    experiment.claims.extend([miss, information]);
    results(experiment, 1)
}

/// Goal: the tables are readable and change only on purpose. Method: goldens beside this file.
#[test]
fn tables_are_golden() {
    let summary = summarize(&with_misses());
    golden("table.txt", &table(&summary));
    golden("table.md", &markdown(&[summary], None));
}

/// Compares with a file beside this one; `IOFAIR_BLESS=1` writes it anew.
fn golden(name: &str, text: &str) {
    let path = format!("{}/src/report/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(&path, text).expect("the golden can be written");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, known, "{name} differs; IOFAIR_BLESS=1 accepts it");
}

/// Goal: the JSON has the promised shape. Method: walk it.
#[test]
fn json_has_the_promised_shape() {
    let results = with_misses();
    let value: serde_json::Value = serde_json::from_str(&json_of_one(&results)).expect("is JSON");
    assert_eq!(
        (value["experiment"].as_str(), value["seed"].as_u64()),
        (Some("a/example"), Some(1))
    );
    let runs = value["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2 * 2 * 3);
    let run = &runs[4];
    assert_eq!((run["stack"].as_str(), run["repeat"].as_u64()), (Some("again"), Some(1)));
    assert_eq!(run["seconds"].as_f64(), Some(2.0));
    assert_eq!(run["total"]["bytes_per_s"].as_u64(), Some(100 << 20));
    let target = &run["clients"][0];
    assert_eq!(target["bytes_per_s"].as_u64(), Some(10_242_048));
    let p99 = target["latency_ns"]["p99"].as_u64().expect("a latency");
    assert!((990_000..1_024_000).contains(&p99), "{p99}");
    let statistics = value["statistics"].as_array().expect("statistics");
    let target = statistics.iter().find(|s| s["of"] == "target").expect("of the target");
    assert_eq!((target["count"].as_u64(), target["unit"].as_str()), (Some(3), Some("MB/s")));
    assert!(target["confidence_95"].as_f64().expect("three samples") > 0.0);
    let expect = value["expect"].as_array().expect("claims");
    let holds: Vec<_> = expect.iter().map(|e| e["holds"].as_bool()).collect();
    assert_eq!(holds, [Some(true), Some(false), None]);
    assert_eq!(expect[1]["verdict"], "does_not_hold");
    let both: serde_json::Value =
        serde_json::from_str(&json(&[results.clone(), results])).expect("is JSON");
    assert_eq!(both.as_array().map(Vec::len), Some(2));
}

/// Goal: the CSV is one clean table. Method: read it back with the same number of fields a row.
#[test]
fn csv_is_one_table() {
    let text = csv(&[with_misses()]);
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<_> = reader.records().map(|row| row.expect("as many fields")).collect();
    // 2 stacks, 3 repeats; 6 rows (target, four readers, total) in one variant and 3 in the other.
    assert_eq!(rows.len(), 2 * 3 * (6 + 3));
    assert_eq!(rows[0].iter().take(8).collect::<Vec<_>>()[7], "total");
    assert_eq!(&rows[1][9], "20482048");
    assert!(text.contains("\"rand, N=4\""), "a comma in a name is quoted");
}

/// Goal: the page needs nothing but itself. Method: look for addresses, scripts and imports; and for
/// text that was not escaped.
#[test]
fn the_page_is_self_contained() {
    let summary = summarize(&with_misses());
    let html = page("Results & more", &[summary.clone(), summary]);
    for outside in ["http:", "https:", "//", "src=", "<script", "@import", "url(", "<link"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("Results &amp; more") && html.contains("&lt;test&gt;"));
    assert!(!html.contains("<test>") && !html.contains("NaN"));
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(html.contains("does not hold") && html.contains("class=\"diamond\""));
}

/// Goal: same seed, same bytes. Method: every report twice.
#[test]
fn reports_are_reproducible() {
    let all = || {
        let results = with_misses();
        let summary = [summarize(&results)];
        (json_of_one(&results), csv(std::slice::from_ref(&results)), page("x", &summary))
    };
    assert_eq!(all(), all());
}

/// Goal: an experiment with one client, no claim and no variant prints. Method: the smallest file.
#[test]
fn the_smallest_experiment_prints() {
    let text = "title='t'\nsource='s'\ndrive='d'\ntime='1s'\nstacks=['none-none']\n\
                [[client]]\nname='a'\njob='read'";
    let experiment = parse("small.toml", text, &Overrides::default()).expect("a good file");
    let summary = summarize(&results(experiment, 1));
    let (text, html) = (table(&summary), page("t", std::slice::from_ref(&summary)));
    assert!(text.contains("none-none") && !text.contains("claim"), "{text}");
    assert!(html.contains("All numbers"));
    assert_eq!(summary.focus, "a");
}
