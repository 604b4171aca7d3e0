//! What changes give up, by worked examples.

use iofair_core::attainable::Attainable;
use iofair_core::contract::Latency;

use super::*;

const MB: u64 = 1_000_000;
/// A drive on which the arithmetic is easy.
const DRIVE: Attainable = Attainable {
    reads: 500 * MB,
    writes: 400 * MB,
    alone: 25 * MB,
    small: None,
    latency: Latency::NONE,
};

fn read(drive: &str, groups: &str) -> Contracts {
    let text = format!("[drive]\nback = 'memory:1GiB'\n{drive}\n{groups}");
    Contracts::parse("c.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}
fn group(name: &str, keys: &str) -> String {
    format!("[[group]]\nname = '{name}'\n{keys}\n")
}
fn known(reaches: bool) -> Known {
    Known { worst_case: None, reaches: reaches.then_some(DRIVE) }
}
fn texts(before: &Contracts, after: &Contracts, known: &Known) -> Vec<String> {
    let [old, new] = [before, after].map(|file| file.admit(known, None).expect("it fits"));
    let state = |contracts, groups| State { contracts, groups };
    let found = given_up(state(before, &old), state(after, &new), known);
    found.into_iter().map(|effect| effect.text).collect()
}

/// Goal: who gets less is named with both shares, and who gets more is not. Method: a third group of weight 200 beside two
/// of 100; back again.
#[test]
fn shares_that_fall_are_named() {
    let two = group("a", "") + &group("b", "");
    let (few, many) =
        (read("", &two), read("", &(two + &group("c/d", "") + &group("c", "weight = 200"))));
    let told = texts(&few, &many, &known(false));
    let text = |name| {
        format!(
            "group \"{name}\" gets 25.0 % of the drive instead of 50.0 % while all groups are busy"
        )
    };
    assert_eq!(told, [text("a"), text("b")]);
    assert!(texts(&many, &few, &known(false)).is_empty());
    let crowd: String = (0..20).map(|number| group(&format!("g{number}"), "")).collect();
    let more = read("", &(crowd.clone() + &group("new", "weight = 1000")));
    let told = texts(&read("", &crowd), &more, &known(false));
    assert_eq!((told.len(), told[16].as_str()), (17, "shares are smaller: 4 more groups"));
}

/// Goal: whoever is shut out by `clients` is named, also in groups that the change does not touch. Method: the first `clients` of a
/// file, others in their place, and back.
#[test]
fn clients_that_are_shut_out_are_named() {
    let volume =
        |group: &str| format!("[[volume]]\nname = '{group}'\ngroup = '{group}'\nsize = '1MiB'\n");
    let file = |keys: &str| {
        let groups = group("a", keys) + &group("b", "") + &volume("a") + &volume("b");
        read("", &groups)
    };
    let (open, first, other) =
        (file(""), file("clients = ['uid:1', 'uid:2']"), file("clients = ['uid:2', 'uid:3']"));
    let told = |before, after| texts(before, after, &known(false));
    let [a, b] = ["a", "b"].map(|name| format!("group \"{name}\" has its volumes open to "));
    assert_eq!(
        told(&open, &first),
        [
            format!("{a}\"uid:1\", \"uid:2\" instead of every client"),
            format!("{b}no client instead of every client")
        ]
    );
    assert_eq!(
        told(&first, &other),
        [format!("{a}\"uid:2\", \"uid:3\" instead of \"uid:1\", \"uid:2\"")]
    );
    assert!(told(&other, &open).is_empty());
}

/// Goal: every key that the new stack does not enforce is named. Method: a group with each key that `promise` enforces, and a stack
/// that enforces none.
#[test]
fn keys_that_the_new_stack_does_not_enforce_are_named() {
    let keys = "min = '20MB/s'\nmin_iops = 100\nlatency = '2ms'\nmax = '90MB/s'\nclass = 'idle'\nweight = 5";
    let full = read("", &group("a", keys));
    let give_up = true;
    let edit = super::super::edit::Edit::Stack { name: "none-none".into(), policy: None, give_up };
    let told = texts(&full, &full.edited(&edit).expect("allowed"), &known(true));
    for text in [
        "does not enforce `class` of group \"a\"",
        "guaranteed 20.00 MB/s",
        "guaranteed 100 I/Os",
        "within 2ms",
        "limited to 90.00 MB/s",
        "does not share the drive by weight",
    ] {
        assert!(told.iter().any(|told| told.contains(text)), "{text}: {told:?}");
    }
}

/// Goal: promises that go or shrink are named, with and without a stack that keeps them; others are not. Method: every
/// promise less, then none of them, then more.
#[test]
fn lost_promises_are_named() {
    let keys = "min = '20MB/s'\nmin_iops = 100\nlatency = '2ms'\nmax = '90MB/s'";
    let full = read("", &group("a", keys));
    let less =
        read("", &group("a", "min = '10MB/s'\nmin_iops = 50\nlatency = '4ms'\nmax = '50MB/s'"));
    let want = [
        "group \"a\" is guaranteed 10.00 MB/s instead of 20.00 MB/s",
        "group \"a\" is guaranteed 50 I/Os a second instead of 100 I/Os a second",
        "group \"a\" has reads completed within 4ms instead of 2ms",
    ];
    assert_eq!(texts(&full, &less, &known(false)), want);
    assert!(texts(&less, &full, &known(false)).is_empty());
    let want = [
        "group \"a\" is no longer guaranteed 20.00 MB/s",
        "group \"a\" is no longer guaranteed 100 I/Os a second",
        "group \"a\" no longer has reads completed within 2ms",
        "group \"a\" is no longer limited to 90.00 MB/s of reads",
        "group \"a\" is no longer limited to 90.00 MB/s of writes",
        "the stack \"none-mq-deadline\" does not share the drive by weight: a group gets what others leave",
    ];
    let none = read("stack = 'none-mq-deadline'", &group("a", ""));
    assert_eq!(texts(&full, &none, &known(false)), want);
}

/// Goal: each ceiling that goes is named, also while others of the group stay. Method: all ceilings, then the one that holds
/// most of them less.
#[test]
fn each_lost_ceiling_is_named() {
    let all = "max = { read = '90MB/s', write = '80MB/s', total = '99MB/s', read_iops = 5, write_iops = 6, total_iops = 7 }";
    let (full, one) =
        (read("", &group("a", all)), read("", &group("a", "max = { write = '80MB/s' }")));
    let want = [
        "90.00 MB/s of reads",
        "99.00 MB/s in all",
        "5 reads a second",
        "6 writes a second",
        "7 requests a second",
    ];
    let want = want.map(|limit| format!("group \"a\" is no longer limited to {limit}"));
    assert_eq!(texts(&full, &one, &known(false)), want);
    assert!(texts(&one, &full, &known(false)).is_empty());
}

/// Goal: it is said what minimums leave to be shared, before and after. Method: 20 MB/s of a reader of 25 MB/s alone, on a
/// drive whose slower direction is 400 MB/s: a fifth of the time is left; 5 MB/s leave four fifths; and a drive of which only
/// the worst case is known.
#[test]
fn what_minimums_leave() {
    let with =
        |drive, min| read(drive, &(group("a", &format!("min = '{min}MB/s'")) + &group("b", "")));
    let left = |percent, left, before| {
        format!(
            "with minimums in full use (up to {percent} % of the drive's time), at least {left} MB/s of long requests are left \
             to share by weight{before}"
        )
    };
    let told = texts(&with("", 5), &with("", 20), &known(true));
    assert_eq!(told, [left(80, "80.00", ", before 320.00 MB/s")]);
    assert!(
        texts(&with("", 20), &with("", 5), &known(true)).iter().all(|text| !text.contains("left"))
    );
    let none = read("", &(group("a", "") + &group("b", "")));
    assert_eq!(
        texts(&none, &with("", 20), &known(true)),
        [left(80, "80.00", ", before 400.00 MB/s")]
    );
    assert!(texts(&with("", 20), &none, &known(true)).iter().all(|text| !text.contains("left")));
    assert!(texts(&none, &with("", 20), &known(false)).is_empty(), "nobody knows");
    let worst = |min| with("worst_case = '100MB/s'", min);
    let told = texts(&worst(5), &worst(20), &known(false));
    let want = "with minimums in full use, 80.00 MB/s of 100.00 MB/s at the drive's worst are left to share by weight, before \
                95.00 MB/s";
    assert_eq!(told, [want]);
    let contracts = with("", 20);
    let groups = contracts.admit(&known(true), None).expect("it fits");
    let told = notes(State { contracts: &contracts, groups: &groups }, &known(true));
    assert_eq!(told, [left(80, "80.00", "")]);
}

/// Goal: a weight that gives a slow group far more than its minimum takes is pointed out, and no other. Method: a reader of 25
/// MB/s alone with 5 MB/s, with half of the weights and with a fifth.
#[test]
fn weights_beyond_the_minimum() {
    let notes = |weight| {
        let slow = format!("min = '5MB/s'\nalone = '25MB/s'\nweight = {weight}");
        let contracts = read("", &(group("slow", &slow) + &group("fast", "weight = 100")));
        let groups = contracts.admit(&known(true), None).expect("it fits");
        notes(State { contracts: &contracts, groups: &groups }, &known(true))
    };
    let [_, heavy] = &notes(100)[..] else { panic!("{:?}", notes(100)) };
    // Three tenths of the time at 400 rather than at 25 MB/s.
    let want = "group \"slow\": its weight gives it up to 50.0 % of the drive's time, and its minimum takes 20.0 %; a smaller \
                weight keeps the minimum and leaves others up to 112.50 MB/s more";
    assert_eq!(heavy, want);
    assert_eq!(notes(25).len(), 1, "{:?}", notes(25));
}
