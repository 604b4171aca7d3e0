//! Policies for servers, for the engine of `iofair-core`. Schedulers: [`promise`], which keeps guaranteed minimums
//! and keeps the drive busy, and Linux's [`none`], [`mq_deadline`] and [`bfq`]. Throttle: [`throttle_max`].
//!
//! ```
//! let stack = iofair_policies::TABLE.stack("promise").expect("a stack of this table");
//! assert!(stack.keeps_minimums());
//! ```
//!
//! A policy is a file, whose `//!` comment is its manual page, a `mod` line, and a row in [`TABLE`].
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bfq;
pub mod mq_deadline;
pub mod none;
pub mod parts;
pub mod promise;
pub mod throttle_max;

use iofair_core::policy::{Named, Table};

/// The stack of a server whose contract file names none.
pub const DEFAULT_STACK: &str = "promise";

/// Minimums rest on shares, and shares on whole turns. BFQ of the survey's time (4.18, 4.20) has neither of two
/// later rules by which a queue that wakes up ends another's turn: one of higher weight (5.3), and one that is
/// back in time and raised no less (5.2). With them a reader in order that is admitted beside one at random of
/// more weight falls below its minimum (`lab/experiments/tests/promise/minimums.rs`).
const WHOLE_TURNS: &[(&str, &str, &str)] =
    &[("bfq", "preempt_lower", "false"), ("bfq", "preempt_equal", "false")];

/// The first two are from the survey of I/O-control solutions of 2019, the last is our own.
const STACKS: &[Named] = &[
    Named {
        name: "complete",
        stack: "max+prop-bfq",
        admits: true,
        settings: WHOLE_TURNS,
        summary: "ceilings, and BFQ with minimums translated into weights, subject to admission; \
            queues do not preempt each other by weight",
    },
    Named {
        name: "dedicated",
        stack: "none-none",
        admits: false,
        settings: &[],
        summary: "no control; for drives with so few clients that each gets what it needs",
    },
    Named {
        name: "promise",
        stack: "max+prop-promise",
        admits: false,
        settings: &[],
        summary: "ceilings, and our own scheduler: every feasible minimum kept, spare bandwidth \
            shared by weight, the drive kept busy",
    },
];

/// All of this crate.
pub static TABLE: Table = Table {
    policies: &[&none::ROW, &mq_deadline::ROW, &bfq::ROW, &throttle_max::ROW, &promise::ROW],
    stacks: STACKS,
};

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use iofair_core::controller::Stack;
    use iofair_core::policy::DriveFacts;
    use iofair_core::unit::Sectors;

    use super::*;

    /// With the earlier versions of BFQ.
    pub(crate) static ALL: Table = Table {
        policies: &[
            &none::ROW,
            &bfq::ROW,
            &bfq::versions::ROW_6_18,
            &bfq::versions::ROW_5_3,
            &bfq::versions::ROW_4_20,
            &bfq::versions::ROW_4_18,
            &throttle_max::ROW,
        ],
        stacks: &[],
    };

    /// Goal: the tags are those of the scheduler's row. Method: drives of little and much depth.
    #[test]
    fn tags_are_those_of_the_row() {
        let tags = |stack: &str, depth| {
            let (max_request, capacity) = (Sectors(8), Sectors(1 << 20));
            let facts = DriveFacts { rotational: false, depth, max_request, capacity };
            TABLE.stack(stack).expect("a stack").tags(&facts)
        };
        assert_eq!([32, 1023].map(|depth| tags("none-none", depth)), [32, 1023]);
        assert_eq!([32, 1023].map(|depth| tags("prop-bfq", depth)), [64, 256]);
        assert_eq!([32, 1023, 4096].map(|depth| tags("promise", depth)), [u32::MAX; 3]);
        let flushes = |stack| TABLE.stack(stack).expect("a stack").schedules_flushes();
        assert_eq!(["none-none", "prop-bfq", DEFAULT_STACK].map(flushes), [false, false, true]);
    }

    /// Goal: a named stack is the stack it stands for, under its own name, with its own parameters, which may be
    /// set anew. Method: all of them.
    #[test]
    fn named_stacks_are_what_they_stand_for() {
        for named in TABLE.stacks {
            let (own, plain) = (TABLE.stack(named.name), TABLE.stack(named.stack));
            let (own, plain) = (own.expect("named"), plain.expect("made of rows"));
            let rows = |stack: &Stack| {
                let throttles = stack.throttles.iter().map(|stage| stage.row.name);
                throttles.chain([stack.scheduler.row.name]).collect::<Vec<_>>()
            };
            assert_eq!((rows(&own), own.groups), (rows(&plain), plain.groups));
            assert_eq!((own.name(), own.admits), (named.name, named.admits));
            assert!(!plain.admits);
        }
        let mut complete = TABLE.stack("complete").expect("named");
        for rule in ["preempt_lower", "preempt_equal"] {
            assert!(!complete.scheduler.values.bool(rule), "whole turns: {rule}");
            complete.set("bfq", rule, "true").expect("a parameter");
            assert!(complete.scheduler.values.bool(rule), "as set");
        }
        let error = TABLE.stack("completed").expect_err("no such stack").to_string();
        assert!(error.contains("complete, dedicated"), "{error}");
    }
}
