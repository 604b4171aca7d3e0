//! Rules about benches: each has its place in a page: those of the server in docs/performance.md, the others in
//! lab/docs/performance.md.

use crate::files::{File, all, assert_none};
use iofair_testkit::page::{replace, table};

/// The page of a bench, by its file. `make bench` does the same.
fn page_of(bench: &str) -> &'static str {
    if bench.starts_with("crates/serve/") {
        "docs/performance.md"
    } else {
        "lab/docs/performance.md"
    }
}

/// Names of sections that benches publish and the page has no place for.
fn homeless(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.path.contains("/benches/")) {
        let path = page_of(&file.path);
        let page = files.iter().find(|file| file.path == path).map_or("", |page| &page.text);
        let names = file.text.split("publish(\"").skip(1).filter_map(|rest| rest.split('"').next());
        for name in names {
            let markers = [format!("<!-- {name} -->\n"), format!("<!-- end {name} -->\n")];
            if !markers.iter().all(|marker| page.matches(marker.as_str()).count() == 1) {
                complaints.push(format!("{}: {path} has no place for {name}", file.path));
            }
        }
    }
    complaints
}

/// Goal: `make bench` finds where to write. Method: names in benches against markers of the page.
#[test]
fn every_bench_has_its_place_in_the_page() {
    assert_none(&homeless(&all()));
}

/// Goal: a section is replaced as a whole, and nothing else is touched. Method: write into a small page
/// twice; a table in it.
#[test]
fn sections_are_replaced() {
    let rows = vec![vec!["a".into(), "1".into()], vec!["long".into(), "1000".into()]];
    let table = table(&["name", "n"], &rows);
    assert_eq!(table, "| name |    n |\n| ---- | ---: |\n| a    |    1 |\n| long | 1000 |\n");
    let page = "# Head\n<!-- x -->\nold\n<!-- end x -->\nTail.\n<!-- y -->\n<!-- end y -->\n";
    let once = replace(page, "x", &table);
    assert_eq!(replace(&once, "x", &table), once);
    let expected = page.replace("old\n", &format!("\n{table}\n"));
    assert_eq!(once, expected);
}

/// Goal: the rule catches what it is for. Method: a made-up bench and a page without its markers.
#[test]
fn canary() {
    let page = |text| File::canary("lab/docs/performance.md", text);
    let place = "<!-- a -->\n<!-- end a -->\n";
    let bench = || File::canary("crates/core/benches/a.rs", "page::publish(\"a\", &text);");
    assert_none(&homeless(&[bench(), page(place)]));
    assert_eq!(homeless(&[bench(), page("<!-- a -->\n")]).len(), 1);
    let served = File::canary("crates/serve/benches/a.rs", "page::publish(\"a\", &text);");
    assert_eq!(homeless(&[served, page(place)]).len(), 1);
}
