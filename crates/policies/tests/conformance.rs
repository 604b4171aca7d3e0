//! The law of the engine ([`iofair_testkit::conformance`]) for the policies of servers, alone and together.

use iofair_policies::TABLE;
use iofair_policies::parts::token_bucket::LATE_MAX;
use iofair_testkit::conformance::Suite;

const SUITE: Suite = Suite { table: &TABLE, late: LATE_MAX, is_elsewhere: |_| false };

/// Goal: every scheduler keeps the law. Method: random lists of operations, five moods, checkers.
#[test]
fn long_run_schedulers_keep_the_law() {
    SUITE.verify_schedulers();
}

/// Goal: the throttle above every scheduler keeps the law. Method: as above.
#[test]
fn long_run_throttled_stacks_keep_the_law() {
    SUITE.verify_throttled();
}

/// Goal: the law holds while stacks replace each other under load: nothing is lost, completed twice or sent before a write
/// that a flush covers. Method: every stack of the table with every other one, as above, a change at every tenth step.
#[test]
fn long_run_stacks_replace_each_other() {
    SUITE.verify_replacements();
}
