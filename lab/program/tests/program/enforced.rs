//! What policies of the literature enforce of a contract.

use iofair_baselines::TABLE;
use iofair_config::contracts::Contracts;

/// Goal: policies of the literature enforce what they are for, and what an error names is taken. Method: a contract with each
/// key under stacks that enforce it, and under no control.
#[test]
fn policies_of_the_literature_enforce_their_keys() {
    let read = |stack: &str, key: &str| {
        let text = format!(
            "[drive]\nback = 'memory:1GiB'\nstack = '{stack}'\n[[group]]\nname = 'a'\n{key}\n"
        );
        Contracts::parse_with(&TABLE, "c.toml", &text)
    };
    for (key, stacks) in [
        ("min = '9MB/s'", "low-none rangebw-none ioband-none unified-none prop-cfq-group"),
        (
            "weight = 100",
            "cost-none max+cost-kyber ioband-none unified-none prop-cfq-group prop-fair-deadline",
        ),
        ("max = '9MB/s'", "iothrottle-none rangebw-none"),
        ("low = '9MB/s'", "low-none max+low-kyber"),
        ("latency = '2ms'", "lat-none lat+wbt-mq-deadline"),
        ("class = 'idle'", "prop-fair-cfq prop-bfq-4.18 prop-bfq-5.3"),
    ] {
        for stack in stacks.split(' ') {
            read(stack, key).unwrap_or_else(|error| panic!("{error}"));
        }
        let error = read("none-none", key).expect_err("no control");
        let allowed = error.allowed.expect("says what is");
        let stacks = allowed.split(" (").next().expect("a piece").split('"').skip(1).step_by(2);
        stacks.for_each(|named| drop(read(named, key).expect("as the error says")));
    }
    for (stack, key) in [
        ("low-none", "max = '9MB/s'"),
        ("prop-cfq-group", "class = 'idle'"),
        ("rangebw-none", "weight = 100"),
    ] {
        read(stack, key).expect_err(stack);
    }
    let ceilings = "max = '9MB/s'\n[drive.policy.low]\nceilings = true";
    read("low-none", ceilings).expect("it holds ceilings, too");
    // But no others than those of reads and of writes.
    for stack in ["low-none", "iothrottle-none", "rangebw-none"] {
        let of_low = if stack == "low-none" { "[drive.policy.low]\nceilings = true" } else { "" };
        for (key, told) in [
            ("max = { total = '9MB/s' }", "`max.total`"),
            ("max = { write = '9MB/s', burst = '9MB' }", "`max.burst`"),
        ] {
            let error = read(stack, &format!("{key}\n{of_low}")).expect_err(stack);
            assert!(error.message.contains(told), "{error}");
            read(&format!("max+{stack}"), key).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
