//! Names of all stacks that a table of policies gives.

use iofair_core::policy::{Role, Table};

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
