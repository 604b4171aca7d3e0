//! Which keys of a group's contract a stack enforces.
//!
//! A key that the stack does not enforce would be a promise that is not kept, so the server refuses a contract file that
//! has one, whether it is read at the start, at a reload or after a change of the stack. Experiments compare what policies
//! make of the same contracts, so the lab does not ask.
//!
//! Some stages enforce a key only in part; `docs/contracts.md` says which.

use std::ops::Range;

use iofair_core::controller::Stack;
use iofair_core::key::Key;
use iofair_core::params::Values;
use iofair_core::policy::{Role, Row, Table};

use super::{Contracts, raw};
use crate::ConfigError;

/// Keys that an error names.
const NAMED_MAX: usize = 8;

/// The key of a group that a key is, or is a part of.
pub(super) fn whole(key: Key) -> Key {
    let table = key.word().split('.').next().unwrap_or_default();
    Key::ALL.into_iter().find(|whole| whole.word() == table).unwrap_or(key)
}

/// Whether a policy enforces a key with its own defaults.
fn enforces(row: &Row, key: Key) -> bool {
    (row.enforces)(key, &Values::new(row.parameters, row.overrides))
}

/// An error about an unknown key, without keys that no policy of this program enforces.
pub(super) fn without_unenforced(mut error: ConfigError, table: &Table) -> ConfigError {
    if error.message.starts_with("unknown key") {
        let is_enforced = |word: &str| {
            let key = Key::ALL.into_iter().find(|key| key.word() == word);
            key.is_none_or(|key| table.policies.iter().any(|row| enforces(row, key)))
        };
        let words = |words: String| -> String {
            words.split(", ").filter(|word| is_enforced(word)).collect::<Vec<_>>().join(", ")
        };
        error.allowed = error.allowed.map(words);
        error.nearest = error.nearest.filter(|word| is_enforced(word));
    }
    error.next = error.next.map(|next| Box::new(without_unenforced(*next, table)));
    error
}

/// Stacks of the same policies that enforce a key, and the policies that do.
fn allowed(key: Key, stack: &Stack) -> String {
    let table = stack.table();
    let stacks = candidates(key, stack).into_iter();
    let stacks = stacks.filter(|name| table.stack(name).is_ok_and(|near| near.enforces(key)));
    let stacks: Vec<String> = stacks.map(|name| format!("\"{name}\"")).collect();
    let policies = table.policies.iter().filter(|row| enforces(row, key));
    let policies = policies.map(|row| row.short).collect::<Vec<_>>().join(", ");
    let word = key.word();
    match (stacks.is_empty(), policies.is_empty()) {
        (_, true) => format!("no {word}: no policy of this program enforces it"),
        (true, false) => format!("a stack with one of {policies}; or no {word}"),
        (false, false) => {
            let stacks = stacks.join(" or ");
            format!("stack = {stacks} (policies that enforce it: {policies}); or no {word}")
        }
    }
}

/// Stacks that may enforce a key and are near to this one: with a throttle more, or with a scheduler that shares.
fn candidates(key: Key, stack: &Stack) -> Vec<String> {
    let rows = stack.table().policies;
    let find = |is_throttle| {
        rows.iter()
            .find(move |row| (row.role == Role::Throttle) == is_throttle && enforces(row, key))
    };
    // A stack with a name of its own has no dash, and nothing can be added to it.
    let (throttles, scheduler) = stack.name().split_once('-').unwrap_or(("none", "none"));
    let parts = || throttles.split('+').filter(|part| *part != "none");
    let named = |parts: Vec<&str>, scheduler| format!("{}-{scheduler}", parts.join("+"));
    let shares = match enforces(stack.scheduler.row, key) {
        true => Some(scheduler),
        false => find(false).map(|row| row.short),
    };
    let with_scheduler = shares
        .map(|name| named(parts().filter(|part| *part != "prop").chain(["prop"]).collect(), name));
    let with_throttle =
        || find(true).map(|row| named([row.short].into_iter().chain(parts()).collect(), scheduler));
    let near = with_scheduler.or_else(with_throttle);
    ["promise".to_string()].into_iter().chain(near).collect()
}

/// A key that is written and not enforced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unenforced {
    /// The group's path.
    pub(super) group: String,
    pub(super) key: Key,
    span: Range<usize>,
}

/// Every key that this stack does not enforce, in the order of the file's groups.
pub(super) fn unenforced(written: &[raw::Group], stack: &Stack) -> Vec<Unenforced> {
    let in_group = |group: &raw::Group| {
        let is_written =
            |key: Key| group.keys.written().any(|(field, _)| field.enforced_as == Some(key));
        let missed = Key::ALL.into_iter().filter(|key| !stack.enforces(*key)).filter(|key| {
            // Where the whole of `max` is not enforced, its parts need no mention.
            let whole = whole(*key);
            whole == *key || is_written(*key) && stack.enforces(whole)
        });
        let found = missed.filter_map(|key| Some((key, group.keys.span(whole(key).word())?)));
        let name = group.name.get_ref();
        found.map(|(key, span)| Unenforced { group: name.clone(), key, span }).collect::<Vec<_>>()
    };
    written.iter().flat_map(in_group).collect()
}

/// The error about keys that are not enforced: it stands at the first and names the others.
pub(super) fn error(contracts: &Contracts, unenforced: &[Unenforced]) -> Option<ConfigError> {
    let first = unenforced.first()?;
    let stack = &contracts.drive.stack;
    let error = contracts.source.error(first.span.clone(), message(stack, unenforced));
    Some(error.allowed(allowed(first.key, stack)))
}

/// The keys of these contracts that another stack does not enforce, in words, if there are any that are `meant`.
pub(super) fn given_up(
    contracts: &Contracts,
    stack: &Stack,
    meant: impl Fn(Key) -> bool,
) -> Option<String> {
    let file: raw::File = contracts.source.parse().ok()?;
    let mut unenforced = unenforced(&file.group, stack);
    unenforced.retain(|one| meant(one.key));
    (!unenforced.is_empty()).then(|| message(stack, &unenforced))
}

fn message(stack: &Stack, unenforced: &[Unenforced]) -> String {
    let shown = &unenforced[..unenforced.len().min(NAMED_MAX)];
    let of = |keys: &[Unenforced]| {
        let words: Vec<String> = keys.iter().map(|one| format!("`{}`", one.key.word())).collect();
        format!("{} of group \"{}\"", words.join(", "), keys[0].group)
    };
    let groups: Vec<String> = shown.chunk_by(|a, b| a.group == b.group).map(of).collect();
    let mut message =
        format!("the stack \"{}\" does not enforce {}", stack.name(), groups.join(", nor "));
    if unenforced.len() > NAMED_MAX {
        message += &format!(", and {} more", unenforced.len() - NAMED_MAX);
    }
    message
}

#[cfg(test)]
mod tests;
