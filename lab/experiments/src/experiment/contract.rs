//! Contracts of groups, from the keys of a file.

use iofair_config::contracts::keys::Keys;
use iofair_config::contracts::{Refused, check_alone, check_burst};
use iofair_config::name::{GROUP_NAMES, is_group_name};
use iofair_config::{ConfigError, Source, Spanned};
use iofair_core::contract::Contract;
use iofair_simulator::client_file::ClientFile;
use iofair_simulator::scenario::GroupSpec;

use super::file::GroupFile;

/// A group that the file names.
pub(super) fn named_group(source: &Source, group: &GroupFile) -> Result<GroupSpec, ConfigError> {
    if !is_group_name(group.name.get_ref()) {
        let message = format!("{:?} is not a valid group name", group.name.get_ref());
        return Err(source.error(group.name.span(), message).allowed(GROUP_NAMES));
    }
    let name = group.name.get_ref();
    let contract = contract(source, &group.name, &group.contract)?;
    Ok(GroupSpec { name: name.clone(), contract })
}

/// The contract that a client's keys give its group.
pub(super) fn client_contract(source: &Source, keys: &ClientFile) -> Result<Contract, ConfigError> {
    contract(source, keys.name.as_ref().expect("checked before"), &keys.contract)
}

fn contract(source: &Source, name: &Spanned<String>, keys: &Keys) -> Result<Contract, ConfigError> {
    let contract = keys.contract();
    let refuse = |key: &str, refused: Refused| {
        let message = format!("`{key}` of `{}`: {}", name.get_ref(), refused.message);
        source.error(name.span(), message).allowed(refused.allowed)
    };
    check_alone(&contract).map_err(|refused| refuse("alone", refused))?;
    check_burst(&contract).map_err(|refused| refuse("max", refused))?;
    Ok(contract)
}
