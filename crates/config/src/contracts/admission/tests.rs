//! Admission by what a drive reaches, as the contract file has it.

use iofair_core::contract::Latency;
use iofair_core::time::Nanos;

use super::*;

const PLEXTOR: Attainable = Attainable {
    reads: 535_000_000,
    writes: 386_000_000,
    alone: 23_550_000,
    small: None,
    latency: Latency::of_reads(Nanos::from_micros(1_500)),
};
const KNOWN: Known = Known { worst_case: Some(160_000_000), reaches: Some(PLEXTOR) };

/// Lines of `[drive]`, then groups.
fn read(drive: &str, groups: &[(&str, &str)]) -> Contracts {
    let mut text = format!("[drive]\nback = 'emulated:x'\n{drive}\n");
    for (name, keys) in groups {
        text += &format!("[[group]]\nname = '{name}'\n{keys}\n");
    }
    Contracts::parse_with(&iofair_baselines::TABLE, "c.toml", &text)
        .unwrap_or_else(|error| panic!("{error}"))
}
fn refused(contracts: &Contracts, before: Option<&Contracts>) -> ConfigError {
    match contracts.admit(&KNOWN, before) {
        Err(AdmissionError::Config(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Goal: under the stack that keeps minimums they are checked by what the drive reaches, weights stay as written, and a
/// refusal has the line and what would fit. Method: sets that the sum of minimums or weights would judge differently.
#[test]
fn minimums_by_what_the_drive_reaches() {
    let sixteen: Vec<String> = (0..16).map(|number| format!("g{number}")).collect();
    let equal = |min: &'static str| -> Vec<(&str, &str)> {
        sixteen.iter().map(|name| (name.as_str(), min)).collect()
    };
    let contracts = read("", &equal("min = '11MB/s'"));
    let admitted = contracts.admit(&KNOWN, None).expect("176 of 160 MB/s by the sum");
    assert!(admitted.iter().all(|(_, contract)| contract.weight == 100));
    let groups =
        [("a/x", "min = '100MB/s'\nalone = '400MB/s'\nweight = 7"), ("b", "weight = 1000")];
    let admitted = read("", &groups).admit(&KNOWN, None).expect("100 of 386");
    let weights: Vec<u32> = admitted.iter().map(|(_, contract)| contract.weight).collect();
    assert_eq!(weights, [100, 7, 1000], "as written, whatever their shares are");

    let error = refused(&read("", &[("a", "weight = 3\nmin = '24MB/s'")]), None);
    assert_eq!(error.line(), 7, "the min: {error}");
    let allowed = error.allowed.expect("what would fit");
    assert!(allowed.starts_with("at most 22.37 MB/s; more if the group says"), "{allowed}");
    let error = refused(&read("", &[("a", "min = '399MB/s'\nalone = '400MB/s'")]), None);
    assert_eq!(error.allowed.as_deref(), Some("at most 366.70 MB/s"));
    let error = refused(&read("", &[("a", "weight = 3\n\nlatency = '1ms'")]), None);
    assert_eq!((error.line(), error.allowed.as_deref()), (8, Some("at least 1.500ms")));
    let other = read("stack = 'prop-bfq'", &[("a", "min = '100MB/s'")]);
    other.admit(&KNOWN, None).expect("100 of 160 MB/s by the sum, as before");
}

/// Goal: whoever changes is asked to give way. Method: a small new group beside a large old one, and the other way round.
#[test]
fn newcomers_give_way() {
    let old = ("old", "min = '21MB/s'");
    let before = read("", &[old]);
    let both = read("", &[old, ("new", "min = '40MB/s'\nalone = '400MB/s'")]);
    let error = refused(&both, Some(&before));
    assert!(error.message.starts_with("group \"new\": 40.00 MB/s"), "{error}");
    assert!(error.to_string().contains("allowed: at most 22.49 MB/s, or all"), "{error}");
    let error = refused(&both, None);
    assert!(error.message.starts_with("group \"old\": 21.00 MB/s"), "it takes most: {error}");
    let all = read("", &[("old", "min = '12MB/s'"), ("new", "min = '200MB/s'\nalone = '400MB/s'")]);
    let error = refused(&all, Some(&read("", &[("old", "min = '12MB/s'")])));
    assert!(error.message.starts_with("group \"new\": 200.00 MB/s"), "{error}");
    assert!(error.to_string().contains("allowed: at most 170.01 MB/s, or"), "{error}");
    let error = refused(&all, Some(&read("", &[("new", "min = '200MB/s'\nalone = '400MB/s'")])));
    assert!(error.message.starts_with("group \"old\": 12.00 MB/s"), "{error}");
}

/// Goal: what is written goes before what is known: what the drive reaches, then its worst case; if nothing is, nothing
/// is refused, and that is said. Method: one minimum and all of them.
#[test]
fn what_is_written_comes_first() {
    let groups = [("a", "min = '200MB/s'\nlatency = '5ms'")];
    let by_model = read("", &groups);
    assert_eq!(by_model.basis(&KNOWN), Basis::Reaches(PLEXTOR));
    assert_eq!(by_model.asks_reaches(), Some("x"));
    assert_eq!(by_model.basis(&Known::default()), Basis::Nothing);
    by_model.admit(&Known::default(), None).expect("nobody knows");
    let notes = by_model.warnings(&Known::default());
    assert!(matches!(&notes[..], [note] if note.contains("reaches = { read")), "{notes:?}");
    assert!(by_model.warnings(&KNOWN).is_empty());
    let fast = read("reaches = { random = '250MB/s' }", &groups);
    let reads = Attainable { alone: 250_000_000, ..PLEXTOR };
    assert_eq!(fast.basis(&KNOWN), Basis::Reaches(reads));
    fast.admit(&KNOWN, None).expect("200 of 250");
    let worst = read("worst_case = '150MB/s'", &groups);
    assert_eq!((worst.basis(&KNOWN), worst.asks_reaches()), (Basis::WorstCase(150_000_000), None));
    let Err(AdmissionError::Sum(refusal)) = worst.admit(&KNOWN, None) else {
        panic!("200 of 150 MB/s")
    };
    assert!(refusal.to_string().contains("50.00 MB/s too much"), "{refusal}");
    for quiet in [read("", &[("a", "")]), read("stack = 'lat+prop-bfq'", &groups)] {
        assert_eq!(quiet.asks_reaches(), None);
        assert!(quiet.warnings(&Known::default()).is_empty());
    }
}

/// Goal: minimums above a rate of the file are refused or told, whatever the stack goes by and in whichever unit they are. Method:
/// both rates in the file, each below the minimums, under stacks that go by either; minimums in I/Os a second against the worst case.
#[test]
fn minimums_above_a_rate_of_the_file_are_told() {
    let groups = [("a", "min = '6MB/s'"), ("b/c", "min = '6MB/s'")];
    let reaches = "reaches = { read = '500MB/s', write = '400MB/s', random = '23MB/s' }\n";
    let told = |drive: &str, groups: &[(&str, &str)]| {
        let contracts = read(drive, groups);
        contracts.admit(&Known::default(), None).expect("not refused");
        contracts.warnings(&Known::default())
    };
    let one = |drive: String, what: &str| {
        let notes = told(&drive, &groups);
        assert!(matches!(&notes[..], [note] if note.contains(what)), "{what}: {notes:?}");
    };
    one(
        format!("{reaches}worst_case = '10MB/s'"),
        "12.00 MB/s but the drive keeps only 10.00 MB/s",
    );
    let slow = reaches.replace("23MB/s", "5MB/s");
    one(format!("{slow}worst_case = '50MB/s'\nstack = 'prop-bfq'"), "group \"a\": 6.00 MB/s");
    one(
        "worst_case = '50MB/s'\nstack = 'promise'\n[[group]]\nname = 'x'\nlatency = '2ms'".into(),
        "latencies",
    );
    let fits = format!("{reaches}worst_case = '20MB/s'");
    assert!(told(&fits, &groups).is_empty() && told(&fits, &[("a", "")]).is_empty());
    let ios = [("a", "min_iops = 1000"), ("b", "min_iops = 1500")];
    let both = read("worst_case = '10MB/s'", &ios);
    let Err(AdmissionError::Sum(refusal)) = both.admit(&Known::default(), None) else {
        panic!("2,500 reads of 4 KiB are 10.24 MB")
    };
    assert!(refusal.to_string().contains("240.00 kB/s too much"), "{refusal}");
    read("worst_case = '10.24MB/s'", &ios).admit(&Known::default(), None).expect("exactly");
}

/// Goal: a latency of which nothing is known about the drive is told. Method: each kind alone and all, on a drive of which the latency of
/// reads is known, and on one of which none is.
#[test]
fn latencies_that_are_not_checked_are_told() {
    let told = |latency: &str, known: &str| {
        let rates = "read = '500MB/s', write = '400MB/s', random = '23MB/s'";
        let drive = format!("reaches = {{ {rates}{known} }}");
        let contracts = read(&drive, &[("a", &format!("latency = {latency}"))]);
        contracts.admit(&Known::default(), None).expect("not refused");
        contracts.warnings(&Known::default()).concat()
    };
    let all = "{ read = '9ms', write = '9ms', sync = '9ms' }";
    for (latency, known, keys) in [
        ("'9ms'", "", "(read)"),
        ("{ sync = '9ms' }", ", latency = '1ms'", "(sync)"),
        (all, ", latency = '1ms'", "(write, sync)"),
        (all, ", latency = { sync = '1ms' }", "(read, write)"),
    ] {
        let notes = told(latency, known);
        assert!(notes.starts_with(&format!("latencies {keys} are not checked")), "{notes}");
    }
    assert_eq!(told("'9ms'", ", latency = '1ms'"), "");
}

/// Goal: volumes that nobody may open are told. Method: `clients` in one of two groups; volumes that are disks of machines.
#[test]
fn volumes_that_are_closed_to_all_are_told() {
    let volume = |name: &str, group: &str, keys: &str| {
        format!("[[volume]]\nname = '{name}'\ngroup = '{group}'\nsize = '1MiB'\n{keys}\n")
    };
    let told = |clients: &str, disk: &str| {
        let volumes = [volume("v", "a", ""), volume("w", "b", disk)].concat();
        let groups = [("a", clients), ("b", volumes.as_str())];
        read("", &groups).warnings(&Known::default())
    };
    assert!(told("", "").is_empty() && told("clients = ['*']", "vhost = 's'").is_empty());
    let notes = told("clients = ['uid:0']", "");
    assert!(
        matches!(&notes[..], [note] if note.starts_with("no client may open the volumes of b:")),
        "{notes:?}"
    );
}

/// Goal: minimums that fill the worst case exactly are admitted at every level, under stacks of both kinds, and refused with
/// numbers that add up. Method: ten groups of a tenth, beside others without a minimum, flat and nested, in two units.
#[test]
fn minimums_that_fill_the_worst_case_fit() {
    let known = Known::default();
    for stack in ["promise", "prop-bfq"] {
        let drive = format!("worst_case = '100MB/s'\nstack = '{stack}'");
        let names: Vec<String> = (0..10).map(|number| format!("g{number}")).collect();
        let mut groups: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), "min = '10MB/s'")).collect();
        groups.push(("rest", ""));
        read(&drive, &groups).admit(&known, None).expect("ten times ten");
        let mixed = [("a", "min = '50MiB/s'"), ("b", "min = '47571200B/s'"), ("rest", "")];
        read(&drive, &mixed).admit(&known, None).expect("100,000,000 bytes a second");
        for min in ["", "min = '60MB/s'"] {
            let nested = [
                ("t", min),
                ("t/a", "min = '20MB/s'"),
                ("t/b", ""),
                ("t/c/d", "min = '40MB/s'"),
                ("t/c/e", ""),
                ("u", "min = '40MB/s'"),
                ("rest", ""),
            ];
            read(&drive, &nested).admit(&known, None).expect("20 and 40 are the 60 of t");
        }
        let over = [("a", "min = '50MiB/s'"), ("b", "min = '47571201B/s'"), ("rest", "")];
        match read(&drive, &over).admit(&known, None) {
            Err(AdmissionError::Sum(refusal)) => assert_eq!(
                refusal.to_string(),
                "the minimums add up to 100.000001 MB/s but the drive keeps only 100.00 MB/s at its worst: 1 B/s too \
                 much (a 52.4288 MB/s, b 47.571201 MB/s)"
            ),
            other => panic!("{other:?}"),
        }
    }
}

