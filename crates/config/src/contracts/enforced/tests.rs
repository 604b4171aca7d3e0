//! Keys that a stack enforces and keys that it does not.

use super::*;

const KEYS: [(Key, &str); 7] = [
    (Key::Min, "min = '10MB/s'"),
    (Key::MinIops, "min_iops = 100"),
    (Key::Weight, "weight = 100"),
    (Key::Max, "max = '5MB/s'"),
    (Key::Low, "low = '5MB/s'"),
    (Key::Latency, "latency = '2ms'"),
    (Key::Class, "class = 'best-effort'"),
];

fn read(stack: &str, keys: &str) -> Result<Contracts, ConfigError> {
    let text = format!("[drive]\nback = 'memory:1GiB'\n{stack}\n[[group]]\nname = 'a'\n{keys}\n");
    Contracts::parse("c.toml", &text)
}

/// Goal: an error names no key that no policy of the program enforces. Method: unknown keys, under the policies of servers and those of
/// the laboratory.
#[test]
fn keys_that_nobody_enforces_are_not_named() {
    let text = "[drive]\nback = 'memory:1GiB'\n[[group]]\nname = 'a'\nlo = '5MB/s'\n";
    let error = Contracts::parse("c.toml", text).expect_err("unknown");
    let (allowed, nearest) = (error.allowed.expect("keys"), error.nearest);
    assert!(allowed.contains("max, latency, ") && nearest.is_none(), "{allowed}, {nearest:?}");
    let error = Contracts::parse_with(&iofair_baselines::TABLE, "c.toml", text);
    assert_eq!(error.expect_err("unknown").nearest.as_deref(), Some("low"));
}

/// Goal: each stack takes the keys that it enforces and refuses the others, with line, key, stack and stacks that would do;
/// also keys that are written with the value that they have anyway. Method: stacks of every kind, each key alone; what an error
/// names is taken.
#[test]
fn only_what_is_enforced_may_be_written() {
    for (stack, enforced) in [
        ("promise", "min min_iops weight max latency class"),
        ("complete", "min weight max class"),
        ("dedicated", ""),
        ("none-none", ""),
        ("none-bfq", ""),
        ("none-promise", ""),
        ("max-none", "max"),
        ("prop-bfq", "min weight class"),
        ("max+prop-bfq", "min weight max class"),
        ("prop-promise", "min min_iops weight latency class"),
        ("max-mq-deadline", "max"),
    ] {
        for (key, text) in KEYS {
            let line = format!("stack = '{stack}'");
            let enforced = enforced.split(' ').any(|word| word == key.word());
            let Err(error) = read(&line, text) else {
                assert!(enforced, "{stack} takes {text}");
                continue;
            };
            assert!(!enforced, "{stack}: {error}");
            let told =
                format!("the stack \"{stack}\" does not enforce `{}` of group \"a\"", key.word());
            assert_eq!((error.message.as_str(), error.line()), (told.as_str(), 6));
            let allowed = error.allowed.expect("says what is");
            if key == Key::Low {
                assert_eq!(allowed, "no low: no policy of this program enforces it");
                continue;
            }
            let stacks = allowed.split(" (").next().expect("a piece").split('"').skip(1).step_by(2);
            for named in stacks {
                read(&format!("stack = '{named}'"), text)
                    .unwrap_or_else(|e| panic!("{named}: {e}"));
            }
        }
    }
}

/// Goal: an error names all that is lost. Method: groups under no control.
#[test]
fn an_error_names_all_that_is_lost() {
    let other = "[[group]]\nname = 'b'\nmax = '5MB/s'\n";
    let error = read("stack = 'none-none'", &format!("latency = '2ms'\n{other}")).expect_err("two");
    let told = "does not enforce `latency` of group \"a\", nor `max` of group \"b\"";
    assert!(error.message.ends_with(told), "{error}");
    let error = read("stack = 'none-none'", "max = '5MB/s'\nweight = 3").expect_err("two keys");
    assert!(error.message.ends_with("enforce `weight`, `max` of group \"a\""), "{error}");
    let many: String = (0..12).map(|n| format!("[[group]]\nname = 'g{n}'\nweight = 1\n")).collect();
    let error = read("stack = 'none-none'", &format!("weight = 3\n{many}")).expect_err("many");
    assert!(error.message.ends_with("`weight` of group \"g6\", and 5 more"), "{error}");
}

/// Goal: bursts and totals are parts of ceilings: refused with them, and named alone where only they are lost. Method:
/// stacks without ceilings and with them.
#[test]
fn bursts_and_totals_are_parts_of_ceilings() {
    for text in ["max = { total = '5MB/s' }", "max = { write_iops = 5, burst_requests = 9 }"] {
        read("stack = 'max-none'", text).expect("enforced");
        let error = read("stack = 'none-none'", text).expect_err("no ceilings");
        assert!(error.message.ends_with("does not enforce `max` of group \"a\""), "{error}");
    }
}
