//! The repository's files, as every rule sees them.

use std::path::{Path, PathBuf};

/// One text file: its path from the root of the repository, and what it says.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The folders of crates, and the one that is a crate.
const GROUPS: [&str; 2] = ["crates/", "lab/"];
const REPRODUCTION: &str = "reproduction/";

impl File {
    /// A made-up file for a canary.
    pub(crate) fn canary(path: &str, text: &str) -> Self {
        Self { path: path.to_string(), text: text.to_string() }
    }
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
    /// `crates/core/src/lib.rs`: `core` and `src/lib.rs`. The rooms are the crates of the product and of the laboratory.
    pub(crate) fn in_room(&self) -> Option<(&str, &str)> {
        let inside = GROUPS.iter().find_map(|group| self.path.strip_prefix(group));
        let inside = inside.or_else(|| self.path.starts_with(REPRODUCTION).then_some(&self.path));
        inside?.split_once('/')
    }
    /// `crates/core/src/...`: `core`. What tests share is none.
    pub(crate) fn room_of_source(&self) -> Option<&str> {
        let (room, rest) = self.in_room()?;
        (rest.starts_with("src/") && self.is_rust() && room != "testkit").then_some(room)
    }
    /// Numbered lines with comments cut off.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| {
            let end = line.find("//").unwrap_or(line.len());
            (i + 1, &line[..end])
        })
    }
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies two levels below the root").to_path_buf()
}

/// Every text file of the repository, in the order of their paths.
pub(crate) fn all() -> Vec<File> {
    let mut files = Vec::new();
    collect(&root(), "", &mut files);
    assert!(files.iter().any(|file| file.path == "Cargo.toml"), "this is not the repository");
    files
}

fn collect(directory: &Path, prefix: &str, files: &mut Vec<File>) {
    let entries = std::fs::read_dir(directory).expect("the repository can be read");
    let mut entries: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
        let built = ["target", ".git", "corpus", "artifacts", "node_modules", "__pycache__"];
        if built.contains(&name.as_str()) {
            continue;
        }
        let below = format!("{prefix}{name}");
        if path.is_dir() {
            collect(&path, &format!("{below}/"), files);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            files.push(File { path: below, text });
        }
    }
}

/// Fails with every complaint on a line of its own.
pub(crate) fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