/// Goal: minimums inside a group that exceed its own are refused with the same words whatever is known about the drive, and the
/// number is the group's, also where a part of the drive's time is claimed. Method: 20 and 40 of 50 MB/s on three drives; a claim
/// of a quarter of the time.
#[test]
fn minimums_inside_another_one_are_refused_on_any_drive() {
    let groups = [("c", "min = '50MB/s'"), ("c/a", "min = '20MB/s'"), ("c/b", "min = '40MB/s'")];
    let rates = "reaches = { read = '500MB/s', write = '500MB/s', random = '400MB/s' }";
    for drive in ["", "worst_case = '100MB/s'", rates, "worst_case = '100MB/s'\nstack = 'prop-bfq'"]
    {
        let known = Known::default();
        let Err(AdmissionError::Config(error)) = read(drive, &groups).admit(&known, None) else {
            panic!("{drive}: 60 of 50")
        };
        assert_eq!(
            error.message,
            "group \"c/b\": 40.00 MB/s cannot be kept inside \"c\", which has 50.00 MB/s for all in it"
        );
        assert_eq!(error.allowed.as_deref(), Some("at most 30.00 MB/s"));
    }
    let time = [("c", "min = '36MB/s'\nalone = '160MB/s'"), ("c/a", "min = '30MB/s'")];
    match read("worst_case = '100MB/s'", &time).admit(&Known::default(), None) {
        Err(AdmissionError::Sum(refusal)) => assert_eq!(
            refusal.to_string(),
            "the minimums add up to 30.00 MB/s but \"c\" has 25.00 MB/s for all in it: 5.00 MB/s too much (c/a 30.00 MB/s)"
        ),
        other => panic!("{other:?}"),
    }
}

