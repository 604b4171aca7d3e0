//! Rows of policies that are broken on purpose, which the tests of clauses must catch.

use iofair_core::policy::{Build, Judgement, Policy, Role, Row};

/// A row that builds this policy, as a scheduler.
pub(crate) const fn row(
    name: &'static str,
    build: fn(&Build<'_>) -> Box<dyn Policy + Send>,
) -> Row {
    Row {
        name,
        short: name,
        role: Role::SCHEDULER,
        enforces: |_, _| false,
        summary: "broken on purpose",
        file: "none",
        parameters: &[],
        overrides: &[],
        judgement: Judgement::NONE,
        build,
    }
}
