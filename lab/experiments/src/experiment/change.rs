//! What changes during a run, from the keys of a file.

use iofair_config::{ConfigError, Source, Spanned};
use iofair_core::key::tops;
use iofair_simulator::client_file::ClientFile;
use iofair_simulator::scenario::{Change, What};

use super::contract::client_contract;
use super::file::{ChangeFile, ExperimentFile, VariantFile};

/// Fastest that a drive may become, in percent: a guard against a slip of the pen.
const SPEED_MAX: u32 = 1_000;

/// Keys of a contract that stay as they are.
const FIXED: [&str; 2] = ["alone", "class"];

/// The changes of a variant, or those of the file where it has none, in order of time.
pub(super) fn changes(
    source: &Source,
    file: &ExperimentFile,
    variant: Option<&VariantFile>,
    clients: &[ClientFile],
) -> Result<Vec<Change>, ConfigError> {
    let written = variant.and_then(|variant| variant.change.as_ref()).unwrap_or(&file.change);
    // What a client's contract is grows from change to change.
    let mut clients = clients.to_vec();
    let mut order: Vec<&ChangeFile> = written.iter().collect();
    order.sort_by_key(|change| change.at.get_ref().0);
    let mut changes = Vec::new();
    for change in order {
        let at = change.at.get_ref().0;
        if let Some(speed) = &change.speed {
            changes.push(Change { at, what: What::Speed(percent(source, speed)?) });
        }
        for (name, keys) in &change.client {
            let named = |client: &&mut ClientFile| {
                client.name.as_ref().is_some_and(|known| known.get_ref() == name.get_ref())
            };
            let Some(client) = clients.iter_mut().find(named) else {
                return Err(source.error(name.span(), format!("no client `{}`", name.get_ref())));
            };
            if client.group.is_some() {
                let message = "the contract of a `group` that has a path does not change";
                return Err(source.error(name.span(), message));
            }
            if let Some(fixed) = keys.tops().find(|key| FIXED.contains(key)) {
                let message = format!("`{fixed}` does not change during a run");
                let known = tops().filter(|key| !FIXED.contains(key));
                let error = source.error(name.span(), message);
                return Err(error.allowed(known.collect::<Vec<_>>().join(", ")));
            }
            client.contract = keys.or(&client.contract);
            let contract = client_contract(source, client)?;
            let count = client.count.unwrap_or(1);
            for index in 0..count {
                let group = match count {
                    1 => name.get_ref().clone(),
                    _ => format!("{}.{index}", name.get_ref()),
                };
                let contract = Box::new(contract.clone());
                changes.push(Change { at, what: What::Contract { group, contract } });
            }
        }
        if change.speed.is_none() && change.client.is_empty() {
            let error = source.error(change.at.span(), "nothing changes then");
            return Err(error.allowed("`speed`, or keys of a contract such as client.NAME.min"));
        }
    }
    Ok(changes)
}

fn percent(source: &Source, speed: &Spanned<String>) -> Result<u32, ConfigError> {
    let number = speed.get_ref().strip_suffix('%').and_then(|text| text.parse().ok());
    number.filter(|percent| (1..=SPEED_MAX).contains(percent)).ok_or_else(|| {
        let error = source.error(speed.span(), format!("a speed of \"{}\"", speed.get_ref()));
        error.allowed(format!("\"1%\" to \"{SPEED_MAX}%\" of the profile's"))
    })
}