/// Goal: groups of a less urgent class beside others are promised no share, at every level. Method: by hand.
#[test]
fn shares_by_class() {
    let groups = [
        ("a", "weight = 300"),
        ("b", ""),
        ("b/x", "class = 'realtime'"),
        ("b/y", "class = 'idle'"),
        ("c", "class = 'idle'"),
        ("c/z", ""),
    ];
    let admitted = read("", &groups).admit(&Known::default(), None).expect("no minimums");
    let shares = |admitted: &Admitted| -> Vec<f64> {
        let known = shares(admitted, &Floors::default());
        known.into_iter().map(|share| share.expect("no minimums")).collect()
    };
    assert_eq!(shares(&admitted), [0.75, 0.25, 0.25, 0.0, 0.0, 0.0]);
    let alone = read("", &[("c", "class = 'idle'"), ("d", "class = 'idle'")]);
    let admitted = alone.admit(&Known::default(), None).expect("no minimums");
    assert_eq!(shares(&admitted), [0.5, 0.5]);
    let stack = |name: &str| iofair_policies::TABLE.stack(name).expect("in the table");
    let under = |name: &str| shares_under(&stack(name), &admitted, &Floors::default());
    assert_eq!(under("max-none"), [None, None]);
    assert_eq!(under("promise"), [Some(0.5), Some(0.5)]);
}

