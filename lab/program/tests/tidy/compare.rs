//! The page about `iofair-lab compare`: its command prints what it says. `make docs` (IOFAIR_BLESS=1) writes it anew.

use crate::explain::with_answers;
use crate::files::root;

const PAGE: &str = "lab/docs/compare.md";

/// Goal: the page shows what its command prints. Method: run it, compare; IOFAIR_BLESS=1 writes it.
#[test]
fn generated_pages_of_compare_are_fresh() {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let fresh = with_answers(&page, &std::env::temp_dir());
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("docs can be written");
        return;
    }
    assert!(fresh.contains("$ iofair-lab compare"), "the page has lost its command");
    assert!(page == fresh, "{PAGE} is stale; run make docs\n{fresh}");
}
