//! Detects whether a server with a contract file is already running, for a check of the file: before a restart, and
//! in `ExecReload=` of the unit.
//!
//! The server is looked for among the processes. A connection to its sockets would start a stopped server whose sockets
//! systemd holds.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The note for the operator if one is running.
pub(super) const NOTE: &str =
    "a server runs with this file; what it uses (sockets, volumes, devices) counts as free";

/// The process of a server that runs with this file.
pub(super) fn find(file: &Path) -> Option<u32> {
    // In `ExecReload=`, systemd names the server's process.
    let main = std::env::var("MAINPID").ok().and_then(|process| process.parse().ok());
    if let Some(process) = main.filter(|process| is_server(*process)) {
        return Some(process);
    }
    let file = fs::canonicalize(file).ok()?;
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.find(|process| is_server(*process) && serves(*process, &file))
}

fn is_server(process: u32) -> bool {
    let name_of = |process: &str| fs::read_to_string(format!("/proc/{process}/comm")).ok();
    let name = name_of(&process.to_string());
    // The program may be installed under another name.
    name.is_some_and(|name| name.trim() == "iofair" || Some(name) == name_of("self"))
}

/// Whether the arguments of a process are those of `iofair serve` with this file.
fn serves(process: u32, file: &Path) -> bool {
    let arguments = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    // Other users cannot read the working directory. For them, a relative path names no file.
    let directory = fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
    names(&arguments, &directory, file)
}

fn names(arguments: &[u8], directory: &Path, file: &Path) -> bool {
    let words: Vec<&OsStr> = arguments.split(|byte| *byte == 0).map(OsStr::from_bytes).collect();
    let has = |word: &str| words.contains(&OsStr::new(word));
    let is_file = |path: PathBuf| {
        path.is_absolute() && fs::canonicalize(path).is_ok_and(|named| named == file)
    };
    has("serve") && !has("--check") && words.iter().any(|word| is_file(directory.join(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a server is recognised by its contract file, and a check or another command is no server. Method: arguments as
    /// /proc shows them, with an absolute path, a relative one, and one whose directory is unknown.
    #[test]
    fn a_server_is_recognised_by_its_arguments() {
        let file = fs::canonicalize("Cargo.toml").unwrap();
        let directory = file.parent().unwrap();
        let whole = file.to_str().unwrap();
        let named = |arguments: &str, directory: &Path| {
            names(arguments.replace(' ', "\0").as_bytes(), directory, &file)
        };
        assert!(named(&format!("iofair serve {whole}"), Path::new("/")));
        assert!(named(&format!("iofair serve {whole}"), Path::new("")));
        assert!(named("iofair --json serve --shrink v Cargo.toml ", directory));
        assert!(named("iofair serve src/../Cargo.toml", directory));
        for other in ["serve --check Cargo.toml", "run Cargo.toml", "serve other.toml", "serve", ""]
        {
            assert!(!named(&format!("iofair {other}"), directory), "{other}");
        }
        assert!(!named("iofair serve Cargo.toml", Path::new("/")));
        assert!(!named("iofair serve Cargo.toml", Path::new("")));
    }
}