/// Goal: a group is promised its minimum, or those inside it, and the most urgent class shares the rest; a share
/// that depends on an unknown rate is unknown, and not nothing. Method: by hand, in bytes, in I/Os, by time and by what the drive
/// reaches.
#[test]
fn minimums_are_shares() {
    let of = |drive: &str, groups: &[(&str, &str)], known: &Known| -> Vec<Option<f64>> {
        let contracts = read(drive, groups);
        let admitted = contracts.admit(known, None).expect("they fit");
        let shares = shares(&admitted, &contracts.floors(known)).into_iter();
        shares.map(|share| share.map(|share| (share * 1e6).round() / 1e6)).collect()
    };
    let (none, idle) = (Known::default(), "class = 'idle'");
    let groups = [
        ("a", "weight = 300"),
        ("b", ""),
        ("c", "class = 'idle'\nmin = '20MB/s'"),
        ("d", idle),
        ("d/x", "min = '10MB/s'"),
        ("d/y", "class = 'idle'\nmin_iops = 1000"),
        ("e", idle),
    ];
    let shares = [0.494_28, 0.164_76, 0.2, 0.140_96, 0.1, 0.040_96, 0.0].map(Some);
    assert_eq!(of("worst_case = '100MB/s'", &groups, &none), shares);
    let unknown = [("a", ""), ("c", "class = 'idle'\nmin = '20MB/s'")];
    assert_eq!(of("", &unknown, &none), [Some(1.0), None]);
    let reaches = "reaches = { read = '400MB/s', write = '500MB/s', random = '40MB/s' }";
    assert_eq!(of(reaches, &unknown, &none), [Some(0.95), Some(0.05)]);
    let by_time = [("a", ""), ("c", "class = 'idle'\nmin = '9MB/s'\nalone = '40MB/s'")];
    assert_eq!(of("", &by_time, &none), [Some(0.75), Some(0.25)]);
    // In one class, a group has the larger of its minimum and its share by weight; the others share what is left.
    let light = [
        ("a", "weight = 1\nmin = '50MB/s'"),
        ("b", "weight = 300"),
        ("c", "weight = 100\nmin = '5MB/s'"),
        ("c/x", "weight = 1\nmin = '5MB/s'"),
        ("c/y", "weight = 99"),
        ("d", "class = 'idle'\nmin = '10MB/s'"),
    ];
    let shares = [0.5, 0.3, 0.1, 0.05, 0.05, 0.1].map(Some);
    assert_eq!(of("worst_case = '100MB/s'", &light, &none), shares);
    let full = [("a", "min = '99MB/s'\nweight = 1"), ("b", "min = '1MB/s'"), ("c", "")];
    let shares = [Some(0.99), Some(0.01), Some(0.0)];
    assert_eq!(of("worst_case = '100MB/s'", &full, &none), shares);
}
