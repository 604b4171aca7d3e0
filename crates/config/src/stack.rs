//! Errors of stacks and their policies, in the words of all other errors.

use iofair_core::controller::StackError;
use iofair_core::params::ParameterError;

use crate::ConfigError;

/// Says at this place what the error of a stack says, with what is allowed and the nearest name.
#[must_use]
pub fn stack_error(mut at: ConfigError, error: &StackError) -> ConfigError {
    match error {
        StackError::Shape { given, known } => {
            at.message = format!("there is no stack \"{given}\"");
            let named: Vec<_> = known.iter().map(|name| format!("\"{name}\"")).collect();
            let shape =
                "POLICY-SCHEDULER, as in \"max+prop-bfq\" or \"none-none\" (iofair list stacks)";
            at.allowed(format!("{shape}; {}", named.join(", "))).near(given, known.iter().copied())
        }
        StackError::Throttle { given, known } => {
            at.message = format!("there is no policy \"{given}\"");
            let known: Vec<_> = ["none", "prop"].iter().chain(known).copied().collect();
            at.allowed(words(&known)).near(given, known)
        }
        StackError::Scheduler { given, known } => {
            at.message = format!("there is no scheduler \"{given}\"");
            at.allowed(words(known)).near(given, known.iter().copied())
        }
        StackError::NoGroups(name) => {
            at.message = format!("scheduler {name} cannot share between groups");
            at.allowed("\"prop\" above a scheduler that shares between groups (bfq), or \"none\"")
        }
        StackError::Stage { given, known } => {
            at.message = format!("the stack has no \"{given}\"");
            at.allowed(words(known)).near(given, known.iter().copied())
        }
        StackError::Parameter { policy, error: ParameterError::Unknown { name, known } } => {
            at.message = format!("policy {policy} has no parameter `{name}`");
            let allowed = if known.is_empty() {
                "none: this policy has no parameters".to_string()
            } else {
                words(known)
            };
            at.allowed(allowed).near(name, known.iter().copied())
        }
        StackError::Parameter { policy, error: ParameterError::Value { name, given, allowed } } => {
            at.message = format!("\"{given}\" is not a value of {policy}.{name}");
            at.allowed(allowed)
        }
        _ => {
            at.message = error.to_string();
            at
        }
    }
}

/// Names without repetition (a policy's short name may equal its name).
pub(crate) fn words(names: &[&str]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name);
        }
    }
    seen.join(", ")
}
