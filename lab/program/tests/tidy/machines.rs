//! A rule about experiments of the sources: they name their machine, and contain only their workload.

use toml::Table;

use crate::files::{File, all, assert_none};

/// The folders of the sources.
const SOURCES: [&str; 6] = [
    "article-2018",
    "comparison-2019",
    "controller-2015",
    "io-controller-2009",
    "mails-2019",
    "survey-2019",
];
/// What the file of a machine says. A variant may differ in it, where that is what the source varies.
const OF_MACHINES: [&str; 3] = ["drive", "host", "tags"];

fn more_than_workload(files: &[File]) -> Vec<String> {
    let is_source = |file: &&File| {
        SOURCES
            .iter()
            .any(|source| file.path.starts_with(&format!("reproduction/experiments/{source}/")))
    };
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".toml")).filter(is_source) {
        let table: Table = file.text.parse().unwrap_or_default();
        if !table.contains_key("machine") {
            complaints.push(format!("{}: no `machine`", file.path));
        }
        for key in OF_MACHINES.iter().filter(|key| table.contains_key(**key)) {
            complaints.push(format!("{}: `{key}` belongs into the machine's file", file.path));
        }
    }
    complaints
}

/// Goal: one file a machine serves all experiments of its source. Method: all of them.
#[test]
fn experiments_contain_only_their_workload() {
    assert_none(&more_than_workload(&all()));
}

/// Goal: the rule catches what it is for. Method: a good file, one without a machine, one with a host.
#[test]
fn canaries() {
    let count = |text: &str| {
        more_than_workload(&[File::canary("reproduction/experiments/survey-2019/a.toml", text)])
            .len()
    };
    assert_eq!(count("machine = \"plextor-2018\"\n[[variant]]\nhost.writeback = \"root\""), 0);
    assert_eq!(count("drive = \"plextor-px256m5s\""), 2);
    assert_eq!(count("machine = \"sata-2009\"\ntags = 128\n[host]\ncold_percent = 0"), 2);
    let ours =
        File::canary("reproduction/experiments/suite/a.toml", "drive = \"plextor-px256m5s\"");
    assert!(more_than_workload(&[ours]).is_empty());
}
