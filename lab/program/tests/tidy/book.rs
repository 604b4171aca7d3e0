//! Rules about the pages as a site (`make book`): the table of contents lists every page, internal links lead to a file and a
//! heading that exist, code in the guide for policy authors is that of the example, hand-written pages keep their lines and
//! table cells short, and the product's pages can be read in a day.

use std::collections::BTreeMap;

use crate::files::{File, all, assert_none, root};

const SUMMARY: &str = "docs/SUMMARY.md";
const EXAMPLE: &str = "crates/core/examples/own_policy.rs";
const GUIDE: &str = "lab/docs/policy-author.md";
/// The folders of pages: the product's, the laboratory's, and those of the reproduction, which commands write.
const PRODUCT: &str = "docs/";
const LABORATORY: &str = "lab/docs/";
const REPRODUCTION: [&str; 2] = ["reproduction/", "reproduction/pages/"];
/// Pages of the product and of the laboratory whose tables hold results or texts of the code.
const GENERATED: &[&str] = &["drives", "library", "performance", "policies"];
/// Longest page of the product, and all of them together, in lines.
const PAGE_LINES_MAX: usize = 400;
const PRODUCT_LINES_MAX: usize = 4500;
/// Longest line of prose, in characters.
const PROSE_MAX: usize = 140;
/// Longest table cell: two lines of a printed page.
const CELL_MAX: usize = 240;

/// The name of a file directly in a folder.
fn name_in<'a>(file: &'a File, folder: &str) -> Option<&'a str> {
    file.path.strip_prefix(folder).filter(|name| !name.contains('/'))
}

/// Pages of the site: everything in the three folders and the pages at the root.
fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    let is_page = |file: &&File| {
        let [index, experiments] = REPRODUCTION;
        let mut folders = ["", PRODUCT, LABORATORY, index, experiments].into_iter();
        let is_ours = folders.any(|folder| name_in(file, folder).is_some());
        file.path.ends_with(".md") && is_ours && file.path != SUMMARY
    };
    files.iter().filter(is_page)
}

/// Complaints about the length of the product's pages, each and together.
fn long_pages(files: &[File]) -> Vec<String> {
    let lines = |page: &File| page.text.lines().count();
    let ours: Vec<&File> = pages(files).filter(|page| name_in(page, PRODUCT).is_some()).collect();
    let long = ours.iter().filter(|page| lines(page) > PAGE_LINES_MAX);
    let mut complaints: Vec<String> = long
        .map(|page| format!("{}: {} lines, allowed are {PAGE_LINES_MAX}", page.path, lines(page)))
        .collect();
    let sum: usize = ours.iter().map(|page| lines(page)).sum();
    if sum > PRODUCT_LINES_MAX {
        complaints.push(format!("{PRODUCT}: {sum} lines, allowed are {PRODUCT_LINES_MAX}"));
    }
    complaints
}

/// Lines outside code blocks, numbered from 1, with inline code blanked out.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            // A link may hold code as its text, so only what is inside the backticks goes.
            let masked = |(n, piece): (usize, &str)| {
                if n % 2 == 1 { "x".repeat(piece.chars().count()) } else { piece.to_string() }
            };
            let pieces: Vec<_> = line.split('`').enumerate().map(masked).collect();
            lines.push((i + 1, pieces.join("`")));
        }
    }
    lines
}

/// Targets of the links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The anchors of a page, as GitHub and mdBook derive them from its headings.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut is_code = false;
    let mut all = Vec::new();
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let mut shown = String::new();
        for (i, piece) in heading.trim().split("](").enumerate() {
            shown +=
                if i == 0 { piece } else { piece.split_once(')').map_or("", |(_, rest)| rest) };
        }
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let slug: String =
            shown.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
        let before = seen.entry(slug.clone()).or_default();
        all.push(if *before == 0 { slug.clone() } else { format!("{slug}-{before}") });
        *before += 1;
    }
    all
}

