//! The page about `iofair-lab explain`: its commands print what it says.
//!
//! `make docs` (IOFAIR_BLESS=1) writes what they print anew.

use std::path::Path;
use std::process::Command;

use iofair_testkit::directory::Directory;

use crate::files::root;

const PAGE: &str = "lab/docs/explain.md";
const FENCE: &str = "\n```";

/// The experiment that the page shows.
fn experiment(page: &str) -> &str {
    let (_, rest) = page.split_once("```toml\n").expect("the page shows an experiment");
    rest.split_once(FENCE).expect("it ends").0
}

/// The page with what each of its commands prints now, in this directory.
pub(crate) fn with_answers(page: &str, directory: &Path) -> String {
    let mut pieces = page.split("```console\n$ ");
    let mut fresh = pieces.next().expect("a split has a first piece").to_string();
    for piece in pieces {
        let (command, rest) = piece.split_once('\n').expect("a block has more lines");
        let (_, after) = if rest.starts_with("```") {
            ("", rest.trim_start_matches("```"))
        } else {
            rest.split_once(FENCE).expect("a block ends")
        };
        let mut words = command.split(' ');
        let name = words.next().expect("a command has a program");
        let mut program =
            Command::new(Path::new(env!("CARGO_BIN_EXE_iofair-lab")).with_file_name(name));
        let output = program.args(words).current_dir(directory).output();
        let output = output.expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer = String::from_utf8(output.stdout).expect("text");
        fresh += &format!("```console\n$ {command}\n{}{FENCE}{after}", answer.trim_end());
    }
    fresh
}

/// Goal: the page shows what its commands print. Method: run them on the page's own experiment, compare;
/// IOFAIR_BLESS=1 writes them.
#[test]
fn generated_pages_of_explain_are_fresh() {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let directory = Directory::new();
    let file = directory.join("example.toml");
    std::fs::write(&file, experiment(&page)).expect("it can be written");
    let fresh = with_answers(&page, &directory);
    if std::env::var_os("IOFAIR_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("docs can be written");
        return;
    }
    assert!(fresh.matches("$ iofair-lab explain").count() >= 3, "the page has lost its commands");
    assert!(page == fresh, "{PAGE} is stale; run make docs\n{fresh}");
}
