//! Rules about the table of policies: every file is a row, and the pages generated from both are fresh: that of the policies of
//! servers, and that of all policies.
//!
//! `make docs` (IOFAIR_BLESS=1) writes the pages anew.

use std::fmt::Write;

use iofair_baselines::TABLE;
use iofair_core::params::Values;
use iofair_core::policy::{Role, Row, Table};

use crate::comparison::{self, Links};
use crate::files::{File, all, assert_none, root};
use crate::measured::measured;

/// Where policies are.
const FOLDERS: [&str; 2] = ["crates/policies/src/", "lab/baselines/src/"];

/// A generated page of policies.
struct Page {
    path: &'static str,
    table: &'static Table,
    title: &'static str,
    /// What stands below the introduction to the table.
    more: &'static str,
    links: Links,
}

const PAGES: [Page; 2] = [
    Page {
        path: "docs/policies.md",
        table: &iofair_policies::TABLE,
        title: "# Policies of servers",
        more: "\n[All policies](../lab/docs/policies.md), those of the literature and of other kernels too, are in the laboratory, \
               which also\nsays [where the rules come from](../lab/docs/policies.md#where-the-rules-come-from).\n",
        links: Links {
            performance: "../lab/docs/performance.md",
            experiments: "../reproduction/experiments",
        },
    },
    Page {
        path: "lab/docs/policies.md",
        table: &TABLE,
        title: "# Policies",
        more: PROVENANCE,
        links: Links {
            performance: "performance.md",
            experiments: "../../reproduction/experiments",
        },
    },
];

/// Files and folders of policies that no row names.
fn unregistered(files: &[File], rows: &[&str]) -> Vec<String> {
    let mut found: Vec<&str> = Vec::new();
    for file in files {
        let below = FOLDERS.iter().find_map(|folder| file.path.strip_prefix(folder));
        let Some(below) = below else { continue };
        let first = below.split('/').next().unwrap_or_default();
        let name = first.strip_suffix(".rs").unwrap_or(first);
        let other = ["lib", "parts"].contains(&name);
        if !other && !found.contains(&name) {
            found.push(name);
        }
    }
    let registered = |name: &str| {
        let mut first = rows.iter().map(|row| row.split('/').next().unwrap_or_default());
        first.any(|first| first.strip_suffix(".rs").unwrap_or(first) == name)
    };
    let orphans = found.into_iter().filter(|name| !registered(name));
    orphans.map(|name| format!("{name}: no row names it")).collect()
}

/// Rows whose file is not there or tells no story.
fn without_manual(files: &[File], rows: &[&str]) -> Vec<String> {
    let missing = rows.iter().filter(|row| manual(files, row).is_empty());
    missing.map(|row| format!("{row}: no manual page (//!) there")).collect()
}

/// Manual pages that do not tell what their source states from what was derived or chosen.
fn without_source(files: &[File], rows: &[&str]) -> Vec<String> {
    let tells = |row: &str| manual(files, row).to_lowercase().contains("stated");
    let silent = rows.iter().filter(|row| !tells(row));
    silent.map(|row| format!("{row}: what is stated by its source?")).collect()
}

