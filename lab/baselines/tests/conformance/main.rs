//! The law of the engine ([`iofair_testkit::conformance`]) for the policies of the laboratory, alone and with those of servers, whose
//! own suite is in `crates/policies/tests/conformance.rs`. And the law's canaries: a policy that is broken on purpose must be
//! caught by its clause.

#[path = "../support/broken.rs"]
mod broken;
mod canaries;

use iofair_baselines::TABLE;
use iofair_policies::parts::token_bucket::LATE_MAX;
use iofair_testkit::conformance::{Suite, clauses, verify_counts};

const SUITE: Suite = Suite {
    table: &TABLE,
    late: LATE_MAX,
    is_elsewhere: |stack| iofair_policies::TABLE.stack(stack).is_ok(),
};

/// Goal: every scheduler keeps the law. Method: random lists of operations, five moods, checkers.
#[test]
fn long_run_schedulers_keep_the_law() {
    SUITE.verify_schedulers();
}

/// Goal: every throttle above every scheduler keeps the law. Method: as above.
#[test]
fn long_run_throttled_stacks_keep_the_law() {
    SUITE.verify_throttled();
}

/// Goal: cases that once broke the law keep it. Method: their seeds.
#[test]
fn known_cases_keep_the_law() {
    // Writes behind a flush may go when the flush begins to wait for another group: nothing woke the scheduler then.
    SUITE.verify_all(&["cost+prop-promise".to_string()], &(139..140));
}

/// Goal: the law holds while stacks replace each other under load: nothing is lost, completed twice or sent before a write
/// that a flush covers. Method: every stack of the table with every other one, as above, a change at every tenth step.
#[test]
fn long_run_stacks_replace_each_other() {
    SUITE.verify_replacements();
}

/// Goal: the checkers see. Method: policies broken on purpose; each must be caught by its own clause
/// with all others switched off, within a few seeds, and the whole policy underneath by none.
#[test]
fn every_canary_is_caught() {
    for (clause, row) in canaries::CANARIES {
        let mut stack = TABLE.stack("none-none").expect("in the table");
        stack.scheduler.row = row;
        assert!(SUITE.is_caught(&stack, clause, &[]), "\"{}\" got past \"{clause}\"", row.name);
    }
}

/// Goal: the same for throttles. Method: as above, above a scheduler that is whole, whose assertions what is passed on twice
/// may fail.
#[test]
fn every_canary_among_throttles_is_caught() {
    for (clause, row) in canaries::throttles() {
        let mut stack = TABLE.stack("none-none").expect("in the table");
        stack.throttles.push(stack.scheduler.clone());
        stack.throttles[0].row = row;
        let caught = SUITE.is_caught(&stack, clause, &["panic"]);
        assert!(caught, "\"{}\" got past \"{clause}\"", row.name);
    }
}

/// Goal: the engine's refusals are examined. Method: an owner whose wrong ids are right.
#[test]
fn a_mistake_that_is_accepted_is_caught() {
    SUITE.verify_mistakes();
}

/// Goal: no checker is without its canary. Method: the names; the engine's counters, which no policy can
/// spoil, are spoilt by hand.
#[test]
fn every_checker_has_a_canary() {
    for name in clauses() {
        let mut canaries = canaries::CANARIES.iter().copied().chain(canaries::throttles());
        assert!(canaries.any(|(clause, _)| clause == name), "{name}");
    }
    verify_counts();
}
