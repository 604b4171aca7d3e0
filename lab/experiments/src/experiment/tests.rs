//! Parsing, expansion and verdicts, with a simulator that gives known numbers.

use iofair_core::stats::histogram::Histogram;
use iofair_core::time::Nanos;
use iofair_simulator::outcome::Interval;
use iofair_simulator::scenario::{Pattern, Scenario};

use super::*;
use crate::testing::{EXAMPLE, all_shipped, example, results, simulate};

mod steps;

fn refuse(from: &str, to: &str) -> ConfigError {
    let text = EXAMPLE.replacen(from, to, 1);
    assert_ne!(text, EXAMPLE, "{from} is not in the example");
    parse("e.toml", &text, &Overrides::default()).expect_err("the example is spoiled")
}

/// The line of the example on which `text` first stands, from 1.
fn line_of(text: &str) -> usize {
    EXAMPLE.lines().position(|line| line.contains(text)).expect("in the example") + 1
}

/// Goal: every key ends up where it belongs. Method: the example, expanded.
#[test]
fn an_experiment_expands() {
    let experiment = example();
    assert_eq!(experiment.name, "a/example");
    let names: Vec<_> = experiment.variants.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["rand, N=4", "rand, N=1", "seq, N=4", "seq, N=1"]);
    assert_eq!(experiment.runs(), 4 * 2 * 3);
    let first = experiment.scenario(0, 1, 2);
    assert_eq!(
        (first.seed, first.time, first.ramp),
        (3, Nanos(2_000_000_000), Nanos(1_000_000_000))
    );
    let clients: Vec<_> = first.clients.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(clients, ["target", "reader.0", "reader.1", "reader.2", "reader.3"]);
    assert_eq!(first.clients[0].job.pattern, Pattern::RandomRead);
    assert_eq!(first.groups.len(), 1 + 4 + 5, "inactive groups exist");
    let target = &first.groups[0].contract;
    assert_eq!((target.weight, target.min), (300, Some(10_000_000)));
    assert_eq!(first.groups[1].contract.max.bytes_per_s, [Some(15_000_000), None]);
    assert_eq!(first.groups[1].contract.max.iops, [None, Some(7)]);
    let last = experiment.scenario(3, 0, 0);
    let clients: Vec<_> = last.clients.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(clients, ["target", "reader"]);
    assert_eq!(last.clients[0].job.pattern, Pattern::SequentialRead);
    assert_eq!(last.time, Nanos::from_secs(3));
}

/// Goal: what a caller changes is changed. Method: all overrides at once.
#[test]
fn overrides_replace_what_the_file_says() {
    let overrides = Overrides {
        stacks: Some(vec!["again".into()]),
        repeats: Some(1),
        time: Some(Nanos::from_millis(500)),
        ramp: Some(Nanos::ZERO),
        seed: Some(40),
        numbers: None,
        sweeps: Vec::new(),
        settings: ["client.target.block=8KiB", "client.target.alone=23MB/s", "tags=9"]
            .map(String::from)
            .to_vec(),
        ..Overrides::default()
    };
    let experiment = parse("e.toml", EXAMPLE, &overrides).expect("a good file");
    let scenario = experiment.scenario(3, 0, 0);
    assert_eq!(scenario.groups[0].contract.alone, Some(23_000_000));
    assert_eq!((scenario.seed, scenario.time), (40, Nanos::from_millis(500)));
    assert_eq!((experiment.runs(), experiment.claims_left_out), (4, 1));
    assert_eq!((scenario.clients[0].job.block.bytes(), scenario.tags), (8 << 10, Some(9)));
    let unknown = Overrides { stacks: Some(vec!["no-such".into()]), ..overrides };
    assert!(parse("e.toml", EXAMPLE, &unknown).is_err());
}

