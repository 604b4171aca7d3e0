//! Every report of one small experiment whose numbers are known.

use iofair_draw::FOOT;

use super::*;
use crate::experiment::{Overrides, Results, parse};
use crate::testing::{example, results};

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

/// Goal: the page needs nothing but itself and its own script. Method: look for addresses, other scripts and imports; and for
/// text that was not escaped.
#[test]
fn the_page_is_self_contained() {
    let summary = summarize(&with_misses());
    let html = page("Results & more", &[summary.clone(), summary]);
    let html = html.strip_suffix(FOOT).expect("every page has the same script");
    for outside in ["http", "fetch", "XMLHttp", "import", "eval"] {
        assert!(!FOOT.contains(outside), "{outside}");
    }
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
    let text = "title='t'\nsource='s'\ndrive='nvme-2015'\ntime='1s'\nstacks=['none-none']\n\
                [[client]]\nname='a'\njob='read'";
    let experiment = parse("small.toml", text, &Overrides::default()).expect("a good file");
    let summary = summarize(&results(experiment, 1));
    let (text, html) = (table(&summary), page("t", std::slice::from_ref(&summary)));
    assert!(text.contains("none-none") && !text.contains("claim"), "{text}");
    assert!(html.contains("All numbers"));
    assert_eq!(summary.focus, "a");
}

/// Results of the example whose outcomes are changed.
fn changed(change: impl Fn(&mut iofair_simulator::outcome::Outcome)) -> Results {
    let mut experiment = example();
    experiment.variants.truncate(1);
    let mut results = results(experiment, 1);
    results.outcomes.iter_mut().for_each(change);
    results
}

/// Goal: a reader is warned of clients and runs of which nothing reaches the drive. Method: the readers' bytes stay in memory;
/// then everybody's.
#[test]
fn what_stays_in_memory_is_told() {
    let mut results = changed(|outcome| {
        outcome.clients[1..].iter_mut().for_each(|client| client.drive_bytes = Some(0));
    });
    let summary = summarize(&results);
    assert_eq!(summary.warnings.len(), 1, "{:?}", summary.warnings);
    assert!(summary.warnings[0].starts_with("Nothing of reader reached the drive in any run"));
    let line = table(&summary).lines().find(|line| line.contains("reader (4)")).map(str::to_owned);
    let line = line.expect("a line of the readers");
    assert!(line.contains("40.0") && line.contains("0.000"), "{line}");
    let html = page("t", std::slice::from_ref(&summary));
    assert!(html.contains("reader: at the drive") && !html.contains("target: at the drive"));
    for outcome in &mut results.outcomes {
        (outcome.drive.read_bytes, outcome.drive.commands) = (0, 0);
        outcome.clients.iter_mut().for_each(|client| client.drive_bytes = Some(0));
    }
    let warnings = summarize(&results).warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("Nothing reached the drive in any run"));
}

/// Goal: stalls beyond p99, repeats that differ too much and clients without a call are told. Method: one call of a second
/// among many short ones; one repeat a tenth of the others; no call at all.
#[test]
fn misleading_numbers_are_told() {
    let stalls = changed(|outcome| {
        let latency = &mut outcome.clients[0].latency;
        latency.record_many(10_000, 10_000);
        latency.record(60_000_000_000);
    });
    let summary = summarize(&stalls);
    assert!(summary.warnings[0].contains("p99 of target hides stalls in every run"));
    assert!(table(&summary).contains("60000") && summary.synopsis.contains("60000 ms"));
    let mut differ = changed(|_| {});
    differ.outcomes[1].clients[0].bytes /= 10;
    let summary = summarize(&differ);
    assert_eq!(summary.warnings.len(), 1, "{:?}", summary.warnings);
    assert!(
        summary.warnings[0].contains("target under none-none [rand, N=4]: 1 to 10 in 3 repeats")
    );
    assert!(table(&summary).contains("1.00 to 10.0"));
    let told = &summary.synopsis;
    assert!(told.contains("in 3 of 3 runs under again; 2 of 3 under none-none"), "{told}");
    let value: serde_json::Value = serde_json::from_str(&json_of_one(&differ)).expect("is JSON");
    let minimum = &value["minimums"][0];
    assert_eq!((&minimum["runs_kept"], &minimum["runs"]), (&2.into(), &3.into()), "{minimum}");
    let none = changed(|outcome| {
        let client = &mut outcome.clients[0];
        (client.calls, client.bytes) = (0, 0);
        client.latency = iofair_core::stats::histogram::Histogram::new();
    });
    let summary = summarize(&none);
    assert!(summary.warnings[0].starts_with("No call of target ended"), "{:?}", summary.warnings);
}

/// Goal: each client is in the charts, processes of one client together. Method: the names of charts; then nine clients, which
/// share a chart.
#[test]
fn every_client_is_drawn() {
    let html = page("t", &[summarize(&changed(|_| {}))]);
    for title in ["<h3>target: rate<", "<h3>reader: rate<", "Latency of reader by percentile"] {
        assert!(html.contains(title), "{title}");
    }
    assert!(!html.contains("reader.0") && !html.contains("<h3>others"));
    let mut text =
        "title='t'\nsource='s'\ndrive='nvme-2015'\ntime='1s'\nstacks=['none-none']\n".to_owned();
    (0..9).for_each(|number| text += &format!("[[client]]\nname='c{number}'\njob='read'\n"));
    let experiment = parse("nine.toml", &text, &Overrides::default()).expect("a good file");
    let html = page("t", &[summarize(&results(experiment, 1))]);
    assert!(html.contains("<h3>clients: rates<") && !html.contains("<h3>c0: rate<"));
    assert!((0..9).all(|number| html.contains(&format!(">c{number}</text>"))));
}

/// Goal: fdatasync calls have their own latencies. Method: a client with some.
#[test]
fn syncs_have_their_line() {
    let summary = summarize(&changed(|outcome| outcome.clients[0].sync_latency.record(77_000_000)));
    let text = table(&summary);
    let line = text.lines().find(|line| line.contains("target fdatasync")).expect("a line");
    assert!(line.contains("77.0"), "{line}");
}

/// Goal: swept keys are columns. Method: a weight in one sweep, the header and a row.
#[test]
fn swept_keys_are_columns() {
    let sweeps = vec!["client.reader.weight=50,100".to_owned()];
    let overrides = Overrides { sweeps, ..Overrides::default() };
    let text = crate::testing::EXAMPLE;
    let experiment = parse("e.toml", text, &overrides).expect("a good file");
    let results = results(experiment, 1);
    let text = csv(std::slice::from_ref(&results));
    let mut lines = text.lines();
    let header = lines.next().expect("a header");
    assert!(
        header.ends_with("fitted,drive_bytes,client.reader.count,client.reader.weight"),
        "{header}"
    );
    assert!(lines.next().expect("a row").ends_with(",4,50"));
    let value: serde_json::Value = serde_json::from_str(&json_of_one(&results)).expect("is JSON");
    assert_eq!(value["runs"][0]["swept"]["client.reader.weight"], "50");
    assert!(value["runs"][0]["clients"][0]["drive_bytes_per_s"].as_u64() > Some(10_000_000));
}
