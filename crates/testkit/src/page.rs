//! How benches tell their results: tables in Markdown, printed, and written into a page (`docs/performance.md` or
//! `lab/docs/performance.md`) when `make bench` says where it is. What is measured stands between two markers of the page,
//! `<!-- NAME -->` and `<!-- end NAME -->`; the rest of the page is written by people and stays.

use std::fmt::Write;
use std::fs;

/// Where the page is; benches of other packages run elsewhere, so it is an absolute path.
const PAGE: &str = "IOFAIR_BENCH_PAGE";

/// A table: its first column on the left, numbers on the right, as wide as they need to be.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count(), 3]).max().expect("the head is there")
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let cell =
                if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") };
            let _ = write!(text, "| {cell} ");
        }
        text += "|\n";
    };
    line(&head.iter().map(|name| String::from(*name)).collect::<Vec<_>>());
    let rule = |(column, width): (usize, &usize)| {
        if column == 0 { "-".repeat(*width) } else { format!("{}:", "-".repeat(width - 1)) }
    };
    line(&widths.iter().enumerate().map(rule).collect::<Vec<_>>());
    rows.iter().for_each(|row| line(row));
    text
}

/// An aim, what was found, and whether that meets it, for a table of [`AIMS`].
pub fn aim(what: impl Into<String>, found: impl Into<String>, met: bool) -> Vec<String> {
    vec![what.into(), found.into(), if met { "met" } else { "**missed**" }.into()]
}

/// Head of a table of aims.
pub const AIMS: &[&str] = &["aim", "found", ""];

/// Prints a section and puts it into the page, with the machine.
pub fn publish(name: &str, text: &str) {
    println!("{text}");
    let Some(path) = std::env::var_os(PAGE) else { return };
    let page = fs::read_to_string(&path).expect("the page is there");
    let page = replace(&page, "machine", &machine());
    fs::write(&path, replace(&page, name, text)).expect("the page can be written");
}

/// The page with another text between the markers of a section.
pub fn replace(page: &str, name: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end {name} -->\n"));
    let parts = page.split_once(&start).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let (before, after) = parts.unwrap_or_else(|| panic!("the page has no place for {name}"));
    format!("{before}{start}\n{}\n\n{end}{after}", text.trim())
}

/// Highest and present resident size of a process, in KiB.
pub fn resident_kib(process: &str) -> [u64; 2] {
    let text = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    ["VmHWM:", "VmRSS:"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|number| number.trim().parse().ok()).expect("Linux tells sizes in kB")
    })
}

/// User and system time of a process so far, in microseconds.
pub fn processor_us(process: &str) -> f64 {
    /// Clock ticks a second in `/proc`, on every Linux that we know.
    const TICKS: f64 = 100.0;
    let text = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    // The name of the program stands in brackets and may hold spaces; numbers follow it.
    let numbers = &text[text.rfind(')').expect("Linux writes it")..];
    let times = numbers.split(' ').skip(12).take(2).map(|number| number.parse::<f64>());
    times.map(|time| time.expect("a number of ticks")).sum::<f64>() / TICKS * 1e6
}

fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let release = read("/proc/sys/kernel/osrelease");
    let version = release.trim().split('-').next().unwrap_or_default();
    format!("{cores} cores of {model}, Linux {version}.")
}

/// What stands on the command line: a full run (`cargo bench`) or a smoke (`cargo test`), and the names
/// of the rows wanted, all when empty. In a smoke the words are the test runner's own (`--skip NAME`).
pub fn arguments() -> (bool, Vec<String>) {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let full = all.iter().any(|argument| argument == "--bench");
    let names = all.into_iter().filter(|argument| full && !argument.starts_with('-'));
    (full, names.collect())
}
