//! Names of all stacks that the table of policies gives.

use iofair_baselines::TABLE;
use iofair_core::policy::Role;

/// Each scheduler alone, and sharing between groups if it can.
pub(crate) fn schedulers() -> Vec<String> {
    let mut names = Vec::new();
    for row in TABLE.policies {
        if let Role::Scheduler { groups, .. } = row.role {
            names.push(format!("none-{}", row.name));
            if groups {
                names.push(format!("prop-{}", row.name));
            }
        }
    }
    names
}

// Not every user of this file has throttles.
#[allow(dead_code)]
/// Short names of the throttles.
pub(crate) fn throttles() -> Vec<&'static str> {
    let rows = TABLE.policies.iter().filter(|row| row.role == Role::Throttle);
    rows.map(|row| row.short).collect()
}