/// Goal: each mistake is refused with its line and what is allowed. Method: the example, spoiled
/// once a rule.
#[test]
fn mistakes_are_shown_with_their_line() {
    let cases = [
        ("repeats = 3", "repeat = 3", "repeats = 3", "unknown key `repeat`"),
        ("time = \"2s\"", "time = 2", "time = \"2s\"", "integer `2`"),
        ("time = \"2s\"", "time = \"0s\"", "time = \"2s\"", "no time"),
        ("\"none-none\", ", "\"none-nome\", ", "stacks =", "no scheduler"),
        ("[stack.again]", "[stack.agian]", "[stack.again]", "not among"),
        ("weight = 300", "weight = 3000", "weight = 300", "weight 3000"),
        ("min = \"10MB/s\"", "alone = \"1MB/s\"", "name = \"target\"", "there is none"),
        ("weight = 300", "alone = \"1MB/s\"", "name = \"target\"", "more than it reaches"),
        ("weight = 300", "depth = 4", "name = \"target\"", "`depth` above 1"),
        ("job = \"randread\"", "job = \"randraed\"", "job = \"randread\"", "`randraed`"),
        ("job = \"randread\"", "", "name = \"target\"", "no `job`"),
        ("name = \"reader\"", "name = \"target\"", "name = \"reader\"", "twice"),
        ("name = \"reader\"", "name = \"..\"", "name = \"reader\"", "\"..\" cannot name a client"),
        ("weight = 300", "group = \"-rf\"", "name = \"target\"", "not a valid group name"),
        ("client.target.job", "client.tarket.job", "client.target.job", "no client `tarket`"),
        ("client.target.job", "client.target.jib", "client.target.job", "unknown key `jib`"),
        ("key = \"count\"", "key = \"cuont\"", "key = \"count\"", "unknown key `cuont`"),
        ("[4, 1]", "[4, \"x\"]", "[4, 1]", "string"),
        ("[4, 1]", "[4, 4]", "", "two variants"),
        ("rand, N=4", "rand, N=5", "rand, N=4", "no variant"),
        ("stack = \"none-none\"", "stack = \"nome-none\"", "stack = \"none-none\"", "no stack"),
        ("of = \"target\"", "of = \"traget\"", "of = \"target\"", "no client `traget`"),
        ("of = \"target\"", "of = \"target p98\"", "of = \"target\"", "p98"),
        ("\"10MB/s\"\nband", "10\nband", "published =", "needs its unit"),
        ("band = \"10%\"", "band = \"ten\"", "band = \"10%\"", "percentage"),
        ("kind = \"within\"", "kind = \"at_least\"", "kind = \"within\"", "need `value`"),
    ];
    for (from, to, place, message) in cases {
        let error = refuse(from, to);
        let shown = error.to_string();
        assert!(shown.contains(message), "{to}: {shown}");
        let line = if place.is_empty() { 0 } else { line_of(place) };
        assert_eq!(error.line(), line, "{to}: {shown}");
    }
    let near = refuse("of = \"target\"", "of = \"traget\"");
    assert_eq!(near.nearest.as_deref(), Some("target"));
}

/// Goal: a claim is judged right, and a false one is shown to be false. Method: canaries on both
/// sides of each band, and an order both ways.
#[test]
fn false_claims_do_not_hold() {
    use Verdict::{DoesNotHold, Holds, Informative};
    let judge = |keys: &str| {
        let start = EXAMPLE.find("[[expect]]").expect("in the example");
        let text = format!(
            "basis = 'own'\n{}[[expect]]\nvariant = 'rand, N=4'\n{keys}",
            &EXAMPLE[..start]
        );
        let experiment = parse("e.toml", &text, &Overrides::default());
        let experiment = experiment.unwrap_or_else(|error| panic!("{keys}: {error}"));
        results(experiment, 1).verdicts()[0]
    };
    let cases = [
        (
            "kind = 'within'\nstack = 'none-none'\nof = 'target'\npublished = '10MB/s'\nband = '1%'",
            Holds,
        ),
        (
            "kind = 'within'\nstack = 'none-none'\nof = 'target'\npublished = '11MB/s'\nband = '5%'",
            DoesNotHold,
        ),
        ("kind = 'within'\nstack = 'none-none'\nof = 'target'\npublished = '11MB/s'", Informative),
        ("kind = 'at_least'\nstack = 'none-none'\nof = 'total'\nvalue = '99MB/s'", Holds),
        ("kind = 'at_least'\nstack = 'none-none'\nof = 'total'\nvalue = '101MB/s'", DoesNotHold),
        ("kind = 'at_most'\nstack = 'none-none'\nof = 'target mean'\nvalue = '1ms'", Holds),
        ("kind = 'at_most'\nstack = 'none-none'\nof = 'target p99'\nvalue = '500us'", DoesNotHold),
        (
            "kind = 'ratio'\nstack = 'none-none'\nof = 'reader'\nto = { of = 'target' }\nlow = 3.9\nhigh = 4.1",
            Holds,
        ),
        (
            "kind = 'ratio'\nstack = 'none-none'\nof = 'reader'\nto = { of = 'target' }\npublished = 5\nband = '10%'",
            DoesNotHold,
        ),
        ("kind = 'order'\nof = 'total'\norder = ['none-none', 'again']", DoesNotHold),
        (
            "kind = 'order'\nstack = 'again'\nof = 'target'\norder = [{ of = 'target' }, { of = 'reader' }]",
            Holds,
        ),
        (
            "kind = 'order'\nstack = 'again'\nof = 'target'\norder = [{ of = 'reader' }, { of = 'target' }]",
            DoesNotHold,
        ),
        (
            "kind = 'order'\nstack = 'again'\nof = 'reader'\norder = [{ variant = 'rand, N=1' }, {}]",
            Holds,
        ),
    ];
    for (keys, verdict) in cases {
        assert_eq!(judge(keys).1, verdict, "{keys}");
    }
}

