//! From a file to what is run: variants and sweeps multiplied out, processes counted out, stacks and
//! host resolved. Every mistake that the parser cannot see is found here, with its place in the file.

use iofair_config::name::{GROUP_NAMES, is_group_name};
use iofair_config::{ConfigError, Source};
use iofair_core::time::Nanos;
use iofair_simulator::client_file::ClientFile;
use iofair_simulator::processes::{COUNT_MAX, checked_count, process, process_name};
use iofair_simulator::scenario::GroupSpec;

use super::basis;
use super::change::changes;
use super::contract::{client_contract, named_group};
use super::expect;
use super::file::{DedicatedFile, ExperimentFile, VariantFile};
use super::machine::{self, stripe};
use super::overrides::Overrides;
use super::resolved::{Dedicated, Experiment, Variant};
use super::stacks::stacks;
use super::sweep::{self, VARIANTS_MAX, index_of};

/// Shortest interval of a series: a run of an hour then has a few million.
const INTERVAL_MIN: Nanos = Nanos::from_millis(1);

/// Resolves a parsed file.
pub(crate) fn expand(
    source: &Source,
    name: &str,
    file: &ExperimentFile,
    overrides: &Overrides,
) -> Result<Experiment, ConfigError> {
    let machine = machine::named(source, file.machine.as_ref(), None)?;
    let stacks = stacks(source, file, machine.as_ref(), overrides)?;
    let mut variants = variants(source, file, overrides)?;
    for variant in &mut variants {
        variant.time = overrides.time.unwrap_or(variant.time);
        variant.ramp = overrides.ramp.unwrap_or(variant.ramp);
        if variant.time == Nanos::ZERO {
            return Err(source.error(file.time.span(), "no time at all").allowed("more than 0s"));
        }
    }
    let interval = file.interval.as_ref();
    if let Some(interval) = interval.filter(|interval| interval.get_ref().0 < INTERVAL_MIN) {
        let error = source.error(interval.span(), "too short an interval");
        return Err(error.allowed("1ms or more"));
    }
    let mut experiment = Experiment {
        name: name.to_owned(),
        title: file.title.clone(),
        source: file.source.clone(),
        note: file.note.clone(),
        units: file.units,
        repeats: overrides.repeats.unwrap_or(file.repeats).max(1),
        seed: overrides.seed.unwrap_or(file.seed),
        tags: file.tags.or(machine.and_then(|machine| machine.tags)),
        stacks,
        variants,
        claims: Vec::new(),
        claims_left_out: 0,
        interval: file.interval.as_ref().map(|time| time.get_ref().0),
        dedicated: file.dedicated.as_ref().map(Dedicated::new),
        jobs: None,
    };
    let (claims, left_out) = expect::resolve(source, file, &experiment)?;
    (experiment.claims, experiment.claims_left_out) = (claims, left_out);
    basis::finish(source, file, &mut experiment)?;
    Ok(experiment)
}

/// A variant before its clients are counted out: its name and the clients' keys.
#[derive(Clone)]
struct Draft<'a> {
    name: String,
    variant: Option<&'a VariantFile>,
    clients: Vec<ClientFile>,
    mix: Option<(String, u32)>,
    /// Keys that sweeps set, with their values.
    swept: Vec<(String, String)>,
    /// The keys among them that are not of a client, as they are written.
    settings: Vec<(String, String)>,
}

impl Draft<'_> {
    /// The same at a point of the sweeps.
    fn at_point(&self, point: &[sweep::Value]) -> Self {
        let mut draft = self.clone();
        for value in point {
            let space = if draft.name.is_empty() { "" } else { ", " };
            draft.name = format!("{}{space}{}", draft.name, value.label);
            draft.swept.push(value.swept.clone());
            draft.settings.extend(value.setting.clone());
            if let Some((index, keys)) = &value.client {
                draft.clients[*index] = keys.or(&draft.clients[*index]);
            }
        }
        draft
    }
}

fn variants(
    source: &Source,
    file: &ExperimentFile,
    overrides: &Overrides,
) -> Result<Vec<Variant>, ConfigError> {
    let mut names = Vec::new();
    for client in &file.client {
        let Some(name) = &client.name else {
            let message = "a [[client]] without `name`";
            return Err(ConfigError::whole_file(source.path(), message));
        };
        let is_word = is_group_name(name.get_ref()) && !name.get_ref().contains('/');
        if name.get_ref() == "total" || !is_word {
            let message = format!("{:?} cannot name a client", name.get_ref());
            let allowed = format!("one word, not `total`; {GROUP_NAMES}");
            return Err(source.error(name.span(), message).allowed(allowed));
        }
        if let Some(group) = client.group.as_ref().filter(|group| !is_group_name(group)) {
            let message = format!("{group:?} is not a valid group name");
            return Err(source.error(name.span(), message).allowed(GROUP_NAMES));
        }
        if names.contains(&name.get_ref().as_str()) {
            let message = format!("client `{}` is there twice", name.get_ref());
            return Err(source.error(name.span(), message));
        }
        names.push(name.get_ref().as_str());
    }
    let clients = file.client.clone();
    let (name, variant, mix) = (String::new(), None, None);
    let plain = Draft { name, variant, clients, mix, swept: Vec::new(), settings: Vec::new() };
    let mut drafts = vec![plain.clone()];
    if !file.variant.is_empty() {
        drafts.clear();
        for variant in &file.variant {
            let mut draft = plain.clone();
            (draft.name, draft.variant) = (variant.name.get_ref().clone(), Some(variant));
            for (client, keys) in &variant.client {
                let index = index_of(source, &names, client)?;
                if keys.name.is_some() {
                    let message = "a variant cannot rename a client";
                    return Err(source.error(client.span(), message));
                }
                draft.clients[index] = keys.or(&draft.clients[index]);
            }
            drafts.push(draft);
        }
    }
    if !file.sweep.is_empty() || file.sample.is_some() {
        let points = sweep::points(source, file, &names)?;
        drafts = drafts
            .iter()
            .flat_map(|draft| points.iter().map(|point| draft.at_point(point)))
            .collect();
    }
    if let Some(dedicated) = &file.dedicated {
        let index = index_of(source, &names, &dedicated.fill)?;
        drafts = with_each_size(source, dedicated, index, &drafts)?;
    }
    if drafts.len() > VARIANTS_MAX {
        let message = format!("{} variants; at most {VARIANTS_MAX} in a file", drafts.len());
        return Err(ConfigError::whole_file(source.path(), message));
    }
    for (i, draft) in drafts.iter().enumerate() {
        if drafts[..i].iter().any(|other| other.name == draft.name) {
            let message = format!("two variants are named `{}`", draft.name);
            return Err(ConfigError::whole_file(source.path(), message));
        }
    }
    drafts.iter().map(|draft| resolve(source, file, draft, overrides)).collect()
}

