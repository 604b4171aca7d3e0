//! Names of all stacks that a table of policies gives.

<<<<<<<< HEAD:lab/baselines/tests/support/stacks.rs
use iofair_baselines::TABLE;
use iofair_core::policy::Role;
========
use iofair_core::policy::{Role, Table};
>>>>>>>> w-draw:crates/testkit/src/stacks.rs

/// Each scheduler alone, and sharing between groups if it can.
pub fn schedulers(table: &Table) -> Vec<String> {
    let mut names = Vec::new();
    for row in table.policies {
        if let Role::Scheduler { groups, .. } = row.role {
            names.push(format!("none-{}", row.name));
            if groups {
                names.push(format!("prop-{}", row.name));
            }
        }
    }
    names
}

/// Short names of the throttles.
pub fn throttles(table: &Table) -> Vec<&'static str> {
    let rows = table.policies.iter().filter(|row| row.role == Role::Throttle);
    rows.map(|row| row.short).collect()
}