/// Goal: the time from which on a latency stays low, over all repeats together. Method: a target that takes 9
/// ms, once 1 ms, 9 ms again, and 1 ms from 2.5 s on; against one that always takes 9.
#[test]
fn a_latency_falls_for_good() {
    let start = EXAMPLE.find("[[expect]]").expect("in the example");
    let judge = |interval: &str, keys: &str| {
        let text = format!(
            "basis = 'own'\n{interval}\n{}[[expect]]\nkind = 'falls_at'\nvariant = 'rand, N=1'\nstack = 'again'\n\
             of = 'target mean'\npublished = '2.5s'\n{keys}",
            &EXAMPLE[..start]
        );
        let experiment = parse("e.toml", &text, &Overrides::default())?;
        let falls = |scenario: &Scenario| {
            let mut outcome = simulate(scenario)?;
            let low = |index| index == 3 || index >= 25;
            let interval = |index| Interval {
                calls: 2,
                bytes: 8192,
                latency: if low(index) { 2_000_000 } else { 18_000_000 },
                ..Interval::default()
            };
            outcome.clients[0].series = (0..30).map(interval).collect();
            outcome.clients[0].latency = Histogram::new();
            outcome.clients[0].latency.record(9_000_000);
            Ok(outcome)
        };
        let runner = Runner { jobs: 1, simulate: &falls, finished: &|_| {} };
        let results = run(vec![experiment], &runner).expect("the simulator never fails").remove(0);
        Ok::<_, ConfigError>(results.verdicts()[0])
    };
    let every = "interval = '100ms'";
    let good = "value = 0.5\nto = 'none-none'\nlow = '2s'\nhigh = '3s'";
    assert_eq!(judge(every, good).expect("good keys"), (2.5, Verdict::Holds));
    let later = "value = 0.5\nto = 'none-none'\nlow = '2600ms'\nhigh = '3s'";
    assert_eq!(judge(every, later).expect("good keys"), (2.5, Verdict::DoesNotHold));
    let never = "value = 0.1\nto = 'none-none'\nlow = '0s'\nhigh = '3s'";
    assert_eq!(judge(every, never).expect("good keys"), (f64::INFINITY, Verdict::DoesNotHold));
    for (interval, keys) in [
        ("", good),
        ("interval = '10us'", good),
        (every, "to = 'none-none'\nlow = '0s'"),
        (every, "value = '1ms'\nto = 'none-none'\nlow = '0s'"),
        (every, "value = 0.5\nlow = '0s'"),
    ] {
        assert!(judge(interval, keys).is_err(), "{interval} {keys}");
    }
}

/// Goal: a number that is none never holds. Method: 0 / 0.
#[test]
fn nothing_divided_by_nothing_does_not_hold() {
    let mut claim = example().claims[0].clone();
    claim.kind = Kind::Ratio;
    claim.places = vec![claim.places[0].clone(), claim.places[0].clone()];
    assert_eq!(claim.judge(&[0.0, 0.0]).1, Verdict::DoesNotHold);
    claim.kind = Kind::Order;
    assert_eq!(claim.judge(&[0.0, f64::NAN]).1, Verdict::DoesNotHold);
}

/// Goal: an order of quotients. Method: 10 and 30 grow, 10 / 1 and 30 / 4 do not; what `per` may not say is refused.
#[test]
fn an_order_of_quotients() {
    let file = |per: &str| {
        let order = format!(
            "\n[[expect]]\nkind = 'order'\nof = 'total'\nvariant = 'rand, N=4'\norder = ['none-none', 'again']\nper = {per}\n"
        );
        parse(
            "reproduction/experiments/a/example.toml",
            &(EXAMPLE.to_owned() + &order),
            &Overrides::default(),
        )
    };
    let claim = file("{ variant = 'rand, N=1' }").expect("a good file").claims.remove(1);
    assert_eq!(claim.text, "total: none-none < again, each / [rand, N=1]");
    assert_eq!(claim.places.len(), 4);
    assert_eq!(claim.judge(&[10.0, 30.0, 1.0, 4.0]), (0.75, Verdict::DoesNotHold));
    assert_eq!(claim.judge(&[30.0, 10.0, 4.0, 1.0]), (10.0 / 7.5, Verdict::Holds));
    for per in
        ["{ stack = 'again' }", "{ variant = 'none' }", "{ variant = 'rand, N=1', of = 'target' }"]
    {
        assert!(file(per).is_err(), "{per}");
    }
}

