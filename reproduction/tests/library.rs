//! The library of drives: `make drives` writes it anew, with what it is judged by.

use std::path::{Path, PathBuf};

use iofair_reproduction::{fitted_library, library_tables};

const EVIDENCE: &str = "reproduction/evidence/library.csv";
const PAGE: &str = "lab/docs/library.md";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}
fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The page with fresh tables.
fn page() -> String {
    let mut page = text(PAGE);
    for (name, table) in library_tables(&text(EVIDENCE)).expect("make drives has written it") {
        let (begin, end) =
            (format!("<!-- {name}: generated -->\n"), format!("<!-- {name}: end -->"));
        let (before, rest) = page.split_once(&begin).expect("the page has a place for it");
        let (_, after) = rest.split_once(&end).expect("the place ends");
        page = format!("{before}{begin}{table}{end}{after}");
    }
    page
}

/// Goal: the page has the errors that were found. Method: make it anew.
#[test]
fn the_page_has_the_errors() {
    assert!(page() == text(PAGE), "{PAGE} is stale; run make drives");
}

/// Goal: the library and its errors are what the measurements give. Method: fit every drive anew, to all rows and to half of them;
/// with IOFAIR_BLESS, keep what was found.
#[test]
#[ignore = "needs time: half an hour of one processor"]
fn needs_time_the_library_is_what_the_rows_give() {
    let (library, evidence) = fitted_library(&path("profiles/measured")).unwrap();
    for (name, fresh) in [("profiles/drives/library.csv", library), (EVIDENCE, evidence)] {
        match std::env::var_os("IOFAIR_BLESS") {
            Some(_) => std::fs::write(path(name), fresh).unwrap(),
            None => assert!(text(name) == fresh, "{name} is stale; run make drives"),
        }
    }
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(path(PAGE), page()).unwrap();
    }
}
