//! Saved results side by side; pages of reports in a browser: tables are sorted, charts are saved, nothing is loaded.

use std::process::Command;
use std::{env, fs};

use iofair_testkit::browser::Browser;
use iofair_testkit::directory::Directory;

/// Goal: tables of reports can be sorted with mouse and keyboard, and charts saved as SVG and PNG, without a word on the console
/// and without any request. Method: the pages of an experiment and of a comparison, in Chromium; what would be saved is
/// caught in the page.
#[test]
#[ignore = "needs chromium: and chromedriver"]
fn needs_chromium_reports_can_be_sorted_and_saved() {
    let directory = Directory::new();
    let [run, compare] = ["run.html", "compare.html"].map(|name| directory.path(name));
    let short = ["--time", "100ms", "--html"];
    for arguments in [
        ["run", "--quiet", "../../reproduction/experiments/promise/plextor.toml", "--ramp", "50ms"],
        ["compare", "none-none", "promise", "--drive", "plextor-px256m5s"],
    ] {
        let page = if arguments[0] == "run" { &run } else { &compare };
        let mut command = Command::new(env!("CARGO_BIN_EXE_iofair-lab"));
        let output = command.args(arguments).args(short).arg(page).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let browser = Browser::start();
    for page in [&run, &compare] {
        browser.open(&format!("file://{page}"));
        let column = "[...[...document.querySelectorAll('table')].find((table) => table.querySelector('.sort')).rows].slice(1)\
            .map((row) => parseFloat(row.cells[window.column].textContent.replaceAll(',', '')))";
        browser.run(
            "const table = [...document.querySelectorAll('table')].find((table) => table.querySelector('.sort'));\
             const last = table.rows[table.rows.length - 1];\
             window.column = [...last.cells].findIndex((cell) => /^\\d/.test(cell.textContent));\
             window.sort = table.rows[0].cells[window.column].querySelector('.sort');\
             window.sort.id = 'sort'",
        );
        // Enter, as WebDriver writes it, and the space bar.
        for (keys, direction, sign) in [("\u{e007}", "ascending", 1.0), (" ", "descending", -1.0)] {
            browser.press("#sort", keys);
            let now = "return window.sort.closest('th').getAttribute('aria-sort')";
            assert_eq!(browser.run(now), direction, "{page}");
            let values = browser.run(&format!("return {column}"));
            let values: Vec<f64> =
                values.as_array().unwrap().iter().filter_map(|value| value.as_f64()).collect();
            assert!(
                values.len() > 1 && values.is_sorted_by(|a, b| sign * a <= sign * b),
                "{values:?}"
            );
        }
        browser.run(
            "window.saved = []; HTMLAnchorElement.prototype.click = function () {\
             fetch(this.href).then((page) => page.blob()).then((blob) => window.saved.push([this.download, blob.type, blob.size])); }",
        );
        browser.click(".save button:nth-child(1)");
        browser.click(".save button:nth-child(2)");
        browser.wait_for("return window.saved.length === 2");
        let saved = browser.run("return window.saved.sort((a, b) => a[1] < b[1] ? -1 : 1)");
        assert_eq!((&saved[0][1], &saved[1][1]), (&"image/png".into(), &"image/svg+xml".into()));
        assert!(saved[0][2].as_u64().unwrap() > 1_000 && saved[1][2].as_u64().unwrap() > 1_000);
        assert_eq!(browser.console(), Vec::<String>::new(), "{page}");
    }
}

/// Goal: saved results are compared, and other files are refused. Method: one experiment under two policies' parameters and with
/// itself; a page in Markdown.
#[test]
fn saved_results_are_compared() {
    let directory = Directory::new();
    let iofair = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_iofair-lab")).args(arguments).output().unwrap();
        let [out, error] =
            [output.stdout, output.stderr].map(|stream| String::from_utf8(stream).unwrap());
        (output.status.code(), out, error)
    };
    let result = |name: &str, idle: &str| {
        let setting = format!("policy.bfq.slice_idle={idle}");
        let run =
            ["run", "--quiet", "--json", "../../reproduction/experiments/promise/plextor.toml"];
        let short = ["--variant", "4 readers", "--time", "100ms", "--ramp", "50ms"];
        let more = ["--repeats", "3", "--stack", "prop-bfq", "--set", &setting];
        let (code, json, error) = iofair(&[&run[..], &short, &more].concat());
        assert_eq!(code, Some(0), "{error}");
        let path = directory.path(name);
        fs::write(&path, json).unwrap();
        path
    };
    let (idles, waits_not) = (result("idles.json", "8ms"), result("waits-not.json", "0s"));
    let page = directory.path("report.html");
    let (code, told, _) = iofair(&["report", &idles, &waits_not, "--html", &page, "--strict"]);
    assert_eq!(code, Some(1), "it differs");
    assert!(told.contains("differ between") && told.contains("total"), "{told}");
    assert!(fs::read_to_string(page).unwrap().contains("Results side by side"));
    let (code, told, _) = iofair(&["report", &idles, &idles, "--strict"]);
    assert!(code == Some(0) && told.starts_with("0 of "), "{told}");
    let (code, _, error) = iofair(&["report", &idles, "../../README.md"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("README.md: not a result of") && error.contains("allowed: "), "{error}");
}