/// The manual page of a policy: the `//!` at the head of its file.
fn manual(files: &[File], row: &str) -> String {
    let is_it =
        |file: &&File| FOLDERS.iter().any(|folder| file.path.strip_prefix(folder) == Some(row));
    let Some(file) = files.iter().find(is_it) else { return String::new() };
    let head = file.text.lines().map_while(|line| line.strip_prefix("//!"));
    head.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

/// Which facts were read where.
const PROVENANCE: &str = "\n## Where the rules come from\n\n\
    No policy contains code of the kernel or of another project. Each was written from facts: what the rules, constants and\n\
    defaults are. The section of a policy says under *Source* where these are stated, under *From memory* and *Derived* what no\n\
    text at hand states, and under *Our choice* where ours differs. Facts have three kinds of sources:\n\n\
    - **Papers, documentation, slides, mails and commit messages.** From these alone come `fair-noop`, `fair-deadline`,\n  \
      `fair-anticipatory` and `fair-cfq` (the mails of the IO controller V10), `io-throttle` (Righi's descriptions of his patches),\n  \
      `proportional` (Li's slides, completed as its section says), and what BFQ 4.20 and 5.3 do otherwise than 5.14 where a\n  \
      message states it.\n\
    - **Sources that were read.** The rules, constants and orders of steps of the following were read in the sources and written\n  \
      down in words; the policies were written from these words. Linux 2.6.32: `noop`, `deadline`, `anticipatory`, `cfq`. Linux 4.18 and\n  \
      its backports in RHEL 8: `cfq-group`, `throttle-low`, `throttle-max`, `io-latency`, `bfq` and its older versions. Linux 7.0:\n  \
      `none`, `mq-deadline`, `kyber`, `wbt`, `io-cost`, and changes of `throttle-max` and `io-latency`. dm-ioband of 2009: `ioband`,\n  \
      `ioband-range-bw`. One rule of `proportional` is from TencentOS-kernel's throttle. When Linux asks a scheduler for work, and how\n  \
      it reads ahead and writes back, was read there too ([experiments.md](experiments.md#keys-of-the-host)).\n\
    - **Nothing but our own work**: `promise`.\n";

fn page(files: &[File], of: &Page, rows: &[&Row]) -> String {
    let mut page = format!(
        "{}\n\nGenerated by `make docs` from the table of policies, the head of each policy's file,\n\
         measured.csv and performance.md; do not edit.\n\n{}",
        of.title,
        comparison::legend(of.links)
    );
    page += "\nThe name of a stack is `<throttles>-<scheduler>`: `none-none`, `max-none`, `max+prop-bfq`. `prop-` means that the \
         scheduler\nshares between groups.\n\n\
         | Policy | In a stack | Role | What it does | Cost |\n|---|---|---|---|---|\n";
    for row in rows {
        let (name, anchor) = (row.name, row.name.replace('.', ""));
        let _ = writeln!(
            page,
            "| [{name}](#{anchor}) | `{}` | {} | {} | {} |",
            row.short,
            role(row),
            row.summary,
            comparison::cost(files, row)
        );
    }
    page += "\nNamed stacks (`iofair list stacks`):\n\n\
             | Name | Stack | What it does |\n|---|---|---|\n";
    for named in of.table.stacks {
        let _ = writeln!(page, "| `{}` | `{}` | {} |", named.name, named.stack, named.summary);
    }
    page += of.more;
    let measured = measured(files).unwrap_or_default();
    for row in rows {
        let list = comparison::list(row, &measured, of.links);
        let first = rows.iter().find(|first| first.file == row.file).expect("at least this one");
        let manual = match first.name == row.name {
            true => manual(files, row.file),
            false => format!("See [{0}](#{1}).\n", first.name, first.name.replace('.', "")),
        };
        let _ = write!(page, "\n## {}\n\n{list}\n{manual}", row.name);
        if row.parameters.is_empty() {
            page += "\nIt has no parameters.\n";
            continue;
        }
        page += "\n| Parameter | Default | Allowed | Meaning |\n|---|---|---|---|\n";
        for (parameter, value) in Values::new(row.parameters, row.overrides).iter() {
            let (low, high) =
                (parameter.show(parameter.range.0), parameter.show(parameter.range.1));
            let default = parameter.show(value);
            let _ = writeln!(
                page,
                "| `{}` | {default} | {low} to {high} | {} |",
                parameter.name, parameter.doc
            );
        }
    }
    page
}

fn role(row: &Row) -> &'static str {
    match row.role {
        Role::Throttle => "throttle",
        Role::Scheduler { groups: true, .. } => "scheduler, shares between groups",
        Role::Scheduler { groups: false, .. } => "scheduler",
    }
}

fn files_of_rows() -> Vec<&'static str> {
    TABLE.policies.iter().map(|row| row.file).collect()
}

/// Goal: no policy is forgotten, and each has its manual page. Method: files against rows.
#[test]
fn every_policy_file_is_a_row() {
    let files = all();
    assert_none(&unregistered(&files, &files_of_rows()));
    assert_none(&without_manual(&files, &files_of_rows()));
    assert_none(&without_source(&files, &files_of_rows()));
}

/// Goal: names are unique, so that a stack's name means one thing. Method: compare all pairs.
#[test]
fn names_of_policies_are_unique() {
    for (i, row) in TABLE.policies.iter().enumerate() {
        for other in &TABLE.policies[..i] {
            assert!(row.name != other.name && row.name != other.short, "{} twice", row.name);
        }
    }
}

/// Goal: generated pages are fresh. Method: generate and compare; IOFAIR_BLESS=1 writes them.
#[test]
fn generated_pages_are_fresh() {
    for of in &PAGES {
        let fresh = page(&all(), of, of.table.policies);
        let path = root().join(of.path);
        if std::env::var_os("IOFAIR_BLESS").is_some() {
            std::fs::write(&path, &fresh).expect("docs can be written");
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == fresh, "{} is stale; run make docs", of.path);
    }
}

/// Goal: every rule of this file catches what it is for. Method: made-up files and rows.
#[test]
fn canaries() {
    let files = [
        File::canary("crates/policies/src/lib.rs", ""),
        File::canary("crates/policies/src/good.rs", "//! Good, as stated.\nuse x;\n"),
        File::canary("lab/baselines/src/big/mod.rs", "use y;\n"),
        File::canary("lab/baselines/src/lost.rs", "//! Lost.\n"),
    ];
    assert_eq!(unregistered(&files, &["good.rs", "big/mod.rs"]).len(), 1);
    assert_eq!(without_manual(&files, &["good.rs", "big/mod.rs", "gone.rs"]).len(), 2);
    assert_eq!(without_source(&files, &["good.rs", "lost.rs"]).len(), 1);
    assert_eq!(manual(&files, "good.rs"), "Good, as stated.\n");
    let [servers, _] = &PAGES;
    assert_ne!(page(&files, servers, &[]), page(&all(), servers, servers.table.policies));
}
