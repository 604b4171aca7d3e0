//! The stacks of an experiment file, with the parameters of their policies.

use iofair_baselines::TABLE;
use iofair_config::{ConfigError, Source, stack_error};
use iofair_core::controller::{Stack, StackError};
use iofair_core::params::Values;
use iofair_core::policy::Row;
use iofair_simulator::machine::{Machine, ParameterFile};

use super::file::ExperimentFile;
use super::overrides::Overrides;

/// The stacks of a file, or those that are asked for, with their parameters: the machine's, the file's, the stack's own.
pub(super) fn stacks(
    source: &Source,
    file: &ExperimentFile,
    machine: Option<&Machine>,
    overrides: &Overrides,
) -> Result<Vec<(String, Stack)>, ConfigError> {
    let set_all = |stack: &mut Stack| {
        machine.map_or(Ok(()), |machine| set(&machine.file, stack, &machine.policy, false))?;
        set(source, stack, &file.policy, false)
    };
    for key in file.stack.keys() {
        let listed = file.stacks.iter().map(|stack| stack.get_ref().as_str());
        if !listed.clone().any(|name| name == key.get_ref()) {
            let message = format!("`{}` is not among the stacks of this file", key.get_ref());
            let error = source
                .error(key.span(), message)
                .allowed(listed.clone().collect::<Vec<_>>().join(", "));
            return Err(error.near(key.get_ref(), listed));
        }
    }
    let mut all = Vec::new();
    for name in &file.stacks {
        if all.iter().any(|(known, _)| known == name.get_ref()) {
            let message = format!("stack `{}` is listed twice", name.get_ref());
            return Err(source.error(name.span(), message));
        }
        let own = file.stack.iter().find(|(key, _)| key.get_ref() == name.get_ref());
        let base = own.and_then(|(_, own)| own.base.as_ref()).unwrap_or(name);
        let parsed = TABLE.stack(base.get_ref());
        let at = || source.error(base.span(), "");
        let mut stack = parsed.map_err(|error| stack_error(at(), &error))?;
        set_all(&mut stack)?;
        if let Some((_, own)) = own {
            set(source, &mut stack, &own.policy, true)?;
        }
        all.push((name.get_ref().clone(), stack));
    }
    if let Some(wanted) = &overrides.stacks {
        let mut chosen = Vec::new();
        for name in wanted {
            if let Some(known) = all.iter().find(|(n, _)| n == name) {
                chosen.push(known.clone());
                continue;
            }
            let at = || ConfigError::whole_file("--stack", "");
            let mut stack = TABLE.stack(name).map_err(|error| stack_error(at(), &error))?;
            set_all(&mut stack)?;
            chosen.push((name.clone(), stack));
        }
        all = chosen;
    }
    match all.is_empty() {
        true => Err(ConfigError::whole_file(source.path(), "`stacks` is empty")),
        false => Ok(all),
    }
}

/// Sets parameters; a stack that has no such policy is an error only if it is `strict`.
fn set(
    source: &Source,
    stack: &mut Stack,
    parameters: &ParameterFile,
    strict: bool,
) -> Result<(), ConfigError> {
    for (policy, values) in parameters {
        let is_named = |row: &Row| row.name == policy.get_ref() || row.short == policy.get_ref();
        let present =
            is_named(stack.scheduler.row) || stack.throttles.iter().any(|s| is_named(s.row));
        // Another stack may have the policy.
        let elsewhere = TABLE.find(policy.get_ref()).filter(|_| !present && !strict);
        let mut elsewhere =
            elsewhere.map(|row| (row.name, Values::new(row.parameters, row.overrides)));
        if !present && !strict && elsewhere.is_none() {
            let message = format!("no policy `{}`", policy.get_ref());
            let known = TABLE.policies.iter().map(|row| row.name);
            return Err(source.error(policy.span(), message).near(policy.get_ref(), known));
        }
        for (key, value) in values {
            let text = &value.get_ref().0;
            let set = match &mut elsewhere {
                Some((policy, values)) => {
                    let set = values.set(key.get_ref(), text);
                    set.map_err(|error| StackError::Parameter { policy, error })
                }
                None => stack.set(policy.get_ref(), key.get_ref(), text),
            };
            set.map_err(|error| stack_error(source.error(key.span(), ""), &error))?;
        }
    }
    Ok(())
}