/// Goal: the number of threads changes nothing. Method: one against four.
#[test]
fn threads_change_no_result() {
    let (one, four) = (results(example(), 1), results(example(), 4));
    for variant in 0..4 {
        for stack in 0..2 {
            assert_eq!(one.repeats(variant, stack), four.repeats(variant, stack));
        }
    }
    let seeds: Vec<_> = one.repeats(1, 1).iter().map(|outcome| outcome.trace_hash).collect();
    assert_eq!(seeds, [1, 2, 3]);
    let target = one.statistics(0, 0, &"target".parse().expect("a quantity"));
    assert_eq!((target.count, target.min, target.max), (3, 10.001, 10.003));
}

/// Goal: a failing run stops the others and is named. Method: a simulator that refuses one seed.
#[test]
fn a_failing_run_is_named() {
    let fail = |scenario: &Scenario| match scenario.seed {
        2 => Err("no such drive".to_owned()),
        _ => simulate(scenario),
    };
    let runner = Runner { jobs: 2, simulate: &fail, finished: &|_| {} };
    let error = run(vec![example()], &runner).expect_err("seed 2 fails");
    assert!(error.contains("seed 2") && error.contains("no such drive"), "{error}");
}

/// Goal: every experiment that we ship can be run and can fail. Method: read and expand all files
/// under `reproduction/experiments/`. Those of `truth` and `drawn` are compared with the kernel instead of with claims.
#[test]
fn all_shipped_experiments_expand() {
    let all = all_shipped();
    assert!(all.len() >= 10, "{} experiments", all.len());
    for experiment in &all {
        let on_linux = ["truth/", "drawn/"].iter().any(|dir| experiment.name.starts_with(dir));
        assert_eq!(experiment.claims.is_empty(), on_linux, "{}", experiment.name);
        for variant in &experiment.variants {
            let drive = iofair_drive::profile::load(&variant.drive, 1);
            assert!(drive.is_ok(), "{}: {}", experiment.name, variant.drive);
        }
    }
}

/// Goal: the example of the manual page is right, and all that it names can be run. Method: run it.
#[test]
fn the_example_of_the_manual_runs() {
    let page = include_str!("../../../../lab/docs/experiments.md");
    let (_, rest) = page.split_once("```toml\n").expect("the page has an example");
    let (text, _) = rest.split_once("```").expect("the example ends");
    let experiment = parse("lab/docs/experiments.md", text, &Overrides::default());
    let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((experiment.variants.len(), experiment.claims.len()), (4, 4));
    let simulate =
        |scenario: &Scenario| iofair_simulator::simulate(scenario).map_err(|e| e.to_string());
    let runner = Runner { jobs: 2, simulate: &simulate, finished: &|_| {} };
    let results = run(vec![experiment], &runner).expect("the example runs").remove(0);
    assert_eq!(results.hard_misses(), 0);
    assert!(results.value(&results.experiment.claims[0].places[0]) > 0.0);
}

/// Goal: the format's own words are all on its manual page. Method: every known key of a client, as
/// the parser lists them when one is wrong.
#[test]
fn the_manual_names_every_key() {
    let page = include_str!("../../../../lab/docs/experiments.md");
    for (from, to) in
        [("weight = 300", "x = 1"), ("repeats = 3", "x = 1"), ("hard = true", "x = 1")]
    {
        let known = refuse(from, to).allowed.expect("the parser lists what it knows");
        for key in known.split(", ") {
            assert!(page.contains(key), "lab/docs/experiments.md does not mention {key}");
        }
    }
}

/// Goal: the worst interval is only asked for where there are intervals, whole ones. Method: without, with and
/// with one that does not divide the time.
#[test]
fn the_worst_interval_needs_intervals() {
    let asked = EXAMPLE.replacen("of = \"target\"", "of = \"target least\"", 1);
    let error = |interval: &str| {
        let parsed = parse("e.toml", &format!("{interval}\n{asked}"), &Overrides::default());
        parsed.err().map(|error| error.message)
    };
    assert_eq!(error("interval = '100ms'"), None);
    assert!(error("").is_some_and(|message| message.contains("interval")));
    assert!(error("interval = '300ms'").is_some_and(|message| message.contains("multiple")));
}