/// `link` as seen from `page`: a path from the root of the repository.
fn resolve(page: &str, link: &str) -> String {
    if link.is_empty() {
        return page.to_string();
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Complaints about links that lead nowhere.
fn dead_links(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let readme = |file: &&File| file.in_room().is_some_and(|(_, inside)| inside == "README.md");
    let summary = files.iter().filter(|file| file.path == SUMMARY);
    for page in pages(files).chain(files.iter().filter(readme)).chain(summary) {
        for (number, line) in prose(&page.text) {
            for link in
                links(&line).filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
            {
                let (path, anchor) = link
                    .split_once('#')
                    .map_or((link, None), |(path, anchor)| (path, Some(anchor)));
                let target = resolve(&page.path, path);
                if !exists(&target) {
                    complaints.push(format!("{}:{number}: no file {target}", page.path));
                } else if let (Some(anchor), Some(file)) =
                    (anchor, files.iter().find(|file| file.path == target))
                    && !anchors(&file.text).iter().any(|known| known == anchor)
                {
                    complaints
                        .push(format!("{}:{number}: no heading #{anchor} in {target}", page.path));
                }
            }
        }
    }
    complaints
}

/// Complaints about pages that the table of contents does not list exactly once.
fn unlisted(files: &[File]) -> Vec<String> {
    let summary = files.iter().find(|file| file.path == SUMMARY).map_or("", |file| &file.text);
    let listed: Vec<String> =
        summary.lines().flat_map(links).map(|link| resolve(SUMMARY, link)).collect();
    let times = |path: &str| listed.iter().filter(|listed| *listed == path).count();
    let odd = pages(files).filter(|page| times(&page.path) != 1);
    odd.map(|page| {
        format!("{SUMMARY}: {} is listed {} times, not once", page.path, times(&page.path))
    })
    .collect()
}

/// Complaints about code of the guide that is not in the example.
fn foreign_code(files: &[File]) -> Vec<String> {
    let text =
        |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
    let blocks =
        text(GUIDE).split("```rust\n").skip(1).filter_map(|piece| piece.split("```").next());
    let foreign = blocks.filter(|block| !text(EXAMPLE).contains(block));
    foreign.map(|block| format!("{GUIDE}: not in {EXAMPLE}: {block}")).collect()
}

/// Complaints about long lines and long table cells of hand-written pages.
fn wide(files: &[File]) -> Vec<String> {
    let is_ours = |page: &&File| {
        let name = name_in(page, PRODUCT).or(name_in(page, LABORATORY)).unwrap_or(&page.path);
        !GENERATED.iter().any(|generated| name == format!("{generated}.md"))
            && !name.starts_with(REPRODUCTION[0])
    };
    let mut complaints = Vec::new();
    for page in pages(files).filter(is_ours) {
        for (number, line) in prose(&page.text) {
            let cell = line.split(" | ").map(|cell| cell.chars().count()).max().unwrap_or_default();
            if line.starts_with('|') && cell > CELL_MAX {
                complaints.push(format!(
                    "{}:{number}: a table cell of {cell} characters, allowed are {CELL_MAX}",
                    page.path
                ));
            }
            let length = line.chars().count();
            if !line.starts_with('|') && length > PROSE_MAX {
                complaints.push(format!(
                    "{}:{number}: {length} characters, allowed are {PROSE_MAX}",
                    page.path
                ));
            }
        }
    }
    complaints
}

/// Goal: every page is in the book. Method: compare the table of contents with the files.
#[test]
fn the_table_of_contents_lists_every_page() {
    assert_none(&unlisted(&all()));
}

/// Goal: no link between pages is dead. Method: look for the file and the heading of each.
#[test]
fn links_between_pages_lead_somewhere() {
    assert_none(&dead_links(&all(), |path| root().join(path).exists()));
}

/// Goal: the guide for policy authors shows code that compiles. Method: each block is a piece of the example.
#[test]
fn the_guide_shows_the_example() {
    assert_none(&foreign_code(&all()));
}

/// Goal: hand-written pages can be read in an editor. Method: measure lines and table cells.
#[test]
fn pages_are_not_too_wide() {
    assert_none(&wide(&all()));
}

/// Goal: an operator can read the product's pages. Method: count the lines of each page, and of all together.
#[test]
fn pages_of_the_product_are_short() {
    assert_none(&long_pages(&all()));
}

/// Goal: every rule of this file catches what it is for. Method: a made-up bad page each, and a good one.
#[test]
fn canaries() {
    let page = |text: &str| File::canary("docs/bad.md", text);
    let exists = |path: &str| path == "docs/bad.md";
    for bad in ["[a](gone.md)", "[a](#gone)", "[a](../docs/bad.md#gone)"] {
        assert_eq!(dead_links(&[page(bad)], exists).len(), 1, "{bad}");
    }
    let good = "# A `b`, c\n## A b c\n[a](#a-b-c) [b](bad.md#a-b-c-1) [c](https://example.org/#x)\n```\n[d](gone.md)\n```\n`[e](gone.md)`";
    assert_none(&dead_links(&[page(good)], exists));
    let summary = |text: &str| File::canary(SUMMARY, text);
    assert_eq!(unlisted(&[page(""), summary("- [a](other.md)")]).len(), 1);
    assert_eq!(unlisted(&[page(""), summary("- [a](bad.md)\n- [a](bad.md)")]).len(), 1);
    assert_none(&unlisted(&[page(""), summary("- [a](bad.md)")]));
    let example = File::canary(EXAMPLE, "fn a() {}\n");
    let guide = |text: &str| File::canary(GUIDE, text);
    assert_eq!(foreign_code(&[guide("```rust\nfn b() {}\n```\n"), example]).len(), 1);
    assert_eq!(wide(&[page(&"a ".repeat(PROSE_MAX))]).len(), 1);
    assert_eq!(wide(&[page(&format!("| {} |", "a ".repeat(CELL_MAX)))]).len(), 1);
    let of_lines = |name: String, lines| File::canary(&name, &"a\n".repeat(lines));
    assert_eq!(long_pages(&[of_lines("docs/a.md".into(), PAGE_LINES_MAX + 1)]).len(), 1);
    assert_none(&long_pages(&[of_lines("lab/docs/a.md".into(), PAGE_LINES_MAX + 1)]));
    let many = |lines| {
        let names = 0..=PRODUCT_LINES_MAX / PAGE_LINES_MAX;
        names.map(|n| of_lines(format!("docs/{n}.md"), lines)).collect::<Vec<_>>()
    };
    assert_eq!(long_pages(&many(PAGE_LINES_MAX)).len(), 1);
    assert_none(&long_pages(&many(PAGE_LINES_MAX / 2)));
    assert_none(&wide(&[page(&format!("```\n{}\n```\n", "a ".repeat(CELL_MAX)))]));
}
