//! One configuration is the proven one: what a server runs by default is the named stack that the experiments, the demo, live
//! runs and benchmarks also run, with the same policies, parameters and tags.

use std::fs;
use std::path::{Path, PathBuf};

use iofair_baselines::TABLE;
use iofair_config::contracts::Contracts;
use iofair_core::controller::Stack;
use iofair_core::policy::DriveFacts;
use iofair_core::unit::Sectors;
use iofair_experiments::experiment::{self, Overrides};
use iofair_policies::DEFAULT_STACK;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All that a stack decides: policies and parameters, and the tags on drives of little and much depth.
fn shown(stack: &Stack) -> (String, Vec<u32>) {
    let stages = stack.throttles.iter().chain([&stack.scheduler]).map(|stage| {
        let values: Vec<String> = stage
            .values
            .iter()
            .map(|(parameter, value)| format!("{}={}", parameter.name, parameter.show(value)))
            .collect();
        format!("{} {}", stage.row.name, values.join(" "))
    });
    let stages: Vec<String> = stages.collect();
    let text = format!("{} {} {} {stages:?}", stack.name(), stack.groups, stack.admits);
    let tags = [1, 32, 1023].map(|depth| {
        let (max_request, capacity) = (Sectors(1024), Sectors(1 << 30));
        stack.tags(&DriveFacts { rotational: false, depth, max_request, capacity })
    });
    (text, tags.to_vec())
}

fn parse(text: &str) -> Contracts {
    Contracts::parse_with(&TABLE, "c.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// Every file below a directory with this ending.
fn files(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("readable").path();
        match path.is_dir() {
            true => files(&path, ending, found),
            false if path.extension().is_some_and(|given| given == ending) => found.push(path),
            false => {}
        }
    }
}

/// Goal: a server without a `stack` in its file runs the named stack as it is in the table, and no other. Method: its stages,
/// parameters and tags, with and without the name written; and that the check sees one parameter that differs.
#[test]
fn a_server_runs_the_named_stack() {
    let named = TABLE.stack(DEFAULT_STACK).expect("a stack of the table");
    let own = iofair_policies::TABLE.stack(DEFAULT_STACK).expect("a stack of the table");
    assert_eq!(shown(&own), shown(&named), "the policies of servers and all policies");
    for written in ["", "stack = 'promise'"] {
        let contracts = parse(&format!("[drive]\nback = 'memory:1GiB'\n{written}\n"));
        assert_eq!(shown(&contracts.drive.stack), shown(&named));
    }
    let other = parse("[drive]\nback = 'memory:1GiB'\n[drive.policy.max]\nslice = '50ms'\n");
    assert_ne!(shown(&other.drive.stack), shown(&named));
}

/// Goal: experiments about the default run it as servers do: no parameter and no number of tags of their own. Method: every
/// shipped experiment with a stack of that name.
#[test]
fn experiments_run_the_named_stack() {
    let named = shown(&TABLE.stack(DEFAULT_STACK).expect("a stack of the table"));
    let mut paths = Vec::new();
    files(&root().join("reproduction/experiments"), "toml", &mut paths);
    let mut with = 0;
    for path in paths {
        let experiment = experiment::read(&path, &Overrides::default());
        let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
        for (name, stack) in experiment.stacks.iter().filter(|(name, _)| name == DEFAULT_STACK) {
            assert_eq!(shown(stack), named, "{name} of {}", path.display());
            assert_eq!(experiment.tags, None, "{}", path.display());
            with += 1;
        }
    }
    assert!(with >= 10, "{with} experiments with it");
}

/// Goal: contract files that people start from, and those of the demo and of benchmarks, leave the stack to the default.
/// Method: the files that are shipped; where tests and benchmarks name it, they do so by `DEFAULT_STACK`.
#[test]
fn files_to_start_from_leave_the_stack_alone() {
    let named = shown(&TABLE.stack(DEFAULT_STACK).expect("a stack of the table"));
    for file in ["demo/contracts.toml", "packaging/contracts.toml"] {
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|_| panic!("{file}"));
        assert_eq!(shown(&parse(&text).drive.stack), named, "{file}");
    }
    for file in [
        "crates/cli/src/demo.rs",
        "crates/serve/benches/engine.rs",
        "crates/serve/benches/nbd.rs",
        "crates/serve/tests/live.rs",
        "lab/baselines/benches/engine.rs",
    ] {
        let text = fs::read_to_string(root().join(file)).expect("it is there");
        assert!(text.contains("DEFAULT_STACK"), "{file}");
    }
}
