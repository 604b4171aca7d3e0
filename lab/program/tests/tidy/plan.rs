//! The page about `iofair plan`: its commands print what it says, and write its picture.
//!
//! `make docs` (IOFAIR_BLESS=1) writes what they print anew.

use crate::explain::with_answers;
use crate::files::root;
use iofair_simulator::plan::load::NEIGHBOURS;

const PAGE: &str = "docs/plan.md";
const PICTURE: &str = "docs/images/plan.svg";

/// Goal: the page shows what its commands print, with the neighbours that there are, and its picture is theirs. Method: run them
/// on the page's own contracts and loads, compare; IOFAIR_BLESS=1 writes them.
#[test]
fn generated_pages_of_plan_are_fresh() {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let directory = std::env::temp_dir().join(format!("iofair-page-plan-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a place for the files");
    let mut files = page.split("```toml\n").skip(1);
    for name in ["contracts.toml", "loads.toml"] {
        let (text, _) = files.next().and_then(|rest| rest.split_once("```")).expect("two files");
        std::fs::write(directory.join(name), text).expect("it can be written");
    }
    let fresh = with_answers(&page, &directory);
    let picture = std::fs::read_to_string(directory.join("plan.svg")).expect("the first command");
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("docs can be written");
        std::fs::write(root().join(PICTURE), &picture).expect("docs can be written");
        return;
    }
    assert!(fresh.matches("$ iofair plan").count() >= 2, "the page has lost its commands");
    assert!(page == fresh, "{PAGE} is stale; run make docs\n{fresh}");
    let shown = std::fs::read_to_string(root().join(PICTURE)).expect("the picture is there");
    assert!(shown == picture, "{PICTURE} is stale; run make docs");
    for neighbours in NEIGHBOURS {
        let row = format!("| `{}` |", neighbours.name);
        assert!(page.contains(&row), "{PAGE} lacks the neighbours {}", neighbours.name);
    }
}
