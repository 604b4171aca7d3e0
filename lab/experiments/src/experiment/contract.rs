//! Contracts of groups, from the keys of a file.

use iofair_config::contracts::{check_alone, check_burst};
use iofair_config::name::{GROUP_NAMES, is_group_name};
use iofair_config::{ConfigError, Source};
use iofair_core::bounds::{WEIGHT_MAX, WEIGHT_MIN};
use iofair_core::contract::{Contract, Limits, Low};
use iofair_simulator::client_file::ClientFile;
use iofair_simulator::scenario::GroupSpec;

use super::file::GroupFile;

/// A group that the file names.
pub(super) fn named_group(source: &Source, group: &GroupFile) -> Result<GroupSpec, ConfigError> {
    if !is_group_name(group.name.get_ref()) {
        let message = format!("{:?} is not a valid group name", group.name.get_ref());
        return Err(source.error(group.name.span(), message).allowed(GROUP_NAMES));
    }
    let keys = ClientFile {
        name: Some(group.name.clone()),
        min: group.min,
        min_iops: group.min_iops,
        alone: group.alone,
        weight: group.weight,
        max: group.max,
        low: group.low,
        latency: group.latency,
        ..ClientFile::default()
    };
    let mut contract = client_contract(source, &keys)?;
    contract.class = group.class.unwrap_or_default().class();
    Ok(GroupSpec { name: group.name.get_ref().clone(), contract })
}

/// The contract that a client's keys give its group.
pub(super) fn client_contract(source: &Source, keys: &ClientFile) -> Result<Contract, ConfigError> {
    let mut contract = Contract::default();
    if let Some(weight) = keys.weight {
        if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) {
            let name = keys.name.as_ref().expect("checked before");
            let message = format!("`{}` has weight {weight}", name.get_ref());
            let allowed = format!("{WEIGHT_MIN} to {WEIGHT_MAX}");
            return Err(source.error(name.span(), message).allowed(allowed));
        }
        contract.weight = weight;
    }
    contract.min = keys.min.map(|rate| rate.0);
    contract.min_iops = keys.min_iops;
    contract.alone = keys.alone.map(|rate| rate.0);
    check_alone(contract.alone, contract.min).map_err(|(message, allowed)| {
        let name = keys.name.as_ref().expect("checked before");
        let message = format!("`alone` of `{}`: {message}", name.get_ref());
        source.error(name.span(), message).allowed(allowed)
    })?;
    contract.latency = keys.latency.map(|time| time.0);
    contract.low = keys.low.map_or_else(Low::default, |low| low.0);
    contract.max = keys.max.map_or_else(Limits::default, |max| max.0);
    check_burst(&contract.max).map_err(|(message, allowed)| {
        let name = keys.name.as_ref().expect("checked before");
        let message = format!("`max` of `{}`: {message}", name.get_ref());
        source.error(name.span(), message).allowed(allowed)
    })?;
    Ok(contract)
}
