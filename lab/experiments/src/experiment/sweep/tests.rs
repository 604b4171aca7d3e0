//! Sweeps over keys of clients and of everything else.

use std::path::Path;

use iofair_core::time::Nanos;

use crate::experiment::{Experiment, Overrides, parse};

const FILE: &str = "title = 't'\nsource = 's'\ndrive = 'plextor-px256m5s'\ntime = '1s'\n\
    stacks = ['none-none', 'prop-bfq']\n[[client]]\nname = 'a'\njob = 'read'\nweight = 100\n\
    [[group]]\nname = 'g'\nweight = 100\n\
    [[variant]]\nname = 'x'\n[[variant]]\nname = 'y, \"2\"'\ntime = '3s'\n";

fn read(sweeps: &str) -> Result<Experiment, String> {
    let text = format!("{FILE}{sweeps}");
    parse("e.toml", &text, &Overrides::default()).map_err(|error| error.to_string())
}

/// Goal: any key is swept, several at once, each variant with each point in the file's order. Method: a parameter of a policy,
/// a contract of a group and of a client, the drive and a time that a variant sets itself.
#[test]
fn any_key_is_swept() {
    let sweep = |key: &str, values: &str| format!("[[sweep]]\nkey = '{key}'\nvalues = {values}\n");
    let both =
        sweep("policy.bfq.slice_idle", "['0s', '8ms']") + &sweep("client.a.weight", "[100, 300]");
    let experiment = read(&both).expect("a good file");
    let names: Vec<_> = experiment.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names.len(), 8);
    assert_eq!(names[1], "x, policy.bfq.slice_idle=0s, client.a.weight=300");
    let swept = &experiment.variants[6].swept;
    assert_eq!(swept[0], ("policy.bfq.slice_idle".to_owned(), "8ms".to_owned()));
    assert_eq!(swept[1], ("client.a.weight".to_owned(), "100".to_owned()));
    assert_eq!(experiment.variants[6].base, "y, \"2\"");
    let stack =
        |variant| format!("{:?}", experiment.scenario(variant, 1, 0).stack.scheduler.values);
    assert_ne!(stack(0), stack(2), "slice_idle differs");
    assert_eq!(stack(0), stack(1), "only the weight differs");
    assert_eq!(experiment.scenario(1, 1, 0).groups[1].contract.weight, 300);
    let drives =
        read(&sweep("drive", "['plextor-px256m5s', 'samsung-970-pro']")).expect("a good file");
    assert_eq!(drives.scenario(1, 0, 0).drive, "samsung-970-pro");
    let groups = read(&sweep("group.g.weight", "[7, 8]")).expect("a good file");
    assert_eq!(groups.scenario(3, 0, 0).groups[0].contract.weight, 8);
    let times = read(&sweep("time", "['1s', '2s']")).expect("a good file");
    assert_eq!(times.variants[3].time, Nanos::from_secs(2), "the sweep wins over the variant");
    let host = read(&sweep("host.turnaround", "['5us', '50us']")).expect("a good file");
    assert_eq!(host.scenario(3, 0, 0).host.turnaround, Nanos::from_micros(50));
}

/// Goal: mistakes are found at their place. Method: unknown keys, clients, drives and parameters; a grid that is too large.
#[test]
fn mistakes_in_sweeps_are_found() {
    let sweep = |key: &str, values: &str| format!("[[sweep]]\nkey = '{key}'\nvalues = {values}\n");
    for (key, values, says) in [
        ("title", "['a']", "cannot be swept"),
        ("client.b.weight", "[1]", "no client `b`"),
        ("client.weight", "[1]", "no key of a client"),
        ("client.a.wight", "[1]", "unknown key"),
        ("machine", "['none']", "none"),
        ("policy.bfq.idle", "['1ms']", "idle"),
        ("group.h.weight", "[1]", "`h`"),
    ] {
        let error = read(&sweep(key, values)).expect_err(key);
        assert!(error.contains(says) && error.contains("e.toml:1"), "{error}");
    }
    let many: Vec<String> = (1..=40).map(|number| number.to_string()).collect();
    let large = sweep("client.a.weight", &format!("[{}]", many.join(", ")));
    let large = large + &sweep("group.g.weight", &format!("[{}]", many.join(", ")));
    let error = read(&large).expect_err("1,600 points");
    assert!(error.contains("1000") && error.contains("sample"), "{error}");
}

/// Goal: a sample takes each value of each key equally often, the same for the same seed. Method: 8 of 16 points.
#[test]
fn a_sample_is_a_latin_hypercube() {
    let keys = "[[sweep]]\nkey = 'client.a.weight'\nvalues = [1, 2, 3, 4]\n\
                [[sweep]]\nkey = 'group.g.weight'\nvalues = [1, 2, 3, 4, 5, 6, 7, 8]\n";
    let text = format!("sample = 8\n{FILE}{keys}");
    let read = || parse("e.toml", &text, &Overrides::default()).expect("a good file");
    let experiment = read();
    let count = |key: usize, value: &str| {
        experiment.variants.iter().filter(|variant| variant.swept[key].1 == value).count()
    };
    assert_eq!(experiment.variants.len(), 16, "two variants, eight points");
    assert_eq!((count(0, "1"), count(0, "4"), count(1, "1"), count(1, "8")), (4, 4, 2, 2));
    let names = |experiment: &Experiment| {
        experiment.variants.iter().map(|variant| variant.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&experiment), names(&read()));
}

/// Goal: sweeps of a command line are those of a file, and leave its claims out. Method: numbers, texts, nonsense.
#[test]
fn a_command_line_sweeps() {
    let sweeps = ["client.a.weight=100,300", "drive=plextor-px256m5s,samsung-970-pro"];
    let claim = "[[expect]]\nkind = 'at_least'\nvariant = 'x'\nstack = 'none-none'\nof = 'a'\n\
                 value = '1MB/s'\nbasis = 'own'\n";
    let with = |sweeps: &[&str]| {
        let sweeps = sweeps.iter().map(|sweep| (*sweep).to_owned()).collect();
        let overrides = Overrides { sweeps, ..Overrides::default() };
        parse("e.toml", &format!("{FILE}{claim}"), &overrides)
    };
    let experiment = with(&sweeps).expect("good sweeps");
    assert_eq!((experiment.variants.len(), experiment.claims.len()), (8, 0));
    assert_eq!(experiment.variants[1].name, "x, client.a.weight=100, drive=samsung-970-pro");
    assert_eq!(with(&[]).expect("a good file").claims.len(), 1);
    for wrong in ["weight", "client.a.weight=", "title=1"] {
        assert!(with(&[wrong]).is_err(), "{wrong}");
    }
}

/// Goal: an experiment whose runs a drive was fitted on can be swept. Method: one that the profile of its drive names.
#[test]
fn an_experiment_that_was_fitted_on_is_swept() {
    let path = Path::new("../../reproduction/experiments/article-2018/figure-1.toml");
    let sweeps = vec!["policy.bfq.slice_idle=0s,8ms".to_owned()];
    let plain = crate::experiment::read(path, &Overrides::default()).expect("a good file");
    assert!(
        plain.variants.iter().any(|variant| !variant.fitted_on.is_empty()),
        "the profile names it"
    );
    let overrides = Overrides { sweeps, ..Overrides::default() };
    let swept = crate::experiment::read(path, &overrides).expect("a good sweep");
    assert_eq!(swept.variants.len(), 2 * plain.variants.len());
}
