//! Rules about single files: length, a story at the head, issues behind plans, no machine's own paths,
//! and tests whose names say what they need.

use crate::files::{File, all, assert_none};

/// Longer files are refused; see STYLE.md.
const LINES_MAX: usize = 1000;
/// Longer files smell: they are printed, not refused.
const LINES_SMELL: usize = 600;
/// What `scripts/test` knows how to look for.
const NEEDS: &[&str] = &[
    "box",
    "chromium",
    "clients",
    "csi_sanity",
    "kubernetes",
    "deb",
    "guest",
    "hugepages",
    "lintian",
    "man",
    "nbdkit",
    "promtool",
    "python",
    "root",
    "sources",
    "systemd",
    "time",
    "tracing",
    "ublk",
    "valgrind",
];

fn over_long(files: &[File], most: usize) -> Vec<String> {
    let code = files.iter().filter(|file| file.is_rust());
    let long = code.map(|file| (file, file.text.lines().count())).filter(|(_, n)| *n > most);
    long.map(|(file, n)| format!("{}: {n} lines, allowed are {most}", file.path)).collect()
}

/// What programs and editors leave behind.
fn droppings(files: &[File]) -> Vec<String> {
    let endings = [".state", ".orig", ".rej", ".swp", ".log", ".img"];
    let left = files.iter().filter(|file| endings.iter().any(|end| file.path.ends_with(end)));
    left.map(|file| format!("{}: left behind by a program or an editor", file.path)).collect()
}

fn headless(files: &[File]) -> Vec<String> {
    let code = files.iter().filter(|file| file.is_rust());
    let headless = code.filter(|file| !file.text.starts_with("//!"));
    headless.map(|f| format!("{}: begins without its story (//!)", f.path)).collect()
}

/// Complaints about lines that hold one of `words` and for which `fine` does not hold.
fn lines_with(
    files: &[File],
    words: &[String],
    fine: impl Fn(&str) -> bool,
    why: &str,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        for (i, line) in file.text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) && !fine(line) {
                complaints.push(format!("{}:{}: {why}: {}", file.path, i + 1, line.trim()));
            }
        }
    }
    complaints
}

fn orphaned_todos(files: &[File]) -> Vec<String> {
    // Put together, so that this file does not complain about itself.
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|word| word.concat());
    let with_issue = format!("{}(#", words[0]);
    let complaints = lines_with(files, &words, |line| line.contains(&with_issue), "write (#ISSUE)");
    complaints.into_iter().filter(|complaint| complaint.contains(".rs:")).collect()
}

fn machine_paths(files: &[File]) -> Vec<String> {
    let words = [["/wo", "rk/"], ["/ho", "me/"], ["/ro", "ot/"], ["/tmp/", "target"]];
    let words: Vec<String> = words.iter().map(|word| word.concat()).collect();
    lines_with(files, &words, |_| false, "a path of one machine")
}

fn unnamed_needs(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (i, line) in lines.iter().enumerate() {
            let Some(rest) = line.strip_prefix("#[ignore") else { continue };
            let need = rest.strip_prefix(" = \"needs ").and_then(|rest| rest.split('"').next());
            let word = need.and_then(|need| need.split([' ', ':', ',']).next()).unwrap_or_default();
            let name = lines[i..].iter().find(|line| line.contains("fn ")).unwrap_or(&"");
            if !NEEDS.contains(&word) || !name.contains(&format!("needs_{word}")) {
                let known = NEEDS.join(", ");
                complaints.push(format!(
                    "{}:{}: write #[ignore = \"needs X: why\"] fn needs_X_...; X is one of {known}",
                    file.path,
                    i + 1
                ));
            }
        }
    }
    complaints
}

/// Goal: no file becomes a giant. Method: count lines; those above the smell are printed.
#[test]
fn files_are_short() {
    let files = all();
    for smell in over_long(&files, LINES_SMELL) {
        println!("smells: {smell}");
    }
    assert_none(&over_long(&files, LINES_MAX));
}

/// Goal: nothing that a program left behind is kept. Method: look at the ends of names.
#[test]
fn nothing_is_left_behind() {
    assert_none(&droppings(&all()));
}

/// Goal: every file begins with its module comment. Method: look at its first line.
#[test]
fn files_begin_with_a_module_comment() {
    assert_none(&headless(&all()));
}

/// Goal: no plan is forgotten in a comment. Method: search for the usual words.
#[test]
fn todos_carry_an_issue() {
    assert_none(&orphaned_todos(&all()));
}

/// Goal: nothing of the machine where it was written leaks. Method: search for absolute paths.
#[test]
fn no_paths_of_one_machine() {
    assert_none(&machine_paths(&all()));
}

/// Goal: `scripts/test` can tell which ignored tests run here. Method: compare reason and name.
#[test]
fn ignored_tests_are_named_after_their_needs() {
    assert_none(&unnamed_needs(&all()));
}

/// Goal: every rule of this file catches what it is for. Method: a made-up bad file each.
#[test]
fn canaries() {
    let caught = |rule: fn(&[File]) -> Vec<String>, text: &str| {
        assert_eq!(rule(&[File::canary("crates/core/src/bad.rs", text)]).len(), 1, "{text}");
    };
    caught(|files| over_long(files, LINES_MAX), &"\n".repeat(LINES_MAX + 1));
    caught(headless, "use std::fmt;\n//! Too late.\n");
    caught(orphaned_todos, &format!("//! Story.\n// {}: later\n", ["TO", "DO"].concat()));
    caught(machine_paths, &format!("//! See {}\n", ["/wo", "rk/x"].concat()));
    caught(unnamed_needs, "#[test]\n#[ignore = \"slow\"]\nfn slow_one() {}\n");
    caught(unnamed_needs, "#[test]\n#[ignore = \"needs root: mounts\"]\nfn mounts() {}\n");
    assert_eq!(droppings(&[File::canary("crates/serve/fio.state", "")]).len(), 1);
    let fine = "#[ignore = \"needs root: mounts\"]\nfn needs_root_mounts() {}\n";
    assert_none(&unnamed_needs(&[File::canary("a.rs", fine)]));
}