/// Each draft once for each number of clients, up to the given one. The client at `fill` has as many processes as the others
/// leave.
fn with_each_size<'a>(
    source: &Source,
    dedicated: &DedicatedFile,
    fill: usize,
    drafts: &[Draft<'a>],
) -> Result<Vec<Draft<'a>>, ConfigError> {
    let most = *dedicated.clients.get_ref();
    if most == 0 || most > COUNT_MAX {
        let message = format!("{most} clients");
        let error = source.error(dedicated.clients.span(), message);
        return Err(error.allowed(format!("1 to {COUNT_MAX}")));
    }
    let mut all = Vec::new();
    for draft in drafts {
        let active = |keys: &&ClientFile| keys.inactive != Some(true);
        let others = draft.clients.iter().enumerate().filter(|(index, _)| *index != fill);
        let others = others.map(|(_, keys)| keys).filter(active);
        let others: u32 = others.map(|keys| keys.count.unwrap_or(1)).sum();
        for clients in others.max(1)..=most {
            let mut draft = draft.clone();
            let (space, plural) = (if draft.name.is_empty() { "" } else { ", " }, clients > 1);
            draft.mix = Some((draft.name.clone(), clients));
            let word = if plural { "clients" } else { "client" };
            draft.name = format!("{}{space}{clients} {word}", draft.name);
            draft.clients[fill].count = Some(clients - others);
            all.push(draft);
        }
    }
    Ok(all)
}

/// Resolves a draft, in the file as its sweeps change it.
fn resolve(
    source: &Source,
    file: &ExperimentFile,
    draft: &Draft<'_>,
    overrides: &Overrides,
) -> Result<Variant, ConfigError> {
    if draft.settings.is_empty() {
        return resolve_in(source, file, draft, overrides);
    }
    let base = draft.variant.map(|variant| variant.name.get_ref().as_str());
    let resolved = || {
        let changed = sweep::changed(source, &draft.settings, base, overrides)?;
        let mut variants = changed.file.variant.iter();
        let variant = variants.find(|variant| Some(variant.name.get_ref().as_str()) == base);
        let draft = Draft { variant, ..draft.clone() };
        let variant = resolve_in(&changed.source, &changed.file, &draft, overrides)?;
        Ok(Variant { stacks: changed.stacks, ..variant })
    };
    resolved().map_err(|error| sweep::at_sweep(source, file, error))
}

/// Resolves a draft in this file.
fn resolve_in(
    source: &Source,
    file: &ExperimentFile,
    draft: &Draft<'_>,
    overrides: &Overrides,
) -> Result<Variant, ConfigError> {
    let (drive, machine, host) =
        machine::setting(source, file, draft.variant, overrides.numbers.as_ref())?;
    let mut groups = Vec::new();
    for group in &file.group {
        groups.push(named_group(source, group)?);
    }
    let (mut clients, mut subjects) = (Vec::new(), Vec::new());
    for keys in &draft.clients {
        let name = keys.name.as_ref().expect("a client without a name was refused before");
        let count = checked_count(source, keys)?;
        let contract = client_contract(source, keys)?;
        for index in 0..count {
            let group = keys.group.clone().unwrap_or_else(|| process_name(keys, index, count));
            if !group.is_empty() && !groups.iter().any(|g: &GroupSpec| g.name == group) {
                groups.push(GroupSpec { name: group.clone(), contract: contract.clone() });
            }
            if keys.inactive != Some(true) {
                clients.push(process(source, keys, index, count, group)?);
            }
        }
        if keys.inactive != Some(true) && count > 0 {
            subjects.push(name.get_ref().clone());
        }
    }
    Ok(Variant {
        name: draft.name.clone(),
        drive,
        machine,
        time: file.time.get_ref().0,
        ramp: file.ramp.0,
        history: file.history.0,
        stripe: draft.variant.and_then(|v| v.stripe.as_ref()).or(file.stripe.as_ref()).map(stripe),
        host,
        changes: changes(source, file, draft.variant, &draft.clients)?,
        groups,
        clients,
        subjects,
        mix: draft.mix.clone(),
        base: draft.variant.map(|variant| variant.name.get_ref().clone()).unwrap_or_default(),
        swept: draft.swept.clone(),
        stacks: Vec::new(),
        fitted_on: Vec::new(),
    }
    .with_times(draft.variant))
}

impl Variant {
    fn with_times(mut self, variant: Option<&VariantFile>) -> Self {
        if let Some(variant) = variant {
            self.time = variant.time.map_or(self.time, |time| time.0);
            self.ramp = variant.ramp.map_or(self.ramp, |ramp| ramp.0);
        }
        self
    }
}
