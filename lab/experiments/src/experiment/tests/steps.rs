//! Changes during a run, and the claims about steps.

use iofair_core::contract::Limits;
use iofair_simulator::scenario::What;

use super::*;

const VARIANTS: &str = "[[variant]]\nname = \"rand\"\n";

/// The example with this in its variant "rand".
fn with(change: &str) -> Result<Experiment, ConfigError> {
    let text = EXAMPLE.replace(VARIANTS, &format!("{VARIANTS}{change}"));
    assert_ne!(text, EXAMPLE);
    parse("e.toml", &text, &Overrides::default())
}

/// Goal: changes are those of the variant, in order of time, and keep what they do not name. Method: the example with two
/// changes, of which the later one stands first; a history before them.
#[test]
fn changes_expand() {
    let change = "[[variant.change]]\nat = \"2s\"\nclient.reader.weight = 200\nspeed = \"50%\"\n\
        [[variant.change]]\nat = \"1500ms\"\nclient.reader.max = \"20MB/s\"\n";
    let experiment = with(change).expect("good keys");
    let changes = &experiment.variants[0].changes;
    let at: Vec<u64> = changes.iter().map(|change| change.at.as_millis()).collect();
    assert_eq!(at, [1500, 1500, 1500, 1500, 2000, 2000, 2000, 2000, 2000]);
    assert_eq!(changes[4].what, What::Speed(50));
    let What::Contract { group, contract } = &changes[8].what else { panic!("{changes:?}") };
    assert_eq!((group.as_str(), contract.weight), ("reader.3", 200));
    assert_eq!(contract.max, Limits::both(20_000_000), "the change before");
    assert!(experiment.variants[2].changes.is_empty(), "another variant");
    let mut after = experiment.clone();
    after.variants[0].history = Nanos::from_secs(1);
    assert_eq!(after.scenario(0, 0, 0).changes[0].at, Nanos::from_millis(2500));
}

/// Goal: nonsense is refused where it stands. Method: one change a rule.
#[test]
fn wrong_changes_are_refused() {
    for (keys, says) in [
        ("speed = \"0%\"", "a speed"),
        ("speed = \"5\"", "a speed"),
        ("client.nobody.min = \"1MB/s\"", "nobody"),
        ("client.target.job = \"read\"", "unknown key"),
        ("client.target.weight = 0", "weight 0"),
        ("client.target.class = \"idle\"", "allowed: min, min_iops, weight, max, low, latency"),
        ("", "nothing changes"),
    ] {
        let error = with(&format!("[[variant.change]]\nat = \"2s\"\n{keys}\n")).expect_err(keys);
        assert!(error.to_string().contains(says), "{keys}: {error}");
    }
}

/// Goal: the claims about steps read the rates of intervals, of the latest repeat. Method: a target of 10.24 MB/s (10 in the
/// source's unit) that gets nothing for a while, longer with each seed; good claims, claims that do not hold, wrong ones.
#[test]
fn steps_are_judged() {
    let start = EXAMPLE.find("[[expect]]").expect("in the example");
    let judge = |interval: &str, keys: &str| {
        let text = format!(
            "basis = 'own'\n{interval}\n{}[[expect]]\nvariant = 'rand, N=1'\nstack = 'again'\n{keys}",
            &EXAMPLE[..start]
        );
        let experiment = parse("e.toml", &text, &Overrides::default())?;
        let steps = |scenario: &Scenario| {
            let mut outcome = simulate(scenario)?;
            let interval = |index: u64| Interval {
                bytes: if (5..5 + scenario.seed).contains(&index) { 0 } else { 1_024_000 },
                ..Interval::default()
            };
            outcome.clients[0].series = (0..20).map(interval).collect();
            outcome.drive.series = (0..20).map(|index| 100 + 30 * u64::from(index < 8)).collect();
            Ok(outcome)
        };
        let runner = Runner { jobs: 1, simulate: &steps, finished: &|_| {} };
        let results = run(vec![experiment], &runner).expect("the simulator never fails").remove(0);
        Ok::<_, ConfigError>(results.verdicts()[0])
    };
    let every = "interval = '100ms'";
    let rises = |rest: &str| format!("kind = 'rises_at'\nof = 'target'\nlow = '0s'\n{rest}");
    // A stretch of ten has 9 or more from the one on that begins when two of the three empty intervals are over.
    let cases = [
        (rises("value = '9MB/s'\nhigh = '700ms'"), (0.7, Verdict::Holds)),
        (rises("value = '10MB/s'\nhigh = '700ms'"), (0.8, Verdict::DoesNotHold)),
        (rises("value = '11MB/s'\nhigh = '2s'"), (f64::INFINITY, Verdict::DoesNotHold)),
        (
            "kind = 'settles_at'\nof = 'total'\nvalue = 0.1\nlow = '0s'\nhigh = '1s'".to_owned(),
            (0.8, Verdict::Holds),
        ),
    ];
    for (keys, verdict) in cases {
        assert_eq!(judge(every, &keys).expect("good keys"), verdict, "{keys}");
    }
    for (interval, keys) in [
        ("", rises("value = '9MB/s'\nhigh = '1s'")),
        ("interval = '300ms'", rises("value = '9MB/s'\nhigh = '1s'")),
        (every, rises("value = 9\nhigh = '1s'")),
        (every, rises("high = '1s'")),
        (every, rises("value = '9MB/s'\nhigh = '1s'").replace("'target'", "'target p99'")),
        (every, "kind = 'settles_at'\nof = 'total'\nvalue = '1MB/s'\nhigh = '1s'".to_owned()),
    ] {
        assert!(judge(interval, &keys).is_err(), "{interval} {keys}");
    }
}
